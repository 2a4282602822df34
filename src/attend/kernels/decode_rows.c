/* Where the rows of a tile lie, and rows that are turned into floats first. */
#include "attend/kernels/convert.h"
#include "attend/kernels/decode_load.h"
#include "attend/kernels/decode_tile.h"

/* How far ahead of use rows are fetched into the second cache: less where several queries share the work of
 * loading a row, and longer take for it; but some rows in any case, and one more, since whole pages of memory
 * ahead of what is read would share its place in the cache. And into the first. */
#define FAR_BYTES(queries) ((queries) > 2 ? 8192 : 12288)
#define FAR_ROWS 32
#define NEAR_BYTES 6144

/* Addresses of rows first.. of k or v. */
static void point_at(const heed_passing *p, const heed_tensor *tensor, int64_t first, int count,
                     const char **row)
{
    const heed_decode_group *group = p->group;
    if (!(p->run->plan->problem.with & HEED_WITH_PAGES)) {
        const char *head = (const char *)tensor->data + group->group * tensor->stride[1];
        head += group->batch * tensor->stride[0] + first * tensor->stride[2];
        for (int j = 0; j < count; j++)
            row[j] = head + j * tensor->stride[2];
        return;
    }
    const int64_t *step = p->run->page_step, page = p->run->plan->problem.page;
    const int shift = __builtin_ctzll((unsigned long long)page);
    const char *entry = p->run->page_table + group->batch * step[0] + group->group * step[1];
    for (int j = 0; j < count;) {
        const int64_t key = first + j, within = key & (page - 1);
        int64_t number;
        const heed_tensor *pool = heed_pool_of(
            p->run, tensor, *(const int32_t *)(const void *)(entry + (key >> shift) * step[2]), &number);
        const char *at = (const char *)pool->data + group->group * pool->stride[1] +
                         number * pool->stride[0] + within * pool->stride[2];
        const int here = heed_smaller(page - within, count - j);
        for (int i = 0; i < here; i++)
            row[j + i] = at + i * pool->stride[2];
        j += here;
    }
}

static void repeat_last(const char **row, int real, int count)
{
    for (int j = real; j < count; j++)
        row[j] = row[real - 1];
}

/* Addresses of the first `most` rows of a part. */
static int point_at_runs(const heed_passing *p, const heed_tensor *tensor, const heed_part *at, int most,
                         const char **row)
{
    int listed = 0;
    for (int n = 0; n < at->run_count && listed < most; n++) {
        const int here = heed_smaller(most - listed, at->runs[n].count);
        point_at(p, tensor, at->runs[n].first, here, row + listed);
        listed += here;
    }
    return listed;
}

static void will_read(const heed_passing *p, const heed_part *at, int when)
{
    for (int n = 0; n < at->run_count; n++)
        heed_will_read(p->run, p->group->batch, p->group->group, at->runs[n].first, at->runs[n].count, when);
}

void heed_list_rows(const heed_passing *p, const heed_part *at, const heed_part *next, bool values,
                    const char **row)
{
    will_read(p, next, HEED_READS_NEXT);
    will_read(p, at, HEED_READS_NOW);
    const heed_tensor *tensor[] = {&p->run->k, &p->run->v};
    for (int i = 0; i < 1 + values; i++, row += at->count) {
        point_at_runs(p, tensor[i], at, at->real, row);
        repeat_last(row, at->real, at->count);
    }
    const int ahead = point_at_runs(p, &p->run->k, next, HEED_AHEAD, row);
    repeat_last(row, ahead, HEED_AHEAD); /* after the last tile nothing new */
}

void heed_load_runs(const heed_passing *p, const heed_tensor *tensor, const heed_part *at, float *to,
                    int64_t stride)
{
    const bool paged = p->run->plan->problem.with & HEED_WITH_PAGES;
    for (int n = 0; n < at->run_count; n++) {
        heed_load_rows(p->run, tensor, paged, p->group->batch, p->group->group, at->runs[n].first,
                       at->runs[n].count, to, stride);
        to += at->runs[n].count * stride;
    }
}

