/* Two-resolution read (row 001.048, LSceneLLM): a text reads the fine cells of those coarse ones that it
 * looks at.
 *
 *     tokens: coarse cells, then the fine ones of each, then the text; coarse cells and text are the ordinary
 * tokens p    = softmax(q·k / sqrt d) over ordinary keys up to the token,  f = sum over heads of p over
 * coarse cells open: cells with (f - min f) / (max f - min f) > threshold, in the layer before; hard, without
 * gradient out  = (1 - a) sum p v + a sum p' v',  p' the softmax over ordinary keys and the fine ones of open
 * cells
 *
 * Fine keys have maps of their own and the rotary place of their cell. a counts for the text alone, and from
 * layer `from` on; it may rise from 0 in `warmup` steps. Fine tokens read nothing. Zhi et al.: LSceneLLM,
 * 2024.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

enum { CELLS, FINE, THRESHOLD, FROM, SHARE, WARMUP };

/* x [B, H, n, d] turned as rotary positions are (pairs of t and t + d/2), row i at place[i]. */
static heed_variable rotate(const heed_layer_call *call, heed_variable x, const int64_t *place)
{
    heed_graph *graph = call->graph;
    const int64_t n = heed_graph_size(graph, x, 2), d = heed_graph_size(graph, x, 3), half = d / 2;
    float *cosine = calloc((size_t)(n * d), sizeof *cosine), *sine = calloc((size_t)(n * d), sizeof *sine),
          *swap = calloc((size_t)(d * d), sizeof *swap);
    heed_variable out = HEED_NO_VARIABLE;
    if (cosine && sine && swap) {
        for (int64_t i = 0; i < n * d; i++) {
            const double angle =
                (double)place[i / d] * pow(10000.0, -2.0 * (double)(i % d % half) / (double)d);
            cosine[i] = (float)cos(angle);
            sine[i] = (float)sin(angle);
        }
        for (int64_t t = 0; t < half; t++) {
            swap[(t + half) * d + t] = -1.0f;
            swap[t * d + t + half] = 1.0f;
        }
        const heed_variable turned =
            heed_nn_product(graph, x, heed_nn_constant(graph, 2, (int64_t[]){d, d}, swap), false);
        out = heed_nn_add(
            graph, heed_nn_multiply(graph, x, heed_nn_constant(graph, 2, (int64_t[]){n, d}, cosine)),
            heed_nn_multiply(graph, turned, heed_nn_constant(graph, 2, (int64_t[]){n, d}, sine)));
    } else {
        heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for rotary positions");
    }
    free(cosine);
    free(sine);
    free(swap);
    return out;
}

static heed_variable heads_of(const heed_layer_call *call, const char *name, heed_variable x)
{
    return heed_part_heads(call, heed_part_map(call, name, x, call->model->heads * call->model->head_dim),
                           call->model->heads);
}

/* 0 for keys up to the query, else -inf: [n, n]. */
static heed_variable causal(const heed_layer_call *call, int64_t n)
{
    float *values = calloc((size_t)(n * n), sizeof *values);
    if (!values)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for a mask");
    for (int64_t i = 0; i < n * n; i++)
        values[i] = i % n > i / n ? -INFINITY : 0.0f;
    const heed_variable made = heed_nn_constant(call->graph, 2, (int64_t[]){n, n}, values);
    free(values);
    return made;
}

/* [B, text, cells] 1 where a token looks, from its weights p [B, H, ordinary, ordinary]. */
static heed_variable focus(const heed_layer_call *call, heed_variable p, int64_t cells, int64_t text)
{
    heed_graph *graph = call->graph;
    const int64_t batch = call->model->batch, row[] = {batch * text, 1, 1}, rows[] = {batch * text, cells},
                  all[] = {batch, text, cells};
    const heed_variable here = heed_nn_slice(graph, heed_nn_slice(graph, p, 2, cells, text), 3, 0, cells);
    /* [B, text, cells, H] summed over heads */
    const heed_variable f = heed_nn_stop(
        graph, heed_nn_reshape(graph, heed_nn_sum(graph, heed_nn_transpose(graph, here, (int[]){0, 2, 3, 1})),
                               2, rows));
    const heed_variable most = heed_nn_max(graph, f),
                        least = heed_nn_scale(graph, heed_nn_max(graph, heed_nn_scale(graph, f, -1.0f, 0.0f)),
                                              -1.0f, 0.0f);
    const heed_variable level = heed_nn_add(graph, least,
                                            heed_nn_scale(graph, heed_nn_subtract(graph, most, least),
                                                          heed_arg_float(call->form, THRESHOLD), 0.0f));
    const heed_variable off = heed_nn_subtract(
        graph, f,
        heed_nn_reshape(graph, heed_part_spread(call, heed_nn_reshape(graph, level, 3, row), cells), 2,
                        rows));
    return heed_nn_reshape(graph, heed_nn_stop(graph, heed_nn_step(graph, off, 0.0f)), 3, all);
}

