#include "support/oracle.h"

#include "support/oracle_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *numbers(int64_t n)
{
    return calloc((size_t)(n > 0 ? n : 1), sizeof(double));
}

oracle *oracle_new(const char *spec, const oracle_problem *problem)
{
    oracle *o = calloc(1, sizeof *o);
    o->problem = *problem;
    o->spec = oracle_spec_read(spec);
    oracle_declare_params(o);
    const int64_t rows = problem->batch * problem->heads * problem->queries;
    const int64_t keys = problem->batch * problem->kv_heads * problem->keys;
    o->out = numbers(rows * problem->value_dim);
    o->out_magnitude = numbers(rows * problem->value_dim);
    o->lse = numbers(rows);
    o->margin = numbers(rows);
    o->reach = numbers(rows);
    o->steepness = numbers(rows);
    o->weights = numbers(rows * problem->keys);
    o->weights_magnitude = numbers(rows * problem->keys);
    o->open = calloc((size_t)(rows * problem->keys + 1), 1);
    o->dq = numbers(rows * problem->dim);
    o->dk = numbers(keys * problem->dim);
    o->dv = numbers(keys * problem->value_dim);
    o->dq_magnitude = numbers(rows * problem->dim);
    o->dk_magnitude = numbers(keys * problem->dim);
    o->dv_magnitude = numbers(keys * problem->value_dim);
    return o;
}

void oracle_free(oracle *o)
{
    if (!o)
        return;
    oracle_spec_free(o->spec);
    for (int i = 0; i < o->params; i++) {
        free(o->param[i].value);
        free(o->param[i].gradient);
        free(o->param[i].magnitude);
    }
    free(o->param);
    double *const all[] = {o->out,       o->out_magnitude,     o->lse,          o->margin,      o->reach,
                           o->steepness, o->weights_magnitude, o->weights,      o->dq,          o->dk,
                           o->dv,        o->dq_magnitude,      o->dk_magnitude, o->dv_magnitude};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(o->open);
    free(o);
}

static int64_t kv_head(const oracle_problem *problem, int64_t h)
{
    return h * problem->kv_heads / problem->heads;
}

/* Keys of one batch entry as each query head sees them, made on the tape `t`, which later rows only read. */
static oracle_side *make_keys(oracle *o, tape *t, int64_t b)
{
    const oracle_problem *problem = &o->problem;
    const int64_t keys = problem->keys, dim = problem->dim;
    oracle_side *key = calloc((size_t)(problem->heads * keys + 1), sizeof *key);
    for (int64_t h = 0; h < problem->heads; h++)
        for (int64_t j = 0; j < keys; j++) {
            const int64_t at = ((b * problem->kv_heads + kv_head(problem, h)) * keys + j) * dim;
            oracle_side *side = &key[h * keys + j];
            side->pos = !problem->k_pos ? j : problem->k_pos[(problem->k_pos_batched ? b * keys : 0) + j];
            side->given = tape_outside(problem->k + at, o->dk + at, o->dk_magnitude + at, 1);
            oracle_rotate(o, t, side);
            oracle_make_key(o, t, side, h);
        }
    for (int64_t x = 0; x < problem->heads * keys; x++) {
        tape_vector *const made[] = {&key[x].seen, &key[x].made};
        for (int i = 0; i < 2; i++)
            if (!made[i]->x && t->count)
                *made[i] = tape_outside(t->value + made[i]->first, t->gradient + made[i]->first,
                                        t->magnitude + made[i]->first, 1);
    }
    return key;
}

static void make_queries(oracle_row *row)
{
    oracle *o = row->o;
    const oracle_problem *problem = &o->problem;
    for (int64_t h = 0; h < problem->heads; h++) {
        const int64_t at = ((row->b * problem->heads + h) * problem->queries + row->i) * problem->dim;
        row->query[h].pos = row->pos;
        row->query[h].given = tape_outside(problem->q + at, o->dq + at, o->dq_magnitude + at, 1);
        oracle_rotate(o, row->t, &row->query[h]);
        oracle_make_query(o, row->t, &row->query[h], h);
    }
    oracle_twist(row);
}

