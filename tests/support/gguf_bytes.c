#include "support/gguf_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void bytes_free(bytes *b)
{
    free(b->data);
    *b = (bytes){0};
}

void put(bytes *b, const void *data, size_t size)
{
    if (b->size + size > b->capacity) {
        b->capacity = 2 * (b->size + size);
        b->data = realloc(b->data, b->capacity);
        assert_non_null(b->data);
    }
    if (size > 0)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}

void put_number(bytes *b, uint64_t value, int size)
{
    unsigned char little[8];
    for (int i = 0; i < size; i++)
        little[i] = (unsigned char)(value >> 8 * i);
    put(b, little, (size_t)size);
}

void put_float(bytes *b, float value)
{
    uint32_t number;
    memcpy(&number, &value, sizeof number);
    put_number(b, number, 4);
}

void put_text(bytes *b, const char *text)
{
    put_number(b, strlen(text), 8);
    put(b, text, strlen(text));
}

void put_padding(bytes *b, size_t alignment)
{
    while (b->size % alignment)
        put(b, "", 1);
}

void put_start(bytes *b, uint32_t version, uint64_t tensors, uint64_t keys)
{
    put(b, "GGUF", 4);
    put_number(b, version, 4);
    put_number(b, tensors, 8);
    put_number(b, keys, 8);
}

void put_key(bytes *b, const char *key, uint32_t type)
{
    put_text(b, key);
    put_number(b, type, 4);
}

void put_key_u32(bytes *b, const char *key, uint32_t value)
{
    put_key(b, key, 4);
    put_number(b, value, 4);
}

void put_key_text(bytes *b, const char *key, const char *value)
{
    put_key(b, key, 8);
    put_text(b, value);
}

void put_key_array(bytes *b, const char *key, uint32_t type, uint64_t count)
{
    put_key(b, key, 9);
    put_number(b, type, 4);
    put_number(b, count, 8);
}

void put_tensor(bytes *b, const char *name, uint32_t rank, const uint64_t *shape, uint32_t type,
                uint64_t offset)
{
    put_text(b, name);
    put_number(b, rank, 4);
    for (uint32_t i = 0; i < rank; i++)
        put_number(b, shape[i], 8);
    put_number(b, type, 4);
    put_number(b, offset, 8);
}

static void put_small_keys(bytes *b)
{
    put_key_text(b, "general.architecture", "llama");
    put_key(b, "x.u8", 0), put_number(b, 200, 1);
    put_key(b, "x.i8", 1), put_number(b, (uint64_t)-3, 1);
    put_key(b, "x.u16", 2), put_number(b, 60000, 2);
    put_key(b, "x.i16", 3), put_number(b, (uint64_t)-300, 2);
    put_key(b, "x.i32", 5), put_number(b, (uint64_t)-70000, 4);
    put_key(b, "x.f32", 6), put_float(b, 0.5f);
    put_key(b, "x.bool", 7), put_number(b, 1, 1);
    put_key(b, "x.u64", 10), put_number(b, UINT64_MAX, 8);
    put_key(b, "x.i64", 11), put_number(b, (uint64_t)-5, 8);
    put_key(b, "x.f64", 12), put_number(b, 0x4009000000000000u, 8); /* 3.125 */
    put_key_array(b, "x.ints", 3, 3);
    for (int i = -1; i <= 1; i++)
        put_number(b, (uint64_t)(int64_t)i, 2);
    put_key_array(b, "x.floats", 6, 2), put_float(b, 1.5f), put_float(b, -2.0f);
    put_key_array(b, "x.texts", 8, 3);
    put_text(b, "");
    put_number(b, 3, 8), put(b, "a\0b", 3);
    put_text(b, "last");
    put_key_array(b, "x.nested", 9, 2);
    for (int i = 0; i < 2; i++)
        put_number(b, 4, 4), put_number(b, 1, 8), put_number(b, 7, 4);
}

void put_small_model(bytes *b, uint32_t version)
{
    const uint64_t a[] = {3, 2}, q[] = {32, 1}, c[] = {4};
    put_start(b, version, 3, 15);
    put_small_keys(b);
    put_tensor(b, "a.weight", 2, a, 0, 0);
    put_tensor(b, "b.weight", 2, q, 8, 32);
    put_tensor(b, "c.bias", 1, c, 1, 96);
    put_padding(b, 32);
    for (int i = 0; i < 6; i++)
        put_float(b, (float)i);
    put_padding(b, 32);
    put_number(b, 0x3c00, 2); /* 1 */
    for (int i = 0; i < 32; i++)
        put_number(b, (uint64_t)(i - 16), 1);
    put_padding(b, 32);
    for (int i = 0; i < 4; i++)
        put_number(b, 0x3c00, 2);
}

void bytes_write(const bytes *b, const char *path)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b->data, 1, b->size, file), b->size);
    assert_int_equal(fclose(file), 0);
}
