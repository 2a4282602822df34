/* Loops of the operations over consecutive numbers. Built once for each instruction set. */
#ifndef HEED_NN_KERNELS_H
#define HEED_NN_KERNELS_H

#include <heed/nn.h>

/* Sums of one row that its backward run needs. */
typedef struct heed_row_moments {
    float mean, scale; /* 1 / sqrt(variance or mean of squares + eps) */
} heed_row_moments;

/* Rows of a norm. weight and bias may be NULL. */
typedef struct heed_norm_rows {
    int64_t cols;
    float eps;
    bool centred; /* layer norm */
    const float *weight, *bias;
} heed_norm_rows;

/* What a step of an optimiser does to consecutive entries. */
typedef struct heed_step_size {
    float rate, decay; /* decay: times the rate already */
    float beta1, beta2, eps;
    float correction1, correction2; /* 1 / (1 - beta^t), 1 / sqrt(1 - beta2^t) */
    float scale;                    /* of the gradient: clipping */
} heed_step_size;

struct heed_gemm;
/* A product of numbers rounded to bf16, whatever its `bf16` says; of one thread. */
typedef void (*heed_nn_product16)(const struct heed_gemm *gemm);

enum { HEED_PRODUCT_ROWS = 8 }; /* of a tile of the plain product */

typedef struct heed_nn_kernels {
    /* y = f(x) */
    void (*apply)(heed_function f, const float *x, float *y, int64_t n);
    /* dx (+)= f'(x) dy */
    void (*apply_back)(heed_function f, const float *x, const float *dy, float *dx, bool add, int64_t n);
    /* y = f(gate) x */
    void (*gate)(heed_function f, const float *gate, const float *x, float *y, int64_t n);
    void (*gate_back)(heed_function f, const float *gate, const float *x, const float *dy, float *dgate,
                      bool add_gate, float *dx, bool add_x, int64_t n);
    void (*add)(const float *a, const float *b, float *y, int64_t n);
    void (*subtract)(const float *a, const float *b, float *y, int64_t n);
    void (*multiply)(const float *a, const float *b, float *y, int64_t n);
    void (*divide)(const float *a, const float *b, float *y, int64_t n);
    /* y (+)= factor x + shift */
    void (*scale)(const float *x, float factor, float shift, float *y, bool add, int64_t n);
    /* y (+)= a b */
    void (*multiply_to)(const float *a, const float *b, float *y, bool add, int64_t n);
    /* y (+)= a / b; y (+)= -a c / b^2 */
    void (*divide_to)(const float *a, const float *b, float *y, bool add, int64_t n);
    void (*divide_back)(const float *a, const float *b, const float *c, float *y, bool add, int64_t n);
    float (*sum)(const float *x, int64_t n);
    float (*dot)(const float *a, const float *b, int64_t n);
    void (*norm)(const heed_norm_rows *how, const float *x, float *y, heed_row_moments *moments);
    /* dx (+)=, dweight += and dbias += unless NULL */
    void (*norm_back)(const heed_norm_rows *how, const float *x, const float *dy,
                      const heed_row_moments *moments, float *dx, bool add, float *dweight, float *dbias);
    /* y = softmax(x); returns the log of the sum of exponentials. y may be NULL. */
    float (*softmax)(const float *x, float *y, int64_t n);
    /* dx (+)= y (dy - dy.y) */
    void (*softmax_back)(const float *y, const float *dy, float *dx, bool add, int64_t n);
    /* dx (+)= scale (exp(x - lse) - share); dx may be x */
    void (*cross_back)(const float *x, float lse, float share, float scale, float *dx, bool add, int64_t n);
    /* y (+)= x times 0 or `keep`, by random numbers `from`... of a stream; from is a multiple of 4 */
    void (*dropout)(uint64_t seed, uint64_t stream, int64_t from, uint32_t below, float keep, const float *x,
                    float *y, bool add, int64_t n);
    /* Optimisers: w, its state, its gradient */
    void (*adamw)(const heed_step_size *size, float *w, float *m, float *v, const float *g, int64_t n);
    void (*lion)(const heed_step_size *size, float *w, float *m, const float *g, int64_t n);
    void (*momentum)(const heed_step_size *size, bool nesterov, float *w, float *m, const float *g,
                     int64_t n);
    /* sum of squares in double */
    double (*squares)(const float *x, int64_t n);
    /* c [rows][ldc] (+)= a [rows, k] b [k, cols]: at most HEED_PRODUCT_ROWS rows; entry (i, l) of a at i
     * a_row + l a_col, of b at l b_row + j, b in rows of consecutive numbers */
    void (*product)(int rows, int64_t cols, int64_t k, const float *a, int64_t a_row, int64_t a_col,
                    const float *b, int64_t b_row, float *c, int64_t ldc, bool add);
    /* points to NULL where the instruction set has none; the processor must be asked too */
    const heed_nn_product16 *product16;
} heed_nn_kernels;

const heed_nn_kernels *heed_nn_kernels_of(heed_isa isa);

#endif
