/* Policies that say themselves how much stays: FastGen, SimLayerKV, Round Attention, A-VL. */
#include "support/layer.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HEADS = 2, COUNT = 45 };

static const layer_shape usual = {
    .kv_heads = HEADS, .group = 2, .count = {COUNT, COUNT}, .dim = 6, .value_dim = 5, .queries = 6, .gap = 1};

static double weight_of(const layer *l, int g, int h, int64_t i, int64_t j)
{
    const heed_held *held = &l->held[g];
    return held->weight[(h * held->queries + i) * held->count + j];
}

static double mean_weight(const layer *l, int g, int window, int64_t j)
{
    const heed_held *held = &l->held[g];
    const int64_t first = held->queries > window ? held->queries - window : 0;
    double sum = 0;
    for (int h = 0; h < held->group; h++)
        for (int64_t i = first; i < held->queries; i++)
            sum += weight_of(l, g, h, i, j) / (double)(held->group * (held->queries - first));
    return sum;
}

/* The n highest of score[from..end), of equal ones the later. */
static void take_best(const double *score, int64_t from, int64_t end, int64_t n, bool *taken)
{
    for (; n > 0; n--) {
        int64_t best = -1;
        for (int64_t j = from; j < end; j++)
            if (!taken[j] && (best < 0 || score[j] >= score[best]))
                best = j;
        if (best < 0)
            return;
        taken[best] = true;
    }
}

/* Which of the five sets head g keeps; fills the set. */
static int naive_fastgen(const layer *l, int g, double recovery, double local, double frequent, uint64_t seed,
                         bool *set)
{
    double sum[COUNT] = {0};
    bool often[COUNT] = {0};
    heed_seen seen = layer_see(l, g, 3, seed);
    for (int j = 0; j < COUNT; j++)
        sum[j] = seen.sum[j];
    layer_unsee(&seen);
    take_best(sum, 0, COUNT, (int64_t)(frequent * (double)l->held[g].visible), often);
    for (int policy = 0; policy < 5; policy++) {
        double kept = 0;
        for (int j = 0; j < COUNT; j++) {
            set[j] = l->kind[g][j] & HEED_TOKEN_SPECIAL || (policy >= 1 && l->kind[g][j]) ||
                     (policy >= 2 && often[j]) ||
                     (policy >= 3 && j >= COUNT - (int64_t)(local * (double)l->held[g].visible)) ||
                     policy == 4;
            kept += set[j] ? mean_weight(l, g, 64, j) : 0;
        }
        if (kept >= recovery || policy == 4)
            return policy;
    }
    return -1;
}

static void fastgen_keeps_the_cheapest_set_that_recovers_enough(void **state)
{
    (void)state;
    int used[5] = {0};
    for (int round = 0; round < 60; round++) {
        const double recovery = 0.1 + 0.015 * round;
        char text[100];
        layer *l = layer_new(&usual, (uint64_t)round);
        snprintf(text, sizeof text, "fastgen(%g)", recovery);
        assert_int_equal(layer_chain(l, text, NULL), HEED_OK);
        layer_observe(l, 3, 9);
        layer_apply(l);
        for (int g = 0; g < HEADS; g++) {
            bool set[COUNT];
            used[naive_fastgen(l, g, recovery, 0.3, 0.3, 9, set)]++;
            for (int j = 0; j < COUNT; j++)
                assert_int_equal(l->keep[g][j], set[j]);
        }
        layer_free(l);
    }
    for (int policy = 0; policy < 5; policy++)
        assert_true(used[policy] > 0);
    layer *l = layer_new(&usual, 1);
    layer_run(l, "fastgen(recovery=1.01)");
    assert_int_equal(layer_kept(l, 0), COUNT);
    layer_free(l);
}

static void lazy_layers_keep_their_ends_only(void **state)
{
    (void)state;
    int lazy = 0;
    for (int round = 0; round < 40; round++) {
        layer *l = layer_new(&usual, (uint64_t)round);
        layer_run(l, "simlayer(0.33, first=3, recent=12, window=2)");
        double sum = 0;
        for (int g = 0; g < HEADS; g++)
            for (int j = 0; j < COUNT; j++)
                sum += j < 3 || j >= COUNT - 12 ? mean_weight(l, g, 2, j) / HEADS : 0;
        for (int g = 0; g < HEADS; g++)
            for (int j = 0; j < COUNT; j++)
                assert_int_equal(l->keep[g][j], j < 3 || j >= COUNT - 12 || sum < 0.33);
        lazy += sum >= 0.33;
        layer_free(l);
    }
    assert_in_range(lazy, 5, 35);
}

/* A conversation of a system message and rounds of two messages, each message of `words` tokens behind a
 * mark. */
