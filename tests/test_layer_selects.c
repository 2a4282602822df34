/* Layers that select tokens, read a tape, walk a tree or merge keys against their formulas, with the gradient
 * of every parameter. */
#include "support/layer_parts.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 4096 };
#define DEFINE(name) static void name(const layer_text *t, double *out)

/* Texts one by one, tokens that are not selected left out. */
static void select_tokens(const layer_text *t, double tau, double *out)
{
    static double x[ROOM], q[ROOM], k[ROOM], v[ROOM], y[ROOM], g[ROOM], map[ROOM];
    const int w = t->width, wide = t->heads * t->d;
    part_map(t, "gate_proj", true, t->x, LAYER_B * t->n, w, 1, g);
    for (int b = 0; b < LAYER_B; b++) {
        int chosen[64], count = 0;
        for (int i = 0; i < t->n; i++)
            if (layer_sigmoid(g[b * t->n + i]) >= tau) {
                memcpy(x + count * w, t->x + (b * t->n + i) * w, (size_t)w * sizeof *x);
                chosen[count++] = i;
            }
        part_map(t, "q_proj", false, x, count, w, wide, q);
        part_map(t, "k_proj", false, x, count, w, wide, k);
        part_map(t, "v_proj", false, x, count, w, wide, v);
        part_attend(t->heads, t->d, q, count, k, v, count, NULL, NULL, y, NULL);
        for (int i = 0; i < count * wide; i++)
            y[i] *= layer_sigmoid(g[b * t->n + chosen[i / wide]]);
        part_map(t, "o_proj", false, y, count, wide, w, map);
        memset(out + b * t->n * w, 0, (size_t)(t->n * w) * sizeof *out);
        for (int i = 0; i < count; i++)
            memcpy(out + (b * t->n + chosen[i]) * w, map + i * w, (size_t)w * sizeof *out);
    }
}

DEFINE(spa_half)
{
    select_tokens(t, 0.5, out);
}

/* Dense attention of each text. */
DEFINE(spa_all)
{
    select_tokens(t, 0, out);
}

static void selected_tokens_attend_in_their_text(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "layer=spa", .define = spa_half, .n = 7});
    layer_check(&(layer_case){.spec = "layer=spa(tau=0)", .define = spa_all, .n = 7});
}

/* Places of slots, and that tokens of a text lie in one container. */
static void containers_are_filled_first_fit(void **state)
{
    (void)state;
    static const float gate[] = {1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0};
    static const int32_t want[] = {0, 2, 3, 5, 8, 9, 10, 11, 12, -1, -1, -1, -1, -1, -1, -1};
    static const int64_t shape[] = {4, 4};
    heed_parameters *parameters;
    heed_graph *graph;
    assert_int_equal(heed_parameters_create(&parameters, 1), HEED_OK);
    assert_int_equal(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), HEED_OK);
    const heed_variable gates = heed_nn_constant(graph, 2, shape, gate),
                        place = heed_nn_pack(graph, gates, false), text = heed_nn_pack(graph, gates, true);
    heed_graph_keep(graph, place);
    heed_graph_keep(graph, text);
    assert_int_equal(heed_graph_finish(graph, HEED_NO_INPUT), HEED_OK);
    assert_int_equal(heed_graph_forward(graph), HEED_OK);
    assert_memory_equal(heed_graph_data(graph, place), want, sizeof want);
    const int32_t *segment = heed_graph_data(graph, text);
    for (int i = 0; i < 16; i++) {
        if (want[i] >= 0)
            assert_int_equal(segment[i], want[i] / 4);
        for (int j = 0; j < i && want[i] < 0; j++)
            assert_int_not_equal(segment[i], segment[j]);
    }
    heed_graph_free(graph);
    heed_parameters_free(parameters);
}

/* Walks of 2 queries over 5 leaves, of which three more are padding, taking the likelier child. */
enum { ASK = 2, LEAVES = 8, DEPTH = 3 };

