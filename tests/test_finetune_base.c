/* Pretrained models in a graph: the same logits as a session's on the same tokens, for every architecture,
 * from folders and from GGUF files. */
#include "support/finetune.h"
#include "support/small_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/convert.h"

static void ok(heed_status status, const char *what)
{
    if (status)
        fail_msg("%s: %s", what, heed_message());
}

static const char *const architectures[] = {"llama", "llama3", "llama_sharded", "llama_tied",   "mistral",
                                            "qwen2", "qwen3",  "gemma",         "gemma2",       "gemma3",
                                            "gpt2",  "phi3",   "phi3_partial",  "qwen2_window", "bert"};

static void graphs_compute_what_sessions_compute(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/golden/models/%s", HEED_TEST_DATA, architectures[i]);
        agree(path, NULL);
    }
}

static void clauses_replace_those_of_the_model(void **state)
{
    (void)state;
    agree(HEED_TEST_DATA "/golden/models/llama", "position=alibi");
    agree(HEED_TEST_DATA "/golden/models/gemma3", "layers 1: where=causal & window(3)");
    agree(HEED_TEST_DATA "/golden/models/qwen3", "normalise=sink");
}

/* GGUF files keep rows of q and k in another order, and norms as they are. */
static void gguf_files_are_the_same_model(void **state)
{
    static const char *const names[] = {"llama", "gemma3", "gpt2", "qwen2"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char from[600], to[] = "/tmp/heed_base_XXXXXX.gguf";
        const int descriptor = mkstemps(to, 5);
        heed_model_file *file;
        heed_convert_report report;
        assert_true(descriptor >= 0);
        close(descriptor);
        snprintf(from, sizeof from, "%s/golden/models/%s", HEED_TEST_DATA, names[i]);
        ok(heed_model_file_open(&file, from), from);
        const heed_convert_options wishes = {.type = HEED_F32, .embedding = HEED_F32, .threads = 1};
        ok(heed_convert(file, to, &wishes, &report), from);
        heed_model_file_close(file);
        agree(to, NULL);
        unlink(to);
    }
}

/* LoRA begins as nothing: B is 0. */
static void lora_changes_nothing_at_first(void **state)
{
    (void)state;
    const char *path = HEED_TEST_DATA "/golden/models/llama";
    const heed_base_learn none = {.learn = HEED_LEARN_FORMS},
                          lora = {.learn = HEED_LEARN_LORA, .targets = "*proj", .rank = 4, .alpha = 8.0};
    int32_t token[TOKENS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    float *without = by_graph(path, token, NULL, &none, false),
          *with = by_graph(path, token, NULL, &lora, true);
    assert_memory_equal(without, with, TOKENS * 64 * sizeof *with);
    free(without);
    free(with);
}

static void names_fit_patterns(void **state)
{
    (void)state;
    const char *name = "model.layers.3.mlp.down_proj.weight";
    assert_true(heed_base_fits("down_proj", name));
    assert_true(heed_base_fits("q_proj mlp.down_proj", name));
    assert_true(heed_base_fits("*.3.*", name));
    assert_true(heed_base_fits("model.layers.3.mlp.down_proj.weight", name));
    assert_true(heed_base_fits("*proj", name));
    assert_false(heed_base_fits("proj", name));
    assert_false(heed_base_fits("q_proj", name));
    assert_false(heed_base_fits("", name));
    assert_false(heed_base_fits("*.33.*", name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_compute_what_sessions_compute),
        cmocka_unit_test(clauses_replace_those_of_the_model),
        cmocka_unit_test(gguf_files_are_the_same_model),
        cmocka_unit_test(lora_changes_nothing_at_first),
        cmocka_unit_test(names_fit_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
