/* Fragments of a text that are hidden, restored, put shortly and searched. */
#include "eval/sculptor.h"
#include "support/json.h"
#include "support/program.h"
#include "support/small_tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char text[] = "Oslo: red\nRome: blue\nOslo: green\nthe sea is wide\nRome: grey\n";

static void must(heed_status status)
{
    if (status)
        fail_msg("%s", heed_message());
}

typedef struct setting {
    heed_model *model;
    heed_model_info info;
    heed_tokens question;
    float *logits[2];
} setting;

static void open_setting(setting *s)
{
    *s = (setting){.model = NULL};
    must(heed_model_open(&s->model, "tiny", &(heed_model_options){.exact = true, .threads = 1}));
    heed_model_get_info(s->model, &s->info);
    must(heed_tokenize(heed_model_tokenizer(s->model), "Oslo:", 5, 0, &s->question));
    for (int i = 0; i < 2; i++)
        s->logits[i] = malloc((size_t)s->info.vocabulary * sizeof(float));
}

static void close_setting(setting *s)
{
    heed_tokens_free(&s->question);
    heed_model_close(s->model);
    free(s->logits[0]);
    free(s->logits[1]);
}

static heed_sculptor *sculptor_of(const setting *s, const char *from, int64_t fragment)
{
    heed_sculptor *sculptor;
    must(heed_sculptor_create(
        &sculptor, s->model,
        &(heed_sculptor_options){.text = from, .fragment = fragment, .room = 40, .threads = 1}));
    return sculptor;
}

static void ask(const setting *s, heed_sculptor *sculptor, float *logits)
{
    must(heed_sculptor_ask(sculptor, s->question.id, s->question.count, logits));
}

static bool same(const setting *s)
{
    return !memcmp(s->logits[0], s->logits[1], (size_t)s->info.vocabulary * sizeof(float));
}

static void what_is_restored_gives_the_same_bits(void **state)
{
    (void)state;
    setting s;
    open_setting(&s);
    heed_sculptor *sculptor = sculptor_of(&s, text, 0);
    assert_int_equal(heed_sculptor_fragments(sculptor), 5);
    ask(&s, sculptor, s.logits[0]);
    must(heed_sculptor_hide(sculptor, 0));
    must(heed_sculptor_hide(sculptor, 3));
    ask(&s, sculptor, s.logits[1]);
    assert_false(same(&s));
    must(heed_sculptor_restore(sculptor, 3));
    must(heed_sculptor_restore(sculptor, 0));
    ask(&s, sculptor, s.logits[1]);
    assert_true(same(&s));
    must(heed_sculptor_summarise(sculptor, 1, "Rome: red\n"));
    ask(&s, sculptor, s.logits[1]);
    assert_false(same(&s));
    must(heed_sculptor_restore(sculptor, 1));
    ask(&s, sculptor, s.logits[1]);
    assert_true(same(&s));
    heed_sculptor_free(sculptor);
    close_setting(&s);
}

/* Keys that every head of every layer sees while the question is read. */
static void note(void *context, int64_t layer, int64_t sequence, const heed_weights_tile *tile)
{
    double *seen = context; /* by key, as the sequence holds them */
    (void)layer;
    (void)sequence;
    for (int r = 0; r < tile->rows; r++)
        for (int j = 0; j < tile->cols; j++)
            seen[tile->key0 + j] += tile->weight[r * tile->stride + j];
}

