/* heed run --session on small models with and without windows: of a prompt that was there before no more is
 * read than is new, and what follows is what it would have been.
 */
#include "support/json.h"
#include "support/program.h"
#include "support/small_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 3000, WINDOW = 8 };

static void write_prompt(const char *path, int64_t length, int64_t changed)
{
    char *text = malloc((size_t)length + 1);
    for (int64_t i = 0; i < length; i++)
        text[i] = (char)('a' + (i * 7 + i / 26 + (i >= length - changed ? 3 : 0)) % 26);
    text[length] = 0;
    write_text(path, text);
    free(text);
}

static cJSON *answer(const char *model, const char *path, const char *options)
{
    run("run -m %s --threads 1 --json -n 4 --context 4000 -f %s %s", model, path, options);
    if (ran.status)
        fail_msg("%s %s: %s", model, options, ran.err);
    return json_line(0);
}

/* Reads no more than `most` tokens, and writes what a run from nothing writes. */
static void expect(const char *model, const char *path, const char *spec, int64_t most)
{
    char options[256];
    snprintf(options, sizeof options, "--session kept.heed %s", spec);
    cJSON *line = answer(model, path, options), *fresh = answer(model, path, spec);
    if (json_number(line, "read") > (double)most)
        fail_msg("%s %s: %g tokens read of %s, %d expected at most", model, spec, json_number(line, "read"),
                 path, (int)most);
    assert_true(json_number(line, "read") + json_number(line, "reused") == json_number(fresh, "read"));
    assert_true(cJSON_Compare(cJSON_GetObjectItem(line, "ids"), cJSON_GetObjectItem(fresh, "ids"), 1));
    cJSON_Delete(line);
    cJSON_Delete(fresh);
}

static void only_what_is_new_is_read(void **state)
{
    (void)state;
    static const char *const models[] = {"plain", "windows"};
    write_prompt("prompt.txt", LONG, 0);
    write_prompt("longer.txt", LONG + 10, 0);
    write_prompt("changed.txt", LONG, 50);
    for (int m = 0; m < 2; m++) {
        remove("kept.heed");
        expect(models[m], "prompt.txt", "", LONG);
        expect(models[m], "prompt.txt", "", 1);
        expect(models[m], "longer.txt", "", 11);
        expect(models[m], "prompt.txt", "", 1);
        expect(models[m], "changed.txt", "", 50 + WINDOW);
    }
}

static void restoring_is_no_reading(void **state)
{
    (void)state;
    static const char *const specs[] = {"--cache q8", "--cache q4", "--attention \"cache=knorm(budget=200)\"",
                                        "--attention \"cache=snapkv(budget=200) > packed\"",
                                        "--attention \"where=causal & window(40)\""};
    write_prompt("prompt.txt", 600, 0);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        char options[256];
        remove("kept.heed");
        snprintf(options, sizeof options, "%s --session kept.heed", specs[i]);
        cJSON *line = answer("windows", "prompt.txt", options);
        char longer[800];
        FILE *file = fopen("prompt.txt", "r");
        assert_non_null(file);
        longer[fread(longer, 1, 600, file)] = 0;
        fclose(file);
        strcat(strcat(longer, cJSON_GetObjectItem(line, "text")->valuestring), "q");
        write_text("longer.txt", longer);
        const double written = json_number(line, "written");
        cJSON_Delete(line);
        line = answer("windows", "longer.txt", options);
        if (json_number(line, "read") > 1.0 || json_number(line, "reused") != 600.0 + written)
            fail_msg("%s: %g tokens read, %g reused", specs[i], json_number(line, "read"),
                     json_number(line, "reused"));
        cJSON_Delete(line);
    }
}

static void what_replaces_windows_of_the_model_is_said(void **state)
{
    (void)state;
    run("run -m windows -p a -n 1 --attention 'where=causal'");
    if (ran.status)
        fail_msg("%s", ran.err);
    assert_non_null(strstr(ran.err, "note: `where=causal` replaces the model's own `where=causal & window("));
    run("eval -m windows --length 256 --tasks text --spec 'layers 0: where=causal'");
    if (ran.status)
        fail_msg("%s", ran.err);
    assert_non_null(strstr(ran.err, "note: `layers 0: where=causal` replaces the model's own `where="));
    assert_non_null(strstr(ran.err, "in 1 of "));
    run("run -m windows -p a -n 1 --attention 'select=top_k(2)'");
    if (ran.status)
        fail_msg("%s", ran.err);
    assert_null(strstr(ran.err, "note:"));
}

static int make_folder(void **state)
{
    if (program_folder(state))
        return -1;
    make_model_with_tokenizer("plain", "llama");
    make_model_with_tokenizer("windows", "gemma3");
    return 0;
}

static int remove_folder(void **state)
{
    remove_model("plain");
    remove_model("windows");
    return program_folder_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_new_is_read),
        cmocka_unit_test(restoring_is_no_reading),
        cmocka_unit_test(what_replaces_windows_of_the_model_is_said),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
