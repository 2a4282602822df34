/* RazorAttention, for heads that are no retrieval heads: sinks, a window, and one token for all that was
 * dropped.
 *
 *     kept: the first `first` keys, the newest max(least, share * visible), and before them a token with
 *     k^ = mean k, v^ = mean v of the N dropped keys,     whose weight counts N times:
 *     out = (N e^(q.k^) v^ + sum_kept e^(q.k) v) / (N e^(q.k^) + sum_kept e^(q.k))
 *
 * At each act the token takes in what is dropped since, so the means are those of all. compensation=no drops
 * it. Heads that keep all (the paper's echo and induction heads) are named by a prefix: `cache=razor; heads
 * 2,5: cache=f16`. Tang et al.: RazorAttention: Efficient KV Cache Compression Through Retrieval Heads, 2024;
 * the paper's least is 4000.
 */
#include "attend/cache/fold.h"

enum { FIRST, SHARE, LEAST, COMPENSATION };
enum { YES, NO };

static void choose(const heed_form_state *form, const heed_held *held, uint8_t *keep, float *work)
{
    (void)work;
    const int64_t share = (int64_t)(form->arg[SHARE].number * (double)held->visible + 1e-9);
    const int64_t least = heed_arg_int(form, LEAST), recent = share > least ? share : least;
    const int64_t token = heed_arg_int(form, COMPENSATION) == YES;
    for (int64_t j = heed_arg_int(form, FIRST); j < held->count - recent - token; j++)
        keep[j] = 0;
}

static void merge(const heed_form_state *form, const heed_folding *folding)
{
    if (heed_arg_int(form, COMPENSATION) == YES)
        heed_fold_all(folding);
}

static const heed_option yes_no[] = {{.name = "yes"}, {.name = "no"}, {0}};

static const heed_arg args[] = {
    HEED_COUNT_ARG("first", 0, 4, "keys at the beginning that stay"),
    HEED_PART_ARG("share", 0.2, "of the visible tokens, for the newest keys"),
    HEED_COUNT_ARG("least", 1, 64, "newest keys that stay at least"),
    {.name = "compensation",
     .kind = HEED_ARG_CHOICE,
     .value = YES,
     .options = yes_no,
     .summary = "one token"},
    {0},
};

static const heed_policy policy = {.choose = choose, .merge = merge};

const heed_form HEED_FORM(cache_razor) = {
    .name = "razor",
    .stage = HEED_CACHE,
    .summary = "first and newest keys, and one token that stands for all dropped ones",
    .formula = "keeps first + max(least, share * visible) keys and (mean k, mean v) with mass N",
    .source = "Tang et al.: RazorAttention, 2024",
    .row = "004.197",
    .args = args,
    .policy = &policy,
};
