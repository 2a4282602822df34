/* heed tune: the mix of cache policies that loses least at a given memory. */
#include "eval/tune.h"
#include "base/try.h"
#include "cli/language.h"
#include "cli/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_LENGTH = 512 };

typedef struct tune_options {
    cli_language use;
    cli_list policy, type;
    const char *budget;
    int64_t length, seed;
    bool heads;
} tune_options;

static const cli_option options[] = {
    CLI_MODEL_OPTION(tune_options),
    CLI_TEXT_OPTION(tune_options, budget, "budget", "SHARE",
                    "of the bytes of the model's own cache: 25% or 0.25"),
    CLI_LIST_OPTION(tune_options, policy, "policy", "FORMS",
                    "what a head may have instead of all keys, as streaming(share=0.1); several"),
    CLI_LIST_OPTION(tune_options, type, "type", "TYPE",
                    "storage types to try, as q8; several; f16, q8 and q4"),
    CLI_WHOLE_OPTION(tune_options, length, "length", 64, 1 << 20, "tokens of the texts that are tried; 512"),
    CLI_WHOLE_OPTION(tune_options, seed, "seed", 0, INT64_MAX, "of those texts; 1"),
    CLI_FLAG_OPTION(tune_options, heads, "heads", "also list each head's scores and what it loses alone"),
    CLI_FLAG_OPTION(tune_options, use.exact, "exact", "fp32 activations, weights as the file defines them"),
    CLI_THREADS_OPTION(tune_options, use.threads),
    CLI_FLAG_OPTION(tune_options, use.json, "json", "as JSON"),
    {0},
};

static const char *const default_policies[] = {"streaming(share=0.1)", "snapkv(share=0.2)",
                                               "snapkv(share=0.5)"};
static const char *const default_types[] = {"f16", "q8", "q4"};

static void show_progress(void *context, const char *what, double done, double all)
{
    cli_progress *progress = context;
    progress->what = what;
    cli_progress_show(progress, done, all);
}

/* "25%" or "0.25" */
static heed_status read_budget(const char *text, double *budget)
{
    char *end;
    *budget = text ? strtod(text, &end) : 0.0;
    if (text && end != text && !strcmp(end, "%"))
        *budget *= 0.01;
    else if (!text || end == text || *end)
        return heed_fail(HEED_INVALID, "--budget %.40s: a share such as 25%% or 0.25 is needed",
                         text ? text : "SHARE");
    return *budget > 0.0 && *budget <= 1.0
               ? HEED_OK
               : heed_fail(HEED_INVALID, "--budget %.40s: a share above 0 and up to 100%% is needed", text);
}

/* The names of the policies that keep a share, each once: what stands before the bracket, of chains of one.
 */
static void take_names(heed_tuning *tuning, char (*names)[64])
{
    char spec[128];
    for (int i = 0; i < tuning->policies; i++) {
        const size_t length = strcspn(tuning->policy[i], "(> ");
        bool known = strchr(tuning->policy[i], '>') != NULL || length >= sizeof *names;
        for (int n = 0; n < tuning->names; n++)
            known |= strlen(names[n]) == length && !strncmp(names[n], tuning->policy[i], length);
        if (known || tuning->names == HEED_TUNE_NAMES)
            continue;
        snprintf(names[tuning->names], sizeof *names, "%.*s", (int)length, tuning->policy[i]);
        snprintf(spec, sizeof spec, "cache=%s(share=0.5)", names[tuning->names]);
        if (heed_spec_canonical(spec, NULL, NULL, 0))
            continue; /* a storage type, or a policy that has no share */
        tuning->name[tuning->names] = names[tuning->names];
        tuning->names++;
    }
}

