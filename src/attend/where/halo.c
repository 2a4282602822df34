/* HaloNet (row 004.014): blocks of a picture that see themselves and a rim around them. Position p is the
 * place (floor(p / cols), p mod cols) of a rows x cols picture.
 *
 *     open when the key's place lies in the query's b x b block made larger by h places on each side; never
 *     outside the picture
 *
 * b as large as the picture is attention to all of it, b = 1 a square around each place. Downsampling is
 * attention with every s-th query. Vaswani et al.: Scaling Local Self-Attention for Parameter Efficient
 * Visual Backbones, 2021.
 */
#include "attend/where/where.h"

enum { ROWS, COLS, BLOCK, RIM };

/* Coordinates seen from coordinate x. */
static heed_interval seen(const heed_form_state *form, int64_t x)
{
    const int64_t b = heed_whole(form, BLOCK), h = heed_arg_int(form, RIM), first = x / b * b;
    return (heed_interval){first - h, first + b - 1 + h};
}

static int64_t places(const heed_form_state *form)
{
    const int64_t rows = heed_whole(form, ROWS), cols = heed_whole(form, COLS);
    return rows > HEED_BEYOND / cols ? HEED_BEYOND : rows * cols;
}

/* By rows of the picture; columns are left to the mask. */
static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    const int64_t cols = heed_whole(form, COLS), all = places(form);
    memset(state, HEED_CLOSED, (size_t)keys->count);
    if (range->pos_max < 0 || range->pos_min >= all)
        return;
    const heed_interval first = seen(form, heed_clamp(range->pos_min, 0, all - 1) / cols),
                        last = seen(form, heed_clamp(range->pos_max, 0, all - 1) / cols);
    for (int b = 0; b < keys->count; b++)
        if (keys->pos_max[b] >= first.low * cols && keys->pos_min[b] < (last.high + 1) * cols)
            state[b] = HEED_PARTLY;
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    const int64_t cols = heed_whole(form, COLS), all = places(form);
    for (int i = 0; i < tile->rows; i++) {
        const int64_t p = tile->query_pos[i];
        uint8_t *restrict row = open + i * tile->stride;
        memset(row, 0, (size_t)tile->cols);
        if (p < 0 || p >= all)
            continue;
        const heed_interval tall = seen(form, p / cols), wide = seen(form, p % cols);
        for (int j = 0; j < tile->cols; j++) {
            const int64_t k = tile->key_pos[j], r = k / cols, c = k % cols;
            row[j] = (k >= 0) & (k < all) & (r >= tall.low) & (r <= tall.high) & (c >= wide.low) &
                     (c <= wide.high);
        }
    }
}

static const heed_arg args[] = {
    [ROWS] = {.name = "rows", HEED_WHOLE, .required = true, .summary = "height of the picture"},
    [COLS] = {.name = "cols", HEED_WHOLE, .required = true, .summary = "width of the picture"},
    [BLOCK] = {.name = "b", HEED_WHOLE, .value = 8, .summary = "side of a block"},
    [RIM] = {.name = "h",
             .kind = HEED_ARG_INT,
             .value = 3,
             .most = 1 << 20,
             .summary = "places of the rim on each side"},
    {0},
};

const heed_form HEED_FORM(where_halo) = {
    .name = "halo",
    .stage = HEED_WHERE,
    .flags = HEED_SCATTERS,
    .summary = "blocks of a picture that see themselves and a rim around them",
    .formula = "both coordinates in the query's block of b, h places more on each side",
    .source = "Vaswani et al.: Scaling Local Self-Attention for Parameter Efficient Visual Backbones, 2021",
    .row = "004.014",
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
