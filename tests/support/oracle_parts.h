/* The oracle from the inside: its stages. */
#ifndef HEED_TEST_ORACLE_PARTS_H
#define HEED_TEST_ORACLE_PARTS_H

#include "support/oracle.h"
#include "support/oracle_spec.h"
#include "support/tape.h"

/* One query or key as the stages see it. */
typedef struct oracle_side {
    int64_t pos;
    tape_vector given; /* [D] */
    tape_vector seen;  /* [D] after rope or xpos */
    tape_vector made;  /* what the score form makes of `seen`: see oracle_score.c */
} oracle_side;

/* One query of one batch entry, with all its heads. Arrays [H][M] are indexed h M + j. */
typedef struct oracle_row {
    oracle *o;
    tape *t;
    int64_t b, i, pos;
    int64_t key_count;      /* keys that exist */
    oracle_side *query;     /* [H] */
    const oracle_side *key; /* [H][M] */
    bool *open;             /* [H][M] under `where`, then also after `select` */
    bool *any;              /* [M] open under `where` for some head (heads may mix) */
    var *score;             /* [H][M] valid where `any` */
    var *weight;            /* [H][M] valid where `open` */
    double *twist;          /* [M][D] xpos: factors of the entries of the product with each key */
    double *gate_term;      /* the largest term of each entry of the gate's gradient, over all rows */
} oracle_row;

/* Entries [first, ...) of a parameter, whose rows are `stride` entries apart. */
tape_vector oracle_param_at(oracle *o, const char *name, int64_t first, int64_t stride);

void oracle_declare_params(oracle *o);
void oracle_add_param(oracle *o, const char *name, int rank, const int64_t *shape, double initial);

/* position */
void oracle_rotate(oracle *o, tape *t, oracle_side *side);
void oracle_twist(oracle_row *row);
void oracle_add_positions(oracle_row *row, int64_t h);

/* score */
void oracle_make_query(oracle *o, tape *t, oracle_side *query, int64_t h);
void oracle_make_key(oracle *o, tape *t, oracle_side *key, int64_t h);
var oracle_score(oracle_row *row, int64_t h, int64_t j);
/* What a product of query and key is multiplied by before the scale, by parts: cosine's norms, else 1. */
double oracle_query_factor(const oracle_row *row, int64_t h);
double oracle_key_factor(const oracle_row *row, int64_t h, int64_t j);
double oracle_score_scale(const oracle *o); /* that of dot or bilinear, else 1/sqrt(D) */

/* where; `key_end` is 1 + the largest position of the keys that exist */
bool oracle_sees(const oracle_row *row, const oracle_node *where, int64_t h, int64_t j, int64_t key_end);

/* Forms whose tensors are found on a text: oracle_calibrated.c. False when the form is none of them. */
bool oracle_select_calibrated(oracle_row *row, int64_t h, const oracle_form *f, double *margin);
bool oracle_dam_sees(const oracle_row *row, const oracle_form *f, int64_t h, int64_t key);
void oracle_declare_calibrated(oracle *o);
/* The probability of where=pr_blocks, and of position=pr_blocks. */
double oracle_block_share(const oracle_form *f, int64_t pos, int64_t key_pos);

/* select: closes more, returns the margin */
double oracle_select(oracle_row *row, int64_t h);
/* normalise: sets weights where open, returns the lse */
double oracle_normalise(oracle_row *row, int64_t h, double *steepness);

static inline int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

static inline int64_t floor_mod(int64_t a, int64_t b)
{
    return a - b * floor_div(a, b);
}

#endif