/* Opens pairs under `where`. */
static void look(oracle_row *row)
{
    const oracle_problem *problem = &row->o->problem;
    const int64_t keys = problem->keys;
    int64_t key_end = INT64_MIN;
    for (int64_t j = 0; j < row->key_count; j++)
        key_end = row->key[j].pos + 1 > key_end ? row->key[j].pos + 1 : key_end;
    for (int64_t h = 0; h < problem->heads; h++)
        for (int64_t j = 0; j < keys; j++) {
            row->open[h * keys + j] =
                j < row->key_count && oracle_sees(row, row->o->spec->root[WHERE], h, j, key_end);
            row->any[j] |= row->open[h * keys + j];
        }
}

/* x'_h = sum_g mix[h, g] x_g for each key; heads without a value count as 0. */
static void talk(oracle_row *row, const char *mix, var *x, const bool *has, const bool *wanted)
{
    const int64_t heads = row->o->problem.heads, keys = row->o->problem.keys;
    tape *t = row->t;
    var *mixed = malloc((size_t)heads * sizeof *mixed);
    for (int64_t j = 0; j < keys; j++) {
        if (!wanted[j])
            continue;
        for (int64_t h = 0; h < heads; h++) {
            mixed[h] = tape_constant(t, 0);
            for (int64_t g = 0; g < heads; g++)
                if (!has || has[g * keys + j]) {
                    const var factor = tape_leaf(t, oracle_param_at(row->o, mix, h * heads + g, 1), 0);
                    mixed[h] = tape_linear(t, mixed[h], 1, tape_multiply(t, factor, x[g * keys + j]), 1);
                }
        }
        for (int64_t h = 0; h < heads; h++)
            x[h * keys + j] = mixed[h];
    }
    free(mixed);
}

/* Closes pairs of score -inf; true when the row holds a NaN or +inf. */
static bool is_lost(oracle_row *row, int64_t h)
{
    const int64_t keys = row->o->problem.keys;
    bool lost = false;
    for (int64_t j = 0; j < keys; j++) {
        if (!row->open[h * keys + j])
            continue;
        const double s = tape_value(row->t, row->score[h * keys + j]);
        if (s == -INFINITY)
            row->open[h * keys + j] = false;
        else if (!isfinite(s))
            lost = true;
    }
    return lost;
}

/* The largest sum of absolute terms of a score in the row. */
static double reach(const oracle_row *row, int64_t h)
{
    const int64_t keys = row->o->problem.keys;
    double most = 0;
    for (int64_t j = 0; j < keys; j++)
        if (row->open[h * keys + j])
            most = fmax(most, row->t->terms[row->score[h * keys + j]]);
    return most;
}

/* Heads that mix pass each other's errors on. */
static void share_steepness(oracle_row *row)
{
    const oracle_problem *problem = &row->o->problem;
    double *steepness = &row->o->steepness[row->b * problem->heads * problem->queries + row->i], most = 1;
    for (int64_t h = 0; h < problem->heads; h++)
        most = fmax(most, steepness[h * problem->queries]);
    for (int64_t h = 0; h < problem->heads; h++)
        steepness[h * problem->queries] = most;
}

/* The gate of one entry of the output, and where in g it stands. */
static double gate(const oracle_param *g, int64_t b, int64_t h, int64_t i, int64_t e, int64_t *at)
{
    const int64_t index[4] = {b, h, i, e};
    *at = 0;
    for (int d = 0; d < 4; d++)
        *at = *at * g->shape[d] + (g->shape[d] == 1 ? 0 : index[d]);
    return 1 / (1 + exp(-g->value[*at]));
}

