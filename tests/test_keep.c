/* Applying chains of policies: budgets, ends, ties, several judges, sharing by head, and what is refused. */
#include "support/layer.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* A judge whose scores a test can choose: the first entry of the value. */
static void judge_value(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)form;
    for (int64_t j = 0; j < held->count; j++)
        score[j] = held->value[j * held->value_dim];
    memset(work, 0xff, (size_t)(4 * held->count) * sizeof *work);
}

static void value_ends(const heed_form_state *form, int64_t budget, int64_t *first, int64_t *recent)
{
    (void)budget;
    *first = heed_arg_int(form, 2);
    *recent = heed_arg_int(form, 3);
}

static const heed_arg value_args[] = {
    HEED_BUDGET_ARGS,
    {.name = "first", .kind = HEED_ARG_INT, .least = 0, .most = INFINITY},
    {.name = "recent", .kind = HEED_ARG_INT, .least = 0, .most = INFINITY},
    {0},
};
static const heed_policy value_policy = {
    .observes = HEED_OBSERVES_VALUES, .judge = judge_value, .ends = value_ends};
static const heed_form value_form = {
    .name = "value", .stage = HEED_CACHE, .args = value_args, .policy = &value_policy};

/* Keeps every n-th of the keys it sees. */
static void choose_nth(const heed_form_state *form, const heed_held *held, uint8_t *keep, float *work)
{
    (void)work;
    for (int64_t j = 0; j < held->count; j++)
        keep[j] = j % heed_arg_int(form, 0) == 0 ? 255 : 0;
}

static const heed_arg nth_args[] = {
    {.name = "n", .kind = HEED_ARG_INT, .least = 1, .most = 99, .required = true}, {0}};
static const heed_policy nth_policy = {.choose = choose_nth};
static const heed_form nth_form = {
    .name = "nth", .stage = HEED_CACHE, .args = nth_args, .policy = &nth_policy};

/* A judge that forgot its budget. */
static const heed_policy bare_policy = {.judge = judge_value};
static const heed_form bare_form = {.name = "bare", .stage = HEED_CACHE, .policy = &bare_policy};

static void choose_half(const heed_form_state *form, const heed_held *held, uint8_t *keep, float *work)
{
    (void)form;
    (void)work;
    for (int64_t j = 1; j < held->count; j += 2)
        keep[j] = 0;
}

static const heed_policy half_policy = {.choose = choose_half};
static const heed_form half_form = {.name = "half", .stage = HEED_CACHE, .policy = &half_policy};

static const heed_form *const own[] = {&half_form, &value_form, &nth_form, &bare_form, NULL};

static const layer_shape odd = {.kv_heads = 2,
                                .group = 3,
                                .count = {37, 37},
                                .dim = 6,
                                .value_dim = 5,
                                .queries = 9,
                                .gap = 3,
                                .ties = true};

static layer *run(const layer_shape *shape, uint64_t seed, const char *text)
{
    layer *l = layer_new(shape, seed);
    if (layer_chain(l, text, own))
        fail_msg("%s: %s", text, heed_message());
    layer_apply(l);
    return l;
}

static double *values_of(const layer *l, int g)
{
    double *score = calloc((size_t)l->shape.count[g] + 1, sizeof *score);
    assert_non_null(score);
    for (int64_t j = 0; j < l->shape.count[g]; j++)
        score[j] = l->value[g][j * l->shape.value_dim];
    return score;
}

static void check(const layer_shape *shape, int64_t budget, int64_t first, int64_t recent, uint64_t seed)
{
    char text[128];
    snprintf(text, sizeof text, "value(budget=%lld, first=%lld, recent=%lld)", (long long)budget,
             (long long)first, (long long)recent);
    layer *l = run(shape, seed, text);
    for (int g = 0; g < shape->kv_heads; g++) {
        double *score = values_of(l, g);
        layer_check_best(l, g, score, budget, first, recent, 0);
        assert_false(l->changed[g]);
        free(score);
    }
    layer_free(l);
}

