/* Selectors that gather and remember, in sessions: prompts in pieces, single tokens, turns, neighbours,
 * sharing, cutting, saving. */
#include "support/small_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT = 130 };

/* What they make of a text does not depend on how it comes. */
static const char *const steady[] = {
    "select=cca(block=4, window=10)", "select=longheads(chunk=6, length=24)",
    "select=ltri(chunk=16, window=16, sinks=2, least=3, most=9, budget=200)"};
static const char *const all[] = {"select=cca(block=4, window=10)", "select=longheads(chunk=6, length=24)",
                                  "select=ltri(chunk=16, window=20, sinks=2, least=3, most=9, budget=20)"};
enum { STEADY = sizeof steady / sizeof *steady, ALL = sizeof all / sizeof *all };

typedef struct reading {
    small_model small;
    int32_t tokens[TEXT];
    float *logits, *expected;
    size_t bytes;
} reading;

static heed_session *new_one(const reading *r, const char *spec, int64_t sequences)
{
    return new_session(
        r->small.model,
        &(heed_session_options){
            .context = 160, .sequences = sequences, .attention = spec, .threads = 1, .chunk = 50});
}

static reading begin(void)
{
    reading r = {.logits = NULL};
    open_small(&r.small, "llama", true);
    small_text(&r.small, r.tokens, TEXT);
    r.bytes = (size_t)r.small.columns * sizeof(float);
    r.logits = malloc(3 * r.bytes);
    r.expected = malloc(r.bytes);
    return r;
}

static void end(reading *r)
{
    free(r->logits);
    free(r->expected);
    close_small(&r->small);
}

/* Tokens from .. to-1 of the text, `at_once` in a call. */
static void read_to(const reading *r, heed_session *session, int64_t sequence, int64_t from, int64_t to,
                    int64_t at_once, float *logits)
{
    for (; from < to; from += at_once)
        must(heed_feed(session,
                       &(heed_feed_item){.sequence = sequence,
                                         .tokens = r->tokens + from,
                                         .count = to - from < at_once ? to - from : at_once},
                       1, &(heed_feed_wants){.logits = logits}));
}

static void near(const reading *r, const float *a, const float *b, const char *what)
{
    if (!(farthest(a, b, r->small.columns) < 2e-3)) /* keys are f16, and activations bytes */
        fail_msg("%s: logits are off by %g", what, farthest(a, b, r->small.columns));
}

static void same(const reading *r, const float *a, const float *b, const char *what)
{
    if (memcmp(a, b, r->bytes) != 0)
        fail_msg("%s: logits are off by %g", what, farthest(a, b, r->small.columns));
}

static void prompts_turns_and_single_tokens_agree(void **state)
{
    (void)state;
    reading r = begin();
    for (int i = 0; i < STEADY; i++) {
        heed_session *session = new_one(&r, steady[i], 3);
        read_to(&r, session, 0, 0, TEXT, TEXT, r.expected);
        read_to(&r, session, 1, 0, TEXT, 37, r.logits);
        near(&r, r.expected, r.logits, steady[i]);
        read_to(&r, session, 2, 0, 40, 40, r.logits);
        read_to(&r, session, 2, 40, TEXT, 1, r.logits);
        near(&r, r.expected, r.logits, steady[i]);
        heed_session_free(session);
    }
    end(&r);
}

static void what_loses_nothing_is_the_model_itself(void **state)
{
    (void)state;
    static const char *const whole[] = {"select=cca(block=1, window=3)", "select=cca(window=200)",
                                        "select=longheads(chunk=20, length=200)",
                                        "select=ltri(chunk=16, window=16, least=3, most=9, budget=200)",
                                        "select=hyper(block=16, m=200, base=8)"};
    reading r = begin();
    heed_session *plain = new_one(&r, NULL, 1);
    read_to(&r, plain, 0, 0, 90, 90, r.expected);
    read_to(&r, plain, 0, 90, 100, 1, r.expected);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        heed_session *session = new_one(&r, whole[i], 1);
        read_to(&r, session, 0, 0, 90, 90, r.logits);
        read_to(&r, session, 0, 90, 100, 1, r.logits);
        near(&r, r.expected, r.logits, whole[i]);
        heed_session_free(session);
    }
    heed_session_free(plain);
    end(&r);
}