static void talk(layer *l, int words)
{
    for (int g = 0; g < HEADS; g++)
        for (int j = 0; j < COUNT; j++)
            l->kind[g][j] = j % (words + 1) == 0 ? HEED_TOKEN_SPECIAL : 0;
}

static void rounds_that_the_question_looks_at_stay(void **state)
{
    (void)state;
    /* 9 messages of 5 tokens: system, then four rounds of ten tokens, the last of them current */
    for (int k = 0; k <= 4; k++) {
        char text[100];
        layer *l = layer_new(&usual, 5);
        talk(l, 4);
        snprintf(text, sizeof text, "rounds(%d, window=3, first=2)", k);
        layer_run(l, text);
        double mass[4] = {0};
        for (int g = 0; g < HEADS; g++)
            for (int j = 5; j < COUNT; j++)
                mass[(j - 5) / 10] += mean_weight(l, g, 3, j);
        bool stays[4] = {false, false, false, true};
        take_best(mass, 0, 3, k, stays);
        for (int g = 0; g < HEADS; g++)
            for (int j = 0; j < COUNT; j++)
                assert_int_equal(l->keep[g][j], j < 5 || stays[(j - 5) / 10]);
        layer_free(l);
    }
}

static void a_text_without_marks_is_one_round(void **state)
{
    (void)state;
    layer *l = layer_new(&usual, 5);
    for (int g = 0; g < HEADS; g++)
        memset(l->kind[g], 0, COUNT);
    layer_run(l, "rounds(0)");
    assert_int_equal(layer_kept(l, 0), COUNT);
    layer_free(l);
    l = layer_new(&usual, 5); /* marks and line ends between two texts are one boundary */
    for (int g = 0; g < HEADS; g++) {
        memset(l->kind[g], 0, COUNT);
        l->kind[g][20] = l->kind[g][22] = HEED_TOKEN_SPECIAL;
        l->kind[g][21] = HEED_TOKEN_PUNCTUATION;
    }
    layer_run(l, "rounds(0, messages=1, first=3)");
    for (int j = 0; j < COUNT; j++)
        assert_int_equal(l->keep[1][j], j < 3 || j >= 20);
    layer_free(l);
}

static void images_and_text_have_rules_of_their_own(void **state)
{
    (void)state;
    layer_shape shape = usual;
    for (int round = 0; round < 20; round++) {
        shape.gap = round % 2 + 1;
        layer *l = layer_new(&shape, (uint64_t)round);
        layer_run(l, "a_vl(prefix=20, kept=0.3, window=5, heavy=4, ageing=0.7, queries=4)");
        for (int g = 0; g < HEADS; g++) {
            double image[COUNT], text[COUNT];
            bool taken[COUNT] = {0};
            int end = 0;
            for (int j = 0; j < COUNT; j++) {
                end += l->pos[g][j] < 20;
                image[j] = mean_weight(l, g, 4, j);
                text[j] = 0;
                for (int h = 0; h < 2; h++)
                    for (int i = 2; i < 6; i++)
                        text[j] += pow(0.7, 5 - i) * weight_of(l, g, h, i, j);
            }
            take_best(image, 0, end, 6, taken);
            take_best(text, end, COUNT - 5, 4, taken);
            for (int j = 0; j < COUNT; j++)
                assert_int_equal(l->keep[g][j], taken[j] || j >= COUNT - 5);
        }
        layer_free(l);
    }
    layer *l = layer_new(&usual, 1);
    layer_run(l, "a_vl(prefix=20, kept=1, window=25)");
    assert_int_equal(layer_kept(l, 0), COUNT);
    layer_free(l);
}

static void sizes_of_none_and_one_are_no_fault(void **state)
{
    (void)state;
    static const char *const text[] = {"fastgen(0)", "simlayer(0)", "rounds(0, first=0)",
                                       "a_vl(prefix=3, kept=0, window=1)", "razor"};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        for (int queries = 0; queries < 2; queries++) {
            const layer_shape shape = {.kv_heads = 3,
                                       .group = 2,
                                       .count = {0, 1, 2},
                                       .dim = 2,
                                       .value_dim = 2,
                                       .queries = queries,
                                       .gap = 1};
            layer *l = layer_new(&shape, 3);
            layer_run(l, text[i]);
            assert_int_equal(layer_kept(l, 0), 0);
            assert_true(layer_kept(l, 2) <= 2);
            layer_free(l);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fastgen_keeps_the_cheapest_set_that_recovers_enough),
        cmocka_unit_test(lazy_layers_keep_their_ends_only),
        cmocka_unit_test(rounds_that_the_question_looks_at_stay),
        cmocka_unit_test(a_text_without_marks_is_one_round),
        cmocka_unit_test(images_and_text_have_rules_of_their_own),
        cmocka_unit_test(sizes_of_none_and_one_are_no_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
