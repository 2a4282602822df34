/* The table of kernels in the build for one instruction set: which class serves a pipeline, and the way out.
 */
#include "attend/kernels/bf16.h"
#include "attend/kernels/choose.h"
#include "attend/kernels/flash.h"
#include "attend/kernels/gather.h"
#include "attend/kernels/pairs.h"
#include <stdlib.h>
#include <string.h>

#define ROWS_AT_ONCE 384       /* query rows that share a packed block of keys */
#define SCATTERED_BLOCK 64     /* queries at once where open blocks lie scattered */
#define ROW_BYTES (512 * 1024) /* queries and sums of a piece of work stay below this */
#define KEPT_BYTES (1536 * 1024)
#define SEGMENTS 8

void heed_write_lse(const heed_run *run, int64_t batch, int64_t head, int64_t query, float lse)
{
    const heed_tensor *to = &run->extra->lse;
    if (to->data)
        *(float *)((char *)to->data + batch * to->stride[0] + head * to->stride[1] + query * to->stride[2]) =
            lse;
}

void heed_write_output(const heed_run *run, const heed_pipeline *pipeline, int batch, int head,
                       int64_t query0, int rows, float *sum, int64_t stride)
{
    const heed_form_state *read = &pipeline->form[pipeline->read];
    const heed_tensor *to = &run->out;
    const int64_t dim = run->plan->problem.value_dim;
    if (read->form->output)
        read->form->output(read, batch, head, query0, rows, sum, stride);
    for (int i = 0; i < rows; i++) {
        char *row =
            (char *)to->data + batch * to->stride[0] + head * to->stride[1] + (query0 + i) * to->stride[2];
        if (to->stride[3] == sizeof(float))
            memcpy(row, sum + i * stride, (size_t)dim * sizeof(float));
        else
            for (int64_t e = 0; e < dim; e++)
                *(float *)(row + e * to->stride[3]) = sum[i * stride + e];
    }
}

static bool scatters(const heed_pipeline *pipeline)
{
    for (int f = 0; f < pipeline->forms; f++)
        if (pipeline->form[f].form->flags & HEED_SCATTERS)
            return true;
    return false;
}

/* NULL, or why blocks of keys that no query chooses cannot be left out by the flash kernel. */
static const char *skips_blocks_not(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const heed_form_state *form = heed_block_selector(pipeline);
    if (!form || pipeline->selects > 1)
        return "a selector needs the whole row";
    if (!pipeline->only_selects)
        return "another form needs whole rows, or mixes heads";
    if (plan->problem.with & HEED_WITH_BACKWARD)
        return "gradients beyond a selector are made from whole rows";
    if (pipeline->keys_by_head)
        return "keys are prepared anew for each query head";
    if (!heed_built_in(form->form) || heed_outside_sees_tiles(pipeline))
        return "a form from outside is shown whole rows";
    if (form->form->observe && pipeline->auxes > 0)
        return "position forms add what queries that lie apart cannot share";
    return NULL;
}

/* Whether the choice is made for several queries together, which whole rows cannot. */
static bool chooses_together(const heed_pipeline *pipeline)
{
    for (int n = 0; n < pipeline->selects; n++) {
        const heed_form_state *form = &pipeline->form[pipeline->select[n]];
        const heed_block_rule rule =
            form->form->block_rule ? form->form->block_rule(form) : (heed_block_rule){0};
        if (form->form->observe || rule.queries > 1 || rule.searches)
            return true;
    }
    return false;
}

static heed_status choose_gather(const heed_plan *plan, heed_pipeline *pipeline)
{
    const heed_kernel forced = plan->problem.kernel;
    const char *refused = heed_gather_refuses(plan, pipeline);
    if (!refused && forced != HEED_KERNEL_AUTO && forced != HEED_KERNEL_GATHER)
        refused = "another kernel was asked for";
    if (refused)
        return heed_fail(HEED_UNSUPPORTED, "select=%s gathers queries and keys in lists of its own: %s",
                         pipeline->form[pipeline->gathers].form->name, refused);
    pipeline->kernel = HEED_KERNEL_GATHER;
    pipeline->why = "the selector says which queries meet which keys, in lists of its own";
    return HEED_OK;
}

