/* Probable blocks: far blocks of keys are seen by chance, the nearer the more often.
 *
 *     block b of keys is open to block B of queries with probability
 *     p = 1 for b = B and b = 0, else max(pmin, exp(-lam |B - b|))
 *
 * by a hash of the seed and both blocks, so that one seed always draws the same; blocks are of positions. A
 * layer does not know its number: other layers draw otherwise if a prefix gives them other seeds. What is not
 * drawn is left out; with position=pr_blocks of the same arguments what is drawn counts 1/p times. The
 * probability, its fall and the hash are our reading of PrFlashAttention.
 */
#include "attend/where/share.h"

#define MOST_BLOCKS                                                                                          \
    16 /* query blocks, or key blocks in a run, beyond which all is looked at pair by pair                   \
        */

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    const double size = heed_share_size(form);
    const int64_t first = heed_floor_divide(range->pos_min, size),
                  last = heed_floor_divide(range->pos_max, size);
    for (int k = 0; k < keys->count; k++) {
        const int64_t low = heed_floor_divide(keys->pos_min[k], size),
                      high = heed_floor_divide(keys->pos_max[k], size);
        if (last - first >= MOST_BLOCKS || high - low >= MOST_BLOCKS) {
            state[k] = HEED_PARTLY;
            continue;
        }
        int open = 0;
        for (int64_t q = first; q <= last; q++)
            for (int64_t b = low; b <= high; b++)
                open += heed_share_drawn(form, q, b);
        state[k] = open == 0                                       ? HEED_CLOSED
                   : open == (last - first + 1) * (high - low + 1) ? HEED_OPEN
                                                                   : HEED_PARTLY;
    }
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    const double size = heed_share_size(form);
    for (int i = 0; i < tile->rows; i++) {
        uint8_t *row = open + i * tile->stride;
        const int32_t query = heed_floor_divide(tile->query_pos[i], size);
        if (i > 0 && query == heed_floor_divide(tile->query_pos[i - 1], size)) {
            memcpy(row, row - tile->stride, (size_t)tile->cols);
            continue;
        }
        int32_t before = 0;
        for (int j = 0; j < tile->cols; j++) {
            const int32_t key = heed_floor_divide(tile->key_pos[j], size);
            row[j] = j > 0 && key == before ? row[j - 1] : heed_share_drawn(form, query, key);
            before = key;
        }
    }
}

static const heed_arg args[] = {HEED_SHARE_ARGS, {0}};

const heed_form HEED_FORM(where_pr_blocks) = {
    .name = "pr_blocks",
    .stage = HEED_WHERE,
    .flags = HEED_SCATTERS,
    .summary = "far blocks of keys are seen by chance, the nearer the more often",
    .formula = "hash(seed, B, b) < p, p = 1 for b = B and b = 0, else max(pmin, exp(-lam |B - b|))",
    .source = "PrFlashAttention: row 001.119",
    .row = "001.119",
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
