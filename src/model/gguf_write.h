/* Writing GGUF files, version 3: whole or not at all. */
#ifndef HEED_MODEL_GGUF_WRITE_H
#define HEED_MODEL_GGUF_WRITE_H

#include "base/output.h"
#include "model/file_own.h"
#include "model/gguf.h"

/* Keys and values as they will lie in the file. Zero it first. When memory runs short, what is added is
 * dropped and heed_gguf_write says so. */
typedef struct heed_gguf_keys {
    unsigned char *data;
    size_t size, capacity;
    uint64_t count;
    bool failed;
} heed_gguf_keys;

void heed_gguf_keys_free(heed_gguf_keys *keys);

/* A value as it lies in another file. */
void heed_gguf_put_raw(heed_gguf_keys *keys, const char *key, const heed_raw_meta *raw);
void heed_gguf_put_u32(heed_gguf_keys *keys, const char *key, uint32_t value);
void heed_gguf_put_f32(heed_gguf_keys *keys, const char *key, float value);
void heed_gguf_put_bool(heed_gguf_keys *keys, const char *key, bool value);
void heed_gguf_put_text(heed_gguf_keys *keys, const char *key, const char *value);

/* Arrays: how many entries and their type, then so many entries. */
void heed_gguf_put_array(heed_gguf_keys *keys, const char *key, heed_gguf_value type, uint64_t count);
void heed_gguf_entry_text(heed_gguf_keys *keys, const char *text, size_t size);
void heed_gguf_entry_u8(heed_gguf_keys *keys, uint8_t value); /* and of bool */
void heed_gguf_entry_i32(heed_gguf_keys *keys, int32_t value);
void heed_gguf_entry_f32(heed_gguf_keys *keys, float value);

/* The begin of a file, up to its list of tensors. */
void heed_gguf_start(heed_gguf_keys *header, int tensors, const heed_gguf_keys *keys);

/* A tensor to be written; sizes outermost first. */
typedef struct heed_gguf_tensor {
    const char *name;
    const heed_gguf_type *type;
    int rank;
    int64_t shape[HEED_MAX_RANK];
    uint64_t bytes; /* filled in when written */
} heed_gguf_tensor;

/* `source` is called once for each tensor, in order, and writes its bytes. */
heed_status heed_gguf_write(const char *path, const heed_gguf_keys *keys, heed_gguf_tensor *tensors,
                            int count, heed_tensor_source source, void *context);

#endif
