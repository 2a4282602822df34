/* Mixes by classes of heads: those that look far back keep everything, the others sinks and a window. */
#include "base/try.h"
#include "eval/tune_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMING                                                                                            \
    "streaming(share=0.1)" /* what a streaming head of DuoAttention keeps: 256 of some thousands */

#define LEAST_SHARE 0.02
enum { GUESSES = 4 };

static double sum_of(const double *bytes, int64_t count)
{
    double sum = 0.0;
    for (int64_t u = 0; u < count; u++)
        sum += bytes[u];
    return sum;
}

/* Everything for the heads of `whole` [units], `policy` for the others: kept if it is the best so far. */
static heed_status try_classes(heed_tune_run *r, const char *type, const char *policy, const bool *whole,
                               heed_trial *trial)
{
    heed_tune_result *result = r->result;
    int32_t *choice = malloc((size_t)r->units * sizeof *choice);
    if (!choice)
        return heed_fail(HEED_NO_MEMORY, "no memory for a choice");
    for (int64_t u = 0; u < r->units; u++)
        choice[u] = whole[u] ? -1 : 0;
    heed_status status = heed_tune_try(r, type, &policy, choice, trial);
    free(choice);
    if (!status && trial->bytes <= r->limit &&
        (!result->mix.spec || heed_trial_loss(trial) < heed_trial_loss(&result->mix.trial)))
        status = heed_tune_keep(r, type, trial);
    return status;
}

static heed_status check_found(const heed_tune_run *r)
{
    return r->result->mix.spec
               ? HEED_OK
               : heed_fail(HEED_INVALID,
                           "the heads that look back take more than %.3g %% with these types of storage",
                           100.0 * r->wanted->budget);
}

static heed_status weigh(heed_tune_run *r, const char *type, const char *policy, double *bytes)
{
    char spec[300];
    snprintf(spec, sizeof spec, policy ? "cache=%2$s > %1$.60s" : "cache=%1$.60s", type, policy);
    return heed_probe_weigh(&r->probe, type, spec, bytes);
}

/* The others share what the retrieval heads leave; dropped tokens that are merged take bytes of their own, so
 * that a first guess may be too much. */
static heed_status try_razor(heed_tune_run *r, const char *type, const bool *whole, double *bytes)
{
    double kept = 0.0;
    TRY(weigh(r, type, NULL, bytes));
    for (int64_t u = 0; u < r->units; u++)
        kept += whole[u] ? bytes[u] : 0.0;
    const double others = sum_of(bytes, r->units) - kept;
    double share = fmin(0.95, (r->limit - kept) / others);
    for (int i = 0; i < GUESSES && share > LEAST_SHARE; i++) {
        char policy[64];
        heed_trial trial;
        snprintf(policy, sizeof policy, "razor(share=%.3g)", share);
        TRY(try_classes(r, type, policy, whole, &trial));
        if (trial.bytes <= r->limit)
            break;
        share -= 1.01 * (trial.bytes - r->limit) / others;
    }
    return HEED_OK;
}

heed_status heed_tune_by_scores(heed_tune_run *r)
{
    const int64_t group = r->info.heads / r->info.kv_heads;
    bool *whole = calloc((size_t)r->units, sizeof *whole);
    double *bytes = malloc((size_t)r->units * sizeof *bytes);
    heed_status status = whole && bytes ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a choice");
    r->what = "heads by scores";
    for (int64_t h = 0; h < r->units * group && !status; h++)
        whole[h / group] |= r->result->retrieval[h];
    for (int t = 0; t < r->wanted->types && !status; t++)
        status = try_razor(r, r->wanted->type[t], whole, bytes);
    free(whole);
    free(bytes);
    return status ? status : check_found(r);
}

/* What each kv head loses when it alone keeps sinks and a window. */
static heed_status measure_alone(heed_tune_run *r)
{
    static const char *const policy[] = {STREAMING};
    const char *own = heed_type_name(r->wanted->session.cache_given ? r->wanted->session.cache : HEED_F16);
    int32_t *choice = malloc((size_t)r->units * sizeof *choice);
    heed_status status = choice ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a choice");
    r->what = "heads alone";
    for (int64_t u = 0; u < r->units && !status; u++) {
        heed_trial trial;
        for (int64_t i = 0; i < r->units; i++)
            choice[i] = i == u ? 0 : -1;
        status = heed_tune_try(r, own, policy, choice, &trial);
        r->result->alone[u] = heed_trial_loss(&trial);
    }
    free(choice);
    return status;
}

/* As many of those that lose most as the budget has room for keep everything. */
static void keep_dearest(const heed_tune_run *r, const double *all, const double *streaming, bool *whole)
{
    double room = 0.99 * r->limit - sum_of(streaming, r->units);
    for (;;) {
        int64_t best = -1;
        for (int64_t u = 0; u < r->units; u++)
            if (!whole[u] && all[u] - streaming[u] <= room &&
                (best < 0 || r->result->alone[u] > r->result->alone[best]))
                best = u;
        if (best < 0)
            return;
        whole[best] = true;
        room -= all[best] - streaming[best];
    }
}

heed_status heed_tune_by_streaming(heed_tune_run *r)
{
    const size_t units = (size_t)r->units;
    bool *whole = malloc(units * sizeof *whole);
    double *all = malloc(units * sizeof *all), *streaming = malloc(units * sizeof *streaming);
    heed_status status =
        whole && all && streaming ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a choice");
    if (!status)
        status = measure_alone(r);
    for (int t = 0; t < r->wanted->types && !status; t++) {
        const char *type = r->wanted->type[t];
        heed_trial trial;
        status = weigh(r, type, NULL, all);
        if (!status)
            status = weigh(r, type, STREAMING, streaming);
        if (status || sum_of(streaming, r->units) > 0.99 * r->limit)
            continue;
        memset(whole, 0, units * sizeof *whole);
        keep_dearest(r, all, streaming, whole);
        status = try_classes(r, type, STREAMING, whole, &trial);
    }
    free(whole);
    free(all);
    free(streaming);
    return status ? status : check_found(r);
}
