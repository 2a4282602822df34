/* EL-attention: multi-head attention that keeps the layer's input H [tokens, width] instead of keys and
 * values, without loss. Yan, Chen, Qi, Gong, Zhang et al. 2021.
 *
 *     q_i k_ij = (x W_q,i + b_q,i)(h_j W_k,i)^T = ((x W_q,i + b_q,i) W_k,i^T) h_j^T
 *     out = sum_i ((sum_j w_ij h_j) W_v,i + b_v,i) W_o,i + b_o
 *
 * Each head's query is taken back to `width` numbers, reads H itself, and what it read goes through the
 * values' projection afterwards. The keys' bias adds a constant to a row of scores and is left out; the
 * values' bias passes, for weights add up to 1. H is shared by all heads, and in cross-attention by all
 * layers and beams: width numbers a token, where keys and values take 2 width, or 2 width a layer. Keys that
 * are turned by their positions (rope) depend on both, so there is no such H: models with it are refused. */
#ifndef HEED_MODEL_EL_H
#define HEED_MODEL_EL_H

#include <heed/attend.h>

/* A layer's weights, an output a row, as y = W x + b; [heads head_dim, width], and output [width, heads
 * head_dim]. Biases may be NULL. */
typedef struct heed_el_weights {
    int64_t width, heads, head_dim;
    const float *query, *key, *value, *output;
    const float *query_bias, *value_bias, *output_bias;
} heed_el_weights;

typedef struct heed_el heed_el;

typedef struct heed_el_options {
    int64_t width, heads, head_dim;
    int64_t queries, keys; /* at most, at a time */
    const char *attention; /* where, normalise, ... as "where=causal"; no score and no position that turns */
    heed_type type;        /* of H: f32, f16, bf16, q8 or q4 */
    int threads;
} heed_el_options;

/* Plans and work memory. HEED_UNSUPPORTED where a form turns keys by their positions. */
heed_status heed_el_create(heed_el **el, const heed_el_options *options);
void heed_el_free(heed_el *el);

/* out [queries, width] of x [queries, width], the last of which stands at the last of the `keys` rows of
 * `held` (with causal attention), [keys, width] of the type. */
heed_status heed_el_attend(heed_el *el, const heed_el_weights *weights, const float *x, int64_t queries,
                           const void *held, int64_t keys, float *out);

/* Bytes of H a token. */
size_t heed_el_token_bytes(const heed_el *el);

#endif
