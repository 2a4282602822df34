/* Comparing results, with each other and with the oracle. An error is measured against the size of what was
 * added up to make the number, because that is what bounds rounding: out, weights   the largest sum_j w |v|,
 * or weight, of the row. The tolerance is 1e-5; beside it stand 2 units in the last place of the terms of the
 * row's scores, as far as the normaliser passes them on lse            itself, or 1, and the same units of
 * its scores gradients      half the sum of the absolute values of all their terms, but no less than a tenth
 * of the largest such sum in the tensor, nor, where terms are outputs (the gate's), than the largest of them
 */
#include "support/attend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 5 };

typedef struct comparison {
    const attend_data *d;
    const attend_way *way;
    int wrong; /* results that differed so far */
} comparison;

static bool close_to(double got, double expected, double allowed)
{
    if (isnan(expected))
        return isnan(got);
    if (isinf(expected))
        return got == expected;
    return fabs(got - expected) <= allowed;
}

/* got[i] against expected[i] within allowed[i], rows of `width` entries. */
static void compare(comparison *c, const char *what, const float *got, const double *expected,
                    const double *allowed, int64_t n, int64_t width)
{
    int64_t wrong = 0, worst = -1;
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (close_to(got[i], expected[i], allowed[i]))
            continue;
        const double excess =
            isfinite(got[i]) && isfinite(expected[i]) ? fabs(got[i] - expected[i]) / allowed[i] : INFINITY;
        if (wrong == 0)
            print_error("%s\n  %s: ", attend_describe(&c->d->c, c->way), what);
        if (wrong++ < SHOWN)
            print_error("[%lld, %lld] is %.9g, not %.9g +- %.2g; ", (long long)(i / width),
                        (long long)(i % width), (double)got[i], expected[i], allowed[i]);
        if (!(excess <= most)) {
            most = excess;
            worst = i;
        }
    }
    if (wrong) {
        print_error("%lld of %lld differ, most [%lld, %lld]: %.9g, not %.9g (%.3g times the allowed error)\n",
                    (long long)wrong, (long long)n, (long long)(worst / width), (long long)(worst % width),
                    (double)got[worst], expected[worst], most);
        c->wrong++;
    }
}

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(x[i]))
            most = fmax(most, fabs(x[i]));
    return most;
}

/* What a row's weights may be wrong by, relatively. */
static double row_tolerance(const attend_data *d, int64_t row)
{
    return d->c.tolerance + (d->c.exact_scores ? 0 : 2 * 5.96e-8 * d->o->reach[row] * d->o->steepness[row]);
}

/* Allowed errors of rows: the tolerance times the largest magnitude of the row. */
static double *by_rows(const attend_data *d, const double *magnitude, int64_t width)
{
    const int64_t n = d->c.batch * d->c.heads * d->c.queries * width;
    double *allowed = malloc((size_t)(n + 1) * sizeof *allowed);
    for (int64_t row = 0; row * width < n; row++) {
        const double error = row_tolerance(d, row) * largest(magnitude + row * width, width) + 1e-30;
        for (int64_t i = 0; i < width; i++)
            allowed[row * width + i] = error;
    }
    return allowed;
}

static double *by_terms(const attend_data *d, const double *magnitude, int64_t n)
{
    double *allowed = malloc((size_t)(n + 1) * sizeof *allowed);
    const double reach = d->c.exact_scores ? 0 : largest(d->o->reach, d->c.batch * d->c.heads * d->c.queries);
    const double tolerance = d->c.tolerance + 2 * 5.96e-8 * reach, most = largest(magnitude, n);
    for (int64_t i = 0; i < n; i++)
        allowed[i] = tolerance * fmax(0.5 * magnitude[i], 0.1 * most) + 1e-30;
    return allowed;
}

static void match_gradient(comparison *c, const char *name, const float *got, const double *expected,
                           const double *magnitude, int64_t n, int64_t width)
{
    if (!got)
        return;
    double *allowed = by_terms(c->d, magnitude, n);
    compare(c, name, got, expected, allowed, n, width ? width : 1);
    free(allowed);
}

