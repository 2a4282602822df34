/* Forms behind a judge: scores regrouped, budgets found, dropped keys folded into kept ones. */
#include "support/layer.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HEADS = 2, COUNT = 45, DIM = 6, VALUE_DIM = 5 };

static const layer_shape usual = {.kv_heads = HEADS,
                                  .group = 2,
                                  .count = {COUNT, COUNT},
                                  .dim = DIM,
                                  .value_dim = VALUE_DIM,
                                  .queries = 6,
                                  .gap = 1};

static double *scores_of(layer *l, int g)
{
    float *score = layer_scores(l, g);
    double *wide = calloc((size_t)l->shape.count[g] + 1, sizeof *wide);
    assert_non_null(wide);
    for (int64_t j = 0; j < l->shape.count[g]; j++)
        wide[j] = score[j];
    free(score);
    return wide;
}

static double l1(const layer *l, int g, int64_t j)
{
    double sum = 0;
    for (int d = 0; d < VALUE_DIM; d++)
        sum += fabs(l->value[g][j * VALUE_DIM + d]);
    return sum;
}

static layer *run(const layer_shape *shape, uint64_t seed, const char *text)
{
    layer *l = layer_new(shape, seed);
    layer_run(l, text);
    return l;
}

static void vatp_weighs_scores_by_the_values_they_bring(void **state)
{
    (void)state;
    layer *l = run(&usual, 1, "tova(budget=20) > vatp");
    for (int g = 0; g < HEADS; g++) {
        double *score = scores_of(l, g);
        for (int j = 0; j < COUNT; j++)
            score[j] *= l1(l, g, j);
        layer_check_best(l, g, score, 20, 0, 1, 1e-6);
        free(score);
    }
    layer_free(l);
}

static void critical_takes_half_by_score_and_the_rest_by_score_and_value(void **state)
{
    (void)state;
    layer *l = run(&usual, 2, "tova(budget=20) > critical");
    for (int g = 0; g < HEADS; g++) {
        double *score = scores_of(l, g);
        bool taken[COUNT] = {0};
        for (int n = 0; n < 9; n++) { /* ten less the newest, which stays anyway */
            int best = -1;
            for (int j = 0; j < COUNT - 1; j++)
                if (!taken[j] && (best < 0 || score[j] >= score[best]))
                    best = j;
            taken[best] = true;
        }
        for (int j = 0; j < COUNT; j++)
            score[j] = taken[j] ? 1e30 : (score[j] + 1e-4) * l1(l, g, j);
        layer_check_best(l, g, score, 20, 0, 1, 1e-6);
        free(score);
    }
    layer_free(l);
}

static void chunks_stay_or_go_together(void **state)
{
    (void)state;
    layer_shape shape = usual;
    shape.gap = 2;
    for (int seed = 0; seed < 20; seed++) {
        layer *l = run(&shape, (uint64_t)seed, "observed(budget=20) > chunks(4)");
        for (int g = 0; g < HEADS; g++) {
            double score[COUNT];
            for (int j = 0; j < COUNT; j++) {
                double sum = 0, n = 0;
                float *own = layer_scores(l, g);
                for (int i = 0; i < COUNT; i++)
                    if (l->pos[g][i] / 4 == l->pos[g][j] / 4) {
                        sum += own[i];
                        n++;
                    }
                score[j] = sum / n;
                free(own);
            }
            layer_check_best(l, g, score, 20, 0, 0, 1e-6);
        }
        layer_free(l);
    }
    layer *l = run(&usual, 3, "knorm(budget=20) > chunks(5)"); /* 9 chunks, 4 stay */
    for (int j = 0; j < COUNT; j++)
        assert_int_equal(l->keep[0][j], l->keep[0][j / 5 * 5]);
    layer_free(l);
}

