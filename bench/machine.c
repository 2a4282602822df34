/* What this machine can do at most: multiply-adds a second, and bytes read a second. */
#include "bench.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUFFER ((size_t)1 << 30)
#define CHAINS 12 /* latency 4 times two units, and some more */

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* x = x a + b on CHAINS vectors; a is below 1, so that they stay finite. The sum makes the result needed. */
#define FMA_CHAINS(name, target, bytes)                                                                      \
    typedef float name##_vector __attribute__((vector_size(bytes)));                                         \
    target static float name(int64_t turns)                                                                  \
    {                                                                                                        \
        name##_vector x[CHAINS], sum = {0};                                                                  \
        const name##_vector a = (name##_vector){0} + 0.999f, b = (name##_vector){0} + 0.001f;                \
        for (int c = 0; c < CHAINS; c++)                                                                     \
            x[c] = sum + (float)c;                                                                           \
        for (int64_t t = 0; t < turns; t++) {                                                                \
            _Pragma("GCC unroll 16") for (int c = 0; c < CHAINS; c++)                                        \
            {                                                                                                \
                x[c] = x[c] * a + b;                                                                         \
                __asm__("" : "+" FMA_REGISTER(x[c]));                                                        \
            }                                                                                                \
        }                                                                                                    \
        for (int c = 0; c < CHAINS; c++)                                                                     \
            sum += x[c];                                                                                     \
        return sum[0];                                                                                       \
    }

#if defined(__x86_64__)
#define FMA_REGISTER(x) "v"(x)
FMA_CHAINS(chains_512, __attribute__((target("avx512f"))), 64)
#undef FMA_REGISTER
#define FMA_REGISTER(x) "x"(x)
FMA_CHAINS(chains_256, __attribute__((target("avx2,fma"))), 32)
FMA_CHAINS(chains_128, , 16)
#else
#define FMA_REGISTER(x) "w"(x)
FMA_CHAINS(chains_128, , 16)
#endif

double bench_measure_flops(int threads)
{
    float (*chains)(int64_t) = chains_128;
    int lanes = 4;
#if defined(__x86_64__)
    if (heed_isa_available(HEED_ISA_AVX2)) {
        chains = chains_256;
        lanes = 8;
    }
    if (heed_isa_available(HEED_ISA_AVX512)) {
        chains = chains_512;
        lanes = 16;
    }
#endif
    const int64_t turns = 1000000;
    volatile float keep = 0.0f;
    double seconds = 0.0;
#pragma omp parallel num_threads(threads)
    {
        keep = chains(turns / 20);
#pragma omp barrier
#pragma omp master
        seconds = bench_now();
        keep = chains(turns);
#pragma omp barrier
#pragma omp master
        seconds = bench_now() - seconds;
    }
    (void)keep;
    return (double)threads * (double)turns * CHAINS * lanes * 2.0 / seconds;
}

static char *buffer;

void bench_machine_free(void)
{
    free(buffer);
    buffer = NULL;
}

double bench_measure_bandwidth(int threads)
{
    if (!buffer) {
        buffer = aligned_alloc(64, BUFFER);
        if (!buffer)
            return 0.0;
        memset(buffer, 1, BUFFER);
    }
    uint64_t total = 0;
    const double start = bench_now();
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        const size_t share = BUFFER / (size_t)omp_get_num_threads() / 512 * 512;
        const uint64_t *from = (const uint64_t *)(buffer + share * (size_t)omp_get_thread_num());
        uint64_t sum[8] = {0};
        for (size_t i = 0; i < share / 8; i += 8)
            for (int j = 0; j < 8; j++)
                sum[j] += from[i + (size_t)j];
        for (int j = 0; j < 8; j++)
            total += sum[j];
    }
    const double seconds = bench_now() - start;
    /* every byte is 1, so the sum is known, and the reads cannot be left out */
    return total >= 0x0101010101010101ull ? (double)BUFFER / seconds : 0.0;
}
