/* heed embed: a vector for each line of text. */
#include "base/try.h"
#include "base/utf8.h"
#include "cli/language.h"
#include "cli/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 64 };
enum { MEAN, CLS, LAST };

static const char *pooling_word(int i)
{
    static const char *const words[] = {"mean", "cls", "last"};
    return i < 3 ? words[i] : NULL;
}

static const char *too_long_word(int i)
{
    static const char *const words[] = {"tail", "head", "middle", "error"};
    return i < 4 ? words[i] : NULL;
}

enum { CUT_ERROR = 3 };
static const int cuts[] = {CLI_CUT_TAIL, CLI_CUT_HEAD, CLI_CUT_MIDDLE};

typedef struct embed_options {
    cli_language use;
    int pooling, too_long;
    int64_t most;
    bool raw;
} embed_options;

static const cli_option options[] = {
    CLI_MODEL_OPTION(embed_options),
    CLI_PROMPT_OPTIONS(embed_options),
    CLI_CHOICE_OPTION(embed_options, pooling, "pooling", "KIND", pooling_word,
                      "mean, cls or last; what the model's files say when not given"),
    CLI_FLAG_OPTION(embed_options, raw, "raw", "vectors as they are; else their length is 1"),
    CLI_WHOLE_OPTION(embed_options, most, "tokens", 1, 1 << 20,
                     "read at most N tokens of a line; what the model's files say when not given"),
    CLI_CHOICE_OPTION(embed_options, too_long, "truncate", "PLACE", too_long_word,
                      "of longer lines drop the tail, head or middle; or error"),
    CLI_FLAG_OPTION(embed_options, use.exact, "exact", "fp32 activations, weights as the file defines them"),
    CLI_THREADS_OPTION(embed_options, use.threads),
    CLI_SPECIAL_OPTION(embed_options),
    CLI_FLAG_OPTION(embed_options, use.json, "json", "a JSON object a line"),
    {0},
};

typedef struct embed_run {
    embed_options options;
    heed_model *model;
    heed_model_info info;
    heed_session *session;
    int64_t most;
    int pooling;
    const char *line[BATCH]; /* of the batch */
    size_t size[BATCH];
    heed_tokens tokens[BATCH];
    int64_t dropped[BATCH], all_dropped;
    int64_t number; /* of the first line of the batch, from 1 */
    float *hidden;  /* [tokens of the batch, width] */
    float *vector;  /* [width] */
} embed_run;

static heed_status settle_pooling(embed_run *run)
{
    run->pooling = run->options.pooling;
    if (run->pooling >= 0)
        return HEED_OK;
    for (int i = 0; pooling_word(i) && run->info.pooling; i++)
        if (!strcmp(run->info.pooling, pooling_word(i)))
            run->pooling = i;
    if (run->pooling < 0)
        return heed_fail(HEED_UNSUPPORTED,
                         "the model's files ask for a pooling that heed does not know; --pooling mean, "
                         "cls or last says which to take");
    return HEED_OK;
}

/* Tokens that a text always has around it: their number before and behind. */
static void ends_of(const heed_tokenizer *tokenizer, int64_t *before, int64_t *behind)
{
    const heed_special_tokens special = heed_tokenizer_special(tokenizer);
    *before = special.add_bos;
    *behind = special.add_eos;
}

static heed_status read_line(embed_run *run, int64_t i, const char *line, size_t size)
{
    int64_t before, behind;
    heed_tokens *tokens = &run->tokens[i];
    tokens->count = 0;
    run->line[i] = line;
    run->size[i] = size;
    run->dropped[i] = 0;
    const cli_text text = {(char *)(uintptr_t)line, size};
    TRY(cli_tokens_of(run->model, &run->options.use, &text, tokens));
    if (tokens->count == 0)
        return heed_fail(HEED_INVALID, "line %lld has no tokens, so it has no vector",
                         (long long)(run->number + i));
    if (tokens->count <= run->most)
        return HEED_OK;
    if (run->options.too_long == CUT_ERROR)
        return heed_fail(HEED_INVALID, "line %lld has %lld tokens, the most is %lld",
                         (long long)(run->number + i), (long long)tokens->count, (long long)run->most);
    ends_of(heed_model_tokenizer(run->model), &before, &behind);
    run->dropped[i] = cli_cut(tokens, run->most, cuts[run->options.too_long], before, behind);
    run->all_dropped += run->dropped[i];
    return HEED_OK;
}

static void pool(const embed_run *run, const float *hidden, int64_t count)
{
    const int64_t width = run->info.width;
    double squares = 0.0;
    for (int64_t d = 0; d < width; d++) {
        double sum = 0.0;
        for (int64_t t = 0; run->pooling == MEAN && t < count; t++)
            sum += hidden[t * width + d];
        const double one = run->pooling == MEAN  ? sum / (double)count
                           : run->pooling == CLS ? hidden[d]
                                                 : hidden[(count - 1) * width + d];
        run->vector[d] = (float)one;
        squares += one * one;
    }
    const double factor = run->options.raw || squares == 0.0 ? 1.0 : 1.0 / sqrt(squares);
    for (int64_t d = 0; d < width; d++)
        run->vector[d] = (float)(run->vector[d] * factor);
}

static void print_vector(const embed_run *run, const char *between)
{
    for (int64_t d = 0; d < run->info.width; d++)
        printf("%s%.9g", d ? between : "", (double)run->vector[d]);
}