static void every_stretch_keeps_its_share_chunkwise(void **state)
{
    (void)state;
    layer *l = run(&usual, 4, "knorm(budget=18) > chunkwise(15)"); /* 6 of each 15 */
    for (int g = 0; g < HEADS; g++)
        for (int part = 0; part < 3; part++) {
            double *score = scores_of(l, g);
            int kept = 0;
            for (int j = 15 * part; j < 15 * part + 15; j++) {
                kept += l->keep[g][j];
                for (int i = 15 * part; i < 15 * part + 15; i++)
                    assert_false(l->keep[g][j] && !l->keep[g][i] && score[i] > score[j]);
            }
            assert_int_equal(kept, 6);
            free(score);
        }
    layer_free(l);
}

static void heads_that_act_together_keep_the_same_tokens(void **state)
{
    (void)state;
    layer_shape shape = usual;
    layer *l = run(&shape, 5, "tova(budget=12) > together");
    double *a = scores_of(l, 0), *b = scores_of(l, 1);
    assert_memory_equal(l->keep[0], l->keep[1], COUNT);
    for (int j = 0; j < COUNT; j++)
        a[j] = (a[j] + b[j]) / 2;
    layer_check_best(l, 0, a, 12, 0, 1, 1e-6);
    free(a);
    free(b);
    layer_free(l);
    /* where they hold different keys, a token's mean is that of those who hold it */
    shape.gap = 3;
    l = run(&shape, 6, "knorm(budget=12) > together");
    a = scores_of(l, 0);
    b = scores_of(l, 1);
    for (int j = 0; j < COUNT; j++)
        for (int i = 0; i < COUNT; i++)
            if (l->pos[1][i] == l->pos[0][j])
                a[j] = (a[j] + b[i]) / 2;
    layer_check_best(l, 0, a, 12, 0, 0, 1e-6);
    free(a);
    free(b);
    layer_free(l);
}

static void marks_of_a_template_stay_beyond_the_budget(void **state)
{
    (void)state;
    for (int punctuation = 0; punctuation < 2; punctuation++) {
        layer *l =
            run(&usual, 7,
                punctuation ? "knorm(budget=2) > protect(punctuation=yes)" : "knorm(budget=2) > protect");
        for (int g = 0; g < HEADS; g++) {
            int marks = 0;
            for (int j = 0; j < COUNT; j++) {
                const int kinds = HEED_TOKEN_SPECIAL | (punctuation ? HEED_TOKEN_PUNCTUATION : 0);
                const bool mark = l->kind[g][j] & kinds;
                marks += mark;
                assert_true(!mark || l->keep[g][j]);
            }
            assert_true(marks > 2);
            assert_int_equal(layer_kept(l, g), marks);
        }
        layer_free(l);
    }
}

static void a_threshold_keeps_what_reaches_it(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double least, of; /* 0: mean, 1: max, 2: one */
    } list[] = {{"tova > threshold(1.25)", 1.25, 0},
                {"tova > threshold(0.3, of=max)", 0.3, 1},
                {"tova > threshold(0.02, of=one)", 0.02, 2}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        layer *l = run(&usual, 8, list[i].text);
        for (int g = 0; g < HEADS; g++) {
            double *score = scores_of(l, g), sum = 0, max = 0;
            for (int j = 0; j < COUNT - 1; j++) { /* the newest stays in any case */
                sum += score[j];
                max = fmax(max, score[j]);
            }
            const double reference[] = {sum / (COUNT - 1), max, 1};
            for (int j = 0; j < COUNT - 1; j++)
                assert_int_equal(l->keep[g][j], score[j] >= list[i].least * reference[(int)list[i].of]);
            assert_true(l->keep[g][COUNT - 1]);
            free(score);
        }
        layer_free(l);
    }
    layer *l = run(&usual, 8, "tova(budget=5) > threshold(0, of=one)"); /* no more than the budget */
    assert_int_equal(layer_kept(l, 0), 5);
    layer_free(l);
    l = run(&usual, 8, "knorm > threshold(1, of=one)"); /* nothing reaches it: one key stays */
    assert_int_equal(layer_kept(l, 0), 1);
    layer_free(l);
}