static void the_best_keys_and_both_ends_stay_of_equal_keys_the_later(void **state)
{
    (void)state;
    test_random random = {3};
    for (int round = 0; round < 200; round++) {
        layer_shape shape = odd;
        for (int g = 0; g < 2; g++)
            shape.count[g] = random_whole(&random, 0, 40);
        const int64_t first = random_whole(&random, 0, 4), recent = random_whole(&random, 0, 6);
        int64_t budget = random_whole(&random, 1, 45);
        budget = budget < first + recent ? first + recent : budget;
        check(&shape, budget < 1 ? 1 : budget, first, recent, (uint64_t)round);
    }
}

static void a_share_is_of_the_tokens_read_or_of_what_a_window_holds(void **state)
{
    (void)state;
    layer_shape shape = odd;
    layer *l = run(&shape, 1, "value(share=0.25)");
    const int64_t read = l->held[0].read;
    assert_true(read > 37 && read < 150);
    assert_int_equal(layer_kept(l, 0), read / 4);
    assert_int_equal(heed_chain_budget(&l->chain[0], read), read / 4);
    layer_free(l);
    shape.visible = 20;
    l = run(&shape, 1, "value(share=0.25)");
    assert_int_equal(layer_kept(l, 0), 5);
    layer_free(l);
    l = run(&shape, 1, "value(share=0.01)"); /* never none */
    assert_int_equal(layer_kept(l, 1), 1);
    layer_free(l);
    shape.visible = 100;
    shape.gap = 1;
    l = run(&shape, 1, "value(share=0.29)"); /* 0.29 * 100 is 28.999... in doubles */
    assert_int_equal(heed_chain_budget(&l->chain[0], 100), 29);
    layer_free(l);
}

static void a_share_smaller_than_the_ends_keeps_the_first_then_the_newest(void **state)
{
    (void)state;
    layer_shape shape = odd;
    shape.visible = 20;
    layer *l = run(&shape, 1, "value(share=0.25, first=4, recent=6)"); /* room for 5 */
    for (int j = 0; j < 37; j++)
        assert_int_equal(l->keep[0][j], j < 4 || j == 36);
    layer_free(l);
}

static void with_room_for_all_nothing_is_judged(void **state)
{
    (void)state;
    layer *l = layer_new(&odd, 5);
    assert_int_equal(layer_chain(l, "value(budget=37)", own), HEED_OK);
    l->value[0][0] = -INFINITY;
    l->value[0][5] = NAN;
    layer_apply(l);
    assert_int_equal(layer_kept(l, 0), 37);
    layer_free(l);
}

static void infinite_scores_stay_or_go_whatever_the_budget(void **state)
{
    (void)state;
    layer *l = layer_new(&odd, 5);
    assert_int_equal(layer_chain(l, "value(budget=3)", own), HEED_OK);
    for (int j = 0; j < 37; j++)
        l->value[0][j * 5] = j % 7 == 0 ? INFINITY : 1; /* six of them */
    for (int j = 0; j < 37; j++)
        l->value[1][j * 5] = j == 20 ? 1 : j == 3 ? NAN : -INFINITY;
    layer_apply(l);
    for (int j = 0; j < 37; j++) {
        assert_int_equal(l->keep[0][j], j % 7 == 0);
        assert_int_equal(l->keep[1][j], j == 20 || j == 3); /* no number is better than -inf */
    }
    layer_free(l);
}

