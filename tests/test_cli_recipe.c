/* heed recipe, on recipes of the test's own that train for a few steps. */
#include "support/program.h"

#include <cjson/cJSON.h>
#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRAIN                                                                                                \
    "\"train\": {\"data\": \"copy(length=2, symbols=2)\", \"width\": 16, \"heads\": 2, \"layers\": 1, "      \
    "\"batch\": 4, "                                                                                         \
    "\"steps\": 3, \"eval_sequences\": 4, \"rate\": 1e-3}"

static int start(void **state)
{
    return program_folder(state) || mkdir("all", 0777);
}

static int end(void **state)
{
    return system("rm -rf all kept train recipes") || program_folder_remove(state);
}

static void make(const char *name, const char *text)
{
    char path[100];
    snprintf(path, sizeof path, "all/%s.json", name);
    write_text(path, text);
}

static cJSON *read_json(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s is not there", path);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    return root;
}

static double number(const cJSON *object, const char *name)
{
    const cJSON *found = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(found))
        fail_msg("there is no number %s", name);
    return found->valuedouble;
}

static void arms_are_trained_with_each_seed_and_recorded(void **state)
{
    (void)state;
    make("one", "{\"row\": \"9.9\", \"says\": \"it trains\", " TRAIN ", \"seeds\": 2, "
                "\"specs\": {\"form\": \"position=alibi; where=causal\", \"wide\": {\"width\": 32}}, "
                "\"expect\": [\"form.parameters < wide.parameters\", \"form.held_out_loss > 0.1 * "
                "wide.held_out_loss\"]}");
    run("recipe one --folder all --keep kept --threads 1");
    if (ran.status)
        fail_msg("%s%s", ran.out, ran.err);
    assert_said(ran.out, "one: it trains");
    assert_said(ran.out, "as published");
    cJSON *report = read_json("all/results/one.json");
    const cJSON *form = cJSON_GetObjectItem(cJSON_GetObjectItem(report, "measured"), "form"),
                *second = cJSON_GetArrayItem(cJSON_GetObjectItem(report, "expected"), 1);
    assert_int_equal(cJSON_GetArraySize(form), 2);
    const double a = number(cJSON_GetArrayItem(form, 0), "held_out_loss"),
                 b = number(cJSON_GetArrayItem(form, 1), "held_out_loss");
    assert_true(a != b); /* another seed, other weights */
    assert_true(fabs(number(second, "left") - (a + b) / 2.0) < 1e-9);
    assert_true(fabs(number(second, "left_spread") - fabs(a - b) / sqrt(2.0)) < 1e-9);
    assert_int_equal(number(second, "seeds_that_hold"), 2);
    assert_non_null(cJSON_GetObjectItem(report, "processor"));
    cJSON_Delete(report);
    /* the same run by hand */
    run("train --set 'data = copy(length=2, symbols=2)' --set width=16 --set heads=2 --set layers=1 --set "
        "batch=4 --set steps=3 "
        "--set eval_sequences=4 --set rate=1e-3 --set seed=2 --set 'attention = position=alibi; "
        "where=causal' -o train --json");
    assert_int_equal(ran.status, 0);
    cJSON *alone = cJSON_Parse(ran.out);
    assert_true(number(alone, "held_out_loss") == b);
    cJSON_Delete(alone);
    assert_true(exists("kept/one/form-1/log.jsonl") && exists("kept/one/wide-2/log.jsonl"));
    char table[4000] = "";
    FILE *file = fopen("all/RESULTS.md", "r");
    assert_non_null(file);
    table[fread(table, 1, sizeof table - 1, file)] = 0;
    fclose(file);
    assert_said(table, "| 9.9 | [one](results/one.json) |");
    assert_said(table, "as published");
#ifdef HEED_HAVE_PICTURES
    assert_true(exists("all/results/one.png"));
#endif
}

