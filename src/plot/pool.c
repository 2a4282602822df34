#include "base/arena.h"
#include "plot/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums are whole numbers, so that they are the same in any order. 2^43 times 2^20 pairs fit. */
#define UNIT 0x1p-24
#define LIMIT 0x1p19 /* weights beyond it count as this much in the mean */

struct heed_plot_pool {
    int64_t maps, queries, keys, step, rows, cols;
    int64_t *sum;   /* [maps, rows, cols] in UNITs */
    uint32_t *most; /* [maps, rows, cols] bits of floats, which order as the floats do from 0 up */
};

heed_status heed_plot_pool_create(heed_plot_pool **pool, int64_t maps, int64_t queries, int64_t keys,
                                  int64_t side)
{
    const int64_t longest = queries > keys ? queries : keys;
    size_t cells;
    *pool = NULL;
    if (maps < 1 || queries < 1 || keys < 1 || side < 1)
        return heed_fail(HEED_INVALID,
                         "a picture of %lld maps of %lld queries and %lld keys: at least 1 each",
                         (long long)maps, (long long)queries, (long long)keys);
    heed_plot_pool *made = calloc(1, sizeof *made);
    if (!made)
        return heed_fail(HEED_NO_MEMORY, "no memory for a picture");
    const int64_t step = (longest - 1) / side + 1;
    *made = (heed_plot_pool){.maps = maps,
                             .queries = queries,
                             .keys = keys,
                             .step = step,
                             .rows = (queries - 1) / step + 1,
                             .cols = (keys - 1) / step + 1};
    if (!__builtin_mul_overflow((size_t)(made->rows * made->cols), (size_t)maps, &cells)) {
        made->sum = heed_allocate(cells, sizeof *made->sum);
        made->most = heed_allocate(cells, sizeof *made->most);
    }
    if (!made->sum || !made->most) {
        const long long each = (long long)(made->rows * made->cols);
        heed_plot_pool_free(made);
        return heed_fail(HEED_NO_MEMORY, "no memory for %lld maps of %lld cells", (long long)maps, each);
    }
    *pool = made;
    return HEED_OK;
}

void heed_plot_pool_free(heed_plot_pool *pool)
{
    if (!pool)
        return;
    free(pool->sum);
    free(pool->most);
    free(pool);
}

static void raise_to(uint32_t *most, float weight)
{
    uint32_t bits, before = __atomic_load_n(most, __ATOMIC_RELAXED);
    memcpy(&bits, &weight, sizeof bits);
    while (bits > before &&
           !__atomic_compare_exchange_n(most, &before, bits, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* Weights of one query, keys key0 and on. */
static void add_row(heed_plot_pool *pool, int64_t cell0, int64_t key0, int64_t count, const float *weight)
{
    for (int64_t j = 0; j < count;) {
        const int64_t col = (key0 + j) / pool->step, end = (col + 1) * pool->step - key0;
        int64_t sum = 0;
        float most = 0.0f;
        for (; j < count && j < end; j++) {
            const double w = weight[j] > LIMIT ? LIMIT : weight[j] > -LIMIT ? weight[j] : -LIMIT;
            sum += llrint(w / UNIT);
            most = weight[j] > most ? weight[j] : most;
        }
        __atomic_fetch_add(&pool->sum[cell0 + col], sum, __ATOMIC_RELAXED);
        raise_to(&pool->most[cell0 + col], most);
    }
}

void heed_plot_pool_add(heed_plot_pool *pool, int64_t map, const heed_weights_tile *tile)
{
    const int64_t left = pool->keys - tile->key0, cols = tile->cols < left ? tile->cols : left;
    for (int i = 0; i < tile->rows && tile->query0 + i < pool->queries; i++) {
        const int64_t row = (tile->query0 + i) / pool->step;
        add_row(pool, (map * pool->rows + row) * pool->cols, tile->key0, cols,
                tile->weight + i * tile->stride);
    }
}

void heed_plot_pool_add_matrix(heed_plot_pool *pool, int64_t map, const float *weights)
{
    for (int64_t i = 0; i < pool->queries; i++)
        add_row(pool, (map * pool->rows + i / pool->step) * pool->cols, 0, pool->keys,
                weights + i * pool->keys);
}

void heed_plot_pool_sizes(const heed_plot_pool *pool, int64_t *queries, int64_t *keys)
{
    *queries = pool->queries;
    *keys = pool->keys;
}

int64_t heed_plot_pool_rows(const heed_plot_pool *pool)
{
    return pool->rows;
}

int64_t heed_plot_pool_cols(const heed_plot_pool *pool)
{
    return pool->cols;
}

int64_t heed_plot_pool_step(const heed_plot_pool *pool)
{
    return pool->step;
}

float heed_plot_pool_most(const heed_plot_pool *pool, int64_t map, int64_t row, int64_t col)
{
    float most;
    memcpy(&most, &pool->most[(map * pool->rows + row) * pool->cols + col], sizeof most);
    return most;
}

float heed_plot_pool_mean(const heed_plot_pool *pool, int64_t map, int64_t row, int64_t col)
{
    const int64_t down = pool->queries - row * pool->step, across = pool->keys - col * pool->step;
    const int64_t pairs =
        (down < pool->step ? down : pool->step) * (across < pool->step ? across : pool->step);
    return (float)((double)pool->sum[(map * pool->rows + row) * pool->cols + col] * UNIT / (double)pairs);
}
