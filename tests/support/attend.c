#include "support/attend.h"

#include "support/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *attend_describe(const attend_case *c, const attend_way *way)
{
    static char text[512];
    snprintf(text, sizeof text,
             "\"%s\" batch=%lld heads=%lld/%lld N=%lld M=%lld D=%lld E=%lld %s/%s/%s positions=%d ragged=%d "
             "segments=%d mask=%d seed=%llu isa=%s kernel=%s threads=%d page=%lld layout=%d",
             c->spec, (long long)c->batch, (long long)c->heads, (long long)c->kv_heads, (long long)c->queries,
             (long long)c->keys, (long long)c->dim, (long long)c->value_dim, heed_type_name(c->q_type),
             heed_type_name(c->k_type), heed_type_name(c->v_type), c->positions, c->ragged, c->segments,
             c->mask, (unsigned long long)c->seed, heed_isa_name(way->isa), heed_kernel_name(way->kernel),
             way->threads, (long long)way->page, way->layout);
    return text;
}

static float *normals(test_random *random, int64_t n, double spread)
{
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(spread * random_normal(random));
    return x;
}

/* What a type makes of rows of `width` values, and the same for the oracle. `given` receives what they were:
 * some types fit their levels anew each time, so that only from those the same is stored again. */
static double *round_to(heed_type type, float *x, int64_t n, int64_t width, float **given)
{
    if (given) {
        free(*given);
        *given = malloc((size_t)(n + 1) * sizeof **given);
        memcpy(*given, x, (size_t)n * sizeof *x);
    }
    double *exact = malloc((size_t)(n + 1) * sizeof *exact);
    void *row = malloc((size_t)heed_type_bytes(type, width ? width : 1));
    for (int64_t i = 0; width && i < n; i += width) {
        if (type != HEED_F32) {
            heed_store(type, x + i, row, width);
            heed_load(type, row, x + i, width);
        }
        for (int64_t j = i; j < i + width; j++)
            exact[j] = x[j];
    }
    free(row);
    return exact;
}

void attend_changed(attend_data *d)
{
    const attend_case *c = &d->c;
    free(d->q_exact);
    free(d->k_exact);
    free(d->v_exact);
    free(d->dout_exact);
    const int64_t rows = c->batch * c->heads * c->queries, keys = c->batch * c->kv_heads * c->keys;
    d->o->problem.q = d->q_exact = round_to(c->q_type, d->q, rows * c->dim, c->dim, NULL);
    d->o->problem.k = d->k_exact = round_to(c->k_type, d->k, keys * c->dim, c->dim, &d->k_given);
    d->o->problem.v = d->v_exact = round_to(c->v_type, d->v, keys * c->value_dim, c->value_dim, &d->v_given);
    d->dout_exact = round_to(HEED_F32, d->dout, rows * c->value_dim, c->value_dim, NULL);
    d->o->problem.dout = c->way.backward ? d->dout_exact : NULL;
    d->o->problem.q_pos = d->q_pos;
    d->o->problem.k_pos = d->k_pos;
    d->o->problem.seq = d->seq;
    d->o->problem.q_seq = d->q_seq;
    d->o->problem.q_segment = d->q_segment;
    d->o->problem.k_segment = d->k_segment;
    d->o->problem.mask = d->mask;
}

/* Parameters that may not be anything: a range to draw from. */
static const struct limits {
    const char *name;
    double low, high;
} limits[] = {
    {"position.kerple.r1", 0.2, 1.8}, {"position.kerple.r2", 0.2, 1.8}, {"position.fire.c", 0.05, 0.5},
    {"position.fire.L", 4, 60},       {"score.additive.u", -1, 1},      {"score.mlp.u", -0.5, 0.5},
    {"position.shaw.r", -1, 1},       {"position.cope.e", -1, 1},       {"select.top_theta.theta", -1, 0.5},
};