const heed_tensor *heed_pool_of_part(const heed_passing *p, const heed_part *at, const heed_tensor *base)
{
    const heed_problem *problem = &p->run->plan->problem;
    if (problem->grades == 0)
        return base;
    const int64_t *step = p->run->page_step, page = problem->page;
    const char *table = p->run->page_table + p->group->batch * step[0] + p->group->group * step[1];
    const heed_tensor *found = NULL;
    for (int n = 0; n < at->run_count; n++)
        for (int64_t i = at->runs[n].first / page; i * page < at->runs[n].first + at->runs[n].count; i++) {
            int64_t number;
            const heed_tensor *pool =
                heed_pool_of(p->run, base, *(const int32_t *)(const void *)(table + i * step[2]), &number);
            if (found && pool != found)
                return NULL;
            found = pool;
        }
    return found;
}

const char *heed_page_of_key(const heed_passing *p, const heed_tensor *pool, int64_t key)
{
    const int64_t *step = p->run->page_step, page = p->run->plan->problem.page;
    const char *entry =
        p->run->page_table + p->group->batch * step[0] + p->group->group * step[1] + key / page * step[2];
    const int32_t number = *(const int32_t *)(const void *)entry & ((1 << HEED_GRADE_SHIFT) - 1);
    return (const char *)pool->data + p->group->group * pool->stride[1] + number * pool->stride[0];
}

bool heed_is_readable(const heed_tensor *tensor)
{
    if (!tensor)
        return false;
    if (heed_is_blocks(tensor->type))
        return true;
    if (heed_type_block(tensor->type) > 1)
        return false;
    if (tensor->stride[3] != heed_step_bytes(tensor->type) && tensor->shape[3] > 1)
        return false;
    bool aligned = (uintptr_t)tensor->data % (uintptr_t)heed_step_bytes(tensor->type) == 0;
    for (int d = 0; d < 3; d++)
        aligned = aligned && tensor->stride[d] % heed_step_bytes(tensor->type) == 0;
    return aligned;
}

heed_decode_rows heed_rows_of_part(const heed_passing *p, const heed_part *at, const heed_tensor *tensor,
                                   const char **row)
{
    if (!tensor) /* of several types, to be unpacked */
        return (heed_decode_rows){.count = at->count, .dim = (int)p->run->plan->problem.dim, .row = row};
    const int64_t bytes = heed_type_bytes(tensor->type, tensor->shape[3]);
    const int64_t far = FAR_BYTES(p->group->rows) / bytes;
    return (heed_decode_rows){.type = tensor->type,
                              .count = at->count,
                              .dim = (int)tensor->shape[3],
                              .row = row,
                              .far = heed_whole_serves(tensor->type) ? HEED_AHEAD
                                     : tensor->type == HEED_Q4
                                         ? 0
                                         : heed_smaller((far > FAR_ROWS ? far : FAR_ROWS) + 1, HEED_AHEAD),
                              .near = heed_smaller(NEAR_BYTES / bytes + 1, HEED_AHEAD),
                              .lines = (int)((bytes + 32) / 64),
                              .half = p->work->half,
                              .spare = p->work->spare,
                              .whole = p->pipeline->fast_products && heed_whole_serves(tensor->type)};
}

void heed_unpack_part(const heed_passing *p, const heed_part *at, const heed_tensor *tensor, float *to,
                      int64_t stride, heed_decode_rows *rows, const char **row)
{
    heed_load_runs(p, tensor, at, to, stride);
    rows->dim = (int)tensor->shape[3];
    for (int j = 0; j < at->real; j++)
        row[j] = (const char *)(to + j * stride);
    repeat_last(row, at->real, at->count);
    rows->type = HEED_F32;
    rows->whole = false;
    rows->lines = 0;
}
