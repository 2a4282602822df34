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

#endif
