/* heed eval on a small random model that reads characters: what it does not know, it does not know; what it
 * prints must follow from the seed, add up, and go on where it was left. */
#include "support/json.h"
#include "support/program.h"
#include "support/small_tokenizer.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WINDOW "\"where=causal & window(16)\""

static void succeed(void)
{
    if (ran.status)
        fail_msg("%s", ran.err);
}

static void read_back(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
}

static void the_same_attention_is_judged_the_same(void **state)
{
    (void)state;
    run("eval -m tiny --threads 1 --tasks text,needle,induction --spec where=causal --spec " WINDOW
        " --json");
    succeed();
    cJSON *own = json_line(0), *same = json_line(1), *other = json_line(2);
    static const char *const names[] = {"perplexity_short", "perplexity_long", "perplexity_last_quarter",
                                        "needle",           "induction",       "recall"};
    for (int i = 0; i < 6; i++)
        assert_true(json_number(own, names[i]) == json_number(same, names[i]));
    assert_true(json_number(same, "kl_mean") == 0.0 && json_number(same, "kl_999") == 0.0 &&
                json_number(same, "same_top") == 1.0);
    assert_true(json_number(other, "kl_mean") > 0.01 &&
                json_number(other, "kl_999") > json_number(other, "kl_mean"));
    assert_true(json_number(other, "same_top") < 1.0);
    cJSON_Delete(own);
    cJSON_Delete(same);
    cJSON_Delete(other);
}

static void the_seed_decides_everything_but_the_clock(void **state)
{
    (void)state;
    static char first[sizeof ran.out];
    run("eval -m tiny --threads 1 --tasks text,passkey,induction --spec " WINDOW " --json");
    succeed();
    strcpy(first, ran.out);
    run("eval -m tiny --tasks text,passkey,induction --spec " WINDOW " --json --threads 3");
    assert_string_equal(ran.out, first);
    run("eval -m tiny --threads 1 --tasks text,passkey,induction --spec " WINDOW " --json --seed 2");
    succeed();
    assert_string_not_equal(ran.out, first);
    cJSON *own = json_line(0), *task = cJSON_GetObjectItem(cJSON_GetObjectItem(own, "tasks"), "passkey");
    const cJSON *cell, *cells = cJSON_GetObjectItem(task, "cells");
    double asked = 0.0, depth = 0.0;
    cJSON_ArrayForEach(cell, cells)
    {
        asked += json_number(cell, "asked");
        depth += json_number(cell, "depth");
    }
    assert_true(asked == json_number(task, "asked") && asked == 5.0 && depth == 2.5);
    cJSON_Delete(own);
}

static void what_is_done_is_not_done_again(void **state)
{
    (void)state;
    static char whole[1 << 16], text[1 << 16];
    run("eval -m tiny --threads 1 --tasks text,needle,passkey --spec " WINDOW " --resume whole.jsonl");
    succeed();
    read_back("whole.jsonl", whole, sizeof whole);
    /* piece by piece */
    run("eval -m tiny --threads 1 --tasks needle --resume pieces.jsonl");
    succeed();
    run("eval -m tiny --threads 1 --tasks passkey,needle --spec " WINDOW " --resume pieces.jsonl");
    succeed();
    run("eval -m tiny --threads 1 --tasks text,passkey,needle --spec " WINDOW
        " --resume pieces.jsonl --json");
    succeed();
    static char pieces[sizeof ran.out];
    strcpy(pieces, ran.out);
    run("eval -m tiny --threads 1 --tasks text,passkey,needle --spec " WINDOW " --json");
    assert_string_equal(ran.out, pieces);
    /* as if it had been killed after the first pieces of work */
    char *end = whole;
    for (int lines = 0; lines < 3; lines++)
        end = strchr(end, '\n') + 1;
    snprintf(text, sizeof text, "%.*s", (int)(end - whole), whole);
    write_text("killed.jsonl", text);
    run("eval -m tiny --threads 1 --tasks text,needle,passkey --spec " WINDOW " --resume killed.jsonl");
    succeed();
    assert_true(same_file("killed.jsonl", "whole.jsonl"));
    /* what the file says is believed: nothing is measured */
    char *perplexity = strstr(whole, "\"text\":");
    memset(perplexity + 7, '1', strcspn(perplexity + 7, ","));
    perplexity[7] = '9';
    perplexity[9] = '.';
    write_text("told.jsonl", whole);
    run("eval -m tiny --threads 1 --tasks text,needle,passkey --spec " WINDOW " --resume told.jsonl --csv");
    succeed();
    assert_said(ran.out, ",91.1");
    assert_int_equal(unfinished_files(), 0);
}

