/* The position forms that depend on distance and head alone, by their hooks, in every build that this
 * processor runs: against formulas in double, gradients against central differences of those. */
#include "support/position.h"

static const heed_sizes sizes = {
    .batch = 1, .heads = 3, .kv_heads = 3, .queries = 300, .keys = 500, .dim = 16};

/* Lists of distances: runs of different lengths and starts, then jumps. */
enum { MOST = 400, LISTS = 10 };
static int distances(int list, int32_t *distance)
{
    static const struct {
        int32_t start;
        int n;
    } runs[] = {{-127, 255},          {0, 1},       {1, 135}, {-400, 330}, {5000, 143}, {-1000000, 64},
                {1048575 - 100, 200}, {130950, 400}};
    if (list < 8) {
        for (int i = 0; i < runs[list].n; i++)
            distance[i] = runs[list].start + i;
        return runs[list].n;
    }
    for (int i = 0; i < MOST; i++)
        distance[i] =
            (int32_t)(list == 8 ? random_whole(&draw, -200, 200) : random_whole(&draw, -(1 << 30), 1 << 30));
    return MOST - 7;
}

typedef double (*definition)(const heed_form_state *state, const double *param, int head, int32_t distance);

/* Bias and, where the form has parameters (one number a head each), gradients. */
static void compare(const heed_form_state *state, definition right, int params, double absolute,
                    double relative)
{
    int32_t distance[MOST];
    for (int list = 0; list < LISTS; list++) {
        const int n = distances(list, distance);
        for (int head = 0; head < state->sizes.heads; head++) {
            double param[4] = {0};
            for (int p = 0; p < params; p++) {
                param[p] = (double)state->param[p][head];
                state->grad[p][head] = 0.5f; /* added to */
            }
            float *out = floats(n), *dbias = random_floats(n);
            state->form->bias(state, head, distance, n, out);
            for (int i = 0; i < n; i++)
                near((double)out[i], right(state, param, head, distance[i]), absolute, relative, "bias", head,
                     distance[i]);
            if (params)
                state->form->bias_backward(state, head, distance, n, dbias);
            for (int p = 0; p < params; p++) {
                const double x = param[p], step = 1e-5 * fabs(x);
                double slope = 0, size = 0;
                for (int i = 0; i < n; i++) {
                    param[p] = x + step;
                    double rise = right(state, param, head, distance[i]);
                    param[p] = x - step;
                    rise -= right(state, param, head, distance[i]);
                    slope += (double)dbias[i] * rise / (2 * step);
                    size += fabs((double)dbias[i] * rise / (2 * step));
                }
                param[p] = x;
                near((double)state->grad[p][head] - 0.5, slope, 1e-6 + 3e-6 * size, 0, "gradient", head, p);
            }
            free(out);
            free(dbias);
        }
    }
}

static double alibi(const heed_form_state *state, const double *param, int head, int32_t distance)
{
    (void)param;
    return -pow(2, -8.0 * (head + 1) / (double)state->sizes.heads) * fabs((double)distance);
}

static void alibi_by_formula(heed_isa isa)
{
    heed_form_state state = form_named(isa, "alibi", sizes);
    make_ready(&state, 0);
    compare(&state, alibi, 0, 0, 3e-7);
    assert_null(state.form->bias_backward);
    drop(&state);
}