static void raise_level(const layer_text *t, const double *children, int pairs, double *up)
{
    static double h[ROOM], q[ROOM], k[ROOM], v[ROOM], y[ROOM], o[ROOM], inner[ROOM], more[ROOM];
    const int w = t->width, wide = t->heads * t->d;
    part_norm(t, "up_norm", false, children, 2 * pairs, h);
    part_map(t, "up_q_proj", false, h, 2 * pairs, w, wide, q);
    part_map(t, "up_k_proj", false, h, 2 * pairs, w, wide, k);
    part_map(t, "up_v_proj", false, h, 2 * pairs, w, wide, v);
    for (int p = 0; p < pairs; p++)
        part_attend(t->heads, t->d, q + 2 * p * wide, 2, k + 2 * p * wide, v + 2 * p * wide, 2, NULL, NULL,
                    y + 2 * p * wide, NULL);
    part_map(t, "up_o_proj", false, y, 2 * pairs, wide, w, o);
    for (int i = 0; i < 2 * pairs * w; i++)
        o[i] += children[i];
    part_map(t, "up_in_proj", false, o, 2 * pairs, w, 2 * w, inner);
    for (int i = 0; i < 4 * pairs * w; i++)
        inner[i] = fmax(0, inner[i]);
    part_map(t, "up_out_proj", false, inner, 2 * pairs, 2 * w, w, more);
    for (int i = 0; i < pairs * w; i++) {
        const int at = i / w * 2 * w + i % w;
        up[i] = (o[at] + more[at] + o[at + w] + more[at + w]) / 2;
    }
}

/* Nodes are not learnt from by their parents, so differences keep the children that a parent had at first. */
static double first_nodes[LAYER_B][2 * LEAVES * 16];
static bool nodes_known;

DEFINE(tree)
{
    static double node[2 * LEAVES * 16], q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    const int w = t->width, wide = t->heads * t->d, before = t->n - ASK;
    memset(out, 0, (size_t)(LAYER_B * t->n * w) * sizeof *out);
    for (int b = 0; b < LAYER_B; b++) {
        const double *x = t->x + b * t->n * w;
        memset(node, 0, sizeof node);
        memcpy(node + LEAVES * w, x, (size_t)(before * w) * sizeof *node);
        if (!nodes_known)
            memcpy(first_nodes[b], node, sizeof node);
        for (int level = LEAVES / 2; level > 0; level /= 2) {
            raise_level(t, first_nodes[b] + 2 * level * w, level, node + level * w);
            if (!nodes_known)
                memcpy(first_nodes[b] + level * w, node + level * w, (size_t)(level * w) * sizeof *node);
        }
        part_map(t, "q_proj", false, x + before * w, ASK, w, wide, q);
        part_map(t, "k_proj", false, node, 2 * LEAVES, w, wide, k);
        part_map(t, "v_proj", false, node, 2 * LEAVES, w, wide, v);
        for (int i = 0; i < ASK; i++) {
            double K[DEPTH + 1][16], V[DEPTH + 1][16];
            int at = 1, set[DEPTH + 1], covered = 0;
            for (int step = 0; step < DEPTH; step++) {
                double left = 0;
                for (int h = 0; h < t->heads; h++) {
                    double s = 0;
                    for (int e = h * t->d; e < (h + 1) * t->d; e++)
                        s += q[i * wide + e] * (k[2 * at * wide + e] - k[(2 * at + 1) * wide + e]) /
                             sqrt(t->d);
                    left += layer_sigmoid(s) / t->heads;
                }
                const int right = left < 0.5;
                set[step] = 2 * at + 1 - right;
                at = 2 * at + right;
                covered += LEAVES >> (step + 1);
            }
            set[DEPTH] = at;
            assert_int_equal(covered + 1, LEAVES); /* the set's subtrees have all leaves once */
            for (int s = 0; s <= DEPTH; s++) {
                memcpy(K[s], k + set[s] * wide, (size_t)wide * sizeof *k);
                memcpy(V[s], v + set[s] * wide, (size_t)wide * sizeof *v);
            }
            static double flat_k[64], flat_v[64];
            for (int s = 0; s <= DEPTH; s++)
                for (int e = 0; e < wide; e++) {
                    flat_k[s * wide + e] = K[s][e];
                    flat_v[s * wide + e] = V[s][e];
                }
            part_attend(t->heads, t->d, q + i * wide, 1, flat_k, flat_v, DEPTH + 1, NULL, NULL, y + i * wide,
                        NULL);
        }
        part_map(t, "o_proj", false, y, ASK, wide, w, out + (b * t->n + before) * w);
    }
    nodes_known = true;
}

