/* The program as a person meets it: commands, options, files, sentences and exit statuses. */
#include "support/program.h"

#include <cjson/cJSON.h>
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void nothing_help_and_version_are_answered(void **state)
{
    (void)state;
    run("--version");
    assert_int_equal(ran.status, 0);
    assert_string_equal(ran.out, "heed 0.1.0\n");
    run("%s", "");
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "attend");
    run("help forms");
    assert_said(ran.out, "heed forms where");
    run("attend --help");
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "--backward");
}

/* The lines below "example", with this build's program for `heed`. */
static void examples_of_the_help_work_when_pasted(void **state)
{
    (void)state;
    static const char *const commands[] = {"attend", "explain", "forms", "random", "info", "convert", "help"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        run("help %s", commands[i]);
        assert_int_equal(ran.status, 0);
        static char help[sizeof ran.out];
        strcpy(help, ran.out);
        char *line = strstr(help, "\nexample\n");
        assert_non_null(line);
        int lines = 0;
        for (line = strtok(line + 9, "\n"); line; line = strtok(NULL, "\n")) {
            assert_int_equal(strncmp(line, "    heed ", 9), 0);
            char command[600];
            snprintf(command, sizeof command, "%s", line + 9);
            run("%s", command);
            if (ran.status)
                fail_msg("heed %s: status %d: %s", command, ran.status, ran.err);
            lines++;
        }
        assert_true(lines > 0);
    }
}

static void wrong_usage_ends_with_2_and_one_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *words;
    } cases[] = {
        {"atend", "the nearest is 'attend'"},
        {"help atend", "the nearest is 'attend'"},
        {"attend", "an argument is missing"},
        {"attend '' in.safetensors", "-o FILE is missing"},
        {"attend '' in.safetensors extra -o x", "one argument too many"},
        {"attend '' in.safetensors -o", "--output needs a value"},
        {"attend '' in.safetensors -o x --kvv q8", "unknown option '--kvv'; the nearest is 'kv'"},
        {"attend '' in.safetensors -o x -q", "unknown option '-q'"},
        {"attend '' in.safetensors -o x --kv q5", "--kv q5: unknown; the nearest is 'q"},
        {"attend '' in.safetensors -o x --weights=1", "--weights takes no value"},
        {"attend '' in.safetensors -o x --threads 0", "from 1 to 1024"},
        {"attend '' in.safetensors -o x --threads -1", "from 1 to 1024"},
        {"attend '' in.safetensors -o x --threads 1025", "from 1 to 1024"},
        {"attend '' in.safetensors -o x --threads 99999999999999999999", "from 1 to 1024"},
        {"attend '' in.safetensors -o x --threads 2.5", "from 1 to 1024"},
        {"attend '' in.safetensors -o x --threads 2x", "from 1 to 1024"},
        {"attend '' in.safetensors -o x --isa avx", "--isa avx: unknown"},
        {"attend '' in.safetensors -o x --kernel fast", "--kernel fast: unknown"},
        {"attend '' missing.safetensors -o x", "missing.safetensors: cannot be opened: No such file"},
        {"attend 'where=casual' in.safetensors -o x", "'casual'"},
        {"explain 'where=window(-3)'", "window"},
        {"explain '' --shape heads=0", "heads"},
        {"explain '' --shape heads=3,kv_heads=2", "heads is 3"},
        {"explain '' --shape head=3", "unknown size 'head'; the nearest is 'heads'"},
        {"explain '' --shape heads", "must be name=size"},
        {"explain '' --shape heads=2,heads=2", "twice"},
        {"explain '' --shape heads=2,", "must be name=size"},
        {"forms rpoe", "the nearest is 'rope'"},
        {"forms --json rope", "each by itself"},
        {"random x.safetensors --type q8", "--type q8: unknown"},
        {"random nowhere/x.safetensors", "nowhere/x.safetensors: cannot be written"},
    };
    make_plain_input();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run("%s", cases[i].arguments);
        assert_one_sentence(cases[i].words);
    }
    run("attend '' in.safetensors -o \"two\nlines/x\"");
    assert_one_sentence("cannot be written");
}

static void forms_lists_every_form_in_every_way(void **state)
{
    (void)state;
    run("forms");
    static char listing[sizeof ran.out];
    strcpy(listing, ran.out);
    run("forms --reference");
    static char reference[sizeof ran.out];
    strcpy(reference, ran.out);
    run("forms --json");
    cJSON *root = cJSON_Parse(ran.out), *stage, *form;
    assert_non_null(root);
    int count = 0;
    cJSON_ArrayForEach(stage, cJSON_GetObjectItem(root, "stages"))
    {
        const char *stage_name = cJSON_GetObjectItem(stage, "name")->valuestring;
        cJSON_ArrayForEach(form, cJSON_GetObjectItem(stage, "forms"))
        {
            const char *name = cJSON_GetObjectItem(form, "name")->valuestring;
            char text[200];
            snprintf(text, sizeof text, "\n  %s ", name);
            assert_said(listing, text);
            snprintf(text, sizeof text, "### %s=%s\n", stage_name, name);
            assert_said(reference, text);
            run("forms %s=%s", stage_name, name);
            assert_int_equal(ran.status, 0);
            assert_said(ran.out, cJSON_GetObjectItem(form, "summary")->valuestring);
            count++;
        }
    }
    cJSON_ArrayForEach(form, cJSON_GetObjectItem(root, "combinations"))
    {
        run("forms %s", cJSON_GetObjectItem(form, "name")->valuestring);
        assert_int_equal(ran.status, 0);
        assert_said(ran.out, "stands for");
    }
    assert_true(count > 30);
    cJSON_Delete(root);
    run("forms where");
    assert_said(ran.out, "causal");
    assert_null(strstr(ran.out, "rope"));
}

