/* One case at many sizes, and parts of a problem. */
#include "support/attend.h"

#include <stdlib.h>
#include <string.h>

static const struct sizes {
    int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
} sizes[] = {
    {1, 1, 1, 1, 1, 2, 1},      {1, 2, 1, 2, 3, 8, 5},       {2, 4, 2, 3, 2, 8, 8},
    {1, 2, 2, 63, 64, 34, 17},  {1, 1, 1, 64, 63, 16, 8},    {1, 2, 1, 65, 65, 64, 64},
    {1, 1, 1, 127, 128, 8, 80}, {1, 2, 2, 129, 130, 16, 33}, {1, 1, 1, 128, 200, 4, 4},
    {1, 4, 1, 1, 257, 128, 64}, {2, 6, 2, 4, 257, 80, 33},   {1, 1, 1, 257, 257, 8, 8},
    {1, 3, 1, 130, 129, 6, 16},
};

void attend_sweep(const attend_case *given, int64_t most)
{
    /* Under a sanitizer or an emulator every second size, the others with the next case. */
    const size_t step = getenv("HEED_TEST_ISA") ? 2 : 1, first = (given->seed ^ given->seed / 10) % step;
    for (size_t i = first; i < sizeof sizes / sizeof *sizes; i += step) {
        const struct sizes *s = &sizes[i];
        attend_case c = *given;
        c.batch = c.batch ? c.batch : s->batch;
        if (!c.heads) {
            c.heads = s->heads;
            c.kv_heads = s->kv_heads;
        }
        c.queries = c.queries ? c.queries : s->queries;
        c.keys = c.keys ? c.keys : s->keys;
        c.dim = c.dim ? c.dim : s->dim;
        c.value_dim = c.value_dim ? c.value_dim : s->value_dim;
        c.seed += i;
        if (most && c.queries * c.keys * c.heads * c.dim > most)
            continue;
        attend_check(&c);
    }
}

static void copy_rows(float *to, const float *from, int64_t blocks, int64_t first, int64_t rows, int64_t of,
                      int64_t width)
{
    for (int64_t b = 0; b < blocks; b++)
        memcpy(to + b * rows * width, from + (b * of + first) * width, (size_t)(rows * width) * sizeof *to);
}

attend_data *attend_slice(const attend_data *d, int64_t first, int64_t queries, int64_t keys)
{
    attend_case c = d->c;
    c.queries = queries;
    c.keys = keys;
    attend_data *part = attend_make(&c);
    copy_rows(part->q, d->q, c.batch * c.heads, first, queries, d->c.queries, c.dim);
    copy_rows(part->k, d->k, c.batch * c.kv_heads, 0, keys, d->c.keys, c.dim);
    copy_rows(part->v, d->v, c.batch * c.kv_heads, 0, keys, d->c.keys, c.value_dim);
    attend_changed(part);
    for (int i = 0; i < part->o->params; i++)
        memcpy(part->o->param[i].value, d->o->param[i].value,
               (size_t)part->o->param[i].count * sizeof(double));
    return part;
}
