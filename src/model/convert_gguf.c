/* GGUF to GGUF: the same metadata, matrices of another type; parts become one file. */
#include "base/text.h"
#include "base/try.h"
#include "model/convert_rows.h"
#include "model/gguf_write.h"

#include <stdlib.h>
#include <string.h>

/* Tensors that are multiplied with. Positions and the like are small and looked up; routers decide. */
static bool is_matrix(const heed_model_tensor *tensor)
{
    static const char *const others[] = {"position_embd", "token_types", "ffn_gate_inp",
                                         "rope_",         "ssm_",        "conv"};
    if (tensor->rank < 2 || tensor->rank > HEED_MAX_RANK || !heed_ends_with(tensor->name, ".weight"))
        return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(tensor->name, others[i]))
            return false;
    return tensor->shape[tensor->rank - 1] > 1 && tensor->shape[tensor->rank - 2] > 1;
}

static bool is_embedding(const heed_model_tensor *tensor)
{
    return !strcmp(tensor->name, "token_embd.weight") || !strcmp(tensor->name, "output.weight");
}

bool heed_convert_file_type(heed_type type, uint32_t *number)
{
    static const struct {
        heed_type type;
        uint32_t number;
    } numbers[] = {{HEED_F32, 0},     {HEED_F16, 1},     {HEED_Q4, 2},    {HEED_Q4_1, 3},
                   {HEED_Q8, 7},      {HEED_Q5_0, 8},    {HEED_Q5_1, 9},  {HEED_Q2_K, 10},
                   {HEED_Q3_K, 12},   {HEED_Q4_K, 15},   {HEED_Q5_K, 17}, {HEED_Q6_K, 18},
                   {HEED_IQ4_NL, 25}, {HEED_IQ4_XS, 30}, {HEED_BF16, 32}, {HEED_MXFP4, 38}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].type == type) {
            *number = numbers[i].number;
            return true;
        }
    return false;
}

/* All keys but those that say what is no longer so. */
static void copy_keys(const heed_model_file *file, heed_type type, heed_gguf_keys *keys)
{
    uint32_t number;
    for (int i = 0; i < file->metas; i++) {
        const char *key = file->meta[i].key;
        if (!strncmp(key, "split.", 6) || !strcmp(key, "general.alignment") ||
            (type != HEED_TYPES &&
             (!strcmp(key, "general.file_type") || !strcmp(key, "general.quantization_version"))))
            continue;
        heed_gguf_put_raw(keys, key, &file->raw_meta[i]);
    }
    if (type != HEED_TYPES && heed_convert_file_type(type, &number))
        heed_gguf_put_u32(keys, "general.file_type", number);
    if (type != HEED_TYPES)
        heed_gguf_put_u32(keys, "general.quantization_version", 2);
}

heed_status heed_convert_describe(const heed_model_tensor *from, heed_type type, heed_gguf_tensor *to)
{
    *to = (heed_gguf_tensor){.name = from->name, .rank = from->rank};
    for (int d = 0; d < from->rank; d++)
        to->shape[d] = from->shape[d];
    to->type = type == HEED_TYPES ? heed_gguf_type_named(from->dtype) : heed_gguf_type_for(type);
    if (!to->type)
        return heed_fail(HEED_UNSUPPORTED, "tensor %s has %s, of which no size is known", from->name,
                         from->dtype);
    return HEED_OK;
}

static heed_status convert(const heed_model_file *file, const char *path, const heed_convert_options *options,
                           heed_convert_report *report, heed_convert_work *work, heed_gguf_tensor *tensors)
{
    for (int i = 0; i < file->tensors; i++) {
        const heed_model_tensor *from = &file->tensor[i];
        work->each[i].from = from;
        work->total += from->bytes;
        TRY(heed_convert_choose(from, is_embedding(from), is_matrix(from), options, report,
                                &work->each[i].type));
        TRY(heed_convert_describe(from, work->each[i].type, &tensors[i]));
    }
    heed_gguf_keys keys = {0};
    copy_keys(file, options->type, &keys);
    const heed_status status =
        heed_gguf_write(path, &keys, tensors, file->tensors, heed_convert_source, work);
    heed_gguf_keys_free(&keys);
    for (int i = 0; i < file->tensors; i++)
        report->bytes += (size_t)tensors[i].bytes;
    return status;
}

heed_status heed_convert_to_gguf(const heed_model_file *file, const char *path,
                                 const heed_convert_options *options, heed_convert_report *report)
{
    heed_convert_work work = {.options = options, .count = file->tensors};
    heed_gguf_tensor *tensors = calloc((size_t)file->tensors + 1, sizeof *tensors);
    work.each = calloc((size_t)file->tensors + 1, sizeof *work.each);
    const heed_status status = tensors && work.each
                                   ? convert(file, path, options, report, &work, tensors)
                                   : heed_fail(HEED_NO_MEMORY, "no memory for %d tensors", file->tensors);
    free(tensors);
    free(work.each);
    return status;
}
