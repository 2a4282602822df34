/* Architectures: one file each, one line in the table. */
#ifndef HEED_MODEL_ARCHITECTURE_H
#define HEED_MODEL_ARCHITECTURE_H

#include "model/config.h"

/* What a tensor is for. Those from HEED_FIRST_OF_LAYER on come once a layer. */
typedef enum heed_role {
    HEED_EMBEDDING,
    HEED_POSITIONS,
    HEED_TOKEN_TYPES,
    HEED_EMBEDDING_NORM,
    HEED_LAST_NORM,
    HEED_OUTPUT,
    HEED_FIRST_OF_LAYER,
    HEED_ATTENTION_NORM = HEED_FIRST_OF_LAYER, /* before attention */
    HEED_QUERY,
    HEED_KEY,
    HEED_VALUE,
    HEED_QUERY_KEY_VALUE, /* the three in one */
    HEED_QUERY_NORM,      /* of each head */
    HEED_KEY_NORM,
    HEED_ATTENTION_OUTPUT,
    HEED_ATTENTION_POST_NORM, /* of what attention gives, before it is added */
    HEED_ATTENTION_SUM_NORM,  /* of the sum */
    HEED_FEED_NORM,
    HEED_GATE,
    HEED_UP,
    HEED_GATE_UP, /* the two in one */
    HEED_DOWN,
    HEED_FEED_POST_NORM,
    HEED_FEED_SUM_NORM,
    HEED_ROLES
} heed_role;

enum heed_name_flags {
    HEED_BIAS = 1,     /* .bias must be there too */
    HEED_MAY_BIAS = 2, /* .bias is read where it is there */
    HEED_OPTIONAL = 4, /* the tensor may be absent */
    HEED_OUTSIDE = 8,  /* its name in safetensors takes no prefix */
};

/* Names without .weight and .bias; %d is the layer. Ends with both names NULL. */
typedef struct heed_tensor_name {
    heed_role role;
    const char *gguf, *json;
    unsigned flags;
} heed_tensor_name;

typedef struct heed_architecture {
    const char *name;
    const char *const *types; /* model_type in config.json, other than the name; ended by NULL; may be NULL */
    const char *const *prefixes; /* before names in safetensors; the first that fits holds; ended by NULL */
    const heed_tensor_name *tensors;
    const char *const *unused; /* tensors that the result does not depend on, * at either end for anything;
                                  ended by NULL */
    /* Fills the configuration, whose architecture, norm (RMS), causal, generates and scales stand already. */
    heed_status (*read)(heed_config *config, heed_facts *facts);
} heed_architecture;

/* HEED_UNSUPPORTED, with the known ones, when there is none of that name. */
heed_status heed_architecture_find(const char *name, const heed_architecture **architecture);

#endif
