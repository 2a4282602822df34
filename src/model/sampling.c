/* From logits to the next token. */
#include <heed/sampling.h>

#include "base/philox.h"
#include "base/try.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    float logit;
    int32_t token;
} candidate;

struct heed_sampler {
    heed_sampling sampling;
    int64_t vocabulary;
    candidate *candidate; /* [vocabulary] */
    int32_t *left;        /* [vocabulary] tokens that are left to draw from, */
    double *weight;       /* and exp(logit - largest) of each */
    float *logit;         /* [vocabulary] with penalties */
    int32_t *count;       /* [vocabulary] how often a token was there; zero between calls */
};

double heed_uniform(uint64_t seed, uint64_t stream, uint64_t position)
{
    uint32_t c[4];
    heed_philox_at(seed, stream, position, c);
    const uint64_t bits = (uint64_t)c[1] << 32 | c[0];
    return (double)(bits >> 11) * 0x1p-53;
}

double heed_log_sum_exp(const float *logits, int64_t count)
{
    float largest = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    if (isinf(largest))
        return largest;
    for (int64_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - (double)largest);
    return (double)largest + log(sum);
}

/* Whether a stands before b: the larger logit, then the smaller number. */
static bool before(candidate a, candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static void sift(candidate *heap, int64_t count, int64_t place)
{
    const candidate moved = heap[place];
    for (int64_t child = 2 * place + 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && before(heap[child + 1], heap[child]))
            child++;
        if (!before(heap[child], moved))
            break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = moved;
}

static void heapify(candidate *heap, int64_t count)
{
    for (int64_t place = count / 2; place-- > 0;)
        sift(heap, count, place);
}

/* Takes the first candidate off the heap and puts it behind the heap's new end. */
static candidate pop(candidate *heap, int64_t *count)
{
    const candidate top = heap[0];
    heap[0] = heap[--*count];
    heap[*count] = top;
    if (*count)
        sift(heap, *count, 0);
    return top;
}

int64_t heed_top_logprobs(const float *logits, int64_t vocabulary, int64_t top, heed_logprob *best)
{
    const double all = heed_log_sum_exp(logits, vocabulary);
    int64_t count = 0;
    for (int64_t i = 0; i < vocabulary && top > 0; i++) {
        if (isnan(logits[i]) || (count == top && !(logits[i] > best[count - 1].logprob)))
            continue;
        count += count < top;
        int64_t place = count - 1;
        for (; place > 0 && logits[i] > best[place - 1].logprob; place--)
            best[place] = best[place - 1];
        best[place] = (heed_logprob){(int32_t)i, logits[i]};
    }
    for (int64_t n = 0; n < count; n++)
        best[n].logprob -= all;
    return count;
}

static heed_status check(const heed_sampling *s, int64_t vocabulary)
{
    if (vocabulary < 1 || vocabulary > INT32_MAX)
        return heed_fail(HEED_INVALID, "a vocabulary of %lld tokens: at least 1 is needed",
                         (long long)vocabulary);
    if (!(s->temperature >= 0 && s->temperature <= 1e6f))
        return heed_fail(HEED_INVALID,
                         "temperature %g: 0 (the most likely token) or a number up to 1e6 is right",
                         (double)s->temperature);
    if (s->top_k < 0)
        return heed_fail(HEED_INVALID, "top_k %d: 0 (all) or a number of tokens is right", s->top_k);
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return heed_fail(HEED_INVALID, "top_p %g: a probability, 0 to 1, is right", (double)s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return heed_fail(HEED_INVALID, "min_p %g: a share, 0 to 1, is right", (double)s->min_p);
    if (!(s->repetition >= 0 && s->repetition <= 1e6f))
        return heed_fail(HEED_INVALID, "repetition penalty %g: 1 (none) or a positive number is right",
                         (double)s->repetition);
    if (!isfinite(s->frequency) || !isfinite(s->presence))
        return heed_fail(HEED_INVALID, "frequency and presence penalties must be finite numbers");
    if (s->penalty_window < 0)
        return heed_fail(HEED_INVALID, "a penalty window of %lld tokens: 0 (all) or more is right",
                         (long long)s->penalty_window);
    return HEED_OK;
}

heed_status heed_sampler_create(heed_sampler **out, const heed_sampling *sampling, int64_t vocabulary)
{
    TRY(check(sampling, vocabulary));
    heed_sampler *sampler = calloc(1, sizeof *sampler);
    const size_t count = (size_t)vocabulary;
    if (sampler) {
        sampler->sampling = *sampling;
        sampler->vocabulary = vocabulary;
        sampler->candidate = calloc(count, sizeof *sampler->candidate);
        sampler->left = calloc(count, sizeof *sampler->left);
        sampler->weight = calloc(count, sizeof *sampler->weight);
        sampler->logit = calloc(count, sizeof *sampler->logit);
        sampler->count = calloc(count, sizeof *sampler->count);
    }
    if (!sampler || !sampler->candidate || !sampler->left || !sampler->weight || !sampler->logit ||
        !sampler->count) {
        heed_sampler_free(sampler);
        return heed_fail(HEED_NO_MEMORY, "no memory to draw from %lld tokens", (long long)vocabulary);
    }
    *out = sampler;
    return HEED_OK;
}

void heed_sampler_free(heed_sampler *sampler)
{
    if (!sampler)
        return;
    free(sampler->candidate);
    free(sampler->left);
    free(sampler->weight);
    free(sampler->logit);
    free(sampler->count);
    free(sampler);
}

/* Logits with penalties for what was there. */
static heed_status penalise(heed_sampler *sampler, const float *logits, const int32_t *past, int64_t count)
{
    const heed_sampling *s = &sampler->sampling;
    memcpy(sampler->logit, logits, (size_t)sampler->vocabulary * sizeof *logits);
    if ((s->repetition == 0 || s->repetition == 1) && s->frequency == 0 && s->presence == 0)
        return HEED_OK;
    const int64_t first = s->penalty_window && count > s->penalty_window ? count - s->penalty_window : 0;
    for (int64_t i = first; i < count; i++)
        if (past[i] < 0 || past[i] >= sampler->vocabulary)
            return heed_fail(HEED_INVALID, "token %d among those before is none of %lld", past[i],
                             (long long)sampler->vocabulary);
    for (int64_t i = first; i < count; i++)
        sampler->count[past[i]]++;
    for (int64_t i = first; i < count; i++) {
        const int32_t token = past[i], times = sampler->count[token];
        float *logit = &sampler->logit[token];
        sampler->count[token] = 0;
        if (!times) /* done before */
            continue;
        if (s->repetition > 0)
            *logit = *logit > 0 ? *logit / s->repetition : *logit * s->repetition;
        *logit -= s->frequency * (float)times + s->presence;
    }
    return HEED_OK;
}

static heed_status most_likely(const float *logits, int64_t count, int64_t *token)
{
    *token = -1;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(logits[i]))
            return heed_fail(HEED_INVALID, "the logit of token %lld is not a number", (long long)i);
        if (logits[i] > (*token < 0 ? -INFINITY : logits[*token]))
            *token = i;
    }
    if (*token < 0)
        return heed_fail(HEED_INVALID, "no token has a logit above -infinity");
    if (isinf(logits[*token]))
        return heed_fail(HEED_INVALID, "the logit of token %lld is infinite", (long long)*token);
    return HEED_OK;
}

