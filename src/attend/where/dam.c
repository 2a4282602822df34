/* DAM: each head's own pattern of columns and diagonals, found once on maps of short texts and continued to
 * any length.
 *
 *     p(i) < P:   open where mask[h, p(i), k_pos(j)]
 *     p(i) >= P:  open where k_pos(j) < P and columns[h, k_pos(j)], or p(i) - k_pos(j) < P and
 *                 diagonals[h, p(i) - k_pos(j)]
 *
 * A row of which nothing at or before its own token is open keeps that token. P is `length`. As positions
 * decide, a text is seen alike when it is read and when it is written; published is the first rule for all
 * rows of texts up to P and the second for all rows of longer ones. Zhang, Fan, Sha, Huang, Feng: DAM, 2025.
 *
 * Calibration: maps a of texts of P tokens, the mean over them, B(a) = (max(a, 1e-6)^lambda - 1) / lambda,
 * scaled to 0 .. 1 over a head's map; mask is where that reaches tau. A column (from its diagonal entry down)
 * or a diagonal is kept of which at least mu is in the mask. One of a single entry says nothing by itself,
 * and goes with its neighbour of two.
 */
#include "attend/shown.h"
#include "attend/where/where.h"
#include <stdlib.h>

enum { COLUMNS, DIAGONALS, MASK };
enum { LENGTH, TAU, LAMBDA, MU };

#define FLOOR 1e-6 /* least weight that is told from 0 */

static int64_t length_of(const heed_form_state *form)
{
    return heed_whole(form, LENGTH);
}

/* [2][heads][P + 1]: how many columns, and how many diagonals, are open before each. */
static int64_t derived_floats(const heed_form_state *form)
{
    return 2 * form->sizes.heads * (length_of(form) + 1);
}

static heed_status begin(const heed_form_state *form)
{
    const int64_t length = length_of(form), heads = form->sizes.heads;
    for (int which = COLUMNS; which <= DIAGONALS; which++)
        for (int64_t h = 0; h < heads; h++) {
            const float *open = form->param[which] + h * length;
            float *before = form->derived + (which * heads + h) * (length + 1);
            before[0] = 0;
            for (int64_t i = 0; i < length; i++)
                before[i + 1] = before[i] + (open[i] != 0.0f);
        }
    return HEED_OK;
}

/* How many of the columns or diagonals from .. to are open, those beyond 0 .. P-1 aside. */
static int64_t count(const heed_form_state *form, int which, int head, int64_t from, int64_t to)
{
    const int64_t length = length_of(form);
    const float *before = form->derived + (which * form->sizes.heads + head) * (length + 1);
    from = heed_clamp(from, 0, length);
    to = heed_clamp(to + 1, 0, length);
    return to > from ? (int64_t)(before[to] - before[from]) : 0;
}

/* Whether a head has nothing beyond P. */
static bool sees_nothing(const heed_form_state *form, int head)
{
    return count(form, COLUMNS, head, 0, INT32_MAX) + count(form, DIAGONALS, head, 0, INT32_MAX) == 0;
}

/* Rows from P on. */
static uint8_t state_beyond(const heed_form_state *form, const heed_query_range *range, int32_t key_min,
                            int32_t key_max)
{
    const int head = range->head;
    const int64_t nearest = (int64_t)range->pos_min - key_max, farthest = (int64_t)range->pos_max - key_min;
    const int64_t columns = count(form, COLUMNS, head, key_min, key_max);
    if (columns > 0 && columns == (int64_t)key_max - key_min + 1)
        return HEED_OPEN;
    const bool own = nearest <= 0 && farthest >= 0 && sees_nothing(form, head);
    return columns > 0 || own || count(form, DIAGONALS, head, nearest, farthest) > 0 ? HEED_PARTLY
                                                                                     : HEED_CLOSED;
}

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    const int64_t length = length_of(form);
    for (int b = 0; b < keys->count; b++)
        state[b] = range->pos_min >= length ? state_beyond(form, range, keys->pos_min[b], keys->pos_max[b])
                                            : HEED_PARTLY;
}

