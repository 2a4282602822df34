/* The `normalise` forms by their hooks, in every build that this processor runs, against definitions in
 * double precision: rows in several tiles, closed and NaN and infinite scores, empty rows; gradients against
 * central differences. */
#include "support/hooks.h"

enum { KEYS = 208, ROWS = 6, STRIDE = KEYS + 16 };

/* A form, its argument, and how a row's weights follow from its scores. */
typedef struct variant {
    const char *name, *arg;
    double value; /* of the argument; of sinks for sink */
} variant;

static const variant online[] = {
    {"softmax", NULL, 1},
    {"softmax", "temperature", 0.05},
    {"softmax", "temperature", 7},
    {"softmax1", NULL, 0},
    {"sink", NULL, 0},
    {"sink", NULL, -INFINITY},
    {"sink", NULL, 4},
    {"sink", NULL, -1e4},
    {"sink", NULL, 1e4},
    {"sink", NULL, 90},
    {"sigmoid", NULL, NAN},
    {"sigmoid", "bias", 0.5},
    {"sigmoid", "bias", -9},
    {"relu", NULL, 1},
    {"relu", "power", 2},
    {"relu", "power", 1.5},
    {"relu", "power", 3},
};
enum { ONLINE = sizeof online / sizeof *online };

static heed_form_state make_variant(heed_isa isa, const variant *v)
{
    heed_form_state form =
        make_form(isa, HEED_NORMALISE, v->name, (heed_sizes){.heads = 2, .keys = KEYS}, v->arg, v->value);
    if (!strcmp(v->name, "sink")) {
        float *sink = floats(2);
        sink[1] = (float)v->value;
        form.param[0] = sink;
    }
    return form;
}

static bool is_exponential(const variant *v)
{
    return strcmp(v->name, "sigmoid") && strcmp(v->name, "relu");
}

static double temperature(const variant *v)
{
    return v->arg && !strcmp(v->arg, "temperature") ? v->value : 1;
}

/* Logarithm of the term of the denominator that belongs to no key. */
static double extra(const variant *v)
{
    return !strcmp(v->name, "softmax1") ? 0 : !strcmp(v->name, "sink") ? v->value : -INFINITY;
}

typedef struct answer {
    double weight[KEYS], lse, entropy_moment, sink; /* sink: what the sink weighs */
} answer;

/* `existing` keys for sigmoid's bias; the keys of score -inf are closed. */
static answer define(const variant *v, const double *s, double existing)
{
    answer a = {0};
    double top = -INFINITY, sum = 0, open = 0;
    bool lost = false;
    for (int j = 0; j < KEYS; j++) {
        lost |= isnan(s[j]) || s[j] == INFINITY;
        open += s[j] != -INFINITY;
        top = fmax(top, s[j] / temperature(v));
    }
    for (int j = 0; j < KEYS; j++)
        if (s[j] != -INFINITY) {
            const double below = s[j] / temperature(v) - top;
            sum += exp(below);
            a.entropy_moment += exp(below) * below;
        }
    a.lse = lost ? NAN : open == 0 ? -INFINITY : top + log(sum);
    const double most = fmax(top, extra(v));
    const double norm = most + log((open > 0 ? sum * exp(top - most) : 0) + exp(extra(v) - most));
    a.sink = open > 0 && extra(v) != -INFINITY ? exp(extra(v) - norm) : 0;
    for (int j = 0; j < KEYS; j++) {
        if (s[j] == -INFINITY)
            continue;
        if (!strcmp(v->name, "sigmoid"))
            a.weight[j] = 1 / (1 + exp(-(s[j] + (isnan(v->value) ? -log(existing) : v->value))));
        else if (!strcmp(v->name, "relu"))
            a.weight[j] = pow(fmax(0, s[j]), v->value) / open;
        else
            a.weight[j] = exp(s[j] / temperature(v) - norm);
        if (lost)
            a.weight[j] = NAN;
    }
    return a;
}

/* Rows of scores: what is closed, and how large the others are, differs from row to row. */
enum { ORDINARY, HALF_CLOSED, LATE, ALL_CLOSED, HUGE_SCORES, ONE_OPEN, RISING, KINDS };

