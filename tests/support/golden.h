/* A small reader of safetensors files for the tests, apart from the library's. */
#ifndef HEED_TEST_GOLDEN_H
#define HEED_TEST_GOLDEN_H

#include <heed/tensor.h>

typedef struct golden_tensor {
    char name[64];
    char type[8]; /* "F32", "F64", ... */
    int rank;
    int64_t shape[4], count;
    const void *data;
} golden_tensor;

typedef struct golden {
    char spec[256];
    golden_tensor tensor[64];
    int tensors;
    char *bytes;
} golden;

/* Reads a whole file; false when it is no safetensors file. */
bool golden_read(golden *g, const char *path);
void golden_free(golden *g);
const golden_tensor *golden_find(const golden *g, const char *name);
/* The numbers of an F32 or F64 tensor; the caller frees. NULL when it is absent. */
double *golden_numbers(const golden *g, const char *name);

#endif
