/* heed limits: how well the weights of a model's heads tell the tokens that they choose from the others. */
#include "base/try.h"
#include "cli/inputs.h"
#include "cli/language.h"
#include "eval/selection.h"
#include "model/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOPS = 32 };

typedef struct limits_options {
    cli_language use;
    const char *top;
    int64_t tokens;
    double temperature;
} limits_options;

static const cli_option options[] = {
    CLI_MODEL_OPTION(limits_options),
    CLI_PROMPT_OPTIONS(limits_options),
    CLI_WHOLE_OPTION(limits_options, tokens, "tokens", 2, 1 << 20, "of the text that are read; 256"),
    CLI_TEXT_OPTION(limits_options, top, "top", "LIST", "how many tokens are chosen; 1,4,16,64"),
    CLI_NUMBER_OPTION(limits_options, temperature, "temperature", 1e-3, 1e3,
                      "of softmax, to which weights are taken; 1"),
    CLI_RUN_OPTIONS(limits_options),
    CLI_SPECIAL_OPTION(limits_options),
    CLI_FLAG_OPTION(limits_options, use.json, "json", "a JSON object a line and number of tokens chosen"),
    {0},
};

typedef struct limits_run {
    limits_options options;
    cli_pool pool;
    heed_model *model;
    heed_model_info info;
    heed_tokens tokens;
    int64_t count, top[MOST_TOPS];
    int tops;
    float *weights; /* [layers, heads, count]: of the last token */
    float *vectors; /* [count, width] */
} limits_run;

static heed_status read_tops(limits_run *run)
{
    const char *at = run->options.top;
    while (*at) {
        char *end;
        const long long number = strtoll(at, &end, 10);
        if (end == at || number < 1 || (*end && (*end != ',' || !end[1])) || run->tops == MOST_TOPS)
            return heed_fail(HEED_INVALID, "--top %.100s: up to %d whole numbers with commas are needed",
                             run->options.top, MOST_TOPS);
        if (number >= run->count)
            return heed_fail(HEED_INVALID, "--top %lld: that leaves none of %lld tokens over", number,
                             (long long)run->count);
        run->top[run->tops++] = number;
        at = *end ? end + 1 : end;
    }
    return run->tops ? HEED_OK : heed_fail(HEED_INVALID, "--top is empty: 1,4,16 would be a list");
}

static void take_last_row(void *context, int64_t layer, int64_t sequence, const heed_weights_tile *tile)
{
    limits_run *run = context;
    const int64_t row = run->count - 1 - tile->query0, left = run->count - tile->key0,
                  cols = tile->cols < left ? tile->cols : left;
    (void)sequence;
    if (row < 0 || row >= tile->rows || cols <= 0)
        return;
    float *to = run->weights + (layer * run->info.heads + tile->head) * run->count + tile->key0;
    memcpy(to, tile->weight + row * tile->stride, (size_t)cols * sizeof *to);
}

static heed_status read_text(limits_run *run)
{
    const cli_language *use = &run->options.use;
    cli_text text;
    TRY(cli_read_text(use, &text));
    const heed_status status = cli_tokens_of(run->model, use, &text, &run->tokens);
    free(text.bytes);
    TRY(status);
    if (run->tokens.count < 2)
        return heed_fail(HEED_INVALID, "the text has %lld tokens: two are needed",
                         (long long)run->tokens.count);
    run->count = run->options.tokens < run->tokens.count ? run->options.tokens : run->tokens.count;
    if (run->count > run->info.context)
        return heed_fail(HEED_INVALID, "%lld tokens do not fit into the model's context of %lld",
                         (long long)run->count, (long long)run->info.context);
    return read_tops(run);
}

static heed_status take_weights(limits_run *run)
{
    const size_t maps = (size_t)(run->info.layers * run->info.heads), n = (size_t)run->count;
    heed_session_options wanted = cli_session_options(&run->options.use, run->count);
    heed_session *session;
    run->weights = cli_take(&run->pool, maps * n * sizeof(float));
    run->vectors = cli_take(&run->pool, n * (size_t)run->info.width * sizeof(float));
    if (!run->weights || !run->vectors)
        return HEED_NO_MEMORY;
    for (int64_t i = 0; i < run->count; i++)
        heed_weights_embed(run->model, run->tokens.id[i], run->vectors + i * run->info.width);
    wanted.with |= HEED_WITH_WEIGHTS;
    TRY(cli_create_session(&cli_limits, &session, run->model, &wanted));
    const heed_feed_item item = {.tokens = run->tokens.id, .count = run->count};
    const heed_status status =
        heed_feed(session, &item, 1, &(heed_feed_wants){.context = run, .weights = take_last_row});
    heed_session_free(session);
    return status;
}

/* Means over heads that have weights. */
typedef struct means {
    heed_selection chosen;
    heed_weights_spread spread;
    int64_t heads;
} means;