/* exp of the difference to the largest, at the temperature. */
static double weight_of(const heed_sampler *sampler, float logit, float largest)
{
    return exp(((double)logit - (double)largest) / (double)sampler->sampling.temperature);
}

/* Draws among the first `count` tokens that are left, by their weights. */
static int32_t draw(const heed_sampler *sampler, int64_t count, double uniform)
{
    double sum = 0, passed = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < count; i++)
        sum += sampler->weight[i];
    for (int64_t i = 0; i < count; i++) {
        if (!(sampler->weight[i] > 0))
            continue;
        passed += sampler->weight[i];
        last = i;
        if (passed > uniform * sum)
            break;
    }
    return sampler->left[last];
}

/* All tokens, in the order of their numbers; returns the sum of their weights. */
static double weigh_all(heed_sampler *sampler, float largest)
{
    double sum = 0;
    for (int64_t i = 0; i < sampler->vocabulary; i++) {
        sampler->left[i] = (int32_t)i;
        sampler->weight[i] = weight_of(sampler, sampler->logit[i], largest);
        sum += sampler->weight[i];
    }
    return sum;
}

/* Takes the likeliest tokens, at most `most`, until they have enough weight together (< 0: no matter) or the
 * next has less than the least. */
static int64_t take_likeliest(heed_sampler *sampler, float largest, int64_t most, double enough, double least)
{
    int64_t heap = sampler->vocabulary, count = 0;
    double taken = 0;
    for (int64_t i = 0; i < heap; i++)
        sampler->candidate[i] = (candidate){sampler->logit[i], (int32_t)i};
    heapify(sampler->candidate, heap);
    while (count < most) {
        const candidate next = pop(sampler->candidate, &heap);
        const double weight = weight_of(sampler, next.logit, largest);
        if (count && (weight < least || weight == 0 || (enough >= 0 && taken >= enough)))
            break;
        sampler->left[count] = next.token;
        sampler->weight[count++] = weight;
        taken += weight;
    }
    return count;
}

/* How many of the likeliest tokens have this share of the weight of `count`. */
static int64_t share(const heed_sampler *sampler, int64_t count, double probability)
{
    double all = 0, taken = 0;
    int64_t few = 0;
    for (int64_t i = 0; i < count; i++)
        all += sampler->weight[i];
    while (few < count && (few == 0 || taken < probability * all))
        taken += sampler->weight[few++];
    return few;
}

/* Puts the tokens that top_k, top_p and min_p leave first, with their weights; returns how many. */
static int64_t cut(heed_sampler *sampler, float largest)
{
    const heed_sampling *s = &sampler->sampling;
    const bool top_k = s->top_k && s->top_k<sampler->vocabulary, top_p = s->top_p> 0 && s->top_p < 1;
    if (!top_k && !top_p && s->min_p == 0) {
        weigh_all(sampler, largest);
        return sampler->vocabulary;
    }
    if (!top_k)
        return take_likeliest(sampler, largest, sampler->vocabulary,
                              top_p ? (double)s->top_p * weigh_all(sampler, largest) : -1, (double)s->min_p);
    int64_t count = s->top_k;
    count = take_likeliest(sampler, largest, count, -1, 0);
    if (top_p) /* a share of what top_k leaves */
        count = share(sampler, count, (double)s->top_p);
    while (count > 1 && sampler->weight[count - 1] < (double)s->min_p)
        count--;
    return count;
}

heed_status heed_sample(heed_sampler *sampler, const float *logits, const int32_t *past, int64_t count,
                        uint64_t stream, uint64_t position, int32_t *token)
{
    int64_t best;
    TRY(penalise(sampler, logits, past, count));
    TRY(most_likely(sampler->logit, sampler->vocabulary, &best));
    *token = (int32_t)best;
    if (sampler->sampling.temperature == 0)
        return HEED_OK;
    const int64_t left = cut(sampler, sampler->logit[best]);
    *token = draw(sampler, left, heed_uniform(sampler->sampling.seed, stream, position));
    return HEED_OK;
}
