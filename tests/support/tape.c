#include "support/tape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void tape_free(tape *t)
{
    free(t->value);
    free(t->gradient);
    free(t->magnitude);
    free(t->terms);
    free(t->node);
    free(t->link);
    memset(t, 0, sizeof *t);
}

void tape_clear(tape *t)
{
    t->count = t->links = 0;
}

static void *grown(void *memory, int capacity, size_t size)
{
    void *p = realloc(memory, (size_t)capacity * size);
    if (!p)
        abort();
    return p;
}

var tape_function(tape *t, double value, var a, double da, var b, double db)
{
    if (t->count == t->capacity) {
        t->capacity = t->capacity ? 2 * t->capacity : 1024;
        t->value = grown(t->value, t->capacity, sizeof *t->value);
        t->gradient = grown(t->gradient, t->capacity, sizeof *t->gradient);
        t->magnitude = grown(t->magnitude, t->capacity, sizeof *t->magnitude);
        t->terms = grown(t->terms, t->capacity, sizeof *t->terms);
        t->node = grown(t->node, t->capacity, sizeof *t->node);
    }
    const var x = t->count++;
    t->value[x] = value;
    t->gradient[x] = t->magnitude[x] = 0;
    t->terms[x] = a < 0 ? fabs(value) : fabs(da) * t->terms[a] + (b < 0 ? 0 : fabs(db) * t->terms[b]);
    t->node[x].a = a, t->node[x].da = da, t->node[x].wide = fabs(da);
    t->node[x].b = b, t->node[x].db = db;
    t->node[x].link = -1;
    return x;
}

/* Exactly 0 it is in every arithmetic, and the slope is taken as 0 there. */
static void note_kink(tape *t, double distance)
{
    if (distance < t->kink && distance > 0)
        t->kink = distance;
}

void tape_seed(tape *t, var x, double g, double size)
{
    t->gradient[x] += g;
    t->magnitude[x] += fabs(g) * size;
}

tape_vector tape_outside(const double *x, double *gradient, double *magnitude, int64_t stride)
{
    return (tape_vector){.x = x, .gradient = gradient, .magnitude = magnitude, .stride = stride};
}

tape_vector tape_inside(var first)
{
    return (tape_vector){.first = first, .stride = 1};
}

static const double *vector_values(const tape *t, const tape_vector *v)
{
    return v->x ? v->x : t->value + v->first;
}

/* Hands a node's gradient g and magnitude m down to an entry on which it depends by `slope`. */
static void hand_down(tape *t, const tape_vector *v, int64_t i, double g, double m, double slope)
{
    if (!v->x) {
        t->gradient[v->first + i] += g * slope;
        t->magnitude[v->first + i] += m * fabs(slope);
        return;
    }
    if (v->gradient)
        v->gradient[i * v->stride] += g * slope;
    if (v->magnitude)
        v->magnitude[i * v->stride] += m * fabs(slope);
}

var tape_sum(tape *t, tape_product kind, tape_vector a, tape_vector b, const double *weight, int n)
{
    const double *x = vector_values(t, &a), *y = vector_values(t, &b);
    double sum = 0, terms = 0;
    for (int i = 0; i < n; i++) {
        const double p = x[i * a.stride], q = y[i * b.stride], w = weight ? weight[i] : 1;
        if (kind == TAPE_DOT)
            sum += w * p * q;
        else if (kind == TAPE_SQUARED_DISTANCE)
            sum += w * (p - q) * (p - q);
        else {
            sum += w * fabs(p - q);
            note_kink(t, fabs(p - q));
        }
        terms += kind == TAPE_DOT ? fabs(w * p * q) : 0;
    }
    const var node = tape_function(t, sum, -1, 0, -1, 0);
    t->terms[node] = kind == TAPE_DOT ? terms : fabs(sum);
    if (t->links == t->link_capacity) {
        t->link_capacity = t->link_capacity ? 2 * t->link_capacity : 256;
        t->link = grown(t->link, t->link_capacity, sizeof *t->link);
    }
    t->link[t->links] = (tape_link){.kind = kind, .a = a, .b = b, .weight = weight, .n = n};
    t->node[node].link = t->links++;
    return node;
}

