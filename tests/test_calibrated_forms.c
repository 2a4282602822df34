/* Forms whose tensors are found on a text: every route against the definition, end points, and the tensors
 * that their calibration makes. */
#include "support/attend.h"

#include "attend/registry.h"
#include "attend/select/seer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const specs[] = {
    "where=causal; select=loki",
    "where=causal; select=loki(d_f=0.5, k_f=0.1); position=rope",
    "select=loki(d_f=1, k_f=0.3); where=causal & window(70)",
    "where=causal; select=loki(k_f=0.5) > top_p(0.8)",
    "where=causal; select=top_theta(k=6)",
    "where=causal & window(40); select=top_theta(k=1); position=alibi",
    "where=causal; select=quest(page=8, budget=64) > top_theta(k=3); normalise=sink",
    "where=causal; select=qada(window=8, sinks=2)",
    "where=causal; select=qada(window=20, sinks=0, tau=0.3, far=exact); position=rope",
    "where=causal; select=top_p_estimated(0.8)",
    "select=top_p_estimated(0.5, bits=2); where=causal & window(90); position=rope",
    "where=causal; select=quest(page=8, budget=64) > top_p_estimated(0.7)",
    "where=causal & dam(length=24)",
    "where=dam(length=40) | self",
    "where=causal & dam(length=16); select=top_k(5); position=rope",
};

static void every_route_equals_the_definition(void **state)
{
    (void)state;
    static const int64_t keys[] = {1, 33, 130, 300};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t n = 0; n < COUNT(keys); n++)
            for (int few = 0; few < 2; few++)
                attend_check(&(attend_case){.spec = specs[i],
                                            .batch = 1 + n % 2,
                                            .heads = 4,
                                            .kv_heads = 1 << n % 3,
                                            .queries = few && (int64_t)n < keys[n] ? (int64_t)n + 1 : keys[n],
                                            .keys = keys[n],
                                            .dim = 12,
                                            .value_dim = 9,
                                            .positions = n == 2 ? POSITIONS_SHARED : POSITIONS_DEFAULT,
                                            .seed = 100 * i + 2 * n + (size_t)few,
                                            .way.weights = n == 1,
                                            .way.page = n == 3 && few ? 16 : 0});
}

static void every_instruction_set_and_kernel_agrees(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(specs); i++)
        for (const heed_isa *isa = test_isas(); *isa; isa++)
            for (int rows = 0; rows < 2; rows++)
                attend_check(&(attend_case){.spec = specs[i],
                                            .heads = 2,
                                            .kv_heads = 1,
                                            .queries = 50,
                                            .keys = 70,
                                            .dim = 20,
                                            .seed = i,
                                            .way.isa = *isa,
                                            .way.kernel = rows ? HEED_KERNEL_ROWS : HEED_KERNEL_AUTO});
}

/* Gradients flow through what is kept; the choice itself has none. */
static void gradients_go_through_what_is_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(specs); i++)
        attend_check(&(attend_case){.spec = specs[i],
                                    .heads = 2,
                                    .kv_heads = 1,
                                    .queries = 40,
                                    .keys = 44,
                                    .dim = 8,
                                    .seed = 7 * i,
                                    .way.backward = true});
}

static void summaries_that_come_with_the_keys_change_nothing(void **state)
{
    (void)state;
    attend_data *d = attend_prepare(&(attend_case){.spec = specs[0],
                                                   .batch = 2,
                                                   .heads = 4,
                                                   .kv_heads = 2,
                                                   .queries = 2,
                                                   .keys = 150,
                                                   .dim = 16,
                                                   .seed = 4,
                                                   .way = {.page = 32, .threads = 2}});
    attend_way with = d->c.way;
    with.summaries = true;
    attend_result *made = attend_run(d, &d->c.way), *came = attend_run(d, &with);
    attend_match(d, came);
    attend_same_bits(d, made, came);
    attend_result_free(made);
    attend_result_free(came);
    attend_free(d);
}

