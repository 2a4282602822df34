/* Tokenisers of every kind, from small files made with the packages tokenizers and sentencepiece, against the
 * ids that those give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/texts.h"

static void assert_kind(const char *file, const char *ids, const char *kind, bool special)
{
    char name[100];
    heed_tokenizer *tokenizer = golden_tokenizer(file);
    assert_string_equal(heed_tokenizer_kind(tokenizer), kind);
    assert_golden_ids(tokenizer, "few", ids, 0);
    snprintf(name, sizeof name, "%s.special", ids);
    if (special)
        assert_golden_ids(tokenizer, "special", name, HEED_PARSE_SPECIAL);
    heed_tokenizer_free(tokenizer);
}

static void byte_level_with_the_pattern_of_gpt2_and_flagged_added_tokens(void **state)
{
    (void)state;
    assert_kind("gpt2.json", "gpt2", "byte-level BPE", true);
}

static void byte_level_with_the_pattern_of_llama3_and_whole_words(void **state)
{
    (void)state;
    assert_kind("llama3.json", "llama3", "byte-level BPE", true);
}

static void byte_level_with_the_pattern_of_qwen2_and_composed_characters(void **state)
{
    (void)state;
    assert_kind("qwen2.json", "qwen2", "byte-level BPE", true);
}

static void unigram_with_byte_tokens(void **state)
{
    (void)state;
    assert_kind("unigram.json", "unigram", "unigram", true);
}

static void unigram_of_sentencepiece_with_a_compiled_normaliser(void **state)
{
    (void)state;
    assert_kind("t5.gguf", "t5", "SentencePiece unigram", false);
}

static void sentencepiece_of_a_gguf_file(void **state)
{
    (void)state;
    assert_kind("llama2.gguf", "llama2", "SentencePiece BPE", false);
}

static void sentencepiece_as_merges_of_characters(void **state)
{
    (void)state;
    assert_kind("llama2.json", "llama2_json", "BPE", true);
}

static void wordpiece_from_a_list_of_pieces(void **state)
{
    (void)state;
    assert_kind("wordpiece/vocab.txt", "wordpiece", "WordPiece", false);
    assert_kind("wordpiece", "wordpiece", "WordPiece", false);
}

static void wordpiece_of_a_gguf_file(void **state)
{
    (void)state;
    assert_kind("bert.gguf", "wordpiece", "WordPiece", false);
}

static void broken_bytes_become_byte_tokens(void **state)
{
    (void)state;
    heed_tokenizer *llama2 = golden_tokenizer("llama2.gguf");
    assert_golden_ids(llama2, "broken", "llama2.broken", 0);
    heed_tokenizer_free(llama2);
}

static void texts_come_back_byte_for_byte(void **state)
{
    (void)state;
    heed_tokenizer *llama3 = golden_tokenizer("llama3.json");
    static const char *const texts[] = {"plain", "broken", "special", "few"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(assert_round_trips(llama3, texts[i], NULL), 0);
    heed_tokenizer_free(llama3);
}

/* A vocabulary that marks spaces cannot tell a mark in the text from a space. */
static bool has_space_mark(const heed_tokenizer *tokenizer, const char *text, size_t size)
{
    (void)tokenizer;
    for (size_t i = 0; i + 3 <= size; i++)
        if (!memcmp(text + i, "\xe2\x96\x81", 3))
            return true;
    return false;
}

static void a_space_put_in_front_is_dropped_again(void **state)
{
    (void)state;
    static const char *const names[] = {"llama2.gguf", "llama2.json"};
    for (int i = 0; i < 2; i++) {
        heed_tokenizer *llama2 = golden_tokenizer(names[i]);
        assert_in_range(assert_round_trips(llama2, "few", has_space_mark), 1, 20);
        assert_int_equal(assert_round_trips(llama2, "broken", NULL), 0);
        heed_tokenizer_free(llama2);
    }
}

