/* Element types: their names and sizes, and dense views. */
#include <heed/tensor.h>
#include <string.h>

typedef struct type_info {
    const char *name;
    int64_t values, bytes; /* of the smallest unit: one value, or one block */
} type_info;

/* clang-format off */
static const type_info types[HEED_TYPES] = {
    [HEED_F32]    = {"f32",      1,   4},
    [HEED_F16]    = {"f16",      1,   2},
    [HEED_BF16]   = {"bf16",     1,   2},
    [HEED_Q8]     = {"q8",      32,  34},
    [HEED_Q4]     = {"q4",      32,  18},
    [HEED_I32]    = {"i32",      1,   4},
    [HEED_U8]     = {"u8",       1,   1},
    [HEED_F64]    = {"f64",      1,   8},
    [HEED_I8]     = {"i8",       1,   1},
    [HEED_I16]    = {"i16",      1,   2},
    [HEED_I64]    = {"i64",      1,   8},
    [HEED_Q4_1]   = {"q4_1",    32,  20},
    [HEED_Q5_0]   = {"q5_0",    32,  22},
    [HEED_Q5_1]   = {"q5_1",    32,  24},
    [HEED_Q2_K]   = {"q2_k",   256,  84},
    [HEED_Q3_K]   = {"q3_k",   256, 110},
    [HEED_Q4_K]   = {"q4_k",   256, 144},
    [HEED_Q5_K]   = {"q5_k",   256, 176},
    [HEED_Q6_K]   = {"q6_k",   256, 210},
    [HEED_IQ4_NL] = {"iq4_nl",  32,  18},
    [HEED_IQ4_XS] = {"iq4_xs", 256, 136},
    [HEED_MXFP4]  = {"mxfp4",   32,  17},
    [HEED_Q2]     = {"q2",      32,  12},
    [HEED_Q3]     = {"q3",      32,  16},
    [HEED_ROTATED_Q8] = {"rq8", 32,  34},
    [HEED_ROTATED_Q4] = {"rq4", 32,  18},
    [HEED_ROTATED_Q3] = {"rq3", 32,  16},
    [HEED_ROTATED_Q2] = {"rq2", 32,  12},
    [HEED_ROTATED_F16] = {"rf16", 1,   2},
    [HEED_CHANNEL_Q4] = {"channel_q4", 32, 16},
    [HEED_CHANNEL_Q2] = {"channel_q2", 32,  8},
    [HEED_PACKED] = {"packed",  32,   1},
};
/* clang-format on */

static bool is_type(heed_type type)
{
    return (unsigned)type < HEED_TYPES;
}

const char *heed_type_name(heed_type type)
{
    return is_type(type) ? types[type].name : NULL;
}

bool heed_type_from_name(const char *name, heed_type *type)
{
    for (int i = 0; name && i < HEED_TYPES; i++)
        if (!strcmp(name, types[i].name)) {
            *type = (heed_type)i;
            return true;
        }
    return false;
}

int64_t heed_type_block(heed_type type)
{
    return is_type(type) ? types[type].values : 0;
}

int64_t heed_type_bytes(heed_type type, int64_t n)
{
    if (!is_type(type) || n < 0)
        return -1;
    const int64_t units = n / types[type].values + (n % types[type].values != 0);
    int64_t bytes;
    return __builtin_mul_overflow(units, types[type].bytes, &bytes) ? -1 : bytes;
}

heed_tensor heed_tensor_dense(void *data, heed_type type, int rank, const int64_t *shape)
{
    heed_tensor tensor = {.data = data, .type = type, .rank = rank};
    int64_t stride = heed_type_bytes(type, 1);
    for (int i = rank - 1; i >= 0; i--) {
        tensor.shape[i] = shape[i];
        tensor.stride[i] = stride;
        /* where another size is 0 the product may overflow, and nobody uses the stride */
        if (i == rank - 1)
            stride = heed_type_bytes(type, shape[i]);
        else if (__builtin_mul_overflow(stride, shape[i], &stride))
            stride = 0;
    }
    return tensor;
}

heed_status heed_tensor_bytes(heed_type type, int rank, const int64_t *shape, size_t *bytes)
{
    if (!is_type(type))
        return heed_fail(HEED_INVALID, "%d is no element type", (int)type);
    if (rank < 0 || rank > HEED_MAX_RANK)
        return heed_fail(HEED_INVALID, "rank %d: a tensor has 0 to %d dimensions", rank, HEED_MAX_RANK);
    int64_t size = heed_type_bytes(type, rank > 0 ? shape[rank - 1] : 1);
    if (size < 0)
        return heed_fail(HEED_INVALID, "dimension %d has size %lld: from 0 to what fits in 64 bits of bytes",
                         rank - 1, (long long)shape[rank - 1]);
    /* A size of 0 anywhere makes the tensor empty, however large the others are; negative ones are wrong
     * anywhere. */
    bool empty = size == 0, overflow = false;
    for (int i = 0; i < rank - 1; i++) {
        if (shape[i] < 0)
            return heed_fail(HEED_INVALID, "dimension %d has size %lld: at least 0", i, (long long)shape[i]);
        empty = empty || shape[i] == 0;
        overflow = overflow || __builtin_mul_overflow(size, shape[i], &size);
    }
    if (!empty && (overflow || (uint64_t)size > SIZE_MAX))
        return heed_fail(HEED_INVALID,
                         "the sizes of the tensor multiply to more bytes than 64 bits can count");
    *bytes = empty ? 0 : (size_t)size;
    return HEED_OK;
}
