/* heed tune: the mix of cache policies that loses least at a given memory. */
#include "eval/tune.h"
#include "base/try.h"
#include "cli/language.h"
#include "cli/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_LENGTH = 2048 };

typedef struct tune_options {
    cli_language use;
    cli_list policy, type;
    const char *budget, *resume;
    int method;
    int64_t length, seed, trials;
    bool heads, apart;
} tune_options;

static const char *method_word(int i)
{
    static const char *const words[] = {
        [HEED_TUNE_MEASURED] = "measured", [HEED_TUNE_RAZOR] = "razor", [HEED_TUNE_DUO] = "duo"};
    return i <= HEED_TUNE_DUO ? words[i] : NULL;
}

static const cli_option options[] = {
    CLI_MODEL_OPTION(tune_options),
    CLI_TEXT_OPTION(tune_options, budget, "budget", "SHARE",
                    "of the bytes of the model's own cache: 25% or 0.25"),
    CLI_CHOICE_OPTION(tune_options, method, "method", "METHOD", method_word,
                      "measured, razor or duo; measured"),
    CLI_LIST_OPTION(tune_options, policy, "policy", "POLICY",
                    "policy to try, without budget and type, as snapkv(window=16) > by_head; several"),
    CLI_LIST_OPTION(tune_options, type, "type", "TYPE",
                    "storage to try, as q8 or keys(q8) > values(q4); several"),
    CLI_WHOLE_OPTION(tune_options, length, "length", 64, 1 << 20, "tokens of the texts that are tried; 2048"),
    CLI_WHOLE_OPTION(tune_options, seed, "seed", 0, INT64_MAX, "of those texts; 1"),
    CLI_WHOLE_OPTION(tune_options, trials, "trials", 1, INT64_MAX,
                     "after so many measured goes with what it has found; it ends by itself"),
    CLI_FLAG_OPTION(tune_options, apart, "apart", "policies act on the context before the question is read"),
    CLI_TEXT_OPTION(tune_options, resume, "resume", "FILE",
                    "trials are kept there, and what it has is not tried again"),
    CLI_FLAG_OPTION(tune_options, heads, "heads", "also list each head's scores"),
    CLI_FLAG_OPTION(tune_options, use.exact, "exact", "fp32 activations, weights as the file defines them"),
    CLI_THREADS_OPTION(tune_options, use.threads),
    CLI_FLAG_OPTION(tune_options, use.json, "json", "as JSON"),
    {0},
};

static const char *const default_policies[] = {"streaming", "snapkv", "snapkv > by_head", "tova"};
static const char *const default_types[] = {"f16",
                                            "q8",
                                            "keys(q8) > values(q4)",
                                            "q4",
                                            "rotated(q4)",
                                            "kivi(residual=0)",
                                            "think",
                                            "outliers(bits=4, residual=0)"};

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

static heed_status begin(const tune_options *wanted, heed_tuning *tuning)
{
    char spec[400];
    TRY(read_budget(wanted->budget, &tuning->budget));
    if (wanted->policy.count > HEED_TUNE_POLICIES || wanted->type.count > HEED_TUNE_TYPES)
        return heed_fail(HEED_INVALID, "at most %d policies and %d types can be tried", HEED_TUNE_POLICIES,
                         HEED_TUNE_TYPES);
    tuning->policies = wanted->policy.count ? wanted->policy.count
                                            : (int)(sizeof default_policies / sizeof *default_policies);
    tuning->types =
        wanted->type.count ? wanted->type.count : (int)(sizeof default_types / sizeof *default_types);
    for (int i = 0; i < tuning->policies; i++) {
        tuning->policy[i] = wanted->policy.count ? wanted->policy.word[i] : default_policies[i];
        const size_t name = strcspn(tuning->policy[i], "(> "); /* is there such a policy with a share? */
        snprintf(spec, sizeof spec, "cache=%.*s(share=0.5%s%.300s", (int)(name < 60 ? name : 60),
                 tuning->policy[i], tuning->policy[i][name] == '(' ? ", " : ")",
                 tuning->policy[i] + name + (tuning->policy[i][name] == '('));
        TRY(heed_spec_canonical(spec, NULL, NULL, 0));
    }
    for (int i = 0; i < tuning->types; i++) {
        tuning->type[i] = wanted->type.count ? wanted->type.word[i] : default_types[i];
        snprintf(spec, sizeof spec, "cache=streaming(share=0.5) > %.300s", tuning->type[i]);
        TRY(heed_spec_canonical(spec, NULL, NULL, 0));
        if (strlen(tuning->type[i]) > 60)
            return heed_fail(HEED_INVALID, "--type %.70s is too long", tuning->type[i]);
    }
    return HEED_OK;
}

