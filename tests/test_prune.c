/* Prompts of which only some tokens go on to later layers. */
#include "support/small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT = 150, MORE = 12, HELD = TEXT + MORE };

static uint8_t gone[HELD]; /* what the form below closes */

static void close_gone(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    (void)form;
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->cols; j++)
            open[i * tile->stride + j] =
                tile->key_pos[j] < 0 || tile->key_pos[j] >= HELD || !gone[tile->key_pos[j]];
}

static const heed_form staying = {
    .name = "staying", .stage = HEED_WHERE, .summary = "not gone", .mask = close_gone};
static const heed_form *const forms[] = {&staying, NULL};

typedef struct pruning {
    small_model small;
    int32_t tokens[HELD];
    size_t bytes;
} pruning;

static pruning begin(const char *model)
{
    pruning p = {.bytes = 0};
    open_small(&p.small, model, true);
    for (int t = 0; t < HELD; t++)
        p.tokens[t] = p.small.tokens[(t * 7 + t / 31) % p.small.count];
    p.bytes = (size_t)p.small.columns * sizeof(float);
    return p;
}

static heed_session *session_of(const pruning *p, const char *spec, unsigned with)
{
    return new_session(p->small.model, &(heed_session_options){.context = HELD + 8,
                                                               .sequences = 2,
                                                               .attention = spec,
                                                               .threads = 1,
                                                               .chunk = 64,
                                                               .with = with,
                                                               .forms = forms});
}

static void feed(heed_session *session, int64_t sequence, const int32_t *tokens, int64_t count, float *logits)
{
    must(heed_feed(session, &(heed_feed_item){.sequence = sequence, .tokens = tokens, .count = count}, 1,
                   &(heed_feed_wants){.logits = logits}));
}

static void nothing_dropped_changes_no_bit(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "gemma3"};
    for (int m = 0; m < 2; m++) {
        pruning p = begin(models[m]);
        heed_model_info info;
        heed_model_get_info(p.small.model, &info);
        char spec[64];
        for (int64_t layer = 0; layer < info.layers; layer++) {
            snprintf(spec, sizeof spec, "layers %d: cache=fastv(drop=0)", (int)layer);
            heed_session *pruned;
            if (heed_session_create(
                    &pruned, p.small.model,
                    &(heed_session_options){
                        .context = HELD + 8, .sequences = 2, .attention = spec, .threads = 1, .chunk = 64})) {
                assert_non_null(strstr(heed_message(), "sees a window"));
                continue;
            }
            heed_session *plain = session_of(&p, NULL, 0);
            float *a = malloc(p.bytes), *b = malloc(p.bytes);
            feed(pruned, 1, p.tokens, TEXT, a);
            feed(plain, 1, p.tokens, TEXT, b);
            if (memcmp(a, b, p.bytes) != 0)
                fail_msg("%s: %s: off by %g", models[m], spec, farthest(a, b, p.small.columns));
            for (int t = TEXT; t < HELD; t++) {
                feed(pruned, 1, p.tokens + t, 1, a);
                feed(plain, 1, p.tokens + t, 1, b);
                assert_true(farthest(a, b, p.small.columns) < 1e-4);
            }
            free(a);
            free(b);
            heed_session_free(pruned);
            heed_session_free(plain);
        }
        close_small(&p.small);
    }
}

/* What later layers keep of kv head 0 goes into `gone`; returns how many prompt tokens are left. */
static int64_t find_gone(const heed_session *session, int64_t sequence, int64_t layer)
{
    int32_t pos[HELD];
    const int64_t kept = heed_session_kept(session, sequence, layer, 0, pos, NULL, HELD);
    memset(gone, 1, sizeof gone);
    for (int64_t i = 0; i < kept; i++)
        gone[pos[i]] = 0;
    memset(gone + TEXT, 0, MORE);
    return kept;
}

