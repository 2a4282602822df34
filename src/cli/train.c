/* heed train: a small model from nothing, by a config file. heed finetune: on from a pretrained one. */
#include "base/clock.h"
#include "base/output.h"
#include "base/try.h"
#include "cli/cli.h"
#include "cli/model.h"
#include "cli/progress.h"
#include "train/log.h"
#include "train/trained.h"
#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct train_options {
    const char *folder, *model;
    cli_list set;
    bool resume, keys, json;
    int64_t threads, stop_after, show;
} train_options;

#define OPTIONS                                                                                              \
    CLI_OPTION(train_options, folder, .kind = CLI_TEXT, .name = "output", .letter = 'o', .value = "FOLDER",  \
               .summary = "where checkpoint, log, curve and model go"),                                      \
        CLI_LIST_OPTION(train_options, set, "set", "KEY=VALUE",                                              \
                        "a key other than the config says; several"),                                        \
        CLI_FLAG_OPTION(train_options, resume, "resume", "go on from the folder's checkpoint"),              \
        CLI_WHOLE_OPTION(train_options, stop_after, "stop-after", 1, INT64_MAX,                              \
                         "steps before this call leaves off with a checkpoint"),                             \
        CLI_WHOLE_OPTION(train_options, show, "show", 1, 1 << 20,                                            \
                         "held-out sequences to answer freely when the run is done"),                        \
        CLI_THREADS_OPTION(train_options, threads),                                                          \
        CLI_FLAG_OPTION(train_options, keys, "keys", "list keys, their usual values, and tasks"),            \
        CLI_FLAG_OPTION(train_options, json, "json", "the result as a JSON object")

static const cli_option options[] = {OPTIONS, {0}};

static const cli_option finetune_options[] = {
    CLI_OPTION(train_options, model, .kind = CLI_TEXT, .name = "model", .letter = 'm', .value = "MODEL",
               .summary = "a model file, a folder, or the name of a fetched model"),
    OPTIONS,
    {0},
};

typedef struct train_run {
    const cli_command *command;
    const train_options *wanted;
    heed_trainer *trainer;
    heed_train_log log;
    cli_progress progress;
    char checkpoint[1200], what[100];
    heed_evaluated first, last; /* before the first step of a pretrained model; so far */
    double seconds;             /* in steps */
    int64_t steps;              /* done in this run of the program */
} train_run;

static void print_usual(const heed_key *key)
{
    char text[80];
    switch (key->kind) {
    case HEED_KEY_TEXT:
    case HEED_KEY_WORD:
        snprintf(text, sizeof text, "%s", key->usual_text);
        break;
    case HEED_KEY_YES:
        snprintf(text, sizeof text, "no");
        break;
    default:
        snprintf(text, sizeof text, isnan(key->usual) ? "the optimiser's" : "%g", key->usual);
        break;
    }
    printf("  %-15s %-28s %s\n", key->name, text, key->summary);
}

static int print_keys(void)
{
    printf("key             usual value                  meaning\n");
    for (int i = 0; heed_train_key(i); i++)
        print_usual(heed_train_key(i));
    printf("\ntasks\n");
    for (int i = 0; heed_synthetic_at(i); i++) {
        const heed_synthetic *task = heed_synthetic_at(i);
        char call[200];
        int used = snprintf(call, sizeof call, "%s(", task->name);
        for (int a = 0; a < HEED_SYNTHETIC_ARGS && task->arg[a].name; a++)
            used += snprintf(call + used, sizeof call - (size_t)used, "%s%s=%lld", a ? ", " : "",
                             task->arg[a].name, (long long)task->arg[a].usual);
        snprintf(call + used, sizeof call - (size_t)used, ")");
        printf("  %-44s %s\n", call, task->summary);
    }
    return CLI_OK;
}

static heed_status read_config(const char *path, heed_train_config *config)
{
    char text[1 << 16];
    FILE *file = fopen(path, "rb");
    if (!file)
        return heed_fail(HEED_IO, "%s: cannot be read: %s", path, strerror(errno));
    const size_t size = fread(text, 1, sizeof text - 1, file);
    const bool whole = feof(file) && !ferror(file);
    fclose(file);
    text[size] = 0;
    if (!whole)
        return heed_fail(HEED_FORMAT, "%s: this is no config: it cannot be read, or has more than %zu bytes",
                         path, sizeof text - 1);
    return heed_train_config_read(config, text, path);
}

/* What is usual where a pretrained model goes on, on a machine of a few cores. */
static void start_from_model(heed_train_config *config)
{
    strcpy(config->data, "text");
    config->context = 256;
    config->batch = 4;
    config->steps = 100;
    config->warmup = 10;
    config->eval_sequences = 16;
    config->recompute = true;
}

