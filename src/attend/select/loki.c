/* Loki: keys chosen by the first coordinates of a basis in which keys vary most.
 *
 *     q' = Pᵀ q,  k' = Pᵀ k,     estimate_j = sum_{c<r} q'_c k'_jc,     r = d_f D
 *
 * The k_f n keys of largest estimate (rounded up) of the n that a row sees are kept, of equal ones the lower;
 * they are attended to with all of q and k. P [D, D] is orthogonal, one a kv head, its columns by falling
 * variance of the keys, so that d_f=1 is the exact product. Keys and queries are those that are multiplied:
 * after rope, say. Only r numbers of each key are read to choose; they are kept beside the cache, in f32.
 *
 * basis=random takes r random directions instead: a baseline that needs no tensor. Singhania, Singh, He,
 * Feizi, Bhatele: Loki, 2024.
 *
 * Calibration: P are the eigenvectors of the covariance of each kv head's keys.
 */
#include "attend/select/basis.h"
#include "attend/select/block.h"

enum { D_F, K_F, BASIS };

static int rank_of(const heed_form_state *form, int dim)
{
    const int rank = (int)ceil(form->arg[D_F].number * dim - 1e-9);
    return rank < 1 ? 1 : rank;
}

/* [keys][rank] */
static int64_t summary_floats(const heed_form_state *form, int dim, int64_t keys)
{
    return keys * rank_of(form, dim);
}

static size_t table_bytes(const heed_form_state *form)
{
    const size_t dim = (size_t)form->sizes.dim;
    return form->arg[BASIS].number == 1 ? dim * dim * sizeof(float) : 0;
}

static void setup(heed_form_state *form)
{
    if (form->arg[BASIS].number == 1)
        heed_random_basis(form->table, (int)form->sizes.dim);
}

static const float *basis_of(const heed_form_state *form, int64_t kv_head, int dim)
{
    return form->arg[BASIS].number == 1 ? form->table : form->param[0] + kv_head * dim * dim;
}

static void summarise(const heed_form_state *form, const heed_rows *keys, int64_t key0, float *summary)
{
    const int rank = rank_of(form, keys->dim);
    for (int i = 0; i < keys->count; i++)
        heed_to_basis(basis_of(form, keys->head, keys->dim), keys->dim, rank, keys->in + i * keys->in_stride,
                      summary + (key0 + i) * rank);
}

static void block_query(const heed_form_state *form, int head, const float *query, int dim, float *out)
{
    const int64_t kv_head = head * form->sizes.kv_heads / form->sizes.heads;
    heed_to_basis(basis_of(form, kv_head, dim), dim, rank_of(form, dim), query, out);
}

static void choose_blocks(const heed_form_state *form, heed_block_row *row)
{
    int64_t seen = 0;
    for (int j = 0; j < row->blocks; j++)
        seen += row->value[j] > -INFINITY;
    heed_keep_highest(row->value, row->blocks, (int64_t)ceil(form->arg[K_F].number * (double)seen - 1e-9),
                      row->work);
}

static heed_block_rule block_rule(const heed_form_state *form)
{
    (void)form;
    return (heed_block_rule){.keys = 1};
}

/* ---- calibration ---- */

static int64_t sums(const heed_form_state *form)
{
    return form->sizes.kv_heads * heed_moments_doubles((int)form->sizes.dim);
}

static void gather(const heed_form_state *form, const heed_shown *shown, double *sums_of_layer, float *work)
{
    (void)form;
    (void)work;
    heed_moments_add(sums_of_layer + shown->kv_head * heed_moments_doubles(shown->dim), shown->dim,
                     shown->key, shown->tokens);
}

static heed_status settle(const heed_form_state *form, const double *sums_of_layer, float *const *param)
{
    const int dim = (int)form->sizes.dim;
    for (int64_t g = 0; g < form->sizes.kv_heads; g++)
        if (!heed_principal_basis(sums_of_layer + g * heed_moments_doubles(dim), dim,
                                  param[0] + g * dim * dim, param[1] + g * dim))
            return heed_fail(HEED_NO_MEMORY, "no memory for the eigenvectors of %d x %d numbers", dim, dim);
    return HEED_OK;
}

/* Components that hold 90 % of the keys' variance, the mean over kv heads. */
static double rank_at_90(const heed_form_state *form)
{
    const int64_t dim = form->sizes.dim;
    double ranks = 0;
    for (int64_t g = 0; g < form->sizes.kv_heads; g++) {
        const float *variance = form->param[1] + g * dim;
        double all = 0, held = 0;
        int64_t rank = 0;
        for (int64_t c = 0; c < dim; c++)
            all += (double)variance[c];
        while (rank < dim && held < 0.9 * all)
            held += (double)variance[rank++];
        ranks += (double)rank;
    }
    return ranks / (double)form->sizes.kv_heads;
}

static const heed_calibration calibration = {
    .sums = sums, .gather = gather, .settle = settle, .measure = rank_at_90, .measured = "rank at 90 %"};

static const heed_option bases[] = {{"learnt", NULL}, {"random", NULL}, {NULL, NULL}};

static const heed_arg args[] = {
    [D_F] = {.name = "d_f",
             .value = 0.25,
             .least = 0,
             .most = 1,
             .above = true,
             .summary = "share of the coordinates that choose"},
    [K_F] = {.name = "k_f",
             .value = 0.25,
             .least = 0,
             .most = 1,
             .above = true,
             .summary = "share of a row's keys that is kept"},
    [BASIS] = {.name = "basis",
               .kind = HEED_ARG_CHOICE,
               .options = bases,
               .summary = "the tensor, or random directions"},
    {0},
};

static void fill_identity(const heed_form_state *form, float *x)
{
    const int64_t dim = form->sizes.dim;
    for (int64_t i = 0; i < form->sizes.kv_heads * dim * dim; i++)
        x[i] = i % (dim * dim) % (dim + 1) == 0 ? 1.0f : 0.0f;
}

static const heed_param params[] = {
    {.name = "basis", .shape = "G,D,D", .fill = fill_identity, .summary = "P, a direction a column"},
    {.name = "variance", .shape = "G,D", .initial = 1.0f, .summary = "of the keys along each; not read"},
    {0},
};

const heed_form HEED_FORM(select_loki) = {
    .name = "loki",
    .stage = HEED_SELECT,
    .summary = "the keys of largest product in the few directions in which keys vary most",
    .formula = "the k_f n keys of largest sum_{c < d_f D} (Pᵀ q)_c (Pᵀ k_j)_c",
    .source = "Singhania et al.: Loki, 2024",
    .row = "001.166",
    .args = args,
    .params = params,
    .table_bytes = table_bytes,
    .setup = setup,
    .summary_floats = summary_floats,
    .summarise = summarise,
    .choose = heed_choose_by_blocks,
    .block_rule = block_rule,
    .block_query = block_query,
    .choose_blocks = choose_blocks,
    .calibration = &calibration,
};
