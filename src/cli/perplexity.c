/* heed perplexity: how well a model foresees a text.
 *
 * The convention of llama.cpp's tool: the tokens of the text are cut into windows of n, each begins with the
 * begin-token where the model wants one, and the tokens of the second half of each are scored. The error is
 * that of the mean of their negative log probabilities, as if they were independent.
 */
#include "base/clock.h"
#include "base/try.h"
#include "cli/language.h"
#include "cli/progress.h"
#include "eval/divergence.h"

#include <math.h>
#include <stdlib.h>

typedef struct perplexity_options {
    cli_language use;
} perplexity_options;

static const cli_option options[] = {
    CLI_MODEL_OPTION(perplexity_options),
    CLI_WHOLE_OPTION(perplexity_options, use.context, "context", 4, 1 << 20, "tokens of a window; 512"),
    CLI_RUN_OPTIONS(perplexity_options),
    CLI_SPECIAL_OPTION(perplexity_options),
    CLI_FLAG_OPTION(perplexity_options, use.json, "json", "as JSON"),
    {0},
};

typedef struct perplexity_run {
    cli_language use;
    heed_model *model;
    heed_model_info info;
    heed_session *session;
    heed_tokens tokens;
    float *logits;
    int64_t rows; /* room for logits */
    int64_t windows, scored;
    double sum, squares; /* of negative log probabilities */
} perplexity_run;

static void score(perplexity_run *run, const float *logits, int32_t next)
{
    const double surprise = heed_surprise(logits, run->info.vocabulary, next);
    run->sum += surprise;
    run->squares += surprise * surprise;
    run->scored++;
}

static heed_status score_window(perplexity_run *run, int32_t *tokens)
{
    const heed_special_tokens special = heed_tokenizer_special(heed_model_tokenizer(run->model));
    const int64_t n = run->use.context, first = n / 2;
    if (special.add_bos && special.bos >= 0)
        tokens[0] = special.bos;
    TRY(heed_session_cut(run->session, 0, 0));
    TRY(heed_feed(run->session, &(heed_feed_item){.tokens = tokens, .count = first}, 1, NULL));
    for (int64_t t = first; t < n - 1;) {
        const int64_t count = n - 1 - t < run->rows ? n - 1 - t : run->rows;
        const heed_feed_item item = {.tokens = tokens + t, .count = count, .reading = HEED_READ_WRITTEN};
        TRY(heed_feed(run->session, &item, 1, &(heed_feed_wants){.logits = run->logits, .all_logits = true}));
        for (int64_t i = 0; i < count; i++)
            score(run, run->logits + i * run->info.vocabulary, tokens[t + i + 1]);
        t += count;
    }
    return HEED_OK;
}

static heed_status read_tokens(perplexity_run *run, const char *path)
{
    cli_text text;
    TRY(cli_read_file(path, &text));
    const heed_status status = cli_tokens_of(run->model, &run->use, &text, &run->tokens);
    free(text.bytes);
    TRY(status);
    run->windows = run->tokens.count / run->use.context;
    if (run->windows < 1)
        return heed_fail(HEED_INVALID,
                         "%s has %lld tokens, a window takes %lld; give a longer text or a smaller --context",
                         path, (long long)run->tokens.count, (long long)run->use.context);
    return HEED_OK;
}

static heed_status perplexity(perplexity_run *run, const char *path)
{
    TRY(cli_open_model(&cli_perplexity, &run->use, &run->model));
    heed_model_get_info(run->model, &run->info);
    if (!run->info.generates)
        return heed_fail(HEED_UNSUPPORTED, "%s models give no next tokens, so they have no perplexity",
                         run->info.architecture);
    if (run->use.context > run->info.context)
        return heed_fail(HEED_INVALID, "--context %lld is more than the model was made for: %lld tokens",
                         (long long)run->use.context, (long long)run->info.context);
    TRY(read_tokens(run, path));
    const int64_t room = (32 << 20) / run->info.vocabulary; /* 128 MiB of logits */
    run->rows = room < 1 ? 1 : room < run->use.context ? room : run->use.context;
    run->logits = malloc((size_t)run->rows * (size_t)run->info.vocabulary * sizeof *run->logits);
    if (!run->logits)
        return heed_fail(HEED_NO_MEMORY, "no memory for the logits of %lld tokens", (long long)run->rows);
    const heed_session_options wanted = cli_session_options(&run->use, run->use.context);
    TRY(cli_create_session(&cli_perplexity, &run->session, run->model, &wanted));
    cli_progress progress = {.what = "reading", .unit = "windows", .scale = 1.0};
    heed_status status = HEED_OK;
    for (int64_t w = 0; w < run->windows && !status; w++) {
        cli_progress_show(&progress, (double)w, (double)run->windows);
        status = score_window(run, run->tokens.id + w * run->use.context);
    }
    cli_progress_end(&progress);
    return status;
}

static void report(const perplexity_run *run, double seconds)
{
    const double count = (double)run->scored, mean = run->sum / count;
    const double variance = fmax(run->squares / count - mean * mean, 0.0);
    const double value = exp(mean), error = count > 1.0 ? sqrt(variance / (count - 1.0)) * value : 0.0;
    const double read = (double)(run->windows * run->use.context), dropped = (double)run->tokens.count - read;
    if (!run->use.json) {
        printf("perplexity %.4f +/- %.5f\n%lld tokens scored in %lld windows of %lld, %.1f tokens/s\n", value,
               error, (long long)run->scored, (long long)run->windows, (long long)run->use.context,
               read / seconds);
        if (dropped > 0.0)
            printf("%.0f tokens at the end fill no window\n", dropped);
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddNumberToObject(line, "perplexity", value);
    cJSON_AddNumberToObject(line, "error", error);
    cJSON_AddNumberToObject(line, "nll", mean);
    cJSON_AddNumberToObject(line, "scored", count);
    cJSON_AddNumberToObject(line, "windows", (double)run->windows);
    cJSON_AddNumberToObject(line, "context", (double)run->use.context);
    cJSON_AddNumberToObject(line, "read", read);
    cJSON_AddNumberToObject(line, "reused", 0);
    cJSON_AddNumberToObject(line, "dropped", dropped);
    cJSON_AddNumberToObject(line, "written", 0);
    cJSON_AddNumberToObject(line, "seconds", seconds);
    cJSON_AddStringToObject(line, "kernels", run->info.kernels);
    cli_print_json(line);
}

static int run_command(int argc, char **argv)
{
    perplexity_options chosen = {.use = CLI_LANGUAGE(.context = 512)};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_perplexity, argc, argv, &chosen, &arguments, 1, 1, &status))
        return status;
    perplexity_run run = {.use = chosen.use};
    const double start = heed_seconds();
    status = perplexity(&run, arguments.word[0]) ? cli_fail_message("perplexity") : CLI_OK;
    if (!status)
        report(&run, heed_seconds() - start);
    free(run.logits);
    heed_tokens_free(&run.tokens);
    heed_session_free(run.session);
    heed_model_close(run.model);
    return status;
}

const cli_command cli_perplexity = {
    .name = "perplexity",
    .arguments = "-m MODEL FILE",
    .summary = "how well a model foresees a text",
    .details = "The text is cut into windows of --context tokens; of each the second half is scored.\n",
    .example = "heed perplexity -m smollm2 README.md --context 128\n",
    .options = options,
    .run = run_command,
};