static heed_status set_model(const train_options *wanted, heed_train_config *config)
{
    cli_model_path path;
    if (!wanted->model)
        return *config->base ? HEED_OK
                             : heed_fail(HEED_INVALID, "-m MODEL is missing: the model to go on from");
    TRY(cli_find_model(wanted->model, &path));
    if (strlen(path.text) >= sizeof config->base)
        return heed_fail(HEED_INVALID, "%.60s...: the path is too long", path.text);
    strcpy(config->base, path.text);
    return HEED_OK;
}

/* From the file, or with --resume from the checkpoint; then --set. */
static heed_status find_config(const train_run *run, const char *path, bool has_checkpoint,
                               heed_train_config *config)
{
    heed_status status = HEED_OK;
    const bool finetunes = run->command == &cli_finetune;
    heed_train_config_start(config);
    if (finetunes && !has_checkpoint)
        start_from_model(config);
    if (path) {
        status = read_config(path, config);
    } else if (has_checkpoint) {
        char *text = NULL;
        status = heed_checkpoint_config(run->checkpoint, &text);
        if (!status)
            status = heed_train_config_read(config, text, run->checkpoint);
        free(text);
    }
    for (int i = 0; i < run->wanted->set.count && !status; i++)
        status = heed_train_config_set(config, run->wanted->set.word[i], "--set");
    return status || !finetunes ? status : set_model(run->wanted, config);
}

static heed_status evaluate(train_run *run)
{
    const heed_status status = heed_trainer_evaluate(run->trainer, &run->last);
    return status ? status : heed_log_evaluation(&run->log, heed_trainer_steps(run->trainer), &run->last);
}

static void describe(const train_run *run, char *text, size_t size)
{
    const heed_transformer *m = heed_trainer_model(run->trainer);
    const heed_train_config *c = heed_trainer_config(run->trainer);
    snprintf(text, size, "%.80s, %lld layers of width %lld, %.120s", c->data, (long long)m->layers,
             (long long)m->width, m->spec);
}

static heed_status draw(const train_run *run)
{
    char title[320];
    describe(run, title, sizeof title);
    char name[40];
    snprintf(name, sizeof name, "heed %s", run->command->name);
    const heed_status status = heed_log_draw(&run->log, run->wanted->folder, name, title);
    return status == HEED_UNSUPPORTED ? HEED_OK : status; /* a build without pictures */
}

static heed_status step(train_run *run)
{
    const heed_train_config *c = heed_trainer_config(run->trainer);
    const double before = heed_seconds(), tokens = (double)heed_trainer_get_info(run->trainer).tokens;
    heed_train_report report;
    heed_status status = heed_trainer_step(run->trainer, &report);
    const int64_t done = heed_trainer_steps(run->trainer);
    run->seconds += heed_seconds() - before;
    run->steps++;
    if (status)
        return status;
    if (done % c->log_every == 0 || done == c->steps || done == 1)
        status = heed_log_step(&run->log, done, &report, tokens * (double)done, run->seconds);
    if (!status && (done % c->eval_every == 0 || done == c->steps))
        status = evaluate(run);
    if (!status && (done % c->save_every == 0 || done == c->steps || run->steps == run->wanted->stop_after))
        status = heed_trainer_save(run->trainer, run->checkpoint);
    snprintf(run->what, sizeof run->what, "step %lld, loss %.4f", (long long)done, report.loss);
    run->progress.what = run->what;
    cli_progress_show(&run->progress, tokens * (double)run->steps,
                      tokens * (double)(run->steps + c->steps - done));
    return status;
}

/* What of a model that went on was written, and how it is run. */
static void print_files(const train_run *run)
{
    static const char *const names[] = {"model.gguf", "model.safetensors", "adapter_model.safetensors",
                                        "params.safetensors"};
    const heed_train_config *c = heed_trainer_config(run->trainer);
    char path[1300];
    struct stat info;
    bool there[4];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", run->wanted->folder, names[i]);
        there[i] = stat(path, &info) == 0;
    }
    if (there[2])
        printf("%s/adapter_model.safetensors is the adapter alone\n", run->wanted->folder);
    if (there[0] || there[1])
        printf("heed run -m %s%s", run->wanted->folder, there[0] ? "/model.gguf" : "");
    else if (there[3])
        printf("heed run -m %s", c->base);
    if (there[3])
        printf(" --attention '%s' --params %s/params.safetensors", c->attention, run->wanted->folder);
    if (there[0] || there[1] || there[3])
        printf("\n");
}

