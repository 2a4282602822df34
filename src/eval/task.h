/* A task: how prompts with known answers are made. One file a task, in tasks/, and one line in tasks.c. */
#ifndef HEED_EVAL_TASK_H
#define HEED_EVAL_TASK_H

#include "eval/quiz.h"

typedef struct heed_task_wish {
    int64_t length; /* tokens of the whole quiz, answers included */
    double depth;   /* 0..1 where what is asked for stands; tasks that spread theirs don't look at it */
    uint64_t seed;
} heed_task_wish;

typedef struct heed_task {
    const char *name, *summary;
    bool by_depth; /* asked at every depth */
    bool by_token; /* judged by the share of right tokens instead of whole answers */
    bool by_name;  /* only where it is asked for by its name */
    /* Deterministic. HEED_INVALID when the length has no room for it. `quiz` is zeroed before; what it holds
     * after a failure is freed by the caller. */
    heed_status (*make)(const heed_material *material, const heed_task_wish *wish, heed_quiz *quiz);
} heed_task;

extern const heed_task heed_task_passkey, heed_task_needle, heed_task_multikey, heed_task_variables,
    heed_task_copying, heed_task_induction, heed_task_key_value, heed_task_interference;

extern const heed_task *const heed_tasks[]; /* ended by NULL */
const heed_task *heed_task_find(const char *name);

#endif
