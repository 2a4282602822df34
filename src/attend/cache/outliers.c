/* Few bits for most numbers, and what stands out kept as it is: single values, and whole tokens.
 *
 *     x_jc = minimum + scale n_jc, n = 0 .. 2^bits - 1, but for outliers, which stay in f16
 *
 * A range is that of a channel of a page's 128 keys, or of a token's value: channels of keys have means of
 * their own, beside which a token's range is too wide (Gemma 3: means up to 35 where a channel varies by 1).
 * The share `values` of the numbers, those of a channel (of the page) that lie farthest out, half of them
 * below and half above, is stored beside the codes and counts for no range. The `tokens` that lie farthest
 * from the mean key, or whose value has the widest range without its outliers, stay whole. Pages are
 * quantised together, when `residual` keys stand behind them. Keys by channel and outliers kept sparsely as
 * in Hooper et al.: KVQuant, 2024; tokens as in Su et al.: Outlier Tokens Tracing, 2025, which are those of
 * the smallest keys there.
 */
#include "attend/cache/pages.h"
#include "tensor/packed.h"

#include <math.h>
#include <string.h>

enum { BITS, VALUES, TOKENS, RESIDUAL, FIRST, KEYS };

enum { BY_CHANNEL, BY_TOKEN };

static int grades(const heed_form_state *form, heed_grade_types *grade)
{
    (void)form;
    grade[0] = (heed_grade_types){HEED_F16, HEED_F16};
    grade[1] = (heed_grade_types){HEED_PACKED, HEED_PACKED};
    return 2;
}

static int grade(const heed_form_state *form, const heed_page_state *page)
{
    return !heed_page_stays(page, heed_arg_int(form, FIRST)) && page->behind >= heed_arg_int(form, RESIDUAL);
}

static int64_t whole_tokens(const heed_form_state *form, int64_t count)
{
    const int64_t tokens = heed_arg_int(form, TOKENS);
    return tokens < count ? tokens : count;
}

static int64_t outliers_of(const heed_form_state *form, int64_t numbers)
{
    return (int64_t)(form->arg[VALUES].number * (double)numbers + 0.5);
}

static bool by_channel(const heed_form_state *form, bool values)
{
    return !values && heed_arg_int(form, KEYS) == BY_CHANNEL;
}

static size_t page_bytes(const heed_form_state *form, int at, bool values, int64_t count, int64_t dim)
{
    const int64_t whole = whole_tokens(form, count);
    (void)at;
    if (by_channel(form, values))
        return heed_packed_columns_bytes(count, dim, dim * heed_arg_int(form, BITS),
                                         outliers_of(form, count * dim) + whole * dim);
    return heed_packed_rows_bytes(count, dim, whole * 16 + (count - whole) * heed_arg_int(form, BITS),
                                  outliers_of(form, count * dim));
}

static float range_of(const float *row, const uint8_t *outlier, int64_t dim)
{
    float low = INFINITY, high = -INFINITY;
    for (int64_t c = 0; c < dim; c++) {
        low = !outlier[c] && row[c] < low ? row[c] : low;
        high = !outlier[c] && row[c] > high ? row[c] : high;
    }
    return high > low ? high - low : 0.0f;
}

/* Marks all numbers of the keys that lie farthest from their mean, for which there is room [dim]. */
static void mark_whole_keys(const heed_form_state *form, const heed_page_state *page, float *mean,
                            uint8_t *outlier)
{
    const int64_t dim = page->dim, count = page->count;
    float away[HEED_PACKED_KEYS];
    memset(mean, 0, (size_t)dim * sizeof *mean);
    for (int64_t i = 0; i < count * dim; i++)
        mean[i % dim] += page->key[i] / (float)count;
    for (int64_t j = 0; j < count; j++) {
        away[j] = 0.0f;
        for (int64_t c = 0; c < dim; c++)
            away[j] += (page->key[j * dim + c] - mean[c]) * (page->key[j * dim + c] - mean[c]);
    }
    for (int64_t n = 0; n < whole_tokens(form, count); n++) {
        int64_t farthest = 0;
        for (int64_t j = 0; j < count; j++)
            farthest = away[j] > away[farthest] ? j : farthest;
        memset(outlier + farthest * dim, 1, (size_t)dim);
        away[farthest] = -1.0f;
    }
}

