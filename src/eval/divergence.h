/* How two models' ideas of the next token differ, over many positions. */
#ifndef HEED_EVAL_DIVERGENCE_H
#define HEED_EVAL_DIVERGENCE_H

#include <heed/base.h>

/* One position: the distribution p of a reference against q. */
typedef struct heed_difference {
    double kl;      /* sum p (log p - log q), nats; 0 at least */
    double nll[2];  /* -log p and -log q of the token that follows; NaN where none does */
    int32_t top[2]; /* the most probable token of each */
    double margin;  /* log p of the reference's first token less that of its second */
} heed_difference;

/* `next`: the token that follows, or -1. Sums are kept in double precision. */
heed_difference heed_differ(const float *reference, const float *other, int64_t vocabulary, int32_t next);

/* The same for rows of logits [rows, vocabulary] and their next tokens, spread over threads. */
void heed_differ_rows(const float *reference, const float *other, int64_t rows, int64_t vocabulary,
                      const int32_t *next, int threads, heed_difference *each);

/* -log of the softmax at `next`. */
double heed_surprise(const float *logits, int64_t vocabulary, int32_t next);

/* What many positions come to. Memory grows by 8 bytes a position. */
typedef struct heed_divergence {
    int64_t positions, scored; /* scored: those that something follows */
    double kl_sum, kl_most, nll[2], nll_squares[2];
    int64_t worst, same_top; /* worst: number of the position with kl_most */
    double *kl;
    int64_t capacity;
} heed_divergence;

heed_status heed_divergence_add(heed_divergence *all, int64_t position, const heed_difference *one);
void heed_divergence_free(heed_divergence *all);

double heed_divergence_mean(const heed_divergence *all);
/* The KL below which the share `q` of all positions lies; 0 where there are none. */
double heed_divergence_quantile(heed_divergence *all, double q);
/* exp of the mean of -log p (which = 0) or -log q (1); NaN where nothing was scored. */
double heed_divergence_perplexity(const heed_divergence *all, int which);
/* Standard error of that perplexity. */
double heed_divergence_error(const heed_divergence *all, int which);

/* Orders doubles by size, for qsort. */
int heed_by_size(const void *a, const void *b);

#endif
