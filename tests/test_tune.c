/* Choosing and writing mixes of policies, and which heads look back. */
#include "eval/heads.h"
#include "eval/mix.h"
#include "support/program.h"
#include "support/random.h"
#include "support/small_models.h"
#include "support/small_tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_UNITS = 7, MOST_FORMS = 3 };

/* The least loss of all choices within the limit. */
static double best_of_all(const double *loss, const double *bytes, int units, int forms, double limit)
{
    int choice[MOST_UNITS] = {0};
    double best = INFINITY;
    for (bool more = true; more;) {
        double sum = 0.0, cost = 0.0;
        for (int u = 0; u < units; u++) {
            sum += bytes[u * forms + choice[u]];
            cost += loss[u * forms + choice[u]];
        }
        if (sum <= limit && cost < best)
            best = cost;
        int u = 0;
        while (u < units && choice[u] == forms - 1)
            choice[u++] = 0;
        more = u < units;
        if (more)
            choice[u]++;
    }
    return best;
}

static double sum_of(const double *table, int forms, const int32_t *choice, int units)
{
    double sum = 0.0;
    for (int u = 0; u < units; u++)
        sum += table[u * forms + choice[u]];
    return sum;
}

/* Bytes are rounded up to one part in 16384 of the limit each, so with a little more there is none better. */
static void a_choice_within_the_budget_is_the_best_of_all(void **state)
{
    (void)state;
    test_random random = {3};
    for (int round = 0; round < 100; round++) {
        double loss[MOST_UNITS * MOST_FORMS], bytes[MOST_UNITS * MOST_FORMS];
        int32_t choice[MOST_UNITS];
        bool fits;
        for (int i = 0; i < MOST_UNITS * MOST_FORMS; i++) {
            loss[i] = random_uniform(&random) - 0.3;
            bytes[i] = 1.0 + random_uniform(&random);
        }
        const double limit = 1.05 * MOST_UNITS + 0.9 * MOST_UNITS * random_uniform(&random);
        const double best = best_of_all(loss, bytes, MOST_UNITS, MOST_FORMS, limit),
                     sure = best_of_all(loss, bytes, MOST_UNITS, MOST_FORMS,
                                        limit * (1.0 - (double)MOST_UNITS / 16384.0));
        assert_int_equal(heed_mix_fit(loss, bytes, MOST_UNITS, MOST_FORMS, limit, choice, &fits), HEED_OK);
        if (!fits) {
            assert_true(isinf(sure));
            continue;
        }
        const double ours = sum_of(loss, MOST_FORMS, choice, MOST_UNITS);
        assert_true(sum_of(bytes, MOST_FORMS, choice, MOST_UNITS) <= limit * (1.0 + 1e-12));
        if (ours < best - 1e-12 || ours > sure + 1e-12)
            fail_msg("%g, the best is %g", ours, best);
    }
}

static void what_was_not_tried_or_does_not_fit_is_not_chosen(void **state)
{
    (void)state;
    const double loss[] = {NAN, 2.0, 1.0, 5.0}, bytes[] = {0.0, 4.0, 9.0, 3.0};
    int32_t choice[2] = {7, 7};
    bool fits;
    assert_int_equal(heed_mix_fit(loss, bytes, 2, 2, 13.01, choice, &fits), HEED_OK);
    assert_true(fits && choice[0] == 1 && choice[1] == 0);
    assert_int_equal(heed_mix_fit(loss, bytes, 2, 2, 12.99, choice, &fits), HEED_OK);
    assert_true(fits && choice[0] == 1 && choice[1] == 1);
    choice[0] = 7;
    assert_int_equal(heed_mix_fit(loss, bytes, 2, 2, 6.9, choice, &fits), HEED_OK);
    assert_true(!fits && choice[0] == 7);
}

static void a_mix_is_a_spec(void **state)
{
    (void)state;
    static const char *const policies[] = {"f16", "q8"}; /* any names do */
    static const int32_t choice[5 * 3] = {0, 0, 0, 1, -1, -1, 0, 0, 0, 1, -1, -1, -1, 0, 0};
    heed_mix mix = {.layers = 5, .kv_heads = 3, .group = 2, .policy = policies, .choice = choice};
    char text[400], again[20];
    const size_t length = heed_mix_write(&mix, text, sizeof text);
    assert_string_equal(text,
                        "layers 0,2: heads all: cache=f16; layers 4: heads 2-5: cache=f16; layers 1,3: heads "
                        "0-1: cache=q8");
    assert_int_equal(length, strlen(text));
    assert_int_equal(heed_mix_write(&mix, again, sizeof again), length);
    assert_memory_equal(again, text, 19);
    assert_int_equal(again[19], 0);
    mix.type = "q4";
    mix.layers = 1;
    heed_mix_write(&mix, text, sizeof text);
    assert_string_equal(text, "cache=q4; layers 0: heads all: cache=f16 > q4");
    static const int32_t none[3] = {-1, -1, -1};
    mix.choice = none;
    heed_mix_write(&mix, text, sizeof text);
    assert_string_equal(text, "cache=q4");
}

