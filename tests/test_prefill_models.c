/* Selectors of prefill in sessions that read in pieces, on models with and without windows: with room for all
 * keys they are the model's own attention. */
#include "support/small_models.h"

#include <stdlib.h>
#include <string.h>

static const char *const all_keys[] = {
    "select=hip(k=4096)",
    "select=hip(k=1, block=8, queries=16, window=4096, share=group)",
    "select=a_shape(sinks=0, window=4096, block=4)",
    "select=flexprefill(gamma=1, block=8)",
    "select=vertical_slash(block=4, columns=4096)",
    "select=block_top(block=8, k=4096)",
    "select=sample(alpha=1, block=4)",
};

static void room_for_all_keys_is_the_models_own_attention(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "gemma3"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        small_model small;
        open_small(&small, models[m], false);
        heed_session *session =
            new_session(small.model, &(heed_session_options){.context = small.count, .threads = 1});
        float *own = feed_all(session, small.model, small.tokens, small.count);
        heed_session_free(session);
        for (size_t i = 0; i < sizeof all_keys / sizeof *all_keys; i++)
            for (int64_t chunk = 0; chunk <= 7; chunk += 7) {
                session = new_session(small.model, &(heed_session_options){.context = small.count,
                                                                           .threads = 1,
                                                                           .chunk = chunk,
                                                                           .attention = all_keys[i]});
                float *logits = feed_all(session, small.model, small.tokens, small.count);
                const double apart = farthest(own, logits, small.count * small.columns);
                if (!(apart < 1e-4))
                    fail_msg("%s, %s in pieces of %d: logits are %g apart", models[m], all_keys[i],
                             (int)chunk, apart);
                free(logits);
                heed_session_free(session);
            }
        free(own);
        close_small(&small);
    }
}

static void what_a_session_cannot_count_is_refused(void **state)
{
    (void)state;
    small_model small;
    heed_session *session;
    open_small(&small, "llama", false);
    assert_int_equal(
        heed_session_create(&session, small.model, &(heed_session_options){.attention = "select=selective"}),
        HEED_UNSUPPORTED);
    assert_non_null(strstr(heed_message(), "a text must be read in one piece"));
    close_small(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_for_all_keys_is_the_models_own_attention),
        cmocka_unit_test(what_a_session_cannot_count_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