static void fill_row(float *s, int kind)
{
    for (int j = 0; j < KEYS; j++) {
        s[j] = (float)(2 * random_normal(&draw));
        if ((kind == HALF_CLOSED && j % 3) || (kind == LATE && j < 150) || kind == ALL_CLOSED ||
            (kind == ONE_OPEN && j != 77))
            s[j] = -INFINITY;
        if (kind == HUGE_SCORES)
            s[j] = j % 5 == 0 ? (float)(1e4 + 2 * (int)(random_uniform(&draw) * 4)) : -1e4f;
        if (kind == RISING)
            s[j] += 0.3f * (float)j;
    }
}

/* Runs a block of rows through online and finish in tiles of the given widths; leaves final weights in
 * `score`. */
typedef struct sums {
    float max[ROWS], sum[ROWS], count[ROWS], rescale[ROWS], moment[ROWS];
    heed_row_end end[ROWS];
} sums;

static heed_tile tile_at(float *score, int rows, int first, int cols, const heed_inputs *inputs)
{
    return (heed_tile){.rows = rows,
                       .cols = cols,
                       .batch = 1,
                       .head = 1,
                       .key0 = first,
                       .score = score + first,
                       .stride = STRIDE,
                       .inputs = inputs};
}

static void run_online(const heed_form_state *form, float *score, int rows, const int *widths,
                       const heed_inputs *inputs, bool moments, sums *out)
{
    heed_row_sums s = {.max = out->max,
                       .sum = out->sum,
                       .count = out->count,
                       .rescale = out->rescale,
                       .moment = moments ? out->moment : NULL};
    for (int i = 0; i < rows; i++) {
        out->max[i] = -INFINITY;
        out->sum[i] = out->count[i] = out->moment[i] = 0;
    }
    int first = 0;
    for (int t = 0; first < KEYS; t++) {
        heed_tile tile = tile_at(score, rows, first, widths[t], inputs);
        for (int i = 0; i < rows && form->form->flags & HEED_COUNTS_OPEN; i++)
            for (int j = 0; j < widths[t]; j++)
                out->count[i] += tile.score[i * STRIDE + j] != -INFINITY;
        form->form->online(form, &tile, &s);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < first && out->rescale[i] != 1.0f; j++)
                score[i * STRIDE + j] *= out->rescale[i];
        first += widths[t];
    }
    form->form->finish(form, 1, rows, &s, out->end);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < KEYS; j++)
            score[i * STRIDE + j] *= out->end[i].scale;
}

/* A float logit of size x is known to x 2^-24, and so is its distance from the largest or from the norm. */
static double allowed(const variant *v, const double *s, int j, double weight)
{
    double largest = isinf(extra(v)) ? 0 : fabs(extra(v));
    for (int i = 0; i < KEYS; i++)
        if (isfinite(s[i]))
            largest = fmax(largest, fabs(s[i]) / temperature(v));
    return 1e-37 + weight * (s[j] == -INFINITY ? 0 : is_exponential(v) ? 2e-6 + 2.4e-7 * largest : 4e-6);
}

static const int tilings[][14] = {
    {128, 80},
    {16, 16, 32, 128, 16},
    {KEYS},
    {48, 48, 48, 48, 16},
    {16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16},
};
enum { TILINGS = sizeof tilings / sizeof *tilings };

static void check_online(heed_isa isa)
{
    const int32_t counts[2] = {1, 190};
    const heed_inputs inputs = {.key_count = counts, .keys = KEYS};
    for (int n = 0; n < ONLINE; n++)
        for (int t = 0; t < TILINGS; t++) {
            const variant *v = &online[n];
            const heed_form_state form = make_variant(isa, v);
            const int rows = 1 + t % ROWS;
            float *score = floats(rows * STRIDE);
            double s[ROWS][KEYS];
            for (int i = 0; i < rows; i++) {
                fill_row(score + i * STRIDE, (i + n + t) % KINDS);
                for (int j = 0; j < KEYS; j++)
                    s[i][j] = score[i * STRIDE + j];
            }
            float *final = copy_of(score, rows * STRIDE);
            sums got;
            run_online(&form, score, rows, tilings[t], &inputs, t % 2, &got);
            float norm[ROWS];
            for (int i = 0; i < rows; i++)
                norm[i] = got.end[i].norm;
            heed_tile whole = tile_at(final, rows, 0, KEYS, &inputs);
            form.form->weights(&form, &whole, norm);
            for (int i = 0; i < rows; i++) {
                const answer a = define(v, s[i], 190);
                if (a.lse == -INFINITY && is_exponential(v))
                    assert_true(norm[i] == INFINITY && got.end[i].scale == 0.0f);
                const double lse = got.sum[i] == 0 ? -INFINITY : got.max[i] + log(got.sum[i]);
                expect_near(lse, a.lse, 2e-6 * (1 + fabs(isinf(a.lse) ? 0 : a.lse)), "lse", n, i);
                if (t % 2)
                    expect_near(got.moment[i], a.entropy_moment,
                                (1e-5 + 2e-7 * fabs(isinf(a.lse) ? 0 : a.lse)) * (1 - a.entropy_moment),
                                "moment", n, i);
                for (int j = 0; j < KEYS; j++) {
                    expect_near(score[i * STRIDE + j], a.weight[j], allowed(v, s[i], j, a.weight[j]), v->name,
                                n, j);
                    /* the norm is one float as large as the logits */
                    expect_near(final[i * STRIDE + j], a.weight[j], 3 * allowed(v, s[i], j, a.weight[j]),
                                "weights", n, j);
                }
                assert_true(score[i * STRIDE + KEYS] == 0.0f);
            }
            release_all();
        }
}

