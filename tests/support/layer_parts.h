/* Pieces of layers in double precision, for definitions in tests. */
#ifndef HEED_TEST_LAYER_PARTS_H
#define HEED_TEST_LAYER_PARTS_H

#include "support/layer_check.h"

/* Rows x [rows][in] by the map NAME.weight, and NAME.bias where `bias`: y [rows][out]. */
void part_map(const layer_text *t, const char *name, bool bias, const double *x, int rows, int in, int out,
              double *y);
/* Softmax attention of q [n][heads d] over k, v [m][heads d] where sees(i, j), or all if NULL; weights
 * [heads][n][m] unless NULL. */
void part_attend(int heads, int d, const double *q, int n, const double *k, const double *v, int m,
                 bool (*sees)(const void *how, int i, int j), const void *how, double *y, double *weights);
/* y = a size by size convolution of x [rows][cols][width], `pad` zeros around. */
void part_convolve(const layer_text *t, const char *name, const double *x, int rows, int cols, int size,
                   int stride, int pad, double *y);
/* Layer norm of rows by NAME.weight and NAME.bias; RMS norm without centring. */
void part_norm(const layer_text *t, const char *name, bool centred, const double *x, int rows, double *y);
/* x [rows][cols][c] at a place, linear between cells, as at the edge beyond it; `frames` of them. */
void part_sample(const double *x, const int size[3], int c, const double at[3], double *y);

#endif
