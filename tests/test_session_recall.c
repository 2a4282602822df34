/* What selectors carry from step to step and from layer to layer, in sessions: batches, sharing, cutting,
 * saving. */
#include "support/small_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROMPT = 120, TEXT = 170 };

static const char *const specs[] = {
    "select=recycled(every=6, k=16)",
    "select=recycled(cosine=0.1, k=8, pool=max)",
    "select=kmeans(size=4, k=16, fresh=20)",
    "select=retrieval(k=4, sinks=1, recent=8, queries=16, links=6, degree=4, beam=8)",
    "select=follow(page=8); layers 0: select=delta(page=8, budget=32, recent=8)",
};
enum { SPECS = sizeof specs / sizeof *specs };

typedef struct reading {
    small_model small;
    heed_session *session;
    int32_t tokens[TEXT];
    float *logits;
    size_t bytes;
} reading;

static heed_session *new_one(const reading *r, const char *spec, int64_t sequences)
{
    return new_session(
        r->small.model,
        &(heed_session_options){
            .context = 200, .sequences = sequences, .attention = spec, .threads = 1, .chunk = 50});
}

static reading begin(const char *spec, int64_t sequences)
{
    reading r = {.session = NULL};
    open_small(&r.small, "llama", true);
    small_text(&r.small, r.tokens, TEXT);
    r.session = new_one(&r, spec, sequences);
    r.bytes = (size_t)r.small.columns * sizeof(float);
    r.logits = malloc(r.bytes);
    return r;
}

static void end(reading *r)
{
    free(r->logits);
    heed_session_free(r->session);
    close_small(&r->small);
}

/* Tokens from..to-1 of the text go to a sequence, the first ones as a prompt, the others as they are written.
 */
static void read_to(reading *r, heed_session *session, int64_t sequence, int64_t from, int64_t to,
                    float *logits)
{
    if (from < PROMPT) {
        const int64_t upto = to < PROMPT ? to : PROMPT;
        must(heed_feed(
            session,
            &(heed_feed_item){.sequence = sequence, .tokens = r->tokens + from, .count = upto - from}, 1,
            &(heed_feed_wants){.logits = logits}));
        from = upto;
    }
    for (; from < to; from++)
        must(heed_feed(session,
                       &(heed_feed_item){.sequence = sequence, .tokens = r->tokens + from, .count = 1}, 1,
                       &(heed_feed_wants){.logits = logits}));
}

static void same(const reading *r, const float *a, const float *b, const char *what)
{
    if (memcmp(a, b, r->bytes) != 0)
        fail_msg("%s: logits are off by %g", what, farthest(a, b, r->small.columns));
}

static double pairs_read(const heed_session *session)
{
    heed_session_usage usage;
    heed_session_get_usage(session, &usage);
    return usage.pairs_read;
}

static void full_steps_are_full_attention_to_the_last_bit(void **state)
{
    (void)state;
    reading r = begin("select=recycled(every=1)", 1);
    heed_session *plain = new_one(&r, NULL, 1);
    float *expected = malloc(r.bytes);
    for (int64_t t = 0; t < TEXT; t += t ? 1 : PROMPT) {
        read_to(&r, r.session, 0, t, t ? t + 1 : PROMPT, r.logits);
        read_to(&r, plain, 0, t, t ? t + 1 : PROMPT, expected);
        same(&r, expected, r.logits, "every=1");
    }
    free(expected);
    heed_session_free(plain);
    end(&r);
}

static void whole_budgets_equal_full_attention(void **state)
{
    (void)state;
    static const char *const whole[] = {"select=recycled(every=9, k=200)",
                                        "select=follow(page=8); layers 0: select=delta(page=8, budget=200)"};
    for (int i = 0; i < 2; i++) {
        reading r = begin(whole[i], 1);
        heed_session *plain = new_one(&r, NULL, 1);
        float *expected = malloc(r.bytes);
        for (int64_t t = 0; t < TEXT; t += t ? 1 : PROMPT) {
            read_to(&r, r.session, 0, t, t ? t + 1 : PROMPT, r.logits);
            read_to(&r, plain, 0, t, t ? t + 1 : PROMPT, expected);
            assert_true(farthest(expected, r.logits, r.small.columns) < 1e-4);
        }
        assert_true(pairs_read(r.session) == pairs_read(plain));
        free(expected);
        heed_session_free(plain);
        end(&r);
    }
}

static void less_is_read_than_there_is(void **state)
{
    (void)state;
    for (int i = 0; i < SPECS; i++) {
        reading r = begin(specs[i], 1);
        heed_session *plain = new_one(&r, NULL, 1);
        read_to(&r, r.session, 0, 0, PROMPT, r.logits);
        read_to(&r, plain, 0, 0, PROMPT, r.logits);
        assert_true(pairs_read(r.session) == pairs_read(plain)); /* prompts are read in full */
        const double before = pairs_read(plain);
        read_to(&r, r.session, 0, PROMPT, TEXT, r.logits);
        read_to(&r, plain, 0, PROMPT, TEXT, r.logits);
        assert_true(pairs_read(r.session) - before < 0.75 * (pairs_read(plain) - before));
        heed_session_free(plain);
        end(&r);
    }
}