static void match_lse(comparison *c, const float *lse)
{
    const attend_case *p = &c->d->c;
    const int64_t rows = p->batch * p->heads * p->queries;
    double *allowed = malloc((size_t)(rows + 1) * sizeof *allowed);
    for (int64_t i = 0; i < rows; i++)
        allowed[i] = p->tolerance * fmax(1, isfinite(c->d->o->lse[i]) ? fabs(c->d->o->lse[i]) : 0) +
                     (p->exact_scores ? 0 : 2 * 5.96e-8 * c->d->o->reach[i]);
    compare(c, "lse [row]", lse, c->d->o->lse, allowed, rows, 1);
    free(allowed);
}

static void match_statistics(comparison *c, const attend_result *r)
{
    const attend_case *p = &c->d->c;
    const int64_t heads = p->batch * p->heads, rows = heads * p->queries, keys = p->keys;
    const double *weights = c->d->o->weights;
    double *entropy = calloc((size_t)(rows + 1), sizeof *entropy);
    double *sums = calloc((size_t)(heads * keys + 1), sizeof *sums);
    double *entropy_allowed = calloc((size_t)(rows + 1), sizeof *entropy);
    double *sums_allowed = calloc((size_t)(heads * keys + 1), sizeof *sums);
    for (int64_t i = 0; i < rows; i++) {
        const double error = row_tolerance(c->d, i) * largest(c->d->o->weights_magnitude + i * keys, keys);
        for (int64_t j = 0; j < keys; j++) {
            const double w = weights[i * keys + j];
            const double term = w > 0 || isnan(w) ? w * log(w) : 0;
            entropy[i] -= term;
            entropy_allowed[i] += row_tolerance(c->d, i) * (fabs(term) + w) + 1e-30;
            sums[i / p->queries * keys + j] += w;
            sums_allowed[i / p->queries * keys + j] += w > 0 ? error + 1e-30 : 0;
        }
    }
    compare(c, "entropy [row]", r->entropy, entropy, entropy_allowed, rows, 1);
    compare(c, "key_sums [batch head, key]", r->key_sums, sums, sums_allowed, heads * keys, keys ? keys : 1);
    free(entropy);
    free(sums);
    free(entropy_allowed);
    free(sums_allowed);
}

static int falling(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a < b) - (a > b);
}

/* The strongest links: the right weights in falling order, and keys that have them. */
static void match_top(comparison *c, const attend_result *r, int top)
{
    const attend_case *p = &c->d->c;
    const int64_t rows = p->batch * p->heads * p->queries, keys = p->keys;
    double *sorted = malloc((size_t)(keys + 1) * sizeof *sorted);
    for (int64_t i = 0; i < rows; i++) {
        const double *w = c->d->o->weights + i * keys;
        memcpy(sorted, w, (size_t)keys * sizeof *sorted);
        qsort(sorted, (size_t)keys, sizeof *sorted, falling);
        for (int t = 0; t < top; t++) {
            const double expected = t < keys && sorted[t] > 0 ? sorted[t] : 0;
            const double allowed = row_tolerance(c->d, i) * (keys ? fmax(sorted[0], 0) : 0) + 1e-30;
            const double got = r->top_weight[i * top + t];
            const int32_t key = r->top_key[i * top + t];
            const bool right = expected > allowed ? close_to(got, expected, allowed) && key >= 0 &&
                                                        key < keys && close_to(w[key], expected, allowed)
                                                  : close_to(got, expected, allowed);
            if (right && (got != 0 || key == -1 || (key >= 0 && key < keys)))
                continue;
            print_error("%s\n  top link %d of row %lld is key %d with %.9g, the weight should be %.9g\n",
                        attend_describe(p, c->way), t, (long long)i, key, got, expected);
            c->wrong++;
            free(sorted);
            return;
        }
    }
    free(sorted);
}

