/* heed perplexity, in its parts. */
#ifndef HEED_CLI_PERPLEXITY_H
#define HEED_CLI_PERPLEXITY_H

#include "cli/language.h"

typedef struct perplexity_options {
    cli_language use;
    int64_t stream, score;
} perplexity_options;

/* Negative log probabilities of tokens. */
typedef struct perplexity_sum {
    int64_t scored;
    double sum, squares;
} perplexity_sum;

typedef struct perplexity_run {
    cli_language use;
    heed_model *model;
    heed_model_info info;
    heed_session *session;
    heed_tokens tokens;
    float *logits;
    int64_t rows; /* room for logits */
    int64_t windows;
    perplexity_sum all;
} perplexity_run;

void perplexity_add(const perplexity_run *run, perplexity_sum *sum, const float *logits, int32_t next);
double perplexity_of(const perplexity_sum *sum);
/* As if surprises were independent. */
double perplexity_error(const perplexity_sum *sum);

/* One text, repeated, read as one without end. perplexity_stream.c */
heed_status perplexity_stream(perplexity_run *run, const perplexity_options *options);

#endif
