/* FlexPrefill: each head has the pattern that its last queries ask for, and as many blocks as it takes.
 *
 *     a_b = weight that the last `block` queries give to the keys of block b, shared out to 1
 *     e_b = softmax over b of mean of these queries · mean of the keys of block b
 *     D = sqrt((KL(a || m) + KL(e || m)) / 2),   m = (a + e) / 2       (Jensen and Shannon, in nats)
 *
 * With D < tau means tell enough, and the head is query-aware: for every block of queries, e of its own mean
 * query over the blocks before a row's current one, of which the fewest are kept that sum to gamma. Else the
 * head has vertical and slash lines: of columns and of diagonals of blocks the fewest that hold gamma of the
 * weight a of the last queries. Highest first, of equal ones the lower. The first block and the current one,
 * which holds the row's last open key, are always open. gamma=1 keeps all.
 *
 * Budgets are by block of queries here; the paper shares gamma out over all blocks of queries of a head. The
 * queries of one execution are observed, so a query that comes alone is judged by itself, after it has seen
 * all keys. Lai et al.: FlexPrefill, 2025.
 */
#include "attend/select/block.h"

enum { GAMMA, TAU, BLOCK };

static int64_t blocks_of(const heed_form_state *form)
{
    const int64_t block = heed_arg_int(form, BLOCK);
    return (form->sizes.keys + block - 1) / block;
}

/* [2][blocks]: weights of columns, then of diagonals, after settling -inf where not chosen; then whether the
 * head is query-aware. */
static int64_t estimate_floats(const heed_form_state *form, int64_t blocks)
{
    (void)form;
    return 2 * blocks + 1;
}

/* [blocks][dim]: the mean of the keys so far */
static int64_t summary_floats(const heed_form_state *form, int dim, int64_t keys)
{
    const int64_t block = heed_arg_int(form, BLOCK);
    return (keys + block - 1) / block * dim;
}

static void summarise(const heed_form_state *form, const heed_rows *keys, int64_t key0, float *summary)
{
    const int64_t block = heed_arg_int(form, BLOCK);
    for (int i = 0; i < keys->count; i++) {
        const float *restrict key = keys->in + i * keys->in_stride;
        float *restrict mean = summary + (key0 + i) / block * keys->dim;
        const float share = 1.0f / (float)((key0 + i) % block + 1);
        const bool first = (key0 + i) % block == 0;
        for (int c = 0; c < keys->dim; c++)
            mean[c] = first ? key[c] : mean[c] + (key[c] - mean[c]) * share;
    }
}

static void block_query(const heed_form_state *form, int head, const float *query, int dim, float *out)
{
    (void)form, (void)head;
    memcpy(out, query, (size_t)dim * sizeof *out);
}

static void observe(const heed_form_state *form, const heed_observed *seen)
{
    const int64_t block = heed_arg_int(form, BLOCK);
    float *column = seen->estimate, *slash = column + blocks_of(form);
    for (int i = 0; i < seen->rows; i++)
        for (int64_t b = 0; b <= seen->current[i]; b++) {
            const int64_t end = heed_block_end(b, block, seen->keys);
            float sum = 0;
            for (int64_t j = b * block; j < end; j++)
                sum += seen->weight[i * seen->stride + j];
            column[b] += sum;
            slash[seen->current[i] - b] += sum;
        }
}

/* weight[b] = exp(value[b] - the largest), 0 where that is -inf; returns their sum. */
static double soften(const float *value, int n, float *weight)
{
    float most = -INFINITY;
    double sum = 0;
    for (int b = 0; b < n; b++)
        most = value[b] > most ? value[b] : most;
    for (int b = 0; b < n; b++) {
        const bool all = value[b] == most; /* infinite, maybe */
        weight[b] = value[b] == -INFINITY ? 0.0f : all ? 1.0f : heed_exp(value[b] - most);
        sum += (double)weight[b];
    }
    return sum;
}

static double divergence(double p, double q)
{
    return p > 0 ? p * log(2 * p / (p + q)) : 0;
}

static void settle(const heed_form_state *form, const heed_settled *seen)
{
    float *column = seen->estimate, *means = seen->work;
    const double mass = soften(seen->value, seen->blocks, means), gamma = form->arg[GAMMA].number;
    double total = 0, apart = 0;
    for (int b = 0; b < seen->blocks; b++)
        total += (double)column[b];
    for (int b = 0; b < seen->blocks && total > 0 && mass > 0; b++) {
        const double a = (double)column[b] / total, e = (double)means[b] / mass;
        apart += 0.5 * (divergence(a, e) + divergence(e, a));
    }
    column[2 * blocks_of(form)] = sqrt(apart) < form->arg[TAU].number;
    for (int n = 0; n < 2 && gamma < 1; n++) {
        float *line = column + n * blocks_of(form);
        for (int b = 0; b < seen->blocks; b++)
            line[b] = line[b] >= 0 ? line[b] : INFINITY; /* NaN: nothing is known of it */
        heed_keep_mass(line, seen->blocks, gamma, seen->work);
    }
}

static void keep_nearest(const heed_form_state *form, heed_block_row *row)
{
    if (row->current == 0)
        return;
    soften(row->value, row->current, row->work);
    for (int b = 0; b < row->current; b++)
        row->work[b] = row->value[b] == -INFINITY ? -INFINITY : row->work[b];
    heed_keep_mass(row->work, row->current, form->arg[GAMMA].number, row->work + row->blocks);
    for (int b = 1; b < row->current; b++)
        row->value[b] = row->work[b] == -INFINITY ? -INFINITY : row->value[b];
}

static void choose_blocks(const heed_form_state *form, heed_block_row *row)
{
    const float *column = row->estimate, *slash = column + blocks_of(form);
    if (form->arg[GAMMA].number >= 1)
        return;
    if (column[2 * blocks_of(form)] > 0) {
        keep_nearest(form, row);
        return;
    }
    for (int b = 1; b < row->current; b++)
        if (column[b] == -INFINITY && slash[row->current - b] == -INFINITY)
            row->value[b] = -INFINITY;
}

static heed_block_rule block_rule(const heed_form_state *form)
{
    const int block = (int)heed_arg_int(form, BLOCK);
    return (heed_block_rule){.keys = block, .queries = block, .observes = block};
}

static const heed_arg args[] = {
    [GAMMA] = {.name = "gamma",
               .value = 0.95,
               .least = 0,
               .most = 1,
               .above = true,
               .summary = "share of the weight, seen or estimated, that is kept"},
    [TAU] = {.name = "tau",
             .value = 0.1,
             .least = 0,
             .most = INFINITY,
             .summary = "below this distance a head is query-aware; 0: none is"},
    [BLOCK] = {.name = "block",
               .kind = HEED_ARG_INT,
               .value = 64,
               .least = 2,
               .most = 256,
               .summary = "queries, and keys, in a block"},
    {0},
};

const heed_form HEED_FORM(select_flexprefill) = {
    .name = "flexprefill",
    .stage = HEED_SELECT,
    .summary = "by head nearest blocks or vertical and slash lines, as many as hold a share of the weight",
    .formula = "query-aware where means tell the last queries' weights to within tau, else lines; to gamma",
    .source = "Lai et al.: FlexPrefill, 2025",
    .args = args,
    .summary_floats = summary_floats,
    .summarise = summarise,
    .choose = heed_choose_by_blocks,
    .block_rule = block_rule,
    .block_query = block_query,
    .choose_blocks = choose_blocks,
    .estimate_floats = estimate_floats,
    .observe = observe,
    .settle = settle,
};
