/* Layers that choose what they read of pictures, clips and trees, against their formulas, with the gradient
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

static void sparsemax(double *x, int n)
{
    double low = -1e3, high = 1e3;
    for (int step = 0; step < 100; step++) {
        const double middle = (low + high) / 2;
        double sum = 0;
        for (int i = 0; i < n; i++)
            sum += fmax(0, x[i] - middle);
        *(sum > 1 ? &low : &high) = middle;
    }
    for (int i = 0; i < n; i++)
        x[i] = fmax(0, x[i] - high);
}

/* A picture of 2 by 4 cells in coarse cells of 2 by 2, read by the two tokens behind it. */
enum { PICTURE_ROWS = 2, PICTURE_COLS = 4, PICTURE = 8, COARSE = 2, READERS = 2 };
typedef enum coarse_kind { BY_SPARSEMAX, BY_SOFTMAX, BY_LARGEST, FLAT } coarse_kind;

static void two_levels(const layer_text *t, coarse_kind kind, double *out)
{
    static double inner[ROOM], more[ROOM], V[ROOM], few[ROOM], y[ROOM];
    static double q[ROOM], k[ROOM], v[ROOM], cq[ROOM], ck[ROOM];
    const int w = t->width, d = t->d, wide = t->heads * d;
    memset(out, 0, (size_t)(LAYER_B * t->n * w) * sizeof *out);
    for (int b = 0; b < LAYER_B; b++) {
        const double *x = t->x + b * t->n * w, *readers = x + PICTURE * w;
        part_convolve(t, "conv1", x, PICTURE_ROWS, PICTURE_COLS, 3, 1, 1, inner);
        for (int i = 0; i < PICTURE * w; i++)
            inner[i] = fmax(0, inner[i]);
        part_convolve(t, "conv2", inner, PICTURE_ROWS, PICTURE_COLS, 3, 1, 1, more);
        for (int i = 0; i < PICTURE * w; i++)
            V[i] = x[i] + more[i];
        layer_map(layer_value(t, "q_proj.weight"), readers, READERS, w, wide, q);
        layer_map(layer_value(t, "k_proj.weight"), V, PICTURE, w, wide, k);
        layer_map(layer_value(t, "v_proj.weight"), V, PICTURE, w, wide, v);
        part_convolve(t, "coarse_conv", V, PICTURE_ROWS, PICTURE_COLS, 2, 2, 0, few);
        if (kind != FLAT) {
            layer_map(layer_value(t, "coarse_q_proj.weight"), readers, READERS, w, wide, cq);
            layer_map(layer_value(t, "coarse_k_proj.weight"), few, COARSE, w, wide, ck);
        }
        memset(y, 0, sizeof y);
        for (int h = 0; h < t->heads; h++)
            for (int i = 0; i < READERS; i++) {
                double p[COARSE] = {0}, s[PICTURE] = {0}, all[PICTURE];
                for (int j = 0; j < PICTURE; j++)
                    for (int e = 0; e < d; e++)
                        s[j] += q[i * wide + h * d + e] * k[j * wide + h * d + e] / sqrt(d);
                for (int z = 0; z < COARSE && kind != FLAT; z++)
                    for (int e = 0; e < d; e++)
                        p[z] += cq[i * wide + h * d + e] * ck[z * wide + h * d + e] / sqrt(d);
                if (kind == BY_SPARSEMAX)
                    sparsemax(p, COARSE);
                else if (kind == BY_SOFTMAX)
                    layer_softmax(p, COARSE);
                else if (kind == BY_LARGEST)
                    p[1] = 1 - (p[0] = p[0] >= p[1]);
                memcpy(all, s, sizeof all);
                layer_softmax(all, PICTURE);
                for (int z = 0; z < COARSE; z++) {
                    double within = 0; /* cells of coarse cell z are those of columns 2z and 2z + 1 */
                    for (int j = 0; j < PICTURE; j++)
                        within += j % PICTURE_COLS / 2 == z ? exp(s[j]) : 0;
                    for (int j = 0; j < PICTURE; j++)
                        for (int e = 0; e < d && j % PICTURE_COLS / 2 == z; e++)
                            y[i * wide + h * d + e] +=
                                (kind == FLAT ? all[j] : p[z] * exp(s[j]) / within) * v[j * wide + h * d + e];
                }
            }
        layer_map(layer_value(t, "o_proj.weight"), y, READERS, wide, w, out + (b * t->n + PICTURE) * w);
    }
}

DEFINE(coarse_sparsemax)
{
    two_levels(t, BY_SPARSEMAX, out);
}

