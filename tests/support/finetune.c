#include "support/finetune.h"
#include "support/small_models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void ok(heed_status status, const char *what)
{
    if (status)
        fail_msg("%s: %s", what, heed_message());
}

/* Logits of TOKENS tokens by the session. */
static float *by_session(const char *path, const int32_t *token, const char *attention, int64_t *vocabulary)
{
    heed_model *model;
    heed_session *session;
    heed_model_info info;
    ok(heed_model_open(&model, path, &(heed_model_options){.threads = 1, .exact = true}), path);
    heed_model_get_info(model, &info);
    *vocabulary = info.generates ? info.vocabulary : info.width;
    ok(heed_session_create(&session, model,
                           &(heed_session_options){.context = TOKENS,
                                                   .attention = attention,
                                                   .cache = HEED_F32,
                                                   .cache_given = true,
                                                   .threads = 1}),
       path);
    float *out = calloc((size_t)(TOKENS * *vocabulary), sizeof *out);
    const heed_feed_item item = {.tokens = token, .count = TOKENS};
    heed_feed_wants wants = {.all_logits = true};
    if (info.generates)
        wants.logits = out;
    else
        wants.hidden = out;
    ok(heed_feed(session, &item, 1, &wants), path);
    heed_session_free(session);
    heed_model_close(model);
    return out;
}

float *by_graph(const char *path, const int32_t *token, const char *attention, const heed_base_learn *learn,
                bool recompute)
{
    heed_base *base;
    heed_parameters *parameters;
    heed_graph *graph;
    ok(heed_base_open(&base, path), path);
    ok(heed_parameters_create(&parameters, 1), path);
    ok(heed_base_load(base, parameters, "", learn), path);
    ok(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), path);
    heed_transformer_nodes nodes = {
        .tokens = HEED_NO_INPUT, .segments = HEED_NO_INPUT, .places = HEED_NO_INPUT};
    const bool hidden = !base->config.generates;
    heed_base_make(graph, base,
                   &(heed_base_use){.batch = 1,
                                    .context = TOKENS,
                                    .attention = attention,
                                    .recompute = recompute,
                                    .learn = learn,
                                    .hidden = hidden},
                   &nodes);
    const heed_variable out = hidden ? nodes.hidden : nodes.logits;
    heed_graph_keep(graph, out);
    ok(heed_graph_finish(graph, HEED_NO_INPUT), path);
    memcpy(heed_graph_data(graph, nodes.tokens), token, TOKENS * sizeof *token);
    ok(heed_graph_forward(graph), path);
    const size_t bytes =
        sizeof(float) * TOKENS * (size_t)(hidden ? base->config.width : base->config.vocabulary);
    float *copy = malloc(bytes);
    memcpy(copy, heed_graph_data(graph, out), bytes);
    heed_graph_free(graph);
    heed_parameters_free(parameters);
    heed_base_close(base);
    return copy;
}

void agree(const char *path, const char *attention)
{
    int32_t token[TOKENS];
    int64_t columns;
    const heed_base_learn learn = {.learn = HEED_LEARN_ALL};
    for (int i = 0; i < TOKENS; i++)
        token[i] = (i * 7 + 3) % 60;
    float *session = by_session(path, token, attention, &columns),
          *graph = by_graph(path, token, attention, &learn, true);
    double size = 0.0;
    for (int64_t i = 0; i < TOKENS * columns; i++)
        size = fmax(size, fabs((double)session[i]));
    assert_true(size > 1e-3);
    for (int64_t i = 0; i < TOKENS * columns; i++)
        if (!(fabs((double)session[i] - (double)graph[i]) < 2e-5 * (size + 1.0)))
            fail_msg("%s, %s: number %lld is %.9g in the graph, %.9g in the session", path,
                     attention ? attention : "its own attention", (long long)i, (double)graph[i],
                     (double)session[i]);
    free(session);
    free(graph);
}
