/* Arrays for NumPy, format version 1.0.
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#ifndef HEED_BASE_NPY_H
#define HEED_BASE_NPY_H

#include "base/output.h"

/* The header of an array of 32-bit floats in C order; so many numbers must follow, with heed_output_write, as
 * they lie in the memory of a little-endian machine. */
heed_status heed_npy_header(heed_output *output, int rank, const int64_t *shape);

/* A whole file. HEED_INVALID when the sizes overflow, HEED_IO. */
heed_status heed_npy_write(const char *path, int rank, const int64_t *shape, const float *numbers);

enum { HEED_NPY_RANK = 8 };

/* An array as it was read. */
typedef struct heed_npy {
    char kind; /* 'i', 'u' or 'f' */
    int size;  /* bytes of a number */
    int rank;
    int64_t shape[HEED_NPY_RANK], count;
    void *data;
} heed_npy;

/* Whole numbers and floats in C order, little-endian. HEED_IO; HEED_FORMAT, also for a file that ends early.
 */
heed_status heed_npy_read(heed_npy *array, const char *path);
void heed_npy_free(heed_npy *array);
double heed_npy_at(const heed_npy *array, int64_t i);

#endif
