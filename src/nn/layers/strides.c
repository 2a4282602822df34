/* Attention with strides over a clip and the poses in it (row 001.094).
 *
 *     kind=joint:     tokens of a pose see those of their frame whose joints are a multiple of `stride` apart
 * and in the same `group` of strides, and the attention token, the mean of their frame's cells kind=temporal:
 * a token sees all tokens of its own frame and of every `stride`-th frame from it on both sides
 *
 * Tokens are frames of rows by cols cells, then `joints` of each frame; those behind both are left alone. The
 * attention token of joints has key and value like the others. Softmax over what is seen; temporal strides
 * usually grow from layer to layer. Kim et al.: Cross-Modal Learning with 3D Deformable Attention for Action
 * Recognition, 2023.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

enum { KIND, STRIDE, GROUP, FRAMES, ROWS, COLS, JOINTS };
enum { JOINT, TEMPORAL };

typedef struct clip {
    heed_grid grid;
    int64_t joints, stride, group, tokens, keys;
    int kind;
} clip;

static int64_t frame_of(const clip *c, int64_t token)
{
    return token < c->grid.cells ? token / (c->grid.cells / c->grid.frames)
                                 : (token - c->grid.cells) / c->joints;
}

/* Queries are the tokens of poses for joint strides, else all; keys likewise, with the attention tokens of
 * all frames behind those of poses. */
static bool sees(const clip *c, int64_t i, int64_t j)
{
    if (c->kind == TEMPORAL)
        return llabs(frame_of(c, i) - frame_of(c, j)) % c->stride == 0;
    if (j >= c->tokens)
        return j - c->tokens == i / c->joints;
    const int64_t a = i % c->joints, b = j % c->joints, span = c->stride * c->group;
    return i / c->joints == j / c->joints && a % c->stride == b % c->stride && a / span == b / span;
}

static heed_variable mask_of(const heed_layer_call *call, const clip *c)
{
    const int64_t shape[] = {c->tokens, c->keys};
    float *values = calloc((size_t)(c->tokens * c->keys), sizeof *values);
    if (!values)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for a mask");
    for (int64_t i = 0; i < c->tokens * c->keys; i++)
        values[i] = sees(c, i / c->keys, i % c->keys) ? 0.0f : -INFINITY;
    const heed_variable made = heed_nn_constant(call->graph, 2, shape, values);
    free(values);
    return made;
}

/* Tokens of poses, and the mean of each frame's cells behind them. */
static heed_variable joint_keys(const heed_layer_call *call, const clip *c, heed_variable poses)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, w = call->model->width,
                  split[] = {b, c->grid.frames, c->grid.cells / c->grid.frames, w};
    const heed_variable cells =
        heed_nn_reshape(graph, heed_nn_slice(graph, call->x, 1, 0, c->grid.cells), 4, split);
    const heed_variable both[] = {poses,
                                  heed_nn_mean(graph, heed_nn_transpose(graph, cells, (int[]){0, 1, 3, 2}))};
    return heed_nn_concatenate(graph, 2, both, 1);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t b = model->batch, heads = model->heads, wide = heads * model->head_dim;
    clip c = {.grid = heed_part_grid(call, heed_arg_int(call->form, FRAMES), heed_arg_int(call->form, ROWS),
                                     heed_arg_int(call->form, COLS)),
              .joints = heed_arg_int(call->form, JOINTS),
              .stride = heed_arg_int(call->form, STRIDE),
              .group = heed_arg_int(call->form, GROUP),
              .kind = (int)call->form->arg[KIND].number};
    if (!c.grid.cells)
        return HEED_NO_VARIABLE;
    const int64_t poses = c.joints * c.grid.frames, all = c.grid.cells + poses;
    if (all > model->context || (c.kind == JOINT && !c.joints))
        return heed_nn_fail(graph, HEED_INVALID,
                            "layer=strides: %lld joints of %lld frames, and %lld tokens behind the cells",
                            (long long)c.joints, (long long)c.grid.frames,
                            (long long)(model->context - c.grid.cells));
    const int64_t before = c.kind == JOINT ? c.grid.cells : 0, behind = model->context - all;
    c.tokens = all - before;
    c.keys = c.kind == JOINT ? poses + c.grid.frames : c.tokens;
    const heed_variable x = heed_nn_slice(graph, call->x, 1, before, c.tokens),
                        from = c.kind == JOINT ? joint_keys(call, &c, x) : x;
    const heed_variable q = heed_part_heads(call, heed_part_map(call, "q_proj", x, wide), heads),
                        k = heed_part_heads(call, heed_part_map(call, "k_proj", from, wide), heads),
                        v = heed_part_heads(call, heed_part_map(call, "v_proj", from, wide), heads);
    const heed_variable scores = heed_nn_add(
        graph, heed_part_scores(call, q, k, 1 / sqrtf((float)model->head_dim)), mask_of(call, &c));
    const heed_variable y = heed_part_out(
        call, heed_part_merge(call, heed_nn_product(graph, heed_nn_softmax(graph, scores), v, false)));
    const int64_t ahead[] = {b, before, model->width}, after[] = {b, behind, model->width};
    heed_variable part[3];
    int parts = 0;
    if (before)
        part[parts++] = heed_part_zeros(call, 3, ahead);
    part[parts++] = y;
    if (behind)
        part[parts++] = heed_part_zeros(call, 3, after);
    return parts == 1 ? y : heed_nn_concatenate(graph, parts, part, 1);
}

static const heed_option kinds[] = {[JOINT] = {"joint", NULL}, [TEMPORAL] = {"temporal", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    [KIND] = {.name = "kind",
              .kind = HEED_ARG_CHOICE,
              .value = TEMPORAL,
              .options = kinds,
              .summary = "over joints of a frame, or over frames"},
    [STRIDE] = {.name = "stride",
                .kind = HEED_ARG_INT,
                .value = 2,
                .least = 1,
                .most = 4096,
                .summary = "joints or frames from one to the next"},
    [GROUP] = {.name = "group",
               .kind = HEED_ARG_INT,
               .value = 5,
               .least = 1,
               .most = 4096,
               .summary = "joints that see each other"},
    [FRAMES] = HEED_FRAMES_ARG,
    [ROWS] = HEED_ROWS_ARG("of a frame"),
    [COLS] = HEED_COLS_ARG,
    [JOINTS] = HEED_JOINTS_ARG,
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_strides = {
    .name = "strides",
    .stage = HEED_LAYER,
    .summary = "poses see neighbouring joints, or tokens see every so many frames of a clip",
    .formula = "softmax over joints of a group, or over frames with |t - t'| mod stride = 0",
    .source = "Kim et al.: Cross-Modal Learning with 3D Deformable Attention for Action Recognition, 2023",
    .row = "001.094",
    .args = args,
    .layer = &rule,
};
