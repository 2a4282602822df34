/* Sums over many rows in an order that does not depend on the number of threads. */
#include "nn/graph.h"

#include <string.h>

enum { ROWS_A_PIECE = 256, MOST_PIECES = 64 };

int heed_nn_row_pieces(int64_t rows)
{
    const int64_t pieces = (rows + ROWS_A_PIECE - 1) / ROWS_A_PIECE;
    return pieces < MOST_PIECES ? (int)pieces : MOST_PIECES;
}

size_t heed_nn_partial_bytes(int64_t rows, int64_t cols)
{
    return (size_t)heed_nn_row_pieces(rows) * (size_t)cols * sizeof(float);
}

void heed_nn_sum_pieces(const heed_work *work, int64_t rows, int64_t cols, heed_row_piece *piece)
{
    const int pieces = heed_nn_row_pieces(rows);
#pragma omp parallel for num_threads(work->threads) schedule(static) if (pieces > 1)
    for (int p = 0; p < pieces; p++) {
        float *partial = (float *)work->scratch + (size_t)p * (size_t)cols;
        memset(partial, 0, (size_t)cols * sizeof *partial);
        piece(work, rows * p / pieces, rows * (p + 1) / pieces, partial);
    }
}

void heed_nn_fold(const heed_work *work, int64_t rows, int64_t from, int64_t cols, int64_t stride, float *to,
                  bool add)
{
    const int pieces = heed_nn_row_pieces(rows);
    if (!add)
        memset(to, 0, (size_t)cols * sizeof *to);
    for (int p = 0; p < pieces; p++)
        work->kernels->add(to, (const float *)work->scratch + (size_t)p * (size_t)stride + from, to, cols);
}
