/* What policies keep of pretrained models' layers: the keys of their formulas in double precision, of the
 * keys, values, queries and weights that the layer has. Each layer runs another policy; a form before it in
 * the chain looks at what it will see. */
#include "support/judges.h"
#include "support/models.h"

#include <heed/heed.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 120, BUDGET = 50, MOST_LAYERS = 40, MOST_HEADS = 4 };

static const char text[] = "The keeper of the lighthouse wrote in his book every evening, when the lamp was "
                           "lit and the glass was clean. "
                           "He wrote how the wind stood, and what ships had passed, and whether the boat had "
                           "come from the town. On the "
                           "ninth of March he wrote that a red buoy had broken loose from the bar and "
                           "drifted north. Nobody read the book "
                           "but himself, and yet he wrote it with care, for a keeper before him had done so, "
                           "and one would come after. "
                           "When the inspector came in April he asked for the number of the buoy. The keeper "
                           "turned the pages back, past "
                           "fog and calm and two days of snow, and put his finger on the line: on the ninth "
                           "of March, he said, the buoy";

/* What is known of a layer before its policy acts. */
typedef struct seen_layer {
    const judge_case *c;
    heed_chain chain;
    int64_t count[MOST_HEADS], visible;
    double score[MOST_HEADS][TOKENS];
    int32_t pos[MOST_HEADS][TOKENS];
} seen_layer;

static seen_layer seen[MOST_LAYERS];

/* H2O's sums and the like from the weights of all queries, which the form in front observes. */
static double sum_of(const heed_held *held, int64_t j)
{
    double sum = 0;
    for (int64_t row = 0; row < held->group * held->queries; row++)
        sum += held->weight[row * held->count + j];
    return sum;
}

static void sums(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    for (int64_t j = 0; j < l->held[g].count; j++)
        score[j] = sum_of(&l->held[g], j);
}

static void means(const layer *l, int g, const judge_history *history, double *score)
{
    const heed_held *held = &l->held[g];
    sums(l, g, history, score);
    for (int64_t j = 0; j < held->count; j++)
        score[j] /= (double)(held->group * (held->read - held->pos[j])); /* shorter than any window */
}

static const judge_case from_weights[] = {
    {"h2o", "", sums, 0, -1, 1e-4, false, 0},
    {"observed", "", means, 0, 0, 1e-4, false, 0},
    {0},
};

/* Looks and keeps all. */
static void look(const heed_form_state *form, const heed_held *held, uint8_t *keep, float *work)
{
    (void)form;
    (void)keep;
    (void)work;
    seen_layer *s = &seen[held->layer];
    const int g = held->kv_head;
    layer l = {.chain[0] = s->chain};
    l.held[0] = *held;
    assert_true(held->count == TOKENS && held->queries == TOKENS && held->read == TOKENS && g < MOST_HEADS);
    for (int64_t j = 0; j < held->count; j++) { /* turned back to position 0: as long as before */
        double was = 0, is = 0;
        for (int64_t d = 0; d < held->dim; d++) {
            was += pow((double)held->key[j * held->dim + d], 2);
            is += pow((double)held->bare[j * held->dim + d], 2);
            assert_true(held->pos[j] > 0 || held->key[j * held->dim + d] == held->bare[j * held->dim + d]);
        }
        assert_true(fabs(was - is) <= 1e-3 * was);
    }
    s->count[g] = held->count;
    s->visible = held->visible;
    memcpy(s->pos[g], held->pos, TOKENS * sizeof *held->pos);
    s->c->define(&l, 0, NULL, s->score[g]);
}

static int all_queries(const heed_form_state *form)
{
    (void)form;
    return TOKENS;
}

static const heed_policy look_policy = {.observes = HEED_OBSERVES_KEYS | HEED_OBSERVES_BARE |
                                                    HEED_OBSERVES_VALUES | HEED_OBSERVES_QUERIES |
                                                    HEED_OBSERVES_WEIGHTS,
                                        .window = all_queries,
                                        .choose = look};
static const heed_form look_form = {.name = "look", .stage = HEED_CACHE, .policy = &look_policy};
static const heed_form *const own[] = {&look_form, NULL};

/* Cases that need no history of their own; NULL at the end. */
static const judge_case *case_of(int index)
{
    for (const judge_case *list = from_weights;; list = judge_cases) {
        for (const judge_case *c = list; c->name; c++) {
            const bool remembers =
                !strcmp(c->name, "lra") || !strcmp(c->name, "lfa") ||
                (list == judge_cases && (!strcmp(c->name, "h2o") || !strcmp(c->name, "observed")));
            if (!remembers && index-- == 0)
                return c;
        }
        if (list == judge_cases)
            return NULL;
    }
}

