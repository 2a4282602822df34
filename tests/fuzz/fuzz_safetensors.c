/* Any bytes as a safetensors file: it is refused with a sentence, or every tensor in it can be read. */
#include "model/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    heed_safetensors *file;
    if (heed_safetensors_parse(&file, data, size, "fuzz"))
        return 0;
    for (int i = 0; i < heed_safetensors_count(file); i++) {
        const heed_file_tensor *tensor = heed_safetensors_tensor(file, i);
        if (tensor->bytes > size || !heed_safetensors_find(file, tensor->name))
            abort();
        void *values = malloc((size_t)tensor->bytes + 1);
        if (values && heed_safetensors_read(file, tensor, values))
            abort();
        free(values);
    }
    heed_safetensors_close(file);
    return 0;
}