static heed_status begin(const tune_options *wanted, heed_tuning *tuning, char (*names)[64])
{
    char spec[400];
    TRY(read_budget(wanted->budget, &tuning->budget));
    if (wanted->policy.count > HEED_TUNE_FORMS || wanted->type.count > HEED_TUNE_TYPES)
        return heed_fail(HEED_INVALID, "at most %d policies and %d types can be tried", HEED_TUNE_FORMS,
                         HEED_TUNE_TYPES);
    tuning->policies = wanted->policy.count ? wanted->policy.count
                                            : (int)(sizeof default_policies / sizeof *default_policies);
    tuning->types =
        wanted->type.count ? wanted->type.count : (int)(sizeof default_types / sizeof *default_types);
    for (int i = 0; i < tuning->policies; i++) {
        tuning->policy[i] = wanted->policy.count ? wanted->policy.word[i] : default_policies[i];
        snprintf(spec, sizeof spec, "cache=%.300s", tuning->policy[i]);
        TRY(heed_spec_canonical(spec, NULL, NULL, 0));
    }
    for (int i = 0; i < tuning->types; i++) {
        const char *name = wanted->type.count ? wanted->type.word[i] : default_types[i];
        snprintf(spec, sizeof spec, "cache=%.300s", name);
        TRY(heed_spec_canonical(spec, NULL, NULL, 0));
        tuning->type[i] = name;
    }
    take_names(tuning, names);
    return HEED_OK;
}

static void print_heads(const heed_tuning *tuning, const heed_tune_result *result)
{
    const int64_t group = result->heads / result->kv_heads;
    printf("layer head    echo induction  class      KL alone, as\n%34s", "");
    for (int64_t f = 0; f < result->policies; f++)
        printf(" %s%s", tuning->policy[f], f + 1 < result->policies ? "," : "\n");
    for (int64_t l = 0; l < result->layers; l++)
        for (int64_t h = 0; h < result->heads; h++) {
            const heed_head_scores *score = &result->head[l * result->heads + h];
            printf("%5lld %4lld  %6.3f %9.3f  %-9s", (long long)l, (long long)h, (double)score->echo,
                   (double)score->induction,
                   result->retrieval[l * result->heads + h] ? "retrieval" : "streaming");
            for (int64_t f = 0; f < result->policies && h % group == 0; f++)
                printf("  %9.2e", result->loss[(l * result->kv_heads + h / group) * result->policies + f]);
            putchar('\n');
        }
    putchar('\n');
}

static void print_tuned(const heed_tuned *tuned, double bytes, const char *mark)
{
    printf("%-2s %10.4f ", mark, tuned->trial.kl);
    if (isnan(tuned->predicted))
        printf("%10s", "-");
    else
        printf("%10.4f", tuned->predicted);
    printf(" %8.2f %7.2f  %s\n", tuned->trial.bytes * 1e-6, 100.0 * tuned->trial.bytes / bytes, tuned->spec);
}

static void print_result(const tune_options *wanted, const heed_tuning *tuning,
                         const heed_tune_result *result)
{
    if (wanted->heads)
        print_heads(tuning, result);
    puts(result->mix[result->best].spec);
    printf("\n   %10s %10s %8s %7s\n   %10s %10s %8s %7s\n", "KL", "KL", "cache", "share", "measured",
           "added up", "MB", "%");
    for (int i = 0; i < result->mixes; i++)
        print_tuned(&result->mix[i], result->bytes, i == result->best ? "*" : "");
    for (int i = 0; i < result->singles; i++)
        print_tuned(&result->single[i], result->bytes, "");
}

static void add_tuned(cJSON *array, const heed_tuned *tuned, double bytes)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "spec", tuned->spec);
    cJSON_AddNumberToObject(object, "kl", tuned->trial.kl);
    if (!isnan(tuned->predicted))
        cJSON_AddNumberToObject(object, "kl_added_up", tuned->predicted);
    cJSON_AddNumberToObject(object, "cache_bytes", tuned->trial.bytes);
    cJSON_AddNumberToObject(object, "share", tuned->trial.bytes / bytes);
    cJSON_AddItemToArray(array, object);
}

