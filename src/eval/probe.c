#include "eval/probe.h"
#include "base/try.h"
#include "eval/divergence.h"
#include "eval/task.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_ROWS = 40 }; /* of a text that goes on: fewer than policies wait for before they act again */

static void free_item(heed_probe_item *item)
{
    heed_tokens_free(&item->text);
    free(item->judged);
    item->judged = NULL;
}

/* A piece of the book; its last rows are read as if they were written. */
static heed_status make_text(const heed_material *material, int64_t length, int64_t first,
                             heed_probe_item *item)
{
    TRY(heed_tokens_join(&item->text, &material->start));
    TRY(heed_tokens_fill(&item->text, &material->book, first, length - item->text.count));
    item->rows = length / 2 < TEXT_ROWS ? length / 2 : TEXT_ROWS;
    item->before = length - item->rows;
    return HEED_OK;
}

/* From the token before the first answer on; where policies do not know the question, from its begin on. */
static heed_status take_quiz(heed_quiz *quiz, bool apart, heed_probe_item *item)
{
    const int64_t end =
        quiz->question[quiz->questions - 1].at + quiz->question[quiz->questions - 1].count - 1;
    item->before = quiz->question[0].at - 1;
    if (apart && quiz->context && quiz->context < item->before)
        item->before = quiz->context;
    item->rows = end - item->before;
    item->judged = calloc((size_t)item->rows, sizeof *item->judged);
    if (!item->judged)
        return heed_fail(HEED_NO_MEMORY, "no memory for a quiz");
    for (int q = 0; q < quiz->questions; q++)
        for (int64_t i = 0; i < quiz->question[q].count; i++)
            item->judged[quiz->question[q].at - 1 + i - item->before] = true;
    item->text = quiz->text;
    quiz->text = (heed_tokens){.id = NULL};
    return HEED_OK;
}

static heed_status make_items(heed_probe *probe, const heed_probe_wish *wish)
{
    /* One to look for a thing, one of pairs, the last ones need least room. */
    static const heed_task *const tasks[] = {&heed_task_needle,   &heed_task_key_value, &heed_task_passkey,
                                             &heed_task_multikey, &heed_task_copying,   NULL};
    heed_material material;
    TRY(heed_material_create(&material, heed_model_tokenizer(probe->model)));
    heed_dice dice = heed_dice_for(wish->seed, 77);
    heed_status status = HEED_OK;
    for (; probe->items < HEED_PROBE_TEXTS && !status; probe->items++)
        status = make_text(&material, wish->length, heed_dice_throw(&dice, material.book.count),
                           &probe->item[probe->items]);
    int quizzes = 0;
    for (int i = 0; i < 3 * HEED_PROBE_QUIZZES && quizzes < HEED_PROBE_QUIZZES && !status; i++) {
        heed_quiz quiz = {.questions = 0};
        const heed_task_wish one = {.length = wish->length,
                                    .depth = (quizzes + 0.5) / HEED_PROBE_QUIZZES,
                                    .seed = heed_dice_next(&dice)};
        const heed_task *task = tasks[i % 2 ? i / 2 % 5 : 0]; /* every other one is a needle */
        const heed_status made = task->make(&material, &one, &quiz);
        if (made == HEED_NO_MEMORY)
            status = made;
        if (!made) {
            status = take_quiz(&quiz, wish->apart, &probe->item[probe->items++]);
            quizzes++;
        }
        heed_quiz_free(&quiz);
    }
    heed_material_free(&material);
    if (!status && !quizzes)
        status = heed_fail(HEED_INVALID, "texts of %lld tokens have no room for a question",
                           (long long)wish->length);
    return status;
}

static heed_status read_prompt(const heed_probe *probe, heed_session *session, int i, int64_t sequence)
{
    const heed_feed_item prompt = {.sequence = sequence,
                                   .tokens = probe->item[i].text.id,
                                   .count = probe->item[i].before,
                                   .reading = HEED_READ_PROMPT_END};
    TRY(heed_feed(session, &prompt, 1, NULL));
    if (probe->progress)
        probe->progress(probe->context, prompt.count);
    return HEED_OK;
}

static heed_session_options options_for(const heed_probe *probe, const char *spec, int64_t sequences)
{
    heed_session_options options = probe->session;
    options.attention = spec;
    options.context = 0;
    for (int i = 0; i < probe->items; i++)
        options.context =
            probe->item[i].text.count > options.context ? probe->item[i].text.count : options.context;
    options.sequences = sequences;
    return options;
}

static void close_session(heed_probe *probe)
{
    if (probe->open)
        heed_trials_end(&probe->trials);
    heed_session_free(probe->open);
    probe->open = NULL;
    probe->forms = 0;
}

/* Sequences 0.. hold the prompts; a trial takes place in the ones behind them; then come those in which
 * prepared forms have acted. */
