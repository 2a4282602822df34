/* heed eval: what other attention costs a model and saves, by tasks, a text and the clock. */
#include "cli/eval.h"
#include "base/try.h"
#include "cli/progress.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SPECS = 128 };

typedef struct eval_options {
    cli_language use;
    cli_list spec;
    int suite;
    int64_t seed, length;
    const char *specs, *tasks, *resume, *picture, *grid;
    bool csv, apart;
} eval_options;

static const cli_option options[] = {
    CLI_MODEL_OPTION(eval_options),
    CLI_LIST_OPTION(eval_options, spec, "spec", "SPEC", "attention to judge beside the model's own; several"),
    CLI_TEXT_OPTION(eval_options, specs, "specs", "FILE", "more of them, one a line; # begins a remark"),
    CLI_CHOICE_OPTION(eval_options, suite, "suite", "SUITE", heed_suite_word, "quick or long; quick"),
    CLI_TEXT_OPTION(eval_options, tasks, "tasks", "LIST", "what to do, as in text,speed,needle; everything"),
    CLI_WHOLE_OPTION(eval_options, length, "length", 32, 1 << 24,
                     "tokens of the longest text; the suite's, or the model's context if that is less"),
    CLI_WHOLE_OPTION(eval_options, seed, "seed", 0, INT64_MAX, "of the prompts; 1"),
    CLI_FLAG_OPTION(eval_options, apart, "apart", "policies act on the context before the question is read"),
    CLI_TEXT_OPTION(eval_options, resume, "resume", "FILE",
                    "results are kept there, and what it has is not done again"),
    CLI_TEXT_OPTION(eval_options, picture, "picture", "FILE", "quality against memory as .png or .svg"),
    CLI_TEXT_OPTION(eval_options, grid, "grid", "FILE", "recall by depth and length as .png or .svg"),
    CLI_RUN_OPTIONS(eval_options),
    CLI_FLAG_OPTION(eval_options, use.json, "json", "a JSON object a line and attention"),
    CLI_FLAG_OPTION(eval_options, csv, "csv", "a line of comma-separated values an attention"),
    {0},
};

typedef struct eval_run {
    const eval_options *wanted;
    heed_model *model;
    heed_evaluation evaluation;
    heed_results results;
    char *spec[MOST_SPECS];
    int specs;
    cli_progress progress;
    char what[64];
} eval_run;

static void show_progress(void *context, const char *what, const char *spec, double done, double all)
{
    eval_run *run = context;
    if (!spec)
        snprintf(run->what, sizeof run->what, "%s", what);
    else
        snprintf(run->what, sizeof run->what, "%s, %.30s", what, *spec ? spec : "own attention");
    run->progress.what = run->what;
    cli_progress_show(&run->progress, done, all);
}

static const char *task_word(int i)
{
    static const char *const others[] = {"text", "speed"};
    return i < 2 ? others[i] : heed_tasks[i - 2] ? heed_tasks[i - 2]->name : NULL;
}

/* Words between commas; all when there are none. */
static heed_status choose_tasks(const char *list, heed_evaluation *evaluation)
{
    bool chosen[32] = {false};
    for (const char *at = list; at && *at;) {
        char word[32];
        const size_t length = strcspn(at, ",");
        int i = 0;
        snprintf(word, sizeof word, "%.*s", (int)(length < 31 ? length : 31), at);
        while (task_word(i) && strcmp(task_word(i), word))
            i++;
        if (!task_word(i))
            return heed_fail(HEED_INVALID, "--tasks: there is no task '%s'%s", word,
                             cli_nearest(word, task_word).text);
        chosen[i] = true;
        at += length + (at[length] == ',');
    }
    int count = 0;
    for (int i = 0; task_word(i); i++) {
        const bool listed = list && *list;
        if (listed ? !chosen[i] : i >= 2 && heed_tasks[i - 2]->by_name)
            continue;
        if (i < 2)
            *(i ? &evaluation->speed : &evaluation->text) = true;
        else
            evaluation->task[count++] = heed_tasks[i - 2];
    }
    return HEED_OK;
}

/* Specs go by what was written: the canonical text leaves out clauses that are defaults, but here they
 * replace what the model has. */
static heed_status add_spec(eval_run *run, const char *spec, size_t size)
{
    while (size && strchr(" \t\r\n", *spec)) {
        spec++;
        size--;
    }
    while (size && strchr(" \t\r\n", spec[size - 1]))
        size--;
    if (run->specs == MOST_SPECS)
        return heed_fail(HEED_INVALID, "at most %d specs can be judged at once", MOST_SPECS);
    char *copy = run->spec[run->specs] = strndup(spec, size);
    if (!copy)
        return heed_fail(HEED_NO_MEMORY, "no memory for specs");
    run->specs++;
    TRY(heed_spec_canonical(copy, NULL, NULL, 0)); /* is it a spec at all? */
    for (int i = 0; i < run->specs - 1; i++)
        if (!strcmp(run->spec[i], copy))
            return heed_fail(HEED_INVALID, "--spec %.300s is given twice", copy);
    return HEED_OK;
}

static heed_status take_file(eval_run *run, const char *path)
{
    cli_text text;
    TRY(cli_read_file(path, &text));
    heed_status status = HEED_OK;
    for (size_t at = 0, line = 1; at < text.size && !status; line++) {
        const char *from = text.bytes + at, *end = memchr(from, '\n', text.size - at);
        const size_t size = end ? (size_t)(end - from) : text.size - at;
        const char *remark = memchr(from, '#', size);
        const size_t used = remark ? (size_t)(remark - from) : size;
        size_t blank = 0;
        while (blank < used && strchr(" \t\r", from[blank]))
            blank++;
        if (blank < used)
            status = add_spec(run, from, used);
        if (status) {
            char message[600];
            snprintf(message, sizeof message, "%s", heed_message());
            status = heed_fail(status, "%s, line %zu: %s", path, line, message);
        }
        at += size + 1;
    }
    free(text.bytes);
    return status;
}