/* Loki reads values of no more than it keeps, in decoding. */
static void decoding_reads_what_is_kept(void **state)
{
    (void)state;
    attend_data *d = attend_prepare(&(attend_case){.spec = "where=causal; select=loki(d_f=0.5, k_f=0.1)",
                                                   .queries = 1,
                                                   .keys = 400,
                                                   .dim = 16,
                                                   .seed = 5,
                                                   .way.pairs = true});
    attend_result *r = attend_run(d, &d->c.way);
    assert_int_equal(r->info.kernel, HEED_KERNEL_DECODE);
    assert_int_equal(r->pairs[0], 40);
    assert_int_equal(r->pairs[1], 400);
    attend_result_free(r);
    attend_free(d);
}

/* Two specs on the same data, parameters at initial values. */
static void same(const char *spec, const char *as, bool bits)
{
    attend_data *d = attend_prepare(&(attend_case){
        .spec = spec, .heads = 2, .queries = 90, .dim = 16, .initial = true, .seed = 9, .way.weights = true});
    attend_result *one = attend_run(d, &d->c.way);
    d->c.spec = as;
    attend_data *other_data = attend_make(&d->c);
    attend_result *other = attend_run(other_data, &d->c.way);
    if (bits)
        attend_same_bits(d, one, other);
    else
        attend_agree(d, one, other);
    attend_result_free(one);
    attend_result_free(other);
    attend_free(other_data);
    attend_free(d);
}

static void end_points_are_forms_that_are_known(void **state)
{
    (void)state;
    same("where=causal; select=loki(d_f=1, k_f=1)", "where=causal", false);
    same("where=causal; select=top_theta(k=1)", "where=causal", false);
    same("where=causal; select=top_p_estimated(1)", "where=causal", false);
    same("where=causal; select=top_p_estimated(0.9, bits=16)", "where=causal; select=top_p(0.9)", false);
    same("where=causal; select=qada(tau=1.1, window=2, sinks=1)", "where=causal", false);
    same("where=causal & dam(length=45)", "where=causal", false); /* all patterns open, up to twice P */
}

/* ---- calibration ---- */

static heed_form_state form_of(heed_stage stage, const char *name, int heads, int kv_heads, int dim)
{
    heed_form_state form = {.form = heed_registry_find(HEED_ISA_PORTABLE, stage, name),
                            .sizes = {.heads = heads, .kv_heads = kv_heads, .dim = dim, .value_dim = dim}};
    assert_non_null(form.form);
    for (int i = 0; form.form->args[i].name; i++)
        form.arg[i].number = form.form->args[i].value;
    return form;
}

static double normal(uint64_t *random)
{
    double u[2];
    for (int i = 0; i < 2; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        u[i] = ((double)(*random >> 11) + 0.5) * 0x1p-53;
    }
    return sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]);
}

static double *gathered(const heed_form_state *form, const heed_shown *shown)
{
    const heed_calibration *how = form->form->calibration;
    double *sums = calloc((size_t)how->sums(form), sizeof *sums);
    float *work = calloc(how->work ? (size_t)how->work(form, shown->tokens) : 1, sizeof *work);
    how->gather(form, shown, sums, work);
    free(work);
    return sums;
}

/* A head's queries and keys, whose attention follows one direction of the keys that their means do not show.
 */
static heed_shown text_of(float *query, float *key, int dim, int64_t tokens, int64_t block)
{
    uint64_t random = 11;
    for (int64_t t = 0; t < tokens; t++)
        for (int c = 0; c < dim; c++) {
            const bool odd = t % block == 1 && c == 0;
            query[t * dim + c] = (float)(c == 0 ? 1 : 0.1 * normal(&random));
            key[t * dim + c] = (float)(odd ? 6 * normal(&random) : 0.3 * normal(&random));
        }
    return (heed_shown){.group = 1,
                        .tokens = tokens,
                        .span = tokens,
                        .dim = dim,
                        .value_dim = dim,
                        .query = query,
                        .key = key,
                        .value = key};
}

/* Tiles are those of the whole map, the gradient is that of finite differences, and steps bring the loss
 * down. */