static heed_status open_session(heed_probe *probe, const char *type)
{
    char spec[1024];
    if (probe->open && !strcmp(probe->type, type))
        return HEED_OK;
    close_session(probe);
    if ((size_t)snprintf(spec, sizeof spec, "cache=%s > %s", probe->gather, type) >= sizeof spec ||
        strlen(type) >= sizeof probe->type)
        return heed_fail(HEED_INVALID, "too many policies to try them beside each other");
    const heed_session_options options = options_for(probe, spec, (2 + HEED_PROBE_FORMS) * probe->items);
    strcpy(probe->type, type);
    TRY(heed_session_create(&probe->open, probe->model, &options));
    heed_status status = heed_trials_begin(&probe->trials, probe->open);
    for (int i = 0; i < probe->items && !status; i++)
        status = read_prompt(probe, probe->open, i, i);
    if (status)
        close_session(probe);
    return status;
}

/* The rows of the first `count` items, whose prompts lie in sequences `first`... */
static heed_status read_rows(const heed_probe *probe, heed_session *session, int64_t first, int count,
                             float *logits)
{
    heed_feed_item items[HEED_PROBE_MOST];
    for (int i = 0; i < count; i++)
        items[i] = (heed_feed_item){.sequence = first + i,
                                    .tokens = probe->item[i].text.id + probe->item[i].before,
                                    .count = probe->item[i].rows,
                                    .reading = HEED_READ_WRITTEN};
    return heed_feed(session, items, count,
                     &(heed_feed_wants){.logits = logits, .all_logits = logits != NULL});
}

static heed_status compare(const heed_probe *probe, heed_trial *trial)
{
    heed_difference *difference = malloc((size_t)probe->rows * sizeof *difference);
    int32_t *next = malloc((size_t)probe->rows * sizeof *next);
    int64_t row = 0, count[2] = {0, 0};
    double sum[2] = {0.0, 0.0};
    if (difference && next) {
        heed_session_info info;
        heed_session_get_info(probe->open, &info);
        for (int64_t r = 0; r < probe->rows; r++)
            next[r] = -1;
        heed_differ_rows(probe->reference, probe->logits, probe->rows, probe->info.vocabulary, next,
                         info.threads, difference);
        for (int i = 0; i < probe->items; i++)
            for (int64_t r = 0; r < probe->item[i].rows; r++, row++) {
                const bool quiz = probe->item[i].judged != NULL;
                if (quiz && !probe->item[i].judged[r])
                    continue;
                sum[quiz] += difference[row].kl;
                count[quiz]++;
            }
    }
    const heed_status status =
        difference && next
            ? HEED_OK
            : heed_fail(HEED_NO_MEMORY, "no memory for %lld differences", (long long)probe->rows);
    trial->text = count[0] ? sum[0] / (double)count[0] : 0.0;
    trial->answers = count[1] ? sum[1] / (double)count[1] : 0.0;
    free(difference);
    free(next);
    return status;
}

/* A copy of a prompt without what the policies drop. */
static heed_status act(heed_probe *probe, int i, int64_t to)
{
    TRY(heed_session_share(probe->open, i, to, probe->item[i].before));
    return heed_trials_act(&probe->trials, to);
}

/* A copy of a prompt in which each kv head holds what its form left. */
static heed_status assemble(heed_probe *probe, int i, const int32_t *choice)
{
    const int64_t to = probe->items + i, heads = probe->info.kv_heads;
    TRY(heed_session_share(probe->open, i, to, probe->item[i].before));
    for (int64_t u = 0; u < probe->info.layers * heads; u++)
        TRY(heed_trials_take(&probe->trials, (2 + choice[u]) * probe->items + i, to, u / heads, u % heads));
    return HEED_OK;
}

static double bytes_of(const heed_probe *probe, int64_t sequence, double *each)
{
    double sum = 0.0;
    for (int64_t l = 0; l < probe->info.layers; l++)
        for (int64_t g = 0; g < probe->info.kv_heads; g++) {
            const double bytes = heed_trials_bytes(&probe->trials, sequence, l, g);
            if (each)
                each[l * probe->info.kv_heads + g] = bytes;
            sum += bytes;
        }
    return sum;
}

/* `choice` NULL: the policies act; else what prepared forms left is put together. */
static heed_status run(heed_probe *probe, const char *spec, const int32_t *choice, float *logits,
                       heed_trial *trial)
{
    heed_status status = heed_trials_change(&probe->trials, spec);
    for (int i = 0; i < probe->items && !status; i++)
        status = choice ? assemble(probe, i, choice) : act(probe, i, probe->items + i);
    if (!status)
        status = read_rows(probe, probe->open, probe->items, probe->items, logits);
    trial->bytes = 0.0;
    for (int i = 0; i < HEED_PROBE_TEXTS && !status; i++)
        trial->bytes = fmax(trial->bytes, bytes_of(probe, probe->items + i, NULL));
    for (int i = 0; i < probe->items; i++)
        heed_session_cut(probe->open, probe->items + i, 0);
    return status;
}

