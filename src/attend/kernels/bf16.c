#include "attend/kernels/bf16.h"
#include "base/cpu.h"
#include <string.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#define BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#endif

heed_bf16_work heed_take_bf16_work(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline)
{
    const size_t value = (size_t)heed_value_stride(plan);
    const size_t stride =
        (size_t)(plan->problem.dim > plan->problem.value_dim ? plan->problem.dim : plan->problem.value_dim);
    (void)pipeline;
    heed_bf16_work work = {0};
    work.key = heed_arena_take(arena, (size_t)plan->problem.dim / 2 * HEED_KEY_STRIDE, sizeof *work.key);
    work.value = heed_arena_take(arena, HEED_KEYS / 2 * value, sizeof *work.value);
    work.high = heed_arena_take(arena, HEED_STRIP * HEED_KEYS / 2, sizeof *work.high);
    work.low = heed_arena_take(arena, HEED_STRIP * HEED_KEYS / 2, sizeof *work.low);
    work.raw = heed_arena_take(arena, HEED_KEYS * (stride + 64), sizeof *work.raw);
    return work;
}

bool heed_bf16_serves(const heed_plan *plan, const heed_pipeline *pipeline)
{
#if defined(__AVX512F__)
    const heed_problem *p = &plan->problem;
    return heed_cpu_has_avx512_bf16() && !p->grades && p->q_type == HEED_BF16 && p->k_type == HEED_BF16 &&
           p->v_type == HEED_BF16 && p->dim % 2 == 0 && pipeline->pair < 0 && pipeline->plain_query &&
           pipeline->plain_key && !heed_outside_sees_tiles(pipeline);
#else
    (void)plan;
    (void)pipeline;
    return false;
#endif
}

#if !defined(__AVX512F__)
void heed_bf16_queries(const heed_run *run, const heed_pipeline *pipeline, heed_query_block *block)
{
    (void)run, (void)pipeline, (void)block;
}

void heed_bf16_keys(const heed_run *run, const heed_key_block *block, heed_bf16_work *work)
{
    (void)run, (void)block, (void)work;
}

void heed_bf16_values(const heed_run *run, heed_key_block *block, heed_bf16_work *work)
{
    (void)run, (void)block, (void)work;
}

void heed_bf16_scores(const heed_pipeline *pipeline, const heed_bf16_work *work, heed_tile *tile, int first)
{
    (void)pipeline, (void)work, (void)tile, (void)first;
}

void heed_bf16_accumulate(const heed_plan *plan, heed_bf16_work *work, const heed_tile *tile, int first,
                          float *sum)
{
    (void)plan, (void)work, (void)tile, (void)first, (void)sum;
}
#else

void heed_bf16_queries(const heed_run *run, const heed_pipeline *pipeline, heed_query_block *block)
{
    const heed_problem *p = &run->plan->problem;
    const int64_t stride = heed_row_stride(run->plan, pipeline);
    const int padded = (int)heed_round_up(block->rows, HEED_STRIP);
    for (int r = 0; r < padded; r++) {
        uint16_t *to = (uint16_t *)(void *)(block->prepared + r * stride);
        if (r >= block->rows) {
            memset(to, 0, (size_t)p->dim * sizeof *to);
            continue;
        }
        const char *from = heed_row_of(run, &run->q, false, block->batch, block->head, block->query0 + r);
        for (int64_t d = 0; d < p->dim; d++)
            to[d] = *(const uint16_t *)(const void *)(from + d * run->q.stride[3]);
    }
}

/* A row of bf16 where it lies, or copied to `copy` when its entries do not stand side by side. */
static const uint16_t *row16(const heed_run *run, const heed_tensor *tensor, int64_t batch, int64_t head,
                             int64_t row, uint16_t *copy)
{
    const char *from = heed_row_of(run, tensor, run->plan->problem.with & HEED_WITH_PAGES, batch, head, row);
    if (tensor->stride[3] == sizeof(uint16_t))
        return (const uint16_t *)(const void *)from;
    for (int64_t d = 0; d < tensor->shape[3]; d++)
        copy[d] = *(const uint16_t *)(const void *)(from + d * tensor->stride[3]);
    return copy;
}