static void print_heads(const heed_tune_result *result)
{
    const int64_t group = result->heads / result->kv_heads;
    puts("layer head    echo induction  class      KL alone with sinks and a window");
    for (int64_t i = 0; i < result->layers * result->heads; i++) {
        const double alone = result->alone[i / group];
        printf("%5lld %4lld  %6.3f %9.3f  %-9s", (long long)(i / result->heads),
               (long long)(i % result->heads), (double)result->head[i].echo,
               (double)result->head[i].induction, result->retrieval[i] ? "retrieval" : "streaming");
        printf(isnan(alone) ? "  -\n" : "  %.2e\n", alone);
    }
    putchar('\n');
}

static void print_tuned(const heed_tuned *tuned, double bytes, const char *mark)
{
    printf("%-2s %9.4f %9.4f %9.3f %7.2f  %s\n", mark, tuned->trial.text, tuned->trial.answers,
           tuned->trial.bytes * 1e-6, 100.0 * tuned->trial.bytes / bytes,
           *mark ? "the line above" : tuned->spec);
}

static double needle_of(const heed_result *result)
{
    const heed_score score = heed_result_sum(result, "needle", 0, -2.0);
    return heed_score_exact(&score);
}

/* What other texts say. */
static void print_check(heed_tune_result *result)
{
    const heed_result *own = heed_results_of(&result->check, "");
    printf("\non other texts, as heed eval --length %s --seed %llu --tasks text,speed,needle has them\n"
           "   perplexity  KL mean  needles %%   MB at end  share %%\n",
           result->check.key.length, (unsigned long long)result->check_seed);
    for (int i = -1; i < result->checks && own; i++) {
        const heed_result *one = i < 0 ? own : heed_results_of(&result->check, result->checked[i]);
        if (one)
            printf("%-2s %10.3f %8.4f %10.1f %11.3f %8.2f  %s\n", i == 0 ? "*" : "", one->reading.text,
                   one->reading.kl_mean, 100.0 * needle_of(one), one->pace.bytes * 1e-6,
                   100.0 * one->pace.bytes / own->pace.bytes,
                   i < 0    ? "the model's own attention"
                   : i == 0 ? "the line above"
                            : result->checked[i]);
    }
}

static void print_result(const tune_options *wanted, heed_tune_result *result)
{
    if (wanted->heads)
        print_heads(result);
    puts(result->mix.spec);
    printf("\nwhere it was looked for, %lld trials\n   %9s %9s %9s %7s\n   %9s %9s %9s %7s\n",
           (long long)result->trials, "KL", "KL", "cache", "share", "texts", "answers", "MB", "%");
    print_tuned(&result->mix, result->bytes, "*");
    for (int i = 0; i < result->singles; i++)
        print_tuned(&result->single[i], result->bytes, "");
    print_check(result);
}

static cJSON *tuned_object(const heed_tuned *tuned, double bytes)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "spec", tuned->spec);
    cJSON_AddNumberToObject(object, "kl_text", tuned->trial.text);
    cJSON_AddNumberToObject(object, "kl_answers", tuned->trial.answers);
    cJSON_AddNumberToObject(object, "cache_bytes", tuned->trial.bytes);
    cJSON_AddNumberToObject(object, "share", tuned->trial.bytes / bytes);
    return object;
}