static void print_json(const heed_tuning *tuning, const heed_tune_result *result)
{
    const int64_t group = result->heads / result->kv_heads;
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "spec", result->mix[result->best].spec);
    cJSON_AddNumberToObject(root, "budget", tuning->budget);
    cJSON_AddNumberToObject(root, "own_cache_bytes", result->bytes);
    cJSON *mixes = cJSON_AddArrayToObject(root, "mixes"), *singles = cJSON_AddArrayToObject(root, "singles"),
          *heads = cJSON_AddArrayToObject(root, "heads");
    for (int i = 0; i < result->mixes; i++)
        add_tuned(mixes, &result->mix[i], result->bytes);
    for (int i = 0; i < result->singles; i++)
        add_tuned(singles, &result->single[i], result->bytes);
    for (int64_t i = 0; i < result->layers * result->heads; i++) {
        const int64_t unit = i / result->heads * result->kv_heads + i % result->heads / group;
        cJSON *head = cJSON_CreateObject();
        cJSON_AddNumberToObject(head, "layer", (double)(i / result->heads));
        cJSON_AddNumberToObject(head, "head", (double)(i % result->heads));
        cJSON_AddNumberToObject(head, "echo", (double)result->head[i].echo);
        cJSON_AddNumberToObject(head, "induction", (double)result->head[i].induction);
        cJSON_AddBoolToObject(head, "retrieval", result->retrieval[i]);
        cJSON *loss = cJSON_AddObjectToObject(head, "kl_alone");
        for (int64_t f = 0; f < result->policies; f++)
            cJSON_AddNumberToObject(loss, tuning->policy[f], result->loss[unit * result->policies + f]);
        cJSON_AddItemToArray(heads, head);
    }
    cli_print_json(root);
}

static heed_status tune(const tune_options *wanted)
{
    char names[HEED_TUNE_NAMES][64];
    cli_progress progress = {.what = "tune", .unit = "trials", .scale = 1.0};
    heed_tuning tuning = {.length = wanted->length,
                          .seed = (uint64_t)wanted->seed,
                          .session = cli_session_options(&wanted->use, 0),
                          .progress = show_progress,
                          .context = &progress};
    heed_tune_result result;
    heed_model *model = NULL;
    heed_model_info info;
    TRY(begin(wanted, &tuning, names));
    TRY(cli_open_model(&cli_tune, &wanted->use, &model));
    heed_model_get_info(model, &info);
    tuning.model = model;
    if (!tuning.length)
        tuning.length = info.context < DEFAULT_LENGTH ? info.context : DEFAULT_LENGTH;
    heed_status status = heed_tune(&tuning, &result);
    cli_progress_end(&progress);
    if (!status && result.best < 0)
        status =
            heed_fail(HEED_INVALID,
                      "no mix of these policies and types fits into %.3g %% of the model's own cache; give "
                      "--policy that keeps less",
                      100.0 * tuning.budget);
    if (!status && wanted->use.json)
        print_json(&tuning, &result);
    else if (!status)
        print_result(wanted, &tuning, &result);
    if (!status || result.best < 0)
        heed_tune_free(&result);
    heed_model_close(model);
    return status;
}

static int run(int argc, char **argv)
{
    tune_options wanted = {.use = CLI_LANGUAGE(), .seed = 1};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_tune, argc, argv, &wanted, &arguments, 0, 0, &status))
        return status;
    return tune(&wanted) ? cli_fail_message("tune") : CLI_OK;
}

const cli_command cli_tune = {
    .name = "tune",
    .arguments = "-m MODEL --budget SHARE",
    .summary = "the mix of cache policies by layer and head that loses least at a given memory",
    .details = "Each policy is tried at each kv head of each layer alone: what its KL from the model's own "
               "attention is\n"
               "where answers stand far back, and what it saves. Then the cheapest steps are taken until the "
               "budget is\n"
               "met, for each type of storage, and the mixes are measured beside single policies at the same "
               "memory. The\n"
               "first line is the best mix; heed eval --spec takes it as it is.\n",
    .example = "heed tune -m smollm2 --budget 25% --length 512 --policy \"streaming(share=0.1)\" --type q8",
    .options = options,
    .run = run,
};
