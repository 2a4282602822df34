/* The commands that run a model, on the pretrained ones. */
#include "support/json.h"
#include "support/models.h"
#include "support/program.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool there(const char *name)
{
    if (fetched_model(name))
        return true;
    skip();
    return false;
}

/* The n-th line of the output as JSON. */
static cJSON *line_of(int n)
{
    const char *at = ran.out;
    for (; n > 0 && at; n--) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    assert_non_null(at);
    cJSON *object = cJSON_ParseWithLength(at, strcspn(at, "\n"));
    assert_non_null(object);
    return object;
}

static void logits_name_the_likeliest_tokens(void **state)
{
    (void)state;
    if (!there("smollm2.gguf"))
        return;
    run("logits -m smollm2 -p 'The capital of France is' --top 3 --json --positions all");
    assert_int_equal(ran.status, 0);
    for (int i = 0; i < 5; i++) {
        cJSON *line = line_of(i);
        const cJSON *next = cJSON_GetObjectItem(line, "next");
        assert_int_equal(json_number(line, "position"), i);
        assert_int_equal(cJSON_GetArraySize(next), 3);
        assert_true(json_number(cJSON_GetArrayItem(next, 0), "logprob") <= 0.0);
        assert_true(json_number(cJSON_GetArrayItem(next, 0), "logprob") >=
                    json_number(cJSON_GetArrayItem(next, 1), "logprob"));
        if (i == 4)
            assert_string_equal(cJSON_GetObjectItem(cJSON_GetArrayItem(next, 0), "text")->valuestring,
                                " Paris");
        cJSON_Delete(line);
    }
    run("logits -m smollm2 -p 'The capital of France is' --positions 5");
    assert_one_sentence("there is no position 5, the text has 5 tokens");
    run("logits -m minilm -p hello");
    assert_one_sentence("`heed embed`");
    run("logits -p hello");
    assert_one_sentence("-m MODEL is missing");
    run("logits -m smollm2 -p hello --attention 'where=windw(4)'");
    assert_one_sentence("the nearest is 'window'");
}

/* A text of numbers, longer than `words` words. */
static void write_words(const char *path, int words)
{
    FILE *file = fopen(path, "w");
    for (int i = 0; i < words; i++)
        fprintf(file, "%s%d", i % 12 ? " and then " : "\nIt was ", i);
    fclose(file);
}

static void perplexity_scores_second_halves(void **state)
{
    (void)state;
    if (!there("gemma3.gguf"))
        return;
    write_words("text.txt", 200);
    run("perplexity -m gemma3 text.txt --context 64 --json");
    assert_int_equal(ran.status, 0);
    cJSON *line = line_of(0);
    const double windows = json_number(line, "windows");
    assert_true(windows >= 5);
    assert_true(json_number(line, "scored") == windows * 31);
    assert_true(json_number(line, "read") == windows * 64);
    assert_true(json_number(line, "perplexity") > 1.0 && json_number(line, "perplexity") < 20.0);
    assert_true(fabs(exp(json_number(line, "nll")) - json_number(line, "perplexity")) < 1e-9);
    cJSON_Delete(line);
    run("perplexity -m gemma3 text.txt --context 30000");
    assert_one_sentence("a window takes 30000");
    run("perplexity -m gemma3 missing.txt");
    assert_one_sentence("missing.txt: cannot be opened");
}

enum { WIDTH = 384 };

static void read_vector(int n, double *vector, cJSON **object)
{
    cJSON *line = line_of(n);
    const cJSON *item = cJSON_GetObjectItem(line, "embedding")->child;
    for (int d = 0; d < WIDTH; d++, item = item->next)
        vector[d] = item->valuedouble;
    if (object)
        *object = line;
    else
        cJSON_Delete(line);
}

static double dot(const double *a, const double *b)
{
    double sum = 0.0;
    for (int d = 0; d < WIDTH; d++)
        sum += a[d] * b[d];
    return sum;
}

