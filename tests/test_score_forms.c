/* The `score` forms by their hooks, in every build that this processor runs, against definitions in double
 * precision; gradients against central differences of those definitions. */
#include "support/hooks.h"

enum { HEADS = 3 };

static const char *const names[] = {"dot", "cosine",   "bilinear", "additive",
                                    "mlp", "gaussian", "laplace",  "layernorm"};
enum { NAMES = sizeof names / sizeof *names };

/* Everything a score is made of, in double precision, so that differences can be taken. */
typedef struct example {
    const heed_form_state *form;
    int head, rows, cols, dim, width; /* width: entries of a prepared row */
    double *q, *k;                    /* [rows][dim], [cols][dim] */
    double *param[HEED_MAX_PARAMS];
    double arg[HEED_MAX_ARGS];
} example;

static double *doubles(const float *x, int64_t n)
{
    double *y = malloc((size_t)(n + 1) * sizeof *y);
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
    return y;
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int d = 0; d < n; d++)
        sum += a[d] * b[d];
    return sum;
}

static double hidden_definition(const example *e, const double *q, const double *k, bool relu)
{
    double sum = relu ? e->param[4][e->head] : 0;
    for (int a = 0; a < e->width; a++) {
        const int64_t row = (int64_t)e->head * e->width + a;
        const double x = dot(e->param[0] + row * e->dim, q, e->dim) +
                         dot(e->param[1] + row * e->dim, k, e->dim) + e->param[2][row];
        sum += e->param[3][row] * (relu ? (x < 0 ? 0 : x) : tanh(x));
    }
    return sum;
}

/* x with mean 0 and variance 1, times the same of y. */
static double normed_product(const double *x, const double *y, int n, double eps)
{
    double mean[2] = {0}, square[2] = {0}, both = 0;
    for (int d = 0; d < n; d++) {
        mean[0] += x[d] / n;
        mean[1] += y[d] / n;
    }
    for (int d = 0; d < n; d++) {
        square[0] += (x[d] - mean[0]) * (x[d] - mean[0]) / n;
        square[1] += (y[d] - mean[1]) * (y[d] - mean[1]) / n;
        both += (x[d] - mean[0]) * (y[d] - mean[1]);
    }
    return both / sqrt((square[0] + eps) * (square[1] + eps));
}

static double definition(const example *e, int i, int j)
{
    const char *name = e->form->form->name;
    const double *q = e->q + i * e->dim, *k = e->k + j * e->dim;
    if (!strcmp(name, "dot"))
        return e->arg[0] * dot(q, k, e->dim);
    if (!strcmp(name, "cosine"))
        return e->arg[0] * dot(q, k, e->dim) /
               (fmax(sqrt(dot(q, q, e->dim)), e->arg[1]) * fmax(sqrt(dot(k, k, e->dim)), e->arg[1]));
    if (!strcmp(name, "layernorm"))
        return e->arg[0] * normed_product(q, k, e->dim, e->arg[1]);
    if (!strcmp(name, "bilinear")) {
        double sum = 0;
        for (int a = 0; a < e->dim; a++)
            sum += q[a] * dot(e->param[0] + ((int64_t)e->head * e->dim + a) * e->dim, k, e->dim);
        return e->arg[0] * sum;
    }
    if (!strcmp(name, "additive") || !strcmp(name, "mlp"))
        return hidden_definition(e, q, k, !strcmp(name, "mlp"));
    double square = 0, absolute = 0;
    for (int d = 0; d < e->dim; d++) {
        square += (q[d] - k[d]) * (q[d] - k[d]);
        absolute += fabs(q[d] - k[d]);
    }
    return !strcmp(name, "gaussian") ? -square / (2 * e->arg[0] * e->arg[0]) : -absolute / e->arg[0];
}

static example make_example(const heed_form_state *form, int head, int rows, int cols, const float *q,
                            const float *k)
{
    example e = {.form = form, .head = head, .rows = rows, .cols = cols, .dim = (int)form->sizes.dim};
    e.width = form->form->prepared_dim ? form->form->prepared_dim(form, e.dim) : e.dim;
    e.q = doubles(q, rows * e.dim);
    e.k = doubles(k, cols * e.dim);
    for (int p = 0; form->form->params && form->form->params[p].name; p++)
        e.param[p] = doubles(form->param[p], param_floats(form, p));
    for (int i = 0; i < HEED_MAX_ARGS; i++)
        e.arg[i] = form->arg[i].number;
    return e;
}

