/* Short trials of how far other policies are from a model's own attention, many of them in little time: texts
 * that go on and quizzes whose answers stand far back are read once for each type of storage, and a trial
 * lets policies act on what was read and reads on from there. */
#ifndef HEED_EVAL_PROBE_H
#define HEED_EVAL_PROBE_H

#include "eval/quiz.h"
#include "eval/trial_log.h"
#include "model/session_trial.h"

enum {
    HEED_PROBE_TEXTS = 3,
    HEED_PROBE_QUIZZES = 6,
    HEED_PROBE_MOST = HEED_PROBE_TEXTS + HEED_PROBE_QUIZZES
};

/* A text: `before` of its tokens are a prompt, at whose end policies act; then `rows` are fed. */
typedef struct heed_probe_item {
    heed_tokens text;
    int64_t before, rows;
    bool *judged; /* [rows] whether what is foreseen there counts; NULL: all of it does, as text */
} heed_probe_item;

typedef struct heed_probe {
    const heed_model *model;
    heed_session_options session;
    const char *gather; /* chain of policies that keep everything, see heed_trials */
    heed_model_info info;
    heed_probe_item item[HEED_PROBE_MOST];
    int items;
    int64_t rows;              /* of all items */
    float *reference, *logits; /* [rows, vocabulary] */
    double bytes;              /* of the model's own caches at the end of the first text */
    heed_trial_log *log;
    heed_session *open; /* has read all prompts, */
    char type[64];      /* keeping them as this type */
    heed_trials trials;
    int forms; /* for which heed_probe_prepare has acted, in sequences behind those of trials */
    void (*progress)(void *context, int64_t tokens); /* while prompts are read */
    void *context;
} heed_probe;

typedef struct heed_probe_wish {
    const heed_model *model;
    heed_session_options session; /* attention NULL; the cache's type is that of the reference */
    const char *gather;
    int64_t length; /* tokens of a text */
    uint64_t seed;
    bool apart; /* policies act before the question is read */
    heed_trial_log *log;
    void (*progress)(void *context, int64_t tokens);
    void *context;
} heed_probe_wish;

/* HEED_INVALID when no task has room in that length. */
heed_status heed_probe_create(heed_probe *probe, const heed_probe_wish *wish);
void heed_probe_free(heed_probe *probe);

/* `spec`: clauses that replace those of the model's own attention, all with storage `type`. Taken from the
 * log if it is there. */
heed_status heed_probe_try(heed_probe *probe, const char *type, const char *spec, heed_trial *trial);

/* Lets each of forms [forms] act on all prompts: specs that hold for all heads, all with storage `type`;
 * NULL: not there. heed_probe_try_choice then only puts together what each kv head holds. */
enum { HEED_PROBE_FORMS = 12 };
heed_status heed_probe_prepare(heed_probe *probe, const char *type, const char *const *spec, int forms);
/* As heed_probe_try with the spec in which each kv head has the form choice[layers, kv_heads] of those
 * prepared, each acting as if all heads had it: the same where forms look at one head alone. */
heed_status heed_probe_try_choice(heed_probe *probe, const char *type, const char *spec,
                                  const int32_t *choice, heed_trial *trial);

/* Only the bytes [layers, kv_heads] of each kv head when the policies have acted on the first text and its
 * rows were read. */
heed_status heed_probe_weigh(heed_probe *probe, const char *type, const char *spec, double *bytes);

#endif
