/* Orthogonal bases: of principal directions, random ones, and rows turned into them. A basis is [dim, dim], a
 * direction a column. */
#ifndef HEED_ATTEND_SELECT_BASIS_H
#define HEED_ATTEND_SELECT_BASIS_H

#include "attend/form.h"
#include "base/philox.h"
#include <stdlib.h>
#include <string.h>

/* The first `rank` coordinates of a row. */
static inline void heed_to_basis(const float *restrict basis, int dim, int rank, const float *restrict row,
                                 float *restrict out)
{
    for (int c = 0; c < rank; c++)
        out[c] = 0;
    for (int d = 0; d < dim; d++) {
        const float x = row[d], *restrict direction = basis + d * dim;
        for (int c = 0; c < rank; c++)
            out[c] += x * direction[c];
    }
}

/* Doubles of the moments of rows of `dim`: their number, their sum, and sums of products of two entries. */
static inline int64_t heed_moments_doubles(int dim)
{
    return 1 + dim + (int64_t)dim * dim;
}

static inline void heed_moments_add(double *moments, int dim, const float *row, int64_t rows)
{
    double *restrict sum = moments + 1, *products = sum + dim;
    moments[0] += (double)rows;
    for (int64_t i = 0; i < rows; i++, row += dim)
        for (int a = 0; a < dim; a++) {
            const double x = (double)row[a];
            double *restrict to = products + a * dim;
            sum[a] += x;
            for (int b = 0; b < dim; b++)
                to[b] += x * (double)row[b];
        }
}

/* Covariance of the rows, [dim, dim]. */
static inline void heed_covariance(const double *moments, int dim, double *covariance)
{
    const double count = moments[0] > 0 ? moments[0] : 1, *sum = moments + 1, *products = sum + dim;
    for (int a = 0; a < dim; a++)
        for (int b = 0; b < dim; b++)
            covariance[a * dim + b] = products[a * dim + b] / count - sum[a] / count * (sum[b] / count);
}

/* One rotation of Jacobi's method that makes entry (p, q) of the symmetric `a` zero, on `a` and on the
 * columns of `vectors`. */
static inline void heed_jacobi_rotate(double *a, double *vectors, int n, int p, int q)
{
    const double off = a[p * n + q];
    if (off == 0)
        return;
    const double theta = (a[q * n + q] - a[p * n + p]) / (2 * off);
    const double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    const double c = 1 / sqrt(t * t + 1), s = t * c;
    for (int k = 0; k < n; k++) {
        const double x = a[k * n + p], y = a[k * n + q];
        a[k * n + p] = c * x - s * y;
        a[k * n + q] = s * x + c * y;
    }
    for (int k = 0; k < n; k++) {
        const double x = a[p * n + k], y = a[q * n + k];
        a[p * n + k] = c * x - s * y;
        a[q * n + k] = s * x + c * y;
    }
    for (int k = 0; k < n; k++) {
        const double x = vectors[k * n + p], y = vectors[k * n + q];
        vectors[k * n + p] = c * x - s * y;
        vectors[k * n + q] = s * x + c * y;
    }
}

/* Eigenvectors of a symmetric `a` [n, n], as columns, by cyclic Jacobi rotations; `a` becomes diagonal. */
static inline void heed_eigenvectors(double *a, double *vectors, int n)
{
    for (int i = 0; i < n * n; i++)
        vectors[i] = i % (n + 1) == 0;
    for (int sweep = 0; sweep < 40; sweep++) {
        double off = 0, on = 0;
        for (int p = 0; p < n; p++) {
            on += a[p * n + p] * a[p * n + p];
            for (int q = p + 1; q < n; q++)
                off += a[p * n + q] * a[p * n + q];
        }
        if (off <= 1e-24 * on)
            return;
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++)
                heed_jacobi_rotate(a, vectors, n, p, q);
    }
}

/* Principal directions of rows by falling variance, and the variances [dim]. False without memory. */
static inline bool heed_principal_basis(const double *moments, int dim, float *basis, float *variance)
{
    const size_t square = (size_t)dim * (size_t)dim;
    double *covariance = malloc(2 * square * sizeof *covariance), *vectors = covariance + square;
    if (!covariance)
        return false;
    heed_covariance(moments, dim, covariance);
    heed_eigenvectors(covariance, vectors, dim);
    for (int c = 0; c < dim; c++) {
        int best = 0;
        for (int d = 1; d < dim; d++)
            best = covariance[d * (dim + 1)] > covariance[best * (dim + 1)] ? d : best;
        variance[c] = (float)fmax(covariance[best * (dim + 1)], 0);
        covariance[best * (dim + 1)] = -INFINITY;
        for (int d = 0; d < dim; d++)
            basis[d * dim + c] = (float)vectors[d * dim + best];
    }
    free(covariance);
    return true;
}

/* Random directions: normal numbers, made orthonormal column by column (Gram and Schmidt, twice). */
static inline void heed_random_basis(float *basis, int dim)
{
    for (int c = 0; c < dim; c++) {
        for (int d = 0; d < dim; d++) {
            uint32_t random[4];
            heed_philox_at(0, (uint64_t)c, (uint64_t)d, random);
            const double radius = sqrt(-2 * log(((double)random[0] + 0.5) / 4294967296.0));
            basis[d * dim + c] = (float)(radius * cos(6.283185307179586 * (double)random[1] / 4294967296.0));
        }
        for (int pass = 0; pass < 2; pass++)
            for (int before = 0; before <= c; before++) {
                double product = 0;
                for (int d = 0; d < dim; d++)
                    product += (double)basis[d * dim + c] * (double)basis[d * dim + before];
                for (int d = 0; d < dim; d++)
                    basis[d * dim + c] = before < c
                                             ? basis[d * dim + c] - (float)product * basis[d * dim + before]
                                             : (float)(basis[d * dim + c] / sqrt(product));
            }
    }
}

#endif
