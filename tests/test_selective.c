/* Selective attention against its definition in double precision, and its gradient against differences of
 * that definition. */
#include "support/attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct problem {
    const attend_data *d;
    int64_t window, voter; /* a query sees the `window` last keys, itself counted */
    double slope;          /* alibi's, of both heads: 2^-4 and 2^-8; 0: none */
    double *out;           /* [batch][H][N][E] */
    double *taken;         /* [batch][N][M] what is taken off */
} problem;

static double *doubles(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(double));
}

static double score(const problem *p, const double *q, const double *k, int64_t b, int64_t h, int64_t i,
                    int64_t j)
{
    const attend_case *c = &p->d->c;
    const double *query = q + ((b * c->heads + h) * c->queries + i) * c->dim;
    const double *key = k + ((b * c->kv_heads + h * c->kv_heads / c->heads) * c->keys + j) * c->dim;
    double sum = 0;
    for (int64_t x = 0; x < c->dim; x++)
        sum += query[x] * key[x];
    return sum / sqrt((double)c->dim) -
           p->slope * exp2(-8.0 * (double)(h + 1) / (double)c->heads) * (double)(i - j);
}

/* Out of the formula, and sum of out * dout. */
static double define(problem *p, const double *q, const double *k, const double *v)
{
    const attend_case *c = &p->d->c;
    double loss = 0, *weight = doubles(c->keys);
    for (int64_t b = 0; b < c->batch; b++) {
        const int64_t n = p->d->seq ? p->d->seq[b] : c->queries;
        for (int64_t i = 0; i < n; i++) {
            const int64_t first = i + 1 > p->window ? i + 1 - p->window : 0;
            double *taken = p->taken + (b * c->queries + i) * c->keys;
            for (int64_t j = 0; j < n; j++) { /* F[i][j] from the row before */
                const int64_t before = i - 1;
                const bool seen = before >= 0 && j < before && j > 0 && j + p->window > before;
                const double vote = seen ? fmax(0, score(p, q, k, b, p->voter, before, j)) : 0;
                taken[j] = i > 0 ? taken[j - c->keys] + vote : 0;
            }
            for (int64_t h = 0; h < c->heads; h++) {
                double most = -INFINITY, sum = 0;
                for (int64_t j = first; j <= i; j++) {
                    weight[j] = score(p, q, k, b, h, i, j) - taken[j];
                    most = fmax(most, weight[j]);
                }
                for (int64_t j = first; j <= i; j++)
                    sum += weight[j] = exp(weight[j] - most);
                const int64_t at = ((b * c->heads + h) * c->queries + i) * c->value_dim;
                const int64_t values = (b * c->kv_heads + h * c->kv_heads / c->heads) * c->keys;
                for (int64_t e = 0; e < c->value_dim; e++) {
                    double out = 0;
                    for (int64_t j = first; j <= i; j++)
                        out += weight[j] / sum * v[(values + j) * c->value_dim + e];
                    p->out[at + e] = out;
                    loss += out * (double)p->d->dout[at + e];
                }
            }
        }
    }
    free(weight);
    return loss;
}

static double *copy(const float *x, int64_t n)
{
    double *to = doubles(n);
    for (int64_t i = 0; i < n; i++)
        to[i] = (double)x[i];
    return to;
}

static void near(const char *what, const float *got, const double *wanted, int64_t n, double allowed)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - wanted[i]) <= allowed * (1 + fabs(wanted[i]))))
            fail_msg("%s[%lld] is %.9g, not %.9g", what, (long long)i, (double)got[i], wanted[i]);
}

static const struct {
    const char *spec;
    int64_t window, voter;
    double slope;
} cases[] = {
    {"select=selective; where=causal", 1 << 20, 0, 0},
    {"select=selective(head=1); where=causal", 1 << 20, 1, 0},
    {"select=selective; where=causal & window(23); position=alibi", 23, 0, 1},
};

static attend_data *make(int i, int64_t queries, attend_ragged ragged)
{
    return attend_make(&(attend_case){.spec = cases[i].spec,
                                      .batch = 2,
                                      .heads = 2,
                                      .kv_heads = 1,
                                      .queries = queries,
                                      .dim = 4,
                                      .value_dim = 3,
                                      .ragged = ragged,
                                      .seed = (uint64_t)i,
                                      .way.backward = true});
}

static problem problem_of(int i, const attend_data *d)
{
    const attend_case *c = &d->c;
    return (problem){.d = d,
                     .window = cases[i].window,
                     .voter = cases[i].voter,
                     .slope = cases[i].slope,
                     .out = doubles(c->batch * c->heads * c->queries * c->value_dim),
                     .taken = doubles(c->batch * c->queries * c->keys)};
}

static void out_is_that_of_the_formula(void **state)
{
    (void)state;
    static const int64_t queries[] = {1, 2, 40, 64, 65, 200};
    for (int i = 0; i < 3; i++)
        for (int n = 0; n < 6; n++)
            for (const heed_isa *isa = test_isas(); *isa; isa++) {
                attend_data *d = make(i, queries[n], n % 2 ? RAGGED_SEQ : RAGGED_NOT);
                problem p = problem_of(i, d);
                const attend_case *c = &d->c;
                double *q = copy(d->q, c->batch * c->heads * c->queries * c->dim);
                double *k = copy(d->k, c->batch * c->kv_heads * c->keys * c->dim);
                double *v = copy(d->v, c->batch * c->kv_heads * c->keys * c->value_dim);
                define(&p, q, k, v);
                attend_result *one = attend_run(d, &(attend_way){.isa = *isa, .threads = 1});
                attend_result *more = attend_run(d, &(attend_way){.isa = *isa, .threads = 3});
                near("out", one->out, p.out, c->batch * c->heads * c->queries * c->value_dim, 2e-5);
                attend_same_bits(d, one, more);
                attend_result_free(one);
                attend_result_free(more);
                free(q), free(k), free(v), free(p.out), free(p.taken);
                attend_free(d);
            }
}

