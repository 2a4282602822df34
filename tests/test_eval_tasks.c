/* Prompts with known answers: that what is asked for stands where it should, that the seed decides
 * everything, and how answers are judged. */
#include "eval/score.h"
#include "eval/suite.h"
#include "eval/task.h"
#include "eval/words.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const tokenizers[] = {"gpt2.json", "llama3.json", "llama2.gguf", "unigram.json"};

typedef struct setting {
    heed_tokenizer *tokenizer;
    heed_material material;
} setting;

static void open_setting(setting *s, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/golden/tokenizer/%s", HEED_TEST_DATA, name);
    if (heed_tokenizer_load(&s->tokenizer, path) || heed_material_create(&s->material, s->tokenizer))
        fail_msg("%s: %s", name, heed_message());
}

static void close_setting(setting *s)
{
    heed_material_free(&s->material);
    heed_tokenizer_free(s->tokenizer);
}

/* Tokens [from, until) as a text, freed by the caller. */
static char *text_of(const setting *s, const heed_quiz *quiz, int64_t from, int64_t until)
{
    heed_detokenizer d = {.tokenizer = s->tokenizer, .tokens = 1};
    char *text = calloc((size_t)(until - from + 1) * 64 + 64, 1);
    size_t used = 0;
    for (int64_t i = from; i < until; i++)
        used += heed_detokenize(&d, quiz->text.id[i], text + used, 64);
    heed_detokenize(&d, -1, text + used, 64);
    return text;
}

static bool make(const setting *s, const heed_task *task, int64_t length, double depth, uint64_t seed,
                 heed_quiz *quiz)
{
    *quiz = (heed_quiz){.questions = 0};
    return task->make(&s->material, &(heed_task_wish){length, depth, seed}, quiz) == HEED_OK;
}

static bool same(const heed_quiz *a, const heed_quiz *b)
{
    return a->text.count == b->text.count && a->questions == b->questions &&
           !memcmp(a->text.id, b->text.id, (size_t)a->text.count * sizeof *a->text.id) &&
           !memcmp(a->question, b->question, (size_t)a->questions * sizeof *a->question);
}

/* Small vocabularies spell words out, so their prompts are long. */
enum { LENGTH = 3000 };

static void every_task_fills_its_length_and_follows_its_seed(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof tokenizers / sizeof *tokenizers; t++) {
        setting s;
        open_setting(&s, tokenizers[t]);
        for (const heed_task *const *task = heed_tasks; *task; task++) {
            heed_quiz one, again, other;
            if (!make(&s, *task, LENGTH, 0.4, 7, &one) || !make(&s, *task, LENGTH, 0.4, 7, &again) ||
                !make(&s, *task, LENGTH, 0.4, 8, &other))
                fail_msg("%s, %s: %s", tokenizers[t], (*task)->name, heed_message());
            assert_true(same(&one, &again));
            assert_false(same(&one, &other));
            assert_true(one.text.count == LENGTH);
            assert_true(one.questions >= 1);
            for (int q = 0; q < one.questions; q++) {
                const heed_question *question = &one.question[q];
                const int64_t before = q ? one.question[q - 1].at + one.question[q - 1].count : 1;
                if (question->at < before || question->count < 1 ||
                    question->at + question->count > one.text.count)
                    fail_msg("%s: question %d at %lld", (*task)->name, q, (long long)question->at);
                for (int r = 0; r < question->rivals; r++) {
                    assert_int_not_equal(question->rival[r], one.text.id[question->at]);
                    for (int p = 0; p < r; p++)
                        assert_int_not_equal(question->rival[r], question->rival[p]);
                }
            }
            assert_true(one.context <= one.question[0].at);
            heed_quiz_free(&one);
            heed_quiz_free(&again);
            heed_quiz_free(&other);
        }
        close_setting(&s);
    }
}

/* The place where a text stands first, in bytes; -1. */
static long place_of(const char *text, const char *words)
{
    const char *found = strstr(text, words);
    return found ? found - text : -1;
}

static void the_answer_stands_at_its_depth_and_nowhere_else(void **state)
{
    (void)state;
    const heed_task *const tasks[] = {&heed_task_needle, &heed_task_passkey};
    static const char *const before[] = {"The secret word of", "The pass key is"};
    setting s;
    open_setting(&s, "gpt2.json");
    for (int t = 0; t < 2; t++)
        for (int d = 0; d <= 4; d++) {
            heed_quiz quiz;
            assert_true(make(&s, tasks[t], LENGTH, d / 4.0, (uint64_t)(40 + d), &quiz));
            const heed_question *question = &quiz.question[0];
            char *answer = text_of(&s, &quiz, question->at, question->at + question->count),
                 *all = text_of(&s, &quiz, 0, question->at);
            const long place = place_of(all, before[t]), size = (long)strlen(all);
            const double depth = (double)place / (double)size;
            if (place < 0 || fabs(depth - d / 4.0) > 0.12)
                fail_msg("depth %g instead of %g", depth, d / 4.0);
            char *sentence = all + place;
            if (place_of(sentence, answer) < 0 || place_of(sentence, answer) > 60)
                fail_msg("'%s' does not hold '%s'", sentence, answer);
            assert_true(place_of(all, answer) >= place); /* nothing tells it sooner */
            free(answer);
            free(all);
            heed_quiz_free(&quiz);
        }
    close_setting(&s);
}

