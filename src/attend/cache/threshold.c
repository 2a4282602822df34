/* A threshold in place of a budget: as many keys as are worth it.
 *
 *     budget_g = ends + number of keys between them with score_j >= least * reference,
 *     reference: 1 (of=one), the mean (of=mean) or the largest (of=max) score of those keys
 *
 * Where the judge has a budget too, no head gets more than that. As the eviction by threshold behind a
 * sliding window in kvpress's DMSPress: `expected > threshold(0.5)`; after Lancucki et al.: Inference-Time
 * Hyper-Scaling with KV Cache Compression, 2025, whose decisions are learnt.
 */
#include "attend/cache/judge.h"

enum { LEAST, OF };
enum { ONE, MEAN, MAX };

static int64_t above(const float *score, int64_t count, float least, int of)
{
    float max = -INFINITY, sum = 0.0f;
    int64_t n = 0, known = 0;
    for (int64_t j = 0; j < count; j++) {
        max = score[j] > max ? score[j] : max;
        if (score[j] > -INFINITY && score[j] < INFINITY) {
            sum += score[j];
            known++;
        }
    }
    const float reference = of == MEAN ? sum / (float)(known ? known : 1) : of == MAX ? max : 1.0f;
    for (int64_t j = 0; j < count; j++)
        n += score[j] >= least * reference;
    return n;
}

static void share_out(const heed_form_state *form, const heed_shares *shares, float *work)
{
    (void)work;
    for (int g = 0; g < shares->kv_heads; g++) {
        const int64_t count = shares->held[g].count;
        const int64_t first = shares->first[g] < count ? shares->first[g] : count;
        const int64_t recent = shares->recent[g] < count - first ? shares->recent[g] : count - first;
        const int64_t budget = first + recent +
                               above(shares->score[g] + first, count - first - recent,
                                     heed_arg_float(form, LEAST), heed_arg_int(form, OF));
        shares->budget[g] = budget < shares->budget[g] ? budget : shares->budget[g];
    }
}

static const heed_option references[] = {{.name = "one"}, {.name = "mean"}, {.name = "max"}, {0}};

static const heed_arg args[] = {
    {.name = "least", .required = true, .summary = "score that stays, in units of the reference"},
    {.name = "of", .kind = HEED_ARG_CHOICE, .value = MEAN, .options = references, .summary = "the reference"},
    {0},
};

static const heed_policy policy = {.share_out = share_out, .bounds = true};

const heed_form HEED_FORM(cache_threshold) = {
    .name = "threshold",
    .stage = HEED_CACHE,
    .summary = "as many keys as have a score of at least a threshold",
    .formula = "budget = ends + number of keys with score_j >= least * reference",
    .source = "kvpress; after Lancucki et al.: Inference-Time Hyper-Scaling, 2025",
    .args = args,
    .policy = &policy,
};
