#include "base/npy.h"
#include "base/try.h"

#include <stdio.h>
#include <string.h>

enum { START = 10 }; /* bytes of magic, version and header length */

heed_status heed_npy_header(heed_output *output, int rank, const int64_t *shape)
{
    char text[640];
    int used = snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    if (rank < 0 || rank > 16)
        return heed_fail(HEED_INVALID, "rank %d: an array has 0 to 16 dimensions", rank);
    for (int i = 0; i < rank; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%lld%s", (long long)shape[i],
                         rank == 1      ? ","
                         : i + 1 < rank ? ", "
                                        : "");
    used += snprintf(text + used, sizeof text - (size_t)used, "), }");
    /* the numbers begin at a multiple of 64 bytes; the header ends with a new line */
    const int length = (START + used + 1 + 63) / 64 * 64 - START;
    const unsigned char start[START] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)length, (unsigned char)(length >> 8)};
    memset(text + used, ' ', (size_t)(length - used - 1));
    text[length - 1] = '\n';
    TRY(heed_output_write(output, start, sizeof start));
    return heed_output_write(output, text, (size_t)length);
}

static heed_status write_all(heed_output *output, int rank, const int64_t *shape, const float *numbers)
{
    size_t bytes = sizeof *numbers;
    TRY(heed_npy_header(output, rank, shape));
    for (int i = 0; i < rank; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, (size_t)shape[i], &bytes))
            return heed_fail(HEED_INVALID, "the sizes of the array multiply to more than 64 bits can count");
    return heed_output_write(output, numbers, bytes);
}

heed_status heed_npy_write(const char *path, int rank, const int64_t *shape, const float *numbers)
{
    heed_output output;
    TRY(heed_output_open(&output, path));
    return heed_output_close(&output, write_all(&output, rank, shape, numbers));
}
