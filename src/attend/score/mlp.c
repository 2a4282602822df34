/* MLP: as additive, with relu, so piecewise linear and cheaper, and an offset.
 *
 *     s(i, j) = u_h . relu(Wq_h q_i + Wk_h k_j + b_h) + c_h
 *
 * A feed-forward score in the manner of DiGiugno and Mahmood: Neural Attention, 2025, with one hidden layer.
 */
#include "attend/score/hidden.h"

/* Written so that NaN stays NaN. */
static inline float term(float query, float key)
{
    const float x = query + key;
    return x < 0.0f ? 0.0f : x;
}

static inline float slope(float query, float key, float value)
{
    (void)query, (void)key;
    const float one = value == 0.0f ? 0.0f : 1.0f;
    return value != value ? value : one;
}

static void compare(const heed_form_state *form, heed_tile *tile)
{
    pair_scores(tile, form->param[U] + tile->head * tile->dim, form->param[C][tile->head], 1.0f, term);
}

static void compare_backward(const heed_form_state *form, heed_tile *tile)
{
    float *du = form->grad[U] ? form->grad[U] + tile->head * tile->dim : NULL;
    pair_scores_backward(tile, form->param[U] + tile->head * tile->dim, du, 1.0f, term, slope, 1.0f);
    float dc = 0.0f;
    for (int i = 0; i < tile->rows; i++) {
        const float *dscore = tile->dscore + i * tile->stride;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < tile->cols; j++)
            sum += dscore[j];
        dc += sum;
    }
    if (form->grad[C])
        form->grad[C][tile->head] += dc;
}

static const heed_param params[] = {
    HEED_HIDDEN_PARAMS,
    [C] = {.name = "c", .shape = "H", .summary = "offset of the score"},
    {0},
};

const heed_form HEED_FORM(score_mlp) = {
    .name = "mlp",
    .stage = HEED_SCORE,
    .summary = "a hidden layer with relu compares query and key",
    .formula = "s = u.relu(Wq q + Wk k + b) + c",
    .source = "one hidden layer of DiGiugno and Mahmood 2025",
    .flags = HEED_KEYS_BY_HEAD,
    .args = hidden_args,
    .params = params,
    .resolve = resolve_hidden,
    .prepared_dim = hidden_dim,
    .prepare_query = prepare_query,
    .prepare_query_backward = prepare_query_backward,
    .prepare_key = prepare_key,
    .prepare_key_backward = prepare_key_backward,
    .pair = compare,
    .pair_backward = compare_backward,
};
