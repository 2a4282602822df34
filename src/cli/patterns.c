/* heed patterns: the sparse pattern of prefill that serves each head best. */
#include "eval/patterns.h"
#include "base/try.h"
#include "cli/language.h"
#include "cli/progress.h"

#include <stdlib.h>

typedef struct patterns_options {
    cli_language use;
    int64_t block, blocks, tokens, window;
    bool heads;
} patterns_options;

static const cli_option options[] = {
    CLI_MODEL_OPTION(patterns_options),
    CLI_WHOLE_OPTION(patterns_options, block, "block", 2, 256, "keys in a block; 64"),
    CLI_WHOLE_OPTION(patterns_options, blocks, "blocks", 1, 65536, "blocks of keys that a query may see; 8"),
    CLI_WHOLE_OPTION(patterns_options, tokens, "tokens", 1, 1 << 28, "of the text that are read; 4096"),
    CLI_WHOLE_OPTION(patterns_options, window, "window", 16, 1 << 16, "tokens that are read at a time; 2048"),
    CLI_FLAG_OPTION(patterns_options, heads, "heads", "also list what each pattern keeps of each head"),
    CLI_FLAG_OPTION(patterns_options, use.exact, "exact",
                    "fp32 activations, weights as the file defines them"),
    CLI_THREADS_OPTION(patterns_options, use.threads),
    CLI_SPECIAL_OPTION(patterns_options),
    CLI_FLAG_OPTION(patterns_options, use.json, "json", "as JSON"),
    {0},
};

static void show_progress(void *context, double done)
{
    cli_progress_show(context, done, 1.0);
}

/* Means over heads: of one pattern for all, or of each head's best (-1). */
static heed_pattern_score mean_of(const heed_pattern_result *result, int pattern)
{
    const int64_t all = result->layers * result->heads;
    heed_pattern_score mean = {0};
    for (int64_t i = 0; i < all; i++) {
        const int p = pattern < 0 ? result->best[i] : pattern;
        mean.share += result->score[i * HEED_PATTERNS + p].share / (double)all;
        mean.read += result->score[i * HEED_PATTERNS + p].read / (double)all;
    }
    return mean;
}

static int64_t heads_with(const heed_pattern_result *result, int pattern)
{
    int64_t count = 0;
    for (int64_t i = 0; i < result->layers * result->heads; i++)
        count += result->best[i] == pattern;
    return count;
}

static void print_result(const patterns_options *wanted, const heed_pattern_result *result)
{
    const heed_pattern_score best = mean_of(result, -1);
    puts(result->spec);
    printf("\n   heads   weight    pairs\n            kept %%   read %%\n");
    printf("%8lld %8.2f %8.2f  each head its best, the line above\n",
           (long long)(result->layers * result->heads), 100 * best.share, 100 * best.read);
    for (int p = 0; p < HEED_PATTERNS; p++) {
        const heed_pattern_score mean = mean_of(result, p);
        printf("%8lld %8.2f %8.2f  %s for all\n", (long long)heads_with(result, p), 100 * mean.share,
               100 * mean.read, result->pattern[p]);
    }
    for (int64_t i = 0; wanted->heads && i < result->layers * result->heads; i++) {
        printf("%slayer %3lld head %3lld ", i ? "" : "\n", (long long)(i / result->heads),
               (long long)(i % result->heads));
        for (int p = 0; p < HEED_PATTERNS; p++)
            printf(" %7.2f%s", 100 * result->score[i * HEED_PATTERNS + p].share,
                   result->best[i] == p ? "*" : " ");
        putchar('\n');
    }
}

static void print_json(const heed_pattern_result *result)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "spec", result->spec);
    const heed_pattern_score best = mean_of(result, -1);
    cJSON_AddNumberToObject(root, "share", best.share);
    cJSON_AddNumberToObject(root, "read", best.read);
    cJSON *patterns = cJSON_AddArrayToObject(root, "patterns");
    for (int p = 0; p < HEED_PATTERNS; p++) {
        const heed_pattern_score mean = mean_of(result, p);
        cJSON *object = cJSON_CreateObject();
        cJSON_AddItemToArray(patterns, object);
        cJSON_AddStringToObject(object, "pattern", result->pattern[p]);
        cJSON_AddNumberToObject(object, "heads", (double)heads_with(result, p));
        cJSON_AddNumberToObject(object, "share", mean.share);
        cJSON_AddNumberToObject(object, "read", mean.read);
    }
    cJSON *heads = cJSON_AddArrayToObject(root, "heads");
    for (int64_t i = 0; i < result->layers * result->heads; i++) {
        cJSON *object = cJSON_CreateObject(), *shares;
        cJSON_AddItemToArray(heads, object);
        cJSON_AddNumberToObject(object, "layer", (double)(i / result->heads));
        cJSON_AddNumberToObject(object, "head", (double)(i % result->heads));
        cJSON_AddNumberToObject(object, "best", result->best[i]);
        shares = cJSON_AddArrayToObject(object, "shares");
        for (int p = 0; p < HEED_PATTERNS; p++)
            cJSON_AddItemToArray(shares, cJSON_CreateNumber(result->score[i * HEED_PATTERNS + p].share));
    }
    cli_print_json(root);
}

static heed_status find(const patterns_options *wanted, const char *path, heed_model **model,
                        heed_tokens *tokens)
{
    cli_progress progress = {.what = "patterns"};
    cli_text text;
    heed_pattern_result result;
    TRY(cli_open_model(&cli_patterns, &wanted->use, model));
    TRY(cli_read_file(path, &text));
    const heed_status read = cli_tokens_of(*model, &wanted->use, &text, tokens);
    free(text.bytes);
    TRY(read);
    if (tokens->count == 0)
        return heed_fail(HEED_INVALID, "%s has no tokens", path);
    const heed_pattern_search search = {.model = *model,
                                        .block = wanted->block,
                                        .blocks = wanted->blocks,
                                        .window = wanted->window,
                                        .threads = (int)wanted->use.threads,
                                        .progress = show_progress,
                                        .context = &progress};
    const int64_t count = wanted->tokens < tokens->count ? wanted->tokens : tokens->count;
    const heed_status status = heed_find_patterns(&search, tokens->id, count, &result);
    cli_progress_end(&progress);
    TRY(status);
    if (wanted->use.json)
        print_json(&result);
    else
        print_result(wanted, &result);
    heed_pattern_result_free(&result);
    return HEED_OK;
}

static int run(int argc, char **argv)
{
    patterns_options wanted = {
        .use = CLI_LANGUAGE(.context = 0), .block = 64, .blocks = 8, .tokens = 4096, .window = 2048};
    cli_arguments arguments;
    heed_model *model = NULL;
    heed_tokens tokens = {0};
    int status;
    if (!cli_parse(&cli_patterns, argc, argv, &wanted, &arguments, 1, 1, &status))
        return status;
    status = find(&wanted, arguments.word[0], &model, &tokens) ? cli_fail_message("patterns") : CLI_OK;
    heed_tokens_free(&tokens);
    heed_model_close(model);
    return status;
}

const cli_command cli_patterns = {
    .name = "patterns",
    .arguments = "-m MODEL FILE",
    .summary = "the sparse pattern of prefill that serves each head best at the same cost, as a spec",
    .details =
        "The model reads FILE with its own attention; of each head's weight a_shape, vertical_slash and "
        "block_top keep a share, with as many blocks of keys for each query. The first line is a spec "
        "that gives every head the one that keeps most.\n",
    .example = "heed patterns -m smollm2 --tokens 512 --window 512 --block 32 --blocks 5 README.md\n",
    .options = options,
    .run = run,
};
