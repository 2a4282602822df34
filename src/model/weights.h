/* A model in memory: its shape, and weights packed for the products. */
#ifndef HEED_MODEL_WEIGHTS_H
#define HEED_MODEL_WEIGHTS_H

#include "model/architecture.h"
#include "model/carried.h"
#include "nn/linear.h"
#include <heed/model.h>

/* A norm that a model may lack: weight NULL. Owned. */
typedef struct heed_norm_weights {
    float *weight, *bias;
} heed_norm_weights;

typedef struct heed_layer {
    heed_norm_weights attention_norm, query_norm, key_norm, attention_post_norm, attention_sum_norm;
    heed_norm_weights feed_norm, feed_post_norm, feed_sum_norm;
    heed_linear query_key_value; /* rows of all query heads, then keys, then values */
    heed_linear attention_output;
    heed_linear up; /* gate first where there is one */
    heed_linear down;
} heed_layer;

enum { HEED_MOST_NOTES = 16 };

struct heed_model {
    heed_config config;
    heed_model_file *file;
    heed_tokenizer *tokenizer; /* NULL when the files hold none */
    heed_isa isa;
    heed_packing packing;
    const heed_rows_table *rows;

    /* Rows of the embedding come from the output matrix where both are the same, else from the file. */
    const heed_model_tensor *embedding;
    heed_linear output; /* rows 0 where there is none */
    bool shared;
    float *positions;   /* [positions, width] or NULL */
    float *token_types; /* [width] of type 0, or NULL */
    heed_norm_weights embedding_norm, last_norm;
    heed_layer *layer;                 /* [layers] */
    uint8_t carries[HEED_MOST_LAYERS]; /* heed_carries */
    heed_parameters *carried;          /* of layers that carry something; NULL: none does */

    const char *pooling;
    int64_t embed_tokens;
    char name[128], kernels[128];
    char *note[HEED_MOST_NOTES];
    int notes;
    double parameters, pack_seconds;
    size_t packed_bytes;
};

/* Reads and packs all tensors. Refuses, by name, one that nobody reads. */
heed_status heed_weights_load(heed_model *model, const heed_architecture *architecture);
void heed_weights_free(heed_model *model);

/* The embedding of a token as the file defines it: [width]. */
void heed_weights_embed(const heed_model *model, int32_t token, float *to);

/* How the files want hidden states pooled, and how many tokens read. */
heed_status heed_pooling_read(heed_model *model);

void heed_model_add_note(heed_model *model, const char *format, ...) HEED_PRINTF(2, 3);

#endif
