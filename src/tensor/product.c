/* Running a product: activations into tiles, then panels shared among threads. */
#include "base/arena.h"
#include "tensor/kernels/table.h"
#include <omp.h>

enum { SMALL = 48 * 1024 }; /* bytes of weights below which a second thread costs more than it gives */

/* Everything one call works on. */
typedef struct product_run {
    const heed_matrix *matrix;
    const heed_product_call *call;
    int threads;
    int8_t *whole;
    heed_deep_block *deep;
    float *scale;
    heed_whole_sums by32, by16;
    float *floats;
    heed_whole_tile *tile;   /* [tiles] */
    int64_t tiles, parts;    /* of whole numbers; parts of the rows that are worked on apart */
    heed_product_work *work; /* [threads] */
} product_run;

static heed_whole_sums take_sums(heed_arena *arena, size_t count)
{
    heed_whole_sums sums;
    sums.sum = heed_arena_take(arena, count, sizeof *sums.sum);
    sums.shift = heed_arena_take(arena, count, sizeof *sums.shift);
    return sums;
}

static heed_whole_sums sums_from(heed_whole_sums sums, size_t first)
{
    return (heed_whole_sums){sums.sum ? sums.sum + first : NULL, sums.shift ? sums.shift + first : NULL};
}

static size_t carve(product_run *run, void *base, int64_t n, int threads)
{
    const heed_matrix *m = run->matrix;
    const heed_product_kernels *kernels = m->kernels;
    heed_arena arena = {.base = base};
    const size_t depth = (size_t)m->depth, groups = depth / 16, rows = (size_t)n;
    const size_t tile_rows = (size_t)kernels->whole_rows;
    size_t numbers = 0;
    arena.overflow = __builtin_mul_overflow(rows, depth, &numbers);
    run->tiles = (n + kernels->whole_rows - 1) / kernels->whole_rows;
    if (m->any_whole) {
        run->whole = heed_arena_take(&arena, numbers, sizeof *run->whole);
        run->deep = heed_arena_take(&arena, numbers / HEED_WHOLE, sizeof *run->deep);
        run->scale = heed_arena_take(&arena, numbers / HEED_WHOLE, sizeof *run->scale);
        run->by32 = take_sums(&arena, numbers / HEED_WHOLE);
        if (m->any_16)
            run->by16 = take_sums(&arena, numbers / 16);
        run->tile = heed_arena_take(&arena, (size_t)run->tiles, sizeof *run->tile);
    }
    if (m->any_float)
        run->floats = heed_arena_take(&arena, numbers, sizeof *run->floats);
    run->work = heed_arena_take(&arena, (size_t)threads, sizeof *run->work);
    for (int t = 0; t < threads; t++) {
        heed_product_work work = {0};
        work.level = heed_arena_take(&arena, HEED_CHUNK, HEED_PANEL);
        work.scale = heed_arena_take(&arena, HEED_CHUNK / 16 * HEED_PANEL, sizeof(float));
        work.offset = heed_arena_take(&arena, HEED_CHUNK / 16 * HEED_PANEL, sizeof(float));
        work.panel = heed_arena_take(&arena, HEED_FLOAT_CHUNK * HEED_PANEL, sizeof(float));
        work.sum = heed_arena_take(&arena, HEED_BATCH * HEED_PANEL, sizeof(float));
        work.low = heed_arena_take(&arena, HEED_BATCH * HEED_PANEL, sizeof(float));
        work.init = heed_arena_take(&arena, groups * tile_rows, sizeof *work.init);
        if (base)
            run->work[t] = work;
    }
    return arena.overflow ? SIZE_MAX : arena.used;
}

