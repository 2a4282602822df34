/* Forms whose tensors are found on a text: loki, top_theta and qada of select, dam of where. */
#include "support/oracle_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double *values(const oracle_row *row, const char *name)
{
    return oracle_find_param(row->o, name)->value;
}

static double entry(const oracle_row *row, const tape_vector *x, int64_t d)
{
    return x->x ? x->x[d * x->stride] : row->t->value[x->first + d * x->stride];
}

static double gap(double a, double b)
{
    return a == b ? INFINITY : fabs(a - b);
}

static int64_t kv_head_of(const oracle_row *row, int64_t h)
{
    return h * row->o->problem.kv_heads / row->o->problem.heads;
}

typedef struct ranked {
    int64_t key;
    double value;
} ranked;

static int by_value(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->value != b->value)
        return a->value < b->value ? 1 : -1;
    return (a->key > b->key) - (a->key < b->key);
}

/* The k_f n keys of largest product of the first d_f D coordinates. */
static void select_loki(oracle_row *row, int64_t h, const oracle_form *f, double *margin)
{
    const oracle_problem *p = &row->o->problem;
    const int64_t rank = (int64_t)ceil(oracle_number(f, 0, "d_f", 0.25) * (double)p->dim - 1e-9);
    const double *basis = values(row, "select.loki.basis") + kv_head_of(row, h) * p->dim * p->dim;
    bool *open = row->open + h * p->keys;
    ranked *list = malloc((size_t)(p->keys + 1) * sizeof *list);
    int64_t n = 0;
    for (int64_t j = 0; j < p->keys; j++) {
        if (!open[j])
            continue;
        double value = 0;
        for (int64_t c = 0; c < rank; c++) {
            double q = 0, k = 0;
            for (int64_t d = 0; d < p->dim; d++) {
                q += entry(row, &row->query[h].seen, d) * basis[d * p->dim + c];
                k += entry(row, &row->key[h * p->keys + j].seen, d) * basis[d * p->dim + c];
            }
            value += q * k;
        }
        list[n++] = (ranked){j, value * oracle_score_scale(row->o)};
    }
    qsort(list, (size_t)n, sizeof *list, by_value);
    const int64_t keep = (int64_t)ceil(oracle_number(f, 1, "k_f", 0.25) * (double)n - 1e-9);
    if (keep > 0 && keep < n)
        *margin = fmin(*margin, gap(list[keep - 1].value, list[keep].value));
    for (int64_t r = keep; r < n; r++)
        open[list[r].key] = false;
    free(list);
}

/* The fewest keys that hold p of the softmax of products with keys rounded to a few levels each. */
static void select_estimated(oracle_row *row, int64_t h, const oracle_form *f, double *margin)
{
    const oracle_problem *p = &row->o->problem;
    const double share = oracle_number(f, 0, "p", 1), levels = exp2(oracle_number(f, 1, "bits", 4)) - 1;
    bool *open = row->open + h * p->keys;
    ranked *list = malloc((size_t)(p->keys + 1) * sizeof *list);
    int64_t n = 0, keep = 0;
    for (int64_t j = 0; j < p->keys; j++) {
        const tape_vector *key = &row->key[h * p->keys + j].seen;
        double least = INFINITY, most = -INFINITY, value = 0;
        for (int64_t d = 0; open[j] && d < p->dim; d++) {
            least = fmin(least, entry(row, key, d));
            most = fmax(most, entry(row, key, d));
        }
        for (int64_t d = 0; open[j] && d < p->dim; d++) {
            const double level = (entry(row, key, d) - least) / (most - least) * levels;
            *margin = fmin(*margin, fabs(fabs(level - rint(level)) - 0.5));
            value += entry(row, &row->query[h].seen, d) * (least + (most - least) / levels * rint(level));
        }
        if (open[j])
            list[n++] = (ranked){j, value * oracle_score_scale(row->o)};
    }
    qsort(list, (size_t)n, sizeof *list, by_value);
    double all = 0, sum = 0;
    for (int64_t r = 0; r < n; r++)
        all += exp(list[r].value - list[0].value);
    while (share < 1 && keep < n && (keep == 0 || sum < share)) {
        sum += exp(list[keep++].value - list[0].value) / all;
        *margin = fmin(*margin, fabs(sum - share));
    }
    if (keep > 0 && keep < n)
        *margin = fmin(*margin, gap(list[keep - 1].value, list[keep].value));
    for (int64_t r = keep; share < 1 && r < n; r++)
        open[list[r].key] = false;
    free(list);
}

static void select_top_theta(oracle_row *row, int64_t h, const oracle_form *f, double *margin)
{
    const int64_t keys = row->o->problem.keys;
    bool *open = row->open + h * keys;
    int64_t n = 0, first = -1, last = -1;
    for (int64_t j = 0; j < keys; j++)
        if (open[j]) {
            n++;
            first = first < 0 ? j : first;
            last = j;
        }
    if ((double)n <= oracle_number(f, 0, "k", 64))
        return;
    const double theta = values(row, "select.top_theta.theta")[h * 24 + ilogb((double)n)];
    for (int64_t j = 0; j < keys; j++) {
        if (!open[j] || j == first || j == last)
            continue;
        const double score = tape_value(row->t, row->score[h * keys + j]);
        *margin = fmin(*margin, fabs(score - theta));
        open[j] = score >= theta;
    }
}

