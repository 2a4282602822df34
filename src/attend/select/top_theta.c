/* Top-theta: keys whose scores reach a threshold that was found beforehand, so that nothing is sorted.
 *
 *     n > k open keys in a row:  keep s_j >= theta[h, floor(log2 n)], the first open key and the last
 *     n <= k:                    keep all
 *
 * Each key is decided by itself. Each query head keeps its own keys; heads that share keys read the union.
 * Initially theta is -inf and all are kept. What is dropped is not made up for here: normalise=sdc gives the
 * kept keys the weights that they have among all. Berestizshevsky, Andri, Cavigelli: Top-Theta Attention,
 * 2025.
 *
 * Calibration: theta is the mean over rows of their k-th largest score, and `spread` standard deviations
 * more, for each head and each power of two of row lengths, while earlier layers are cut already. Lengths
 * that the text does not have get the threshold of the longest below them that it has.
 */
#include "attend/select/cut.h"
#include "attend/select/lengths.h"
#include "attend/shown.h"

enum { K, SPREAD };

static void choose(const heed_form_state *form, heed_row *row)
{
    int first = -1, last = -1, open = 0;
    for (int j = 0; j < row->cols; j++) {
        const bool is_open = row->score[j] > -INFINITY;
        first = is_open && first < 0 ? j : first;
        last = is_open ? j : last;
        open += is_open;
    }
    if (open <= heed_arg_int(form, K))
        return;
    const float theta = form->param[0][row->head * HEED_LENGTHS + heed_length_of(open)];
    const float at_first = row->score[first], at_last = row->score[last];
    for (int j = 0; j < row->cols; j++)
        row->score[j] = row->score[j] >= theta ? row->score[j] : -INFINITY;
    row->score[first] = at_first;
    row->score[last] = at_last;
}

/* ---- calibration ---- */

enum { ROWS, SUM, SQUARES, SUMS }; /* of k-th largest scores */

static int64_t sums(const heed_form_state *form)
{
    return form->sizes.heads * HEED_LENGTHS * SUMS;
}

static int64_t work(const heed_form_state *form, int64_t tokens)
{
    (void)form;
    return 2 * tokens;
}

static void gather(const heed_form_state *form, const heed_shown *shown, double *all, float *score)
{
    const int64_t k = heed_arg_int(form, K);
    for (int h = 0; h < shown->group; h++)
        for (int64_t i = k; i < shown->tokens; i++) {
            const int64_t n = i + 1 - heed_fast_scores(shown, h, i, score);
            if (n <= k)
                continue;
            const double value = (double)heed_kth_largest(score, (int)n, k, score + shown->tokens);
            double *sum =
                all + ((shown->kv_head * shown->group + h) * HEED_LENGTHS + heed_length_of(n)) * SUMS;
            sum[ROWS]++;
            sum[SUM] += value;
            sum[SQUARES] += value * value;
        }
}

static heed_status settle(const heed_form_state *form, const double *all, float *const *param)
{
    for (int64_t h = 0; h < form->sizes.heads; h++) {
        float *theta = param[0] + h * HEED_LENGTHS;
        for (int b = 0; b < HEED_LENGTHS; b++) {
            const double *sum = all + (h * HEED_LENGTHS + b) * SUMS;
            const double mean = sum[SUM] / sum[ROWS];
            const double variance = fmax(sum[SQUARES] / sum[ROWS] - mean * mean, 0);
            theta[b] = sum[ROWS] > 0 ? (float)(mean + form->arg[SPREAD].number * sqrt(variance))
                       : b > 0       ? theta[b - 1]
                                     : -INFINITY;
        }
    }
    return HEED_OK;
}

/* Of the longest rows, the mean over heads. */
static double threshold(const heed_form_state *form)
{
    double sum = 0;
    for (int64_t h = 0; h < form->sizes.heads; h++)
        sum += (double)form->param[0][(h + 1) * HEED_LENGTHS - 1];
    return sum / (double)form->sizes.heads;
}

static const heed_calibration calibration = {.in_force = true,
                                             .sums = sums,
                                             .work = work,
                                             .gather = gather,
                                             .settle = settle,
                                             .measure = threshold,
                                             .measured = "threshold"};

static const heed_arg args[] = {
    [K] = {.name = "k",
           .kind = HEED_ARG_INT,
           .value = 64,
           .least = 1,
           .most = INFINITY,
           .summary = "keys that thresholds are made for; rows of no more are not cut"},
    [SPREAD] = {.name = "spread",
                .value = 0.1,
                .least = -100,
                .most = 100,
                .summary = "calibration: standard deviations above the mean"},
    {0},
};

static const heed_param params[] = {
    {.name = "theta", .shape = "H,24", .initial = -INFINITY, .summary = "by head and floor(log2 n)"},
    {0},
};

const heed_form HEED_FORM(select_top_theta) = {
    .name = "top_theta",
    .stage = HEED_SELECT,
    .summary = "the keys whose scores reach a threshold found beforehand",
    .formula = "s_j >= theta[h, floor(log2 n)], the first and the last open key",
    .source = "Berestizshevsky et al.: Top-Theta attention, 2025",
    .row = "000.107",
    .args = args,
    .params = params,
    .choose = choose,
    .calibration = &calibration,
};
