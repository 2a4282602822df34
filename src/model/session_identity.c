/* Whose keys and values they are. */
#include "model/session_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKED_AT = 4096 }; /* bytes of either end of a tensor */

/* Of names, shapes and types of all tensors, and of both ends of each one's data. */
static uint64_t fingerprint(const heed_model *model)
{
    uint64_t sum = HEED_SUM_START;
    for (int i = 0; i < heed_model_file_tensors(model->file); i++) {
        const heed_model_tensor *tensor = heed_model_file_tensor(model->file, i);
        sum = heed_sum(sum, tensor->name, strlen(tensor->name));
        sum = heed_sum(sum, tensor->dtype, strlen(tensor->dtype));
        sum = heed_sum(sum, tensor->shape, (size_t)tensor->rank * sizeof *tensor->shape);
        const size_t ends = tensor->bytes < LOOKED_AT ? tensor->bytes : LOOKED_AT;
        const char *data = tensor->tensor.data;
        if (!data)
            continue;
        sum = heed_sum(sum, data, ends);
        sum = heed_sum(sum, data + tensor->bytes - ends, ends);
    }
    return sum;
}

/* Of a layer's learnt tensors; those at initial values add nothing. */
static uint64_t sum_of_params(const heed_session_layer *layer, const heed_plan *plan)
{
    uint64_t sum = HEED_SUM_START;
    for (int i = 0; i < heed_plan_params(plan); i++) {
        const heed_tensor *tensor = &layer->param[i];
        size_t bytes = 0;
        if (tensor->data && !heed_tensor_bytes(tensor->type, tensor->rank, tensor->shape, &bytes))
            sum = heed_sum(heed_sum(sum, &i, sizeof i), tensor->data, bytes);
    }
    return sum;
}

char *heed_session_identity(const heed_session *session)
{
    const heed_model *model = session->model;
    const heed_config *c = &model->config;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    fprintf(out, "model: %s of %lld layers, fingerprint %016llx\n", c->architecture, (long long)c->layers,
            (unsigned long long)fingerprint(model));
    fprintf(out, "products: %s\n", model->packing.kind == HEED_PRODUCT_EXACT ? "exact" : "fast");
    for (int64_t l = 0; l < c->layers; l++) {
        const heed_session_kind *kind = &session->kind[session->layer[l].kind];
        fprintf(out, "layer %lld: keys %s%s, values %s, %s\n", (long long)l, heed_type_name(kind->key_type),
                kind->prepared ? "" : " as projected", heed_type_name(kind->value_type),
                session->layer[l].text);
        if (session->layer[l].param)
            fprintf(out, "layer %lld: learnt tensors %016llx\n", (long long)l,
                    (unsigned long long)sum_of_params(&session->layer[l], kind->rung[0]));
    }
    const bool failed = ferror(out) != 0;
    if (fclose(out) || failed) {
        free(text);
        return NULL;
    }
    return text;
}
