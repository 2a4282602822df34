#include "support/stream.h"
#include "base/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

stream *stream_new(const char *text, uint64_t seed)
{
    const heed_sizes sizes = {
        .batch = 1, .heads = STREAM_GROUP, .kv_heads = 1, .dim = STREAM_DIM, .value_dim = STREAM_DIM};
    stream *s = calloc(1, sizeof *s);
    assert_non_null(s);
    char clause[300];
    heed_spec *spec = NULL;
    heed_isa isa = HEED_ISA_PORTABLE;
    int root[HEED_STAGES];
    snprintf(clause, sizeof clause, "cache=%s", text);
    assert_int_equal(heed_isa_resolve(HEED_ISA_AUTO, &isa), HEED_OK);
    if (heed_spec_parse(&spec, clause, NULL))
        fail_msg("%s: %s", clause, heed_message());
    heed_spec_clauses(spec, 0, 0, root);
    if (heed_chain_of_spec(&s->chain, spec, root[HEED_CACHE], isa, &sizes, 0, 1))
        fail_msg("%s: %s", clause, heed_message());
    heed_spec_free(spec);
    assert_true(s->chain.top <= STREAM_TOP && s->chain.window <= STREAM_WINDOW);
    s->state = calloc((size_t)(STREAM_MOST * (s->chain.state_floats + 1)), sizeof *s->state);
    assert_non_null(s->state);
    s->random.state = seed;
    return s;
}

void stream_free(stream *s)
{
    free(s->state);
    free(s);
}

static double dot(const float *x, const float *y)
{
    double sum = 0;
    for (int d = 0; d < STREAM_DIM; d++)
        sum += (double)x[d] * y[d];
    return sum;
}

/* Weights of one query over the keys held that stand at or before it. */
static void attend(const stream *s, const float *query, int32_t at, double *weight)
{
    double sum = 0;
    for (int64_t j = 0; j < s->count; j++)
        sum += weight[j] = s->pos[j] <= at ? s->mass[j] * exp(dot(query, s->key + j * STREAM_DIM)) : 0;
    for (int64_t j = 0; j < s->count; j++)
        weight[j] /= sum > 0 ? sum : 1;
}

static void add_token(stream *s, const float *key, const float *value)
{
    const int64_t at = s->count++;
    assert_true(s->count <= STREAM_MOST);
    for (int d = 0; d < STREAM_DIM; d++) {
        s->key[at * STREAM_DIM + d] = key ? key[d] : (float)random_normal(&s->random);
        s->value[at * STREAM_DIM + d] = value ? value[d] : (float)random_normal(&s->random);
    }
    s->mass[at] = 1;
    s->pos[at] = (int32_t)s->read++;
    memset(s->state + at * s->chain.state_floats, 0, (size_t)s->chain.state_floats * sizeof *s->state);
    if (s->queries == STREAM_WINDOW) {
        memmove(s->query_pos, s->query_pos + 1, (STREAM_WINDOW - 1) * sizeof *s->query_pos);
        for (int h = 0; h < STREAM_GROUP; h++)
            memmove(s->query[h], s->query[h] + 1, (STREAM_WINDOW - 1) * sizeof *s->query[h]);
        s->queries--;
    }
    s->query_pos[s->queries] = s->pos[at];
    for (int h = 0; h < STREAM_GROUP; h++)
        for (int d = 0; d < STREAM_DIM; d++)
            s->query[h][s->queries][d] = (float)random_normal(&s->random);
    s->queries++;
    s->since++;
}

