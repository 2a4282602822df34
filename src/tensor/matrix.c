/* Packing weight matrices. */
#include "tensor/matrix.h"
#include "base/cpu.h"
#include "base/try.h"
#include "tensor/kernels/table.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_BYTES = 8 << 20 }; /* of weights that are packed before the next are looked at */

extern const heed_product_kernels heed_product_kernel_table_portable;
#ifdef HEED_HAVE_AVX2
extern const heed_product_kernels heed_product_kernel_table_avx2;
#endif
#ifdef HEED_HAVE_AVX512
extern const heed_product_kernels heed_product_kernel_table_avx512;
#endif
#ifdef HEED_HAVE_NEON
extern const heed_product_kernels heed_product_kernel_table_neon;
#endif

/* The kernels for `isa`, or the next best where the processor has the set but not its products of bytes. */
static const heed_product_kernels *kernels_for(heed_isa isa)
{
#ifdef HEED_HAVE_AVX512
    if (isa == HEED_ISA_AVX512 && heed_cpu_has_avx512_vnni())
        return &heed_product_kernel_table_avx512;
#endif
#ifdef HEED_HAVE_AVX2
    if (isa == HEED_ISA_AVX512 || isa == HEED_ISA_AVX2)
        return &heed_product_kernel_table_avx2;
#endif
#ifdef HEED_HAVE_NEON
    if (isa == HEED_ISA_NEON)
        return &heed_product_kernel_table_neon;
#endif
    (void)isa;
    return &heed_product_kernel_table_portable;
}

static heed_status check_weights(const heed_tensor *weights, int64_t cols)
{
    if (weights->rank != 2)
        return heed_fail(HEED_INVALID, "a weight matrix has 2 dimensions, not %d", weights->rank);
    if (!weights->data || weights->shape[0] < 1 || weights->shape[1] < 1)
        return heed_fail(HEED_INVALID, "a weight matrix of %lld x %lld holds nothing",
                         (long long)weights->shape[0], (long long)weights->shape[1]);
    if (weights->shape[1] != cols)
        return heed_fail(HEED_INVALID, "matrices of %lld and %lld columns cannot be packed together",
                         (long long)cols, (long long)weights->shape[1]);
    if (!heed_type_name(weights->type))
        return heed_fail(HEED_UNSUPPORTED, "%d is no element type", (int)weights->type);
    if (weights->type >= HEED_Q2)
        return heed_fail(HEED_UNSUPPORTED, "%s is a type of caches, not of weights",
                         heed_type_name(weights->type));
    return HEED_OK;
}

/* How the rows of one tensor are packed. */
static void plan_segment(const heed_tensor *weights, heed_segment *segment, int64_t row0, int64_t panel0)
{
    const heed_block_format *format = heed_block_format_of(weights->type);
    segment->type = weights->type;
    if (format)
        segment->layout = heed_panel_layout_of(format);
    else if (weights->type != HEED_F16 && weights->type != HEED_BF16)
        segment->type = HEED_F32;
    segment->row0 = row0;
    segment->rows = weights->shape[0];
    segment->panel0 = panel0;
    segment->panels = (segment->rows - 1) / HEED_PANEL + 1;
}

static bool size_segment(const heed_matrix *matrix, heed_segment *segment)
{
    const bool blocks = segment->layout.format;
    const int64_t units = blocks ? matrix->depth / segment->layout.span : matrix->float_depth;
    const size_t unit =
        blocks ? segment->layout.bytes : (size_t)heed_type_bytes(segment->type, 1) * HEED_PANEL;
    size_t bytes;
    return !__builtin_mul_overflow((size_t)units, unit, &segment->panel_bytes) &&
           !__builtin_mul_overflow(segment->panel_bytes, (size_t)segment->panels, &bytes) &&
           bytes <= SIZE_MAX / 4;
}

/* "q4_1 + q8 x int8, avx512-vnni" */
static void name_matrix(heed_matrix *matrix)
{
    size_t used = 0;
    for (int s = 0; s < matrix->segments && used < sizeof matrix->name; s++) {
        bool known = false;
        for (int before = 0; before < s; before++)
            known = known || matrix->segment[before].type == matrix->segment[s].type;
        if (!known)
            used += (size_t)snprintf(matrix->name + used, sizeof matrix->name - used, "%s%s",
                                     used ? " + " : "", heed_type_name(matrix->segment[s].type));
    }
    if (used < sizeof matrix->name)
        snprintf(matrix->name + used, sizeof matrix->name - used, " x %s, %s",
                 matrix->any_whole ? matrix->any_float ? "int8 and f32" : "int8" : "f32",
                 matrix->kernels->name);
}

static void pack_panel(const heed_matrix *matrix, const heed_segment *segment, const heed_tensor *weights,
                       int64_t panel)
{
    uint8_t *to = segment->data + (size_t)panel * segment->panel_bytes;
    if (segment->layout.format)
        heed_panel_pack_blocks(segment, weights, panel * HEED_PANEL, matrix->depth, to);
    else
        heed_panel_pack_floats(segment, weights, panel * HEED_PANEL, to);
}

