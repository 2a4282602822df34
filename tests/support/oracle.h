/* Attention by its definition, in double precision, with every weight written out: what heed is compared
 * with.
 *
 * Written from the meaning of the forms alone; it shares no code with the library and reads spec texts with a
 * parser of its own (which expects a correct text). Gradients come from a tape (tape.h), so that they follow
 * from the forward formulas without being written down. */
#ifndef HEED_TEST_ORACLE_H
#define HEED_TEST_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct oracle_problem {
    int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
    const double *q, *k, *v;      /* dense [batch, H, N, D], [batch, G, M, D], [batch, G, M, E] */
    const double *dout;           /* [batch, H, N, E]; NULL: no gradients */
    const int32_t *q_pos, *k_pos; /* NULL: the default positions */
    const int32_t *q_segment, *k_segment;
    bool q_pos_batched, k_pos_batched, q_segment_batched, k_segment_batched; /* [batch, N], else [N] */
    const int32_t *seq, *q_seq;                                              /* [batch] or NULL */
    const uint8_t *mask;            /* [mask_batch, mask_heads, N, M] */
    int64_t mask_batch, mask_heads; /* 1, or batch and H */
} oracle_problem;

typedef struct oracle_param {
    char name[64];
    int rank;
    int64_t shape[4], count;
    double *value; /* initial values until the test writes others */
    double *gradient, *magnitude;
    bool required;
} oracle_param;

/* The sizes of what was added up to a result say how large rounding errors may be: `magnitude` of out is
 * sum_j w |v|, that of a gradient the sum over all ways by which it comes about of their absolute values. */
typedef struct oracle {
    oracle_problem problem;
    struct oracle_spec *spec;
    oracle_param *param;
    int params;

    /* filled by oracle_run */
    double *out, *out_magnitude;         /* [batch, H, N, E] */
    double *lse;                         /* [batch, H, N] */
    double *weights, *weights_magnitude; /* [batch, H, N, M] */
    uint8_t *open;                       /* [batch, H, N, M] 1 where the pair is open after `select` */
    double *margin; /* [batch, H, N] how far a selector was from choosing otherwise; INFINITY without one */
    double *reach;  /* [batch, H, N] largest sum of absolute terms of a score in the row */
    double *steepness; /* [batch, H, N] by how much more than softmax the normaliser passes such errors on */
    double *dq, *dk, *dv, *dq_magnitude, *dk_magnitude, *dv_magnitude;
    double kink; /* how far the data were from a place where a gradient jumps */
} oracle;

/* Reads the spec and gives the parameters their initial values. The problem's arrays must outlive the oracle.
 * Fails the test when the text cannot be read. */
oracle *oracle_new(const char *spec, const oracle_problem *problem);
void oracle_free(oracle *o);

/* The parameter of that name, or NULL. */
oracle_param *oracle_find_param(oracle *o, const char *name);

/* Output, lse, weights; gradients too when the problem has dout. */
void oracle_run(oracle *o);

#endif