void heed_bf16_keys(const heed_run *run, const heed_key_block *block, heed_bf16_work *work)
{
    /* pairs of dims are moved as if they were floats, which shuffles do not touch */
    const int64_t dim = run->plan->problem.dim, stride = heed_round_up(dim / 2, HEED_WIDTH);
    float *rows = (float *)(void *)work->raw;
    for (int r = 0; r < block->count; r++) {
        uint16_t *to = (uint16_t *)(void *)(rows + r * stride);
        const uint16_t *from = row16(run, &run->k, block->batch, block->group, block->key0 + r, to);
        if (from != to)
            memcpy(to, from, (size_t)dim * sizeof *to);
    }
    heed_transpose(rows, stride, block->count, (int)(dim / 2), (float *)(void *)work->key, HEED_KEY_STRIDE,
                   block->cols);
}

/* Pairs of neighbouring keys, entry by entry. */
BF16 static void interleave(const uint16_t *even, const uint16_t *odd, int64_t dim, uint32_t *to)
{
    int64_t e = 0;
    for (; e + 16 <= dim; e += 16) {
        const __m512i low =
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(even + e)));
        const __m512i high =
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(odd + e)));
        _mm512_storeu_si512(to + e, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
    for (; e < dim; e++)
        to[e] = even[e] | (uint32_t)odd[e] << 16;
}

static bool finite16(const uint16_t *x, int64_t n)
{
    int bad = 0;
    for (int64_t i = 0; i < n; i++)
        bad |= (x[i] & 0x7f80) == 0x7f80;
    return !bad;
}

void heed_bf16_values(const heed_run *run, heed_key_block *block, heed_bf16_work *work)
{
    const int64_t dim = run->plan->problem.value_dim, stride = heed_value_stride(run->plan);
    uint16_t *copy[2] = {work->raw, work->raw + dim};
    uint16_t *zero = work->raw + 2 * dim;
    memset(zero, 0, (size_t)dim * sizeof *zero);
    block->value_finite = true;
    for (int r = 0; r < block->cols; r += 2) {
        const uint16_t *row[2] = {zero, zero};
        for (int i = 0; i < 2; i++) {
            if (r + i >= block->count)
                continue;
            row[i] = row16(run, &run->v, block->batch, block->group, block->key0 + r + i, copy[i]);
            block->value_finite &= finite16(row[i], dim);
        }
        uint32_t *to = work->value + r / 2 * stride;
        interleave(row[0], row[1], dim, to);
        memset(to + dim, 0, (size_t)(stride - dim) * sizeof *to);
    }
}

#define ROWS HEED_STRIP

BF16 __attribute__((noinline)) static void score_panel(int64_t depth, const uint32_t *query,
                                                       int64_t query_stride, const uint32_t *key, float scale,
                                                       float *score, int64_t stride)
{
    __m512 sum[ROWS][2];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (int64_t k = 0; k < depth; k++) {
        const __m512bh a = (__m512bh)_mm512_loadu_si512(key), b = (__m512bh)_mm512_loadu_si512(key + 16);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            const __m512bh left = (__m512bh)_mm512_set1_epi32((int)query[r * query_stride + k]);
            sum[r][0] = _mm512_dpbf16_ps(sum[r][0], left, a);
            sum[r][1] = _mm512_dpbf16_ps(sum[r][1], left, b);
        }
        key += HEED_KEY_STRIDE;
    }
    const __m512 factor = _mm512_set1_ps(scale);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        for (int x = 0; x < 2; x++)
            _mm512_storeu_ps(score + r * stride + 16 * x, _mm512_mul_ps(sum[r][x], factor));
}

void heed_bf16_scores(const heed_pipeline *pipeline, const heed_bf16_work *work, heed_tile *tile, int first)
{
    for (int x = 0; x < tile->cols; x += 32)
        score_panel(pipeline->row_dim / 2, (const uint32_t *)(const void *)tile->query, tile->query_stride,
                    work->key + first + x, pipeline->scale, tile->score + x, tile->stride);
}