static void seer_learns_where_attention_is_large(void **state)
{
    enum { DIM = 6, BLOCK = 4, BLOCKS = 7, TOKENS = BLOCK * BLOCKS, W = 4 * DIM * DIM };
    (void)state;
    float query[TOKENS * DIM], key[TOKENS * DIM], score[TOKENS];
    const heed_shown shown = text_of(query, key, DIM, TOKENS, BLOCK);
    double target[BLOCKS * BLOCKS] = {0}, pooled[BLOCKS * DIM] = {0}, of_keys[BLOCKS * 3 * DIM];
    for (int t = 0; t < TOKENS; t++) {
        double map[TOKENS], sum = 0;
        heed_shown_scores(&shown, 0, t, score);
        heed_seer_tiles(score, t, BLOCK, t / BLOCK, target + t / BLOCK * BLOCKS);
        for (int j = 0; j <= t; j++)
            sum += map[j] = exp((double)score[j]);
        for (int j = 0; j < t / BLOCK * BLOCK; j++)
            assert_true(target[t / BLOCK * BLOCKS + j / BLOCK] >= map[j] / sum - 1e-12);
        for (int c = 0; c < DIM; c++)
            pooled[t / BLOCK * DIM + c] += (double)query[t * DIM + c] / BLOCK;
    }
    for (int i = 1; i < BLOCKS; i++)
        for (int b = 0; b < i; b++) {
            double most = 0;
            for (int t = i * BLOCK; t < (i + 1) * BLOCK; t++) {
                double sum = 0, best = 0;
                for (int j = 0; j <= t; j++) {
                    double x = 0;
                    for (int c = 0; c < DIM; c++)
                        x += (double)query[t * DIM + c] * (double)key[j * DIM + c];
                    sum += exp(x);
                    best = j / BLOCK == b ? fmax(best, exp(x)) : best;
                }
                most = fmax(most, best / sum);
            }
            assert_float_equal(target[i * BLOCKS + b], most, 1e-6);
        }
    for (int i = 1; i < BLOCKS; i++) {
        double sum = 0;
        for (int b = 0; b < i; b++)
            sum += target[i * BLOCKS + b];
        for (int b = 0; b < i; b++)
            target[i * BLOCKS + b] /= sum;
    }
    for (int b = 0; b < BLOCKS; b++)
        heed_seer_pool_keys(key + b * BLOCK * DIM, BLOCK, DIM, of_keys + b * 3 * DIM);
    const heed_seer_text text = {DIM, BLOCKS, pooled, of_keys, target};
    double weights[W], slope[W] = {0}, none[W], work[(BLOCKS + 1) * (2 * DIM + 1)];
    uint64_t random = 5;
    for (int i = 0; i < W; i++)
        weights[i] = 0.5 * normal(&random);
    heed_seer_loss(&text, weights, slope, work);
    for (int i = 0; i < W; i++) {
        const double was = weights[i], step = 1e-6;
        weights[i] = was + step;
        const double above = heed_seer_loss(&text, weights, none, work);
        weights[i] = was - step;
        const double below = heed_seer_loss(&text, weights, none, work);
        weights[i] = was;
        assert_float_equal(slope[i], (above - below) / (2 * step), 1e-6 * (1 + fabs(slope[i])));
    }
    heed_form_state form = form_of(HEED_SELECT, "seer", 1, 1, DIM);
    form.arg[0].number = BLOCK;
    form.arg[3].number = 1;
    double *once = gathered(&form, &shown);
    form.arg[3].number = 400;
    form.arg[4].number = 1e-2;
    double *often = gathered(&form, &shown);
    assert_true(often[1] < 0.3 * once[1]); /* the last loss */
    free(once);
    free(often);
}

