/* The parts of the product kernels, as table.c puts them together. */
#ifndef HEED_TENSOR_KERNELS_PARTS_H
#define HEED_TENSOR_KERNELS_PARTS_H

#include "tensor/kernels/whole.h"

#define heed_product_kernel_table HEED_LOCAL(heed_product_kernel_table)
#define heed_whole_few HEED_LOCAL(heed_whole_few)
#define heed_whole_few_low HEED_LOCAL(heed_whole_few_low)
#define heed_whole_tile_low HEED_LOCAL(heed_whole_tile_low)
#define heed_whole_unpack HEED_LOCAL(heed_whole_unpack)
#define heed_whole_tile_sums HEED_LOCAL(heed_whole_tile_sums)
#define heed_whole_panel HEED_LOCAL(heed_whole_panel)
#define heed_whole_floats HEED_LOCAL(heed_whole_floats)
#define heed_to_whole HEED_LOCAL(heed_to_whole)
#define heed_to_floats HEED_LOCAL(heed_to_floats)
#define heed_float_panel HEED_LOCAL(heed_float_panel)
#define heed_finish_rows HEED_LOCAL(heed_finish_rows)
#define heed_whole_facts_of HEED_LOCAL(heed_whole_facts_of)

/* A piece of a tile, with what the kernels want to know of its sums. */
typedef struct whole_piece {
    int rows;
    int64_t blocks; /* of 32 columns */
    const int8_t *whole;
    const float *scale;
    const int32_t *sum;  /* [groups][rows] of a group's activations */
    const int32_t *init; /* [groups][rows] -zero times that; NULL for one row, which sees to it itself */
    const float *shift;  /* [groups][rows] scale times that sum */
} whole_piece;

/* One row times a panel, straight from its planes; sum [32]. By type. */
typedef void whole_few(const heed_panel_layout *layout, const uint8_t *panel, const whole_piece *piece,
                       float *sum);
extern whole_few *const heed_whole_few[HEED_TYPES];

/* Adds the products of second bytes; a sum of its own. By type. */
typedef void whole_few_low(const heed_panel_layout *layout, const uint8_t *panel, const heed_deep_block *deep,
                           int64_t deeps, float *sum);
extern whole_few_low *const heed_whole_few_low[HEED_TYPES];

/* Levels of columns first.. (a multiple of the span) as bytes, and the scales and offsets of their groups. By
 * type. */
typedef void whole_unpack(const heed_panel_layout *layout, const uint8_t *panel, int64_t first, int64_t cols,
                          const heed_product_work *to);
extern whole_unpack *const heed_whole_unpack[HEED_TYPES];

/* Sums [rows][32] of a tile and unpacked levels, starting from those in `sum` unless `fresh`. By type and
 * rows - 1. */
typedef void whole_sums(const heed_product_work *work, const whole_piece *piece, bool fresh, float *sum);
extern whole_sums *const heed_whole_tile_sums[HEED_TYPES][TILE_ROWS];

/* Adds the products of second bytes of blocks first.. with unpacked levels to sum [rows][32]. By type. */
typedef void whole_low(const heed_product_work *work, const heed_whole_tile *tile, int64_t first,
                       int64_t blocks, float *sum);
extern whole_low *const heed_whole_tile_low[HEED_TYPES];

/* What levels as bytes stand for 0 by, and how many columns share a scale. By type. */
typedef struct whole_facts {
    int zero, group;
    bool offsets;
} whole_facts;

/* Unpacked levels of columns first.. as floats [cols][32]. `group`: columns that share a scale. */
void heed_whole_floats(const heed_product_work *work, const whole_facts *facts, int64_t first, int64_t cols);

void heed_whole_panel(const heed_segment *segment, const uint8_t *panel, int64_t depth,
                      const heed_whole_tile *tile, int64_t tiles, const heed_product_work *work,
                      const heed_product_out *out);
void heed_float_panel(const heed_segment *segment, const uint8_t *panel, int64_t cols, const float *x,
                      int64_t rows, const heed_product_work *work, const heed_product_out *out);
void heed_to_whole(const float *x, int64_t stride, int64_t cols, int64_t depth, heed_whole_tile *to);
void heed_to_floats(const float *x, int64_t stride, int64_t cols, int rows, float *to);

/* Writes sums [rows][32] of rows `first`.. to where they belong. */
void heed_finish_rows(const float *sum, int64_t first, int64_t rows, const heed_product_out *out);

whole_facts heed_whole_facts_of(const heed_block_format *format, bool signed_levels);

extern const heed_product_kernels heed_product_kernel_table;

#endif
