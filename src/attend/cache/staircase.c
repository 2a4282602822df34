/* Precision that falls with age: the newest keys and values in f16, then 8, 4 and 2 bits.
 *
 *     bits = 16, 8, 4, 2 for keys with fewer than w, w + step, w + 2 step, ... behind them
 *
 * Pages of 128 tokens go down a step together, when their last key is old enough, and are quantised from what
 * the step before left. Keys of 4 and 2 bits are quantised by channel, groups of 64 tokens between minimum
 * and maximum; the rest in blocks of a token. The steps' lengths are our reading.
 */
#include "attend/cache/pages.h"

enum { NEWEST, STEP, LEAST, FIRST };

static const heed_grade_types steps[] = {
    {HEED_F16, HEED_F16}, {HEED_Q8, HEED_Q8}, {HEED_CHANNEL_Q4, HEED_Q4}, {HEED_CHANNEL_Q2, HEED_Q2}};

static heed_status resolve(heed_form_state *form)
{
    return heed_check_bits(form, LEAST, 4, (const int[]){16, 8, 4, 2});
}

/* Steps down to the last. */
static int most_down(const heed_form_state *form)
{
    const int bits = heed_arg_int(form, LEAST);
    return bits >= 16 ? 0 : bits >= 8 ? 1 : bits >= 4 ? 2 : 3;
}

static int grades(const heed_form_state *form, heed_grade_types *grade)
{
    const int count = 1 + most_down(form);
    for (int g = 0; g < count; g++)
        grade[g] = steps[g];
    return count;
}

static int grade(const heed_form_state *form, const heed_page_state *page)
{
    const int64_t past = page->behind - heed_arg_int(form, NEWEST);
    if (past < 0 || heed_page_stays(page, heed_arg_int(form, FIRST)))
        return 0;
    const int64_t down = 1 + past / heed_arg_int(form, STEP);
    return down < most_down(form) ? (int)down : most_down(form);
}

static const heed_arg args[] = {
    HEED_COUNT_OF_KEYS("newest", 128, "newest keys that stay in f16, at least"),
    {.name = "step",
     .kind = HEED_ARG_INT,
     .value = 512,
     .least = 1,
     .most = INFINITY,
     .summary = "keys of each step"},
    HEED_BITS_ARG("least", 2, "bits of the last step: 16, 8, 4 or 2"),
    HEED_COUNT_OF_KEYS("first", 0, "keys at the beginning whose pages stay in f16"),
    {0},
};

static const heed_storage storage = {.grades = grades, .grade = grade};

const heed_form HEED_FORM(cache_staircase) = {
    .name = "staircase",
    .stage = HEED_CACHE,
    .summary = "keys and values with fewer bits the older they are: 16, 8, 4, 2",
    .formula = "bits = 16, 8, 4, 2 for keys with fewer than newest, newest + step, ... keys behind them",
    .row = "001.119",
    .args = args,
    .resolve = resolve,
    .storage = &storage,
};
