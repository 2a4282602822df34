/* Every stretch of text keeps the same share.
 *
 *     score_j := rank of score_j among the keys held of j's stretch / their number,
 *     stretch = floor(position / n)
 *
 * rank 1 for the lowest, of equal scores the later higher. So a budget of a quarter of the keys keeps a
 * quarter of each stretch. As kvpress's ChunkPress.
 */
#include "attend/cache/judge.h"

enum { SIZE };

static void rank(float *score, int64_t count, float *work)
{
    for (int64_t i = 0; i < count; i++)
        work[i] = score[i];
    for (int64_t i = 0; i < count; i++) {
        int64_t below = 0;
        for (int64_t j = 0; j < count; j++)
            below += work[j] < work[i] || (work[j] == work[i] && j <= i);
        score[i] = (float)below / (float)count;
    }
}

static void regroup(const heed_form_state *form, const heed_shares *shares, float *work)
{
    const int32_t size = heed_arg_int(form, SIZE);
    for (int g = 0; g < shares->kv_heads; g++) {
        const heed_held *held = &shares->held[g];
        for (int64_t from = 0, end = 0; from < held->count; from = end) {
            while (end < held->count && held->pos[end] / size == held->pos[from] / size)
                end++;
            rank(shares->score[g] + from, end - from, work);
        }
    }
}

static const heed_arg args[] = {HEED_COUNT_ARG("n", 1, 1024, "tokens of a stretch"), {0}};

static const heed_policy policy = {.regroup = regroup};

const heed_form HEED_FORM(cache_chunkwise) = {
    .name = "chunkwise",
    .stage = HEED_CACHE,
    .summary = "every stretch of n tokens keeps the same share",
    .formula = "score_j := rank of j in its stretch, floor(position / n), over the stretch's keys",
    .source = "kvpress",
    .args = args,
    .policy = &policy,
};
