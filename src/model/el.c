#include "model/el.h"
#include "attend/plan.h"
#include "base/arena.h"
#include "base/try.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct heed_el {
    heed_el_options options;
    heed_plan *plan;
    float *projected; /* [heads head_dim] of one token */
    float *query;     /* [heads][queries][width] as they meet H */
    float *read;      /* [heads][queries][width] what they read of it */
};

/* y = W x + b, W [rows][cols]. */
static void product(const float *w, const float *bias, const float *x, int64_t rows, int64_t cols, float *y)
{
    for (int64_t r = 0; r < rows; r++) {
        float sum = bias ? bias[r] : 0.0f;
        const float *row = w + r * cols;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < cols; c++)
            sum += row[c] * x[c];
        y[r] = sum;
    }
}

/* y = W^T x. */
static void product_back(const float *w, const float *x, int64_t rows, int64_t cols, float *y)
{
    memset(y, 0, (size_t)cols * sizeof *y);
    for (int64_t r = 0; r < rows; r++) {
        const float *row = w + r * cols, by = x[r];
#pragma omp simd
        for (int64_t c = 0; c < cols; c++)
            y[c] += by * row[c];
    }
}

static heed_status check_plan(const heed_plan *plan)
{
    for (int p = 0; p < plan->pipelines; p++)
        for (int n = 0; n < plan->pipeline[p].prepares; n++) {
            const heed_form *form = plan->pipeline[p].form[plan->pipeline[p].prepare[n]].form;
            if (form->stage == HEED_POSITION && form->prepare_key)
                return heed_fail(
                    HEED_UNSUPPORTED,
                    "position=%s turns keys by their positions, after they were projected, so they "
                    "cannot be left out of the cache: EL-attention is for models without it",
                    form->name);
        }
    return HEED_OK;
}

static heed_status build(heed_el *el)
{
    const heed_el_options *o = &el->options;
    char spec[1024];
    if (o->width < 1 || o->heads < 1 || o->head_dim < 1 || o->queries < 1 || o->keys < 1)
        return heed_fail(HEED_INVALID,
                         "sizes must be at least 1: width %lld, %lld heads of %lld, %lld queries, "
                         "%lld keys",
                         (long long)o->width, (long long)o->heads, (long long)o->head_dim,
                         (long long)o->queries, (long long)o->keys);
    const int length = snprintf(spec, sizeof spec, "score=dot(%.17g); %s", 1.0 / sqrt((double)o->head_dim),
                                o->attention ? o->attention : "");
    if (length < 0 || (size_t)length >= sizeof spec)
        return heed_fail(HEED_INVALID, "an attention of %d bytes is too long", length);
    const heed_problem problem = {.batch = 1,
                                  .heads = o->heads,
                                  .kv_heads = 1,
                                  .queries = o->queries,
                                  .keys = o->keys,
                                  .dim = o->width,
                                  .k_type = o->type,
                                  .v_type = o->type,
                                  .threads = o->threads,
                                  .with = HEED_WITH_SEQ};
    TRY(heed_plan_create(&el->plan, spec, &problem));
    TRY(check_plan(el->plan));
    const size_t rows = (size_t)(o->heads * o->queries), bytes = (size_t)o->width * sizeof(float);
    el->projected = heed_allocate((size_t)(o->heads * o->head_dim), sizeof(float));
    el->query = heed_allocate(rows, bytes);
    el->read = heed_allocate(rows, bytes);
    return el->projected && el->query && el->read ? HEED_OK
                                                  : heed_fail(HEED_NO_MEMORY, "no memory for EL-attention");
}

heed_status heed_el_create(heed_el **out, const heed_el_options *options)
{
    heed_el *el = calloc(1, sizeof *el);
    *out = NULL;
    if (!el)
        return heed_fail(HEED_NO_MEMORY, "no memory for EL-attention");
    el->options = *options;
    const heed_status status = build(el);
    if (status)
        heed_el_free(el);
    else
        *out = el;
    return status;
}

void heed_el_free(heed_el *el)
{
    if (!el)
        return;
    heed_plan_free(el->plan);
    free(el->projected);
    free(el->query);
    free(el->read);
    free(el);
}

size_t heed_el_token_bytes(const heed_el *el)
{
    return (size_t)heed_type_bytes(el->options.type, el->options.width);
}

/* Queries as they meet H: back through the keys' projection of their head. */
static void expand(heed_el *el, const heed_el_weights *w, const float *x, int64_t queries)
{
    for (int64_t i = 0; i < queries; i++) {
        product(w->query, w->query_bias, x + i * w->width, w->heads * w->head_dim, w->width, el->projected);
        for (int64_t h = 0; h < w->heads; h++)
            product_back(w->key + h * w->head_dim * w->width, el->projected + h * w->head_dim, w->head_dim,
                         w->width, el->query + (h * el->options.queries + i) * w->width);
    }
}

static void finish(heed_el *el, const heed_el_weights *w, int64_t queries, float *out)
{
    for (int64_t i = 0; i < queries; i++) {
        for (int64_t h = 0; h < w->heads; h++)
            product(w->value + h * w->head_dim * w->width,
                    w->value_bias ? w->value_bias + h * w->head_dim : NULL,
                    el->read + (h * el->options.queries + i) * w->width, w->head_dim, w->width,
                    el->projected + h * w->head_dim);
        product(w->output, w->output_bias, el->projected, w->width, w->heads * w->head_dim,
                out + i * w->width);
    }
}

heed_status heed_el_attend(heed_el *el, const heed_el_weights *w, const float *x, int64_t queries,
                           const void *held, int64_t keys, float *out)
{
    const heed_el_options *o = &el->options;
    if (w->width != o->width || w->heads != o->heads || w->head_dim != o->head_dim)
        return heed_fail(HEED_INVALID, "the weights are of another shape than EL-attention was made for");
    if (queries < 1 || queries > o->queries || keys < 1 || keys > o->keys)
        return heed_fail(HEED_INVALID, "%lld queries and %lld keys: 1 to %lld and 1 to %lld were asked for",
                         (long long)queries, (long long)keys, (long long)o->queries, (long long)o->keys);
    expand(el, w, x, queries);
    int32_t seen = (int32_t)keys, asked = (int32_t)queries;
    const int64_t one = 1;
    const heed_tensor q = heed_tensor_dense(el->query, HEED_F32, 4,
                                            (int64_t[]){1, o->heads, o->queries, o->width}),
                      to = heed_tensor_dense(el->read, HEED_F32, 4,
                                             (int64_t[]){1, o->heads, o->queries, o->width}),
                      h = heed_tensor_dense((void *)(uintptr_t)held, o->type, 4,
                                            (int64_t[]){1, 1, o->keys, o->width});
    const heed_extra extra = {.seq = heed_tensor_dense(&seen, HEED_I32, 1, &one),
                              .q_seq = heed_tensor_dense(&asked, HEED_I32, 1, &one)};
    TRY(heed_attend(el->plan, &q, &h, &h, &to, &extra));
    finish(el, w, queries, out);
    return HEED_OK;
}
