/* A share of the scores in place of a budget: the fewest keys whose scores sum to p of all.
 *
 *     budget_g = ends + the fewest keys between them, highest first, with sum of scores >= p * sum of all
 *
 * so that heads and layers whose weight lies on few keys keep few. Scores below 0 count as 0. Where the judge
 * has a budget too, no head gets more than that. Behind a judge whose scores are weights: `snapkv >
 * top_p(0.95)`. After Lin et al.: Twilight, 2025, which chooses what is read in this way.
 */
#include "attend/cache/judge.h"

enum { P };

/* Falling, by heap sort: no memory, the same time whatever the scores. */
static void sink(float *x, int64_t at, int64_t count)
{
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && x[child + 1] < x[child];
        if (x[at] <= x[child])
            return;
        const float swap = x[at];
        x[at] = x[child];
        x[child] = swap;
    }
}

static void sort(float *x, int64_t count)
{
    for (int64_t at = count / 2; at-- > 0;)
        sink(x, at, count);
    for (int64_t end = count; end-- > 1;) {
        const float least = x[0];
        x[0] = x[end];
        x[end] = least;
        sink(x, 0, end);
    }
}

static int64_t fewest(const float *score, int64_t count, double p, float *work)
{
    double sum = 0.0, so_far = 0.0;
    for (int64_t j = 0; j < count; j++) {
        work[j] = score[j] > 0.0f ? score[j] : 0.0f;
        sum += work[j];
    }
    sort(work, count);
    int64_t n = 0;
    while (n < count && so_far < p * sum * (1 - 1e-12))
        so_far += work[n++];
    return p < 1 ? n : count;
}

static void share_out(const heed_form_state *form, const heed_shares *shares, float *work)
{
    for (int g = 0; g < shares->kv_heads; g++) {
        const int64_t count = shares->held[g].count;
        const int64_t first = shares->first[g] < count ? shares->first[g] : count;
        const int64_t recent = shares->recent[g] < count - first ? shares->recent[g] : count - first;
        const int64_t budget =
            first + recent +
            fewest(shares->score[g] + first, count - first - recent, form->arg[P].number, work);
        shares->budget[g] = budget < shares->budget[g] ? budget : shares->budget[g];
    }
}

static const heed_arg args[] = {
    {.name = "p", .least = 0, .most = 1, .above = true, .required = true, .summary = "share of the scores"},
    {0},
};

static const heed_policy policy = {.share_out = share_out, .bounds = true};

const heed_form HEED_FORM(cache_top_p) = {
    .name = "top_p",
    .stage = HEED_CACHE,
    .summary = "the fewest keys whose scores sum to p of all",
    .formula = "budget = ends + the fewest keys, highest first, with sum of scores >= p * sum of all",
    .source = "after Lin et al.: Twilight, 2025",
    .args = args,
    .policy = &policy,
};
