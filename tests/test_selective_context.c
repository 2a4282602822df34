/* What of a text a model expects, and what is left of it. */
#include "eval/selective.h"
#include "support/json.h"
#include "support/program.h"
#include "support/small_tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char text[] =
    "The keeper of the lamp wrote. He saw a ship, and the keeper of the lamp wrote down its "
    "name!\nNothing else came that day; nothing else came that night.";

static heed_model *open_tiny(const char *path)
{
    heed_model *model = NULL;
    if (heed_model_open(&model, path, &(heed_model_options){.exact = true, .threads = 1}))
        fail_msg("%s", heed_message());
    return model;
}

static heed_selection select_of(const heed_selective *wanted, const char *from)
{
    heed_selection s;
    if (heed_select_context(&s, wanted, from, strlen(from)))
        fail_msg("%s", heed_message());
    return s;
}

/* -log p of every token of a sequence that follows another, in double. */
static double naive_information(const heed_model *model, const int32_t *tokens, int64_t count)
{
    heed_model_info info;
    heed_model_get_info(model, &info);
    const size_t vocabulary = (size_t)info.vocabulary;
    float *logits = malloc((size_t)count * vocabulary * sizeof *logits);
    heed_session *session = NULL;
    double sum = 0;
    assert_int_equal(heed_session_create(&session, model, &(heed_session_options){.threads = 1}), HEED_OK);
    assert_int_equal(heed_feed(session, &(heed_feed_item){.tokens = tokens, .count = count}, 1,
                               &(heed_feed_wants){.logits = logits, .all_logits = true}),
                     HEED_OK);
    for (int64_t t = 0; t + 1 < count; t++) {
        double all = 0;
        for (size_t i = 0; i < vocabulary; i++)
            all += exp((double)logits[(size_t)t * vocabulary + i]);
        sum += log(all) - (double)logits[(size_t)t * vocabulary + (size_t)tokens[t + 1]];
    }
    heed_session_free(session);
    free(logits);
    return sum;
}

