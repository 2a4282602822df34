/* Products with packed weights, against a definition in plain loops: of the whole numbers and scales that
 * fast products are made of, bit for bit; of the weights as their format defines them, within rounding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <heed/heed.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/isas.h"
#include "support/random.h"
#include "tensor/block.h"
#include "tensor/product.h"

enum { MOST_ROWS = 40, WEIGHT_TYPES = HEED_Q2 /* those behind it are for caches only */ };

/* A matrix and activations of a test's own making. */
typedef struct problem {
    heed_type type;
    int64_t rows, cols, n;
    uint8_t *stored;
    heed_tensor weights;
    float *x; /* [n][cols] */
} problem;

static problem make(heed_type type, int64_t rows, int64_t cols, int64_t n, uint64_t seed)
{
    problem p = {.type = type, .rows = rows, .cols = cols, .n = n};
    test_random random = {seed};
    const int64_t bytes = heed_type_bytes(type, cols);
    float *w = malloc((size_t)cols * sizeof *w);
    p.stored = malloc((size_t)(bytes * rows));
    p.x = malloc((size_t)(n * cols) * sizeof *p.x);
    for (int64_t r = 0; r < rows; r++) {
        const float size = ldexpf(1.0f, (int)random_whole(&random, -6, 1));
        for (int64_t c = 0; c < cols; c++)
            w[c] = size * ((float)random_normal(&random) + (c / 32 % 3 == 1 ? 0.7f : 0.0f));
        heed_store(type, w, p.stored + r * bytes, cols);
    }
    for (int64_t i = 0; i < n * cols; i++)
        p.x[i] = (float)random_normal(&random) * (i % 97 == 0 ? 20.0f : 1.0f);
    for (int64_t c = 0; c < cols && c < 32; c++)
        p.x[c] = 0.0f; /* a block of zeros */
    p.weights = heed_tensor_dense(p.stored, type, 2, (int64_t[]){rows, cols});
    free(w);
    return p;
}

static void drop(problem *p)
{
    free(p->stored);
    free(p->x);
}

static heed_matrix *pack(const problem *p, heed_product_kind kind, heed_isa isa, int threads)
{
    heed_matrix *matrix;
    const heed_tensor *const list[] = {&p->weights};
    assert_int_equal(heed_matrix_pack(&matrix, list, 1, kind, isa, threads), HEED_OK);
    return matrix;
}

/* The product of rows first.. of x; freed by the caller. */
static float *multiply_by(const heed_matrix *matrix, const problem *p, int64_t first, int64_t n, int threads,
                          bool fine)
{
    const int64_t rows = heed_matrix_rows(matrix);
    float *out = malloc((size_t)(n * rows) * sizeof *out);
    void *scratch = aligned_alloc(64, heed_product_scratch(matrix, n, threads));
    for (int64_t i = 0; i < n * rows; i++)
        out[i] = NAN;
    heed_product(matrix, &(heed_product_call){.x = p->x + first * p->cols,
                                              .out = out,
                                              .n = n,
                                              .x_stride = p->cols,
                                              .out_stride = rows,
                                              .fine = fine,
                                              .scratch = scratch,
                                              .threads = threads});
    free(scratch);
    return out;
}

static float *multiply(const heed_matrix *matrix, const problem *p, int64_t first, int64_t n, int threads)
{
    return multiply_by(matrix, p, first, n, threads, false);
}

/* Activations of a row as whole numbers. */
typedef struct whole_row {
    int8_t n[4096], low[4096];
    float scale[128], low_scale[128];
    bool deep[128], any_deep;
} whole_row;

static float farthest(const float *x, int64_t count)
{
    float far = 0.0f;
    for (int64_t i = 0; i < count; i++)
        far = fmaxf(far, fabsf(x[i]));
    return far;
}

static int64_t block_size(int64_t cols, int64_t b)
{
    return cols - b * 32 < 32 ? cols - b * 32 : 32;
}

