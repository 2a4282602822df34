/* heed compare: what other attention makes of a model's ideas of the next token. */
#include "base/clock.h"
#include "base/try.h"
#include "cli/language.h"
#include "cli/progress.h"
#include "eval/divergence.h"

#include <stdlib.h>
#include <string.h>

enum { STEP = 32, QUARTERS = 4, DEFAULT_WINDOW = 2048, MOST_TOKENS = 1 << 28 };

typedef struct compare_options {
    cli_language use;
    cli_list spec;
} compare_options;

static const cli_option options[] = {
    CLI_MODEL_OPTION(compare_options),
    CLI_PROMPT_OPTIONS(compare_options),
    CLI_LIST_OPTION(compare_options, spec, "spec", "SPEC",
                    "attention to compare with the model's own; several"),
    CLI_WHOLE_OPTION(compare_options, use.context, "context", 2, 1 << 20,
                     "tokens of a window; 2048, or what the model was made for if that is less"),
    CLI_RUN_OPTIONS(compare_options),
    CLI_SPECIAL_OPTION(compare_options),
    CLI_FLAG_OPTION(compare_options, use.json, "json", "a JSON object a line and attention"),
    {0},
};

/* One attention: the model's own first, then the specs. */
typedef struct contender {
    const char *spec; /* NULL: the model's own */
    heed_session *session;
    float *logits; /* [STEP, vocabulary] */
    heed_divergence all, quarter[QUARTERS];
    double seconds;
} contender;

typedef struct comparison {
    const compare_options *wanted;
    heed_model *model;
    const heed_tokenizer *tokenizer;
    contender *each;
    int count;
    heed_tokens text;         /* without control tokens around it */
    int32_t *window;          /* [context] tokens of the window that is read */
    int64_t context, windows; /* most tokens of a window */
    bool bos;                 /* windows begin with the model's token for that */
    int64_t vocabulary, done;
    cli_progress progress;
} comparison;

static heed_status read_step(comparison *c, contender *one, int64_t first, int64_t count)
{
    const heed_feed_item item = {.tokens = c->window + first, .count = count, .reading = HEED_READ_WRITTEN};
    const heed_feed_wants wants = {.logits = one->logits, .all_logits = true};
    const double start = heed_seconds();
    TRY(heed_feed(one->session, &item, 1, &wants));
    one->seconds += heed_seconds() - start;
    return HEED_OK;
}

static heed_status judge_step(comparison *c, contender *one, int64_t first, int64_t count, int64_t length)
{
    heed_session_info session;
    heed_difference difference[STEP];
    int32_t next[STEP];
    heed_session_get_info(one->session, &session);
    for (int64_t i = 0; i < count; i++)
        next[i] = first + i + 1 < length ? c->window[first + i + 1] : -1;
    heed_differ_rows(c->each->logits, one->logits, count, c->vocabulary, next, session.threads, difference);
    for (int64_t i = 0; i < count; i++) {
        TRY(heed_divergence_add(&one->all, c->done + i, &difference[i]));
        TRY(heed_divergence_add(&one->quarter[(first + i) * QUARTERS / c->context], c->done + i,
                                &difference[i]));
    }
    return HEED_OK;
}

static heed_status read_window(comparison *c, int64_t window)
{
    const int64_t own = c->context - c->bos, begin = window * own;
    const int64_t left = c->text.count - begin, words = left < own ? left : own, length = words + c->bos;
    if (c->bos)
        c->window[0] = heed_tokenizer_special(c->tokenizer).bos;
    memcpy(c->window + c->bos, c->text.id + begin, (size_t)words * sizeof *c->window);
    for (int i = 0; i < c->count; i++)
        TRY(heed_session_cut(c->each[i].session, 0, 0));
    for (int64_t first = 0; first < length; first += STEP) {
        const int64_t count = length - first < STEP ? length - first : STEP;
        for (int i = 0; i < c->count; i++)
            TRY(read_step(c, &c->each[i], first, count));
        for (int i = 0; i < c->count; i++)
            TRY(judge_step(c, &c->each[i], first, count, length));
        c->done += count;
        cli_progress_show(&c->progress, (double)c->done, (double)(c->text.count + c->windows * c->bos));
    }
    return HEED_OK;
}

