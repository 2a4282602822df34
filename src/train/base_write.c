/* A model that learned, as files: whole, as an adapter, or the parameters of its forms alone. */
#include "base/output.h"
#include "base/try.h"
#include "model/convert_rows.h"
#include "model/file_own.h"
#include "model/params.h"
#include "nn/graph.h"
#include "train/base.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

heed_status heed_train_path(char path[HEED_TRAIN_PATH], const char *folder, const char *name)
{
    if (snprintf(path, HEED_TRAIN_PATH, "%s/%s", folder, name) >= HEED_TRAIN_PATH)
        return heed_fail(HEED_INVALID, "%.60s...: the path is too long", folder);
    return HEED_OK;
}

/* What each tensor of the file becomes. */
typedef struct writer {
    const heed_base *base;
    heed_parameters *parameters;
    const heed_base_learn *learn;
    const heed_base_tensor **of; /* [tensors of the file] NULL: as it is */
    heed_convert_options options;
} writer;

static const heed_parameter *lora_of(const writer *w, const heed_base_tensor *tensor, bool b)
{
    return heed_parameters_find(w->parameters, heed_lora_name(tensor->name, b).text);
}

static bool has_changed(const writer *w, const heed_base_tensor *tensor)
{
    const heed_parameter *p = heed_parameters_find(w->parameters, tensor->name);
    return p && (!p->frozen || lora_of(w, tensor, true));
}

static void find_changed(writer *w)
{
    for (int i = 0; i < w->base->tensors; i++)
        for (int j = 0; j < w->base->file->tensors; j++)
            if (&w->base->file->tensor[j] == w->base->tensor[i].from && has_changed(w, &w->base->tensor[i]))
                w->of[j] = &w->base->tensor[i];
}

/* W + alpha / rank B A, in memory of its own. */
static heed_status merged(const writer *w, const heed_base_tensor *tensor, float **to)
{
    const heed_parameter *p = heed_parameters_find(w->parameters, tensor->name),
                         *a = lora_of(w, tensor, false), *b = lora_of(w, tensor, true);
    *to = malloc((size_t)p->count * sizeof **to + 1);
    if (!*to)
        return heed_fail(HEED_NO_MEMORY, "no memory to write %s", tensor->name);
    memcpy(*to, p->value, (size_t)p->count * sizeof **to);
    if (!b)
        return HEED_OK;
    const int64_t rows = p->shape[0], cols = p->shape[1], rank = a->shape[0];
    const double scale = w->learn->alpha / (double)rank;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t l = 0; l < rank; l++) {
            const float factor = (float)(scale * (double)b->value[r * rank + l]);
            for (int64_t c = 0; c < cols; c++)
                (*to)[r * cols + c] += factor * a->value[l * cols + c];
        }
    return HEED_OK;
}

/* Tensor i of the file, as it lies there or as it became. */
static heed_status write_tensor(void *context, int i, heed_output *output)
{
    writer *w = context;
    const heed_base_tensor *tensor = w->of[i];
    const heed_model_tensor *from = &w->base->file->tensor[i];
    heed_conversion each = {.from = from, .type = HEED_TYPES};
    heed_model_tensor now = *from;
    float *data = NULL;
    if (tensor) {
        TRY(merged(w, tensor, &data));
        const heed_parameter *p = heed_parameters_find(w->parameters, tensor->name);
        now.dtype = "F32";
        now.tensor = heed_tensor_dense(data, HEED_F32, p->rank, p->shape);
        for (int d = 0; d < p->rank; d++)
            now.shape[d] = p->shape[d];
        now.bytes = (size_t)p->count * sizeof *data;
        each = (heed_conversion){.from = &now,
                                 .type = HEED_F32,
                                 .heads = tensor->heads,
                                 .shift = -tensor->shift,
                                 .turned = tensor->turned};
    }
    heed_convert_work work = {.options = &w->options, .each = &each, .count = 1};
    const heed_status status = heed_convert_source(&work, 0, output);
    free(data);
    if (!tensor)
        heed_model_file_release(w->base->file, from);
    return status;
}

