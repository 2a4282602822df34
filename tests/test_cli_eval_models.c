/* heed eval on a pretrained model: it finds what it can see, and does not find what it cannot. */
#include "support/json.h"
#include "support/models.h"
#include "support/program.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static void a_needle_is_found_where_it_can_be_seen(void **state)
{
    (void)state;
    run("eval -m smollm2 --threads 1 --length 192 --tasks text,needle,copying --spec \"where=causal & "
        "(window(48) | "
        "first(4))\" "
        "--spec cache=q8 --json");
    if (ran.status)
        fail_msg("%s", ran.err);
    cJSON *own = json_line(0), *window = json_line(1), *q8 = json_line(2);
    assert_true(json_number(own, "needle") >= 0.8 && json_number(own, "copying") >= 0.5);
    /* only what stands right before the question is within 48 tokens */
    assert_true(json_number(window, "needle") <= 0.4 &&
                json_number(window, "copying") < 0.5 * json_number(own, "copying"));
    assert_true(json_number(window, "kl_mean") > 20.0 * json_number(q8, "kl_mean"));
    assert_true(json_number(q8, "same_top") > 0.95 &&
                json_number(q8, "needle") == json_number(own, "needle"));
    assert_true(json_number(window, "perplexity_last_quarter") >
                1.02 * json_number(own, "perplexity_last_quarter"));
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
