/* The gate of SeerAttention and how it learns: pooled queries and keys, tiles of the attention that it is to
 * foresee, and one step of Adam. All in double, of one query head. */
#ifndef HEED_ATTEND_SELECT_SEER_H
#define HEED_ATTEND_SELECT_SEER_H

#include "attend/form.h"
#include <string.h>

/* Largest, least and mean entry of the keys of a block: [3][dim]. */
static inline void heed_seer_pool_keys(const float *key, int64_t count, int dim, double *pooled)
{
    for (int c = 0; c < dim; c++) {
        double most = -INFINITY, least = INFINITY, sum = 0;
        for (int64_t j = 0; j < count; j++) {
            const double x = (double)key[j * dim + c];
            most = x > most ? x : most;
            least = x < least ? x : least;
            sum += x;
        }
        pooled[c] = most;
        pooled[dim + c] = least;
        pooled[2 * dim + c] = sum / (double)count;
    }
}

/* Largest weight of each tile of one query's row: tile[b] over the keys of block b, of those before block
 * `blocks`. score[j] of keys 0 .. own; work of as many floats is not needed, as sums are rescaled as they
 * grow. */
static inline void heed_seer_tiles(const float *score, int64_t own, int64_t block, int64_t blocks,
                                   double *tile)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= own; j++) {
        const double x = (double)score[j];
        if (x > most) {
            sum *= exp(most - x);
            most = x;
        }
        sum += exp(x - most);
    }
    for (int64_t b = 0; b < blocks; b++) {
        double best = -INFINITY;
        for (int64_t j = b * block; j < (b + 1) * block; j++)
            best = (double)score[j] > best ? (double)score[j] : best;
        const double weight = exp(best - most) / sum;
        tile[b] = weight > tile[b] ? weight : tile[b];
    }
}

/* y [rows] = W [rows][cols] x */
static inline void heed_seer_map(const double *W, const double *x, int rows, int cols, double *y)
{
    for (int r = 0; r < rows; r++) {
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int c = 0; c < cols; c++)
            sum += W[(int64_t)r * cols + c] * x[c];
        y[r] = sum;
    }
}

/* The blocks of a text: pooled queries [blocks][dim], pooled keys [blocks][3 dim], and what the gate of query
 * block i is to be for the blocks before it, target [blocks][blocks], each row of sum 1. */
typedef struct heed_seer_text {
    int dim;
    int64_t blocks;
    const double *query, *key, *target;
} heed_seer_text;

/* Mean over query blocks 2.. of KL(target || G), G = softmax_b((Wq q_i)·(Wk k_b)) over b < i. W is Wq [dim]
 * [dim], then Wk [dim][3 dim]; its gradient is added to dW. work [blocks (4 dim + 1)]. */
static inline double heed_seer_loss(const heed_seer_text *t, const double *W, double *dW, double *work)
{
    const int d = t->dim;
    const double *Wq = W, *Wk = W + (int64_t)d * d;
    double *mapped = work, *back = mapped + t->blocks * d, *q = back + t->blocks * d, *dq = q + d,
           *gate = dq + d, loss = 0;
    const double share = t->blocks > 2 ? 1 / (double)(t->blocks - 2) : 0;
    for (int64_t b = 0; b < t->blocks; b++)
        heed_seer_map(Wk, t->key + b * 3 * d, d, 3 * d, mapped + b * d);
    memset(back, 0, (size_t)t->blocks * (size_t)d * sizeof *back);
    for (int64_t i = 2; i < t->blocks; i++) {
        const double *target = t->target + i * t->blocks, *x = t->query + i * d;
        double most = -INFINITY, sum = 0;
        heed_seer_map(Wq, x, d, d, q);
        for (int64_t b = 0; b < i; b++) {
            heed_seer_map(mapped + b * d, q, 1, d, &gate[b]);
            most = gate[b] > most ? gate[b] : most;
        }
        for (int64_t b = 0; b < i; b++)
            sum += gate[b] = exp(gate[b] - most);
        memset(dq, 0, (size_t)d * sizeof *dq);
        for (int64_t b = 0; b < i; b++) {
            const double g = gate[b] / sum, dz = share * (g - target[b]);
            loss += target[b] > 0 ? share * target[b] * log(target[b] / fmax(g, 1e-300)) : 0;
            for (int r = 0; r < d; r++) {
                dq[r] += dz * mapped[b * d + r];
                back[b * d + r] += dz * q[r];
            }
        }
        for (int r = 0; r < d; r++)
#pragma omp simd
            for (int c = 0; c < d; c++)
                dW[(int64_t)r * d + c] += dq[r] * x[c];
    }
    for (int64_t b = 0; b < t->blocks; b++)
        for (int r = 0; r < d; r++)
#pragma omp simd
            for (int c = 0; c < 3 * d; c++)
                dW[((int64_t)d + 3 * r) * d + c] += back[b * d + r] * t->key[b * 3 * d + c];
    return loss;
}

/* A step of Adam: W [n] with the means m and v of its gradient. */
static inline void heed_seer_step(double *W, double *m, double *v, const double *dW, int64_t n, double rate,
                                  double step)
{
    const double b1 = 0.9, b2 = 0.99, one = 1 - pow(b1, step), two = 1 - pow(b2, step);
    for (int64_t i = 0; i < n; i++) {
        m[i] = b1 * m[i] + (1 - b1) * dW[i];
        v[i] = b2 * v[i] + (1 - b2) * dW[i] * dW[i];
        W[i] -= rate * (m[i] / one) / (sqrt(v[i] / two) + 1e-8);
    }
}

#endif
