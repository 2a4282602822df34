/* How well weights of attention tell the tokens that they choose from the others (row 004.115), without
 * training.
 *
 * Of n weights a and vectors x the N largest weights choose I; s = sum over I of a_i x_i. Mudarisov, Burtsev,
 * Petrova, State: Limitations of Normalization in Attention Mechanism, 2025.
 */
#ifndef HEED_EVAL_SELECTION_H
#define HEED_EVAL_SELECTION_H

#include <heed/base.h>

typedef struct heed_selection {
    double distance;     /* sum over tokens not in I of |s - a_i x_i| */
    double lower, upper; /* what the lengths alone allow: sums of ||s| - |a_i x_i|| and of |s| + |a_i x_i| */
    double separable;    /* share of I whose a_i x_i lies nearer to s than any token not in I does */
    double held;         /* sum of a over I */
} heed_selection;

/* token [n, width]. HEED_INVALID where `top` is not from 1 to n. */
heed_status heed_selection_measure(const float *weight, const float *token, int64_t n, int64_t width,
                                   int64_t top, heed_selection *result);

typedef struct heed_weights_spread {
    double most;     /* the largest weight */
    double entropy;  /* nats; ln n where all are equal */
    double steepest; /* |J|_2 of softmax at a temperature, J = (diag(a) - a a^T) / T; 1 / (2 T) at most */
} heed_weights_spread;

heed_weights_spread heed_weights_spread_of(const float *weight, int64_t n, double temperature);

/* Weights of softmax at another temperature than theirs: a^(1/T) over their sum. */
void heed_weights_temper(float *weight, int64_t n, double temperature);

#endif