static void select_qada(oracle_row *row, int64_t h, const oracle_form *f, double *margin)
{
    const oracle_problem *p = &row->o->problem;
    const double window = oracle_number(f, 0, "window", 128), sinks = oracle_number(f, 1, "sinks", 16),
                 tau = oracle_number(f, 2, "tau", 0.6), scale = oracle_score_scale(row->o);
    const double *mean = values(row, "select.qada.mean") + kv_head_of(row, h) * p->dim,
                 *covariance = values(row, "select.qada.covariance") + kv_head_of(row, h) * p->dim * p->dim;
    bool *open = row->open + h * p->keys;
    double near = 0, far = 0, m = 0, s2 = 0;
    int64_t count = 0;
    for (int64_t j = 0; j < p->keys; j++) {
        const int64_t pos = row->key[h * p->keys + j].pos;
        const bool local = (double)pos < sinks || (double)(row->pos - pos) < window;
        if (!open[j])
            continue;
        *(local ? &near : &far) += exp(tape_value(row->t, row->score[h * p->keys + j]));
        count += !local;
    }
    if (near == 0 || count == 0 || tau > 1)
        return;
    for (int64_t a = 0; a < p->dim; a++) {
        const double qa = scale * entry(row, &row->query[h].seen, a);
        m += qa * mean[a];
        for (int64_t b = 0; b < p->dim; b++)
            s2 += qa * covariance[a * p->dim + b] * scale * entry(row, &row->query[h].seen, b);
    }
    if (!oracle_word_is(f, 3, "far", "exact"))
        far = (double)count * exp(m + s2 / 2);
    const double share = near / (near + far);
    *margin = fmin(*margin, fabs(share - tau));
    for (int64_t j = 0; j < p->keys && share >= tau; j++) {
        const int64_t pos = row->key[h * p->keys + j].pos;
        open[j] &= (double)pos < sinks || (double)(row->pos - pos) < window;
    }
}

bool oracle_select_calibrated(oracle_row *row, int64_t h, const oracle_form *f, double *margin)
{
    static const struct {
        const char *name;
        void (*select)(oracle_row *row, int64_t h, const oracle_form *f, double *margin);
    } forms[] = {{"loki", select_loki},
                 {"top_theta", select_top_theta},
                 {"qada", select_qada},
                 {"top_p_estimated", select_estimated}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(f->name, forms[i].name) == 0) {
            forms[i].select(row, h, f, margin);
            return true;
        }
    return false;
}

/* Without the rule for rows that see nothing. */
static bool dam_opens(const oracle_row *row, int64_t h, int64_t length, int64_t pos, int64_t key)
{
    if (pos < length)
        return pos >= 0 && key >= 0 && key < length &&
               values(row, "where.dam.mask")[(h * length + pos) * length + key] != 0;
    const int64_t distance = pos - key;
    return (key >= 0 && key < length && values(row, "where.dam.columns")[h * length + key] != 0) ||
           (distance >= 0 && distance < length &&
            values(row, "where.dam.diagonals")[h * length + distance] != 0);
}

bool oracle_dam_sees(const oracle_row *row, const oracle_form *f, int64_t h, int64_t key)
{
    const int64_t length = (int64_t)oracle_number(f, 0, "length", 128);
    bool any = false;
    for (int64_t other = 0; other <= row->pos && !any; other++) /* at or before its own token */
        any = dam_opens(row, h, length, row->pos, other);
    return dam_opens(row, h, length, row->pos, key) || (!any && key == row->pos);
}

void oracle_declare_calibrated(oracle *o)
{
    const int64_t heads = o->problem.heads, groups = o->problem.kv_heads, dim = o->problem.dim;
    const oracle_form *f;
    if (oracle_find_form(o->spec, SELECT, "loki")) {
        oracle_add_param(o, "select.loki.basis", 3, (const int64_t[]){groups, dim, dim}, 0);
        oracle_param *basis = oracle_find_param(o, "select.loki.basis");
        for (int64_t i = 0; i < basis->count; i++)
            basis->value[i] = i / dim % dim == i % dim;
        oracle_add_param(o, "select.loki.variance", 2, (const int64_t[]){groups, dim}, 1);
    }
    if (oracle_find_form(o->spec, SELECT, "seer")) {
        oracle_add_param(o, "select.seer.query", 3, (const int64_t[]){heads, dim, dim}, 0);
        oracle_add_param(o, "select.seer.key", 3, (const int64_t[]){heads, dim, 3 * dim}, 0);
        oracle_param *query = oracle_find_param(o, "select.seer.query"),
                     *key = oracle_find_param(o, "select.seer.key");
        for (int64_t i = 0; i < query->count; i++)
            query->value[i] = i / dim % dim == i % dim;
        for (int64_t i = 0; i < key->count; i++)
            key->value[i] = i / (3 * dim) % dim + 2 * dim == i % (3 * dim);
    }
    if (oracle_find_form(o->spec, SELECT, "top_theta"))
        oracle_add_param(o, "select.top_theta.theta", 2, (const int64_t[]){heads, 24}, -INFINITY);
    if (oracle_find_form(o->spec, SELECT, "qada")) {
        oracle_add_param(o, "select.qada.mean", 2, (const int64_t[]){groups, dim}, 0);
        oracle_add_param(o, "select.qada.covariance", 3, (const int64_t[]){groups, dim, dim}, 0);
    }
    if ((f = oracle_find_form(o->spec, WHERE, "dam"))) {
        const int64_t length = (int64_t)oracle_number(f, 0, "length", 128);
        oracle_add_param(o, "where.dam.columns", 2, (const int64_t[]){heads, length}, 1);
        oracle_add_param(o, "where.dam.diagonals", 2, (const int64_t[]){heads, length}, 1);
        oracle_add_param(o, "where.dam.mask", 3, (const int64_t[]){heads, length, length}, 1);
    }
}