/* Hidden keys are not there: the others stand where they stood, and all weight is theirs. */
static void a_hidden_fragment_receives_nothing(void **state)
{
    (void)state;
    setting s;
    open_setting(&s);
    heed_tokens tokens = {0};
    must(heed_tokenize(heed_model_tokenizer(s.model), text, strlen(text), HEED_ADD_SPECIAL, &tokens));
    heed_session *session;
    must(heed_session_create(
        &session, s.model,
        &(heed_session_options){
            .context = 200, .threads = 1, .attention = "cache=fifo(share=1)", .with = HEED_WITH_WEIGHTS}));
    must(heed_feed(session, &(heed_feed_item){.tokens = tokens.id, .count = tokens.count}, 1, NULL));
    must(heed_session_hide(session, 0, 5, 20));
    must(heed_session_hide(session, 0, 30, 0));
    assert_int_equal(heed_session_length(session, 0), tokens.count);
    double seen[200] = {0};
    must(heed_feed(session, &(heed_feed_item){.tokens = s.question.id, .count = s.question.count}, 1,
                   &(heed_feed_wants){.weights = note, .context = seen}));
    const int64_t held = tokens.count - 20 + s.question.count;
    double all = 0;
    for (int64_t l = 0; l < s.info.layers; l++) {
        int32_t pos[200];
        assert_int_equal(heed_session_kept(session, 0, l, 0, pos, NULL, 200), held);
        for (int64_t i = 0; i < held; i++)
            assert_int_equal(pos[i], i < 5 ? i : i + 20);
    }
    for (int64_t i = 0; i < held; i++)
        all += seen[i];
    assert_true(fabs(all - (double)(s.info.layers * s.info.heads * s.question.count)) < 1e-3);
    assert_int_not_equal(heed_session_cut(session, 0, 10), HEED_OK);
    assert_int_not_equal(heed_session_hide(session, 0, 60, 100), HEED_OK);
    heed_session_free(session);
    must(heed_session_create(&session, s.model, &(heed_session_options){.context = 200, .threads = 1}));
    must(heed_feed(session, &(heed_feed_item){.tokens = tokens.id, .count = tokens.count}, 1, NULL));
    assert_int_equal(heed_session_hide(session, 0, 5, 20), HEED_UNSUPPORTED);
    heed_session_free(session);
    heed_tokens_free(&tokens);
    close_setting(&s);
}

/* A text in which a short form stands, or a hidden fragment at the end, is the text without it. */
static void short_forms_are_read_in_place(void **state)
{
    (void)state;
    setting s;
    open_setting(&s);
    heed_sculptor *one = sculptor_of(&s, text, 0),
                  *other = sculptor_of(&s, "Oslo: red\nRome\nOslo: green\nthe sea is wide\n", 0);
    must(heed_sculptor_summarise(one, 1, "Rome\n"));
    must(heed_sculptor_hide(one, 4));
    ask(&s, one, s.logits[0]);
    ask(&s, other, s.logits[1]);
    for (int64_t i = 0; i < s.info.vocabulary; i++)
        assert_true(fabsf(s.logits[0][i] - s.logits[1][i]) < 1e-4f);
    heed_sculptor_free(one);
    heed_sculptor_free(other);
    close_setting(&s);
}

static void fragments_are_found_and_rules_hide_them(void **state)
{
    (void)state;
    setting s;
    open_setting(&s);
    heed_sculptor *sculptor = sculptor_of(&s, text, 0);
    int found[5];
    assert_int_equal(heed_sculptor_search(sculptor, "Oslo: ", true, found, 5), 2);
    assert_true(found[0] == 0 && found[1] == 2);
    assert_int_equal(heed_sculptor_search(sculptor, "is the sea of Rome grey?", false, found, 5), 3);
    assert_true(found[0] == 3 && found[1] == 4 && found[2] == 1);
    must(heed_sculptor_latest(sculptor));
    for (int i = 0; i < 5; i++)
        assert_int_equal(heed_sculptor_fragment(sculptor, i)->hidden, i < 2);
    must(heed_sculptor_focus(sculptor, "Which colour has Oslo?", 1));
    for (int i = 0; i < 5; i++)
        assert_int_equal(heed_sculptor_fragment(sculptor, i)->hidden, i != 2);
    char *line = heed_sculptor_get(sculptor, 2);
    assert_string_equal(line, "Oslo: green\n");
    free(line);
    assert_null(heed_sculptor_get(sculptor, 5));
    assert_int_not_equal(heed_sculptor_hide(sculptor, -1), HEED_OK);
    heed_sculptor_free(sculptor);
    heed_sculptor *even = sculptor_of(&s, text, 7);
    for (int i = 0; i + 1 < heed_sculptor_fragments(even); i++)
        assert_int_equal(heed_sculptor_fragment(even, i)->count, 7);
    heed_sculptor_free(even);
    close_setting(&s);
}

