#include "eval/tune.h"
#include "base/try.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* RazorAttention's shares of retrieval heads: 1 % by echo and 14 % by induction; and its 4 repeats. */
#define ECHO_SHARE 0.01
#define INDUCTION_SHARE 0.14
enum { BLOCK = 64, REPEATS = 4, TEXT = 65536 };

typedef struct run {
    const heed_tuning *wanted;
    heed_tune_result *result;
    heed_model_info info;
    heed_probe probe;
    char *text; /* [TEXT] of a spec */
    int32_t *choice;
    double done, all;
} run;

static void advance(run *r, const char *what)
{
    r->done += 1.0;
    if (r->wanted->progress)
        r->wanted->progress(r->wanted->context, what, r->done, r->all);
}

static int64_t units(const run *r)
{
    return r->info.layers * r->info.kv_heads;
}

static heed_status write_choice(const run *r, const char *type)
{
    const heed_mix mix = {.layers = r->info.layers,
                          .kv_heads = r->info.kv_heads,
                          .group = r->info.heads / r->info.kv_heads,
                          .type = type,
                          .policy = r->wanted->policy,
                          .choice = r->choice};
    return heed_mix_write(&mix, r->text, TEXT) < TEXT
               ? HEED_OK
               : heed_fail(HEED_INVALID, "the mix takes more than %d bytes of text", TEXT);
}

static heed_status score_heads(run *r)
{
    heed_session_options options = r->wanted->session;
    heed_session *session = NULL;
    heed_material material;
    heed_status status = HEED_OK;
    options.attention = NULL;
    options.with |= HEED_WITH_WEIGHTS;
    TRY(heed_material_create(&material, heed_model_tokenizer(r->wanted->model)));
    options.context = material.start.count + BLOCK * REPEATS;
    int64_t block = BLOCK;
    if (options.context > r->info.context) {
        options.context = r->info.context;
        block = (r->info.context - material.start.count) / REPEATS;
    }
    status = heed_session_create(&session, r->wanted->model, &options);
    if (!status)
        status = heed_heads_score(session, r->wanted->model, &material, block, REPEATS, r->wanted->seed,
                                  r->result->head);
    heed_session_free(session);
    heed_material_free(&material);
    TRY(status);
    advance(r, "heads");
    return heed_heads_classify(r->result->head, r->info.layers * r->info.heads, ECHO_SHARE, INDUCTION_SHARE,
                               r->result->retrieval);
}

/* Each policy at each kv head of each layer, alone. */
static heed_status measure_units(run *r)
{
    const int policies = r->wanted->policies;
    for (int64_t u = 0; u < units(r); u++)
        for (int32_t f = 0; f < policies; f++) {
            heed_trial trial;
            for (int64_t i = 0; i < units(r); i++)
                r->choice[i] = i == u ? f : -1;
            TRY(write_choice(r, NULL));
            TRY(heed_probe_try(&r->probe, r->text, &trial));
            r->result->loss[u * policies + f] = trial.kl;
            r->result->saved[u * policies + f] = r->probe.bytes - trial.bytes;
            advance(r, "heads alone");
        }
    return HEED_OK;
}

static heed_status keep(heed_tuned *tuned, const char *spec, double predicted, const heed_trial *trial)
{
    *tuned = (heed_tuned){strdup(spec), predicted, *trial};
    return tuned->spec ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a spec");
}

/* One policy for all heads, with as many keys as the budget has room for. */
static heed_status try_singles(run *r, const char *type, double share)
{
    heed_tune_result *result = r->result;
    for (int i = 0; i < r->wanted->names; i++) {
        char spec[200];
        heed_trial trial;
        snprintf(spec, sizeof spec, "cache=%.80s(share=%.4g) > %.80s", r->wanted->name[i], share, type);
        TRY(heed_probe_try(&r->probe, spec, &trial));
        TRY(keep(&result->single[result->singles++], spec, NAN, &trial));
        advance(r, "single policies");
    }
    return HEED_OK;
}