static void information_of_units_adds_up_to_that_of_the_text(void **state)
{
    (void)state;
    heed_model *model = open_tiny("tiny");
    heed_tokens tokens = {0};
    assert_int_equal(
        heed_tokenize(heed_model_tokenizer(model), text, strlen(text), HEED_ADD_SPECIAL, &tokens), HEED_OK);
    const double expected = naive_information(model, tokens.id, tokens.count);
    for (int unit = 0; unit < 3; unit++)
        for (int64_t window = 40; window <= 1000; window += 960) {
            const heed_selective wanted = {
                .model = model, .drop = 50, .unit = (heed_unit_kind)unit, .window = window, .threads = 1};
            heed_selection s = select_of(&wanted, text);
            double sum = 0, kept = 0;
            int64_t next = 0;
            for (int64_t u = 0; u < s.units; u++) {
                assert_int_equal(s.unit[u].first, next);
                next += s.unit[u].count;
                sum += s.unit[u].information;
                kept += s.unit[u].stays ? s.unit[u].information : 0;
            }
            assert_int_equal(next, tokens.count);
            assert_true(fabs(sum - s.all) < 1e-9 * sum && fabs(kept - s.kept) < 1e-9 * sum);
            if (window > tokens.count && !(fabs(sum - expected) <= 1e-4 * expected))
                fail_msg("units say %.9g nats, the text %.9g", sum, expected);
            heed_selection_free(&s);
        }
    heed_tokens_free(&tokens);
    heed_model_close(model);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void units_from_the_percentile_on_stay_in_order(void **state)
{
    (void)state;
    heed_model *model = open_tiny("tiny");
    for (int unit = 0; unit < 3; unit++)
        for (int drop = 0; drop <= 100; drop += 25)
            for (int measure = 0; measure < 3; measure++) {
                const heed_selective wanted = {.model = model,
                                               .drop = drop,
                                               .unit = (heed_unit_kind)unit,
                                               .measure = (heed_unit_measure)measure,
                                               .seed = 5,
                                               .threads = 1};
                heed_selection s = select_of(&wanted, text);
                const double share = 1.0 - drop / 100.0;
                assert_true(fabs((double)s.kept_units - share * (double)s.units) <= 1.0 + 1e-9);
                if (drop == 0)
                    assert_string_equal(s.text, text);
                double value[200];
                for (int64_t u = 0; u < s.units; u++)
                    value[u] =
                        s.unit[u].information / (measure == HEED_BY_MEAN ? (double)s.unit[u].count : 1.0);
                double sorted[200];
                memcpy(sorted, value, (size_t)s.units * sizeof *value);
                qsort(sorted, (size_t)s.units, sizeof *sorted, ascending);
                const double at = drop / 100.0 * (double)(s.units - 1), low = sorted[(int)floor(at)],
                             high = sorted[(int)ceil(at)], least = low + (at - floor(at)) * (high - low);
                size_t size = 0;
                for (int64_t u = 0; u < s.units; u++) {
                    if (measure != HEED_BY_LOT && fabs(value[u] - least) > 1e-9)
                        assert_int_equal(s.unit[u].stays, value[u] > least);
                    if (s.unit[u].stays)
                        assert_memory_equal(s.text + size, text + s.unit[u].at, s.unit[u].size);
                    size += s.unit[u].stays ? s.unit[u].size : 0;
                }
                assert_int_equal(size, s.size);
                heed_selection_free(&s);
            }
    heed_model_close(model);
}

/* A token a word and the space before it, and a token a sign. */
static void phrases_and_sentences_are_cut_where_people_would(void **state)
{
    (void)state;
    static const char *const token[] = {"The", " old", " keeper", " of", " the", " lamp", " wrote",
                                        ".",   " He",  " saw",    " it", ",",    " a",    " ship",
                                        "\n",  "Then", " 3",      ".",   "14",   " was",  " nothing"};
    static const char phrase[] = "100100001010100100010", sentence[] = "100000001000000100000";
    enum { COUNT = sizeof token / sizeof *token };
    char all[200] = "";
    size_t at[COUNT + 1];
    uint8_t start[COUNT];
    for (int t = 0; t < COUNT; t++) {
        at[t] = strlen(all);
        strcat(all, token[t]);
    }
    at[COUNT] = strlen(all);
    for (int kind = HEED_UNIT_PHRASE; kind <= HEED_UNIT_SENTENCE; kind++) {
        heed_cut_units((heed_unit_kind)kind, all, at, COUNT, start);
        for (int t = 0; t < COUNT; t++)
            if (start[t] != (kind == HEED_UNIT_PHRASE ? phrase : sentence)[t] - '0')
                fail_msg("kind %d: '%s' (token %d) is %d", kind, token[t], t, start[t]);
    }
}

static void heed_run_leaves_out_what_is_expected(void **state)
{
    (void)state;
    write_text("story.txt", text);
    run("run -m tiny --threads 1 --json -n 2 -f story.txt --selective 40 --question \" Who?\"");
    cJSON *line = json_line(0), *said = cJSON_GetObjectItem(line, "selective");
    assert_non_null(said);
    const double tokens = json_number(said, "tokens"), kept = json_number(said, "kept_tokens");
    assert_true(kept < tokens && kept > 0);
    assert_true(json_number(line, "read") >= kept + 5 && json_number(line, "read") <= kept + 6);
    assert_true(json_number(said, "kept_information") < json_number(said, "information"));
    assert_null(strstr(cJSON_GetObjectItem(said, "text")->valuestring, "Who"));
    cJSON_Delete(line);
    run("run -m tiny -f story.txt --selective 101");
    assert_one_sentence("--selective");
    run("run -m tiny -f story.txt --selective-model tiny");
    assert_one_sentence("goes with --selective");
    run("run -m tiny --chat -p x --selective 50");
    assert_one_sentence("without --chat");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(information_of_units_adds_up_to_that_of_the_text),
        cmocka_unit_test(units_from_the_percentile_on_stay_in_order),
        cmocka_unit_test(phrases_and_sentences_are_cut_where_people_would),
        cmocka_unit_test(heed_run_leaves_out_what_is_expected),
    };
    return cmocka_run_group_tests(tests, tiny_folder, tiny_folder_remove);
}
