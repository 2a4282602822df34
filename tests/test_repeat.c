/* Policies for which a prompt is read once more: what stays is what a repetition looks at. */
#include "support/small_models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 150, CHUNK = 64, BUDGET = 40, FIRST = 4, HINT = 8 };

static void read_text(heed_session *session, int64_t sequence, const int32_t *tokens, int64_t count)
{
    must(heed_feed(session, &(heed_feed_item){.sequence = sequence, .tokens = tokens, .count = count}, 1,
                   NULL));
}

/* The largest weight that queries behind the prompt gave each of its keys. */
typedef struct watcher {
    int64_t kv_heads, group;
    float *largest; /* [layers][kv_heads][PROMPT] */
} watcher;

static void watch(void *context, int64_t layer, int64_t sequence, const heed_weights_tile *tile)
{
    watcher *w = context;
    (void)sequence;
    for (int r = 0; r < tile->rows; r++)
        for (int64_t j = 0; j < tile->cols && tile->key0 + j < PROMPT; j++) {
            const float weight = tile->weight[r * tile->stride + j];
            float *to = &w->largest[(layer * w->kv_heads + tile->head / w->group) * PROMPT + tile->key0 + j];
            if (tile->query0 + r >= PROMPT && weight > *to)
                *to = weight;
        }
}

static int64_t add_words(const small_model *small, const char *words, int32_t *to)
{
    const heed_tokenizer *tokenizer = heed_model_tokenizer(small->model);
    heed_tokens tokens = {0};
    if (tokenizer)
        must(heed_tokenize(tokenizer, words, strlen(words), 0, &tokens));
    const int64_t count = tokens.count;
    if (count)
        memcpy(to, tokens.id, (size_t)count * sizeof *to);
    heed_tokens_free(&tokens);
    return count;
}

/* The definition: each part of the prompt behind the whole prompt, in a session of its own. */
static float *naive_scores(const small_model *small, const int32_t *tokens)
{
    watcher w = {.kv_heads = small->info.kv_heads, .group = small->info.heads / small->info.kv_heads};
    w.largest = calloc((size_t)(small->info.layers * w.kv_heads * PROMPT), sizeof *w.largest);
    for (int64_t at = 0; at < PROMPT; at += CHUNK) {
        int32_t text[PROMPT + 300];
        memcpy(text, tokens, PROMPT * sizeof *text);
        int64_t count = PROMPT;
        count += add_words(small,
                           at ? "\n\nRepeat the previous text exactly, starting with:\n\n"
                              : "\n\nRepeat the previous text exactly.\n\n",
                           text + count);
        for (int64_t i = at ? at - HINT : 0; i < PROMPT && i < at + CHUNK; i++)
            text[count++] = tokens[i];
        heed_session *session = new_session(
            small->model,
            &(heed_session_options){.context = PROMPT + 300, .threads = 1, .with = HEED_WITH_WEIGHTS});
        must(heed_feed(session, &(heed_feed_item){.tokens = text, .count = count}, 1,
                       &(heed_feed_wants){.weights = watch, .context = &w}));
        heed_session_free(session);
    }
    return w.largest;
}

static bool holds(const int32_t *pos, int64_t count, int32_t key)
{
    for (int64_t i = 0; i < count; i++)
        if (pos[i] == key)
            return true;
    return false;
}

static void kept_keys_are_those_that_a_repetition_looks_at_most(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "qwen3"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        small_model small;
        open_small(&small, models[m], true);
        int32_t tokens[PROMPT], pos[PROMPT];
        small_text(&small, tokens, PROMPT);
        float *score = naive_scores(&small, tokens);
        heed_session *session = new_session(
            small.model, &(heed_session_options){.context = PROMPT,
                                                 .threads = 2,
                                                 .attention = "cache=kvzip(budget=40, chunk=64, first=4)"});
        read_text(session, 0, tokens, PROMPT);
        for (int64_t i = 0; i < small.info.layers * small.info.kv_heads; i++) {
            assert_int_equal(heed_session_kept(session, 0, i / small.info.kv_heads, i % small.info.kv_heads,
                                               pos, NULL, PROMPT),
                             BUDGET);
            float least = INFINITY, most = 0.0f;
            for (int32_t j = 0; j < PROMPT; j++) {
                const float here = score[i * PROMPT + j];
                const bool kept = holds(pos, BUDGET, j);
                assert_true(kept || j >= FIRST);
                if (j >= FIRST && kept)
                    least = fminf(least, here);
                else if (!kept)
                    most = fmaxf(most, here);
            }
            if (!(least >= most - 1e-4f * most))
                fail_msg("%s, list %lld: a key of %g stays and one of %g goes", models[m], (long long)i,
                         least, most);
        }
        heed_session_free(session);
        free(score);
        close_small(&small);
    }
}