/* Beyond this largest magnitude a block gets two bytes in fine products. */
static float fine_limit(const float *x, int64_t cols)
{
    const int64_t blocks = (cols + 31) / 32;
    double squares = 0.0;
    for (int64_t b = 0; b < blocks; b++)
        squares += pow(farthest(x + b * 32, block_size(cols, b)), 2);
    return HEED_FINE_FROM * (float)sqrt(squares / (double)blocks);
}

static void to_whole(const float *x, int64_t cols, bool fine, whole_row *to)
{
    memset(to, 0, sizeof *to);
    for (int64_t b = 0; b * 32 < cols; b++) {
        const int64_t count = block_size(cols, b);
        const float most = farthest(x + b * 32, count);
        if (most < 1e-30f)
            continue;
        const bool deep = fine && most > fine_limit(x, cols);
        const float inverse = (deep ? 16256.0f : 127.0f) / most;
        to->scale[b] = most / 127.0f;
        to->low_scale[b] = most / 16256.0f;
        to->deep[b] = deep;
        to->any_deep = to->any_deep || deep;
        for (int64_t i = b * 32; i < b * 32 + count; i++) {
            const int n = (int)rintf(x[i] * inverse);
            to->n[i] = (int8_t)(deep ? (int)floor((n + 64) / 128.0) : n);
            to->low[i] = (int8_t)(deep ? n - 128 * to->n[i] : 0);
        }
    }
}

/* Fused where the instruction set has it, in the order of kernels/tile.c. */
static float add_product(float sum, float a, float b, bool fused)
{
    volatile float product = a * b;
    return fused ? fmaf(a, b, sum) : sum + product;
}

/* The sum over all blocks of first bytes, or over those of second bytes. */
static float sum_of_blocks(const problem *p, int64_t row, const whole_row *x, bool low, bool fused)
{
    const heed_block_format *format = heed_block_format_of(p->type);
    const uint8_t *block = p->stored + row * heed_type_bytes(p->type, p->cols);
    const int8_t *n = low ? x->low : x->n;
    const float *x_scale = low ? x->low_scale : x->scale;
    float sum = 0.0f;
    for (int64_t c = 0; c < p->cols; c += format->values, block += format->bytes) {
        heed_block_parts parts;
        format->take(block, &parts);
        const float d = heed_block_d(format, &parts), e = heed_block_e(&parts);
        for (int g = 0; g < format->values / format->group; g++) {
            int32_t dot = 0, total = 0;
            const int64_t at = c + g * format->group;
            if (low && !x->deep[at / 32])
                continue;
            for (int i = 0; i < format->group; i++) {
                dot += heed_block_level(format, parts.level[g * format->group + i]) * n[at + i];
                total += n[at + i];
            }
            volatile float part = (float)dot * (d * (float)parts.sub_scale[g]);
            volatile float shift = x_scale[at / 32] * (float)total;
            sum = add_product(sum, part, x_scale[at / 32], fused);
            if (format->sub.most_offset > 0)
                sum = add_product(sum, e * (float)parts.sub_offset[g], shift, fused);
        }
    }
    return sum;
}

static float fast_definition(const problem *p, int64_t row, const whole_row *x, bool fused)
{
    const float sum = sum_of_blocks(p, row, x, false, fused);
    return x->any_deep ? sum + sum_of_blocks(p, row, x, true, fused) : sum;
}

static int64_t odd_cols(heed_type type, int i)
{
    const int64_t block = heed_type_block(type);
    static const int64_t units[2][4] = {{1, 3, 18, 41}, {1, 2, 3, 5}};
    return block * units[block > 32][i];
}

