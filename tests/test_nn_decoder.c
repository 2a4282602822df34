/* A decoder of two layers against PyTorch: loss, logits and the gradient of every parameter; and what graphs
 * promise: shapes refused with a sentence, memory planned, the same bits however it is run. */
#include "nn/layers.h"
#include "support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static golden reference;

static int read_reference(void **state)
{
    (void)state;
    return golden_read(&reference, HEED_TEST_DATA "/golden/nn/decoder.safetensors") ? 0 : -1;
}

static int forget_reference(void **state)
{
    (void)state;
    golden_free(&reference);
    return 0;
}

static const heed_transformer sizes = {.batch = 2,
                                       .context = 11,
                                       .vocabulary = 31,
                                       .width = 24,
                                       .layers = 2,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .hidden = 40,
                                       .spec = "position=rope; where=causal",
                                       .norm = HEED_LAYER_RMS,
                                       .norm_eps = 1e-5f,
                                       .function = HEED_FN_SILU,
                                       .gated = true,
                                       .tied = true};

typedef struct model {
    heed_parameters *parameters;
    heed_graph *graph;
    heed_transformer_nodes nodes;
    heed_variable targets, loss;
} model;

static void make(model *m, const heed_transformer *how, int threads)
{
    const int64_t shape[] = {how->batch, how->context};
    *m = (model){.nodes = {.segments = HEED_NO_INPUT, .places = HEED_NO_INPUT}};
    assert_int_equal(heed_parameters_create(&m->parameters, 7), HEED_OK);
    assert_int_equal(heed_graph_create(&m->graph, m->parameters, threads, HEED_ISA_AUTO), HEED_OK);
    heed_transformer_make(m->graph, how, &m->nodes);
    m->targets = heed_nn_input(m->graph, HEED_I32, 2, shape);
    m->loss = heed_nn_cross_entropy(m->graph, m->nodes.logits, m->targets, 0.1f);
    heed_graph_keep(m->graph, m->nodes.logits);
    if (heed_graph_finish(m->graph, m->loss))
        fail_msg("%s", heed_message());
    memcpy(heed_graph_data(m->graph, m->nodes.tokens), golden_find(&reference, "tokens")->data,
           22 * sizeof(int32_t));
    memcpy(heed_graph_data(m->graph, m->targets), golden_find(&reference, "targets")->data,
           22 * sizeof(int32_t));
}

static void drop(model *m)
{
    heed_graph_free(m->graph);
    heed_parameters_free(m->parameters);
}

static void take_weights(const model *m)
{
    for (int i = 0; i < heed_parameters_count(m->parameters); i++) {
        heed_parameter *p = heed_parameters_at(m->parameters, i);
        const golden_tensor *t = golden_find(&reference, p->name);
        if (!t)
            fail_msg("PyTorch's model has no %s", p->name);
        assert_int_equal(t->count, p->count);
        memcpy(p->value, t->data, (size_t)p->count * sizeof(float));
    }
}

static void near(const char *name, const float *got, int64_t count)
{
    double *expected = golden_numbers(&reference, name), size = 0.0;
    assert_non_null(expected);
    for (int64_t i = 0; i < count; i++)
        size = fmax(size, fabs(expected[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - expected[i]) <= 1e-5 * size))
            fail_msg("%s[%lld] is %.9g instead of %.9g", name, (long long)i, (double)got[i], expected[i]);
    free(expected);
}

static void run(const model *m)
{
    if (heed_graph_forward(m->graph) || heed_graph_backward(m->graph, 1.0f, false))
        fail_msg("%s", heed_message());
}

static void decoder_equals_pytorch(void **state)
{
    (void)state;
    model m;
    make(&m, &sizes, 1);
    take_weights(&m);
    run(&m);
    near("expected.loss", heed_graph_data(m.graph, m.loss), 1);
    near("expected.logits", heed_graph_data(m.graph, m.nodes.logits), 22 * 31);
    for (int i = 0; i < heed_parameters_count(m.parameters); i++) {
        const heed_parameter *p = heed_parameters_at(m.parameters, i);
        char name[120];
        snprintf(name, sizeof name, "expected.d.%s", p->name);
        near(name, p->gradient, p->count);
    }
    drop(&m);
}