/* out = sum_j w_j v_j, gated; and back from dout to the weights, the values and the gate. */
static void read_values(oracle_row *row, int64_t h, const bool *reads)
{
    oracle *o = row->o;
    const oracle_problem *problem = &o->problem;
    const int64_t keys = problem->keys, width = problem->value_dim;
    const int64_t at = (row->b * problem->heads + h) * problem->queries + row->i;
    const int64_t values = (row->b * problem->kv_heads + kv_head(problem, h)) * keys * width;
    oracle_param *g = oracle_find_param(o, "read.gate.g");
    double heaviest = 0;
    for (int64_t j = 0; j < keys; j++)
        heaviest = reads[j] ? fmax(heaviest, row->t->terms[row->weight[h * keys + j]]) : heaviest;
    for (int64_t e = 0; e < width; e++) {
        double sum = 0, size = 0, largest = 0, open = 1;
        int64_t gate_at = 0;
        for (int64_t j = 0; j < keys; j++)
            if (reads[j]) {
                const var w = row->weight[h * keys + j];
                sum += tape_value(row->t, w) * problem->v[values + j * width + e];
                size += row->t->terms[w] * fabs(problem->v[values + j * width + e]);
                largest = fmax(largest, fabs(problem->v[values + j * width + e]));
            }
        size =
            fmax(size, heaviest * largest); /* a small weight may be wrong by what is little to a heavy one */
        if (g)
            open = gate(g, row->b, h, row->i, e, &gate_at);
        o->out[at * width + e] = open * sum;
        o->out_magnitude[at * width + e] = open * size;
        if (!problem->dout)
            continue;
        const double dout = problem->dout[at * width + e];
        if (g) {
            const double slope = dout * open * (1 - open), term = fabs(slope * size) * o->steepness[at];
            g->gradient[gate_at] += slope * sum;
            g->magnitude[gate_at] += term;
            row->gate_term[gate_at] = fmax(row->gate_term[gate_at], term);
        }
        for (int64_t j = 0; j < keys; j++)
            if (reads[j]) {
                const double dv = dout * open * tape_value(row->t, row->weight[h * keys + j]);
                tape_seed(row->t, row->weight[h * keys + j], dout * open * problem->v[values + j * width + e],
                          o->steepness[at]);
                o->dv[values + j * width + e] += dv;
                o->dv_magnitude[values + j * width + e] += fabs(dv) * o->steepness[at];
            }
    }
}

static void write_lost(oracle_row *row, int64_t h, const bool *reads)
{
    const oracle_problem *problem = &row->o->problem;
    const int64_t at = (row->b * problem->heads + h) * problem->queries + row->i;
    row->o->lse[at] = NAN;
    for (int64_t e = 0; e < problem->value_dim; e++)
        row->o->out[at * problem->value_dim + e] = row->o->out_magnitude[at * problem->value_dim + e] = NAN;
    for (int64_t j = 0; j < problem->keys; j++)
        row->o->weights[at * problem->keys + j] = reads[j] ? NAN : 0;
}

/* One query, all heads. Rows whose scores hold a NaN give NaN and no gradient. */
static void run_row(oracle_row *row)
{
    oracle *o = row->o;
    const oracle_problem *problem = &o->problem;
    const int64_t heads = problem->heads, keys = problem->keys;
    const bool talks = oracle_find_form(o->spec, HEADS, "talking") != NULL;
    look(row);
    make_queries(row);
    for (int64_t h = 0; h < heads; h++) {
        for (int64_t j = 0; j < keys; j++)
            if (row->any[j])
                row->score[h * keys + j] = oracle_score(row, h, j);
        oracle_add_positions(row, h);
    }
    if (talks)
        talk(row, "heads.talking.before", row->score, NULL, row->any);
    bool lost[64] = {false}, any_lost = false;
    for (int64_t h = 0; h < heads; h++) {
        const int64_t at = (row->b * heads + h) * problem->queries + row->i;
        lost[h] = is_lost(row, h);
        any_lost |= lost[h];
        o->margin[at] = INFINITY;
        if (!lost[h]) {
            o->reach[at] = reach(row, h);
            o->margin[at] = oracle_select(row, h);
            o->lse[at] = oracle_normalise(row, h, &o->steepness[at]);
        }
        for (int64_t j = 0; j < keys; j++) {
            o->open[at * keys + j] = row->open[h * keys + j];
            if (row->open[h * keys + j] && !lost[h]) /* mixing heads goes on from here */
                row->t->terms[row->weight[h * keys + j]] =
                    fabs(tape_value(row->t, row->weight[h * keys + j]));
        }
    }
    bool *reads = calloc((size_t)(heads * keys + 1), sizeof *reads);
    memcpy(reads, row->open, (size_t)(heads * keys) * sizeof *reads);
    if (talks) {
        share_steepness(row);
        for (int64_t j = 0; j < keys; j++) {
            row->any[j] = false;
            for (int64_t h = 0; h < heads; h++)
                row->any[j] |= row->open[h * keys + j];
            for (int64_t h = 0; h < heads; h++)
                reads[h * keys + j] = row->any[j];
        }
        if (!any_lost)
            talk(row, "heads.talking.after", row->weight, row->open, row->any);
    }
    for (int64_t h = 0; h < heads; h++) {
        const int64_t at = (row->b * heads + h) * problem->queries + row->i;
        if (lost[h] || (talks && any_lost)) {
            write_lost(row, h, reads + h * keys);
            continue;
        }
        read_values(row, h, reads + h * keys);
        for (int64_t j = 0; j < keys; j++) {
            o->weights[at * keys + j] =
                reads[h * keys + j] ? tape_value(row->t, row->weight[h * keys + j]) : 0;
            o->weights_magnitude[at * keys + j] =
                reads[h * keys + j] ? row->t->terms[row->weight[h * keys + j]] : 0;
        }
    }
    if (problem->dout && !(talks && any_lost))
        tape_backward(row->t);
    free(reads);
}

