/* Query-selected cross-attention (row 000.072, PMCANet): shapes that sound, looked for stage by stage, each
 * layer one.
 *
 *     cells are gathered by squares of 2^(stages - 1 - layer), coarse to fine
 *     v_g := v_g cos(v_g, W_s a) in each of the groups of channels, a the tone of the frame
 *     a += W_o' attend(W_q' a, W_k' v, W_v' v) over all cells,  v_S += W_o attend(W_q v_S, W_k a, W_v a) over
 * all tones z = conv(z before, enlarged) + conv(v),   p = softmax(W_p z) of yes,   S next = S enlarged and 1
 * - tau <= p <= tau
 *
 * S is all cells at first, and no gradient flows through it; cells outside pass unchanged. Tokens are the
 * cells of `frames` pictures, then a tone for each. Each stage's map counts beside the loss. What is added to
 * a cell is a map of z. kind=random drops as many cells by chance. The cost reported is 2 N C^2 + 2 N' C^2 +
 * 4 T C^2 + 2 T (N + N') C of N' = |S| queries against N' = N.
 */
#include "nn/graph.h"
#include "nn/layers.h"
#include "nn/sources.h"

#include <math.h>

enum { TAU, FRAMES, GROUPS, BESIDE, KIND };
enum { CONFIDENT, RANDOM };

/* Multi-head attention of rows x to rows y, with maps of its own; without W_o. */
static heed_variable cross(const heed_layer_call *call, const char *name, heed_variable x, heed_variable y)
{
    heed_graph *graph = call->graph;
    const heed_layer_name under = heed_layer_under(call->name, name);
    const int64_t heads = call->model->heads, d = call->model->head_dim;
    heed_layer_call own = *call;
    own.name = under.text;
    const heed_variable q = heed_part_heads(call, heed_part_map(&own, "q_proj", x, heads * d), heads),
                        k = heed_part_heads(call, heed_part_map(&own, "k_proj", y, heads * d), heads),
                        v = heed_part_heads(call, heed_part_map(&own, "v_proj", y, heads * d), heads);
    const heed_variable w = heed_nn_softmax(graph, heed_part_scores(call, q, k, 1.0f / sqrtf((float)d)));
    return heed_part_map(&own, "o_proj", heed_part_merge(call, heed_nn_product(graph, w, v, false)),
                         heed_graph_size(graph, x, 2));
}

heed_variable heed_source_confident(const heed_layer_call *call, heed_variable v, heed_variable a,
                                    heed_variable chosen)
{
    const heed_variable read = cross(call, "visual", v, a);
    return heed_nn_add(call->graph, v, chosen == HEED_NO_INPUT ? read : heed_part_times(call, read, chosen));
}

heed_variable heed_source_groups(const heed_layer_call *call, heed_variable v, heed_variable a,
                                 int64_t groups)
{
    heed_graph *graph = call->graph;
    if (v < 0 || a < 0)
        return HEED_NO_VARIABLE;
    const int64_t batch = heed_graph_size(graph, v, 0), cells = heed_graph_size(graph, v, 1),
                  frames = heed_graph_size(graph, a, 1), width = heed_graph_size(graph, v, 2),
                  c = width / groups, apart[] = {batch * frames, cells / frames * groups, c},
                  tone[] = {batch * frames, 1, c}, whole[] = {batch, cells, width};
    const heed_variable rows = heed_nn_reshape(graph, v, 3, apart),
                        shrunk = heed_nn_reshape(graph, heed_part_map(call, "shrink", a, c), 3, tone);
    const float length = 1.0f / sqrtf((float)c);
    const heed_variable cosine = heed_nn_product(
        graph, heed_nn_scale(graph, heed_nn_rms_norm(graph, rows, HEED_NO_INPUT, 1e-6f), length, 0.0f),
        heed_nn_scale(graph, heed_nn_rms_norm(graph, shrunk, HEED_NO_INPUT, 1e-6f), length, 0.0f), true);
    return heed_nn_reshape(graph, heed_nn_multiply(graph, rows, heed_part_each(call, cosine, c)), 3, whole);
}

/* 3 by 3 around each cell. */
static heed_variable convolve(const heed_layer_call *call, const char *name, heed_variable x, heed_grid grid)
{
    heed_graph *graph = call->graph;
    const int64_t batch = heed_graph_size(graph, x, 0), width = heed_graph_size(graph, x, 2),
                  apart[] = {batch * grid.frames, grid.rows, grid.cols, width},
                  together[] = {batch, grid.cells, width}, shape[] = {width, 3, 3, width};
    const heed_variable weight =
        heed_part_parameter(call, name, 4, shape, HEED_INITIAL_NORMAL, 1.0f / (3.0f * sqrtf((float)width)));
    return heed_nn_reshape(graph,
                           heed_nn_convolution_2d(graph, heed_nn_reshape(graph, x, 4, apart), weight,
                                                  &(heed_convolution_2d){.pad = 1}),
                           3, together);
}

