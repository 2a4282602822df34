/* SeerAttention (row 001.187): blocks of keys by a gate that has learnt where attention will be large.
 *
 *     z_ib = (Wq mean(q of block i))·(Wk [max, min, mean of k of block b]),     G_i = softmax of z_ib, b < i
 *     kept: the query's block, the first one, and the k - 2 others of largest z, or all with G > threshold
 *
 * Queries and keys are those that are multiplied, queries with their scale: where the paper pools before RoPE
 * and turns the result to a block's first place, here what is pooled has been turned. Wq and the part of Wk
 * for means begin as the identity, so that the gate is the product of means. heed calibrate makes them: KL of
 * G to the largest weight of each tile of `block` queries and keys, rows renewed to sum 1, `steps` steps of
 * Adam a window, the model as it is. Fewer queries than a block, as in decoding, are pooled as far as they
 * go. Gao et al.: SeerAttention, 2024.
 */
#include "attend/select/seer.h"
#include "attend/select/block.h"

enum { BLOCK, MOST, THRESHOLD, STEPS, RATE };
enum { WQ, WK };

static int64_t block_of(const heed_form_state *form)
{
    return heed_arg_int(form, BLOCK);
}

/* [blocks][3][dim]: largest, least, sum */
static int64_t summary_floats(const heed_form_state *form, int dim, int64_t keys)
{
    return (keys + block_of(form) - 1) / block_of(form) * 3 * dim;
}

static void summarise(const heed_form_state *form, const heed_rows *keys, int64_t key0, float *summary)
{
    const int dim = keys->dim;
    for (int i = 0; i < keys->count; i++) {
        const float *restrict key = keys->in + i * keys->in_stride;
        float *restrict most = summary + (key0 + i) / block_of(form) * 3 * dim, *restrict least = most + dim,
                        *restrict sum = least + dim;
        const bool first = (key0 + i) % block_of(form) == 0;
        for (int c = 0; c < dim; c++) {
            const float odd = key[c] - key[c]; /* NaN where the entry is no finite number, for good */
            most[c] = (first || key[c] > most[c] ? key[c] : most[c]) + odd;
            least[c] = (first || key[c] < least[c] ? key[c] : least[c]) + odd;
            sum[c] = first ? key[c] : sum[c] + key[c];
        }
    }
}

/* Wk^T Wq query; the mean is of a full block. */
static void block_query(const heed_form_state *form, int head, const float *restrict query, int dim,
                        float *restrict out)
{
    const float *Wq = form->param[WQ] + (int64_t)head * dim * dim,
                *Wk = form->param[WK] + (int64_t)head * dim * 3 * dim;
    const float part = 1.0f / (float)block_of(form);
    memset(out, 0, (size_t)(3 * dim) * sizeof *out);
    for (int r = 0; r < dim; r++) {
        float x = 0.0f;
#pragma omp simd reduction(+ : x)
        for (int c = 0; c < dim; c++)
            x += Wq[r * dim + c] * query[c];
#pragma omp simd
        for (int c = 0; c < 3 * dim; c++)
            out[c] += x * Wk[(int64_t)r * 3 * dim + c];
    }
    for (int c = 2 * dim; c < 3 * dim; c++)
        out[c] *= part;
}

static void choose_blocks(const heed_form_state *form, heed_block_row *row)
{
    const float threshold = heed_arg_float(form, THRESHOLD);
    const bool first = row->current > 0 && row->value[0] > -INFINITY;
    float most = -INFINITY, sum = 0.0f;
    row->value[row->current] = -INFINITY; /* kept already */
    for (int b = 0; b < row->blocks; b++)
        most = row->value[b] > most ? row->value[b] : most;
    for (int b = 0; b < row->blocks; b++)
        sum += row->value[b] > -INFINITY ? heed_exp(row->value[b] - most) : 0.0f;
    if (first)
        row->value[0] = -INFINITY;
    for (int b = 0; b < row->blocks && threshold > 0.0f; b++)
        if (!(heed_exp(row->value[b] - most) > threshold * sum))
            row->value[b] = -INFINITY;
    const int64_t others = heed_arg_int(form, MOST) - 1 - first;
    if (threshold <= 0.0f)
        heed_keep_highest(row->value, row->blocks, others < 0 ? 0 : others, row->work);
    row->value[row->current] = INFINITY;
    if (first)
        row->value[0] = INFINITY;
}

static heed_block_rule block_rule(const heed_form_state *form)
{
    return (heed_block_rule){.keys = block_of(form), .queries = (int)block_of(form)};
}

/* ---- calibration: of a head the number of steps so far, the last loss, W, m and v ---- */

static int64_t weights_of(const heed_form_state *form)
{
    return 4 * form->sizes.dim * form->sizes.dim;
}

static int64_t sums(const heed_form_state *form)
{
    return form->sizes.heads * (2 + 3 * weights_of(form));
}

/* Doubles, in pairs of floats: pooled queries, keys, targets, a gradient, work of the loss; and a row. */
static int64_t work(const heed_form_state *form, int64_t tokens)
{
    const int64_t dim = form->sizes.dim, blocks = tokens / block_of(form);
    return 2 * (blocks * (4 * dim + blocks) + weights_of(form) + (blocks + 1) * (2 * dim + 1)) +
           (tokens + 1) / 2 * 2;
}

static void identity(double *W, int dim)
{
    for (int r = 0; r < dim; r++) {
        W[(int64_t)r * dim + r] = 1;
        W[((int64_t)dim + 3 * r + 2) * dim + r] = 1;
    }
}