static void weights_by_tiles_equal_their_definitions(void **state)
{
    (void)state;
    in_each_build(check_online);
}

/* One NaN or +inf among open scores loses the row, wherever it stands; closed pairs stay at weight 0. */
static void check_lost(heed_isa isa)
{
    const int32_t counts[2] = {KEYS, KEYS};
    const heed_inputs inputs = {.key_count = counts, .keys = KEYS};
    static const int places[] = {0, 15, 16, 100, 207};
    for (int n = 0; n < ONLINE; n++)
        for (int place = 0; place < 5; place++)
            for (int kind = 0; kind < 3; kind++) {
                const heed_form_state form = make_variant(isa, &online[n]);
                float *score = floats(2 * STRIDE);
                fill_row(score, kind == 2 ? ALL_CLOSED : HALF_CLOSED);
                fill_row(score + STRIDE, ORDINARY);
                score[places[place]] = kind == 1 ? INFINITY : NAN;
                float *final = copy_of(score, 2 * STRIDE), *logit = copy_of(score, 2 * STRIDE);
                sums got;
                run_online(&form, score, 2, tilings[place], &inputs, place % 2, &got);
                assert_true(isnan(got.sum[0]));
                assert_true(!isnan(got.sum[1]));
                assert_true(isnan(got.end[0].scale) && isnan(got.end[0].norm));
                const float norm[2] = {got.end[0].norm, got.end[1].norm};
                heed_tile whole = tile_at(final, 2, 0, KEYS, &inputs);
                form.form->weights(&form, &whole, norm);
                for (int j = 0; j < KEYS; j++) {
                    expect_near(final[j], logit[j] == -INFINITY ? 0 : NAN, 0, online[n].name, n, j);
                    assert_true(isfinite(final[STRIDE + j]));
                }
                release_all();
            }
}

static void a_lost_score_loses_its_row(void **state)
{
    (void)state;
    in_each_build(check_lost);
}

/* sum_j dw_j w_j of a row, as a function of its scores */
static double value_of(const variant *v, const double *s, const float *dw, double existing)
{
    const answer a = define(v, s, existing);
    double sum = 0;
    for (int j = 0; j < KEYS; j++)
        sum += a.weight[j] == 0 ? 0 : dw[j] * a.weight[j];
    return sum;
}

