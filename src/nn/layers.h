/* Layers of transformers, a file each, made of operations of a graph. Parameters are called as in Hugging
 * Face's files of llama models, so that a trained model can be read as one. */
#ifndef HEED_NN_LAYERS_H
#define HEED_NN_LAYERS_H

#include <heed/nn.h>

typedef enum heed_layer_norm_kind {
    HEED_LAYER_RMS,
    HEED_LAYER_CENTRED,
    HEED_LAYER_NO_NORM
} heed_layer_norm_kind;
typedef enum heed_positions_kind { HEED_POSITIONS_NONE, HEED_POSITIONS_LEARNED } heed_positions_kind;

/* Pictures instead of tokens: squares of `patch` by `patch` pixels are what tokens are of texts. */
typedef struct heed_image {
    int64_t height, width, channels, patch; /* patch 0: no picture */
} heed_image;

/* Sizes and kinds of a stack of layers. */
typedef struct heed_transformer {
    int64_t batch, context;
    int64_t vocabulary, width, layers, heads, kv_heads, head_dim, hidden;
    const char *spec; /* of attention; `layers` prefixes count these layers */
    heed_layer_norm_kind norm;
    float norm_eps;
    heed_function function; /* of the feed-forward layer */
    bool gated;             /* it has a gate: swiglu, geglu, ... */
    bool bias;              /* of linear maps */
    bool tied;              /* the embedding is the last map too */
    bool qk_norm;           /* a norm of each head's query and key */
    bool after;             /* norms behind the layers instead of before */
    heed_positions_kind positions;
    float dropout;
    float deviation;                        /* of initial weights; 0: 0.02 */
    bool recompute;                         /* keep only the inputs of layers for the backward run */
    int64_t classes;                        /* above 0: a class of the whole text instead of tokens */
    bool hidden_only;                       /* neither tokens nor classes */
    int64_t encoder_layers, source_context; /* above 0: an encoder of another text, which layers attend to */
    const char *encoder_spec, *cross_spec;
    heed_image image;
} heed_transformer;

/* What the graph of a model takes and gives. */
typedef struct heed_transformer_nodes {
    heed_variable tokens;   /* i32 [batch, context] */
    heed_variable segments; /* i32 [batch, context] or HEED_NO_INPUT */
    heed_variable places;   /* i32 [batch, context] positions or HEED_NO_INPUT: those of a text from 0 on */
    heed_variable logits;   /* [batch, context, vocabulary], or [batch, classes] */
    heed_variable source, source_segments; /* i32 [batch, source_context], with an encoder */
    heed_variable pixels;                  /* [batch, height, width, channels], of pictures */
    heed_variable hidden;                  /* [batch, context, width] behind the last norm */
} heed_transformer_nodes;

/* "NAME" below "PREFIX": "model.layers.0" and "mlp" make "model.layers.0.mlp". */
typedef struct heed_layer_name {
    char text[96];
} heed_layer_name;
heed_layer_name heed_layer_under(const char *prefix, const char *name);

/* NAME.weight [out, in], NAME.bias [out] of zeros. */
heed_variable heed_layer_linear(heed_graph *graph, const char *name, heed_variable x, int64_t out, bool bias,
                                float deviation);
heed_variable heed_layer_norm_rows(heed_graph *graph, const char *name, const heed_transformer *model,
                                   heed_variable x);
heed_variable heed_layer_attention(heed_graph *graph, const char *name, const heed_transformer *model,
                                   int64_t layer, const heed_transformer_nodes *nodes, heed_variable x);
heed_variable heed_layer_feed_forward(heed_graph *graph, const char *name, const heed_transformer *model,
                                      heed_variable x);
heed_variable heed_layer_block(heed_graph *graph, const heed_transformer *model, int64_t layer,
                               const heed_transformer_nodes *nodes, heed_variable x);
/* The same under a name, with attention to `memory` between its parts unless that is HEED_NO_INPUT. */
heed_variable heed_layer_block_named(heed_graph *graph, const char *name, const heed_transformer *model,
                                     int64_t layer, const heed_transformer_nodes *nodes, heed_variable x,
                                     heed_variable memory);
heed_variable heed_layer_cross(heed_graph *graph, const char *name, const heed_transformer *model,
                               int64_t layer, const heed_transformer_nodes *nodes, heed_variable x,
                               heed_variable memory);
/* What an encoder makes of nodes->source, which it makes: [batch, source_context, width]. */
heed_variable heed_layer_encoder(heed_graph *graph, const heed_transformer *decoder,
                                 heed_transformer_nodes *nodes, heed_variable table);
/* Patches of nodes->pixels, which it makes: [batch, context, width], row by row of the picture. */
heed_variable heed_layer_patches(heed_graph *graph, const heed_transformer *model,
                                 heed_transformer_nodes *nodes);

/* Tokens to logits. nodes->segments (which an encoder needs) and nodes->places are inputs of the graph or
 * HEED_NO_INPUT. Failures show
 * when the graph is finished. */
void heed_transformer_make(heed_graph *graph, const heed_transformer *model, heed_transformer_nodes *nodes);

#endif
