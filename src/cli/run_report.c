#include "base/try.h"
#include "base/utf8.h"
#include "cli/run.h"

#include <math.h>
#include <stdlib.h>

enum { STEP = 16 };

/* The next rows of one text with two forms, and what differs; the perplexity is that of the prompt. */
static heed_status compare_step(run_state *run, int form, const heed_tokens *text, int64_t place,
                                int64_t count, float *logits[2])
{
    const int64_t vocabulary = run->info.vocabulary;
    const heed_feed_item item = {.tokens = text->id + place,
                                 .count = count,
                                 .reading = place >= run->prompt.count          ? HEED_READ_WRITTEN
                                            : place + count < run->prompt.count ? HEED_READ_PROMPT_PART
                                                                                : HEED_READ_PROMPT_END};
    heed_session *const both[] = {run->form[0].generation.session, run->form[form].generation.session};
    for (int i = 0; i < 2; i++)
        TRY(heed_feed(both[i], &item, 1, &(heed_feed_wants){.logits = logits[i], .all_logits = true}));
    heed_difference difference[STEP];
    int32_t next[STEP];
    for (int64_t i = 0; i < count; i++)
        next[i] = place + i + 1 < run->prompt.count ? text->id[place + i + 1] : -1;
    heed_differ_rows(logits[0], logits[1], count, vocabulary, next, run->form[0].session.threads, difference);
    for (int64_t i = 0; i < count; i++)
        TRY(heed_divergence_add(&run->form[form].difference, place + i, &difference[i]));
    return HEED_OK;
}

static heed_status compare_form(run_state *run, int form, const heed_tokens *text, float *logits[2])
{
    heed_divergence_free(&run->form[form].difference);
    run->form[form].difference = (heed_divergence){.positions = 0};
    for (int i = 0; i < run->forms; i++) {
        TRY(heed_session_cut(run->form[i].generation.session, 0, 0));
        run->form[i].generation.held = 0;
    }
    for (int64_t place = 0, count; place < text->count && !cli_interrupted(); place += count) {
        const int64_t end = place < run->prompt.count ? run->prompt.count : text->count;
        count = end - place < STEP ? end - place : STEP;
        TRY(compare_step(run, form, text, place, count, logits));
    }
    return HEED_OK;
}

heed_status run_compare(run_state *run)
{
    const heed_tokens *text = &run->form[0].generation.all; /* the prompt, and what the first form wrote */
    float *logits[2];
    const size_t bytes = STEP * (size_t)run->info.vocabulary * sizeof(float);
    logits[0] = malloc(bytes);
    logits[1] = malloc(bytes);
    heed_status status = logits[0] && logits[1] ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for logits");
    for (int form = 1; form < run->forms && !status; form++)
        status = compare_form(run, form, text, logits);
    free(logits[0]);
    free(logits[1]);
    return status;
}

static double rate(int64_t tokens, double seconds)
{
    return seconds > 0.0 ? (double)tokens / seconds : 0.0;
}

/* The most that the cache held, in all layers. */
static double cache_megabytes(const run_form *form)
{
    heed_session_usage usage;
    heed_session_get_usage(form->generation.session, &usage);
    return (double)usage.peak_bytes * 1e-6;
}

static void print_dropped(const run_state *run)
{
    if (run->dropped)
        fprintf(stderr, "%lld tokens of the prompt were DROPPED, as --truncate says\n",
                (long long)run->dropped);
}

/* What policies and windows left of the cache, and of its keys. */
static void print_kept(const heed_session *session)
{
    heed_session_usage usage;
    heed_session_info info;
    heed_session_get_usage(session, &usage);
    heed_session_get_info(session, &info);
    if (usage.bytes < usage.peak_bytes)
        fprintf(stderr, " at most, %.2f MB at the end", (double)usage.bytes * 1e-6);
    if (info.state_layers)
        fprintf(stderr, ", %lld layers carry a state", (long long)info.state_layers);
    if (info.again_layers)
        fprintf(stderr, ", %lld layers computed again for each token", (long long)info.again_layers);
    if (usage.dropped)
        fprintf(stderr, ", %lld keys dropped", (long long)usage.dropped);
    if (usage.offloaded_bytes)
        fprintf(stderr, ", %.2f MB of it in a file", (double)usage.offloaded_bytes * 1e-6);
    if (usage.pairs_read < usage.pairs_open)
        fprintf(stderr, ", %.1f %% of open pairs read", 100.0 * usage.pairs_read / usage.pairs_open);
    fputc('\n', stderr);
}

static void print_line(const run_state *run)
{
    const run_form *form = &run->form[0];
    const cli_generation *g = &form->generation;
    print_dropped(run);
    run_print_passages(run);
    run_print_selection(run);
    fprintf(stderr, "%lld tokens read", (long long)g->read);
    if (g->reused)
        fprintf(stderr, " and %lld reused", (long long)g->reused);
    if (g->anew)
        fprintf(stderr, ", %lld of them anew, since keys that the rest sees had been dropped or changed",
                (long long)g->anew);
    fprintf(stderr, " (%.1f tokens/s), %lld written (%.1f tokens/s), ended by %s; cache %.2f MB",
            rate(g->read, g->read_seconds), (long long)g->written, rate(g->written, g->write_seconds),
            cli_finish_word(g->finish), cache_megabytes(form));
    print_kept(g->session);
}

