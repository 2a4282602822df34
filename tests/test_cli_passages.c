/* heed run --passage on a small model that reads characters. */
#include "support/json.h"
#include "support/program.h"
#include "support/small_tokenizer.h"

#include <stdlib.h>

#define ASK "run -m tiny --threads 1 --json -n 6 -p question "

static const char *source(const cJSON *line, int i)
{
    return cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(line, "passages"), i), "from")
        ->valuestring;
}

static void passages_are_read_once_for_all_runs(void **state)
{
    (void)state;
    write_text("a.txt", "the first passage of some length");
    write_text("b.txt", "another one");
    run(ASK "--passage a.txt --passage b.txt --passage a.txt --passage-cache .");
    cJSON *first = json_line(0);
    assert_string_equal(source(first, 0), "read");
    assert_string_equal(source(first, 1), "read");
    assert_string_equal(source(first, 2), "kept");
    run(ASK "--passage a.txt --passage b.txt --passage a.txt --passage-cache .");
    cJSON *second = json_line(0);
    assert_string_equal(source(second, 0), "file");
    assert_string_equal(source(second, 1), "file");
    assert_true(json_number(second, "read") == json_number(first, "read"));
    assert_true(json_number(second, "reused") == json_number(first, "reused"));
    assert_true(cJSON_Compare(cJSON_GetObjectItem(first, "ids"), cJSON_GetObjectItem(second, "ids"), 1));
    cJSON_Delete(first);
    cJSON_Delete(second);
    run("run -m tiny --threads 1 --json -n 6 -p question --passage a.txt --cache q8 --passage-cache .");
    cJSON *other = json_line(0); /* what was kept is of another cache */
    assert_string_equal(source(other, 0), "read");
    cJSON_Delete(other);
}

static void wrong_wishes_are_refused(void **state)
{
    (void)state;
    run("run -m tiny -p x --passage nowhere.txt");
    assert_one_sentence("nowhere.txt");
    run("run -m tiny -p x --passage a.txt --compare where=causal");
    assert_one_sentence("--passage goes without");
    run("run -m tiny -p x --passage-cache .");
    assert_one_sentence("goes with --passage");
    run("run -m tiny -p x --passage b.txt --passage a.txt --attention \"cache=knorm(budget=20)\"");
    assert_one_sentence("cache policy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passages_are_read_once_for_all_runs),
        cmocka_unit_test(wrong_wishes_are_refused),
    };
    return cmocka_run_group_tests(tests, tiny_folder, tiny_folder_remove);
}
