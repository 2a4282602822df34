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
 * still an upper bound, if a looser one. Tang, Zhao, Zhu, Xiao, Kasikci, Han: Quest, 2024.
 */
#include "attend/select/block.h"

static int64_t page_of(const heed_form_state *form)
{
    return heed_arg_int(form, 0);
}

/* [pages][2][dim]: m, then M */
static int64_t summary_floats(const heed_form_state *form, int dim)
{
    return (form->sizes.keys + page_of(form) - 1) / page_of(form) * 2 * dim;
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
            least[c] = key[c] < low ? key[c] : low;
            most[c] = key[c] > high ? key[c] : high;
        }
    }
}

static float bound(const float *restrict query, const float *restrict least, const float *restrict most,
                   int dim)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int c = 0; c < dim; c++) {
        const float low = query[c] * least[c], high = query[c] * most[c];
        sum += low > high ? low : high;
    }
    return sum;
}

static void choose(const heed_form_state *form, heed_row *row)
{
    const int64_t page = page_of(form), current = heed_block_current(row, page);
    if (current < 0)
        return;
    for (int64_t b = 0; b <= current; b++) {
        const float *least = row->summary + b * 2 * row->dim;
        row->work[b] = heed_block_is_open(row, b, page)
                           ? heed_block_value(bound(row->query_row, least, least + row->dim, row->dim))
                           : -INFINITY;
    }
    const int64_t budget = (heed_arg_int(form, 1) + page - 1) / page;
    heed_keep_blocks(row, page, current, budget - 1);
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
    .choose = choose,
};