void attend_match(const attend_data *d, const attend_result *r)
{
    const attend_case *p = &d->c;
    const oracle *o = d->o;
    comparison c = {d, &p->way, 0};
    const int64_t rows = p->batch * p->heads * p->queries, keys = p->batch * p->kv_heads * p->keys;
    double *allowed = by_rows(d, o->out_magnitude, p->value_dim);
    compare(&c, "out [row, value]", r->out, o->out, allowed, rows * p->value_dim, p->value_dim);
    free(allowed);
    match_lse(&c, r->lse);
    if (r->weights) {
        allowed = by_rows(d, o->weights_magnitude, p->keys);
        compare(&c, "weights [row, key]", r->weights, o->weights, allowed, rows * p->keys, p->keys);
        free(allowed);
    }
    if (r->entropy)
        match_statistics(&c, r);
    if (r->top_weight)
        match_top(&c, r, p->way.top);
    match_gradient(&c, "dq [row, entry]", r->dq, o->dq, o->dq_magnitude, rows * p->dim, p->dim);
    match_gradient(&c, "dk [row, entry]", r->dk, o->dk, o->dk_magnitude, keys * p->dim, p->dim);
    match_gradient(&c, "dv [row, value]", r->dv, o->dv, o->dv_magnitude, keys * p->value_dim, p->value_dim);
    for (int i = 0; i < o->params; i++) {
        const oracle_param *g = &o->param[i];
        char name[80];
        snprintf(name, sizeof name, "d.%s", g->name);
        match_gradient(&c, name, r->dparam[i], g->gradient, g->magnitude, g->count, g->shape[g->rank - 1]);
    }
    if (c.wrong)
        fail();
}

static void same(comparison *c, const char *what, const float *a, const float *b, int64_t n)
{
    if (!a || !b)
        return;
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) {
            print_error("%s\n  %s: entry %lld is %.9g one way and %.9g the other\n",
                        attend_describe(&c->d->c, c->way), what, (long long)i, (double)a[i], (double)b[i]);
            c->wrong++;
            return;
        }
}

void attend_same_bits(const attend_data *d, const attend_result *a, const attend_result *b)
{
    const attend_case *p = &d->c;
    comparison c = {d, &p->way, 0};
    const int64_t rows = p->batch * p->heads * p->queries, keys = p->batch * p->kv_heads * p->keys;
    same(&c, "out", a->out, b->out, rows * p->value_dim);
    same(&c, "lse", a->lse, b->lse, rows);
    same(&c, "weights", a->weights, b->weights, rows * p->keys);
    same(&c, "entropy", a->entropy, b->entropy, rows);
    same(&c, "key_sums", a->key_sums, b->key_sums, p->batch * p->heads * p->keys);
    same(&c, "top_weight", a->top_weight, b->top_weight, rows * p->way.top);
    same(&c, "dq", a->dq, b->dq, rows * p->dim);
    same(&c, "dk", a->dk, b->dk, keys * p->dim);
    same(&c, "dv", a->dv, b->dv, keys * p->value_dim);
    for (int i = 0; i < d->o->params; i++)
        same(&c, d->o->param[i].name, a->dparam[i], b->dparam[i], d->o->param[i].count);
    if (c.wrong)
        fail();
}

void attend_agree(const attend_data *d, const attend_result *a, const attend_result *b)
{
    const attend_case *p = &d->c;
    comparison c = {d, &p->way, 0};
    const int64_t n = p->batch * p->heads * p->queries * p->value_dim;
    double *other = malloc((size_t)(n + 1) * sizeof *other);
    for (int64_t i = 0; i < n; i++)
        other[i] = b->out[i];
    double *allowed = by_rows(d, d->o->out_magnitude, p->value_dim);
    compare(&c, "out by two routes [row, value]", a->out, other, allowed, n, p->value_dim);
    free(allowed);
    free(other);
    if (c.wrong)
        fail();
}
