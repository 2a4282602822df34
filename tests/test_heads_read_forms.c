/* The `heads`, `read` and `cache` forms by their hooks, in every build that this processor runs. */
#include "support/hooks.h"

#include <heed/tensor.h>

/* One array a head. */
static float **planes(int heads, int64_t n, double size)
{
    static float *list[64][16];
    static int lists;
    float **x = list[lists++ % 64];
    for (int h = 0; h < heads; h++)
        x[h] = random_floats(n, size);
    return x;
}

static float **copy_planes(float *const *x, int heads, int64_t n)
{
    float **y = planes(heads, 0, 0);
    for (int h = 0; h < heads; h++)
        y[h] = copy_of(x[h], n);
    return y;
}

typedef struct shape {
    int heads, rows, cols;
    int64_t stride;
} shape;

static const shape shapes[] = {{1, 1, 16, 16},   {2, 3, 48, 64},   {3, 12, 128, 128},
                               {5, 2, 600, 640}, {8, 4, 256, 272}, {9, 1, 272, 288}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Both mixings and their gradients; what lies beyond the columns stays. */
static void check_talking(heed_isa isa)
{
    for (int t = 0; t < 2 * SHAPES; t++) {
        const shape s = shapes[t / 2];
        const int after = t % 2;
        const int64_t n = s.rows * s.stride;
        heed_form_state form = make_form(isa, HEED_HEADS, "talking", (heed_sizes){.heads = s.heads}, NULL, 0);
        shake(&form);
        const float *m = form.param[after];
        float **x = planes(s.heads, n, 1), **dx = planes(s.heads, n, 1), *work = floats(s.heads * s.cols);
        float **given = copy_planes(x, s.heads, n), **dgiven = copy_planes(dx, s.heads, n);
        (after ? form.form->mix_weights : form.form->mix_scores)(&form, x, s.rows, s.cols, s.stride, work);
        for (int64_t i = 0; i < s.heads * s.heads; i++)
            form.grad[after][i] = 50;
        (after ? form.form->mix_weights_backward : form.form->mix_scores_backward)(
            &form, (const float *const *)given, dx, s.rows, s.cols, s.stride, work);
        for (int h = 0; h < s.heads; h++)
            for (int64_t i = 0; i < n; i++) {
                double mixed = 0, back = 0;
                for (int g = 0; g < s.heads; g++) {
                    mixed += (double)m[h * s.heads + g] * given[g][i];
                    back += (double)m[g * s.heads + h] * dgiven[g][i];
                }
                const bool inside = i % s.stride < s.cols;
                expect_near(x[h][i], inside ? mixed : given[h][i], inside ? 3e-6 : 0, "mixed", h, i);
                expect_near(dx[h][i], inside ? back : dgiven[h][i], inside ? 3e-6 : 0, "dx", h, i);
            }
        for (int h = 0; h < s.heads; h++)
            for (int g = 0; g < s.heads; g++) {
                double sum = 50;
                for (int64_t i = 0; i < n; i++)
                    if (i % s.stride < s.cols)
                        sum += (double)dgiven[h][i] * given[g][i];
                expect_near(form.grad[after][h * s.heads + g], sum, 2e-5 * (10 + fabs(sum)), "dm", h, g);
                expect_near(form.grad[!after][h * s.heads + g], 0, 0, "the other matrix", h, g);
            }
        release_all();
    }
}

static void talking_mixes_scores_and_weights(void **state)
{
    (void)state;
    in_each_build(check_talking);
}

/* Initial matrices leave everything as it is; a NaN score of a closed pair, whose gradient is 0, spoils
 * nothing. */
static void check_identity(heed_isa isa)
{
    heed_form_state form = make_form(isa, HEED_HEADS, "talking", (heed_sizes){.heads = 5}, NULL, 0);
    float **x = planes(5, 64, 1), **dx = planes(5, 64, 1), *work = floats(5 * 32);
    float **given = copy_planes(x, 5, 64);
    form.form->mix_scores(&form, x, 2, 32, 32, work);
    form.form->mix_weights(&form, x, 2, 32, 32, work);
    for (int h = 0; h < 5; h++)
        assert_memory_equal(x[h], given[h], 64 * sizeof(float));
    for (int h = 0; h < 5; h++) {
        given[h][40] = NAN;
        dx[h][40] = 0;
    }
    form.form->mix_scores_backward(&form, (const float *const *)given, dx, 2, 32, 32, work);
    for (int i = 0; i < 25; i++)
        assert_true(isfinite(form.grad[0][i]) && form.grad[0][i] != 0.0f);
    form.grad[0] = form.grad[1] = NULL; /* gradients of parameters that nobody wants */
    form.form->mix_scores_backward(&form, (const float *const *)given, dx, 2, 32, 32, work);
    form.form->mix_weights_backward(&form, (const float *const *)given, dx, 2, 32, 32, work);
    release_all();
}

static void talking_starts_as_the_identity(void **state)
{
    (void)state;
    in_each_build(check_identity);
}

/* All ways to leave sizes of g at 1. */
static void check_gate(heed_isa isa)
{
    const heed_sizes sizes = {.batch = 2, .heads = 3, .queries = 7, .value_dim = 19};
    const int64_t full[4] = {2, 3, 7, 19};
    for (int shared = 0; shared < 16; shared++) {
        heed_form_state form = make_form(isa, HEED_READ, "gate", sizes, NULL, 0);
        for (int d = 0; d < 4; d++)
            form.shape[0][d] = shared >> d & 1 ? 1 : full[d];
        const int64_t n = param_floats(&form, 0);
        form.param[0] = random_floats(n, 2);
        form.grad[0] = floats(n);
        double *want = calloc((size_t)n, sizeof *want);
        for (int b = 0; b < 2; b++)
            for (int h = 0; h < 3; h++)
                for (int query0 = 0; query0 < 7; query0 += 3) {
                    const int rows = query0 + 3 <= 7 ? 3 : 7 - query0, stride = 24;
                    float *before = random_floats(rows * stride, 1), *out = copy_of(before, rows * stride);
                    float *dout = random_floats(rows * stride, 1), *dgiven = copy_of(dout, rows * stride);
                    form.form->output(&form, b, h, query0, rows, out, stride);
                    form.form->output_backward(&form, b, h, query0, rows, before, dout, stride);
                    for (int i = 0; i < rows; i++)
                        for (int e = 0; e < stride; e++) {
                            const int64_t index[4] = {b, h, query0 + i, e};
                            int64_t at = 0;
                            for (int d = 0; d < 4; d++)
                                at = at * form.shape[0][d] + (form.shape[0][d] == 1 ? 0 : index[d]);
                            const int x = i * stride + e;
                            if (e >= 19) {
                                assert_true(out[x] == before[x] && dout[x] == dgiven[x]);
                                continue;
                            }
                            const double open = 1 / (1 + exp(-(double)form.param[0][at]));
                            expect_near(out[x], open * before[x], 1e-6, "out", shared, x);
                            expect_near(dout[x], open * dgiven[x], 1e-6, "dout", shared, x);
                            want[at] += (double)dgiven[x] * before[x] * open * (1 - open);
                        }
                }
        for (int64_t i = 0; i < n; i++)
            expect_near(form.grad[0][i], want[i], 2e-5, "dg", shared, i);
        free(want);
        form.grad[0] = NULL;
        float *rows = floats(19);
        form.form->output_backward(&form, 0, 0, 0, 1, rows, rows, 19);
        release_all();
    }
}

static void the_gate_multiplies_the_output(void **state)
{
    (void)state;
    in_each_build(check_gate);
}

static void check_plain(heed_isa isa)
{
    const heed_form *shared = heed_registry_find(isa, HEED_HEADS, "shared");
    const heed_form *sum = heed_registry_find(isa, HEED_READ, "sum");
    assert_non_null(shared);
    assert_non_null(sum);
    assert_true(!shared->mix_scores && !shared->mix_weights && !(shared->flags & HEED_MIXES_HEADS));
    assert_true(!sum->output);
    static const char *const types[] = {"f32", "f16", "bf16", "q8", "q4"};
    for (int i = 0; i < 5; i++) {
        heed_type type;
        assert_non_null(heed_registry_find(isa, HEED_CACHE, types[i]));
        assert_true(heed_type_from_name(types[i], &type));
    }
}

static void defaults_need_no_hooks_and_caches_are_types(void **state)
{
    (void)state;
    in_each_build(check_plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(talking_mixes_scores_and_weights),
        cmocka_unit_test(talking_starts_as_the_identity),
        cmocka_unit_test(the_gate_multiplies_the_output),
        cmocka_unit_test(defaults_need_no_hooks_and_caches_are_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
