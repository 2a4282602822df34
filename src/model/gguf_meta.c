/* Keys and values of a GGUF file. */
#include "base/try.h"
#include "model/gguf_reader.h"

#include <stdio.h>
#include <string.h>

#define DEEPEST 4 /* arrays within arrays; known models have none */

static const int value_bytes[HEED_GGUF_VALUES] = {
    [HEED_GGUF_U8] = 1,  [HEED_GGUF_I8] = 1,  [HEED_GGUF_U16] = 2, [HEED_GGUF_I16] = 2,
    [HEED_GGUF_U32] = 4, [HEED_GGUF_I32] = 4, [HEED_GGUF_F32] = 4, [HEED_GGUF_BOOL] = 1,
    [HEED_GGUF_U64] = 8, [HEED_GGUF_I64] = 8, [HEED_GGUF_F64] = 8};

static const heed_meta_kind single_kind[HEED_GGUF_VALUES] = {
    [HEED_GGUF_U8] = HEED_META_INT,    [HEED_GGUF_I8] = HEED_META_INT,    [HEED_GGUF_U16] = HEED_META_INT,
    [HEED_GGUF_I16] = HEED_META_INT,   [HEED_GGUF_U32] = HEED_META_INT,   [HEED_GGUF_I32] = HEED_META_INT,
    [HEED_GGUF_F32] = HEED_META_FLOAT, [HEED_GGUF_BOOL] = HEED_META_BOOL, [HEED_GGUF_TEXT] = HEED_META_TEXT,
    [HEED_GGUF_U64] = HEED_META_INT,   [HEED_GGUF_I64] = HEED_META_INT,   [HEED_GGUF_F64] = HEED_META_FLOAT};

static bool is_float(uint32_t type)
{
    return type == HEED_GGUF_F32 || type == HEED_GGUF_F64;
}

static uint64_t bits_at(const unsigned char *at, int bytes)
{
    uint64_t bits = 0;
    for (int i = bytes - 1; i >= 0; i--)
        bits = bits << 8 | at[i];
    return bits;
}

/* Numbers of 64 bits without sign that are above 2^63 - 1 become that. */
static int64_t whole_at(const unsigned char *at, uint32_t type)
{
    const uint64_t bits = bits_at(at, value_bytes[type]);
    switch (type) {
    case HEED_GGUF_I8:
        return (int8_t)bits;
    case HEED_GGUF_I16:
        return (int16_t)bits;
    case HEED_GGUF_I32:
        return (int32_t)bits;
    case HEED_GGUF_I64:
        return (int64_t)bits;
    case HEED_GGUF_BOOL:
        return bits != 0;
    default:
        return bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
    }
}

static double number_at(const unsigned char *at, uint32_t type)
{
    const uint64_t bits = bits_at(at, value_bytes[type]);
    const uint32_t half = (uint32_t)bits;
    double number;
    float small;
    if (type == HEED_GGUF_F64) {
        memcpy(&number, &bits, sizeof number);
        return number;
    }
    memcpy(&small, &half, sizeof small);
    return small;
}

static heed_status read_type(heed_gguf_reader *reader, uint32_t *type)
{
    TRY(heed_gguf_u32(reader, type));
    if (*type < HEED_GGUF_VALUES)
        return HEED_OK;
    return heed_fail(HEED_FORMAT, "%s: %s has a value of unknown type %u: from 0 to %d", reader->file->shown,
                     reader->where, *type, HEED_GGUF_VALUES - 1);
}

/* The type and the number of entries of an array, for which the file has room. */
static heed_status read_array_start(heed_gguf_reader *reader, uint32_t *type, uint64_t *count)
{
    TRY(read_type(reader, type));
    TRY(heed_gguf_u64(reader, count));
    const uint64_t least = *type == HEED_GGUF_TEXT    ? 8
                           : *type == HEED_GGUF_ARRAY ? 12
                                                      : (uint64_t)value_bytes[*type];
    const uint64_t left = reader->size - reader->at;
    if (*count <= left / least)
        return HEED_OK;
    return heed_fail(
        HEED_FORMAT, "%s: truncated: %s has an array of %llu entries, but only %llu bytes are left",
        reader->file->shown, reader->where, (unsigned long long)*count, (unsigned long long)left);
}

/* Moves on behind an array without keeping it. */
static heed_status skip_array(heed_gguf_reader *reader, int depth)
{
    uint32_t type;
    uint64_t count, size;
    const char *text;
    if (depth > DEEPEST)
        return heed_fail(HEED_FORMAT, "%s: %s has arrays within arrays more than %d deep",
                         reader->file->shown, reader->where, DEEPEST);
    TRY(read_array_start(reader, &type, &count));
    if (value_bytes[type])
        return heed_gguf_skip(reader, count * (uint64_t)value_bytes[type]);
    for (uint64_t i = 0; i < count; i++) {
        if (type == HEED_GGUF_TEXT)
            TRY(heed_gguf_text(reader, &text, &size));
        else
            TRY(skip_array(reader, depth + 1));
    }
    return HEED_OK;
}

