/* Recurrences where they meet each other or softmax attention, over long runs, and what is refused. */
#include "support/attend.h"
#include "support/random.h"
#include "support/scan_case.h"

#include <stdlib.h>
#include <string.h>

/* With keys at right angles and beta = 1 the delta rule gives back what was written last under a key; sums
 * without a rule would give all that was ever written. */
static void the_delta_rule_replaces_what_stood_there(void **state)
{
    (void)state;
    scan_data d = scan_make("", 1, 1, 6, 4, 3, 11);
    for (int b = 0; b < BATCH; b++)
        for (int t = 0; t < 6; t++) {
            d.x[BETA][b * 6 + t] = 1;
            for (int i = 0; i < 4; i++)
                d.x[K][(b * 6 + t) * 4 + i] = d.x[Q][(b * 6 + t) * 4 + i] = i == t % 3;
        }
    heed_scan_plan *plan = scan_plan_of("scan=delta(scale=1, norm=none)", &d, HEED_ISA_AUTO, 1, false);
    const heed_scan_tensors t = scan_tensors_of(plan, &d, d.x, 0, 6);
    assert_int_equal(heed_scan(plan, &t), HEED_OK);
    for (int64_t i = 0; i < d.floats[OUT]; i++)
        assert_float_equal(d.x[OUT][i], d.x[V][i], 1e-6);
    heed_scan_free(plan);
    scan_drop(&d);
}

/* A gate that does not depend on the channel is a decay; a decay of 0 is none; values that are all the same
 * stay what they are under weights that sum to 1. */
static void end_points_meet(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"scan=gla", "scan=simple_gla"}, {"scan=kda", "scan=gated_delta"}};
    scan_data d = scan_make("", 2, 2, 80, 8, 20, 12);
    float *first = malloc((size_t)d.floats[OUT] * sizeof *first);
    for (int64_t i = 0; i < d.floats[GATE]; i++)
        d.x[GATE][i] = d.x[DECAY][i / 8];
    for (int n = 0; n < 3; n++) {
        if (n == 2)
            memset(d.x[DECAY], 0, (size_t)d.floats[DECAY] * sizeof(float));
        for (int side = 0; side < 2; side++) {
            const char *spec = n < 2 ? pairs[n][side] : side ? "scan=gated_delta" : "scan=delta";
            heed_scan_plan *plan = scan_plan_of(spec, &d, HEED_ISA_AUTO, 2, false);
            const heed_scan_tensors t = scan_tensors_of(plan, &d, d.x, 0, 80);
            assert_int_equal(heed_scan(plan, &t), HEED_OK);
            if (side)
                assert_memory_equal(d.x[OUT], first, (size_t)d.floats[OUT] * sizeof *first);
            memcpy(first, d.x[OUT], (size_t)d.floats[OUT] * sizeof *first);
            heed_scan_free(plan);
        }
    }
    for (int64_t i = 0; i < d.floats[V]; i++)
        d.x[V][i] = 3;
    heed_scan_plan *plan = scan_plan_of("scan=linear", &d, HEED_ISA_AUTO, 2, false);
    const heed_scan_tensors t = scan_tensors_of(plan, &d, d.x, 0, 80);
    assert_int_equal(heed_scan(plan, &t), HEED_OK);
    for (int64_t i = 0; i < d.floats[OUT]; i++)
        assert_float_equal(d.x[OUT][i], 3, 1e-5);
    heed_scan_free(plan);
    free(first);
    scan_drop(&d);
}

/* Keys, or queries, whose features are all 0: outputs are 0 and so are all gradients. */
static void where_nothing_is_written_or_asked_for_the_output_is_0(void **state)
{
    (void)state;
    for (int which = Q; which <= K; which++) {
        scan_data d = scan_make("", 2, 1, 40, 5, 7, 17);
        for (int64_t i = 0; i < d.floats[which]; i++)
            d.x[which][i] = -fabsf(d.x[which][i]);
        heed_scan_plan *plan = scan_plan_of("scan=linear(map=relu)", &d, HEED_ISA_AUTO, 2, true);
        float *g[TENSORS] = {0}, *dout = malloc((size_t)d.floats[OUT] * sizeof *dout);
        for (int64_t i = 0; i < d.floats[OUT]; i++)
            dout[i] = (float)(i % 5) - 2;
        for (int w = 0; w < OUT; w++)
            g[w] = malloc((size_t)d.floats[w] * sizeof(float));
        const heed_scan_tensors t = scan_tensors_of(plan, &d, d.x, 0, 40),
                                gradients = scan_tensors_of(plan, &d, g, 0, 40);
        heed_tensor along = t.out;
        along.data = dout;
        assert_int_equal(heed_scan(plan, &t), HEED_OK);
        assert_int_equal(heed_scan_backward(plan, &t, &along, &gradients), HEED_OK);
        for (int64_t i = 0; i < d.floats[OUT]; i++)
            assert_true(d.x[OUT][i] == 0.0f);
        for (int w = Q; w <= V; w++)
            for (int64_t i = 0; i < d.floats[w]; i++)
                assert_true(g[w][i] == 0.0f);
        for (int w = 0; w < OUT; w++)
            free(g[w]);
        heed_scan_free(plan);
        free(dout);
        scan_drop(&d);
    }
}

