/* What a session holds: keys behind a window, sequences that share, cutting, reading beyond the cache. */
#include "support/small_models.h"

#include <stdlib.h>
#include <string.h>

enum { LONG = 1000 };

/* The logits of the last token, after feeding in pieces of the given size. */
static void read_text(heed_session *session, int64_t sequence, const int32_t *tokens, int64_t count,
                      int64_t step, float *logits)
{
    for (int64_t t = 0; t < count; t += step) {
        const heed_feed_item item = {
            .sequence = sequence, .tokens = tokens + t, .count = count - t < step ? count - t : step};
        must(heed_feed(session, &item, 1, &(heed_feed_wants){.logits = logits}));
    }
}

static size_t bytes_of(const heed_session *session)
{
    heed_session_usage usage;
    heed_session_get_usage(session, &usage);
    return usage.bytes;
}

/* With a capture asked for, a session keeps everything: the other route to the same numbers. */
static void dropping_keys_behind_a_window_changes_no_bit(void **state)
{
    (void)state;
    static const char *const models[] = {"gemma3", "qwen2_window", "mistral", "llama"};
    static const char *const specs[] = {
        NULL, NULL, "streaming(first=5, window=200)",
        "where=causal & (window(130) | first(3)); heads 1: where=causal & window(60)"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        small_model small;
        open_small(&small, models[m], true);
        static int32_t tokens[LONG];
        small_text(&small, tokens, LONG);
        heed_session_options options = {
            .context = LONG + 1, .attention = specs[m], .chunk = 100, .threads = 1};
        heed_session *dropping = new_session(small.model, &options);
        options.with = HEED_WITH_ENTROPY;
        heed_session *keeping = new_session(small.model, &options);
        float *a = malloc((size_t)small.columns * sizeof *a), *b = malloc((size_t)small.columns * sizeof *b);
        for (int64_t t = 0; t < LONG - 100;) {
            const int64_t count = t % 300 == 0 ? 299 : 1;
            read_text(dropping, 0, tokens + t, count, 400, a);
            read_text(keeping, 0, tokens + t, count, 400, b);
            t += count;
            if (memcmp(a, b, (size_t)small.columns * sizeof *a) != 0)
                fail_msg("%s: after %lld tokens the logits are off by %g", models[m], (long long)t,
                         farthest(a, b, small.columns));
        }
        assert_true(bytes_of(dropping) < bytes_of(keeping));
        free(a);
        free(b);
        heed_session_free(dropping);
        heed_session_free(keeping);
        close_small(&small);
    }
}

static void bytes_stay_the_same_behind_the_window(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", true);
    heed_session *session = new_session(
        small.model,
        &(heed_session_options){.context = 300, .threads = 1, .attention = "streaming(first=4, window=200)"});
    heed_session_info info;
    heed_session_get_info(session, &info);
    assert_true(info.limit > 1 << 20);
    static int32_t tokens[LONG];
    small_text(&small, tokens, LONG);
    float *logits = malloc((size_t)small.columns * sizeof *logits);
    size_t most = 0, early = 0;
    for (int64_t t = 0; t < 4000; t++) {
        read_text(session, 0, tokens + t % LONG, 1, 1, logits);
        const size_t now = bytes_of(session);
        most = now > most ? now : most;
        early = t < 800 ? most : early;
    }
    assert_int_equal(most, early);
    assert_int_equal(heed_session_length(session, 0), 4000);
    int32_t kept[1024];
    const int64_t count = heed_session_kept(session, 0, 0, 0, kept, NULL, 1024);
    assert_true(count >= 204 && count <= 600);
    for (int i = 0; i < 4; i++)
        assert_int_equal(kept[i], i);
    assert_int_equal(kept[count - 1], 3999);
    free(logits);
    heed_session_free(session);
    close_small(&small);
}

static void a_session_that_needs_all_keys_ends_at_its_context(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "gemma3", true); /* some of its layers see everything */
    heed_session *session = new_session(small.model, &(heed_session_options){.context = 64});
    heed_session_info info;
    heed_session_get_info(session, &info);
    assert_int_equal(info.limit, 64);
    static int32_t tokens[65];
    small_text(&small, tokens, 65);
    assert_int_equal(heed_feed(session, &(heed_feed_item){.tokens = tokens, .count = 65}, 1, NULL),
                     HEED_INVALID);
    heed_session_free(session);
    session = new_session(small.model,
                          &(heed_session_options){.context = 64, .attention = "where=causal & window(65)"});
    heed_session_get_info(session, &info);
    assert_int_equal(info.limit, 64); /* the window is wider than what may be held */
    heed_session_free(session);
    close_small(&small);
}

