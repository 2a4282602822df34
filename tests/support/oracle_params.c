/* The parameters of a spec: names, shapes, initial values. */
#include "support/oracle_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void oracle_add_param(oracle *o, const char *name, int rank, const int64_t *shape, double initial)
{
    o->param = realloc(o->param, (size_t)(o->params + 1) * sizeof *o->param);
    oracle_param *p = &o->param[o->params++];
    *p = (oracle_param){.rank = rank, .count = 1};
    snprintf(p->name, sizeof p->name, "%s", name);
    for (int i = 0; i < rank; i++) {
        p->shape[i] = shape[i];
        p->count *= shape[i];
    }
    const size_t n = (size_t)p->count;
    p->value = calloc(n, sizeof(double));
    p->gradient = calloc(n, sizeof(double));
    p->magnitude = calloc(n, sizeof(double));
    for (int64_t i = 0; i < p->count; i++)
        p->value[i] = initial;
}

static void add(oracle *o, const char *name, double initial, int rank, int64_t a, int64_t b, int64_t c)
{
    oracle_add_param(o, name, rank, (const int64_t[]){a, b, c}, initial);
}

/* Ones on the diagonal of each [rows][cols] matrix. */
static void fill_diagonal(oracle_param *p)
{
    const int64_t rows = p->shape[p->rank - 2], cols = p->shape[p->rank - 1];
    for (int64_t i = 0; i < p->count; i++)
        p->value[i] = i / cols % rows == i % cols;
}

oracle_param *oracle_find_param(oracle *o, const char *name)
{
    for (int i = 0; i < o->params; i++)
        if (strcmp(o->param[i].name, name) == 0)
            return &o->param[i];
    return NULL;
}

tape_vector oracle_param_at(oracle *o, const char *name, int64_t first, int64_t stride)
{
    const oracle_param *p = oracle_find_param(o, name);
    return tape_outside(p->value + first, p->gradient + first, p->magnitude + first, stride);
}

static void declare_hidden(oracle *o, const oracle_form *f)
{
    const oracle_problem *problem = &o->problem;
    const int64_t heads = problem->heads, dim = problem->dim;
    const int64_t units = (int64_t)oracle_number(f, 0, "dim", (double)dim);
    const bool mlp = strcmp(f->name, "mlp") == 0;
    add(o, mlp ? "score.mlp.Wq" : "score.additive.Wq", 0, 3, heads, units, dim);
    fill_diagonal(&o->param[o->params - 1]);
    add(o, mlp ? "score.mlp.Wk" : "score.additive.Wk", 0, 3, heads, units, dim);
    fill_diagonal(&o->param[o->params - 1]);
    add(o, mlp ? "score.mlp.b" : "score.additive.b", 0, 2, heads, units, 1);
    add(o, mlp ? "score.mlp.u" : "score.additive.u", 1 / sqrt((double)units), 2, heads, units, 1);
    if (mlp)
        add(o, "score.mlp.c", 0, 1, heads, 1, 1);
}

void oracle_declare_params(oracle *o)
{
    const oracle_problem *problem = &o->problem;
    const int64_t heads = problem->heads, dim = problem->dim;
    const oracle_form *f;
    if ((f = oracle_find_form(o->spec, SCORE, "bilinear"))) {
        add(o, "score.bilinear.W", 0, 3, heads, dim, dim);
        fill_diagonal(&o->param[o->params - 1]);
    }
    if ((f = oracle_find_form(o->spec, SCORE, "additive")) || (f = oracle_find_form(o->spec, SCORE, "mlp")))
        declare_hidden(o, f);
    if ((f = oracle_find_form(o->spec, POSITION, "t5")))
        add(o, "position.t5.b", 0, 2, heads, (int64_t)oracle_number(f, 0, "buckets", 32), 1);
    if ((f = oracle_find_form(o->spec, POSITION, "shaw")))
        add(o, "position.shaw.r", 0, 2, 2 * (int64_t)oracle_number(f, 0, "max", 16) + 1, dim, 1);
    if ((f = oracle_find_form(o->spec, POSITION, "skew")))
        add(o, "position.skew.E", 0, 3, heads, (int64_t)oracle_number(f, 0, "max", 128) + 1, dim);
    if (oracle_find_form(o->spec, POSITION, "kerple")) {
        add(o, "position.kerple.r1", 1, 1, heads, 1, 1);
        add(o, "position.kerple.r2", 1, 1, heads, 1, 1);
    }
    if (oracle_find_form(o->spec, POSITION, "fire")) {
        add(o, "position.fire.c", (double)0.1f, 1, 1, 1, 1);
        add(o, "position.fire.L", 512, 1, 1, 1, 1);
        add(o, "position.fire.w1", 1, 1, 32, 1, 1);
        add(o, "position.fire.b1", 0, 1, 32, 1, 1);
        for (int a = 0; a < 32; a++)
            o->param[o->params - 1].value[a] = -a / 32.0;
        add(o, "position.fire.w2", 0, 2, heads, 32, 1);
        add(o, "position.fire.b2", 0, 1, heads, 1, 1);
    }
    if ((f = oracle_find_form(o->spec, POSITION, "cope")))
        add(o, "position.cope.e", 0, 2, (int64_t)oracle_number(f, 0, "max", 64), dim, 1);
    oracle_declare_calibrated(o);
    if (oracle_find_form(o->spec, NORMALISE, "head_scale"))
        add(o, "normalise.head_scale.lambda", 1, 1, heads, 1, 1);
    if (oracle_find_form(o->spec, NORMALISE, "entmax_learnt"))
        add(o, "normalise.entmax_learnt.a", 0, 1, heads, 1, 1);
    if (oracle_find_form(o->spec, NORMALISE, "sink"))
        add(o, "normalise.sink.sink", 0, 1, heads, 1, 1);
    if (oracle_find_form(o->spec, HEADS, "talking")) {
        add(o, "heads.talking.before", 0, 2, heads, heads, 1);
        fill_diagonal(&o->param[o->params - 1]);
        add(o, "heads.talking.after", 0, 2, heads, heads, 1);
        fill_diagonal(&o->param[o->params - 1]);
    }
    if (oracle_find_form(o->spec, READ, "gate")) {
        oracle_add_param(o, "read.gate.g", 4,
                         (const int64_t[]){problem->batch, heads, problem->queries, problem->value_dim}, 0);
        o->param[o->params - 1].required = true;
    }
}
