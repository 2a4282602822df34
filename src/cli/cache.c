/* heed cache show: which keys each layer and kv head holds after a text was read. */
#include "base/try.h"
#include "cli/language.h"
#include "plot/plot.h"

#include <stdlib.h>
#include <string.h>

typedef struct cache_options {
    cli_language use;
    const char *output;
} cache_options;

static const cli_option options[] = {
    CLI_MODEL_OPTION(cache_options),
    CLI_PROMPT_OPTIONS(cache_options),
    CLI_OPTION(cache_options, output, .kind = CLI_TEXT, .name = "output", .letter = 'o', .value = "FILE",
               .summary = "a picture too: .png or .svg"),
    CLI_RUN_OPTIONS(cache_options),
    CLI_WHOLE_OPTION(cache_options, use.context, "context", 1, 1 << 28, "tokens the session has room for"),
    CLI_SPECIAL_OPTION(cache_options),
    CLI_FLAG_OPTION(cache_options, use.json, "json", "a JSON object a layer and kv head"),
    {0},
};

typedef struct cache_run {
    cache_options options;
    heed_model *model;
    heed_model_info info;
    heed_session *session;
    heed_tokens tokens;
    int32_t *place; /* [read] of one list */
    float *mass;
    int64_t read; /* tokens */
} cache_run;

static heed_status read_prompt(cache_run *run)
{
    cli_text text;
    TRY(cli_read_text(&run->options.use, &text));
    heed_status status = cli_tokens_of(run->model, &run->options.use, &text, &run->tokens);
    free(text.bytes);
    if (!status && run->tokens.count == 0)
        status = heed_fail(HEED_INVALID, "the text has no tokens");
    return status;
}

/* A saved session, or a text that is read now. */
static heed_status fill(cache_run *run, const char *path)
{
    const cli_language *use = &run->options.use;
    if (!path)
        TRY(read_prompt(run));
    const int64_t context = use->context                            ? use->context
                            : run->tokens.count > run->info.context ? run->tokens.count
                                                                    : run->info.context;
    const heed_session_options wanted = cli_session_options(use, context);
    TRY(cli_create_session(&cli_cache, &run->session, run->model, &wanted));
    if (path)
        TRY(heed_session_load(run->session, 0, path));
    else
        TRY(heed_feed(run->session, &(heed_feed_item){.tokens = run->tokens.id, .count = run->tokens.count},
                      1, NULL));
    run->read = heed_session_length(run->session, 0);
    run->place = malloc((size_t)run->read * sizeof *run->place + 1);
    run->mass = malloc((size_t)run->read * sizeof *run->mass + 1);
    return run->place && run->mass ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the kept keys");
}

enum { MOST_RANGES = 8 };

/* "0-3 17 250-299 ..." */
static void print_ranges(const cache_run *run, int64_t count)
{
    int ranges = 0;
    for (int64_t i = 0, j; i < count; i = j) {
        for (j = i + 1; j < count && run->place[j] == run->place[j - 1] + 1; j++)
            ;
        if (ranges++ == MOST_RANGES) {
            fputs(" ...", stdout);
            break;
        }
        printf(j - i > 1 ? " %d-%d" : " %d", run->place[i], run->place[j - 1]);
    }
    putchar('\n');
}

static void print_json(const cache_run *run, int64_t l, int64_t g, int64_t count)
{
    cJSON *line = cJSON_CreateObject();
    cJSON *places = cJSON_AddArrayToObject(line, "kept"), *masses = NULL;
    bool merged = false;
    cJSON_AddNumberToObject(line, "layer", (double)l);
    cJSON_AddNumberToObject(line, "kv_head", (double)g);
    cJSON_AddNumberToObject(line, "read", (double)run->read);
    cJSON_AddNumberToObject(line, "keys", (double)count);
    for (int64_t i = 0; i < count; i++) {
        cJSON_AddItemToArray(places, cJSON_CreateNumber(run->place[i]));
        merged |= run->mass[i] != 1.0f;
    }
    if (merged)
        masses = cJSON_AddArrayToObject(line, "mass");
    for (int64_t i = 0; masses && i < count; i++)
        cJSON_AddItemToArray(masses, cJSON_CreateNumber((double)run->mass[i]));
    cli_print_json(line);
}

