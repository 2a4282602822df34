/* Policies on models that read: what they are shown, what stays, and what that does to the logits. */
#include "support/small_models.h"

#include <heed/policy.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 700, PROMPT = 300 };

static void read_text(heed_session *session, int64_t sequence, const int32_t *tokens, int64_t count,
                      float *logits)
{
    must(heed_feed(session, &(heed_feed_item){.sequence = sequence, .tokens = tokens, .count = count}, 1,
                   &(heed_feed_wants){.logits = logits}));
}

static int64_t held(const heed_session *session, int64_t layer, int64_t head)
{
    return heed_session_kept(session, 0, layer, head, NULL, NULL, 0);
}

static void a_budget_for_all_changes_no_bit(void **state)
{
    (void)state;
    static const char *const caches[] = {"cache=fifo(budget=5000)",
                                         "cache=h2o(share=1)",
                                         "cache=snapkv(budget=5000) > by_head",
                                         "cache=tova(share=1) > packed",
                                         "cache=kvzip(share=1)",
                                         "cache=keydiff(budget=5000) > every(4)",
                                         "layers 1: cache=h2o(budget=5000) > chunked(50)"};
    static const char *const models[] = {"llama", "gemma3", "qwen2_window"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        small_model small;
        open_small(&small, models[m], true);
        int32_t tokens[LONG];
        small_text(&small, tokens, LONG);
        float *plain = malloc((size_t)small.columns * sizeof *plain),
              *kept = malloc((size_t)small.columns * sizeof *kept);
        for (size_t c = 0; c < sizeof caches / sizeof *caches; c++) {
            heed_session_options options = {.context = LONG, .threads = 1, .chunk = 50};
            heed_session *without = new_session(small.model, &options);
            options.attention = caches[c];
            heed_session *with = new_session(small.model, &options);
            read_text(without, 0, tokens, PROMPT, plain);
            read_text(with, 0, tokens, PROMPT, kept);
            for (int64_t t = PROMPT; t < PROMPT + 20; t++) {
                if (memcmp(plain, kept, (size_t)small.columns * sizeof *kept) != 0)
                    fail_msg("%s, %s: off by %g after %lld tokens", models[m], caches[c],
                             farthest(plain, kept, small.columns), (long long)t);
                read_text(without, 0, tokens + t, 1, plain);
                read_text(with, 0, tokens + t, 1, kept);
            }
            heed_session_usage usage;
            heed_session_get_usage(with, &usage);
            assert_int_equal(usage.dropped, 0);
            heed_session_free(without);
            heed_session_free(with);
        }
        free(plain);
        free(kept);
        close_small(&small);
    }
}

static void a_budget_holds_in_prompts_turns_and_decoding(void **state)
{
    (void)state;
    static const char *const caches[] = {
        "cache=fifo(budget=100)",    "cache=h2o(budget=100)",
        "cache=snapkv(budget=100)",  "cache=tova(budget=100)",
        "cache=keydiff(budget=100)", "cache=knorm(budget=100) > packed",
        "cache=random(budget=100)",  "cache=h2o(budget=100) > chunked(40) > every(16)"};
    small_model small;
    open_small(&small, "llama", true);
    int32_t tokens[LONG];
    small_text(&small, tokens, LONG);
    float *logits = malloc((size_t)small.columns * sizeof *logits);
    for (size_t c = 0; c < sizeof caches / sizeof *caches; c++) {
        heed_session *session = new_session(
            small.model, &(heed_session_options){.context = 400, .threads = 1, .attention = caches[c]});
        read_text(session, 0, tokens, PROMPT, logits);
        for (int64_t l = 0; l < small.info.layers; l++)
            assert_int_equal(held(session, l, 0), 100);
        for (int64_t t = PROMPT; t < PROMPT + 200; t++) {
            read_text(session, 0, tokens + t, 1, logits);
            assert_true(held(session, 0, 0) >= 100 && held(session, 0, 0) <= 100 + 64);
        }
        read_text(session, 0, tokens + PROMPT + 200, 50, logits); /* the next turn */
        assert_int_equal(held(session, 1, 0), 100);
        for (int64_t i = 0; i < small.columns; i++)
            assert_true(isfinite(logits[i]));
        heed_session_free(session);
    }
    free(logits);
    close_small(&small);
}