static void embeddings_are_unit_vectors_and_raw_ones_their_multiples(void **state)
{
    (void)state;
    if (!there("minilm"))
        return;
    double unit[WIDTH], raw[WIDTH];
    run("embed -m minilm -p hello --json");
    read_vector(0, unit, NULL);
    run("embed -m minilm -p hello --json --raw");
    read_vector(0, raw, NULL);
    assert_true(fabs(dot(unit, unit) - 1.0) < 1e-6);
    assert_true(fabs(dot(unit, raw) - sqrt(dot(raw, raw))) < 1e-5 * sqrt(dot(raw, raw)));
    assert_true(fabs(dot(raw, raw) - 1.0) > 1e-2);
}

static void accents_do_not_make_strangers(void **state)
{
    (void)state;
    if (!there("minilm"))
        return;
    double a[WIDTH], b[WIDTH], c[WIDTH], d[WIDTH];
    FILE *file = fopen("words.txt", "w");
    fputs("Hokkaid\xc5\x8d\nHokkaido\nT\xc5\x8dky\xc5\x8d\n\xc5\xa0koda\n\n", file);
    fclose(file);
    run("embed -m minilm --json -f words.txt");
    read_vector(0, a, NULL);
    read_vector(1, b, NULL);
    read_vector(2, c, NULL);
    read_vector(3, d, NULL);
    assert_true(dot(a, b) > 1.0 - 1e-6);
    assert_true(dot(c, d) < 0.6);
    cJSON *empty;
    read_vector(4, a, &empty); /* an empty line has a vector of the two ends */
    assert_int_equal(json_number(empty, "tokens"), 2);
    assert_true(fabs(dot(a, a) - 1.0) < 1e-6);
    cJSON_Delete(empty);
}

static void long_lines_are_cut_and_say_so(void **state)
{
    (void)state;
    if (!there("minilm"))
        return;
    FILE *file = fopen("lines.txt", "w");
    static const int lengths[] = {1, 254, 255, 700};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int w = 0; w < lengths[i]; w++)
            fputs(w % 2 ? "tree " : "house ", file);
        fputc('\n', file);
    }
    fclose(file);
    run("embed -m minilm -f lines.txt --json");
    assert_int_equal(ran.status, 0);
    double vector[WIDTH];
    for (int i = 0; i < 4; i++) {
        cJSON *line;
        read_vector(i, vector, &line);
        assert_int_equal(json_number(line, "tokens"), i == 0 ? 3 : 256);
        assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(line, "truncated")), i >= 2);
        assert_int_equal(json_number(line, "dropped"), i == 2 ? 1 : i == 3 ? 446 : 0);
        cJSON_Delete(line);
    }
    run("embed -m minilm -f lines.txt --truncate error");
    assert_int_equal(ran.status, 2);
    assert_said(ran.err, "line 3 has 257 tokens, the most is 256");
}

static void a_batch_and_its_order_change_no_bit(void **state)
{
    (void)state;
    if (!there("minilm"))
        return;
    enum { LINES = 90 };
    FILE *up = fopen("up.txt", "w"), *down = fopen("down.txt", "w");
    for (int i = 0; i < LINES; i++)
        for (int w = 0; w < 2; w++) {
            const int length = (w ? LINES - 1 - i : i) * 7 % 40;
            for (int k = 0; k <= length; k++)
                fprintf(w ? down : up, "word%d ", (w ? LINES - 1 - i : i) * 13 % 50 + k);
            fputc('\n', w ? down : up);
        }
    fclose(up);
    fclose(down);
    run("embed -m minilm -f up.txt --threads 1 > a; " HEED_PROGRAM
        " embed -m minilm -f down.txt --threads 2 | tac > b; " HEED_PROGRAM
        " embed -m minilm -p \"$(sed -n 33p up.txt)\" > c; sed -n 33p a | cmp - c && cmp a b");
    if (ran.status)
        fail_msg("%s%s", ran.out, ran.err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_name_the_likeliest_tokens),
        cmocka_unit_test(perplexity_scores_second_halves),
        cmocka_unit_test(embeddings_are_unit_vectors_and_raw_ones_their_multiples),
        cmocka_unit_test(accents_do_not_make_strangers),
        cmocka_unit_test(long_lines_are_cut_and_say_so),
        cmocka_unit_test(a_batch_and_its_order_change_no_bit),
    };
    if (!fetched_model("smollm2.gguf") && !fetched_model("gemma3.gguf") && !fetched_model("minilm"))
        return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