/* The other route: every token goes through every layer, but later ones do not see those that are gone. */
static void pruning_equals_masking_in_later_layers(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "gemma3"};
    static const int first[] = {0, 5};
    for (int m = 0; m < 2; m++)
        for (int mean = 0; mean < 2; mean++) {
            pruning p = begin(models[m]);
            char spec[128], masked[160];
            heed_model_info info;
            heed_model_get_info(p.small.model, &info);
            const int layer = first[m] < info.layers - 1 ? first[m] : 0;
            snprintf(spec, sizeof spec, "layers %d: cache=fastv(drop=0.6, score=%s, first=3, recent=5)",
                     layer, mean ? "mean" : "last");
            snprintf(masked, sizeof masked, "layers %d-%d: where=causal & staying", layer + 1,
                     (int)info.layers - 1);
            heed_session *pruned;
            if (heed_session_create(
                    &pruned, p.small.model,
                    &(heed_session_options){
                        .context = HELD + 8, .sequences = 2, .attention = spec, .threads = 1, .chunk = 64})) {
                close_small(&p.small);
                continue;
            }
            heed_session *whole = m == 0 ? session_of(&p, masked, 0) : NULL;
            float *a = malloc(p.bytes), *b = malloc(p.bytes);
            feed(pruned, 1, p.tokens, TEXT, a);
            const int64_t kept = find_gone(pruned, 1, layer + 1);
            assert_int_equal(kept, TEXT - (int)(0.6 * (TEXT - 8)));
            assert_false(gone[TEXT - 1]);
            for (int t = 0; t < 3; t++)
                assert_false(gone[t]);
            if (whole) {
                feed(whole, 1, p.tokens, TEXT, b);
                for (int t = TEXT; t <= HELD; t++) {
                    if (farthest(a, b, p.small.columns) > 1e-4)
                        fail_msg("%s, %d tokens: off by %g", spec, t, farthest(a, b, p.small.columns));
                    if (t < HELD) {
                        feed(pruned, 1, p.tokens + t, 1, a);
                        feed(whole, 1, p.tokens + t, 1, b);
                    }
                }
                heed_session_free(whole);
            }
            free(a);
            free(b);
            heed_session_free(pruned);
            close_small(&p.small);
        }
}

/* Weights of one layer as they are streamed, for the definition. */
typedef struct heard {
    int64_t layer;
    double last[TEXT], mean[TEXT], heads;
} heard;

static void hear(void *context, int64_t layer, int64_t sequence, const heed_weights_tile *tile)
{
    heard *h = context;
    (void)sequence;
    for (int i = 0; layer == h->layer && i < tile->rows; i++)
        for (int j = 0; j < tile->cols && tile->key0 + j < TEXT; j++) {
            const double weight = tile->weight[i * tile->stride + j] / h->heads;
            h->mean[tile->key0 + j] += weight;
            h->last[tile->key0 + j] += tile->query0 + i == TEXT - 1 ? weight : 0;
        }
}

static void the_tokens_that_go_on_are_those_of_the_definition(void **state)
{
    (void)state;
    pruning p = begin("llama");
    heed_model_info info;
    heed_model_get_info(p.small.model, &info);
    heed_session *plain = session_of(&p, NULL, HEED_WITH_WEIGHTS);
    heard h = {.layer = 0, .heads = (double)info.heads};
    must(heed_feed(plain, &(heed_feed_item){.tokens = p.tokens, .count = TEXT}, 1,
                   &(heed_feed_wants){.weights = hear, .context = &h}));
    for (int mean = 0; mean < 2; mean++) {
        char spec[96];
        snprintf(spec, sizeof spec, "layers 0: cache=fastv(drop=0.5, score=%s, first=10, end=90)",
                 mean ? "mean" : "last");
        heed_session *pruned = session_of(&p, spec, 0);
        float *logits = malloc(p.bytes);
        feed(pruned, 0, p.tokens, TEXT, logits);
        find_gone(pruned, 0, 1);
        double least_kept = 1e9, most_gone = -1e9;
        int dropped = 0;
        for (int t = 0; t < TEXT; t++) {
            const double phi = mean ? h.mean[t] / (TEXT - t) : h.last[t];
            dropped += gone[t];
            if (t < 10 || t >= 90)
                assert_false(gone[t]);
            else if (gone[t])
                most_gone = phi > most_gone ? phi : most_gone;
            else
                least_kept = phi < least_kept ? phi : least_kept;
        }
        assert_int_equal(dropped, 40);
        assert_true(least_kept >= most_gone - 1e-6);
        free(logits);
        heed_session_free(pruned);
    }
    heed_session_free(plain);
    close_small(&p.small);
}