static void top_p_keeps_the_fewest_keys_of_a_share_of_the_scores(void **state)
{
    (void)state;
    layer *l = run(&usual, 9, "tova > top_p(0.7)");
    for (int g = 0; g < HEADS; g++) {
        double *score = scores_of(l, g), sum = 0, kept = 0, least = 1;
        for (int j = 0; j < COUNT - 1; j++) {
            sum += score[j];
            kept += l->keep[g][j] ? score[j] : 0;
            least = l->keep[g][j] ? fmin(least, score[j]) : least;
        }
        assert_true(kept >= 0.7 * sum * (1 - 1e-6) && kept - least < 0.7 * sum);
        layer_check_best(l, g, score, layer_kept(l, g), 0, 1, 1e-9);
        free(score);
    }
    layer_free(l);
    l = run(&usual, 9, "tova > top_p(1)");
    assert_int_equal(layer_kept(l, 0), COUNT);
    layer_free(l);
}

/* Sums of masses times keys, values and one: what a merge by mass conserves. */
static void moments(const layer *l, int g, bool kept_only, double *sum)
{
    memset(sum, 0, (1 + DIM + VALUE_DIM) * sizeof *sum);
    for (int j = 0; j < COUNT; j++) {
        if (kept_only && !l->keep[g][j])
            continue;
        sum[0] += l->mass[g][j];
        for (int d = 0; d < DIM; d++)
            sum[1 + d] += (double)l->mass[g][j] * l->key[g][j * DIM + d];
        for (int d = 0; d < VALUE_DIM; d++)
            sum[1 + DIM + d] += (double)l->mass[g][j] * l->value[g][j * VALUE_DIM + d];
    }
}

static void merging_by_mass_conserves_masses_keys_and_values(void **state)
{
    (void)state;
    static const char *const text[] = {"streaming(budget=12) > mean",
                                       "observed(budget=9) > mean",
                                       "tova(budget=10) > nearest",
                                       "knorm(budget=10) > neighbour",
                                       "knorm(budget=1) > neighbour",
                                       "razor(least=10)",
                                       "tova(budget=10) > by_head > nearest(reach=3)"};
    layer_shape shape = usual;
    shape.merged = true;
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        for (uint64_t seed = 0; seed < 10; seed++) {
            layer *before = layer_new(&shape, seed), *l = run(&shape, seed, text[i]);
            for (int g = 0; g < HEADS; g++) {
                double was[1 + DIM + VALUE_DIM], is[1 + DIM + VALUE_DIM];
                moments(before, g, false, was);
                moments(l, g, true, is);
                assert_true(was[0] == is[0]);
                assert_true(l->changed[g]);
                for (int d = 1; d < 1 + DIM + VALUE_DIM; d++)
                    assert_true(fabs(was[d] - is[d]) < 1e-3);
            }
            layer_free(before);
            layer_free(l);
        }
}

static void a_mean_goes_into_the_key_behind_what_was_dropped(void **state)
{
    (void)state;
    layer *before = layer_new(&usual, 3), *l = run(&usual, 3, "streaming(budget=10) > mean");
    for (int j = 0; j < COUNT; j++) {
        const bool stays = j < 4 || j >= COUNT - 6;
        assert_int_equal(l->keep[0][j], stays);
        if (stays && j != COUNT - 6)
            assert_memory_equal(l->key[0] + j * DIM, before->key[0] + j * DIM, DIM * sizeof(float));
    }
    assert_true(l->mass[0][COUNT - 6] == COUNT - 9);
    layer_free(before);
    layer_free(l);
}

