/* Attention problems for the tests: random data from a short description, run through heed in a chosen way,
 * compared with the oracle. A comparison that fails prints the problem and the numbers that differ, and fails
 * the test. */
#ifndef HEED_TEST_ATTEND_H
#define HEED_TEST_ATTEND_H

#include <heed/attend.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/isas.h"
#include "support/oracle.h"

/* How tensors lie in memory: dense; heads inside positions ([batch, N, H, D]); or the last dimension not
 * contiguous. */
typedef enum attend_layout { LAYOUT_DENSE, LAYOUT_HEADS_INSIDE, LAYOUT_TRANSPOSED } attend_layout;

/* How heed is run; all zero: as it likes, output and lse only. */
typedef struct attend_way {
    heed_isa isa;
    heed_kernel kernel;
    int threads;
    int64_t layer;
    int64_t page; /* 0: k and v are not paged */
    attend_layout layout;
    bool backward;
    bool row_state;   /* backward gets the output and the row state of the forward run */
    bool weights;     /* through the callback */
    bool statistics;  /* entropy, key sums */
    int top;          /* strongest links a row */
    bool own_scratch; /* scratch from the caller */
    bool summaries;   /* summaries come with the keys, by pages where there are any; for specs that take keys
                         as they are */
    bool pairs;       /* count what is read */
    bool whole_numbers; /* quantised keys and values may be multiplied so */
} attend_way;

typedef enum attend_positions { POSITIONS_DEFAULT, POSITIONS_SHARED, POSITIONS_BATCHED } attend_positions;
typedef enum attend_ragged { RAGGED_NOT, RAGGED_SEQ, RAGGED_Q_SEQ } attend_ragged;
typedef enum attend_mask { MASK_NONE, MASK_NM, MASK_BNM, MASK_BHNM, MASK_1HNM, MASK_B1NM } attend_mask;

/* A problem. Zero sizes: 1 batch entry, 1 head, as many kv heads as heads, as many keys as queries, dim 8,
 * value_dim dim. */
typedef struct attend_case {
    const char *spec;
    int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
    heed_type q_type, k_type, v_type;
    attend_positions positions;
    attend_ragged ragged;
    int segments; /* 1: shared by the batch, 2: per entry */
    attend_mask mask;
    unsigned gate_ones; /* bit d: dimension d of the gate is 1 */
    double spread;      /* standard deviation of q and k; 0: 1 */
    bool initial;       /* parameters keep their initial values */
    double tolerance;   /* relative to the size of what was added up; 0: 1e-5, or 1e-4 in whole numbers (see
                           attend_match.c) */
    bool exact_scores;  /* the data are such that f32 makes no error in them */
    double away;        /* least distance of the data from jumps (see attend_prepare); 0: 4e-6 */
    uint64_t seed;
    attend_way way;
} attend_case;

typedef struct attend_data {
    attend_case c;           /* zero sizes filled in */
    float *q, *k, *v, *dout; /* dense values, as the types hold them */
    int32_t *q_pos, *k_pos, *seq, *q_seq, *q_segment, *k_segment;
    uint8_t *mask;
    oracle *o;                                        /* its parameters are those of both sides */
    float *k_given, *v_given;                         /* k and v before they were rounded */
    double *q_exact, *k_exact, *v_exact, *dout_exact; /* what the oracle reads */
} attend_data;

typedef struct attend_result {
    heed_status status;
    char message[512];
    heed_plan_info info;
    float *out, *lse, *weights, *entropy, *key_sums, *top_weight, *dq, *dk,
        *dv; /* dense; NULL where not asked for */
    int32_t *top_key;
    double pairs[2];
    float *dparam[16]; /* in the order of the oracle's parameters */
} attend_result;

attend_data *attend_make(const attend_case *c);
void attend_free(attend_data *d);
/* To be called after a test has changed q, k, v or dout: rounds them to their types again. */
void attend_changed(attend_data *d);
/* Runs the oracle. */
void attend_expect(attend_data *d);

/* Runs heed; the status is in the result. */
attend_result *attend_try(const attend_data *d, const attend_way *way);
/* Runs heed; anything but HEED_OK fails the test. */
attend_result *attend_run(const attend_data *d, const attend_way *way);
void attend_result_free(attend_result *r);

/* Everything in the result against the oracle. */
void attend_match(const attend_data *d, const attend_result *r);
/* Two results must be equal bit by bit. */
void attend_same_bits(const attend_data *d, const attend_result *a, const attend_result *b);
/* Two results of different routes must agree to the case's tolerance, taking sizes from the oracle. */
void attend_agree(const attend_data *d, const attend_result *a, const attend_result *b);

/* Makes the data, with another seed where they lie too near a jump (a near tie of a selector, a kink of a
 * gradient), where rounding alone decides; runs the oracle. */
attend_data *attend_prepare(const attend_case *c);
/* The same, and runs heed and compares. */
void attend_check(const attend_case *c);
/* Runs both sides of data that a test has changed, and compares. */
void attend_check_changed(attend_data *d);
/* Checks a case at many sizes, which are and are not multiples of a tile, with N = M, N < M and N > M,
 * grouped heads and E != D; sizes of more than `most` query-key pairs times dim (0: no limit) are left out.
 * Keeps what the case fixes. */
void attend_sweep(const attend_case *c, int64_t most);
/* Queries [first, first + queries) of the problem against its first `keys` keys, with the same parameters:
 * what a cache holds when these queries arrive. Without positions, lengths, segments, masks or gates. */
attend_data *attend_slice(const attend_data *d, int64_t first, int64_t queries, int64_t keys);

/* For messages: spec, sizes, types and way of a case. */
const char *attend_describe(const attend_case *c, const attend_way *way);

#endif