/* Patterns of 0 and 1, the latter rarer. */
static void draw_pattern(oracle_param *p, test_random *random)
{
    for (int64_t i = 0; i < p->count; i++)
        p->value[i] = random_uniform(random) < 0.15;
}

static void draw_param(oracle_param *p, test_random *random)
{
    if (strncmp(p->name, "where.dam.", 10) == 0) {
        draw_pattern(p, random);
        return;
    }
    const struct limits *range = NULL;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (strcmp(p->name, limits[i].name) == 0)
            range = &limits[i];
    for (int64_t i = 0; i < p->count; i++)
        p->value[i] = (float)(range ? range->low + (range->high - range->low) * random_uniform(random)
                                    : p->value[i] + 0.5 * random_normal(random));
}

static int32_t *whole_numbers(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(int32_t));
}

/* Shared positions rise with gaps from below 0; those of a batch also stand in any order. */
static int32_t *draw_positions(test_random *random, int64_t batch, int64_t n, int64_t shift)
{
    int32_t *pos = whole_numbers(batch * n);
    for (int64_t b = 0; b < batch; b++) {
        int32_t *row = pos + b * n;
        int64_t p = random_whole(random, -5, 5) + shift;
        for (int64_t i = 0; i < n; i++, p += random_whole(random, 1, 3))
            row[i] = (int32_t)p;
        for (int64_t i = n - 1; batch > 1 && i > 0; i--) {
            const int64_t other = random_whole(random, 0, i);
            const int32_t swap = row[i];
            row[i] = row[other];
            row[other] = swap;
        }
    }
    return pos;
}

static int32_t *draw_segments(test_random *random, int64_t batch, int64_t n)
{
    int32_t *segment = whole_numbers(batch * n);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0, s = 0; i < n; i++, s += random_uniform(random) < 0.1)
            segment[b * n + i] = (int32_t)s;
    return segment;
}

static void draw_extras(attend_data *d, test_random *random)
{
    const attend_case *c = &d->c;
    oracle_problem *p = &d->o->problem;
    if (c->positions) {
        const int64_t batch = c->positions == POSITIONS_BATCHED ? c->batch : 1;
        d->q_pos = draw_positions(random, batch, c->queries, 2 * (c->keys - c->queries));
        d->k_pos = draw_positions(random, batch, c->keys, 0);
        p->q_pos_batched = p->k_pos_batched = c->positions == POSITIONS_BATCHED;
    }
    if (c->ragged) {
        d->seq = whole_numbers(c->batch);
        for (int64_t b = 0; b < c->batch; b++)
            d->seq[b] = (int32_t)random_whole(random, b % 3 == 2 ? 0 : c->keys / 2, c->keys);
    }
    if (c->ragged == RAGGED_Q_SEQ) {
        d->q_seq = whole_numbers(c->batch);
        for (int64_t b = 0; b < c->batch; b++) {
            const int64_t most = d->seq[b] < c->queries ? d->seq[b] : c->queries;
            d->q_seq[b] = (int32_t)random_whole(random, 0, most);
        }
    }
    if (c->segments) {
        const int64_t batch = c->segments == 2 ? c->batch : 1;
        d->q_segment = draw_segments(random, batch, c->queries);
        d->k_segment = draw_segments(random, batch, c->keys);
        p->q_segment_batched = p->k_segment_batched = c->segments == 2;
    }
    if (c->mask) {
        p->mask_batch = c->mask == MASK_BNM || c->mask == MASK_BHNM || c->mask == MASK_B1NM ? c->batch : 1;
        p->mask_heads = c->mask == MASK_BHNM || c->mask == MASK_1HNM ? c->heads : 1;
        const int64_t rows = p->mask_batch * p->mask_heads * c->queries;
        d->mask = calloc((size_t)(rows * c->keys + 1), 1);
        for (int64_t i = 0; i < rows; i++) {
            const bool closed = random_uniform(random) < 0.05; /* some rows see nothing */
            for (int64_t j = 0; j < c->keys; j++)
                d->mask[i * c->keys + j] = !closed && random_uniform(random) < 0.7;
        }
    }
}

