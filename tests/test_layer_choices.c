/* Layers that choose what they read of pictures, clips and trees, against their formulas, with the gradient
 * of every parameter. */
#include "support/layer_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 4096 };
#define DEFINE(name) static void name(const layer_text *t, double *out)

/* y = a size by size convolution of x [rows][cols][width], `pad` zeros around. */
static void convolve(const layer_text *t, const char *name, const double *x, int rows, int cols, int size,
                     int stride, int pad, double *y)
{
    const double *W = layer_value(t, name);
    const int w = t->width, tall = (rows + 2 * pad - size) / stride + 1,
              wide = (cols + 2 * pad - size) / stride + 1;
    for (int r = 0; r < tall; r++)
        for (int c = 0; c < wide; c++)
            for (int o = 0; o < w; o++) {
                double sum = 0;
                for (int a = 0; a < size; a++)
                    for (int b = 0; b < size; b++) {
                        const int i = r * stride + a - pad, j = c * stride + b - pad;
                        for (int e = 0; e < w && i >= 0 && j >= 0 && i < rows && j < cols; e++)
                            sum += W[((o * size + a) * size + b) * w + e] * x[(i * cols + j) * w + e];
                    }
                y[(r * wide + c) * w + o] = sum;
            }
}

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
        convolve(t, "conv1", x, PICTURE_ROWS, PICTURE_COLS, 3, 1, 1, inner);
        for (int i = 0; i < PICTURE * w; i++)
            inner[i] = fmax(0, inner[i]);
        convolve(t, "conv2", inner, PICTURE_ROWS, PICTURE_COLS, 3, 1, 1, more);
        for (int i = 0; i < PICTURE * w; i++)
            V[i] = x[i] + more[i];
        layer_map(layer_value(t, "q_proj.weight"), readers, READERS, w, wide, q);
        layer_map(layer_value(t, "k_proj.weight"), V, PICTURE, w, wide, k);
        layer_map(layer_value(t, "v_proj.weight"), V, PICTURE, w, wide, v);
        convolve(t, "coarse_conv", V, PICTURE_ROWS, PICTURE_COLS, 2, 2, 0, few);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_read_in_two_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
