/* The tokenisers of downloaded models against golden ids made with the packages tokenizers and sentencepiece.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/models.h"
#include "support/texts.h"

/* Opens the model, or leaves the test with a word why it did not run. */
static heed_tokenizer *fetched(const char *name)
{
    const char *path = fetched_model(name);
    if (!path)
        skip();
    return tokenizer_at(path);
}

static void smollm2_gives_the_ids_of_its_reference(void **state)
{
    (void)state;
    heed_tokenizer *tokenizer = fetched("smollm2.gguf");
    assert_string_equal(heed_tokenizer_kind(tokenizer), "byte-level BPE (smollm)");
    assert_golden_ids(tokenizer, "plain", "smollm2", 0);
    assert_golden_ids(tokenizer, "broken", "smollm2.broken", 0);
    assert_golden_ids(tokenizer, "special", "smollm2.special", HEED_PARSE_SPECIAL);
    heed_tokenizer_free(tokenizer);
}

static void gemma3_gives_the_ids_of_its_reference(void **state)
{
    (void)state;
    heed_tokenizer *tokenizer = fetched("gemma3.gguf");
    assert_golden_ids(tokenizer, "plain", "gemma3", 0);
    assert_golden_ids(tokenizer, "broken", "gemma3.broken", 0);
    assert_golden_ids(tokenizer, "special", "gemma3.special", HEED_PARSE_SPECIAL);
    heed_tokenizer_free(tokenizer);
}

static void minilm_gives_the_ids_of_its_reference(void **state)
{
    (void)state;
    heed_tokenizer *tokenizer = fetched("minilm");
    assert_golden_ids(tokenizer, "plain", "minilm", 0);
    assert_golden_ids(tokenizer, "broken", "minilm.broken", 0);
    assert_golden_ids(tokenizer, "special", "minilm.special", HEED_PARSE_SPECIAL);
    heed_tokenizer_free(tokenizer);
}

/* The vocabulary of SmolLM2 lacks these; the reference drops them too. */
static bool has_byte_without_token(const heed_tokenizer *tokenizer, const char *text, size_t size)
{
    (void)tokenizer;
    static const char lacking[] =
        "\x04\x06\x13\x14\x16\x1d\xc0\xc1\xf1\xf2\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff";
    for (size_t i = 0; i < size; i++)
        if (memchr(lacking, text[i], sizeof lacking - 1))
            return true;
    return false;
}

/* Gemma writes a space as U+2581, so that it cannot tell the two apart. */
static bool has_space_mark(const heed_tokenizer *tokenizer, const char *text, size_t size)
{
    (void)tokenizer;
    for (size_t i = 0; i + 3 <= size; i++)
        if (!memcmp(text + i, "\xe2\x96\x81", 3))
            return true;
    return false;
}

static void texts_come_back_byte_for_byte(void **state)
{
    (void)state;
    heed_tokenizer *smollm2 = fetched("smollm2.gguf"), *gemma3 = fetched("gemma3.gguf");
    assert_in_range(assert_round_trips(smollm2, "plain", has_byte_without_token), 6, 40);
    assert_in_range(assert_round_trips(smollm2, "broken", has_byte_without_token), 6, 60);
    assert_in_range(assert_round_trips(gemma3, "plain", has_space_mark), 6, 60);
    assert_int_equal(assert_round_trips(gemma3, "broken", has_space_mark), 0);
    heed_tokenizer_free(smollm2);
    heed_tokenizer_free(gemma3);
}

static void assert_ids(const heed_tokenizer *tokenizer, const char *text, unsigned flags, const int32_t *ids,
                       int count)
{
    heed_tokens tokens = tokens_of(tokenizer, text, flags);
    assert_int_equal(tokens.count, count);
    for (int i = 0; i < count; i++)
        assert_int_equal(tokens.id[i], ids[i]);
    heed_tokens_free(&tokens);
}