static void a_second_judge_sees_what_the_first_left(void **state)
{
    (void)state;
    layer_shape shape = odd;
    shape.count[1] = 24;
    layer *l = run(&shape, 8, "nth(3) > value(budget=5, first=1, recent=1) > half");
    for (int g = 0; g < 2; g++) {
        const int64_t count = shape.count[g], left = (count + 2) / 3;
        /* the same with arrays of what was left */
        layer *sub = layer_new(&shape, 8);
        for (int64_t j = 0; j < left; j++)
            sub->value[0][j * 5] = sub->value[g][3 * j * 5];
        sub->held[0].count = sub->shape.count[0] = left;
        sub->shape.kv_heads = 1;
        assert_int_equal(layer_chain(sub, "value(budget=5, first=1, recent=1)", own), HEED_OK);
        layer_apply(sub);
        int rank = 0;
        for (int64_t j = 0; j < count; j++) {
            const bool second = j % 3 == 0 && sub->keep[0][j / 3];
            assert_int_equal(l->keep[g][j], second && rank % 2 == 0);
            rank += second;
        }
        layer_free(sub);
    }
    layer_free(l);
}

/* A layer with every second key of each head, and the state that those have; states lie further apart. */
static layer *every_second_of(const layer *l, uint64_t seed)
{
    enum { FURTHER = 2 };
    layer *sub = layer_new(&l->shape, seed);
    for (int g = 0; g < l->shape.kv_heads; g++) {
        const heed_held *from = &l->held[g];
        const int64_t dim = from->dim, value_dim = from->value_dim, floats = from->state_stride;
        int64_t n = 0, w = 0;
        free(sub->state[g]);
        sub->state[g] = calloc((size_t)((from->count + 1) * (floats + FURTHER)), sizeof(float));
        assert_non_null(sub->state[g]);
        for (int64_t j = 0; j < from->count; j += 2, n++) {
            sub->pos[g][n] = l->pos[g][j];
            sub->token[g][n] = l->token[g][j];
            sub->kind[g][n] = l->kind[g][j];
            sub->mass[g][n] = l->mass[g][j];
            memcpy(sub->key[g] + n * dim, l->key[g] + j * dim, (size_t)dim * sizeof(float));
            memcpy(sub->bare[g] + n * dim, l->bare[g] + j * dim, (size_t)dim * sizeof(float));
            memcpy(sub->value[g] + n * value_dim, l->value[g] + j * value_dim,
                   (size_t)value_dim * sizeof(float));
            for (int64_t d = 0; d < floats; d++)
                sub->state[g][n * (floats + FURTHER) + d] = from->state[j * floats + d];
        }
        for (int64_t row = 0; row < from->group * from->queries; row++)
            for (int64_t j = 0; j < from->count; j += 2)
                sub->weight[g][w++] = l->weight[g][row * from->count + j];
        sub->chain[g] = l->chain[g];
        sub->held[g].state = sub->state[g];
        sub->held[g].state_stride = floats + FURTHER;
        sub->held[g].count = sub->shape.count[g] = n;
    }
    return sub;
}

/* All that a second judge and its shapes look at, remember and change is that of the keys which are left. */
static void a_second_judge_sees_all_arrays_of_what_is_left(void **state)
{
    (void)state;
    static const char *const text[] = {"tova(budget=7) > nearest",
                                       "h2o(budget=7) > neighbour",
                                       "lfa(budget=9) > vatp > h2o(budget=7, recent=0) > cam(3)",
                                       "knorm(budget=6) > protect > mean",
                                       "expected(budget=7) > by_head",
                                       "snapkv(budget=8, window=3) > chunks(4) > cur(budget=6) > nearest"};
    layer_shape shape = odd;
    shape.ties = false;
    shape.merged = true;
    for (size_t i = 0; i < COUNT(text); i++) {
        char whole[200];
        snprintf(whole, sizeof whole, "half > %s", text[i]);
        layer *l = layer_new(&shape, 4);
        assert_int_equal(layer_chain(l, text[i], own), HEED_OK);
        layer_observe(l, 5, 8);
        layer *sub = every_second_of(l, 4);
        assert_int_equal(layer_chain(l, whole, own), HEED_OK);
        layer_observe(l, 5, 8);
        layer_apply(l);
        layer_apply(sub);
        for (int g = 0; g < 2; g++)
            for (int64_t j = 0; j < 37; j++) {
                assert_int_equal(l->keep[g][j], j % 2 == 0 && sub->keep[g][j / 2]);
                if (!l->keep[g][j])
                    continue;
                assert_memory_equal(l->key[g] + j * 6, sub->key[g] + j / 2 * 6, 6 * sizeof(float));
                assert_memory_equal(l->value[g] + j * 5, sub->value[g] + j / 2 * 5, 5 * sizeof(float));
                assert_true(l->mass[g][j] == sub->mass[g][j / 2]);
            }
        layer_free(sub);
        layer_free(l);
    }
}

