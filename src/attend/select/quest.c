/* Quest: pages of keys, of which those are read that could hold the largest scores.
 *
 *     u = sum_c max(q_c m_c, q_c M_c),     m, M = least and largest entry c among the keys of the page
 *
 * bounds q·k from above for every key k of the page. The budget / page pages of largest u are kept (rounded
 * up, at least one), of equal ones the lower; the page that holds the row's last open key, which is still
 * filling, is always one of them. Pages without an open key are no candidates. Keys and queries are those
 * that are multiplied: after rope, say.
 *
 * m and M are of all keys of a page, also of those that the row does not see (later ones, under `causal`):
 * still an upper bound, if a looser one. A page with an entry that is no finite number comes first.
 *
 * share=group: the query heads of a kv head choose together, by the largest of their bounds. Tang, Zhao, Zhu,
 * Xiao, Kasikci, Han: Quest, 2024.
 */
#include "attend/select/block.h"

static int64_t page_of(const heed_form_state *form)
{
    return heed_arg_int(form, 0);
}

/* [pages][2][dim]: m, then M */
static int64_t summary_floats(const heed_form_state *form, int dim, int64_t keys)
{
    return (keys + page_of(form) - 1) / page_of(form) * 2 * dim;
}

/* A quarter of the keys, rounded up, as Twilight takes for its candidates. */
static heed_status resolve(heed_form_state *form)
{
    if (!form->arg[1].given)
        form->arg[1].number = (double)((form->sizes.keys + 3) / 4);
    return HEED_OK;
}

static void summarise(const heed_form_state *form, const heed_rows *keys, int64_t key0, float *summary)
{
    const int64_t page = page_of(form);
    const int dim = keys->dim;
    for (int i = 0; i < keys->count; i++) {
        const float *restrict key = keys->in + i * keys->in_stride;
        float *restrict least = summary + (key0 + i) / page * 2 * dim, *restrict most = least + dim;
        const bool first = (key0 + i) % page == 0;
        for (int c = 0; c < dim; c++) {
            const float low = first ? INFINITY : least[c], high = first ? -INFINITY : most[c];
            const float odd = key[c] - key[c]; /* NaN where the entry is no finite number, for good */
            least[c] = (key[c] < low ? key[c] : low) + odd;
            most[c] = (key[c] > high ? key[c] : high) + odd;
        }
    }
}

/* max(q m, q M) is q m for q < 0, else q M. */
static void block_query(const heed_form_state *form, int head, const float *restrict query, int dim,
                        float *restrict out)
{
    (void)form;
    (void)head;
    for (int c = 0; c < dim; c++) {
        out[c] = query[c] < 0 ? query[c] : 0;
        out[dim + c] = query[c] < 0 ? 0 : query[c];
    }
}

static void choose_blocks(const heed_form_state *form, heed_block_row *row)
{
    const int64_t page = page_of(form), budget = (heed_arg_int(form, 1) + page - 1) / page;
    heed_keep_blocks(row, budget - 1);
}

static heed_block_rule block_rule(const heed_form_state *form)
{
    return (heed_block_rule){.keys = page_of(form), .by_group = form->arg[2].number == 1};
}

static const heed_arg args[] = {
    {.name = "page",
     .kind = HEED_ARG_INT,
     .value = 16,
     .least = 1,
     .most = INFINITY,
     .summary = "keys in a page"},
    {.name = "budget",
     .kind = HEED_ARG_INT,
     .value = NAN,
     .least = 1,
     .most = INFINITY,
     .computed = "M/4",
     .summary = "keys kept a row, in whole pages"},
    HEED_SHARE_ARG,
    {0},
};

const heed_form HEED_FORM(select_quest) = {
    .name = "quest",
    .stage = HEED_SELECT,
    .summary = "the pages of keys that could hold the largest products with the query",
    .formula = "the budget/page pages of largest sum_c max(q_c m_c, q_c M_c), m and M the page's extremes",
    .source = "Tang et al.: Quest, 2024",
    .row = "001.156",
    .args = args,
    .resolve = resolve,
    .summary_floats = summary_floats,
    .summarise = summarise,
    .choose = heed_choose_by_blocks,
    .block_rule = block_rule,
    .block_query = block_query,
    .choose_blocks = choose_blocks,
};
