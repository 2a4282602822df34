#include "support/attend_tensors.h"

#include <stdlib.h>
#include <string.h>

static heed_tensor view(void *data, heed_type type, const int64_t shape[4], attend_layout layout)
{
    heed_tensor t = heed_tensor_dense(data, type, 4, shape);
    const int64_t row = heed_type_bytes(type, shape[3]), one = row / (shape[3] ? shape[3] : 1);
    if (layout == LAYOUT_HEADS_INSIDE) {
        t.stride[1] = row;
        t.stride[2] = shape[1] * row;
    } else if (layout == LAYOUT_TRANSPOSED) {
        t.stride[2] = one;
        t.stride[3] = shape[2] * one;
    }
    return t;
}

static char *place(const heed_tensor *t, int64_t a, int64_t b, int64_t c)
{
    return (char *)t->data + a * t->stride[0] + b * t->stride[1] + c * t->stride[2];
}

/* One row of values into a tensor. */
static void put_row(const heed_tensor *t, int64_t a, int64_t b, int64_t c, const float *x)
{
    char *at = place(t, a, b, c);
    const int64_t n = t->shape[3];
    if (heed_type_block(t->type) > 1 || t->stride[3] == heed_type_bytes(t->type, 1)) {
        heed_store(t->type, x, at, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        heed_store(t->type, x + i, at + i * t->stride[3], 1);
}

/* A new tensor filled with bytes that read as NaN in every type. */
heed_tensor attend_blank(heed_type type, const int64_t shape[4], attend_layout layout)
{
    const size_t bytes = (size_t)(shape[0] * shape[1] * shape[2] * heed_type_bytes(type, shape[3]));
    void *data = malloc(bytes + 1);
    memset(data, 0xff, bytes + 1);
    return view(data, type, shape, layout);
}

heed_tensor attend_stored(heed_type type, const float *x, const int64_t shape[4], attend_layout layout)
{
    if (heed_type_block(type) > 1)
        layout = layout == LAYOUT_TRANSPOSED ? LAYOUT_DENSE : layout;
    const heed_tensor t = attend_blank(type, shape, layout);
    for (int64_t a = 0; a < shape[0]; a++)
        for (int64_t b = 0; b < shape[1]; b++)
            for (int64_t c = 0; c < shape[2]; c++)
                put_row(&t, a, b, c, x + ((a * shape[1] + b) * shape[2] + c) * shape[3]);
    return t;
}

/* A pool of pages in which the keys of a batch lie scattered; unused places hold NaN. */
heed_tensor attend_pooled(heed_type type, const float *x, const int64_t shape[4], int64_t page,
                          const int32_t *table, int64_t pages)
{
    const int64_t each = (shape[2] + page - 1) / page;
    const heed_tensor t = attend_blank(type, (int64_t[]){pages, shape[1], page, shape[3]}, LAYOUT_DENSE);
    for (int64_t a = 0; a < shape[0]; a++)
        for (int64_t b = 0; b < shape[1]; b++)
            for (int64_t c = 0; c < shape[2]; c++)
                put_row(&t, table[a * each + c / page], b, c % page,
                        x + ((a * shape[1] + b) * shape[2] + c) * shape[3]);
    return t;
}

/* A dense copy of an f32 tensor; frees the tensor's memory. */
float *attend_taken(heed_tensor t)
{
    const int64_t *n = t.shape;
    float *x = malloc((size_t)(n[0] * n[1] * n[2] * n[3] + 1) * sizeof *x), *at = x;
    for (int64_t a = 0; a < n[0]; a++)
        for (int64_t b = 0; b < n[1]; b++)
            for (int64_t c = 0; c < n[2]; c++)
                for (int64_t i = 0; i < n[3]; i++)
                    memcpy(at++, place(&t, a, b, c) + i * t.stride[3], sizeof *at);
    free(t.data);
    return x;
}