static void free_example(example *e)
{
    free(e->q);
    free(e->k);
    for (int p = 0; p < HEED_MAX_PARAMS; p++)
        free(e->param[p]);
}

/* What a kernel holds for a tile; rows are prepared with strides of their own, keys transposed. */
typedef struct bench {
    heed_rows query_rows, key_rows;
    heed_tile tile;
    float *query, *key_prepared, *key;
} bench;

static void prepare(const heed_form_state *form, void (*hook)(const heed_form_state *, const heed_rows *),
                    heed_rows *rows)
{
    if (hook)
        hook(form, rows);
    else
        for (int i = 0; i < rows->count; i++)
            memcpy(rows->out + i * rows->out_stride, rows->in + i * rows->in_stride,
                   (size_t)rows->dim * sizeof(float));
}

/* Scores as a kernel makes them. */
static bench run_scores(const example *e, const float *q, const float *k)
{
    const heed_form_state *form = e->form;
    bench b = {0};
    const int stride = e->cols + 16, row_stride = e->width + 3;
    b.query = floats(e->rows * row_stride);
    b.key_prepared = floats(e->cols * row_stride);
    b.key = floats((int64_t)e->width * stride);
    b.query_rows = (heed_rows){.count = e->rows,
                               .dim = e->dim,
                               .head = e->head,
                               .in = q,
                               .in_stride = e->dim,
                               .out = b.query,
                               .out_stride = row_stride};
    b.key_rows = b.query_rows;
    b.key_rows.count = e->cols;
    b.key_rows.in = k;
    b.key_rows.out = b.key_prepared;
    prepare(form, form->form->prepare_query, &b.query_rows);
    prepare(form, form->form->prepare_key, &b.key_rows);
    for (int j = 0; j < e->cols; j++)
        for (int a = 0; a < e->width; a++)
            b.key[a * stride + j] = b.key_prepared[j * row_stride + a];
    b.tile = (heed_tile){.rows = e->rows,
                         .cols = e->cols,
                         .head = e->head,
                         .score = floats(e->rows * stride),
                         .stride = stride,
                         .query = b.query,
                         .query_stride = row_stride,
                         .key = b.key,
                         .key_stride = stride,
                         .dim = e->width};
    if (form->form->pair) {
        form->form->pair(form, &b.tile);
    } else {
        const double scale = form->form->scale ? form->form->scale(form) : 1.0;
        for (int i = 0; i < e->rows; i++)
            for (int j = 0; j < e->cols; j++) {
                double sum = 0;
                for (int a = 0; a < e->width; a++)
                    sum += (double)b.query[i * row_stride + a] * b.key[a * stride + j];
                b.tile.score[i * stride + j] = (float)(scale * sum);
            }
    }
    return b;
}

/* Gradients as a kernel makes them; dq and dk are added to. */
static void run_gradients(const example *e, bench *b, const float *dscore, float *dq, float *dk)
{
    const heed_form_state *form = e->form;
    const int64_t stride = b->tile.stride, row_stride = b->tile.query_stride;
    float *dquery = floats(e->rows * row_stride), *dkey = floats(e->width * stride);
    float *dkey_rows = floats(e->cols * row_stride);
    b->tile.dscore = copy_of(dscore, e->rows * stride);
    b->tile.dquery = dquery;
    b->tile.dkey = dkey;
    if (form->form->pair_backward) {
        form->form->pair_backward(form, &b->tile);
    } else {
        const float scale = form->form->scale ? (float)form->form->scale(form) : 1.0f;
        for (int i = 0; i < e->rows; i++)
            for (int j = 0; j < e->cols; j++)
                for (int a = 0; a < e->width && dscore[i * stride + j] != 0.0f; a++) {
                    dquery[i * row_stride + a] += scale * dscore[i * stride + j] * b->key[a * stride + j];
                    dkey[a * stride + j] += scale * dscore[i * stride + j] * b->query[i * row_stride + a];
                }
    }
    for (int j = 0; j < e->cols; j++)
        for (int a = 0; a < e->width; a++)
            dkey_rows[j * row_stride + a] = dkey[a * stride + j];
    heed_rows query = b->query_rows, key = b->key_rows;
    query.out = dquery, query.din = dq, query.din_stride = e->dim;
    key.out = dkey_rows, key.din = dk, key.din_stride = e->dim;
    if (form->form->prepare_query_backward)
        form->form->prepare_query_backward(form, &query);
    for (int i = 0; i < e->rows && !form->form->prepare_query; i++)
        for (int d = 0; d < e->dim; d++)
            dq[i * e->dim + d] += dquery[i * row_stride + d];
    if (form->form->prepare_key_backward)
        form->form->prepare_key_backward(form, &key);
    for (int j = 0; j < e->cols && !form->form->prepare_key; j++)
        for (int d = 0; d < e->dim; d++)
            dk[j * e->dim + d] += dkey_rows[j * row_stride + d];
}