/* Two leaves: plain cross-attention over both. */
DEFINE(two_leaves)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    const int w = t->width, wide = t->heads * t->d;
    memset(out, 0, (size_t)(LAYER_B * t->n * w) * sizeof *out);
    for (int b = 0; b < LAYER_B; b++) {
        const double *x = t->x + b * t->n * w;
        part_map(t, "q_proj", false, x + 2 * w, t->n - 2, w, wide, q);
        part_map(t, "k_proj", false, x, 2, w, wide, k);
        part_map(t, "v_proj", false, x, 2, w, wide, v);
        part_attend(t->heads, t->d, q, t->n - 2, k, v, 2, NULL, NULL, y, NULL);
        part_map(t, "o_proj", false, y, t->n - 2, wide, w, out + (b * t->n + 2) * w);
    }
}

static void trees_are_walked_to_a_leaf(void **state)
{
    (void)state;
    nodes_known = false;
    layer_check(&(layer_case){.spec = "layer=tree(queries=2)", .define = tree, .n = 7});
    layer_check(&(layer_case){.spec = "layer=tree(queries=4)", .define = two_leaves, .n = 6});
    layer_check(&(layer_case){.spec = "layer=tree(queries=4, walk=whole)", .define = two_leaves, .n = 6});
}

/* 12 cells of 2 by 6, runs of 1, 2 and 3 in quarters of 3, 6 and 3: 3 + 3 + 1 keys. */
enum { MERGED = 12, MERGED_KEYS = 7, MERGED_COLS = 6 };

static void merge_runs(const layer_text *t, const char *end, const double *x, double *keys)
{
    static const int first[] = {0, 3, 9}, count[] = {3, 6, 3};
    static const char *const names[] = {"salient", "middle", "minor"};
    int at = 0;
    for (int g = 0; g < 3; g++) {
        char full[40];
        snprintf(full, sizeof full, "%s_%s", names[g], end);
        const double *slot = layer_value(t, full);
        for (int run = 0; run < count[g] / (g + 1); run++, at++)
            for (int e = 0; e < t->width; e++) {
                keys[at * t->width + e] = 0;
                for (int r = 0; r <= g; r++)
                    keys[at * t->width + e] += slot[r] * x[(first[g] + run * (g + 1) + r) * t->width + e];
            }
    }
    assert_int_equal(at, MERGED_KEYS);
}

DEFINE(merged)
{
    static double q[ROOM], turned[ROOM], keys[ROOM], k[ROOM], v[ROOM], part[ROOM], mine[ROOM], y[ROOM];
    const int w = t->width, half = w / 2;
    const double *D = layer_value(t, "depthwise");
    for (int b = 0; b < LAYER_B; b++) {
        const double *x = t->x + b * MERGED * w;
        part_map(t, "q_proj", false, x, MERGED, w, w, q);
        for (int i = 0; i < MERGED * w; i++)
            turned[(i / w % MERGED_COLS * 2 + i / w / MERGED_COLS) * w + i % w] = x[i];
        for (int side = 0; side < 2; side++) {
            merge_runs(t, side ? "col" : "row", side ? turned : x, keys);
            part_map(t, side ? "k_col_proj" : "k_row_proj", false, keys, MERGED_KEYS, w, half, k);
            part_map(t, side ? "v_col_proj" : "v_row_proj", false, keys, MERGED_KEYS, w, half, v);
            for (int i = 0; i < MERGED * half; i++)
                mine[i] = q[i / half * w + side * half + i % half];
            part_attend(t->heads / 2, half / (t->heads / 2), mine, MERGED, k, v, MERGED_KEYS, NULL, NULL,
                        part, NULL);
            for (int i = 0; i < MERGED * half; i++)
                y[i / half * w + side * half + i % half] = part[i];
        }
        for (int i = 0; i < MERGED * w; i++)
            for (int c = 0; c < 9; c++) {
                const int row = i / w / MERGED_COLS + c / 3 - 1, col = i / w % MERGED_COLS + c % 3 - 1;
                if (row >= 0 && row < 2 && col >= 0 && col < MERGED_COLS)
                    y[i] += D[c * w + i % w] * x[(row * MERGED_COLS + col) * w + i % w];
            }
        part_map(t, "o_proj", false, y, MERGED, w, w, out + b * MERGED * w);
    }
}