/* Pools a head's queries and tiles its attention. */
static void look(const heed_form_state *form, const heed_shown *shown, int h, int64_t blocks, double *query,
                 double *target, float *score)
{
    const int64_t block = block_of(form);
    memset(query, 0, (size_t)(blocks * shown->dim) * sizeof *query);
    memset(target, 0, (size_t)(blocks * blocks) * sizeof *target);
    for (int64_t t = 0; t < blocks * block; t++) {
        const int64_t i = t / block, first = heed_shown_scores(shown, h, t, score);
        const float *q = shown->query + ((int64_t)h * shown->tokens + t) * shown->dim;
        for (int c = 0; c < shown->dim; c++)
            query[i * shown->dim + c] += (double)q[c] / (double)block;
        memmove(score + first, score, (size_t)(t + 1 - first) * sizeof *score);
        for (int64_t j = 0; j < first; j++)
            score[j] = -INFINITY;
        heed_seer_tiles(score, t, block, i, target + i * blocks);
    }
    for (int64_t i = 1; i < blocks; i++) {
        double sum = 0;
        for (int64_t b = 0; b < i; b++)
            sum += target[i * blocks + b];
        for (int64_t b = 0; b < i; b++)
            target[i * blocks + b] = sum > 0 ? target[i * blocks + b] / sum : 1 / (double)i;
    }
}

static void gather(const heed_form_state *form, const heed_shown *shown, double *all, float *room)
{
    const int64_t block = block_of(form), blocks = shown->tokens / block, n = weights_of(form);
    double *query = (double *)(void *)room, *key = query + blocks * shown->dim,
           *target = key + blocks * 3 * shown->dim, *dW = target + blocks * blocks, *rest = dW + n;
    float *score = (float *)(rest + (blocks + 1) * (2 * shown->dim + 1));
    const heed_seer_text text = {shown->dim, blocks, query, key, target};
    for (int64_t b = 0; b < blocks; b++)
        heed_seer_pool_keys(shown->key + b * block * shown->dim, block, shown->dim, key + b * 3 * shown->dim);
    for (int h = 0; h < shown->group && blocks > 2; h++) {
        double *of = all + (int64_t)(shown->kv_head * shown->group + h) * (2 + 3 * n), *W = of + 2;
        if (of[0] == 0)
            identity(W, shown->dim);
        look(form, shown, h, blocks, query, target, score);
        for (int step = 0; step < heed_arg_int(form, STEPS); step++) {
            memset(dW, 0, (size_t)n * sizeof *dW);
            of[1] = heed_seer_loss(&text, W, dW, rest);
            heed_seer_step(W, W + n, W + 2 * n, dW, n, form->arg[RATE].number, ++of[0]);
        }
    }
}

static heed_status settle(const heed_form_state *form, const double *all, float *const *param)
{
    const int64_t dim = form->sizes.dim, n = weights_of(form);
    for (int64_t h = 0; h < form->sizes.heads; h++) {
        const double *of = all + h * (2 + 3 * n), *W = of + 2;
        for (int64_t i = 0; i < n && of[0] > 0; i++)
            *(i < dim * dim ? param[WQ] + h * dim * dim + i : param[WK] + h * 3 * dim * dim + i - dim * dim) =
                (float)W[i];
    }
    return HEED_OK;
}

static void fill_query(const heed_form_state *form, float *x)
{
    const int64_t dim = form->sizes.dim;
    for (int64_t i = 0; i < form->sizes.heads * dim * dim; i++)
        x[i] = i / dim % dim == i % dim;
}

static void fill_key(const heed_form_state *form, float *x)
{
    const int64_t dim = form->sizes.dim;
    for (int64_t i = 0; i < form->sizes.heads * dim * 3 * dim; i++)
        x[i] = i / (3 * dim) % dim + 2 * dim == i % (3 * dim);
}

static const heed_calibration calibration = {.sums = sums, .work = work, .gather = gather, .settle = settle};

static const heed_arg args[] = {
    [BLOCK] = {.name = "block",
               .kind = HEED_ARG_INT,
               .value = 64,
               .least = 1,
               .most = 1 << 16,
               .summary = "keys in a block, and queries"},
    [MOST] = {.name = "k",
              .kind = HEED_ARG_INT,
              .value = 8,
              .least = 1,
              .most = INFINITY,
              .summary = "blocks kept a row, the query's and the first one counted"},
    [THRESHOLD] = {.name = "threshold",
                   .value = 0,
                   .most = 1,
                   .summary = "above 0: instead of k, blocks whose gate is larger"},
    [STEPS] = {.name = "steps",
               .kind = HEED_ARG_INT,
               .value = 8,
               .most = 10000,
               .summary = "calibration: steps a window"},
    [RATE] = {.name = "rate", .value = 3e-3, .most = 1, .summary = "calibration: learning rate"},
    {0},
};

static const heed_param params[] = {
    [WQ] = {.name = "query", .shape = "H,D,D", .fill = fill_query, .summary = "map of pooled queries"},
    [WK] = {.name = "key", .shape = "H,D,3*D", .fill = fill_key, .summary = "map of pooled keys"},
    {0},
};

const heed_form HEED_FORM(select_seer) = {
    .name = "seer",
    .stage = HEED_SELECT,
    .summary = "blocks of keys by a gate that has learnt where attention will be large",
    .formula = "k blocks of largest (Wq mean q)·(Wk [max, min, mean k]), the query's and the first always",
    .source = "Gao et al.: SeerAttention, 2024",
    .row = "001.187",
    .args = args,
    .params = params,
    .summary_floats = summary_floats,
    .summarise = summarise,
    .choose = heed_choose_by_blocks,
    .block_rule = block_rule,
    .block_query = block_query,
    .choose_blocks = choose_blocks,
    .calibration = &calibration,
};