DEFINE(coarse_softmax)
{
    two_levels(t, BY_SOFTMAX, out);
}

DEFINE(coarse_hard)
{
    two_levels(t, BY_LARGEST, out);
}

/* The flat softmax over all cells, written without levels. */
DEFINE(coarse_mass)
{
    two_levels(t, FLAT, out);
}

static void pictures_are_read_in_two_levels(void **state)
{
    (void)state;
#define COARSE_SPEC(kind) "layer=coarse_to_fine(kind=" kind ", cell=2, rows=2, cols=4)"
    layer_check(&(layer_case){.spec = COARSE_SPEC("sparsemax"), .define = coarse_sparsemax, .n = 10});
    layer_check(&(layer_case){.spec = COARSE_SPEC("softmax"), .define = coarse_softmax, .n = 10});
    layer_check(&(layer_case){.spec = COARSE_SPEC("hard"), .define = coarse_hard, .n = 10});
    layer_check(&(layer_case){.spec = COARSE_SPEC("mass"), .define = coarse_mass, .n = 10});
}

/* 3 by 4 pixels; the second layer reads the map of the first too. */
enum { PIXEL_ROWS = 3, PIXEL_COLS = 4, PIXELS = 12, POINTS = 4 };

/* Where points begin around a pixel: itself, then the corner above left and on from there. */
static const int around[POINTS][2] = {{0, 0}, {-1, -1}, {-1, 0}, {-1, 1}};

/* Straight-through gates: 0 or 1 by where they were when a definition was first asked, and their slope is
 * that of what they round. */
static double was[ROOM];
static int gates_asked;
static bool gates_known;

static double gate_through(double sure, double above)
{
    if (!gates_known)
        was[gates_asked] = sure;
    const double before = was[gates_asked++];
    return (before > above) + sure - before;
}

static void check_gated(const layer_case *c)
{
    gates_known = false;
    layer_check(c);
}

static void adaptive(const layer_text *t, const char *name, int maps, const double *const *F, bool search,
                     double *out)
{
    static double q[ROOM], k[2][ROOM], v[2][ROOM], offset[2][ROOM], gate[2][ROOM], y[ROOM];
    const int w = t->width, wide = t->heads * t->d, size[] = {1, PIXEL_ROWS, PIXEL_COLS};
    char full[60];
#define PART(part, bias, from, n, to)                                                                        \
    (snprintf(full, sizeof full, "%s" part, name), part_map(t, full, bias, from, PIXELS, w, n, to))
    PART("q_proj", false, F[0], wide, q);
    for (int j = 0; j < maps; j++) {
        PART("k_proj", false, F[j], wide, k[j]);
        PART("v_proj", false, F[j], wide, v[j]);
        snprintf(full, sizeof full, "%soffset_proj_%d", name, j);
        part_map(t, full, false, F[0], PIXELS, w, 2 * POINTS, offset[j]);
        snprintf(full, sizeof full, "%sgate_proj_%d", name, j);
        part_map(t, full, true, F[0], PIXELS, w, POINTS, gate[j]);
        for (int i = 0; i < PIXELS * POINTS; i++)
            gate[j][i] = gate_through(layer_sigmoid(gate[j][i] / 0.5 + 1), 0.5);
    }
    for (int p = 0; p < PIXELS * t->heads; p++) {
        const int pixel = p / t->heads, h = p % t->heads;
        double sum = 0, read[16] = {0};
        for (int j = 0; j < maps; j++)
            for (int m = 0; m < POINTS; m++) {
                double key[64], value[64], s = 0;
                const double *move = offset[j] + (pixel * POINTS + m) * 2;
                const double at[] = {0, pixel / PIXEL_COLS + around[m][0] + move[0],
                                     pixel % PIXEL_COLS + around[m][1] + move[1]};
                part_sample(k[j], size, wide, at, key);
                part_sample(v[j], size, wide, at, value);
                for (int e = 0; e < t->d; e++)
                    s += q[pixel * wide + h * t->d + e] * key[h * t->d + e] / sqrt(t->d);
                const double weight = gate[j][pixel * POINTS + m] * exp(s);
                sum += weight;
                for (int e = 0; e < t->d; e++)
                    read[e] += weight * value[h * t->d + e];
            }
        for (int e = 0; e < t->d; e++)
            y[pixel * wide + h * t->d + e] = fabs(sum) > 1e-8 ? read[e] / sum : 0;
    }
    PART("o_proj", false, y, w, out);
    if (search) {
        snprintf(full, sizeof full, "%sinsert", name);
        const double there = gate_through(layer_sigmoid(layer_value(t, full)[0] / 0.5), 0.5);
        for (int i = 0; i < PIXELS * w; i++)
            out[i] *= there;
    }
}

