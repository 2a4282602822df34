/* Every recurrence, layer and low-rank form in a small model: a few steps along the gradient make the loss
 * less, and every form that is built in is here. */
#include "nn/layers.h"

#include "attend/registry.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { B = 4, N = 12, VOCABULARY = 9, STEPS = 12 };

static const char *const specs[] = {
    "scan=linear",
    "scan=based",
    "scan=fast",
    "scan=lln",
    "scan=aaren",
    "scan=retention",
    "scan=lightning",
    "scan=simple_gla",
    "scan=mamba2",
    "scan=gla",
    "scan=hgrn2",
    "scan=gsa(slots=4)",
    "scan=delta",
    "scan=gated_delta",
    "scan=kda",
    "scan=rwkv7",
    "scan=titans(chunk=3)",
    "scan=infini(segment=5)",
    "scan=sparsek(k=3, window=2)",
    "lowrank=linformer(k=4)",
    "lowrank=nystrom(m=4, taps=3)",
    "lowrank=efficient",
    "lowrank=fast",
    "layer=mhe; position=rope; where=causal",
    "layer=moh(shared=1, chosen=1); position=rope; where=causal",
    "layer=castle",
    "layer=emha",
    "layer=optimised(kind=super)",
    "layer=ssa; position=alibi; where=causal",
    "layer=mta(queries=3, keys=5, group=2)",
    "layer=relations(max=4)",
    "layer=relaxed",
    "layer=relaxed(kind=mlp)",
    "layer=relaxed(kind=random)",
    "layer=mega(paces=4, chunk=6)",
    "layer=transnormer",
    "layer=titans(window=4, chunk=4)",
    "layer=dare(attention=4, representation=8, k=6)",
    "layer=trim",
    "layer=confident(frames=6)",
    "layer=scene(cells=2, fine=2)",
    "layer=coarse_to_fine(cell=2, rows=2, cols=4)",
    "layer=acla(keys=4, rows=3, cols=4)",
    "layer=deformable(points=4, frames=3, rows=2, cols=2)",
    "layer=strides(stride=2, frames=3, rows=2, cols=2)",
    "layer=spa",
    "layer=adatape(steps=2, take=2, bank=8)",
    "layer=tree(queries=4)",
    "layer=focused(others=1, local=4)",
    "layer=lococo(slots=6, block=3, taps=3)",
    "layer=adore(slots=4, rebuilt=2, gru=8)",
    "layer=matryoshka",
    "layers 0: layer=sg(kind=hybrid, window=2, stride=2, rows=2, cols=6); "
    "layers 1: layer=sg(kind=guided, salient=1, middle=2, minor=3, rows=2, cols=6)",
    "layers 0: layer=transnormer; layers 1: where=causal",
    "normalise=entmax_learnt; where=causal",
    "normalise=landmark(block=4); select=landmark(block=4, k=2); where=causal",
    "normalise=head_scale; where=causal",
    "score=coca; where=causal",
    "score=comate; normalise=plain; where=causal",
    "position=skew(max=6); where=causal",
};

static double step(const heed_graph *graph, const heed_parameters *parameters, heed_variable loss, float rate)
{
    if (heed_graph_forward((heed_graph *)(uintptr_t)graph) ||
        heed_graph_backward((heed_graph *)(uintptr_t)graph, 1, false))
        fail_msg("%s", heed_message());
    for (int i = 0; i < heed_parameters_count(parameters); i++) {
        heed_parameter *p = heed_parameters_at(parameters, i);
        for (int64_t j = 0; p->gradient && !p->frozen && j < p->count; j++)
            p->value[j] -= rate * p->gradient[j];
    }
    return *(float *)heed_graph_data(graph, loss);
}

static void train(const char *spec)
{
    const heed_transformer how = {.batch = B,
                                  .context = N,
                                  .vocabulary = VOCABULARY,
                                  .width = 16,
                                  .layers = 2,
                                  .heads = 2,
                                  .hidden = 24,
                                  .spec = spec,
                                  .norm = HEED_LAYER_RMS,
                                  .norm_eps = 1e-5f,
                                  .function = HEED_FN_SILU,
                                  .gated = true,
                                  .deviation = 0.2f};
    heed_beside beside = {.loss = HEED_NO_INPUT};
    heed_transformer_nodes nodes = {.segments = HEED_NO_INPUT, .places = HEED_NO_INPUT, .beside = &beside};
    heed_parameters *parameters;
    heed_graph *graph;
    const int64_t shape[] = {B, N};
    assert_int_equal(heed_parameters_create(&parameters, 3), HEED_OK);
    assert_int_equal(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), HEED_OK);
    heed_transformer_make(graph, &how, &nodes);
    const heed_variable targets = heed_nn_input(graph, HEED_I32, 2, shape);
    const heed_variable loss = heed_nn_cross_entropy(graph, nodes.logits, targets, 0);
    if (heed_graph_finish(graph, loss))
        fail_msg("%s: %s", spec, heed_message());
    int32_t *token = heed_graph_data(graph, nodes.tokens), *target = heed_graph_data(graph, targets);
    for (int i = 0; i < B * N; i++) {
        token[i] = (i * 7 + i / N) % VOCABULARY;
        target[i] = i % N ? token[i - 1] : 0; /* the token before */
    }
    const double first = step(graph, parameters, loss, 0.1f);
    double last = first;
    for (int i = 0; i < STEPS; i++)
        last = step(graph, parameters, loss, 0.1f);
    if (!(last < first - 0.01))
        fail_msg("%s: the loss goes from %g to %g", spec, first, last);
    heed_graph_free(graph);
    heed_parameters_free(parameters);
}

static void steps_along_the_gradient_make_the_loss_less(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        train(specs[i]);
}

static void every_form_is_in_the_list(void **state)
{
    (void)state;
    static const heed_stage stages[] = {HEED_SCAN, HEED_LOWRANK, HEED_LAYER};
    for (int s = 0; s < 3; s++)
        for (const heed_form *const *form = heed_registry_stage(HEED_ISA_PORTABLE, stages[s]); *form;
             form++) {
            char text[80];
            bool found = false;
            const int length =
                snprintf(text, sizeof text, "%s=%s", heed_stage_name(stages[s]), (*form)->name);
            for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
                const char *at = strstr(specs[i], text);
                found |=
                    at && !strchr("abcdefghijklmnopqrstuvwxyz_0123456789", at[length] ? at[length] : ' ');
            }
            if (!found)
                fail_msg("%s trains in no case of this test", text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_along_the_gradient_make_the_loss_less),
        cmocka_unit_test(every_form_is_in_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
