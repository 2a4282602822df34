/* Products of numbers rounded to bf16: against their definition, for any number of threads, in a model that
 * learns, and refused where there are none. */
#include "base/cpu.h"
#include "nn/gemm.h"
#include "nn/layers.h"
#include "train/optimiser.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool can_run(void)
{
    return heed_cpu_has_avx512_bf16() && heed_isa_available(HEED_ISA_AVX512);
}

/* To the nearest of the numbers with 8 bits, to an even one between two. */
static double rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static float *numbers(int64_t count, unsigned seed)
{
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) * 0x1p-23f - 1.0f;
    }
    return x;
}

/* Every entry, with rows that are longer than the matrix and what lies behind them untouched. */
static void check(int64_t m, int64_t n, int64_t k, bool transposed_a, bool transposed_b, bool add)
{
    const int64_t lda = (transposed_a ? m : k) + 3, ldb = (transposed_b ? k : n) + 1, ldc = n + 2;
    float *a = numbers((transposed_a ? k : m) * lda, 1), *b = numbers((transposed_b ? n : k) * ldb, 2);
    float *c = numbers(m * ldc, 3), *before = numbers(m * ldc, 3), *first = NULL;
    heed_gemm gemm = {.m = m,
                      .n = n,
                      .k = k,
                      .a = a,
                      .b = b,
                      .c = c,
                      .lda = lda,
                      .ldb = ldb,
                      .ldc = ldc,
                      .transposed_a = transposed_a,
                      .transposed_b = transposed_b,
                      .add = add,
                      .bf16 = true};
    for (int threads = 1; threads <= 3; threads++) {
        memcpy(c, before, (size_t)(m * ldc) * sizeof *c);
        heed_gemm_run(heed_nn_kernels_of(HEED_ISA_AVX512), threads, &gemm);
        if (!first) {
            first = malloc((size_t)(m * ldc) * sizeof *first);
            assert_non_null(first);
            memcpy(first, c, (size_t)(m * ldc) * sizeof *first);
        }
        assert_memory_equal(first, c, (size_t)(m * ldc) * sizeof *c);
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < ldc; j++) {
            double sum = add || j >= n ? (double)before[i * ldc + j] : 0.0, size = fabs(sum);
            for (int64_t l = 0; l < k && j < n; l++) {
                const double x = rounded(a[transposed_a ? l * lda + i : i * lda + l]);
                const double y = rounded(b[transposed_b ? j * ldb + l : l * ldb + j]);
                sum += x * y;
                size += fabs(x * y);
            }
            const double off = fabs((double)c[i * ldc + j] - sum), most = j < n ? 2e-6 * size + 1e-7 : 0.0;
            if (!(off <= most))
                fail_msg("%ldx%ldx%ld entry %ld, %ld: %.9g instead of %.9g", (long)m, (long)n, (long)k,
                         (long)i, (long)j, (double)c[i * ldc + j], sum);
        }
    free(first);
    free(before);
    free(c);
    free(b);
    free(a);
}

static void products_are_those_of_rounded_numbers(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1}, {7, 65, 3}, {13, 70, 259}, {64, 128, 32}, {261, 67, 515}};
    if (!can_run())
        skip();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int how = 0; how < 8; how++)
            check(sizes[s][0], sizes[s][1], sizes[s][2], how & 1, how & 2, how & 4);
}

enum { STEPS = 40, BATCH = 4, CONTEXT = 32, VOCABULARY = 32 };