static void check_online_gradients(heed_isa isa)
{
    const int32_t counts[2] = {0, 100};
    const heed_inputs inputs = {.key_count = counts, .keys = KEYS};
    static const int kinds[] = {ORDINARY, HALF_CLOSED, ALL_CLOSED, ONE_OPEN};
    for (int n = 0; n < ONLINE; n++) {
        variant v = online[n];
        const heed_form_state form = make_variant(isa, &v);
        float *score = floats(4 * STRIDE), *dscore = random_floats(4 * STRIDE, 1);
        double s[4][KEYS];
        float delta[4], norm[4];
        for (int i = 0; i < 4; i++) {
            fill_row(score + i * STRIDE, kinds[i]);
            for (int j = 0; j < KEYS; j++)
                s[i][j] = score[i * STRIDE + j];
            delta[i] = (float)value_of(&v, s[i], dscore + i * STRIDE, 100);
        }
        float *logit = copy_of(score, 4 * STRIDE), *dw = copy_of(dscore, 4 * STRIDE);
        sums got;
        run_online(&form, score, 4, tilings[0], &inputs, false, &got);
        for (int i = 0; i < 4; i++)
            norm[i] = got.end[i].norm;
        heed_tile tile = tile_at(logit, 4, 0, KEYS, &inputs);
        form.form->weights(&form, &tile, norm);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < KEYS; j++)
                if (s[i][j] == -INFINITY)
                    dscore[i * STRIDE + j] = NAN; /* what a closed pair's value gave */
        tile.dscore = dscore;
        form.form->weights_backward(&form, &tile, norm, delta);
        double dsink = 0;
        for (int i = 0; i < 4; i++) {
            dsink -= define(&v, s[i], 100).sink * delta[i];
            for (int j = 0; j < KEYS; j++) {
                double want = 0;
                if (s[i][j] != -INFINITY) {
                    const double at = s[i][j], step = 1e-5;
                    s[i][j] = at + step;
                    const double above = value_of(&v, s[i], dw + i * STRIDE, 100);
                    s[i][j] = at - step;
                    want = (above - value_of(&v, s[i], dw + i * STRIDE, 100)) / (2 * step);
                    s[i][j] = at;
                }
                expect_near(dscore[i * STRIDE + j], want, 2e-5 * (1 + fabs(want)), v.name, n, i * 1000 + j);
            }
        }
        if (!strcmp(v.name, "sink")) {
            form.grad[0][1] = 10;
            form.form->norm_backward(&form, 1, 4, norm, delta);
            expect_near(form.grad[0][1], 10 + dsink, 1e-5, "dsink", n, 1);
            expect_near(form.grad[0][0], 0, 0, "dsink", n, 0);
        }
        release_all();
    }
}

static void online_gradients_equal_differences(void **state)
{
    (void)state;
    in_each_build(check_online_gradients);
}

/* The sink's gradient by differences, at a sink that matters. */
static void the_sinks_gradient_is_minus_its_weight_times_the_output(void **state)
{
    (void)state;
    double s[KEYS];
    float dw[KEYS];
    draw.state = 5;
    for (int j = 0; j < KEYS; j++) {
        s[j] = random_normal(&draw);
        dw[j] = (float)random_normal(&draw);
    }
    const variant at = {"sink", NULL, 4}, above = {"sink", NULL, 4 + 1e-5}, below = {"sink", NULL, 4 - 1e-5};
    const double want = (value_of(&above, s, dw, 1) - value_of(&below, s, dw, 1)) / 2e-5;
    expect_near(-define(&at, s, 1).sink * value_of(&at, s, dw, 1), want, 1e-8, "dsink", 0, 0);
}

static void sink_of_minus_infinity_is_softmax(void **state)
{
    (void)state;
    const heed_form_state soft =
        make_form(HEED_ISA_PORTABLE, HEED_NORMALISE, "softmax", (heed_sizes){.heads = 2}, NULL, 0);
    const variant v = {"sink", NULL, -INFINITY};
    const heed_form_state sink = make_variant(HEED_ISA_PORTABLE, &v);
    float *a = floats(STRIDE);
    fill_row(a, HALF_CLOSED);
    float *b = copy_of(a, STRIDE);
    sums x, y;
    run_online(&soft, a, 1, tilings[1], NULL, false, &x);
    run_online(&sink, b, 1, tilings[1], NULL, false, &y);
    assert_memory_equal(a, b, sizeof(float) * KEYS);
    assert_true(x.end[0].norm == y.end[0].norm);
    release_all();
}

/* exp as softmax uses it: weights with norm 0 are exp(s). */
static void check_exponential(heed_isa isa)
{
    const heed_form_state form = make_form(isa, HEED_NORMALISE, "softmax", (heed_sizes){.heads = 1}, NULL, 0);
    const float norm[1] = {0};
    float x[16];
    for (double s = 0; s > -86.9; s -= 0.00731 * 16) {
        for (int j = 0; j < 16; j++)
            x[j] = (float)(s - 0.00731 * j);
        float logit[16];
        memcpy(logit, x, sizeof x);
        heed_tile tile = {.rows = 1, .cols = 16, .score = x, .stride = 16};
        form.form->weights(&form, &tile, norm);
        for (int j = 0; j < 16 && logit[j] > -86.9f; j++)
            expect_near(x[j] / exp(logit[j]), 1, 4e-7 - 6e-8 * logit[j], "exp", j, 0);
    }
    const float edges[16] = {0, -88.5f, -90, -104, -1e4f, -3e38f, -INFINITY, NAN, -1e-30f, -0.0f, -87, 1e-6f};
    memcpy(x, edges, sizeof x);
    heed_tile tile = {.rows = 1, .cols = 16, .score = x, .stride = 16};
    form.form->weights(&form, &tile, norm);
    for (int j = 0; j < 12; j++)
        expect_near(x[j], j > 0 && j < 7 ? 0 : exp(edges[j]), 4e-7, "exp", j, 1);
    assert_true(x[0] == 1.0f && x[6] == 0.0f && x[10] < 2e-38f);
    release_all();
}

