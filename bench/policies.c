/* heed bench cache -m MODEL: what cache policies cost while a model writes.
 *
 * A policy whose budget is all keys drops none, so what takes longer is that it watches; one whose budget is
 * the text so far also acts, and is timed from one time to the next. Each is (time of a token with
 * it - without it) / (time of a token - time of a token behind no text). With one thread the time is that of
 * the processor, which other programs disturb less.
 */
#include "base/clock.h"
#include "base/cpu.h"
#include "base/try.h"
#include "bench.h"
#include "cli/form_text.h"
#include "cli/language.h"
#include "eval/usage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = 64, PIECE = 512, LONG = 131072, WINDOW = 1024, MOST_POLICIES = 64, MOST_STEPS = 4096 };

typedef struct subject {
    char spec[200]; /* "" for the model's own */
    heed_session *session;
    int64_t length; /* tokens that it has read */
    double best;    /* seconds a token */
} subject;

typedef struct policy_bench {
    const bench_options *options;
    heed_model *model;
    heed_model_info info;
    int64_t depth;
    float *logits;
} policy_bench;

/* Tokens by their places, and none that a tokeniser treats as special. */
static int32_t token_at(const policy_bench *b, int64_t place)
{
    const uint64_t z = ((uint64_t)place + 1) * 6364136223846793005ull;
    return (int32_t)(b->info.vocabulary / 4 + (int64_t)((z >> 33) % (uint64_t)(b->info.vocabulary / 2)));
}

static heed_status open_subject(const policy_bench *b, subject *s, int64_t context)
{
    const heed_session_options wanted = {
        .context = context, .threads = (int)b->options->threads, .attention = *s->spec ? s->spec : NULL};
    s->best = INFINITY;
    return heed_session_create(&s->session, b->model, &wanted);
}

static heed_status read_on(const policy_bench *b, subject *s, int64_t count)
{
    int32_t tokens[PIECE];
    for (int64_t done = 0; done < count;) {
        const int64_t piece = count - done < PIECE ? count - done : PIECE;
        for (int64_t i = 0; i < piece; i++)
            tokens[i] = token_at(b, s->length + i);
        TRY(heed_feed(s->session, &(heed_feed_item){.tokens = tokens, .count = piece}, 1, NULL));
        done += piece;
        s->length += piece;
    }
    return HEED_OK;
}

static double seconds(const policy_bench *b)
{
    return b->options->threads == 1 ? heed_processor_seconds() : heed_seconds();
}

static heed_status write_one(const policy_bench *b, subject *s)
{
    const int32_t token = token_at(b, s->length++);
    return heed_feed(s->session, &(heed_feed_item){.tokens = &token, .count = 1}, 1,
                     &(heed_feed_wants){.logits = b->logits});
}

static heed_status write_on(const policy_bench *b, subject *s, int steps, double *best)
{
    const double start = seconds(b);
    for (int i = 0; i < steps; i++)
        TRY(write_one(b, s));
    *best = fmin(*best, (seconds(b) - start) / steps);
    return HEED_OK;
}

static int64_t dropped(const subject *s)
{
    heed_session_usage usage;
    heed_session_get_usage(s->session, &usage);
    return usage.dropped;
}

/* Until the policy has acted: at least so many steps are timed as lie between two times. */
static heed_status write_until(const policy_bench *b, subject *s, int *steps)
{
    const double start = seconds(b);
    const int64_t before = dropped(s);
    *steps = 0;
    while (*steps == 0 || (dropped(s) == before && *steps < MOST_STEPS)) {
        TRY(write_one(b, s));
        ++*steps;
    }
    s->best = fmin(s->best, (seconds(b) - start) / *steps);
    return HEED_OK;
}

/* Policies that may keep all keys: those with a budget. */
static int find_policies(const bench_options *options, const heed_form **found)
{
    int count = 0;
    for (const heed_form *const *form = cli_stage_forms(HEED_CACHE); *form && count < MOST_POLICIES; form++)
        if ((*form)->policy && (*form)->args && (*form)->args->name &&
            !strcmp((*form)->args->name, "budget") &&
            (!options->only || strstr((*form)->name, options->only)))
            found[count++] = *form;
    return count;
}

static void report(const policy_bench *b, const subject *s, const char *policy, double overhead,
                   double relative, double bytes)
{
    if (!b->options->json) {
        printf("%-14s %-36s %9.3f", policy, s->spec, s->best * 1e3);
        if (isnan(overhead))
            printf(" %10s", "-");
        else
            printf(" %10.2f", 100.0 * overhead);
        printf(" %9.3f %9.2f\n", relative, bytes * 1e-6);
        fflush(stdout);
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "bench", "policies");
    cJSON_AddStringToObject(line, "policy", policy);
    cJSON_AddStringToObject(line, "spec", s->spec);
    cJSON_AddNumberToObject(line, "depth", (double)b->depth);
    cJSON_AddNumberToObject(line, "seconds_per_token", s->best);
    if (!isnan(overhead))
        cJSON_AddNumberToObject(line, "overhead", overhead);
    cJSON_AddNumberToObject(line, "relative_time", relative);
    cJSON_AddNumberToObject(line, "cache_bytes", bytes);
    cli_print_json(line);
}

/* Back to the depth, where nothing that is needed there was dropped; else it goes on from where it is. */
static void go_back(subject *s, int64_t depth)
{
    if (heed_session_cut(s->session, 0, depth) == HEED_OK)
        s->length = depth;
}

static double bytes_of(const subject *s)
{
    return heed_usage_bytes(s->session);
}

