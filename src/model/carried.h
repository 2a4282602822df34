/* Layers that are no attention over keys that are kept: recurrences (`scan=`), which carry a state along, and
 * layers by forms (`layer=`), which are made again of their inputs. Both are graphs over weights in f32. */
#ifndef HEED_MODEL_CARRIED_H
#define HEED_MODEL_CARRIED_H

#include "model/config.h"

#include <heed/nn.h>

struct heed_model;

typedef enum heed_carries {
    HEED_CARRIES_NOTHING, /* it attends to keys that are kept */
    HEED_CARRIES_STATE,   /* floats that do not grow */
    HEED_CARRIES_INPUTS   /* a row for each token that was read */
} heed_carries;

/* What the model's own spec makes of a layer. */
heed_status heed_carries_of_layer(const heed_config *config, int64_t layer, heed_carries *carries);

/* A layer as a graph for so many tokens of one sequence. */
typedef struct heed_carried {
    heed_graph *graph;
    heed_variable in, out; /* [1, tokens, width], normed; without the residual */
    int64_t tokens;
} heed_carried;

/* Parameters that `parameters` lacks are made, with numbers that mean nothing yet. */
heed_status heed_carried_make(heed_carried *made, const heed_config *config, heed_parameters *parameters,
                              int64_t layer, int64_t tokens, int threads, heed_isa isa);
void heed_carried_free(heed_carried *made);
/* Floats of its states, and where they lie from now on. */
int64_t heed_carried_floats(const heed_carried *made);
void heed_carried_along(const heed_carried *made, float *states);

/* The parameters of a layer, from tensors of the file that are called the same; `take` is told each one that
 * is read. Refuses a layer that looks at later tokens. */
heed_status heed_carried_load(struct heed_model *model, int64_t layer,
                              void (*take)(void *context, const char *name, int64_t values), void *context);

#endif
