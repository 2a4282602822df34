/* KIVI: keys quantised by channel, values by token, the newest tokens not at all.
 *
 *     k_jc = minimum_c + scale_c n_jc in groups of 64 tokens,     v in blocks of 32 entries of a token
 *
 * Keys have a few channels of large magnitude, the same for all tokens; values do not. Pages of 128 tokens
 * are quantised together, when at least `residual` keys stand behind them; until then they are f16. Levels
 * lie between the least and the greatest value of a channel. Liu et al.: KIVI, 2024 (groups of 32 there).
 */
#include "attend/cache/pages.h"

enum { BITS, RESIDUAL, FIRST };

static heed_status resolve(heed_form_state *form)
{
    return heed_check_bits(form, BITS, 3, (const int[]){16, 4, 2});
}

static int grades(const heed_form_state *form, heed_grade_types *grade)
{
    const int bits = heed_arg_int(form, BITS);
    grade[0] = (heed_grade_types){HEED_F16, HEED_F16};
    if (bits < 16)
        grade[1] = bits < 4 ? (heed_grade_types){HEED_CHANNEL_Q2, HEED_Q2}
                            : (heed_grade_types){HEED_CHANNEL_Q4, HEED_Q4};
    return bits < 16 ? 2 : 1;
}

static int grade(const heed_form_state *form, const heed_page_state *page)
{
    return heed_arg_int(form, BITS) < 16 && !heed_page_stays(page, heed_arg_int(form, FIRST)) &&
           page->behind >= heed_arg_int(form, RESIDUAL);
}

static const heed_arg args[] = {
    HEED_BITS_ARG("bits", 4, "of a level: 4 or 2; 16 quantises nothing"),
    HEED_COUNT_OF_KEYS("residual", 128, "newest keys that stay in f16, at least"),
    HEED_COUNT_OF_KEYS("first", 0, "keys at the beginning whose pages stay in f16"),
    {0},
};

static const heed_storage storage = {.grades = grades, .grade = grade};

const heed_form HEED_FORM(cache_kivi) = {
    .name = "kivi",
    .stage = HEED_CACHE,
    .summary = "keys quantised by channel and values by token, the newest in f16",
    .formula = "k_jc = minimum_c + scale_c n_jc over 64 tokens: 18 bytes for 32 entries at 4 bits, 10 at 2",
    .source = "Liu et al.: KIVI, 2024",
    .args = args,
    .resolve = resolve,
    .storage = &storage,
};
