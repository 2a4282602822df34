/* Policies that are tried on what was read once leave and foresee what they do when they read it themselves.
 */
#include "model/session_trial.h"
#include "support/small_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 300, MORE = 5, MOST = 512 };
#define GATHER "cache=snapkv(share=1, window=16) > h2o(share=1) > lfa(share=1, top=4)"

static const char *const models[] = {"llama", "gemma3"};

static void feed(heed_session *session, int64_t sequence, const int32_t *tokens, int64_t count,
                 heed_feed_kind reading, float *logits)
{
    const heed_feed_item item = {.sequence = sequence, .tokens = tokens, .count = count, .reading = reading};
    must(heed_feed(session, &item, 1, &(heed_feed_wants){.logits = logits}));
}

static double all_bytes(const small_model *small, const heed_trials *trials, int64_t sequence)
{
    double bytes = 0.0;
    for (int64_t l = 0; l < small->info.layers; l++)
        for (int64_t g = 0; g < small->info.kv_heads; g++)
            bytes += heed_trials_bytes(trials, sequence, l, g);
    return bytes;
}

/* The keys that both hold, how far their next logits are apart, and the bytes of both stores. */
static void assert_alike(const small_model *small, const heed_trials *trials, int64_t sequence,
                         const char *spec, const int32_t *tokens)
{
    heed_session *tried = trials->session;
    heed_session_usage usage;
    const heed_session_options options = {.context = MOST, .threads = 1, .attention = spec};
    heed_session *own = new_session(small->model, &options);
    float *expected = malloc((size_t)small->columns * sizeof *expected),
          *found = malloc((size_t)small->columns * sizeof *found);
    int32_t kept[2][MOST];
    feed(own, 0, tokens, PROMPT, HEED_READ_PROMPT_END, NULL);
    for (int64_t l = 0; l < small->info.layers; l++)
        for (int64_t g = 0; g < small->info.kv_heads; g++) {
            const int64_t count = heed_session_kept(own, 0, l, g, kept[0], NULL, MOST);
            if (heed_session_kept(tried, sequence, l, g, kept[1], NULL, MOST) != count ||
                memcmp(kept[0], kept[1], (size_t)count * sizeof(int32_t)) != 0)
                fail_msg("%s: layer %lld, kv head %lld holds other keys", spec, (long long)l, (long long)g);
        }
    feed(own, 0, tokens + PROMPT, MORE, HEED_READ_WRITTEN, expected);
    feed(tried, sequence, tokens + PROMPT, MORE, HEED_READ_WRITTEN, found);
    if (farthest(expected, found, small->columns) > 1e-5)
        fail_msg("%s: off by %g", spec, farthest(expected, found, small->columns));
    heed_session_get_usage(own, &usage);
    if (all_bytes(small, trials, sequence) != (double)usage.bytes)
        fail_msg("%s: %g bytes, a session of its own has %zu", spec, all_bytes(small, trials, sequence),
                 usage.bytes);
    free(expected);
    free(found);
    heed_session_free(own);
}

static heed_session *read_once(const small_model *small, const char *gather, const int32_t *tokens,
                               heed_trials *trials)
{
    const heed_session_options options = {.context = MOST, .threads = 1, .sequences = 4, .attention = gather};
    heed_session *session = new_session(small->model, &options);
    must(heed_trials_begin(trials, session));
    feed(session, 0, tokens, PROMPT, HEED_READ_PROMPT_END, NULL);
    return session;
}

static void policies_act_on_what_was_read_as_if_they_had_read_it(void **state)
{
    (void)state;
    static const char *const specs[] = {"cache=snapkv(share=0.4, window=16)",
                                        "cache=snapkv(budget=60, window=8) > by_head",
                                        "cache=h2o(share=0.3)",
                                        "cache=lfa(share=0.5, top=4)",
                                        "cache=streaming(share=0.2); layers 1: cache=tova(share=0.5)",
                                        "layers 0: cache=h2o(budget=50)",
                                        "cache=f16"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        small_model small;
        int32_t tokens[PROMPT + MORE];
        heed_trials trials;
        open_small(&small, models[m], true);
        small_text(&small, tokens, PROMPT + MORE);
        heed_session *session = read_once(&small, GATHER, tokens, &trials);
        for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
            must(heed_session_share(session, 0, 1, PROMPT));
            must(heed_trials_change(&trials, specs[i]));
            must(heed_trials_act(&trials, 1));
            assert_alike(&small, &trials, 1, specs[i], tokens);
            must(heed_session_cut(session, 1, 0));
        }
        heed_trials_end(&trials);
        heed_session_free(session);
        close_small(&small);
    }
}

