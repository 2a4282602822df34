/* ALiBi: a penalty that grows with distance, steeper for some heads than for others.
 *
 *     s(i, j) -= m_h |p(i) - k_pos(j)|,     m_h = 2^(-8 (h+1) / H)
 *
 * slopes=published gives what the paper's code does where H is no power of two: the slopes of the largest
 * power of two P below H, then every other slope of 2P. Lets a model read longer than it was trained. Press,
 * Smith, Lewis: Train Short, Test Long, 2022.
 */
#include "attend/form.h"

enum { FORMULA, PUBLISHED };

static double formula_slope(int64_t head, int64_t heads)
{
    return exp2(-8.0 * (double)(head + 1) / (double)heads);
}

static double published_slope(int64_t head, int64_t heads)
{
    int64_t power = 1;
    while (2 * power <= heads)
        power *= 2;
    return head < power ? formula_slope(head, power) : formula_slope(2 * (head - power), 2 * power);
}

static void penalty(const heed_form_state *form, int head, const int32_t *distance, int n, float *out)
{
    const int64_t heads = form->sizes.heads;
    const float slope =
        (float)(form->arg[0].number == PUBLISHED ? published_slope(head, heads) : formula_slope(head, heads));
    for (int i = 0; i < n; i++)
        out[i] = -slope * fabsf((float)distance[i]);
}

static const heed_option slopes[] = {[FORMULA] = {"formula", NULL}, [PUBLISHED] = {"published", NULL}, {0}};

static const heed_arg args[] = {
    {.name = "slopes",
     .kind = HEED_ARG_CHOICE,
     .value = FORMULA,
     .options = slopes,
     .summary = "formula: 2^(-8(h+1)/H) for every H; published: interleaved where H is no power of two"},
    {0},
};

const heed_form HEED_FORM(position_alibi) = {
    .name = "alibi",
    .stage = HEED_POSITION,
    .summary = "a distance penalty that differs from head to head",
    .formula = "s - m_h |distance|, m_h = 2^(-8(h+1)/H)",
    .source = "Press et al. 2022",
    .args = args,
    .bias = penalty,
};