enum { WATCHING, ACTING, QUARTER, KINDS };

/* `own` behind the text and `near` behind none are timed in turn with the policy. */
static heed_status bench_policy(const policy_bench *b, const heed_form *policy, subject *own, subject *near)
{
    const int64_t context =
        b->depth + (b->options->rounds + 1) * MOST_STEPS; /* rows in use take memory only */
    subject kind[KINDS] = {{.session = NULL}};
    heed_status status = HEED_OK;
    snprintf(kind[WATCHING].spec, sizeof kind->spec, "cache=%s(share=1)", policy->name);
    snprintf(kind[ACTING].spec, sizeof kind->spec, "cache=%s(budget=%lld)", policy->name,
             (long long)b->depth);
    snprintf(kind[QUARTER].spec, sizeof kind->spec, "cache=%s(share=0.25)", policy->name);
    for (int k = 0; k < KINDS && !status; k++) {
        status = open_subject(b, &kind[k], context);
        if (!status)
            status = read_on(b, &kind[k], b->depth);
    }
    double own_along = INFINITY; /* of the model's own, over as many tokens as the acting policy wrote */
    for (int64_t round = 0; round < b->options->rounds && !status; round++) {
        subject *const each[] = {own, near, &kind[WATCHING], &kind[QUARTER]};
        int steps = STEPS;
        for (int i = 0; i < 4 && !status; i++) {
            go_back(each[i], i == 1 ? 0 : b->depth);
            status = write_on(b, each[i], STEPS, &each[i]->best);
        }
        if (!status)
            status = write_until(b, &kind[ACTING], &steps);
        go_back(own, b->depth);
        if (!status)
            status = write_on(b, own, steps, &own_along);
    }
    const double attention = own->best - near->best;
    const double overhead[KINDS] = {[WATCHING] = (kind[WATCHING].best - own->best) / attention,
                                    [ACTING] = (kind[ACTING].best - own_along) / (own_along - near->best),
                                    [QUARTER] = NAN};
    for (int k = 0; k < KINDS && !status; k++)
        report(b, &kind[k], policy->name, overhead[k], kind[k].best / own->best, bytes_of(&kind[k]));
    for (int k = 0; k < KINDS; k++)
        heed_session_free(kind[k].session);
    return status;
}

static heed_status bench_all(policy_bench *b)
{
    const heed_form *policy[MOST_POLICIES];
    const int count = find_policies(b->options, policy);
    const int64_t context = b->depth + MOST_STEPS + STEPS;
    subject own = {.session = NULL}, near = {.session = NULL};
    heed_status status = open_subject(b, &own, context);
    if (!status)
        status = open_subject(b, &near, (b->options->rounds + 1) * STEPS);
    if (!status)
        status = read_on(b, &own, b->depth);
    if (!status && !b->options->json)
        printf("\nwriting behind %lld tokens\n%-14s %-36s %9s %10s %9s %9s\n", (long long)b->depth, "policy",
               "spec", "ms/token", "overhead %", "of own", "cache MB");
    for (int i = 0; i < count && !status; i++)
        status = bench_policy(b, policy[i], &own, &near);
    if (!status && count)
        report(b, &own, "none", NAN, 1.0, bytes_of(&own));
    heed_session_free(own.session);
    heed_session_free(near.session);
    return status;
}

/* A text far longer than what is kept: speed and memory along it. */
static heed_status bench_long(const policy_bench *b)
{
    subject s = {.session = NULL};
    double first = 0.0, before = 0.0;
    snprintf(s.spec, sizeof s.spec, "cache=streaming(budget=%d)", WINDOW);
    heed_status status = open_subject(b, &s, LONG + 8 * STEPS);
    for (int part = 0; part < 8 && !status; part++) {
        const double start = seconds(b);
        status = read_on(b, &s, LONG / 8);
        const double rate = LONG / 8 / (seconds(b) - start);
        s.best = INFINITY;
        if (!status)
            status = write_on(b, &s, STEPS, &s.best);
        if (part == 0) {
            first = s.best;
            before = rate;
        }
        if (status)
            break;
        if (b->options->json)
            report(b, &s, "streaming, long", NAN, s.best / first, bytes_of(&s));
        else
            printf("%s behind %7lld tokens: reads %8.1f tokens/s (%.2f of the first), writes %8.3f ms/token "
                   "(%.2f), "
                   "%.2f MB\n",
                   s.spec, (long long)s.length, rate, rate / before, s.best * 1e3, s.best / first,
                   bytes_of(&s) * 1e-6);
    }
    heed_session_free(s.session);
    return status;
}

int bench_policies(const bench_options *options)
{
    static const cli_command command = {.name = "bench"};
    policy_bench b = {.options = options};
    const cli_language use = {.model = options->model, .threads = options->threads};
    heed_status status = cli_open_model(&command, &use, &b.model);
    if (!status)
        heed_model_get_info(b.model, &b.info);
    if (!status && !b.info.generates)
        status = heed_fail(HEED_UNSUPPORTED, "%s models write nothing", b.info.architecture);
    b.depth = b.info.context / 4;
    b.logits = status ? NULL : malloc((size_t)b.info.vocabulary * sizeof *b.logits);
    if (!status && !b.logits)
        status = heed_fail(HEED_NO_MEMORY, "no memory for the benchmark");
    if (!status)
        status = bench_all(&b);
    if (!status && options->with_slow)
        status = bench_long(&b);
    free(b.logits);
    heed_model_close(b.model);
    return status ? cli_fail_message("bench") : CLI_OK;
}