/* A run of panels after the other, so that what was taken can be given back meanwhile. */
static void pack_segment(const heed_matrix *matrix, const heed_segment *segment, const heed_tensor *weights,
                         const heed_matrix_pool *pool, int threads)
{
    const int64_t panel_bytes = weights->stride[0] * HEED_PANEL;
    const int64_t run = panel_bytes < RUN_BYTES ? RUN_BYTES / panel_bytes : 1;
    for (int64_t first = 0; first < segment->panels; first += run) {
        const int64_t end = segment->panels - first < run ? segment->panels : first + run;
        const int use = end - first < threads ? (int)(end - first) : threads;
#pragma omp parallel for num_threads(use) schedule(dynamic, 1) if (use > 1)
        for (int64_t p = first; p < end; p++)
            pack_panel(matrix, segment, weights, p);
        const int64_t row0 = first * HEED_PANEL,
                      row1 = end * HEED_PANEL < segment->rows ? end * HEED_PANEL : segment->rows;
        heed_matrix_pool_tell(pool, (const char *)weights->data + row0 * weights->stride[0],
                              (size_t)((row1 - row0) * weights->stride[0]));
    }
}

static heed_status pack(heed_matrix *matrix, heed_matrix_pool *pool, const heed_tensor *const *weights,
                        int threads)
{
    for (int s = 0; s < matrix->segments; s++) {
        heed_segment *segment = &matrix->segment[s];
        segment->data = heed_matrix_pool_take(pool, segment->panel_bytes * (size_t)segment->panels);
        if (!segment->data)
            return heed_fail(HEED_NO_MEMORY, "no memory for %zu bytes of packed weights",
                             segment->panel_bytes * (size_t)segment->panels);
        matrix->bytes += segment->panel_bytes * (size_t)segment->panels;
        pack_segment(matrix, segment, weights[s], pool, threads);
    }
    return HEED_OK;
}

heed_status heed_matrix_pack(heed_matrix **matrix, const heed_tensor *const *weights, int count,
                             heed_product_kind kind, heed_isa isa, int threads)
{
    return heed_matrix_pack_in(NULL, matrix, weights, count, kind, isa, threads);
}

heed_status heed_matrix_pack_in(heed_matrix_pool *pool, heed_matrix **matrix,
                                const heed_tensor *const *weights, int count, heed_product_kind kind,
                                heed_isa isa, int threads)
{
    *matrix = NULL;
    TRY(heed_isa_resolve(isa, &isa));
    if (count < 1)
        return heed_fail(HEED_INVALID, "%d tensors to pack: at least 1", count);
    for (int s = 0; s < count; s++)
        TRY(check_weights(weights[s], weights[0]->shape[1]));
    heed_matrix *m = calloc(1, sizeof *m + (size_t)count * sizeof *m->segment);
    if (!m)
        return heed_fail(HEED_NO_MEMORY, "no memory for a matrix");
    m->cols = weights[0]->shape[1];
    m->kind = kind;
    m->kernels = kernels_for(isa);
    m->segments = count;
    m->pooled = pool != NULL;
    int span = HEED_WHOLE;
    for (int s = 0; s < count; s++) {
        heed_segment *segment = &m->segment[s];
        plan_segment(weights[s], segment, m->rows, m->panels);
        m->rows += segment->rows;
        m->panels += segment->panels;
        span = segment->layout.span > span ? segment->layout.span : span;
        const bool whole = heed_segment_whole(m, segment);
        m->any_whole = m->any_whole || whole;
        m->any_float = m->any_float || !whole;
        m->any_16 = m->any_16 || (whole && segment->layout.format->group == 16);
    }
    m->depth = (m->cols + span - 1) / span * span;
    m->float_depth = (m->cols + HEED_STEP - 1) / HEED_STEP * HEED_STEP;
    bool counted = m->cols <= INT64_MAX / 1024;
    for (int s = 0; s < count && counted; s++)
        counted = size_segment(m, &m->segment[s]);
    heed_status status =
        counted ? pack(m, pool, weights, threads > 0 ? threads : heed_cpu_physical_cores())
                : heed_fail(HEED_NO_MEMORY, "a matrix of %lld x %lld takes more memory than can be counted",
                            (long long)m->rows, (long long)m->cols);
    name_matrix(m);
    if (status == HEED_OK)
        *matrix = m;
    else
        heed_matrix_free(m);
    return status;
}

void heed_matrix_free(heed_matrix *matrix)
{
    for (int s = 0; matrix && !matrix->pooled && s < matrix->segments; s++)
        free(matrix->segment[s].data);
    free(matrix);
}

int64_t heed_matrix_rows(const heed_matrix *matrix)
{
    return matrix->rows;
}

int64_t heed_matrix_cols(const heed_matrix *matrix)
{
    return matrix->cols;
}

size_t heed_matrix_bytes(const heed_matrix *matrix)
{
    return matrix->bytes;
}

const char *heed_matrix_kernel(const heed_matrix *matrix)
{
    return matrix->name;
}

void heed_matrix_row(const heed_matrix *matrix, int64_t r, float *to)
{
    const heed_segment *segment = matrix->segment;
    while (r >= segment->row0 + segment->rows)
        segment++;
    r -= segment->row0;
    heed_panel_row(segment, segment->data + (size_t)(r / HEED_PANEL) * segment->panel_bytes,
                   (int)(r % HEED_PANEL), matrix->cols, to);
}
