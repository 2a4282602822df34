/* Scissorhands: keys that mattered keep mattering; those that were most often of little weight go.
 *
 *     score_j = - number of the last `window` queries i, over the heads that share the key, with
 *               w_ij < 1 / (keys held that i sees)
 *
 * A query that stands before the key says nothing of it. The newest `recent` keys stay. The paper drops half
 * of the cache whenever it is full: `scissorhands(budget=B/2) > every(B/2)`. Liu et al.: Scissorhands, 2023.
 */
#include "attend/cache/judge.h"

enum { WINDOW = HEED_OWN_ARG, RECENT };

static int window(const heed_form_state *form)
{
    return heed_arg_int(form, WINDOW);
}

static void ends(const heed_form_state *form, int64_t budget, int64_t *first, int64_t *recent)
{
    (void)budget;
    *first = 0;
    *recent = heed_arg_int(form, RECENT);
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)work;
    for (int64_t j = 0; j < held->count; j++)
        score[j] = 0.0f;
    for (int64_t i = heed_first_query(held, heed_arg_int(form, WINDOW)); i < held->queries; i++) {
        int64_t seen = held->count;
        while (seen > 0 && held->pos[seen - 1] > held->query_pos[i])
            seen--;
        const float fair = 1.0f / (float)(seen ? seen : 1);
        for (int h = 0; h < held->group; h++) {
            const float *restrict weight = heed_weights_of(held, h, i);
#pragma omp simd
            for (int64_t j = 0; j < seen; j++)
                score[j] -= weight[j] < fair ? 1.0f : 0.0f;
        }
    }
}

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    HEED_COUNT_ARG("window", 1, 400, "last queries that count"),
    HEED_COUNT_ARG("recent", 0, 10, "newest keys that stay"),
    {0},
};

static const heed_policy policy = {
    .observes = HEED_OBSERVES_WEIGHTS, .window = window, .ends = ends, .judge = judge};

const heed_form HEED_FORM(cache_scissorhands) = {
    .name = "scissorhands",
    .stage = HEED_CACHE,
    .summary = "drops the keys that most often had less than the average weight",
    .formula = "score_j = - number of the last `window` queries with w_ij below 1 / (keys seen)",
    .source = "Liu et al.: Scissorhands, 2023",
    .args = args,
    .policy = &policy,
};
