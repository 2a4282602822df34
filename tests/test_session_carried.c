/* Models with recurrences and layers by forms in sessions: what is read at once, token by token, saved and
 * shared gives the logits of the graph that trained them. */
#include "nn/layers.h"
#include "support/folder.h"
#include "support/small_models.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXT = 40, VOCABULARY = 256 };

static char text[64], saved[64];
static const char said[] = "7 bottles of beer on the wall, 99 walls.";

typedef struct trained {
    heed_model *model;
    float *logits; /* [CONTEXT, VOCABULARY] of the graph */
    int32_t token[CONTEXT];
} trained;

static int make_folder(void **state)
{
    if (test_folder_make(state))
        return -1;
    snprintf(text, sizeof text, "%s/text.txt", test_folder);
    snprintf(saved, sizeof saved, "%s/saved", test_folder);
    FILE *file = fopen(text, "w");
    for (int i = 0; i < 200; i++)
        fprintf(file, "%d bottles of beer on the wall\n", i * i % 97);
    return fclose(file);
}

static float *graph_logits(const heed_trainer *trainer, const int32_t *token)
{
    heed_transformer model = *heed_trainer_model(trainer);
    heed_transformer_nodes nodes = {.segments = HEED_NO_INPUT, .places = HEED_NO_INPUT};
    heed_graph *graph;
    model.batch = 1;
    must(heed_graph_create(&graph, heed_trainer_parameters(trainer), 1, HEED_ISA_AUTO));
    heed_transformer_make(graph, &model, &nodes);
    heed_graph_keep(graph, nodes.logits);
    must(heed_graph_finish(graph, HEED_NO_INPUT));
    memcpy(heed_graph_data(graph, nodes.tokens), token, CONTEXT * sizeof *token);
    must(heed_graph_forward(graph));
    float *logits = malloc(CONTEXT * VOCABULARY * sizeof *logits);
    memcpy(logits, heed_graph_data(graph, nodes.logits), CONTEXT * VOCABULARY * sizeof *logits);
    heed_graph_free(graph);
    return logits;
}

/* A model with this attention after a few steps, written and read back. */
static void train(trained *made, const char *attention)
{
    heed_train_config config;
    heed_trainer *trainer;
    heed_train_report report;
    const char *why;
    char line[400];
    heed_train_config_start(&config);
    must(heed_train_config_read(&config,
                                "data = text\nwidth = 16\nheads = 2\nlayers = 3\nbatch = 2\nrate = 1e-2\n"
                                "deviation = 0.2\nwarmup = 0\n",
                                "c"));
    snprintf(line, sizeof line, "context = %d\nfile = %s\nattention = %s", CONTEXT, text, attention);
    must(heed_train_config_read(&config, line, "c"));
    must(heed_trainer_create(&trainer, &config, 1));
    for (int i = 0; i < 3; i++)
        must(heed_trainer_step(trainer, &report));
    must(heed_trainer_export(trainer, test_folder, &why));
    if (why)
        fail_msg("%s: %s", attention, why);
    for (int i = 0; i < CONTEXT; i++)
        made->token[i] = said[i];
    made->logits = graph_logits(trainer, made->token);
    heed_trainer_free(trainer);
    must(heed_model_open(&made->model, test_folder, &(heed_model_options){.threads = 1, .exact = true}));
}

static void let_go(trained *made)
{
    free(made->logits);
    heed_model_close(made->model);
}

static heed_session *open_session(const trained *made, int64_t sequences)
{
    return new_session(made->model, &(heed_session_options){.context = CONTEXT,
                                                            .cache = HEED_F32,
                                                            .cache_given = true,
                                                            .threads = 1,
                                                            .sequences = sequences});
}

static void feed(heed_session *session, int64_t sequence, const int32_t *token, int64_t count, float *logits)
{
    must(heed_feed(session, &(heed_feed_item){.sequence = sequence, .tokens = token, .count = count}, 1,
                   &(heed_feed_wants){.logits = logits, .all_logits = true}));
}

static void near(const char *attention, const char *way, const float *got, const float *expected,
                 int64_t rows)
{
    for (int64_t i = 0; i < rows * VOCABULARY; i++)
        if (!(fabsf(got[i] - expected[i]) < 1e-4f * (1.0f + fabsf(expected[i]))))
            fail_msg("%s, %s: logit %d of token %d is %g instead of %g", attention, way,
                     (int)(i % VOCABULARY), (int)(i / VOCABULARY), (double)got[i], (double)expected[i]);
}

static void check(const char *attention)
{
    trained made;
    train(&made, attention);
    float *got = malloc(CONTEXT * VOCABULARY * sizeof *got), *other = malloc(VOCABULARY * sizeof *other);
    heed_session *session = open_session(&made, 2), *second = open_session(&made, 1);
    feed(session, 0, made.token, CONTEXT, got);
    near(attention, "at once", got, made.logits, CONTEXT);
    for (int t = 0; t < CONTEXT; t++)
        feed(session, 1, made.token + t, 1, got + t * VOCABULARY);
    near(attention, "token by token", got, made.logits, CONTEXT);
    must(heed_session_cut(session, 0, 0));
    feed(session, 0, made.token, 21, got);
    must(heed_session_share(session, 0, 1, 21));
    must(heed_session_save(session, 0, saved));
    must(heed_session_load(second, 0, saved));
    feed(session, 0, made.token + 21, 1, got);
    near(attention, "in two parts", got, made.logits + 21 * VOCABULARY, 1);
    feed(session, 1, made.token + 21, 1, other);
    assert_memory_equal(other, got, VOCABULARY * sizeof *got);
    feed(second, 0, made.token + 21, 1, other);
    assert_memory_equal(other, got, VOCABULARY * sizeof *got);
    heed_session_free(session);
    heed_session_free(second);
    free(got);
    free(other);
    let_go(&made);
}