/* What a stream of tokens writes, whatever size the text for it has, is the text of all together. */
static void streams_write_whole_characters(void **state)
{
    (void)state;
    static const char *const names[] = {"llama3.json", "llama2.gguf", "unigram.json", "wordpiece"};
    const char *text =
        "na\u00efve \u4e2d\u6587 \U0001f469\u200d\U0001f469 caf\u00e9! \xff\xe4\xb8 end \xf0\x9f";
    for (int n = 0; n < 4; n++) {
        heed_tokenizer *tokenizer = golden_tokenizer(names[n]);
        heed_tokens tokens = tokens_of(tokenizer, text, 0);
        size_t size;
        char *whole = decoded(tokenizer, tokens.id, tokens.count, false, &size);
        heed_detokenizer stream = {.tokenizer = tokenizer, .control = true};
        size_t done = 0;
        for (int64_t i = 0; i <= tokens.count; i++) {
            char piece[64], small[1];
            const int32_t id = i < tokens.count ? tokens.id[i] : -1;
            const size_t length = heed_detokenize(&stream, id, small, 0);
            assert_int_equal(heed_detokenize(&stream, id, small, 1), length); /* too small: nothing changes */
            if (length)
                assert_int_equal(heed_detokenize(&stream, id, piece, sizeof piece), length);
            else
                piece[0] = 0;
            assert_int_equal(strlen(piece), length);
            assert_true(length == 0 ||
                        ((unsigned char)piece[0] & 0xc0) != 0x80); /* begins with a character */
            assert_memory_equal(piece, whole + done, length);
            done += length;
        }
        assert_int_equal(done, size);
        if (n < 2) /* one U+FFFD for each broken character */
            assert_string_equal(
                whole,
                "na\u00efve \u4e2d\u6587 \U0001f469\u200d\U0001f469 caf\u00e9! \ufffd\ufffd end \ufffd");
        free(whole);
        heed_tokens_free(&tokens);
        heed_tokenizer_free(tokenizer);
    }
}

static void control_tokens_are_written_only_when_asked_for(void **state)
{
    (void)state;
    heed_tokenizer *tokenizer = golden_tokenizer("llama3.json");
    heed_tokens tokens = tokens_of(tokenizer, "a<|im_end|>b", HEED_PARSE_SPECIAL);
    assert_int_equal(tokens.count, 3);
    char text[32];
    heed_detokenizer quiet = {.tokenizer = tokenizer}, loud = {.tokenizer = tokenizer, .control = true};
    assert_int_equal(heed_detokenize(&quiet, tokens.id[1], text, sizeof text), 0);
    assert_int_equal(heed_detokenize(&loud, tokens.id[1], text, sizeof text), 10);
    assert_string_equal(text, "<|im_end|>");
    heed_tokens_free(&tokens);
    tokens = tokens_of(tokenizer, "a<|im_end|>b", 0);
    for (int64_t i = 0; i < tokens.count; i++)
        assert_false(heed_token_is_control(tokenizer, tokens.id[i]));
    heed_tokens_free(&tokens);
    heed_tokenizer_free(tokenizer);
}

static void a_million_bytes_without_a_space_take_no_long_time(void **state)
{
    (void)state;
    static const char *const names[] = {"llama3.json",  "llama2.gguf", "llama2.json",
                                        "unigram.json", "t5.gguf",     "wordpiece"};
    const size_t size = 1000000;
    char *text = malloc(size);
    assert_non_null(text);
    uint32_t random = 1;
    for (size_t i = 0; i < size; i++) {
        random = random * 1664525u + 1013904223u;
        text[i] = (char)('a' + (random >> 24) % 26);
    }
    const clock_t begin = clock();
    for (int n = 0; n < 6; n++) {
        heed_tokenizer *tokenizer = golden_tokenizer(names[n]);
        heed_tokens tokens = {0};
        assert_int_equal(heed_tokenize(tokenizer, text, size, 0, &tokens), HEED_OK);
        assert_true(n == 5 ? tokens.count == 1 : tokens.count > 100000);
        heed_tokens_free(&tokens);
        heed_tokenizer_free(tokenizer);
    }
    free(text);
    assert_true(clock() - begin <
                60 * CLOCKS_PER_SEC); /* 1 s; under sanitizers 10; were it quadratic, hours */
}

