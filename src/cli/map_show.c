/* What heed map shows: pictures, lines of statistics, JSON. */
#include "base/try.h"
#include "cli/map.h"
#include "cli/token_bytes.h"

#include <stdlib.h>
#include <string.h>

static heed_status token_labels(map_run *run, heed_plot_token **tokens)
{
    const heed_tokenizer *tokenizer = heed_model_tokenizer(run->model);
    *tokens = cli_take(&run->pool, (size_t)run->tokens.count * sizeof **tokens);
    char **text = cli_take(&run->pool, (size_t)run->tokens.count * sizeof *text);
    if (!*tokens || !text)
        return HEED_NO_MEMORY;
    for (int64_t t = 0; t < run->tokens.count; t++) {
        size_t size;
        char *one = cli_token_bytes(tokenizer, run->tokens.id[t], &size);
        char *kept = one ? cli_take(&run->pool, size + 1) : NULL;
        if (kept)
            memcpy(kept, one, size);
        free(one);
        if (!kept)
            return heed_fail(HEED_NO_MEMORY, "no memory for the text of a token");
        (*tokens)[t] = (heed_plot_token){kept, size};
    }
    return HEED_OK;
}

static heed_status draw_text(map_run *run, const heed_plot_token *tokens, const char *subtitle)
{
    const int64_t n = run->tokens.count;
    float *value = cli_take(&run->pool, (size_t)n * sizeof *value);
    if (!value)
        return HEED_NO_MEMORY;
    for (int64_t m = 0; m < run->maps; m++)
        for (int64_t t = 0; t < n; t++)
            value[t] += run->received[m * n + t] / (float)run->maps;
    const heed_plot_text plot = {.title = "What each token received",
                                 .subtitle = subtitle,
                                 .measure = "sum of weights, mean of heads",
                                 .token = tokens,
                                 .value = value,
                                 .tokens = n};
    return heed_plot_draw_text(run->options.output, &plot);
}

heed_status cli_map_draw(map_run *run)
{
    const char *name = run->info.name && *run->info.name ? run->info.name : run->options.use.model;
    heed_plot_token *tokens;
    char title[256], subtitle[512];
    TRY(token_labels(run, &tokens));
    snprintf(subtitle, sizeof subtitle, "%.200s, %lld tokens%s%.200s", name, (long long)run->tokens.count,
             run->options.use.attention ? ", " : "",
             run->options.use.attention ? run->options.use.attention : "");
    if (run->options.tokens)
        return draw_text(run, tokens, subtitle);
    if (run->maps > 1 || run->options.grid) {
        const heed_plot_grid grid = {.title = "Where each head looked",
                                     .subtitle = subtitle,
                                     .pool = run->drawn,
                                     .layers = run->layers,
                                     .heads = run->heads,
                                     .layer = run->layer,
                                     .head = run->head};
        return heed_plot_draw_grid(run->options.output, &grid);
    }
    snprintf(title, sizeof title, "Layer %lld, head %lld", (long long)run->layer[0], (long long)run->head[0]);
    const heed_plot_matrix matrix = {
        .title = title, .subtitle = subtitle, .pool = run->drawn, .query = tokens, .key = tokens};
    return heed_plot_draw_matrix(run->options.output, &matrix);
}

/* The mean entropy of a map, and the key that received most. */
static double mean_entropy(const map_run *run, int64_t map, int64_t *strongest)
{
    const int64_t n = run->tokens.count;
    const float *entropy = run->entropy + map * n, *received = run->received + map * n;
    double sum = 0.0;
    *strongest = 0;
    for (int64_t t = 0; t < n; t++) {
        sum += (double)entropy[t];
        if (received[t] > received[*strongest])
            *strongest = t;
    }
    return sum / (double)n;
}

static void print_json(map_run *run)
{
    const int64_t n = run->tokens.count;
    for (int64_t m = 0; m < run->maps; m++) {
        int64_t strongest;
        cJSON *line = cJSON_CreateObject();
        cJSON_AddNumberToObject(line, "layer", (double)run->layer[m / run->heads]);
        cJSON_AddNumberToObject(line, "head", (double)run->head[m % run->heads]);
        cJSON_AddNumberToObject(line, "mean_entropy", mean_entropy(run, m, &strongest));
        cJSON_AddItemToObject(line, "entropy", cJSON_CreateFloatArray(run->entropy + m * n, (int)n));
        cJSON_AddItemToObject(line, "received", cJSON_CreateFloatArray(run->received + m * n, (int)n));
        cJSON_AddNumberToObject(line, "read", (double)n);
        cJSON_AddNumberToObject(line, "dropped", (double)run->dropped);
        if (run->options.output)
            cJSON_AddStringToObject(line, "file", run->options.output);
        cli_print_json(line);
    }
}

static void print_summary(map_run *run)
{
    const heed_tokenizer *tokenizer = heed_model_tokenizer(run->model);
    printf("%lld tokens; entropy: mean of the rows, in nats\n%5s %5s %9s %12s  %s\n",
           (long long)run->tokens.count, "layer", "head", "entropy", "most to one", "which");
    for (int64_t m = 0; m < run->maps; m++) {
        int64_t strongest;
        const double entropy = mean_entropy(run, m, &strongest);
        char *text = cli_token_text(tokenizer, run->tokens.id[strongest]);
        printf("%5lld %5lld %9.4f %10.1f %%  %lld '", (long long)run->layer[m / run->heads],
               (long long)run->head[m % run->heads], entropy,
               100.0 * (double)run->received[m * run->tokens.count + strongest] / (double)run->tokens.count,
               (long long)strongest);
        for (const char *at = text; at && *at; at++)
            putchar((unsigned char)*at < ' ' ? '?' : *at);
        printf("'\n");
        free(text);
    }
}

heed_status cli_map_report(map_run *run)
{
    if (run->options.use.json)
        print_json(run);
    else if (run->options.summary)
        print_summary(run);
    if (run->options.output && !run->options.use.json)
        printf("%s\n", run->options.output);
    return HEED_OK;
}