static void check_fast(const problem *p, heed_isa isa, bool fine)
{
#if defined(__x86_64__)
    const bool fused = isa != HEED_ISA_PORTABLE;
#else
    const bool fused = true;
#endif
    heed_matrix *matrix = pack(p, HEED_PRODUCT_FAST, isa, 2);
    float *out = multiply_by(matrix, p, 0, p->n, 1, fine);
    for (int64_t i = 0; i < p->n; i++) {
        whole_row x;
        to_whole(p->x + i * p->cols, p->cols, fine, &x);
        for (int64_t r = 0; r < p->rows; r++) {
            const float right = fast_definition(p, r, &x, fused), is = out[i * p->rows + r];
            if (memcmp(&right, &is, sizeof is) != 0)
                fail_msg("%s, %s, %lld x %lld, row %lld of %lld: out[%lld] is %.9g, not %.9g",
                         heed_matrix_kernel(matrix), heed_isa_name(isa), (long long)p->rows,
                         (long long)p->cols, (long long)i, (long long)p->n, (long long)r, is, right);
        }
    }
    free(out);
    heed_matrix_free(matrix);
}

static void fast_products_are_those_of_whole_numbers_bit_for_bit(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 33, 70, 31}, n[] = {1, 7, 2, 40};
    for (int type = 0; type < WEIGHT_TYPES; type++)
        for (int i = 0; i < 4 && heed_block_format_of((heed_type)type); i++)
            for (const heed_isa *isa = test_isas(); *isa; isa++) {
                problem p = make((heed_type)type, rows[i], odd_cols((heed_type)type, i), n[i],
                                 (uint64_t)(type * 4 + i));
                check_fast(&p, *isa, false);
                check_fast(&p, *isa, true);
                drop(&p);
            }
}

/* The product in double precision; `size` is the sum of the terms' magnitudes. */
static double definition(const problem *p, const float *w, const float *x, double *size)
{
    double sum = 0.0;
    *size = 0.0;
    for (int64_t c = 0; c < p->cols; c++) {
        sum += (double)w[c] * x[c];
        *size += fabs((double)w[c] * x[c]);
    }
    return sum;
}

static void exact_products_equal_the_definition(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 33, 70, 31}, n[] = {1, 13, 2, 40};
    for (int type = 0; type < WEIGHT_TYPES; type++)
        for (int i = 0; i < 4; i++) {
            if (type == HEED_I32 || type == HEED_U8 || (type >= HEED_I8 && type <= HEED_I64))
                continue; /* the same path as HEED_F64 */
            const bool blocks = heed_block_format_of((heed_type)type);
            problem p = make((heed_type)type, rows[i], blocks ? odd_cols((heed_type)type, i) : 1 + 90 * i,
                             n[i], (uint64_t)(type * 4 + i));
            float *w = malloc((size_t)p.cols * sizeof *w);
            for (const heed_isa *isa = test_isas(); *isa; isa++) {
                heed_matrix *matrix = pack(&p, HEED_PRODUCT_EXACT, *isa, 1);
                float *out = multiply(matrix, &p, 0, p.n, 2);
                for (int64_t r = 0; r < p.rows; r++) {
                    heed_load((heed_type)type, p.stored + r * heed_type_bytes((heed_type)type, p.cols), w,
                              p.cols);
                    for (int64_t k = 0; k < p.n; k++) {
                        double size;
                        const double right = definition(&p, w, p.x + k * p.cols, &size);
                        const float is = out[k * p.rows + r];
                        if (!(fabs(is - right) <= 1e-6 * size + 1e-30))
                            fail_msg("%s, %s: %.9g, not %.9g", heed_matrix_kernel(matrix),
                                     heed_isa_name(*isa), is, right);
                    }
                }
                free(out);
                heed_matrix_free(matrix);
            }
            free(w);
            drop(&p);
        }
}