size_t heed_product_scratch(const heed_matrix *matrix, int64_t n, int threads)
{
    product_run run = {.matrix = matrix};
    return carve(&run, NULL, n, threads < 1 ? 1 : threads);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void prepare_whole(const product_run *run, int64_t t)
{
    const heed_matrix *m = run->matrix;
    const int64_t row = t * m->kernels->whole_rows;
    const size_t before = (size_t)row * (size_t)m->depth;
    heed_whole_tile *tile = &run->tile[t];
    *tile = (heed_whole_tile){.rows = (int)least(m->kernels->whole_rows, run->call->n - row),
                              .whole = run->whole + before,
                              .deep = run->call->fine ? run->deep + before / HEED_WHOLE : NULL,
                              .scale = run->scale + before / HEED_WHOLE,
                              .by32 = sums_from(run->by32, before / HEED_WHOLE),
                              .by16 = sums_from(run->by16, before / 16)};
    m->kernels->to_whole(run->call->x + row * run->call->x_stride, run->call->x_stride, m->cols, m->depth,
                         tile);
}

static void prepare_floats(const product_run *run, int64_t t)
{
    const heed_matrix *m = run->matrix;
    const int64_t row = t * m->kernels->float_rows;
    m->kernels->to_floats(run->call->x + row * run->call->x_stride, run->call->x_stride, m->cols,
                          (int)least(m->kernels->float_rows, run->call->n - row),
                          run->floats + row * m->float_depth);
}

static const heed_segment *segment_of(const heed_matrix *matrix, int64_t panel)
{
    const heed_segment *segment = matrix->segment;
    while (panel >= segment->panel0 + segment->panels)
        segment++;
    return segment;
}

/* One panel times one part of the rows. */
static void multiply(const product_run *run, int64_t item, const heed_product_work *work)
{
    const heed_matrix *m = run->matrix;
    const heed_product_call *call = run->call;
    const heed_segment *segment = segment_of(m, item / run->parts);
    const int64_t panel = item / run->parts - segment->panel0, part = item % run->parts;
    const int64_t col = segment->row0 + panel * HEED_PANEL;
    const uint8_t *data = segment->data + (size_t)panel * segment->panel_bytes;
    const bool whole = heed_segment_whole(m, segment);
    const int rows = whole ? m->kernels->whole_rows : m->kernels->float_rows;
    const int64_t tiles = (call->n + rows - 1) / rows;
    const int64_t first = tiles * part / run->parts, last = tiles * (part + 1) / run->parts;
    const heed_product_out out = {.out = call->out + first * rows * call->out_stride + col,
                                  .stride = call->out_stride,
                                  .count = (int)least(HEED_PANEL, segment->rows - panel * HEED_PANEL),
                                  .bias = call->bias ? call->bias + col : NULL,
                                  .add = call->add};
    if (first == last)
        return;
    if (whole)
        m->kernels->whole_panel(segment, data, m->depth, run->tile + first, last - first, work, &out);
    else
        m->kernels->float_panel(segment, data, m->float_depth, run->floats + first * rows * m->float_depth,
                                least(last * rows, call->n) - first * rows, work, &out);
}

/* Parts of the rows, so that threads have enough to share where there are few panels. */
static int64_t parts_of(const heed_matrix *matrix, int64_t n, int threads)
{
    const int64_t wanted = (4 * threads + matrix->panels - 1) / matrix->panels, most = (n + 95) / 96;
    return threads == 1 ? 1 : least(wanted, most);
}

static void work_on(const product_run *run)
{
    const heed_matrix *m = run->matrix;
    const int64_t float_tiles = (run->call->n + m->kernels->float_rows - 1) / m->kernels->float_rows;
    const int64_t items = m->panels * run->parts;
#pragma omp parallel num_threads(run->threads) if (run->threads > 1)
    {
        const heed_product_work *work = &run->work[omp_get_thread_num()];
        if (m->any_whole && run->call->n > 1) {
#pragma omp for schedule(static)
            for (int64_t t = 0; t < run->tiles; t++)
                prepare_whole(run, t);
        }
        if (m->any_float && run->call->n > 1) {
#pragma omp for schedule(static)
            for (int64_t t = 0; t < float_tiles; t++)
                prepare_floats(run, t);
        }
        if (run->call->n > 1) {
#pragma omp for schedule(dynamic, 1)
            for (int64_t i = 0; i < items; i++)
                multiply(run, i, work);
        } else {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < items; i++)
                multiply(run, i, work);
        }
    }
}

void heed_product(const heed_matrix *matrix, const heed_product_call *call)
{
    if (call->n < 1)
        return;
    const int given = call->threads < 1 ? 1 : call->threads;
    product_run run = {.matrix = matrix, .call = call, .threads = given};
    carve(&run, call->scratch, call->n, given);
    if (call->n == 1 && matrix->bytes < SMALL)
        run.threads = 1;
    run.parts = parts_of(matrix, call->n, run.threads);
    if (call->n == 1 && matrix->any_whole)
        prepare_whole(&run, 0);
    if (call->n == 1 && matrix->any_float)
        prepare_floats(&run, 0);
    work_on(&run);
}