static void what_does_not_hold_is_said_and_kept(void **state)
{
    (void)state;
    make("two", "{\"says\": \"it fails\", " TRAIN
                ", \"specs\": {\"a\": \"where=causal\"}, \"expect\": [\"a.accuracy > 2\"]}");
    run("recipe two --folder all --threads 1");
    assert_int_equal(ran.status, 1);
    assert_said(ran.out, "fails  a.accuracy > 2");
    assert_said(ran.out, "not reproduced at this size");
    cJSON *report = read_json("all/results/two.json");
    assert_string_equal(cJSON_GetObjectItem(report, "verdict")->valuestring, "not reproduced at this size");
    cJSON_Delete(report);
}

static void the_short_form_replaces_fields_and_records_nothing(void **state)
{
    (void)state;
    make("three", "{\"says\": \"it is short\", " TRAIN
                  ", \"specs\": {\"a\": \"where=causal\"}, \"expect\": [\"a.accuracy > 2\"], "
                  "\"short\": {\"train\": {\"steps\": 1}, \"expect\": [\"a.parameters > 0\"]}}");
    run("recipe three --folder all --quick --json --threads 1");
    assert_int_equal(ran.status, 0);
    cJSON *report = cJSON_Parse(ran.out);
    const cJSON *arm = cJSON_GetObjectItem(cJSON_GetObjectItem(report, "measured"), "a");
    assert_int_equal(number(cJSON_GetArrayItem(arm, 0), "steps"), 1);
    assert_true(number(cJSON_GetArrayItem(arm, 0), "parameters") < 5000); /* the width stays */
    cJSON_Delete(report);
    assert_false(exists("all/results/three.json"));
    run("recipe two --folder all --quick --threads 1"); /* without a short form there is nothing to run */
    assert_int_equal(ran.status, 77);
}

static void configs_of_the_folder_are_found_from_anywhere(void **state)
{
    (void)state;
    assert_int_equal(mkdir("all/train", 0777), 0);
    write_text("all/train/tiny.train",
               "data = copy(length=2, symbols=2)\nwidth = 16\nheads = 2\nlayers = 1\nbatch = 4\nsteps = 2\n");
    make("five", "{\"says\": \"it has a config\", \"train\": {\"config\": \"tiny.train\", \"steps\": 1, "
                 "\"eval_sequences\": 2}, "
                 "\"specs\": {\"a\": \"where=causal\"}, \"expect\": [\"a.steps == 1\"]}");
    run("recipe five --folder all --threads 1 --no-record");
    if (ran.status)
        fail_msg("%s%s", ran.out, ran.err);
    assert_false(exists("all/results/five.json"));
}

static void commands_are_measured_by_their_last_line(void **state)
{
    (void)state;
    make("four", "{\"says\": \"commands\", \"model\": \"" HEED_TEST_DATA "/golden/tokenizer/llama3.json\", "
                 "\"texts\": {\"piece.txt\": [0, 400]}, \"commands\": {\"words\": \"tokenize --train "
                 "piece.txt --vocab 300 -o .\"}, "
                 "\"expect\": [\"words.bytes == 400\"]}");
    run("recipe four --folder all --threads 1");
    assert_int_equal(ran.status, 77); /* no model, so it is skipped */
    assert_said(ran.out, "skipped");
    make("six",
         "{\"says\": \"commands need no model\", \"seeds\": 2, \"commands\": {\"made\": \"train --set "
         "'data = copy(length=2, symbols=2)' --set width=16 --set heads=2 --set eval_sequences=2 --set "
         "steps={seed} -o made{seed}\"}, \"expect\": [\"made.steps > 0\"]}");
    run("recipe six --folder all --threads 1 --no-record --json");
    cJSON *report = cJSON_Parse(ran.out);
    const cJSON *made = cJSON_GetObjectItem(cJSON_GetObjectItem(report, "measured"), "made");
    assert_int_equal(number(cJSON_GetArrayItem(made, 0), "steps"), 1);
    assert_int_equal(number(cJSON_GetArrayItem(made, 1), "steps"), 2);
    cJSON_Delete(report);
}

