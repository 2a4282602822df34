/* SmolLM2 and Gemma 3 in a graph: the logits of a session. */
#include "support/finetune.h"
#include "support/models.h"
#include "support/small_models.h"

static const char *const names[] = {"smollm2.gguf", "gemma3.gguf"};

static void graphs_compute_what_sessions_compute(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        if (fetched_model(names[i]))
            agree(fetched_model(names[i]), NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(graphs_compute_what_sessions_compute)};
    if (!fetched_model(names[0]) && !fetched_model(names[1]))
        return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
