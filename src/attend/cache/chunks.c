/* Chunks that stay or go together.
 *
 *     score_j := mean score of the keys held of j's chunk,     chunk = floor(position / n)
 *
 * so that a budget of whole chunks keeps whole chunks, of the last one its later keys. The paper takes the
 * chunks that all kv heads together find best: `> together > chunks(n)`. Liu et al.: ChunkKV:
 * Semantic-Preserving KV Cache Compression, 2025; n as in kvpress.
 */
#include "attend/cache/judge.h"

enum { SIZE };

static void regroup_head(const heed_held *held, int32_t size, float *score)
{
    for (int64_t from = 0, end; from < held->count; from = end) {
        float sum = 0.0f;
        for (end = from; end < held->count && held->pos[end] / size == held->pos[from] / size; end++)
            sum += score[end];
        for (int64_t j = from; j < end; j++)
            score[j] = sum / (float)(end - from);
    }
}

static void regroup(const heed_form_state *form, const heed_shares *shares, float *work)
{
    (void)work;
    for (int g = 0; g < shares->kv_heads; g++)
        regroup_head(&shares->held[g], heed_arg_int(form, SIZE), shares->score[g]);
}

static const heed_arg args[] = {HEED_COUNT_ARG("n", 1, 20, "tokens of a chunk"), {0}};

static const heed_policy policy = {.regroup = regroup};

const heed_form HEED_FORM(cache_chunks) = {
    .name = "chunks",
    .stage = HEED_CACHE,
    .summary = "chunks of n tokens stay or go together",
    .formula = "score_j := mean score of j's chunk, floor(position / n)",
    .source = "Liu et al.: ChunkKV, 2025",
    .args = args,
    .policy = &policy,
};
