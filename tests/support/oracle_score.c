/* score: s(i, j) of one pair. `made` is
 *   cosine         1 / max(|x|, eps)                     [1]
 *   bilinear       W^T q for queries                     [D]
 *   additive, mlp  Wq q + b for queries, Wk k for keys   [A] */
#include "support/oracle_parts.h"

#include <math.h>
#include <string.h>

static const oracle_form dot_form = {.name = "dot"};

static const oracle_form *score_form(const oracle *o)
{
    const oracle_node *root = o->spec->root[SCORE];
    return root ? &root->form : &dot_form;
}

static bool is(const oracle *o, const char *name)
{
    return strcmp(score_form(o)->name, name) == 0;
}

double oracle_score_scale(const oracle *o)
{
    const double usual = 1 / sqrt((double)o->problem.dim);
    return is(o, "dot") || is(o, "bilinear") ? oracle_number(score_form(o), 0, "scale", usual) : usual;
}

static tape_vector inverse_norm(oracle *o, tape *t, tape_vector x)
{
    const double eps = oracle_number(score_form(o), 1, "eps", 1e-6);
    const var square = tape_sum(t, TAPE_DOT, x, x, NULL, (int)o->problem.dim);
    const double norm = sqrt(tape_value(t, square));
    if (norm <= eps)
        return tape_inside(tape_constant(t, 1 / eps));
    return tape_inside(tape_function(t, 1 / norm, square, -0.5 / (norm * norm * norm), -1, 0));
}

static int hidden_units(const oracle *o)
{
    return (int)oracle_number(score_form(o), 0, "dim", (double)o->problem.dim);
}

/* matrix [A][D] of head h times x, plus b [A] of head h when it is named */
static tape_vector hidden(oracle *o, tape *t, tape_vector x, int64_t h, const char *matrix, const char *b)
{
    const int units = hidden_units(o);
    const int64_t dim = o->problem.dim;
    char name[64] = "score.";
    strcat(strcat(name, score_form(o)->name), ".");
    const size_t end = strlen(name);
    var product[512], last[512];
    for (int a = 0; a < units; a++) {
        strcpy(name + end, matrix);
        product[a] =
            tape_sum(t, TAPE_DOT, oracle_param_at(o, name, (h * units + a) * dim, 1), x, NULL, (int)dim);
        if (b) {
            strcpy(name + end, b);
            last[a] = tape_leaf(t, oracle_param_at(o, name, h * units + a, 1), 0);
        }
    }
    const tape_vector made = tape_inside(t->count);
    for (int a = 0; a < units; a++)
        if (b)
            tape_linear(t, product[a], 1, last[a], 1);
        else
            tape_scale(t, product[a], 1);
    return made;
}

void oracle_make_query(oracle *o, tape *t, oracle_side *query, int64_t h)
{
    const int64_t dim = o->problem.dim;
    if (is(o, "cosine"))
        query->made = inverse_norm(o, t, query->seen);
    if (is(o, "additive") || is(o, "mlp"))
        query->made = hidden(o, t, query->seen, h, "Wq", "b");
    if (is(o, "bilinear")) {
        query->made = tape_inside(t->count);
        for (int64_t d = 0; d < dim; d++)
            tape_sum(t, TAPE_DOT, query->seen, oracle_param_at(o, "score.bilinear.W", h * dim * dim + d, dim),
                     NULL, (int)dim);
    }
}

void oracle_make_key(oracle *o, tape *t, oracle_side *key, int64_t h)
{
    if (is(o, "cosine"))
        key->made = inverse_norm(o, t, key->seen);
    if (is(o, "additive") || is(o, "mlp"))
        key->made = hidden(o, t, key->seen, h, "Wk", NULL);
}

double oracle_query_factor(const oracle_row *row, int64_t h)
{
    const tape_vector made = row->query[h].made;
    return !is(row->o, "cosine") ? 1 : made.x ? *made.x : row->t->value[made.first];
}

double oracle_key_factor(const oracle_row *row, int64_t h, int64_t j)
{
    return is(row->o, "cosine") ? *row->key[h * row->o->problem.keys + j].made.x : 1;
}