static double tolerance(const example *e, double size)
{
    return 4e-6 * (1 + size) * (1 + sqrt(e->dim) / 4);
}

static void check_scores(heed_isa isa)
{
    static const int dims[] = {1, 2, 7, 8, 19, 64}, sizes[][2] = {{1, 16}, {2, 48}, {5, 128}, {12, 128}};
    for (int n = 0; n < NAMES; n++)
        for (int t = 0; t < 6 * 4; t++) {
            const int dim = dims[t / 4], rows = sizes[t % 4][0], cols = sizes[t % 4][1];
            heed_form_state form =
                make_form(isa, HEED_SCORE, names[n], (heed_sizes){.heads = HEADS, .dim = dim}, NULL, 0);
            shake(&form);
            const float *q = random_floats(rows * dim, 1), *k = random_floats(cols * dim, 1);
            for (int head = 0; head < HEADS; head++) {
                example e = make_example(&form, head, rows, cols, q, k);
                const bench b = run_scores(&e, q, k);
                for (int i = 0; i < rows; i++)
                    for (int j = 0; j < cols; j++) {
                        const double want = definition(&e, i, j);
                        expect_near(b.tile.score[i * b.tile.stride + j], want, tolerance(&e, fabs(want)),
                                    names[n], i, j);
                    }
                free_example(&e);
            }
            release_all();
        }
}

static void scores_equal_their_definitions(void **state)
{
    (void)state;
    in_each_build(check_scores);
}

static double loss(const example *e, const float *dscore, int64_t stride)
{
    double sum = 0;
    for (int i = 0; i < e->rows; i++)
        for (int j = 0; j < e->cols; j++)
            if (dscore[i * stride + j] != 0.0f)
                sum += dscore[i * stride + j] * definition(e, i, j);
    return sum;
}

static double slope(const example *e, double *x, const float *dscore, int64_t stride)
{
    const double step = 1e-6, at = *x;
    *x = at + step;
    const double above = loss(e, dscore, stride);
    *x = at - step;
    const double below = loss(e, dscore, stride);
    *x = at;
    return (above - below) / (2 * step);
}

/* Gradients are added to what is there: 100 before, and 100 more than the slope after. */
static void check_gradients(heed_isa isa)
{
    static const int dims[] = {1, 5, 8, 18};
    for (int n = 0; n < NAMES; n++)
        for (int t = 0; t < 4; t++) {
            const int dim = dims[t], rows = 3, cols = 16;
            heed_form_state form =
                make_form(isa, HEED_SCORE, names[n], (heed_sizes){.heads = HEADS, .dim = dim}, NULL, 0);
            shake(&form);
            const float *q = random_floats(rows * dim, 1), *k = random_floats(cols * dim, 1);
            example e = make_example(&form, 1, rows, cols, q, k);
            bench b = run_scores(&e, q, k);
            float *dscore = random_floats(rows * b.tile.stride, 1);
            for (int j = 11; j < 16; j++)
                for (int i = 0; i < rows; i++)
                    dscore[i * b.tile.stride + j] = 0.0f; /* closed */
            float *dq = floats(rows * dim), *dk = floats(cols * dim);
            for (int i = 0; i < rows * dim; i++)
                dq[i] = 100.0f;
            run_gradients(&e, &b, dscore, dq, dk);
            for (int i = 0; i < rows * dim; i++)
                expect_near(dq[i], 100 + slope(&e, e.q + i, dscore, b.tile.stride), 1e-4, names[n], i, 0);
            for (int i = 0; i < cols * dim; i++)
                expect_near(dk[i], slope(&e, e.k + i, dscore, b.tile.stride), 1e-4, names[n], i, 1);
            for (int p = 0; form.form->params && form.form->params[p].name; p++)
                for (int64_t i = 0; i < param_floats(&form, p); i++)
                    expect_near(form.grad[p][i], slope(&e, e.param[p] + i, dscore, b.tile.stride), 1e-4,
                                form.form->params[p].name, i, p);
            free_example(&e);
            release_all();
        }
}

