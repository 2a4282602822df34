/* heed perplexity: how well a model foresees a text.
 *
 * The convention of llama.cpp's tool: the tokens of the text are cut into windows of n, each begins with the
 * begin-token where the model wants one, and the tokens of the second half of each are scored. The error is
 * that of the mean of their negative log probabilities, as if they were independent.
 */
#include "cli/perplexity.h"
#include "base/clock.h"
#include "base/try.h"
#include "cli/generate.h"
#include "cli/progress.h"
#include "eval/book.h"
#include "eval/divergence.h"

#include <math.h>
#include <stdlib.h>

enum { WINDOW = 512 };

static const cli_option options[] = {
    CLI_MODEL_OPTION(perplexity_options),
    CLI_WHOLE_OPTION(perplexity_options, use.context, "context", 4, 1 << 20,
                     "tokens of a window; 512, or as many as the model was made for"),
    CLI_WHOLE_OPTION(perplexity_options, stream, "stream", 2, 1 << 28,
                     "read the text as one, again and again up to N tokens, and report by tenths"),
    CLI_WHOLE_OPTION(perplexity_options, score, "score", 1, WINDOW,
                     "with --stream: of every 512 tokens score the last N; 512"),
    CLI_RUN_OPTIONS(perplexity_options),
    CLI_SPECIAL_OPTION(perplexity_options),
    CLI_FLAG_OPTION(perplexity_options, use.json, "json", "as JSON"),
    {0},
};

void perplexity_add(const perplexity_run *run, perplexity_sum *sum, const float *logits, int32_t next)
{
    const double surprise = heed_surprise(logits, run->info.vocabulary, next);
    sum->sum += surprise;
    sum->squares += surprise * surprise;
    sum->scored++;
}

static double mean(const perplexity_sum *sum)
{
    return sum->sum / (double)sum->scored;
}

double perplexity_of(const perplexity_sum *sum)
{
    return exp(mean(sum));
}

double perplexity_error(const perplexity_sum *sum)
{
    const double count = (double)sum->scored,
                 variance = fmax(sum->squares / count - mean(sum) * mean(sum), 0.0);
    return count > 1.0 ? sqrt(variance / (count - 1.0)) * perplexity_of(sum) : 0.0;
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
            perplexity_add(run, &run->all, run->logits + i * run->info.vocabulary, tokens[t + i + 1]);
        t += count;
    }
    return HEED_OK;
}

/* A file, or the text that the program brings along. */
static heed_status read_tokens(perplexity_run *run, const char *path)
{
    cli_text text = {.bytes = NULL};
    size_t size;
    const char *book = heed_book(&size);
    if (path)
        TRY(cli_read_file(path, &text));
    const cli_text own = {.bytes = (char *)(uintptr_t)book, .size = size};
    const heed_status status = cli_tokens_of(run->model, &run->use, path ? &text : &own, &run->tokens);
    free(text.bytes);
    return status;
}

static heed_status cut_windows(perplexity_run *run, const char *path)
{
    run->windows = run->tokens.count / run->use.context;
    if (run->windows < 1)
        return heed_fail(HEED_INVALID,
                         "%s has %lld tokens, a window takes %lld; give a longer text or a smaller --context",
                         path, (long long)run->tokens.count, (long long)run->use.context);
    return HEED_OK;
}

static heed_status take_logits(perplexity_run *run, int64_t most)
{
    const int64_t room = (32 << 20) / run->info.vocabulary; /* 128 MiB of logits */
    run->rows = room < 1 ? 1 : room < most ? room : most;
    run->logits = malloc((size_t)run->rows * (size_t)run->info.vocabulary * sizeof *run->logits);
    if (!run->logits)
        return heed_fail(HEED_NO_MEMORY, "no memory for the logits of %lld tokens", (long long)run->rows);
    return HEED_OK;
}

static heed_status perplexity(perplexity_run *run, const perplexity_options *chosen, const char *path)
{
    if (!path && !chosen->stream)
        return heed_fail(HEED_INVALID,
                         "a FILE is missing; with --stream N the text that heed brings along is read");
    TRY(cli_open_model(&cli_perplexity, &run->use, &run->model));
    heed_model_get_info(run->model, &run->info);
    if (!run->info.generates)
        return heed_fail(HEED_UNSUPPORTED, "%s models give no next tokens, so they have no perplexity",
                         run->info.architecture);
    TRY(read_tokens(run, path));
    if (chosen->stream) {
        if (run->tokens.count < 2)
            return heed_fail(HEED_INVALID, "%s has no tokens to read", path);
        TRY(take_logits(run, chosen->score));
        return perplexity_stream(run, chosen);
    }
    if (!run->use.context)
        run->use.context = run->info.context < WINDOW ? run->info.context : WINDOW;
    if (run->use.context > run->info.context)
        return heed_fail(HEED_INVALID, "--context %lld is more than the model was made for: %lld tokens",
                         (long long)run->use.context, (long long)run->info.context);
    TRY(cut_windows(run, path));
    TRY(take_logits(run, run->use.context));
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
    const double value = perplexity_of(&run->all), error = perplexity_error(&run->all);
    const double read = (double)(run->windows * run->use.context), dropped = (double)run->tokens.count - read;
    if (!run->use.json) {
        printf("perplexity %.4f +/- %.5f\n%lld tokens scored in %lld windows of %lld, %.1f tokens/s\n", value,
               error, (long long)run->all.scored, (long long)run->windows, (long long)run->use.context,
               read / seconds);
        if (dropped > 0.0)
            printf("%.0f tokens at the end fill no window\n", dropped);
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddNumberToObject(line, "perplexity", value);
    cJSON_AddNumberToObject(line, "error", error);
    cJSON_AddNumberToObject(line, "nll", log(value));
    cJSON_AddNumberToObject(line, "scored", (double)run->all.scored);
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
    perplexity_options chosen = {.use = CLI_LANGUAGE(), .score = WINDOW};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_perplexity, argc, argv, &chosen, &arguments, 0, 1, &status))
        return status;
    perplexity_run run = {.use = chosen.use};
    const double start = heed_seconds();
    cli_interrupt_begin();
    status = perplexity(&run, &chosen, arguments.count ? arguments.word[0] : NULL)
                 ? cli_fail_message("perplexity")
                 : CLI_OK;
    cli_interrupt_end();
    if (!status && !chosen.stream)
        report(&run, heed_seconds() - start);
    free(run.logits);
    heed_tokens_free(&run.tokens);
    heed_session_free(run.session);
    heed_model_close(run.model);
    return status;
}

const cli_command cli_perplexity = {
    .name = "perplexity",
    .arguments = "-m MODEL [FILE]",
    .summary = "how well a model foresees a text",
    .details = "The text is cut into windows of --context tokens; of each the second half is scored. With "
               "--stream it is\n"
               "read as one text, with a session of --context tokens where the attention is bounded.\n",
    .example = "heed perplexity -m smollm2 README.md --context 128\n"
               "heed perplexity -m smollm2 --stream 2000 --score 32 --context 1024 --attention "
               "\"cache=streaming(budget=256) > packed\"\n",
    .options = options,
    .run = run_command,
};
