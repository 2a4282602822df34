/* A cache policy of one's own, registered from outside: keys by the largest weight that any query gave them.
 *
 *     score_j = max over all queries i so far, and the heads that share the key, of w[h][i][j]
 *
 * A key that one query looked at hard stays, where a sum of weights would favour those that many glanced at.
 * Without arguments the program tries the policy on keys that it makes up; with a model and a text it reads
 * the text with a quarter of the keys and says which tokens are left:   own_policy MODEL TEXT
 */
#include <heed/heed.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_OWN = 2, TOP = 32 }; /* arguments 0 and 1 are budget and share */

static int strongest(const heed_form_state *form)
{
    (void)form;
    return TOP;
}

/* state [seen->count] rows of one float, `stride` apart: the largest weight so far. */
static void observe(const heed_form_state *form, const heed_seen *seen, float *state, int64_t stride)
{
    (void)form;
    for (int64_t i = 0; i < seen->group * seen->queries; i++)
        for (int t = 0; t < seen->top; t++) {
            const int32_t key = seen->top_key[i * seen->top + t];
            const float weight = seen->top_weight[i * seen->top + t];
            if (key >= 0 && weight > state[key * stride])
                state[key * stride] = weight;
        }
}

static void ends(const heed_form_state *form, int64_t budget, int64_t *first, int64_t *recent)
{
    (void)budget;
    *first = 0;
    *recent = heed_arg_int(form, FIRST_OWN);
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)form;
    (void)work;
    for (int64_t j = 0; j < held->count; j++)
        score[j] = held->state[j * held->state_stride];
}

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    {.name = "recent",
     .kind = HEED_ARG_INT,
     .value = 4,
     .least = 0,
     .most = INFINITY,
     .summary = "newest keys"},
    {0},
};

static const heed_policy policy = {.observes = HEED_OBSERVES_TOP,
                                   .top = strongest,
                                   .state_floats = 1,
                                   .observe = observe,
                                   .ends = ends,
                                   .judge = judge};

static const heed_form peak = {
    .name = "peak",
    .stage = HEED_CACHE,
    .summary = "keys by the largest weight that any query gave them",
    .formula = "score_j = max over all queries i of w_ij",
    .args = args,
    .policy = &policy,
};

static const heed_form *const forms[] = {&peak, NULL};

static int failed(void)
{
    return fprintf(stderr, "%s\n", heed_message()), 1;
}

/* Twelve keys, whose largest weights so far are made up. */
static int try_it(void)
{
    enum { KEYS = 12, DIM = 1 };
    static const float largest[KEYS] = {0.9f, 0.1f, 0.2f, 0.8f, 0.1f, 0.3f,
                                        0.1f, 0.3f, 0.1f, 0.0f, 0.1f, 0.2f};
    int32_t pos[KEYS];
    float mass[KEYS];
    uint8_t keep[KEYS];
    for (int j = 0; j < KEYS; j++) {
        pos[j] = j;
        mass[j] = 1;
    }
    const heed_held held = {.layers = 1,
                            .kv_heads = 1,
                            .group = 1,
                            .dim = DIM,
                            .value_dim = DIM,
                            .read = KEYS,
                            .visible = KEYS,
                            .count = KEYS,
                            .pos = pos,
                            .mass = mass,
                            .state = largest,
                            .state_stride = 1};
    if (heed_policy_try("cache=peak(share=0.5, recent=2)", forms, &held, 1, (uint8_t *[]){keep}))
        return failed();
    printf("kept:");
    for (int j = 0; j < KEYS; j++)
        if (keep[j])
            printf(" %d", pos[j]);
    putchar('\n');
    return memcmp(keep, (uint8_t[KEYS]){1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1}, KEYS) != 0;
}

static int read_text(const char *path, const char *text)
{
    heed_model *model;
    heed_session *session;
    heed_tokens tokens = {0};
    const heed_session_options wanted = {
        .context = 4096, .attention = "cache=peak(share=0.25) > by_head", .forms = forms};
    if (heed_model_open(&model, path, &(heed_model_options){0}) ||
        heed_session_create(&session, model, &wanted) ||
        heed_tokenize(heed_model_tokenizer(model), text, strlen(text), HEED_ADD_SPECIAL, &tokens))
        return failed();
    const heed_feed_item item = {.tokens = tokens.id, .count = tokens.count};
    if (heed_feed(session, &item, 1, &(heed_feed_wants){0}))
        return failed();
    const int64_t kept = heed_session_kept(session, 0, 0, 0, NULL, NULL, 0);
    int32_t *pos = malloc((size_t)(kept + 1) * sizeof *pos);
    if (!pos)
        return 1;
    heed_session_kept(session, 0, 0, 0, pos, NULL, kept);
    printf("%lld tokens read; the first kv head of the first layer keeps %lld, at", (long long)tokens.count,
           (long long)kept);
    for (int64_t j = 0; j < kept; j++)
        printf(" %d", pos[j]);
    putchar('\n');
    free(pos);
    heed_tokens_free(&tokens);
    heed_session_free(session);
    heed_model_close(model);
    return 0;
}

int main(int argc, char **argv)
{
    return argc > 2 ? read_text(argv[1], argv[2]) : try_it();
}
