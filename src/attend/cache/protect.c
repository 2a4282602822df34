/* Tokens of the template stay: marks of a chat, beginning of text.
 *
 *     score_j := infinity where token j is a control token, or (punctuation=yes) punctuation or a line end
 * only
 *
 * They stay even beyond the budget. Without them a chat model loses who speaks. As kvpress does.
 */
#include "attend/cache/judge.h"

enum { PUNCTUATION };
enum { NO, YES };

static void regroup(const heed_form_state *form, const heed_shares *shares, float *work)
{
    (void)work;
    const int kinds =
        HEED_TOKEN_SPECIAL | (heed_arg_int(form, PUNCTUATION) == YES ? HEED_TOKEN_PUNCTUATION : 0);
    for (int g = 0; g < shares->kv_heads; g++)
        for (int64_t j = 0; j < shares->held[g].count; j++)
            if (shares->held[g].token_kind[j] & kinds)
                shares->score[g][j] = INFINITY;
}

static const heed_option no_yes[] = {{.name = "no"}, {.name = "yes"}, {0}};

static const heed_arg args[] = {
    {.name = "punctuation", .kind = HEED_ARG_CHOICE, .value = NO, .options = no_yes, .summary = "stays too"},
    {0},
};

static const heed_policy policy = {.observes = HEED_OBSERVES_TOKENS, .regroup = regroup};

const heed_form HEED_FORM(cache_protect) = {
    .name = "protect",
    .stage = HEED_CACHE,
    .summary = "control tokens stay, beyond the budget if need be",
    .formula = "score_j := infinity where token j is a mark of the template",
    .source = "kvpress",
    .args = args,
    .policy = &policy,
};