static void heads_with_other_chains_act_by_themselves(void **state)
{
    (void)state;
    layer_shape shape = odd;
    shape.kv_heads = 3;
    shape.count[2] = 37;
    layer *l = layer_new(&shape, 4);
    assert_int_equal(layer_chain(l, "value(budget=8) > by_head", own), HEED_OK);
    heed_chain shared = l->chain[0];
    assert_int_equal(layer_chain(l, "nth(4)", own), HEED_OK);
    l->chain[0] = l->chain[2] = shared;
    assert_true(heed_chain_is_same(&l->chain[0], &l->chain[2]));
    assert_false(heed_chain_is_same(&l->chain[0], &l->chain[1]));
    layer_apply(l);
    assert_int_equal(layer_kept(l, 1), 10);
    assert_int_equal(layer_kept(l, 0) + layer_kept(l, 2), 16);
    assert_int_equal(layer_chain(l, "f16", own), HEED_OK); /* a head without policies keeps all */
    layer_apply(l);
    assert_int_equal(layer_kept(l, 0), 37);
    layer_free(l);
}

/* by_head, as its formula says, with a sort. */
static void naive_by_head(const layer *l, int64_t budget, double floor, int64_t first, int64_t recent,
                          int64_t *out)
{
    enum { MOST = 200 };
    double all[MOST];
    int64_t room = 0, n = 0, sure[LAYER_HEADS];
    double mine[LAYER_HEADS][MOST];
    int64_t counts[LAYER_HEADS];
    for (int g = 0; g < l->shape.kv_heads; g++) {
        const int64_t count = l->shape.count[g];
        const int64_t f = first < count ? first : count, r = recent < count - f ? recent : count - f;
        int64_t m = 0;
        for (int64_t j = f; j < count - r; j++)
            mine[g][m++] = l->value[g][j * l->shape.value_dim];
        for (int64_t a = 0; a < m; a++) /* falling */
            for (int64_t b = a + 1; b < m; b++)
                if (mine[g][b] > mine[g][a]) {
                    const double swap = mine[g][a];
                    mine[g][a] = mine[g][b];
                    mine[g][b] = swap;
                }
        const int64_t least = (int64_t)(floor * (double)budget + 1e-9);
        sure[g] = least > f + r ? least : f + r;
        sure[g] = sure[g] < budget ? sure[g] : budget;
        sure[g] = sure[g] < count ? sure[g] : count;
        counts[g] = 0;
        for (int64_t a = sure[g] - f - r; a < m; a++)
            all[n++] = mine[g][a], mine[g][counts[g]++] = mine[g][a];
        room += budget - sure[g];
    }
    for (int g = 0; g < l->shape.kv_heads; g++)
        out[g] = sure[g];
    for (int64_t taken = 0; taken < room && taken < n; taken++) {
        int best = -1;
        for (int g = 0; g < l->shape.kv_heads; g++) {
            const int64_t at = out[g] - sure[g];
            if (at < counts[g] && (best < 0 || mine[g][at] > mine[best][out[best] - sure[best]]))
                best = g;
        }
        out[best]++;
    }
    (void)all;
}