static void fast_products_are_within_the_rounding_of_activations(void **state)
{
    (void)state;
    for (int type = 0; type < WEIGHT_TYPES; type++) {
        if (!heed_block_format_of((heed_type)type))
            continue;
        problem p = make((heed_type)type, 40, 768, 9, (uint64_t)type);
        float *w = malloc((size_t)p.cols * sizeof *w);
        heed_matrix *matrix = pack(&p, HEED_PRODUCT_FAST, HEED_ISA_AUTO, 1);
        float *out = multiply(matrix, &p, 0, p.n, 1), *finer = multiply_by(matrix, &p, 0, p.n, 1, true);
        for (int64_t r = 0; r < p.rows; r++) {
            heed_load((heed_type)type, p.stored + r * heed_type_bytes((heed_type)type, p.cols), w, p.cols);
            for (int64_t k = 0; k < p.n; k++) {
                const float *x = p.x + k * p.cols;
                const float limit = fine_limit(x, p.cols);
                double size, bound = 0.0, fine_bound = 0.0;
                const double right = definition(&p, w, x, &size);
                for (int64_t b = 0; b < p.cols; b += 32) {
                    float most = 0.0f;
                    double weights = 0.0;
                    for (int c = 0; c < 32; c++) {
                        most = fmaxf(most, fabsf(x[b + c]));
                        weights += fabs((double)w[b + c]);
                    }
                    const double rounding = (double)most / 127 * (0.5 + 0x1p-15) * weights;
                    bound += rounding;
                    fine_bound += most > limit ? rounding / 127 : rounding;
                }
                assert_true(fabs(out[k * p.rows + r] - right) <= bound + 2e-6 * size);
                assert_true(fabs(finer[k * p.rows + r] - right) <= fine_bound + 2e-6 * size);
            }
        }
        free(out);
        free(finer);
        free(w);
        heed_matrix_free(matrix);
        drop(&p);
    }
}

static void a_row_has_the_same_bits_in_any_company_and_on_any_threads(void **state)
{
    (void)state;
    for (int type = 0; type < WEIGHT_TYPES; type++)
        for (int kind = 0; kind < 3; kind++) /* fast, exact, fine */
            for (const heed_isa *isa = test_isas(); *isa; isa++) {
                const int64_t cols = heed_block_format_of((heed_type)type) ? 768 : 140;
                problem p = make((heed_type)type, 75, cols, MOST_ROWS, (uint64_t)(type + 50 * kind));
                heed_matrix *matrix = pack(&p, kind == 1 ? HEED_PRODUCT_EXACT : HEED_PRODUCT_FAST, *isa, 3);
                float *whole = multiply_by(matrix, &p, 0, MOST_ROWS, 3, kind == 2);
                for (int64_t first = 0, n = 1; first + n <= MOST_ROWS; first += n, n = n % 9 + 1) {
                    float *part = multiply_by(matrix, &p, first, n, (int)(n % 4) + 1, kind == 2);
                    assert_memory_equal(part, whole + first * 75, (size_t)(n * 75) * sizeof *part);
                    free(part);
                }
                free(whole);
                heed_matrix_free(matrix);
                drop(&p);
            }
}

static void more_rows_than_a_batch_are_the_same_rows(void **state)
{
    (void)state;
    enum { N = 1100 };
    static const heed_type types[] = {HEED_Q4_1, HEED_Q6_K, HEED_F16};
    for (int t = 0; t < 3; t++)
        for (int kind = 0; kind < 2; kind++) {
            problem p = make(types[t], 40, 768, N, 5);
            heed_matrix *matrix = pack(&p, (heed_product_kind)kind, HEED_ISA_AUTO, 1);
            float *whole = multiply(matrix, &p, 0, N, 2);
            for (int64_t first = 0; first < N; first += 123) {
                float *part = multiply(matrix, &p, first, 1, 1);
                assert_memory_equal(part, whole + first * 40, 40 * sizeof *part);
                free(part);
            }
            free(whole);
            heed_matrix_free(matrix);
            drop(&p);
        }
}

