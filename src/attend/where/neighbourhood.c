/* Neighbourhood attention on a grid: position p is the place (floor(p / cols), p mod cols) of a rows x cols
 * picture.
 *
 *     open when both coordinates of the key lie in the query's runs: 2 radius + 1 places around the query's
 * coordinate, moved inside at the borders, or the whole side where it is shorter; never for a position
 * outside the grid
 *
 * Hassani, Walton, Li, Li, Shi: Neighborhood Attention Transformer, 2023.
 */
#include "attend/where/where.h"

typedef struct grid {
    int64_t rows, cols, radius;
} grid;

/* Coordinates of some positions, as small as their kind allows. */
typedef struct places {
    heed_interval row, col;
} places;

static grid grid_of(const heed_form_state *form)
{
    return (grid){heed_whole(form, 0), heed_whole(form, 1), heed_whole(form, 2)};
}

/* Whether all, or any, of the positions from low to high may lie on the grid. */
static bool touches(grid g, heed_interval pos)
{
    return pos.high >= 0 && pos.low < g.rows * g.cols;
}

static bool within(grid g, heed_interval pos)
{
    return pos.low >= 0 && pos.high < g.rows * g.cols;
}

/* Places that hold all positions from low to high that lie on the grid, which they touch. */
static places places_of(grid g, heed_interval pos)
{
    const int64_t low = heed_clamp(pos.low, 0, g.rows * g.cols - 1),
                  high = heed_clamp(pos.high, 0, g.rows * g.cols - 1);
    places p = {.row = {low / g.cols, high / g.cols}, .col = {0, g.cols - 1}};
    if (p.row.low == p.row.high)
        p.col = (heed_interval){low % g.cols, high % g.cols};
    return p;
}

/* The coordinates that are seen from coordinate x of a side. */
static heed_interval run(int64_t x, int64_t side, int64_t radius)
{
    const int64_t width = 2 * radius + 1;
    if (side <= width)
        return (heed_interval){0, side - 1};
    const int64_t first = heed_clamp(x - radius, 0, side - width);
    return (heed_interval){first, first + width - 1};
}

/* State along one side: runs move up with the query's coordinate. */
static int side_state(heed_interval query, heed_interval key, int64_t side, int64_t radius)
{
    const heed_interval first = run(query.low, side, radius), last = run(query.high, side, radius);
    if (key.high < first.low || key.low > last.high)
        return HEED_CLOSED;
    return key.low >= last.low && key.high <= first.high ? HEED_OPEN : HEED_PARTLY;
}

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    const grid g = grid_of(form);
    const heed_interval q = {range->pos_min, range->pos_max};
    memset(state, HEED_CLOSED, (size_t)keys->count);
    if (!touches(g, q))
        return;
    const places query = places_of(g, q);
    for (int b = 0; b < keys->count; b++) {
        const heed_interval k = {keys->pos_min[b], keys->pos_max[b]};
        if (!touches(g, k))
            continue;
        const places key = places_of(g, k);
        const int by_row = side_state(query.row, key.row, g.rows, g.radius);
        const int by_col = side_state(query.col, key.col, g.cols, g.radius);
        const int both = by_row < by_col ? by_row : by_col;
        state[b] = (uint8_t)(both == HEED_OPEN && !(within(g, q) && within(g, k)) ? HEED_PARTLY : both);
    }
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    const grid g = grid_of(form);
    int32_t key_row[HEED_CHUNK], key_col[HEED_CHUNK];
    for (int col = 0, count; col < tile->cols; col += count) {
        count = tile->cols - col < HEED_CHUNK ? tile->cols - col : HEED_CHUNK;
        const int32_t *restrict pos = tile->key_pos + col;
        for (int j = 0; j < count; j++) {
            key_row[j] = heed_floor_divide(pos[j], (double)g.cols); /* outside 0 .. rows-1 off the grid */
            key_col[j] = (int32_t)heed_remainder(pos[j], g.cols);
        }
        for (int i = 0; i < tile->rows; i++) {
            uint8_t *restrict row = open + i * tile->stride + col;
            const heed_interval p = {tile->query_pos[i], tile->query_pos[i]};
            if (!within(g, p)) {
                memset(row, 0, (size_t)count);
                continue;
            }
            const places query = places_of(g, p);
            const heed_interval rows = run(query.row.low, g.rows, g.radius),
                                cols = run(query.col.low, g.cols, g.radius);
            const int32_t top = (int32_t)rows.low, bottom = (int32_t)heed_clamp(rows.high, 0, INT32_MAX);
            const int32_t left = (int32_t)cols.low, right = (int32_t)heed_clamp(cols.high, 0, INT32_MAX);
            for (int j = 0; j < count; j++)
                row[j] = (key_row[j] >= top) & (key_row[j] <= bottom) & (key_col[j] >= left) &
                         (key_col[j] <= right);
        }
    }
}

static const heed_arg args[] = {
    {.name = "rows", HEED_WHOLE, .required = true, .summary = "height of the grid"},
    {.name = "cols", HEED_WHOLE, .required = true, .summary = "width of the grid"},
    {.name = "radius",
     .kind = HEED_ARG_INT,
     .least = 0,
     .most = INFINITY,
     .required = true,
     .summary = "places seen to each side"},
    {0},
};

const heed_form HEED_FORM(where_neighbourhood) = {
    .name = "neighbourhood",
    .stage = HEED_WHERE,
    .flags = HEED_SCATTERS,
    .summary = "a query sees a square of the grid around it, moved inside at the borders",
    .formula = "both coordinates in the run of 2 radius + 1 places nearest to the query's",
    .source = "Hassani et al.: Neighborhood Attention Transformer, 2023",
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
