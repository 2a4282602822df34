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
#include <unistd.h>

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

static double loss_of(const cJSON *tuned)
{
    return json_number(tuned, "kl_text") + json_number(tuned, "kl_answers");
}

/* The line pasted into heed eval gives the figures that were found. */
static void assert_keeps_promise(const cJSON *root)
{
    static const char *const same[2][3] = {{"perplexity", "kl_mean", "cache_bytes_final"},
                                           {"perplexity_long", "kl_mean", "cache_bytes_final"}};
    static char spec[4096];
    const cJSON *promised = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "check"), 1);
    const double needle = json_number(promised, "needle"), seed = json_number(root, "check_seed");
    double promise[3];
    for (int i = 0; i < 3; i++)
        promise[i] = json_number(promised, same[0][i]);
    snprintf(spec, sizeof spec, "%s", text(root, "spec"));
    run("eval -m tiny --threads 1 --length 512 --seed %.0f --tasks text,speed,needle --spec \"%s\" --json",
        seed, spec);
    assert_int_equal(ran.status, 0);
    cJSON *kept = json_line(1);
    for (int i = 0; i < 3; i++)
        assert_true(json_number(kept, same[1][i]) == promise[i]);
    assert_true(json_number(cJSON_GetObjectItem(cJSON_GetObjectItem(kept, "tasks"), "needle"), "exact") ==
                needle);
    cJSON_Delete(kept);
}

static void the_mix_fits_the_budget_and_is_no_worse_than_any_single_policy(void **state)
{
    (void)state;
    run(TUNE "--budget 60%% --policy streaming --policy \"tova > by_head\" --type f16 --type f32 --json");
    cJSON *root = result(), *singles = cJSON_GetObjectItem(root, "singles");
    const cJSON *single, *mix = cJSON_GetObjectItem(root, "mix"), *check = cJSON_GetObjectItem(root, "check");
    assert_int_equal(cJSON_GetArraySize(singles), 4);
    assert_true(json_number(mix, "share") <= 0.6);
    cJSON_ArrayForEach(single, singles)
    {
        assert_true(json_number(single, "share") <= 0.6);
        assert_true(loss_of(mix) <= loss_of(single));
    }
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "heads")), 8);
    assert_string_equal(text(cJSON_GetArrayItem(check, 0), "spec"), "");
    assert_string_equal(text(cJSON_GetArrayItem(check, 1), "spec"), text(root, "spec"));
    assert_true(json_number(cJSON_GetArrayItem(check, 0), "kl_mean") == 0.0);
    assert_keeps_promise(root);
    cJSON_Delete(root);
}

static void storage_alone_may_be_enough(void **state)
{
    (void)state;
    run(TUNE "--budget 1 --policy streaming --type f16 --type f32");
    assert_int_equal(ran.status, 0);
    assert_memory_equal(ran.out, "cache=f16\n", 10);
}

static void the_same_seed_finds_the_same_and_a_file_goes_on(void **state)
{
    (void)state;
    static char first[sizeof ran.out], whole[1 << 16];
    run(TUNE "--budget 0.5 --policy tova --type f16 --json --resume trials");
    assert_int_equal(ran.status, 0);
    strcpy(first, ran.out);
    run("tune -m tiny --threads 3 --budget 50%% --policy tova --type f16 --json");
    assert_string_equal(ran.out, first);
    /* killed half-way: some lines, and a piece of one */
    FILE *file = fopen("trials", "r");
    assert_non_null(file);
    const size_t size = fread(whole, 1, sizeof whole, file);
    fclose(file);
    assert_true(size > 1000 && size < sizeof whole);
    file = fopen("trials", "w");
    fwrite(whole, 1, size / 2, file);
    fclose(file);
    remove("trials.check");
    run(TUNE "--budget 0.5 --policy tova --type f16 --json --resume trials");
    assert_string_equal(ran.out, first);
    run(TUNE "--budget 0.5 --policy tova --type f16 --json --resume trials --seed 2");
    assert_one_sentence("seed 1");
    file = fopen("trials", "w");
    fputs("something else\n", file);
    fclose(file);
    run(TUNE "--budget 0.5 --policy tova --type f16 --resume trials");
    assert_one_sentence("no trials");
    remove("trials");
    remove("trials.check");
}

static void heads_are_kept_whole_by_their_scores_or_by_what_they_lose(void **state)
{
    (void)state;
    run(TUNE "--budget 90%% --method razor --policy streaming --type f16 --json");
    cJSON *root = result();
    assert_non_null(strstr(text(root, "spec"), "razor(share="));
    cJSON_Delete(root);
    run(TUNE "--budget 60%% --method duo --policy streaming --type f16 --json");
    root = result();
    assert_non_null(strstr(text(root, "spec"), "streaming(share=0.1)"));
    const cJSON *head = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "heads"), 0);
    assert_true(json_number(head, "kl_alone") >= 0.0);
    cJSON_Delete(root);
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
    run(TUNE "--budget 50%% --method guess");
    assert_one_sentence("guess");
    run(TUNE "--budget 50%% --type q9");
    assert_one_sentence("q9");
    run(TUNE "--budget 0.01%% --policy streaming --type f16");
    assert_one_sentence("no policy");
    run(TUNE "--budget 50%% --length 64");
    assert_one_sentence("no room");
}

/* The small model with a context of 4 pages: less would leave nothing to choose. */
static int long_folder(void **state)
{
    static const char named[] = "\"max_position_embeddings\": ";
    char config[4096];
    if (tiny_folder(state))
        return -1;
    FILE *file = fopen("tiny/config.json", "r");
    assert_non_null(file);
    config[fread(config, 1, sizeof config - 1, file)] = 0;
    fclose(file);
    char *at = strstr(config, named);
    assert_non_null(at);
    unlink("tiny/config.json");
    file = fopen("tiny/config.json", "w");
    assert_non_null(file);
    fprintf(file, "%.*s%s512%s", (int)(at - config), config, named, strchr(at, ','));
    return fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mix_fits_the_budget_and_is_no_worse_than_any_single_policy),
        cmocka_unit_test(storage_alone_may_be_enough),
        cmocka_unit_test(the_same_seed_finds_the_same_and_a_file_goes_on),
        cmocka_unit_test(heads_are_kept_whole_by_their_scores_or_by_what_they_lose),
        cmocka_unit_test(wrong_wishes_are_refused),
    };
    return cmocka_run_group_tests(tests, long_folder, tiny_folder_remove);
}