static void the_exponential_is_exact_to_rounding(void **state)
{
    (void)state;
    in_each_build(check_exponential);
}

/* ---- alpha-entmax, by bisection for tau in double precision ---- */

static double entmax_weight(double s, double alpha, double tau)
{
    const double x = (alpha - 1) * s - tau;
    return x > 0 ? pow(x, 1 / (alpha - 1)) : 0;
}

/* Bounds of the weights: those for tau a little above and a little below the solution. They are one number
 * unless a weight rises so steeply there that double precision does not tell. */
static void define_entmax(const double *s, int n, double alpha, double *least, double *most)
{
    double top = -INFINITY, sum = 0;
    int open = 0;
    for (int j = 0; j < n; j++) {
        top = fmax(top, s[j]);
        open += s[j] != -INFINITY;
    }
    for (int j = 0; j < n; j++)
        sum += open ? exp(s[j] - top) : 1;
    /* scores from the largest down, so that -tau lies between n^(1 - alpha) and 1; its logarithm is halved */
    double low = 0, high = (1 - alpha) * log(n) - 1e-9;
    for (int step = 0; step < 120 && alpha > 1 && open; step++) {
        const double tau = -exp(0.5 * (low + high));
        double total = 0;
        for (int j = 0; j < n; j++)
            total += entmax_weight(s[j] - top, alpha, tau);
        if (total > 1)
            low = log(-tau);
        else
            high = log(-tau);
    }
    for (int j = 0; j < n; j++) {
        least[j] =
            alpha > 1 ? entmax_weight(s[j] - top, alpha, -exp(high) * (1 - 1e-13)) : exp(s[j] - top) / sum;
        most[j] = alpha > 1 ? entmax_weight(s[j] - top, alpha, -exp(low) * (1 + 1e-13)) : least[j];
        if (s[j] == -INFINITY)
            least[j] = most[j] = 0;
    }
}

enum { SPREAD, TIES, FLAT, CLOSED, SINGLE, FALLING, EMPTY, FAR, SHAPES };

static void fill_scores(float *s, int n, int shape)
{
    for (int j = 0; j < n; j++) {
        const double z = random_normal(&draw);
        s[j] = (float)(shape == TIES      ? floor(2 * z)
                       : shape == FLAT    ? 3.25
                       : shape == FALLING ? -pow(0.9, -(j % 60)) * 0.01
                       : shape == FAR     ? 1e4 * z
                                          : z);
        if (shape == EMPTY || (shape == CLOSED && j % 2) || (shape == SINGLE && j != n / 2))
            s[j] = -INFINITY;
    }
}

static heed_form_state make_entmax(heed_isa isa, double alpha)
{
    if (alpha == 2 && random_whole(&draw, 0, 1))
        return make_form(isa, HEED_NORMALISE, "sparsemax", (heed_sizes){.heads = 1}, NULL, 0);
    return make_form(isa, HEED_NORMALISE, "entmax", (heed_sizes){.heads = 1}, "alpha", alpha);
}

static void project(const heed_form_state *form, float *s, int n)
{
    float *work = floats(2 * n), aux[4] = {0};
    heed_row row = {.cols = n, .score = s, .work = work, .aux = aux};
    form->form->whole_row(form, &row);
}