/* Threads, recomputed layers, dropout: the same bits of every gradient. */
static void bits_do_not_depend_on_how_it_runs(void **state)
{
    (void)state;
    heed_transformer how = sizes;
    how.dropout = 0.25f;
    model first;
    make(&first, &how, 1);
    heed_graph_training(first.graph, true, 5);
    run(&first);
    for (int i = 0; i < 5; i++) {
        model other;
        how.recompute = i % 2;
        make(&other, &how, i < 4 ? 1 + i : 16);
        heed_graph_training(other.graph, true, 5);
        run(&other);
        for (int p = 0; p < heed_parameters_count(first.parameters); p++) {
            const heed_parameter *a = heed_parameters_at(first.parameters, p),
                                 *b = heed_parameters_at(other.parameters, p);
            if (memcmp(a->gradient, b->gradient, (size_t)a->count * sizeof(float)))
                fail_msg("%s has other bits in run %d", a->name, i);
        }
        drop(&other);
    }
    drop(&first);
}

static void recomputing_takes_less_memory(void **state)
{
    (void)state;
    heed_transformer how = sizes;
    how.layers = 12;
    how.batch = 8;
    how.context = 64;
    model kept, again;
    make(&kept, &how, 1);
    how.recompute = true;
    make(&again, &how, 1);
    assert_true(heed_graph_bytes(again.graph) < heed_graph_bytes(kept.graph) / 2);
    drop(&kept);
    drop(&again);
}

/* Dropout keeps the mean, drops the share it should, and other steps drop others. */
static void dropout_drops_its_share(void **state)
{
    (void)state;
    enum { SIZE = 100003 };
    const int64_t shape[] = {SIZE};
    heed_parameters *parameters;
    heed_graph *graph;
    assert_int_equal(heed_parameters_create(&parameters, 3), HEED_OK);
    assert_int_equal(heed_graph_create(&graph, parameters, 2, HEED_ISA_AUTO), HEED_OK);
    const heed_variable x = heed_nn_input(graph, HEED_F32, 1, shape), y = heed_nn_dropout(graph, x, 0.3f);
    heed_graph_keep(graph, y);
    assert_int_equal(heed_graph_finish(graph, HEED_NO_INPUT), HEED_OK);
    float *in = heed_graph_data(graph, x);
    static float before[SIZE];
    int same = 0;
    for (int i = 0; i < SIZE; i++)
        in[i] = 1.0f;
    for (uint64_t step = 0; step < 2; step++) {
        int zeros = 0;
        heed_graph_training(graph, true, step);
        assert_int_equal(heed_graph_forward(graph), HEED_OK);
        const float *out = heed_graph_data(graph, y);
        for (int i = 0; i < SIZE; i++) {
            zeros += out[i] == 0.0f;
            assert_true(out[i] == 0.0f || fabsf(out[i] - 1.0f / 0.7f) < 1e-6f);
            same += step && (out[i] == 0.0f) == (before[i] == 0.0f);
            before[i] = out[i];
        }
        assert_true(fabs(zeros - 0.3 * SIZE) < 5.0 * sqrt(SIZE * 0.21));
    }
    assert_true(fabs(same - 0.58 * SIZE) < 5.0 * sqrt(SIZE * 0.25));
    heed_graph_training(graph, false, 0);
    assert_int_equal(heed_graph_forward(graph), HEED_OK);
    assert_memory_equal(heed_graph_data(graph, y), in, SIZE * sizeof(float));
    heed_graph_free(graph);
    heed_parameters_free(parameters);
}

