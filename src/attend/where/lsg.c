/* LSG attention (row 001.131): local blocks, sparse keys beside them, and global first positions.
 *
 *     open when floor(k_pos / b) is within 1 of floor(p / b);
 *     or k_pos lies in the f s positions before or behind those three blocks, and k_pos mod f = head mod f;
 *     or p or k_pos is below g
 *
 * The stride rule, which picks s of f s keys by index, other ones for other heads; rules that look at keys
 * are not here. Condevaux, Harispe: LSG Attention: Extrapolation of Pretrained Transformers to Long
 * Sequences, 2022.
 */
#include "attend/where/where.h"

enum { BLOCK, SPARSE, FACTOR, GLOBAL };

/* The three blocks around the one of position p. */
static heed_interval local(const heed_form_state *form, int32_t p)
{
    const int64_t b = heed_whole(form, BLOCK), first = (int64_t)heed_floor_divide(p, (double)b) * b;
    return (heed_interval){first - b, first + 2 * b - 1};
}

static int64_t reach(const heed_form_state *form)
{
    return heed_clamp((int64_t)heed_arg_int(form, SPARSE) * heed_arg_int(form, FACTOR), 0, HEED_BEYOND);
}

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    const int64_t g = heed_arg_int(form, GLOBAL), wider = reach(form);
    heed_interval first = local(form, range->pos_min), last = local(form, range->pos_max);
    for (int b = 0; b < keys->count; b++) {
        const int64_t low = keys->pos_min[b], high = keys->pos_max[b];
        const bool inside = low >= last.low && high <= first.high;
        const bool all = range->pos_max < g || high < g;
        const bool touched =
            (high >= first.low - wider && low <= last.high + wider) || low < g || range->pos_min < g;
        state[b] = inside || all ? HEED_OPEN : touched ? HEED_PARTLY : HEED_CLOSED;
    }
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    const int64_t g = heed_arg_int(form, GLOBAL), wider = reach(form), f = heed_arg_int(form, FACTOR);
    const uint32_t mine = (uint32_t)(tile->head % f);
    uint32_t remainder[HEED_CHUNK];
    for (int col = 0, count; col < tile->cols; col += count) {
        count = heed_remainders(tile, col, f, remainder);
        for (int i = 0; i < tile->rows; i++) {
            const heed_interval near = local(form, tile->query_pos[i]);
            const bool sees_all = tile->query_pos[i] < g;
            uint8_t *restrict row = open + i * tile->stride + col;
            for (int j = 0; j < count; j++) {
                const int64_t k = tile->key_pos[col + j];
                const bool beside =
                    (k >= near.low - wider) & (k <= near.high + wider) & (remainder[j] == mine);
                row[j] = ((k >= near.low) & (k <= near.high)) | beside | (k < g) | sees_all;
            }
        }
    }
}

static const heed_arg args[] = {
    [BLOCK] = {.name = "b", HEED_WHOLE, .value = 128, .summary = "positions of a block"},
    [SPARSE] = {.name = "s",
                .kind = HEED_ARG_INT,
                .value = 128,
                .most = 1 << 24,
                .summary = "sparse keys on each side"},
    [FACTOR] = {.name = "f",
                .kind = HEED_ARG_INT,
                .value = 2,
                .least = 1,
                .most = 1024,
                .summary = "one of how many positions is picked"},
    [GLOBAL] = {.name = "g",
                .kind = HEED_ARG_INT,
                .value = 1,
                .most = 1 << 24,
                .summary = "first positions that see all and are seen by all"},
    {0},
};

const heed_form HEED_FORM(where_lsg) = {
    .name = "lsg",
    .stage = HEED_WHERE,
    .flags = HEED_SCATTERS | HEED_SEES_BY_HEAD,
    .summary = "local blocks, sparse keys beside them that differ by head, and global positions",
    .formula = "block within 1, or k_pos mod f = head mod f within f s of those blocks, or a first position",
    .source = "Condevaux, Harispe: LSG Attention, 2022; the stride rule",
    .row = "001.131",
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