static void results_of_something_else_are_refused_by_name(void **state)
{
    (void)state;
    run("eval -m tiny --threads 1 --tasks needle --resume kept.jsonl");
    succeed();
    static char before[1 << 14], after[1 << 14];
    read_back("kept.jsonl", before, sizeof before);
    run("eval -m tiny --threads 1 --tasks needle --resume kept.jsonl --seed 5");
    assert_one_sentence("another seed: '1', not '5'");
    run("eval -m tiny --threads 1 --tasks needle --resume kept.jsonl --suite long");
    assert_one_sentence("another suite: 'quick', not 'long'");
    run("eval -m tiny --threads 1 --tasks needle --resume kept.jsonl --length 200");
    assert_one_sentence("another length");
    run("eval -m tiny --threads 1 --tasks needle --resume kept.jsonl --apart");
    assert_one_sentence("another question");
    run("eval -m tiny --threads 1 --tasks needle --resume kept.jsonl --cache q8");
    assert_one_sentence("another model");
    read_back("kept.jsonl", after, sizeof after);
    assert_string_equal(before, after);
    static const char *const wrong[] = {
        "", "hello\n", "{}\n", "{\"heed_eval\":2}\n", "[1]\n", "{\"heed_eval\":1}\n"};
    for (int i = 0; i < 6; i++) {
        write_text("wrong.jsonl", wrong[i]);
        run("eval -m tiny --threads 1 --tasks needle --resume wrong.jsonl");
        assert_one_sentence("wrong.jsonl");
    }
    /* damaged lines behind a right head */
    const int head = (int)(strchr(before, '\n') - before) + 1;
    static const char *const lines[] = {
        "{\"spec\":1}\n",
        "{\"spec\":\"\",\"task\":\"cooking\",\"cells\":[]}\n",
        "{\"spec\":\"\",\"task\":\"needle\",\"cells\":[[1,2]]}\n",
        "{\"spec\":\"\",\"task\":\"needle\",\"cells\":[[1,0,1,1,1,1,1,1,\"x\"]]}\n",
        "{\"spec\":\"\",\"reading\":{}}\n",
        "{\"spec\":\"\"",
        "\n"};
    for (int i = 0; i < 7; i++) {
        snprintf(after, sizeof after, "%.*s%s", head, before, lines[i]);
        write_text("wrong.jsonl", after);
        run("eval -m tiny --threads 1 --tasks needle --resume wrong.jsonl");
        assert_one_sentence("wrong.jsonl: line 2");
    }
}

static int count_of(const char *text, char c)
{
    int count = 0;
    for (; *text && *text != '\n'; text++)
        count += *text == c;
    return count;
}

static void every_output_has_the_same_numbers(void **state)
{
    (void)state;
    run("eval -m tiny --threads 1 --tasks text,needle,speed --spec cache=f32 --spec " WINDOW
        " --resume all.jsonl --csv");
    succeed();
    const char *second = strchr(ran.out, '\n') + 1, *third = strchr(second, '\n') + 1;
    assert_memory_equal(ran.out, "attention,perplexity_short,", 27);
    assert_int_equal(count_of(ran.out, ','), 13);
    assert_int_equal(count_of(second, ','), 13);
    assert_memory_equal(third, "cache=f32,", 10);
    const double perplexity = strtod(third + 10, NULL);
    run("eval -m tiny --threads 1 --tasks text,needle,speed --spec cache=f32 --spec " WINDOW
        " --resume all.jsonl --json");
    cJSON *own = json_line(0), *f32 = json_line(1);
    assert_true(fabs(json_number(f32, "perplexity_short") - perplexity) < 1e-6 * perplexity);
    assert_true(json_number(f32, "cache_bytes_peak") == 2.0 * json_number(own, "cache_bytes_peak"));
    assert_true(json_number(own, "prefill_tokens_per_second") > 0.0 &&
                json_number(own, "decode_tokens_per_second") > 0.0);
    char shown[32];
    snprintf(shown, sizeof shown, " %.3f", perplexity);
    run("eval -m tiny --threads 1 --tasks text,needle,speed --spec cache=f32 --spec " WINDOW
        " --resume all.jsonl");
    assert_said(ran.out, shown);
    assert_said(ran.out, "  1  cache=f32");
    cJSON_Delete(own);
    cJSON_Delete(f32);
}