static void the_reference_in_docs_is_what_the_program_writes(void **state)
{
    (void)state;
    run("forms --reference");
    write_text("forms.md", ran.out);
    if (!same_file("forms.md", HEED_TEST_DATA "/../docs/forms.md"))
        fail_msg("docs/forms.md is out of date: heed forms --reference > docs/forms.md");
}

static void explain_says_the_canonical_spec_and_the_kernel(void **state)
{
    (void)state;
    run("explain 'where = window( 5 )&causal' --shape queries=64,heads=2 --threads 1");
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "where=window(w=5) & causal\n");
    run("explain 'where=causal' --shape batch=2,queries=64,heads=3,dim=16,value_dim=8 --json");
    cJSON *root = cJSON_Parse(ran.out);
    assert_non_null(root);
    assert_string_equal(cJSON_GetObjectItem(root, "spec")->valuestring, "where=causal");
    assert_true(cJSON_GetObjectItem(root, "open_pairs")->valuedouble == 2 * 3 * 64 * 65 / 2);
    assert_true(cJSON_GetObjectItem(root, "flops")->valuedouble == 2.0 * 3 * 64 * 65 / 2 * 2 * (16 + 8));
    assert_non_null(strstr("flash rows sparse decode", cJSON_GetObjectItem(root, "kernel")->valuestring));
    cJSON_Delete(root);
    run("explain 'position=t5(buckets=8)' --shape heads=2 --json");
    root = cJSON_Parse(ran.out);
    const cJSON *param = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "parameters"), 0);
    assert_string_equal(cJSON_GetObjectItem(param, "name")->valuestring, "position.t5.b");
    assert_true(cJSON_GetArrayItem(cJSON_GetObjectItem(param, "shape"), 1)->valuedouble == 8);
    cJSON_Delete(root);
    run("explain 'where=mask & segments' --shape queries=64");
    assert_int_equal(ran.status, 0);
}

static void random_files_repeat_with_their_seed_and_suit_the_spec(void **state)
{
    (void)state;
    const char *spec = "position=t5 + kerple; where=mask & segments; score=bilinear";
    run("random a.safetensors --shape heads=2,queries=9,keys=12,dim=8 --spec '%s' --backward --type bf16",
        spec);
    assert_int_equal(ran.status, 0);
    run("random b.safetensors --shape heads=2,queries=9,keys=12,dim=8 --spec '%s' --backward --type bf16",
        spec);
    assert_true(same_file("a.safetensors", "b.safetensors"));
    run("random b.safetensors --shape heads=2,queries=9,keys=12,dim=8 --spec '%s' --backward --type bf16 "
        "--seed 1",
        spec);
    assert_false(same_file("a.safetensors", "b.safetensors"));
    run("attend '%s' a.safetensors -o out.safetensors --backward", spec);
    if (ran.status)
        fail_msg("%s", ran.err);
    assert_string_equal(ran.err, "");
    assert_tensor("out.safetensors", "d.position.t5.b", 2, (int64_t[]){2, 32});
    assert_tensor("out.safetensors", "d.position.kerple.r1", 1, (int64_t[]){2});
    assert_tensor("out.safetensors", "d.score.bilinear.W", 3, (int64_t[]){2, 8, 8});
}

static void a_recurrence_runs_on_a_file_and_goes_on_from_its_state(void **state)
{
    (void)state;
    int64_t count;
    run("random gates.safetensors --shape heads=2,queries=5,dim=4 --spec scan=rwkv7 --backward");
    assert_tensor("gates.safetensors", "gate", 4, (int64_t[]){1, 2, 5, 4});
    run("scan scan=rwkv7 gates.safetensors -o all.safetensors --backward");
    assert_int_equal(ran.status, 0);
    assert_tensor("all.safetensors", "out", 4, (int64_t[]){1, 2, 5, 4});
    assert_tensor("all.safetensors", "state", 3, (int64_t[]){1, 2, 16});
    assert_tensor("all.safetensors", "drate", 4, (int64_t[]){1, 2, 5, 4});
    float *out = read_values("all.safetensors", "out", &count);
    for (int64_t i = 0; i < count; i++)
        assert_true(isfinite(out[i]));
    free(out);
    run("random slots.safetensors --shape heads=2,queries=5,dim=4 --spec \"scan=gsa(slots=3)\"");
    assert_tensor("slots.safetensors", "gate", 4, (int64_t[]){1, 2, 5, 3});
    run("scan \"scan=gsa(slots=3)\" slots.safetensors -o all.safetensors");
    assert_int_equal(ran.status, 0);
    run("scan scan=gated_delta gates.safetensors -o other.safetensors");
    assert_one_sentence("reads decay, which is missing");
    run("scan where=causal gates.safetensors -o other.safetensors");
    assert_one_sentence("no clause scan=");
    run("scan scan=rwkv7 gates.safetensors");
    assert_one_sentence("-o FILE is missing");
    run("attend scan=rwkv7 gates.safetensors -o other.safetensors");
    assert_one_sentence("heed scan");
    assert_false(exists("other.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_help_and_version_are_answered),
        cmocka_unit_test(examples_of_the_help_work_when_pasted),
        cmocka_unit_test(wrong_usage_ends_with_2_and_one_sentence),
        cmocka_unit_test(forms_lists_every_form_in_every_way),
        cmocka_unit_test(the_reference_in_docs_is_what_the_program_writes),
        cmocka_unit_test(explain_says_the_canonical_spec_and_the_kernel),
        cmocka_unit_test(random_files_repeat_with_their_seed_and_suit_the_spec),
        cmocka_unit_test(a_recurrence_runs_on_a_file_and_goes_on_from_its_state),
    };
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
