/* heed perplexity --stream: a text read as one sequence, again and again up to so many tokens, and what it
 * takes by tenths: whether memory, speed and perplexity stay as they are.
 */
#include "base/clock.h"
#include "base/try.h"
#include "cli/generate.h"
#include "cli/perplexity.h"
#include "cli/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 512, PARTS = 10 };

typedef struct tenth {
    int64_t read;
    perplexity_sum sum;
    double seconds, cpu; /* of all threads */
    double cache, away, memory;
} tenth;

/* Bytes that the process has in memory; NAN where the system does not tell. */
static double memory_now(void)
{
    long long all, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    const bool told = file && fscanf(file, "%lld %lld", &all, &resident) == 2;
    if (file)
        fclose(file);
    return told ? (double)resident * (double)sysconf(_SC_PAGESIZE) : NAN;
}

static double memory_most(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_maxrss * 1024.0 : NAN;
}

/* Of a text that is read again from its beginning; the begin-token stands before the first time only. */
static int32_t token_at(const perplexity_run *run, int64_t place)
{
    const int64_t first = heed_tokenizer_special(heed_model_tokenizer(run->model)).add_bos ? 1 : 0,
                  each = run->tokens.count - first;
    return run->tokens.id[place < first ? place : first + (place - first) % each];
}

/* Tokens read, where the last `scored` of them are judged by the token behind each. */
static heed_status read_piece(perplexity_run *run, tenth *part, int64_t place, int64_t count, int64_t scored)
{
    int32_t tokens[PIECE + 1];
    for (int64_t t = 0; t <= count; t++)
        tokens[t] = token_at(run, place + t);
    for (int64_t t = 0, n; t < count; t += n) {
        const int64_t plain = count - scored - t;
        n = plain > 0 ? plain : count - t < run->rows ? count - t : run->rows;
        const int64_t room = heed_session_room(run->session, 0);
        n = n < room ? n : room;
        if (n < 1)
            return heed_fail(HEED_INVALID, "the session has no room for token %lld", (long long)(place + t));
        const heed_feed_item item = {.tokens = tokens + t, .count = n, .reading = HEED_READ_WRITTEN};
        const heed_feed_wants wants = {.logits = plain > 0 ? NULL : run->logits, .all_logits = true};
        TRY(heed_feed(run->session, &item, 1, &wants));
        for (int64_t i = 0; plain <= 0 && i < n; i++)
            perplexity_add(run, &part->sum, run->logits + i * run->info.vocabulary, tokens[t + i + 1]);
    }
    return HEED_OK;
}

static heed_status read_part(perplexity_run *run, const perplexity_options *o, int p, tenth *part,
                             cli_progress *progress)
{
    const int64_t from = o->stream * p / PARTS, to = o->stream * (p + 1) / PARTS;
    const double start = heed_seconds(), cpu = heed_processor_seconds();
    for (int64_t place = from, n; place < to && !cli_interrupted(); place += n) {
        n = to - place < PIECE ? to - place : PIECE;
        cli_progress_show(progress, (double)place, (double)o->stream);
        TRY(read_piece(run, part, place, n, o->score < n ? o->score : n));
        part->read += n;
    }
    heed_session_usage usage;
    heed_session_get_usage(run->session, &usage);
    part->seconds = heed_seconds() - start;
    part->cpu = heed_processor_seconds() - cpu;
    part->cache = (double)usage.bytes;
    part->away = (double)usage.offloaded_bytes;
    part->memory = memory_now();
    return HEED_OK;
}

/* A session that may read so much: with the context that was asked for, with the model's own if what it holds
 * is bounded, or with one for all of it. */
static heed_status open_session(perplexity_run *run, int64_t tokens)
{
    const int64_t own = run->info.context < tokens ? run->info.context : tokens;
    heed_session_options wanted = cli_session_options(&run->use, run->use.context ? run->use.context : own);
    heed_session_info info;
    TRY(cli_create_session(&cli_perplexity, &run->session, run->model, &wanted));
    heed_session_get_info(run->session, &info);
    if (info.limit < tokens && !run->use.context) {
        heed_session_free(run->session);
        wanted.context = tokens;
        TRY(heed_session_create(&run->session, run->model, &wanted));
        heed_session_get_info(run->session, &info);
    }
    if (info.limit < tokens)
        return heed_fail(
            HEED_INVALID,
            "--context %lld: the attention needs more of a text than that, so %lld tokens cannot be "
            "read as one",
            (long long)info.context, (long long)tokens);
    cli_note_distance(&cli_perplexity, &run->info, &info, tokens);
    return HEED_OK;
}