static void print_result(const train_run *run, const char *why)
{
    const heed_trainer_info info = heed_trainer_get_info(run->trainer);
    const double tokens = (double)info.tokens * (double)run->steps;
    const double speed = run->seconds > 0.0 ? tokens / run->seconds : 0.0;
    if (run->wanted->json) {
        printf("{\"steps\": %lld, \"parameters\": %lld, \"held_out_loss\": %.9g, \"accuracy\": %.9g",
               (long long)heed_trainer_steps(run->trainer), (long long)info.parameters, run->last.loss,
               run->last.accuracy);
        if (!isnan(run->first.loss))
            printf(", \"held_out_loss_before\": %.9g", run->first.loss);
        if (!isnan(run->last.bits))
            printf(", \"bits_per_byte\": %.9g", run->last.bits);
        for (int i = 0; i < run->last.measures; i++)
            printf(", \"%s\": %.9g", run->last.measure[i].name, run->last.measure[i].value);
        printf(", \"seconds\": %.3f, \"tokens_per_second\": %.1f, \"gflops\": %.2f, \"bytes\": %zu}\n",
               run->seconds, speed,
               run->seconds > 0.0 ? 1e-9 * info.flops * (double)run->steps / run->seconds : 0.0, info.bytes);
        return;
    }
    if (isnan(run->last.loss)) {
        printf("%lld of %lld steps done; --resume goes on\n", (long long)heed_trainer_steps(run->trainer),
               (long long)heed_trainer_config(run->trainer)->steps);
        return;
    }
    if (!isnan(run->first.loss))
        printf("before:   loss %.4f, accuracy %.2f %%\n", run->first.loss, 100.0 * run->first.accuracy);
    printf("held out: loss %.4f, accuracy %.2f %%", run->last.loss, 100.0 * run->last.accuracy);
    if (!isnan(run->last.bits))
        printf(", %.4f bits a byte", run->last.bits);
    if (!isnan(run->last.ceiling))
        printf(" (%.0f %% can be known)", 100.0 * run->last.ceiling);
    for (int i = 0; i < run->last.measures; i++)
        printf("%s%s %.4g", i ? ", " : "\n", run->last.measure[i].name, run->last.measure[i].value);
    printf("\n%lld parameters, %lld steps, %.0f tokens/s, %.1f GFLOP/s, %.1f MB\n",
           (long long)info.parameters, (long long)heed_trainer_steps(run->trainer), speed,
           run->seconds > 0.0 ? 1e-9 * info.flops * (double)run->steps / run->seconds : 0.0,
           1e-6 * (double)info.bytes);
    if (run->command == &cli_finetune)
        print_files(run);
    else if (heed_trained_has(run->trainer))
        printf("heed predict -m %s\n", run->wanted->folder);
    else if (why)
        printf("%s has checkpoint, log, curve and weights; other commands cannot run the model: %s\n",
               run->wanted->folder, why);
    else
        printf("heed run -m %s\n", run->wanted->folder);
}

/* Tokens as numbers, or as text where they are bytes. */
static void put_tokens(const train_run *run, const int32_t *token, const int32_t *asked, int64_t count)
{
    const heed_train_config *c = heed_trainer_config(run->trainer);
    const bool bytes = !strcmp(c->data, "text") && !strcmp(c->tokenizer, "bytes");
    for (int64_t i = 0; i < count; i++) {
        if (asked && asked[i] < 0)
            continue;
        if (!bytes)
            printf("%s%d", i ? " " : "", token[i]);
        else if (token[i] >= ' ' && token[i] < 127)
            putchar(token[i]);
        else
            printf("<%d>", token[i]);
    }
}

static void show_answer(void *context, const heed_answer *answer)
{
    const train_run *run = context;
    if (run->wanted->json)
        return;
    if (answer->source)
        put_tokens(run, answer->source, NULL, answer->sources);
    else
        put_tokens(run, answer->given, NULL, answer->tokens);
    printf("\n  right: ");
    put_tokens(run, answer->target, answer->target, answer->tokens);
    printf("\n  said:  ");
    put_tokens(run, answer->said, answer->target, answer->tokens);
    putchar('\n');
}

static heed_status show(train_run *run)
{
    heed_generated made;
    const heed_status status =
        heed_trainer_generate(run->trainer, run->wanted->show, &made, show_answer, run);
    if (!status && run->wanted->json)
        printf("{\"sequences\": %lld, \"exact\": %lld}\n", (long long)made.sequences, (long long)made.exact);
    else if (!status)
        printf("%lld of %lld sequences are wholly right\n", (long long)made.exact, (long long)made.sequences);
    return status;
}

