#include "train/losses.h"
#include "nn/graph.h"
#include "nn/sources.h"

#include <math.h>

/* The teacher's part of a graph, for the same tokens, without gradients. */
static heed_transformer_nodes teach(heed_pass *p, heed_variable last[3])
{
    const heed_pass_of *of = p->of;
    heed_transformer_nodes nodes = {
        .tokens = p->nodes.tokens, .segments = HEED_NO_INPUT, .places = HEED_NO_INPUT, .last = last};
    const heed_base_use use = {.prefix = of->teacher_apart ? "teacher." : NULL,
                               .batch = of->model->batch,
                               .context = of->model->context};
    heed_base_make(p->graph, of->teacher, &use, &nodes);
    return nodes;
}

static heed_variable mean_of_all(heed_graph *graph, heed_variable x)
{
    int64_t count = 1;
    for (int d = 0; d < heed_graph_rank(graph, x); d++)
        count *= heed_graph_size(graph, x, d);
    return heed_nn_mean(graph, heed_nn_reshape(graph, x, 1, &count));
}

/* Mean squared distance of last hidden states; through a learnt map where their widths differ. */
static heed_variable hidden_distance(heed_pass *p, heed_variable theirs)
{
    const int64_t width = heed_graph_size(p->graph, theirs, -1);
    heed_variable mine = p->nodes.hidden;
    if (heed_graph_size(p->graph, mine, -1) != width)
        mine = heed_layer_linear(p->graph, "distil.map", mine, width, false, 0.02f);
    return mean_of_all(p->graph,
                       heed_nn_apply(p->graph, HEED_FN_SQUARE, heed_nn_subtract(p->graph, mine, theirs)));
}

static heed_variable weighted(heed_pass *p, heed_variable sum, heed_variable x, double weight)
{
    if (weight == 0.0)
        return sum;
    const heed_variable part = weight == 1.0 ? x : heed_nn_scale(p->graph, x, (float)weight, 0.0f);
    return sum == HEED_NO_INPUT ? part : heed_nn_add(p->graph, sum, part);
}

static heed_variable from_text(heed_pass *p)
{
    return heed_nn_cross_entropy(p->graph, p->nodes.logits, p->targets, (float)p->of->config->smoothing);
}

/* Beside a model whose layers drop something: the same weights with nothing dropped learn too, and the model
 * learns from them. */
static heed_variable beside_whole(heed_pass *p, heed_variable loss)
{
    heed_transformer_nodes nodes = p->nodes;
    nodes.whole = true;
    nodes.beside = NULL;
    if (p->of->base || p->of->model->encoder_layers > 0 || p->of->model->image.patch)
        return heed_nn_fail(p->graph, HEED_UNSUPPORTED,
                            "whole_share is for a decoder of tokens that begins from nothing");
    heed_transformer_make(p->graph, p->of->model, &nodes);
    const heed_variable own = heed_nn_cross_entropy(p->graph, nodes.logits, p->targets, 0.0f),
                        apart = heed_nn_divergence(p->graph, p->nodes.logits,
                                                   heed_nn_stop(p->graph, nodes.logits), p->targets, 1.0f);
    return weighted(p, loss, heed_nn_add(p->graph, own, apart), p->of->config->whole_share);
}

static heed_variable distillation(heed_pass *p)
{
    const heed_train_config *c = p->of->config;
    const float temperature = c->temperature > 0.0 ? (float)c->temperature : 1.0f;
    heed_variable theirs[3];
    const heed_transformer_nodes teacher = teach(p, theirs);
    heed_variable loss = HEED_NO_INPUT;
    if (c->teacher_share > 0.0)
        loss = weighted(
            p, loss, heed_nn_divergence(p->graph, p->nodes.logits, teacher.logits, p->targets, temperature),
            c->teacher_share);
    if (c->teacher_share < 1.0)
        loss = weighted(p, loss, from_text(p), 1.0 - c->teacher_share);
    if (c->hidden_share > 0.0)
        loss = weighted(p, loss, hidden_distance(p, teacher.hidden), c->hidden_share);
    if (c->relation_share > 0.0)
        loss = weighted(p, loss, heed_relation_loss(p->graph, p->last, theirs, p->targets, c->relation_heads),
                        c->relation_share);
    return loss;
}