static void answers_follow_from_what_the_text_says(void **state)
{
    (void)state;
    setting s;
    open_setting(&s, "gpt2.json");
    const heed_task *const tasks[] = {&heed_task_multikey, &heed_task_variables, &heed_task_key_value};
    for (int t = 0; t < 3; t++)
        for (uint64_t seed = 0; seed < 5; seed++) {
            heed_quiz quiz;
            assert_true(make(&s, tasks[t], LENGTH, 0.3, seed, &quiz));
            char *context = text_of(&s, &quiz, 0, quiz.context);
            for (int q = 0; q < quiz.questions; q++) {
                /* the last words before the answer, from the line's or the sentence's beginning on, stand in
                 * the context with the answer behind them */
                const heed_question *question = &quiz.question[q];
                char *asked = text_of(&s, &quiz, quiz.context, question->at),
                     *answer = text_of(&s, &quiz, question->at, question->at + question->count), fact[400];
                const char *begin = strrchr(asked, '\n') + 1, *sentence = strstr(begin, "The ");
                for (const char *next; sentence && (next = strstr(sentence + 1, "The "));)
                    sentence = next;
                snprintf(fact, sizeof fact, "%s%s", sentence ? sentence : begin, answer);
                if (place_of(context, fact) < 0)
                    fail_msg("%s: '%s' is not said before", tasks[t]->name, fact);
                free(asked);
                free(answer);
            }
            free(context);
            heed_quiz_free(&quiz);
        }
    close_setting(&s);
}

/* The last line of a key in the stream has the right value, the lines before it the wrong ones. */
static void of_a_stream_the_last_value_counts(void **state)
{
    (void)state;
    setting s;
    open_setting(&s, "gpt2.json");
    for (uint64_t seed = 0; seed < 5; seed++) {
        heed_quiz quiz;
        assert_true(make(&s, &heed_task_interference, LENGTH, 0.3, seed, &quiz));
        char *context = text_of(&s, &quiz, 0, quiz.context);
        for (int q = 0; q < quiz.questions; q++) {
            const heed_question *question = &quiz.question[q];
            char *asked = text_of(&s, &quiz, quiz.context, question->at),
                 *answer = text_of(&s, &quiz, question->at, question->at + question->count);
            const char *key = strrchr(asked, '\n'), *last = NULL;
            int updates = 0;
            for (const char *at = context; (at = strstr(at, key)) != NULL; at++, updates++)
                last = at;
            assert_true(updates >= 2 && question->rivals >= 1);
            if (strncmp(last + strlen(key), answer, strlen(answer)) != 0)
                fail_msg("'%s' was last '%.20s', not '%s'", key, last + strlen(key), answer);
            free(asked);
            free(answer);
        }
        assert_int_equal(quiz.questions, 4);
        free(context);
        heed_quiz_free(&quiz);
    }
    close_setting(&s);
}

static void what_is_to_be_copied_stood_there_before(void **state)
{
    (void)state;
    setting s;
    open_setting(&s, "gpt2.json");
    const heed_task *const tasks[] = {&heed_task_copying, &heed_task_induction};
    for (int t = 0; t < 2; t++) {
        heed_quiz quiz;
        assert_true(make(&s, tasks[t], LENGTH, 0.5, 3, &quiz));
        const heed_question *question = &quiz.question[0];
        const int64_t shown = 4; /* tokens before the answer that lead to it */
        int found = 0;
        for (int64_t i = shown; i + question->count <= question->at - shown; i++)
            found += !memcmp(quiz.text.id + i - shown, quiz.text.id + question->at - shown,
                             (size_t)(shown + question->count) * sizeof *quiz.text.id);
        assert_int_equal(found, 1);
        heed_quiz_free(&quiz);
    }
    close_setting(&s);
}

static void a_task_that_has_no_room_says_so(void **state)
{
    (void)state;
    setting s;
    open_setting(&s, "gpt2.json");
    for (const heed_task *const *task = heed_tasks; *task; task++) {
        heed_quiz quiz;
        assert_false(make(&s, *task, 4, 0.5, 1, &quiz));
        assert_non_null(strstr(heed_message(), "no room"));
        heed_quiz_free(&quiz);
    }
    close_setting(&s);
}

