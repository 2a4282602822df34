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

/** Element types. The block types pack 32 or 256 values of the last dimension (the last block may be short).
 */
typedef enum heed_type {
    HEED_F32 = 0,
    HEED_F16,
    HEED_BF16,
    HEED_Q8, /**< blocks of 34 bytes: f16 scale max|x|/127, then 32 signed bytes */
    HEED_Q4, /**< blocks of 18 bytes: f16 scale x_max/-8, then 16 bytes; value (nibble - 8) scale, low nibbles
                first */
    HEED_I32,
    HEED_U8,
    HEED_F64,
    HEED_I8,
    HEED_I16,
    HEED_I64,
    /* The other block types of GGUF files, with that format's layout. Q8_0 is HEED_Q8, Q4_0 is HEED_Q4. */
    HEED_Q4_1,   /**< 32 values, 20 bytes: f16 scale, f16 offset, 16 bytes of nibbles */
    HEED_Q5_0,   /**< 32 values, 22 bytes */
    HEED_Q5_1,   /**< 32 values, 24 bytes */
    HEED_Q2_K,   /**< 256 values, 84 bytes */
    HEED_Q3_K,   /**< 256 values, 110 bytes */
    HEED_Q4_K,   /**< 256 values, 144 bytes */
    HEED_Q5_K,   /**< 256 values, 176 bytes */
    HEED_Q6_K,   /**< 256 values, 210 bytes */
    HEED_IQ4_NL, /**< 32 values, 18 bytes, levels at unequal distances */
    HEED_IQ4_XS, /**< 256 values, 136 bytes, the same levels */
    HEED_MXFP4,  /**< 32 values, 17 bytes: a power of two, then 4-bit floats. Has no NaN. */
    /* For caches: few levels between a scale and a minimum; and the cache types with rows rotated by a
     * Walsh-Hadamard matrix before they are stored, which heed_load undoes. */
    HEED_Q2, /**< 32 values, 12 bytes: f16 scale, f16 minimum, 8 bytes of four levels each */
    HEED_Q3, /**< 32 values, 16 bytes: the same, and 4 bytes with the third bit of each level */
    HEED_ROTATED_Q8,
    HEED_ROTATED_Q4,
    HEED_ROTATED_Q3,
    HEED_ROTATED_Q2,
    /* Keys of a page that is quantised as a whole, by channel: see heed_channel_bytes. The rows hold levels
     * only, so they mean nothing without their page, and heed_load and heed_store do not take them. */
    HEED_CHANNEL_Q4,
    HEED_CHANNEL_Q2,
    HEED_ROTATED_F16, /**< for caches, beside rotated blocks */
    /* Rows of a page that is stored as a whole, in a way that the page itself says: single rows mean nothing
     * without it, and heed_load and heed_store do not take them. */
    HEED_PACKED,
    HEED_TYPES
} heed_type;

#define HEED_BLOCK 32 /**< values in a block of HEED_Q8, HEED_Q4, HEED_Q3 or HEED_Q2 */
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

/** Pages may differ in how they store keys and values: a page table's entry holds a grade above its page
 * number. Grade 0 is k_type and v_type in the pools k and v; the others come with types and pools of their
 * own. Keys may also be quantised by channel there (HEED_CHANNEL_Q4, HEED_CHANNEL_Q2). */
#define HEED_MOST_GRADES 7  /**< beside grade 0 */
#define HEED_GRADE_SHIFT 27 /**< entry = grade << HEED_GRADE_SHIFT | page number */

typedef struct heed_grade_types {
    heed_type k, v;
} heed_grade_types;

/** Lower case: "f32", "q8", "q4_k", ... */
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

/** Values in a block of @p type, 1 for types without blocks; 0 for no type. */
HEED_API int64_t heed_type_block(heed_type type);

/** Writes @p n floats as values of @p type, rounding to nearest even. HEED_Q8 and HEED_Q4 take their scale
 * from the largest magnitude of a block, the other block types search for the scales of least squared error.
 * The rotated types need a whole row at once: n is the length over which it is rotated. */
HEED_API void heed_store(heed_type type, const float *from, void *to, int64_t n);

/** Reads @p n consecutive values of @p type (one row, from its start) as floats. */
HEED_API void heed_load(heed_type type, const void *from, float *to, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
