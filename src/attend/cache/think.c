/* ThinK: of the keys only the channels stay that the last queries make something of.
 *
 *     score_c = |q_.c| |k_.c|,     over the last `window` queries of all heads that share the keys, and the
 *                                  keys of a page
 *
 * The share `drop` of lowest score goes (of equal ones the higher); it reads as 0, so that a score is the
 * product over the channels that are left. Pages of 128 keys choose for themselves, when a prompt ends or,
 * while a text is written, when `recent` keys stand behind them; they keep their channels from then on. Keys
 * and queries are those that are compared: after rope, say. Values stay whole. Xu et al.: ThinK, 2024, whose
 * channels are chosen once a prompt for all of its keys.
 */
#include "attend/cache/pages.h"
#include "tensor/packed.h"

enum { DROP, WINDOW, RECENT, FIRST, MOST_DIM = 512 };

static heed_status resolve(heed_form_state *form)
{
    return form->sizes.dim <= MOST_DIM
               ? HEED_OK
               : heed_fail(HEED_UNSUPPORTED, "cache=think: keys have %lld entries, it knows %d at most",
                           (long long)form->sizes.dim, MOST_DIM);
}

static int64_t channels_left(const heed_form_state *form, int64_t dim)
{
    return dim - (int64_t)(form->arg[DROP].number * (double)dim + 1e-9);
}

static int grades(const heed_form_state *form, heed_grade_types *grade)
{
    (void)form;
    grade[0] = (heed_grade_types){HEED_F16, HEED_F16};
    grade[1] = (heed_grade_types){HEED_PACKED, HEED_F16};
    return 2;
}

static int grade(const heed_form_state *form, const heed_page_state *page)
{
    return !page->goes_on && page->queries > 0 && !heed_page_stays(page, heed_arg_int(form, FIRST)) &&
           page->behind >= heed_arg_int(form, RECENT);
}

static size_t page_bytes(const heed_form_state *form, int at, bool values, int64_t count, int64_t dim)
{
    (void)at;
    (void)values;
    return heed_packed_channels_bytes(count, channels_left(form, dim));
}

static int window(const heed_form_state *form)
{
    return heed_arg_int(form, WINDOW);
}

/* Squares of both norms, which stand in the same order. */
static void judge_channels(const heed_page_state *page, double *score)
{
    for (int64_t c = 0; c < page->dim; c++) {
        double queries = 0, keys = 0;
        for (int64_t i = 0; i < page->group * page->queries; i++) {
            const double x = page->query[i * page->dim + c];
            queries += x * x;
        }
        for (int64_t j = 0; j < page->count; j++) {
            const double x = page->key[j * page->dim + c];
            keys += x * x;
        }
        score[c] = queries * keys;
    }
}

static void pack(const heed_form_state *form, const heed_page_state *page, int at, bool values, void *to)
{
    double score[MOST_DIM];
    uint16_t channel[MOST_DIM];
    const int64_t left = channels_left(form, page->dim);
    int64_t count = 0;
    (void)at;
    (void)values;
    judge_channels(page, score);
    for (int64_t c = 0; c < page->dim; c++) {
        int64_t better = 0;
        for (int64_t other = 0; other < page->dim; other++)
            better += score[other] > score[c] || (score[other] == score[c] && other < c);
        if (better < left)
            channel[count++] = (uint16_t)c;
    }
    heed_pack_channels(page->key, page->count, page->dim, channel, count, to);
}

static const heed_arg args[] = {
    {.name = "drop", .value = 0.4, .least = 0, .most = 0.99, .summary = "share of the channels that go"},
    {.name = "window",
     .kind = HEED_ARG_INT,
     .value = 32,
     .least = 1,
     .most = INFINITY,
     .summary = "last queries"},
    HEED_COUNT_OF_KEYS("recent", 32, "newest keys that stay whole, at least"),
    HEED_COUNT_OF_KEYS("first", 0, "keys at the beginning whose pages stay whole"),
    {0},
};

static const heed_storage storage = {
    .grades = grades, .grade = grade, .page_bytes = page_bytes, .pack = pack, .window = window};

const heed_form HEED_FORM(cache_think) = {
    .name = "think",
    .stage = HEED_CACHE,
    .summary = "of the keys only the channels that the last queries make something of",
    .formula =
        "the channels c of largest |q_.c| |k_.c| over the last queries and a page's keys; the others are 0",
    .source = "Xu et al.: ThinK, 2024",
    .args = args,
    .resolve = resolve,
    .storage = &storage,
};
