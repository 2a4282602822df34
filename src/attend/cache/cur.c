/* CUR: rows that carry much of the matrices of keys and values, for their neighbourhood.
 *
 *     x_j     = ||k_j||^2 / sum over j's stretch of `local` keys of ||k||^2,     y_j likewise of values
 *     score_j = x_j y_j, x_j, y_j or (x_j + y_j) / 2,     over the sum of all
 *
 * The first keys stay. Sengupta et al.: Value-Guided KV Compression for LLMs via Approximated CUR
 * Decomposition, 2025; defaults as in kvpress.
 */
#include "attend/cache/judge.h"

enum { OF = HEED_OWN_ARG, LOCAL, FIRST };
enum { PRODUCT, KEY, VALUE, MEAN };

static void ends(const heed_form_state *form, int64_t budget, int64_t *first, int64_t *recent)
{
    (void)budget;
    *first = heed_arg_int(form, FIRST);
    *recent = 0;
}

/* x [count]: squares of rows over their sum in each stretch of `local`. */
static void shares(const float *rows, int64_t count, int64_t dim, int64_t local, float *x)
{
    for (int64_t from = 0; from < count; from += local) {
        const int64_t end = from + local < count ? from + local : count;
        float sum = 0.0f;
        for (int64_t j = from; j < end; j++) {
            x[j] = heed_row_square(rows + j * dim, dim);
            sum += x[j];
        }
        for (int64_t j = from; j < end; j++)
            x[j] = sum > 0.0f ? x[j] / sum : 0.0f;
    }
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    const int64_t count = held->count, local = heed_arg_int(form, LOCAL);
    const int of = heed_arg_int(form, OF);
    float *x = work, *y = work + count, sum = 0.0f;
    shares(held->key, count, held->dim, local, x);
    shares(held->value, count, held->value_dim, local, y);
    for (int64_t j = 0; j < count; j++) {
        score[j] = of == PRODUCT ? x[j] * y[j] : of == KEY ? x[j] : of == VALUE ? y[j] : 0.5f * (x[j] + y[j]);
        sum += score[j];
    }
    for (int64_t j = 0; j < count; j++)
        score[j] = sum > 0.0f ? score[j] / sum : 0.0f;
}

static const heed_option of[] = {
    {.name = "product"}, {.name = "key"}, {.name = "value"}, {.name = "mean"}, {0}};

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    {.name = "of", .kind = HEED_ARG_CHOICE, .value = PRODUCT, .options = of, .summary = "what counts"},
    HEED_COUNT_ARG("local", 1, 16, "keys of a stretch"),
    HEED_COUNT_ARG("first", 0, 4, "keys at the beginning that stay"),
    {0},
};

static const heed_policy policy = {
    .observes = HEED_OBSERVES_KEYS | HEED_OBSERVES_VALUES, .judge = judge, .ends = ends};

const heed_form HEED_FORM(cache_cur) = {
    .name = "cur",
    .stage = HEED_CACHE,
    .summary = "keys whose key and value are long beside their neighbours'",
    .formula = "score_j = ||k_j||^2 / sum_local ||k||^2 times the same of v",
    .source = "Sengupta et al.: Value-Guided KV Compression via Approximated CUR, 2025",
    .args = args,
    .policy = &policy,
};