/* Keys that vary along known directions: the basis finds them by falling variance and is orthogonal. */
static void loki_finds_the_directions_in_which_keys_vary(void **state)
{
    enum { DIM = 8, TOKENS = 4000 };
    (void)state;
    heed_form_state form = form_of(HEED_SELECT, "loki", 1, 1, DIM);
    float *key = calloc(TOKENS * DIM, sizeof *key), basis[DIM * DIM], variance[DIM];
    uint64_t random = 3;
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < DIM;
             c++) /* along (e_c + e_c+1) / sqrt 2 for even c, 2^(3 - c/2) wide; a mean of 5 */
            if (c % 2 == 0) {
                const double x = ldexp(1, 3 - c / 2) * normal(&random), y = 0.01 * normal(&random);
                key[t * DIM + c] = (float)(5 + (x + y) / sqrt(2));
                key[t * DIM + c + 1] = (float)((x - y) / sqrt(2));
            }
    const heed_shown shown = {
        .group = 1, .tokens = TOKENS, .span = TOKENS, .dim = DIM, .value_dim = DIM, .key = key};
    double *sums = gathered(&form, &shown);
    assert_int_equal(form.form->calibration->settle(&form, sums, (float *[]){basis, variance}), HEED_OK);
    for (int c = 0; c < 4; c++) {
        assert_true(fabs(fabs((double)basis[2 * c * DIM + c]) - sqrt(0.5)) < 0.03);
        assert_true(fabs((double)variance[c] / ldexp(1, 6 - 2 * c) - 1) < 0.1);
    }
    for (int a = 0; a < DIM; a++)
        for (int b = 0; b < DIM; b++) {
            double product = 0;
            for (int d = 0; d < DIM; d++)
                product += (double)basis[d * DIM + a] * (double)basis[d * DIM + b];
            assert_true(fabs(product - (a == b)) < 1e-6);
        }
    form.param[0] = basis, form.param[1] = variance;
    assert_true(form.form->calibration->measure(&form) == 2); /* 64 + 16 of 85 */
    free(sums);
    free(key);
}

/* The mean of the k-th largest scores of rows of a class of lengths, and a tenth of their deviation. */
static void top_theta_finds_the_mean_of_the_kth_scores(void **state)
{
    enum { TOKENS = 64, K = 4 };
    (void)state;
    heed_form_state form = form_of(HEED_SELECT, "top_theta", 2, 1, 1);
    form.arg[0].number = K;
    float query[2 * TOKENS], key[TOKENS], theta[2 * 24];
    uint64_t random = 5;
    for (int t = 0; t < TOKENS; t++) {
        key[t] = (float)normal(&random);
        query[t] = 1;
        query[TOKENS + t] = -2;
    }
    const heed_shown shown = {
        .group = 2, .tokens = TOKENS, .span = TOKENS, .dim = 1, .value_dim = 1, .query = query, .key = key};
    double *sums = gathered(&form, &shown);
    assert_int_equal(form.form->calibration->settle(&form, sums, (float *[]){theta}), HEED_OK);
    for (int h = 0; h < 2; h++) {
        double sum = 0, squares = 0;
        for (int i = 31; i < 63; i++) { /* rows of 32 to 63 keys */
            double best = INFINITY;     /* the k-th: the largest value that k scores reach */
            for (int r = 0; r < K; r++) {
                double next = -INFINITY;
                for (int j = 0; j <= i; j++) {
                    const double score = (double)query[h * TOKENS] * (double)key[j];
                    next = score < best && score > next ? score : next;
                }
                best = next;
            }
            sum += best, squares += best * best;
        }
        const double mean = sum / 32, wanted = mean + 0.1 * sqrt(squares / 32 - mean * mean);
        assert_true(fabs((double)theta[h * 24 + 5] - wanted) < 1e-5);
        assert_true(theta[h * 24 + 1] == -INFINITY);          /* rows of 2 and 3 are not cut */
        assert_true(theta[h * 24 + 6] == theta[h * 24 + 23]); /* what is longer than the text */
    }
    free(sums);
}

