/* heed map: weights as the reference has them, pictures and summaries. */
#include "support/golden.h"
#include "support/models.h"
#include "support/program.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT "The cat sat on the mat because it was tired."

static char model[4200];

static void weights_are_those_of_the_reference(void **state)
{
    (void)state;
    golden reference;
    assert_true(golden_read(&reference, HEED_TEST_DATA "/golden/maps/smollm2.safetensors"));
    const golden_tensor *ids = golden_find(&reference, "ids"), *expected = golden_find(&reference, "weights");
    run("map -m %s -p \"" TEXT "\" --layer 3,10 --head 0,2,8 --exact --cache f32 -o maps.safetensors", model);
    if (ran.status)
        fail_msg("%s", ran.err);
    int64_t count, n;
    float *tokens = read_values("maps.safetensors", "tokens", &n);
    assert_int_equal(n, ids->count);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal((int32_t)tokens[i], ((const int32_t *)ids->data)[i]);
    const int64_t shape[] = {2, 3, n, n};
    assert_tensor("maps.safetensors", "weights", 4, shape);
    float *weights = read_values("maps.safetensors", "weights", &count);
    float *entropy = read_values("maps.safetensors", "entropy", NULL);
    float *received = read_values("maps.safetensors", "received", NULL);
    const float *reference_weights = expected->data;
    assert_int_equal(count, expected->count);
    for (int64_t m = 0; m < 6; m++)
        for (int64_t i = 0; i < n; i++) {
            double sum = 0.0, nats = 0.0, column = 0.0;
            for (int64_t j = 0; j < n; j++) {
                const double w = (double)weights[(m * n + i) * n + j];
                const double apart = fabs(w - (double)reference_weights[(m * n + i) * n + j]);
                if (apart > 1e-4)
                    fail_msg("map %lld, query %lld, key %lld: %g apart", (long long)m, (long long)i,
                             (long long)j, apart);
                if (j > i)
                    assert_true(w == 0.0);
                sum += w;
                nats -= w > 0.0 ? w * log(w) : 0.0;
                column += (double)weights[(m * n + j) * n + i];
            }
            assert_true(fabs(sum - 1.0) < 1e-5);
            assert_true(fabs(nats - (double)entropy[m * n + i]) < 1e-4);
            assert_true(fabs(column - (double)received[m * n + i]) < 1e-4);
        }
    free(tokens);
    free(weights);
    free(entropy);
    free(received);
    golden_free(&reference);
}

static void numbers_are_written_for_numpy(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *shape;
    } cases[] = {{"--layer 3 --head 2", "'shape': (11, 11), "},
                 {"--layer 10 --layer 3 --head 2 --head 0,1", "'shape': (2, 3, 11, 11), "},
                 {"--layer 3,10 --head 0-2", "'shape': (2, 3, 11, 11), "}};
    for (int i = 0; i < 2; i++) {
        char header[128];
        run("map -m %s -p \"" TEXT "\" %s -o map.npy", model, cases[i].arguments);
        if (ran.status)
            fail_msg("%s", ran.err);
        FILE *file = fopen("map.npy", "rb");
        header[fread(header, 1, sizeof header - 1, file)] = 0;
        fclose(file);
        assert_said(header + 10, cases[i].shape);
    }
}

static void pictures_are_drawn(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "--layer 3 --head 2 -o map.png",
        "--layer 3 --head 2 -o map.svg",
        "-o map.png",
        "--layer 3 --head 2 --grid -o map.png",
        "--tokens -o map.svg",
        "--attention \"where=causal & window(4)\" --layer 3 --head 2 -o map.png"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run("map -m %s -p \"" TEXT " \xe6\x97\xa5 \xf0\x9f\x98\x80\" %s", model, cases[i]);
        if (ran.status)
            fail_msg("%s: %s", cases[i], ran.err);
        assert_said(ran.out, "map.");
    }
}

static void a_summary_needs_no_weights(void **state)
{
    (void)state;
    run("map -m %s -p \"" TEXT "\" --layer 3 --head 4 --summary --json", model);
    assert_int_equal(ran.status, 0);
    cJSON *root = cJSON_Parse(ran.out);
    assert_non_null(root);
    assert_int_equal(cJSON_GetObjectItem(root, "read")->valueint, 11);
    assert_int_equal(cJSON_GetObjectItem(root, "head")->valueint, 4);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "received")), 11);
    cJSON_Delete(root);
    run("map -m %s -p \"" TEXT "\" --layer 3 --summary -o map.safetensors", model);
    assert_int_equal(ran.status, 0);
    assert_true(has_tensor("map.safetensors", "entropy"));
    assert_false(has_tensor("map.safetensors", "weights"));
    run("map -m %s -p \"" TEXT "\" --layer 3 --head 4 --summary", model);
    assert_said(ran.out, "0 'The'");
}

static void wrong_wishes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *words;
    } cases[] = {{"--layer 30 -o m.png", "30"},
                 {"--head 3-1 -o m.png", "3-1"},
                 {"--head x -o m.png", "x"},
                 {"-o map.gif", "the name must end in .png, .svg, .npy or .safetensors"},
                 {"-o map.npy --tokens", "a .npy file holds weights"},
                 {"", "where to? give -o FILE"},
                 {"-o no/map.png", "cannot be written: No such file or directory"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run("map -m %s -p hello %s", model, cases[i].arguments);
        assert_one_sentence(cases[i].words);
    }
    run("map -m %s -p '' -o m.png", model);
    assert_one_sentence("the text has no tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_of_the_reference),
        cmocka_unit_test(numbers_are_written_for_numpy),
        cmocka_unit_test(pictures_are_drawn),
        cmocka_unit_test(a_summary_needs_no_weights),
        cmocka_unit_test(wrong_wishes_are_refused),
    };
    const char *fetched = fetched_model("smollm2.gguf");
    if (!fetched)
        return TEST_SKIPPED;
    snprintf(model, sizeof model, "%s", fetched);
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