static void alibi_slopes(heed_isa isa)
{
    /* exponents of 1/2; published for 6 heads: those of 4 heads, then every other one of 8 */
    static const double published_6[] = {2, 4, 6, 8, 1, 3},
                        formula_6[] = {8 / 6.0, 16 / 6.0, 4, 32 / 6.0, 40 / 6.0, 8};
    static const double published_8[] = {1, 2, 3, 4, 5, 6, 7, 8}, published_1[] = {8},
                        published_3[] = {4, 8, 2};
    const struct {
        int heads, published;
        const double *exponent;
    } cases[] = {{6, 1, published_6}, {6, 0, formula_6},   {8, 1, published_8},
                 {8, 0, published_8}, {1, 1, published_1}, {3, 1, published_3}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        heed_sizes s = sizes;
        s.heads = cases[c].heads;
        heed_form_state state = form_named(isa, "alibi", s);
        give(&state, "slopes", cases[c].published);
        make_ready(&state, 0);
        for (int h = 0; h < s.heads; h++) {
            float out;
            state.form->bias(&state, h, (int32_t[]){-1}, 1, &out);
            near((double)out, -pow(0.5, cases[c].exponent[h]), 0, 3e-7, "slope", (int)c, h);
        }
        drop(&state);
    }
}

static double kerple(const heed_form_state *state, const double *param, int head, int32_t distance)
{
    (void)head;
    const double d = fabs((double)distance);
    if (d == 0)
        return 0;
    return state->arg[0].number == 1 ? -param[0] * pow(d, param[1]) : -param[0] * log(1 + param[1] * d);
}

static void kerple_by_formula(heed_isa isa)
{
    static const float values[][3] = {{1, 1, 1}, {0.3f, 2, 0.001f}, {1.7f, 0.5f, 1e-4f}, {0.01f, 1.3f, 2}};
    for (int kind = 0; kind < 2; kind++)
        for (int r1 = 0; r1 < 4; r1++)
            for (int r2 = 0; r2 < 4; r2++) {
                heed_form_state state = form_named(isa, "kerple", sizes);
                give(&state, "kind", kind);
                make_ready(&state, 0);
                for (int h = 0; h < 3; h++) {
                    set_param(&state, 0, h, values[r1][h]);
                    set_param(&state, 1, h, values[r2][h]);
                    assert_int_equal(state.form->begin(&state), HEED_OK);
                }
                compare(&state, kerple, 2, 1e-9, 4e-7);
                float *wanted = state.grad[1];
                state.grad[1] = NULL;
                state.form->bias_backward(&state, 0, (int32_t[]){3, 0}, 2, (float[]){1, 1});
                state.grad[1] = wanted;
                drop(&state);
            }
}

