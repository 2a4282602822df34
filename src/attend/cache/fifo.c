/* First in, first out: the newest keys.
 *
 *     kept: the newest `budget` keys
 *
 * The memory of Attendre that all others are compared with. Yang, Hua: Attendre, 2024.
 */
#include "attend/cache/judge.h"

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)form;
    (void)work;
    for (int64_t j = 0; j < held->count; j++)
        score[j] = 0.0f; /* of equal keys the later stay */
}

static const heed_arg args[] = {HEED_BUDGET_ARGS, {0}};

static const heed_policy policy = {.judge = judge};

const heed_form HEED_FORM(cache_fifo) = {
    .name = "fifo",
    .stage = HEED_CACHE,
    .summary = "the newest keys, without attention sinks",
    .formula = "keeps the newest `budget` keys",
    .source = "Yang, Hua: Attendre, 2024",
    .row = "001.205",
    .args = args,
    .policy = &policy,
};
