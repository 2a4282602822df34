/* Reading NumPy's arrays of plain numbers, versions 1 to 3 of the format. */
#include "base/npy.h"
#include "base/try.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HEADER = 1 << 16 };

/* What stands behind "'key':", or NULL. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    at = at ? strchr(at, ':') : NULL;
    return at ? at + 1 + strspn(at + 1, " ") : NULL;
}

static heed_status read_shape(const char *text, const char *path, heed_npy *array)
{
    size_t bytes = (size_t)array->size;
    array->count = 1;
    if (!text || *text != '(')
        return heed_fail(HEED_FORMAT, "%s: its header says no shape", path);
    for (text++; *text && *text != ')';) {
        char *end;
        errno = 0;
        const long long size = strtoll(text, &end, 10);
        if (end == text || errno || size < 0 || array->rank == HEED_NPY_RANK ||
            __builtin_mul_overflow(bytes, (size_t)size, &bytes))
            return heed_fail(HEED_FORMAT, "%s: its header says no shape that can be read", path);
        array->shape[array->rank++] = size;
        array->count *= size;
        text = end + strspn(end, ", ");
    }
    return HEED_OK;
}

static heed_status read_header(FILE *file, const char *path, heed_npy *array)
{
    unsigned char start[12];
    char *header = NULL;
    size_t length = 0;
    if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0 || start[6] < 1 || start[6] > 3)
        return heed_fail(HEED_FORMAT, "%s: this is no array of NumPy (.npy)", path);
    length = (size_t)start[8] | (size_t)start[9] << 8;
    if (start[6] > 1) {
        if (fread(start + 10, 1, 2, file) != 2)
            return heed_fail(HEED_FORMAT, "%s: it ends in its header", path);
        length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    }
    if (length > MOST_HEADER || !(header = calloc(length + 1, 1)))
        return heed_fail(HEED_FORMAT, "%s: a header of %zu bytes: at most %d", path, length, MOST_HEADER);
    heed_status status = fread(header, 1, length, file) == length
                             ? HEED_OK
                             : heed_fail(HEED_FORMAT, "%s: it ends in its header", path);
    const char *type = status ? NULL : value_of(header, "descr"), *order = value_of(header, "fortran_order");
    if (!status &&
        (!type || type[0] != '\'' || !strchr("<|", type[1]) || !strchr("iuf", type[2]) ||
         !strchr("1248", type[3]) || type[4] != '\'' || (type[2] == 'f' && !strchr("48", type[3]))))
        status = heed_fail(HEED_FORMAT,
                           "%s: its numbers are of a type that is not read: whole numbers or floats of 32 or "
                           "64 bits, little-endian, are",
                           path);
    if (!status && (!order || strncmp(order, "False", 5) != 0))
        status =
            heed_fail(HEED_FORMAT, "%s: it lies column by column (fortran_order), which is not read", path);
    if (!status) {
        array->kind = type[2];
        array->size = type[3] - '0';
        status = read_shape(value_of(header, "shape"), path, array);
    }
    free(header);
    return status;
}

heed_status heed_npy_read(heed_npy *array, const char *path)
{
    *array = (heed_npy){.rank = 0};
    FILE *file = fopen(path, "rb");
    if (!file)
        return heed_fail(HEED_IO, "%s: cannot be read: %s", path, strerror(errno));
    heed_status status = read_header(file, path, array);
    const size_t bytes = (size_t)array->count * (size_t)array->size;
    if (!status && !(array->data = malloc(bytes + 1)))
        status = heed_fail(HEED_NO_MEMORY, "%s: no memory to read %zu bytes", path, bytes);
    const size_t got = status ? 0 : fread(array->data, 1, bytes, file);
    if (!status && got != bytes)
        status = heed_fail(HEED_FORMAT, "%s: it ends early: %zu of %zu bytes", path, got, bytes);
    fclose(file);
    if (status)
        heed_npy_free(array);
    return status;
}

void heed_npy_free(heed_npy *array)
{
    free(array->data);
    array->data = NULL;
}

double heed_npy_at(const heed_npy *array, int64_t i)
{
    const unsigned char *at = (const unsigned char *)array->data + i * array->size;
    uint64_t bits = 0;
    for (int b = 0; b < array->size; b++)
        bits |= (uint64_t)at[b] << (8 * b);
    if (array->kind == 'f') {
        float narrow;
        double wide;
        const uint32_t low = (uint32_t)bits;
        memcpy(&narrow, &low, sizeof narrow);
        memcpy(&wide, &bits, sizeof wide);
        return array->size == 4 ? (double)narrow : wide;
    }
    const int unused = 64 - 8 * array->size;
    return array->kind == 'u' ? (double)bits : (double)((int64_t)(bits << unused) >> unused);
}
