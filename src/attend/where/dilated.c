/* Dilated window: w places to each side, a step apart.
 *
 *     open when |p(i) - k_pos(j)| < w step  and  (p(i) - k_pos(j)) mod step = 0
 *
 * step=1 is window(w). Beltagy, Peters, Cohan: Longformer, 2020.
 */
#include "attend/where/where.h"

static heed_interval reach_of(const heed_form_state *form, int64_t from)
{
    const int64_t reach = heed_whole(form, 0) * heed_whole(form, 1); /* at most 2^62 + 2^33, no overflow */
    return (heed_interval){from - reach + 1, from + reach - 1};
}

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    const int64_t step = heed_whole(form, 1);
    const heed_interval reach = reach_of(form, 0);
    for (int b = 0; b < keys->count; b++)
        state[b] =
            heed_multiples_state(heed_distances(range, keys->pos_min[b], keys->pos_max[b]), reach, step);
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    const int64_t step = heed_whole(form, 1);
    for (int i = 0; i < tile->rows; i++)
        heed_interval_row(reach_of(form, tile->query_pos[i]), tile, open + i * tile->stride);

    uint32_t remainder[HEED_CHUNK];
    for (int col = 0, count; col < tile->cols; col += count) {
        count = heed_remainders(tile, col, step, remainder);
        for (int i = 0; i < tile->rows; i++) {
            const uint32_t mine = heed_remainder(tile->query_pos[i], step);
            uint8_t *restrict row = open + i * tile->stride + col;
            for (int j = 0; j < count; j++)
                row[j] &= remainder[j] == mine;
        }
    }
}

static const heed_arg args[] = {
    {.name = "w", HEED_WHOLE, .required = true, .summary = "places to each side, itself counted"},
    {.name = "step", HEED_WHOLE, .required = true, .summary = "distance from place to place"},
    {0},
};

const heed_form HEED_FORM(where_dilated) = {
    .name = "dilated",
    .stage = HEED_WHERE,
    .flags = HEED_SCATTERS,
    .summary = "a window of w places that lie a step apart",
    .formula = "|p(i) - k_pos(j)| < w step and (p(i) - k_pos(j)) mod step = 0",
    .source = "Beltagy et al.: Longformer, 2020",
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