static void matrices_packed_together_equal_each_alone(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        static const heed_type types[] = {HEED_Q5_0, HEED_Q6_K, HEED_F16, HEED_Q8};
        static const int64_t rows[] = {70, 33, 5, 64};
        problem p[4];
        const heed_tensor *list[4];
        for (int i = 0; i < 4; i++) {
            p[i] = make(types[i], rows[i], 512, 11, (uint64_t)i);
            memcpy(p[i].x, p[0].x, 11 * 512 * sizeof(float));
            list[i] = &p[i].weights;
        }
        heed_matrix *matrix;
        assert_int_equal(heed_matrix_pack(&matrix, list, 4, (heed_product_kind)kind, HEED_ISA_AUTO, 2),
                         HEED_OK);
        assert_int_equal(heed_matrix_rows(matrix), 172);
        for (int64_t n = 1; n <= 11; n += 10) {
            float *together = multiply(matrix, &p[0], 0, n, 2);
            for (int i = 0, before = 0; i < 4; before += (int)rows[i++]) {
                heed_matrix *one = pack(&p[i], (heed_product_kind)kind, HEED_ISA_AUTO, 1);
                float *alone = multiply(one, &p[0], 0, n, 1);
                for (int64_t k = 0; k < n; k++)
                    assert_memory_equal(together + k * 172 + before, alone + k * rows[i],
                                        (size_t)rows[i] * sizeof *alone);
                free(alone);
                heed_matrix_free(one);
            }
            free(together);
        }
        heed_matrix_free(matrix);
        for (int i = 0; i < 4; i++)
            drop(&p[i]);
    }
}

static void bias_and_what_was_there_are_added(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (int64_t n = 1; n <= 9; n += 8) {
            problem p = make(HEED_Q4_1, 45, 96, n, 3);
            heed_matrix *matrix = pack(&p, (heed_product_kind)kind, HEED_ISA_AUTO, 1);
            float *plain = multiply(matrix, &p, 0, n, 1), bias[45], out[9 * 50];
            void *scratch = aligned_alloc(64, heed_product_scratch(matrix, n, 1));
            for (int i = 0; i < 45; i++)
                bias[i] = (float)i;
            for (int i = 0; i < 9 * 50; i++)
                out[i] = 0.5f * (float)i;
            heed_product(matrix, &(heed_product_call){.x = p.x,
                                                      .out = out,
                                                      .n = n,
                                                      .x_stride = 96,
                                                      .out_stride = 50,
                                                      .bias = bias,
                                                      .add = true,
                                                      .scratch = scratch,
                                                      .threads = 1});
            for (int i = 0; i < 9 * 50; i++) {
                const bool inside = i / 50 < n && i % 50 < 45;
                const float before = 0.5f * (float)i;
                assert_true(out[i] ==
                            (inside ? plain[i / 50 * 45 + i % 50] + bias[i % 50] + before : before));
            }
            free(scratch);
            free(plain);
            heed_matrix_free(matrix);
            drop(&p);
        }
}

static void rows_read_back_as_the_format_defines_them(void **state)
{
    (void)state;
    for (int type = 0; type < WEIGHT_TYPES; type++) {
        problem p =
            make((heed_type)type, 67, heed_block_format_of((heed_type)type) ? 512 : 77, 1, (uint64_t)type);
        heed_matrix *matrix = pack(&p, HEED_PRODUCT_FAST, HEED_ISA_AUTO, 1);
        float row[512], right[512];
        for (int64_t r = 0; r < 67; r++) {
            heed_matrix_row(matrix, r, row);
            heed_load((heed_type)type, p.stored + r * heed_type_bytes((heed_type)type, p.cols), right,
                      p.cols);
            assert_memory_equal(row, right, (size_t)p.cols * sizeof *row);
        }
        heed_matrix_free(matrix);
        drop(&p);
    }
}

static void not_a_number_spoils_its_row_and_no_other(void **state)
{
    (void)state;
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    for (int kind = 0; kind < 2; kind++)
        for (int w = 0; w < 3; w++)
            for (int64_t n = 1; n <= 8; n += 7) {
                problem p = make(HEED_Q5_0, 40, 96, n, 3);
                p.x[(n - 1) * 96 + 50] = wrong[w];
                heed_matrix *matrix = pack(&p, (heed_product_kind)kind, HEED_ISA_AUTO, 1);
                float *out = multiply(matrix, &p, 0, n, 1);
                for (int64_t i = 0; i < n * 40; i++)
                    assert_true(isfinite(out[i]) == (i / 40 != n - 1));
                free(out);
                heed_matrix_free(matrix);
                drop(&p);
            }
}

