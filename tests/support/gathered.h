/* Softmaxes over chosen pairs, forward and backward in double precision: what forms that gather queries and
 * keys in lists must come to. One batch entry after the other, one query head after the other. */
#ifndef HEED_SUPPORT_GATHERED_H
#define HEED_SUPPORT_GATHERED_H

#include <heed/attend.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct gathered {
    int64_t batch, heads, kv_heads, queries, keys, dim;
    float *q, *k, *v, *dout;    /* dense f32, as heed gets them */
    double *out, *dq, *dk, *dv; /* what is expected */
    float *got_out, *got_dq, *got_dk, *got_dv;
    int32_t *seq; /* [batch] keys that exist; NULL: all */
} gathered;

gathered *gathered_make(int64_t batch, int64_t heads, int64_t kv_heads, int64_t queries, int64_t keys,
                        int64_t dim, uint64_t seed);
void gathered_free(gathered *g);
/* Expectation back to zero. */
void gathered_forget(gathered *g);

static inline float *gathered_query(const gathered *g, float *of, int64_t b, int64_t h, int64_t i)
{
    return of + ((b * g->heads + h) * g->queries + i) * g->dim;
}

static inline float *gathered_key(const gathered *g, float *of, int64_t b, int64_t h, int64_t j)
{
    return of + ((b * g->kv_heads + h * g->kv_heads / g->heads) * g->keys + j) * g->dim;
}

static inline int64_t gathered_keys(const gathered *g, int64_t b)
{
    return g->seq ? g->seq[b] : g->keys;
}

static inline int64_t gathered_queries(const gathered *g, int64_t b)
{
    const int64_t n = gathered_keys(g, b) - (g->keys - g->queries);
    return n > 0 ? n : 0;
}

/* Adds one softmax of a query head: mass [queries][keys] of each pair (0: not seen) and the share [queries]
 * in which its output counts, NULL for 1; and its gradients. */
void gathered_add(gathered *g, int64_t b, int64_t h, const double *mass, const double *share);

/* Runs a spec; with it also backward where `backward`. */
heed_status gathered_run(gathered *g, const char *spec, heed_isa isa, int threads, bool backward,
                         const heed_tensor *params);
/* What was got against what is expected; fails with the numbers that differ. */
void gathered_match(const gathered *g, const char *what, bool backward);

/* What was got becomes what is expected of the output. */
void gathered_expect_got(gathered *g);
/* A spec must be refused, with this status (HEED_OK: any), in a sentence that holds `says`. */
void gathered_refuse(gathered *g, const char *spec, heed_status status, const char *says);

#endif
