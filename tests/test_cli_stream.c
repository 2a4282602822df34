/* heed perplexity --stream on a small model that reads characters: a text without end, by tenths. */
#include "support/json.h"
#include "support/program.h"
#include "support/small_tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static cJSON *stream(const char *options)
{
    run("perplexity -m tiny --threads 1 --json %s", options);
    if (ran.status)
        fail_msg("%s: %s", options, ran.err);
    return json_line(0);
}

static double of_tenth(const cJSON *line, int p, const char *name)
{
    return json_number(cJSON_GetArrayItem(cJSON_GetObjectItem(line, "parts"), p), name);
}

#define KEEPS "--attention \"cache=streaming(budget=64) > packed\" --context 256"

static void tenths_add_up_to_the_whole(void **state)
{
    (void)state;
    cJSON *line = stream("--stream 1000 " KEEPS);
    double read = 0.0, nll = 0.0, scored = 0.0;
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(line, "parts")), 10);
    for (int p = 0; p < 10; p++) {
        read += of_tenth(line, p, "read");
        scored += of_tenth(line, p, "scored");
        nll += of_tenth(line, p, "scored") * log(of_tenth(line, p, "perplexity"));
    }
    assert_true(read == 1000.0 && scored == 1000.0 && json_number(line, "scored") == 1000.0);
    assert_true(fabs(exp(nll / scored) / json_number(line, "perplexity") - 1.0) < 1e-9);
    cJSON *some = stream("--stream 1000 --score 10 " KEEPS);
    assert_true(json_number(some, "scored") == 100.0);
    cJSON_Delete(line);
    cJSON_Delete(some);
}

static void what_a_bounded_cache_holds_does_not_grow(void **state)
{
    (void)state;
    cJSON *line = stream("--stream 5000 --score 1 " KEEPS);
    for (int p = 1; p < 10; p++)
        assert_true(of_tenth(line, p, "cache_bytes") <= of_tenth(line, 0, "cache_bytes"));
    cJSON_Delete(line);
    assert_string_equal(ran.err, ""); /* keys move together: nothing lies farther back than the model knows */
    line = stream("--stream 5000 --score 1 --attention \"cache=streaming(budget=64)\" --context 256");
    assert_said(ran.err, "note: keys come to lie up to 5000 tokens behind their queries");
    cJSON_Delete(line);
}

static void a_part_in_a_file_changes_nothing(void **state)
{
    (void)state;
    const char *all = "--stream 3000 --score 100 --attention \"select=block_top(block=64, k=3)\"";
    cJSON *line = stream(all);
    const double whole = json_number(line, "perplexity");
    cJSON_Delete(line);
    char options[200];
    snprintf(options, sizeof options, "%s --cache-ram 300k", all);
    line = stream(options);
    assert_true(json_number(line, "perplexity") == whole);
    assert_true(of_tenth(line, 9, "cache_offloaded_bytes") > 0.0);
    assert_true(of_tenth(line, 9, "cache_bytes") - of_tenth(line, 9, "cache_offloaded_bytes") < 450e3);
    cJSON_Delete(line);
}

static void what_cannot_be_read_on_is_a_sentence(void **state)
{
    (void)state;
    run("perplexity -m tiny --stream 3000 --context 200");
    assert_one_sentence("needs more of a text than that");
    run("perplexity -m tiny");
    assert_one_sentence("a FILE is missing");
    run("perplexity -m tiny --stream 3000 --cache-ram 3x");
    assert_one_sentence("a size like 4096, 512M or 2G");
    run("perplexity -m tiny --stream 3000 --cache-file /var/tmp");
    assert_one_sentence("say how many");
    run("perplexity -m tiny --stream 3000 --cache-ram 2k");
    assert_one_sentence("so it must be at least");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tenths_add_up_to_the_whole),
        cmocka_unit_test(what_a_bounded_cache_holds_does_not_grow),
        cmocka_unit_test(a_part_in_a_file_changes_nothing),
        cmocka_unit_test(what_cannot_be_read_on_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, tiny_folder, tiny_folder_remove);
}