static void room_by_head_goes_to_the_highest_scores_and_sums_to_the_budgets(void **state)
{
    (void)state;
    test_random random = {9};
    for (int round = 0; round < 100; round++) {
        layer_shape shape = {.kv_heads = 4,
                             .group = 1,
                             .dim = 2,
                             .value_dim = 1,
                             .queries = 1,
                             .gap = 1,
                             .ties = round % 2 == 0};
        int64_t total = 0;
        for (int g = 0; g < 4; g++)
            total += shape.count[g] = random_whole(&random, round % 3 ? 30 : 0, 45);
        const int64_t budget = random_whole(&random, 5, 40), first = random_whole(&random, 0, 2),
                      recent = random_whole(&random, 0, 3);
        const double floor = (double)random_whole(&random, 0, 4) / 4;
        char text[128];
        snprintf(text, sizeof text, "value(budget=%lld, first=%lld, recent=%lld) > by_head(%g)",
                 (long long)budget, (long long)first, (long long)recent, floor);
        layer *l = run(&shape, (uint64_t)round, text);
        int64_t each[LAYER_HEADS], kept = 0;
        naive_by_head(l, budget, floor, first, recent, each);
        bool room = true;
        for (int g = 0; g < 4; g++) {
            double *score = values_of(l, g);
            room = room && budget >= shape.count[g];
            layer_check_best(l, g, score, each[g], first, recent, 0);
            kept += layer_kept(l, g);
            free(score);
        }
        assert_int_equal(kept, total < 4 * budget ? total : 4 * budget);
        layer_free(l);
    }
}

static void check_pyramid(const char *text, double first, double last, int64_t sum)
{
    enum { LAYERS = 7 };
    for (int at = 0; at < LAYERS; at++) {
        layer_shape shape = odd;
        shape.count[0] = shape.count[1] = 100;
        shape.gap = 1;
        shape.layer = at;
        shape.layers = LAYERS;
        layer *l = run(&shape, 1, text);
        const int64_t kept = layer_kept(l, 0);
        assert_int_equal(kept, (int64_t)floor(first + (last - first) * at / (LAYERS - 1) + 0.5));
        assert_int_equal(heed_chain_budget(&l->chain[0], 100), kept);
        sum -= kept;
        layer_free(l);
    }
    assert_int_equal(sum, 0);
}

static void a_pyramid_falls_from_layer_to_layer_and_keeps_the_mean(void **state)
{
    (void)state;
    check_pyramid("value(budget=40) > pyramid(4)", 70, 10, 7 * 40);
    check_pyramid("value(share=0.82) > pyramid", 100, 64, 7 * 82); /* no layer has more than it sees */
    check_pyramid("value(budget=100) > pyramid", 100, 100, 7 * 100);
}

static void a_chain_is_due_when_a_prompt_ends_and_then_every_n_keys(void **state)
{
    (void)state;
    layer *l = layer_new(&odd, 1);
    const heed_chain *chain = &l->chain[0];
    assert_int_equal(layer_chain(l, "value(budget=10)", own), HEED_OK);
    assert_false(heed_chain_is_due(chain, 10, 10, 10, HEED_PROMPT_ENDS));
    assert_true(heed_chain_is_due(chain, 11, 11, 11, HEED_PROMPT_ENDS));
    assert_false(heed_chain_is_due(chain, 500, 500, 500, HEED_IN_PROMPT));
    assert_false(heed_chain_is_due(chain, 500, 73, 9, HEED_DECODING));
    assert_true(heed_chain_is_due(chain, 500, 74, 9, HEED_DECODING));
    assert_int_equal(layer_chain(l, "value(budget=10) > every(3) > chunked(100) > packed", own), HEED_OK);
    assert_true(chain->packed);
    assert_int_equal(chain->chunked, 100);
    assert_true(heed_chain_is_due(chain, 100, 100, 100, HEED_IN_PROMPT));
    assert_false(heed_chain_is_due(chain, 500, 12, 2, HEED_DECODING));
    assert_true(heed_chain_is_due(chain, 500, 13, 2, HEED_DECODING));
    assert_int_equal(layer_chain(l, "value(share=0.5) > prompt_only", own), HEED_OK);
    assert_true(heed_chain_is_due(chain, 100, 100, 100, HEED_PROMPT_ENDS));
    assert_false(heed_chain_is_due(chain, 1000, 950, 900, HEED_DECODING));
    assert_int_equal(layer_chain(l, "nth(2)", own), HEED_OK); /* has no budget */
    assert_true(heed_chain_is_due(chain, 5, 5, 5, HEED_PROMPT_ENDS));
    assert_false(heed_chain_is_due(chain, 500, 300, 124, HEED_DECODING));
    assert_true(heed_chain_is_due(chain, 500, 300, 125, HEED_DECODING));
    assert_int_equal(layer_chain(l, "q8", own), HEED_OK);
    assert_false(heed_chain_is_due(chain, 500, 300, 64, HEED_PROMPT_ENDS));
    layer_free(l);
}

