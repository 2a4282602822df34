/* LagKV: keys and values that stand out from those of the next stretch of text.
 *
 *     the keys behind the first `first` ones in partitions of `lag`; r the partition that follows j's
 *     x~_d    = (x_d - min_r x_d) / (max_r x_d - min_r x_d)          0 where both are the same
 *     s_j     = softmax over the partition of std_d(x~),     the mean of that of keys and that of values
 *     score_j = rank of s_j in its partition / lag,     so that every partition keeps the same share
 *
 * The first keys, the last full partition and what follows it have score 1 and stay while there is room; with
 * fewer than two partitions the newest keys stay. Needs no weights. Liang et al.: LagKV, 2025; defaults as in
 * kvpress.
 */
#include "attend/cache/judge.h"

enum { LAG = HEED_OWN_ARG, FIRST };

/* s [lag] += half the softmax over rows of the deviation of what is normalised; low, scale [dim]. */
static void add_spread(const float *x, int64_t lag, int64_t dim, float *s, float *low, float *scale,
                       float *spread)
{
    const float *next = x + lag * dim;
    for (int64_t d = 0; d < dim; d++) {
        low[d] = INFINITY;
        scale[d] = -INFINITY;
    }
    for (int64_t i = 0; i < lag; i++, next += dim)
#pragma omp simd
        for (int64_t d = 0; d < dim; d++) {
            low[d] = next[d] < low[d] ? next[d] : low[d];
            scale[d] = next[d] > scale[d] ? next[d] : scale[d];
        }
    for (int64_t d = 0; d < dim; d++)
        scale[d] = scale[d] > low[d] ? 1.0f / (scale[d] - low[d]) : 0.0f;
    float max = -INFINITY, sum = 0.0f;
    for (int64_t i = 0; i < lag; i++) {
        float mean = 0.0f, square = 0.0f;
#pragma omp simd reduction(+ : mean)
        for (int64_t d = 0; d < dim; d++)
            mean += (x[i * dim + d] - low[d]) * scale[d];
        mean /= (float)dim;
#pragma omp simd reduction(+ : square)
        for (int64_t d = 0; d < dim; d++) {
            const float off = (x[i * dim + d] - low[d]) * scale[d] - mean;
            square += off * off;
        }
        spread[i] = sqrtf(square / (float)(dim > 1 ? dim - 1 : 1));
        max = spread[i] > max ? spread[i] : max;
    }
    for (int64_t i = 0; i < lag; i++) {
        spread[i] = heed_exp(spread[i] - max);
        sum += spread[i];
    }
    for (int64_t i = 0; i < lag; i++)
        s[i] += 0.5f * spread[i] / sum;
}

/* Of equal ones the later is ranked higher. */
static void rank(const float *s, int64_t lag, float *score)
{
    for (int64_t i = 0; i < lag; i++) {
        int below = 0;
#pragma omp simd reduction(+ : below)
        for (int j = 0; j < (int)lag; j++)
            below += s[j] < s[i] || (s[j] == s[i] && j < i);
        score[i] = (float)below / (float)lag;
    }
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    const int64_t lag = heed_arg_int(form, LAG), first = heed_arg_int(form, FIRST), count = held->count;
    const int64_t behind = count > first ? count - first : 0, parts = behind / lag;
    for (int64_t j = 0; j < count; j++)
        score[j] = 1.0f;
    if (parts < 2)
        for (int64_t j = 0; j < behind; j++)
            score[first + j] = (float)j / (float)behind;
    float *s = work, *spread = work + count, *low = work + 4 * count;
    float *scale = low + (held->dim > held->value_dim ? held->dim : held->value_dim);
    for (int64_t p = 0; p + 1 < parts; p++) {
        const int64_t from = first + p * lag;
        for (int64_t i = 0; i < lag; i++)
            s[i] = 0.0f;
        add_spread(held->key + from * held->dim, lag, held->dim, s, low, scale, spread);
        add_spread(held->value + from * held->value_dim, lag, held->value_dim, s, low, scale, spread);
        rank(s, lag, score + from);
    }
}

static int64_t work_floats(const heed_form_state *form, const heed_held *largest)
{
    (void)form;
    return 2 * (largest->dim > largest->value_dim ? largest->dim : largest->value_dim);
}

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    HEED_COUNT_ARG("lag", 1, 128, "keys of a partition"),
    HEED_COUNT_ARG("first", 0, 4, "keys at the beginning that come before all others"),
    {0},
};

static const heed_policy policy = {
    .observes = HEED_OBSERVES_KEYS | HEED_OBSERVES_VALUES, .work_floats = work_floats, .judge = judge};

const heed_form HEED_FORM(cache_lagkv) = {
    .name = "lagkv",
    .stage = HEED_CACHE,
    .summary = "keys and values that stand out from the range of the next stretch of text",
    .formula = "score = rank in a partition of softmax(std(normalised by the next partition's range))",
    .source = "Liang et al.: LagKV, 2025",
    .args = args,
    .policy = &policy,
};
