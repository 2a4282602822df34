/* Elementwise functions, by themselves and as gates. */
#include "nn/kernels/functions.h"
#include "nn/kernels/parts.h"

/* to (+)= from */
static void put(const float *from, float *to, bool add, int64_t n)
{
    if (to && add)
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            to[i] += from[i];
    else if (to)
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i];
}

#define FUNCTION_LOOPS(kind, name, f, slope)                                                                 \
    static void name##_forward(const float *in, float *out, int64_t n)                                       \
    {                                                                                                        \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                  \
        {                                                                                                    \
            const float x = in[i];                                                                           \
            out[i] = f;                                                                                      \
        }                                                                                                    \
    }                                                                                                        \
    static void name##_backward(const float *in, const float *dy, float *dx, bool add, int64_t n)            \
    {                                                                                                        \
        const float old = add ? 1.0f : 0.0f;                                                                 \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                  \
        {                                                                                                    \
            const float x = in[i];                                                                           \
            dx[i] = (slope)*dy[i] + (add ? old * dx[i] : 0.0f);                                              \
        }                                                                                                    \
    }                                                                                                        \
    static void name##_gate(const float *gate, const float *in, float *out, int64_t n)                       \
    {                                                                                                        \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                  \
        {                                                                                                    \
            const float x = gate[i];                                                                         \
            out[i] = (f)*in[i];                                                                              \
        }                                                                                                    \
    }

/* Both gradients at once, as they share most of what they compute. Either may be NULL: it goes to a place
 * that nobody reads. */
#define GATE_BACK_LOOP(kind, name, f, slope)                                                                 \
    static void name##_gate_back(const float *gate, const float *in, const float *dy, float *dgate,          \
                                 bool add_gate, float *dx, bool add_x, int64_t n)                            \
    {                                                                                                        \
        enum { PIECE = 512 };                                                                                \
        float part[PIECE] __attribute__((aligned(64))), aside[PIECE] __attribute__((aligned(64)));           \
        for (int64_t from = 0; from < n; from += PIECE) {                                                    \
            const int64_t size = n - from < PIECE ? n - from : PIECE;                                        \
            _Pragma("omp simd") for (int64_t i = 0; i < size; i++)                                           \
            {                                                                                                \
                const float x = gate[from + i], g = dy[from + i];                                            \
                part[i] = (slope)*in[from + i] * g;                                                          \
                aside[i] = (f)*g;                                                                            \
            }                                                                                                \
            put(part, dgate ? dgate + from : NULL, add_gate, size);                                          \
            put(aside, dx ? dx + from : NULL, add_x, size);                                                  \
        }                                                                                                    \
    }

HEED_FUNCTION_LINES(FUNCTION_LOOPS)
HEED_FUNCTION_LINES(GATE_BACK_LOOP)

#define FORWARD_LINE(kind, name, f, slope) [kind] = name##_forward,
#define BACKWARD_LINE(kind, name, f, slope) [kind] = name##_backward,
#define GATE_BACK_LINE(kind, name, f, slope) [kind] = name##_gate_back,
#define GATE_LINE(kind, name, f, slope) [kind] = name##_gate,

void heed_nn_apply_loop(heed_function f, const float *x, float *y, int64_t n)
{
    static void (*const loops[])(const float *, float *, int64_t) = {HEED_FUNCTION_LINES(FORWARD_LINE)};
    loops[f](x, y, n);
}

static void (*const back_loops[])(const float *, const float *, float *, bool,
                                  int64_t) = {HEED_FUNCTION_LINES(BACKWARD_LINE)};

void heed_nn_apply_back_loop(heed_function f, const float *x, const float *dy, float *dx, bool add, int64_t n)
{
    back_loops[f](x, dy, dx, add, n);
}

void heed_nn_gate_loop(heed_function f, const float *gate, const float *x, float *y, int64_t n)
{
    static void (*const loops[])(const float *, const float *, float *,
                                 int64_t) = {HEED_FUNCTION_LINES(GATE_LINE)};
    loops[f](gate, x, y, n);
}

void heed_nn_gate_back_loop(heed_function f, const float *gate, const float *x, const float *dy, float *dgate,
                            bool add_gate, float *dx, bool add_x, int64_t n)
{
    static void (*const loops[])(const float *, const float *, const float *, float *, bool, float *, bool,
                                 int64_t) = {HEED_FUNCTION_LINES(GATE_BACK_LINE)};
    loops[f](gate, x, dy, dgate, add_gate, dx, add_x, n);
}
