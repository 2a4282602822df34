/* The loops behind heed_nn_kernels, named for the instruction set they are built for. */
#ifndef HEED_NN_KERNELS_PARTS_H
#define HEED_NN_KERNELS_PARTS_H

#include "nn/kernels.h"

#include <heed/form.h>

#define heed_nn_apply_loop HEED_JOIN(heed_nn_apply_loop, HEED_ISA)
#define heed_nn_apply_back_loop HEED_JOIN(heed_nn_apply_back_loop, HEED_ISA)
#define heed_nn_gate_loop HEED_JOIN(heed_nn_gate_loop, HEED_ISA)
#define heed_nn_gate_back_loop HEED_JOIN(heed_nn_gate_back_loop, HEED_ISA)
#define heed_nn_norm_loop HEED_JOIN(heed_nn_norm_loop, HEED_ISA)
#define heed_nn_norm_back_loop HEED_JOIN(heed_nn_norm_back_loop, HEED_ISA)
#define heed_nn_softmax_loop HEED_JOIN(heed_nn_softmax_loop, HEED_ISA)
#define heed_nn_softmax_back_loop HEED_JOIN(heed_nn_softmax_back_loop, HEED_ISA)
#define heed_nn_cross_back_loop HEED_JOIN(heed_nn_cross_back_loop, HEED_ISA)
#define heed_nn_dropout_loop HEED_JOIN(heed_nn_dropout_loop, HEED_ISA)
#define heed_nn_adamw_loop HEED_JOIN(heed_nn_adamw_loop, HEED_ISA)
#define heed_nn_lion_loop HEED_JOIN(heed_nn_lion_loop, HEED_ISA)
#define heed_nn_momentum_loop HEED_JOIN(heed_nn_momentum_loop, HEED_ISA)
#define heed_nn_squares_loop HEED_JOIN(heed_nn_squares_loop, HEED_ISA)
#define heed_nn_product_loop HEED_JOIN(heed_nn_product_loop, HEED_ISA)
#define heed_nn_product16_loop HEED_JOIN(heed_nn_product16_loop, HEED_ISA)
#define heed_nn_kernels_here HEED_JOIN(heed_nn_kernels, HEED_ISA)

void heed_nn_apply_loop(heed_function f, const float *x, float *y, int64_t n);
void heed_nn_apply_back_loop(heed_function f, const float *x, const float *dy, float *dx, bool add,
                             int64_t n);
void heed_nn_gate_loop(heed_function f, const float *gate, const float *x, float *y, int64_t n);
void heed_nn_gate_back_loop(heed_function f, const float *gate, const float *x, const float *dy, float *dgate,
                            bool add_gate, float *dx, bool add_x, int64_t n);
void heed_nn_norm_loop(const heed_norm_rows *how, const float *x, float *y, heed_row_moments *moments);
void heed_nn_norm_back_loop(const heed_norm_rows *how, const float *x, const float *dy,
                            const heed_row_moments *moments, float *dx, bool add, float *dweight,
                            float *dbias);
float heed_nn_softmax_loop(const float *x, float *y, int64_t n);
void heed_nn_softmax_back_loop(const float *y, const float *dy, float *dx, bool add, int64_t n);
void heed_nn_cross_back_loop(const float *x, float lse, float share, float scale, float *dx, bool add,
                             int64_t n);
void heed_nn_dropout_loop(uint64_t seed, uint64_t stream, int64_t from, uint32_t below, float keep,
                          const float *x, float *y, bool add, int64_t n);
void heed_nn_adamw_loop(const heed_step_size *size, float *w, float *m, float *v, const float *g, int64_t n);
void heed_nn_lion_loop(const heed_step_size *size, float *w, float *m, const float *g, int64_t n);
void heed_nn_momentum_loop(const heed_step_size *size, bool nesterov, float *w, float *m, const float *g,
                           int64_t n);
double heed_nn_squares_loop(const float *x, int64_t n);
void heed_nn_product_loop(int rows, int64_t cols, int64_t k, const float *a, int64_t a_row, int64_t a_col,
                          const float *b, int64_t b_row, float *c, int64_t ldc, bool add);
extern const heed_nn_product16 heed_nn_product16_loop;

#endif
