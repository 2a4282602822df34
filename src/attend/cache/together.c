/* The kv heads of a layer keep the same tokens.
 *
 *     score_j := mean of the scores that the layer's kv heads give the token at j's position, of those that
 * hold it
 *
 * Oren et al.: Transformers are Multi-State RNNs, 2024, do so in TOVA: `tova(...) > together`.
 */
#include "attend/cache/judge.h"

/* Positions rise in every head, so all heads are walked through together. */
static void regroup(const heed_form_state *form, const heed_shares *shares, float *work)
{
    (void)form;
    int64_t keys = 0, first = 0;
    float *mean = work;
    for (int g = 0; g < shares->kv_heads; g++)
        keys += shares->held[g].count;
    for (int g = 0; g < shares->kv_heads; g++) {
        const heed_held *held = &shares->held[g];
        for (int64_t j = 0; j < held->count; j++)
            mean[first + j] = work[keys + first + j] = 0.0f;
        for (int other = 0; other < shares->kv_heads; other++) {
            const heed_held *from = &shares->held[other];
            for (int64_t j = 0, i = 0; j < held->count; j++) {
                while (i < from->count && from->pos[i] < held->pos[j])
                    i++;
                if (i == from->count || from->pos[i] != held->pos[j])
                    continue;
                mean[first + j] += shares->score[other][i];
                work[keys + first + j] += 1.0f;
            }
        }
        first += held->count;
    }
    first = 0;
    for (int g = 0; g < shares->kv_heads; g++) {
        for (int64_t j = 0; j < shares->held[g].count; j++)
            shares->score[g][j] = mean[first + j] / work[keys + first + j];
        first += shares->held[g].count;
    }
}

static const heed_policy policy = {.regroup = regroup};

const heed_form HEED_FORM(cache_together) = {
    .name = "together",
    .stage = HEED_CACHE,
    .summary = "the kv heads of a layer keep the same tokens",
    .formula = "score_j := mean over the layer's kv heads of the score at j's position",
    .source = "Oren et al.: Transformers are Multi-State RNNs, 2024",
    .policy = &policy,
};