static void a_pool_holds_many_matrices(void **state)
{
    (void)state;
    heed_matrix_pool *pool;
    assert_int_equal(heed_matrix_pool_create(&pool, NULL, NULL), HEED_OK);
    heed_matrix *pooled[40];
    /* 300 KiB to 12 MiB, which fill more than one chunk and leave gaps */
    problem p[3] = {make(HEED_Q8, 512, 544, 3, 1), make(HEED_F32, 1280, 2400, 3, 2),
                    make(HEED_Q4_K, 2000, 512, 3, 3)};
    for (int i = 0; i < 40; i++) {
        const heed_tensor *const list[] = {&p[i % 3].weights};
        assert_int_equal(heed_matrix_pack_in(pool, &pooled[i], list, 1, HEED_PRODUCT_FAST, HEED_ISA_AUTO, 2),
                         HEED_OK);
    }
    for (int k = 0; k < 3; k++) {
        heed_matrix *alone = pack(&p[k], HEED_PRODUCT_FAST, HEED_ISA_AUTO, 1);
        float *right = multiply(alone, &p[k], 0, 3, 1);
        for (int i = k; i < 40; i += 3) {
            float *out = multiply(pooled[i], &p[k], 0, 3, 2);
            assert_memory_equal(out, right, (size_t)(3 * p[k].rows) * sizeof *out);
            free(out);
        }
        free(right);
        heed_matrix_free(alone);
        drop(&p[k]);
    }
    for (int i = 0; i < 40; i++)
        heed_matrix_free(pooled[i]);
    heed_matrix_pool_free(pool);
}

static void matrices_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    problem a = make(HEED_Q4_1, 5, 64, 1, 1), b = make(HEED_Q4_1, 5, 96, 1, 1);
    const heed_tensor *const list[] = {&a.weights, &b.weights};
    heed_matrix *matrix;
    assert_int_equal(heed_matrix_pack(&matrix, list, 2, HEED_PRODUCT_FAST, HEED_ISA_AUTO, 1), HEED_INVALID);
    assert_null(matrix);
    assert_int_equal(heed_matrix_pack(&matrix, list, 0, HEED_PRODUCT_FAST, HEED_ISA_AUTO, 1), HEED_INVALID);
    b.weights.rank = 1;
    assert_int_equal(heed_matrix_pack(&matrix, list + 1, 1, HEED_PRODUCT_FAST, HEED_ISA_AUTO, 1),
                     HEED_INVALID);
    matrix = pack(&a, HEED_PRODUCT_FAST, HEED_ISA_AUTO, 1);
    assert_true(heed_product_scratch(matrix, INT64_MAX / 2, 1) == SIZE_MAX);
    heed_matrix_free(matrix);
    for (int type = WEIGHT_TYPES; type < HEED_TYPES; type++) {
        a.weights.type = (heed_type)type;
        assert_int_equal(heed_matrix_pack(&matrix, list, 1, HEED_PRODUCT_EXACT, HEED_ISA_AUTO, 1),
                         HEED_UNSUPPORTED);
    }
    drop(&a);
    drop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_products_are_those_of_whole_numbers_bit_for_bit),
        cmocka_unit_test(exact_products_equal_the_definition),
        cmocka_unit_test(fast_products_are_within_the_rounding_of_activations),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_company_and_on_any_threads),
        cmocka_unit_test(more_rows_than_a_batch_are_the_same_rows),
        cmocka_unit_test(matrices_packed_together_equal_each_alone),
        cmocka_unit_test(bias_and_what_was_there_are_added),
        cmocka_unit_test(rows_read_back_as_the_format_defines_them),
        cmocka_unit_test(not_a_number_spoils_its_row_and_no_other),
        cmocka_unit_test(a_pool_holds_many_matrices),
        cmocka_unit_test(matrices_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