/* Losses of a small decoder that learns to say what stood some tokens before. */
static void learn(bool bf16, int threads, float *loss)
{
    const heed_transformer model = {.batch = BATCH,
                                    .context = CONTEXT,
                                    .vocabulary = VOCABULARY,
                                    .width = 48,
                                    .layers = 2,
                                    .heads = 3,
                                    .hidden = 96,
                                    .spec = "position=rope; where=causal",
                                    .norm_eps = 1e-5f,
                                    .function = HEED_FN_SILU,
                                    .gated = true,
                                    .tied = true};
    const int64_t shape[] = {BATCH, CONTEXT};
    heed_transformer_nodes nodes = {.segments = HEED_NO_INPUT, .places = HEED_NO_INPUT};
    heed_parameters *parameters;
    heed_graph *graph;
    heed_optimiser *optimiser;
    assert_int_equal(heed_parameters_create(&parameters, 1), HEED_OK);
    assert_int_equal(heed_graph_create(&graph, parameters, threads, HEED_ISA_AVX512), HEED_OK);
    if (bf16)
        assert_int_equal(heed_graph_use_bf16(graph), HEED_OK);
    heed_transformer_make(graph, &model, &nodes);
    const heed_variable targets = heed_nn_input(graph, HEED_I32, 2, shape);
    const heed_variable error = heed_nn_cross_entropy(graph, nodes.logits, targets, 0.0f);
    assert_int_equal(heed_graph_finish(graph, error), HEED_OK);
    const heed_optimiser_kind *adamw = heed_optimiser_kind_at(0);
    heed_optimiser_how how = adamw->usual;
    how.rate = 3e-3f;
    assert_int_equal(heed_optimiser_create(&optimiser, adamw, &how, parameters, threads, HEED_ISA_AVX512),
                     HEED_OK);
    int32_t *token = heed_graph_data(graph, nodes.tokens), *target = heed_graph_data(graph, targets);
    unsigned seed = 5;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < BATCH * CONTEXT; i++) {
            seed = seed * 1664525u + 1013904223u;
            token[i] = (int32_t)(seed >> 16) % VOCABULARY;
            token[i] = token[i] < 0 ? -token[i] : token[i];
            target[i] = i % CONTEXT < 2 ? token[i] : token[i - 2];
        }
        heed_graph_training(graph, true, (uint64_t)step);
        assert_int_equal(heed_graph_forward(graph), HEED_OK);
        loss[step] = *(const float *)heed_graph_data(graph, error);
        assert_int_equal(heed_graph_backward(graph, 1.0f, false), HEED_OK);
        heed_optimiser_step(optimiser, 1.0f, 1.0f);
    }
    heed_optimiser_free(optimiser);
    heed_graph_free(graph);
    heed_parameters_free(parameters);
}

static void losses_fall_as_in_fp32(void **state)
{
    (void)state;
    float fp32[STEPS], bf16[STEPS], again[STEPS];
    double most = 0.0;
    if (!can_run())
        skip();
    learn(false, 2, fp32);
    learn(true, 2, bf16);
    learn(true, 1, again);
    assert_memory_equal(bf16, again, sizeof bf16);
    for (int i = 0; i < STEPS; i++)
        most = fmax(most, fabs((double)bf16[i] / (double)fp32[i] - 1.0));
    assert_true(fp32[STEPS - 1] < 0.97f * fp32[0]); /* something was learnt */
    assert_true(most > 0.0);
    if (!(most < 0.01))
        fail_msg("losses differ by %.3g", most);
}

static void other_instruction_sets_refuse(void **state)
{
    (void)state;
    heed_parameters *parameters;
    heed_graph *graph;
    assert_int_equal(heed_parameters_create(&parameters, 1), HEED_OK);
    for (int isa = HEED_ISA_PORTABLE; isa <= HEED_ISA_AVX2; isa++) {
        if (!heed_isa_available((heed_isa)isa))
            continue;
        assert_int_equal(heed_graph_create(&graph, parameters, 1, (heed_isa)isa), HEED_OK);
        assert_int_equal(heed_graph_use_bf16(graph), HEED_UNSUPPORTED);
        assert_non_null(strstr(heed_message(), "AVX512-BF16"));
        heed_graph_free(graph);
    }
    heed_parameters_free(parameters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_rounded_numbers),
        cmocka_unit_test(losses_fall_as_in_fp32),
        cmocka_unit_test(other_instruction_sets_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
