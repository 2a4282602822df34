/* Finding the mix of cache policies and storage that loses least at a given memory, and trying it beside
 * single policies. */
#ifndef HEED_EVAL_TUNE_H
#define HEED_EVAL_TUNE_H

#include "eval/evaluation.h"
#include "eval/heads.h"
#include "eval/mix.h"
#include "eval/probe.h"

enum {
    HEED_TUNE_CHECKS = 5,
    HEED_TUNE_POLICIES = 8,
    HEED_TUNE_TYPES = 8,
    HEED_TUNE_SINGLES = HEED_TUNE_POLICIES * HEED_TUNE_TYPES
};

typedef enum heed_tune_method {
    HEED_TUNE_MEASURED, /* what each layer and head loses with less and gains with more, measured */
    HEED_TUNE_RAZOR,    /* heads of high echo or induction keep everything (row 004.197) */
    HEED_TUNE_DUO,      /* heads that lose most with sinks and a window keep everything (row 001.229) */
} heed_tune_method;

typedef struct heed_tuning {
    const heed_model *model;
    heed_session_options session;
    heed_tune_method method;
    int64_t length; /* tokens of the texts that are tried */
    uint64_t seed;
    double budget;  /* share of the bytes of the model's own caches */
    int64_t trials; /* after so many a search by trials goes with what it has found; 0: it ends by itself */
    bool apart;     /* policies act before they know the question */
    const char *policy[HEED_TUNE_POLICIES]; /* chains without budget and type, "snapkv > by_head" */
    int policies;
    const char *type[HEED_TUNE_TYPES]; /* of storage, "keys(q8) > values(q4)" */
    int types;
    const char
        *file; /* of trials, from which a search goes on; results of the check in FILE.check; NULL: none
                */
    void (*progress)(void *context, const char *what, double done, double all); /* in tokens */
    void *context;
} heed_tuning;

/* A spec and what it lost where it was looked for. */
typedef struct heed_tuned {
    char *spec;
    const char *policy, *type;
    heed_trial trial;
} heed_tuned;

typedef struct heed_tune_result {
    int64_t layers, heads, kv_heads;
    double bytes;           /* of the model's own caches at the end of a text */
    heed_head_scores *head; /* [layers, heads] */
    bool *retrieval;        /* [layers, heads] by those scores */
    double *alone;          /* [layers, kv_heads] loss with sinks and a window there only; NaN: not tried */
    heed_tuned mix;
    heed_tuned single[HEED_TUNE_SINGLES]; /* one policy and type for everything, within the budget */
    int singles;
    int64_t trials;
    heed_results
        check; /* on other texts: the model's own, the mix, then the best singles, of different policies */
    uint64_t check_seed; /* of those texts */
    const char *checked[HEED_TUNE_CHECKS];
    int checks;
} heed_tune_result;

heed_status heed_tune(const heed_tuning *tuning, heed_tune_result *result);
void heed_tune_free(heed_tune_result *result);

#endif