/* Slot t takes in token t alone and keeps it: then slots are keys, and the read is attention. */
static void slots_that_keep_a_token_each_are_attention(void **state)
{
    (void)state;
    scan_data d = scan_make("gsa", 1, 1, SLOTS, 6, 5, 21);
    for (int64_t i = 0; i < d.floats[GATE]; i++)
        d.x[GATE][i] = i % SLOTS == i / SLOTS % SLOTS ? -INFINITY : 0;
    heed_scan_plan *plan = scan_plan_of("scan=gsa(slots=3)", &d, HEED_ISA_AUTO, 1, false);
    const heed_scan_tensors t = scan_tensors_of(plan, &d, d.x, 0, SLOTS);
    assert_int_equal(heed_scan(plan, &t), HEED_OK);
    for (int64_t b = 0; b < BATCH; b++) {
        double weight[SLOTS], sum = 0;
        for (int j = 0; j < SLOTS; j++)
            sum += weight[j] =
                exp(scan_dot(scan_row_at(&d, Q, b, 0, SLOTS - 1), scan_row_at(&d, K, b, 0, j), 6));
        for (int c = 0; c < 5; c++) {
            double want = 0;
            for (int j = 0; j < SLOTS; j++)
                want += weight[j] / sum * scan_row_at(&d, V, b, 0, j)[c];
            assert_float_equal(d.x[OUT][(b * SLOTS + SLOTS - 1) * 5 + c], want, 1e-5);
        }
    }
    heed_scan_free(plan);
    scan_drop(&d);
}

static void run_of(const char *spec, scan_data *d)
{
    heed_scan_plan *plan = scan_plan_of(spec, d, HEED_ISA_AUTO, 1, false);
    const heed_scan_tensors t = scan_tensors_of(plan, d, d->x, 0, d->problem.tokens);
    assert_int_equal(heed_scan(plan, &t), HEED_OK);
    heed_scan_free(plan);
}

/* eta = alpha = 0: the delta rule with beta = 2 theta. */
static void a_memory_without_momentum_is_the_delta_rule(void **state)
{
    (void)state;
    scan_data d = scan_make("titans", 2, 2, 90, 8, 20, 15);
    float *first = malloc((size_t)d.floats[OUT] * sizeof *first);
    for (int64_t i = 0; i < d.floats[BETA]; i++) {
        d.x[GATE][3 * i] = d.x[GATE][3 * i + 2] = -INFINITY;
        d.x[GATE][3 * i + 1] = -1 - d.x[BETA][i];
        d.x[BETA][i] = 2 / (1 + expf(1 + d.x[BETA][i]));
    }
    run_of("scan=titans", &d);
    memcpy(first, d.x[OUT], (size_t)d.floats[OUT] * sizeof *first);
    run_of("scan=delta(scale=1)", &d);
    for (int64_t i = 0; i < d.floats[OUT]; i++)
        assert_float_equal(d.x[OUT][i], first[i], 2e-5);
    free(first);
    scan_drop(&d);
}

/* Only local: a segment that holds all is softmax attention, others are attention of blocks. A lone pair
 * that comes twice counts once by the delta rule. */
