/* AKVQ-VL: rotated rows whose bits follow the layer and the class of their tokens.
 *
 *     x W in blocks, W_ij = (-1)^|bits of i and j|/sqrt(D);     q.k = (q W).(k W), out = (w v W) W
 *
 * The first layers look at all the text: there rows have `high` bits. Later ones look hard at few pivots,
 * nearly always the first tokens: pages that hold those stay in f16, all others have `low` bits. Rows are
 * rotated before they are quantised, min to max in blocks of 32 entries (q8, q4: about 0). Pivots are the
 * first tokens here, where the paper also looks for outliers among activations; the newest tokens stay in
 * f16, and pages of 128 tokens are quantised together. There are no images, whose tokens would have `low`
 * bits in all layers.
 */
#include "attend/cache/pages.h"

enum { LOW, HIGH, LAYERS, PIVOTS, RESIDUAL };

static heed_type stored(int bits)
{
    return bits >= 16  ? HEED_ROTATED_F16
           : bits >= 8 ? HEED_ROTATED_Q8
           : bits >= 4 ? HEED_ROTATED_Q4
                       : HEED_ROTATED_Q2;
}

static heed_status resolve(heed_form_state *form)
{
    static const int bits[] = {16, 8, 4, 2};
    const heed_status low = heed_check_bits(form, LOW, 4, bits);
    return low ? low : heed_check_bits(form, HIGH, 4, bits);
}

static int grades(const heed_form_state *form, heed_grade_types *grade)
{
    const heed_type low = stored(heed_arg_int(form, LOW)), high = stored(heed_arg_int(form, HIGH));
    grade[0] = (heed_grade_types){HEED_ROTATED_F16, HEED_ROTATED_F16};
    grade[1] = (heed_grade_types){low, low};
    grade[2] = (heed_grade_types){high, high};
    return 3;
}

static int grade(const heed_form_state *form, const heed_page_state *page)
{
    if (page->behind < heed_arg_int(form, RESIDUAL))
        return 0;
    if (page->layer < heed_arg_int(form, LAYERS))
        return 2;
    return heed_page_stays(page, heed_arg_int(form, PIVOTS)) ? 0 : 1;
}

static const heed_arg args[] = {
    HEED_BITS_ARG("low", 2, "bits of what is no pivot: 16, 8, 4 or 2"),
    HEED_BITS_ARG("high", 4, "bits of all tokens in the first layers"),
    HEED_COUNT_OF_KEYS("layers", 2, "first layers"),
    HEED_COUNT_OF_KEYS("pivots", 4, "tokens at the beginning whose pages stay in f16 in later layers"),
    HEED_COUNT_OF_KEYS("residual", 32, "newest keys that stay in f16, at least"),
    {0},
};

static const heed_storage storage = {.grades = grades, .grade = grade};

const heed_form HEED_FORM(cache_akvq) = {
    .name = "akvq",
    .stage = HEED_CACHE,
    .summary = "rotated keys and values, more bits in the first layers and for the first tokens",
    .formula =
        "x W with `high` bits in the first layers, then f16 for pages of pivots and `low` bits for others",
    .source = "AKVQ-VL, 2025",
    .row = "001.026",
    .args = args,
    .resolve = resolve,
    .storage = &storage,
};