static void words_are_drawn_once_each(void **state)
{
    (void)state;
    const char *drawn[HEED_PLACES];
    heed_dice dice = heed_dice_for(1, 2);
    heed_words_draw(&dice, heed_places, HEED_PLACES, HEED_PLACES, drawn);
    for (int i = 0; i < HEED_PLACES; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(drawn[i], drawn[j]);
    for (int i = 0; i < HEED_NOUNS; i++) {
        assert_int_equal(heed_nouns[i][0], ' ');
        for (int j = 0; j < i; j++)
            assert_string_not_equal(heed_nouns[i], heed_nouns[j]);
    }
}

static void answers_are_judged_token_by_token(void **state)
{
    (void)state;
    /* five tokens in the vocabulary; the answer is 3 1 */
    const int32_t answer[] = {3, 1};
    const heed_question question = {.at = 1, .count = 2, .rival = {0, 4}, .rivals = 2};
    static const struct {
        float first[5], second[5];
        int exact, chosen, right;
    } cases[] = {
        {{0, 0, 0, 2, 1}, {0, 3, 0, 0, 0}, 1, 1, 2},
        {{0, 0, 0, 2, 1}, {4, 3, 0, 0, 0}, 0, 1, 1},
        {{0, 0, 9, 2, 1}, {0, 3, 0, 0, 0}, 0, 1, 1}, /* likelier than its rivals, but not the likeliest */
        {{5, 0, 0, 2, 1}, {0, 3, 0, 0, 0}, 0, 0, 1},
        {{2, 0, 0, 2, 1}, {0, 3, 0, 0, 3}, 0, 0, 1}, /* of equal ones the first is drawn */
    };
    heed_score sum = {.asked = 0};
    int exact = 0, right = 0;
    for (int i = 0; i < 5; i++) {
        heed_score score = {.asked = 0};
        bool missed = false;
        heed_score_token(&score, cases[i].first, 5, &question, answer, 0, &missed);
        assert_int_equal(score.asked, 0);
        heed_score_token(&score, cases[i].second, 5, &question, answer, 1, &missed);
        assert_int_equal(score.asked, 1);
        assert_int_equal(score.exact, cases[i].exact);
        assert_int_equal(score.chosen, cases[i].chosen);
        assert_int_equal(score.choices, 1);
        assert_int_equal(score.right, cases[i].right);
        double nll = 0.0;
        for (int row = 0; row < 2; row++) {
            const float *logits = row ? cases[i].second : cases[i].first;
            double z = 0.0;
            for (int v = 0; v < 5; v++)
                z += exp((double)logits[v]);
            nll += log(z) - (double)logits[answer[row]];
        }
        assert_true(fabs(score.nll - nll) < 1e-6);
        heed_score_add(&sum, &score);
        exact += cases[i].exact;
        right += cases[i].right;
    }
    assert_true(heed_score_exact(&sum) == exact / 5.0 && heed_score_right(&sum) == right / 10.0);
    assert_true(isnan(heed_score_exact(&(heed_score){.asked = 0})));
}

static void suites_fit_the_model(void **state)
{
    (void)state;
    heed_suite suite;
    assert_int_equal(heed_suite_make(&suite, "quick", 8192, 0), HEED_OK);
    assert_true(suite.text == 2048 && suite.length[suite.lengths - 1] == 2048 && suite.length[0] == 512);
    assert_int_equal(heed_suite_make(&suite, "long", 8192, 5000), HEED_OK);
    assert_true(suite.text == 5000 && suite.lengths == 3 && suite.length[1] == 4096 &&
                suite.length[2] == 5000);
    assert_int_equal(heed_suite_make(&suite, "long", 256, 0), HEED_OK);
    assert_true(suite.text == 256 && suite.window <= 256 && suite.lengths == 1);
    assert_true(heed_suite_depth(&suite, 0) == 0.0 && heed_suite_depth(&suite, suite.depths - 1) == 1.0);
    assert_int_equal(heed_suite_make(&suite, "long", 256, 300), HEED_INVALID);
    assert_int_equal(heed_suite_make(&suite, "long", 16, 0), HEED_INVALID);
    assert_int_equal(heed_suite_make(&suite, "short", 256, 0), HEED_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_fills_its_length_and_follows_its_seed),
        cmocka_unit_test(the_answer_stands_at_its_depth_and_nowhere_else),
        cmocka_unit_test(answers_follow_from_what_the_text_says),
        cmocka_unit_test(of_a_stream_the_last_value_counts),
        cmocka_unit_test(what_is_to_be_copied_stood_there_before),
        cmocka_unit_test(a_task_that_has_no_room_says_so),
        cmocka_unit_test(words_are_drawn_once_each),
        cmocka_unit_test(answers_are_judged_token_by_token),
        cmocka_unit_test(suites_fit_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
