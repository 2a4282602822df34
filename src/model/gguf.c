/* The frame of a GGUF file: its start, and the list of its tensors. */
#include "base/try.h"
#include "model/gguf_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_META_BYTES (8 + 4 + 1)       /* an empty key, a type, a byte */
#define LEAST_TENSOR_BYTES (8 + 4 + 4 + 8) /* an empty name, no dimensions, a type, an offset */

static uint64_t little_endian(const unsigned char *bytes, int count)
{
    uint64_t value = 0;
    for (int i = count - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

heed_status heed_gguf_truncated(const heed_gguf_reader *reader)
{
    return heed_fail(HEED_FORMAT, "%s: truncated: the file ends at byte %llu, within %s", reader->file->shown,
                     (unsigned long long)reader->size, reader->where);
}

heed_status heed_gguf_skip(heed_gguf_reader *reader, uint64_t bytes)
{
    if (bytes > reader->size - reader->at)
        return heed_gguf_truncated(reader);
    reader->at += bytes;
    return HEED_OK;
}

heed_status heed_gguf_u32(heed_gguf_reader *reader, uint32_t *value)
{
    TRY(heed_gguf_skip(reader, 4));
    *value = (uint32_t)little_endian(reader->data + reader->at - 4, 4);
    return HEED_OK;
}

heed_status heed_gguf_u64(heed_gguf_reader *reader, uint64_t *value)
{
    TRY(heed_gguf_skip(reader, 8));
    *value = little_endian(reader->data + reader->at - 8, 8);
    return HEED_OK;
}

heed_status heed_gguf_text(heed_gguf_reader *reader, const char **text, uint64_t *size)
{
    TRY(heed_gguf_u64(reader, size));
    if (*size > reader->size - reader->at)
        return heed_fail(HEED_FORMAT, "%s: truncated: %s has a text of %llu bytes, but only %llu are left",
                         reader->file->shown, reader->where, (unsigned long long)*size,
                         (unsigned long long)(reader->size - reader->at));
    *text = (const char *)reader->data + reader->at;
    return heed_gguf_skip(reader, *size);
}

heed_status heed_gguf_name(heed_gguf_reader *reader, const char **name)
{
    const char *text = NULL;
    uint64_t size = 0;
    TRY(heed_gguf_text(reader, &text, &size));
    if (memchr(text, 0, (size_t)size))
        return heed_fail(HEED_FORMAT, "%s: the name of %s holds a zero byte", reader->file->shown,
                         reader->where);
    *name = heed_file_copy(reader->file, text, (size_t)size);
    return *name ? HEED_OK : HEED_NO_MEMORY;
}

/* Reads rank and shape, outermost first, of a tensor of this type (NULL: unknown), and counts its bytes. */
static heed_status read_shape(heed_gguf_reader *reader, heed_model_tensor *tensor)
{
    uint32_t rank;
    TRY(heed_gguf_u32(reader, &rank));
    if (rank > HEED_MAX_RANK)
        return heed_fail(HEED_FORMAT, "%s: %s has %u dimensions: from 0 to %d", reader->file->shown,
                         reader->where, rank, HEED_MAX_RANK);
    tensor->rank = (int)rank;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        uint64_t size;
        TRY(heed_gguf_u64(reader, &size));
        if (size > INT64_MAX)
            return heed_fail(HEED_FORMAT, "%s: %s has a dimension of size %llu: at most 2^63 - 1",
                             reader->file->shown, reader->where, (unsigned long long)size);
        tensor->shape[i] = (int64_t)size;
    }
    return HEED_OK;
}

static heed_status count_bytes(heed_gguf_reader *reader, heed_model_tensor *tensor,
                               const heed_gguf_type *type)
{
    const int64_t row = tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1;
    uint64_t bytes;
    if (row % type->values != 0)
        return heed_fail(HEED_FORMAT, "%s: %s has rows of %lld numbers: %s needs multiples of %lld",
                         reader->file->shown, reader->where, (long long)row, type->name,
                         (long long)type->values);
    bool overflow = __builtin_mul_overflow((uint64_t)(row / type->values), (uint64_t)type->bytes, &bytes);
    for (int i = 0; i < tensor->rank - 1; i++)
        overflow = overflow || __builtin_mul_overflow(bytes, (uint64_t)tensor->shape[i], &bytes);
    if (overflow || bytes > SIZE_MAX)
        return heed_fail(HEED_FORMAT, "%s: the sizes of %s multiply to more bytes than 64 bits can count",
                         reader->file->shown, reader->where);
    tensor->bytes = (size_t)bytes;
    return HEED_OK;
}

/* What the list of tensors says of one. */
typedef struct tensor_entry {
    uint64_t offset; /* from the begin of the data */
    const heed_gguf_type *type;
    heed_model_tensor *tensor;
} tensor_entry;

static heed_status read_tensor(heed_gguf_reader *reader, int i, tensor_entry *entry)
{
    heed_model_tensor *tensor = entry->tensor;
    uint32_t number;
    char name[100];
    snprintf(reader->where, sizeof reader->where, "tensor %d", i);
    TRY(heed_gguf_name(reader, &tensor->name));
    snprintf(reader->where, sizeof reader->where, "tensor %s",
             heed_printable(tensor->name, name, sizeof name));
    TRY(read_shape(reader, tensor));
    TRY(heed_gguf_u32(reader, &number));
    TRY(heed_gguf_u64(reader, &entry->offset));
    entry->type = heed_gguf_type_of(number);
    if (entry->type) {
        tensor->dtype = entry->type->name;
        return count_bytes(reader, tensor, entry->type);
    }
    char *dtype = heed_file_take(reader->file, 1, 24);
    if (!dtype)
        return HEED_NO_MEMORY;
    snprintf(dtype, 24, "type %u", number);
    tensor->dtype = dtype;
    return HEED_OK;
}

static int compare_offset(const void *a, const void *b)
{
    const tensor_entry *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->tensor->bytes > y->tensor->bytes) -
           (x->tensor->bytes < y->tensor->bytes); /* empty ones first */
}