static heed_status train(train_run *run, bool has_checkpoint)
{
    const char *why = NULL;
    heed_status status = has_checkpoint ? heed_trainer_load(run->trainer, run->checkpoint) : HEED_OK;
    if (!status)
        status = heed_log_open(&run->log, run->wanted->folder, heed_trainer_steps(run->trainer));
    const int64_t steps = heed_trainer_config(run->trainer)->steps;
    if (!status && heed_trainer_steps(run->trainer) >= steps)
        status = heed_trainer_evaluate(run->trainer, &run->last);
    if (!status && run->command == &cli_finetune && heed_trainer_steps(run->trainer) == 0) {
        status = evaluate(run);
        run->first = run->last;
        run->last.loss = NAN;
    }
    const int64_t most = run->wanted->stop_after ? run->wanted->stop_after : INT64_MAX;
    while (!status && heed_trainer_steps(run->trainer) < steps && run->steps < most)
        status = step(run);
    cli_progress_end(&run->progress);
    if (!status)
        status = draw(run);
    if (!status)
        status = heed_trainer_export(run->trainer, run->wanted->folder, &why);
    if (!status)
        print_result(run, why);
    if (!status && run->wanted->show)
        status = show(run);
    heed_log_close(&run->log);
    return status;
}

static int run_command(const cli_command *command, int argc, char **argv)
{
    train_options wanted = {.threads = 0};
    cli_arguments arguments;
    int exit_status;
    if (!cli_parse(command, argc, argv, &wanted, &arguments, 0, 1, &exit_status))
        return exit_status;
    if (wanted.keys)
        return print_keys();
    train_run run = {.command = command,
                     .wanted = &wanted,
                     .progress = {.unit = "ktokens", .scale = 1e3},
                     .first = {.loss = NAN},
                     .last = {.loss = NAN}};
    const char *path = arguments.count ? arguments.word[0] : NULL;
    if (!wanted.folder)
        return cli_fail(command->name, "-o FOLDER is missing: where checkpoint, log and model go");
    if (snprintf(run.checkpoint, sizeof run.checkpoint, "%s/checkpoint.safetensors", wanted.folder) >=
        (int)sizeof run.checkpoint)
        return cli_fail(command->name, "%.60s...: the path is too long", wanted.folder);
    struct stat info;
    const bool exists = stat(run.checkpoint, &info) == 0;
    if (exists && !wanted.resume)
        return cli_fail(command->name,
                        "%s has a checkpoint: --resume goes on from it, another folder begins anew",
                        wanted.folder);
    if (command == &cli_train && !path && !wanted.set.count && !(exists && wanted.resume))
        return cli_fail(command->name,
                        "a config is missing: a file, or --set KEY=VALUE; --keys lists the keys");
    heed_train_config config;
    if (find_config(&run, path, exists, &config))
        return cli_fail_message(command->name);
    heed_status status = heed_trainer_create(&run.trainer, &config, (int)wanted.threads);
    if (!status && mkdir(wanted.folder, 0777) && errno != EEXIST)
        status = heed_fail(HEED_IO, "%s: cannot be made: %s", wanted.folder, strerror(errno));
    if (!status)
        status = train(&run, exists);
    heed_trainer_free(run.trainer);
    return status ? cli_fail_message(command->name) : CLI_OK;
}

static int run_train(int argc, char **argv)
{
    return run_command(&cli_train, argc, argv);
}

static int run_finetune(int argc, char **argv)
{
    return run_command(&cli_finetune, argc, argv);
}

const cli_command cli_train = {
    .name = "train",
    .arguments = "[CONFIG] -o FOLDER",
    .summary = "train a small model with any form of attention, on a task or a text",
    .details =
        "A config has lines `key = value`, and # before remarks. The folder gets checkpoint.safetensors (all "
        "that\n"
        "--resume needs: the run goes on as if it had never stopped, bit for bit), log.jsonl, loss.png, and\n"
        "model.safetensors with config.json where the model is one that other commands can run.\n",
    .example = "heed train --set 'data = copy(length=8)' --set steps=200 -o /tmp/copy\n"
               "heed train --keys\n",
    .options = options,
    .run = run_train,
};

const cli_command cli_finetune = {
    .name = "finetune",
    .arguments = "-m MODEL [CONFIG] -o FOLDER",
    .summary = "go on training a pretrained model: all of it, chosen tensors, LoRA, or parameters of forms",
    .details =
        "Keys are those of heed train; the model's shape is the model's own. learn = all, chosen (by "
        "tensors), lora or\n"
        "forms says what changes; attention = SPEC replaces clauses of the model's attention, whose "
        "parameters then\n"
        "learn too (they go to params.safetensors, for --params). Usual here: data = text, context = 256, "
        "batch = 4,\n"
        "steps = 100, recompute = yes. The result is a file as MODEL is one: model.gguf, or a folder of "
        "safetensors.\n",
    .example =
        "printf 'The sea is blue. %.0s' $(seq 400) > /tmp/sea.txt\n"
        "heed finetune -m smollm2 --set learn=lora --set file=/tmp/sea.txt --set context=64 --set batch=1 "
        "--set steps=2 --set eval_sequences=2 --set lora_write=adapter -o /tmp/sea\n",
    .options = finetune_options,
    .run = run_finetune,
};