static void chain_of(seen_layer *s, const char *clause, const heed_model_info *info)
{
    const heed_sizes sizes = {.batch = 1,
                              .heads = info->heads,
                              .kv_heads = info->kv_heads,
                              .dim = info->head_dim,
                              .value_dim = info->head_dim};
    heed_spec *spec;
    int root[HEED_STAGES];
    assert_int_equal(heed_spec_parse(&spec, clause, NULL), HEED_OK);
    heed_spec_clauses(spec, 0, 0, root);
    if (heed_chain_of_spec(&s->chain, spec, root[HEED_CACHE], HEED_ISA_PORTABLE, &sizes, 0, 1))
        fail_msg("%s: %s", clause, heed_message());
    heed_spec_free(spec);
}

/* "layers L: cache=look > POLICY" for each layer, from case `first` on; returns the next case. */
static int prepare(char *spec, size_t size, int first, const heed_model_info *info)
{
    size_t at = 0;
    memset(seen, 0, sizeof seen);
    assert_true(info->layers <= MOST_LAYERS);
    for (int l = 0; l < info->layers; l++) {
        char policy[160], clause[200];
        const judge_case *c = case_of(first) ? case_of(first) : case_of(0);
        snprintf(policy, sizeof policy, "%s(budget=%d%s%s)", c->name, BUDGET, *c->args ? ", " : "", c->args);
        snprintf(clause, sizeof clause, "cache=%s", policy);
        seen[l].c = c;
        chain_of(&seen[l], clause, info);
        at +=
            (size_t)snprintf(spec + at, size - at, "%slayers %d: cache=look > %s", l ? "; " : "", l, policy);
        assert_true(at < size);
        first += case_of(first) != NULL;
    }
    return first;
}

static void check_head(const heed_session *session, int l, int g)
{
    const seen_layer *s = &seen[l];
    int32_t pos[TOKENS];
    layer kept = {.shape = {.kv_heads = 1, .count = {s->count[g]}}};
    uint8_t keep[TOKENS] = {0};
    double largest = s->c->unit;
    const int64_t count = heed_session_kept(session, 0, l, g, pos, NULL, TOKENS);
    for (int64_t j = 0; j < s->count[g]; j++) {
        for (int64_t i = 0; i < count; i++)
            keep[j] |= pos[i] == s->pos[g][j];
        largest = fmax(largest, fabs(s->score[g][j]));
    }
    kept.keep[0] = keep;
    const int64_t recent = s->c->recent == -2   ? BUDGET - s->c->first
                           : s->c->recent == -1 ? BUDGET / 2
                                                : s->c->recent;
    layer_check_best(&kept, 0, s->score[g], BUDGET, s->c->first, recent, 10 * s->c->slack * largest);
}

static void layers_of_a_model_keep_what_the_formulas_say(const char *file)
{
    const char *path = fetched_model(file);
    if (!path) {
        skip();
        return;
    }
    heed_model *model;
    heed_model_info info;
    heed_tokens tokens = {0};
    static char spec[8192];
    assert_int_equal(heed_model_open(&model, path, &(heed_model_options){0}), HEED_OK);
    heed_model_get_info(model, &info);
    assert_int_equal(
        heed_tokenize(heed_model_tokenizer(model), text, strlen(text), HEED_ADD_SPECIAL, &tokens), HEED_OK);
    assert_true(tokens.count >= TOKENS);
    for (int first = 0; case_of(first);) {
        heed_session *session;
        first = prepare(spec, sizeof spec, first, &info);
        const heed_session_options options = {
            .context = 512, .attention = spec, .forms = own, .cache = HEED_F32, .cache_given = true};
        if (heed_session_create(&session, model, &options))
            fail_msg("%s", heed_message());
        const heed_feed_item item = {.tokens = tokens.id, .count = TOKENS};
        assert_int_equal(heed_feed(session, &item, 1, &(heed_feed_wants){0}), HEED_OK);
        for (int l = 0; l < info.layers; l++)
            for (int g = 0; g < info.kv_heads; g++) {
                assert_int_equal(seen[l].count[g], TOKENS);
                assert_int_equal(seen[l].visible, TOKENS);
                check_head(session, l, g);
            }
        heed_session_free(session);
    }
    heed_tokens_free(&tokens);
    heed_model_close(model);
}

static void layers_of_smollm2_keep_what_the_formulas_say(void **state)
{
    (void)state;
    layers_of_a_model_keep_what_the_formulas_say("smollm2.gguf");
}

static void layers_of_gemma_3_keep_what_the_formulas_say(void **state)
{
    (void)state;
    layers_of_a_model_keep_what_the_formulas_say("gemma3.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_smollm2_keep_what_the_formulas_say),
        cmocka_unit_test(layers_of_gemma_3_keep_what_the_formulas_say),
    };
    if (!fetched_model("smollm2.gguf") && !fetched_model("gemma3.gguf"))
        return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