/* The bytes from here to the next tensor or the end of the file: the only thing known of the size of an
 * unknown type. */
static void size_unknown(tensor_entry *entry, int count, uint64_t available)
{
    for (int i = 0; i < count; i++) {
        const uint64_t end = i + 1 < count ? entry[i + 1].offset : available;
        if (!entry[i].type && end > entry[i].offset)
            entry[i].tensor->bytes = (size_t)(end - entry[i].offset);
    }
}

/* Every tensor lies within the file, aligned and apart from the others. `entry` is sorted by offset. */
static heed_status check_layout(const heed_gguf_reader *reader, const tensor_entry *entry, int count,
                                uint64_t alignment, uint64_t begin)
{
    const char *shown = reader->file->shown;
    uint64_t end = 0, whole = begin;
    const tensor_entry *first = NULL; /* that does not fit */
    char name[80], before[80];
    for (int i = 0; i < count; i++) {
        const heed_model_tensor *tensor = entry[i].tensor;
        heed_printable(tensor->name, name, sizeof name);
        if (entry[i].offset % alignment != 0)
            return heed_fail(HEED_FORMAT,
                             "%s: tensor %s begins at byte %llu of the data: a multiple of %llu is "
                             "needed",
                             shown, name, (unsigned long long)entry[i].offset, (unsigned long long)alignment);
        if (tensor->bytes > 0 && entry[i].offset < end)
            return heed_fail(HEED_FORMAT, "%s: tensor %s overlaps tensor %s", shown, name,
                             heed_printable(entry[i - 1].tensor->name, before, sizeof before));
        if (__builtin_add_overflow(entry[i].offset, tensor->bytes, &end) ||
            __builtin_add_overflow(begin, end, &whole))
            return heed_fail(HEED_FORMAT,
                             "%s: tensor %s begins at byte %llu of the data, where no file reaches", shown,
                             name, (unsigned long long)entry[i].offset);
        if (!first && whole > reader->size)
            first = &entry[i];
    }
    if (!first)
        return HEED_OK;
    return heed_fail(
        HEED_FORMAT,
        "%s: truncated: it should have %llu bytes and has %llu; the first tensor that is not whole is "
        "%s, from byte %llu to %llu",
        shown, (unsigned long long)whole, (unsigned long long)reader->size,
        heed_printable(first->tensor->name, name, sizeof name), (unsigned long long)(begin + first->offset),
        (unsigned long long)(begin + first->offset + first->tensor->bytes));
}

static heed_status find_alignment(const heed_model_file *file, uint64_t *alignment)
{
    *alignment = HEED_GGUF_ALIGNMENT;
    for (int i = 0; i < file->metas; i++) {
        const heed_meta *meta = &file->meta[i];
        if (strcmp(meta->key, "general.alignment"))
            continue;
        if (meta->kind != HEED_META_INT || meta->whole < 8 || meta->whole > 1 << 30 ||
            (meta->whole & (meta->whole - 1)) != 0)
            return heed_fail(HEED_FORMAT,
                             "%s: general.alignment is %lld: a power of two from 8 to 2^30 is needed",
                             file->shown, (long long)meta->whole);
        *alignment = (uint64_t)meta->whole;
    }
    return HEED_OK;
}

