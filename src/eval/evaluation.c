#include "base/try.h"
#include "eval/evaluation_parts.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_SEED = 1000 };

const char *heed_eval_spec(const heed_eval_run *r, int i)
{
    return i < 0 ? "" : r->wanted->spec[i];
}

void heed_eval_advance(heed_eval_run *r, const char *spec, double tokens)
{
    r->done += tokens;
    if (r->wanted->progress)
        r->wanted->progress(r->wanted->context, r->what, spec, r->done, r->all);
}

heed_status heed_eval_session(const heed_eval_run *r, const char *spec, heed_session **session)
{
    heed_session_options options = r->wanted->session;
    options.context = r->wanted->suite.text;
    if (*spec)
        options.attention = spec;
    return heed_session_create(session, r->wanted->model, &options);
}

heed_status heed_eval_save(const heed_eval_run *r)
{
    return r->wanted->file ? heed_results_write(r->results, r->wanted->file) : HEED_OK;
}

static heed_status do_quiz(heed_eval_run *r, heed_session *session, const heed_task *task, heed_cell *cell,
                           int trial)
{
    const heed_evaluation *e = r->wanted;
    heed_dice dice = heed_dice_for(e->seed, (uint64_t)(LEAST_SEED + trial));
    heed_task_wish wish = {.length = cell->length, .depth = cell->depth, .seed = heed_dice_next(&dice)};
    heed_quiz quiz = {.questions = 0};
    if (!task->by_depth) /* somewhere, but for every spec at the same place */
        wish.depth = 1e-3 * (double)heed_dice_throw(&dice, 1001);
    heed_status status = task->make(&r->material, &wish, &quiz);
    if (!status)
        status = heed_ask(session, &quiz, r->info.vocabulary, e->apart, r->logits, &cell->score);
    heed_quiz_free(&quiz);
    return status;
}

/* Whether a task has room in this length: decided by the shortest text that it would make. */
static bool fits(const heed_eval_run *r, const heed_task *task, int64_t length)
{
    heed_quiz quiz = {.questions = 0};
    const heed_task_wish wish = {.length = length, .depth = 0.5, .seed = r->wanted->seed};
    const bool made = task->make(&r->material, &wish, &quiz) == HEED_OK;
    heed_quiz_free(&quiz);
    return made;
}

static int depths_of(const heed_eval_run *r, const heed_task *task)
{
    return task->by_depth ? r->wanted->suite.depths : 1;
}

static int trials_of(const heed_eval_run *r, const heed_task *task)
{
    return task->by_depth ? r->wanted->suite.trials : r->wanted->suite.quizzes;
}

static heed_status do_task(heed_eval_run *r, heed_session *session, const char *spec, const heed_task *task)
{
    const heed_suite *suite = &r->wanted->suite;
    heed_cell cells[HEED_SUITE_LENGTHS * 16];
    int count = 0;
    r->what = task->name;
    for (int l = 0; l < suite->lengths; l++)
        for (int d = 0; d < depths_of(r, task); d++) {
            heed_cell *cell = &cells[count];
            *cell = (heed_cell){.task = task->name,
                                .length = suite->length[l],
                                .depth = task->by_depth ? heed_suite_depth(suite, d) : -1.0};
            if (!fits(r, task, cell->length))
                continue;
            count++;
            for (int t = 0; t < trials_of(r, task); t++) {
                TRY(do_quiz(r, session, task, cell, (l * depths_of(r, task) + d) * 100 + t));
                heed_eval_advance(r, spec, (double)cell->length);
            }
        }
    if (!count)
        return heed_fail(HEED_INVALID, "texts of %lld tokens have no room for the task %s",
                         (long long)suite->text, task->name);
    heed_result *result = heed_results_of(r->results, spec);
    if (!result)
        return HEED_NO_MEMORY;
    TRY(heed_result_add(result, cells, count));
    return heed_eval_save(r);
}

static double tokens_of_task(const heed_eval_run *r, const heed_task *task)
{
    double sum = 0.0;
    for (int l = 0; l < r->wanted->suite.lengths; l++)
        sum += (double)(r->wanted->suite.length[l] * depths_of(r, task) * trials_of(r, task));
    return sum;
}

