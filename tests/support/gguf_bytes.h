/* GGUF files made by hand, right or wrong. */
#ifndef HEED_TEST_GGUF_BYTES_H
#define HEED_TEST_GGUF_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* A growing piece of memory. Zero it first; free it with bytes_free. */
typedef struct bytes {
    unsigned char *data;
    size_t size, capacity;
} bytes;

void bytes_free(bytes *b);
void put(bytes *b, const void *data, size_t size);
void put_number(bytes *b, uint64_t value, int size); /* little-endian */
void put_float(bytes *b, float value);
void put_text(bytes *b, const char *text);
void put_padding(bytes *b, size_t alignment);

/* Magic, version and counts. */
void put_start(bytes *b, uint32_t version, uint64_t tensors, uint64_t keys);

/* Keys with their values; types by their numbers in the file. */
void put_key(bytes *b, const char *key, uint32_t type);
void put_key_u32(bytes *b, const char *key, uint32_t value);
void put_key_text(bytes *b, const char *key, const char *value);
void put_key_array(bytes *b, const char *key, uint32_t type, uint64_t count);

/* An entry of the list of tensors; sizes innermost first, as the file has them. */
void put_tensor(bytes *b, const char *name, uint32_t rank, const uint64_t *shape, uint32_t type,
                uint64_t offset);

/* A small whole file: "llama", a key of each kind, and three tensors: f32 [2, 3] of 0 to 5 as `a.weight`,
 * q8_0 [1, 32] as `b.weight`, f16 [4] as `c.bias`. */
void put_small_model(bytes *b, uint32_t version);

void bytes_write(const bytes *b, const char *path);

#endif
