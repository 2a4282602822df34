/* Expected attention: the weight that a key can expect from queries to come, which are taken to be spread
 * like those of late, at the next `future` positions.
 *
 *     a_s     = mean of query s as it is compared at `samples` positions, spread evenly over the next
 * `future` E_j     = mean_s(a_s . k_j) + var_s(a_s . k_j) / 2        (of exp(q . k), were a normally
 * distributed) score_j = (softmax_j E + eps) ||v_j||,     the mean of the softmax over the heads that share
 * the key
 *
 * s runs over the last `window` queries. Positions enter compared queries by rotations, so the mean of a
 * query over positions is a linear map of it: it is made once a head, from the unit vectors. covariance=no
 * leaves the variance out, values=no the length of the values. The first keys stay. Devoto, Jeblick, Jegou:
 * Expected Attention, 2025; defaults as in kvpress, except the window, which is the whole prompt there.
 */
#include "attend/cache/judge.h"

enum { FUTURE = HEED_OWN_ARG, WINDOW, FIRST, COVARIANCE, VALUES, EPS, SAMPLES };
enum { YES, NO };

static int window(const heed_form_state *form)
{
    return heed_arg_int(form, WINDOW);
}

static void ends(const heed_form_state *form, int64_t budget, int64_t *first, int64_t *recent)
{
    (void)budget;
    *first = heed_arg_int(form, FIRST);
    *recent = 0;
}

/* motion [dim][dim]: row d is what the unit vector d becomes, the mean over the positions to come. */
static void mean_motion(const heed_form_state *form, const heed_held *held, int head, float *motion,
                        float *unit, float *placed, int32_t *at)
{
    const int64_t dim = held->dim;
    const int64_t future = heed_arg_int(form, FUTURE), most = heed_arg_int(form, SAMPLES);
    const int64_t samples = future < most ? future : most;
    for (int64_t i = 0; i < dim * dim; i++) {
        motion[i] = 0.0f;
        unit[i] = i % (dim + 1) == 0 ? 1.0f : 0.0f;
    }
    for (int64_t k = 0; k < samples; k++) {
        for (int64_t d = 0; d < dim; d++)
            at[d] = (int32_t)(held->read + (2 * k + 1) * future / (2 * samples));
        held->place(held->place_context, head, unit, at, dim, placed);
        for (int64_t i = 0; i < dim * dim; i++)
            motion[i] += placed[i] / (float)samples;
    }
}

/* to [dim][queries] = the last queries of a head, moved, side by side; row [dim] is work. */
static void move_queries(const heed_held *held, int head, int64_t first, const float *motion, float *to,
                         float *row)
{
    const int64_t dim = held->dim, queries = held->queries - first;
    for (int64_t s = 0; s < queries; s++) {
        heed_products(held->query + (head * held->queries + first + s) * dim, motion, dim, dim, row);
        for (int64_t e = 0; e < dim; e++)
            to[e * queries + s] = row[e];
    }
}

/* product [queries]: of a key with each of them. */
static float expectation(const float *restrict product, int64_t queries, bool spread)
{
    float mean = 0.0f, square = 0.0f;
#pragma omp simd reduction(+ : mean)
    for (int64_t s = 0; s < queries; s++)
        mean += product[s];
    mean /= (float)queries;
#pragma omp simd reduction(+ : square)
    for (int64_t s = 0; s < queries; s++)
        square += (product[s] - mean) * (product[s] - mean);
    return mean + (spread ? 0.5f * square / (float)queries : 0.0f);
}

static void add_softmax(const float *x, int64_t count, float part, float *score, float *work)
{
    float max = -INFINITY, sum = 0.0f;
    for (int64_t j = 0; j < count; j++)
        max = x[j] > max ? x[j] : max;
    for (int64_t j = 0; j < count; j++) {
        work[j] = heed_exp(x[j] - max);
        sum += work[j];
    }
    for (int64_t j = 0; j < count; j++)
        score[j] += part * work[j] / sum;
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    const int64_t dim = held->dim, count = held->count;
    const int64_t first = heed_first_query(held, heed_arg_int(form, WINDOW)), queries = held->queries - first;
    float *expected = work, *spare = work + count, *motion = work + 4 * count;
    float *unit = motion + dim * dim, *placed = unit + dim * dim, *moved = placed + dim * dim;
    float *product = moved + dim * queries;
    int32_t *at = (int32_t *)(void *)(product + queries); /* [dim] */
    for (int64_t j = 0; j < count; j++)
        score[j] = 0.0f;
    for (int h = 0; queries && h < held->group; h++) {
        mean_motion(form, held, h + held->kv_head * held->group, motion, unit, placed, at);
        move_queries(held, h, first, motion, moved, placed);
        for (int64_t j = 0; j < count; j++) {
            heed_products(held->key + j * dim, moved, dim, queries, product);
            expected[j] = expectation(product, queries, heed_arg_int(form, COVARIANCE) == YES);
        }
        add_softmax(expected, count, 1.0f / (float)held->group, score, spare);
    }
    for (int64_t j = 0; heed_arg_int(form, VALUES) == YES && j < count; j++)
        score[j] = (score[j] + heed_arg_float(form, EPS)) *
                   sqrtf(heed_row_square(held->value + j * held->value_dim, held->value_dim));
}

static int64_t work_floats(const heed_form_state *form, const heed_held *largest)
{
    (void)form;
    return 3 * largest->dim * largest->dim + largest->queries * (largest->dim + 1) + largest->dim;
}

static const heed_option yes_no[] = {{.name = "yes"}, {.name = "no"}, {0}};

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    {.name = "future", .kind = HEED_ARG_INT, .value = 512, .least = 1, .most = 65536, .summary = "positions"},
    HEED_COUNT_ARG("window", 1, 128, "last queries that stand for those to come"),
    HEED_COUNT_ARG("first", 0, 4, "keys at the beginning that stay"),
    {.name = "covariance",
     .kind = HEED_ARG_CHOICE,
     .value = YES,
     .options = yes_no,
     .summary = "variance counts"},
    {.name = "values", .kind = HEED_ARG_CHOICE, .value = YES, .options = yes_no, .summary = "times ||v||"},
    {.name = "eps", .value = 0, .least = 0, .most = INFINITY, .summary = "added to the softmax"},
    HEED_COUNT_ARG("samples", 1, 32, "positions that stand for the next `future`"),
    {0},
};

static const heed_policy policy = {.observes =
                                       HEED_OBSERVES_KEYS | HEED_OBSERVES_VALUES | HEED_OBSERVES_QUERIES,
                                   .window = window,
                                   .work_floats = work_floats,
                                   .judge = judge,
                                   .ends = ends};

const heed_form HEED_FORM(cache_expected) = {
    .name = "expected",
    .stage = HEED_CACHE,
    .summary = "keys by the weight that they can expect from queries to come",
    .formula = "score_j = (softmax_j(mean(q.k_j) + var(q.k_j)/2) + eps) ||v_j|| over the next positions",
    .source = "Devoto, Jeblick, Jegou: Expected Attention, 2025",
    .args = args,
    .policy = &policy,
};