/* A prompt in parts, of which the last has one token, is one prompt; what is written has a key too many for a
 * while. */
static void policies_wait_for_the_end_of_a_prompt_in_parts(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", true);
    int32_t tokens[LONG], kept[LONG], kept_in_parts[LONG];
    small_text(&small, tokens, LONG);
    const heed_session_options options = {
        .context = 400, .threads = 1, .chunk = 50, .attention = "cache=h2o(budget=100)"};
    heed_session *whole = new_session(small.model, &options), *parts = new_session(small.model, &options);
    read_text(whole, 0, tokens, PROMPT, NULL);
    for (int64_t first = 0, count; first < PROMPT; first += count) {
        const bool end = first == PROMPT - 1;
        count = end ? 1 : PROMPT - 1 - first < 100 ? PROMPT - 1 - first : 100;
        const heed_feed_item item = {.tokens = tokens + first,
                                     .count = count,
                                     .reading = end ? HEED_READ_PROMPT_END : HEED_READ_PROMPT_PART};
        must(heed_feed(parts, &item, 1, NULL));
        assert_int_equal(held(parts, 1, 0), end ? 100 : first + count);
    }
    for (int64_t l = 0; l < small.info.layers; l++) {
        const int64_t count = heed_session_kept(whole, 0, l, 0, kept, NULL, LONG);
        assert_int_equal(heed_session_kept(parts, 0, l, 0, kept_in_parts, NULL, LONG), count);
        assert_memory_equal(kept, kept_in_parts, (size_t)count * sizeof *kept);
    }
    const heed_feed_item written = {.tokens = tokens + PROMPT, .count = 30, .reading = HEED_READ_WRITTEN};
    must(heed_feed(parts, &written, 1, NULL));
    assert_int_equal(held(parts, 1, 0), 130);
    heed_session_free(whole);
    heed_session_free(parts);
    close_small(&small);
}

/* The newest 100 keys, packed or not, are at the same distances from the query. */
static void packed_positions_keep_distances(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", false);
    int32_t tokens[LONG];
    small_text(&small, tokens, LONG);
    heed_session_options options = {.context = 500, .threads = 1, .cache = HEED_F32, .cache_given = true};
    options.attention = "cache=fifo(budget=100) > every(10)";
    heed_session *kept = new_session(small.model, &options);
    options.attention = "cache=fifo(budget=100) > every(10) > packed";
    heed_session *packed = new_session(small.model, &options);
    float *a = malloc((size_t)small.columns * sizeof *a), *b = malloc((size_t)small.columns * sizeof *b);
    read_text(kept, 0, tokens, PROMPT, a);
    read_text(packed, 0, tokens, PROMPT, b);
    for (int64_t t = PROMPT; t < PROMPT + 60; t++) {
        read_text(kept, 0, tokens + t, 1, a);
        read_text(packed, 0, tokens + t, 1, b);
        const double distance = farthest(a, b, small.columns);
        if (!(distance < 1e-4))
            fail_msg("after %lld tokens off by %g", (long long)t, distance);
    }
    int32_t pos[200];
    const int64_t count = heed_session_kept(packed, 0, 0, 0, pos, NULL, 200);
    assert_int_equal(pos[count - 1], PROMPT + 59); /* places in the text all the same */
    free(a);
    free(b);
    heed_session_free(kept);
    heed_session_free(packed);
    close_small(&small);
}

typedef struct sums {
    float *sum; /* [layers][kv_heads][PROMPT] */
    int64_t kv_heads, group;
} sums;

static void add_weights(void *context, int64_t layer, int64_t sequence, const heed_weights_tile *tile)
{
    (void)sequence;
    const sums *s = context;
    float *to = s->sum + (layer * s->kv_heads + tile->head / s->group) * PROMPT;
    for (int r = 0; r < tile->rows; r++)
        for (int j = 0; j < tile->cols; j++)
            to[tile->key0 + j] += tile->weight[r * tile->stride + j];
}

