/* The block formats of GGUF files. A block holds whole numbers, its levels, and what turns them into values:
 *
 *     x[i] = scale[i / group] (level[i] - zero) + offset[i / group]       or       scale[i / group]
 * table[level[i]] scale[g] = d sub_scale[g]        offset[g] = e sub_offset[g]
 *
 * with d and e 16-bit floats of the block and sub-scales whole numbers, 1 where a block has a single group.
 * d sub_scale and scale (level - zero) are exact in fp32 for all linear formats, so that the sum is rounded
 * once however it is computed.
 *
 * A format is one line of the table in block.c and a file in blocks/ that takes its bits apart and puts them
 * together. The layouts are facts of the GGUF format (ggml, public since 2023).
 */
#ifndef HEED_TENSOR_BLOCK_H
#define HEED_TENSOR_BLOCK_H

#include <heed/tensor.h>

enum { HEED_MOST_VALUES = 256, HEED_MOST_GROUPS = 16 };

/* A block taken apart. */
typedef struct heed_block_parts {
    uint16_t d, e;                        /* bits of d in the format's 16-bit type, of e as f16 */
    int8_t sub_scale[HEED_MOST_GROUPS];   /* [values / group] */
    uint8_t sub_offset[HEED_MOST_GROUPS]; /* [values / group], 0 where the format has no offsets */
    uint8_t level[HEED_MOST_VALUES];
} heed_block_parts;

/* How small whole numbers of groups are stored. */
typedef struct heed_sub_range {
    int least, most; /* of sub-scales; both 1: single scale */
    int most_offset; /* of sub-offsets; 0: the format has no offsets */
} heed_sub_range;

typedef struct heed_block_format {
    heed_type type;
    int values, bytes; /* of a block */
    int group;         /* values that share a scale */
    int bits;          /* of a level */
    int zero;
    heed_sub_range sub;
    bool lowers;         /* offsets never lie above 0, being stored as e = -(an f16 of either sign) */
    const int8_t *table; /* [2^bits] or NULL */
    heed_type d_type;    /* HEED_F16; HEED_BF16 where d is a power of two of 8 bits of exponent */
    void (*take)(const uint8_t *block, heed_block_parts *parts);
    void (*put)(const heed_block_parts *parts, uint8_t *block);
} heed_block_format;

/* NULL for types without blocks. */
const heed_block_format *heed_block_format_of(heed_type type);

/* d and e as floats. */
float heed_block_d(const heed_block_format *format, const heed_block_parts *parts);
float heed_block_e(const heed_block_parts *parts);

/* What a level stands for before scale and offset. */
static inline int heed_block_level(const heed_block_format *format, int level)
{
    return format->table ? format->table[level] : level - format->zero;
}

/* A block's values. */
void heed_block_values(const heed_block_format *format, const heed_block_parts *parts, float *x);
void heed_block_load(const heed_block_format *format, const uint8_t *block, float *x);

/* Finds scales and levels of little squared error. A block that holds a NaN or an infinity, or values beyond
 * the range of the scale, reads back as NaN throughout where the format has a NaN. */
void heed_block_store(const heed_block_format *format, const float *x, uint8_t *block);

#define HEED_TAKE_PARTS(name) void heed_##name##_take(const uint8_t *, heed_block_parts *);
#define HEED_PUT_PARTS(name) void heed_##name##_put(const heed_block_parts *, uint8_t *);
#define HEED_BLOCK_NAMES(each)                                                                               \
    each(q8_0) each(q4_0) each(q4_1) each(q5_0) each(q5_1) each(q2_k) each(q3_k) each(q4_k) each(q5_k)       \
        each(q6_k) each(iq4_nl) each(iq4_xs) each(mxfp4)
HEED_BLOCK_NAMES(HEED_TAKE_PARTS)
HEED_BLOCK_NAMES(HEED_PUT_PARTS)

extern const int8_t heed_iq4_table[16], heed_mxfp4_table[16];

#endif
