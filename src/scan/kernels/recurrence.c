/* The recurrence of heed/scan.h on a few columns of the state, which stay in the first cache while all tokens
 * pass by.
 *
 * Products of whole chunks of tokens, as accelerators make them, need 2 to 4 times the multiplications and
 * win nothing where a state is at hand: this loop reads and writes each entry once in four tokens (once a
 * token with a delta), a vector at a time.
 */
#include "attend/kernels/vector.h"
#include "scan/scan.h"

#include <string.h>

#define VECTORS (HEED_SCAN_COLUMNS / HEED_WIDTH)
/* Tokens that pass over the state together, as many as the registers have room for. */
#define TOGETHER (HEED_REGISTERS / VECTORS >= 16 ? 4 : 1)
#define ALL for (int i = 0; i < VECTORS; i++)
#define EACH _Pragma("GCC unroll 8") ALL

/* A row of HEED_SCAN_COLUMNS. */
typedef struct columns {
    heed_vec at[VECTORS];
} columns;

static inline columns load(const float *x)
{
    columns y;
    EACH y.at[i] = heed_vec_load(x + i * HEED_WIDTH);
    return y;
}

static inline void store(float *x, columns y)
{
    EACH heed_vec_store(x + i * HEED_WIDTH, y.at[i]);
}

static inline columns add(columns x, float factor, columns y)
{
    EACH x.at[i] += factor * y.at[i];
    return x;
}

static inline columns times(float factor, columns x)
{
    EACH x.at[i] *= factor;
    return x;
}

static inline float sum_of_products(columns x, columns y)
{
    heed_vec all = x.at[0] * y.at[0];
    for (int i = 1; i < VECTORS; i++)
        all += x.at[i] * y.at[i];
    float sum = 0;
    for (int i = 0; i < HEED_WIDTH; i++)
        sum += all[i];
    return sum;
}

/* sum_r row[r] times row r of the state */
static inline columns read_state(const float *state, const float *row, int channels)
{
    columns sum = times(row[0], load(state));
    for (int r = 1; r < channels; r++)
        sum = add(sum, row[r], load(state + r * HEED_SCAN_COLUMNS));
    return sum;
}

/* One token: state to `next`, which may be the same memory; what the first query reads of it. */
static inline __attribute__((always_inline)) columns step(const heed_scan_run *run, const bool delta, int t,
                                                          const float *state, float *next)
{
    const int64_t row = (int64_t)t * run->channels;
    const float *key = run->key + row, *keep = run->keep + row, *query = run->query + row;
    const columns value = load(run->value + t * HEED_SCAN_COLUMNS);
    columns seen = {0}, out = {0};
    if (delta)
        seen = read_state(state, run->probe + row, run->channels);
    for (int r = 0; r < run->channels; r++) {
        columns x = times(keep[r], load(state + r * HEED_SCAN_COLUMNS));
        if (delta)
            x = add(x, run->remove[row + r], seen);
        x = add(x, key[r], value);
        store(next + r * HEED_SCAN_COLUMNS, x);
        out = add(out, query[r], x);
    }
    return out;
}

/* What the queries of other heads read of the state behind token t. */
static inline void read_by_others(const heed_scan_run *run, int t)
{
    for (int h = 1; h < run->queries; h++) {
        const int64_t row = h * run->apart + t;
        store(run->out + row * HEED_SCAN_COLUMNS,
              read_state(run->state, run->query + row * run->channels, run->channels));
    }
}

/* Asks the cache for rows that come later: they are there before they are wanted, whatever the length of the
 * text. */
static inline void bring(const heed_scan_run *run, int t)
{
    for (int i = 0; i < run->soons; i++) {
        const char *row = run->soon[i].row + t * run->soon[i].stride;
        for (int64_t at = 0; at < run->soon[i].bytes; at += 64)
            __builtin_prefetch(row + at, 0, 2);
    }
}

/* Some tokens in one pass over the state. */
static inline __attribute__((always_inline)) void together(const heed_scan_run *run, const int tokens, int t)
{
    const int64_t channels = run->channels, row = (int64_t)t * channels;
    const float *key = run->key + row, *keep = run->keep + row, *query = run->query + row;
    columns value[TOGETHER], out[TOGETHER];
#pragma GCC unroll 8
    for (int n = 0; n < tokens; n++) {
        bring(run, t + n);
        value[n] = load(run->value + (t + n) * HEED_SCAN_COLUMNS);
        out[n] = (columns){0};
    }
    for (int64_t r = 0; r < channels; r++) {
        columns x = load(run->state + r * HEED_SCAN_COLUMNS);
#pragma GCC unroll 8
        for (int n = 0; n < tokens; n++) {
            x = add(times(keep[n * channels + r], x), key[n * channels + r], value[n]);
            out[n] = add(out[n], query[n * channels + r], x);
        }
        store(run->state + r * HEED_SCAN_COLUMNS, x);
    }
#pragma GCC unroll 8
    for (int n = 0; n < tokens; n++)
        store(run->out + (t + n) * HEED_SCAN_COLUMNS, out[n]);
}