static void razor_keeps_its_ends_and_one_token_through_several_acts(void **state)
{
    (void)state;
    layer *before = layer_new(&usual, 3), *l = run(&usual, 3, "razor(first=2, share=0.1, least=8)");
    for (int j = 0; j < COUNT; j++)
        assert_int_equal(l->keep[1][j], j < 2 || j >= COUNT - 9);
    assert_true(l->mass[1][COUNT - 9] == COUNT - 10);
    for (int d = 0; d < VALUE_DIM; d++) {
        double mean = 0;
        for (int j = 2; j <= COUNT - 9; j++)
            mean += before->value[1][j * VALUE_DIM + d] / (COUNT - 10.0);
        assert_true(fabs(mean - l->value[1][(COUNT - 9) * VALUE_DIM + d]) < 1e-5);
    }
    layer_free(before);
    layer_free(l);
    l = run(&usual, 3, "razor(first=2, share=0.4, least=8, compensation=no)"); /* 18 of 45 */
    for (int j = 0; j < COUNT; j++)
        assert_int_equal(l->keep[1][j], j < 2 || j >= COUNT - 18);
    assert_true(l->mass[1][COUNT - 9] == 1);
    layer_free(l);
}

static double cosine(const float *x, const float *y)
{
    double xy = 0, xx = 0, yy = 0;
    for (int d = 0; d < DIM; d++) {
        xy += (double)x[d] * y[d];
        xx += (double)x[d] * x[d];
        yy += (double)y[d] * y[d];
    }
    return xy / sqrt(xx * yy);
}

static double square_distance(const float *x, const float *y)
{
    double sum = 0;
    for (int d = 0; d < DIM; d++)
        sum += ((double)x[d] - y[d]) * ((double)x[d] - y[d]);
    return sum;
}

/* Kept keys strictly between two keys. */
static int kept_between(const layer *l, int g, int a, int b)
{
    int n = 0;
    for (int j = (a < b ? a : b) + 1; j < (a < b ? b : a); j++)
        n += l->keep[g][j];
    return n;
}

/* nearest with any weights, from the keys before it. */
static void check_nearest(const layer *before, const layer *l, int g, int by, double least, int reach,
                          bool counted)
{
    const float *key = before->key[g], *value = before->value[g], *mass = before->mass[g];
    int goal[COUNT];
    double spread = 0, merged = 0;
    for (int j = 0; j < COUNT; j++) {
        goal[j] = -1;
        for (int c = 0; !l->keep[g][j] && c < COUNT; c++)
            if (l->keep[g][c] && kept_between(l, g, j, c) < reach &&
                cosine(key + j * DIM, key + c * DIM) >= least &&
                (goal[j] < 0 ||
                 cosine(key + j * DIM, key + c * DIM) > cosine(key + j * DIM, key + goal[j] * DIM)))
                goal[j] = c;
        if (goal[j] >= 0) {
            spread += square_distance(key + j * DIM, key + goal[j] * DIM);
            merged++;
        }
    }
    for (int c = 0; c < COUNT; c++) {
        double sum = mass[c] * (by == 1 ? exp(1) : 1), count = mass[c], k[DIM], v[VALUE_DIM];
        if (!l->keep[g][c])
            continue;
        for (int d = 0; d < DIM; d++)
            k[d] = sum * key[c * DIM + d];
        for (int d = 0; d < VALUE_DIM; d++)
            v[d] = sum * value[c * VALUE_DIM + d];
        for (int j = 0; j < COUNT; j++) {
            if (goal[j] != c)
                continue;
            const double w =
                mass[j] * (by == 1 ? exp(cosine(key + j * DIM, key + c * DIM))
                           : by == 2
                               ? exp(-square_distance(key + j * DIM, key + c * DIM) / (2 * spread / merged))
                               : 1);
            for (int d = 0; d < DIM; d++)
                k[d] += w * key[j * DIM + d];
            for (int d = 0; d < VALUE_DIM; d++)
                v[d] += w * value[j * VALUE_DIM + d];
            sum += w;
            count += mass[j];
        }
        for (int d = 0; d < DIM; d++)
            assert_true(fabs(k[d] / sum - l->key[g][c * DIM + d]) < 1e-5);
        for (int d = 0; d < VALUE_DIM; d++)
            assert_true(fabs(v[d] / sum - l->value[g][c * VALUE_DIM + d]) < 1e-5);
        assert_true(l->mass[g][c] == (counted ? count : mass[c]));
    }
}

