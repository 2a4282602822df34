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
    }
    const bool failed = ferror(out) != 0;
    if (fclose(out) || failed) {
        free(text);
        return NULL;
    }
    return text;
}