static void runs_of_tokens_are_keys(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "layer=sg(sorted=no, salient=1, middle=2, minor=3, rows=2, cols=6)",
                              .define = merged,
                              .n = MERGED});
}

/* How many steps are read, and the output, with the same weights. */
static double read_steps(const char *spec, float *out)
{
    enum { N = 5, W = 8 };
    static const int64_t shape[] = {2, N, W};
    float x[2 * N * W];
    heed_parameters *parameters;
    heed_graph *graph;
    heed_beside beside = {.loss = HEED_NO_INPUT};
    const heed_transformer_nodes nodes = {
        .tokens = HEED_NO_INPUT, .segments = HEED_NO_INPUT, .places = HEED_NO_INPUT, .beside = &beside};
    const heed_transformer model = {.batch = 2,
                                    .context = N,
                                    .width = W,
                                    .layers = 1,
                                    .heads = 2,
                                    .kv_heads = 2,
                                    .head_dim = W / 2,
                                    .spec = spec,
                                    .deviation = 0.4f};
    for (int i = 0; i < 2 * N * W; i++)
        x[i] = sinf((float)(i * i));
    assert_int_equal(heed_parameters_create(&parameters, 3), HEED_OK);
    assert_int_equal(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), HEED_OK);
    const heed_variable y =
        heed_layer_attention(graph, "layer", &model, 0, &nodes, heed_nn_constant(graph, 3, shape, x));
    heed_graph_keep(graph, y);
    heed_graph_keep(graph, beside.measure[0].value);
    if (heed_graph_finish(graph, HEED_NO_INPUT))
        fail_msg("%s: %s", spec, heed_message());
    assert_int_equal(heed_graph_forward(graph), HEED_OK);
    const double steps = (double)*(float *)heed_graph_data(graph, beside.measure[0].value);
    memcpy(out, heed_graph_data(graph, y), sizeof x);
    heed_graph_free(graph);
    heed_parameters_free(parameters);
    return steps;
}

/* A small tau reads one step, a large one all; steps that are not taken change nothing. */
static void tapes_end_when_enough_is_read(void **state)
{
    (void)state;
    static float one[80], closed[80], all[80];
    assert_true(read_steps("layer=adatape(steps=1, take=2, bank=8, tau=1e-6)", one) == 1.0);
    assert_true(read_steps("layer=adatape(steps=4, take=2, bank=8, tau=1e-6)", closed) == 1.0);
    assert_true(read_steps("layer=adatape(steps=4, take=2, bank=8, tau=5)", all) == 4.0);
    double apart = 0.0;
    for (int i = 0; i < 80; i++) {
        assert_true(fabsf(one[i] - closed[i]) < 1e-5f);
        apart = fmax(apart, (double)fabsf(one[i] - all[i]));
    }
    assert_true(apart > 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selected_tokens_attend_in_their_text),
        cmocka_unit_test(containers_are_filled_first_fit),
        cmocka_unit_test(trees_are_walked_to_a_leaf),
        cmocka_unit_test(runs_of_tokens_are_keys),
        cmocka_unit_test(tapes_end_when_enough_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
