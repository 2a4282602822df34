/* heed eval on a pretrained model: it finds what it can see, and does not find what it cannot. */
#include "support/models.h"
#include "support/program.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static cJSON *line(int n)
{
    const char *at = ran.out;
    for (; n > 0 && at; n--)
        at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    cJSON *root = at && *at ? cJSON_ParseWithOpts(at, NULL, 0) : NULL;
    if (!root)
        fail_msg("no line %d: %s%s", n, ran.out, ran.err);
    return root;
}

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(item))
        fail_msg("no number %s", name);
    return item->valuedouble;
}

static void a_needle_is_found_where_it_can_be_seen(void **state)
{
    (void)state;
    run("eval -m smollm2 --threads 1 --length 192 --tasks text,needle,copying --spec \"where=causal & "
        "(window(48) | "
        "first(4))\" "
        "--spec cache=q8 --json");
    if (ran.status)
        fail_msg("%s", ran.err);
    cJSON *own = line(0), *window = line(1), *q8 = line(2);
    assert_true(number(own, "needle") >= 0.8 && number(own, "copying") >= 0.5);
    /* only what stands right before the question is within 48 tokens */
    assert_true(number(window, "needle") <= 0.4 && number(window, "copying") < 0.5 * number(own, "copying"));
    assert_true(number(window, "kl_mean") > 20.0 * number(q8, "kl_mean"));
    assert_true(number(q8, "same_top") > 0.95 && number(q8, "needle") == number(own, "needle"));
    assert_true(number(window, "perplexity_last_quarter") > 1.02 * number(own, "perplexity_last_quarter"));
    cJSON_Delete(own);
    cJSON_Delete(window);
    cJSON_Delete(q8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_needle_is_found_where_it_can_be_seen)};
    if (!fetched_model("smollm2.gguf"))
        return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
