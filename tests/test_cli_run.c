/* heed run: text from a pretrained model. */
#include "support/json.h"
#include "support/models.h"
#include "support/program.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cJSON *line_of(int n)
{
    const char *at = ran.out;
    for (; n > 0 && at; n--)
        at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    assert_non_null(at);
    cJSON *object = cJSON_ParseWithLength(at, strcspn(at, "\n"));
    assert_non_null(object);
    return object;
}

static const char *text_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    assert_true(cJSON_IsString(item));
    return item->valuestring;
}

static void the_likeliest_text_streams_as_it_is_reported(void **state)
{
    (void)state;
    run("run -m smollm2 -p 'The capital of France is' -n 12");
    assert_int_equal(ran.status, 0);
    static char streamed[sizeof ran.out];
    strcpy(streamed, ran.out);
    assert_int_equal(strncmp(streamed, " Paris", 6), 0);
    run("run -m smollm2 -p 'The capital of France is' -n 12 --json --threads 1");
    cJSON *line = line_of(0);
    const char *text = text_of(line, "text");
    assert_int_equal(strncmp(streamed, text, strlen(text)), 0);
    assert_string_equal(streamed + strlen(text), "\n");
    assert_string_equal(text_of(line, "finish"), "length");
    assert_true(json_number(line, "read") == 5 && json_number(line, "written") == 12 &&
                json_number(line, "dropped") == 0);
    cJSON_Delete(line);
}

static void more_threads_than_run_at_once_are_cut_with_a_hint(void **state)
{
    (void)state;
    run("run -m smollm2 -p 'Once upon a time' -n 8 --threads 1");
    static char alone[sizeof ran.out];
    strcpy(alone, ran.out);
    run("run -m smollm2 -p 'Once upon a time' -n 8 --threads 1024");
    assert_int_equal(ran.status, 0);
    assert_string_equal(ran.out, alone);
    assert_said(ran.err, "note: --threads 1024: ");
    assert_said(ran.err, "more would be slower");
}

static void what_replaces_the_positions_of_the_model_is_said(void **state)
{
    (void)state;
    run("run -m smollm2 -p a -n 2 --attention 'position=rope(base=5000)'");
    assert_int_equal(ran.status, 0);
    assert_said(ran.err, "replaces the model's own `position=rope(base=100000, dim=64, pairs=adjacent)`");
    run("run -m smollm2 -p a -n 2 --attention 'position=t5'");
    assert_said(ran.err, "learnt tensors that the model does not have, and runs on their initial values: "
                         "position.t5.b");
    run("run -m smollm2 -p a -n 2 --attention 'where=causal & window(3)'");
    assert_int_equal(ran.status, 0);
    assert_null(strstr(ran.err, "note:"));
}

static void seeds_repeat_and_differ(void **state)
{
    (void)state;
    static char first[sizeof ran.out];
    run("run -m smollm2 -p 'Once upon a time' -n 16 --temperature 1 --seed 7");
    strcpy(first, ran.out);
    run("run -m smollm2 -p 'Once upon a time' -n 16 --temperature 1 --seed 7");
    assert_string_equal(first, ran.out);
    run("run -m smollm2 -p 'Once upon a time' -n 16 --temperature 1 --seed 8");
    assert_string_not_equal(first, ran.out);
}

static void a_stop_ends_the_text_before_it(void **state)
{
    (void)state;
    run("run -m smollm2 -p 'One, two, three, four,' -n 40 --stop ' seven' --json");
    assert_int_equal(ran.status, 0);
    cJSON *line = line_of(0);
    assert_string_equal(text_of(line, "finish"), "stop");
    assert_null(strstr(text_of(line, "text"), "seven"));
    assert_non_null(strstr(text_of(line, "text"), "six"));
    cJSON_Delete(line);
}

static void what_does_not_fit_is_refused_or_cut_aloud(void **state)
{
    (void)state;
    FILE *file = fopen("long.txt", "w");
    for (int i = 0; i < 300; i++)
        fprintf(file, "number %d, ", i);
    fclose(file);
    run("run -m smollm2 -f long.txt -n 4 --context 64");
    assert_int_equal(ran.status, 2);
    assert_said(ran.err, "tokens, the context has room for 64");
    run("run -m smollm2 -f long.txt -n 4 --context 64 --truncate middle --json");
    assert_int_equal(ran.status, 0);
    cJSON *line = line_of(0);
    assert_true(json_number(line, "read") == 60 && json_number(line, "dropped") > 1000);
    cJSON_Delete(line);
    run("run -m smollm2 -p 'a b c d' -n 40 --context 10 --json");
    line = line_of(0);
    assert_string_equal(text_of(line, "finish"), "context");
    assert_true(json_number(line, "read") + json_number(line, "written") <= 11);
    cJSON_Delete(line);
}

