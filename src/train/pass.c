#include "train/pass.h"
#include "base/try.h"
#include "nn/graph.h"

#include <stdlib.h>
#include <string.h>

/* The model's own part of a graph. */
static void make_model(heed_pass *p)
{
    const heed_pass_of *of = p->of;
    if (!of->base) {
        heed_transformer_make(p->graph, of->model, &p->nodes);
        return;
    }
    const heed_base_use use = {.batch = of->model->batch,
                               .context = of->model->context,
                               .attention = *of->config->attention ? of->config->attention : NULL,
                               .recompute = of->config->recompute,
                               .learn = &of->learn};
    heed_base_make(p->graph, of->base, &use, &p->nodes);
}

/* Logits of the teacher for the same tokens, without gradients. */
static heed_variable teach(heed_pass *p)
{
    const heed_pass_of *of = p->of;
    heed_transformer_nodes nodes = {
        .tokens = p->nodes.tokens, .segments = HEED_NO_INPUT, .places = HEED_NO_INPUT};
    const heed_base_use use = {.prefix = of->teacher_apart ? "teacher." : NULL,
                               .batch = of->model->batch,
                               .context = of->model->context};
    heed_base_make(p->graph, of->teacher, &use, &nodes);
    return nodes.logits;
}

static heed_variable token_loss(heed_pass *p)
{
    const heed_train_config *c = p->of->config;
    if (c->objective != HEED_OBJECTIVE_DISTIL)
        return heed_nn_cross_entropy(p->graph, p->nodes.logits, p->targets, (float)c->smoothing);
    const float share = (float)c->teacher_share;
    const heed_variable from_teacher =
        heed_nn_divergence(p->graph, p->nodes.logits, teach(p), p->targets, (float)c->temperature);
    if (share >= 1.0f)
        return from_teacher;
    const heed_variable from_text =
        heed_nn_cross_entropy(p->graph, p->nodes.logits, p->targets, (float)c->smoothing);
    return heed_nn_add(p->graph, heed_nn_scale(p->graph, from_teacher, share, 0.0f),
                       heed_nn_scale(p->graph, from_text, 1.0f - share, 0.0f));
}

heed_status heed_pass_make(heed_pass *p, const heed_pass_of *of, bool train)
{
    const int64_t batch = of->model->batch, shape[] = {batch, of->model->classes ? 1 : of->model->context};
    *p = (heed_pass){.of = of,
                     .nodes = {.tokens = HEED_NO_INPUT, .segments = HEED_NO_INPUT, .places = HEED_NO_INPUT}};
    TRY(heed_graph_create(&p->graph, of->parameters, of->threads, HEED_ISA_AUTO));
    make_model(p);
    p->targets = heed_nn_input(p->graph, HEED_I32, 2, shape);
    p->scores = p->nodes.logits;
    p->row = malloc(2 * (size_t)of->model->context * sizeof *p->row);
    if (!p->row)
        return heed_fail(HEED_NO_MEMORY, "no memory for a sequence");
    if (!train) {
        heed_graph_keep(p->graph, p->scores);
        return heed_graph_finish(p->graph, HEED_NO_INPUT);
    }
    p->loss = token_loss(p);
    return heed_graph_finish(p->graph, p->loss);
}

void heed_pass_free(heed_pass *p)
{
    heed_graph_free(p->graph);
    free(p->row);
}

void heed_pass_fill(heed_pass *p, bool held_out, int64_t first, int64_t last)
{
    const heed_transformer *model = p->of->model;
    const int64_t context = model->context, targets = model->classes ? 1 : context;
    int32_t *token = heed_graph_data(p->graph, p->nodes.tokens),
            *target = heed_graph_data(p->graph, p->targets);
    for (int64_t b = 0; b < model->batch; b++) {
        int32_t *asked = target + b * targets;
        memset(p->row, 0, 2 * (size_t)context * sizeof *p->row);
        for (int64_t i = 0; i < targets; i++)
            asked[i] = -1;
        if (first + b < last)
            heed_data_make(p->of->data, held_out, (uint64_t)(first + b), context, p->row, asked);
        memcpy(token + b * context, p->row, (size_t)context * sizeof *token);
    }
}

/* Row by row. */
void heed_pass_count(const heed_pass *p, const heed_nn_kernels *kernels, heed_pass_counts *counts)
{
    const heed_nn_node *scores = heed_nn_at(p->graph, p->scores);
    const int64_t classes = heed_nn_last(scores), rows = heed_nn_rows(scores);
    const float *logits = heed_graph_data(p->graph, p->scores);
    const int32_t *target = heed_graph_data(p->graph, p->targets);
    for (int64_t row = 0; row < rows; row++) {
        const float *x = logits + row * classes;
        int64_t best = 0;
        if (target[row] < 0)
            continue;
        for (int64_t i = 1; i < classes; i++)
            best = x[i] > x[best] ? i : best;
        counts->loss += (double)kernels->softmax(x, NULL, classes) - (double)x[target[row]];
        counts->right += best == target[row];
        counts->targets++;
    }
}