static void calls_do_what_they_say_or_nothing(void **state)
{
    (void)state;
    static const char *const right[][2] = {
        {"{\"tool\": \"hide\", \"id\": 3}", "{\"hidden\":1}"},
        {"{\"tool\": \"get\", \"id\": 3}", "{\"text\":\"the sea is wide\\n\",\"hidden\":1}"},
        {"{\"tool\": \"search\", \"words\": \"Rome\", \"exact\": true}", "{\"ids\":[1,4],\"hidden\":1}"},
        {"{\"tool\": \"summarise\", \"id\": 3, \"text\": \"sea\"}", "{\"hidden\":0}"},
        {"{\"tool\": \"restore\", \"id\": 3}", "{\"hidden\":0}"},
        {"{\"tool\": \"focus\", \"question\": \"Rome\", \"keep\": 2}", "{\"hidden\":3}"},
        {"{\"tool\": \"latest\"}", "{\"hidden\":4}"}};
    static const char *const wrong[] = {"",
                                        "hide 3",
                                        "[]",
                                        "{\"tool\": 3}",
                                        "{\"tool\": \"erase\"}",
                                        "{\"tool\": \"hide\"}",
                                        "{\"tool\": \"hide\", \"id\": 2.5}",
                                        "{\"tool\": \"hide\", \"id\": 99}",
                                        "{\"tool\": \"get\", \"id\": 99}",
                                        "{\"tool\": \"summarise\", \"id\": 1}",
                                        "{\"tool\": \"focus\", \"question\": \"x\", \"keep\": 0}"};
    setting s;
    open_setting(&s);
    heed_sculptor *sculptor = sculptor_of(&s, text, 0);
    char *answer;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_not_equal(heed_sculptor_call(sculptor, wrong[i], &answer), HEED_OK);
        assert_null(answer);
        for (int f = 0; f < 5; f++)
            assert_false(heed_sculptor_fragment(sculptor, f)->hidden);
    }
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        must(heed_sculptor_call(sculptor, right[i][0], &answer));
        assert_string_equal(answer, right[i][1]);
        free(answer);
    }
    heed_sculptor_free(sculptor);
    close_setting(&s);
}

static void heed_sculpt_answers_from_what_is_seen(void **state)
{
    (void)state;
    write_text("notes.txt", text);
    write_text("calls.txt", "{\"tool\": \"hide\", \"id\": 3}\n\n{\"tool\": \"get\", \"id\": 0}\n");
    run("sculpt -m tiny --threads 1 --json -n 3 -f notes.txt --fragment 0 --latest --calls calls.txt "
        "--question Oslo: --answer green");
    cJSON *line = json_line(0);
    assert_true(json_number(line, "fragments") == 5 && json_number(line, "hidden") == 3);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(line, "answers")), 2);
    assert_true(json_number(line, "surprise") > 0);
    assert_true(json_number(line, "seen") < json_number(line, "tokens"));
    cJSON_Delete(line);
    run("sculpt -m tiny -f notes.txt");
    assert_one_sentence("--question");
    run("sculpt -m tiny -f notes.txt --question x --attention \"cache=fifo(budget=4)\"");
    assert_one_sentence("cache");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_restored_gives_the_same_bits),
        cmocka_unit_test(a_hidden_fragment_receives_nothing),
        cmocka_unit_test(short_forms_are_read_in_place),
        cmocka_unit_test(fragments_are_found_and_rules_hide_them),
        cmocka_unit_test(calls_do_what_they_say_or_nothing),
        cmocka_unit_test(heed_sculpt_answers_from_what_is_seen),
    };
    return cmocka_run_group_tests(tests, tiny_folder, tiny_folder_remove);
}
