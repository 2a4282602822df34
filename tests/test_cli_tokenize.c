/* heed tokenize, on a small tokeniser. */
#include "support/models.h"
#include "support/program.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN HEED_TEST_DATA "/golden/tokenizer/"

static void json_has_ids_and_texts(void **state)
{
    (void)state;
    run("tokenize -m " GOLDEN "llama3.json --json 'na\xc3\xafve \xf0\x9f\x99\x82 \"x\"'");
    assert_int_equal(ran.status, 0);
    cJSON *root = cJSON_Parse(ran.out);
    assert_non_null(root);
    const cJSON *ids = cJSON_GetObjectItem(root, "ids"), *texts = cJSON_GetObjectItem(root, "text"), *text;
    assert_true(cJSON_GetArraySize(ids) > 3);
    assert_int_equal(cJSON_GetArraySize(ids), cJSON_GetArraySize(texts));
    char joined[100] = "";
    cJSON_ArrayForEach(text, texts) strcat(joined, text->valuestring);
    assert_string_equal(joined, "na\xc3\xafve \xf0\x9f\x99\x82 \"x\"");
    cJSON_Delete(root);
}

static void ids_become_the_text_again(void **state)
{
    (void)state;
    const char *text = "It's 12 o'clock.\r\n\tna\xc3\xafve \xff\n";
    char ids[1000] = "";
    write_text("text.txt", text);
    run("tokenize -m " GOLDEN "llama3.json -f text.txt --json");
    assert_int_equal(ran.status, 0);
    assert_int_equal(sscanf(ran.out, "{\"ids\":[%999[^]]]", ids), 1);
    write_text("ids.txt", ids);
    run("tokenize -m " GOLDEN "llama3.json --decode %s", ids);
    assert_int_equal(ran.status, 0);
    assert_string_equal(ran.out, text);
    run("help >/dev/null; { '" HEED_PROGRAM "' tokenize -m " GOLDEN "llama3.json --decode - <ids.txt; }");
    assert_string_equal(ran.out, text);
    run("help >/dev/null; { '" HEED_PROGRAM "' tokenize -m " GOLDEN "llama3.json <text.txt; }");
    assert_said(ran.out, "tokens; byte-level BPE");
}

static void special_tokens_are_parsed_only_when_asked_for(void **state)
{
    (void)state;
    run("tokenize -m " GOLDEN "llama2.json --json '<s>a'");
    assert_int_equal(ran.status, 0);
    assert_int_equal(strncmp(ran.out, "{\"ids\":[1,", 10), 0); /* <s> is put in front */
    assert_null(strstr(ran.out, ",1,"));
    run("tokenize -m " GOLDEN "llama2.json --json --no-special a");
    assert_int_not_equal(strncmp(ran.out, "{\"ids\":[1,", 10), 0);
    run("tokenize -m " GOLDEN "llama2.json --json --parse-special '<s>a'");
    assert_int_equal(strncmp(ran.out, "{\"ids\":[1,", 10), 0);
    assert_null(strstr(ran.out, ",1,"));
    assert_said(ran.err, "it stands once");
}

static void errors_are_one_sentence(void **state)
{
    (void)state;
    run("tokenize abc");
    assert_one_sentence("-m MODEL");
    run("tokenize -m nowhere abc");
    assert_one_sentence("'nowhere'");
    run("tokenize -m " GOLDEN "llama3.json -f nowhere.txt");
    assert_one_sentence("nowhere.txt");
    run("tokenize -m " GOLDEN "llama3.json --decode 1,99999");
    assert_one_sentence("'99999'");
    run("tokenize -m " GOLDEN "llama3.json --decode 1 abc");
    assert_one_sentence("more than one");
    run("tokenize -m " GOLDEN "llama3.json --chat abc");
    assert_one_sentence("no chat template");
    run("tokenize -m " GOLDEN "few.texts abc");
    assert_int_equal(ran.status, 2);
}

static void examples_of_the_help_work_when_pasted(void **state)
{
    (void)state;
    run("help tokenize");
    assert_int_equal(ran.status, 0);
    static char help[sizeof ran.out];
    strcpy(help, ran.out);
    char *line = strstr(help, "\nexample\n");
    assert_non_null(line);
    if (!fetched_model("smollm2.gguf"))
        skip();
    int lines = 0;
    write_text("book.txt", "It was the best of times, it was the worst of times.");
    for (line = strtok(line + 9, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        run("%s", line + 9);
        if (ran.status)
            fail_msg("%s: %s", line, ran.err);
    }
    assert_int_equal(lines, 4);
    assert_int_equal(remove("words/tokenizer.json") || remove("words"), 0);
    run("tokenize -m smollm2 --json 'Hello world'");
    assert_string_equal(ran.out, "{\"ids\":[19556,905],\"text\":[\"Hello\",\" world\"]}\n");
    run("tokenize -m smollm2 --decode 19556,905");
    assert_string_equal(ran.out, "Hello world");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_ids_and_texts),
        cmocka_unit_test(ids_become_the_text_again),
        cmocka_unit_test(special_tokens_are_parsed_only_when_asked_for),
        cmocka_unit_test(errors_are_one_sentence),
        cmocka_unit_test(examples_of_the_help_work_when_pasted),
    };
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