static void shape_gate(oracle *o, unsigned ones)
{
    oracle_param *g = oracle_find_param(o, "read.gate.g");
    if (!g)
        return;
    g->count = 1;
    for (int i = 0; i < g->rank; i++) {
        g->shape[i] = ones >> i & 1 ? 1 : g->shape[i];
        g->count *= g->shape[i];
    }
}

attend_data *attend_make(const attend_case *given)
{
    attend_data *d = calloc(1, sizeof *d);
    attend_case *c = &d->c;
    *c = *given;
    c->batch = c->batch ? c->batch : 1;
    c->heads = c->heads ? c->heads : 1;
    c->kv_heads = c->kv_heads ? c->kv_heads : c->heads;
    c->keys = c->keys ? c->keys : c->queries;
    c->dim = c->dim ? c->dim : 8;
    c->value_dim = c->value_dim ? c->value_dim : c->dim;
    c->spread = c->spread != 0 ? c->spread : 1;
    c->tolerance = c->tolerance != 0 ? c->tolerance : c->way.whole_numbers ? 1e-4 : 1e-5;
    c->away = c->away != 0 ? c->away : 4e-6;
    test_random random = {c->seed};
    const int64_t rows = c->batch * c->heads * c->queries, keys = c->batch * c->kv_heads * c->keys;
    d->q = normals(&random, rows * c->dim, c->spread);
    d->k = normals(&random, keys * c->dim, c->spread);
    d->v = normals(&random, keys * c->value_dim, 1);
    d->dout = normals(&random, rows * c->value_dim, 1);
    const oracle_problem problem = {.batch = c->batch,
                                    .heads = c->heads,
                                    .kv_heads = c->kv_heads,
                                    .queries = c->queries,
                                    .keys = c->keys,
                                    .dim = c->dim,
                                    .value_dim = c->value_dim};
    d->o = oracle_new(c->spec, &problem);
    shape_gate(d->o, c->gate_ones);
    for (int i = 0; i < d->o->params; i++)
        if (!c->initial || d->o->param[i].required)
            draw_param(&d->o->param[i], &random);
    draw_extras(d, &random);
    attend_changed(d);
    return d;
}

void attend_free(attend_data *d)
{
    void *const all[] = {d->q,       d->k,       d->v,         d->dout,      d->q_pos,     d->k_pos,
                         d->seq,     d->q_seq,   d->q_segment, d->k_segment, d->mask,      d->k_given,
                         d->v_given, d->q_exact, d->k_exact,   d->v_exact,   d->dout_exact};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    oracle_free(d->o);
    free(d);
}

void attend_expect(attend_data *d)
{
    oracle_run(d->o);
}

attend_data *attend_prepare(const attend_case *c)
{
    attend_case tried = *c;
    for (int attempt = 0; attempt < 100; attempt++, tried.seed += 1000003) {
        attend_data *d = attend_make(&tried);
        attend_expect(d);
        bool near = (c->way.backward || c->away > 0) && d->o->kink < d->c.away;
        for (int64_t i = 0; i < d->c.batch * d->c.heads * d->c.queries; i++)
            near |= d->o->margin[i] < fmin(d->c.away, 2e-6);
        if (!near)
            return d;
        attend_free(d);
    }
    fail_msg("no seed keeps %s away from jumps", attend_describe(c, &c->way));
    return NULL;
}

void attend_check(const attend_case *c)
{
    attend_data *d = attend_prepare(c);
    attend_result *r = attend_run(d, &c->way);
    attend_match(d, r);
    attend_result_free(r);
    attend_free(d);
}

void attend_check_changed(attend_data *d)
{
    attend_changed(d);
    attend_expect(d);
    attend_result *r = attend_run(d, &d->c.way);
    attend_match(d, r);
    attend_result_free(r);
}
