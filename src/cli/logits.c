/* heed logits: what a model expects next, at any place of a text. */
#include "base/try.h"
#include "cli/language.h"

#include <stdlib.h>
#include <string.h>

typedef struct logits_options {
    cli_language use;
    const char *positions;
    int64_t top;
} logits_options;

static const cli_option options[] = {
    CLI_MODEL_OPTION(logits_options),
    CLI_PROMPT_OPTIONS(logits_options),
    CLI_WHOLE_OPTION(logits_options, top, "top", 1, 1 << 20, "likeliest next tokens to show; 12"),
    CLI_TEXT_OPTION(logits_options, positions, "positions", "all|last|N,N", "places to show; last"),
    CLI_RUN_OPTIONS(logits_options),
    CLI_SPECIAL_OPTION(logits_options),
    CLI_FLAG_OPTION(logits_options, use.json, "json", "a JSON object a line and place"),
    {0},
};

typedef struct logits_run {
    logits_options options;
    heed_model *model;
    heed_model_info info;
    heed_session *session;
    heed_tokens tokens;
    bool *wanted; /* [tokens] */
    float *logits;
    heed_logprob *best; /* [top] */
} logits_run;

static heed_status mark_positions(logits_run *run)
{
    const char *at = run->options.positions ? run->options.positions : "last";
    const int64_t count = run->tokens.count;
    if (!strcmp(at, "last"))
        run->wanted[count - 1] = true;
    if (!strcmp(at, "all"))
        memset(run->wanted, true, (size_t)count);
    if (!strcmp(at, "last") || !strcmp(at, "all"))
        return HEED_OK;
    while (*at) {
        char *end;
        const long long position = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ','))
            return heed_fail(HEED_INVALID, "--positions %.100s: all, last or numbers with commas are needed",
                             run->options.positions);
        if (position < 0 || position >= count)
            return heed_fail(HEED_INVALID,
                             "--positions: there is no position %lld, the text has %lld tokens, 0 to %lld",
                             position, (long long)count, (long long)count - 1);
        run->wanted[position] = true;
        at = *end ? end + 1 : end;
    }
    return HEED_OK;
}

static void print_json(const logits_run *run, int64_t position, int64_t count)
{
    const heed_tokenizer *tokenizer = heed_model_tokenizer(run->model);
    char *text = cli_token_text(tokenizer, run->tokens.id[position]);
    cJSON *line = cJSON_CreateObject(), *next = cJSON_CreateArray();
    cJSON_AddNumberToObject(line, "position", (double)position);
    cJSON_AddNumberToObject(line, "id", run->tokens.id[position]);
    cJSON_AddStringToObject(line, "text", text ? text : "");
    free(text);
    for (int64_t i = 0; i < count; i++) {
        cJSON *one = cJSON_CreateObject();
        text = cli_token_text(tokenizer, run->best[i].token);
        cJSON_AddNumberToObject(one, "id", run->best[i].token);
        cJSON_AddStringToObject(one, "text", text ? text : "");
        cJSON_AddNumberToObject(one, "logprob", run->best[i].logprob);
        cJSON_AddItemToArray(next, one);
        free(text);
    }
    cJSON_AddItemToObject(line, "next", next);
    cJSON_AddNumberToObject(line, "read", (double)run->tokens.count);
    cJSON_AddNumberToObject(line, "reused", 0);
    cJSON_AddNumberToObject(line, "dropped", 0);
    cJSON_AddNumberToObject(line, "written", 0);
    cJSON_AddStringToObject(line, "kernels", run->info.kernels);
    cli_print_json(line);
}

/* A text on one line, in quotes. */
static void print_quoted(const char *text)
{
    putchar('\'');
    for (; text && *text; text++) {
        if (*text == '\n' || *text == '\t' || *text == '\r')
            printf("\\%c", *text == '\n' ? 'n' : *text == '\t' ? 't' : 'r');
        else if ((unsigned char)*text < ' ')
            printf("\\x%02x", (unsigned char)*text);
        else
            putchar(*text);
    }
    putchar('\'');
}

