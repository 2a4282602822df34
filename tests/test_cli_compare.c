/* heed compare: other attention against a model's own. */
#include "support/json.h"
#include "support/models.h"
#include "support/program.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT                                                                                                 \
    "The river rises in the mountains, runs through two old towns and a forest, and comes to the sea where " \
    "the harbour was built long ago. Nobody knows who built the harbour."

static char model[4200];

static void the_same_attention_differs_by_nothing(void **state)
{
    (void)state;
    run("compare -m %s -p \"" TEXT "\" --spec where=causal --json", model);
    if (ran.status)
        fail_msg("%s", ran.err);
    cJSON *own = json_line(0), *other = json_line(1);
    assert_true(json_number(other, "kl_max") == 0.0);
    assert_true(json_number(other, "same_top") == 1.0);
    assert_true(json_number(own, "perplexity") == json_number(other, "perplexity"));
    cJSON_Delete(own);
    cJSON_Delete(other);
}

static void a_window_with_first_tokens_loses_less_than_one_without(void **state)
{
    (void)state;
    run("compare -m %s -p \"" TEXT
        "\" --spec \"where=causal & window(12)\" --spec \"where=causal & (window(8) | "
        "first(4))\" --json",
        model);
    if (ran.status)
        fail_msg("%s", ran.err);
    cJSON *own = json_line(0), *plain = json_line(1), *sinks = json_line(2);
    assert_true(json_number(plain, "kl_mean") > 2.0 * json_number(sinks, "kl_mean"));
    assert_true(json_number(plain, "perplexity") > json_number(sinks, "perplexity"));
    assert_true(json_number(sinks, "perplexity") > json_number(own, "perplexity"));
    assert_true(json_number(plain, "kl_max") >= json_number(plain, "kl_99") &&
                json_number(plain, "kl_99") >= json_number(plain, "kl_mean"));
    assert_true(json_number(own, "cache_bytes") > 0.0);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(own, "perplexity_by_position")), 4);
    cJSON_Delete(own);
    cJSON_Delete(plain);
    cJSON_Delete(sinks);
}

static void windows_are_read_apart(void **state)
{
    (void)state;
    run("compare -m %s -p \"" TEXT "\" --context 8 --spec \"where=causal & window(8)\" --json", model);
    if (ran.status)
        fail_msg("%s", ran.err);
    cJSON *other = json_line(1);
    assert_true(json_number(other, "windows") > 3.0);
    assert_true(json_number(other, "kl_max") == 0.0); /* a window as wide as what is read is no window */
    cJSON_Delete(other);
    run("compare -m %s -p \"" TEXT "\" --spec \"select=top_k(2)\"", model);
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "spec 1: select=top_k(k=2)");
    assert_said(ran.out, "worst after");
}

static void wrong_wishes_are_refused(void **state)
{
    (void)state;
    run("compare -m %s -p hello", model);
    assert_one_sentence("--spec");
    run("compare -m %s -p \"hello there\" --spec where=causl", model);
    assert_one_sentence("causal");
    run("compare -m %s -p hello --spec where=causal", model);
    assert_one_sentence("at least 2");
    run("compare -m %s -p hello file.txt --spec where=causal", model);
    assert_one_sentence("twice");
    run("compare -m %s nothing.txt --spec where=causal", model);
    assert_one_sentence("nothing.txt");
    run("compare -p \"hello there\" --spec where=causal");
    assert_one_sentence("-m");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_attention_differs_by_nothing),
        cmocka_unit_test(a_window_with_first_tokens_loses_less_than_one_without),
        cmocka_unit_test(windows_are_read_apart),
        cmocka_unit_test(wrong_wishes_are_refused),
    };
    const char *path = fetched_model("smollm2.gguf");
    if (!path)
        return TEST_SKIPPED;
    snprintf(model, sizeof model, "%s", path);
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
