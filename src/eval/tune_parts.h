/* What the methods of finding a mix share. */
#ifndef HEED_EVAL_TUNE_PARTS_H
#define HEED_EVAL_TUNE_PARTS_H

#include "eval/tune.h"

enum { HEED_TUNE_TEXT = 65536, HEED_TUNE_POLICY = 400 };

typedef struct heed_tune_run {
    const heed_tuning *wanted;
    heed_tune_result *result;
    heed_model_info info;
    heed_probe probe;
    heed_trial_log log;
    char *gather;        /* chain of all policies, keeping everything */
    char *text;          /* [HEED_TUNE_TEXT] of a spec */
    int64_t units;       /* layers * kv_heads */
    double limit;        /* bytes */
    const char *what;    /* is being done */
    double done, all;    /* tokens; */
    double checked_from; /* those before the check */
} heed_tune_run;

void heed_tune_advance(heed_tune_run *run, double tokens);

/* "snapkv(window=16) > by_head" with its judge's share: "snapkv(share=0.25, window=16) > by_head". */
heed_status heed_tune_with_share(const char *policy, double share, char *text, size_t size);

/* The spec of a choice [units] among `policy`, in run->text. */
heed_status heed_tune_write(heed_tune_run *run, const char *type, const char *const *policy,
                            const int32_t *choice);
/* Writes it and tries it. */
heed_status heed_tune_try(heed_tune_run *run, const char *type, const char *const *policy,
                          const int32_t *choice, heed_trial *trial);
/* What is in run->text becomes the mix. */
heed_status heed_tune_keep(heed_tune_run *run, const char *type, const heed_trial *trial);

/* Bytes of everything with this storage and no policies. */
heed_status heed_tune_whole(heed_tune_run *run, const char *type, double *bytes);

/* The methods. */
heed_status heed_tune_by_trials(heed_tune_run *run);
double heed_tune_trials_expected(const heed_tune_run *run);
heed_status heed_tune_by_scores(heed_tune_run *run);
heed_status heed_tune_by_streaming(heed_tune_run *run);

#endif