/* Scores of keys that are normal: the far mass from mean and covariance is that of the scores. */
static void qada_knows_the_mass_of_normal_keys(void **state)
{
    enum { DIM = 6, TOKENS = 8192 };
    (void)state;
    heed_form_state form = form_of(HEED_SELECT, "qada", 1, 1, DIM);
    form.arg[1].number = 0;
    float *key = calloc(TOKENS * DIM, sizeof *key), mean[DIM], covariance[DIM * DIM], query[DIM];
    uint64_t random = 8;
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < DIM; c++)
            key[t * DIM + c] =
                (float)(0.3 * c + (c ? 0.5 * (double)key[t * DIM + c - 1] : 0) + normal(&random));
    const heed_shown shown = {
        .group = 1, .tokens = TOKENS, .span = TOKENS, .dim = DIM, .value_dim = DIM, .key = key};
    double *sums = gathered(&form, &shown);
    assert_int_equal(form.form->calibration->settle(&form, sums, (float *[]){mean, covariance}), HEED_OK);
    double m = 0, s2 = 0, exact = 0;
    for (int c = 0; c < DIM; c++)
        query[c] = (float)(0.4 * normal(&random));
    for (int a = 0; a < DIM; a++) {
        m += (double)query[a] * (double)mean[a];
        for (int b = 0; b < DIM; b++)
            s2 += (double)query[a] * (double)covariance[a * DIM + b] * (double)query[b];
    }
    for (int t = 0; t < TOKENS; t++) {
        double score = 0;
        for (int c = 0; c < DIM; c++)
            score += (double)query[c] * (double)key[t * DIM + c];
        exact += exp(score);
    }
    const double predicted = log((double)TOKENS) + m + s2 / 2;
    if (fabs(predicted - log(exact)) > 0.01 * log(exact))
        fail_msg("log mass %g, by mean and covariance %g", log(exact), predicted);
    free(sums);
    free(key);
}

/* A head that looks at column 5 and three tokens back: both are found, and nothing else. */
static void dam_finds_planted_lines(void **state)
{
    enum { P = 32, COLUMN = 5, BACK = 3, DIM = 2 * P };
    (void)state;
    heed_form_state form = form_of(HEED_WHERE, "dam", 1, 1, DIM);
    form.arg[0].number = P;
    float *query = calloc(P * DIM, sizeof *query), *key = calloc(P * DIM, sizeof *key);
    float columns[P], diagonals[P], *mask = calloc(P * P, sizeof *mask);
    for (int t = 0; t < P; t++) { /* key t is e_t; queries like e_column and e_t-back */
        key[t * DIM + t] = 1;
        query[t * DIM + COLUMN] = t >= COLUMN ? 20 : 0;
        if (t >= BACK)
            query[t * DIM + t - BACK] = 20;
    }
    const heed_shown shown = {
        .group = 1, .tokens = P, .span = P, .dim = DIM, .value_dim = DIM, .query = query, .key = key};
    double *sums = gathered(&form, &shown);
    form.arg[1].number = 0.5;
    assert_int_equal(form.form->calibration->settle(&form, sums, (float *[]){columns, diagonals, mask}),
                     HEED_OK);
    for (int n = 0; n < P; n++) {
        assert_true(columns[n] == (n == COLUMN));
        assert_true(diagonals[n] == (n == BACK));
    }
    form.arg[1].number = 0; /* everything is in the mask */
    assert_int_equal(form.form->calibration->settle(&form, sums, (float *[]){columns, diagonals, mask}),
                     HEED_OK);
    for (int n = 0; n < P; n++)
        assert_true(columns[n] == 1 && diagonals[n] == 1);
    free(sums);
    free(query);
    free(key);
    free(mask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_equals_the_definition),
        cmocka_unit_test(every_instruction_set_and_kernel_agrees),
        cmocka_unit_test(gradients_go_through_what_is_kept),
        cmocka_unit_test(summaries_that_come_with_the_keys_change_nothing),
        cmocka_unit_test(decoding_reads_what_is_kept),
        cmocka_unit_test(end_points_are_forms_that_are_known),
        cmocka_unit_test(seer_learns_where_attention_is_large),
        cmocka_unit_test(loki_finds_the_directions_in_which_keys_vary),
        cmocka_unit_test(top_theta_finds_the_mean_of_the_kth_scores),
        cmocka_unit_test(qada_knows_the_mass_of_normal_keys),
        cmocka_unit_test(dam_finds_planted_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