/* Sequences of different lengths that are fed together, while one still reads its prompt. */
static void neighbours_change_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < SPECS; i++) {
        reading r = begin(specs[i], 3);
        heed_session *alone = new_one(&r, specs[i], 1);
        float *expected = malloc(r.bytes), *both = malloc(3 * r.bytes);
        read_to(&r, r.session, 1, 0, 130, r.logits);
        read_to(&r, alone, 0, 0, 130, expected);
        for (int64_t t = 130; t < 150; t++) {
            const heed_feed_item items[] = {
                {.sequence = 0, .tokens = r.tokens + 3 * (t - 130), .count = t % 3 ? 1 : 7},
                {.sequence = 1, .tokens = r.tokens + t, .count = 1},
                {.sequence = 2, .tokens = r.tokens + t - 130, .count = 1}};
            must(heed_feed(r.session, items, 3, &(heed_feed_wants){.logits = both}));
            read_to(&r, alone, 0, t, t + 1, expected);
            same(&r, expected, both + r.small.columns, specs[i]);
        }
        free(expected);
        free(both);
        heed_session_free(alone);
        end(&r);
    }
}

/* A text that is written in one call is read as if each token came by itself. */
static void what_is_written_at_once_is_read_step_by_step(void **state)
{
    (void)state;
    for (int i = 0; i < SPECS; i++) {
        reading r = begin(specs[i], 2);
        float *expected = malloc(r.bytes);
        read_to(&r, r.session, 0, 0, TEXT, expected);
        read_to(&r, r.session, 1, 0, PROMPT, r.logits);
        must(heed_feed(r.session,
                       &(heed_feed_item){.sequence = 1,
                                         .tokens = r.tokens + PROMPT,
                                         .count = TEXT - PROMPT,
                                         .reading = HEED_READ_WRITTEN},
                       1, &(heed_feed_wants){.logits = r.logits}));
        same(&r, expected, r.logits, specs[i]);
        free(expected);
        end(&r);
    }
}

static void shared_saved_and_cut_sequences_go_on_with_the_same_bits(void **state)
{
    (void)state;
    char path[] = "/tmp/heed_recall_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    for (int i = 0; i < SPECS; i++) {
        reading r = begin(specs[i], 3);
        heed_session *other = new_one(&r, specs[i], 1);
        float *expected = malloc(r.bytes);
        const int64_t middle = PROMPT + 16; /* with every=6, three steps behind a full one */
        read_to(&r, r.session, 0, 0, middle, r.logits);
        must(heed_session_share(r.session, 0, 1, middle));
        must(heed_session_share(r.session, 0, 2, middle));
        must(heed_session_save(r.session, 0, path));
        must(heed_session_load(other, 0, path));
        read_to(&r, r.session, 0, middle, TEXT, expected);
        read_to(&r, r.session, 1, middle, TEXT, r.logits);
        same(&r, expected, r.logits, "shared");
        read_to(&r, other, 0, middle, TEXT, r.logits);
        same(&r, expected, r.logits, "saved");
        if (i == 0) { /* two tokens more, and back behind the same full step */
            read_to(&r, r.session, 2, middle, middle + 2, r.logits);
            must(heed_session_cut(r.session, 2, middle));
            read_to(&r, r.session, 2, middle, TEXT, r.logits);
            same(&r, expected, r.logits, "cut");
        }
        free(expected);
        heed_session_free(other);
        end(&r);
    }
    remove(path);
}

/* What was chosen after the place of the cut is void: the next step is full. */
static void a_cut_behind_the_last_full_step_makes_the_next_one_full(void **state)
{
    (void)state;
    reading r = begin("select=recycled(every=6, k=16)", 1);
    read_to(&r, r.session, 0, 0, PROMPT + 8, r.logits);
    must(heed_session_cut(r.session, 0, PROMPT + 5));
    const double before = pairs_read(r.session);
    read_to(&r, r.session, 0, PROMPT + 5, PROMPT + 6, r.logits);
    heed_model_info info;
    heed_model_get_info(r.small.model, &info);
    assert_true(pairs_read(r.session) - before == (double)(info.layers * info.heads * (PROMPT + 6)));
    end(&r);
}

static void what_layers_cannot_serve_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model, *spec, *says;
    } each[] = {
        {"llama", "select=follow; layers 0: select=none", "none does"},
        {"llama", "select=follow(page=16); layers 0: select=delta(page=8)", "pages of 8"},
        {"llama", "select=recycled; cache=h2o(budget=20)", "drops keys"},
        {"gemma3", "select=recycled", "drops keys"},
        {"llama", "heads 0: select=recycled", "same spec"},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        small_model small;
        open_small(&small, each[i].model, true);
        must_refuse(&small, each[i].spec, 200, each[i].says);
        close_small(&small);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_steps_are_full_attention_to_the_last_bit),
        cmocka_unit_test(whole_budgets_equal_full_attention),
        cmocka_unit_test(less_is_read_than_there_is),
        cmocka_unit_test(neighbours_change_no_bit),
        cmocka_unit_test(what_is_written_at_once_is_read_step_by_step),
        cmocka_unit_test(shared_saved_and_cut_sequences_go_on_with_the_same_bits),
        cmocka_unit_test(a_cut_behind_the_last_full_step_makes_the_next_one_full),
        cmocka_unit_test(what_layers_cannot_serve_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
