#include "base/try.h"
#include "eval/tune_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* RazorAttention's shares of retrieval heads: 1 % by echo and 14 % by induction; and its 4 repeats. */
#define ECHO_SHARE 0.01
#define INDUCTION_SHARE 0.14
enum {
    BLOCK = 64,
    REPEATS = 4,
    SHARES = 16,
    FITS = 5,
    CHECK_SEED = 1000,
    CHECK_QUIZZES = 10,
};

void heed_tune_advance(heed_tune_run *r, double tokens)
{
    r->done += tokens;
    if (r->wanted->progress)
        r->wanted->progress(r->wanted->context, r->what, r->done, r->all > r->done ? r->all : r->done);
}

static void advance_prompt(void *context, int64_t tokens)
{
    heed_tune_advance(context, (double)tokens);
}

heed_status heed_tune_with_share(const char *policy, double share, char *text, size_t size)
{
    const size_t name = strcspn(policy, "(> ");
    const bool bracket = policy[name] == '(';
    const int length = snprintf(text, size, "%.*s(share=%.4g%s%s", (int)name, policy, share,
                                bracket ? ", " : ")", policy + name + bracket);
    return length >= 0 && (size_t)length < size
               ? HEED_OK
               : heed_fail(HEED_INVALID, "the policy %.60s... is too long", policy);
}

heed_status heed_tune_write(heed_tune_run *r, const char *type, const char *const *policy,
                            const int32_t *choice)
{
    const heed_mix mix = {.layers = r->info.layers,
                          .kv_heads = r->info.kv_heads,
                          .group = r->info.heads / r->info.kv_heads,
                          .type = type,
                          .policy = policy,
                          .choice = choice};
    return heed_mix_write(&mix, r->text, HEED_TUNE_TEXT) < HEED_TUNE_TEXT
               ? HEED_OK
               : heed_fail(HEED_INVALID, "the mix takes more than %d bytes of text", HEED_TUNE_TEXT);
}

heed_status heed_tune_try(heed_tune_run *r, const char *type, const char *const *policy,
                          const int32_t *choice, heed_trial *trial)
{
    TRY(heed_tune_write(r, type, policy, choice));
    TRY(heed_probe_try(&r->probe, type, r->text, trial));
    r->result->trials++;
    heed_tune_advance(r, (double)r->probe.rows);
    return HEED_OK;
}

static heed_status put(heed_tuned *tuned, const char *spec, const char *policy, const char *type,
                       const heed_trial *trial)
{
    free(tuned->spec);
    *tuned = (heed_tuned){strdup(spec), policy, type, *trial};
    return tuned->spec ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a spec");
}

heed_status heed_tune_keep(heed_tune_run *r, const char *type, const heed_trial *trial)
{
    return put(&r->result->mix, r->text, NULL, type, trial);
}

static heed_status weigh(heed_tune_run *r, const char *type, const char *spec, double *bytes)
{
    double *each = malloc((size_t)r->units * sizeof *each);
    if (!each)
        return heed_fail(HEED_NO_MEMORY, "no memory for the bytes of %lld heads", (long long)r->units);
    const heed_status status = heed_probe_weigh(&r->probe, type, spec, each);
    *bytes = 0.0;
    for (int64_t u = 0; u < r->units && !status; u++)
        *bytes += each[u];
    free(each);
    return status;
}

heed_status heed_tune_whole(heed_tune_run *r, const char *type, double *bytes)
{
    char spec[200];
    snprintf(spec, sizeof spec, "cache=%.100s", type);
    return weigh(r, type, spec, bytes);
}

static heed_status fits(heed_tune_run *r, const char *policy, const char *type, double share, bool *fit)
{
    char chain[HEED_TUNE_POLICY], spec[HEED_TUNE_POLICY + 100];
    double bytes = INFINITY;
    TRY(heed_tune_with_share(policy, share, chain, sizeof chain));
    snprintf(spec, sizeof spec, "cache=%s > %.60s", chain, type);
    TRY(weigh(r, type, spec, &bytes));
    *fit = bytes <= r->limit;
    return HEED_OK;
}

