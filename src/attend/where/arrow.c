/* Arrow attention (row 000.067): one context and many replies in one pass. Segment 0 is the context, every
 * other segment a reply.
 *
 *     open when q_segment[i] = k_segment[j], or one of them is 0; one_way: or k_segment[j] = 0
 *
 * A reply sees the context and itself, never another reply. With one_way the context does not see replies, so
 * that a reply's score does not depend on the others. Song et al.: Uni-Encoder, 2021; one_way is an addition.
 */
#include "attend/where/where.h"

static inline uint8_t sees(bool one_way, int32_t query, int32_t key)
{
    return (uint8_t)((query == key) | (key == 0) | ((query == 0) & !one_way));
}

/* The state of all pairs of a run of queries with a block of keys, if both are of one segment. */
static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    const bool one_way = form->arg[0].number == 1;
    const int32_t *query = heed_query_segments(range->inputs, range->batch),
                  *key = heed_key_segments(range->inputs, range->batch);
    bool one = true;
    for (int64_t i = range->first; i <= range->last; i++)
        one &= query[i] == query[range->first];
    for (int b = 0; b < keys->count; b++) {
        const int64_t first = keys->first + (int64_t)b * keys->size;
        const int64_t end = heed_clamp(first + keys->size, 0, keys->keys);
        bool same = one && end > first;
        for (int64_t j = first; same && j < end; j++)
            same = key[j] == key[first];
        state[b] = !same                                            ? HEED_PARTLY
                   : sees(one_way, query[range->first], key[first]) ? HEED_OPEN
                                                                    : HEED_CLOSED;
    }
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    const bool one_way = form->arg[0].number == 1;
    const int rows = heed_real_rows(form, tile), cols = heed_real_cols(tile);
    const int32_t *query = heed_query_segments(tile->inputs, tile->batch) + tile->query0;
    const int32_t *restrict key = heed_key_segments(tile->inputs, tile->batch) + tile->key0;
    for (int i = 0; i < tile->rows; i++) {
        uint8_t *restrict row = open + i * tile->stride;
        const int real = i < rows ? cols : 0;
        const int32_t mine = i < rows ? query[i] : 0;
        for (int j = 0; j < real; j++)
            row[j] = sees(one_way, mine, key[j]);
        memset(row + real, 0, (size_t)(tile->cols - real));
    }
}

static const heed_option ways[] = {{"no", NULL}, {"yes", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    {.name = "one_way",
     .kind = HEED_ARG_CHOICE,
     .options = ways,
     .summary = "the context does not see replies"},
    {0},
};

const heed_form HEED_FORM(where_arrow) = {
    .name = "arrow",
    .stage = HEED_WHERE,
    .summary = "replies see the context, segment 0, and themselves; the context sees all",
    .formula = "q_segment[i] = k_segment[j], or k_segment[j] = 0, or q_segment[i] = 0 unless one_way",
    .source = "Song et al.: Uni-Encoder: A Fast and Accurate Response Selection Paradigm, 2021",
    .row = "000.067",
    .flags = HEED_NEEDS_SEGMENTS | HEED_SCATTERS,
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