static void print_table(const run_state *run)
{
    print_dropped(run);
    fprintf(stderr,
            "\n%lld tokens read; KL and first tokens over those and what the model's own attention wrote\n",
            (long long)run->prompt.count);
    fprintf(stderr, "%9s %9s %9s %9s %11s %9s %9s %9s\n%9s %9s %9s %9s %11s %9s %9s %9s  %s\n", "read",
            "written", "written", "cache", "perplexity", "KL", "KL", "same", "tokens/s", "tokens/s", "tokens",
            "MB", "of prompt", "mean", "max", "first", "attention");
    for (int i = 0; i < run->forms; i++) {
        const run_form *form = &run->form[i];
        const cli_generation *g = &form->generation;
        const heed_divergence *d = &run->form[i ? i : 1].difference;
        fprintf(stderr, "%9.1f %9.1f %9lld %9.2f %11.3f ", rate(g->read, g->read_seconds),
                rate(g->written, g->write_seconds), (long long)g->written, cache_megabytes(form),
                heed_divergence_perplexity(d, i > 0));
        if (i > 0)
            fprintf(stderr, "%9.5f %9.5f %7.1f %%", heed_divergence_mean(d), d->kl_most,
                    d->positions ? 100.0 * (double)d->same_top / (double)d->positions : 0.0);
        else
            fprintf(stderr, "%9s %9s %9s", "-", "-", "-");
        fprintf(stderr, "  %s\n", form->spec ? form->spec : "the model's own");
    }
}

void run_print_text(const run_state *run)
{
    fflush(stdout);
    if (run->forms > 1)
        print_table(run);
    else
        print_line(run);
}

static void add_difference(cJSON *line, const heed_divergence *d)
{
    cJSON *object = cJSON_AddObjectToObject(line, "against_first");
    cJSON_AddNumberToObject(object, "tokens", (double)d->positions);
    cJSON_AddNumberToObject(object, "kl_mean", heed_divergence_mean(d));
    cJSON_AddNumberToObject(object, "kl_max", d->kl_most);
    cJSON_AddNumberToObject(object, "same_top1", (double)d->same_top / (double)d->positions);
    cJSON_AddNumberToObject(object, "perplexity", heed_divergence_perplexity(d, 1));
    cJSON_AddNumberToObject(object, "perplexity_first", heed_divergence_perplexity(d, 0));
}

static void add_usage(cJSON *line, const heed_session *session)
{
    heed_session_usage usage;
    heed_session_get_usage(session, &usage);
    cJSON_AddNumberToObject(line, "cache_bytes", (double)usage.bytes);
    cJSON_AddNumberToObject(line, "cache_peak_bytes", (double)usage.peak_bytes);
    cJSON_AddNumberToObject(line, "cache_reserved_bytes", (double)usage.reserved_bytes);
    cJSON_AddNumberToObject(line, "cache_offloaded_bytes", (double)usage.offloaded_bytes);
    cJSON_AddNumberToObject(line, "cache_fetched_bytes", (double)usage.fetched_bytes);
    cJSON_AddNumberToObject(line, "keys_dropped", (double)usage.dropped);
    cJSON_AddNumberToObject(line, "pairs_read", usage.pairs_read);
    cJSON_AddNumberToObject(line, "pairs_open", usage.pairs_open);
}

void run_print_json(const run_state *run, int i)
{
    const run_form *form = &run->form[i];
    const cli_generation *g = &form->generation;
    cJSON *line = cJSON_CreateObject(), *ids = cJSON_CreateArray();
    char *text = heed_utf8_copy(g->text ? g->text : "", g->size);
    for (int64_t t = g->all.count - g->written; t < g->all.count; t++)
        cJSON_AddItemToArray(ids, cJSON_CreateNumber(g->all.id[t]));
    cJSON_AddStringToObject(line, "attention", form->spec ? form->spec : "");
    cJSON_AddStringToObject(line, "text", text ? text : "");
    cJSON_AddItemToObject(line, "ids", ids);
    cJSON_AddStringToObject(line, "finish", cli_finish_word(g->finish));
    cJSON_AddNumberToObject(line, "read", (double)g->read);
    cJSON_AddNumberToObject(line, "reused", (double)g->reused);
    cJSON_AddNumberToObject(line, "read_anew", (double)g->anew);
    cJSON_AddNumberToObject(line, "dropped", (double)run->dropped);
    cJSON_AddNumberToObject(line, "written", (double)g->written);
    cJSON_AddNumberToObject(line, "read_seconds", g->read_seconds);
    cJSON_AddNumberToObject(line, "write_seconds", g->write_seconds);
    cJSON_AddNumberToObject(line, "context", (double)form->session.context);
    cJSON_AddNumberToObject(line, "cache_token_bytes", form->session.cache_token_bytes);
    cJSON_AddNumberToObject(line, "state_layers", (double)form->session.state_layers);
    cJSON_AddNumberToObject(line, "again_layers", (double)form->session.again_layers);
    add_usage(line, g->session);
    run_add_passages(run, line);
    run_add_selection(run, line);
    cJSON_AddStringToObject(line, "kernels", run->info.kernels);
    if (i > 0 && form->difference.positions > 0)
        add_difference(line, &form->difference);
    free(text);
    cli_print_json(line);
}
