/* QAQ: as many bits for a token's key and value as an error that is allowed asks for.
 *
 *     sigma_v = sqrt(12/n) e / a_j,     sigma_k = sqrt(12/|q| log(e^2 n^3/(n-1) + 1))
 *     bits = ceil(log2(range_j/(2 sigma) + 1)), held between bmin and bmax
 *
 * with n the keys held, a_j the largest weight that the last w queries of the heads that share the key gave
 * it, |q| the mean length of these queries, without their scale, and range_j that of the token's row without
 * outliers: the lowest and the highest r/2 of a page's numbers, which stay in f16. Pages of 128 tokens are
 * quantised together, when a prompt ends or when w - 1 keys stand behind them. A page goes into the smallest
 * of seven sizes of pages that holds its bits, keys and values each, and stays in f16 where none does. The
 * paper's copies in slow memory, from which a token gets more bits when its weight grows later, are not kept:
 * what was quantised stays so. Dong et al.: QAQ, 2024.
 */
#include "attend/cache/pages.h"
#include "tensor/packed.h"

enum { E, R, W, BMIN, BMAX, SIZES = 7 };

/* Mean bits of a key and of a value that a page has room for. */
static const int room[SIZES][2] = {{2, 1}, {2, 2}, {3, 2}, {4, 2}, {4, 4}, {6, 4}, {8, 8}};

static heed_status resolve(heed_form_state *form)
{
    const int low = heed_arg_int(form, BMIN), high = heed_arg_int(form, BMAX);
    return low <= high
               ? HEED_OK
               : heed_fail(HEED_INVALID, "cache=qaq: bmin is %d, more than bmax, which is %d", low, high);
}

static int grades(const heed_form_state *form, heed_grade_types *grade)
{
    (void)form;
    grade[0] = (heed_grade_types){HEED_F16, HEED_F16};
    for (int g = 1; g <= SIZES; g++)
        grade[g] = (heed_grade_types){HEED_PACKED, HEED_PACKED};
    return 1 + SIZES;
}

static int64_t outliers_of(const heed_form_state *form, int64_t numbers)
{
    return (int64_t)(form->arg[R].number * (double)numbers + 0.5);
}

static size_t page_bytes(const heed_form_state *form, int at, bool values, int64_t count, int64_t dim)
{
    return heed_packed_rows_bytes(count, dim, count * room[at - 1][values], outliers_of(form, count * dim));
}

static int window(const heed_form_state *form)
{
    return heed_arg_int(form, W);
}

static double largest_weight(const heed_page_state *page, int64_t key)
{
    double most = 0;
    for (int64_t i = 0; i < page->group * page->queries; i++) {
        const double weight = page->weight[i * page->held + page->index + key];
        most = weight > most ? weight : most;
    }
    return most;
}

/* Mean over the last queries; they come with the scale 1/sqrt(dim). */
static double mean_length(const heed_page_state *page)
{
    double sum = 0;
    for (int64_t i = 0; i < page->group * page->queries; i++) {
        double square = 0;
        for (int64_t c = 0; c < page->dim; c++)
            square += (double)page->query[i * page->dim + c] * page->query[i * page->dim + c];
        sum += sqrt(square * (double)page->dim);
    }
    return sum / (double)(page->group * page->queries);
}

static double range_of(const float *row, const uint8_t *outlier, int64_t dim)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t c = 0; c < dim; c++) {
        low = !outlier[c] && row[c] < low ? row[c] : low;
        high = !outlier[c] && row[c] > high ? row[c] : high;
    }
    return high > low ? high - low : 0;
}

/* Bits of every token; returns their sum. The page's outliers are marked on the way. */
static int64_t choose_bits(const heed_form_state *form, const heed_page_state *page, bool values,
                           uint8_t *outlier, uint8_t *bits)
{
    const int64_t dim = values ? page->value_dim : page->dim, numbers = page->count * dim;
    const float *rows = values ? page->value : page->key;
    const double e = form->arg[E].number, n = (double)page->held, length = mean_length(page);
    const double key_error = sqrt(12.0 / length * log(e * e * n * n * n / (n - 1.0) + 1.0));
    const int least = heed_arg_int(form, BMIN), most = heed_arg_int(form, BMAX);
    int64_t all = 0;
    heed_mark_outliers(rows, numbers, outliers_of(form, numbers), page->work, outlier);
    for (int64_t j = 0; j < page->count; j++) {
        const double error = values ? sqrt(12.0 / n) * e / largest_weight(page, j) : key_error;
        const double need =
            ceil(log2(range_of(rows + j * dim, outlier + j * dim, dim) / (2.0 * error) + 1.0));
        const double held = need > least ? need < most ? need : most : least;
        bits[j] = (uint8_t)(held > 8.0 ? 16.0 : held);
        all += bits[j];
    }
    return all;
}

static uint8_t *outlier_room(const heed_page_state *page)
{
    const int64_t dim = page->value_dim > page->dim ? page->value_dim : page->dim;
    return (uint8_t *)((int32_t *)page->work + page->count * dim);
}

static int grade(const heed_form_state *form, const heed_page_state *page)
{
    uint8_t bits[HEED_PACKED_KEYS];
    if (page->goes_on || page->queries < 1 || page->held < 2 || page->behind < heed_arg_int(form, W) - 1)
        return 0;
    const int64_t keys = choose_bits(form, page, false, outlier_room(page), bits),
                  values = choose_bits(form, page, true, outlier_room(page), bits);
    for (int g = 1; g <= SIZES; g++)
        if (keys <= page->count * room[g - 1][0] && values <= page->count * room[g - 1][1])
            return g;
    return 0;
}

static void pack(const heed_form_state *form, const heed_page_state *page, int at, bool values, void *to)
{
    uint8_t bits[HEED_PACKED_KEYS], *outlier = outlier_room(page);
    (void)at;
    choose_bits(form, page, values, outlier, bits);
    heed_pack_rows(values ? page->value : page->key, page->count, values ? page->value_dim : page->dim, bits,
                   outlier, to);
}

#define BITS_ARG(called, by_default, said)                                                                   \
    {                                                                                                        \
        .name = called, .kind = HEED_ARG_INT, .value = by_default, .least = 1, .most = 16, .summary = said   \
    }

static const heed_arg args[] = {
    {.name = "e",
     .value = 1,
     .least = 0,
     .most = INFINITY,
     .above = true,
     .summary = "error that is allowed"},
    {.name = "r", .value = 0.01, .least = 0, .most = 0.5, .summary = "share of outliers, which stay in f16"},
    {.name = "w", .kind = HEED_ARG_INT, .value = 5, .least = 1, .most = INFINITY, .summary = "last queries"},
    BITS_ARG("bmin", 1, "least bits of a number"),
    BITS_ARG("bmax", 8, "most bits of a number; more than 8 are f16"),
    {0},
};

static const heed_storage storage = {.grades = grades,
                                     .grade = grade,
                                     .page_bytes = page_bytes,
                                     .pack = pack,
                                     .window = window,
                                     .weighs = true};

const heed_form HEED_FORM(cache_qaq) = {
    .name = "qaq",
    .stage = HEED_CACHE,
    .summary = "bits of each token's key and value from an error that is allowed, outliers in f16",
    .formula = "ceil(log2(range/(2 sigma) + 1)) bits, sigma_v = sqrt(12/n) e/a, sigma_k = sqrt(12/|q| "
               "log(e^2 n^3/(n-1) + 1))",
    .source = "Dong et al.: QAQ, 2024",
    .row = "001.055",
    .args = args,
    .resolve = resolve,
    .storage = &storage,
};