static heed_status print_json(const embed_run *run, int64_t i)
{
    char *valid = heed_utf8_copy(run->line[i], run->size[i]);
    cJSON *text = valid ? cJSON_CreateString(valid) : NULL;
    char *quoted = text ? cJSON_PrintUnformatted(text) : NULL;
    free(valid);
    cJSON_Delete(text);
    if (!quoted)
        return heed_fail(HEED_NO_MEMORY, "no memory for the text of line %lld", (long long)(run->number + i));
    printf("{\"text\":%s,\"tokens\":%lld,\"truncated\":%s,\"embedding\":[", quoted,
           (long long)run->tokens[i].count, run->dropped[i] ? "true" : "false");
    print_vector(run, ",");
    printf("],\"read\":%lld,\"reused\":0,\"dropped\":%lld,\"written\":0,\"kernels\":\"%s\"}\n",
           (long long)run->tokens[i].count, (long long)run->dropped[i], run->info.kernels);
    free(quoted);
    return HEED_OK;
}

static heed_status run_batch(embed_run *run, int64_t count)
{
    heed_feed_item items[BATCH];
    int64_t rows = 0;
    for (int64_t i = 0; i < count; i++) {
        items[i] =
            (heed_feed_item){.sequence = i, .tokens = run->tokens[i].id, .count = run->tokens[i].count};
        rows += items[i].count;
        TRY(heed_session_cut(run->session, i, 0));
    }
    float *hidden = realloc(run->hidden, (size_t)rows * (size_t)run->info.width * sizeof *hidden);
    if (!hidden)
        return heed_fail(HEED_NO_MEMORY, "no memory for the hidden states of %lld tokens", (long long)rows);
    run->hidden = hidden;
    TRY(heed_feed(run->session, items, count, &(heed_feed_wants){.hidden = hidden}));
    for (int64_t i = 0; i < count; i++) {
        pool(run, hidden, items[i].count);
        hidden += items[i].count * run->info.width;
        if (run->options.use.json) {
            TRY(print_json(run, i));
        } else {
            print_vector(run, " ");
            putchar('\n');
        }
    }
    return HEED_OK;
}

static heed_status run_lines(embed_run *run, const cli_text *text)
{
    cli_progress progress = {.what = "reading", .unit = "MB", .scale = 1e6};
    const char *at = text->bytes, *end = text->bytes + text->size;
    heed_status status = HEED_OK;
    run->number = 1;
    while (at < end && !status) {
        int64_t count = 0;
        for (; at < end && count < BATCH && !status; count++) {
            const char *line = memchr(at, '\n', (size_t)(end - at));
            const char *stop = line ? line : end;
            const bool carriage = stop > at && stop[-1] == '\r';
            status = read_line(run, count, at, (size_t)(stop - at) - carriage);
            at = line ? line + 1 : end;
        }
        if (!status)
            status = run_batch(run, count);
        run->number += count;
        cli_progress_show(&progress, (double)(at - text->bytes), (double)text->size);
    }
    cli_progress_end(&progress);
    return status;
}

static heed_status embed(embed_run *run)
{
    cli_text text;
    TRY(cli_open_model(&cli_embed, &run->options.use, &run->model));
    heed_model_get_info(run->model, &run->info);
    TRY(settle_pooling(run));
    run->most = run->options.most ? run->options.most : run->info.embed_tokens;
    if (run->most > run->info.context)
        return heed_fail(HEED_INVALID, "--tokens %lld is more than the model was made for: %lld",
                         (long long)run->most, (long long)run->info.context);
    const heed_session_options wanted = {
        .context = run->most, .sequences = BATCH, .threads = (int)run->options.use.threads};
    TRY(heed_session_create(&run->session, run->model, &wanted));
    run->vector = malloc((size_t)run->info.width * sizeof *run->vector);
    if (!run->vector)
        return heed_fail(HEED_NO_MEMORY, "no memory for a vector");
    TRY(cli_read_text(&run->options.use, &text));
    heed_status status = HEED_OK;
    if (run->options.use.prompt) { /* one text, line breaks and all */
        run->number = 1;
        status = read_line(run, 0, text.bytes, text.size);
        status = status ? status : run_batch(run, 1);
    } else {
        status = run_lines(run, &text);
    }
    free(text.bytes);
    if (!status && run->all_dropped && !run->options.use.json)
        fprintf(stderr, "heed embed: note: %lld tokens beyond the first %lld of a line were dropped\n",
                (long long)run->all_dropped, (long long)run->most);
    return status;
}

static int run_command(int argc, char **argv)
{
    embed_run run = {.options = {.use = CLI_LANGUAGE(), .pooling = -1}};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_embed, argc, argv, &run.options, &arguments, 0, 0, &status))
        return status;
    status = embed(&run) ? cli_fail_message("embed") : CLI_OK;
    for (int i = 0; i < BATCH; i++)
        heed_tokens_free(&run.tokens[i]);
    free(run.hidden);
    free(run.vector);
    heed_session_free(run.session);
    heed_model_close(run.model);
    return status;
}

const cli_command cli_embed = {
    .name = "embed",
    .arguments = "-m MODEL",
    .summary = "a vector for each line of text",
    .details =
        "With -p the whole text is one; else each line of the file or of standard input is one. Vectors do\n"
        "not depend on the other lines.\n",
    .example = "heed embed -m minilm -p \"a sentence to find again\" --json\n",
    .options = options,
    .run = run_command,
};