/* The largest share with which the policy stays within the budget; 0: none. A page that is filled may take
 * less than one that is not, so more keys may be less memory: shares are tried from the largest down. */
static heed_status fit_share(heed_tune_run *r, const char *policy, const char *type, double *share)
{
    bool fit = false;
    int coarse = SHARES;
    while (coarse > 0 && !fit) {
        TRY(fits(r, policy, type, (double)coarse / SHARES, &fit));
        coarse -= !fit;
    }
    *share = (double)coarse / SHARES;
    double step = 0.5 / SHARES;
    for (int i = 0; i < FITS && coarse < SHARES; i++, step *= 0.5) {
        TRY(fits(r, policy, type, *share + step, &fit));
        *share += fit ? step : 0.0;
    }
    return HEED_OK;
}

/* One policy for all heads, with as many keys as the budget has room for. */
static heed_status try_single(heed_tune_run *r, const char *policy, const char *type)
{
    char chain[HEED_TUNE_POLICY], spec[HEED_TUNE_POLICY + 100];
    double share;
    heed_trial trial;
    TRY(fit_share(r, policy, type, &share));
    for (; share > 1e-3; share *= 0.97) { /* budgets by head may take more of another text */
        TRY(heed_tune_with_share(policy, share, chain, sizeof chain));
        snprintf(spec, sizeof spec, "cache=%s > %.60s", chain, type);
        TRY(heed_probe_try(&r->probe, type, spec, &trial));
        r->result->trials++;
        heed_tune_advance(r, (double)r->probe.rows);
        if (trial.bytes <= r->limit)
            return put(&r->result->single[r->result->singles++], spec, policy, type, &trial);
    }
    return HEED_OK;
}

/* Where storage alone is small enough, a policy has nothing to save. */
static heed_status try_singles(heed_tune_run *r)
{
    r->what = "single policies";
    for (int t = 0; t < r->wanted->types; t++) {
        const char *type = r->wanted->type[t];
        double whole;
        TRY(heed_tune_whole(r, type, &whole));
        for (int p = 0; p < r->wanted->policies && whole > r->limit; p++)
            TRY(try_single(r, r->wanted->policy[p], type));
        if (whole <= r->limit) {
            char spec[200];
            heed_trial trial;
            snprintf(spec, sizeof spec, "cache=%.100s", type);
            TRY(heed_probe_try(&r->probe, type, spec, &trial));
            r->result->trials++;
            TRY(put(&r->result->single[r->result->singles++], spec, "", type, &trial));
        }
    }
    if (!r->result->singles)
        return heed_fail(HEED_INVALID,
                         "no policy with these types of storage fits into %.3g %% of the model's own cache",
                         100.0 * r->wanted->budget);
    return HEED_OK;
}

static heed_status score_heads(heed_tune_run *r)
{
    heed_session_options options = r->wanted->session;
    heed_session *session = NULL;
    heed_material material;
    heed_status status = HEED_OK;
    r->what = "heads";
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
    heed_tune_advance(r, (double)options.context);
    return heed_heads_classify(r->result->head, r->info.layers * r->info.heads, ECHO_SHARE, INDUCTION_SHARE,
                               r->result->retrieval);
}

static void advance_check(void *context, const char *what, const char *spec, double done, double all)
{
    heed_tune_run *r = context;
    (void)what;
    (void)spec;
    r->what = "check";
    r->all = r->checked_from + all;
    heed_tune_advance(r, r->checked_from + done - r->done);
}

static bool is_checked(const heed_tune_result *result, const heed_tuned *single)
{
    for (int i = 0; i < result->checks; i++)
        if (!strcmp(result->checked[i], single->spec))
            return true;
    for (int i = 0; i < result->singles; i++) /* another type with the same policy */
        for (int c = 0; c < result->checks; c++)
            if (!strcmp(result->checked[c], result->single[i].spec) &&
                !strcmp(result->single[i].policy, single->policy))
                return true;
    return false;
}