static var entry(tape *t, tape_vector x, int64_t i)
{
    return x.x ? tape_leaf(t, x, i) : x.first + (var)i;
}

/* u^T f(made query + made key) [+ c] */
static var hidden_score(oracle_row *row, int64_t h, const oracle_side *query, const oracle_side *key)
{
    oracle *o = row->o;
    tape *t = row->t;
    const bool relu = is(o, "mlp");
    const int units = hidden_units(o);
    const tape_vector u = oracle_param_at(o, relu ? "score.mlp.u" : "score.additive.u", h * units, 1);
    var sum = relu ? tape_leaf(t, oracle_param_at(o, "score.mlp.c", h, 1), 0) : tape_constant(t, 0);
    for (int a = 0; a < units; a++) {
        const var x = tape_linear(t, entry(t, query->made, a), 1, entry(t, key->made, a), 1);
        const var y = relu ? tape_relu(t, x) : tape_tanh(t, x);
        sum = tape_linear(t, sum, 1, tape_multiply(t, tape_leaf(t, u, a), y), 1);
    }
    return sum;
}

var oracle_score(oracle_row *row, int64_t h, int64_t j)
{
    oracle *o = row->o;
    tape *t = row->t;
    const oracle_form *form = score_form(o);
    const int dim = (int)o->problem.dim;
    const oracle_side *query = &row->query[h], *key = &row->key[h * o->problem.keys + j];
    if (is(o, "cosine")) {
        const var product = tape_sum(t, TAPE_DOT, query->seen, key->seen, NULL, dim);
        const var norms = tape_multiply(t, entry(t, query->made, 0), entry(t, key->made, 0));
        return tape_scale(t, tape_multiply(t, product, norms), oracle_number(form, 0, "scale", 10));
    }
    if (is(o, "bilinear"))
        return tape_scale(t, tape_sum(t, TAPE_DOT, query->made, key->seen, NULL, dim), oracle_score_scale(o));
    if (is(o, "additive") || is(o, "mlp"))
        return hidden_score(row, h, query, key);
    if (is(o, "gaussian")) {
        const double sigma = oracle_number(form, 0, "sigma", pow(dim, 0.25));
        return tape_scale(t, tape_sum(t, TAPE_SQUARED_DISTANCE, query->seen, key->seen, NULL, dim),
                          -1 / (2 * sigma * sigma));
    }
    if (is(o, "laplace")) {
        const double sigma = oracle_number(form, 0, "sigma", sqrt(dim));
        return tape_scale(t, tape_sum(t, TAPE_ABSOLUTE_DISTANCE, query->seen, key->seen, NULL, dim),
                          -1 / sigma);
    }
    if (is(o, "comate")) {
        const double root = sqrt(dim);
        const var product = tape_sum(t, TAPE_DOT, query->seen, key->seen, NULL, dim);
        const var distance = tape_sum(t, TAPE_ABSOLUTE_DISTANCE, query->seen, key->seen, NULL, dim);
        const var sign = tape_tanh(t, tape_scale(t, product, oracle_number(form, 0, "a", 1) / root));
        const var gate = tape_sigmoid(t, tape_scale(t, distance, -oracle_number(form, 1, "b", 1) / root));
        return tape_scale(t, tape_multiply(t, sign, gate), 2);
    }
    if (is(o, "coca")) {
        const double base = oracle_number(form, 0, "base", 10000);
        var sum = tape_constant(t, 0);
        for (int c = 0; c < dim / 2; c++) {
            const var x = entry(t, query->seen, c), y = entry(t, query->seen, c + dim / 2);
            const var size = tape_linear(t, tape_multiply(t, x, x), 1, tape_multiply(t, y, y), 1);
            const var both = tape_multiply(t, size, tape_relu(t, entry(t, key->seen, c)));
            const long double angle = (long double)(query->pos - key->pos) * powl(base, -2.0L * c / dim);
            sum = tape_linear(t, sum, 1, both, (double)cosl(angle) / sqrt(dim));
        }
        return sum;
    }
    const double *twist = row->twist ? row->twist + j * dim : NULL;
    return tape_scale(t, tape_sum(t, TAPE_DOT, query->seen, key->seen, twist, dim), oracle_score_scale(o));
}
