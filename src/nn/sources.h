/* Layers that read other texts, or other layers, than the one they stand in: functions over a graph, with
 * parameters of their own below a name. */
#ifndef HEED_NN_SOURCES_H
#define HEED_NN_SOURCES_H

#include "nn/layers.h"

enum { HEED_SOURCES = 8 };

typedef struct heed_sources {
    heed_graph *graph;
    const char *name;     /* of the parameters */
    float deviation;      /* of initial weights */
    heed_variable states; /* [B, n, ds] of whoever reads */
    int count;
    heed_variable source[HEED_SOURCES]; /* [B, m_k, dh_k] */
    int64_t dim;                        /* of the hidden layer that compares, and of what is read */
    bool share;                         /* sources have one map where they are read */
    bool sentinel;                      /* a slot of the reader's own beside them */
    heed_variable *weights; /* NULL, or receives the weights: [B, n, sum of m_k (+ 1)] or [B, n, count] */
} heed_sources;

/* v·tanh(W s_i + U h_j): [B, n, m]; a [B, n, dim] and b [B, m, dim] mapped already. */
heed_variable heed_source_energies(heed_graph *graph, heed_variable a, heed_variable b, heed_variable v);

/* Row 000.015. One softmax over all places of all sources: [B, n, dim]. */
heed_variable heed_source_flat(const heed_sources *how);
/* Row 000.015. A softmax for each source, then one over what they give: [B, n, dim]. */
heed_variable heed_source_hierarchical(const heed_sources *how);

/* Row 000.020. Attention flow in both directions between a context [B, T, d] and a query [B, J, d]: [B, T, 4
 * d]. closed_context [B, T] and closed_query [B, J] are 0, or -inf where there is only padding; or
 * HEED_NO_INPUT. */
heed_variable heed_source_flow(heed_graph *graph, const char *name, float deviation, heed_variable context,
                               heed_variable query, heed_variable closed_context, heed_variable closed_query);

/* Row 001.001. Attention of decoder states h [B, n, d] to regions v [B, k, d] with a sentinel made of the
 * decoder's input x, state before and memory cell m: [B, n, d]. `share`, unless NULL, receives beta [B, n,
 * 1]. */
heed_variable heed_source_sentinel(heed_graph *graph, const char *name, float deviation, heed_variable h,
                                   heed_variable before, heed_variable x, heed_variable m, heed_variable v,
                                   int64_t dim, heed_variable *share);

/* Row 001.106. Sentences of states [B, T, D] as rows of `heads` by one learnt context: [B, heads, D]. */
heed_variable heed_source_lama(heed_graph *graph, const char *name, float deviation, heed_variable states,
                               int64_t heads, int64_t rank);

/* Row 000.058. Weights over places 0..m-1 by mixtures of K bells that only move on: [B, n, m], n steps. */
typedef enum heed_bells { HEED_BELLS_V0, HEED_BELLS_V1, HEED_BELLS_V2 } heed_bells;
heed_variable heed_source_bells(heed_graph *graph, const char *name, float deviation, heed_variable states,
                                int64_t places, int64_t mixtures, int64_t dim, heed_bells kind);

/* Row 000.058. Dynamic convolution attention: weights over `places`, step by step from those of the step
 * before, which begin at place 0; states [B, n, ds]: [B, n, places]. */
typedef struct heed_dynamic {
    int64_t filters, width; /* static ones, and as many made of the state; odd width */
    int64_t prior;          /* taps of the beta-binomial prior, which only moves on */
    int64_t dim;            /* of both hidden layers */
    float alpha, beta;      /* of the prior */
} heed_dynamic;
heed_variable heed_source_dynamic(heed_graph *graph, const char *name, float deviation, heed_variable states,
                                  int64_t places, const heed_dynamic *how);

/* Row 001.025. A token's states of `count` layers [B, N, width], the last of them queried: what is added to
 * it, [B, N, width]. */
heed_variable heed_source_shortcuts(heed_graph *graph, const char *name, float deviation, int count,
                                    const heed_variable *layer, int64_t heads, float norm_eps);

/* Row 004.142. Scores by a [B, N, da] and time [N, dp] or HEED_NO_INPUT, values r [B, N, dr]: what the k best
 * earlier tokens of each are, times its own: [B, N, dr]. `place` receives which they are, [B, N, k]. */
heed_variable heed_source_dare(const heed_layer_call *call, heed_variable a, heed_variable r,
                               heed_variable time, int64_t k, heed_variable *place);

/* Row 000.072. Cells v [B, N, c] read tones a [B, T, c] where chosen [B, N] is 1; the others pass unchanged.
 */
heed_variable heed_source_confident(const heed_layer_call *call, heed_variable v, heed_variable a,
                                    heed_variable chosen);
/* Groups of channels of cells, frame after frame, times their cosine with a map of the frame's tone. */
heed_variable heed_source_groups(const heed_layer_call *call, heed_variable v, heed_variable a,
                                 int64_t groups);

#endif