static void a_compressive_memory_at_its_ends(void **state)
{
    (void)state;
    scan_data d = scan_make("", 1, 1, 12, 4, 3, 16);
    for (int64_t i = 0; i < d.floats[BETA]; i++)
        d.x[BETA][i] = -INFINITY;
    run_of("scan=infini(segment=6, base=0)", &d);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t t = 0; t < 12; t++)
            for (int c = 0; c < 3; c++) {
                double sum = 0, want = 0;
                for (int64_t j = t / 6 * 6; j <= t; j++) {
                    const double w =
                        exp(scan_dot(scan_row_at(&d, Q, b, 0, t), scan_row_at(&d, K, b, 0, j), 4) / 2);
                    sum += w;
                    want += w * scan_row_at(&d, V, b, 0, j)[c];
                }
                assert_float_equal(d.x[OUT][(b * 12 + t) * 3 + c], want / sum, 1e-5);
            }
    for (int64_t i = 0; i < d.floats[BETA]; i++) {
        d.x[BETA][i] = INFINITY;
        memcpy(d.x[K] + 4 * i, d.x[K], 4 * sizeof(float));
        memcpy(d.x[V] + 3 * i, d.x[V], 3 * sizeof(float));
    }
    run_of("scan=infini(segment=1, update=delta)", &d);
    for (int64_t i = 3; i < 9; i++) /* z counts every key, M the pair once */
        assert_float_equal(d.x[OUT][i] * (i / 3), d.x[V][i % 3], 1e-4);
    scan_drop(&d);
}

/* Scores as large as 1e4 of either sign: softmax over the prefix. */
static void a_prefix_scan_is_softmax_whatever_the_scores(void **state)
{
    (void)state;
    scan_data d = scan_make("aaren", 1, 1, 300, 1, 5, 31);
    for (int64_t i = 0; i < d.floats[BETA]; i++)
        d.x[BETA][i] =
            (float)(i % 3 ? 1e4 * sin((double)i) : 1e4 * sin((double)(i / 7)) + 0.3 * (double)(i % 5));
    heed_scan_plan *plan = scan_plan_of("scan=aaren", &d, HEED_ISA_AUTO, 1, false);
    const heed_scan_tensors t = scan_tensors_of(plan, &d, d.x, 0, 300);
    assert_int_equal(heed_scan(plan, &t), HEED_OK);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t n = 0; n < 300; n++) {
            const float *s = d.x[BETA] + b * 300;
            double most = -1e30, sum = 0, want[5] = {0};
            for (int64_t j = 0; j <= n; j++)
                most = fmax(most, s[j]);
            for (int64_t j = 0; j <= n; j++) {
                const double w = exp(s[j] - most);
                sum += w;
                for (int c = 0; c < 5; c++)
                    want[c] += w * scan_row_at(&d, V, b, 0, j)[c];
            }
            for (int c = 0; c < 5; c++)
                assert_float_equal(d.x[OUT][(b * 300 + n) * 5 + c], want[c] / sum, 1e-5);
        }
    heed_scan_free(plan);
    scan_drop(&d);
}

/* Variance of ln A over pairs of rows of standard deviation `size`, D 64: of softmax it is that of q·k /
 * sqrt(D). */
static double spread_of_logs(double (*weight)(const scan_sizes *s, const double *q, const double *k),
                             double size)
{
    enum { D = 64, PAIRS = 4000 };
    const scan_sizes s = {D, 1, 0, 1};
    test_random random = {3};
    double mean = 0, squares = 0;
    for (int i = 0; i < PAIRS; i++) {
        double q[D], k[D];
        for (int c = 0; c < D; c++) {
            q[c] = size * random_normal(&random);
            k[c] = size * random_normal(&random);
        }
        const double x = weight ? log(weight(&s, q, k)) : scan_dot(q, k, D) / sqrt(D);
        mean += x / PAIRS;
        squares += x * x / PAIRS;
    }
    return squares - mean * mean;
}

static double lln_size;

static double matched(const scan_sizes *s, const double *q, const double *k)
{
    const double st = sqrt((pow(lln_size, 4) + 0.3549) / (2 * 0.1486)) / lln_size;
    double sum = 0;
    for (int i = 0; i < s->dim; i++)
        sum += exp(st * (q[i] + k[i]));
    return sum;
}

/* Over the row's range of sq^2 sk^2 the spread stays near softmax's; of elu features it does not. */
static void log_normal_features_spread_as_softmax(void **state)
{
    (void)state;
    const double products[] = {0.5, 1, 2};
    for (int i = 0; i < 3; i++) {
        lln_size = pow(products[i], 0.25);
        const double softmax = spread_of_logs(NULL, lln_size),
                     ratio = spread_of_logs(matched, lln_size) / softmax;
        const double elu_ratio = spread_of_logs(scan_linear_weight, lln_size) / softmax;
        if (!(ratio > 1 / 1.5 && ratio < 1.5) || !(elu_ratio < 0.05))
            fail_msg("%g: log-normal %g, elu %g of softmax's", products[i], ratio, elu_ratio);
    }
}