static heed_status begin(comparison *c, const char *path)
{
    const compare_options *wanted = c->wanted;
    cli_text text;
    heed_model_info info;
    TRY(path ? cli_read_file(path, &text) : cli_read_text(&wanted->use, &text));
    heed_status status = cli_open_model(&cli_compare, &wanted->use, &c->model);
    if (!status) {
        c->tokenizer = heed_model_tokenizer(c->model);
        status = heed_tokenize(c->tokenizer, text.bytes, text.size,
                               wanted->use.parse_special ? HEED_PARSE_SPECIAL : 0u, &c->text);
    }
    free(text.bytes);
    TRY(status);
    heed_model_get_info(c->model, &info);
    if (!info.generates)
        return heed_fail(HEED_UNSUPPORTED, "%s models have no ideas of a next token to compare",
                         info.architecture);
    if (c->text.count < 2 || c->text.count > MOST_TOKENS)
        return heed_fail(HEED_INVALID, "the text has %lld tokens, at least 2 are needed",
                         (long long)c->text.count);
    c->bos = heed_tokenizer_special(c->tokenizer).add_bos;
    c->vocabulary = info.vocabulary;
    c->context = wanted->use.context             ? wanted->use.context
                 : info.context < DEFAULT_WINDOW ? info.context
                                                 : DEFAULT_WINDOW;
    if (c->context > c->text.count + c->bos)
        c->context = c->text.count + c->bos;
    if (c->context < 2)
        return heed_fail(HEED_INVALID, "--context %lld: windows must have at least 2 tokens",
                         (long long)c->context);
    c->windows = (c->text.count + c->context - c->bos - 1) / (c->context - c->bos);
    c->window = malloc((size_t)c->context * sizeof *c->window);
    c->count = 1 + wanted->spec.count;
    c->each = calloc((size_t)c->count, sizeof *c->each);
    if (!c->window || !c->each)
        return heed_fail(HEED_NO_MEMORY, "no memory for windows of %lld tokens", (long long)c->context);
    for (int i = 0; i < c->count; i++) {
        contender *one = &c->each[i];
        one->spec = i > 0 ? wanted->spec.word[i - 1] : NULL;
        heed_session_options session = cli_session_options(&wanted->use, c->context);
        session.chunk = STEP;
        if (one->spec)
            session.attention = one->spec;
        TRY(cli_create_session(&cli_compare, &one->session, c->model, &session));
        one->logits = malloc((size_t)STEP * (size_t)c->vocabulary * sizeof(float));
        if (!one->logits)
            return heed_fail(HEED_NO_MEMORY, "no memory for logits of %lld tokens", (long long)c->vocabulary);
    }
    return HEED_OK;
}

static void end(comparison *c)
{
    for (int i = 0; c->each && i < c->count; i++) {
        heed_session_free(c->each[i].session);
        free(c->each[i].logits);
        heed_divergence_free(&c->each[i].all);
        for (int q = 0; q < QUARTERS; q++)
            heed_divergence_free(&c->each[i].quarter[q]);
    }
    free(c->each);
    free(c->window);
    heed_tokens_free(&c->text);
    heed_model_close(c->model);
}

static double cache_bytes(const comparison *c, const contender *one)
{
    heed_session_info info;
    heed_session_get_info(one->session, &info);
    return info.cache_token_bytes * (double)c->context;
}

/* Where a spec differs most. Windows but the last are full, so a position's number tells its window. */
static int64_t worst_window(const comparison *c, const contender *one)
{
    return one->all.worst / c->context;
}

static int64_t worst_place(const comparison *c, const contender *one)
{
    return one->all.worst % c->context;
}

/* The text of the token that stands there; freed with free(). */
static char *worst_token(const comparison *c, const contender *one)
{
    const int64_t place = one->all.worst - (worst_window(c, one) + 1) * c->bos;
    const bool begins = c->bos && worst_place(c, one) == 0;
    return cli_token_text(c->tokenizer,
                          begins ? heed_tokenizer_special(c->tokenizer).bos : c->text.id[place]);
}

static void print_json(const comparison *c, contender *one)
{
    char canonical[4096] = "own";
    double by_position[QUARTERS];
    cJSON *line = cJSON_CreateObject();
    if (one->spec)
        heed_spec_canonical(one->spec, NULL, canonical, sizeof canonical);
    cJSON_AddStringToObject(line, "attention", canonical);
    cJSON_AddNumberToObject(line, "tokens", (double)c->done);
    cJSON_AddNumberToObject(line, "windows", (double)c->windows);
    cJSON_AddNumberToObject(line, "context", (double)c->context);
    cJSON_AddNumberToObject(line, "perplexity", heed_divergence_perplexity(&one->all, 1));
    cJSON_AddNumberToObject(line, "perplexity_error", heed_divergence_error(&one->all, 1));
    if (one->spec) {
        char *token = worst_token(c, one);
        cJSON_AddNumberToObject(line, "kl_mean", heed_divergence_mean(&one->all));
        cJSON_AddNumberToObject(line, "kl_99", heed_divergence_quantile(&one->all, 0.99));
        cJSON_AddNumberToObject(line, "kl_max", one->all.kl_most);
        cJSON_AddNumberToObject(line, "worst_window", (double)worst_window(c, one));
        cJSON_AddNumberToObject(line, "worst_position", (double)worst_place(c, one));
        cJSON_AddStringToObject(line, "worst_token", token ? token : "");
        free(token);
        cJSON_AddNumberToObject(line, "same_top", (double)one->all.same_top / (double)one->all.positions);
    }
    for (int q = 0; q < QUARTERS; q++)
        by_position[q] = heed_divergence_perplexity(&one->quarter[q], 1);
    cJSON_AddItemToObject(line, "perplexity_by_position", cJSON_CreateDoubleArray(by_position, QUARTERS));
    cJSON_AddNumberToObject(line, "cache_bytes", cache_bytes(c, one));
    cJSON_AddNumberToObject(line, "tokens_per_second", (double)c->done / one->seconds);
    cli_print_json(line);
}

