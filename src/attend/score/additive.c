/* Additive: a small network with one hidden layer compares query and key.
 *
 *     s(i, j) = u_h . tanh(Wq_h q_i + Wk_h k_j + b_h)
 *
 * Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate, 2015.
 */
#include "attend/score/hidden.h"

static inline float term(float query, float key)
{
    return heed_tanh(query + key);
}

static inline float slope(float query, float key, float value)
{
    (void)query, (void)key;
    return 1.0f - value * value;
}

static void compare(const heed_form_state *form, heed_tile *tile)
{
    pair_scores(tile, form->param[U] + tile->head * tile->dim, 0.0f, 1.0f, term);
}

static void compare_backward(const heed_form_state *form, heed_tile *tile)
{
    float *du = form->grad[U] ? form->grad[U] + tile->head * tile->dim : NULL;
    pair_scores_backward(tile, form->param[U] + tile->head * tile->dim, du, 1.0f, term, slope, 1.0f);
}

static const heed_param params[] = {HEED_HIDDEN_PARAMS, {0}};

const heed_form HEED_FORM(score_additive) = {
    .name = "additive",
    .stage = HEED_SCORE,
    .summary = "a hidden layer with tanh compares query and key",
    .formula = "s = u.tanh(Wq q + Wk k + b)",
    .source = "Bahdanau et al. 2015",
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