/* One vector a text: [rows, width]. */
static heed_variable pooled(heed_pass *p)
{
    const int64_t rows = p->of->model->batch, context = p->of->model->context,
                  width = heed_graph_size(p->graph, p->nodes.hidden, -1);
    const int64_t weights[] = {rows, 1, context}, vectors[] = {rows, width};
    const int64_t heads = p->of->model->heads, beside[] = {rows, heads * width};
    if (p->of->config->pooling == HEED_POOL_LAMA && !p->of->model->image.patch)
        return heed_nn_fail(p->graph, HEED_UNSUPPORTED,
                            "pooling = lama sees padding: it is for pictures, which have one size");
    if (p->of->config->pooling == HEED_POOL_LAMA) /* row 001.106; rank 8 */
        return heed_nn_reshape(p->graph, heed_source_lama(p->graph, "lama", 0.02f, p->nodes.hidden, heads, 8),
                               2, beside);
    return heed_nn_reshape(
        p->graph,
        heed_nn_product(p->graph, heed_nn_reshape(p->graph, p->weights, 3, weights), p->nodes.hidden, false),
        2, vectors);
}

/* Cosines of each first text with all others, divided by a temperature: [batch, others]. */
static heed_variable similarities(heed_pass *p)
{
    const heed_train_config *c = p->of->config;
    const int64_t rows = p->of->model->batch, batch = c->batch;
    const double temperature = c->temperature > 0.0 ? c->temperature : 0.05;
    const heed_variable x = pooled(p);
    const float length = 1.0f / sqrtf((float)heed_graph_size(p->graph, x, -1));
    const heed_variable unit =
        heed_nn_scale(p->graph, heed_nn_rms_norm(p->graph, x, HEED_NO_INPUT, 1e-12f), length, 0.0f);
    const heed_variable first = heed_nn_slice(p->graph, unit, 0, 0, batch),
                        others = heed_nn_slice(p->graph, unit, 0, batch, rows - batch);
    return heed_nn_scale(p->graph, heed_nn_product(p->graph, first, others, true), (float)(1.0 / temperature),
                         0.0f);
}

/* Log probabilities of whole answers: [rows]. */
static heed_variable answers(heed_pass *p, heed_variable logits)
{
    const int64_t shape[] = {p->of->model->batch, p->of->model->context};
    return heed_nn_scale(
        p->graph,
        heed_nn_sum(p->graph,
                    heed_nn_reshape(p->graph, heed_nn_surprise(p->graph, logits, p->targets), 2, shape)),
        -1.0f, 0.0f);
}

/* beta times how much more the first answer has gained on the model that it went on from than the second. */
static heed_variable margins(heed_pass *p)
{
    const int64_t batch = p->of->config->batch;
    const heed_transformer_nodes teacher = teach(p, NULL);
    const heed_variable gained =
        heed_nn_subtract(p->graph, answers(p, p->nodes.logits), answers(p, teacher.logits));
    return heed_nn_scale(p->graph,
                         heed_nn_subtract(p->graph, heed_nn_slice(p->graph, gained, 0, 0, batch),
                                          heed_nn_slice(p->graph, gained, 0, batch, batch)),
                         (float)p->of->config->beta, 0.0f);
}

static void make_pooled(heed_pass *p)
{
    const heed_data *data = p->of->data;
    const int64_t batch = p->of->config->batch;
    if (data->objective == HEED_OBJECTIVE_CONTRASTIVE) {
        p->scores = similarities(p);
    } else if (data->objective == HEED_OBJECTIVE_CLASS) {
        p->scores = heed_layer_linear(p->graph, "score", pooled(p), data->records.classes, true, 0.02f);
    } else {
        p->scores = heed_nn_reshape(p->graph, heed_layer_linear(p->graph, "score", pooled(p), 1, true, 0.02f),
                                    1, &batch);
        p->judging = HEED_JUDGE_NUMBERS;
        p->loss = heed_nn_mean(p->graph, heed_nn_apply(p->graph, HEED_FN_SQUARE,
                                                       heed_nn_subtract(p->graph, p->scores, p->numbers)));
        return;
    }
    p->loss = heed_nn_cross_entropy(p->graph, p->scores, p->targets, (float)p->of->config->smoothing);
}