/* Two packed documents give the losses they have apart, and the second sees nothing of the first. */
static void packed_documents_do_not_see_each_other(void **state)
{
    (void)state;
    static const char *const specs[] = {"position=rope; where=causal & segments",
                                        "position=alibi; where=causal & segments",
                                        "position=t5; where=causal & segments & window(3)"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        heed_transformer how = sizes;
        how.spec = specs[s];
        how.batch = 1;
        const int64_t shape[] = {1, 11};
        heed_parameters *parameters;
        heed_graph *graph;
        heed_transformer_nodes nodes = {.segments = HEED_NO_INPUT, .places = HEED_NO_INPUT};
        assert_int_equal(heed_parameters_create(&parameters, 7), HEED_OK);
        assert_int_equal(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), HEED_OK);
        nodes.segments = heed_nn_input(graph, HEED_I32, 2, shape);
        nodes.places = heed_nn_input(graph, HEED_I32, 2, shape);
        heed_transformer_make(graph, &how, &nodes);
        heed_graph_keep(graph, nodes.logits);
        if (heed_graph_finish(graph, HEED_NO_INPUT))
            fail_msg("%s", heed_message());
        int32_t *tokens = heed_graph_data(graph, nodes.tokens),
                *segment = heed_graph_data(graph, nodes.segments);
        int32_t *place = heed_graph_data(graph, nodes.places);
        const float *logits = heed_graph_data(graph, nodes.logits);
        float packed[5 * 31];
        for (int i = 0; i < 11; i++) {
            tokens[i] = (7 * i + 3) % 31;
            segment[i] = i < 3 ? 0 : i < 8 ? 1 : 2;
            place[i] = i < 3 ? i : i < 8 ? i - 3 : i - 8;
        }
        assert_int_equal(heed_graph_forward(graph), HEED_OK);
        memcpy(packed, logits + 3 * 31, sizeof packed);
        tokens[0] = 30;
        assert_int_equal(heed_graph_forward(graph), HEED_OK);
        assert_memory_equal(packed, logits + 3 * 31, sizeof packed);
        memmove(tokens, tokens + 3, 5 * sizeof *tokens);
        for (int i = 0; i < 11; i++) {
            segment[i] = i < 5 ? 0 : 1;
            place[i] = i < 5 ? i : i - 5;
        }
        assert_int_equal(heed_graph_forward(graph), HEED_OK);
        for (int i = 0; i < 5 * 31; i++)
            assert_true(fabsf(packed[i] - logits[i]) <= 1e-5f);
        heed_graph_free(graph);
        heed_parameters_free(parameters);
    }
}

static void wrong_shapes_are_refused_with_a_sentence(void **state)
{
    (void)state;
    heed_parameters *parameters;
    heed_graph *graph;
    const int64_t a[] = {3, 4}, b[] = {5, 6};
    assert_int_equal(heed_parameters_create(&parameters, 3), HEED_OK);
    assert_int_equal(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), HEED_OK);
    const heed_variable x = heed_nn_input(graph, HEED_F32, 2, a), w = heed_nn_input(graph, HEED_F32, 2, b);
    const heed_variable wrong = heed_nn_linear(graph, x, w, HEED_NO_INPUT);
    assert_int_equal(wrong, HEED_NO_VARIABLE);
    assert_int_equal(heed_nn_apply(graph, HEED_FN_RELU, wrong), HEED_NO_VARIABLE);
    assert_int_equal(heed_graph_finish(graph, HEED_NO_INPUT), HEED_INVALID);
    assert_string_equal(heed_message(), "linear: rows of [3, 4] do not fit a weight [5, 6]");
    heed_graph_free(graph);
    heed_parameters_free(parameters);
}

static void first_number_that_is_not_finite_is_found(void **state)
{
    (void)state;
    model m;
    make(&m, &sizes, 1);
    assert_int_equal(heed_graph_not_finite(m.graph), HEED_NO_VARIABLE);
    heed_parameters_find(m.parameters, "model.layers.1.mlp.up_proj.weight")->value[3] = NAN;
    const heed_variable found = heed_graph_not_finite(m.graph);
    assert_string_equal(heed_graph_operation(m.graph, found), "model.layers.1.mlp.up_proj.weight");
    drop(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoder_equals_pytorch),
        cmocka_unit_test(bits_do_not_depend_on_how_it_runs),
        cmocka_unit_test(recomputing_takes_less_memory),
        cmocka_unit_test(dropout_drops_its_share),
        cmocka_unit_test(packed_documents_do_not_see_each_other),
        cmocka_unit_test(wrong_shapes_are_refused_with_a_sentence),
        cmocka_unit_test(first_number_that_is_not_finite_is_found),
    };
    return cmocka_run_group_tests(tests, read_reference, forget_reference);
}
