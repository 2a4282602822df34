/* One tile of a piece of decoding: which keys it holds, and where their rows lie. */
#ifndef HEED_KERNELS_DECODE_TILE_H
#define HEED_KERNELS_DECODE_TILE_H

#include "attend/kernels/decode.h"

/* What the functions of a piece work on. */
typedef struct heed_passing {
    const heed_run *run;
    const heed_pipeline *pipeline;
    const heed_decode_sizes *sizes;
    heed_decode_group *group;
    heed_decode_work *work;
    heed_row_sums sums;
    float *out; /* [rows][value_stride] */
} heed_passing;

/* The part of a key block that is visited, or the next keys of a list. */
typedef struct heed_part {
    int64_t key0;          /* of the block; of a list its first key here */
    int first, count;      /* columns: whole runs of HEED_SUB; nothing is seen if there
                              are none */
    int real;              /* keys of them that exist */
    const uint8_t *partly; /* [heads, or 1 if alike] 1 where not all pairs are open */
    bool contiguous;       /* their positions */
    int64_t place;         /* of a list: that of the first key */
    heed_key_run *runs;    /* [run_count] the keys that exist */
    int run_count;
} heed_part;

#define heed_list_rows HEED_LOCAL(heed_list_rows)
#define heed_load_runs HEED_LOCAL(heed_load_runs)
#define heed_pool_of_part HEED_LOCAL(heed_pool_of_part)
#define heed_page_of_key HEED_LOCAL(heed_page_of_key)
#define heed_is_readable HEED_LOCAL(heed_is_readable)
#define heed_rows_of_part HEED_LOCAL(heed_rows_of_part)
#define heed_unpack_part HEED_LOCAL(heed_unpack_part)

static inline int heed_smaller(int64_t a, int b)
{
    return a < b ? (int)a : b;
}

/* Whether rows of this type are multiplied in whole numbers here. */
static inline bool heed_whole_serves(heed_type type)
{
#if HEED_WIDTH == 16
    return heed_whole_products(type);
#else
    (void)type;
    return false;
#endif
}

/* Addresses of a tile's keys, its values if they are read, and the first keys of the next tile.
 */
void heed_list_rows(const heed_passing *p, const heed_part *at, const heed_part *next, bool values,
                    const char **row);

/* The rows of a part as floats, [real][stride]. */
void heed_load_runs(const heed_passing *p, const heed_tensor *tensor, const heed_part *at, float *to,
                    int64_t stride);

/* The pool in which all rows of a part lie, base being &run->k or &run->v; NULL where there are several. */
const heed_tensor *heed_pool_of_part(const heed_passing *p, const heed_part *at, const heed_tensor *base);

/* Where the page of a key begins in its pool. */
const char *heed_page_of_key(const heed_passing *p, const heed_tensor *pool, int64_t key);

/* Whether vectors of a row can be read where they lie. */
bool heed_is_readable(const heed_tensor *tensor);

/* The rows of k or v in a tile. */
heed_decode_rows heed_rows_of_part(const heed_passing *p, const heed_part *at, const heed_tensor *tensor,
                                   const char **row);

/* Turns rows that cannot be read in place into floats, [HEED_KEYS][stride] in
 * `to`. */
void heed_unpack_part(const heed_passing *p, const heed_part *at, const heed_tensor *tensor, float *to,
                      int64_t stride, heed_decode_rows *rows, const char **row);

#endif