/* Policies that cannot act on what was read without them read it themselves. */
static heed_status run_apart(heed_probe *probe, const char *spec, heed_trial *trial)
{
    heed_session *session;
    const heed_session_options options = options_for(probe, spec, probe->items);
    TRY(heed_session_create(&session, probe->model, &options));
    heed_session_usage usage;
    heed_status status = read_prompt(probe, session, 0, 0);
    if (!status)
        status = read_rows(probe, session, 0, 1, NULL);
    heed_session_get_usage(session, &usage);
    trial->bytes = (double)usage.bytes;
    for (int i = 0; i < probe->items && !status; i++) {
        status = heed_session_cut(session, i, 0);
        if (!status)
            status = read_prompt(probe, session, i, i);
    }
    if (!status)
        status = read_rows(probe, session, 0, probe->items, probe->logits);
    heed_session_free(session);
    return status;
}

static heed_status try_spec(heed_probe *probe, const char *type, const char *spec, const int32_t *choice,
                            heed_trial *trial)
{
    const heed_trial *known = heed_trial_log_find(probe->log, spec);
    if (known) {
        *trial = *known;
        return HEED_OK;
    }
    TRY(open_session(probe, type));
    heed_status status = run(probe, spec, probe->forms ? choice : NULL, probe->logits, trial);
    if (status == HEED_UNSUPPORTED)
        status = run_apart(probe, spec, trial);
    TRY(status);
    TRY(compare(probe, trial));
    return heed_trial_log_add(probe->log, spec, trial);
}

heed_status heed_probe_try(heed_probe *probe, const char *type, const char *spec, heed_trial *trial)
{
    return try_spec(probe, type, spec, NULL, trial);
}

heed_status heed_probe_try_choice(heed_probe *probe, const char *type, const char *spec,
                                  const int32_t *choice, heed_trial *trial)
{
    return try_spec(probe, type, spec, choice, trial);
}

heed_status heed_probe_prepare(heed_probe *probe, const char *type, const char *const *spec, int forms)
{
    TRY(open_session(probe, type));
    probe->forms = 0;
    for (int f = 0; f < forms; f++) {
        if (!spec[f])
            continue;
        TRY(heed_trials_change(&probe->trials, spec[f]));
        for (int i = 0; i < probe->items; i++)
            TRY(act(probe, i, (2 + f) * probe->items + i));
    }
    probe->forms = forms;
    return HEED_OK;
}

heed_status heed_probe_weigh(heed_probe *probe, const char *type, const char *spec, double *bytes)
{
    TRY(open_session(probe, type));
    TRY(heed_trials_change(&probe->trials, spec));
    heed_status status = act(probe, 0, probe->items);
    if (!status)
        status = read_rows(probe, probe->open, probe->items, 1, NULL);
    if (!status)
        bytes_of(probe, probe->items, bytes);
    heed_session_cut(probe->open, probe->items, 0);
    return status;
}

static heed_status take_reference(heed_probe *probe)
{
    const char *type = heed_type_name(probe->session.cache_given ? probe->session.cache : HEED_F16);
    char spec[80];
    heed_trial own;
    snprintf(spec, sizeof spec, "cache=%s", type);
    probe->reference = malloc((size_t)probe->rows * (size_t)probe->info.vocabulary * sizeof(float));
    probe->logits = malloc((size_t)probe->rows * (size_t)probe->info.vocabulary * sizeof(float));
    if (!probe->reference || !probe->logits)
        return heed_fail(HEED_NO_MEMORY, "no memory for the logits of %lld tokens", (long long)probe->rows);
    TRY(open_session(probe, type));
    TRY(run(probe, spec, NULL, probe->reference, &own));
    probe->bytes = own.bytes;
    return HEED_OK;
}

heed_status heed_probe_create(heed_probe *probe, const heed_probe_wish *wish)
{
    *probe = (heed_probe){.model = wish->model,
                          .session = wish->session,
                          .gather = wish->gather,
                          .log = wish->log,
                          .progress = wish->progress,
                          .context = wish->context};
    heed_model_get_info(wish->model, &probe->info);
    heed_status status = make_items(probe, wish);
    for (int i = 0; i < probe->items; i++)
        probe->rows += probe->item[i].rows;
    if (!status)
        status = take_reference(probe);
    if (status)
        heed_probe_free(probe);
    return status;
}

void heed_probe_free(heed_probe *probe)
{
    close_session(probe);
    for (int i = 0; i < HEED_PROBE_MOST; i++)
        free_item(&probe->item[i]);
    free(probe->reference);
    free(probe->logits);
    probe->reference = probe->logits = NULL;
    probe->items = 0;
}
