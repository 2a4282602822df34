/* Pictures made by a denoiser, step by step from noise, and what steps may take over from earlier ones. */
#ifndef HEED_TRAIN_SAMPLER_H
#define HEED_TRAIN_SAMPLER_H

#include "nn/denoiser.h"

enum { HEED_SAMPLER_STEPS = 1000, HEED_CODEBOOK = 8 };

typedef enum heed_reuse_kind {
    HEED_REUSE_NOTHING,
    HEED_REUSE_TGATE,    /* row 000.022 */
    HEED_REUSE_ADACACHE, /* row 001.054 */
    HEED_REUSE_FIXED,    /* every so many steps all is computed, for comparison */
} heed_reuse_kind;

typedef struct heed_reuse {
    heed_reuse_kind kind;
    int64_t m; /* tgate: the last step with words; 0: the first whose cross-attention changes less than */
    double threshold; /* this, relative to its size */
    int64_t every;    /* fixed */
    double
        below[HEED_CODEBOOK]; /* adacache: below[i] of change leads to steps[i] until the next computation; */
    int64_t after[HEED_CODEBOOK]; /* rising */
    int codes;
    bool motion;         /* MoReg */
    double scale, power; /* of it */
} heed_reuse;

/* "none", "tgate(m=10, threshold=0.1)", "adacache(codes=0.03:12 0.05:10 1:3, motion=yes, scale=0.385,
 * power=8)", "fixed(every=3)". */
heed_status heed_reuse_read(heed_reuse *reuse, const char *text);

typedef struct heed_sampling_job {
    const heed_transformer *model; /* batch: how many pictures */
    heed_parameters *parameters;
    int threads;
    int64_t steps, frames; /* frames stand one above the other */
    double guidance;
    uint64_t seed;
    const int32_t *label; /* [batch] */
    heed_reuse reuse;
} heed_sampling_job;

typedef struct heed_sampled {
    float *pixels;       /* [batch, height, width, channels]; the caller frees */
    int64_t computed;    /* steps in which layers were computed */
    int64_t cross_calls; /* cross-attentions */
    double flops;        /* of all steps, a picture */
    double *change;      /* [steps] how much cross-attention changed, relative; NaN where it was not computed;
                            freed      with pixels */
    int64_t until;       /* tgate: the last step with words */
} heed_sampled;

heed_status heed_sample_pictures(const heed_sampling_job *job, heed_sampled *out);
void heed_sampled_free(heed_sampled *out);

/* Steps until the next computation, from how the residual p changed from `before` in k steps (count numbers):
 * row 001.054. `motion` is carried from one computation to the next (NaN at first) where frames are more
 * than 1. */
int64_t heed_adacache_next(const heed_reuse *reuse, const float *before, const float *p, int64_t batch,
                           int64_t count, int64_t frames, int64_t k, bool regularise, double *motion);

#endif