static void kerple_refuses_values_out_of_range(heed_isa isa)
{
    const struct {
        int kind, param;
        float value;
        const char *word;
    } wrong[] = {{0, 0, 0, "r1 of head 2"},   {0, 1, -0.5f, "-0.5"},  {1, 1, 2.5f, "at most 2"},
                 {0, 1, NAN, "r2 of head 2"}, {1, 0, INFINITY, "r1"}, {1, 1, 0, "above 0"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        heed_form_state state = form_named(isa, "kerple", sizes);
        give(&state, "kind", wrong[i].kind);
        make_ready(&state, 0);
        set_param(&state, wrong[i].param, 2, wrong[i].value);
        assert_int_equal(state.form->begin(&state), HEED_INVALID);
        if (!strstr(heed_message(), wrong[i].word))
            fail_msg("'%s' does not say '%s'", heed_message(), wrong[i].word);
        drop(&state);
    }
    heed_form_state state = form_named(isa, "kerple", sizes);
    make_ready(&state, 0);
    set_param(&state, 1, 0, 2.5f);
    assert_int_equal(state.form->begin(&state), HEED_OK); /* only the power is bounded */
    drop(&state);
}

static double sandwich(const heed_form_state *state, const double *param, int head, int32_t distance)
{
    (void)param;
    const int dims = state->arg[0].given ? (int)state->arg[0].number : (int)state->sizes.dim;
    double sum = 0;
    for (int t = 0; t < dims / 2; t++)
        sum += cos(fabs((double)distance) * pow(10000, -2.0 * t / dims));
    return sum / (8.0 * (head + 1) / (double)state->sizes.heads);
}

static void sandwich_by_formula(heed_isa isa)
{
    for (int dims = 0; dims <= 128; dims += 64) {
        heed_sizes s = sizes;
        s.keys = dims == 64 ? 200000 : 500;
        heed_form_state state = form_named(isa, "sandwich", s);
        if (dims)
            give(&state, "dims", dims);
        make_ready(&state, 0);
        compare(&state, sandwich, 0, 1e-6, 3e-7);
        drop(&state);
    }
    heed_sizes odd = sizes;
    odd.dim = 15;
    refused(form_named(isa, "sandwich", odd), "15");
    heed_form_state state = form_named(isa, "sandwich", sizes);
    give(&state, "dims", 9);
    refused(state, "even");
}

/* T5's bucket of a distance, in whole numbers of 128 bits: (d/e)^(n-e) >= (max/e)^t. */
static unsigned __int128 power(unsigned __int128 x, int n)
{
    unsigned __int128 y = 1;
    for (; n > 0; n--)
        y *= x;
    return y;
}

static int t5_bucket(int64_t distance, int buckets, int max, bool causal)
{
    const int n = causal ? buckets : buckets / 2, e = n / 2;
    const int from = !causal && distance < 0 ? n : 0;
    const int64_t d = distance >= 0 ? distance : causal ? 0 : -distance;
    if (d < e || n == 1)
        return from + (n == 1 ? 0 : (int)d);
    if (d >= max)
        return from + n - 1;
    int t = 0;
    while (e + t + 1 < n &&
           power((unsigned __int128)d, n - e) >=
               power((unsigned __int128)max, t + 1) * power((unsigned __int128)e, n - e - t - 1))
        t++;
    return from + e + t;
}

/* Reads buckets off by giving each its own number as bias. */
static void t5_buckets(const heed_form_state *state, const int32_t *distance, int n, int *bucket)
{
    float *out = floats(n);
    state->form->bias(state, 1, distance, n, out);
    for (int i = 0; i < n; i++)
        bucket[i] = (int)out[i] - 1000;
    free(out);
}

static heed_form_state t5_numbered(heed_isa isa, int buckets, int max, bool causal)
{
    heed_sizes s = sizes;
    s.causal = causal;
    heed_form_state state = form_named(isa, "t5", s);
    give(&state, "buckets", buckets);
    give(&state, "max", max);
    make_ready(&state, 0);
    for (int h = 0; h < 3; h++)
        for (int b = 0; b < buckets; b++)
            set_param(&state, 0, h * buckets + b, (float)(1000 * h + b));
    return state;
}

/* Whole powers: the borders that a rounded logarithm misses. */
static void t5_has_published_borders(heed_isa isa)
{
    static const int first[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
    heed_form_state state = t5_numbered(isa, 32, 128, false);
    for (int b = 0; b < 16; b++) {
        int bucket[4];
        t5_buckets(&state, (int32_t[]){first[b], first[b] - 1, -first[b], 1 - first[b]}, 4, bucket);
        assert_int_equal(bucket[0], b);
        assert_int_equal(bucket[2], b ? 16 + b : 0);
        assert_int_equal(bucket[1], b ? b - 1 : 17);
        assert_int_equal(bucket[3], b > 1 ? 15 + b : b ? 0 : 1);
    }
    drop(&state);
}

static void t5_buckets_are_exact(heed_isa isa)
{
    static const struct {
        int buckets, max;
    } cases[] = {{32, 128}, {32, 20},  {2, 1},     {2, 7},   {4, 50},     {6, 100},
                 {10, 77},  {14, 200}, {24, 1000}, {32, 17}, {16, 100000}};
    enum { N = 2400 };
    static int32_t distance[N];
    static int bucket[N];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int causal = 0; causal < 2; causal++) {
            const int buckets = cases[c].buckets, max = cases[c].max;
            if (max <= (causal ? buckets : buckets / 2) / 2)
                continue;
            heed_form_state state = t5_numbered(isa, buckets, max, causal);
            for (int i = 0; i < N; i++)
                distance[i] = i < 1200 ? i - 600 : (int32_t)random_whole(&draw, -3 * max, 3 * max);
            distance[N - 1] = INT32_MIN;
            distance[N - 2] = INT32_MAX;
            t5_buckets(&state, distance, N, bucket);
            for (int i = 0; i < N; i++)
                if (bucket[i] != t5_bucket(distance[i], buckets, max, causal))
                    fail_msg("distance %d with %d buckets to %d, causal %d: bucket %d, not %d",
                             (int)distance[i], buckets, max, causal, bucket[i],
                             t5_bucket(distance[i], buckets, max, causal));
            drop(&state);
        }
    /* 512 exact buckets, then 64 for each doubling */
    heed_form_state state = t5_numbered(isa, 1024, 512 << 8, true);
    for (int k = 1; k < 8; k++) {
        int both[2];
        t5_buckets(&state, (int32_t[]){512 << k, (512 << k) - 1}, 2, both);
        assert_int_equal(both[0], 512 + 64 * k);
        assert_int_equal(both[1], 512 + 64 * k - 1);
    }
    drop(&state);
}

static void t5_adds_and_gathers(heed_isa isa)
{
    for (int causal = 0; causal < 2; causal++) {
        heed_sizes s = sizes;
        s.causal = causal;
        heed_form_state state = form_named(isa, "t5", s);
        make_ready(&state, 0.25f);
        shake_params(&state, 1);
        double gradient[3 * 32];
        for (int i = 0; i < 96; i++)
            gradient[i] = 0.25;
        int32_t distance[MOST];
        for (int list = 0; list < LISTS; list++)
            for (int head = 0; head < 3; head++) {
                const int n = distances(list, distance);
                float *out = floats(n), *dbias = random_floats(n);
                state.form->bias(&state, head, distance, n, out);
                state.form->bias_backward(&state, head, distance, n, dbias);
                for (int i = 0; i < n; i++) {
                    const int at = head * 32 + t5_bucket(distance[i], 32, 128, causal);
                    assert_true(out[i] == state.param[0][at]);
                    gradient[at] += (double)dbias[i];
                }
                free(out);
                free(dbias);
            }
        for (int i = 0; i < 96; i++)
            near((double)state.grad[0][i], gradient[i], 2e-4, 1e-6, "gradient", i / 32, i % 32);
        float *wanted = state.grad[0];
        state.grad[0] = NULL;
        state.form->bias_backward(&state, 0, distance, 5, (float[5]){1});
        state.grad[0] = wanted;
        drop(&state);
    }
}

static void t5_refuses_what_it_cannot_do(heed_isa isa)
{
    heed_form_state state = form_named(isa, "t5", sizes);
    give(&state, "buckets", 31);
    refused(state, "even");
    state = form_named(isa, "t5", sizes);
    give(&state, "max", 8);
    refused(state, "above 8");
    state.sizes.causal = true;
    give(&state, "max", 16);
    refused(state, "above 16");
}

#define TEST(check)                                                                                          \
    static void test_##check(void **context)                                                                 \
    {                                                                                                        \
        (void)context;                                                                                       \
        in_each_build(check);                                                                                \
    }
TEST(alibi_by_formula)
TEST(alibi_slopes)
TEST(kerple_by_formula)
TEST(kerple_refuses_values_out_of_range)
TEST(sandwich_by_formula)
TEST(t5_has_published_borders)
TEST(t5_buckets_are_exact)
TEST(t5_adds_and_gathers)
TEST(t5_refuses_what_it_cannot_do)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alibi_by_formula),
        cmocka_unit_test(test_alibi_slopes),
        cmocka_unit_test(test_kerple_by_formula),
        cmocka_unit_test(test_kerple_refuses_values_out_of_range),
        cmocka_unit_test(test_sandwich_by_formula),
        cmocka_unit_test(test_t5_has_published_borders),
        cmocka_unit_test(test_t5_buckets_are_exact),
        cmocka_unit_test(test_t5_adds_and_gathers),
        cmocka_unit_test(test_t5_refuses_what_it_cannot_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
