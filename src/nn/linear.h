/* A linear map of rows: weights of one or several tensors with the same input, rows after rows, and a bias. */
#ifndef HEED_NN_LINEAR_H
#define HEED_NN_LINEAR_H

#include "tensor/product.h"

enum { HEED_LINEAR_PARTS = 3 }; /* q, k and v */

/* Tensors of one type are packed into one matrix; those of other types have matrices of their own. */
typedef struct heed_linear {
    heed_matrix *matrix[HEED_LINEAR_PARTS];
    int64_t first[HEED_LINEAR_PARTS]; /* row of the whole where each begins */
    int matrices;
    int64_t rows, cols;
    float *bias; /* [rows] or NULL; owned */
} heed_linear;

/* How weights are packed. */
typedef struct heed_packing {
    heed_product_kind kind;
    heed_isa isa;
    int threads;
} heed_packing;

/* Packs `weights` [rows, cols], at most HEED_LINEAR_PARTS; `bias` [all rows] or NULL is taken over, also when
 * this fails. */
heed_status heed_linear_pack(heed_linear *linear, const heed_tensor *const *weights, int count, float *bias,
                             const heed_packing *packing);
void heed_linear_free(heed_linear *linear);
size_t heed_linear_bytes(const heed_linear *linear);
size_t heed_linear_scratch(const heed_linear *linear, int64_t n, int threads);

/* Work that is the same for all products of a session. */
typedef struct heed_linear_work {
    void *scratch;
    int threads;
} heed_linear_work;

/* out [n][out_stride] = W x [n][x_stride] + bias; `add`: added to what `out` holds. */
void heed_linear_apply(const heed_linear *linear, const float *x, int64_t x_stride, int64_t n, float *out,
                       int64_t out_stride, bool add, const heed_linear_work *work);

#endif
