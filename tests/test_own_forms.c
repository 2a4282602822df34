/* A user's own forms that look at the rows of queries and keys, or at scores again when gradients are made:
 * every kernel gives them the same numbers, and two of them do not share their memory. */
#include "support/attend.h"
#include "support/isas.h"
#include "support/random.h"

#include <heed/heed.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

enum { HEADS = 2, DIM = 6, KEYS = 150, MOST = HEADS * KEYS * DIM };

/* s += (q . u) (k . w), q and k as the score meets them */
enum { U, W };

static float dot_row(const float *query, const float *u, int dim)
{
    float sum = 0.0f;
    for (int d = 0; d < dim; d++)
        sum += query[d] * u[d];
    return sum;
}

static float dot_key(const heed_tile *tile, int j, const float *w)
{
    float sum = 0.0f;
    for (int d = 0; d < tile->dim; d++)
        sum += tile->key[d * tile->key_stride + j] * w[d];
    return sum;
}

static void lean(const heed_form_state *form, heed_tile *tile)
{
    for (int i = 0; i < tile->rows; i++) {
        const float q = dot_row(tile->query + i * tile->query_stride, form->param[U], tile->dim);
        for (int j = 0; j < tile->cols; j++)
            tile->score[i * tile->stride + j] += q * dot_key(tile, j, form->param[W]);
    }
}

static void lean_backward(const heed_form_state *form, heed_tile *tile)
{
    for (int i = 0; i < tile->rows; i++) {
        const float *query = tile->query + i * tile->query_stride;
        const float q = dot_row(query, form->param[U], tile->dim);
        for (int j = 0; j < tile->cols; j++) {
            const float ds = tile->dscore[i * tile->stride + j], k = dot_key(tile, j, form->param[W]);
            for (int d = 0; ds != 0.0f && d < tile->dim; d++) {
                tile->dquery[i * tile->query_stride + d] += ds * k * form->param[U][d];
                tile->dkey[d * tile->key_stride + j] += ds * q * form->param[W][d];
                form->grad[U][d] += ds * k * query[d];
                form->grad[W][d] += ds * q * tile->key[d * tile->key_stride + j];
            }
        }
    }
}

/* s := s + a s^2 / (1 + s^2), whose slope is made from its input */
static void bend(const heed_form_state *form, heed_tile *tile)
{
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->cols; j++) {
            float *s = &tile->score[i * tile->stride + j];
            const float square = *s * *s;
            if (*s != -INFINITY)
                *s += heed_arg_float(form, 0) * square / (1.0f + square);
        }
}

static void bend_backward(const heed_form_state *form, heed_tile *tile)
{
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->cols; j++) {
            const float s = tile->before[i * tile->stride + j], whole = 1.0f + s * s;
            float *ds = &tile->dscore[i * tile->stride + j];
            if (*ds != 0.0f)
                *ds *= 1.0f + heed_arg_float(form, 0) * 2.0f * s / (whole * whole);
        }
}

/* s := asinh(s), whose slope 1 / cosh(asinh(s)) is made from its output */
static void squash(const heed_form_state *form, heed_tile *tile)
{
    (void)form;
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->cols; j++)
            tile->score[i * tile->stride + j] = asinhf(tile->score[i * tile->stride + j]);
}

static void squash_backward(const heed_form_state *form, heed_tile *tile)
{
    (void)form;
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->cols; j++) {
            float *ds = &tile->dscore[i * tile->stride + j];
            if (*ds != 0.0f)
                *ds /= coshf(tile->score[i * tile->stride + j]);
        }
}

static const heed_param lean_params[] = {{.name = "u", .shape = "D"}, {.name = "w", .shape = "D"}, {0}};
static const heed_arg bend_args[] = {{.name = "a", .value = 0.5}, {0}};

static const heed_form lean_form = {.name = "lean",
                                    .stage = HEED_POSITION,
                                    .params = lean_params,
                                    .adjust = lean,
                                    .adjust_backward = lean_backward};
static const heed_form bend_form = {.name = "bend",
                                    .stage = HEED_POSITION,
                                    .flags = HEED_KEEPS_INPUT,
                                    .args = bend_args,
                                    .adjust = bend,
                                    .adjust_backward = bend_backward};