static void link_backward(tape *t, const tape_link *link, double g, double m)
{
    const double *x = vector_values(t, &link->a), *y = vector_values(t, &link->b);
    for (int i = 0; i < link->n; i++) {
        const double p = x[i * link->a.stride], q = y[i * link->b.stride];
        const double w = link->weight ? link->weight[i] : 1;
        const double slope = link->kind == TAPE_SQUARED_DISTANCE ? 2 * (p - q) : (double)((p > q) - (p < q));
        hand_down(t, &link->a, i, g, m, w * (link->kind == TAPE_DOT ? q : slope));
        hand_down(t, &link->b, i, g, m, w * (link->kind == TAPE_DOT ? p : -slope));
    }
}

void tape_backward(tape *t)
{
    for (var x = t->count - 1; x >= 0; x--) {
        const double g = t->gradient[x], m = t->magnitude[x];
        const struct tape_node *node = &t->node[x];
        if (m == 0)
            continue;
        if (node->a >= 0) {
            t->gradient[node->a] += g * node->da;
            t->magnitude[node->a] += m * node->wide;
        }
        if (node->b >= 0) {
            t->gradient[node->b] += g * node->db;
            t->magnitude[node->b] += m * fabs(node->db);
        }
        if (node->link >= 0)
            link_backward(t, &t->link[node->link], g, m);
    }
}

var tape_constant(tape *t, double x)
{
    return tape_function(t, x, -1, 0, -1, 0);
}

var tape_leaf(tape *t, tape_vector v, int64_t i)
{
    static const double one = 1;
    v.x += i * v.stride;
    v.gradient = v.gradient ? v.gradient + i * v.stride : NULL;
    v.magnitude = v.magnitude ? v.magnitude + i * v.stride : NULL;
    return tape_sum(t, TAPE_DOT, v, tape_outside(&one, NULL, NULL, 1), NULL, 1);
}

var tape_linear(tape *t, var a, double ca, var b, double cb)
{
    return tape_function(t, ca * t->value[a] + cb * t->value[b], a, ca, b, cb);
}

var tape_shift(tape *t, var a, double by)
{
    return tape_function(t, t->value[a] + by, a, 1, -1, 0);
}

var tape_scale(tape *t, var a, double by)
{
    return tape_function(t, t->value[a] * by, a, by, -1, 0);
}

var tape_multiply(tape *t, var a, var b)
{
    const double x = t->value[a], y = t->value[b];
    return tape_function(t, x * y, a, y, b, x);
}

var tape_divide(tape *t, var a, var b)
{
    const double x = t->value[a], y = t->value[b];
    return tape_function(t, x / y, a, 1 / y, b, -x / (y * y));
}

var tape_exp(tape *t, var a)
{
    const double y = exp(t->value[a]);
    return tape_function(t, y, a, y, -1, 0);
}

var tape_log(tape *t, var a)
{
    return tape_function(t, log(t->value[a]), a, 1 / t->value[a], -1, 0);
}

var tape_tanh(tape *t, var a)
{
    const double y = tanh(t->value[a]);
    const var x = tape_function(t, y, a, 1 - y * y, -1, 0);
    t->node[x].wide += 0.06; /* in f32, 1 - y^2 is no better than a few roundings of 1 */
    return x;
}

var tape_sigmoid(tape *t, var a)
{
    const double y = 1 / (1 + exp(-t->value[a]));
    return tape_function(t, y, a, y * (1 - y), -1, 0);
}

var tape_relu(tape *t, var a)
{
    const double x = t->value[a];
    note_kink(t, fabs(x));
    return tape_function(t, x <= 0 ? 0 : x, a, x > 0, -1, 0); /* NaN stays NaN */
}

var tape_power(tape *t, var a, double exponent)
{
    const double x = t->value[a];
    return tape_function(t, pow(x, exponent), a, x > 0 ? exponent * pow(x, exponent - 1) : 0, -1, 0);
}
