/* A tile of a matrix product, for builds without a library of dense products. */
#include "attend/kernels/vector.h"
#include "nn/kernels/parts.h"

/* Two vectors of columns of up to 8 rows stay in registers; columns that are left over go one by one. */
void heed_nn_product_loop(int rows, int64_t cols, int64_t k, const float *a, int64_t a_row, int64_t a_col,
                          const float *b, int64_t b_row, float *c, int64_t ldc, bool add)
{
    enum { ROWS = HEED_PRODUCT_ROWS, WIDE = 2 * HEED_WIDTH };
    int64_t j = 0;
    for (; j + WIDE <= cols; j += WIDE) {
        heed_vec sum[ROWS][2];
        for (int i = 0; i < ROWS; i++)
            for (int v = 0; v < 2; v++)
                sum[i][v] = add && i < rows ? heed_vec_load(c + i * ldc + j + v * HEED_WIDTH) : (heed_vec){0};
        for (int64_t l = 0; l < k; l++) {
            const heed_vec b0 = heed_vec_load(b + l * b_row + j),
                           b1 = heed_vec_load(b + l * b_row + j + HEED_WIDTH);
            for (int i = 0; i < ROWS; i++) {
                const float x = i < rows ? a[i * a_row + l * a_col] : 0.0f;
                sum[i][0] += x * b0;
                sum[i][1] += x * b1;
            }
        }
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < 2; v++)
                heed_vec_store(c + i * ldc + j + v * HEED_WIDTH, sum[i][v]);
    }
    for (; j < cols; j++)
        for (int i = 0; i < rows; i++) {
            float sum = add ? c[i * ldc + j] : 0.0f;
            for (int64_t l = 0; l < k; l++)
                sum += a[i * a_row + l * a_col] * b[l * b_row + j];
            c[i * ldc + j] = sum;
        }
}