static void neighbours_change_no_bit(void **state)
{
    (void)state;
    reading r = begin();
    for (int i = 0; i < ALL; i++) {
        heed_session *session = new_one(&r, all[i], 3), *alone = new_one(&r, all[i], 1);
        read_to(&r, session, 1, 0, 70, 70, r.logits);
        read_to(&r, alone, 0, 0, 70, 70, r.expected);
        for (int64_t t = 70; t < 82; t++) {
            const heed_feed_item items[] = {
                {.sequence = 0, .tokens = r.tokens + 3 * (t - 70), .count = t % 3 ? 1 : 7},
                {.sequence = 1, .tokens = r.tokens + t, .count = 1},
                {.sequence = 2, .tokens = r.tokens + t - 70, .count = 1}};
            must(heed_feed(session, items, 3, &(heed_feed_wants){.logits = r.logits}));
            read_to(&r, alone, 0, t, t + 1, 1, r.expected);
            same(&r, r.expected, r.logits + r.small.columns, all[i]);
        }
        heed_session_free(session);
        heed_session_free(alone);
    }
    end(&r);
}

static void shared_and_saved_sequences_go_on_with_the_same_bits(void **state)
{
    (void)state;
    char path[] = "/tmp/heed_gather_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    reading r = begin();
    for (int i = 0; i < ALL; i++) {
        heed_session *session = new_one(&r, all[i], 2), *other = new_one(&r, all[i], 1);
        read_to(&r, session, 0, 0, 75, 75, r.logits);
        must(heed_session_share(session, 0, 1, 75));
        must(heed_session_save(session, 0, path));
        must(heed_session_load(other, 0, path));
        read_to(&r, session, 0, 75, 110, 1, r.expected);
        read_to(&r, session, 1, 75, 110, 1, r.logits);
        same(&r, r.expected, r.logits, "shared");
        read_to(&r, other, 0, 75, 110, 1, r.logits);
        same(&r, r.expected, r.logits, "saved");
        heed_session_free(session);
        heed_session_free(other);
    }
    remove(path);
    end(&r);
}

/* cca anywhere; the others at the edge of a chunk, or in the last. */
static void a_cut_sequence_goes_on_or_says_why_not(void **state)
{
    (void)state;
    static const struct {
        int spec;
        int64_t to;
        bool goes_on;
    } cuts[] = {{0, 61, true}, {1, 60, true}, {1, 88, true}, {1, 61, false}, {2, 64, true}, {2, 61, false}};
    reading r = begin();
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        heed_session *session = new_one(&r, steady[cuts[i].spec], 1);
        read_to(&r, session, 0, 0, 89, 89, r.logits);
        must(heed_session_cut(session, 0, cuts[i].to));
        const heed_feed_item item = {.tokens = r.tokens + cuts[i].to, .count = 100 - cuts[i].to};
        const heed_status status = heed_feed(session, &item, 1, &(heed_feed_wants){.logits = r.logits});
        if (!cuts[i].goes_on) {
            assert_int_not_equal(status, HEED_OK);
            assert_non_null(strstr(heed_message(), "read again"));
        } else {
            must(status);
            heed_session *whole = new_one(&r, steady[cuts[i].spec], 1);
            read_to(&r, whole, 0, 0, 100, 100, r.expected);
            near(&r, r.expected, r.logits, steady[cuts[i].spec]);
            heed_session_free(whole);
        }
        heed_session_free(session);
    }
    end(&r);
}

static void what_layers_cannot_serve_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model, *spec, *says;
    } each[] = {
        {"llama", "select=cca; cache=h2o(budget=20)", "cache policy"},
        {"llama", "select=hyper; cache=h2o(budget=20)", "cache policy"},
        {"gemma3", "select=longheads", "no other mask"},
        {"llama", "heads 0: select=cca", "same spec"},
        {"llama", "select=adaspa", "one after the other"},
        {"llama", "select=cca > top_k(3)", "no other selector"},
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
        cmocka_unit_test(prompts_turns_and_single_tokens_agree),
        cmocka_unit_test(what_loses_nothing_is_the_model_itself),
        cmocka_unit_test(neighbours_change_no_bit),
        cmocka_unit_test(shared_and_saved_sequences_go_on_with_the_same_bits),
        cmocka_unit_test(a_cut_sequence_goes_on_or_says_why_not),
        cmocka_unit_test(what_layers_cannot_serve_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