static heed_status take_specs(eval_run *run)
{
    for (int i = 0; i < run->wanted->spec.count; i++)
        TRY(add_spec(run, run->wanted->spec.word[i], strlen(run->wanted->spec.word[i])));
    if (run->wanted->specs)
        TRY(take_file(run, run->wanted->specs));
    run->evaluation.spec = (const char *const *)run->spec;
    run->evaluation.specs = run->specs;
    return HEED_OK;
}

static void set_key(const eval_run *run, const heed_model_info *info, heed_results_key *key)
{
    const heed_evaluation *e = &run->evaluation;
    const cli_language *use = &run->wanted->use;
    snprintf(
        key->model, sizeof key->model, "%s %.100s, %.0f numbers in %zu bytes%s, cache %s%s%.200s%s%.200s",
        info->architecture, info->name ? info->name : "", info->parameters, info->file_bytes,
        use->exact ? ", exact" : "", heed_type_name(e->session.cache), use->attention ? ", " : "",
        use->attention ? use->attention : "", use->params ? ", params " : "", use->params ? use->params : "");
    snprintf(key->suite, sizeof key->suite, "%s", e->suite.name);
    snprintf(key->seed, sizeof key->seed, "%llu", (unsigned long long)e->seed);
    snprintf(key->length, sizeof key->length, "%lld", (long long)e->suite.text);
    snprintf(key->question, sizeof key->question, "%s", e->apart ? "apart" : "with context");
}

static heed_status begin(eval_run *run)
{
    const eval_options *wanted = run->wanted;
    heed_evaluation *e = &run->evaluation;
    heed_model_info info;
    TRY(choose_tasks(wanted->tasks, e));
    TRY(cli_eval_check_pictures(e, wanted->picture, wanted->grid));
    TRY(take_specs(run));
    TRY(cli_open_model(&cli_eval, &wanted->use, &run->model));
    for (int i = 0; i < run->specs; i++)
        cli_note_replaced(&cli_eval, run->model, run->spec[i]);
    heed_model_get_info(run->model, &info);
    e->model = run->model;
    e->session = cli_session_options(&wanted->use, 0);
    e->seed = (uint64_t)wanted->seed;
    e->apart = wanted->apart;
    e->file = wanted->resume;
    e->progress = show_progress;
    e->context = run;
    TRY(heed_suite_make(&e->suite, heed_suite_word(wanted->suite), info.context, wanted->length));
    set_key(run, &info, &run->results.key);
    return wanted->resume ? heed_results_read(&run->results, wanted->resume) : HEED_OK;
}

static heed_status show(eval_run *run)
{
    const eval_options *wanted = run->wanted;
    cli_eval_row row[1 + MOST_SPECS];
    cli_eval_table table = {.evaluation = &run->evaluation, .results = &run->results, .row = row};
    heed_model_info info;
    heed_model_get_info(run->model, &info);
    table.model = info.name && *info.name ? info.name : info.architecture;
    for (int i = 0; i <= run->evaluation.specs; i++) {
        const char *spec = i ? run->spec[i - 1] : "";
        row[table.rows] =
            (cli_eval_row){i ? spec : "the model's own attention", heed_results_of(&run->results, spec)};
        if (!row[table.rows++].result)
            return HEED_NO_MEMORY;
    }
    if (wanted->picture)
        TRY(cli_eval_draw_memory(&table, wanted->picture));
    if (wanted->grid)
        TRY(cli_eval_draw_recall(&table, wanted->grid));
    (wanted->use.json ? cli_eval_json : wanted->csv ? cli_eval_csv : cli_eval_print)(&table);
    return HEED_OK;
}

static int run_command(int argc, char **argv)
{
    eval_options wanted = {.use = CLI_LANGUAGE(), .seed = 1};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_eval, argc, argv, &wanted, &arguments, 0, 0, &status))
        return status;
    if (wanted.use.json && wanted.csv)
        return cli_fail("eval", "--json and --csv: one of them is the output");
    eval_run run = {.wanted = &wanted, .progress = {.unit = "tokens", .scale = 1.0}};
    heed_status failed = begin(&run);
    if (!failed)
        failed = heed_evaluation_run(&run.evaluation, &run.results);
    cli_progress_end(&run.progress);
    if (!failed)
        failed = show(&run);
    status = failed ? cli_fail_message("eval") : CLI_OK;
    for (int i = 0; i < run.specs; i++)
        free(run.spec[i]);
    heed_results_free(&run.results);
    heed_model_close(run.model);
    return status;
}

const cli_command cli_eval = {
    .name = "eval",
    .arguments = "-m MODEL --spec SPEC [--spec SPEC ...]",
    .summary = "what other attention costs a model and saves: tasks, a text, speed and memory",
    .details =
        "Each spec's clauses replace those of the model's own attention, which comes first. The text is a "
        "book\n"
        "in the public domain; of each piece the first half is a prompt, at whose end policies act, and the\n"
        "second half is judged. Perplexity is that of short pieces, of a long one and of its last quarter; "
        "KL\n"
        "and the share of positions with the same first token are those of the long one. An answer is right\n"
        "when a model that always writes the likeliest token would write it.\n"
        "Tasks: text, speed, passkey, needle, multikey, variables, copying, induction, key_value,\n"
        "and by name only interference: keys whose values changed many times.\n",
    .example = "heed eval -m smollm2 --length 256 --tasks text,needle --spec \"where=causal & (window(64) | "
               "first(4))\"",
    .options = options,
    .run = run_command,
};
