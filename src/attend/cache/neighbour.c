/* Dropped keys go into their neighbour in the text.
 *
 *     each dropped key i into the kept key c with least |pos_i - pos_c|, of two the earlier:
 *     k_c := sum m k / sum m, v_c := sum m v / sum m over c and those that go into it, m_c := sum m
 *
 * m: how many keys each stands for. The baseline of merging by similarity.
 */
#include "attend/cache/fold.h"

static void merge(const heed_form_state *form, const heed_folding *folding)
{
    (void)form;
    const heed_held *held = folding->held;
    int64_t before = -1, after = -1; /* kept keys around j */
    for (int64_t j = 0; j < held->count; j++) {
        if (folding->keep[j]) {
            before = j;
            continue;
        }
        for (after = after > j ? after : j; after < held->count && !folding->keep[after]; after++)
            ;
        const bool follows = after < held->count;
        if (before < 0 && !follows)
            return;
        const bool earlier =
            before >= 0 && (!follows || held->pos[j] - held->pos[before] <= held->pos[after] - held->pos[j]);
        heed_fold_row(folding, earlier ? before : after, j);
    }
}

static const heed_policy policy = {.merge = merge};

const heed_form HEED_FORM(cache_neighbour) = {
    .name = "neighbour",
    .stage = HEED_CACHE,
    .summary = "dropped keys go into the kept key next to them in the text",
    .formula = "into the c of least |pos_i - pos_c|: means of k and v by mass, masses summed",
    .policy = &policy,
};