static const heed_form bow_form = {.name = "bow",
                                   .stage = HEED_POSITION,
                                   .flags = HEED_KEEPS_INPUT,
                                   .args = bend_args,
                                   .adjust = bend,
                                   .adjust_backward = bend_backward};
static const heed_form squash_form = {.name = "squash",
                                      .stage = HEED_POSITION,
                                      .flags = HEED_KEEPS_OUTPUT,
                                      .adjust = squash,
                                      .adjust_backward = squash_backward};
static const heed_form kink_form = {.name = "kink",
                                    .stage = HEED_NORMALISE,
                                    .flags = HEED_MODIFIER | HEED_KEEPS_INPUT,
                                    .args = bend_args,
                                    .adjust = bend,
                                    .adjust_backward = bend_backward};
static const heed_form *const own[] = {&lean_form, &bend_form, &bow_form, &squash_form, &kink_form, NULL};

/* What is compared: `steps` are the forms of the spec as the reference runs them. */
typedef struct problem {
    const char *spec, *steps;
    double scale; /* of the product */
    bool causal;
    int64_t queries;
    heed_type type;
    heed_kernel kernel;
    heed_isa isa;
} problem;

enum { Q, K, V, DOUT, PARAM, INPUTS };

/* q, k, v, dout, and u with w */
typedef struct numbers {
    double x[INPUTS][MOST];
} numbers;

static int64_t count_of(const problem *p, int which)
{
    return which == PARAM ? 2 * DIM
                          : (int64_t)HEADS * (which == Q || which == DOUT ? p->queries : KEYS) * DIM;
}

static numbers *make_numbers(const problem *p, uint64_t seed)
{
    test_random random = {seed};
    numbers *made = calloc(1, sizeof *made);
    assert_non_null(made);
    for (int which = 0; which < INPUTS; which++)
        for (int64_t i = 0; i < count_of(p, which); i++) {
            const float x = (float)random_normal(&random);
            uint16_t rounded;
            float back;
            heed_store(HEED_BF16, &x, &rounded, 1); /* exact in every type */
            heed_load(HEED_BF16, &rounded, &back, 1);
            made->x[which][i] = (double)back;
        }
    return made;
}

static double dot(const double *a, const double *b)
{
    double sum = 0.0;
    for (int d = 0; d < DIM; d++)
        sum += a[d] * b[d];
    return sum;
}

static double bent(double s, double a)
{
    return s + a * s * s / (1.0 + s * s);
}

/* What the normaliser sees: l: lean, b: bend, o: bow(-0.7), s: squash, k: kink(0.4), c: softcap(2) */
static double logit(const problem *p, const double *query, const double *key, const double *param)
{
    double s = p->scale * dot(query, key);
    for (const char *step = p->steps; *step; step++)
        s = *step == 'l'   ? s + p->scale * dot(query, param) * dot(key, param + DIM)
            : *step == 'b' ? bent(s, 0.5)
            : *step == 'o' ? bent(s, -0.7)
            : *step == 'k' ? bent(s, 0.4)
            : *step == 's' ? asinh(s)
                           : 2.0 * tanh(s / 2.0);
    return s;
}

/* Sum of out times dout; `out` unless NULL receives out. */
static double reference(const problem *p, const numbers *n, double *out)
{
    double loss = 0.0;
    for (int64_t row = 0; row < HEADS * p->queries; row++) {
        const int64_t h = row / p->queries, i = row % p->queries;
        const int64_t open = p->causal ? i + 1 + KEYS - p->queries : KEYS;
        double sum = 0.0, value[DIM] = {0};
        for (int64_t j = 0; j < open; j++) {
            const int64_t at = (h * KEYS + j) * DIM;
            const double w = exp(logit(p, n->x[Q] + row * DIM, n->x[K] + at, n->x[PARAM]));
            sum += w;
            for (int e = 0; e < DIM; e++)
                value[e] += w * n->x[V][at + e];
        }
        for (int e = 0; e < DIM; e++) {
            loss += value[e] / sum * n->x[DOUT][row * DIM + e];
            if (out)
                out[row * DIM + e] = value[e] / sum;
        }
    }
    return loss;
}

static heed_status make_plan(const problem *p, heed_plan **plan)
{
    const heed_problem wanted = {.batch = 1,
                                 .heads = HEADS,
                                 .queries = p->queries,
                                 .keys = KEYS,
                                 .dim = DIM,
                                 .q_type = p->type,
                                 .k_type = p->type,
                                 .v_type = p->type,
                                 .isa = p->isa,
                                 .kernel = p->kernel,
                                 .threads = 1,
                                 .with = HEED_WITH_BACKWARD,
                                 .forms = own};
    return heed_plan_create(plan, p->spec, &wanted);
}

