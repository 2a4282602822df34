/* CaM, cache merging: values of dropped keys go into those that follow, by chance.
 *
 *     C = the `window` kept keys next behind dropped key i,     p = clamp(score_i / mean of score over C, 0,
 * 1) with chance p: v_c += v_i / |C| for all c in C
 *
 * The paper merges while tokens are generated, a key a token: where many keys go at once, as at the end of a
 * prompt, what is handed on would make values many times longer, since keys and masses stay as they are. So
 * of those dropped the `most` with the highest scores are merged, of equal ones the later: as many as come in
 * between two times, 64, and not more at a prompt's end, where merging still loses more than dropping does.
 * The chance is drawn from hash(seed, layer, kv head, position). Zhang et al.: CaM: Cache Merging for
 * Memory-efficient LLMs Inference, 2024; `most` as in kvpress.
 */
#include "attend/cache/fold.h"

enum { WINDOW, SEED, MOST };

/* The score that the `most` dropped keys have at least; `later`: of those with that score, how many are not
 * among them, from the first on. sorted [count] is work memory. */
static float least_merged(const heed_folding *f, int64_t most, int64_t *later, float *sorted)
{
    int64_t n = 0, above = 0, equal = 0;
    for (int64_t j = 0; j < f->held->count; j++) { /* the `most` highest so far, falling */
        if (f->keep[j])
            continue;
        int64_t at = n < most ? n++ : most;
        for (; at > 0 && f->score[j] > sorted[at - 1]; at--)
            if (at < most)
                sorted[at] = sorted[at - 1];
        if (at < most)
            sorted[at] = f->score[j];
    }
    const float least = n == most ? sorted[most - 1] : -INFINITY;
    for (int64_t j = 0; j < f->held->count; j++) {
        above += !f->keep[j] && f->score[j] > least;
        equal += !f->keep[j] && f->score[j] == least;
    }
    *later = n == most ? above + equal - most : 0;
    return least;
}

static void merge(const heed_form_state *form, const heed_folding *f)
{
    const heed_held *held = f->held;
    const int64_t window = heed_arg_int(form, WINDOW), dim = held->value_dim;
    const int64_t most = heed_arg_int(form, MOST) < held->count ? heed_arg_int(form, MOST) : held->count;
    int64_t later;
    const float least = least_merged(f, most, &later, f->work);
    for (int64_t j = 0; j < held->count; j++) {
        int64_t n = 0, end = j + 1;
        float sum = 0.0f;
        if (f->keep[j] || f->score[j] < least || (f->score[j] == least && later-- > 0))
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
    HEED_COUNT_ARG("most", 1, 64, "dropped keys that are merged at once, those of the highest scores"),
    {0},
};

static const heed_policy policy = {.merge = merge};

const heed_form HEED_FORM(cache_cam) = {
    .name = "cam",
    .stage = HEED_CACHE,
    .summary = "values of dropped keys go into those that follow, with a chance that grows with their score",
    .formula = "v_c += v_i / |C| with chance score_i / mean score of C, the kept keys next behind; of the "
               "`most` dropped keys with the highest scores",
    .source = "Zhang et al.: CaM, 2024",
    .args = args,
    .policy = &policy,
};
