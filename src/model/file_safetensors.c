/* A safetensors file as a model file: its tensors lie in mapped memory. */
#include "base/try.h"
#include "model/file_own.h"
#include "model/safetensors_file.h"

#include <string.h>

static heed_status take_tensors(heed_model_file *file, const heed_safetensors *source)
{
    const int count = heed_safetensors_count(source);
    file->tensor = heed_file_take(file, (size_t)count + 1, sizeof *file->tensor);
    if (!file->tensor)
        return HEED_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        const heed_file_tensor *from = heed_safetensors_tensor(source, i);
        heed_model_tensor *to = &file->tensor[i];
        to->name = heed_file_copy(file, from->name, strlen(from->name));
        to->dtype = from->dtype;
        to->rank = from->rank;
        to->bytes = (size_t)from->bytes; /* within the mapped file, so it fits */
        memcpy(to->shape, from->shape, sizeof to->shape);
        if (!to->name)
            return HEED_NO_MEMORY;
        TRY(heed_file_view(file, to, from->type, file->mapping.data + source->data_begin + from->begin));
        file->tensors++;
    }
    return heed_file_index(file);
}

heed_status heed_safetensors_map(heed_model_file *file)
{
    heed_safetensors *source;
    TRY(heed_safetensors_parse(&source, file->mapping.data, (size_t)file->mapping.size, file->path));
    const heed_status status = take_tensors(file, source);
    heed_safetensors_close(source);
    return status;
}
