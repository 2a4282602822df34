/* The shape of a transformer: what an architecture's file fills in from the facts, and what layers are built
 * from. */
#ifndef HEED_MODEL_CONFIG_H
#define HEED_MODEL_CONFIG_H

#include "model/facts.h"
#include "nn/rows.h"

enum { HEED_MOST_LAYERS = 1024, HEED_OWN_ATTENTION = 512 };

typedef enum heed_rope_scaling {
    HEED_ROPE_PLAIN,
    HEED_ROPE_LINEAR,
    HEED_ROPE_YARN,
    HEED_ROPE_LLAMA3
} heed_rope_scaling;

typedef struct heed_rope {
    double base;
    int64_t dim;   /* entries that are rotated; 0: none, positions are learnt */
    bool adjacent; /* pairs are 2t, 2t + 1 instead of t, t + dim/2 */
    heed_rope_scaling scaling;
    double factor, original, beta_fast, beta_slow, low, high;
} heed_rope;

typedef struct heed_config {
    const char *architecture; /* heed's name for it */
    int64_t layers, width, heads, kv_heads, head_dim, feed_forward, vocabulary;
    int64_t context;   /* tokens the model was made for */
    int64_t positions; /* learnt positions; 0: none */

    heed_norm_kind norm;
    double eps;
    float norm_shift; /* added to the weights of norms as they are stored */
    heed_activation activation;
    bool gated; /* f(gate) times up */

    double embedding_scale; /* 1 */
    double score_scale;     /* on the product of query and key; 0: 1 / sqrt(head_dim) */
    double score_cap;       /* 0: none */
    double logit_cap;       /* 0: none */
    heed_rope rope;         /* of layers that see everything */
    heed_rope window_rope;  /* of those with a window */
    int64_t window;         /* keys that a windowed layer sees, itself among them */
    uint8_t windowed[HEED_MOST_LAYERS];

    char attention[HEED_OWN_ATTENTION]; /* of all layers, where config.json says it as a spec; "": by the
                                           above */

    bool causal, generates;
    bool tied;         /* the output matrix is the embedding, says the file */
    bool tied_given;   /* it says so itself */
    bool transposed;   /* matrices of layers lie [in, out] */
    bool needs_biases; /* config says that q, k and v have biases */
} heed_config;

/* What all decoders are asked for: sizes, context, eps, rope. */
heed_status heed_config_sizes(heed_config *config, heed_facts *facts);
heed_status heed_config_rope(heed_config *config, heed_facts *facts);
/* "silu", "gelu", "gelu_new", "gelu_pytorch_tanh"; another one is refused by name. */
heed_status heed_config_activation(heed_config *config, heed_facts *facts, const char *json);
/* config.json's layer_types, if there are any, say which layers have a window. */
heed_status heed_config_layer_types(heed_config *config, heed_facts *facts, bool *given);
/* A GGUF file's list of which layers have a window. */
void heed_config_window_list(heed_config *config, heed_facts *facts, bool *given);
/* The window of Qwen 2 and 3: of layers from one on, or of those that a list names. */
heed_status heed_config_late_window(heed_config *config, heed_facts *facts);
/* config.json's heed_attention: a spec with prefixes for layers, as heed train writes it. */
heed_status heed_config_own_attention(heed_config *config, heed_facts *facts);
heed_status heed_config_tied(heed_config *config, heed_facts *facts, bool otherwise);

/* The attention of a layer as a spec: canonical text, as snprintf. */
heed_status heed_config_attention(const heed_config *config, int64_t layer, char *text, size_t size);

#endif
