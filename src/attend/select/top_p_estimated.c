/* Top-p by estimated weights: the keys that hold a share of what a copy of the keys in few bits says.
 *
 *     copy_jc = z_j + a_j round((k_jc - z_j) / a_j),     z_j = min_c k_jc,  a_j = (max_c k_jc - z_j) /
 * (2^bits - 1) w_j = softmax of q · copy_j over the open keys
 *
 * The fewest keys are kept whose w sum to at least p, highest first, of equal ones the lower. They are
 * attended to with their own products. This is the second half of Twilight; its first is a selector in front:
 * quest, say. Each query head keeps its own keys, and heads that share keys read the union.
 *
 * The copy has the values of one in few bits, each token with its own scale and zero, but lies beside the
 * cache as floats: it shows what such estimates lose, and saves values but no reading of keys. Lin et al.:
 * Twilight, 2025.
 */
#include "attend/select/block.h"
#include "attend/select/share.h"

enum { P, BITS };

static int64_t summary_floats(const heed_form_state *form, int dim, int64_t keys)
{
    (void)form;
    return keys * dim;
}

static void summarise(const heed_form_state *form, const heed_rows *keys, int64_t key0, float *summary)
{
    const float levels = (float)((1 << heed_arg_int(form, BITS)) - 1);
    for (int i = 0; i < keys->count; i++) {
        const float *restrict key = keys->in + i * keys->in_stride;
        float *restrict copy = summary + (key0 + i) * keys->dim;
        float least = INFINITY, most = -INFINITY;
        for (int c = 0; c < keys->dim; c++) {
            least = key[c] < least ? key[c] : least;
            most = key[c] > most ? key[c] : most;
        }
        const float step = (most - least) / levels;
        for (int c = 0; c < keys->dim; c++)
            copy[c] = step > 0 ? least + step * rintf((key[c] - least) / step) : key[c];
    }
}

static void block_query(const heed_form_state *form, int head, const float *query, int dim, float *out)
{
    (void)form;
    (void)head;
    memcpy(out, query, (size_t)dim * sizeof *out);
}

/* Where nothing is known of a key, nothing is left out. */
static void choose_blocks(const heed_form_state *form, heed_block_row *row)
{
    for (int j = 0; j < row->blocks; j++)
        if (row->value[j] == INFINITY)
            return;
    heed_keep_share(row->value, row->blocks, form->arg[P].number, row->work);
}

static heed_block_rule block_rule(const heed_form_state *form)
{
    (void)form;
    return (heed_block_rule){.keys = 1};
}

static const heed_arg args[] = {
    [P] = {.name = "p",
           .least = 0,
           .above = true,
           .most = 1,
           .required = true,
           .summary = "share of the estimated weights that is kept"},
    [BITS] = {.name = "bits",
              .kind = HEED_ARG_INT,
              .value = 4,
              .least = 1,
              .most = 16,
              .summary = "of an entry of the copy"},
    {0},
};

const heed_form HEED_FORM(select_top_p_estimated) = {
    .name = "top_p_estimated",
    .stage = HEED_SELECT,
    .summary = "the fewest keys whose weights, from a copy of the keys in few bits, sum to at least p",
    .formula = "highest softmax of q · copy_j first until they sum to p",
    .source = "Lin et al.: Twilight, 2025; the copy has the values of few bits but is stored as floats",
    .row = "001.004",
    .args = args,
    .summary_floats = summary_floats,
    .summarise = summarise,
    .choose = heed_choose_by_blocks,
    .block_rule = block_rule,
    .block_query = block_query,
    .choose_blocks = choose_blocks,
};