static void print_table(comparison *c)
{
    printf("%lld tokens in %lld %s of %lld; cache: of one window\n\n", (long long)c->done,
           (long long)c->windows, c->windows == 1 ? "window" : "windows", (long long)c->context);
    printf("%-12s %19s %9s %9s %9s %9s %10s %9s\n", "attention", "perplexity", "KL mean", "99 %", "max",
           "same top", "cache MB", "tokens/s");
    for (int i = 0; i < c->count; i++) {
        contender *one = &c->each[i];
        char name[24];
        snprintf(name, sizeof name, i ? "spec %d" : "own", i);
        printf("%-12s %10.4f +- %5.3f ", name, heed_divergence_perplexity(&one->all, 1),
               heed_divergence_error(&one->all, 1));
        if (i)
            printf("%9.2e %9.2e %9.2e %7.2f %%", heed_divergence_mean(&one->all),
                   heed_divergence_quantile(&one->all, 0.99), one->all.kl_most,
                   100.0 * (double)one->all.same_top / (double)one->all.positions);
        else
            printf("%9s %9s %9s %9s", "-", "-", "-", "-");
        printf(" %10.2f %9.1f\n", cache_bytes(c, one) * 1e-6, (double)c->done / one->seconds);
    }
    printf("\nperplexity by position\n%-12s", "");
    for (int q = 0; q < QUARTERS; q++) {
        char range[48];
        snprintf(range, sizeof range, "%lld..%lld", (long long)(q * c->context / QUARTERS),
                 (long long)((q + 1) * c->context / QUARTERS - 1));
        printf(" %13s", range);
    }
    for (int i = 0; i < c->count; i++) {
        char name[24];
        snprintf(name, sizeof name, i ? "spec %d" : "own", i);
        printf("\n%-12s", name);
        for (int q = 0; q < QUARTERS; q++)
            printf(" %13.4f", heed_divergence_perplexity(&c->each[i].quarter[q], 1));
    }
    printf("\n\n");
    for (int i = 1; i < c->count; i++) {
        char canonical[4096] = "";
        heed_spec_canonical(c->each[i].spec, NULL, canonical, sizeof canonical);
        char *token = worst_token(c, &c->each[i]);
        printf("spec %d: %s\n        worst after '%s', position %lld of window %lld\n", i, canonical,
               token ? token : "", (long long)worst_place(c, &c->each[i]),
               (long long)worst_window(c, &c->each[i]));
        free(token);
    }
}

static int run(int argc, char **argv)
{
    compare_options wanted = {.use = CLI_LANGUAGE()};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_compare, argc, argv, &wanted, &arguments, 0, 1, &status))
        return status;
    if ((wanted.use.prompt || wanted.use.file) && arguments.count)
        return cli_fail("compare", "the text is given twice: as '%.100s', and by --prompt or --file",
                        arguments.word[0]);
    if (!wanted.spec.count)
        return cli_fail("compare", "what with? give --spec SPEC, once or several times");
    comparison c = {.wanted = &wanted, .progress = {.what = "compare", .unit = "tokens", .scale = 1.0}};
    heed_status failed = begin(&c, arguments.count ? arguments.word[0] : NULL);
    for (int64_t w = 0; !failed && w < c.windows; w++)
        failed = read_window(&c, w);
    cli_progress_end(&c.progress);
    for (int i = 0; !failed && wanted.use.json && i < c.count; i++)
        print_json(&c, &c.each[i]);
    if (!failed && !wanted.use.json)
        print_table(&c);
    end(&c);
    return failed ? cli_fail_message("compare") : CLI_OK;
}

const cli_command cli_compare = {
    .name = "compare",
    .arguments = "-m MODEL [FILE] --spec SPEC [--spec SPEC ...]",
    .summary = "what other attention makes of a model's next-token distributions",
    .details = "Reads the text in windows with the model's own attention and with each spec, whose clauses "
               "replace those of\n"
               "the model's. KL is of the model's own distribution against the spec's, in nats. The text "
               "comes from FILE,\n"
               "--prompt or standard input.",
    .example = "heed compare -m smollm2 README.md --spec \"where=causal & window(64)\"",
    .options = options,
    .run = run,
};
