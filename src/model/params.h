/* Learnt tensors of attention by layer and name, as they stand in a file beside the model. */
#ifndef HEED_MODEL_PARAMS_H
#define HEED_MODEL_PARAMS_H

#include <heed/model.h>

/* "blk.3.select.loki.basis" is layer 3's "select.loki.basis". */
typedef struct heed_param_tensor {
    char *name;
    int64_t layer;
    const char *of_plan; /* the part of `name` that plans use */
    heed_tensor tensor;  /* dense f32 */
} heed_param_tensor;

struct heed_params {
    heed_param_tensor *tensor;
    int count;
};

/* Reads a safetensors file. HEED_IO, HEED_FORMAT, HEED_NO_MEMORY */
heed_status heed_params_open(heed_params **params, const char *path);

/* The tensors that lie beside a model whose config.json says its attention: params.safetensors. *params NULL
 * where there is no such file. */
heed_status heed_params_beside(heed_params **params, const char *model_path);

/* A tensor of these sizes, all 0, added to the list. */
heed_status heed_params_add(heed_params *params, int64_t layer, const char *of_plan, int rank,
                            const int64_t *shape, heed_tensor **added);

/* NULL where there is none. */
const heed_param_tensor *heed_params_find(const heed_params *params, int64_t layer, const char *of_plan);

#endif