static void report(cache_run *run)
{
    const bool json = run->options.use.json;
    heed_session_usage usage;
    heed_session_get_usage(run->session, &usage);
    if (!json)
        printf("%lld tokens read; %.3f MB now, %.3f MB at most; %lld keys dropped by policies\n"
               "layer  kv head      keys   share  places in the text\n",
               (long long)run->read, (double)usage.bytes * 1e-6, (double)usage.peak_bytes * 1e-6,
               (long long)usage.dropped);
    for (int64_t l = 0; l < run->info.layers; l++)
        for (int64_t g = 0; g < run->info.kv_heads; g++) {
            const int64_t count = heed_session_kept(run->session, 0, l, g, run->place, run->mass, run->read);
            if (json) {
                print_json(run, l, g, count);
                continue;
            }
            printf("%5lld  %7lld  %8lld  %5.1f %%", (long long)l, (long long)g, (long long)count,
                   run->read ? 100.0 * (double)count / (double)run->read : 0.0);
            print_ranges(run, count);
        }
}

/* A row a layer and kv head, a column a token: dark where the key is held. */
static heed_status draw(cache_run *run)
{
    const int64_t rows = run->info.layers * run->info.kv_heads, n = run->read;
    heed_plot_pool *pool;
    float *held = calloc((size_t)(rows * n) + 1, sizeof *held);
    heed_plot_token *label = calloc((size_t)rows, sizeof *label);
    char *names = calloc((size_t)rows, 32);
    heed_status status =
        held && label && names ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the picture");
    for (int64_t r = 0; r < rows && !status; r++) {
        const int64_t l = r / run->info.kv_heads, g = r % run->info.kv_heads;
        const int64_t count = heed_session_kept(run->session, 0, l, g, run->place, run->mass, n);
        for (int64_t i = 0; i < count; i++)
            held[r * n + run->place[i]] = 1.0f;
        const int size = snprintf(names + 32 * r, 32, "layer %d, %d", (int)l, (int)g);
        label[r] = (heed_plot_token){names + 32 * r, (size_t)size};
    }
    if (!status)
        status = heed_plot_pool_create(&pool, 1, rows, n, HEED_PLOT_SIDE);
    if (!status) {
        heed_plot_pool_add_matrix(pool, 0, held);
        const heed_plot_matrix plot = {.title =
                                           "What the cache holds: layers and kv heads by places in the text",
                                       .subtitle = run->options.use.attention,
                                       .pool = pool,
                                       .query = label,
                                       .down = "layer, kv head",
                                       .across = "place in the text",
                                       .measure = "held"};
        status = heed_plot_draw_matrix(run->options.output, &plot);
        heed_plot_pool_free(pool);
    }
    free(held);
    free(label);
    free(names);
    return status;
}

static heed_status show(cache_run *run, const cli_arguments *arguments)
{
    if (strcmp(arguments->word[0], "show") != 0)
        return heed_fail(HEED_INVALID, "'%.40s': heed cache shows: heed cache show", arguments->word[0]);
    const char *path = arguments->count > 1 ? arguments->word[1] : NULL;
    if (path && (run->options.use.prompt || run->options.use.file))
        return heed_fail(HEED_INVALID, "a saved session or a text is shown, not both");
    TRY(cli_open_model(&cli_cache, &run->options.use, &run->model));
    heed_model_get_info(run->model, &run->info);
    if (!run->info.causal)
        return heed_fail(HEED_UNSUPPORTED, "%s models read both ways and keep no cache",
                         run->info.architecture);
    TRY(fill(run, path));
    report(run);
    return run->options.output && run->read ? draw(run) : HEED_OK;
}

static int run_command(int argc, char **argv)
{
    cache_run run = {.options = {.use = CLI_LANGUAGE()}};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_cache, argc, argv, &run.options, &arguments, 1, 2, &status))
        return status;
    status = show(&run, &arguments) ? cli_fail_message("cache") : CLI_OK;
    heed_tokens_free(&run.tokens);
    heed_session_free(run.session);
    heed_model_close(run.model);
    free(run.place);
    free(run.mass);
    return status;
}

const cli_command cli_cache = {
    .name = "cache",
    .arguments = "show [SESSION] -m MODEL",
    .summary = "which keys each layer and kv head holds of a text or in a saved session",
    .details =
        "SESSION is a file that `heed run --session` wrote, with the model and --attention that it was "
        "written with;\n"
        "without it a text is read. Places are those of tokens in the text, from 0.\n",
    .example = "heed cache show -m smollm2 -p \"The quick brown fox jumps over the lazy dog and runs on.\" "
               "--attention \"cache=snapkv(budget=8, window=4)\"\n",
    .options = options,
    .run = run_command,
};
