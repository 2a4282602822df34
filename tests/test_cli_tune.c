/* heed tune on a small random model that reads characters: the mix is a spec that fits the budget, and what
 * is measured is what a session with that spec does. */
#include "support/json.h"
#include "support/program.h"
#include "support/small_tokenizer.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TUNE "tune -m tiny --threads 1 "

static cJSON *result(void)
{
    if (ran.status)
        fail_msg("%s", ran.err);
    cJSON *root = cJSON_ParseWithOpts(ran.out, NULL, 0);
    assert_non_null(root);
    return root;
}

static const char *text(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    assert_true(cJSON_IsString(item));
    return item->valuestring;
}

static void the_mix_fits_the_budget_and_is_the_best_of_those_measured(void **state)
{
    (void)state;
    run(TUNE
        "--budget 80%% --policy \"streaming(share=0.25)\" --policy \"knorm(share=0.25)\" --type f16 --json");
    cJSON *root = result(), *mixes = cJSON_GetObjectItem(root, "mixes");
    const cJSON *mix, *heads = cJSON_GetObjectItem(root, "heads");
    const char *best = text(root, "spec");
    double least = INFINITY, ours = NAN;
    cJSON_ArrayForEach(mix, mixes)
    {
        if (json_number(mix, "share") <= 0.8)
            least = fmin(least, json_number(mix, "kl"));
        if (!strcmp(text(mix, "spec"), best))
            ours = json_number(mix, "kl");
    }
    assert_true(ours == least);
    assert_int_equal(cJSON_GetArraySize(heads), 8);
    assert_non_null(cJSON_GetObjectItem(cJSON_GetArrayItem(heads, 0), "kl_alone"));
    char spec[4096];
    snprintf(spec, sizeof spec, "%s", best);
    cJSON_Delete(root);
    run("eval -m tiny --threads 1 --tasks speed --spec \"%s\" --csv", spec);
    assert_int_equal(ran.status, 0);
}

static void the_whole_budget_needs_no_policy(void **state)
{
    (void)state;
    run(TUNE "--budget 1 --policy \"streaming(share=0.25)\" --type f16 --type f32");
    assert_int_equal(ran.status, 0);
    assert_memory_equal(ran.out, "cache=f16\n", 10);
}

static void the_same_seed_finds_the_same(void **state)
{
    (void)state;
    static char first[sizeof ran.out];
    run(TUNE "--budget 0.75 --policy \"streaming(share=0.25)\" --type f16 --json");
    assert_int_equal(ran.status, 0);
    strcpy(first, ran.out);
    run("tune -m tiny --threads 3 --budget 75%% --policy \"streaming(share=0.25)\" --type f16 --json");
    assert_string_equal(ran.out, first);
}

static void wrong_wishes_are_refused(void **state)
{
    (void)state;
    run(TUNE);
    assert_one_sentence("--budget");
    run(TUNE "--budget much");
    assert_one_sentence("much");
    run(TUNE "--budget 0");
    assert_one_sentence("above 0");
    run(TUNE "--budget 120%%");
    assert_one_sentence("120%");
    run(TUNE "--budget 50%% --policy striming");
    assert_one_sentence("the nearest is 'streaming'");
    run(TUNE "--budget 50%% --type q9");
    assert_one_sentence("q9");
    run(TUNE "--budget 1%% --policy \"streaming(share=0.5)\" --type f16");
    assert_one_sentence("no mix");
    run(TUNE "--budget 50%% --length 64");
    assert_one_sentence("no room");
}

static int make_folder(void **state)
{
    if (program_folder(state))
        return -1;
    make_model_with_tokenizer("tiny", "llama");
    return 0;
}

static int remove_folder(void **state)
{
    remove_model("tiny");
    return program_folder_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mix_fits_the_budget_and_is_the_best_of_those_measured),
        cmocka_unit_test(the_whole_budget_needs_no_policy),
        cmocka_unit_test(the_same_seed_finds_the_same),
        cmocka_unit_test(wrong_wishes_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