/* A query that does not exist gives 0 and -inf. */
static bool exists(const oracle_problem *problem, int64_t b, int64_t i)
{
    if (problem->q_seq)
        return i < problem->q_seq[b];
    return !problem->seq || i + problem->keys - problem->queries < problem->seq[b];
}

static int64_t query_position(const oracle_problem *problem, int64_t b, int64_t i)
{
    if (problem->q_pos)
        return problem->q_pos[(problem->q_pos_batched ? b * problem->queries : 0) + i];
    return i + (problem->q_seq ? problem->seq[b] - problem->q_seq[b] : problem->keys - problem->queries);
}

void oracle_run(oracle *o)
{
    const oracle_problem *problem = &o->problem;
    const int64_t heads = problem->heads, keys = problem->keys;
    const size_t pairs = (size_t)(heads * keys + 1);
    tape prepared = {.kink = INFINITY}, scores = {.kink = INFINITY};
    oracle_row row = {.o = o, .t = &scores};
    row.query = calloc((size_t)heads, sizeof *row.query);
    row.open = calloc(pairs, sizeof *row.open);
    row.any = calloc((size_t)keys + 1, sizeof *row.any);
    row.score = calloc(pairs, sizeof *row.score);
    row.weight = calloc(pairs, sizeof *row.weight);
    oracle_param *g = oracle_find_param(o, "read.gate.g");
    row.gate_term = numbers(g ? g->count : 0);
    if (oracle_find_form(o->spec, POSITION, "xpos"))
        row.twist = numbers(keys * problem->dim);
    for (int64_t b = 0; b < problem->batch; b++) {
        tape_clear(&prepared);
        oracle_side *key = make_keys(o, &prepared, b);
        row.b = b;
        row.key = key;
        row.key_count = problem->seq ? problem->seq[b] : keys;
        for (int64_t i = 0; i < problem->queries; i++) {
            row.i = i;
            row.pos = query_position(problem, b, i);
            memset(row.open, 0, pairs * sizeof *row.open);
            memset(row.any, 0, ((size_t)keys + 1) * sizeof *row.any);
            tape_clear(&scores);
            if (exists(problem, b, i)) {
                run_row(&row);
                continue;
            }
            for (int64_t h = 0; h < heads; h++) {
                o->lse[(b * heads + h) * problem->queries + i] = -INFINITY;
                o->margin[(b * heads + h) * problem->queries + i] = INFINITY;
            }
        }
        if (problem->dout)
            tape_backward(&prepared);
        free(key);
    }
    /* A term of the gate's gradient is an output, which may be wrong by its whole tolerance; errors of
     * several outputs average out to the half of it that is allowed to a sum. */
    for (int64_t i = 0; g && i < g->count; i++)
        g->magnitude[i] = fmax(g->magnitude[i], 2 * row.gate_term[i]);
    o->kink = fmin(prepared.kink, scores.kink);
    free(row.query);
    free(row.open);
    free(row.any);
    free(row.score);
    free(row.weight);
    free(row.twist);
    free(row.gate_term);
    tape_free(&prepared);
    tape_free(&scores);
}