static int64_t list(const heed_session *session, int64_t sequence, int64_t layer, int32_t *pos)
{
    return heed_session_kept(session, sequence, layer, 0, pos, NULL, 2 * PROMPT);
}

/* Answers stay until the next prompt, with which they are repeated; what a batch holds is what each of its
 * sequences would hold. */
static void turns_and_batches_are_handled(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", true);
    int32_t tokens[2 * PROMPT], pos[2][2 * PROMPT];
    small_text(&small, tokens, 2 * PROMPT);
    const heed_session_options options = {
        .context = 2 * PROMPT, .sequences = 2, .threads = 1, .attention = "cache=kvzip(budget=40, chunk=64)"};
    heed_session *batch = new_session(small.model, &options), *alone = new_session(small.model, &options);
    const heed_feed_item items[] = {{.sequence = 0, .tokens = tokens, .count = PROMPT},
                                    {.sequence = 1, .tokens = tokens + 20, .count = 70}};
    must(heed_feed(batch, items, 2, NULL));
    read_text(alone, 0, tokens, PROMPT);
    read_text(alone, 1, tokens + 20, 70);
    for (int s = 0; s < 2; s++)
        for (int64_t l = 0; l < small.info.layers; l++) {
            assert_int_equal(list(batch, s, l, pos[0]), BUDGET);
            assert_int_equal(list(alone, s, l, pos[1]), BUDGET);
            assert_memory_equal(pos[0], pos[1], BUDGET * sizeof **pos);
        }
    for (int64_t t = 0; t < 30; t++)
        read_text(alone, 0, tokens + PROMPT + t, 1);
    assert_int_equal(list(alone, 0, 0, pos[0]), BUDGET + 30);
    assert_int_equal(heed_session_length(alone, 0), PROMPT + 30);
    read_text(alone, 0, tokens + PROMPT + 30, 50);
    assert_int_equal(list(alone, 0, 0, pos[0]), BUDGET);
    assert_true(pos[0][BUDGET - 1] >= PROMPT);
    heed_session_free(batch);
    heed_session_free(alone);
    close_small(&small);
}

static void layers_with_a_window_keep_it(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "gemma3", true);
    int32_t tokens[PROMPT];
    small_text(&small, tokens, PROMPT);
    heed_session_options options = {.context = PROMPT, .threads = 1};
    heed_session *plain = new_session(small.model, &options);
    options.attention = "cache=kvzip(budget=16)";
    heed_session *session = new_session(small.model, &options);
    read_text(plain, 0, tokens, PROMPT);
    read_text(session, 0, tokens, PROMPT);
    int windows = 0;
    for (int64_t l = 0; l < small.info.layers; l++) {
        char text[512];
        must(heed_model_attention(small.model, l, text, sizeof text));
        const bool window = strstr(text, "window") != NULL;
        const int64_t kept = heed_session_kept(session, 0, l, 0, NULL, NULL, 0);
        windows += window;
        if (window)
            assert_true(kept >= 8 && kept <= heed_session_kept(plain, 0, l, 0, NULL, NULL, 0));
        else
            assert_int_equal(kept, 16);
    }
    assert_true(windows > 0 && windows < small.info.layers);
    heed_session_free(plain);
    heed_session_free(session);
    close_small(&small);
}

static void without_positions_to_repeat_at_nothing_is_read(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "gpt2", true);
    heed_session *session =
        new_session(small.model, &(heed_session_options){.attention = "cache=kvzip(budget=16, chunk=20)"});
    int32_t tokens[60];
    small_text(&small, tokens, 60);
    read_text(session, 0, tokens, 30);
    assert_int_equal(list(session, 0, 0, NULL), 16);
    assert_int_not_equal(heed_feed(session, &(heed_feed_item){.tokens = tokens + 30, .count = 30}, 1, NULL),
                         HEED_OK);
    assert_non_null(strstr(heed_message(), "positions"));
    assert_int_equal(heed_session_length(session, 0), 30);
    heed_session_free(session);
    close_small(&small);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {{"cache=kvzip(budget=40) > every(3)", "every"},
                                           {"cache=kvzip(budget=40) > chunked(30)", "chunked"},
                                           {"select=recycled; cache=kvzip(budget=40)", ""},
                                           {"cache=kvzip", "no budget"}};
    small_model small;
    open_small(&small, "llama", true);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        heed_session *session = NULL;
        assert_int_not_equal(
            heed_session_create(&session, small.model,
                                &(heed_session_options){.context = PROMPT, .attention = wrong[i][0]}),
            HEED_OK);
        assert_null(session);
        assert_non_null(strstr(heed_message(), wrong[i][1]));
    }
    close_small(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_keys_are_those_that_a_repetition_looks_at_most),
        cmocka_unit_test(turns_and_batches_are_handled),
        cmocka_unit_test(layers_with_a_window_keep_it),
        cmocka_unit_test(without_positions_to_repeat_at_nothing_is_read),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
