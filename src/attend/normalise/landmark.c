/* Landmark attention (row 000.032): a softmax over the tokens at hand and a landmark of each earlier block,
 * whose weight the tokens of that block share out by a softmax of their own.
 *
 *     block of a position: p div (n + 1);   p mod (n + 1) = n is its landmark
 *     w_j = softmax_0(j)                          in the query's block, whose own landmark is left out
 *     w_j = softmax_b(j) softmax_0(landmark_b)    in an earlier block b
 *
 * softmax_0 is over the tokens of the query's block and the landmarks of earlier ones, softmax_b over the
 * tokens of b. Landmarks weigh 0 themselves. A landmark without open tokens does not count, nor do tokens
 * without an open landmark; of several keys at one landmark's position the first counts. Backward, with T =
 * sum_j w_j dw_j, g_b = sum_j w_j and A_b = sum_j w_j dw_j / g_b over b:   ds_j = w_j (dw_j - A_b), of the
 * landmark g_b (A_b - T), in the query's block w_j (dw_j - T). Mohtashami, Jaggi: Landmark Attention, 2023.
 */
#include "attend/landmark.h"

/* leader[j]: the first key of the row in the block of key j; -1 for a landmark that does not count. Where
 * positions rise it is near. */
static void find_leaders(const heed_form_state *form, const heed_row *row, float *leader)
{
    const int32_t n = heed_arg_int(form, 0);
    int first = 0;
    bool rises = true;
    for (int j = 0; j < row->cols; j++) {
        const int32_t p = row->key_pos[j];
        const int64_t block = heed_landmark_block(p, n);
        bool counts = true;
        rises = rises && (j == 0 || p >= row->key_pos[j - 1]);
        first = rises ? first : 0;
        while (first < j && heed_landmark_block(row->key_pos[first], n) != block)
            first++;
        for (int i = first; i < j && heed_landmark_is(p, n); i++)
            counts = counts && row->key_pos[i] != p;
        leader[j] = counts ? (float)first : -1.0f;
    }
}

enum { TOKEN, OWN, LANDMARK, NOTHING };

/* What key j is to the row's query. */
static int kind_of(const heed_form_state *form, const heed_row *row, const float *leader, int j)
{
    const int32_t n = heed_arg_int(form, 0), p = row->key_pos[j];
    const bool own = heed_landmark_block(p, n) == heed_landmark_block(row->pos, n);
    if (heed_landmark_is(p, n))
        return own || leader[j] < 0.0f ? NOTHING : LANDMARK;
    return own ? OWN : TOKEN;
}

static void whole_row(const heed_form_state *form, heed_row *row)
{
    float *leader = row->work, *of = row->work + row->cols, *s = row->score; /* of[leader]: of its block */
    float own = -INFINITY, most = -INFINITY, all = 0.0f;
    find_leaders(form, row, leader);
    for (int j = 0; j < row->cols; j++)
        of[j] = -INFINITY;
    for (int j = 0; j < row->cols; j++) {
        const int kind = kind_of(form, row, leader, j), at = (int)leader[j];
        if (kind == TOKEN)
            of[at] = s[j] > of[at] ? s[j] : of[at];
        else if (kind == OWN)
            own = s[j] > own ? s[j] : own;
    }
    for (int j = 0; j < row->cols; j++) {
        const int kind = kind_of(form, row, leader, j);
        const float max = kind == TOKEN ? of[(int)leader[j]] : kind == OWN ? own : -INFINITY;
        if (kind == LANDMARK && of[(int)leader[j]] > -INFINITY)
            most = s[j] > most ? s[j] : most;
        else if (kind != LANDMARK)
            s[j] = max > -INFINITY ? heed_exp(s[j] - max) : 0.0f;
    }
    most = own > most ? own : most;
    for (int j = 0; j < row->cols; j++)
        of[j] = 0.0f;
    for (int j = 0; j < row->cols; j++)
        if (kind_of(form, row, leader, j) == TOKEN)
            of[(int)leader[j]] -= s[j]; /* below 0 until the block's landmark is met */
    for (int j = 0; j < row->cols; j++) {
        const int kind = kind_of(form, row, leader, j), at = (int)leader[j];
        if (kind == OWN)
            s[j] *= heed_exp(own - most);
        if (kind == OWN)
            all += s[j];
        if (kind != LANDMARK)
            continue;
        const float share = of[at] < 0.0f && s[j] > -INFINITY ? heed_exp(s[j] - most) : 0.0f;
        of[at] = of[at] < 0.0f ? share / -of[at] : 0.0f;
        all += share;
        s[j] = 0.0f;
    }
    for (int j = 0; j < row->cols; j++) {
        const float share = kind_of(form, row, leader, j) == TOKEN ? of[(int)leader[j]] : 1.0f;
        s[j] = share > 0.0f && all > 0.0f ? s[j] * share / all : 0.0f;
    }
}

static void whole_row_backward(const heed_form_state *form, heed_row *row)
{
    float *leader = row->work, *of = row->work + row->cols, *whole = row->dscore; /* A and g, at leaders */
    const float *w = row->score, *dw = row->dweight;
    float along = 0.0f;
    find_leaders(form, row, leader);
    for (int j = 0; j < row->cols; j++)
        of[j] = whole[j] = 0.0f;
    for (int j = 0; j < row->cols; j++) {
        if (w[j] <= 0.0f)
            continue;
        along += w[j] * dw[j];
        of[(int)leader[j]] += w[j] * dw[j];
        whole[(int)leader[j]] += w[j];
    }
    for (int j = 0; j < row->cols; j++)
        of[j] = whole[j] > 0.0f ? of[j] / whole[j] : 0.0f;
    for (int j = row->cols - 1; j >= 0; j--) { /* a leader comes last of its block */
        const int kind = kind_of(form, row, leader, j), at = (int)leader[j];
        const float back = kind == OWN ? along : kind == TOKEN ? of[at] : 0.0f;
        row->dscore[j] = kind == LANDMARK ? whole[at] * (of[at] - along)
                         : w[j] > 0.0f    ? w[j] * (dw[j] - back)
                                          : 0.0f;
    }
}

static const heed_arg args[] = {HEED_LANDMARK_ARG, {0}};

const heed_form HEED_FORM(normalise_landmark) = {
    .name = "landmark",
    .stage = HEED_NORMALISE,
    .summary =
        "a softmax over tokens at hand and landmarks of earlier blocks, whose tokens share their weight",
    .formula = "softmax_b(j) softmax_0(landmark of b); softmax_0(j) in the query's block",
    .source = "Mohtashami, Jaggi: Landmark Attention, 2023",
    .row = "000.032",
    .flags = HEED_NEEDS_CAUSAL,
    .args = args,
    .whole_row = whole_row,
    .whole_row_backward = whole_row_backward,
};