/* The joint read of the text: [B, H, text, d]. open [B, text, cells]. */
static heed_variable read_fine(const heed_layer_call *call, heed_variable q, heed_variable scores,
                               heed_variable v, heed_variable fine, heed_variable open)
{
    heed_graph *graph = call->graph;
    const int64_t cells = heed_arg_int(call->form, CELLS), each = heed_arg_int(call->form, FINE),
                  heads = call->model->heads, batch = call->model->batch, text = heed_graph_size(graph, q, 2),
                  all = cells * each, wide[] = {batch, 1, text * all}, shape[] = {batch, heads, text, all};
    int64_t *place = malloc((size_t)all * sizeof *place);
    if (!place)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for places of fine cells");
    for (int64_t i = 0; i < all; i++)
        place[i] = i / each;
    const heed_variable k = rotate(call, heads_of(call, "fine_k_proj", fine), place),
                        fine_v = heads_of(call, "fine_v_proj", fine);
    free(place);
    const heed_variable shut = heed_nn_scale(graph, heed_part_each(call, open, each), 1e9f, -1e9f);
    const heed_variable s = heed_nn_add(
        graph, heed_part_scores(call, q, k, 1.0f / sqrtf((float)call->model->head_dim)),
        heed_nn_reshape(graph, heed_part_spread(call, heed_nn_reshape(graph, shut, 3, wide), heads), 4,
                        shape));
    const heed_variable w =
        heed_nn_softmax(graph, heed_nn_concatenate(graph, 2, (heed_variable[]){scores, s}, 3));
    return heed_nn_product(graph, w, heed_nn_concatenate(graph, 2, (heed_variable[]){v, fine_v}, 2), false);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const int64_t cells = heed_arg_int(call->form, CELLS), each = heed_arg_int(call->form, FINE),
                  all = cells * each, n = call->model->context, text = n - cells - all,
                  ordinary = cells + text;
    const float a = heed_arg_float(call->form, SHARE);
    if (text < 1 || call->model->head_dim % 2)
        return heed_nn_fail(
            graph, HEED_INVALID,
            "layer=scene(cells=%lld, fine=%lld): %lld tokens leave none for a text, or heads have an "
            "odd number of entries",
            (long long)cells, (long long)each, (long long)n);
    const heed_variable fine = heed_nn_slice(graph, call->x, 1, cells, all);
    const heed_variable x =
        heed_nn_concatenate(graph, 2,
                            (heed_variable[]){heed_nn_slice(graph, call->x, 1, 0, cells),
                                              heed_nn_slice(graph, call->x, 1, cells + all, text)},
                            1);
    int64_t *place = malloc((size_t)ordinary * sizeof *place);
    if (!place)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for places");
    for (int64_t i = 0; i < ordinary; i++)
        place[i] = i;
    const heed_variable q = rotate(call, heads_of(call, "q_proj", x), place),
                        k = rotate(call, heads_of(call, "k_proj", x), place), v = heads_of(call, "v_proj", x);
    free(place);
    const heed_variable s =
        heed_nn_add(graph, heed_part_scores(call, q, k, 1.0f / sqrtf((float)call->model->head_dim)),
                    causal(call, ordinary));
    const heed_variable p = heed_nn_softmax(graph, s), plain = heed_nn_product(graph, p, v, false),
                        open = heed_part_left(call, 0);
    heed_variable words = heed_nn_slice(graph, plain, 2, cells, text);
    if (open != HEED_NO_INPUT && call->layer >= heed_arg_int(call->form, FROM) && a > 0.0f) {
        const heed_variable joint = read_fine(call, heed_nn_slice(graph, q, 2, cells, text),
                                              heed_nn_slice(graph, s, 2, cells, text), v, fine, open);
        words = heed_nn_add(graph, words,
                            heed_nn_multiply(graph, heed_nn_subtract(graph, joint, words),
                                             heed_nn_ramp(graph, heed_arg_int(call->form, WARMUP) ? 0.0f : a,
                                                          a, heed_arg_int(call->form, WARMUP))));
        heed_part_measure(call, "read", heed_part_mean(call, open));
    }
    heed_part_leave(call, focus(call, p, cells, text));
    const heed_variable out = heed_part_out(
        call,
        heed_part_merge(
            call, heed_nn_concatenate(
                      graph, 2, (heed_variable[]){heed_nn_slice(graph, plain, 2, 0, cells), words}, 2)));
    const heed_variable parts[] = {heed_nn_slice(graph, out, 1, 0, cells),
                                   heed_nn_scale(graph, fine, 0.0f, 0.0f),
                                   heed_nn_slice(graph, out, 1, cells, text)};
    return heed_nn_concatenate(graph, 3, parts, 1);
}

static const heed_arg args[] = {
    [CELLS] = {.name = "cells",
               .kind = HEED_ARG_INT,
               .value = 9,
               .least = 1,
               .most = 1 << 20,
               .summary = "coarse cells"},
    [FINE] = {.name = "fine",
              .kind = HEED_ARG_INT,
              .value = 4,
              .least = 1,
              .most = 1 << 20,
              .summary = "fine ones of each"},
    [THRESHOLD] =
        {.name = "threshold",
         .value = 96.0 / 255.0,
         .least = -1,
         .most = 1,
         .summary = "a cell is open where it is looked at more than this, from 0 for the least to 1 for the "
                    "most; below 0: all are"},
    [FROM] = {.name = "from",
              .kind = HEED_ARG_INT,
              .value = 1,
              .most = 4096,
              .summary = "first layer that reads fine cells"},
    [SHARE] =
        {.name = "a", .value = 1, .least = 0, .most = 1, .summary = "share of what is read with fine cells"},
    [WARMUP] = {.name = "warmup",
                .kind = HEED_ARG_INT,
                .most = 1 << 30,
                .summary = "steps in which a rises from 0"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_scene = {
    .name = "scene",
    .stage = HEED_LAYER,
    .summary = "a text reads the fine cells of those coarse ones that it looks at",
    .formula = "(1 - a) attend(ordinary) + a attend(ordinary and fine keys of cells whose weight in the "
               "layer before is "
               "above the threshold)",
    .source = "Zhi et al.: LSceneLLM: Enhancing Large 3D Scene Understanding Using Adaptive Visual "
              "Preferences, 2024",
    .row = "001.048",
    .args = args,
    .layer = &rule,
};
