/* A layer of Titans (row 001.135): attention in a window beside a memory that learns, or behind it.
 *
 *     q, k, v = silu(convolution(x W)) of scan=titans, gate = x Wg
 *     gated:  out = Wo (norm(attend(q', k', v')) sigmoid(norm(memory)))
 *     before: out = Wo attend(q', k', v') of memory's output in place of x
 *
 * Keys and values of the attention have learnt, persistent ones before them, which all tokens see. The form
 * that attends to what the memory recalls for each segment is not here. Behrouz, Zhong, Mirrokni: Titans,
 * 2024.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <stdio.h>
#include <stdlib.h>

enum { KIND, WINDOW, PERSISTENT, CHUNK, TAPS };

/* silu(convolution(x W)): each channel over `taps` tokens */
static heed_variable short_map(const heed_layer_call *call, const char *part, const char *taps, int64_t wide)
{
    heed_graph *graph = call->graph;
    const int64_t count = heed_arg_int(call->form, TAPS), shape[] = {count, wide};
    const heed_variable weight =
        heed_part_parameter(call, taps, 2, shape, HEED_INITIAL_NORMAL, 1 / (float)count);
    const heed_convolution how = {.causal = true, .depthwise = true};
    return heed_nn_apply(graph, HEED_FN_SILU,
                         heed_nn_convolution(graph, heed_part_map(call, part, call->x, wide), weight, &how));
}

static heed_variable remember(const heed_layer_call *call)
{
    const heed_transformer *model = call->model;
    const int64_t wide = model->heads * model->head_dim;
    char spec[60];
    snprintf(spec, sizeof spec, "scan=titans(chunk=%d)", heed_arg_int(call->form, CHUNK));
    heed_nn_recurrence how = heed_layer_recurrence(model, call->layer, spec);
    how.gate = heed_part_map(call, "memory_gate_proj", call->x, 3 * model->heads);
    return heed_nn_scan(call->graph, short_map(call, "memory_q_proj", "memory_q_taps", wide),
                        short_map(call, "memory_k_proj", "memory_k_taps", wide),
                        short_map(call, "memory_v_proj", "memory_v_taps", wide), &how);
}

/* The same learnt rows before those of every text. */
static heed_variable behind_persistent(const heed_layer_call *call, const char *part, heed_variable rows)
{
    heed_graph *graph = call->graph;
    const int64_t count = heed_arg_int(call->form, PERSISTENT), wide = heed_graph_size(graph, rows, 2);
    const int64_t shape[] = {count, wide}, all[] = {call->model->batch, count, wide};
    if (count == 0)
        return rows;
    float *zeros = calloc((size_t)(all[0] * count * wide), sizeof *zeros);
    if (!zeros)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for persistent tokens");
    const heed_variable empty = heed_nn_constant(graph, 3, all, zeros);
    free(zeros);
    const heed_variable both[] = {
        heed_nn_add(graph, empty,
                    heed_part_parameter(call, part, 2, shape, HEED_INITIAL_NORMAL, call->model->deviation)),
        rows};
    return heed_nn_concatenate(graph, 2, both, 1);
}

static heed_variable attend_in_window(const heed_layer_call *call, heed_variable x)
{
    const heed_transformer *model = call->model;
    const int64_t wide = model->heads * model->head_dim;
    const int persistent = heed_arg_int(call->form, PERSISTENT), window = heed_arg_int(call->form, WINDOW);
    char spec[120];
    if (persistent)
        snprintf(spec, sizeof spec, "where=causal & (window(%d) | first(%d))", window, persistent);
    else
        snprintf(spec, sizeof spec, "where=causal & window(%d)", window);
    heed_layer_call inside = *call;
    inside.spec = spec;
    return heed_part_attend(
        &inside, "attend", heed_part_map(call, "q_proj", x, wide),
        behind_persistent(call, "persistent_keys", heed_part_map(call, "k_proj", x, wide)),
        behind_persistent(call, "persistent_values", heed_part_map(call, "v_proj", x, wide)), model->heads,
        model->heads);
}

static heed_variable norm(const heed_layer_call *call, const char *part, heed_variable x)
{
    const int64_t size[] = {heed_graph_size(call->graph, x, 2)};
    return heed_nn_rms_norm(call->graph, x,
                            heed_part_parameter(call, part, 1, size, HEED_INITIAL_CONSTANT, 1), 1e-5f);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_variable memory = remember(call);
    if (call->form->arg[KIND].number == 1)
        return heed_part_out(call, attend_in_window(call, memory));
    const heed_variable local = norm(call, "local_norm", attend_in_window(call, call->x));
    return heed_part_out(call,
                         heed_nn_gate(graph, HEED_FN_SIGMOID, norm(call, "memory_norm", memory), local));
}

static const heed_option kinds[] = {{"gated", NULL}, {"before", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    [KIND] = {.name = "kind",
              .kind = HEED_ARG_CHOICE,
              .options = kinds,
              .summary = "memory beside attention, or before it"},
    [WINDOW] = {.name = "window",
                .kind = HEED_ARG_INT,
                .value = 512,
                .least = 1,
                .most = 1 << 24,
                .summary = "tokens that attention sees"},
    [PERSISTENT] = {.name = "persistent",
                    .kind = HEED_ARG_INT,
                    .value = 4,
                    .most = 4096,
                    .summary = "learnt tokens that all see"},
    [CHUNK] = {.name = "chunk",
               .kind = HEED_ARG_INT,
               .value = 16,
               .least = 1,
               .most = 65536,
               .summary = "as in scan=titans"},
    [TAPS] = {.name = "taps",
              .kind = HEED_ARG_INT,
              .value = 4,
              .least = 1,
              .most = 64,
              .summary = "tokens of a convolution"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_titans = {
    .name = "titans",
    .stage = HEED_LAYER,
    .summary = "attention in a window beside a memory that learns at test time, or behind it",
    .formula = "Wo (norm(attend) sigmoid(norm(memory))), or Wo attend(memory)",
    .source = "Behrouz, Zhong, Mirrokni: Titans, 2024; without the form that recalls by segment",
    .row = "001.135",
    .args = args,
    .layer = &rule,
};