static void add_check(cJSON *root, heed_tune_result *result)
{
    cJSON *array = cJSON_AddArrayToObject(root, "check");
    const heed_result *own = heed_results_of(&result->check, "");
    cJSON_AddNumberToObject(root, "check_seed", (double)result->check_seed);
    for (int i = -1; i < result->checks && own; i++) {
        const heed_result *one = i < 0 ? own : heed_results_of(&result->check, result->checked[i]);
        cJSON *object = cJSON_CreateObject();
        cJSON_AddItemToArray(array, object);
        if (!one)
            continue;
        cJSON_AddStringToObject(object, "spec", one->spec);
        cJSON_AddNumberToObject(object, "perplexity", one->reading.text);
        cJSON_AddNumberToObject(object, "kl_mean", one->reading.kl_mean);
        cJSON_AddNumberToObject(object, "needle", needle_of(one));
        cJSON_AddNumberToObject(object, "cache_bytes_final", one->pace.bytes);
        cJSON_AddNumberToObject(object, "share", one->pace.bytes / own->pace.bytes);
    }
}

static void print_json(const tune_options *wanted, const heed_tuning *tuning, heed_tune_result *result)
{
    const int64_t group = result->heads / result->kv_heads;
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "spec", result->mix.spec);
    cJSON_AddStringToObject(root, "method", method_word(wanted->method));
    cJSON_AddNumberToObject(root, "budget", tuning->budget);
    cJSON_AddNumberToObject(root, "trials", (double)result->trials);
    cJSON_AddNumberToObject(root, "own_cache_bytes", result->bytes);
    cJSON_AddItemToObject(root, "mix", tuned_object(&result->mix, result->bytes));
    cJSON *singles = cJSON_AddArrayToObject(root, "singles");
    for (int i = 0; i < result->singles; i++)
        cJSON_AddItemToArray(singles, tuned_object(&result->single[i], result->bytes));
    add_check(root, result);
    cJSON *heads = cJSON_AddArrayToObject(root, "heads");
    for (int64_t i = 0; i < result->layers * result->heads; i++) {
        cJSON *head = cJSON_CreateObject();
        cJSON_AddNumberToObject(head, "layer", (double)(i / result->heads));
        cJSON_AddNumberToObject(head, "head", (double)(i % result->heads));
        cJSON_AddNumberToObject(head, "echo", (double)result->head[i].echo);
        cJSON_AddNumberToObject(head, "induction", (double)result->head[i].induction);
        cJSON_AddBoolToObject(head, "retrieval", result->retrieval[i]);
        if (!isnan(result->alone[i / group]))
            cJSON_AddNumberToObject(head, "kl_alone", result->alone[i / group]);
        cJSON_AddItemToArray(heads, head);
    }
    cli_print_json(root);
}

static heed_status tune(const tune_options *wanted)
{
    cli_progress progress = {.what = "tune", .unit = "tokens", .scale = 1.0};
    heed_tuning tuning = {.method = (heed_tune_method)wanted->method,
                          .length = wanted->length,
                          .seed = (uint64_t)wanted->seed,
                          .apart = wanted->apart,
                          .trials = wanted->trials,
                          .session = cli_session_options(&wanted->use, 0),
                          .file = wanted->resume,
                          .progress = show_progress,
                          .context = &progress};
    heed_tune_result result;
    heed_model *model = NULL;
    heed_model_info info;
    TRY(begin(wanted, &tuning));
    TRY(cli_open_model(&cli_tune, &wanted->use, &model));
    heed_model_get_info(model, &info);
    tuning.model = model;
    if (!tuning.length)
        tuning.length = info.context < DEFAULT_LENGTH ? info.context : DEFAULT_LENGTH;
    const heed_status status = heed_tune(&tuning, &result);
    cli_progress_end(&progress);
    if (!status && wanted->use.json)
        print_json(wanted, &tuning, &result);
    else if (!status)
        print_result(wanted, &result);
    if (!status)
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
    .details =
        "Texts and quizzes are read once for each type of storage; then policies act on what was read, many "
        "times\n"
        "over, and what counts is the KL from the model's own attention where the texts go on and where "
        "answers\n"
        "stand. measured begins with the best single policy, finds what each layer, then each head, loses "
        "with\n"
        "less room and gains with more, and moves room accordingly as long as that helps. razor keeps heads "
        "of "
        "high\n"
        "echo and induction scores whole, duo those that lose most when they keep sinks and a window. The "
        "first line\n"
        "is the mix; heed eval --spec takes it as it is. In the end it is tried on other texts, beside the "
        "best of\n"
        "each single policy.\n",
    .example = "heed tune -m smollm2 --budget 25% --length 512 --policy snapkv --type q8",
    .options = options,
    .run = run,
};