/* w = high + low: the upper half of w's bits, and what is left rounded to bf16. */
BF16 static void split(const heed_tile *tile, heed_bf16_work *work)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    __m512i odd = _mm512_setzero_si512();
    uint16_t lanes[32];
    for (int i = 0; i < 32; i++)
        lanes[i] = (uint16_t)(2 * i + 1);
    odd = _mm512_loadu_si512(lanes);
    for (int r = 0; r < ROWS; r++) {
        const float *weight = tile->score + r * tile->stride;
        uint32_t *high = work->high + r * (HEED_KEYS / 2), *low = work->low + r * (HEED_KEYS / 2);
        for (int j = 0; j < tile->cols; j += 32) {
            const __m512 a = _mm512_loadu_ps(weight + j), b = _mm512_loadu_ps(weight + j + 16);
            const __m512i ai = _mm512_castps_si512(a), bi = _mm512_castps_si512(b);
            const __m512 ra = _mm512_sub_ps(a, _mm512_castsi512_ps(_mm512_and_si512(ai, upper)));
            const __m512 rb = _mm512_sub_ps(b, _mm512_castsi512_ps(_mm512_and_si512(bi, upper)));
            _mm512_storeu_si512(high + j / 2, _mm512_permutex2var_epi16(ai, odd, bi));
            _mm512_storeu_si512(low + j / 2, (__m512i)_mm512_cvtne2ps_pbh(rb, ra));
        }
    }
}

#define VALUE_PANEL(name, vectors)                                                                           \
    BF16 __attribute__((noinline)) static void name(int64_t depth, const uint32_t *high,                     \
                                                    const uint32_t *low, const uint32_t *value,              \
                                                    int64_t stride, float *to)                               \
    {                                                                                                        \
        __m512 sum[ROWS][vectors];                                                                           \
        _Pragma("GCC unroll 16") for (int r = 0; r < ROWS; r++) for (int x = 0; x < vectors; x++)            \
            sum[r][x] = _mm512_loadu_ps(to + r * stride + 16 * x);                                           \
        for (int64_t k = 0; k < depth; k++) {                                                                \
            __m512bh right[vectors];                                                                         \
            for (int x = 0; x < vectors; x++)                                                                \
                right[x] = (__m512bh)_mm512_loadu_si512(value + k * stride + 16 * x);                        \
            _Pragma("GCC unroll 16") for (int r = 0; r < ROWS; r++)                                          \
            {                                                                                                \
                const __m512bh h = (__m512bh)_mm512_set1_epi32((int)high[r * (HEED_KEYS / 2) + k]);          \
                const __m512bh l = (__m512bh)_mm512_set1_epi32((int)low[r * (HEED_KEYS / 2) + k]);           \
                for (int x = 0; x < vectors; x++) {                                                          \
                    sum[r][x] = _mm512_dpbf16_ps(sum[r][x], h, right[x]);                                    \
                    sum[r][x] = _mm512_dpbf16_ps(sum[r][x], l, right[x]);                                    \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
        _Pragma("GCC unroll 16") for (int r = 0; r < ROWS; r++) for (int x = 0; x < vectors; x++)            \
            _mm512_storeu_ps(to + r * stride + 16 * x, sum[r][x]);                                           \
    }

VALUE_PANEL(value_two, 2)
VALUE_PANEL(value_one, 1)

void heed_bf16_accumulate(const heed_plan *plan, heed_bf16_work *work, const heed_tile *tile, int first,
                          float *sum)
{
    const int64_t stride = heed_value_stride(plan), cols = heed_round_up(plan->problem.value_dim, 16);
    const uint32_t *value = work->value + first / 2 * stride;
    split(tile, work);
    int64_t e = 0;
    for (; e + 32 <= cols; e += 32)
        value_two(tile->cols / 2, work->high, work->low, value + e, stride, sum + e);
    for (; e < cols; e += 16)
        value_one(tile->cols / 2, work->high, work->low, value + e, stride, sum + e);
}
#endif