static void observe(stream *s)
{
    float sum[STREAM_MOST] = {0}, strong[STREAM_GROUP * STREAM_TOP];
    int32_t top[STREAM_GROUP * STREAM_TOP];
    for (int h = 0; h < STREAM_GROUP; h++) {
        bool taken[STREAM_MOST] = {0};
        memset(s->out[h], 0, sizeof s->out[h]);
        attend(s, s->query[h][s->queries - 1], s->query_pos[s->queries - 1], s->weight[h]);
        for (int64_t j = 0; j < s->count; j++) {
            sum[j] += (float)s->weight[h][j];
            for (int d = 0; d < STREAM_DIM; d++)
                s->out[h][d] += s->weight[h][j] * s->value[j * STREAM_DIM + d];
        }
        for (int t = 0; t < STREAM_TOP; t++) {
            int best = -1;
            for (int j = 0; j < s->count; j++)
                if (!taken[j] && (best < 0 || s->weight[h][j] > s->weight[h][best]))
                    best = j;
            if (best >= 0)
                taken[best] = true;
            s->top[h][t] = best;
            if (t < s->chain.top) {
                top[h * s->chain.top + t] = best;
                strong[h * s->chain.top + t] = best < 0 ? 0 : (float)s->weight[h][best];
            }
        }
    }
    const heed_seen seen = {.group = STREAM_GROUP,
                            .queries = 1,
                            .count = s->count,
                            .first = s->read - 1,
                            .pos = s->pos,
                            .sum = sum,
                            .top = s->chain.top,
                            .top_key = top,
                            .top_weight = strong};
    heed_chain_observe(&s->chain, &seen, s->state);
}

static void compact(stream *s)
{
    const int64_t floats = s->chain.state_floats;
    int64_t n = 0;
    for (int64_t j = 0; j < s->count; j++) {
        if (!s->keep[j])
            continue;
        s->pos[n] = s->pos[j];
        s->mass[n] = s->mass[j];
        memmove(s->key + n * STREAM_DIM, s->key + j * STREAM_DIM, STREAM_DIM * sizeof *s->key);
        memmove(s->value + n * STREAM_DIM, s->value + j * STREAM_DIM, STREAM_DIM * sizeof *s->value);
        memmove(s->state + n * floats, s->state + j * floats, (size_t)floats * sizeof *s->state);
        n++;
    }
    s->count = n;
}

static void act(stream *s)
{
    static float weight[STREAM_GROUP * STREAM_WINDOW * STREAM_MOST];
    static float query[STREAM_GROUP * STREAM_WINDOW * STREAM_DIM];
    for (int h = 0; h < STREAM_GROUP; h++)
        for (int64_t i = 0; i < s->queries; i++) {
            double row[STREAM_MOST];
            attend(s, s->query[h][i], s->query_pos[i], row);
            for (int64_t j = 0; j < s->count; j++)
                weight[(h * s->queries + i) * s->count + j] = (float)row[j];
            memcpy(query + (h * s->queries + i) * STREAM_DIM, s->query[h][i], sizeof s->query[h][i]);
        }
    heed_held held = {.layers = 1,
                      .kv_heads = 1,
                      .group = STREAM_GROUP,
                      .dim = STREAM_DIM,
                      .value_dim = STREAM_DIM,
                      .read = s->read,
                      .visible = s->read,
                      .count = s->count,
                      .pos = s->pos,
                      .token = s->token,
                      .token_kind = s->kind,
                      .key = s->key,
                      .bare = s->key, /* which stand at no position */
                      .value = s->value,
                      .mass = s->mass,
                      .state = s->state,
                      .state_stride = s->chain.state_floats,
                      .queries = s->queries,
                      .query_pos = s->query_pos,
                      .query = query,
                      .compared = query,
                      .weight = weight};
    bool changed = false;
    float *key = s->key, *value = s->value, *mass = s->mass;
    uint8_t *flags = s->keep;
    const heed_chain *chain = &s->chain;
    void *work = malloc(heed_keep_work_bytes(chain, 1, &held));
    assert_non_null(work);
    heed_keep_apply(&(heed_keep){.chain = &chain,
                                 .held = &held,
                                 .kv_heads = 1,
                                 .key = &key,
                                 .value = &value,
                                 .mass = &mass,
                                 .keep = &flags,
                                 .changed = &changed,
                                 .work = work});
    free(work);
    compact(s);
    s->since = 0;
    s->acts++;
}

bool stream_read(stream *s, const float *key, const float *value, heed_moment moment)
{
    add_token(s, key, value);
    observe(s);
    const bool due = heed_chain_is_due(&s->chain, s->read, s->count, s->since, moment);
    if (due)
        act(s);
    return due;
}