static double rate(double tokens, double seconds)
{
    return seconds > 0.0 ? tokens / seconds : 0.0;
}

static void print_text(const perplexity_run *run, const tenth *parts, int64_t read)
{
    printf("perplexity %.4f +/- %.5f\n%lld tokens read as one text, %lld scored; at most %.1f MB in memory\n",
           perplexity_of(&run->all), perplexity_error(&run->all), (long long)read, (long long)run->all.scored,
           memory_most() * 1e-6);
    printf("%10s %11s %9s %9s %12s %9s %9s %9s\n%10s %11s %9s %9s %12s %9s %9s %9s\n", "tokens", "perplexity",
           "+/-", "tokens/s", "tokens/s of", "cache", "in a", "process", "", "", "", "", "processor", "MB",
           "file, MB", "MB");
    int64_t end = 0;
    for (int p = 0; p < PARTS && parts[p].read; p++) {
        end += parts[p].read;
        printf("%10lld %11.4f %9.4f %9.1f %12.1f %9.2f %9.2f %9.1f\n", (long long)end,
               perplexity_of(&parts[p].sum), perplexity_error(&parts[p].sum),
               rate((double)parts[p].read, parts[p].seconds), rate((double)parts[p].read, parts[p].cpu),
               parts[p].cache * 1e-6, parts[p].away * 1e-6, parts[p].memory * 1e-6);
    }
}

static void add_sum(cJSON *line, const perplexity_sum *sum)
{
    cJSON_AddNumberToObject(line, "perplexity", perplexity_of(sum));
    cJSON_AddNumberToObject(line, "error", perplexity_error(sum));
    cJSON_AddNumberToObject(line, "scored", (double)sum->scored);
}

static void print_json(const perplexity_run *run, const tenth *parts, int64_t read)
{
    cJSON *line = cJSON_CreateObject(), *list = cJSON_CreateArray();
    add_sum(line, &run->all);
    cJSON_AddNumberToObject(line, "read", (double)read);
    cJSON_AddNumberToObject(line, "memory_most_bytes", memory_most());
    cJSON_AddItemToObject(line, "parts", list);
    for (int p = 0; p < PARTS && parts[p].read; p++) {
        cJSON *one = cJSON_CreateObject();
        add_sum(one, &parts[p].sum);
        cJSON_AddNumberToObject(one, "read", (double)parts[p].read);
        cJSON_AddNumberToObject(one, "seconds", parts[p].seconds);
        cJSON_AddNumberToObject(one, "processor_seconds", parts[p].cpu);
        cJSON_AddNumberToObject(one, "cache_bytes", parts[p].cache);
        cJSON_AddNumberToObject(one, "cache_offloaded_bytes", parts[p].away);
        cJSON_AddNumberToObject(one, "memory_bytes", parts[p].memory);
        cJSON_AddItemToArray(list, one);
    }
    cJSON_AddStringToObject(line, "kernels", run->info.kernels);
    cli_print_json(line);
}

heed_status perplexity_stream(perplexity_run *run, const perplexity_options *options)
{
    tenth parts[PARTS] = {{.read = 0}};
    cli_progress progress = {.what = "reading", .unit = "tokens", .scale = 1.0};
    heed_status status = open_session(run, options->stream);
    int64_t read = 0;
    for (int p = 0; p < PARTS && !status; p++) {
        status = read_part(run, options, p, &parts[p], &progress);
        run->all.scored += parts[p].sum.scored;
        run->all.sum += parts[p].sum.sum;
        run->all.squares += parts[p].sum.squares;
        read += parts[p].read;
    }
    cli_progress_end(&progress);
    TRY(status);
    if (run->use.json)
        print_json(run, parts, read);
    else
        print_text(run, parts, read);
    return HEED_OK;
}