typedef struct room {
    float number[MOST];
} room;

static heed_tensor tensor_of(const problem *p, int which, heed_type type, void *data)
{
    const bool by_query = which == Q || which == DOUT;
    return heed_tensor_dense(data, type, 4, (int64_t[]){1, HEADS, by_query ? p->queries : KEYS, DIM});
}

static heed_tensor store(const problem *p, const numbers *n, int which, room *to)
{
    const heed_type type = which == DOUT ? HEED_F32 : p->type;
    float x[MOST];
    for (int64_t i = 0; i < count_of(p, which); i++)
        x[i] = (float)n->x[which][i];
    heed_store(type, x, to, count_of(p, which));
    return tensor_of(p, which, type, to);
}

static void near(const problem *p, const char *what, int64_t i, double got, double expected, double allowed)
{
    if (!(fabs(got - expected) <= allowed))
        fail_msg("\"%s\", %lld queries, isa %d, kernel %d, type %d: %s[%lld] is %.9g, not %.9g", p->spec,
                 (long long)p->queries, (int)p->isa, (int)p->kernel, (int)p->type, what, (long long)i, got,
                 expected);
}

/* What the reference says: out, and derivatives by central differences at some of the entries. */
enum { SAMPLES = 12 };

typedef struct answers {
    double out[MOST], slope[INPUTS][SAMPLES];
} answers;

static int64_t sample_of(const problem *p, int which, int sample)
{
    return sample * count_of(p, which) / SAMPLES;
}

static void answer(const problem *p, numbers *n, answers *to)
{
    const double step = 1e-4;
    reference(p, n, to->out);
    for (int which = 0; which < INPUTS; which++)
        for (int s = 0; s < SAMPLES; s++) {
            double *x = &n->x[which][sample_of(p, which, s)], before = *x;
            *x = before + step;
            const double above = reference(p, n, NULL);
            *x = before - step;
            to->slope[which][s] = (above - reference(p, n, NULL)) / (2.0 * step);
            *x = before;
        }
}

static void match_gradient(const problem *p, const answers *right, int which, const float *got)
{
    static const char *const name[INPUTS] = {"dq", "dk", "dv", NULL, "d.u, d.w"};
    const int64_t count = count_of(p, which);
    double most = 0.0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)got[i]));
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t at = sample_of(p, which, i);
        near(p, name[which], at, (double)got[at], right->slope[which][i], 2e-5 * (1.0 + most));
    }
}

static void match(const problem *p, const numbers *n, const answers *right)
{
    heed_plan *plan;
    if (make_plan(p, &plan) != HEED_OK)
        fail_msg("%s: %s", p->spec, heed_message());
    static room in[4], out, d[INPUTS];
    heed_tensor t[4], params[4] = {{0}}, dparams[4] = {{0}};
    for (int which = 0; which < 4; which++)
        t[which] = store(p, n, which, &in[which]);
    float uw[2 * DIM];
    for (int i = 0; i < 2 * DIM; i++)
        uw[i] = (float)n->x[PARAM][i];
    for (int i = 0, found = 0; i < heed_plan_params(plan); i++) {
        heed_plan_param_info info;
        assert_int_equal(heed_plan_param(plan, i, &info), HEED_OK);
        if (strncmp(info.name, "position.lean.", 14))
            continue;
        params[i] = heed_tensor_dense(uw + found * DIM, HEED_F32, 1, (int64_t[]){DIM});
        dparams[i] = heed_tensor_dense(d[PARAM].number + found++ * DIM, HEED_F32, 1, (int64_t[]){DIM});
    }
    const heed_extra extra = {.params = params};
    const heed_tensor o = tensor_of(p, Q, HEED_F32, &out);
    assert_int_equal(heed_attend(plan, &t[Q], &t[K], &t[V], &o, &extra), HEED_OK);
    for (int64_t i = 0; i < count_of(p, Q); i++)
        near(p, "out", i, (double)out.number[i], right->out[i], 2e-5);

    const heed_gradients gradients = {.q = t[Q],
                                      .k = t[K],
                                      .v = t[V],
                                      .dout = t[DOUT],
                                      .dq = tensor_of(p, Q, HEED_F32, &d[Q]),
                                      .dk = tensor_of(p, K, HEED_F32, &d[K]),
                                      .dv = tensor_of(p, V, HEED_F32, &d[V]),
                                      .dparams = dparams,
                                      .extra = &extra};
    assert_int_equal(heed_attend_backward(plan, &gradients), HEED_OK);
    for (int which = Q; which <= V; which++)
        match_gradient(p, right, which, d[which].number);
    if (strchr(p->steps, 'l'))
        match_gradient(p, right, PARAM, d[PARAM].number);
    heed_plan_free(plan);
}

