/* Budgets by head: the kv heads of a layer share their room, which goes where scores are highest.
 *
 *     sure_g   = the ends of head g and its best keys, floor times its budget in all
 *     budget_g = sure_g + its keys among the (sum of budgets - sum of sure) highest of all others
 *
 * Of equal scores those of the lower head come first. Needs scores that compare between heads, as weights do.
 * Feng et al.: Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation, 2024, whose safeguard
 * alpha is `floor`.
 */
#include "attend/cache/best.h"
#include "attend/cache/judge.h"

enum { FLOOR };

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The keys of head g between its ends. */
static void middle_of(const heed_shares *shares, int g, int64_t *from, int64_t *end)
{
    *from = least_of(shares->first[g], shares->held[g].count);
    *end = shares->held[g].count - least_of(shares->recent[g], shares->held[g].count - *from);
}

/* Keys of head g that are in no question. */
static int64_t sure_of(const heed_form_state *form, const heed_shares *shares, int g)
{
    const int64_t count = shares->held[g].count;
    const int64_t floor = (int64_t)(form->arg[FLOOR].number * (double)shares->budget[g] + 1e-9);
    const int64_t ends = least_of(shares->first[g] + shares->recent[g], count);
    const int64_t sure = floor > ends ? floor : ends; /* a head must see something */
    return least_of(sure > 1 ? sure : 1, least_of(shares->budget[g], count));
}

/* The scores of head g that are in question, to `out`; returns how many. */
static int64_t contestants(const heed_form_state *form, const heed_shares *shares, int g, float *out,
                           float *work)
{
    int64_t from, end, n = 0;
    middle_of(shares, g, &from, &end);
    const float *score = shares->score[g] + from;
    const int64_t best = sure_of(form, shares, g) - (shares->held[g].count - (end - from));
    heed_score_cut cut = heed_cut_of(score, end - from, best, work);
    for (int64_t j = 0; j < end - from; j++) {
        const bool tie = score[j] == cut.score && cut.ties > 0;
        cut.ties -= tie;
        if (score[j] > -INFINITY && !(score[j] > cut.score) && !tie)
            out[n++] = score[j];
    }
    return n;
}

static void share_out(const heed_form_state *form, const heed_shares *shares, float *work)
{
    int64_t room = 0, count = 0, keys = 0;
    for (int g = 0; g < shares->kv_heads; g++)
        keys += shares->held[g].count;
    float *all = work, *spare = work + keys;
    for (int g = 0; g < shares->kv_heads; g++) {
        room += shares->budget[g] - sure_of(form, shares, g);
        count += contestants(form, shares, g, all + count, spare);
    }
    heed_score_cut cut = heed_cut_of(all, count, room, spare);
    for (int g = 0; g < shares->kv_heads; g++) {
        const int64_t n = contestants(form, shares, g, all, spare);
        int64_t budget = sure_of(form, shares, g);
        for (int64_t j = 0; j < n; j++) {
            const bool tie = all[j] == cut.score && cut.ties > 0;
            cut.ties -= tie;
            budget += all[j] > cut.score || tie;
        }
        shares->budget[g] = budget;
    }
}

static const heed_arg args[] = {
    HEED_PART_ARG("floor", 0.2, "of its own budget, what a head keeps in any case"),
    {0},
};

static const heed_policy policy = {.share_out = share_out};

const heed_form HEED_FORM(cache_by_head) = {
    .name = "by_head",
    .stage = HEED_CACHE,
    .summary = "the kv heads of a layer share their budgets, which go where scores are highest",
    .formula = "budget_g = its keys among the highest scores of all heads, at least floor of its own",
    .source = "Feng et al.: Ada-KV, 2024",
    .args = args,
    .policy = &policy,
};