static void dropped_keys_go_into_the_kept_key_most_like_them(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int by;
        double least;
        int reach;
        bool counted;
    } list[] = {{"tova(budget=9) > nearest", 0, -1, 256, true},
                {"tova(budget=9) > nearest(0.4)", 0, 0.4, 256, true},
                {"tova(budget=9) > nearest(reach=2)", 0, -1, 2, true},
                {"tova(budget=9) > nearest(by=similarity, counted=no)", 1, -1, 256, false},
                {"tova(budget=9) > nearest(0.2, by=distance)", 2, 0.2, 256, true}};
    layer_shape shape = usual;
    shape.merged = true;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (uint64_t seed = 0; seed < 5; seed++) {
            layer *before = layer_new(&shape, seed), *l = run(&shape, seed, list[i].text);
            for (int g = 0; g < HEADS; g++)
                check_nearest(before, l, g, list[i].by, list[i].least, list[i].reach, list[i].counted);
            layer_free(before);
            layer_free(l);
        }
}

static void dropped_keys_go_into_their_neighbour(void **state)
{
    (void)state;
    layer_shape shape = usual;
    shape.gap = 4;
    layer *l = run(&shape, 2, "knorm(budget=9) > neighbour");
    for (int c = 0; c < COUNT; c++) {
        int mass = 1;
        for (int j = 0; l->keep[0][c] && j < COUNT; j++) {
            int best = -1;
            for (int i = 0; !l->keep[0][j] && i < COUNT; i++)
                if (l->keep[0][i] &&
                    (best < 0 || abs(l->pos[0][i] - l->pos[0][j]) < abs(l->pos[0][best] - l->pos[0][j])))
                    best = i;
            mass += best == c;
        }
        assert_true(!l->keep[0][c] || l->mass[0][c] == mass);
    }
    layer_free(l);
}

static void cam_hands_values_on_with_a_chance(void **state)
{
    (void)state;
    layer *before = layer_new(&usual, 3), *l = layer_new(&usual, 3);
    assert_int_equal(layer_chain(l, "h2o(budget=20) > cam(4)", NULL), HEED_OK);
    layer_observe(l, 3, 5);
    layer_apply(l);
    double *score = scores_of(l, 0);
    int certain = 0, open = 0, given = 0;
    /* the values given to a kept key are sums of v_i/n over dropped i in front of it: solved key by key, from
     * the first dropped on, for the one unknown whether i was given */
    double left[COUNT][VALUE_DIM];
    for (int j = 0; j < COUNT; j++)
        for (int d = 0; d < VALUE_DIM; d++)
            left[j][d] = (double)l->value[0][j * VALUE_DIM + d] - before->value[0][j * VALUE_DIM + d];
    for (int j = COUNT - 1; j >= 0; j--) {
        int n = 0, far = -1;
        double mean = 0;
        for (int c = j + 1; c < COUNT && n < 4; c++)
            if (l->keep[0][c]) {
                mean += score[c];
                n++;
                far = c;
            }
        if (l->keep[0][j] || n == 0)
            continue;
        mean /= n;
        /* of all dropped keys not looked at yet, j is the only one that reaches `far` unless others reach as
         * far */
        bool alone = true;
        for (int i = 0; i < j; i++) {
            int m = 0, last = -1;
            for (int c = i + 1; c < COUNT && m < 4; c++)
                if (l->keep[0][c]) {
                    m++;
                    last = c;
                }
            alone = alone && (l->keep[0][i] || last < far);
        }
        if (!alone)
            break;
        const double share = before->value[0][j * VALUE_DIM] / n;
        const bool gave = fabs(left[far][0] - share) < 1e-4;
        assert_true(gave || fabs(left[far][0]) < 1e-4);
        certain += score[j] >= mean && gave;
        open += score[j] < mean;
        given += gave;
        assert_false(score[j] >= mean && !gave);
        for (int c = j + 1; gave && c <= far; c++)
            for (int d = 0; l->keep[0][c] && d < VALUE_DIM; d++)
                left[c][d] -= before->value[0][j * VALUE_DIM + d] / n;
    }
    assert_true(open + certain > 0);
    assert_true(given >= certain);
    for (int j = 0; j < COUNT; j++) {
        assert_true(l->mass[0][j] == 1);
        assert_memory_equal(l->key[0] + j * DIM, before->key[0] + j * DIM, DIM * sizeof(float));
    }
    free(score);
    layer_free(before);
    layer_free(l);
}