/* The mix and the best singles, of different policies. */
static void choose_checks(heed_tune_run *r)
{
    heed_tune_result *result = r->result;
    result->checked[result->checks++] = result->mix.spec;
    while (result->checks < HEED_TUNE_CHECKS) {
        const heed_tuned *best = NULL;
        for (int i = 0; i < result->singles; i++)
            if (!is_checked(result, &result->single[i]) &&
                (!best || heed_trial_loss(&result->single[i].trial) < heed_trial_loss(&best->trial)))
                best = &result->single[i];
        if (!best)
            return;
        result->checked[result->checks++] = best->spec;
    }
}

/* Texts that the search has not seen: the quick suite of an evaluation with another seed. */
static heed_status check(heed_tune_run *r)
{
    const heed_tuning *wanted = r->wanted;
    char file[4096];
    choose_checks(r);
    r->checked_from = r->done;
    heed_evaluation evaluation = {.model = wanted->model,
                                  .session = wanted->session,
                                  .seed = wanted->seed + CHECK_SEED,
                                  .apart = wanted->apart,
                                  .text = true,
                                  .speed = true,
                                  .task = {&heed_task_needle, NULL},
                                  .spec = r->result->checked,
                                  .specs = r->result->checks,
                                  .progress = advance_check,
                                  .context = r};
    TRY(heed_suite_make(&evaluation.suite, "quick", r->info.context, wanted->length));
    r->result->check_seed = evaluation.seed;
    heed_results_key *key = &r->result->check.key;
    snprintf(key->model, sizeof key->model, "%.390s", r->log.key);
    snprintf(key->suite, sizeof key->suite, "%s", evaluation.suite.name);
    snprintf(key->seed, sizeof key->seed, "%llu", (unsigned long long)evaluation.seed);
    snprintf(key->length, sizeof key->length, "%lld", (long long)wanted->length);
    snprintf(key->question, sizeof key->question, "%s", wanted->apart ? "apart" : "with context");
    if (wanted->file) {
        snprintf(file, sizeof file, "%.4080s.check", wanted->file);
        evaluation.file = file;
        TRY(heed_results_read(&r->result->check, file));
    }
    return heed_evaluation_run(&evaluation, &r->result->check);
}

/* Whether an earlier policy has the same judge: a chain names a form once. */
static bool is_named_before(const heed_tuning *wanted, int p)
{
    const size_t length = strcspn(wanted->policy[p], "(> ");
    bool named = false;
    for (int i = 0; i < p; i++)
        named |= strcspn(wanted->policy[i], "(> ") == length &&
                 !strncmp(wanted->policy[i], wanted->policy[p], length);
    return named;
}

/* Everything that policies may want gathered while prompts are read: "h2o(share=1) > snapkv(share=1)". */
static heed_status join_policies(heed_tune_run *r)
{
    char one[HEED_TUNE_POLICY];
    const size_t size = (size_t)(r->wanted->policies + 1) * HEED_TUNE_POLICY;
    size_t used = 0;
    r->gather = malloc(size);
    if (!r->gather)
        return heed_fail(HEED_NO_MEMORY, "no memory for policies");
    for (int p = 0; p < r->wanted->policies; p++) {
        if (is_named_before(r->wanted, p))
            continue;
        TRY(heed_tune_with_share(r->wanted->policy[p], 1.0, one, sizeof one));
        one[strcspn(one, ">")] = 0; /* forms that shape gather nothing of their own */
        used += (size_t)snprintf(r->gather + used, size - used, "%s%s", p ? " > " : "", one);
    }
    return HEED_OK;
}

static heed_status make_room(heed_tune_run *r)
{
    heed_tune_result *result = r->result;
    const size_t heads = (size_t)(r->info.layers * r->info.heads);
    r->units = r->info.layers * r->info.kv_heads;
    result->layers = r->info.layers;
    result->heads = r->info.heads;
    result->kv_heads = r->info.kv_heads;
    result->head = calloc(heads, sizeof *result->head);
    result->retrieval = calloc(heads, sizeof *result->retrieval);
    result->alone = calloc((size_t)r->units, sizeof *result->alone);
    r->text = malloc(HEED_TUNE_TEXT);
    if (!result->head || !result->retrieval || !result->alone || !r->text)
        return heed_fail(HEED_NO_MEMORY, "no memory for the trials of %zu heads", heads);
    for (int64_t u = 0; u < r->units; u++)
        result->alone[u] = NAN;
    return HEED_OK;
}

