/* A trained model as a folder: read by heed as any other, it gives the logits of the graph that trained it.
 */
#include "model/convert.h"
#include "nn/layers.h"
#include "support/folder.h"
#include "train/trainer.h"

#include <heed/model.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char text[64];

static int make_folder(void **state)
{
    if (test_folder_make(state))
        return -1;
    snprintf(text, sizeof text, "%s/text.txt", test_folder);
    FILE *file = fopen(text, "w");
    for (int i = 0; i < 400; i++)
        fprintf(file, "%d bottles of beer on the wall\n", i * i % 97);
    return fclose(file);
}

/* Logits of the graph over the trainer's weights. */
static float *graph_logits(const heed_trainer *trainer, const int32_t *token)
{
    heed_transformer model = *heed_trainer_model(trainer);
    heed_transformer_nodes nodes = {.segments = HEED_NO_INPUT, .places = HEED_NO_INPUT};
    heed_graph *graph;
    model.batch = 1;
    assert_int_equal(heed_graph_create(&graph, heed_trainer_parameters(trainer), 1, HEED_ISA_AUTO), HEED_OK);
    heed_transformer_make(graph, &model, &nodes);
    heed_graph_keep(graph, nodes.logits);
    assert_int_equal(heed_graph_finish(graph, HEED_NO_INPUT), HEED_OK);
    memcpy(heed_graph_data(graph, nodes.tokens), token, (size_t)model.context * sizeof *token);
    assert_int_equal(heed_graph_forward(graph), HEED_OK);
    const size_t bytes = (size_t)(model.context * model.vocabulary) * sizeof(float);
    float *logits = malloc(bytes);
    memcpy(logits, heed_graph_data(graph, nodes.logits), bytes);
    heed_graph_free(graph);
    return logits;
}

static void check(const char *extra, bool describable)
{
    heed_train_config config;
    heed_trainer *trainer;
    heed_train_report report;
    const char *why;
    char line[200];
    heed_train_config_start(&config);
    snprintf(line, sizeof line, "file = %s", text);
    assert_int_equal(heed_train_config_read(
                         &config, "data = text\ncontext = 24\nwidth = 32\nkv_heads = 2\nbatch = 4\n", "c"),
                     HEED_OK);
    assert_int_equal(heed_train_config_set(&config, line, "c"), HEED_OK);
    if (heed_train_config_read(&config, extra, "c") || heed_trainer_create(&trainer, &config, 1))
        fail_msg("%s", heed_message());
    for (int i = 0; i < 10; i++)
        assert_int_equal(heed_trainer_step(trainer, &report), HEED_OK);
    if (heed_trainer_export(trainer, test_folder, &why))
        fail_msg("%s", heed_message());
    assert_int_equal(why == NULL, describable);
    if (describable) {
        int32_t token[24];
        heed_model *model = NULL;
        heed_session *session = NULL;
        for (int i = 0; i < 24; i++)
            token[i] = "7 bottles of beer on the"[i];
        heed_trainer_swap(trainer); /* what is written are averages, where there are any */
        float *expected = graph_logits(trainer, token);
        heed_trainer_swap(trainer);
        static float got[24 * 256];
        if (heed_model_open(&model, test_folder, &(heed_model_options){.threads = 1, .exact = true}) ||
            heed_session_create(
                &session, model,
                &(heed_session_options){.context = 24, .cache = HEED_F32, .cache_given = true, .threads = 1}))
            fail_msg("%s", heed_message());
        heed_tokens tokens = {.count = 0};
        const char *said = "7 bottles of beer on the";
        assert_int_equal(heed_tokenize(heed_model_tokenizer(model), said, 24, 0, &tokens), HEED_OK);
        assert_int_equal(tokens.count, 24);
        assert_memory_equal(tokens.id, token, sizeof token);
        heed_tokens_free(&tokens);
        const heed_feed_item item = {.tokens = token, .count = 24};
        if (heed_feed(session, &item, 1, &(heed_feed_wants){.logits = got, .all_logits = true}))
            fail_msg("%s", heed_message());
        for (int i = 0; i < 24 * 256; i++)
            if (!(fabsf(got[i] - expected[i]) < 1e-4f))
                fail_msg("%s: logit %d is %g instead of %g", extra, i, (double)got[i], (double)expected[i]);
        free(expected);
        heed_session_free(session);
        heed_model_close(model);
    }
    heed_trainer_free(trainer);
}

static void folders_are_read_as_models(void **state)
{
    (void)state;
    check("", true);
    check("tied = yes\nrecompute = yes", true);
    check("attention = position=rope(base=500); where=causal & window(5)", true);
    check("qk_norm = yes", true);
    check("head_dim = 12", true);
    check("qk_norm = yes\nattention = scan=gla", true);
    check("attention = layers 0: layer=mega; layers 1: position=rope; where=causal", true);
    check("average = 0.5", true);
    check("attention = position=alibi; where=causal", true);
    check("attention = position=rope + t5; normalise=sink; where=causal\naverage = 0.5", true);
    check("attention = position=rope; where=causal; layers 0: where=causal & window(4); layers 1: "
          "position=fire",
          true);
}

/* A GGUF file has no place for such an attention, and leaves nothing out in silence. */
static void attention_that_gguf_cannot_say_is_refused(void **state)
{
    (void)state;
    char to[100];
    heed_model_file *file;
    heed_convert_report report;
    const heed_convert_options wishes = {.type = HEED_F32, .embedding = HEED_F32, .threads = 1};
    check("attention = position=alibi; where=causal", true);
    snprintf(to, sizeof to, "%s/m.gguf", test_folder);
    assert_int_equal(heed_model_file_open(&file, test_folder), HEED_OK);
    assert_int_equal(heed_convert(file, to, &wishes, &report), HEED_UNSUPPORTED);
    assert_non_null(strstr(heed_message(), "the attention of this model cannot be said in a GGUF file"));
    heed_model_file_close(file);
}

static void models_that_config_cannot_describe_are_named(void **state)
{
    (void)state;
    check("attention = position=rope", false);
    check("attention = layers 0: layer=mega(causal=no); layers 1: scan=gla", false);
    check("feed = gelu", false);
    check("norm = layer", false);
    check("positions = learned", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(folders_are_read_as_models),
                                       cmocka_unit_test(attention_that_gguf_cannot_say_is_refused),
                                       cmocka_unit_test(models_that_config_cannot_describe_are_named)};
    return cmocka_run_group_tests(tests, make_folder, test_folder_remove);
}