static void a_chain_that_costs_more_acts_more_rarely(void **state)
{
    (void)state;
    static const struct {
        const char *chain;
        int64_t every;
    } cases[] = {{"streaming(budget=100)", 64},    {"streaming(budget=400)", 100},
                 {"streaming(budget=4000)", 160},  {"knorm(budget=4000)", 320},
                 {"snapkv(budget=2000)", 500},     {"snapkv(budget=40000)", 800},
                 {"leverage(budget=40000)", 1600}, {"snapkv(budget=40000) > every(7)", 7},
                 {"snapkv(share=0.5)", 800},       {"fastgen", 1440}};
    layer *l = layer_new(&odd, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(layer_chain(l, cases[i].chain, own), HEED_OK);
        const int64_t every = heed_chain_every(&l->chain[0], 100000);
        if (every != cases[i].every)
            fail_msg("%s acts every %lld", cases[i].chain, (long long)every);
    }
    layer_free(l);
}

static void chains_that_make_no_sense_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } wrong[] = {
        {"by_head > value(budget=3)", "by_head shapes a policy, so it goes behind one"},
        {"packed", "packed says how a policy acts, but there is no policy"},
        {"value", "value has no budget: give budget="},
        {"value > by_head", "value has no budget"},
        {"value(budget=3, share=0.5)", "two budgets, budget=3 and share=0.5"},
        {"value(budget=0)", "at least 1"},
        {"value(share=0)", "above 0"},
        {"value(share=1.5)", "at most 1"},
        {"value(budget=5, first=3, recent=4)",
         "first 3 and the last 4 keys stay in any case, so the budget must be at least 7"},
        {"streaming(budget=3)", "first 4"},
        {"value(budget=3) > every(3) > prompt_only", "give one of them"},
        {"value(budget=3) > every(0)", "at least 1"},
        {"nth(3) > by_head", "nth says itself what stays"},
        {"bare", "HEED_BUDGET_ARGS"},
        {"value(share=1) > nth(1) > streaming(share=1) > h2o(share=1) > tova(share=1) > observed(share=1) > "
         "knorm(share=1) > keydiff(share=1) > fifo(share=1) > random(share=1) > uniform(share=1) > packed > "
         "every(1)",
         "cache=every is one policy form too many: a chain has at most 12"},
    };
    layer *l = layer_new(&odd, 1);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(layer_chain(l, wrong[i].text, own), HEED_INVALID);
        if (!strstr(heed_message(), wrong[i].words))
            fail_msg("%s: %s", wrong[i].text, heed_message());
    }
    layer_free(l);
}

