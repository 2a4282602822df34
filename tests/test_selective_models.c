/* Selective context on a pretrained model: answers after what was selected. */
#include "eval/divergence.h"
#include "eval/selective.h"
#include "support/models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static heed_selection select_of(const heed_selective *wanted, const char *from)
{
    heed_selection s;
    if (heed_select_context(&s, wanted, from, strlen(from)))
        fail_msg("%s", heed_message());
    return s;
}

/* -log p of the tokens from `from` on. */
static double information_from(const heed_model *model, const heed_tokens *tokens, int64_t from)
{
    heed_model_info info;
    heed_model_get_info(model, &info);
    float *logits = malloc((size_t)tokens->count * (size_t)info.vocabulary * sizeof *logits);
    heed_session *session = NULL;
    double sum = 0;
    assert_int_equal(
        heed_session_create(&session, model, &(heed_session_options){.context = 400, .threads = 1}), HEED_OK);
    assert_int_equal(heed_feed(session, &(heed_feed_item){.tokens = tokens->id, .count = tokens->count}, 1,
                               &(heed_feed_wants){.logits = logits, .all_logits = true}),
                     HEED_OK);
    for (int64_t t = from - 1; t + 1 < tokens->count; t++)
        sum += heed_surprise(logits + t * info.vocabulary, info.vocabulary, tokens->id[t + 1]);
    heed_session_free(session);
    free(logits);
    return sum;
}

/* Planted facts among phrases that repeat: an answer is likelier after what was selected than after as much
 * that was drawn by lot, and the first repetition stays before the later ones. */
static void facts_survive_among_what_repeats(void **state)
{
    (void)state;
    const char *path = fetched_model("smollm2.gguf");
    if (!path)
        exit(TEST_SKIPPED);
    static const char again[] = "Please read the terms and conditions carefully before you continue. ";
    static const char *const fact[] = {"The password of the vault is 83194. ",
                                       "The captain of the ship was born in Trondheim. "};
    static const char *const ask[][2] = {{"The password of the vault is", " 83194"},
                                         {"The captain of the ship was born in", " Trondheim"}};
    heed_model *model = NULL;
    assert_int_equal(heed_model_open(&model, path, &(heed_model_options){.threads = 1}), HEED_OK);
    char story[1000] = "";
    for (int i = 0; i < 7; i++)
        strcat(story, i == 2 ? fact[0] : i == 4 ? fact[1] : again);
    double surprise[4] = {0};
    for (int which = 0; which < 4; which++) {
        const heed_selective wanted = {.model = model,
                                       .drop = 60,
                                       .unit = HEED_UNIT_PHRASE,
                                       .measure = which ? HEED_BY_LOT : HEED_BY_SUM,
                                       .seed = (uint64_t)which,
                                       .threads = 1};
        heed_selection s = select_of(&wanted, story);
        if (!which)
            assert_true(s.unit[0].stays && !s.unit[s.units - 1].stays);
        for (int q = 0; q < 2; q++) {
            char whole[1200];
            heed_tokens tokens = {0}, first = {0};
            snprintf(whole, sizeof whole, "%s%s", s.text, ask[q][0]);
            assert_int_equal(heed_tokenize(heed_model_tokenizer(model), whole, strlen(whole), 0, &first),
                             HEED_OK);
            strcat(whole, ask[q][1]);
            assert_int_equal(heed_tokenize(heed_model_tokenizer(model), whole, strlen(whole), 0, &tokens),
                             HEED_OK);
            surprise[which] += information_from(model, &tokens, first.count);
            heed_tokens_free(&tokens);
            heed_tokens_free(&first);
        }
        heed_selection_free(&s);
    }
    const double lot = (surprise[1] + surprise[2] + surprise[3]) / 3;
    if (!(surprise[0] < 0.5 * lot))
        fail_msg("answers say %.3g nats after the selected text, %.3g after lots", surprise[0], lot);
    heed_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(facts_survive_among_what_repeats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