static void another_attention_stands_beside_the_own(void **state)
{
    (void)state;
    run("run -m smollm2 -p 'The capital of France is' -n 8 --json --compare 'where=causal' --compare "
        "'where=causal & window(2)'");
    assert_int_equal(ran.status, 0);
    cJSON *own = line_of(0), *same = line_of(1), *other = line_of(2);
    assert_string_equal(text_of(own, "text"), text_of(same, "text"));
    assert_true(json_number(cJSON_GetObjectItem(same, "against_first"), "kl_max") == 0.0);
    assert_true(json_number(cJSON_GetObjectItem(same, "against_first"), "same_top1") == 1.0);
    assert_true(json_number(cJSON_GetObjectItem(other, "against_first"), "kl_mean") > 0.1);
    assert_true(json_number(cJSON_GetObjectItem(other, "against_first"), "perplexity") >
                json_number(cJSON_GetObjectItem(other, "against_first"), "perplexity_first"));
    cJSON_Delete(own);
    cJSON_Delete(same);
    cJSON_Delete(other);
}

static void a_conversation_reuses_what_was_read(void **state)
{
    (void)state;
    FILE *file = fopen("turns.txt", "w");
    fputs("My name is Ada.\nWhat is my name?\n", file);
    fclose(file);
    run("help >/dev/null; { '" HEED_PROGRAM "' run -m smollm2 --chat -n 24 --json <turns.txt; } >stdout.txt");
    assert_int_equal(ran.status, 0);
    cJSON *first = line_of(0), *second = line_of(1);
    assert_true(json_number(first, "reused") == 0);
    assert_true(json_number(second, "reused") >= json_number(first, "read"));
    cJSON_Delete(first);
    cJSON_Delete(second);
}

static void an_interrupt_leaves_what_was_written(void **state)
{
    (void)state;
    run("help >/dev/null; { '" HEED_PROGRAM
        "' run -m smollm2 -p 'Once upon a time' -n 500 >written.txt & id=$!; "
        "while ! [ -s written.txt ]; do sleep 0.1; done; kill -INT $id; wait $id; }");
    assert_int_equal(ran.status, 2);
    assert_said(ran.err, "interrupted after");
    FILE *file = fopen("written.txt", "r");
    assert_true(file && fgetc(file) != EOF);
    fclose(file);
}

static void wrong_wishes_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"-p hello --temperature -1", "from 0 to 100"},
        {"-p hello --attention 'where=window(4)'", "`causal`"},
        {"-p hello --system x", "--chat"},
        {"-p ''", "no tokens"},
        {"-p \"$(printf 'a\\377b')\"", "not UTF-8: byte 1, in line 1, is 0xff"},
        {"-p a --attention 'layers 30: where=causal'", "30 layers, 0 to 29"},
        {"-p a --attention 'heads 0,9: where=causal'", "9 heads, 0 to 8"},
        {"-p hello -f file", "one of them is the text"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run("run -m smollm2 %s", cases[i][0]);
        assert_int_equal(ran.status, 2);
        assert_said(ran.err, cases[i][1]);
    }
}

static void a_saved_session_is_gone_on_from(void **state)
{
    (void)state;
    static char first[sizeof ran.out];
    run("run -m smollm2 -p 'The capital of France is' -n 6 --session session.heed --threads 1");
    assert_int_equal(ran.status, 0);
    strcpy(first, ran.out);
    run("run -m smollm2 -p 'The capital of France is' -n 6 --session session.heed --threads 1 --json");
    assert_int_equal(ran.status, 0);
    cJSON *line = line_of(0);
    assert_true(json_number(line, "reused") == 4 && json_number(line, "read") == 1);
    assert_int_equal(strncmp(first, text_of(line, "text"), strlen(text_of(line, "text"))), 0);
    cJSON_Delete(line);
    run("cache show session.heed -m smollm2");
    assert_int_equal(ran.status, 0);
    assert_non_null(strstr(ran.out, "100.0 % 0-"));
    run("run -m smollm2 -p 'The capital' -n 1 --session session.heed --cache q8");
    assert_int_equal(ran.status, 2);
    assert_non_null(strstr(ran.err, "keys q8"));
    run("cache show -m smollm2 -p 'one two three four five six seven eight' --json --attention "
        "'cache=fifo(budget=4)'");
    assert_int_equal(ran.status, 0);
    line = line_of(0);
    assert_true(json_number(line, "keys") == 4 && json_number(line, "read") == 8);
    cJSON_Delete(line);
    run("cache keep -m smollm2 -p x");
    assert_int_equal(ran.status, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_likeliest_text_streams_as_it_is_reported),
        cmocka_unit_test(more_threads_than_run_at_once_are_cut_with_a_hint),
        cmocka_unit_test(what_replaces_the_positions_of_the_model_is_said),
        cmocka_unit_test(seeds_repeat_and_differ),
        cmocka_unit_test(a_stop_ends_the_text_before_it),
        cmocka_unit_test(what_does_not_fit_is_refused_or_cut_aloud),
        cmocka_unit_test(another_attention_stands_beside_the_own),
        cmocka_unit_test(a_conversation_reuses_what_was_read),
        cmocka_unit_test(an_interrupt_leaves_what_was_written),
        cmocka_unit_test(wrong_wishes_are_refused),
        cmocka_unit_test(a_saved_session_is_gone_on_from),
    };
    if (!fetched_model("smollm2.gguf"))
        return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