static heed_variable gather(const heed_layer_call *call, heed_variable x, heed_grid grid, int64_t by)
{
    heed_graph *graph = call->graph;
    const int64_t batch = heed_graph_size(graph, x, 0), width = heed_graph_size(graph, x, 2),
                  apart[] = {batch * grid.frames, grid.rows, grid.cols, width},
                  together[] = {batch, grid.cells / by / by, width};
    if (by == 1)
        return x;
    return heed_nn_reshape(graph, heed_nn_pool_2d(graph, heed_nn_reshape(graph, x, 4, apart), by, by, false),
                           3, together);
}

/* [B, cells] those of the stage before that are still not sure; p [B, cells, classes], the last class yes. */
static heed_variable choose(const heed_layer_call *call, heed_variable p, heed_variable before)
{
    heed_graph *graph = call->graph;
    const int64_t classes = heed_graph_size(graph, p, 2),
                  flat[] = {heed_graph_size(graph, p, 0), heed_graph_size(graph, p, 1)};
    const float tau = heed_arg_float(call->form, TAU);
    if (tau >= 1.0f)
        return before;
    const heed_variable yes = heed_nn_reshape(graph, heed_nn_slice(graph, p, 2, classes - 1, 1), 2, flat);
    const heed_variable low = heed_nn_step(graph, yes, 1.0f - tau),
                        high = heed_nn_step(graph, heed_nn_scale(graph, yes, -1.0f, 0.0f), -tau);
    return heed_nn_stop(graph, heed_nn_multiply(graph, before, heed_nn_multiply(graph, low, high)));
}

/* As many of `before` as `chosen` has, by numbers that do not depend on what they show. */
static heed_variable by_chance(const heed_layer_call *call, heed_variable chosen, heed_variable before)
{
    heed_graph *graph = call->graph;
    const int64_t batch = heed_graph_size(graph, chosen, 0), cells = heed_graph_size(graph, chosen, 1),
                  row[] = {batch, 1, 1}, flat[] = {batch, cells};
    const heed_variable share = heed_nn_divide(
        graph, heed_nn_mean(graph, chosen), heed_nn_scale(graph, heed_nn_mean(graph, before), 1.0f, 1e-9f));
    const heed_variable all =
        heed_nn_reshape(graph, heed_part_spread(call, heed_nn_reshape(graph, share, 3, row), cells), 2, flat);
    return heed_nn_multiply(
        graph, before,
        heed_nn_stop(
            graph,
            heed_nn_step(graph, heed_nn_subtract(graph, all, heed_part_chances(call, batch, cells)), 0.0f)));
}

/* The stage's own map against what is asked for, at every cell. */
static void add_loss(const heed_layer_call *call, heed_variable logits, int64_t cells)
{
    heed_graph *graph = call->graph;
    const int64_t n = call->model->context;
    if (!call->nodes->targets)
        return;
    heed_variable all = logits;
    if (n > cells) {
        const heed_variable rest = heed_part_spread(
            call, heed_nn_scale(graph, heed_nn_slice(graph, logits, 1, 0, 1), 0.0f, 0.0f), n - cells);
        all = heed_nn_concatenate(graph, 2, (heed_variable[]){logits, rest}, 1);
    }
    heed_part_loss(call, heed_nn_cross_entropy(graph, all, *call->nodes->targets, 0.0f),
                   heed_arg_float(call->form, BESIDE));
}

static void report(const heed_layer_call *call, heed_variable chosen, double tones)
{
    const double n = (double)heed_graph_size(call->graph, chosen, 1), c = (double)call->model->width,
                 all = 4 * n * c * c + 4 * tones * c * c + 4 * tones * n * c,
                 each = 2 * c * c + 2 * tones * c;
    const heed_variable kept = heed_part_mean(call, chosen);
    heed_part_measure(call, "kept", kept);
    heed_part_measure(call, "cost",
                      heed_nn_scale(call->graph, kept, (float)(each * n / all), (float)(1 - each * n / all)));
}

