/* What ltri.c remembers of a sequence, and where it works. */
#ifndef HEED_ATTEND_SELECT_LTRI_H
#define HEED_ATTEND_SELECT_LTRI_H

#include "attend/form.h"
#include "base/arena.h"

#include <heed/gather.h>
#include <heed/recall.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEED_LTRI_CHUNK,
    HEED_LTRI_WINDOW,
    HEED_LTRI_SINKS,
    HEED_LTRI_LEAST,
    HEED_LTRI_MOST,
    HEED_LTRI_THETA,
    HEED_LTRI_IOU,
    HEED_LTRI_BUDGET,
    HEED_LTRI_PERSIST
};

static inline float heed_ltri_product(const float *restrict x, const float *restrict y, int n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* Keys from .. until - 1. */
typedef struct heed_ltri_span {
    int32_t from, until;
} heed_ltri_span;

typedef struct heed_ltri {
    float *key;           /* [chunk][dim] */
    float *map;           /* [chunk][chunk] */
    float *score;         /* [chunk][most] */
    float *weight, *mean; /* [chunk or dim, the larger], [dim] */
    heed_ltri_span *span; /* [chunk] of one chunk */
    uint8_t *taken;       /* [chunk or spans, the larger] */
    float *value, *total; /* [spans] */
    int32_t *votes;       /* [spans] */
    int32_t *list;        /* [M] */
} heed_ltri;

static inline int64_t heed_ltri_chunk(const heed_form_state *form)
{
    return heed_arg_int(form, HEED_LTRI_CHUNK);
}

static inline int64_t heed_ltri_chunks(const heed_form_state *form, int64_t keys)
{
    return (keys + heed_ltri_chunk(form) - 1) / heed_ltri_chunk(form);
}

/* Spans and stretches between them, at most: either after each other, and long stretches cut. */
static inline int64_t heed_ltri_spans(const heed_form_state *form, int64_t keys)
{
    const int64_t chunk = heed_ltri_chunk(form);
    const int64_t each =
        2 * (chunk / heed_arg_int(form, HEED_LTRI_LEAST)) + 2 + chunk / heed_arg_int(form, HEED_LTRI_MOST);
    return heed_ltri_chunks(form, keys) * (each < chunk ? each : chunk);
}

/* Spans that can be elected at once. */
static inline int64_t heed_ltri_most_elected(const heed_form_state *form, int64_t keys)
{
    const int64_t spans = heed_ltri_spans(form, keys), budget = heed_arg_int(form, HEED_LTRI_BUDGET);
    return spans < budget ? spans : budget;
}

static inline heed_status heed_ltri_resolve(heed_form_state *form)
{
    if (heed_arg_int(form, HEED_LTRI_WINDOW) < heed_ltri_chunk(form))
        return heed_fail(HEED_INVALID,
                         "select=ltri: window is %d, it must be at least a chunk, which is %lld",
                         heed_arg_int(form, HEED_LTRI_WINDOW), (long long)heed_ltri_chunk(form));
    if (heed_arg_int(form, HEED_LTRI_MOST) < heed_arg_int(form, HEED_LTRI_LEAST) ||
        heed_arg_int(form, HEED_LTRI_MOST) > heed_ltri_chunk(form))
        return heed_fail(HEED_INVALID,
                         "select=ltri: most is %d, it must be at least `least` and at most a chunk",
                         heed_arg_int(form, HEED_LTRI_MOST));
    if (form->backward)
        return heed_fail(HEED_UNSUPPORTED, "select=ltri goes from chunk to chunk, which has no gradient");
    return HEED_OK;
}

/* The first key that a query at key `i` reads in any case, sinks aside. */
static inline int64_t heed_ltri_near(const heed_form_state *form, int64_t i)
{
    const int64_t near = i - heed_arg_int(form, HEED_LTRI_WINDOW) + 1;
    return near > 0 ? near : 0;
}

/* numbers: [2] when there was an election, and the chunk whose queries are held; [chunks] spans up to the end
 * of a chunk; [spans][2] spans; [chunks][1 + most elected] how many and which a chunk's tokens read */
static inline int64_t heed_ltri_numbers(const heed_form_state *form, int64_t keys)
{
    const int64_t chunks = heed_ltri_chunks(form, keys);
    return 2 + chunks + 2 * heed_ltri_spans(form, keys) + chunks * (1 + heed_ltri_most_elected(form, keys));
}

static inline int32_t *heed_ltri_since(const heed_memory *memory)
{
    return memory->number;
}

static inline int32_t *heed_ltri_ends(const heed_form_state *form, const heed_memory *memory)
{
    (void)form;
    return memory->number + 2;
}

static inline heed_ltri_span *heed_ltri_list(const heed_form_state *form, const heed_memory *memory)
{
    return (heed_ltri_span *)(void *)(memory->number + 2 + heed_ltri_chunks(form, form->sizes.keys));
}

static inline int32_t *heed_ltri_elected(const heed_form_state *form, const heed_memory *memory, int64_t c)
{
    const int64_t keys = form->sizes.keys;
    return memory->number + 2 + heed_ltri_chunks(form, keys) + 2 * heed_ltri_spans(form, keys) +
           c * (1 + heed_ltri_most_elected(form, keys));
}

/* reals: [kv heads][spans][dim] means of keys; [H][chunk][dim] queries of a chunk that is being read */
static inline int64_t heed_ltri_reals(const heed_form_state *form, int64_t keys)
{
    return (form->sizes.kv_heads * heed_ltri_spans(form, keys) + form->sizes.heads * heed_ltri_chunk(form)) *
           form->sizes.dim;
}

static inline float *heed_ltri_index(const heed_form_state *form, const heed_memory *memory)
{
    (void)form;
    return memory->real;
}

static inline float *heed_ltri_queries(const heed_form_state *form, const heed_memory *memory, int64_t head)
{
    return memory->real +
           (form->sizes.kv_heads * heed_ltri_spans(form, form->sizes.keys) + head * heed_ltri_chunk(form)) *
               form->sizes.dim;
}

static inline bool heed_ltri_ready(const heed_form_state *form, const heed_memory *memory, int64_t before)
{
    return before % heed_ltri_chunk(form) == 0 || memory->number[1] == before / heed_ltri_chunk(form);
}

static inline int64_t heed_ltri_unit(const heed_form_state *form)
{
    (void)form;
    return 1;
}

static inline heed_ltri heed_ltri_carve(const heed_form_state *form, void *base, size_t *bytes)
{
    const size_t chunk = (size_t)heed_ltri_chunk(form), dim = (size_t)form->sizes.dim;
    const size_t spans = (size_t)heed_ltri_spans(form, form->sizes.keys);
    heed_arena arena = {.base = base};
    heed_ltri l = {.key = heed_arena_take(&arena, chunk * dim, sizeof(float))};
    l.map = heed_arena_take(&arena, chunk * chunk, sizeof(float));
    l.score = heed_arena_take(&arena, chunk * (size_t)heed_arg_int(form, HEED_LTRI_MOST), sizeof(float));
    l.weight = heed_arena_take(&arena, chunk > dim ? chunk : dim, sizeof(float));
    l.mean = heed_arena_take(&arena, dim, sizeof(float));
    l.span = heed_arena_take(&arena, chunk, sizeof *l.span);
    l.taken = heed_arena_take(&arena, chunk > spans ? chunk : spans, 1);
    l.value = heed_arena_take(&arena, spans, sizeof(float));
    l.total = heed_arena_take(&arena, spans, sizeof(float));
    l.votes = heed_arena_take(&arena, spans, sizeof(int32_t));
    l.list = heed_arena_take(&arena, (size_t)form->sizes.keys, sizeof(int32_t));
    *bytes = arena.used;
    return l;
}

static inline size_t heed_ltri_bytes(const heed_form_state *form)
{
    size_t bytes;
    heed_ltri_carve(form, NULL, &bytes);
    return bytes;
}

static inline heed_ltri heed_ltri_room(const heed_form_state *form, void *base)
{
    size_t bytes;
    return heed_ltri_carve(form, base, &bytes);
}

#endif