static void wrong_recipes_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"{\"sais\": \"x\"}", "unknown field 'sais'; the nearest is 'says'"},
        {"{\"says\": 3}", "says is of another kind"},
        {"{\"says\": \"x\"}", "one of `specs` and `commands`"},
        {"{\"says\": \"x\", \"specs\": {}}", "`model` or `train`"},
        {"[]", "no JSON object"},
        {"{\"says\": \"x\", " TRAIN ", \"specs\": {\"a\": 3}}", "spec 'a'"},
        {"{\"says\": \"x\", " TRAIN ", \"specs\": {\"a\": \"\"}, \"expect\": [\"b.accuracy > 1\"]}",
         "no arm 'b'"},
        {"{\"says\": \"x\", " TRAIN ", \"specs\": {\"a\": \"\"}, \"expect\": [\"a.accuracy ! 1\"]}",
         "no comparison"},
        {"{\"says\": \"x\", " TRAIN ", \"specs\": {\"a\": \"\"}, \"expect\": [\"1 < a.\"]}", "no comparison"},
        {"{\"says\": \"x\", " TRAIN ", \"specs\": {\"a\": \"where=nowhere\"}}", "nowhere"},
        {"{\"says\": \"x\", " TRAIN ", \"specs\": {\"a\": \"where=causal\"}, \"expect\": [\"a.speed > 1\"]}",
         "a.speed was not measured"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        make("wrong", wrong[i][0]);
        run("recipe wrong --folder all --threads 1");
        if (ran.status != 2 || !strstr(ran.err, wrong[i][1]))
            fail_msg("%s: status %d, '%s'", wrong[i][0], ran.status, ran.err);
    }
    remove("all/wrong.json");
    run("recipe nothing --folder all");
    assert_one_sentence("'nothing'");
    run("recipe --folder nowhere --list");
    assert_one_sentence("nowhere");
    run("recipe --folder all");
    assert_one_sentence("--all");
    run("recipe --list --folder all");
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "trained   as published                 it trains");
    assert_said(ran.out, "trained   not reproduced at this size  it fails");
    assert_said(ran.out, "trained   not recorded                 it is short");
}

static void recipes_of_the_repository_can_be_read(void **state)
{
    (void)state;
    run("recipe --list --folder " HEED_TEST_DATA "/../recipes");
    if (ran.status)
        fail_msg("%s", ran.err);
    assert_said(ran.out, "copy");
}

/* Ctrl-C reaches all of a terminal's programs at once. */
static void interrupted_recipes_leave_nothing_behind(void **state)
{
    (void)state;
    make("long", "{\"says\": \"it takes long\", \"train\": {\"data\": \"copy(length=2, symbols=2)\", "
                 "\"steps\": 1000000}, "
                 "\"specs\": {\"form\": \"where=causal\"}, \"expect\": [\"form.accuracy > 2\"]}");
    assert_int_equal(mkdir("between", 0777), 0);
    const pid_t child = fork();
    if (!child) {
        setpgid(0, 0);
        setenv("TMPDIR", "between", 1);
        execl("/bin/sh", "sh", "-c", "exec " HEED_PROGRAM " recipe long --folder all >/dev/null 2>&1", NULL);
        _exit(127);
    }
    glob_t found = {.gl_pathc = 0};
    for (int i = 0; i < 3000 && glob("between/heed-recipe-*/form*/log.jsonl", 0, NULL, &found); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    const bool began = found.gl_pathc == 1;
    globfree(&found);
    kill(-child, SIGINT);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(began);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    assert_int_equal(rmdir("between"), 0); /* it is empty */
    assert_int_equal(remove("all/long.json"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arms_are_trained_with_each_seed_and_recorded),
        cmocka_unit_test(what_does_not_hold_is_said_and_kept),
        cmocka_unit_test(the_short_form_replaces_fields_and_records_nothing),
        cmocka_unit_test(configs_of_the_folder_are_found_from_anywhere),
        cmocka_unit_test(commands_are_measured_by_their_last_line),
        cmocka_unit_test(wrong_recipes_are_refused),
        cmocka_unit_test(recipes_of_the_repository_can_be_read),
        cmocka_unit_test(interrupted_recipes_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, start, end);
}