/* Central differences of the formula. */
static void check_gradient(problem *p, double *q, double *k, double *v, double *x, int64_t n,
                           const char *what, const float *got)
{
    const double step = 1e-6;
    double *wanted = doubles(n);
    for (int64_t i = 0; i < n; i++) {
        const double before = x[i];
        x[i] = before + step;
        const double above = define(p, q, k, v);
        x[i] = before - step;
        wanted[i] = (above - define(p, q, k, v)) / (2 * step);
        x[i] = before;
    }
    near(what, got, wanted, n, 1e-4);
    free(wanted);
}

static void gradients_pass_through_the_votes(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        attend_data *d = make(i, i == 1 ? 70 : 21, i == 2 ? RAGGED_SEQ : RAGGED_NOT);
        problem p = problem_of(i, d);
        const attend_case *c = &d->c;
        const int64_t qs = c->batch * c->heads * c->queries * c->dim, ks = c->batch * c->keys * c->dim;
        double *q = copy(d->q, qs), *k = copy(d->k, ks);
        double *v = copy(d->v, c->batch * c->keys * c->value_dim);
        attend_result *r = attend_run(d, &d->c.way);
        check_gradient(&p, q, k, v, q, i == 1 ? 80 : qs, "dq", r->dq);
        check_gradient(&p, q, k, v, k, i == 1 ? 80 : ks, "dk", r->dk);
        check_gradient(&p, q, k, v, v, i == 1 ? 20 : c->batch * c->keys * c->value_dim, "dv", r->dv);
        attend_way threads = d->c.way;
        threads.threads = 3;
        attend_result *more = attend_run(d, &threads);
        attend_same_bits(d, r, more);
        attend_result_free(more);
        attend_result_free(r);
        free(q), free(k), free(v), free(p.out), free(p.taken);
        attend_free(d);
    }
}

/* Scores of the voter that are nowhere above 0 take nothing off. */
static void without_votes_it_is_causal_attention(void **state)
{
    (void)state;
    attend_data *d =
        attend_make(&(attend_case){.spec = "where=causal", .heads = 2, .queries = 90, .seed = 5});
    for (int64_t x = 0; x < 90 * 8; x++) {
        d->q[x] = -fabsf(d->q[x]);
        d->k[x] = fabsf(d->k[x]);
    }
    attend_changed(d);
    attend_expect(d);
    attend_result *plain = attend_run(d, &d->c.way);
    d->c.spec = "select=selective; where=causal";
    attend_result *selective = attend_run(d, &d->c.way);
    attend_agree(d, plain, selective);
    attend_result_free(plain);
    attend_result_free(selective);
    attend_free(d);
}

/* A key whose F is beyond what floats hold might as well not be there. */
static void a_key_of_endless_votes_is_gone(void **state)
{
    (void)state;
    attend_data *d = attend_make(&(attend_case){.spec = "where=causal", .queries = 80, .seed = 7});
    for (int64_t x = 0; x < 8; x++)
        d->k[5 * 8 + x] = 0;
    d->k[5 * 8] = 3e38f;
    for (int64_t i = 0; i < 80; i++)
        d->q[i * 8] = i == 6 ? 2.0f : 0.0f;
    attend_changed(d);
    d->c.spec = "select=selective; where=causal";
    attend_result *r = attend_run(d, &(attend_way){.weights = true});
    for (int64_t i = 7; i < 80; i++)
        assert_true(r->weights[i * 80 + 5] == 0);
    attend_result *with = attend_run(d, &(attend_way){0});
    for (int64_t e = 0; e < 8; e++)
        d->v[5 * 8 + e] = 1e6f;
    attend_changed(d);
    attend_result *without = attend_run(d, &(attend_way){0});
    for (int64_t x = 7 * 8; x < 80 * 8; x++)
        assert_true(with->out[x] == without->out[x]);
    attend_result_free(r);
    attend_result_free(with);
    attend_result_free(without);
    attend_free(d);
}

static void what_cannot_be_counted_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *says;
        int64_t queries;
    } wrong[] = {
        {"select=selective; where=causal", "read in one piece", 3},
        {"select=selective(head=2); where=causal", "no head 2", 9},
        {"select=top_k(4) > selective; where=causal", "goes before other selectors", 9},
        {"select=selective; heads=talking", "mixes scores", 9},
        {"where=causal; heads 0: select=selective", "must have the same spec", 9},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        heed_plan *plan;
        const heed_problem sizes = {.batch = 1, .heads = 2, .queries = wrong[i].queries, .keys = 9, .dim = 8};
        assert_true(heed_plan_create(&plan, wrong[i].spec, &sizes) != HEED_OK);
        if (!strstr(heed_message(), wrong[i].says))
            fail_msg("%s: %s", wrong[i].spec, heed_message());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_is_that_of_the_formula),
        cmocka_unit_test(gradients_pass_through_the_votes),
        cmocka_unit_test(without_votes_it_is_causal_attention),
        cmocka_unit_test(a_key_of_endless_votes_is_gone),
        cmocka_unit_test(what_cannot_be_counted_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