/* All texts of an array in one piece of memory, each with a zero behind it. */
static heed_status read_texts(heed_gguf_reader *reader, heed_meta *meta)
{
    const uint64_t begin = reader->at;
    const char *text = NULL;
    uint64_t size = 0;
    for (int64_t i = 0; i < meta->size; i++) {
        TRY(heed_gguf_text(reader, &text, &size));
        if (size > INT32_MAX)
            return heed_fail(HEED_FORMAT, "%s: %s has a text of %llu bytes: at most 2^31 - 1 in an array",
                             reader->file->shown, reader->where, (unsigned long long)size);
    }
    /* Each length takes 8 bytes in the file and its zero one here, so the same size is more than enough. */
    char *copy = heed_file_take(reader->file, 1, (size_t)(reader->at - begin));
    const char **texts = heed_file_take(reader->file, (size_t)meta->size + 1, sizeof *texts);
    int32_t *sizes = heed_file_take(reader->file, (size_t)meta->size + 1, sizeof *sizes);
    if (!copy || !texts || !sizes)
        return HEED_NO_MEMORY;
    reader->at = begin;
    for (int64_t i = 0; i < meta->size; i++) {
        TRY(heed_gguf_text(reader, &text, &size));
        memcpy(copy, text, (size_t)size);
        texts[i] = copy;
        sizes[i] = (int32_t)size;
        copy += size + 1;
    }
    meta->texts = texts;
    meta->text_size = sizes;
    return HEED_OK;
}

static heed_status read_numbers(heed_gguf_reader *reader, heed_meta *meta, uint32_t type)
{
    const unsigned char *at = reader->data + reader->at;
    const size_t count = (size_t)meta->size;
    TRY(heed_gguf_skip(reader, (uint64_t)count * (uint64_t)value_bytes[type]));
    if (is_float(type)) {
        float *numbers = heed_file_take(reader->file, count + 1, sizeof *numbers);
        if (!numbers)
            return HEED_NO_MEMORY;
        for (size_t i = 0; i < count; i++)
            numbers[i] = (float)number_at(at + i * (size_t)value_bytes[type], type);
        meta->numbers = numbers;
        return HEED_OK;
    }
    int64_t *wholes = heed_file_take(reader->file, count + 1, sizeof *wholes);
    if (!wholes)
        return HEED_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        wholes[i] = whole_at(at + i * (size_t)value_bytes[type], type);
    meta->wholes = wholes;
    return HEED_OK;
}

static heed_status read_array(heed_gguf_reader *reader, heed_meta *meta)
{
    const uint64_t begin = reader->at;
    uint32_t type;
    uint64_t count;
    TRY(read_array_start(reader, &type, &count));
    meta->size = (int64_t)count; /* no more than the bytes of the file */
    if (type == HEED_GGUF_ARRAY) {
        reader->at = begin;
        return skip_array(reader, 1);
    }
    meta->kind = type == HEED_GGUF_TEXT ? HEED_META_TEXTS
                 : is_float(type)       ? HEED_META_FLOATS
                                        : HEED_META_INTS;
    return type == HEED_GGUF_TEXT ? read_texts(reader, meta) : read_numbers(reader, meta, type);
}

static heed_status read_value(heed_gguf_reader *reader, heed_meta *meta)
{
    uint32_t type;
    TRY(read_type(reader, &type));
    meta->kind = single_kind[type];
    if (type == HEED_GGUF_ARRAY)
        return read_array(reader, meta);
    if (type == HEED_GGUF_TEXT) {
        const char *text = NULL;
        uint64_t size = 0;
        TRY(heed_gguf_text(reader, &text, &size));
        meta->size = (int64_t)size;
        meta->text = heed_file_copy(reader->file, text, (size_t)size);
        return meta->text ? HEED_OK : HEED_NO_MEMORY;
    }
    TRY(heed_gguf_skip(reader, (uint64_t)value_bytes[type]));
    const unsigned char *at = reader->data + reader->at - value_bytes[type];
    if (is_float(type)) {
        meta->number = number_at(at, type);
    } else {
        meta->whole = whole_at(at, type);
        meta->number = (double)meta->whole;
    }
    return HEED_OK;
}

heed_status heed_gguf_metadata(heed_gguf_reader *reader, uint64_t count)
{
    heed_model_file *file = reader->file;
    char name[100];
    file->meta = heed_file_take(file, (size_t)count + 1, sizeof *file->meta);
    file->raw_meta = heed_file_take(file, (size_t)count + 1, sizeof *file->raw_meta);
    if (!file->meta || !file->raw_meta)
        return HEED_NO_MEMORY;
    for (int i = 0; i < (int)count; i++) {
        heed_meta *meta = &file->meta[i];
        snprintf(reader->where, sizeof reader->where, "key %d", i);
        TRY(heed_gguf_name(reader, &meta->key));
        snprintf(reader->where, sizeof reader->where, "key %s", heed_printable(meta->key, name, sizeof name));
        const uint64_t begin = reader->at;
        TRY(read_value(reader, meta));
        file->raw_meta[i] = (heed_raw_meta){reader->data + begin, reader->at - begin};
        file->metas++;
    }
    return HEED_OK;
}
