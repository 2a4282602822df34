/* Keys spread evenly over the text: a stride, to compare with.
 *
 *     score_j = - b(position of j),     b: the bits of a number in reverse, as a fraction (van der Corput)
 *
 * The highest scores are positions 0, then 2^31, ..., so of a text's n positions a budget of n/2 keeps every
 * second, n/4 every fourth, and a budget between the two some of those between. A key's score is its own: the
 * stride doubles in place as the text grows.
 */
#include "attend/cache/judge.h"

static uint32_t reversed(uint32_t x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0F0F0F0Fu) | (x & 0x0F0F0F0Fu) << 4;
    x = (x >> 8 & 0x00FF00FFu) | (x & 0x00FF00FFu) << 8;
    return x >> 16 | x << 16;
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)form;
    (void)work;
    for (int64_t j = 0; j < held->count; j++)
        score[j] = -(float)(reversed((uint32_t)held->pos[j]) >> 8);
}

static const heed_arg args[] = {HEED_BUDGET_ARGS, {0}};

static const heed_policy policy = {.judge = judge};

const heed_form HEED_FORM(cache_uniform) = {
    .name = "uniform",
    .stage = HEED_CACHE,
    .summary = "keys spread evenly over the text, to compare with",
    .formula = "score_j = -(bits of j's position reversed): strides of powers of two",
    .args = args,
    .policy = &policy,
};