/* c(n) = n (weights of a layer) + 2 head_dim n (n + 1) / 2 heads; layers behind the choice have n' tokens. */
static void the_work_saved_is_that_of_the_formula(void **state)
{
    (void)state;
    pruning p = begin("llama");
    heed_model_info info;
    heed_model_get_info(p.small.model, &info);
    heed_session *session[2] = {session_of(&p, NULL, 0),
                                session_of(&p, "layers 0: cache=fastv(recent=2)", 0)};
    double work[2];
    float *logits = malloc(p.bytes);
    for (int i = 0; i < 2; i++) {
        feed(session[i], 0, p.tokens, TEXT, logits);
        heed_session_usage usage;
        heed_session_get_usage(session[i], &usage);
        work[i] = usage.products;
    }
    const double n = TEXT, m = TEXT - (TEXT - 2) / 2, pair = 2.0 * (double)info.head_dim * (double)info.heads;
    const double weights = (work[0] / (double)info.layers - pair * n * (n + 1) / 2) / n; /* of one layer */
    const double c[] = {n * weights + pair * n * (n + 1) / 2, m * weights + pair * m * (m + 1) / 2};
    assert_true(weights == floor(weights) && weights > 0);
    assert_true(fabs(work[1] - (c[0] + (double)(info.layers - 1) * c[1])) < 1);
    for (int i = 0; i < 2; i++)
        heed_session_free(session[i]);
    free(logits);
    close_small(&p.small);
}

/* Shared and saved sequences go on with the same bits, a second prompt is pruned as well, and a cut into the
 * prompt is refused. */
static void pruned_sequences_are_shared_saved_and_cut(void **state)
{
    (void)state;
    pruning p = begin("llama");
    char path[] = "/tmp/heed_prune_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    heed_session *session = session_of(&p, "layers 0: cache=fastv", 0),
                 *other = session_of(&p, "layers 0: cache=fastv", 0);
    float *a = malloc(p.bytes), *b = malloc(p.bytes);
    feed(session, 0, p.tokens, 100, a);
    feed(session, 0, p.tokens + 100, 3, a);
    feed(session, 0, p.tokens + 103, 40, a); /* a second prompt */
    feed(session, 0, p.tokens + 143, 1, a);
    assert_true(heed_session_cut(session, 0, 120) == HEED_INVALID);
    assert_non_null(strstr(heed_message(), "143 tokens"));
    must(heed_session_share(session, 0, 1, 143));
    must(heed_session_save(session, 0, path));
    must(heed_session_load(other, 0, path));
    feed(session, 0, p.tokens + 144, 1, a);
    feed(other, 0, p.tokens + 144, 1, b);
    assert_memory_equal(a, b, p.bytes);
    feed(session, 1, p.tokens + 143, 1, b);
    feed(session, 1, p.tokens + 144, 1, b);
    assert_memory_equal(a, b, p.bytes);
    remove(path);
    free(a);
    free(b);
    heed_session_free(session);
    heed_session_free(other);
    close_small(&p.small);
}

static void what_does_not_go_together_is_refused(void **state)
{
    (void)state;
    static const char *const each[][2] = {
        {"cache=fastv", "give it to one"},
        {"layers 0: cache=fastv; layers 1: cache=h2o(budget=30)", "does not go together"},
        {"heads 0: cache=fastv", "some heads"},
        {"layers 0: cache=fastv; layers 1: select=recycled", "drops keys"},
        {"layers 0: cache=fastv(drop=1.5)", "drop"},
    };
    pruning p = begin("llama");
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        heed_session *session;
        if (!heed_session_create(&session, p.small.model,
                                 &(heed_session_options){.context = 100, .attention = each[i][0]}) ||
            !strstr(heed_message(), each[i][1]))
            fail_msg("%s: %s", each[i][0], heed_message());
    }
    heed_session *session = session_of(&p, "layers 0: cache=fastv", 0);
    const heed_feed_item part = {.tokens = p.tokens, .count = 20, .reading = HEED_READ_PROMPT_PART};
    assert_int_equal(heed_feed(session, &part, 1, NULL), HEED_UNSUPPORTED);
    const heed_feed_item whole = {.tokens = p.tokens, .count = 20};
    float *logits = malloc(20 * p.bytes);
    assert_int_equal(heed_feed(session, &whole, 1, &(heed_feed_wants){.logits = logits, .all_logits = true}),
                     HEED_UNSUPPORTED);
    assert_int_equal(heed_session_length(session, 0), 0);
    free(logits);
    heed_session_free(session);
    close_small(&p.small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_dropped_changes_no_bit),
        cmocka_unit_test(pruning_equals_masking_in_later_layers),
        cmocka_unit_test(the_tokens_that_go_on_are_those_of_the_definition),
        cmocka_unit_test(the_work_saved_is_that_of_the_formula),
        cmocka_unit_test(pruned_sequences_are_shared_saved_and_cut),
        cmocka_unit_test(what_does_not_go_together_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
