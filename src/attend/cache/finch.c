/* FINCH: keys by the weights that a prompt's end gives them, each weight relative to how many keys the query
 * could see.
 *
 *     score_j = sum over the last `window` queries i of n_i w_ij,     n_i the keys held that i sees;
 *     the mean over the heads that share the key
 *
 * The window is the question at the end of a prompt, and its keys stay. The paper reads the prompt in chunks,
 * and moves kept keys up: `finch(...) > chunked(1024) > packed`. Corallo, Papotti: FINCH: Prompt-guided
 * Key-Value Cache Compression, 2024.
 */
#include "attend/cache/judge.h"

enum { WINDOW = HEED_OWN_ARG };

static int window(const heed_form_state *form)
{
    return heed_arg_int(form, WINDOW);
}

static void ends(const heed_form_state *form, int64_t budget, int64_t *first, int64_t *recent)
{
    (void)budget;
    *first = 0;
    *recent = heed_arg_int(form, WINDOW);
}

/* Positions rise, so the keys that a query sees lie at the front. */
static int64_t keys_before(const heed_held *held, int32_t pos)
{
    int64_t n = held->count;
    while (n > 0 && held->pos[n - 1] > pos)
        n--;
    return n;
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)work;
    for (int64_t j = 0; j < held->count; j++)
        score[j] = 0.0f;
    for (int64_t i = heed_first_query(held, heed_arg_int(form, WINDOW)); i < held->queries; i++) {
        const float seen = (float)keys_before(held, held->query_pos[i]) / (float)held->group;
        for (int h = 0; h < held->group; h++) {
            const float *restrict weight = heed_weights_of(held, h, i);
#pragma omp simd
            for (int64_t j = 0; j < held->count; j++)
                score[j] += seen * weight[j];
        }
    }
}

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    HEED_COUNT_ARG("window", 1, 32, "queries of the question, whose keys stay"),
    {0},
};

static const heed_policy policy = {
    .observes = HEED_OBSERVES_WEIGHTS, .window = window, .ends = ends, .judge = judge};

const heed_form HEED_FORM(cache_finch) = {
    .name = "finch",
    .stage = HEED_CACHE,
    .summary = "keys by what the question at a prompt's end gives them, relative to the keys it sees",
    .formula = "score_j = sum of n_i w_ij over the last `window` queries i, n_i the keys that i sees",
    .source = "Corallo, Papotti: FINCH, 2024",
    .args = args,
    .policy = &policy,
};