/* With a type of storage every key takes the same share of its bytes, whatever the policy, so the policies
 * have to save less. */
static heed_status try_type(run *r, const char *type)
{
    heed_tune_result *result = r->result;
    heed_trial alone, trial;
    char spec[200];
    snprintf(spec, sizeof spec, "cache=%.100s", type);
    TRY(heed_probe_try(&r->probe, spec, &alone));
    const double share = alone.bytes / r->probe.bytes,
                 need = r->probe.bytes * (1.0 - r->wanted->budget / share);
    if (r->wanted->budget < share)
        TRY(try_singles(r, type, r->wanted->budget / share));
    const double saved =
        heed_mix_choose(result->loss, result->saved, units(r), r->wanted->policies, need, r->choice);
    advance(r, "mixes");
    if (saved < need - 0.5)
        return HEED_OK; /* not within the budget, whatever is chosen */
    double predicted = alone.kl;
    for (int64_t u = 0; u < units(r); u++)
        predicted += r->choice[u] < 0 ? 0.0 : result->loss[u * r->wanted->policies + r->choice[u]];
    TRY(write_choice(r, type));
    TRY(heed_probe_try(&r->probe, r->text, &trial));
    TRY(keep(&result->mix[result->mixes], r->text, predicted, &trial));
    if (trial.bytes <= r->wanted->budget * r->probe.bytes * 1.01 &&
        (result->best < 0 || trial.kl < result->mix[result->best].trial.kl))
        result->best = result->mixes;
    result->mixes++;
    return HEED_OK;
}

static heed_status make_room(run *r)
{
    heed_tune_result *result = r->result;
    const size_t all = (size_t)units(r) * (size_t)r->wanted->policies + 1,
                 heads = (size_t)(r->info.layers * r->info.heads);
    result->layers = r->info.layers;
    result->heads = r->info.heads;
    result->kv_heads = r->info.kv_heads;
    result->policies = r->wanted->policies;
    result->best = -1;
    result->head = calloc(heads, sizeof *result->head);
    result->retrieval = calloc(heads, sizeof *result->retrieval);
    result->loss = calloc(all, sizeof *result->loss);
    result->saved = calloc(all, sizeof *result->saved);
    r->choice = calloc((size_t)units(r), sizeof *r->choice);
    r->text = malloc(TEXT);
    return result->head && result->retrieval && result->loss && result->saved && r->choice && r->text
               ? HEED_OK
               : heed_fail(HEED_NO_MEMORY, "no memory for the trials of %zu heads", heads);
}

heed_status heed_tune(const heed_tuning *tuning, heed_tune_result *result)
{
    run r = {.wanted = tuning, .result = result};
    *result = (heed_tune_result){.best = -1};
    heed_model_get_info(tuning->model, &r.info);
    if (!r.info.generates || !heed_model_tokenizer(tuning->model))
        return heed_fail(HEED_UNSUPPORTED, "only models that write text, with a tokeniser, can be tuned");
    r.all = 1.0 + (double)(units(&r) * tuning->policies) + tuning->types * (1 + tuning->names);
    heed_status status = make_room(&r);
    if (!status)
        status = heed_probe_create(&r.probe, tuning->model, &tuning->session, tuning->length, tuning->seed);
    if (!status)
        status = score_heads(&r);
    if (!status)
        status = measure_units(&r);
    result->bytes = r.probe.bytes;
    for (int t = 0; t < tuning->types && !status; t++)
        status = try_type(&r, tuning->type[t]);
    heed_probe_free(&r.probe);
    free(r.choice);
    free(r.text);
    if (status)
        heed_tune_free(result);
    return status;
}

void heed_tune_free(heed_tune_result *result)
{
    free(result->head);
    free(result->retrieval);
    free(result->loss);
    free(result->saved);
    for (int i = 0; i < result->mixes; i++)
        free(result->mix[i].spec);
    for (int i = 0; i < result->singles; i++)
        free(result->single[i].spec);
    *result = (heed_tune_result){.best = -1};
}
