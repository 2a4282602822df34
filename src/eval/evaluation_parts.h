/* What the parts of an evaluation share. */
#ifndef HEED_EVAL_EVALUATION_PARTS_H
#define HEED_EVAL_EVALUATION_PARTS_H

#include "eval/evaluation.h"

typedef struct heed_eval_run {
    const heed_evaluation *wanted;
    heed_results *results;
    heed_material material;
    heed_model_info info;
    float *logits;    /* [vocabulary] */
    double done, all; /* tokens */
    const char *what;
} heed_eval_run;

/* The i-th spec; -1: the model's own. */
const char *heed_eval_spec(const heed_eval_run *run, int i);
/* Tells the user; `spec` NULL: of several. */
void heed_eval_advance(heed_eval_run *run, const char *spec, double tokens);
heed_status heed_eval_session(const heed_eval_run *run, const char *spec, heed_session **session);
heed_status heed_eval_save(const heed_eval_run *run);

/* Reads the text with all specs that have not read it. */
heed_status heed_eval_text(heed_eval_run *run);

#endif
