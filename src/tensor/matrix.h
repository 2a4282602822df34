/* Packed weight matrices: panels of 32 output rows, laid out so that a vector of bytes holds 4 neighbouring
 * columns of many rows and a kernel reads a panel from its first byte to its last.
 *
 * A panel of a block format is a row of spans, 32 or 256 columns each (the format's block):
 *
 *     d [32] u16, e [32] u16 where the format has offsets,
 *     sub_scale [groups][32] i8, sub_offset [groups][32] u8 where groups have their own,
 *     levels of the first 32 columns, of the next 32, ...
 *
 * Levels of 32 rows and 32 columns are bytes V[step][row][4], step = column / 4, of which a format's bits are
 * kept in planes:
 *
 *     8 bits   V as it is                                                                       1024 bytes
 *     nibbles  byte j of step s: V[s] byte j in the low half, V[s] byte 64 + j in the high one   512 bytes
 *     pairs    byte j of vector 2 h + s / 4: 2 bits of V[s] byte 64 h + j, at bit 2 (s % 4)      256 bytes
 *     singles  byte j of vector h: 1 bit of V[s] byte 64 h + j, at bit s                         128 bytes
 *
 * 5-bit levels are nibbles, then singles (bit 4); 6-bit ones nibbles, then pairs (bits 4, 5); 3-bit ones
 * pairs, then singles (bit 2). A panel of floats is [cols][32] of its type.
 */
#ifndef HEED_TENSOR_MATRIX_H
#define HEED_TENSOR_MATRIX_H

#include "tensor/block.h"
#include "tensor/product.h"

enum {
    HEED_PANEL = 32, /* output rows of a panel */
    HEED_WHOLE = 32, /* columns that share a scale of the activations */
    HEED_STEP = 4,   /* columns of a vector of bytes */
};

typedef struct heed_panel_layout {
    const heed_block_format *format;
    int span, groups;                        /* columns, and groups of them, in a span */
    size_t e, sub_scale, sub_offset, levels; /* where they begin in a span; d stands first */
    size_t level_bytes;                      /* of 32 columns */
    size_t bytes;                            /* of a span */
} heed_panel_layout;

heed_panel_layout heed_panel_layout_of(const heed_block_format *format);

/* Rows of one tensor. */
typedef struct heed_segment {
    heed_type type;           /* as packed */
    heed_panel_layout layout; /* of block formats */
    int64_t row0, rows, panel0, panels;
    size_t panel_bytes;
    uint8_t *data;
} heed_segment;

struct heed_product_kernels;

struct heed_matrix {
    int64_t rows, cols, panels;
    int64_t depth;       /* cols rounded up to whole spans */
    int64_t float_depth; /* cols rounded up to whole steps, for products of floats */
    heed_product_kind kind;
    const struct heed_product_kernels *kernels;
    int segments;
    bool any_whole, any_float; /* products of whole numbers, of floats */
    bool any_16;               /* whole numbers with a scale for 16 columns */
    size_t bytes;
    bool pooled; /* the segments' data belongs to a pool */
    char name[96];
    heed_segment segment[];
};

/* Whether the products of a segment are those of whole numbers. */
static inline bool heed_segment_whole(const struct heed_matrix *matrix, const heed_segment *segment)
{
    return segment->layout.format && matrix->kind == HEED_PRODUCT_FAST;
}

/* Memory for weights, of the pool or, where that is NULL, to be freed with free(); NULL when there is none.
 */
void *heed_matrix_pool_take(heed_matrix_pool *pool, size_t bytes);
/* These bytes of the weights were packed. */
void heed_matrix_pool_tell(const heed_matrix_pool *pool, const void *data, size_t bytes);

/* Packs rows of one tensor, from `row` on, at most 32, into a panel of `depth` columns; missing rows are
 * zeros. */
void heed_panel_pack_blocks(const heed_segment *segment, const heed_tensor *weights, int64_t row,
                            int64_t depth, uint8_t *panel);
void heed_panel_pack_floats(const heed_segment *segment, const heed_tensor *weights, int64_t row,
                            uint8_t *panel);

/* Row r of a panel as floats. */
void heed_panel_row(const heed_segment *segment, const uint8_t *panel, int r, int64_t cols, float *to);

#endif