static void one_map(const layer_text *t, bool search, double *out)
{
    gates_asked = 0;
    for (int b = 0; b < LAYER_B; b++)
        adaptive(t, "", 1, (const double *[]){t->x + b * PIXELS * t->width}, search,
                 out + b * PIXELS * t->width);
    gates_known = true;
}

DEFINE(acla)
{
    one_map(t, false, out);
}

DEFINE(acla_searched)
{
    one_map(t, true, out);
}

/* x + the first layer's, and the second reads what both were given. */
DEFINE(acla_twice)
{
    static double first[ROOM];
    const int many = PIXELS * t->width;
    gates_asked = 0;
    for (int b = 0; b < LAYER_B; b++) {
        const double *x = t->x + b * many;
        adaptive(t, "a.", 1, &x, false, first);
        for (int i = 0; i < many; i++)
            first[i] += x[i];
        adaptive(t, "b.", 2, (const double *[]){first, x}, false, out + b * many);
    }
    gates_known = true;
}

/* Two layers by specs, with a residual sum between them; parameters under "a" and "b". */
static heed_variable two_layers(heed_graph *graph, heed_variable x, const char *first, const char *second)
{
    static heed_beside beside;
    beside = (heed_beside){.loss = HEED_NO_INPUT};
    const heed_transformer_nodes nodes = {
        .tokens = HEED_NO_INPUT, .segments = HEED_NO_INPUT, .places = HEED_NO_INPUT, .beside = &beside};
    heed_transformer model = {.batch = LAYER_B,
                              .context = heed_graph_size(graph, x, 1),
                              .width = heed_graph_size(graph, x, 2),
                              .layers = 3,
                              .heads = 2,
                              .kv_heads = 2,
                              .head_dim = heed_graph_size(graph, x, 2) / 2,
                              .spec = first,
                              .deviation = 0.4f};
    const heed_variable middle =
        heed_nn_add(graph, x, heed_layer_attention(graph, "layer.a", &model, 0, &nodes, x));
    model.spec = second;
    return heed_layer_attention(graph, "layer.b", &model, 1, &nodes, middle);
}

static heed_variable build_acla(heed_graph *graph, heed_variable x)
{
    const char *const spec = "layer=acla(keys=4, tau=0.5, rows=3, cols=4)";
    return two_layers(graph, x, spec, spec);
}

static void pixels_choose_their_keys(void **state)
{
    (void)state;
    check_gated(
        &(layer_case){.spec = "layer=acla(keys=4, tau=0.5, rows=3, cols=4)", .define = acla, .n = PIXELS});
    check_gated(&(layer_case){.spec = "layer=acla(keys=4, tau=0.5, search=yes, rows=3, cols=4)",
                              .define = acla_searched,
                              .n = PIXELS});
    check_gated(
        &(layer_case){.spec = "two layers of acla", .build = build_acla, .define = acla_twice, .n = PIXELS});
}

/* A graph of one layer over x [1][n][width] whose weights a test sets. */
typedef struct one_layer {
    heed_parameters *parameters;
    heed_graph *graph;
    heed_variable out;
} one_layer;

static float *weights(const one_layer *l, const char *name)
{
    heed_parameter *p = heed_parameters_find(l->parameters, name);
    if (!p)
        fail_msg("no parameter %s", name);
    return p->value;
}

static one_layer make_one(const char *spec, int n, int width, const float *x)
{
    one_layer l;
    const int64_t shape[] = {1, n, width};
    const heed_transformer model = {.batch = 1,
                                    .context = n,
                                    .width = width,
                                    .layers = 1,
                                    .heads = 2,
                                    .kv_heads = 2,
                                    .head_dim = width / 2,
                                    .spec = spec,
                                    .deviation = 0.4f};
    const heed_transformer_nodes nodes = {
        .tokens = HEED_NO_INPUT, .segments = HEED_NO_INPUT, .places = HEED_NO_INPUT};
    assert_int_equal(heed_parameters_create(&l.parameters, 3), HEED_OK);
    assert_int_equal(heed_graph_create(&l.graph, l.parameters, 1, HEED_ISA_AUTO), HEED_OK);
    l.out = heed_layer_attention(l.graph, "layer", &model, 0, &nodes, heed_nn_constant(l.graph, 3, shape, x));
    heed_graph_keep(l.graph, l.out);
    if (heed_graph_finish(l.graph, HEED_NO_INPUT))
        fail_msg("%s: %s", spec, heed_message());
    return l;
}

