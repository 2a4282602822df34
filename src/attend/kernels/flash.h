/* The kernels of one build, and the way out that they share. */
#ifndef HEED_KERNELS_FLASH_H
#define HEED_KERNELS_FLASH_H

#include "attend/kernels/work.h"
#if defined(_OPENMP)
#include <omp.h>
#define heed_thread() omp_get_thread_num()
#else
#define heed_thread() 0
#endif

#define heed_flash_forward HEED_LOCAL(heed_flash_forward)
#define heed_flash_per_thread HEED_LOCAL(heed_flash_per_thread)
#define heed_flash_shared HEED_LOCAL(heed_flash_shared)
#define heed_rows_forward HEED_LOCAL(heed_rows_forward)
#define heed_rows_layout HEED_LOCAL(heed_rows_layout)
#define heed_decode_forward HEED_LOCAL(heed_decode_forward)
#define heed_decode_layout HEED_LOCAL(heed_decode_layout)
#define heed_decode_refuses HEED_LOCAL(heed_decode_refuses)
#define heed_decode_most_queries HEED_LOCAL(heed_decode_most_queries)
#define heed_backward HEED_LOCAL(heed_backward)
#define heed_backward_layout HEED_LOCAL(heed_backward_layout)
#define heed_write_lse HEED_LOCAL(heed_write_lse)
#define heed_write_output HEED_LOCAL(heed_write_output)

void heed_flash_forward(const heed_run *run, const heed_pipeline *pipeline);
size_t heed_flash_per_thread(const heed_plan *plan, const heed_pipeline *pipeline);
size_t heed_flash_shared(const heed_plan *plan, const heed_pipeline *pipeline);

/* rows: complete rows of scores, for forms that need them. */
void heed_rows_forward(const heed_run *run, const heed_pipeline *pipeline);
void heed_rows_layout(const heed_plan *plan, heed_pipeline *pipeline, size_t *shared, size_t *per_thread);

/* decode: few queries; keys and values are read where they lie, quantised or paged, and only once. */
void heed_decode_forward(const heed_run *run, const heed_pipeline *pipeline);
void heed_decode_layout(const heed_plan *plan, heed_pipeline *pipeline, size_t *shared, size_t *per_thread);
/* NULL, or the reason why a pipeline cannot run there. */
const char *heed_decode_refuses(const heed_plan *plan, const heed_pipeline *pipeline);
int64_t heed_decode_most_queries(const heed_plan *plan, const heed_pipeline *pipeline);

/* Gradients of all pipelines; fills plan->backward. */
heed_status heed_backward(const heed_run *run);
void heed_backward_layout(heed_plan *plan);

/* Whether statistics of this plan need the weights of complete rows; entropies of exponentials do not. */
static inline bool heed_sweeps(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const unsigned with = plan->problem.with;
    const bool moment = pipeline->form[pipeline->normalise].form->flags & HEED_KEEPS_MOMENT;
    return with & (HEED_WITH_KEY_SUMS | HEED_WITH_TOP | HEED_WITH_WEIGHTS) ||
           (with & HEED_WITH_ENTROPY && !moment);
}

/* Stores one row's lse where the caller wants it. */
void heed_write_lse(const heed_run *run, int64_t batch, int64_t head, int64_t query, float lse);

/* What backward makes weights from: the largest logit and what the norm is beyond it, or 0 and the norm. */
static inline void heed_put_row_state(const heed_run *run, const heed_pipeline *pipeline, int64_t row,
                                      float max, const heed_row_end *end)
{
    const bool apart =
        pipeline->form[pipeline->normalise].form->flags & HEED_KEEPS_MOMENT && max != -INFINITY;
    if (!run->row_state)
        return;
    run->row_state[2 * row] = apart ? max : 0.0f;
    run->row_state[2 * row + 1] = apart ? end->rest : end->norm;
}

/* Entropy from the sums kept online, for weights w = scale e, e = exp(logit - max):
 * -sum w log w = -scale (sum e log e) - scale log(scale) (sum e). Nothing open, or weights that vanish: 0. */
static inline float heed_entropy_of(float sum, float moment, float scale)
{
    return sum == 0.0f || scale == 0.0f ? 0.0f : -scale * moment - scale * logf(scale) * sum;
}

/* Runs the read stage on finished rows (in place) and stores them in `out`. */
void heed_write_output(const heed_run *run, const heed_pipeline *pipeline, int batch, int head,
                       int64_t query0, int rows, float *sum, int64_t stride);

#endif