static void a_shared_prefix_gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "gemma3", "qwen2_window"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        small_model small;
        open_small(&small, models[m], true);
        static int32_t tokens[LONG];
        small_text(&small, tokens, LONG);
        heed_session *session = new_session(
            small.model, &(heed_session_options){.context = 700, .sequences = 3, .chunk = 90, .threads = 1});
        const size_t columns = (size_t)small.columns;
        float *alone = malloc(columns * sizeof *alone), *shared = malloc(columns * sizeof *shared);
        read_text(session, 0, tokens, 450, 450, alone);
        const size_t before = bytes_of(session);
        must(heed_session_share(session, 0, 1, 450));
        assert_int_equal(bytes_of(session), before);
        assert_int_equal(heed_session_length(session, 1), 450);
        assert_memory_equal(heed_session_tokens(session, 1), tokens, 450 * sizeof *tokens);
        read_text(session, 0, tokens + 450, 50, 7, alone); /* each writes what the other does not see */
        read_text(session, 1, tokens + 700, 50, 7, shared);
        assert_true(farthest(alone, shared, small.columns) > 0.0);
        must(heed_session_cut(session, 1, 450));
        read_text(session, 1, tokens + 450, 50, 7, shared);
        assert_memory_equal(alone, shared, columns * sizeof *alone);
        read_text(session, 2, tokens, 450, 450, shared);
        read_text(session, 2, tokens + 450, 50, 7, shared);
        assert_memory_equal(alone, shared, columns * sizeof *alone);
        must(heed_session_share(session, 0, 2, 430)); /* a beginning of what is held */
        read_text(session, 2, tokens + 430, 20, 20, shared);
        must(heed_session_cut(session, 0, 430));
        read_text(session, 0, tokens + 430, 20, 20, alone);
        assert_memory_equal(alone, shared, columns * sizeof *alone);
        free(alone);
        free(shared);
        heed_session_free(session);
        close_small(&small);
    }
}

static void a_cut_behind_what_was_dropped_is_refused(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "qwen2_window", true);
    static int32_t tokens[LONG];
    small_text(&small, tokens, LONG);
    heed_session *session = new_session(small.model, &(heed_session_options){.context = LONG, .threads = 1});
    float *logits = malloc((size_t)small.columns * sizeof *logits);
    read_text(session, 0, tokens, 1000, 1000, logits);
    must(heed_session_cut(session, 0, 900));
    assert_int_equal(heed_session_cut(session, 0, 200), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "dropped keys"));
    assert_int_equal(heed_session_length(session, 0), 900);
    assert_int_equal(heed_session_share(session, 0, 0, 200), HEED_INVALID);
    must(heed_session_cut(session, 0, 0));
    free(logits);
    heed_session_free(session);
    close_small(&small);
}

/* Also where a page was cut and filled with other keys in between. */
static void summaries_beside_the_keys_choose_the_same_pages(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", true);
    static int32_t tokens[LONG];
    small_text(&small, tokens, LONG);
    const heed_session_options options = {.context = LONG,
                                          .sequences = 2,
                                          .chunk = 90,
                                          .threads = 2,
                                          .attention = "select=quest(page=16, budget=64)"};
    heed_session *session = new_session(small.model, &options);
    const size_t columns = (size_t)small.columns;
    float *one = malloc(columns * sizeof *one), *other = malloc(columns * sizeof *other);
    read_text(session, 0, tokens, 500, 500, one);
    read_text(session, 0, tokens + 500, 100, 1, one);
    heed_session_usage usage;
    heed_session_get_usage(session, &usage);
    assert_true(usage.pairs_read > 0.0 && usage.pairs_read < 0.7 * usage.pairs_open);
    must(heed_session_share(session, 0, 1, 571));
    read_text(session, 1, tokens + 300, 60, 20,
              other); /* overwrites a part of a page's keys, and its summary */
    must(heed_session_cut(session, 1, 571));
    read_text(session, 1, tokens + 571, 29, 1, other);
    assert_memory_equal(one, other, columns * sizeof *one);
    free(one);
    free(other);
    heed_session_free(session);
    close_small(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropping_keys_behind_a_window_changes_no_bit),
        cmocka_unit_test(bytes_stay_the_same_behind_the_window),
        cmocka_unit_test(a_session_that_needs_all_keys_ends_at_its_context),
        cmocka_unit_test(a_shared_prefix_gives_the_same_bits),
        cmocka_unit_test(a_cut_behind_what_was_dropped_is_refused),
        cmocka_unit_test(summaries_beside_the_keys_choose_the_same_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
