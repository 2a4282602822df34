/* heed bench model: how fast a model reads and writes, and what share of the read bandwidth writing uses.
 *
 * A token that is written reads all packed weights once, and of the cache what each layer sees: the whole
 * depth, or its window.
 */
#include "base/clock.h"
#include "base/cpu.h"
#include "base/try.h"
#include "bench.h"
#include "cli/language.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTHS = 3, STEPS = 16 };
static const int64_t lengths[] = {512, 4096, 8192};
static const int64_t depths[DEPTHS] = {0, 4096, 8192};

typedef struct model_bench {
    const bench_options *options;
    heed_model *model;
    heed_model_info info;
    heed_session *session;
    heed_session_info session_info;
    int32_t *tokens; /* [context] */
    float *logits;
    bench_limits limits;
} model_bench;

/* The same each time, and none that a tokeniser treats as special. */
static void make_tokens(model_bench *b, int64_t count)
{
    uint64_t state = 1;
    for (int64_t t = 0; t < count; t++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        b->tokens[t] =
            (int32_t)(b->info.vocabulary / 4 + (int64_t)((state >> 33) % (uint64_t)(b->info.vocabulary / 2)));
    }
}

static heed_status feed(model_bench *b, int64_t from, int64_t count, double *seconds)
{
    const heed_feed_item item = {.tokens = b->tokens + from, .count = count};
    const double start = heed_seconds();
    TRY(heed_feed(b->session, &item, 1, &(heed_feed_wants){.logits = b->logits}));
    *seconds = fmin(*seconds, heed_seconds() - start);
    return HEED_OK;
}

/* Bytes of the cache that a token at this depth reads. */
static double cache_bytes(const model_bench *b, int64_t depth)
{
    const double layer = b->session_info.cache_token_bytes / (double)b->info.layers;
    double bytes = 0.0;
    for (int64_t l = 0; l < b->info.layers; l++) {
        char text[1024] = "";
        heed_model_attention(b->model, l, text, sizeof text);
        const char *window = strstr(text, "window(w=");
        const double width = window ? strtod(window + strlen("window(w="), NULL) : INFINITY;
        bytes += layer * fmin((double)depth + 1.0, width);
    }
    return bytes;
}

static void report(const model_bench *b, const char *work, int64_t length, double rate, double bytes)
{
    const double bandwidth = bytes * rate;
    if (!b->options->json) {
        printf("%-8s %6lld  %9.1f tokens/s  %8.2f ms a token", work, (long long)length, rate, 1e3 / rate);
        if (bytes > 0.0)
            printf("  %6.1f GB/s, %5.1f %% of read bandwidth", bandwidth * 1e-9,
                   100.0 * bandwidth / b->limits.bandwidth);
        putchar('\n');
        fflush(stdout);
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "bench", "model");
    cJSON_AddStringToObject(line, "model", b->info.name);
    cJSON_AddStringToObject(line, "work", work);
    cJSON_AddNumberToObject(line, bytes > 0.0 ? "depth" : "tokens", (double)length);
    cJSON_AddNumberToObject(line, "threads", b->session_info.threads);
    cJSON_AddNumberToObject(line, "tokens_per_second", rate);
    if (bytes > 0.0) {
        cJSON_AddNumberToObject(line, "gbs", bandwidth * 1e-9);
        cJSON_AddNumberToObject(line, "share_of_bandwidth", bandwidth / b->limits.bandwidth);
    }
    cJSON_AddStringToObject(line, "kernels", b->info.kernels);
    cli_print_json(line);
}

static void measure_bandwidth(model_bench *b)
{
    for (int i = 0; i < 3; i++)
        b->limits.bandwidth = fmax(b->limits.bandwidth, bench_measure_bandwidth(b->session_info.threads));
}

static heed_status bench_prefill(model_bench *b, int64_t length)
{
    double best = INFINITY;
    for (int64_t round = 0; round < b->options->rounds; round++) {
        TRY(heed_session_cut(b->session, 0, 0));
        TRY(feed(b, 0, length, &best));
    }
    report(b, "prefill", length, (double)length / best, 0.0);
    return HEED_OK;
}

/* At depth 0 the text is as short as a text can be. */
static heed_status bench_decode(model_bench *b, int64_t depth)
{
    double best = INFINITY, once = INFINITY;
    if (heed_session_length(b->session, 0) > depth)
        TRY(heed_session_cut(b->session, 0, depth));
    if (heed_session_length(b->session, 0) < depth)
        TRY(feed(b, heed_session_length(b->session, 0), depth - heed_session_length(b->session, 0), &once));
    for (int64_t round = 0; round < b->options->rounds; round++) {
        measure_bandwidth(b);
        TRY(heed_session_cut(b->session, 0, depth));
        const double start = heed_seconds();
        for (int step = 0; step < STEPS; step++)
            TRY(feed(b, depth + step, 1, &once));
        best = fmin(best, (heed_seconds() - start) / STEPS);
    }
    const double bytes = (double)b->info.packed_bytes + cache_bytes(b, depth + STEPS / 2);
    report(b, "decode", depth, 1.0 / best, bytes);
    return HEED_OK;
}

/* With room for all lengths where the model can have it, else for as many as it was made for. */
static heed_status open_session(model_bench *b, int64_t *context)
{
    heed_session_options wanted = {.context = (b->options->with_slow ? 8192 : 4096) + STEPS + 1,
                                   .threads = (int)b->options->threads};
    heed_status status = heed_session_create(&b->session, b->model, &wanted);
    if (status == HEED_INVALID && b->info.context < wanted.context) {
        wanted.context = b->info.context;
        fprintf(stderr, "heed bench: note: %s reads at most %lld tokens: longer works are left out\n",
                b->info.name, (long long)b->info.context);
        status = heed_session_create(&b->session, b->model, &wanted);
    }
    *context = wanted.context;
    return status;
}

static heed_status measure(model_bench *b)
{
    int64_t context;
    TRY(open_session(b, &context));
    heed_session_get_info(b->session, &b->session_info);
    b->tokens = malloc((size_t)context * sizeof *b->tokens);
    b->logits = malloc((size_t)b->info.vocabulary * sizeof *b->logits);
    if (!b->tokens || !b->logits)
        return heed_fail(HEED_NO_MEMORY, "no memory for the benchmark");
    make_tokens(b, context);
    measure_bandwidth(b);
    if (!b->options->json) {
        char processor[128];
        printf("%s, %d thread%s\n%s: %s\npacked in %.2f s\n", heed_cpu_name(processor, sizeof processor),
               b->session_info.threads, b->session_info.threads == 1 ? "" : "s", b->info.name,
               b->info.kernels, b->info.pack_seconds);
    }
    for (int i = 0; i < DEPTHS; i++) {
        if (lengths[i] <= context - STEPS)
            TRY(bench_prefill(b, lengths[i]));
        if (depths[i] <= context - STEPS)
            TRY(bench_decode(b, depths[i]));
    }
    return HEED_OK;
}

int bench_model(const bench_options *options)
{
    static const cli_command command = {.name = "bench"};
    model_bench b = {.options = options};
    const cli_language use = {.model = options->model, .threads = options->threads};
    heed_status status = cli_open_model(&command, &use, &b.model);
    if (!status)
        heed_model_get_info(b.model, &b.info);
    if (!status && !b.info.generates)
        status = heed_fail(HEED_UNSUPPORTED, "%s models write nothing", b.info.architecture);
    if (!status)
        status = measure(&b);
    free(b.tokens);
    free(b.logits);
    heed_session_free(b.session);
    heed_model_close(b.model);
    return status ? cli_fail_message("bench") : CLI_OK;
}
