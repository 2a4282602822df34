#include "support/layer_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void part_map(const layer_text *t, const char *name, bool bias, const double *x, int rows, int in, int out,
              double *y)
{
    char full[120];
    snprintf(full, sizeof full, "%s.weight", name);
    layer_map(layer_value(t, full), x, rows, in, out, y);
    snprintf(full, sizeof full, "%s.bias", name);
    const double *b = bias ? layer_value(t, full) : NULL;
    for (int i = 0; i < rows * out && bias; i++)
        y[i] += b[i % out];
}

void part_attend(int heads, int d, const double *q, int n, const double *k, const double *v, int m,
                 bool (*sees)(const void *how, int i, int j), const void *how, double *y, double *weights)
{
    const int wide = heads * d;
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < n; i++) {
            double w[256], sum = 0;
            for (int j = 0; j < m; j++) {
                double s = 0;
                for (int e = 0; e < d; e++)
                    s += q[i * wide + h * d + e] * k[j * wide + h * d + e] / sqrt(d);
                sum += w[j] = !sees || sees(how, i, j) ? exp(s) : 0;
            }
            for (int e = 0; e < d; e++) {
                double *to = &y[i * wide + h * d + e];
                *to = 0;
                for (int j = 0; j < m && sum > 0; j++)
                    *to += w[j] / sum * v[j * wide + h * d + e];
            }
            for (int j = 0; j < m && weights; j++)
                weights[(h * n + i) * m + j] = w[j] / sum;
        }
}

void part_convolve(const layer_text *t, const char *name, const double *x, int rows, int cols, int size,
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

void part_norm(const layer_text *t, const char *name, bool centred, const double *x, int rows, double *y)
{
    char full[120];
    snprintf(full, sizeof full, "%s.weight", name);
    const double *weight = layer_value(t, full), *bias = NULL;
    snprintf(full, sizeof full, "%s.bias", name);
    if (centred)
        bias = layer_value(t, full);
    for (int r = 0; r < rows; r++) {
        const double *from = x + r * t->width;
        double mean = 0, squares = 0;
        for (int e = 0; e < t->width && centred; e++)
            mean += from[e] / t->width;
        for (int e = 0; e < t->width; e++)
            squares += (from[e] - mean) * (from[e] - mean) / t->width;
        for (int e = 0; e < t->width; e++)
            y[r * t->width + e] = (from[e] - mean) / sqrt(squares + 1e-5) * weight[e] + (bias ? bias[e] : 0);
    }
}

void part_sample(const double *x, const int size[3], int c, const double at[3], double *y)
{
    memset(y, 0, (size_t)c * sizeof *y);
    for (int cell = 0; cell < size[0] * size[1] * size[2]; cell++) {
        const int in[] = {cell / (size[1] * size[2]), cell / size[2] % size[1], cell % size[2]};
        double weight = 1;
        for (int d = 0; d < 3; d++)
            weight *= fmax(0, 1 - fabs(fmin(fmax(at[d], 0), size[d] - 1) - in[d]));
        for (int e = 0; e < c; e++)
            y[e] += weight * x[cell * c + e];
    }
}
