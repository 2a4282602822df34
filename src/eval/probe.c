#include "eval/probe.h"
#include "base/try.h"
#include "eval/divergence.h"
#include "eval/task.h"
#include "eval/usage.h"

#include <stdlib.h>

enum { ROWS = 40 }; /* of each text, its last ones: the question and its answers */

static int64_t rows_of(const heed_quiz *quiz)
{
    const int64_t behind = quiz->text.count - quiz->context;
    return behind < ROWS ? behind : ROWS;
}

static heed_status make_quizzes(heed_probe *probe, int64_t length, uint64_t seed)
{
    /* The last ones need least room. */
    static const heed_task *const tasks[] = {&heed_task_key_value, &heed_task_copying, &heed_task_multikey,
                                             &heed_task_needle,    &heed_task_passkey, NULL};
    heed_material material;
    TRY(heed_material_create(&material, heed_model_tokenizer(probe->model)));
    heed_status status = HEED_OK;
    for (int i = 0; tasks[i] && probe->quizzes < HEED_PROBES && status != HEED_NO_MEMORY; i++) {
        heed_quiz *quiz = &probe->quiz[probe->quizzes];
        const double depth = (probe->quizzes + 0.5) / HEED_PROBES;
        status = tasks[i]->make(&material, &(heed_task_wish){length, depth, seed + (uint64_t)i}, quiz);
        if (!status) {
            probe->quizzes++;
            probe->tokens += quiz->text.count;
            probe->most = rows_of(quiz) > probe->most ? rows_of(quiz) : probe->most;
        } else {
            heed_quiz_free(quiz);
        }
    }
    heed_material_free(&material);
    return probe->quizzes ? HEED_OK : status;
}

/* Everything before the rows at once, then the rows; policies have acted on what came before. */
static heed_status read_rows(heed_session *session, const heed_quiz *quiz, float *logits)
{
    const int64_t rows = rows_of(quiz), before = quiz->text.count - rows;
    const heed_feed_item first = {.tokens = quiz->text.id, .count = before},
                         second = {
                             .tokens = quiz->text.id + before, .count = rows, .reading = HEED_READ_WRITTEN};
    TRY(heed_session_cut(session, 0, 0));
    TRY(heed_feed(session, &first, 1, NULL));
    return heed_feed(session, &second, 1, &(heed_feed_wants){.logits = logits, .all_logits = true});
}

static double sum_of_kl(const heed_probe *probe, const heed_session *session, const float *expected,
                        int64_t rows)
{
    heed_difference difference[ROWS];
    heed_session_info info;
    int32_t next[ROWS];
    double sum = 0.0;
    heed_session_get_info(session, &info);
    for (int64_t r = 0; r < rows; r++)
        next[r] = -1;
    heed_differ_rows(expected, probe->logits, rows, probe->vocabulary, next, info.threads, difference);
    for (int64_t r = 0; r < rows; r++)
        sum += difference[r].kl;
    return sum;
}

static heed_status run(heed_probe *probe, const char *spec, float *reference, bool learn, heed_trial *trial)
{
    heed_session_options options = probe->session;
    heed_session *session;
    int64_t rows = 0, at = 0;
    *trial = (heed_trial){.kl = 0.0};
    if (spec)
        options.attention = spec;
    TRY(heed_session_create(&session, probe->model, &options));
    heed_status status = HEED_OK;
    for (int i = 0; i < probe->quizzes && !status; i++) {
        const heed_quiz *quiz = &probe->quiz[i];
        float *expected = reference + at * probe->vocabulary;
        status = read_rows(session, quiz, learn ? expected : probe->logits);
        if (!status && !learn) {
            trial->kl += sum_of_kl(probe, session, expected, rows_of(quiz));
            rows += rows_of(quiz);
        }
        at += rows_of(quiz);
        const double bytes = status ? 0.0 : heed_usage_bytes(session);
        trial->bytes = bytes > trial->bytes ? bytes : trial->bytes;
    }
    heed_session_free(session);
    trial->kl /= rows ? (double)rows : 1.0;
    return status;
}

heed_status heed_probe_create(heed_probe *probe, const heed_model *model, const heed_session_options *session,
                              int64_t length, uint64_t seed)
{
    heed_model_info info;
    heed_trial own;
    int64_t rows = 0;
    heed_model_get_info(model, &info);
    *probe = (heed_probe){.model = model, .session = *session, .vocabulary = info.vocabulary};
    probe->session.context = length;
    heed_status status = make_quizzes(probe, length, seed);
    for (int i = 0; i < probe->quizzes; i++)
        rows += rows_of(&probe->quiz[i]);
    if (!status) {
        probe->reference = malloc((size_t)rows * (size_t)info.vocabulary * sizeof(float));
        probe->logits = malloc((size_t)probe->most * (size_t)info.vocabulary * sizeof(float));
        if (!probe->reference || !probe->logits)
            status = heed_fail(HEED_NO_MEMORY, "no memory for the logits of %lld tokens", (long long)rows);
    }
    if (!status)
        status = run(probe, NULL, probe->reference, true, &own);
    if (status)
        heed_probe_free(probe);
    else
        probe->bytes = own.bytes;
    return status;
}

void heed_probe_free(heed_probe *probe)
{
    for (int i = 0; i < HEED_PROBES; i++)
        heed_quiz_free(&probe->quiz[i]);
    free(probe->reference);
    free(probe->logits);
    probe->reference = probe->logits = NULL;
    probe->quizzes = 0;
}

heed_status heed_probe_try(heed_probe *probe, const char *spec, heed_trial *trial)
{
    probe->trials++;
    return run(probe, spec, probe->reference, false, trial);
}
