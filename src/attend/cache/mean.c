/* One token for all that is dropped.
 *
 *     the kept key behind the last dropped one becomes (sum m_i k_i / sum m_i, sum m_i v_i / sum m_i) over
 * itself and all dropped keys, and its mass sum m_i
 *
 * m: how many keys each stands for. Where no kept key follows, it is the last before. Made for windows:
 * `streaming(...) > mean` compensates for what left the window. After the compensation token of Tang et al.:
 * RazorAttention, 2024.
 */
#include "attend/cache/fold.h"

static void merge(const heed_form_state *form, const heed_folding *folding)
{
    (void)form;
    heed_fold_all(folding);
}

static const heed_policy policy = {.merge = merge};

const heed_form HEED_FORM(cache_mean) = {
    .name = "mean",
    .stage = HEED_CACHE,
    .summary = "dropped keys go into the kept one behind the last of them, as their mean",
    .formula = "k := sum m k / sum m, v := sum m v / sum m, m := sum m",
    .source = "after Tang et al.: RazorAttention, 2024",
    .row = "004.197",
    .policy = &policy,
};
