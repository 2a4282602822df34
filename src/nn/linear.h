/* A linear map of rows: weights of one or several tensors with the same input, rows after rows, and a bias.
 *
 * Fast products round activations to bytes. A fine map gives a second byte to blocks with outliers, where
 * nearly all that rounding costs lies, and reads the weights no more often.
 */
#ifndef HEED_NN_LINEAR_H
#define HEED_NN_LINEAR_H

#include "nn/rows.h"
#include "tensor/product.h"

enum { HEED_LINEAR_PARTS = 3 }; /* q, k and v */

typedef struct heed_linear {
    heed_matrix *matrix;
    int64_t rows, cols;
    bool fine;
    float *bias; /* [rows] or NULL; owned */
} heed_linear;

/* How weights are packed. */
typedef struct heed_packing {
    heed_matrix_pool *pool; /* where packed weights go; NULL: memory of their own */
    heed_product_kind kind;
    heed_isa isa;
    int threads;
} heed_packing;

/* Packs `weights` [rows, cols], at most HEED_LINEAR_PARTS; `bias` [all rows] or NULL is taken over, also when
 * this fails. `fine` means nothing where activations are not rounded. */
heed_status heed_linear_pack(heed_linear *linear, const heed_tensor *const *weights, int count, float *bias,
                             bool fine, const heed_packing *packing);
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
