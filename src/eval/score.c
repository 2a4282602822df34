#include "eval/score.h"
#include "eval/divergence.h"

#include <math.h>

int32_t heed_likeliest(const float *logits, int64_t vocabulary)
{
    int64_t top = 0;
    for (int64_t i = 1; i < vocabulary; i++)
        top = logits[i] > logits[top] ? i : top;
    return (int32_t)top;
}

void heed_score_token(heed_score *score, const float *logits, int64_t vocabulary,
                      const heed_question *question, const int32_t *answer, int64_t i, bool *missed)
{
    const bool right = heed_likeliest(logits, vocabulary) == answer[i];
    if (i == 0 && question->rivals) {
        bool chosen = true;
        for (int r = 0; r < question->rivals; r++)
            chosen &= logits[answer[0]] > logits[question->rival[r]];
        score->choices++;
        score->chosen += chosen;
    }
    *missed = (i > 0 && *missed) || !right;
    score->tokens++;
    score->right += right;
    score->nll += heed_surprise(logits, vocabulary, answer[i]);
    if (i + 1 == question->count) {
        score->asked++;
        score->exact += !*missed;
    }
}

void heed_score_add(heed_score *sum, const heed_score *more)
{
    sum->asked += more->asked;
    sum->exact += more->exact;
    sum->choices += more->choices;
    sum->chosen += more->chosen;
    sum->tokens += more->tokens;
    sum->right += more->right;
    sum->nll += more->nll;
}

static double share(double part, int64_t all)
{
    return all ? part / (double)all : NAN;
}

double heed_score_exact(const heed_score *score)
{
    return share((double)score->exact, score->asked);
}

double heed_score_chosen(const heed_score *score)
{
    return share((double)score->chosen, score->choices);
}

double heed_score_right(const heed_score *score)
{
    return share((double)score->right, score->tokens);
}

double heed_score_surprise(const heed_score *score)
{
    return share(score->nll, score->tokens);
}