static void the_highest_scores_are_retrieval_heads(void **state)
{
    (void)state;
    const heed_head_scores score[10] = {{0.1f, 0.0f}, {0.0f, 0.9f}, {0.7f, 0.1f}, {0.0f, 0.0f}, {0.2f, 0.8f},
                                        {0.0f, 0.3f}, {0.0f, 0.0f}, {0.0f, 0.0f}, {0.0f, 0.0f}, {0.0f, 0.0f}};
    static const bool expected[10] = {[1] = true, [2] = true, [4] = true};
    bool retrieval[10];
    assert_int_equal(heed_heads_classify(score, 10, 0.01, 0.2, retrieval), HEED_OK);
    assert_memory_equal(retrieval, expected, sizeof expected);
}

/* All weights of a session of the same tokens, [layers, heads, n, n]. */
typedef struct all_weights {
    int64_t heads, n;
    float *weight;
} all_weights;

static void take(void *context, int64_t layer, int64_t sequence, const heed_weights_tile *tile)
{
    const all_weights *all = context;
    (void)sequence;
    for (int r = 0; r < tile->rows; r++)
        for (int c = 0; c < tile->cols; c++)
            if (tile->query0 + r < all->n && tile->key0 + c < all->n)
                all->weight[((layer * all->heads + tile->head) * all->n + tile->query0 + r) * all->n +
                            tile->key0 + c] = tile->weight[r * tile->stride + c];
}

static void scores_equal_their_definition(void **state)
{
    (void)state;
    enum { B = 11, REPEATS = 4 };
    heed_model *model;
    heed_model_info info;
    heed_material material;
    make_model_with_tokenizer("tiny", "llama");
    must(heed_model_open(&model, "tiny", &(heed_model_options){.threads = 1}));
    heed_model_get_info(model, &info);
    must(heed_material_create(&material, heed_model_tokenizer(model)));
    const heed_session_options options = {.threads = 3, .with = HEED_WITH_WEIGHTS};
    heed_session *session = new_session(model, &options);
    const int64_t heads = info.layers * info.heads, n = material.start.count + B * REPEATS;
    heed_head_scores *score = calloc((size_t)heads, sizeof *score);
    must(heed_heads_score(session, model, &material, B, REPEATS, 5, score));
    assert_int_equal(heed_session_length(session, 0), n);
    /* the same tokens from the same dice */
    int32_t text[B * REPEATS + 4];
    heed_dice dice = heed_dice_for(5, 9);
    for (int64_t i = 0; i < material.start.count; i++)
        text[i] = material.start.id[i];
    for (int i = 0; i < B * REPEATS; i++)
        text[material.start.count + i] =
            i < B ? heed_material_token(&material, &dice) : text[material.start.count + i - B];
    all_weights all = {info.heads, n, calloc((size_t)(heads * n * n), sizeof(float))};
    must(heed_session_cut(session, 0, 0));
    must(heed_feed(session, &(heed_feed_item){.tokens = text, .count = n}, 1,
                   &(heed_feed_wants){.weights = take, .context = &all}));
    for (int64_t h = 0; h < heads; h++) {
        double echo = 0.0, induction = 0.0;
        for (int64_t i = material.start.count + B; i < n; i++)
            for (int64_t j = material.start.count; j < i; j++)
                if ((i - j) % B == 0) {
                    echo += (double)all.weight[(h * n + i) * n + j];
                    induction += (double)all.weight[(h * n + i) * n + j + 1];
                }
        const double queries = B * (REPEATS - 1);
        assert_true(fabs(echo / queries - (double)score[h].echo) < 1e-6);
        assert_true(fabs(induction / queries - (double)score[h].induction) < 1e-6);
    }
    free(all.weight);
    free(score);
    heed_session_free(session);
    heed_material_free(&material);
    heed_model_close(model);
    remove_model("tiny");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_choice_within_the_budget_is_the_best_of_all),
        cmocka_unit_test(what_was_not_tried_or_does_not_fit_is_not_chosen),
        cmocka_unit_test(a_mix_is_a_spec),
        cmocka_unit_test(the_highest_scores_are_retrieval_heads),
        cmocka_unit_test(scores_equal_their_definition),
    };
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
