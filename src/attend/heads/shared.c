/* Shared: query heads that read the same key head, and are otherwise alone.
 *
 *     query head h reads key head floor(h G / H):  G = H multi-head, 1 < G < H grouped-query, G = 1
 * multi-query
 *
 * The sizes decide, so there is nothing to do here. Shazeer 2019; Ainslie et al.: GQA, 2023.
 */
#include "attend/form.h"

const heed_form HEED_FORM(heads_shared) = {
    .name = "shared",
    .stage = HEED_HEADS,
    .summary = "multi-head, grouped-query or multi-query, as the sizes say",
    .formula = "head h reads kv head floor(h G/H)",
    .source = "Vaswani et al. 2017; Shazeer 2019; Ainslie et al. 2023",
    .row = "000.068,000.096",
};
