/* Old values of keys mislead a pretrained model the more there are; with stale lines hidden it answers as if
 * there were none. */
#include "eval/divergence.h"
#include "eval/sculptor.h"
#include "eval/words.h"
#include "support/models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 3, MANY = 10 };

static void must(heed_status status)
{
    if (status)
        fail_msg("%s", heed_message());
}

/* Nats of the last values of all keys after `updates` of each, and how many the model gets right. */
static double ask(const heed_model *model, int updates, bool latest, int *right)
{
    char text[4000] = "Colours of places, in the order in which they were painted:\n";
    const char *last[KEYS] = {NULL};
    heed_model_info info;
    heed_model_get_info(model, &info);
    float *logits = malloc((size_t)info.vocabulary * sizeof *logits);
    heed_dice dice = heed_dice_for(3, 11);
    const char *value[KEYS * MANY];
    heed_words_draw(&dice, heed_nouns, HEED_NOUNS, KEYS * MANY, value);
    for (int u = 0; u < updates; u++)
        for (int k = 0; k < KEYS; k++) {
            last[k] = value[(u + MANY - updates) * KEYS + k];
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s:%s\n", heed_places[k], last[k]);
        }
    heed_sculptor *sculptor;
    must(heed_sculptor_create(
        &sculptor, model, &(heed_sculptor_options){.text = text, .fragment = 0, .room = 30, .threads = 1}));
    if (latest)
        must(heed_sculptor_latest(sculptor));
    double nats = 0;
    *right = 0;
    for (int k = 0; k < KEYS; k++) {
        char question[200];
        heed_tokens asked = {0}, answer = {0};
        snprintf(question, sizeof question, "The last one of %s:\n%s:", heed_places[k], heed_places[k]);
        must(heed_tokenize(heed_model_tokenizer(model), question, strlen(question), 0, &asked));
        must(heed_tokenize(heed_model_tokenizer(model), last[k], strlen(last[k]), 0, &answer));
        must(heed_sculptor_ask(sculptor, asked.id, asked.count, logits));
        nats += heed_surprise(logits, info.vocabulary, answer.id[0]);
        bool best = true;
        for (int64_t i = 0; i < info.vocabulary; i++)
            best &= logits[i] <= logits[answer.id[0]];
        *right += best;
        heed_tokens_free(&asked);
        heed_tokens_free(&answer);
    }
    heed_sculptor_free(sculptor);
    free(logits);
    return nats;
}

static void hiding_stale_lines_brings_the_answers_back(void **state)
{
    (void)state;
    const char *path = fetched_model("smollm2.gguf");
    if (!path)
        exit(TEST_SKIPPED);
    heed_model *model = NULL;
    must(heed_model_open(&model, path, &(heed_model_options){.threads = 1}));
    int right[3];
    const double few = ask(model, 1, false, &right[0]), many = ask(model, MANY, false, &right[1]),
                 hidden = ask(model, MANY, true, &right[2]);
    printf("[          ] 1 update: %.2f nats, %d of %d right; %d updates: %.2f, %d; stale ones hidden: %.2f, "
           "%d\n",
           few, right[0], KEYS, MANY, many, right[1], hidden, right[2]);
    if (!(many > 1.5 * few && hidden < many && right[2] >= right[1]))
        fail_msg("%.2f nats after one update, %.2f after %d, %.2f with the stale ones hidden", few, many,
                 MANY, hidden);
    heed_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hiding_stale_lines_brings_the_answers_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
