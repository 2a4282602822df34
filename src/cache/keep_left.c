/* What one judge left, copied together for the next. */
#include "cache/keep_parts.h"

#include <string.h>

static size_t rounded(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

size_t heed_left_bytes(const heed_chain *chain, const heed_held *largest)
{
    const size_t count = (size_t)largest->count, f = sizeof(float);
    const size_t rows[] = {sizeof *largest->pos,
                           sizeof *largest->token,
                           sizeof *largest->token_kind,
                           (size_t)largest->dim * f,
                           (size_t)largest->dim * f,
                           (size_t)largest->value_dim * f,
                           f,
                           (size_t)chain->state_floats * f,
                           (size_t)(largest->group * largest->queries) * f};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        bytes += rounded(count * rows[i]);
    return bytes;
}

/* The rows that stay, from `from`, `stride` bytes apart, to the next part of the memory. From and to may be
 * the same array: rows only move down. */
static const void *rows_left(const void *from, size_t stride, size_t bytes, const heed_held *held,
                             const uint8_t *keep, char **to, int64_t capacity)
{
    char *out = *to;
    if (!from)
        return NULL;
    *to += rounded((size_t)capacity * bytes);
    int64_t n = 0;
    for (int64_t i = 0; i < held->count; i++)
        if (keep[i])
            memmove(out + (size_t)n++ * bytes, (const char *)from + (size_t)i * stride, bytes);
    return out;
}

static const float *weights_left(const heed_held *held, const uint8_t *keep, char *to)
{
    float *out = (float *)(void *)to;
    if (!held->weight)
        return NULL;
    int64_t n = 0;
    for (int64_t row = 0; row < held->group * held->queries; row++)
        for (int64_t i = 0; i < held->count; i++)
            if (keep[i])
                out[n++] = held->weight[row * held->count + i];
    return (const float *)(const void *)to;
}

heed_held heed_left(const heed_chain *chain, const heed_held *held, const uint8_t *keep, int32_t *index,
                    void *memory, int64_t capacity)
{
    heed_held left = *held;
    char *to = memory;
    const size_t f = sizeof(float), state = (size_t)chain->state_floats * f;
    const size_t key = (size_t)held->dim * f, value = (size_t)held->value_dim * f;
#define LEFT(array, stride, bytes)                                                                           \
    left.array = rows_left(held->array, stride, bytes, held, keep, &to, capacity)
    LEFT(pos, sizeof *held->pos, sizeof *held->pos);
    LEFT(token, sizeof *held->token, sizeof *held->token);
    LEFT(token_kind, sizeof *held->token_kind, sizeof *held->token_kind);
    LEFT(key, key, key);
    LEFT(bare, key, key);
    LEFT(value, value, value);
    LEFT(mass, f, f);
    LEFT(state, (size_t)held->state_stride * f, state);
#undef LEFT
    left.state_stride = chain->state_floats;
    left.weight = weights_left(held, keep, to);
    left.count = 0;
    for (int64_t i = 0; i < held->count; i++)
        if (keep[i])
            index[left.count++] = index[i];
    return left;
}