static void check_projection(heed_isa isa)
{
    static const double alphas[] = {1, 1 + 1e-9, 1.0001, 1.01, 1.1, 1.25, 1.5, 1.7, 2, 2.5, 3, 5, 16, 64};
    static const int sizes[] = {1, 2, 5, 16, 67, 300};
    for (size_t a = 0; a < sizeof alphas / sizeof *alphas; a++)
        for (int shape = 0; shape < SHAPES; shape++)
            for (int t = 0; t < 6; t++) {
                const int n = sizes[t];
                const double alpha = alphas[a] < 1.00001 ? 1 : alphas[a];
                const heed_form_state form = make_entmax(isa, alphas[a]);
                float *w = floats(n);
                double s[300], least[300], most[300], sum = 0;
                fill_scores(w, n, shape);
                for (int j = 0; j < n; j++)
                    s[j] = w[j];
                define_entmax(s, n, alpha, least, most);
                project(&form, w, n);
                for (int j = 0; j < n; j++) {
                    expect_near(w[j], fmin(fmax(w[j], least[j]), most[j]), 3e-6, "entmax",
                                (int64_t)(alpha * 1000), j);
                    assert_true(w[j] >= 0 && (s[j] != -INFINITY || w[j] == 0));
                    sum += w[j];
                }
                expect_near(sum, shape == EMPTY ? 0 : 1, 1e-6, "sum", (int64_t)(alpha * 1000), n);
                release_all();
            }
}

static void projections_equal_bisection(void **state)
{
    (void)state;
    in_each_build(check_projection);
}

/* Optimality: on the support (w^(alpha-1) - (alpha-1) s) is one number -tau, off it (alpha-1) s is at most
 * tau. */
static void check_conditions(heed_isa isa)
{
    static const double alphas[] = {1.25, 1.5, 1.75, 2};
    for (int a = 0; a < 4; a++)
        for (int shape = 0; shape < FALLING; shape++) {
            const int n = 5000;
            const double alpha = alphas[a];
            const heed_form_state form = make_entmax(isa, alpha);
            float *w = floats(n);
            fill_scores(w, n, shape);
            const float *s = copy_of(w, n);
            project(&form, w, n);
            double low = INFINITY, high = -INFINITY, outside = -INFINITY, sum = 0;
            for (int j = 0; j < n; j++) {
                sum += w[j];
                const double tau = (alpha - 1) * s[j] - pow(w[j], alpha - 1);
                if (w[j] > 0) {
                    low = fmin(low, tau);
                    high = fmax(high, tau);
                } else {
                    outside = fmax(outside, (alpha - 1) * s[j]);
                }
            }
            expect_near(sum, 1, 1e-6, "sum", a, shape);
            expect_near(high, low, 4e-7, "tau", a, shape);
            assert_true(outside <= high + 4e-7);
            release_all();
        }
}

static void projections_are_optimal(void **state)
{
    (void)state;
    in_each_build(check_conditions);
}

static void check_lost_projection(heed_isa isa)
{
    static const double alphas[] = {1, 1.5, 1.9, 2, 3};
    for (int a = 0; a < 5; a++)
        for (int kind = 0; kind < 2; kind++) {
            const heed_form_state form = make_entmax(isa, alphas[a]);
            float *w = floats(40), *d = floats(40), aux[4] = {0};
            fill_scores(w, 40, CLOSED);
            w[4] = kind ? INFINITY : NAN;
            project(&form, w, 40);
            heed_row row = {.cols = 40,
                            .score = w,
                            .dweight = random_floats(40, 1),
                            .dscore = d,
                            .aux = aux,
                            .work = floats(80)};
            form.form->whole_row_backward(&form, &row);
            for (int j = 0; j < 40; j++) {
                expect_near(w[j], j % 2 ? 0 : NAN, 0, "weight", a, j);
                expect_near(d[j], j % 2 ? 0 : NAN, 0, "gradient", a, j);
            }
            release_all();
        }
}

static void a_lost_score_loses_its_whole_row(void **state)
{
    (void)state;
    in_each_build(check_lost_projection);
}