static void a_policy_can_be_tried_on_arrays_of_ones_own(void **state)
{
    (void)state;
    const char *const text = "observed(budget=9) > by_head > nearest > value(budget=5) > q8";
    layer *l = layer_new(&odd, 6);
    uint8_t keep[2][37], *const flags[] = {keep[0], keep[1]};
    char clause[100];
    assert_int_equal(layer_chain(l, text, own), HEED_OK);
    layer_observe(l, 4, 1);
    snprintf(clause, sizeof clause, "cache=%s", text);
    float *key = malloc(37 * 6 * sizeof *key);
    assert_non_null(key);
    memcpy(key, l->key[0], 37 * 6 * sizeof *key);
    assert_int_equal(heed_policy_try(clause, own, l->held, 2, flags), HEED_OK);
    assert_memory_equal(key, l->key[0], 37 * 6 * sizeof *key); /* what is given stays as it is */
    layer_apply(l);
    assert_memory_equal(keep[0], l->keep[0], 37);
    assert_memory_equal(keep[1], l->keep[1], 37);
    assert_int_equal(layer_kept(l, 1), 5);
    assert_int_equal(heed_policy_try("", NULL, l->held, 2, flags), HEED_OK);
    assert_null(memchr(keep, 0, sizeof keep));
    free(key);
    layer_free(l);
}

static void a_trial_without_what_the_policy_observes_is_refused(void **state)
{
    (void)state;
    uint8_t keep[2][37], *const flags[] = {keep[0], keep[1]};
    layer *l = layer_new(&odd, 6);
    const heed_held whole = l->held[1];
    static const struct {
        const char *text, *word;
        size_t at;
    } list[] = {{"knorm", "`key`", offsetof(heed_held, key)},
                {"cur", "`value`", offsetof(heed_held, value)},
                {"tova", "`weight`", offsetof(heed_held, weight)},
                {"h2o", "`state`", offsetof(heed_held, state)},
                {"noncausal", "`compared`", offsetof(heed_held, compared)},
                {"expected", "`place`", offsetof(heed_held, place)},
                {"fifo > protect", "`token_kind`", offsetof(heed_held, token_kind)},
                {"fifo", "`mass`", offsetof(heed_held, mass)}};
    for (size_t i = 0; i < COUNT(list); i++) {
        char clause[100];
        const int name = (int)strcspn(list[i].text, " ");
        snprintf(clause, sizeof clause, "cache=%.*s(budget=9)%s", name, list[i].text, list[i].text + name);
        l->held[0].state = l->held[1].state = l->mass[0];
        memset((char *)&l->held[1] + list[i].at, 0, sizeof(void *));
        assert_int_equal(heed_policy_try(clause, own, l->held, 2, flags), HEED_INVALID);
        if (!strstr(heed_message(), list[i].word) || !strstr(heed_message(), "kv head 1"))
            fail_msg("%s: %s", clause, heed_message());
        l->held[1] = whole;
    }
    assert_int_equal(heed_policy_try("cache=fifo", own, l->held, 2, flags), HEED_INVALID);
    assert_int_equal(heed_policy_try("cache=fifo(budget=2)", own, l->held, 0, flags), HEED_INVALID);
    layer_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_keys_and_both_ends_stay_of_equal_keys_the_later),
        cmocka_unit_test(a_share_is_of_the_tokens_read_or_of_what_a_window_holds),
        cmocka_unit_test(a_share_smaller_than_the_ends_keeps_the_first_then_the_newest),
        cmocka_unit_test(with_room_for_all_nothing_is_judged),
        cmocka_unit_test(infinite_scores_stay_or_go_whatever_the_budget),
        cmocka_unit_test(a_second_judge_sees_what_the_first_left),
        cmocka_unit_test(a_second_judge_sees_all_arrays_of_what_is_left),
        cmocka_unit_test(heads_with_other_chains_act_by_themselves),
        cmocka_unit_test(room_by_head_goes_to_the_highest_scores_and_sums_to_the_budgets),
        cmocka_unit_test(a_pyramid_falls_from_layer_to_layer_and_keeps_the_mean),
        cmocka_unit_test(a_chain_is_due_when_a_prompt_ends_and_then_every_n_keys),
        cmocka_unit_test(a_chain_that_costs_more_acts_more_rarely),
        cmocka_unit_test(chains_that_make_no_sense_are_refused_by_name),
        cmocka_unit_test(a_policy_can_be_tried_on_arrays_of_ones_own),
        cmocka_unit_test(a_trial_without_what_the_policy_observes_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