static double tokens_expected(const heed_tune_run *r)
{
    const heed_tuning *wanted = r->wanted;
    const double rows = HEED_PROBE_TEXTS * 40 + HEED_PROBE_QUIZZES * 6, length = (double)wanted->length;
    const double singles = wanted->policies * wanted->types;
    const double prompts = (wanted->types + 1) * HEED_PROBE_MOST * length;
    const double check = (HEED_TUNE_CHECKS + 1) * length * (CHECK_QUIZZES + 2.25);
    const double trials = wanted->method == HEED_TUNE_MEASURED ? heed_tune_trials_expected(r)
                          : wanted->method == HEED_TUNE_DUO    ? (double)r->units
                                                               : 0.0;
    return prompts + rows * (singles + trials) + check;
}

static heed_status make_log(heed_tune_run *r)
{
    char key[600];
    snprintf(key, sizeof key, "%s %.100s, %.0f numbers in %zu bytes, cache %s, %lld tokens, seed %llu%s",
             r->info.architecture, r->info.name ? r->info.name : "", r->info.parameters, r->info.file_bytes,
             heed_type_name(r->wanted->session.cache_given ? r->wanted->session.cache : HEED_F16),
             (long long)r->wanted->length, (unsigned long long)r->wanted->seed,
             r->wanted->apart ? ", questions apart" : "");
    return heed_trial_log_open(&r->log, r->wanted->file, key);
}

static heed_status find_mix(heed_tune_run *r)
{
    static heed_status (*const method[])(heed_tune_run *) = {
        [HEED_TUNE_MEASURED] = heed_tune_by_trials,
        [HEED_TUNE_RAZOR] = heed_tune_by_scores,
        [HEED_TUNE_DUO] = heed_tune_by_streaming,
    };
    const heed_probe_wish wish = {.model = r->wanted->model,
                                  .session = r->wanted->session,
                                  .gather = r->gather,
                                  .length = r->wanted->length,
                                  .seed = r->wanted->seed,
                                  .apart = r->wanted->apart,
                                  .log = &r->log,
                                  .progress = advance_prompt,
                                  .context = r};
    r->what = "own attention";
    TRY(heed_probe_create(&r->probe, &wish));
    r->result->bytes = r->probe.bytes;
    r->limit = r->wanted->budget * r->probe.bytes;
    heed_status status = score_heads(r);
    if (!status)
        status = try_singles(r);
    if (!status)
        status = method[r->wanted->method](r);
    heed_probe_free(&r->probe);
    return status;
}

heed_status heed_tune(const heed_tuning *tuning, heed_tune_result *result)
{
    heed_tune_run r = {.wanted = tuning, .result = result};
    *result = (heed_tune_result){.layers = 0};
    heed_model_get_info(tuning->model, &r.info);
    if (!r.info.generates || !heed_model_tokenizer(tuning->model))
        return heed_fail(HEED_UNSUPPORTED, "only models that write text, with a tokeniser, can be tuned");
    heed_status status = make_room(&r);
    r.all = tokens_expected(&r);
    if (!status)
        status = join_policies(&r);
    if (!status)
        status = make_log(&r);
    if (!status)
        status = find_mix(&r);
    if (!status)
        status = check(&r);
    heed_trial_log_close(&r.log);
    free(r.gather);
    free(r.text);
    if (status)
        heed_tune_free(result);
    return status;
}

void heed_tune_free(heed_tune_result *result)
{
    free(result->head);
    free(result->retrieval);
    free(result->alone);
    free(result->mix.spec);
    for (int i = 0; i < result->singles; i++)
        free(result->single[i].spec);
    heed_results_free(&result->check);
    *result = (heed_tune_result){.layers = 0};
}