static heed_status write_gguf(writer *w, const char *folder)
{
    const heed_model_file *file = w->base->file;
    heed_gguf_tensor *tensors = calloc((size_t)file->tensors + 1, sizeof *tensors);
    heed_gguf_keys keys = {0};
    char path[HEED_TRAIN_PATH];
    heed_status status = tensors ? heed_train_path(path, folder, "model.gguf")
                                 : heed_fail(HEED_NO_MEMORY, "no memory for %d tensors", file->tensors);
    for (int i = 0; i < file->tensors && !status; i++)
        status = heed_convert_describe(&file->tensor[i], w->of[i] ? HEED_F32 : HEED_TYPES, &tensors[i]);
    for (int i = 0; i < file->metas && !status; i++)
        if (strncmp(file->meta[i].key, "split.", 6) != 0 &&
            strcmp(file->meta[i].key, "general.alignment") != 0)
            heed_gguf_put_raw(&keys, file->meta[i].key, &file->raw_meta[i]);
    if (!status)
        status = heed_gguf_write(path, &keys, tensors, file->tensors, write_tensor, w);
    heed_gguf_keys_free(&keys);
    free(tensors);
    return status;
}

static heed_status write_text(const char *folder, const char *name, const char *text, size_t size)
{
    char path[HEED_TRAIN_PATH];
    heed_output output = {.descriptor = -1};
    TRY(heed_train_path(path, folder, name));
    char *slash = strrchr(path, '/');
    if (strchr(name, '/')) { /* "1_Pooling/config.json" */
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    heed_status status = heed_output_open(&output, path);
    if (!status)
        status = heed_output_write(&output, text, size);
    return heed_output_close(&output, status);
}

static heed_status write_folder(writer *w, const char *folder)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    const heed_model_file *file = w->base->file;
    heed_named_tensor *named = calloc((size_t)file->tensors + 1, sizeof *named);
    char path[HEED_TRAIN_PATH];
    heed_status status = named ? heed_train_path(path, folder, "model.safetensors")
                               : heed_fail(HEED_NO_MEMORY, "no memory for %d tensors", file->tensors);
    for (int i = 0; i < file->tensors && !status; i++) {
        const heed_model_tensor *from = &file->tensor[i];
        named[i] =
            (heed_named_tensor){from->name, heed_tensor_dense(NULL, w->of[i] ? HEED_F32 : from->tensor.type,
                                                              from->rank, from->shape)};
    }
    if (!status)
        status = heed_safetensors_stream(path, named, file->tensors, metadata, write_tensor, w);
    for (int i = 0; i < file->texts && !status; i++)
        if (strcmp(file->text[i].name, "model.safetensors.index.json") != 0)
            status = write_text(folder, file->text[i].name, file->text[i].text, file->text[i].size);
    free(named);
    return status;
}

heed_status heed_base_write(const heed_base *base, heed_parameters *parameters, const heed_base_learn *learn,
                            const char *folder)
{
    writer w = {.base = base,
                .parameters = parameters,
                .learn = learn,
                .options = {.type = HEED_TYPES, .embedding = HEED_TYPES},
                .of = calloc((size_t)base->file->tensors + 1, sizeof *w.of)};
    if (!w.of)
        return heed_fail(HEED_NO_MEMORY, "no memory for %d tensors", base->file->tensors);
    find_changed(&w);
    const bool gguf = heed_model_file_format(base->file) == HEED_FORMAT_GGUF;
    const heed_status status = gguf ? write_gguf(&w, folder) : write_folder(&w, folder);
    free(w.of);
    return status;
}

/* Names of the maps that have LoRA, each once: "q_proj". */
static cJSON *target_modules(const heed_base *base, heed_parameters *parameters)
{
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < base->tensors; i++) {
        char stem[HEED_BASE_NAME];
        if (base->tensor[i].bias ||
            !heed_parameters_find(parameters, heed_lora_name(base->tensor[i].name, true).text))
            continue;
        snprintf(stem, sizeof stem, "%.*s", (int)(strlen(base->tensor[i].name) - strlen(".weight")),
                 base->tensor[i].name);
        const char *last = strrchr(stem, '.') ? strrchr(stem, '.') + 1 : stem;
        bool known = false;
        for (const cJSON *item = list ? list->child : NULL; item; item = item->next)
            known = known || !strcmp(item->valuestring, last);
        if (!known)
            cJSON_AddItemToArray(list, cJSON_CreateString(last));
    }
    return list;
}