static void gradients_equal_differences(void **state)
{
    (void)state;
    in_each_build(check_gradients);
}

/* A closed pair has gradient 0 and may hold NaN; so may a row that nothing reads. */
static void check_closed(heed_isa isa)
{
    for (int n = 0; n < NAMES; n++) {
        const int dim = 10, rows = 3, cols = 16;
        heed_form_state form =
            make_form(isa, HEED_SCORE, names[n], (heed_sizes){.heads = HEADS, .dim = dim}, NULL, 0);
        shake(&form);
        float *q = random_floats(rows * dim, 1), *k = random_floats(cols * dim, 1);
        float *dscore = floats(rows * 32);
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 8; j++)
                dscore[i * 32 + j] = (float)random_normal(&draw);
        float *dq[2], *dk[2];
        for (int spoilt = 0; spoilt < 2; spoilt++) {
            for (int d = 0; spoilt && d < dim; d++)
                q[2 * dim + d] = k[9 * dim + d] = NAN;
            example e = make_example(&form, 2, rows, cols, q, k);
            bench b = run_scores(&e, q, k);
            assert_int_equal(b.tile.stride, 32);
            for (int p = 0; form.form->params && form.form->params[p].name; p++)
                form.grad[p] = floats(param_floats(&form, p));
            dq[spoilt] = floats(rows * dim), dk[spoilt] = floats(cols * dim);
            run_gradients(&e, &b, dscore, dq[spoilt], dk[spoilt]);
            for (int i = 0; i < rows; i++)
                for (int j = 0; spoilt && j < cols; j++)
                    assert_int_equal(isnan(b.tile.score[i * 32 + j]) != 0, i == 2 || j == 9);
            for (int p = 0; form.form->params && form.form->params[p].name; p++)
                for (int64_t i = 0; i < param_floats(&form, p); i++)
                    assert_true(isfinite(form.grad[p][i]));
            free_example(&e);
        }
        assert_memory_equal(dq[0], dq[1], sizeof(float) * (size_t)(rows * dim));
        assert_memory_equal(dk[0], dk[1], sizeof(float) * (size_t)(cols * dim));
        release_all();
    }
}

/* Below eps a length is a constant, so that the gradient is that of a product. */
static void check_short_rows(heed_isa isa)
{
    const int dim = 6, rows = 2, cols = 16;
    heed_form_state form =
        make_form(isa, HEED_SCORE, "cosine", (heed_sizes){.heads = 1, .dim = dim}, "eps", 4);
    const float *q = random_floats(rows * dim, 0.5), *k = random_floats(cols * dim, 3);
    example e = make_example(&form, 0, rows, cols, q, k);
    bench b = run_scores(&e, q, k);
    const float *dscore = random_floats(rows * b.tile.stride, 1);
    float *dq = floats(rows * dim), *dk = floats(cols * dim);
    run_gradients(&e, &b, dscore, dq, dk);
    for (int i = 0; i < rows * dim; i++)
        expect_near(dq[i], slope(&e, e.q + i, dscore, b.tile.stride), 1e-4, "dq", i, 0);
    for (int i = 0; i < cols * dim; i++)
        expect_near(dk[i], slope(&e, e.k + i, dscore, b.tile.stride), 1e-4, "dk", i, 0);
    free_example(&e);
    release_all();
}

static void cosine_of_rows_shorter_than_eps_is_a_product(void **state)
{
    (void)state;
    in_each_build(check_short_rows);
}

static void nothing_is_read_through_a_closed_pair(void **state)
{
    (void)state;
    in_each_build(check_closed);
}

static float score_of(heed_isa isa, const char *name, const char *given, double value, const float *q,
                      const float *k, int dim)
{
    heed_form_state form =
        make_form(isa, HEED_SCORE, name, (heed_sizes){.heads = 1, .dim = dim}, given, value);
    float *keys = floats(16 * dim);
    memcpy(keys, k, (size_t)dim * sizeof *keys);
    example e = make_example(&form, 0, 1, 16, q, keys);
    const bench b = run_scores(&e, q, keys);
    free_example(&e);
    return b.tile.score[0];
}