static void cam_merges_those_of_the_highest_scores_only(void **state)
{
    (void)state;
    int given = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        layer *before = layer_new(&usual, seed), *l = layer_new(&usual, seed);
        assert_int_equal(layer_chain(l, "tova(budget=20) > cam(1000, most=1)", NULL), HEED_OK);
        layer_apply(l);
        double *score = scores_of(l, 0);
        int best = -1, behind = 0, changed = 0;
        for (int j = 0; j < COUNT; j++)
            if (!l->keep[0][j] && (best < 0 || score[j] >= score[best]))
                best = j;
        for (int j = best + 1; j < COUNT; j++)
            behind += l->keep[0][j];
        for (int j = 0; j < COUNT; j++) {
            for (int d = 0; l->keep[0][j] && d < VALUE_DIM; d++) {
                const double more =
                                 (double)l->value[0][j * VALUE_DIM + d] - before->value[0][j * VALUE_DIM + d],
                             part = before->value[0][best * VALUE_DIM + d] / (behind ? behind : 1);
                const bool took = fabs(more) > 1e-7;
                assert_true(!took || (j > best && fabs(more - part) < 1e-5));
                changed += took;
            }
        }
        assert_true(changed == 0 || changed == behind * VALUE_DIM);
        given += changed > 0;
        free(score);
        layer_free(before);
        layer_free(l);
    }
    assert_true(given > 0);
}

static void shapes_without_a_budget_or_in_excess_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } wrong[] = {{"knorm > chunks(3)", "knorm has no budget"},
                 {"knorm(budget=3) > mean > nearest", "by mean or by nearest, not both"},
                 {"razor > mean", "by razor or by mean, not both"},
                 {"razor > top_p(0.5)", "razor says itself what stays"},
                 {"simlayer > vatp", "simlayer says itself what stays"},
                 {"nearest > knorm(budget=3)", "nearest shapes a policy"}};
    layer *l = layer_new(&usual, 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(layer_chain(l, wrong[i].text, NULL), HEED_INVALID);
        if (!strstr(heed_message(), wrong[i].words))
            fail_msg("%s: %s", wrong[i].text, heed_message());
    }
    layer_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vatp_weighs_scores_by_the_values_they_bring),
        cmocka_unit_test(critical_takes_half_by_score_and_the_rest_by_score_and_value),
        cmocka_unit_test(chunks_stay_or_go_together),
        cmocka_unit_test(every_stretch_keeps_its_share_chunkwise),
        cmocka_unit_test(heads_that_act_together_keep_the_same_tokens),
        cmocka_unit_test(marks_of_a_template_stay_beyond_the_budget),
        cmocka_unit_test(a_threshold_keeps_what_reaches_it),
        cmocka_unit_test(top_p_keeps_the_fewest_keys_of_a_share_of_the_scores),
        cmocka_unit_test(merging_by_mass_conserves_masses_keys_and_values),
        cmocka_unit_test(a_mean_goes_into_the_key_behind_what_was_dropped),
        cmocka_unit_test(razor_keeps_its_ends_and_one_token_through_several_acts),
        cmocka_unit_test(dropped_keys_go_into_the_kept_key_most_like_them),
        cmocka_unit_test(dropped_keys_go_into_their_neighbour),
        cmocka_unit_test(cam_hands_values_on_with_a_chance),
        cmocka_unit_test(cam_merges_those_of_the_highest_scores_only),
        cmocka_unit_test(shapes_without_a_budget_or_in_excess_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
