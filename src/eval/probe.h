/* A short trial of how far other attention is from a model's own, where far keys matter: quizzes whose
 * answers stand far back, and the end of a text. The reference is read once. */
#ifndef HEED_EVAL_PROBE_H
#define HEED_EVAL_PROBE_H

#include "eval/quiz.h"

#include <heed/model.h>

enum { HEED_PROBES = 3 };

typedef struct heed_probe {
    const heed_model *model;
    heed_session_options session; /* of all sessions; `attention` is set for each trial */
    int64_t vocabulary, most;     /* most rows that are judged in a text */
    heed_quiz quiz[HEED_PROBES];
    int quizzes;
    float *reference, *logits; /* [all rows, vocabulary], [most, vocabulary] */
    double bytes;              /* of the model's own caches behind the longest text */
    int64_t tokens, trials;    /* tokens of a trial; trials so far */
} heed_probe;

/* Texts of `length` tokens. HEED_INVALID when none has room. */
heed_status heed_probe_create(heed_probe *probe, const heed_model *model, const heed_session_options *session,
                              int64_t length, uint64_t seed);
void heed_probe_free(heed_probe *probe);

typedef struct heed_trial {
    double kl;    /* mean over the rows that are judged, nats */
    double bytes; /* of the caches behind the longest text */
} heed_trial;

/* Clauses that replace those of the model's own attention. */
heed_status heed_probe_try(heed_probe *probe, const char *spec, heed_trial *trial);

#endif