/* The output is dense attention of x by the layer's maps. */
static void equals_dense(one_layer *l, int n, int width, const float *x)
{
    static const char *const names[] = {"layer.q_proj.weight", "layer.k_proj.weight", "layer.v_proj.weight",
                                        "layer.o_proj.weight"};
    static double in[ROOM], map[ROOM], m[3][ROOM], y[ROOM], want[ROOM];
    assert_int_equal(heed_graph_forward(l->graph), HEED_OK);
    for (int i = 0; i < n * width; i++)
        in[i] = x[i];
    for (int p = 0; p < 4; p++) {
        const float *W = weights(l, names[p]);
        for (int i = 0; i < width * width; i++)
            map[i] = W[i];
        if (p == 3)
            part_attend(2, width / 2, m[0], n, m[1], m[2], n, NULL, NULL, y, NULL);
        layer_map(map, p < 3 ? in : y, n, width, width, p < 3 ? m[p] : want);
    }
    for (int i = 0; i < n * width; i++)
        if (fabs((double)((float *)heed_graph_data(l->graph, l->out))[i] - want[i]) > 1e-5)
            fail_msg("output %d is %g instead of %g", i,
                     (double)((float *)heed_graph_data(l->graph, l->out))[i], want[i]);
    heed_graph_free(l->graph);
    heed_parameters_free(l->parameters);
}

/* Offsets made of features row, column and 1 lead point m of every pixel to pixel m. */
static void points_on_every_pixel_are_dense_attention(void **state)
{
    (void)state;
    enum { ALL = 4, W = 8 };
    float x[ALL * W];
    for (int i = 0; i < ALL * W; i++)
        x[i] = i % W == 0   ? (float)(i / W / 2)
               : i % W == 1 ? (float)(i / W % 2)
               : i % W == 2 ? 1.0f
                            : sinf((float)(i * i));
    one_layer l = make_one("layer=acla(keys=4, rows=2, cols=2)", ALL, W, x);
    float *O = weights(&l, "layer.offset_proj_0.weight"), *G = weights(&l, "layer.gate_proj_0.weight");
    memset(O, 0, 2 * ALL * W * sizeof *O);
    memset(G, 0, ALL * W * sizeof *G);
    for (int m = 0; m < ALL; m++)
        for (int d = 0; d < 2; d++) {
            O[(2 * m + d) * W + d] = -1;
            O[(2 * m + d) * W + 2] = (float)((d ? m % 2 : m / 2) - around[m][d]);
        }
    equals_dense(&l, ALL, W, x);
    /* a clip of 2 frames with a point for each cell, none of which moves */
    one_layer still = make_one("layer=deformable(points=0, reach=0, frames=2, rows=1, cols=2)", ALL, W, x);
    equals_dense(&still, ALL, W, x);
    one_layer strides = make_one("layer=strides(stride=1, frames=2, rows=1, cols=2)", ALL, W, x);
    equals_dense(&strides, ALL, W, x);
}

/* Clips of 2 frames of 2 by 2 cells, then 3 joints a frame, and a token behind all. */
enum { FRAMES = 2, CELLS = 8, JOINTS = 3, CLIP = 15 };

static const int nearest[3][2] = {{0, 0}, {-1, 0}, {0, 1}};

DEFINE(deformable)
{
    static double with[ROOM], q[ROOM], k[ROOM], v[ROOM], offset[ROOM], y[ROOM], pose[ROOM], mapped[ROOM];
    enum { M = 5 };
    const int w = t->width, wide = t->heads * t->d, size[] = {FRAMES, 2, 2};
    const double *bias = layer_value(t, "point_bias");
    memset(out, 0, (size_t)(LAYER_B * t->n * w) * sizeof *out);
    for (int b = 0; b < LAYER_B; b++) {
        const double *x = t->x + b * t->n * w;
        memset(pose, 0, sizeof pose);
        for (int i = 0; i < FRAMES * JOINTS * w; i++)
            pose[i / w / JOINTS * w + i % w] += x[CELLS * w + i] / JOINTS;
        part_map(t, "joint_proj", false, pose, FRAMES, w, w, mapped);
        for (int i = 0; i < CELLS * w; i++)
            with[i] = x[i] + mapped[i / w / 4 * w + i % w];
        part_map(t, "q_proj", false, with, CELLS, w, wide, q);
        part_map(t, "k_proj", false, x, CELLS, w, wide, k);
        part_map(t, "v_proj", false, x, CELLS, w, wide, v);
        part_map(t, "offset_proj", false, x, CELLS, w, 3 * M, offset);
        for (int p = 0; p < CELLS * t->heads; p++) {
            const int cell = p / t->heads, h = p % t->heads;
            double key[M][16], value[M][16], s[M];
            for (int m = 0; m < M; m++) {
                const double *o = offset + (cell * M + m) * 3;
                const double at[] = {m % FRAMES + 1.5 * tanh(o[0]),
                                     cell / 2 % 2 + nearest[m / FRAMES][0] + 1.5 * tanh(o[1]),
                                     cell % 2 + nearest[m / FRAMES][1] + 1.5 * tanh(o[2])};
                part_sample(k, size, wide, at, key[m]);
                part_sample(v, size, wide, at, value[m]);
                s[m] = bias[h * M + m];
                for (int e = 0; e < t->d; e++)
                    s[m] += q[cell * wide + h * t->d + e] * key[m][h * t->d + e] / sqrt(t->d);
            }
            layer_softmax(s, M);
            for (int e = 0; e < t->d; e++) {
                y[cell * wide + h * t->d + e] = 0;
                for (int m = 0; m < M; m++)
                    y[cell * wide + h * t->d + e] += s[m] * value[m][h * t->d + e];
            }
        }
        part_map(t, "o_proj", false, y, CELLS, wide, w, out + b * t->n * w);
    }
}

