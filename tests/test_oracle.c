/* The oracle's gradients against central differences of its own loss, for every form: its forward formulas
 * are checked by the golden files, so that what the library is compared with rests on neither the library nor
 * the tape. */
#include "support/attend.h"

#include "support/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const specs[] = {
    "",
    "score=dot(0.7); where=causal",
    "score=cosine",
    "score=cosine(scale=3, eps=0.5)",
    "score=bilinear",
    "score=additive(dim=3)",
    "score=mlp(dim=3)",
    "score=gaussian",
    "score=laplace(sigma=1)",
    "position=rope(dim=2, pairs=adjacent) + alibi",
    "position=rope(scaling=yarn(2, 16)); score=bilinear",
    "score=additive(dim=3); position=rope",
    "position=t5(buckets=4, max=5)",
    "position=shaw(max=2); score=dot(2)",
    "position=kerple; where=causal",
    "position=kerple(kind=power)",
    "position=fire",
    "position=xpos(scale_base=4); where=causal",
    "position=cope(max=4); where=causal",
    "position=cope(max=3) + rope + shaw",
    "position=sandwich",
    "where=window(3) & !self",
    "select=top_k(3)",
    "select=top_k(5) > top_p(0.7)",
    "normalise=softmax(temperature=0.6)",
    "normalise=softmax1",
    "normalise=sink; where=causal",
    "normalise=sigmoid",
    "normalise=relu(power=2)",
    "normalise=relu",
    "normalise=sparsemax",
    "normalise=entmax",
    "normalise=entmax(alpha=1.2)",
    "normalise=entmax(alpha=3)",
    "normalise=softcap(1.5) > sparsemax",
    "normalise=softcap(2)",
    "heads=talking",
    "heads=talking; normalise=sparsemax; position=t5(buckets=4, max=5); where=causal",
    "where=mask; normalise=sink",
    "where=mask; heads=talking; normalise=sparsemax",
    "where=mask & causal; heads=talking",
    "read=gate",
    "score=bilinear; position=rope + kerple; where=causal & window(4); normalise=sink; heads=talking; "
    "read=gate",
};

static double loss(oracle *o)
{
    const double *dout = o->problem.dout;
    const int64_t n = o->problem.batch * o->problem.heads * o->problem.queries * o->problem.value_dim;
    o->problem.dout = NULL;
    oracle_run(o);
    o->problem.dout = dout;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += dout[i] * o->out[i];
    return sum;
}

/* Some entries of one input, moved to either side. */
static void differences_agree(oracle *o, const char *spec, const char *name, double *x,
                              const double *gradient, int64_t n, test_random *random)
{
    const double step = 1e-5;
    for (int tries = 0; tries < 6; tries++) {
        const int64_t i = random_whole(random, 0, n - 1);
        const double before = x[i];
        x[i] = before + step;
        const double above = loss(o);
        x[i] = before - step;
        const double below = loss(o);
        x[i] = before;
        const double slope = (above - below) / (2 * step);
        if (fabs(slope - gradient[i]) > 1e-7 * fmax(1, fabs(slope)))
            fail_msg("%s: d%s[%lld] is %.12g, differences give %.12g", spec, name, (long long)i, gradient[i],
                     slope);
    }
}

static attend_data *away_from_jumps(const attend_case *c)
{
    attend_case tried = *c;
    for (;; tried.seed++) {
        attend_data *d = attend_make(&tried);
        attend_expect(d);
        double nearest = d->o->kink;
        for (int64_t i = 0; i < d->c.batch * d->c.heads * d->c.queries; i++)
            nearest = fmin(nearest, d->o->margin[i]);
        if (nearest > 1e-3)
            return d;
        attend_free(d);
    }
}

static void gradients_of_the_oracle_equal_central_differences(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        const attend_case c = {.spec = specs[s],
                               .batch = 2,
                               .heads = 2,
                               .kv_heads = 1,
                               .queries = 4,
                               .keys = 6,
                               .dim = 4,
                               .value_dim = 3,
                               .seed = 100 + s,
                               .mask = MASK_BHNM,
                               .way.backward = true};
        attend_data *d = away_from_jumps(&c);
        oracle *o = d->o;
        test_random random = {s};
        differences_agree(o, specs[s], "q", d->q_exact, o->dq, 2 * 2 * 4 * 4, &random);
        differences_agree(o, specs[s], "k", d->k_exact, o->dk, 2 * 6 * 4, &random);
        differences_agree(o, specs[s], "v", d->v_exact, o->dv, 2 * 6 * 3, &random);
        for (int p = 0; p < o->params; p++)
            differences_agree(o, specs[s], o->param[p].name, o->param[p].value, o->param[p].gradient,
                              o->param[p].count, &random);
        attend_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_of_the_oracle_equal_central_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
