/* PowerAttention (row 004.112): blocks at distances that are powers of two.
 *
 *     D = floor(p(i) / block) - floor(k_pos(j) / block)
 *     open when |D| < w, or the key's block is one of the first s, or |D| is a power of two
 *
 * After d layers of one-block windows information has gone 2^(d+1) - 2 blocks without a hole, though a query
 * sees about log2 n blocks. With causal. Chen et al.: PowerAttention: Exponentially Scaling of Receptive
 * Fields for Effective Sparse Attention, 2025.
 */
#include "attend/where/where.h"

enum { BLOCK, WINDOW, SINKS };

static int64_t block_of(const heed_form_state *form, int32_t pos)
{
    return heed_floor_divide(pos, (double)heed_whole(form, BLOCK));
}

static bool sees(int64_t window, int64_t sinks, int64_t query, int64_t key)
{
    const int64_t apart = query < key ? key - query : query - key;
    return apart < window || (key >= 0 && key < sinks) || (apart > 0 && !(apart & (apart - 1)));
}

/* All pairs of blocks, as long as there are few of them. */
static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    enum { MOST = 64 };
    const int64_t window = heed_arg_int(form, WINDOW), sinks = heed_arg_int(form, SINKS);
    const int64_t first = block_of(form, range->pos_min), last = block_of(form, range->pos_max);
    for (int b = 0; b < keys->count; b++) {
        const int64_t from = block_of(form, keys->pos_min[b]), to = block_of(form, keys->pos_max[b]);
        int64_t open = 0, all = 0;
        state[b] = HEED_PARTLY;
        if ((last - first + 1) > MOST || (to - from + 1) > MOST)
            continue;
        for (int64_t q = first; q <= last; q++)
            for (int64_t k = from; k <= to; k++, all++)
                open += sees(window, sinks, q, k);
        state[b] = open == 0 ? HEED_CLOSED : open == all ? HEED_OPEN : HEED_PARTLY;
    }
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    const int64_t window = heed_arg_int(form, WINDOW), sinks = heed_arg_int(form, SINKS);
    int64_t key[HEED_CHUNK];
    for (int col = 0, count; col < tile->cols; col += count) {
        count = tile->cols - col < HEED_CHUNK ? tile->cols - col : HEED_CHUNK;
        for (int j = 0; j < count; j++)
            key[j] = block_of(form, tile->key_pos[col + j]);
        for (int i = 0; i < tile->rows; i++) {
            const int64_t mine = block_of(form, tile->query_pos[i]);
            uint8_t *restrict row = open + i * tile->stride + col;
            for (int j = 0; j < count; j++)
                row[j] = sees(window, sinks, mine, key[j]);
        }
    }
}

static const heed_arg args[] = {
    [BLOCK] = {.name = "block", HEED_WHOLE, .value = 64, .summary = "positions of a block"},
    [WINDOW] = {.name = "w",
                .kind = HEED_ARG_INT,
                .value = 1,
                .least = 1,
                .most = 1 << 24,
                .summary = "blocks of the window, the query's own among them"},
    [SINKS] = {.name = "s",
               .kind = HEED_ARG_INT,
               .value = 1,
               .most = 1 << 24,
               .summary = "first blocks that all see"},
    {0},
};

const heed_form HEED_FORM(where_power) = {
    .name = "power",
    .stage = HEED_WHERE,
    .flags = HEED_SCATTERS,
    .summary = "blocks whose distance is a power of two, a window and the first blocks",
    .formula = "D = floor(p/block) - floor(k_pos/block): |D| < w, a first block, or |D| a power of 2",
    .source = "Chen et al.: PowerAttention, 2025",
    .row = "004.112",
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
