/* What a layer holds of one sequence, made at random, for tests of policies. */
#ifndef HEED_TEST_LAYER_H
#define HEED_TEST_LAYER_H

#include "cache/keep.h"

enum { LAYER_HEADS = 4 };

typedef struct layer_shape {
    int kv_heads, group;
    int64_t count[LAYER_HEADS]; /* keys of each kv head */
    int64_t dim, value_dim, queries;
    int64_t gap;     /* tokens from key to key, at most; 1: none was dropped */
    int64_t visible; /* 0: all */
    int64_t layer, layers;
    bool ties;   /* numbers are multiples of 1/2, and some keys the same as others */
    bool merged; /* some keys stand for several */
} layer_shape;

typedef struct layer {
    layer_shape shape;
    heed_chain chain[LAYER_HEADS];
    heed_held held[LAYER_HEADS];
    int32_t *pos[LAYER_HEADS], *token[LAYER_HEADS], *query_pos;
    uint8_t *kind[LAYER_HEADS], *keep[LAYER_HEADS];
    float *key[LAYER_HEADS], *bare[LAYER_HEADS], *value[LAYER_HEADS], *mass[LAYER_HEADS], *state[LAYER_HEADS];
    float *query[LAYER_HEADS], *compared[LAYER_HEADS], *weight[LAYER_HEADS];
    bool changed[LAYER_HEADS];
} layer;

layer *layer_new(const layer_shape *shape, uint64_t seed);
void layer_free(layer *l);

/* Gives every kv head the chain of the clause `cache=text`; with `own` forms or NULL. States begin at 0. */
heed_status layer_chain(layer *l, const char *text, const heed_form *const *own);
/* Sums and strongest keys that `queries` new queries give the keys of head g, at random; layer_unsee frees.
 */
heed_seen layer_see(const layer *l, int g, int64_t queries, uint64_t seed);
void layer_unsee(heed_seen *seen);
/* Hands them on to the chains of all heads. */
void layer_observe(layer *l, int64_t queries, uint64_t seed);
/* Applies the chains: keep, changed, and key, value, mass where keys were merged. */
void layer_apply(layer *l);
/* For a chain that must be possible. */
void layer_run(layer *l, const char *text);

/* What the judge of the chain (form 0) says of head g. The caller frees. */
float *layer_scores(layer *l, int g);

int64_t layer_kept(const layer *l, int g);

/* Queries as if they stood at `pos`: pairs (d, d + dim/2) turned by pos / 8^(2d/dim), times 1/sqrt(dim). */
void layer_place(void *context, int head, const float *in, const int32_t *pos, int64_t count, float *out);

/* Keep flags must be those of the `budget` highest scores, in double: all kept are at least as high as all
 * dropped, but for `slack`, and of equal ones the later are kept. Ends stay. */
void layer_check_best(const layer *l, int g, const double *score, int64_t budget, int64_t first,
                      int64_t recent, double slack);

#endif
