/* Recurrences as their formulas are written, in double: what scans are compared with. */
#ifndef HEED_SUPPORT_RECURRENCES_H
#define HEED_SUPPORT_RECURRENCES_H

#include <stdbool.h>

enum { BATCH = 2, MOST_DIM = 24, MOST_VALUES = 60, MOST_TOKENS = 150, SLOTS = 3 };

/* The tensors of one head at one token, in double. */
typedef struct scan_token {
    const double *q, *k, *v, *gate, *erase, *rate;
    double decay, beta;
} scan_token;

typedef struct scan_sizes {
    int dim, value_dim, head, heads;
} scan_sizes;

/* S [D][E] of the definition; what a token does to it, as the formulas are written. */
typedef double scan_matrix[MOST_DIM][MOST_VALUES];

typedef struct scan_definition {
    const char *spec;
    bool sums; /* the output is a weighted mean over all tokens so far */
    double (*weight)(const scan_sizes *s, const double *q,
                     const double *k); /* of a pair, where `sums`; NULL: exp(beta) */
    void (*update)(const scan_sizes *s, const scan_token *at, scan_matrix S);
    void (*query)(const scan_sizes *s, const double *q, double *to); /* NULL: q / sqrt(D) */
    /* of whole texts, where it is no update of S: rows of one head */
    void (*text)(const scan_sizes *s, int tokens, const scan_token *at, double *out);
} scan_definition;

extern const scan_definition scan_definitions[];
extern const int scan_definition_count;

double scan_dot(const double *a, const double *b, int n);
/* x without its mean, over its standard deviation. */
void scan_standard(const double *x, int n, double *to);
double scan_linear_weight(const scan_sizes *s, const double *q, const double *k);
double scan_taylor_weight(const scan_sizes *s, const double *q, const double *k, int p);
/* The definition that is no update of S alone. */
void scan_gsa(const scan_sizes *s, const scan_token *at, const double *q, scan_matrix S, double *out);

#endif