/* Every channel has its share of outliers, those of the page divided evenly. */
static void pack_keys_by_channel(const heed_form_state *form, const heed_page_state *page, void *to)
{
    const int64_t dim = page->dim, count = page->count, all = outliers_of(form, count * dim);
    uint8_t *outlier = page->work, *bits = outlier + count * dim, mark[HEED_PACKED_KEYS];
    int32_t order[HEED_PACKED_KEYS];
    float channel[HEED_PACKED_KEYS];
    memset(outlier, 0, (size_t)(count * dim));
    memset(bits, heed_arg_int(form, BITS), (size_t)dim);
    mark_whole_keys(form, page, (float *)page->work + count * dim, outlier);
    for (int64_t c = 0; c < dim; c++) {
        for (int64_t j = 0; j < count; j++)
            channel[j] = outlier[j * dim + c] ? NAN : page->key[j * dim + c]; /* NaN is marked by nobody */
        heed_mark_outliers(channel, count, (c + 1) * all / dim - c * all / dim, order, mark);
        for (int64_t j = 0; j < count; j++)
            outlier[j * dim + c] |= mark[j];
    }
    heed_pack_columns(page->key, count, dim, bits, outlier, to);
}

static void pack(const heed_form_state *form, const heed_page_state *page, int at, bool values, void *to)
{
    const int64_t dim = values ? page->value_dim : page->dim, numbers = page->count * dim;
    const float *rows = values ? page->value : page->key;
    int32_t *order = page->work;
    uint8_t *outlier = (uint8_t *)(order + numbers), bits[HEED_PACKED_KEYS];
    float range[HEED_PACKED_KEYS];
    (void)at;
    if (by_channel(form, values)) {
        pack_keys_by_channel(form, page, to);
        return;
    }
    heed_mark_outliers(rows, numbers, outliers_of(form, numbers), order, outlier);
    for (int64_t j = 0; j < page->count; j++) {
        bits[j] = (uint8_t)heed_arg_int(form, BITS);
        range[j] = range_of(rows + j * dim, outlier + j * dim, dim);
    }
    for (int64_t n = 0; n < whole_tokens(form, page->count); n++) {
        int64_t widest = 0;
        for (int64_t j = 0; j < page->count; j++)
            widest = range[j] > range[widest] ? j : widest;
        bits[widest] = 16;
        range[widest] = -1.0f;
    }
    heed_pack_rows(rows, page->count, dim, bits, outlier, to);
}

static const heed_option ways_of_keys[] = {
    [BY_CHANNEL] = {.name = "channel"}, [BY_TOKEN] = {.name = "token"}, {0}};

static const heed_arg args[] = {
    {.name = "bits",
     .kind = HEED_ARG_INT,
     .value = 3,
     .least = 1,
     .most = 8,
     .summary = "of a number: 1 to 8"},
    {.name = "values",
     .value = 0.01,
     .least = 0,
     .most = 0.5,
     .summary = "share of a page's numbers that stay in f16 beside the codes"},
    HEED_COUNT_OF_KEYS("tokens", 1, "tokens of a page that stay in f16"),
    HEED_COUNT_OF_KEYS("residual", 128, "newest keys that stay in f16, at least"),
    HEED_COUNT_OF_KEYS("first", 0, "keys at the beginning whose pages stay in f16"),
    {.name = "keys",
     .kind = HEED_ARG_CHOICE,
     .options = ways_of_keys,
     .summary = "what a range of keys is of: a channel of a page, or a token"},
    {0},
};

static const heed_storage storage = {
    .grades = grades, .grade = grade, .page_bytes = page_bytes, .pack = pack};

const heed_form HEED_FORM(cache_outliers) = {
    .name = "outliers",
    .stage = HEED_CACHE,
    .summary = "few bits a number, but single values and tokens that stand out stay in f16",
    .formula = "x_jc = minimum + scale n_jc of a channel of keys, of a token's value, without what lies "
               "farthest out",
    .source = "Hooper et al.: KVQuant, 2024; Su et al.: Outlier Tokens Tracing, 2025",
    .args = args,
    .storage = &storage,
};