static void a_begin_token_stands_once(void **state)
{
    (void)state;
    heed_tokenizer *gemma3 = fetched("gemma3.gguf");
    assert_ids(gemma3, "Hello", HEED_ADD_SPECIAL, (int32_t[]){2, 9259}, 2);
    assert_ids(gemma3, "<bos>Hello", HEED_ADD_SPECIAL | HEED_PARSE_SPECIAL, (int32_t[]){2, 9259}, 2);
    assert_ids(gemma3, "<bos>Hello", HEED_PARSE_SPECIAL, (int32_t[]){2, 9259}, 2);
    heed_tokens typed = tokens_of(gemma3, "<bos>Hello", HEED_ADD_SPECIAL);
    assert_int_equal(typed.id[0], 2);
    for (int64_t i = 1; i < typed.count; i++)
        assert_int_not_equal(typed.id[i], 2);
    heed_tokens_free(&typed);
    heed_tokenizer_free(gemma3);
}

static void accents_do_not_make_words_unknown(void **state)
{
    (void)state;
    heed_tokenizer *minilm = fetched("minilm");
    static const char *const pairs[][2] = {{"Hokkaid\u014d", "Hokkaido"},
                                           {"Kraljevi\u0107", "Kraljevic"},
                                           {"Hokkaido\u0304", "Hokkaid\u014d"},
                                           {"T\u014dky\u014d", "Tokyo"},
                                           {"\u0160koda", "skoda"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        heed_tokens one = tokens_of(minilm, pairs[i][0], 0), other = tokens_of(minilm, pairs[i][1], 0);
        assert_int_equal(one.count, other.count);
        assert_memory_equal(one.id, other.id, (size_t)one.count * sizeof *one.id);
        for (int64_t k = 0; k < one.count; k++)
            assert_int_not_equal(one.id[k], heed_tokenizer_special(minilm).unk);
        heed_tokens_free(&one);
        heed_tokens_free(&other);
    }
    heed_tokenizer_free(minilm);
}

static void special_tokens_are_those_of_the_files(void **state)
{
    (void)state;
    heed_tokenizer *smollm2 = fetched("smollm2.gguf"), *gemma3 = fetched("gemma3.gguf"),
                   *minilm = fetched("minilm");
    heed_special_tokens special = heed_tokenizer_special(smollm2);
    assert_true(special.bos == 1 && special.eos == 2 && special.unk == 0 && !special.add_bos &&
                !special.add_eos);
    assert_true(heed_token_ends(smollm2, 2) && heed_token_ends(smollm2, 0) && !heed_token_ends(smollm2, 1));
    special = heed_tokenizer_special(gemma3);
    assert_true(special.bos == 2 && special.eos == 1 && special.add_bos && !special.add_eos);
    assert_true(heed_token_ends(gemma3, 1) && heed_token_ends(gemma3, 106) && !heed_token_ends(gemma3, 105));
    special = heed_tokenizer_special(minilm);
    assert_true(special.cls == 101 && special.sep == 102 && special.pad == 0 && special.mask == 103);
    assert_ids(minilm, "hello", HEED_ADD_SPECIAL, (int32_t[]){101, 7592, 102}, 3);
    assert_true(heed_token_is_control(minilm, 101) && !heed_token_is_control(minilm, 7592));
    heed_tokenizer_free(smollm2);
    heed_tokenizer_free(gemma3);
    heed_tokenizer_free(minilm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm2_gives_the_ids_of_its_reference),
        cmocka_unit_test(gemma3_gives_the_ids_of_its_reference),
        cmocka_unit_test(minilm_gives_the_ids_of_its_reference),
        cmocka_unit_test(texts_come_back_byte_for_byte),
        cmocka_unit_test(a_begin_token_stands_once),
        cmocka_unit_test(accents_do_not_make_words_unknown),
        cmocka_unit_test(special_tokens_are_those_of_the_files),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    const bool any = fetched_model("smollm2.gguf") || fetched_model("gemma3.gguf") || fetched_model("minilm");
    return failed || any ? failed : 77;
}