/* H2O keeps the newest half of its budget and, of the rest, those with the largest sums of weights. */
static void heavy_hitters_are_those_of_the_weights(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "qwen3"};
    for (size_t m = 0; m < 2; m++) {
        small_model small;
        open_small(&small, models[m], false);
        int32_t tokens[PROMPT];
        small_text(&small, tokens, PROMPT);
        sums s = {.kv_heads = small.info.kv_heads, .group = small.info.heads / small.info.kv_heads};
        s.sum = calloc((size_t)(small.info.layers * s.kv_heads * PROMPT), sizeof *s.sum);
        heed_session *plain = new_session(small.model, &(heed_session_options){.context = PROMPT,
                                                                               .threads = 1,
                                                                               .cache = HEED_F32,
                                                                               .cache_given = true,
                                                                               .with = HEED_WITH_WEIGHTS});
        must(heed_feed(plain, &(heed_feed_item){.tokens = tokens, .count = PROMPT}, 1,
                       &(heed_feed_wants){.weights = add_weights, .context = &s}));
        heed_session *session =
            new_session(small.model, &(heed_session_options){.context = PROMPT,
                                                             .threads = 1,
                                                             .cache = HEED_F32,
                                                             .cache_given = true,
                                                             .attention = "cache=h2o(budget=60)"});
        float *logits = malloc((size_t)small.columns * sizeof *logits);
        read_text(session, 0, tokens, PROMPT, logits);
        for (int64_t l = 0; l < small.info.layers; l++)
            for (int64_t g = 0; g < s.kv_heads; g++) {
                int32_t pos[60];
                const float *sum = s.sum + (l * s.kv_heads + g) * PROMPT;
                assert_int_equal(heed_session_kept(session, 0, l, g, pos, NULL, 60), 60);
                float least = INFINITY, most = 0.0f;
                bool in[PROMPT] = {false};
                for (int i = 0; i < 60; i++) {
                    in[pos[i]] = true;
                    if (pos[i] < PROMPT - 30)
                        least = fminf(least, sum[pos[i]]);
                }
                for (int j = 0; j < PROMPT; j++) {
                    if (!in[j])
                        most = fmaxf(most, sum[j]);
                    assert_true(in[j] || j < PROMPT - 30);
                }
                if (!(least >= most - 1e-4f))
                    fail_msg("layer %lld: kept %g, dropped %g", (long long)l, least, most);
            }
        free(s.sum);
        free(logits);
        heed_session_free(plain);
        heed_session_free(session);
        close_small(&small);
    }
}

static void neighbours_change_no_bit(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "qwen3", true);
    int32_t tokens[LONG];
    small_text(&small, tokens, LONG);
    heed_session_options options = {
        .context = 400, .threads = 2, .sequences = 3, .attention = "cache=snapkv(budget=50) > by_head"};
    heed_session *together = new_session(small.model, &options);
    options.sequences = 1;
    options.threads = 1;
    heed_session *alone = new_session(small.model, &options);
    static const int64_t lengths[3] = {200, 40, 333};
    const size_t columns = (size_t)small.columns;
    float *all = malloc(3 * columns * sizeof *all), *one = malloc(columns * sizeof *one);
    heed_feed_item items[3];
    for (int s = 0; s < 3; s++)
        items[s] = (heed_feed_item){.sequence = s, .tokens = tokens + 50 * s, .count = lengths[s]};
    must(heed_feed(together, items, 3, &(heed_feed_wants){.logits = all}));
    for (int step = 0; step < 30; step++) {
        for (int s = 0; s < 3; s++)
            items[s] =
                (heed_feed_item){.sequence = s, .tokens = tokens + 50 * s + lengths[s] + step, .count = 1};
        must(heed_feed(together, items, 3, &(heed_feed_wants){.logits = all}));
    }
    for (int s = 0; s < 3; s++) {
        must(heed_session_cut(alone, 0, 0));
        read_text(alone, 0, tokens + 50 * s, lengths[s], one);
        for (int step = 0; step < 30; step++)
            read_text(alone, 0, tokens + 50 * s + lengths[s] + step, 1, one);
        assert_memory_equal(one, all + (size_t)s * columns, columns * sizeof *one);
    }
    free(all);
    free(one);
    heed_session_free(together);
    heed_session_free(alone);
    close_small(&small);
}

