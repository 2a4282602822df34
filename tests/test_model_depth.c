/* Models whose layers share keys and values, and models whose last state asks all layers. */
#include "nn/layers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { B = 2, N = 7, VOCABULARY = 11 };

typedef struct model {
    heed_parameters *parameters;
    heed_graph *graph;
    heed_transformer_nodes nodes;
    heed_variable targets, loss;
} model;

static model make(int64_t kv_every, int64_t shortcuts, bool recompute)
{
    const heed_transformer how = {.batch = B,
                                  .context = N,
                                  .vocabulary = VOCABULARY,
                                  .width = 8,
                                  .layers = 4,
                                  .heads = 2,
                                  .kv_heads = 1,
                                  .hidden = 12,
                                  .spec = "position=rope; where=causal",
                                  .norm = HEED_LAYER_RMS,
                                  .norm_eps = 1e-5f,
                                  .function = HEED_FN_SILU,
                                  .gated = true,
                                  .qk_norm = true,
                                  .deviation = 0.3f,
                                  .recompute = recompute,
                                  .kv_every = kv_every,
                                  .shortcuts = shortcuts};
    model m = {.nodes = {.segments = HEED_NO_INPUT, .places = HEED_NO_INPUT}};
    const int64_t shape[] = {B, N};
    assert_int_equal(heed_parameters_create(&m.parameters, 3), HEED_OK);
    assert_int_equal(heed_graph_create(&m.graph, m.parameters, 1, HEED_ISA_AUTO), HEED_OK);
    heed_transformer_make(m.graph, &how, &m.nodes);
    m.targets = heed_nn_input(m.graph, HEED_I32, 2, shape);
    m.loss = heed_nn_cross_entropy(m.graph, m.nodes.logits, m.targets, 0);
    heed_graph_keep(m.graph, m.nodes.logits);
    if (heed_graph_finish(m.graph, m.loss))
        fail_msg("%s", heed_message());
    int32_t *tokens = heed_graph_data(m.graph, m.nodes.tokens),
            *targets = heed_graph_data(m.graph, m.targets);
    for (int i = 0; i < B * N; i++) {
        tokens[i] = i * i % VOCABULARY;
        targets[i] = (i * 5 + 2) % VOCABULARY;
    }
    return m;
}

static void drop(model *m)
{
    heed_graph_free(m->graph);
    heed_parameters_free(m->parameters);
}

static double loss_of(const model *m)
{
    assert_int_equal(heed_graph_forward(m->graph), HEED_OK);
    return *(float *)heed_graph_data(m->graph, m->loss);
}

/* Every parameter that `named` is part of the name of, by central differences. */
static void check_gradients(const model *m, const char *named)
{
    int checked = 0;
    assert_int_equal(heed_graph_forward(m->graph), HEED_OK);
    assert_int_equal(heed_graph_backward(m->graph, 1, false), HEED_OK);
    for (int i = 0; i < heed_parameters_count(m->parameters); i++) {
        heed_parameter *p = heed_parameters_at(m->parameters, i);
        if (!strstr(p->name, named))
            continue;
        for (int64_t j = 0; j < p->count; j += p->count / 3 + 1, checked++) {
            const float was = p->value[j], step = 1e-2f;
            p->value[j] = was + step;
            const double above = loss_of(m);
            p->value[j] = was - step;
            const double slope = (above - loss_of(m)) / (2 * (double)step);
            p->value[j] = was;
            if (fabs(slope - p->gradient[j]) > 2e-3 * (0.1 + fabs(slope)))
                fail_msg("%s[%lld]: %g, by differences %g", p->name, (long long)j, (double)p->gradient[j],
                         slope);
        }
    }
    assert_true(checked > 0);
}

static int named(const model *m, const char *part)
{
    int count = 0;
    for (int i = 0; i < heed_parameters_count(m->parameters); i++)
        count += strstr(heed_parameters_at(m->parameters, i)->name, part) != NULL;
    return count;
}

/* One of kv_every layers has keys and values; the sum of all readers is its gradient; 1 changes no bit. */
static void layers_share_keys_and_values(void **state)
{
    (void)state;
    model none = make(0, 0, false), one = make(1, 0, false);
    assert_true(loss_of(&none) == loss_of(&one));
    assert_int_equal(named(&one, "k_proj"), 4);
    for (int every = 2; every <= 4; every++)
        for (int recompute = 0; recompute < 2; recompute++) {
            model m = make(every, 0, recompute);
            assert_int_equal(named(&m, "k_proj"), (4 + every - 1) / every);
            assert_int_equal(named(&m, "v_proj"), (4 + every - 1) / every);
            assert_int_equal(named(&m, "q_proj"), 4);
            assert_true(loss_of(&m) != loss_of(&one));
            check_gradients(&m, "k_proj");
            check_gradients(&m, "v_proj");
            drop(&m);
        }
    drop(&none);
    drop(&one);
}

/* At first the model is the one without; then every layer has a gradient through them, and a later token
 * changes nothing. */
static void the_last_state_asks_all_layers(void **state)
{
    (void)state;
    model without = make(1, 0, false), with = make(1, 2, false);
    assert_true(loss_of(&without) == loss_of(&with));
    heed_parameter *o = heed_parameters_find(with.parameters, "model.shortcuts.o_proj.weight");
    assert_non_null(o);
    for (int64_t i = 0; i < o->count; i++)
        o->value[i] = 0.3f * sinf((float)i);
    check_gradients(&with, "shortcuts");
    check_gradients(&with, "layers.1.mlp");
    check_gradients(&with, "embed_tokens");
    float before[B * N * VOCABULARY];
    const float *logits = heed_graph_data(with.graph, with.nodes.logits);
    loss_of(&with);
    memcpy(before, logits, sizeof before);
    ((int32_t *)heed_graph_data(with.graph, with.nodes.tokens))[N - 1] += 1;
    loss_of(&with);
    for (int i = 0; i < (N - 1) * VOCABULARY; i++)
        assert_true(logits[i] == before[i]);
    drop(&without);
    drop(&with);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_share_keys_and_values),
        cmocka_unit_test(the_last_state_asks_all_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