/* tokenizer.json of the test's own making. */
static void assert_refused(const char *json, heed_status status, const char *words)
{
    const char *path = "refused_tokenizer.json";
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(json, file);
    fclose(file);
    heed_tokenizer *tokenizer = NULL;
    const heed_status given = heed_tokenizer_load(&tokenizer, path);
    remove(path);
    if (given != status || !strstr(heed_message(), words))
        fail_msg("%s\n gives %d: %s", json, given, heed_message());
    assert_null(tokenizer);
}

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static void what_is_not_understood_is_refused_by_name(void **state)
{
    (void)state;
    assert_refused("{\"model\":{\"type\":\"Sponge\",\"vocab\":{}}}", HEED_UNSUPPORTED, "'Sponge'");
    assert_refused("{\"normalizer\":{\"type\":\"Wash\"}," MODEL "}", HEED_UNSUPPORTED, "'Wash'");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," MODEL "}", HEED_UNSUPPORTED,
                   "'UnicodeScripts'");
    assert_refused("{\"decoder\":{\"type\":\"CTC\"}," MODEL "}", HEED_UNSUPPORTED, "'CTC'");
    assert_refused("{\"post_processor\":{\"type\":\"Stamp\"}," MODEL "}", HEED_UNSUPPORTED, "'Stamp'");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"behavior\":"
                   "\"Isolated\"}," MODEL "}",
                   HEED_UNSUPPORTED, "intersects");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":"
                   "\"Isolated\"}," MODEL "}",
                   HEED_UNSUPPORTED, "pattern");
    assert_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}}",
                   HEED_FORMAT, "merge 0");
    assert_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":900000000},\"merges\":[]}}",
                   HEED_FORMAT, "'b'");
    assert_refused(
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}",
        HEED_UNSUPPORTED, "end_of_word_suffix");
    assert_refused("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":\"[UNK]\"}}",
                   HEED_FORMAT, "[UNK]");
    assert_refused("{\"model\":", HEED_FORMAT, "JSON");
    assert_refused("[]", HEED_FORMAT, "JSON");
    heed_tokenizer *tokenizer = NULL;
    assert_int_equal(heed_tokenizer_load(&tokenizer, "no/such/folder"), HEED_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_with_the_pattern_of_gpt2_and_flagged_added_tokens),
        cmocka_unit_test(byte_level_with_the_pattern_of_llama3_and_whole_words),
        cmocka_unit_test(byte_level_with_the_pattern_of_qwen2_and_composed_characters),
        cmocka_unit_test(unigram_with_byte_tokens),
        cmocka_unit_test(unigram_of_sentencepiece_with_a_compiled_normaliser),
        cmocka_unit_test(sentencepiece_of_a_gguf_file),
        cmocka_unit_test(sentencepiece_as_merges_of_characters),
        cmocka_unit_test(wordpiece_from_a_list_of_pieces),
        cmocka_unit_test(wordpiece_of_a_gguf_file),
        cmocka_unit_test(broken_bytes_become_byte_tokens),
        cmocka_unit_test(texts_come_back_byte_for_byte),
        cmocka_unit_test(a_space_put_in_front_is_dropped_again),
        cmocka_unit_test(streams_write_whole_characters),
        cmocka_unit_test(control_tokens_are_written_only_when_asked_for),
        cmocka_unit_test(a_million_bytes_without_a_space_take_no_long_time),
        cmocka_unit_test(what_is_not_understood_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
