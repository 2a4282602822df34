/* Strided attention: every s-th position, counted from the query to both sides.
 *
 *     open when (p(i) - k_pos(j)) mod s = 0
 *
 * `causal & (window(s) | strided(s))` is the strided pattern of Child et al.: Sparse Transformers, 2019.
 */
#include "attend/where/where.h"

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    const int64_t s = heed_whole(form, 0);
    const heed_interval anywhere = {-HEED_BEYOND, HEED_BEYOND};
    for (int b = 0; b < keys->count; b++)
        state[b] =
            heed_multiples_state(heed_distances(range, keys->pos_min[b], keys->pos_max[b]), anywhere, s);
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    const int64_t s = heed_whole(form, 0);
    uint32_t remainder[HEED_CHUNK];
    for (int col = 0, count; col < tile->cols; col += count) {
        count = heed_remainders(tile, col, s, remainder);
        for (int i = 0; i < tile->rows; i++) {
            const uint32_t mine = heed_remainder(tile->query_pos[i], s);
            uint8_t *restrict row = open + i * tile->stride + col;
            for (int j = 0; j < count; j++)
                row[j] = remainder[j] == mine;
        }
    }
}

static const heed_arg args[] = {
    {.name = "s", HEED_WHOLE, .required = true, .summary = "distances that are multiples of s are open"},
    {0},
};

const heed_form HEED_FORM(where_strided) = {
    .name = "strided",
    .stage = HEED_WHERE,
    .flags = HEED_SCATTERS,
    .summary = "a query sees every s-th position, counted from itself",
    .formula = "(p(i) - k_pos(j)) mod s = 0",
    .source = "Child et al.: Generating Long Sequences with Sparse Transformers, 2019",
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
