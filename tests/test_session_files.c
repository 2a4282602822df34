/* Saved sequences: the same bits go on, and what does not fit or is not whole is refused. */
#include "support/small_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONG = 700 };

static char path[64];

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/heed_saved_%d", (int)getpid());
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    remove(path);
    return 0;
}

static void read_text(heed_session *session, const int32_t *tokens, int64_t count, float *logits)
{
    must(heed_feed(session, &(heed_feed_item){.tokens = tokens, .count = count}, 1,
                   &(heed_feed_wants){.logits = logits}));
}

static void a_saved_sequence_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "gemma3", "qwen2_window", "gpt2"};
    static const char *const specs[] = {NULL, "cache=q8", "cache=snapkv(budget=60) > by_head > packed",
                                        "cache=h2o(budget=80) > q4", "streaming(first=4, window=100)"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t c = 0; c < sizeof specs / sizeof *specs; c++) {
            if (!strcmp(models[m], "gpt2") && c > 1)
                continue; /* learnt positions end early */
            small_model small;
            open_small(&small, models[m], true);
            int32_t tokens[LONG];
            small_text(&small, tokens, LONG);
            const int64_t count = !strcmp(models[m], "gpt2") ? 40 : 300;
            const heed_session_options options = {
                .context = count + 120 < small.info.context || strcmp(models[m], "gpt2") ? count + 120 : 0,
                .threads = 1,
                .attention = specs[c]};
            heed_session *first = new_session(small.model, &options);
            heed_session *second = new_session(small.model, &options);
            const size_t bytes = (size_t)small.columns * sizeof(float);
            float *a = malloc(bytes), *b = malloc(bytes);
            read_text(first, tokens, count, a);
            read_text(first, tokens + count, 1, a);
            must(heed_session_save(first, 0, path));
            must(heed_session_load(second, 0, path));
            assert_int_equal(heed_session_length(second, 0), count + 1);
            assert_memory_equal(heed_session_tokens(second, 0), tokens, (size_t)(count + 1) * sizeof *tokens);
            const int64_t more = count == 40 ? 10 : 90;
            for (int64_t t = count + 1; t < count + more; t++) {
                read_text(first, tokens + t, 1, a);
                read_text(second, tokens + t, 1, b);
                if (memcmp(a, b, bytes) != 0)
                    fail_msg("%s, %s: off by %g", models[m], specs[c] ? specs[c] : "",
                             farthest(a, b, small.columns));
            }
            free(a);
            free(b);
            heed_session_free(first);
            heed_session_free(second);
            close_small(&small);
        }
}

static void refused(heed_session *session, const char *words)
{
    const heed_status status = heed_session_load(session, 0, path);
    if (!status || !strstr(heed_message(), words))
        fail_msg("%s instead of `%s`", status ? heed_message() : "loaded", words);
    assert_int_equal(heed_session_length(session, 0), 0);
    heed_session_usage usage;
    heed_session_get_usage(session, &usage);
    assert_int_equal(usage.bytes, 0);
}

static void what_belongs_to_something_else_is_refused(void **state)
{
    (void)state;
    small_model small, other;
    open_small(&small, "llama", true);
    open_small(&other, "llama_tied", true);
    int32_t tokens[200];
    small_text(&small, tokens, 200);
    heed_session *saved = new_session(small.model, &(heed_session_options){.context = 300});
    float *logits = malloc((size_t)small.columns * sizeof *logits);
    read_text(saved, tokens, 200, logits);
    must(heed_session_save(saved, 0, path));
    const struct {
        const heed_model *model;
        heed_session_options options;
        const char *words;
    } wrong[] = {
        {other.model, {.context = 300}, "model:"},
        {small.model, {.context = 300, .cache = HEED_Q8, .cache_given = true}, "keys f16"},
        {small.model, {.context = 300, .attention = "layers 1: where=causal & window(9)"}, "layer 1"},
        {small.model, {.context = 150}, "room for 150"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        heed_session *session = new_session(wrong[i].model, &wrong[i].options);
        refused(session, wrong[i].words);
        heed_session_free(session);
    }
    assert_int_equal(heed_session_load(saved, 0, path), HEED_INVALID); /* it is not empty */
    assert_int_equal(heed_session_save(saved, 0, "/nowhere/at/all"), HEED_IO);
    free(logits);
    heed_session_free(saved);
    close_small(&small);
    close_small(&other);
}

static void write_bytes(const char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void edited_and_truncated_files_are_refused(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "gemma3", true);
    int32_t tokens[150];
    small_text(&small, tokens, 150);
    heed_session *session = new_session(
        small.model, &(heed_session_options){
                         .context = 300, .threads = 1, .attention = "cache=h2o(budget=40) > packed > q4"});
    float *logits = malloc((size_t)small.columns * sizeof *logits);
    read_text(session, tokens, 150, logits);
    must(heed_session_save(session, 0, path));
    must(heed_session_cut(session, 0, 0));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    static char bytes[1 << 22];
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (size_t i = 0; i < size; i += 1 + size / 400) {
        bytes[i] ^= 0x10;
        write_bytes(bytes, size);
        bytes[i] ^= 0x10;
        refused(session, path);
        write_bytes(bytes, i);
        refused(session, path);
    }
    bytes[size] = 7;
    write_bytes(bytes, size + 1);
    refused(session, "behind its end");
    bytes[8] = 2;
    write_bytes(bytes, size);
    refused(session, "version 2");
    bytes[8] = 1;
    write_bytes(bytes, size);
    must(heed_session_load(session, 0, path));
    free(logits);
    heed_session_free(session);
    close_small(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_saved_sequence_goes_on_with_the_same_bits),
        cmocka_unit_test(what_belongs_to_something_else_is_refused),
        cmocka_unit_test(edited_and_truncated_files_are_refused),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
