#include "model/gguf_write.h"
#include "base/try.h"

#include <stdlib.h>
#include <string.h>

static void append(heed_gguf_keys *keys, const void *data, size_t size)
{
    if (keys->failed)
        return;
    if (size > keys->capacity - keys->size) {
        const size_t capacity = 2 * (keys->size + size) + 4096;
        unsigned char *larger = capacity > size ? realloc(keys->data, capacity) : NULL;
        if (!larger) {
            keys->failed = true;
            return;
        }
        keys->data = larger;
        keys->capacity = capacity;
    }
    if (size > 0)
        memcpy(keys->data + keys->size, data, size);
    keys->size += size;
}

static void append_number(heed_gguf_keys *keys, uint64_t value, int bytes)
{
    unsigned char little[8];
    for (int i = 0; i < bytes; i++)
        little[i] = (unsigned char)(value >> 8 * i);
    append(keys, little, (size_t)bytes);
}

static void append_key(heed_gguf_keys *keys, const char *key)
{
    append_number(keys, strlen(key), 8);
    append(keys, key, strlen(key));
    keys->count++;
}

static void append_typed_key(heed_gguf_keys *keys, const char *key, heed_gguf_value type)
{
    append_key(keys, key);
    append_number(keys, type, 4);
}

void heed_gguf_keys_free(heed_gguf_keys *keys)
{
    free(keys->data);
    *keys = (heed_gguf_keys){0};
}

void heed_gguf_put_raw(heed_gguf_keys *keys, const char *key, const heed_raw_meta *raw)
{
    append_key(keys, key);
    append(keys, raw->data, (size_t)raw->bytes);
}

void heed_gguf_put_u32(heed_gguf_keys *keys, const char *key, uint32_t value)
{
    append_typed_key(keys, key, HEED_GGUF_U32);
    append_number(keys, value, 4);
}

void heed_gguf_put_f32(heed_gguf_keys *keys, const char *key, float value)
{
    append_typed_key(keys, key, HEED_GGUF_F32);
    heed_gguf_entry_f32(keys, value);
}

void heed_gguf_put_bool(heed_gguf_keys *keys, const char *key, bool value)
{
    append_typed_key(keys, key, HEED_GGUF_BOOL);
    append_number(keys, value, 1);
}

void heed_gguf_put_text(heed_gguf_keys *keys, const char *key, const char *value)
{
    append_typed_key(keys, key, HEED_GGUF_TEXT);
    heed_gguf_entry_text(keys, value, strlen(value));
}

void heed_gguf_put_array(heed_gguf_keys *keys, const char *key, heed_gguf_value type, uint64_t count)
{
    append_typed_key(keys, key, HEED_GGUF_ARRAY);
    append_number(keys, type, 4);
    append_number(keys, count, 8);
}

void heed_gguf_entry_text(heed_gguf_keys *keys, const char *text, size_t size)
{
    append_number(keys, size, 8);
    append(keys, text, size);
}

void heed_gguf_entry_u8(heed_gguf_keys *keys, uint8_t value)
{
    append_number(keys, value, 1);
}

void heed_gguf_entry_i32(heed_gguf_keys *keys, int32_t value)
{
    append_number(keys, (uint32_t)value, 4);
}

void heed_gguf_entry_f32(heed_gguf_keys *keys, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    append_number(keys, bits, 4);
}

static heed_status count_bytes(heed_gguf_tensor *tensor)
{
    const int64_t row = tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1;
    if (row % tensor->type->values != 0)
        return heed_fail(HEED_INVALID, "tensor %s: rows of %lld numbers: %s needs multiples of %lld",
                         tensor->name, (long long)row, tensor->type->name, (long long)tensor->type->values);
    bool overflow = __builtin_mul_overflow((uint64_t)(row / tensor->type->values),
                                           (uint64_t)tensor->type->bytes, &tensor->bytes);
    for (int i = 0; i < tensor->rank - 1; i++)
        overflow =
            overflow || __builtin_mul_overflow(tensor->bytes, (uint64_t)tensor->shape[i], &tensor->bytes);
    if (overflow)
        return heed_fail(HEED_INVALID, "tensor %s: its sizes multiply to more bytes than 64 bits can count",
                         tensor->name);
    return HEED_OK;
}

void heed_gguf_start(heed_gguf_keys *header, int tensors, const heed_gguf_keys *keys)
{
    append(header, HEED_GGUF_MAGIC, 4);
    append_number(header, HEED_GGUF_VERSION, 4);
    append_number(header, (uint64_t)tensors, 8);
    append_number(header, keys->count, 8);
    append(header, keys->data, keys->size);
}

/* Magic, counts, keys, and the list of tensors with their places. */
static heed_status make_header(heed_gguf_keys *header, const heed_gguf_keys *keys, heed_gguf_tensor *tensors,
                               int count)
{
    uint64_t offset = 0;
    heed_gguf_start(header, count, keys);
    for (int i = 0; i < count; i++) {
        heed_gguf_tensor *tensor = &tensors[i];
        TRY(count_bytes(tensor));
        heed_gguf_entry_text(header, tensor->name, strlen(tensor->name));
        append_number(header, (uint64_t)tensor->rank, 4);
        for (int d = tensor->rank - 1; d >= 0; d--)
            append_number(header, (uint64_t)tensor->shape[d], 8);
        append_number(header, tensor->type->number, 4);
        append_number(header, offset, 8);
        offset += (tensor->bytes + HEED_GGUF_ALIGNMENT - 1) / HEED_GGUF_ALIGNMENT * HEED_GGUF_ALIGNMENT;
    }
    return keys->failed || header->failed
               ? heed_fail(HEED_NO_MEMORY, "no memory for the metadata of a GGUF file")
               : HEED_OK;
}

static heed_status write_contents(heed_output *output, const heed_gguf_keys *header,
                                  const heed_gguf_tensor *tensors, int count, heed_tensor_source source,
                                  void *context)
{
    TRY(heed_output_write(output, header->data, header->size));
    TRY(heed_output_pad(output, HEED_GGUF_ALIGNMENT));
    for (int i = 0; i < count; i++) {
        const uint64_t before = output->written;
        TRY(source(context, i, output));
        if (output->written - before != tensors[i].bytes)
            return heed_fail(HEED_INVALID, "tensor %s: %llu bytes were written: its shape takes %llu",
                             tensors[i].name, (unsigned long long)(output->written - before),
                             (unsigned long long)tensors[i].bytes);
        TRY(heed_output_pad(output, HEED_GGUF_ALIGNMENT));
    }
    return HEED_OK;
}

heed_status heed_gguf_write(const char *path, const heed_gguf_keys *keys, heed_gguf_tensor *tensors,
                            int count, heed_tensor_source source, void *context)
{
    heed_gguf_keys header = {0};
    heed_output output = {.descriptor = -1};
    heed_status status = make_header(&header, keys, tensors, count);
    if (!status)
        status = heed_output_open(&output, path);
    if (!status)
        status = write_contents(&output, &header, tensors, count, source, context);
    status = heed_output_close(&output, status);
    heed_gguf_keys_free(&header);
    return status;
}
