/* Vocabularies that heed learns from texts: the same as the `tokenizers` library learns, and such that the
 * encoder makes of the texts what the learner made of them. */
#include "support/program.h"
#include "support/texts.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOOK HEED_TEST_DATA "/../src/eval/texts/alice.txt"

static void the_book_gives_the_vocabulary_of_the_reference(void **state)
{
    (void)state;
    run("tokenize --train " BOOK " --vocab 700 -o words --json");
    if (ran.status)
        fail_msg("%s", ran.err);
    assert_said(ran.out, "{\"tokens\": 700, \"bytes\": 143213,");
    heed_tokenizer *tokenizer = tokenizer_at("words/tokenizer.json");
    FILE *file = fopen(HEED_TEST_DATA "/golden/tokenizer/learnt.txt", "r");
    char line[200];
    assert_non_null(file);
    for (int32_t id = 0; id < 700; id++) {
        assert_non_null(fgets(line, sizeof line, file));
        line[strcspn(line, "\n")] = 0;
        if (strcmp(line, heed_token_name(tokenizer, id)))
            fail_msg("token %d is '%s': '%s' in the reference", id, heed_token_name(tokenizer, id), line);
    }
    fclose(file);
    assert_golden_ids(tokenizer, "few", "learnt", 0);
    heed_tokenizer_free(tokenizer);
}

/* Learns from texts and counts their tokens by the encoder; the learner has counted them too. */
static void assert_counts_agree(const heed_text *text, int texts, int32_t most, heed_tokenizer_learnt *learnt)
{
    heed_tokens tokens = {0};
    if (heed_tokenizer_learn(text, texts, most, "learnt.json", learnt))
        fail_msg("%s", heed_message());
    heed_tokenizer *tokenizer = tokenizer_at("learnt.json");
    assert_int_equal(heed_tokenizer_size(tokenizer), learnt->tokens);
    for (int i = 0; i < texts; i++)
        assert_int_equal(heed_tokenize(tokenizer, text[i].data, text[i].size, 0, &tokens), HEED_OK);
    assert_int_equal(tokens.count, learnt->text_tokens);
    heed_tokens_free(&tokens);
    heed_tokenizer_free(tokenizer);
}

/* Runs of one letter: pairs that overlap, and tokens that two pairs of halves would give. */
static void overlapping_pairs_are_counted_as_they_are_merged(void **state)
{
    (void)state;
    enum { SIZE = 4000 };
    char text[SIZE];
    uint32_t random = 1;
    for (int most = 258; most < 300; most += 3) {
        for (int i = 0; i < SIZE; i++) {
            random = random * 1664525u + 1013904223u;
            text[i] = " aaaaaaaab"[random >> 16 & 7 ? 1 + (random >> 24) % 9 : 0];
        }
        heed_tokenizer_learnt learnt;
        assert_counts_agree(&(heed_text){text, SIZE}, 1, most, &learnt);
        assert_int_equal(learnt.tokens, most);
    }
}

static void texts_of_all_kinds_are_counted_as_they_are_encoded(void **state)
{
    (void)state;
    test_texts texts = read_texts("few");
    heed_text *given = calloc((size_t)texts.count, sizeof *given);
    heed_tokenizer_learnt learnt;
    int count = 0;
    assert_non_null(given);
    for (int i = 0; i < texts.count; i++)
        if (!memchr(texts.text[i], 0, texts.bytes[i]))
            given[count++] = (heed_text){texts.text[i], texts.bytes[i]};
    assert_counts_agree(given, count, 1500, &learnt);
    assert_int_equal(learnt.tokens, 1500);
    free(given);
    free_texts(&texts);
}

static void it_ends_where_no_pair_stands_twice(void **state)
{
    (void)state;
    heed_tokenizer_learnt learnt;
    assert_counts_agree(&(heed_text){"ab ab", 5}, 1, 1000, &learnt);
    assert_int_equal(learnt.tokens, 258); /* ab; a space before it stands once */
    assert_int_equal(learnt.text_tokens, 3);
    assert_int_equal(learnt.words, 2);
}

static void errors_are_one_sentence(void **state)
{
    (void)state;
    write_text("empty.txt", "");
    write_text("broken.txt", "abc\xff");
    write_text("good.txt", "good");
    run("tokenize --train empty.txt -o words");
    assert_one_sentence("empty");
    run("tokenize --train broken.txt -o words");
    assert_one_sentence("UTF-8");
    run("tokenize --train nowhere.txt -o words");
    assert_one_sentence("nowhere.txt");
    run("tokenize --train good.txt");
    assert_one_sentence("-o FOLDER");
    run("tokenize --train -o words");
    assert_one_sentence("files with texts");
    run("tokenize --train good.txt --vocab 256 -o words");
    assert_one_sentence("257");
    run("tokenize --train good.txt -m smollm2 -o words");
    assert_one_sentence("--train goes with");
    run("tokenize --vocab 300 -m " HEED_TEST_DATA "/golden/tokenizer/llama3.json a");
    assert_one_sentence("belong to --train");
    run("tokenize -m " HEED_TEST_DATA "/golden/tokenizer/llama3.json a b");
    assert_one_sentence("one argument too many");
    run("tokenize --train good.txt -o good.txt");
    assert_one_sentence("good.txt");
    assert_int_equal(unfinished_files(), 0);
}

static int remove_all(void **state)
{
    remove("words/tokenizer.json");
    remove("words");
    return program_folder_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_book_gives_the_vocabulary_of_the_reference),
        cmocka_unit_test(overlapping_pairs_are_counted_as_they_are_merged),
        cmocka_unit_test(texts_of_all_kinds_are_counted_as_they_are_encoded),
        cmocka_unit_test(it_ends_where_no_pair_stands_twice),
        cmocka_unit_test(errors_are_one_sentence),
    };
    return cmocka_run_group_tests(tests, program_folder, remove_all);
}