static void a_sequence_may_be_read_without_end(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", true);
    int32_t tokens[LONG];
    small_text(&small, tokens, LONG);
    heed_session *session = new_session(
        small.model, &(heed_session_options){.context = 200,
                                             .threads = 1,
                                             .attention = "cache=tova(budget=60) > packed > chunked(64)"});
    heed_session_info info;
    heed_session_get_info(session, &info);
    assert_true(info.limit > 1000000);
    float *logits = malloc((size_t)small.columns * sizeof *logits);
    for (int i = 0; i < 5; i++)
        read_text(session, 0, tokens, LONG, logits);
    assert_int_equal(heed_session_length(session, 0), 5 * LONG);
    assert_int_equal(held(session, 0, 0), 60);
    assert_int_equal(heed_session_cut(session, 0, 100), HEED_INVALID);
    heed_session_free(session);
    session = new_session(
        small.model,
        &(heed_session_options){.context = 200, .threads = 1, .attention = "cache=tova(budget=60)"});
    const heed_feed_item item = {.tokens = tokens, .count = 201};
    assert_int_equal(heed_feed(session, &item, 1, NULL), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "chunked"));
    assert_int_equal(heed_session_length(session, 0), 0);
    free(logits);
    heed_session_free(session);
    close_small(&small);
}

/* A judge from outside: what stands at even places is worth more. */
static void prefer_even(const heed_form_state *form, const heed_held *shown, float *score, float *work)
{
    (void)form;
    (void)work;
    for (int64_t j = 0; j < shown->count; j++)
        score[j] = shown->pos[j] % 2 == 0 ? 1.0f : 0.0f;
}

static const heed_arg own_args[] = {HEED_BUDGET_ARGS, {0}};
static const heed_policy own_policy = {.judge = prefer_even};
static const heed_form own = {.name = "even_places",
                              .stage = HEED_CACHE,
                              .summary = "keys at even places first",
                              .args = own_args,
                              .policy = &own_policy};

static void a_policy_of_ones_own_is_applied(void **state)
{
    (void)state;
    static const heed_form *const forms[] = {&own, NULL};
    small_model small;
    open_small(&small, "gemma3", true);
    int32_t tokens[PROMPT];
    small_text(&small, tokens, PROMPT);
    heed_session *session = new_session(
        small.model, &(heed_session_options){.context = PROMPT,
                                             .threads = 1,
                                             .forms = forms,
                                             .attention = "where=causal; cache=even_places(budget=50)"});
    float *logits = malloc((size_t)small.columns * sizeof *logits);
    read_text(session, 0, tokens, PROMPT, logits);
    int32_t pos[PROMPT];
    assert_int_equal(heed_session_kept(session, 0, 0, 0, pos, NULL, PROMPT), 50);
    for (int i = 0; i < 50; i++)
        assert_int_equal(pos[i], PROMPT - 100 + 2 * i);
    free(logits);
    heed_session_free(session);
    close_small(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_budget_for_all_changes_no_bit),
        cmocka_unit_test(a_budget_holds_in_prompts_turns_and_decoding),
        cmocka_unit_test(policies_wait_for_the_end_of_a_prompt_in_parts),
        cmocka_unit_test(packed_positions_keep_distances),
        cmocka_unit_test(heavy_hitters_are_those_of_the_weights),
        cmocka_unit_test(neighbours_change_no_bit),
        cmocka_unit_test(a_sequence_may_be_read_without_end),
        cmocka_unit_test(a_policy_of_ones_own_is_applied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