static heed_status choose(const heed_plan *plan, heed_pipeline *pipeline)
{
    const heed_kernel forced = plan->problem.kernel;
    if (pipeline->gathers >= 0)
        return choose_gather(plan, pipeline);
    if (forced == HEED_KERNEL_GATHER)
        return heed_fail(HEED_UNSUPPORTED, "the gather kernel cannot run this: no selector makes lists");
    const char *not_decode = heed_decode_refuses(plan, pipeline);
    const char *not_sparse = skips_blocks_not(plan, pipeline);
    const bool decodes = !not_decode && plan->problem.queries <= heed_decode_most_queries(plan, pipeline);
    const bool together = chooses_together(pipeline);
    if (pipeline->recalls >= 0 && !decodes) { /* refused, but with the reason */
        pipeline->kernel = HEED_KERNEL_ROWS;
        pipeline->why = not_decode;
        return HEED_OK;
    }
    if (pipeline->whole_rows && !not_sparse &&
        (forced == HEED_KERNEL_AUTO ? !decodes : forced == HEED_KERNEL_SPARSE)) {
        pipeline->kernel = HEED_KERNEL_SPARSE;
        pipeline->why = "blocks of keys that none of a block of queries chooses are left out";
        return HEED_OK;
    }
    if (together && !(decodes && (forced == HEED_KERNEL_AUTO || forced == HEED_KERNEL_DECODE)))
        return heed_fail(HEED_UNSUPPORTED,
                         "select=%s chooses for several queries together, which the %s kernel "
                         "cannot: %s",
                         pipeline->form[pipeline->select[0]].form->name,
                         heed_kernel_name(forced == HEED_KERNEL_AUTO ? HEED_KERNEL_ROWS : forced),
                         not_sparse ? not_sparse : "it works on whole rows");
    if (pipeline->whole_rows && (forced == HEED_KERNEL_AUTO ? !decodes : forced != HEED_KERNEL_DECODE)) {
        if (forced != HEED_KERNEL_AUTO && forced != HEED_KERNEL_ROWS)
            return heed_fail(HEED_UNSUPPORTED, "the %s kernel cannot run this spec: %s",
                             heed_kernel_name(forced), pipeline->why);
        pipeline->kernel = HEED_KERNEL_ROWS;
        return HEED_OK;
    }
    if (forced == HEED_KERNEL_DECODE && not_decode)
        return heed_fail(HEED_UNSUPPORTED, "the decode kernel cannot run this: %s", not_decode);
    if (forced != HEED_KERNEL_AUTO) {
        pipeline->kernel = forced;
        pipeline->why = "it was asked for";
        return HEED_OK;
    }
    if (decodes) {
        pipeline->kernel = HEED_KERNEL_DECODE;
        pipeline->why = pipeline->by_blocks >= 0 ? "few queries: only blocks of keys that are chosen are read"
                        : pipeline->selects > 0  ? "few queries: only values of keys that are chosen are read"
                                                 : "few queries: keys are read once, where they lie";
    } else if (scatters(pipeline)) {
        pipeline->kernel = HEED_KERNEL_SPARSE;
        pipeline->why = "the open key blocks lie scattered: each block of queries has its own list";
    } else {
        pipeline->kernel = HEED_KERNEL_FLASH;
        pipeline->why = "weights can be normalised online";
    }
    return HEED_OK;
}

static int64_t clamp(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

/* Queries of one head in a piece of work. */
static void choose_blocks(const heed_plan *plan, heed_pipeline *pipeline)
{
    const heed_problem *p = &plan->problem;
    const int heads = heed_most_heads(plan, pipeline);
    const int64_t row =
        (heed_row_stride(plan, pipeline) + heed_value_stride(plan) + pipeline->aux_floats) * 4;
    int64_t rows = clamp(ROW_BYTES / row, HEED_STRIP, ROWS_AT_ONCE) / heads;
    if (pipeline->kernel == HEED_KERNEL_SPARSE)
        rows = SCATTERED_BLOCK;
    if (heed_sweeps(plan, pipeline))
        rows = clamp(KEPT_BYTES / ((p->keys + HEED_KEYS) * 4 * heads), 1, rows);
    rows = heed_round_up(clamp(rows, 1, p->queries > 0 ? p->queries : 1), HEED_STRIP);
    const heed_form_state *by_blocks = heed_block_selector(pipeline);
    if (by_blocks && by_blocks->form->block_rule(by_blocks).queries > 1)
        rows = by_blocks->form->block_rule(by_blocks).queries;
    pipeline->query_block = (int)rows;
    const int64_t blocks = (p->queries + rows - 1) / rows;
    pipeline->segments = 0;
    if (p->with & HEED_WITH_KEY_SUMS)
        pipeline->segments = (int)clamp(SEGMENTS, 1, blocks > 0 ? blocks : 1);
}

static void most(size_t *a, size_t b)
{
    *a = b > *a ? b : *a;
}

static void layout(heed_plan *plan)
{
    plan->forward = plan->backward = (heed_layout){0};
    for (int i = 0; i < plan->pipelines; i++) {
        heed_pipeline *pipeline = &plan->pipeline[i];
        choose_blocks(plan, pipeline);
        if (pipeline->kernel == HEED_KERNEL_FLASH || pipeline->kernel == HEED_KERNEL_SPARSE)
            pipeline->fast_products = pipeline->selects == 0 && heed_bf16_serves(plan, pipeline);
        size_t shared = 0, thread = 0;
        switch (pipeline->kernel) {
        case HEED_KERNEL_ROWS:
            heed_rows_layout(plan, pipeline, &shared, &thread);
            break;
        case HEED_KERNEL_DECODE:
            heed_decode_layout(plan, pipeline, &shared, &thread);
            break;
        case HEED_KERNEL_GATHER:
            thread = heed_gather_per_thread(plan, pipeline);
            pipeline->query_block = 0;
            break;
        default:
            shared = heed_flash_shared(plan, pipeline);
            thread = heed_flash_per_thread(plan, pipeline);
        }
        most(&plan->forward.shared, shared);
        most(&plan->forward.per_thread, thread);
        most(&plan->forward.per_thread, heed_pairs_scratch(plan));
    }
    if (plan->problem.with & HEED_WITH_BACKWARD)
        heed_backward_layout(plan);
}

static heed_status forward(const heed_run *run)
{
    for (int i = 0; i < run->plan->pipelines; i++) {
        const heed_pipeline *pipeline = &run->pipeline[i];
        if (pipeline->kernel == HEED_KERNEL_ROWS)
            heed_rows_forward(run, pipeline);
        else if (pipeline->kernel == HEED_KERNEL_DECODE)
            heed_decode_forward(run, pipeline);
        else if (pipeline->kernel == HEED_KERNEL_GATHER)
            heed_gather_forward(run, pipeline);
        else
            heed_flash_forward(run, pipeline);
        if (run->extra->capture.pairs)
            heed_count_pairs(run, pipeline);
    }
    return HEED_OK;
}

const heed_kernel_table heed_kernels = {
    .rows = HEED_STRIP,
    .width = HEED_WIDTH,
    .forms = heed_form_table,
    .layout = layout,
    .forward = forward,
    .backward = heed_backward,
    .open_pairs = heed_open_pairs,
    .choose = choose,
};
