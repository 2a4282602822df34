/* QAdA: each query of each head decides whether the keys near it, and the first ones, are enough.
 *
 *     local = log sum exp s_j over the keys k_pos(j) < sinks or p(i) - k_pos(j) < window
 *     far   = log n + q·mean + qᵀ covariance q / 2,     n far keys, as if their scores were normal
 *
 * Where exp(local) / (exp(local) + exp(far)) >= tau the local keys alone are kept, else all; tau above 1
 * keeps all. q carries the score's scale. mean [D] and covariance [D, D] are those of the far keys, by kv
 * head.
 *
 * far=exact takes the log of the sum of exp of the far keys' own scores: what the model of them is measured
 * against. All scores are made either way; values of far keys are read only where they are kept. Initially
 * mean and covariance are 0, as if far scores were 0.
 *
 * Calibration: mean and covariance of the keys from position `sinks` on.
 */
#include "attend/select/basis.h"
#include "attend/select/cut.h"

enum { WINDOW, SINKS, TAU, FAR };
enum { MEAN, COVARIANCE };

static bool is_local(const heed_form_state *form, const heed_row *row, int j)
{
    return row->key_pos[j] < form->arg[SINKS].number ||
           (double)row->pos - (double)row->key_pos[j] < form->arg[WINDOW].number;
}

/* q·mean + qᵀ covariance q / 2: the log of the mean of exp of a normal score. */
static double far_mean(const heed_form_state *form, const heed_row *row)
{
    const int64_t dim = row->dim, kv_head = row->head * form->sizes.kv_heads / form->sizes.heads;
    const float *mean = form->param[MEAN] + kv_head * dim,
                *covariance = form->param[COVARIANCE] + kv_head * dim * dim, *query = row->query_row;
    double first = 0, second = 0;
    for (int64_t a = 0; a < dim; a++) {
        float sum = 0;
        for (int64_t b = 0; b < dim; b++)
            sum += covariance[a * dim + b] * query[b];
        first += (double)query[a] * (double)mean[a];
        second += (double)query[a] * (double)sum;
    }
    return first + 0.5 * second;
}

/* Log of the sum of exp of the open scores that are local, or that are not; -inf where there is none. */
static double mass(const heed_form_state *form, const heed_row *row, bool local, int *count)
{
    float most = -INFINITY;
    double sum = 0;
    *count = 0;
    for (int j = 0; j < row->cols; j++)
        if (row->score[j] > most && is_local(form, row, j) == local)
            most = row->score[j];
    if (most == -INFINITY)
        return (double)most;
    for (int j = 0; j < row->cols; j++)
        if (row->score[j] > -INFINITY && is_local(form, row, j) == local) {
            sum += exp((double)row->score[j] - (double)most);
            (*count)++;
        }
    return (double)most + log(sum);
}

static void choose(const heed_form_state *form, heed_row *row)
{
    int near, far;
    if (form->arg[TAU].number > 1)
        return;
    const double local = mass(form, row, true, &near), exact = mass(form, row, false, &far);
    if (near == 0 || far == 0)
        return;
    const double beyond = form->arg[FAR].number == 1 ? exact : log((double)far) + far_mean(form, row);
    if (!(1 / (1 + exp(beyond - local)) >= form->arg[TAU].number))
        return;
    for (int j = 0; j < row->cols; j++)
        row->score[j] = is_local(form, row, j) ? row->score[j] : -INFINITY;
}

/* ---- calibration ---- */

static int64_t sums(const heed_form_state *form)
{
    return form->sizes.kv_heads * heed_moments_doubles((int)form->sizes.dim);
}

static void gather(const heed_form_state *form, const heed_shown *shown, double *all, float *work)
{
    const int64_t sinks = heed_arg_int(form, SINKS);
    (void)work;
    if (sinks < shown->tokens)
        heed_moments_add(all + shown->kv_head * heed_moments_doubles(shown->dim), shown->dim,
                         shown->key + sinks * shown->dim, shown->tokens - sinks);
}

static heed_status settle(const heed_form_state *form, const double *all, float *const *param)
{
    const int dim = (int)form->sizes.dim;
    double *covariance = malloc((size_t)dim * (size_t)dim * sizeof *covariance);
    if (!covariance)
        return heed_fail(HEED_NO_MEMORY, "no memory for a covariance of %d x %d numbers", dim, dim);
    for (int64_t g = 0; g < form->sizes.kv_heads; g++) {
        const double *moments = all + g * heed_moments_doubles(dim), rows = moments[0] > 0 ? moments[0] : 1;
        heed_covariance(moments, dim, covariance);
        for (int a = 0; a < dim; a++)
            param[MEAN][g * dim + a] = (float)(moments[1 + a] / rows);
        for (int64_t i = 0; i < (int64_t)dim * dim; i++)
            param[COVARIANCE][g * dim * dim + i] = (float)covariance[i];
    }
    free(covariance);
    return HEED_OK;
}

static const heed_calibration calibration = {.sums = sums, .gather = gather, .settle = settle};

static const heed_option ways[] = {{"normal", NULL}, {"exact", NULL}, {NULL, NULL}};

static const heed_arg args[] = {
    [WINDOW] = {.name = "window",
                .kind = HEED_ARG_INT,
                .value = 128,
                .least = 1,
                .most = INFINITY,
                .summary = "last keys that are local"},
    [SINKS] = {.name = "sinks",
               .kind = HEED_ARG_INT,
               .value = 16,
               .least = 0,
               .most = INFINITY,
               .summary = "first keys that are local"},
    [TAU] = {.name = "tau",
             .value = 0.6,
             .least = 0,
             .most = 1e9,
             .summary = "share of the weight that local keys must have to be enough"},
    [FAR] = {.name = "far",
             .kind = HEED_ARG_CHOICE,
             .options = ways,
             .summary = "mass of far keys: from mean and covariance, or from their scores"},
    {0},
};

static const heed_param params[] = {
    [MEAN] = {.name = "mean", .shape = "G,D", .summary = "of far keys"},
    [COVARIANCE] = {.name = "covariance", .shape = "G,D,D", .summary = "of far keys"},
    {0},
};

const heed_form HEED_FORM(select_qada) = {
    .name = "qada",
    .stage = HEED_SELECT,
    .summary = "near and first keys where they seem to hold enough of the weight, else all",
    .formula = "local keys if exp(local) >= tau (exp(local) + n exp(q·mean + qᵀ covariance q / 2))",
    .source = "query-adaptive long-context head test, 2025",
    .row = "000.018",
    .args = args,
    .params = params,
    .choose = choose,
    .calibration = &calibration,
};
