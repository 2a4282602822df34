/**
 * @file tensor.h
 * Views on numbers in memory. A tensor never owns its data.
 */
#ifndef HEED_TENSOR_H
#define HEED_TENSOR_H

#include <heed/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Element types. The block types pack 32 values of the last dimension (the last block may be short). */
typedef enum heed_type {
    HEED_F32 = 0,
    HEED_F16,
    HEED_BF16,
    HEED_Q8, /**< blocks of 34 bytes: f16 scale max|x|/127, then 32 signed bytes */
    HEED_Q4, /**< blocks of 18 bytes: f16 scale x_max/-8, then 16 bytes; value (nibble - 8) scale, low nibbles
                first */
    HEED_I32,
    HEED_U8,
    HEED_TYPES
} heed_type;

#define HEED_BLOCK 32 /**< values in a block of HEED_Q8 or HEED_Q4 */
#define HEED_MAX_RANK 4

/**
 * A view: element (i0, i1, ...) lies at data + i0 stride[0] + i1 stride[1] + ... with strides in bytes. For
 * block types the last dimension is contiguous blocks and its stride is ignored. data == NULL means absent.
 */
typedef struct heed_tensor {
    void *data;
    heed_type type;
    int rank;
    int64_t shape[HEED_MAX_RANK];
    int64_t stride[HEED_MAX_RANK];
} heed_tensor;

/** Name as in safetensors files, lower case: "f32", "q8", ... */
HEED_API const char *heed_type_name(heed_type type);

/** Finds a type by name; false when there is none. */
HEED_API bool heed_type_from_name(const char *name, heed_type *type);

/** Bytes that @p n values of the last dimension take, whole blocks for block types; -1 on overflow. */
HEED_API int64_t heed_type_bytes(heed_type type, int64_t n);

/** A dense row-major view on @p data. */
HEED_API heed_tensor heed_tensor_dense(void *data, heed_type type, int rank, const int64_t *shape);

/** Bytes of a dense tensor of this type and shape; HEED_INVALID when the product overflows or a size is
 * negative. */
HEED_API heed_status heed_tensor_bytes(heed_type type, int rank, const int64_t *shape, size_t *bytes);

/** Writes @p n floats as values of @p type (quantising block types as FORMS of each type say; rounding to
 * nearest even). */
HEED_API void heed_store(heed_type type, const float *from, void *to, int64_t n);

/** Reads @p n consecutive values of @p type (one row, from its start) as floats. */
HEED_API void heed_load(heed_type type, const void *from, float *to, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
