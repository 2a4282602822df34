/* CaM, cache merging: values of dropped keys go into those that follow, by chance.
 *
 *     C = the `window` kept keys next behind dropped key i,     p = clamp(score_i / mean of score over C, 0,
 * 1) with chance p: v_c += v_i / |C| for all c in C
 *
 * Keys and masses stay as they are, so what is handed on makes values longer: where many keys go at once, as
 * at the end of a prompt, or scores are sums over all queries, which old keys have the most of, more is lost
 * than by dropping them. The paper drops one key a token: `every(1)`. The chance is drawn from hash(seed,
 * layer, kv head, position). Zhang et al.: CaM: Cache Merging for Memory-efficient LLMs Inference, 2024.
 */
#include "attend/cache/fold.h"

enum { WINDOW, SEED };

static void merge(const heed_form_state *form, const heed_folding *f)
{
    const heed_held *held = f->held;
    const int64_t window = heed_arg_int(form, WINDOW), dim = held->value_dim;
    for (int64_t j = 0; j < held->count; j++) {
        int64_t n = 0, end = j + 1;
        float sum = 0.0f;
        if (f->keep[j])
            continue;
        for (; n < window && end < held->count; end++)
            if (f->keep[end]) {
                sum += f->score[end];
                n++;
            }
        const float mean = sum / (float)(n ? n : 1);
        if (!n || !(f->score[j] > heed_lot((uint64_t)heed_arg_int(form, SEED), held, held->pos[j]) * mean))
            continue;
        for (int64_t c = j + 1; c < end; c++)
            for (int64_t d = 0; f->keep[c] && d < dim; d++)
                f->value[c * dim + d] += f->value[j * dim + d] / (float)n;
    }
}

static const heed_arg args[] = {
    HEED_COUNT_ARG("window", 1, 32, "kept keys that take a value in"),
    {.name = "seed",
     .kind = HEED_ARG_INT,
     .value = 0,
     .least = 0,
     .most = INFINITY,
     .summary = "of the hash"},
    {0},
};

static const heed_policy policy = {.merge = merge};

const heed_form HEED_FORM(cache_cam) = {
    .name = "cam",
    .stage = HEED_CACHE,
    .summary = "values of dropped keys go into those that follow, with a chance that grows with their score",
    .formula = "v_c += v_i / |C| with chance score_i / mean score of C, the kept keys next behind",
    .source = "Zhang et al.: CaM, 2024",
    .args = args,
    .policy = &policy,
};
