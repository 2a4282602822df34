/* A few slots that fade and take in keys and values side by side, read by softmax over the slots.
 *
 *     S_t[r] = keep_t[r] S_{t-1}[r] + key_t[r] [k_t, v_t],     p = softmax over r of S_t[r][:D]·q_t
 *     out_t = sum_r p_r S_t[r][D:]
 */
#include "attend/kernels/isa.h"
#include "attend/kernels/vector.h"
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

/* Scores of four slots: whole vectors side by side, then what is left. */
static void score_four(const float *state, int64_t width, const float *query, int64_t dim, float *score)
{
    const int64_t whole = dim / HEED_WIDTH * HEED_WIDTH;
    heed_vec sum[4] = {{0}};
    for (int64_t i = 0; i < whole; i += HEED_WIDTH)
        for (int n = 0; n < 4; n++)
            sum[n] += heed_vec_load(state + n * width + i) * heed_vec_load(query + i);
    heed_vec_collect(heed_vec_fold(heed_vec_add, sum), score);
    for (int n = 0; n < 4; n++)
        for (int64_t i = whole; i < dim; i++)
            score[n] += state[n * width + i] * query[i];
}

/* Weights of the slots for one query. */
static void weigh(const heed_slots_run *run, const float *state, const float *query, float *weight)
{
    const int64_t width = run->dim + run->value_dim;
    float most = -INFINITY, sum = 0;
    int r = 0;
    for (; r + 4 <= run->slots; r += 4)
        score_four(state + r * width, width, query, run->dim, weight + r);
    for (; r < run->slots; r++)
        weight[r] = heed_row_product(state + r * width, query, run->dim);
    for (r = 0; r < run->slots; r++)
        most = weight[r] > most ? weight[r] : most;
#pragma omp simd reduction(+ : sum)
    for (r = 0; r < run->slots; r++) {
        weight[r] = heed_exp(weight[r] - most);
        sum += weight[r];
    }
    for (r = 0; r < run->slots; r++)
        weight[r] /= sum;
}

#define READ 4 /* vectors of values that are read together */

/* out = sum_r weight[r] values of slot r */
static void read_values(const heed_slots_run *run, const float *state, const float *weight, float *out)
{
    const int64_t width = run->dim + run->value_dim;
    const float *values = state + run->dim;
    int64_t e = 0;
    for (; e + READ * HEED_WIDTH <= run->value_dim; e += READ * HEED_WIDTH) {
        heed_vec sum[READ] = {{0}};
        for (int r = 0; r < run->slots; r++)
            for (int n = 0; n < READ; n++)
                sum[n] += weight[r] * heed_vec_load(values + r * width + e + n * HEED_WIDTH);
        for (int n = 0; n < READ; n++)
            heed_vec_store(out + e + n * HEED_WIDTH, sum[n]);
    }
    for (int64_t i = e; i < run->value_dim; i++)
        out[i] = 0;
    for (int r = 0; r < run->slots && e < run->value_dim; r++)
        heed_row_add(out + e, weight[r], values + r * width + e, run->value_dim - e);
}

static void forward(const heed_slots_run *run)
{
    for (int t = 0; t < run->count; t++) {
        update(run, t, run->state, run->state);
        for (int h = 0; h < run->queries; h++) {
            const int64_t row = h * run->apart + t;
            weigh(run, run->state, run->query + row * run->dim, run->weight);
            read_values(run, run->state, run->weight, run->out + row * run->value_dim);
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
