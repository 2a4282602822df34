/* Layers that work on rows of activations: norms and activations. Built once for each instruction set.
 *
 * A row's result has the same bits whatever rows stand beside it.
 */
#ifndef HEED_NN_ROWS_H
#define HEED_NN_ROWS_H

#include <heed/attend.h>

typedef enum heed_norm_kind { HEED_NORM_RMS, HEED_NORM_LAYER } heed_norm_kind;

typedef enum heed_activation {
    HEED_SILU,      /* x / (1 + e^-x) */
    HEED_GELU,      /* x (1 + erf(x / sqrt 2)) / 2 */
    HEED_GELU_TANH, /* x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 */
    HEED_RELU,
} heed_activation;

/* A norm over rows of `n` entries: (x - mean) / sqrt(variance + eps) weight + bias, or without mean and bias
 * x / sqrt(mean of squares + eps) weight. */
typedef struct heed_norm {
    heed_norm_kind kind;
    float eps;
    int64_t n;
    const float *weight; /* [n] */
    const float *bias;   /* [n] or NULL */
} heed_norm;

typedef struct heed_rows_table {
    /* One row; `out` may be `x`. */
    void (*norm)(const heed_norm *norm, const float *x, float *out);
    /* out = f(x), n entries; with `times` out = f(x) times. `out` may be `x`. */
    void (*activate)(heed_activation activation, const float *x, const float *times, float *out, int64_t n);
    /* x += y */
    void (*add)(float *x, const float *y, int64_t n);
    void (*scale)(float *x, float factor, int64_t n);
    /* x = cap tanh(x / cap) */
    void (*cap)(float *x, float cap, int64_t n);
    /* floats to f16, to nearest even */
    void (*to_f16)(const float *x, uint16_t *to, int64_t n);
} heed_rows_table;

/* The build for an instruction set that heed_isa_resolve gave. */
const heed_rows_table *heed_rows_of(heed_isa isa);

#endif