static heed_status add_head(const limits_run *run, const float *weight, int64_t top, means *sum)
{
    heed_selection one;
    const heed_weights_spread spread = heed_weights_spread_of(weight, run->count, run->options.temperature);
    if (spread.most <= 0.0)
        return HEED_OK; /* a layer without attention, or nothing in sight */
    TRY(heed_selection_measure(weight, run->vectors, run->count, run->info.width, top, &one));
    sum->chosen.distance += one.distance;
    sum->chosen.lower += one.lower;
    sum->chosen.upper += one.upper;
    sum->chosen.separable += one.separable;
    sum->chosen.held += one.held;
    sum->spread.most += spread.most;
    sum->spread.entropy += spread.entropy;
    sum->spread.steepest += spread.steepest;
    sum->heads++;
    return HEED_OK;
}

static void print_line(const limits_run *run, int64_t top, const means *sum)
{
    const double heads = sum->heads ? (double)sum->heads : NAN, n = (double)run->count;
    const struct {
        const char *name;
        double value;
    } measure[] = {{"tokens", n},
                   {"top", (double)top},
                   {"temperature", run->options.temperature},
                   {"distance", sum->chosen.distance / heads},
                   {"lower", sum->chosen.lower / heads},
                   {"upper", sum->chosen.upper / heads},
                   {"separable", sum->chosen.separable / heads},
                   {"held", sum->chosen.held / heads},
                   {"largest", sum->spread.most / heads},
                   {"entropy", sum->spread.entropy / heads},
                   {"of_uniform", sum->spread.entropy / heads / log(n)},
                   {"steepest", sum->spread.steepest / heads}};
    const int count = sizeof measure / sizeof *measure;
    if (run->options.use.json) {
        for (int i = 0; i < count; i++)
            printf("%s\"%s\": %.9g", i ? ", " : "{", measure[i].name, measure[i].value);
        printf("}\n");
        return;
    }
    printf("%6.0f %10.4g %10.4g %10.4g %10.1f %8.1f\n", measure[1].value, measure[3].value, measure[4].value,
           measure[5].value, 100.0 * measure[6].value, 100.0 * measure[7].value);
}

static heed_status report(limits_run *run)
{
    const int64_t maps = run->info.layers * run->info.heads;
    for (int64_t h = 0; h < maps && run->options.temperature != 1.0; h++)
        heed_weights_temper(run->weights + h * run->count, run->count, run->options.temperature);
    for (int t = 0; t < run->tops; t++) {
        means sum = {.heads = 0};
        for (int64_t h = 0; h < maps; h++)
            TRY(add_head(run, run->weights + h * run->count, run->top[t], &sum));
        const double heads = sum.heads ? (double)sum.heads : NAN;
        if (t == 0 && !run->options.use.json)
            printf("the last of %lld tokens, %lld heads at temperature %g: largest weight %.4f, entropy %.3f "
                   "of %.3f "
                   "nats, steepest slope %.4f of %.4f\n\nchosen   distance   at least    at most separable "
                   "%%  held "
                   "%%\n",
                   (long long)run->count, (long long)sum.heads, run->options.temperature,
                   sum.spread.most / heads, sum.spread.entropy / heads, log((double)run->count),
                   sum.spread.steepest / heads, 0.5 / run->options.temperature);
        print_line(run, run->top[t], &sum);
    }
    return HEED_OK;
}

static heed_status limits(limits_run *run)
{
    TRY(cli_open_model(&cli_limits, &run->options.use, &run->model));
    heed_model_get_info(run->model, &run->info);
    TRY(read_text(run));
    TRY(take_weights(run));
    return report(run);
}

static int run_command(int argc, char **argv)
{
    limits_run run = {
        .options = {.use = CLI_LANGUAGE(), .top = "1,4,16,64", .tokens = 256, .temperature = 1.0}};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_limits, argc, argv, &run.options, &arguments, 0, 0, &status))
        return status;
    status = limits(&run) ? cli_fail_message(cli_limits.name) : CLI_OK;
    heed_tokens_free(&run.tokens);
    cli_release(&run.pool);
    heed_model_close(run.model);
    return status;
}

const cli_command cli_limits = {
    .name = "limits",
    .arguments = "-m MODEL -f FILE",
    .summary = "how well the weights of heads tell the tokens that they choose from the others",
    .details =
        "Of the weights a of each head's last query the N largest choose; s is the sum of a x over them, x "
        "the "
        "tokens'\n"
        "vectors in the embedding. Distance: the sum of |s - a x| over the others, and what lengths alone "
        "allow. "
        "Separable:\n"
        "the share of the chosen whose a x is nearer to s than any other's is. Slope: the norm of softmax's "
        "Jacobian,\n"
        "1 / (2 T) at most. All are means over heads. --temperature is for softmax; --attention "
        "'normalise=sparsemax' and\n"
        "others set another map beside it. After Mudarisov et al.: Limitations of Normalization in Attention "
        "Mechanism, 2025.\n",
    .example = "heed limits -m smollm2 -f README.md --tokens 128 --top 1,4,16\n",
    .options = options,
    .run = run_command,
};
