/* Judging forms of attention on a model: tasks, a text and speed, for the model's own attention and for specs
 * beside it. */
#ifndef HEED_EVAL_EVALUATION_H
#define HEED_EVAL_EVALUATION_H

#include "eval/results.h"
#include "eval/suite.h"
#include "eval/task.h"

typedef struct heed_evaluation {
    const heed_model *model;
    heed_session_options session; /* of all sessions: type of cache, threads; attention and context are set */
    heed_suite suite;
    uint64_t seed;
    bool apart;                /* policies act on contexts before they know the question */
    bool text, speed;          /* read the text; measure the speed */
    const heed_task *task[16]; /* tasks to do, ended by NULL */
    const char *const *spec;   /* [specs] clauses that replace those of the model's own */
    int specs;
    const char *file; /* of results, written after each piece of work; NULL: none */
    /* `what` is being done, to `spec` (NULL: to several); tokens fed of all that will be. */
    void (*progress)(void *context, const char *what, const char *spec, double done, double all);
    void *context;
} heed_evaluation;

/* Does what `results` does not have yet, first for the model's own attention (spec "") and then for each
 * spec. Deterministic but for the speeds. */
heed_status heed_evaluation_run(const heed_evaluation *evaluation, heed_results *results);

#endif