/* Joints 0 and 2 see each other with stride 2; all see the mean of their frame's cells, behind the joints. */
static bool sees_joint(const void *how, int i, int j)
{
    (void)how;
    static const char *const seen[] = {"10100010", "01000010", "10100010",
                                       "00010101", "00001001", "00010101"};
    return seen[i][j] == '1';
}

DEFINE(joints)
{
    static double keys[ROOM], q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    enum { POSES = FRAMES * JOINTS };
    const int w = t->width, wide = t->heads * t->d;
    memset(out, 0, (size_t)(LAYER_B * t->n * w) * sizeof *out);
    for (int b = 0; b < LAYER_B; b++) {
        const double *x = t->x + b * t->n * w;
        memset(keys, 0, sizeof keys);
        memcpy(keys, x + CELLS * w, (size_t)(POSES * w) * sizeof *keys);
        for (int i = 0; i < CELLS * w; i++)
            keys[(POSES + i / w / 4) * w + i % w] += x[i] / 4;
        part_map(t, "q_proj", false, x + CELLS * w, POSES, w, wide, q);
        part_map(t, "k_proj", false, keys, POSES + FRAMES, w, wide, k);
        part_map(t, "v_proj", false, keys, POSES + FRAMES, w, wide, v);
        part_attend(t->heads, t->d, q, POSES, k, v, POSES + FRAMES, sees_joint, NULL, y, NULL);
        part_map(t, "o_proj", false, y, POSES, wide, w, out + (b * t->n + CELLS) * w);
    }
}

/* 4 frames of 2 cells and a joint: frames 0 and 2, and 1 and 3, see each other. */
static bool sees_frame(const void *how, int i, int j)
{
    (void)how;
    const int a = i < 8 ? i / 2 : i - 8, b = j < 8 ? j / 2 : j - 8;
    return a % 2 == b % 2;
}

DEFINE(temporal)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    const int w = t->width, wide = t->heads * t->d, all = 12;
    memset(out, 0, (size_t)(LAYER_B * t->n * w) * sizeof *out);
    for (int b = 0; b < LAYER_B; b++) {
        const double *x = t->x + b * t->n * w;
        part_map(t, "q_proj", false, x, all, w, wide, q);
        part_map(t, "k_proj", false, x, all, w, wide, k);
        part_map(t, "v_proj", false, x, all, w, wide, v);
        part_attend(t->heads, t->d, q, all, k, v, all, sees_frame, NULL, y, NULL);
        part_map(t, "o_proj", false, y, all, wide, w, out + b * t->n * w);
    }
}

static void clips_are_read_at_points_and_strides(void **state)
{
    (void)state;
    layer_check(
        &(layer_case){.spec = "layer=deformable(points=5, reach=1.5, frames=2, rows=2, cols=2, joints=3)",
                      .define = deformable,
                      .n = CLIP});
    layer_check(&(layer_case){
        .spec = "layer=strides(kind=joint, stride=2, group=2, frames=2, rows=2, cols=2, joints=3)",
        .define = joints,
        .n = CLIP});
    layer_check(
        &(layer_case){.spec = "layer=strides(kind=temporal, stride=2, frames=4, rows=1, cols=2, joints=1)",
                      .define = temporal,
                      .n = 13});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_read_in_two_levels),
        cmocka_unit_test(pixels_choose_their_keys),
        cmocka_unit_test(points_on_every_pixel_are_dense_attention),
        cmocka_unit_test(clips_are_read_at_points_and_strides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
