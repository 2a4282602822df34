/* Selective attention: a head's queries mask keys, for all heads, that later queries need no more.
 *
 *     S[k][j] = max(0, s[k][j]) of one head, 0 for the first key (index 0) and for the query's own (j at its
 *               position)
 *     F[i][j] = sum of S[k][j] over the queries k before i
 *     w = softmax of s[h][i][j] - F[i][j], in every head h
 *
 * Only open pairs vote. s is the score after `position`; a selector that follows sees s - F. A model is
 * trained so from the start; gradients go through F. Queries before those of an execution are not counted, so
 * a plan must hold as many queries as keys. Leviathan, Kalman, Matias: Selective Attention Improves
 * Transformer, 2024.
 */
#include "attend/form.h"

static int voter(const heed_form_state *form)
{
    return (int)heed_arg_int(form, 0);
}

static void vote(const heed_form_state *form, const heed_row *row, float *restrict vote)
{
    const float *restrict score = row->score;
    (void)form;
    for (int j = 0; j < row->cols; j++)
        vote[j] = score[j] > 0 && row->key_pos[j] != row->pos ? score[j] : 0;
    if (row->cols > 0)
        vote[0] = 0;
}

static void vote_backward(const heed_form_state *form, const heed_row *row, const float *restrict dvote,
                          float *restrict dscore)
{
    (void)form;
    for (int j = 1; j < row->cols; j++)
        dscore[j] += row->score[j] > 0 && row->key_pos[j] != row->pos ? dvote[j] : 0;
}

static const heed_arg args[] = {
    {.name = "head", .kind = HEED_ARG_INT, .value = 0, .least = 0, .most = 65535, .summary = "that votes"},
    {0},
};

const heed_form HEED_FORM(select_selective) = {
    .name = "selective",
    .stage = HEED_SELECT,
    .summary = "one head's queries mask keys for all heads of later queries",
    .formula = "s - sum of max(0, s of one head) over earlier queries",
    .source = "Leviathan et al.: Selective Attention Improves Transformer, 2024",
    .row = "001.236",
    .flags = HEED_MIXES_HEADS,
    .args = args,
    .voter = voter,
    .vote = vote,
    .vote_backward = vote_backward,
};
