/* Products with weight matrices: rows of activations times a matrix that was packed once, when the model was
 * loaded.
 *
 *     out[n][o] = bias[o] + sum over i of x[n][i] w[o][i]
 *
 * FAST turns the activations into signed bytes by blocks and multiplies whole numbers where the weights are
 * quantised; EXACT keeps activations in fp32 and weights as their format defines them. A row of the result
 * has the same bits however many rows are computed with it and for any number of threads.
 */
#ifndef HEED_TENSOR_PRODUCT_H
#define HEED_TENSOR_PRODUCT_H

#include <heed/attend.h>

typedef enum heed_product_kind { HEED_PRODUCT_FAST, HEED_PRODUCT_EXACT } heed_product_kind;

typedef struct heed_matrix heed_matrix;

/* Memory for the packed matrices of a model, in pages of 2 MiB where the system can: a product of one row
 * then reads them half as fast again as from many small pieces. Not for several threads at once. */
typedef struct heed_matrix_pool heed_matrix_pool;
/* `taken`, which may be NULL, is called while packing for each run of bytes of the weights that will not be
 * read again, so that they need not stay in memory beside what was made of them. */
typedef void heed_weights_taken(void *context, const void *data, size_t bytes);
heed_status heed_matrix_pool_create(heed_matrix_pool **pool, heed_weights_taken *taken, void *context);
/* After the matrices packed into it. */
void heed_matrix_pool_free(heed_matrix_pool *pool);

/* Packs `weights` [rows, cols], any type that heed_load reads. Several tensors with the same cols may be
 * packed into one matrix, rows after rows (q, k and v; gate and up). Spread over `threads`. HEED_UNSUPPORTED,
 * HEED_NO_MEMORY. */
heed_status heed_matrix_pack(heed_matrix **matrix, const heed_tensor *const *weights, int count,
                             heed_product_kind kind, heed_isa isa, int threads);
/* The same, with the weights in `pool`'s memory; NULL: in memory of their own. */
heed_status heed_matrix_pack_in(heed_matrix_pool *pool, heed_matrix **matrix,
                                const heed_tensor *const *weights, int count, heed_product_kind kind,
                                heed_isa isa, int threads);
void heed_matrix_free(heed_matrix *matrix);
int64_t heed_matrix_rows(const heed_matrix *matrix);
int64_t heed_matrix_cols(const heed_matrix *matrix);
size_t heed_matrix_bytes(const heed_matrix *matrix);       /* as packed */
const char *heed_matrix_kernel(const heed_matrix *matrix); /* "q4_1 x int8, avx512-vnni": for reports */

/* Bytes of work memory that heed_product needs for n rows on that many threads; grows with both. SIZE_MAX
 * when they are more than can be counted. */
size_t heed_product_scratch(const heed_matrix *matrix, int64_t n, int threads);

/* FAST products with block formats turn activations into signed bytes by blocks of 32 columns, with one scale
 * each. What that costs lies nearly all in the few blocks that hold outliers. `fine` gives blocks whose
 * largest magnitude exceeds HEED_FINE_FROM times the root mean square of all blocks' largest magnitudes in
 * the row a second byte, in the same pass over the weights. With largest magnitude m the rounding of an entry
 * is at most m / 254; with a second byte m / 32512. */
#define HEED_FINE_FROM 1.25f

/* out [n][rows] with out_stride floats from row to row, from x [n][cols]. `add`: adds to what is in `out` (a
 * residual). `scratch`: heed_product_scratch(matrix, n, threads) bytes, 64-byte aligned. Allocates nothing.
 */
typedef struct heed_product_call {
    const float *x;
    float *out;
    int64_t n, x_stride, out_stride;
    const float *bias; /* [rows] or NULL */
    bool add;
    bool fine; /* FAST products: second bytes for the activations that need them (see below) */
    void *scratch;
    int threads;
} heed_product_call;
void heed_product(const heed_matrix *matrix, const heed_product_call *call);

/* Row r of the matrix as floats, as its format defines them (an embedding that shares its matrix with the
 * output). */
void heed_matrix_row(const heed_matrix *matrix, int64_t r, float *to);

#endif
