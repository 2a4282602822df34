/* Finding the mix of cache policies that loses least at a given memory, by measuring each alone. */
#ifndef HEED_EVAL_TUNE_H
#define HEED_EVAL_TUNE_H

#include "eval/heads.h"
#include "eval/mix.h"
#include "eval/probe.h"

enum { HEED_TUNE_FORMS = 32, HEED_TUNE_NAMES = 8, HEED_TUNE_TYPES = 8 };

typedef struct heed_tuning {
    const heed_model *model;
    heed_session_options session;
    int64_t length; /* tokens of the texts that are tried */
    uint64_t seed;
    double budget;                       /* share of the bytes of the model's own caches */
    const char *policy[HEED_TUNE_FORMS]; /* chains without a type, "streaming(share=0.1)" */
    int policies;
    const char
        *name[HEED_TUNE_NAMES]; /* policies that are tried alone on all heads at the budget, "streaming" */
    int names;
    const char *type[HEED_TUNE_TYPES]; /* of storage, tried with each mix */
    int types;
    void (*progress)(void *context, const char *what, double done, double all);
    void *context;
} heed_tuning;

/* A spec and what it costs. */
typedef struct heed_tuned {
    char *spec;
    double predicted; /* KL, losses added up; NaN where nothing was added */
    heed_trial trial;
} heed_tuned;

typedef struct heed_tune_result {
    int64_t layers, heads, kv_heads, policies;
    double bytes;           /* of the model's own caches */
    heed_head_scores *head; /* [layers, heads] */
    bool *retrieval;        /* [layers, heads] by those scores */
    double *loss, *saved;   /* [layers, kv_heads, policies] */
    heed_tuned mix[HEED_TUNE_TYPES], single[HEED_TUNE_NAMES * HEED_TUNE_TYPES];
    int mixes, singles, best; /* best: of the mixes within the budget the one that loses least; -1: none */
} heed_tune_result;

heed_status heed_tune(const heed_tuning *tuning, heed_tune_result *result);
void heed_tune_free(heed_tune_result *result);

#endif