static heed_status write_adapter_config(const heed_base *base, heed_parameters *parameters,
                                        const heed_base_learn *learn, const char *folder)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "peft_type", "LORA");
    cJSON_AddStringToObject(root, "base_model_name_or_path", heed_model_file_path(base->file));
    if (base->config.generates)
        cJSON_AddStringToObject(root, "task_type", "CAUSAL_LM");
    cJSON_AddNumberToObject(root, "r", (double)learn->rank);
    cJSON_AddNumberToObject(root, "lora_alpha", learn->alpha);
    cJSON_AddNumberToObject(root, "lora_dropout", 0.0);
    cJSON_AddStringToObject(root, "bias", "none");
    cJSON_AddBoolToObject(root, "fan_in_fan_out", base->config.transposed);
    cJSON_AddBoolToObject(root, "inference_mode", true);
    cJSON_AddBoolToObject(root, "use_rslora", false);
    cJSON_AddItemToObject(root, "target_modules", target_modules(base, parameters));
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    const heed_status status = text ? write_text(folder, "adapter_config.json", text, strlen(text))
                                    : heed_fail(HEED_NO_MEMORY, "no memory for adapter_config.json");
    free(text);
    return status;
}

heed_status heed_lora_write(const heed_base *base, heed_parameters *parameters, const heed_base_learn *learn,
                            const char *folder)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    const int count = heed_parameters_count(parameters);
    char path[HEED_TRAIN_PATH];
    int written = 0;
    heed_named_tensor *named = calloc((size_t)count + 1, sizeof *named);
    char(*name)[160] = calloc((size_t)count + 1, sizeof *name);
    heed_status status = named && name ? heed_train_path(path, folder, "adapter_model.safetensors")
                                       : heed_fail(HEED_NO_MEMORY, "no memory to write an adapter");
    for (int i = 0; i < count && !status; i++) {
        const heed_parameter *p = heed_parameters_at(parameters, i);
        if (!strstr(p->name, ".lora_A.") && !strstr(p->name, ".lora_B."))
            continue;
        snprintf(name[written], sizeof *name, "base_model.model.%s", p->name);
        named[written] =
            (heed_named_tensor){name[written], heed_tensor_dense(p->value, HEED_F32, p->rank, p->shape)};
        written++;
    }
    if (!status)
        status = heed_safetensors_write(path, named, written, metadata);
    free(named);
    free(name);
    return status ? status : write_adapter_config(base, parameters, learn, folder);
}

const char *heed_base_form_parameter(const char *name, long long *layer)
{
    char *end;
    if (strncmp(name, "blk.", 4) != 0)
        return NULL;
    *layer = strtoll(name + 4, &end, 10);
    return end + 1;
}

heed_status heed_forms_write(heed_parameters *parameters, heed_form_parameter *form_parameter,
                             const char *folder, int *count)
{
    heed_params *params = calloc(1, sizeof *params);
    char path[HEED_TRAIN_PATH];
    heed_status status = params ? heed_train_path(path, folder, "params.safetensors")
                                : heed_fail(HEED_NO_MEMORY, "no memory for parameters of forms");
    *count = 0;
    for (int i = 0; i < heed_parameters_count(parameters) && !status; i++) {
        const heed_parameter *p = heed_parameters_at(parameters, i);
        long long layer;
        heed_tensor *tensor;
        const char *name = form_parameter(p->name, &layer);
        if (!name)
            continue;
        status = heed_params_add(params, layer, name, p->rank, p->shape, &tensor);
        if (!status)
            memcpy(tensor->data, p->value, (size_t)p->count * sizeof *p->value);
        ++*count;
    }
    if (!status && *count)
        status = heed_params_save(params, path);
    heed_params_free(params);
    return status;
}

/* `some`: tensors that are no parameters here are left out. */
static heed_status take_values(heed_parameters *parameters, const heed_params *params, const char *path,
                               bool some)
{
    for (int i = 0; i < params->count; i++) {
        const heed_param_tensor *from = &params->tensor[i];
        heed_parameter *to = heed_parameters_find(parameters, from->name);
        bool fits = to && to->rank == from->tensor.rank;
        for (int d = 0; fits && d < to->rank; d++)
            fits = to->shape[d] == from->tensor.shape[d];
        if (!to && some)
            continue;
        if (!fits)
            return heed_fail(HEED_FORMAT, "%s: %s is no parameter of this attention, or has another shape",
                             path, from->name);
        memcpy(to->value, from->tensor.data, (size_t)to->count * sizeof *to->value);
    }
    return HEED_OK;
}

heed_status heed_forms_read(heed_parameters *parameters, const char *path)
{
    heed_params *params;
    TRY(heed_params_open(&params, path));
    const heed_status status = take_values(parameters, params, path, false);
    heed_params_free(params);
    return status;
}

heed_status heed_forms_read_beside(heed_parameters *parameters, const char *model_path)
{
    heed_params *params;
    TRY(heed_params_beside(&params, model_path));
    const heed_status status = params ? take_values(parameters, params, model_path, true) : HEED_OK;
    heed_params_free(params);
    return status;
}