/* Pages take their grades when policies have acted, as in a session that reads the prompt itself. */
static void pages_age_behind_policies_that_are_tried(void **state)
{
    (void)state;
    static const char *const storage[] = {"kivi(residual=0)", "outliers(bits=4, residual=0)",
                                          "think(drop=0.5)", "qaq(e=0.003)"};
    static const char *const policies[] = {"", "snapkv(share=0.6, window=16) > ", "h2o(share=0.9) > "};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t s = 0; s < sizeof storage / sizeof *storage; s++) {
            small_model small;
            int32_t tokens[PROMPT + MORE];
            heed_trials trials;
            char spec[200];
            open_small(&small, models[m], true);
            small_text(&small, tokens, PROMPT + MORE);
            snprintf(spec, sizeof spec, "%s > %s", GATHER, storage[s]);
            heed_session *session = read_once(&small, spec, tokens, &trials);
            for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
                snprintf(spec, sizeof spec, "cache=%s%s", policies[i], storage[s]);
                must(heed_session_share(session, 0, 1, PROMPT));
                must(heed_trials_change(&trials, spec));
                must(heed_trials_act(&trials, 1));
                assert_alike(&small, &trials, 1, spec, tokens);
                must(heed_session_cut(session, 1, 0));
            }
            assert_int_equal(heed_trials_change(&trials, "cache=kivi(bits=2)"), HEED_UNSUPPORTED);
            heed_trials_end(&trials);
            heed_session_free(session);
            close_small(&small);
        }
}

static void what_two_policies_left_makes_a_mix(void **state)
{
    (void)state;
    const char *const part[] = {"cache=snapkv(share=0.4, window=16)", "cache=streaming(share=0.2)"};
    const char *mix = "cache=snapkv(share=0.4, window=16); layers 1: cache=streaming(share=0.2)";
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        small_model small;
        int32_t tokens[PROMPT + MORE];
        heed_trials trials;
        open_small(&small, models[m], true);
        small_text(&small, tokens, PROMPT + MORE);
        heed_session *session = read_once(&small, GATHER, tokens, &trials);
        for (int64_t p = 0; p < 2; p++) {
            must(heed_trials_change(&trials, part[p]));
            must(heed_session_share(session, 0, 2 + p, PROMPT));
            must(heed_trials_act(&trials, 2 + p));
        }
        must(heed_session_share(session, 0, 1, PROMPT));
        must(heed_trials_change(&trials, mix));
        for (int64_t l = 0; l < small.info.layers; l++)
            for (int64_t g = 0; g < small.info.kv_heads; g++)
                must(heed_trials_take(&trials, 2 + (l == 1), 1, l, g));
        assert_alike(&small, &trials, 1, mix, tokens);
        heed_trials_end(&trials);
        heed_session_free(session);
        close_small(&small);
    }
}

static void what_cannot_be_tried_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    static const char *const specs[] = {"cache=snapkv(share=0.4, window=17)", /* more queries */
                                        "cache=h2o(share=0.4, ageing=0.5)",   /* other sums */
                                        "cache=lra(share=0.4)",
                                        "cache=snapkv(share=0.4, window=16) > q8",
                                        "cache=snapkv(share=0.4, window=16) > packed",
                                        "cache=snapkv(share=0.4, window=16) > mean",
                                        "cache=snapkv(share=0.4, window=16) > chunked(64)",
                                        "where=causal & window(20)"};
    small_model small;
    int32_t tokens[PROMPT + MORE];
    heed_trials trials;
    open_small(&small, "llama", true);
    small_text(&small, tokens, PROMPT + MORE);
    heed_session *session = read_once(&small, GATHER, tokens, &trials);
    must(heed_trials_change(&trials, "cache=h2o(share=0.3)"));
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        if (heed_trials_change(&trials, specs[i]) != HEED_UNSUPPORTED)
            fail_msg("%s was not refused", specs[i]);
    assert_int_not_equal(heed_trials_change(&trials, "cache=snapkw(share=0.3)"), HEED_OK);
    must(heed_session_share(session, 0, 1, PROMPT));
    must(heed_trials_act(&trials, 1));
    assert_alike(&small, &trials, 1, "cache=h2o(share=0.3)", tokens);
    heed_trials_end(&trials);
    heed_session_free(session);
    close_small(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_act_on_what_was_read_as_if_they_had_read_it),
        cmocka_unit_test(pages_age_behind_policies_that_are_tried),
        cmocka_unit_test(what_two_policies_left_makes_a_mix),
        cmocka_unit_test(what_cannot_be_tried_is_refused_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