static heed_status place_tensors(heed_gguf_reader *reader, tensor_entry *entry, int count)
{
    uint64_t alignment;
    TRY(find_alignment(reader->file, &alignment));
    /* No overflow: `at` is below the size of the file. */
    const uint64_t begin = (reader->at + alignment - 1) / alignment * alignment;
    if (count > 1)
        qsort(entry, (size_t)count, sizeof *entry, compare_offset);
    size_unknown(entry, count, reader->size > begin ? reader->size - begin : 0);
    TRY(check_layout(reader, entry, count, alignment, begin));
    for (int i = 0; i < count; i++) {
        /* an empty tensor may stand at the padding that a file without data lacks */
        const uint64_t at = entry[i].tensor->bytes ? begin + entry[i].offset : 0;
        TRY(heed_file_view(reader->file, entry[i].tensor,
                           entry[i].type ? heed_gguf_element(entry[i].type) : HEED_TYPES, reader->data + at));
    }
    return HEED_OK;
}

static heed_status read_tensors(heed_gguf_reader *reader, uint64_t count)
{
    heed_model_file *file = reader->file;
    file->tensor = heed_file_take(file, (size_t)count + 1, sizeof *file->tensor);
    tensor_entry *entry = calloc((size_t)count + 1, sizeof *entry);
    heed_status status = file->tensor && entry ? HEED_OK
                                               : heed_fail(HEED_NO_MEMORY, "%s: no memory for %llu tensors",
                                                           file->shown, (unsigned long long)count);
    for (int i = 0; i < (int)count && !status; i++) {
        entry[i].tensor = &file->tensor[i];
        status = read_tensor(reader, i, &entry[i]);
        file->tensors += !status;
    }
    if (!status)
        status = place_tensors(reader, entry, (int)count);
    free(entry);
    return status;
}

/* A count that the rest of the file can hold. */
static heed_status check_count(const heed_gguf_reader *reader, uint64_t count, uint64_t least,
                               const char *what)
{
    const uint64_t left = reader->size - reader->at;
    if (count <= left / least && count <= INT32_MAX)
        return HEED_OK;
    return heed_fail(HEED_FORMAT, "%s: it announces %llu %s, for which its %llu bytes have no room",
                     reader->file->shown, (unsigned long long)count, what, (unsigned long long)reader->size);
}

static heed_status check_version(const heed_gguf_reader *reader, uint32_t version)
{
    if (version == 2 || version == 3)
        return HEED_OK;
    if (version == __builtin_bswap32(2) || version == __builtin_bswap32(3))
        return heed_fail(HEED_UNSUPPORTED, "%s: its numbers are big-endian: little-endian is needed",
                         reader->file->shown);
    return heed_fail(HEED_UNSUPPORTED, "%s: version %u of GGUF: 2 or 3 is needed", reader->file->shown,
                     version);
}

bool heed_is_gguf(const unsigned char *data, uint64_t size)
{
    return size >= 4 && !memcmp(data, HEED_GGUF_MAGIC, 4);
}

heed_status heed_gguf_read(heed_model_file *file)
{
    heed_gguf_reader reader = {
        .file = file, .data = file->mapping.data, .size = file->mapping.size, .at = 4, .where = "its start"};
    uint32_t version;
    uint64_t tensors, metas;
    TRY(heed_gguf_u32(&reader, &version));
    TRY(check_version(&reader, version));
    TRY(heed_gguf_u64(&reader, &tensors));
    TRY(heed_gguf_u64(&reader, &metas));
    TRY(check_count(&reader, tensors, LEAST_TENSOR_BYTES, "tensors"));
    TRY(check_count(&reader, metas, LEAST_META_BYTES, "keys"));
    TRY(heed_gguf_metadata(&reader, metas));
    TRY(check_count(&reader, tensors, LEAST_TENSOR_BYTES, "tensors"));
    TRY(read_tensors(&reader, tensors));
    return heed_file_index(file);
}

heed_status heed_gguf_parse(heed_model_file **file, const void *data, size_t size, const char *name)
{
    *file = NULL;
    heed_model_file *made = heed_model_file_new(name, HEED_FORMAT_GGUF);
    if (!made)
        return HEED_NO_MEMORY;
    made->mapping = (heed_mapping){data, size};
    const heed_status status =
        heed_is_gguf(data, size)
            ? heed_gguf_read(made)
            : heed_fail(HEED_FORMAT, "%s: not a GGUF file: it does not begin with GGUF", made->shown);
    if (status)
        heed_model_file_close(made);
    else
        *file = made;
    return status;
}