/* Through flash, sparse and rows, in every build, from f32 and from bf16. */
static void match_everywhere(problem p)
{
    static const heed_kernel kernels[] = {HEED_KERNEL_AUTO, HEED_KERNEL_FLASH, HEED_KERNEL_SPARSE,
                                          HEED_KERNEL_ROWS};
    static const heed_type types[] = {HEED_F32, HEED_BF16};
    const bool mixes = strstr(p.spec, "talking") != NULL;
    static answers right;
    for (p.queries = 3; p.queries <= 70; p.queries += 67) {
        numbers *n = make_numbers(&p, 3);
        answer(&p, n, &right);
        for (const heed_isa *isa = test_isas(); *isa; isa++)
            for (size_t way = 0; way < COUNT(kernels) * COUNT(types); way++) {
                p.isa = *isa;
                p.kernel = mixes ? HEED_KERNEL_ROWS : kernels[way / COUNT(types)];
                p.type = types[way % COUNT(types)];
                match(&p, n, &right);
            }
        free(n);
    }
}

#define SCALE 0.40824829046386301637 /* 1/sqrt(6) */

static void rows_of_queries_and_keys_are_the_same_in_every_kernel(void **state)
{
    (void)state;
    static const problem problems[] = {
        {.spec = "position=lean; where=causal", .steps = "l", .scale = SCALE, .causal = true},
        {.spec = "score=dot(-0.3); position=lean", .steps = "l", .scale = -0.3},
        {.spec = "position=lean; heads=talking", .steps = "l", .scale = SCALE},
    };
    for (size_t i = 0; i < COUNT(problems); i++)
        match_everywhere(problems[i]);
}

static void forms_that_see_scores_again_see_their_own(void **state)
{
    (void)state;
    static const problem problems[] = {
        {.spec = "position=bend + bow(-0.7); where=causal", .steps = "bo", .scale = SCALE, .causal = true},
        {.spec = "position=bend; normalise=kink(0.4) > softcap(2)", .steps = "bkc", .scale = SCALE},
        {.spec = "position=squash + bend; normalise=softcap(2) > kink(0.4); where=causal",
         .steps = "sbck",
         .scale = SCALE,
         .causal = true},
        {.spec =
             "position=bow(-0.7) + lean + squash + bend; normalise=softcap(2); heads=talking; where=causal",
         .steps = "olsbc",
         .scale = SCALE,
         .causal = true},
    };
    for (size_t i = 0; i < COUNT(problems); i++)
        match_everywhere(problems[i]);
}

/* Keys lie there as they are stored, not as a tile shows them. */
static void decode_refuses_forms_that_may_ask_for_keys(void **state)
{
    (void)state;
    heed_plan *plan;
    heed_problem decode = {.batch = 1,
                           .heads = HEADS,
                           .queries = 1,
                           .keys = KEYS,
                           .dim = DIM,
                           .kernel = HEED_KERNEL_DECODE,
                           .forms = own};
    assert_int_equal(heed_plan_create(&plan, "position=lean", &decode), HEED_UNSUPPORTED);
    assert_non_null(strstr(heed_message(), "a form from outside"));
    decode.kernel = HEED_KERNEL_AUTO;
    assert_int_equal(heed_plan_create(&plan, "position=lean", &decode), HEED_OK);
    heed_plan_info info;
    heed_plan_get_info(plan, &info);
    assert_int_equal(info.kernel, HEED_KERNEL_FLASH);
    heed_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_queries_and_keys_are_the_same_in_every_kernel),
        cmocka_unit_test(forms_that_see_scores_again_see_their_own),
        cmocka_unit_test(decode_refuses_forms_that_may_ask_for_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