#ifdef HEED_HAVE_PICTURES
static void pictures_are_drawn_of_what_was_measured(void **state)
{
    (void)state;
    run("eval -m tiny --threads 1 --tasks text,needle,speed --spec " WINDOW
        " --picture m.png --grid g.svg --resume p.jsonl");
    succeed();
    assert_true(exists("m.png") && exists("g.svg"));
    run("eval -m tiny --threads 1 --tasks text --picture n.png");
    assert_one_sentence("speed");
    run("eval -m tiny --threads 1 --tasks speed --picture n.png");
    assert_one_sentence("text");
    run("eval -m tiny --threads 1 --tasks text --grid n.png");
    assert_one_sentence("needle");
    assert_false(exists("n.png"));
}
#endif

static void wrong_wishes_are_refused(void **state)
{
    (void)state;
    run("eval -m tiny --threads 1 --tasks neddle");
    assert_one_sentence("the nearest is 'needle'");
    run("eval -m tiny --threads 1 --spec where=causl");
    assert_one_sentence("causal");
    run("eval -m tiny --threads 1 --spec cache=q8 --spec \" cache=q8 \"");
    assert_one_sentence("twice");
    run("eval -m tiny --threads 1 --tasks needle --spec where=all");
    assert_one_sentence("causal");
    run("eval -m tiny --threads 1 --tasks variables");
    assert_one_sentence("no room for the task variables");
    run("eval -m tiny --threads 1 --length 300");
    assert_one_sentence("longer than the model's context of 256");
    run("eval -m tiny --threads 1 --json --csv");
    assert_one_sentence("--csv");
    run("eval --tasks text");
    assert_one_sentence("-m");
    run("eval -m no_tokens --tasks text");
    assert_int_equal(ran.status, 2);
    assert_said(ran.err, "no tokeniser, so no task can be put to it");
}

static int make_folder(void **state)
{
    if (tiny_folder(state))
        return -1;
    make_model_with_tokenizer("no_tokens", "llama");
    return remove("no_tokens/tokenizer.json");
}

static int remove_folder(void **state)
{
    remove_model("no_tokens");
    return tiny_folder_remove(state);
}

static void specs_come_from_a_file_too(void **state)
{
    (void)state;
    FILE *file = fopen("specs", "w");
    assert_non_null(file);
    fputs("# two of them\n\n  cache=q8 # eight bits\r\ncache=streaming(share=0.5)", file);
    fclose(file);
    run("eval -m tiny --threads 1 --length 128 --tasks text --spec cache=bf16 --specs specs --csv");
    assert_int_equal(ran.status, 0);
    assert_non_null(strstr(ran.out, "cache=bf16"));
    assert_non_null(strstr(ran.out, "cache=q8,"));
    assert_non_null(strstr(ran.out, "cache=streaming(share=0.5),"));
    file = fopen("specs", "a");
    fputs("\ncache=streeming(share=0.5)\n", file);
    fclose(file);
    run("eval -m tiny --length 128 --tasks text --specs specs");
    assert_one_sentence("specs, line 5");
    assert_non_null(strstr(ran.err, "the nearest is 'streaming'"));
    run("eval -m tiny --length 128 --tasks text --specs nowhere");
    assert_one_sentence("nowhere");
    remove("specs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_attention_is_judged_the_same),
        cmocka_unit_test(the_seed_decides_everything_but_the_clock),
        cmocka_unit_test(what_is_done_is_not_done_again),
        cmocka_unit_test(results_of_something_else_are_refused_by_name),
        cmocka_unit_test(every_output_has_the_same_numbers),
#ifdef HEED_HAVE_PICTURES
        cmocka_unit_test(pictures_are_drawn_of_what_was_measured),
#endif
        cmocka_unit_test(wrong_wishes_are_refused),
        cmocka_unit_test(specs_come_from_a_file_too),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
