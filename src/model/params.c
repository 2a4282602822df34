#include "model/params.h"
#include "base/try.h"
#include "model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Splits "blk.3.select.loki.basis"; false when that is not what the name looks like. */
static bool take_apart(const char *name, int64_t *layer, const char **of_plan)
{
    char *end;
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9')
        return false;
    *layer = strtoll(name + 4, &end, 10);
    *of_plan = end + 1;
    return *end == '.' && end - name < 16 && strchr(end + 1, '.');
}

static heed_status add_named(heed_params *params, const char *name, int rank, const int64_t *shape,
                             heed_tensor **added)
{
    size_t bytes;
    TRY(heed_tensor_bytes(HEED_F32, rank, shape, &bytes));
    heed_param_tensor *grown = realloc(params->tensor, (size_t)(params->count + 1) * sizeof *grown);
    if (grown)
        params->tensor = grown;
    heed_param_tensor *last = grown ? &grown[params->count] : NULL;
    char *copy = strdup(name);
    float *data = calloc(bytes ? bytes : 1, 1);
    if (!grown || !copy || !data) {
        free(copy);
        free(data);
        return heed_fail(HEED_NO_MEMORY, "no memory for tensor %s of %zu bytes", name, bytes);
    }
    *last = (heed_param_tensor){.name = copy, .tensor = heed_tensor_dense(data, HEED_F32, rank, shape)};
    take_apart(copy, &last->layer, &last->of_plan);
    params->count++;
    *added = &last->tensor;
    return HEED_OK;
}

heed_status heed_params_add(heed_params *params, int64_t layer, const char *of_plan, int rank,
                            const int64_t *shape, heed_tensor **added)
{
    char name[128];
    snprintf(name, sizeof name, "blk.%lld.%s", (long long)layer, of_plan);
    return add_named(params, name, rank, shape, added);
}

static heed_status read_tensor(heed_params *params, const heed_safetensors *file,
                               const heed_file_tensor *from, const char *path)
{
    int64_t layer;
    const char *of_plan;
    heed_tensor *to = NULL;
    char name[100];
    heed_printable(from->name, name, sizeof name);
    if (!take_apart(from->name, &layer, &of_plan))
        return heed_fail(HEED_FORMAT,
                         "%s: tensor %s: names of attention's tensors are like blk.3.select.loki.basis, with "
                         "layer, stage, form and parameter",
                         path, name);
    if (from->type != HEED_F32)
        return heed_fail(HEED_FORMAT, "%s: tensor %s is %s, it must be F32", path, name, from->dtype);
    if (from->rank > 4)
        return heed_fail(HEED_FORMAT, "%s: tensor %s has %d dimensions, it may have 4", path, name,
                         from->rank);
    TRY(add_named(params, from->name, from->rank, from->shape, &to));
    return heed_safetensors_read(file, from, to->data);
}

heed_status heed_params_open(heed_params **out, const char *path)
{
    if (!out || !path)
        return heed_fail(HEED_INVALID, "a path is needed");
    *out = NULL;
    heed_safetensors *file;
    TRY(heed_safetensors_open(&file, path));
    heed_params *params = calloc(1, sizeof *params);
    heed_status status =
        params ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the tensors of %s", path);
    for (int i = 0; i < heed_safetensors_count(file) && !status; i++)
        status = read_tensor(params, file, heed_safetensors_tensor(file, i), path);
    heed_safetensors_close(file);
    if (status)
        heed_params_free(params);
    else
        *out = params;
    return status;
}

heed_status heed_params_beside(heed_params **params, const char *model_path)
{
    char path[4200];
    struct stat info;
    *params = NULL;
    const char *slash = strrchr(model_path, '/');
    const bool folder = stat(model_path, &info) == 0 && S_ISDIR(info.st_mode);
    const int length = folder ? (int)strlen(model_path) : slash ? (int)(slash - model_path) : 0;
    snprintf(path, sizeof path, "%.*s%sparams.safetensors", length, model_path, folder || slash ? "/" : "");
    return stat(path, &info) == 0 ? heed_params_open(params, path) : HEED_OK;
}

heed_status heed_params_save(const heed_params *params, const char *path)
{
    if (!params || !path)
        return heed_fail(HEED_INVALID, "tensors and a path are needed");
    heed_named_tensor *named = calloc((size_t)params->count + 1, sizeof *named);
    if (!named)
        return heed_fail(HEED_NO_MEMORY, "no memory for a list of %d tensors", params->count);
    for (int i = 0; i < params->count; i++)
        named[i] = (heed_named_tensor){params->tensor[i].name, params->tensor[i].tensor};
    const heed_status status = heed_safetensors_write(path, named, params->count, NULL);
    free(named);
    return status;
}

void heed_params_free(heed_params *params)
{
    for (int i = 0; params && i < params->count; i++) {
        free(params->tensor[i].name);
        free(params->tensor[i].tensor.data);
    }
    if (params)
        free(params->tensor);
    free(params);
}

const heed_param_tensor *heed_params_find(const heed_params *params, int64_t layer, const char *of_plan)
{
    for (int i = 0; params && i < params->count; i++)
        if (params->tensor[i].layer == layer && !strcmp(params->tensor[i].of_plan, of_plan))
            return &params->tensor[i];
    return NULL;
}