/* The surprise of what is asked for, and how many are asked: [rows], and as a number. */
static heed_variable surprise(heed_pass *p, heed_variable *asked)
{
    const heed_variable each = heed_nn_surprise(p->graph, p->scores, p->targets);
    int64_t rows = 1;
    for (int d = 0; d < heed_graph_rank(p->graph, each); d++)
        rows *= heed_graph_size(p->graph, each, d);
    const heed_variable flat = heed_nn_stop(p->graph, heed_nn_reshape(p->graph, each, 1, &rows));
    *asked = heed_nn_stop(p->graph, heed_nn_step(p->graph, flat, 0.0f));
    return flat;
}

/* REINFORCE (Williams 1992): draws that were followed by less than the mean loss become likelier; where one
 * class is asked of a text, all draws in it answer for that. */
static void add_chances(heed_pass *p)
{
    heed_graph *graph = p->graph;
    heed_variable asked;
    if (!p->beside.chances)
        return;
    if (p->judging != HEED_JUDGE_CLASSES || p->of->data->objective == HEED_OBJECTIVE_DISTIL ||
        p->of->data->objective == HEED_OBJECTIVE_CONTRASTIVE) {
        heed_nn_fail(graph, HEED_UNSUPPORTED,
                     "a layer that draws learns from tokens or classes, not from objective = %s",
                     heed_objective_name((int)p->of->data->objective));
        return;
    }
    const heed_variable each = surprise(p, &asked);
    const int64_t rows = heed_graph_size(graph, each, 0);
    const heed_variable count = heed_nn_scale(graph, heed_nn_sum(graph, asked), 1.0f, 1e-6f),
                        mean = heed_nn_divide(graph, heed_nn_sum(graph, each), count),
                        worse = heed_nn_multiply(graph, heed_nn_subtract(graph, each, mean), asked);
    for (int i = 0; i < p->beside.chances; i++) {
        heed_variable chance = p->beside.chance[i];
        if (heed_graph_rank(graph, chance) == 2 && heed_graph_size(graph, chance, 0) == rows)
            chance = heed_nn_sum(graph, chance);
        const heed_variable flat = heed_nn_reshape(graph, chance, 1, &rows);
        const heed_variable sum = heed_nn_sum(graph, heed_nn_multiply(graph, flat, worse));
        p->loss = heed_nn_add(graph, p->loss, heed_nn_divide(graph, sum, count));
    }
}

void heed_losses_make(heed_pass *p, bool train)
{
    const heed_data *data = p->of->data;
    p->judging = HEED_JUDGE_CLASSES;
    p->scores = p->nodes.logits;
    if (data->objective == HEED_OBJECTIVE_DENOISE) {
        p->judging = HEED_JUDGE_NOISE;
        p->scores = p->denoiser.noise;
        p->loss = mean_of_all(p->graph, heed_nn_apply(p->graph, HEED_FN_SQUARE,
                                                      heed_nn_subtract(p->graph, p->scores, p->noise)));
        return;
    }
    if (p->weights >= 0) {
        make_pooled(p);
    } else if (data->objective == HEED_OBJECTIVE_PREFERENCE) {
        p->judging = HEED_JUDGE_MARGINS;
        p->scores = margins(p);
        p->loss = heed_nn_mean(p->graph, heed_nn_apply(p->graph, HEED_FN_SOFTPLUS,
                                                       heed_nn_scale(p->graph, p->scores, -1.0f, 0.0f)));
    } else if (train) {
        p->loss = data->objective == HEED_OBJECTIVE_DISTIL ? distillation(p) : from_text(p);
        if (p->of->config->whole_share > 0.0)
            p->loss = beside_whole(p, p->loss);
    }
    if (train && p->beside.loss >= 0)
        p->loss = heed_nn_add(p->graph, p->loss, p->beside.loss);
    if (train)
        add_chances(p);
}