static void pass(const heed_scan_run *run)
{
    int t = 0;
    for (; run->queries == 1 && t + TOGETHER <= run->count; t += TOGETHER)
        together(run, TOGETHER, t);
    for (; t < run->count; t++) {
        together(run, 1, t);
        read_by_others(run, t);
    }
}

/* The same with a delta: while a token changes the state, what the next one probes is summed. */
static void pass_delta(const heed_scan_run *run)
{
    const int channels = run->channels;
    columns seen = read_state(run->state, run->probe, channels);
    for (int t = 0; t < run->count; t++) {
        const int64_t row = (int64_t)t * channels, next = t + 1 < run->count ? row + channels : row;
        const float *key = run->key + row, *keep = run->keep + row, *query = run->query + row;
        const float *remove = run->remove + row, *probe = run->probe + next;
        const columns value = load(run->value + t * HEED_SCAN_COLUMNS);
        columns out = {0}, seen_next = {0};
        bring(run, t);
        for (int r = 0; r < channels; r++) {
            columns x = times(keep[r], load(run->state + r * HEED_SCAN_COLUMNS));
            x = add(add(x, remove[r], seen), key[r], value);
            store(run->state + r * HEED_SCAN_COLUMNS, x);
            out = add(out, query[r], x);
            seen_next = add(seen_next, probe[r], x);
        }
        store(run->out + t * HEED_SCAN_COLUMNS, out);
        read_by_others(run, t);
        seen = seen_next;
    }
}

static void forward(const heed_scan_run *run)
{
    if (run->delta && run->count > 0)
        pass_delta(run);
    else
        pass(run);
}

static void norm(const heed_scan_run *run)
{
    for (int t = 0; t < run->count; t++) {
        const float *key = run->key + (int64_t)t * run->channels,
                    *keep = run->keep + (int64_t)t * run->channels;
#pragma omp simd
        for (int r = 0; r < run->channels; r++)
            run->state[r] = keep[r] * run->state[r] + key[r];
        for (int h = 0; h < run->queries; h++) {
            const float *query = run->query + (h * run->apart + t) * run->channels;
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int r = 0; r < run->channels; r++)
                sum += query[r] * run->state[r];
            run->out[h * run->apart + t] = sum;
        }
    }
}

static void states(const heed_scan_run *run, float *to)
{
    const int64_t size = (int64_t)run->channels * HEED_SCAN_COLUMNS;
    for (int t = 0; t < run->count; t++, to += size)
        if (run->delta)
            step(run, true, t, to, to + size);
        else
            step(run, false, t, to, to + size);
}

/* What the queries of token t make of its state. */
static void back_queries(const heed_scan_back *back, int t, const float *after)
{
    const heed_scan_run *run = back->run;
    for (int h = 0; h < run->queries; h++) {
        const int64_t row = h * run->apart + t;
        const columns dout = load(back->dout + row * HEED_SCAN_COLUMNS);
        const float *query = run->query + row * run->channels;
        float *dquery = back->dquery + row * run->channels;
        for (int r = 0; r < run->channels; r++) {
            float *dstate = back->dstate + r * HEED_SCAN_COLUMNS;
            dquery[r] += sum_of_products(load(after + r * HEED_SCAN_COLUMNS), dout);
            store(dstate, add(load(dstate), query[r], dout));
        }
    }
}

static void backward(const heed_scan_back *back)
{
    const heed_scan_run *run = back->run;
    const int64_t size = (int64_t)run->channels * HEED_SCAN_COLUMNS;
    for (int t = run->count - 1; t >= 0; t--) {
        const int64_t row = (int64_t)t * run->channels;
        const float *before = back->states + t * size;
        const columns value = load(run->value + t * HEED_SCAN_COLUMNS);
        back_queries(back, t, before + size);
        columns seen = {0}, removed = {0};
        if (run->delta) {
            seen = read_state(before, run->probe + row, run->channels);
            removed = read_state(back->dstate, run->remove + row, run->channels);
        }
        store(back->dvalue + t * HEED_SCAN_COLUMNS, read_state(back->dstate, run->key + row, run->channels));
        for (int r = 0; r < run->channels; r++) {
            float *dstate = back->dstate + r * HEED_SCAN_COLUMNS;
            const columns was = load(before + r * HEED_SCAN_COLUMNS), d = load(dstate);
            back->dkey[row + r] += sum_of_products(d, value);
            back->dkeep[row + r] += sum_of_products(d, was);
            columns next = times(run->keep[row + r], d);
            if (run->delta) {
                back->dremove[row + r] += sum_of_products(d, seen);
                back->dprobe[row + r] += sum_of_products(was, removed);
                next = add(next, run->probe[row + r], removed);
            }
            store(dstate, next);
        }
    }
}

#define heed_scan_kernels_here HEED_JOIN(heed_scan_kernels, HEED_ISA)
const heed_scan_kernels heed_scan_kernels_here = {forward, norm, states, backward};
