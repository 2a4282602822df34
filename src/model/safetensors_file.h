/* An open safetensors file, as the parts of the reader share it. */
#ifndef HEED_MODEL_SAFETENSORS_FILE_H
#define HEED_MODEL_SAFETENSORS_FILE_H

#include "model/safetensors.h"

struct heed_safetensors {
    char *path;
    int descriptor;            /* -1 when the file lies in memory */
    const unsigned char *data; /* the file in memory, or NULL */
    uint64_t size, data_begin;
    heed_file_tensor *tensor;
    int count;
    int *by_name; /* [count] indices of tensors, sorted by name */
};

/* Fills in the tensors from the header, which ends with a zero byte at header[size]; `size` and `data_begin`
 * of the file are set. What was filled in before an error is freed by heed_safetensors_close. */
heed_status heed_safetensors_header(heed_safetensors *file, const char *header, size_t size);

#endif