static bool has_open(const float *row, int64_t n)
{
    bool any = false;
    for (int64_t j = 0; j < n; j++)
        any |= row[j] != 0.0f;
    return any;
}

static void mask_within(const heed_form_state *form, const heed_tile *tile, int64_t query, uint8_t *open)
{
    const int64_t length = length_of(form);
    const float *row = query < 0 ? NULL : form->param[MASK] + ((int64_t)tile->head * length + query) * length;
    const bool empty = !row || !has_open(row, query + 1);
    for (int j = 0; j < tile->cols; j++) {
        const int64_t key = tile->key_pos[j];
        const bool within = row && key >= 0 && key < length;
        open[j] = (within && row[key] != 0.0f) || (empty && key == query);
    }
}

static void mask_beyond(const heed_form_state *form, const heed_tile *tile, int64_t query, uint8_t *open)
{
    const int64_t length = length_of(form);
    const float *column = form->param[COLUMNS] + tile->head * length,
                *diagonal = form->param[DIAGONALS] + tile->head * length;
    const bool empty = sees_nothing(form, tile->head);
    for (int j = 0; j < tile->cols; j++) {
        const int64_t key = tile->key_pos[j], distance = query - key;
        const bool on_column = key >= 0 && key < length && column[key] != 0.0f;
        const bool on_diagonal = distance >= 0 && distance < length && diagonal[distance] != 0.0f;
        open[j] = on_column || on_diagonal || (empty && distance == 0);
    }
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    for (int i = 0; i < tile->rows; i++)
        (tile->query_pos[i] < length_of(form) ? mask_within : mask_beyond)(form, tile, tile->query_pos[i],
                                                                           open + i * tile->stride);
}

/* ---- calibration ---- */

/* Of each head the number of windows, then the sum of its maps [P][P]. */
static int64_t sums(const heed_form_state *form)
{
    return form->sizes.heads * (1 + length_of(form) * length_of(form));
}

static int64_t work(const heed_form_state *form, int64_t tokens)
{
    (void)form;
    return tokens;
}

static void gather(const heed_form_state *form, const heed_shown *shown, double *all, float *score)
{
    const int64_t length = length_of(form);
    for (int h = 0; h < shown->group; h++) {
        double *sum = all + (shown->kv_head * shown->group + h) * (1 + length * length);
        sum[0]++;
        for (int64_t i = 0; i < shown->tokens; i++) {
            const int64_t first = heed_fast_scores(shown, h, i, score), n = i + 1 - first;
            float most = score[0];
            double total = 0;
            for (int64_t j = 0; j < n; j++)
                most = score[j] > most ? score[j] : most;
            for (int64_t j = 0; j < n; j++)
                total += exp((double)score[j] - (double)most);
            for (int64_t j = 0; j < n; j++)
                sum[1 + i * length + first + j] += exp((double)score[j] - (double)most) / total;
        }
    }
}

static double spread(double weight, double lambda)
{
    const double x = weight > FLOOR ? weight : FLOOR;
    return lambda == 0 ? log(x) : (pow(x, lambda) - 1) / lambda;
}

static void make_mask(const heed_form_state *form, const double *sum, float *to)
{
    const int64_t length = length_of(form);
    const double lambda = form->arg[LAMBDA].number, windows = sum[0] > 0 ? sum[0] : 1;
    double least = INFINITY, most = -INFINITY;
    for (int64_t i = 0; i < length; i++)
        for (int64_t j = 0; j <= i; j++) {
            const double x = spread(sum[1 + i * length + j] / windows, lambda);
            least = x < least ? x : least;
            most = x > most ? x : most;
        }
    for (int64_t i = 0; i < length; i++)
        for (int64_t j = 0; j <= i; j++) {
            const double x = spread(sum[1 + i * length + j] / windows, lambda);
            const double scaled = most > least ? (x - least) / (most - least) : 1;
            to[i * length + j] = scaled >= form->arg[TAU].number;
        }
}