static void print_text(const logits_run *run, int64_t position, int64_t count)
{
    const heed_tokenizer *tokenizer = heed_model_tokenizer(run->model);
    char *text = cli_token_text(tokenizer, run->tokens.id[position]);
    printf("%lld: ", (long long)position);
    print_quoted(text);
    printf(" (%d)\n", run->tokens.id[position]);
    free(text);
    for (int64_t i = 0; i < count; i++) {
        text = cli_token_text(tokenizer, run->best[i].token);
        printf("  %9.4f  %7d  ", run->best[i].logprob, run->best[i].token);
        print_quoted(text);
        putchar('\n');
        free(text);
    }
}

static void show(logits_run *run, int64_t position)
{
    const int64_t count = heed_top_logprobs(run->logits, run->info.vocabulary, run->options.top, run->best);
    if (run->options.use.json)
        print_json(run, position, count);
    else
        print_text(run, position, count);
}

/* Reads up to each place that is wanted, in turn. */
static heed_status read_on(logits_run *run)
{
    int64_t held = 0;
    for (int64_t position = 0; position < run->tokens.count; position++) {
        if (!run->wanted[position])
            continue;
        const heed_feed_item item = {.tokens = run->tokens.id + held, .count = position + 1 - held};
        TRY(heed_feed(run->session, &item, 1, &(heed_feed_wants){.logits = run->logits}));
        show(run, position);
        held = position + 1;
    }
    return HEED_OK;
}

static heed_status logits(logits_run *run)
{
    const cli_language *use = &run->options.use;
    cli_text text;
    TRY(cli_open_model(&cli_logits, use, &run->model));
    heed_model_get_info(run->model, &run->info);
    if (!run->info.generates)
        return heed_fail(HEED_UNSUPPORTED, "%s models give no next tokens; `heed embed` runs them",
                         run->info.architecture);
    TRY(cli_read_text(use, &text));
    const heed_status status = cli_tokens_of(run->model, use, &text, &run->tokens);
    free(text.bytes);
    TRY(status);
    if (run->tokens.count == 0)
        return heed_fail(HEED_INVALID, "the text has no tokens");
    if (run->tokens.count > run->info.context)
        return heed_fail(HEED_INVALID, "%lld tokens do not fit into the model's context of %lld tokens",
                         (long long)run->tokens.count, (long long)run->info.context);
    run->wanted = calloc((size_t)run->tokens.count, sizeof *run->wanted);
    run->logits = malloc((size_t)run->info.vocabulary * sizeof *run->logits);
    run->best = malloc((size_t)run->options.top * sizeof *run->best);
    if (!run->wanted || !run->logits || !run->best)
        return heed_fail(HEED_NO_MEMORY, "no memory for the logits of a token");
    TRY(mark_positions(run));
    const heed_session_options wanted = cli_session_options(use, run->tokens.count);
    TRY(cli_create_session(&cli_logits, &run->session, run->model, &wanted));
    return read_on(run);
}

static int run_command(int argc, char **argv)
{
    logits_run run = {.options = {.use = CLI_LANGUAGE(), .top = 12}};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_logits, argc, argv, &run.options, &arguments, 0, 0, &status))
        return status;
    status = logits(&run) ? cli_fail_message("logits") : CLI_OK;
    free(run.wanted);
    free(run.logits);
    free(run.best);
    heed_tokens_free(&run.tokens);
    heed_session_free(run.session);
    heed_model_close(run.model);
    return status;
}

const cli_command cli_logits = {
    .name = "logits",
    .arguments = "-m MODEL -p TEXT",
    .summary = "what a model expects next, at any place of a text",
    .details =
        "Log probabilities are natural logarithms. Positions count from 0 and include a begin-token.\n",
    .example = "heed logits -m smollm2 -p \"The capital of France is\" --top 5\n",
    .options = options,
    .run = run_command,
};
