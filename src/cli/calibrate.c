/* heed calibrate: tensors of forms of attention, found on a text that the model reads. */
#include "base/try.h"
#include "cli/language.h"
#include "cli/progress.h"

#include <stdlib.h>

typedef struct calibrate_options {
    cli_language use;
    const char *output;
    int64_t tokens, window;
} calibrate_options;

static const cli_option options[] = {
    CLI_MODEL_OPTION(calibrate_options),
    CLI_TEXT_OPTION(calibrate_options, use.attention, "attention", "SPEC",
                    "clauses with the forms, which replace those of the model's own attention"),
    CLI_OPTION(calibrate_options, output, .kind = CLI_TEXT, .name = "output", .letter = 'o', .value = "FILE",
               .summary = "the tensors, as safetensors"),
    CLI_WHOLE_OPTION(calibrate_options, tokens, "tokens", 1, 1 << 28, "of the text that are read; all"),
    CLI_WHOLE_OPTION(calibrate_options, window, "window", 16, 1 << 16,
                     "tokens that are read at a time, where a form does not say; 2048"),
    CLI_FLAG_OPTION(calibrate_options, use.exact, "exact",
                    "fp32 activations, weights as the file defines them"),
    CLI_THREADS_OPTION(calibrate_options, use.threads),
    CLI_SPECIAL_OPTION(calibrate_options),
    CLI_FLAG_OPTION(calibrate_options, use.json, "json", "a JSON object a layer and form"),
    {0},
};

typedef struct calibrate_run {
    const calibrate_options *wanted;
    heed_model *model;
    heed_tokens tokens;
    heed_params *params;
    cli_progress progress;
} calibrate_run;

static void show_progress(void *context, double done)
{
    calibrate_run *run = context;
    cli_progress_show(&run->progress, done, 1.0);
}

static void show_found(void *context, int64_t layer, const heed_form *form, double value)
{
    calibrate_run *run = context;
    char name[80];
    cli_progress_end(&run->progress);
    snprintf(name, sizeof name, "%s.%s", heed_stage_name(form->stage), form->name);
    if (!run->wanted->use.json) {
        printf("layer %3lld  %s: %s %.4g\n", (long long)layer, name, form->calibration->measured, value);
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddNumberToObject(line, "layer", (double)layer);
    cJSON_AddStringToObject(line, "form", name);
    cJSON_AddStringToObject(line, "measure", form->calibration->measured);
    cJSON_AddNumberToObject(line, "value", value);
    cli_print_json(line);
}

static heed_status read_tokens(calibrate_run *run, const char *path)
{
    cli_text text;
    TRY(cli_read_file(path, &text));
    const heed_status status = cli_tokens_of(run->model, &run->wanted->use, &text, &run->tokens);
    free(text.bytes);
    TRY(status);
    if (run->tokens.count == 0)
        return heed_fail(HEED_INVALID, "%s has no tokens", path);
    return HEED_OK;
}

static heed_status calibrate(calibrate_run *run, const char *path)
{
    const calibrate_options *wanted = run->wanted;
    if (!wanted->output)
        return heed_fail(HEED_INVALID, "-o FILE is missing");
    if (!wanted->use.attention)
        return heed_fail(HEED_INVALID, "--attention SPEC is missing");
    TRY(cli_open_model(&cli_calibrate, &wanted->use, &run->model));
    TRY(read_tokens(run, path));
    const heed_calibration_options how = {.attention = wanted->use.attention,
                                          .window = wanted->window,
                                          .threads = (int)wanted->use.threads,
                                          .progress = show_progress,
                                          .found = show_found,
                                          .context = run};
    const int64_t count =
        wanted->tokens && wanted->tokens < run->tokens.count ? wanted->tokens : run->tokens.count;
    run->progress.what = "calibrating";
    const heed_status status = heed_calibrate(&run->params, run->model, &how, run->tokens.id, count);
    cli_progress_end(&run->progress);
    return status ? status : heed_params_save(run->params, wanted->output);
}

static int run_command(int argc, char **argv)
{
    calibrate_options chosen = {.use = CLI_LANGUAGE(.context = 0)};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_calibrate, argc, argv, &chosen, &arguments, 1, 1, &status))
        return status;
    calibrate_run run = {.wanted = &chosen};
    status = calibrate(&run, arguments.word[0]) ? cli_fail_message("calibrate") : CLI_OK;
    heed_params_free(run.params);
    heed_tokens_free(&run.tokens);
    heed_model_close(run.model);
    return status;
}

const cli_command cli_calibrate = {
    .name = "calibrate",
    .arguments = "-m MODEL --attention SPEC FILE -o PARAMS",
    .summary = "tensors of forms of attention, found on a text that a model reads",
    .details =
        "What it writes is for --params of the commands that run a model. The text is read in windows, each "
        "as a text of its own.\n",
    .example = "heed calibrate -m smollm2 --attention 'select=loki' README.md -o loki.safetensors\n"
               "heed run -m smollm2 -p 'The sea' -n 8 --attention 'select=loki' --params loki.safetensors\n",
    .options = options,
    .run = run_command,
};