/* Which columns and diagonals are in the mask. Both have P - n entries, n their number. */
static void match(const heed_form_state *form, const float *in, float *columns, float *diagonals)
{
    const int64_t length = length_of(form);
    for (int64_t n = 0; n < length; n++) {
        double column = 0, diagonal = 0;
        for (int64_t i = n; i < length; i++) {
            column += (double)in[i * length + n];
            diagonal += (double)in[i * length + i - n];
        }
        const double enough = form->arg[MU].number * (double)(length - n);
        const bool alone = n == length - 1 && n > 0;
        columns[n] = column >= enough && !(alone && columns[n - 1] == 0.0f);
        diagonals[n] = diagonal >= enough && !(alone && diagonals[n - 1] == 0.0f);
    }
}

static heed_status settle(const heed_form_state *form, const double *all, float *const *param)
{
    const int64_t length = length_of(form);
    memset(param[MASK], 0, (size_t)(form->sizes.heads * length * length) * sizeof(float));
    for (int64_t h = 0; h < form->sizes.heads; h++) {
        float *to = param[MASK] + h * length * length;
        make_mask(form, all + h * (1 + length * length), to);
        match(form, to, param[COLUMNS] + h * length, param[DIAGONALS] + h * length);
    }
    return HEED_OK;
}

/* Of the pairs of texts of P tokens. */
static double open_share(const heed_form_state *form)
{
    const int64_t length = length_of(form), heads = form->sizes.heads;
    double open = 0;
    for (int64_t i = 0; i < heads * length * length; i++)
        open += (double)form->param[MASK][i];
    return open / ((double)heads * 0.5 * (double)length * (double)(length + 1));
}

static const heed_calibration calibration = {.window = length_of,
                                             .sums = sums,
                                             .work = work,
                                             .gather = gather,
                                             .settle = settle,
                                             .measure = open_share,
                                             .measured = "open share of the mask"};

static const heed_arg args[] = {
    [LENGTH] = {.name = "length",
                .kind = HEED_ARG_INT,
                .value = 128,
                .least = 2,
                .most = 4096,
                .summary = "P, tokens of the texts the pattern was found on"},
    [TAU] = {.name = "tau",
             .value = 0.1,
             .least = 0,
             .most = 1,
             .summary = "calibration: what scaled weights must reach"},
    [LAMBDA] = {.name = "lambda",
                .value = 0.5,
                .least = 0,
                .most = 1,
                .summary = "calibration: exponent that spreads small weights"},
    [MU] = {.name = "mu",
            .value = 0.8,
            .least = 0.5,
            .above = true,
            .most = 1,
            .summary = "calibration: share of a line that must be in the mask"},
    {0},
};

static const heed_param params[] = {
    [COLUMNS] = {.name = "columns", .shape = "H,length", .initial = 1, .summary = "1 where open from P on"},
    [DIAGONALS] = {.name = "diagonals",
                   .shape = "H,length",
                   .initial = 1,
                   .summary = "1 where open from P on"},
    [MASK] = {.name = "mask", .shape = "H,length,length", .initial = 1, .summary = "1 where open before P"},
    {0},
};

const heed_form HEED_FORM(where_dam) = {
    .name = "dam",
    .stage = HEED_WHERE,
    .flags = HEED_SCATTERS | HEED_SEES_BY_HEAD,
    .summary = "each head's own columns and diagonals, found on short texts and continued",
    .formula = "columns[h, k_pos(j)] or diagonals[h, p(i) - k_pos(j)]; mask[h, p(i), k_pos(j)] before P",
    .source = "Zhang et al.: DAM, dynamic attention mask for long-context inference, 2025",
    .row = "004.190",
    .args = args,
    .params = params,
    .derived_floats = derived_floats,
    .begin = begin,
    .blocks = blocks,
    .mask = mask,
    .calibration = &calibration,
};