/* With initial values: bilinear is dot; additive sums tanh of sums over sqrt(A). */
static void check_defaults(heed_isa isa)
{
    const float q[4] = {0.5f, -1.0f, 2.0f, 0.25f}, k[4] = {1.0f, 0.5f, 1.0f, -2.0f};
    expect_near(score_of(isa, "dot", NULL, 0, q, k, 4), 1.5 / 2, 1e-6, "dot", 0, 0);
    expect_near(score_of(isa, "dot", "scale", -3, q, k, 4), -4.5, 1e-6, "dot(-3)", 0, 0);
    expect_near(score_of(isa, "bilinear", NULL, 0, q, k, 4), 1.5 / 2, 1e-6, "bilinear", 0, 0);
    expect_near(score_of(isa, "cosine", NULL, 0, q, k, 4), 15 / (sqrt(5.3125) * 2.5), 1e-5, "cosine", 0, 0);
    expect_near(score_of(isa, "gaussian", NULL, 0, q, k, 4), -8.5625 / 4, 1e-6, "gaussian", 0, 0);
    expect_near(score_of(isa, "gaussian", "sigma", 0.5, q, k, 4), -8.5625 * 2, 1e-5, "gaussian(0.5)", 0, 0);
    expect_near(score_of(isa, "laplace", NULL, 0, q, k, 4), -5.25 / 2, 1e-6, "laplace", 0, 0);
    expect_near(score_of(isa, "additive", NULL, 0, q, k, 4),
                (tanh(1.5) - tanh(0.5) + tanh(3) - tanh(1.75)) / 2, 1e-6, "additive", 0, 0);
    expect_near(score_of(isa, "additive", "dim", 6, q, k, 4),
                (tanh(1.5) - tanh(0.5) + tanh(3) - tanh(1.75)) / sqrt(6), 1e-6, "additive(dim=6)", 0, 0);
    expect_near(score_of(isa, "additive", "dim", 1, q, k, 4), tanh(1.5), 1e-6, "additive(dim=1)", 0, 0);
    expect_near(score_of(isa, "mlp", NULL, 0, q, k, 4), (1.5 + 3) / 2, 1e-6, "mlp", 0, 0);
    release_all();
}

static void defaults_are_as_documented(void **state)
{
    (void)state;
    in_each_build(check_defaults);
}

/* Rows far from 0 that nearly agree; rows whose squares overflow or vanish. */
static void check_extremes(heed_isa isa)
{
    const float far[2] = {4096.0f, -4096.0f}, near[2] = {4096.0f + 1.0f / 256, -4096.0f};
    expect_near(score_of(isa, "gaussian", "sigma", 1.0 / 256, far, near, 2), -0.5, 0, "gaussian", 0, 0);
    expect_near(score_of(isa, "laplace", "sigma", 1.0 / 256, far, near, 2), -1, 0, "laplace", 0, 0);
    const float large[2] = {3e30f, 4e30f}, small[2] = {3e-30f, 4e-30f}, none[2] = {0, 0};
    expect_near(score_of(isa, "cosine", NULL, 0, large, large, 2), 10, 1e-5, "cosine", 0, 0);
    expect_near(score_of(isa, "cosine", "eps", 1e-35, small, large, 2), 10, 1e-5, "cosine", 0, 1);
    expect_near(score_of(isa, "cosine", NULL, 0, none, large, 2), 0, 0, "cosine", 0, 2);
    expect_near(score_of(isa, "gaussian", "sigma", 1e-29, far, far, 2), 0, 0, "gaussian", 0, 1);
    expect_near(score_of(isa, "laplace", "sigma", 1e-40, far, far, 2), 0, 0, "laplace", 0, 1);
    release_all();
}

static void extremes_are_exact(void **state)
{
    (void)state;
    in_each_build(check_extremes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_equal_their_definitions),
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(cosine_of_rows_shorter_than_eps_is_a_product),
        cmocka_unit_test(nothing_is_read_through_a_closed_pair),
        cmocka_unit_test(defaults_are_as_documented),
        cmocka_unit_test(extremes_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