static void recurrences_go_on_with_their_states(void **state)
{
    (void)state;
    static const char *const specs[] = {"linear", "retention", "gla",   "gsa",       "delta",  "gated_delta",
                                        "mamba2", "rwkv7",     "based", "fast",      "lln",    "kda",
                                        "hgrn2",  "infini",    "aaren", "lightning", "titans", "simple_gla"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        char spec[40];
        snprintf(spec, sizeof spec, "scan=%s", specs[i]);
        check(spec);
    }
}

static void recurrences_stand_beside_attention(void **state)
{
    (void)state;
    check("layers 0,2: scan=gated_delta; layers 1: position=rope; where=causal & window(6)");
    check("layers 0: scan=gla; layers 1,2: position=alibi; normalise=sink; where=causal");
}

static void layers_by_forms_are_made_again(void **state)
{
    (void)state;
    check("layer=mega");
    check("layer=transnormer");
    check("layer=titans");
    check("layer=mhe; position=rope; where=causal");
    check(
        "layers 0: layer=mega(function=laplace); layers 1: scan=gla; layers 2: position=rope; where=causal");
}

/* A recurrence reads beyond what the model was trained for and holds no more. */
static void states_do_not_grow(void **state)
{
    (void)state;
    trained made;
    heed_session_usage before, after;
    train(&made, "scan=gated_delta");
    heed_session *session = open_session(&made, 1);
    feed(session, 0, made.token, CONTEXT, NULL);
    heed_session_get_usage(session, &before);
    for (int i = 0; i < 30; i++)
        feed(session, 0, made.token, CONTEXT, NULL);
    heed_session_get_usage(session, &after);
    assert_int_equal(heed_session_length(session, 0), 31 * CONTEXT);
    assert_true(before.bytes > 0);
    assert_int_equal(after.bytes, before.bytes);
    heed_session_free(session);
    let_go(&made);
}

static void refuse(heed_status status, const char *says)
{
    if (!status || !strstr(heed_message(), says))
        fail_msg("`%s` instead of `%s`", status ? heed_message() : "done", says);
}

static void what_a_state_cannot_do_is_refused(void **state)
{
    (void)state;
    trained made;
    train(&made, "layers 0,2: scan=gla; layers 1: position=rope; where=causal");
    heed_session *session = open_session(&made, 2), *none;
    feed(session, 0, made.token, 20, NULL);
    refuse(heed_session_cut(session, 0, 11), "which cannot go back to token 11");
    refuse(heed_session_share(session, 0, 1, 11), "which cannot go back");
    refuse(heed_session_hide(session, 0, 2, 3), "cannot be hidden");
    feed(session, 1, made.token, 5, NULL);
    refuse(heed_session_splice(session, 0, 1), "cannot be put together");
    heed_session_options options = {.context = CONTEXT, .attention = "cache=h2o(budget=8)"};
    refuse(heed_session_create(&none, made.model, &options), "layer 0 was trained as `scan=gla`");
    options.attention = "layers 1: cache=h2o(budget=8)";
    must(heed_session_create(&none, made.model, &options));
    heed_session_free(none);
    options.attention = "layers 1: cache=fastv(1)";
    refuse(heed_session_create(&none, made.model, &options), "fastv");
    heed_session_free(session);
    let_go(&made);
}

static void damaged_states_are_refused(void **state)
{
    (void)state;
    trained made;
    char bytes[1 << 16];
    train(&made, "scan=gla");
    heed_session *session = open_session(&made, 1);
    feed(session, 0, made.token, 20, NULL);
    must(heed_session_save(session, 0, saved));
    FILE *file = fopen(saved, "rb");
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    must(heed_session_cut(session, 0, 0));
    for (size_t at = 0; at < size; at += 97) {
        file = fopen(saved, "wb");
        bytes[at] ^= 0x40;
        fwrite(bytes, 1, size, file);
        bytes[at] ^= 0x40;
        fclose(file);
        assert_int_not_equal(heed_session_load(session, 0, saved), HEED_OK);
        assert_int_equal(heed_session_length(session, 0), 0);
    }
    heed_session_free(session);
    let_go(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(recurrences_go_on_with_their_states),
                                       cmocka_unit_test(recurrences_stand_beside_attention),
                                       cmocka_unit_test(layers_by_forms_are_made_again),
                                       cmocka_unit_test(states_do_not_grow),
                                       cmocka_unit_test(what_a_state_cannot_do_is_refused),
                                       cmocka_unit_test(damaged_states_are_refused)};
    return cmocka_run_group_tests(tests, make_folder, test_folder_remove);
}
