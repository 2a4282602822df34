/* Any bytes as a GGUF file: it is refused with a sentence, or all of its metadata and tensors can be read. */
#include "model/gguf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sum; /* so that no read is left out */

static void read_meta(const heed_meta *meta)
{
    if (meta->kind == HEED_META_TEXT)
        sum += strlen(meta->text) + (uint8_t)meta->text[meta->size];
    for (int64_t i = 0; i < meta->size; i++) {
        if (meta->kind == HEED_META_TEXTS)
            sum += strlen(meta->texts[i]) + (uint8_t)meta->texts[i][meta->text_size[i]];
        if (meta->kind == HEED_META_INTS)
            sum += (uint64_t)meta->wholes[i];
        if (meta->kind == HEED_META_FLOATS)
            sum += meta->numbers[i] > 0.0f;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    heed_model_file *file;
    /* a mapped file begins at a page; from another place tensors would be copied */
    void *copy = aligned_alloc(64, size / 64 * 64 + 64);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (heed_gguf_parse(&file, copy, size, "fuzz")) {
        free(copy);
        return 0;
    }
    for (int i = 0; i < heed_model_file_metas(file); i++) {
        const heed_meta *meta = heed_model_file_meta_at(file, i);
        if (heed_model_file_meta(file, meta->key) != meta)
            abort();
        read_meta(meta);
    }
    for (int i = 0; i < heed_model_file_tensors(file); i++) {
        const heed_model_tensor *tensor = heed_model_file_tensor(file, i);
        const unsigned char *bytes = tensor->tensor.data;
        if (tensor->bytes > size || heed_model_file_find(file, tensor->name) != tensor)
            abort();
        for (size_t j = 0; j < tensor->bytes; j++)
            sum += bytes[j];
    }
    heed_model_file_close(file);
    free(copy);
    return 0;
}
