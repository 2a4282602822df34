/* What the build for each instruction set offers for products.
 *
 * Activations lie in tiles of a few rows, interleaved, so that a kernel reads a tile from its first byte to
 * its last: whole [depth / 4][rows][4] signed bytes, scale [depth / 32][rows], sum [depth / 16][rows] of 16
 * whole numbers each; or floats [cols][rows].
 */
#ifndef HEED_TENSOR_KERNELS_TABLE_H
#define HEED_TENSOR_KERNELS_TABLE_H

#include "tensor/matrix.h"

/* Sums of whole numbers over the columns that share a scale of the weights, [depth / group][rows], and those
 * times the activations' scale. NULL where no format asks for groups of that size. */
typedef struct heed_whole_sums {
    int32_t *sum;
    float *shift;
} heed_whole_sums;

/* Second bytes of a block: what its first bytes leave of x is scale low. */
typedef struct heed_deep_block {
    int32_t row, block;
    int32_t sum[2]; /* of each half */
    float scale;
    int8_t low[HEED_WHOLE];
} heed_deep_block;

/* A tile of rows of activations as whole numbers: x = scale whole. */
typedef struct heed_whole_tile {
    int rows;
    int8_t *whole;
    float *scale;
    heed_whole_sums by32, by16;
    heed_deep_block *deep; /* by rows, then blocks; NULL where one byte is enough for all */
    int64_t deeps;
} heed_whole_tile;

/* What a row's result is written to. */
typedef struct heed_product_out {
    float *out; /* of the panel's first column */
    int64_t stride;
    int count;         /* columns that exist, at most 32 */
    const float *bias; /* of the panel's first column, or NULL */
    bool add;
} heed_product_out;

/* Work memory of one thread. */
typedef struct heed_product_work {
    uint8_t *level; /* [HEED_CHUNK][32] */
    float *scale;   /* [HEED_CHUNK / 16][32] */
    float *offset;  /* [HEED_CHUNK / 16][32] */
    float *panel;   /* [HEED_FLOAT_CHUNK][32] */
    float *sum;     /* [HEED_BATCH][32] */
    float *low;     /* [HEED_BATCH][32] sums of second bytes */
    int32_t *init;  /* [depth / 16][tile rows] */
} heed_product_work;

enum {
    HEED_CHUNK =
        640, /* most columns whose levels are taken apart at once: 20 KiB, below the first cache's size */
    HEED_FLOAT_CHUNK = 256, /* the same for floats: 32 KiB, of the second cache */
    HEED_BATCH = 512,       /* most rows whose sums wait while chunks go by */
};

typedef struct heed_product_kernels {
    const char *name; /* "avx512-vnni" */
    int whole_rows;   /* rows of a tile */
    int float_rows;
    void (*to_whole)(const float *x, int64_t stride, int64_t cols, int64_t depth, heed_whole_tile *to);
    /* `cols` rounded up to whole steps, with zeros. */
    void (*to_floats)(const float *x, int64_t stride, int64_t cols, int rows, float *to);
    /* Products of `tiles` tiles with a panel. All but the last tile are full. */
    void (*whole_panel)(const heed_segment *segment, const uint8_t *panel, int64_t depth,
                        const heed_whole_tile *tile, int64_t tiles, const heed_product_work *work,
                        const heed_product_out *out);
    void (*float_panel)(const heed_segment *segment, const uint8_t *panel, int64_t cols, const float *x,
                        int64_t rows, const heed_product_work *work, const heed_product_out *out);
} heed_product_kernels;

#endif