/* To a high power the weights of standardised rows are softmax's. */
static void taylor_weights_of_a_high_power_are_exponentials(void **state)
{
    (void)state;
    const scan_sizes s = {4, 1, 0, 1};
    test_random random = {4};
    for (int i = 0; i < 100; i++) {
        double q[4], k[4], a[4], b[4];
        for (int c = 0; c < 4; c++) {
            q[c] = random_normal(&random);
            k[c] = random_normal(&random);
        }
        scan_standard(q, 4, a);
        scan_standard(k, 4, b);
        const double want = exp(scan_dot(a, b, 4));
        assert_true(fabs(scan_taylor_weight(&s, q, k, 20) - want) < 1e-6 * want + 1e-6);
        assert_true(scan_taylor_weight(&s, q, k, 2) >= 0.5);
    }
}

static void no_overflow_in_long_runs(void **state)
{
    (void)state;
    scan_data d = scan_make("", 1, 1, 65536, 4, 4, 13);
    for (int64_t i = 0; i < d.floats[DECAY]; i++)
        d.x[DECAY][i] = -30;
    heed_scan_plan *plan = scan_plan_of("scan=simple_gla(scale=1)", &d, HEED_ISA_AUTO, 2, false);
    const heed_scan_tensors t = scan_tensors_of(plan, &d, d.x, 0, 65536);
    assert_int_equal(heed_scan(plan, &t), HEED_OK);
    for (int64_t i = 0; i < d.floats[OUT]; i++) {
        const int64_t row = i / 4 * 4;
        double want = 0;
        for (int c = 0; c < 4; c++)
            want += (double)d.x[Q][row + c] * d.x[K][row + c] * d.x[V][i];
        assert_float_equal(d.x[OUT][i], want, 1e-4 * (1 + fabs(want)));
    }
    heed_scan_free(plan);
    scan_drop(&d);
}

static void refused(const char *spec, const char *why)
{
    const heed_scan_problem problem = {.batch = 1, .heads = 2, .tokens = 4, .dim = 4};
    heed_scan_plan *plan = (heed_scan_plan *)&plan;
    assert_int_not_equal(heed_scan_create(&plan, spec, &problem), HEED_OK);
    assert_null(plan);
    if (!strstr(heed_message(), why))
        fail_msg("%s: %s", spec, heed_message());
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    refused("scan=linaer", "linear");
    refused("where=causal", "no clause scan=");
    refused("scan=gla; where=causal", "where= stands beside scan=");
    refused("scan=retention(first=0)", "first");
    scan_data d = scan_make("", 2, 2, 10, 8, 8, 14);
    heed_scan_plan *plan = scan_plan_of("scan=gated_delta", &d, HEED_ISA_AUTO, 1, false);
    heed_scan_tensors t = scan_tensors_of(plan, &d, d.x, 0, 10);
    t.beta.data = NULL;
    assert_int_equal(heed_scan(plan, &t), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "reads beta, which is missing"));
    t = scan_tensors_of(plan, &d, d.x, 0, 10);
    t.gate = t.q;
    assert_int_equal(heed_scan(plan, &t), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "gate is not read by scan=gated_delta"));
    t = scan_tensors_of(plan, &d, d.x, 0, 10);
    t.v.shape[3] = 7;
    assert_int_equal(heed_scan(plan, &t), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "v must be f32 [2, 2, 10, 8]"));
    t = scan_tensors_of(plan, &d, d.x, 0, 10);
    assert_int_equal(heed_scan_backward(plan, &t, &t.out, &t), HEED_INVALID);
    heed_scan_free(plan);
    scan_drop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_delta_rule_replaces_what_stood_there),
        cmocka_unit_test(end_points_meet),
        cmocka_unit_test(where_nothing_is_written_or_asked_for_the_output_is_0),
        cmocka_unit_test(slots_that_keep_a_token_each_are_attention),
        cmocka_unit_test(a_memory_without_momentum_is_the_delta_rule),
        cmocka_unit_test(a_compressive_memory_at_its_ends),
        cmocka_unit_test(a_prefix_scan_is_softmax_whatever_the_scores),
        cmocka_unit_test(log_normal_features_spread_as_softmax),
        cmocka_unit_test(taylor_weights_of_a_high_power_are_exponentials),
        cmocka_unit_test(no_overflow_in_long_runs),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
