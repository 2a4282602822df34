/* A few slots that fade and take in keys and values side by side, read by softmax over the slots.
 *
 *     S_t[r] = keep_t[r] S_{t-1}[r] + key_t[r] [k_t, v_t],     p = softmax over r of S_t[r][:D]·q_t
 *     out_t = sum_r p_r S_t[r][D:]
 */
#include "attend/kernels/isa.h"
#include "base/vectors.h"
#include "scan/scan.h"

#include <heed/maths.h>

static void update(const heed_slots_run *run, int t, const float *state, float *next)
{
    const int64_t width = run->dim + run->value_dim;
    const float *row = run->rows + t * width;
    for (int r = 0; r < run->slots; r++, state += width, next += width) {
        const float keep = run->keep[(int64_t)t * run->slots + r],
                    key = run->key[(int64_t)t * run->slots + r];
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            next[i] = keep * state[i] + key * row[i];
    }
}

/* Weights of the slots for one query. */
static void weigh(const heed_slots_run *run, const float *state, const float *query, float *weight)
{
    const int64_t width = run->dim + run->value_dim;
    float most = -INFINITY, sum = 0;
    for (int r = 0; r < run->slots; r++) {
        weight[r] = heed_row_product(state + r * width, query, run->dim);
        most = weight[r] > most ? weight[r] : most;
    }
    for (int r = 0; r < run->slots; r++)
        sum += weight[r] = heed_exp(weight[r] - most);
    for (int r = 0; r < run->slots; r++)
        weight[r] /= sum;
}

static void forward(const heed_slots_run *run)
{
    const int64_t width = run->dim + run->value_dim;
    for (int t = 0; t < run->count; t++) {
        update(run, t, run->state, run->state);
        for (int h = 0; h < run->queries; h++) {
            const int64_t row = h * run->apart + t;
            float *out = run->out + row * run->value_dim;
            weigh(run, run->state, run->query + row * run->dim, run->weight);
            for (int64_t e = 0; e < run->value_dim; e++)
                out[e] = 0;
            for (int r = 0; r < run->slots; r++)
                heed_row_add(out, run->weight[r], run->state + r * width + run->dim, run->value_dim);
        }
    }
}

static void states(const heed_slots_run *run, float *to)
{
    const int64_t size = run->slots * (run->dim + run->value_dim);
    for (int t = 0; t < run->count; t++, to += size)
        update(run, t, to, to + size);
}

static void back_query(const heed_slots_back *back, int64_t row, const float *state)
{
    const heed_slots_run *run = back->run;
    const int64_t width = run->dim + run->value_dim;
    const float *query = run->query + row * run->dim, *dout = back->dout + row * run->value_dim;
    float *dweight = run->weight + run->slots, mean = 0;
    weigh(run, state, query, run->weight);
    for (int r = 0; r < run->slots; r++) {
        dweight[r] = heed_row_product(state + r * width + run->dim, dout, run->value_dim);
        mean += run->weight[r] * dweight[r];
    }
    for (int r = 0; r < run->slots; r++) {
        const float dscore = run->weight[r] * (dweight[r] - mean);
        heed_row_add(back->dquery + row * run->dim, dscore, state + r * width, run->dim);
        heed_row_add(back->dstate + r * width, dscore, query, run->dim);
        heed_row_add(back->dstate + r * width + run->dim, run->weight[r], dout, run->value_dim);
    }
}

static void backward(const heed_slots_back *back)
{
    const heed_slots_run *run = back->run;
    const int64_t width = run->dim + run->value_dim, size = run->slots * width;
    for (int t = run->count - 1; t >= 0; t--) {
        const float *before = back->states + t * size, *row = run->rows + t * width;
        for (int h = 0; h < run->queries; h++)
            back_query(back, h * run->apart + t, before + size);
        for (int r = 0; r < run->slots; r++) {
            const int64_t at = (int64_t)t * run->slots + r;
            float *d = back->dstate + r * width;
            back->dkey[at] += heed_row_product(d, row, width);
            back->dkeep[at] += heed_row_product(d, before + r * width, width);
            heed_row_add(back->drows + t * width, run->key[at], d, width);
            for (int64_t i = 0; i < width; i++)
                d[i] *= run->keep[at];
        }
    }
}

#define heed_slots_kernels_here HEED_LOCAL(heed_slots_kernels)
const heed_slots_kernels heed_slots_kernels_here = {forward, states, backward};