static void check_projection_gradients(heed_isa isa)
{
    static const double alphas[] = {1, 1.01, 1.25, 1.5, 1.7, 2, 2.5};
    for (int a = 0; a < 7; a++)
        for (int shape = 0; shape < FALLING; shape++) {
            const double alpha = alphas[a], step = 1e-7;
            const int n = 40;
            const heed_form_state form = make_entmax(isa, alpha);
            float *w = floats(n), *dw = random_floats(n, 1), *d = floats(n), aux[4] = {0};
            double s[40], above[40], below[40], here[40], other[40];
            fill_scores(w, n, shape);
            for (int j = 0; j < n; j++)
                s[j] = w[j];
            define_entmax(s, n, alpha, here, other);
            project(&form, w, n);
            float *spoilt = copy_of(dw, n);
            for (int j = 0; j < n; j++)
                spoilt[j] = s[j] == -INFINITY ? NAN : dw[j];
            heed_row row = {
                .cols = n, .score = w, .dweight = spoilt, .dscore = d, .aux = aux, .work = floats(2 * n)};
            form.form->whole_row_backward(&form, &row);
            for (int j = 0; j < n; j++) {
                double want = 0;
                const double at = s[j];
                if (at != -INFINITY) {
                    s[j] = at + step;
                    define_entmax(s, n, alpha, above, other);
                    s[j] = at - step;
                    define_entmax(s, n, alpha, below, other);
                    s[j] = at;
                    bool bend = shape == FLAT && alpha == 2.5;
                    for (int i = 0; i < n; i++) {
                        want += dw[i] * (above[i] - below[i]) / (2 * step);
                        bend |=
                            (above[i] > 0) != (below[i] > 0) || (here[i] > 0 && here[i] < 1e-3 && alpha > 2);
                    }
                    if (bend)
                        continue;
                }
                expect_near(d[j], want, 1e-4 * (1 + fabs(want)), "entmax gradient", (int64_t)(alpha * 100),
                            j);
            }
            release_all();
        }
}

static void projection_gradients_equal_differences(void **state)
{
    (void)state;
    in_each_build(check_projection_gradients);
}

/* ---- soft cap ---- */

static void check_cap(heed_isa isa)
{
    static const double caps[] = {1e-3, 0.5, 1, 30, 50, 1e6};
    for (int c = 0; c < 6; c++) {
        const heed_form_state form =
            make_form(isa, HEED_NORMALISE, "softcap", (heed_sizes){.heads = 1}, "c", caps[c]);
        const double cap = (float)caps[c];
        float x[32], s[32], d[32];
        heed_tile tile = {.rows = 2, .cols = 16, .score = x, .stride = 16, .dscore = d};
        for (double at = 1e-6; at < 40; at *= 1.01) {
            for (int j = 0; j < 32; j++) {
                x[j] = s[j] = (float)(at * cap * (1 + 0.01 * random_uniform(&draw)) * (j % 2 ? -1 : 1));
                d[j] = 3;
            }
            form.form->adjust(&form, &tile);
            for (int j = 0; j < 32; j++) {
                const double want = cap * tanh(s[j] / cap);
                expect_near(x[j], want, fabs(want) * 6e-7, "softcap", c, j);
            }
            form.form->adjust_backward(&form, &tile);
            for (int j = 0; j < 32; j++) {
                const double t = tanh(s[j] / cap);
                expect_near(d[j], 3 * (1 - t * t), 4e-6, "softcap gradient", c, j);
            }
        }
        const float edges[8] = {0, -INFINITY, INFINITY, NAN, 3e38f, -3e38f, -0.0f, 1e-38f};
        for (int j = 0; j < 32; j++) {
            x[j] = edges[j % 8];
            d[j] = j % 8 == 1 ? NAN : 1;
        }
        form.form->adjust(&form, &tile);
        const double want[8] = {0, -INFINITY, NAN, NAN, cap, -cap, 0, cap < 1e-2 ? NAN : 1e-38};
        for (int j = 0; j < 32; j++)
            if (j % 8 != 7)
                expect_near(x[j], want[j % 8], cap * 3e-7, "softcap edge", c, j);
        form.form->adjust_backward(&form, &tile);
        const double slope[8] = {1, 0, NAN, NAN, 0, 0, 1, 1};
        for (int j = 0; j < 32; j++)
            expect_near(d[j], slope[j % 8], 2e-6, "softcap edge gradient", c, j);
    }
    release_all();
}

static void the_soft_cap_is_tanh(void **state)
{
    (void)state;
    in_each_build(check_cap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_by_tiles_equal_their_definitions),
        cmocka_unit_test(a_lost_score_loses_its_row),
        cmocka_unit_test(online_gradients_equal_differences),
        cmocka_unit_test(the_sinks_gradient_is_minus_its_weight_times_the_output),
        cmocka_unit_test(sink_of_minus_infinity_is_softmax),
        cmocka_unit_test(the_exponential_is_exact_to_rounding),
        cmocka_unit_test(projections_equal_bisection),
        cmocka_unit_test(projections_are_optimal),
        cmocka_unit_test(a_lost_score_loses_its_whole_row),
        cmocka_unit_test(projection_gradients_equal_differences),
        cmocka_unit_test(the_soft_cap_is_tanh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