/* Cells a side that a stage gathers: half as many each time, as far as they divide the side. */
static int64_t gathers(const heed_layer_call *call, int64_t layer, int64_t side)
{
    int64_t by = 1;
    for (int64_t stage = layer + 1; stage < call->model->layers && side % (2 * by) == 0; stage++)
        by *= 2;
    return by;
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t frames = heed_arg_int(call->form, FRAMES), groups = heed_arg_int(call->form, GROUPS),
                  cells = model->context - frames;
    const int64_t side = (int64_t)(sqrt((double)(cells / frames)) + 0.5),
                  by = side > 0 ? gathers(call, call->layer, side) : 1;
    const heed_grid fine = {frames, side, side, cells},
                    grid = {frames, side / by, side / by, cells / by / by};
    if (cells < 1 || side * side * frames != cells || model->width % groups)
        return heed_nn_fail(
            graph, HEED_INVALID,
            "layer=confident: %lld tokens are not %lld square pictures with a tone each, or %lld "
            "groups do not divide width = %lld",
            (long long)model->context, (long long)frames, (long long)groups, (long long)model->width);
    const heed_variable a = heed_nn_slice(graph, call->x, 1, cells, frames),
                        low = gather(call, heed_nn_slice(graph, call->x, 1, 0, cells), fine, by),
                        v = heed_source_groups(call, low, a, groups);
    /* left by the stage before: its map of features, and which cells it leaves open */
    heed_variable z = heed_part_left(call, 1), chosen = heed_part_left(call, 0);
    if (chosen == HEED_NO_INPUT)
        chosen = heed_nn_stop(graph, heed_nn_scale(graph, heed_nn_mean(graph, low), 0.0f, 1.0f));
    const heed_variable heard = cross(call, "audio", a, v), seen = heed_source_confident(call, v, a, chosen);
    report(call, chosen, (double)frames);
    const heed_variable own = convolve(call, "convolution", seen, grid);
    z = z == HEED_NO_INPUT ? own : heed_nn_add(graph, convolve(call, "guide", z, grid), own);
    const heed_variable logits = heed_part_map(call, "logits", z, model->vocabulary);
    add_loss(call, heed_part_enlarge(call, logits, frames, grid.rows, grid.cols, by), cells);
    const heed_variable sure = choose(call, heed_nn_softmax(graph, logits), chosen);
    const heed_variable open = call->form->arg[KIND].number == RANDOM ? by_chance(call, sure, chosen) : sure;
    if (call->layer + 1 < model->layers) {
        const int64_t times = by / gathers(call, call->layer + 1, side);
        const int64_t column[] = {model->batch, grid.cells, 1},
                      flat[] = {model->batch, times * times * grid.cells};
        heed_part_leave(call, heed_part_enlarge(call, z, frames, grid.rows, grid.cols, times));
        heed_part_leave(call, heed_nn_reshape(graph,
                                              heed_part_enlarge(call, heed_nn_reshape(graph, open, 3, column),
                                                                frames, grid.rows, grid.cols, times),
                                              2, flat));
    }
    const heed_variable both[] = {heed_part_enlarge(call, heed_part_map(call, "o_proj", z, model->width),
                                                    frames, grid.rows, grid.cols, by),
                                  heard};
    return heed_nn_concatenate(graph, 2, both, 1);
}

static const heed_option kinds[] = {{"confident", NULL}, {"random", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    [TAU] = {.name = "tau",
             .value = 0.99,
             .least = 0.5,
             .most = 1,
             .summary = "a cell is left alone where it is this sure, or its opposite; 1: never"},
    [FRAMES] = {.name = "frames",
                .kind = HEED_ARG_INT,
                .value = 2,
                .least = 1,
                .most = 4096,
                .summary = "pictures, and tones behind them"},
    [GROUPS] = {.name = "groups",
                .kind = HEED_ARG_INT,
                .value = 8,
                .least = 1,
                .most = 4096,
                .summary = "of channels, each weighed by its likeness to the tone"},
    [BESIDE] = {.name = "beside",
                .value = 0.5,
                .least = 0,
                .most = 1e6,
                .summary = "what the map of a stage counts beside the loss"},
    [KIND] = {.name = "kind",
              .kind = HEED_ARG_CHOICE,
              .options = kinds,
              .summary =
                  "which cells are left alone: those that are sure, or as many by chance, for comparison"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_confident = {
    .name = "confident",
    .stage = HEED_LAYER,
    .summary = "cells and tones look at each other, coarse to fine, and cells that are sure ask no more",
    .formula =
        "v_S += W_o attend(W_q v_S, W_k a, W_v a), S of cells with 1 - tau <= p <= tau in all stages before",
    .source = "PMCANet: progressive confident masking for audio-visual segmentation",
    .row = "000.072",
    .args = args,
    .layer = &rule,
};
