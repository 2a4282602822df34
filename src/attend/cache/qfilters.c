/* Q-Filters: keys by how far they reach along the direction in which queries lie.
 *
 *     u       = first right singular vector of the last `window` queries of the heads that share the key, as
 * they are compared, its sign such that their mean is along it score_j = k_j . u
 *
 * The published filters are made once a model from a calibration text, of queries before rotation; here they
 * are made of the queries at hand. Godey et al.: Q-Filters: Leveraging Query-Key Geometry for Efficient
 * Key-Value Cache Compression, 2025.
 */
#include "attend/cache/judge.h"

enum { WINDOW = HEED_OWN_ARG };
enum { STEPS = 500 }; /* of the power iteration, at most */

static int window(const heed_form_state *form)
{
    return heed_arg_int(form, WINDOW);
}

static const float *query_of(const heed_held *held, int head, int64_t i)
{
    return held->compared + (head * held->queries + i) * held->dim;
}

static void normalise(float *u, int64_t dim)
{
    const float length = sqrtf(heed_row_square(u, dim));
    for (int64_t d = 0; d < dim; d++)
        u[d] = length > 0.0f ? u[d] / length : 0.0f;
}

/* square [dim][dim] = Q^T Q and mean [dim], of the last queries Q of all heads that share the keys. */
static void gather(const heed_held *held, int64_t first, float *square, float *mean)
{
    const int64_t dim = held->dim;
    for (int64_t i = 0; i < dim * dim; i++)
        square[i] = 0.0f;
    for (int64_t d = 0; d < dim; d++)
        mean[d] = 0.0f;
    for (int h = 0; h < held->group; h++)
        for (int64_t i = first; i < held->queries; i++) {
            const float *restrict query = query_of(held, h, i);
            for (int64_t d = 0; d < dim; d++) {
                float *restrict row = square + d * dim;
                mean[d] += query[d];
#pragma omp simd
                for (int64_t e = 0; e < dim; e++)
                    row[e] += query[d] * query[e];
            }
        }
}

/* u: the eigenvector of largest eigenvalue, by the power method. */
static void main_direction(const float *square, const float *mean, int64_t dim, float *u, float *next)
{
    for (int64_t d = 0; d < dim; d++)
        u[d] = mean[d] + 1e-3f * (float)(d % 7); /* not at right angles to it by chance */
    normalise(u, dim);
    for (int step = 0; step < STEPS; step++) {
        float change = 0.0f;
        for (int64_t d = 0; d < dim; d++)
            next[d] = heed_row_dot(square + d * dim, u, dim);
        normalise(next, dim);
        for (int64_t d = 0; d < dim; d++) {
            change += fabsf(next[d] - u[d]);
            u[d] = next[d];
        }
        if (change < 1e-6f)
            return;
    }
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    const int64_t dim = held->dim;
    float *square = work + 4 * held->count, *mean = square + dim * dim, *u = mean + dim;
    gather(held, heed_first_query(held, heed_arg_int(form, WINDOW)), square, mean);
    main_direction(square, mean, dim, u, u + dim);
    const float sign = heed_row_dot(mean, u, dim) < 0.0f ? -1.0f : 1.0f;
    for (int64_t j = 0; j < held->count; j++)
        score[j] = sign * heed_row_dot(held->key + j * dim, u, dim);
}

static int64_t work_floats(const heed_form_state *form, const heed_held *largest)
{
    (void)form;
    return largest->dim * largest->dim + 3 * largest->dim;
}

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    HEED_COUNT_ARG("window", 1, 128, "last queries that give the direction"),
    {0},
};

static const heed_policy policy = {.observes = HEED_OBSERVES_KEYS | HEED_OBSERVES_QUERIES,
                                   .window = window,
                                   .work_floats = work_floats,
                                   .judge = judge};

const heed_form HEED_FORM(cache_qfilters) = {
    .name = "qfilters",
    .stage = HEED_CACHE,
    .summary = "keys by their reach along the main direction of the last queries",
    .formula = "score_j = k_j . u, u the first right singular vector of the queries",
    .source = "Godey et al.: Q-Filters, 2025; filters from the queries at hand",
    .args = args,
    .policy = &policy,
};