static heed_status do_speed(heed_eval_run *r, heed_session *session, const char *spec)
{
    const heed_suite *suite = &r->wanted->suite;
    heed_pace pace;
    heed_tokens text = {.id = NULL};
    r->what = "speed";
    heed_status status = heed_tokens_join(&text, &r->material.start);
    if (!status)
        status = heed_tokens_fill(&text, &r->material.book, 0, suite->text - text.count);
    if (!status)
        status = heed_pace_measure(session, text.id, suite->text - suite->written, suite->written, r->logits,
                                   &pace);
    heed_tokens_free(&text);
    TRY(status);
    heed_result *result = heed_results_of(r->results, spec);
    if (!result)
        return HEED_NO_MEMORY;
    result->pace = pace;
    result->paced = true;
    heed_eval_advance(r, spec, (double)suite->text);
    return heed_eval_save(r);
}

/* Speed first: the peak of the memory is that of a session that has done nothing else. */
static heed_status do_spec(heed_eval_run *r, const char *spec)
{
    heed_session *session = NULL;
    const heed_result *result = heed_results_of(r->results, spec);
    if (!result)
        return HEED_NO_MEMORY;
    bool anything = r->wanted->speed && !result->paced;
    for (const heed_task *const *task = r->wanted->task; *task; task++)
        anything |= !heed_result_has(result, (*task)->name);
    if (!anything)
        return HEED_OK;
    heed_status status = heed_eval_session(r, spec, &session);
    if (!status && r->wanted->speed && !result->paced)
        status = do_speed(r, session, spec);
    for (const heed_task *const *task = r->wanted->task; *task && !status; task++)
        if (!heed_result_has(heed_results_of(r->results, spec), (*task)->name))
            status = do_task(r, session, spec, *task);
    heed_session_free(session);
    return status;
}

static double work_of(const heed_eval_run *r)
{
    const heed_evaluation *e = r->wanted;
    double all = 0.0;
    for (int i = -1; i < e->specs; i++) {
        const heed_result *result = heed_results_of(r->results, heed_eval_spec(r, i));
        if (e->text && !(result && result->read))
            all += (double)(e->suite.text + e->suite.windows * e->suite.window);
        if (e->speed && !(result && result->paced))
            all += (double)e->suite.text;
        for (const heed_task *const *task = e->task; *task; task++)
            if (!(result && heed_result_has(result, (*task)->name)))
                all += tokens_of_task(r, *task);
    }
    return all;
}

/* What cannot be done is said before anything is. */
static heed_status check_specs(const heed_eval_run *r)
{
    for (int i = -1; i < r->wanted->specs; i++) {
        heed_session *session;
        TRY(heed_eval_session(r, heed_eval_spec(r, i), &session));
        heed_session_free(session);
    }
    return HEED_OK;
}

heed_status heed_evaluation_run(const heed_evaluation *wanted, heed_results *results)
{
    heed_eval_run r = {.wanted = wanted, .results = results};
    heed_model_get_info(wanted->model, &r.info);
    if (!r.info.generates)
        return heed_fail(HEED_UNSUPPORTED, "%s models have no ideas of a next token to judge",
                         r.info.architecture);
    if (!heed_model_tokenizer(wanted->model))
        return heed_fail(HEED_UNSUPPORTED, "the model has no tokeniser, so no task can be put to it");
    TRY(check_specs(&r));
    TRY(heed_material_create(&r.material, heed_model_tokenizer(wanted->model)));
    r.logits = malloc((size_t)r.info.vocabulary * sizeof *r.logits);
    heed_status status = r.logits ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for logits");
    r.all = work_of(&r);
    for (int i = -1; i < wanted->specs && !status; i++)
        status = do_spec(&r, heed_eval_spec(&r, i));
    if (!status && wanted->text)
        status = heed_eval_text(&r);
    free(r.logits);
    heed_material_free(&r.material);
    return status;
}
