/* The position forms that read the query or its position, by their hooks, in every build that this processor
 * runs: tiles against formulas in double, gradients against central differences of those. */
#include "support/position.h"

static const heed_sizes sizes = {
    .batch = 1, .heads = 3, .kv_heads = 3, .queries = 300, .keys = 500, .dim = 11, .score_scale = 0.3};

typedef struct corner {
    int rows, cols;
    int32_t query_pos, key_pos, jumps;
} corner;

static const corner corners[] = {
    {8, 128, 127, 0, 0},    {8, 128, 64, 40, 0},    {5, 64, -200, -220, 0},         {1, 16, 4, 0, 0},
    {3, 32, 1000, 0, 0},    {3, 32, 0, 1000, 0},    {11, 272, 1048575, 1048400, 0}, {6, 48, 20, 10, 30},
    {4, 80, -40, -30, 100}, {4, 32, 0, 0, 1 << 29},
};
enum { CORNERS = sizeof corners / sizeof *corners };

static test_tile tile_at(const heed_form_state *state, corner c, int head)
{
    test_tile t = make_tile(state, c.rows, c.cols, c.query_pos, c.key_pos, c.jumps);
    t.tile.head = head;
    return t;
}

static int64_t at(const test_tile *t, int i, int j)
{
    return i * t->tile.stride + j;
}

static double product(const test_tile *t, int i, const float *x)
{
    double sum = 0;
    for (int d = 0; d < t->tile.dim; d++)
        sum += (double)t->query[i * t->tile.query_stride + d] * (double)x[d];
    return sum;
}

/* What one row adds to the scores in sum, each weighted with dscore: the function that gradients are
 * differences of. */
typedef double (*definition)(const heed_form_state *state, const test_tile *t, int i, int j);

static double loss(const heed_form_state *state, const test_tile *t, const float *weight, definition right)
{
    double sum = 0;
    for (int i = 0; i < t->tile.rows; i++)
        for (int j = 0; j < t->tile.cols; j++)
            if (weight[at(t, i, j)] != 0.0f)
                sum += (double)weight[at(t, i, j)] * right(state, t, i, j);
    return sum;
}

/* Slope of the loss by one float; the step is what the float really moved. */
static double slope(const heed_form_state *state, const test_tile *t, const float *weight, definition right,
                    float *x, float step)
{
    const float kept = *x, low = kept - step, high = kept + step;
    *x = high;
    const double rise = loss(state, t, weight, right);
    *x = low;
    const double fall = loss(state, t, weight, right);
    *x = kept;
    return (rise - fall) / ((double)high - (double)low);
}

/* Runs query_aux and adjust, and compares what was added. */
static void adds(const heed_form_state *state, test_tile *t, definition right, double absolute,
                 double relative)
{
    if (state->form->query_aux) {
        const heed_rows rows = query_rows(t, t->aux, NULL);
        state->form->query_aux(state, &rows);
    }
    state->form->adjust(state, &t->tile);
    for (int i = 0; i < t->tile.rows; i++)
        for (int j = 0; j < t->tile.cols; j++)
            near((double)t->tile.score[at(t, i, j)], (double)t->before[at(t, i, j)] + right(state, t, i, j),
                 absolute, relative, "score", i, j);
}

/* Runs adjust_backward and query_aux_backward; dquery and parameter gradients receive. */
static void back(const heed_form_state *state, test_tile *t)
{
    state->form->adjust_backward(state, &t->tile);
    if (state->form->query_aux_backward) {
        const heed_rows rows = query_rows(t, t->daux, t->dquery);
        state->form->query_aux_backward(state, &rows);
    }
}

static float *copy_of(const float *x, int64_t n)
{
    float *copy = floats(n);
    memcpy(copy, x, sizeof *x * (size_t)n);
    return copy;
}

static double shaw(const heed_form_state *state, const test_tile *t, int i, int j)
{
    const int64_t max = (int64_t)state->arg[0].number;
    int64_t offset = (int64_t)t->key_pos[j] - t->query_pos[i];
    offset = offset < -max ? -max : offset > max ? max : offset;
    return state->sizes.score_scale * product(t, i, state->param[0] + (offset + max) * state->sizes.dim);
}

static void shaw_by_formula(heed_isa isa)
{
    for (int max = 1; max <= 40; max += 13)
        for (int c = 0; c < CORNERS; c++) {
            heed_form_state state = form_named(isa, "shaw", sizes);
            give(&state, "max", max);
            make_ready(&state, 0.25f);
            shake_params(&state, 1);
            test_tile t = tile_at(&state, corners[c], 1);
            adds(&state, &t, shaw, 2e-6, 1e-6);
            const float *weight = t.tile.dscore; /* passes through unchanged */
            float *kept = copy_of(weight, (int64_t)t.tile.rows * t.tile.stride);
            t.dquery[0] = 2;
            back(&state, &t);
            assert_memory_equal(kept, weight, sizeof(float) * (size_t)t.tile.rows * (size_t)t.tile.stride);
            for (int i = 0; i < t.tile.rows; i += 3)
                for (int d = 0; d < t.tile.dim; d += 5) {
                    const int64_t x = i * t.tile.query_stride + d;
                    near((double)t.dquery[x] - (x == 0 ? 2 : 0),
                         slope(&state, &t, kept, shaw, t.query + x, 0.25f), 3e-5, 3e-6, "dq", i, d);
                }
            for (int64_t x = 0; x < param_floats(&state, 0); x += 7)
                near((double)state.grad[0][x] - 0.25,
                     slope(&state, &t, kept, shaw, (float *)state.param[0] + x, 0.25f), 3e-5, 3e-6, "dr",
                     (int)x, 0);
            free(kept);
            drop_tile(&t);
            drop(&state);
        }
}

/* The hidden layer of one pair. */
static double fire(const heed_form_state *state, const test_tile *t, int i, int j)
{
    const double c = fabs((double)state->param[0][0]), l = fabs((double)state->param[1][0]);
    const double far = fmax(l, (double)t->query_pos[i]), below = log1p(c * far);
    const double z =
        below == 0 ? 0 : log1p(c * fabs((double)t->query_pos[i] - (double)t->key_pos[j])) / below;
    double sum = (double)state->param[5][t->tile.head];
    for (int a = 0; a < 32; a++) {
        const double hidden = (double)state->param[2][a] * z + (double)state->param[3][a];
        sum += (double)state->param[4][t->tile.head * 32 + a] * fmax(hidden, 0);
    }
    return sum;
}

/* All gradients of fire on one tile; hidden units at their bend would have two slopes, so steps are small. */
static void fire_gradients(const heed_form_state *state, test_tile *t)
{
    const float *weight = t->tile.dscore;
    float *kept = copy_of(weight, (int64_t)t->tile.rows * t->tile.stride);
    double size = 1;
    for (int i = 0; i < t->tile.rows; i++)
        for (int j = 0; j < t->tile.cols; j++)
            size += fabs((double)weight[at(t, i, j)]);
    back(state, t);
    assert_memory_equal(kept, weight, sizeof(float) * (size_t)t->tile.rows * (size_t)t->tile.stride);
    for (int p = 0; p < 6; p++)
        for (int64_t x = 0; x<param_floats(state, p); x += param_floats(state, p)> 8 ? 7 : 1) {
            float *value = (float *)state->param[p] + x;
            const float step = fmaxf(fabsf(*value), 0.01f) * 2e-6f;
            const double right = slope(state, t, kept, fire, value, step);
            near((double)state->grad[p][x] - 0.25, right, 3e-5 * size, 1e-3, state->form->params[p].name,
                 (int)x, p);
        }
    free(kept);
}

static void fire_by_formula(heed_isa isa)
{
    /* L between whole positions, where one slope holds */
    static const float values[][2] = {{0.1f, 512}, {-0.7f, -30.5f}, {0.004f, 3.3f}, {20, -0.5f}};
    for (int v = 0; v < 4; v++)
        for (int c = 0; c < CORNERS; c++) {
            heed_form_state state = form_named(isa, "fire", sizes);
            make_ready(&state, 0.25f);
            shake_params(&state, 0.4f);
            set_param(&state, 0, 0, values[v][0]);
            set_param(&state, 1, 0, values[v][1]);
            test_tile t = tile_at(&state, corners[c], 2);
            /* z grows beyond 1 where keys lie farther off than the query may look */
            adds(&state, &t, fire, 4e-6, 4e-6);
            fire_gradients(&state, &t);
            drop_tile(&t);
            drop(&state);
        }
}

static void fire_starts_as_documented(heed_isa isa)
{
    heed_form_state state = form_named(isa, "fire", sizes);
    make_ready(&state, 0);
    assert_true(state.param[0][0] == 0.1f && state.param[1][0] == 512.0f);
    for (int a = 0; a < 32; a++)
        assert_true(state.param[2][a] == 1.0f && state.param[3][a] == -(float)a / 32 &&
                    state.param[4][a] == 0.0f);
    drop(&state);
}

/* log(1 + |c| max(|L|, p)) = 0: z is 0 and neither c nor L has a gradient. */
static void fire_is_constant_where_it_cannot_look(heed_isa isa)
{
    for (int which = 0; which < 2; which++) {
        heed_form_state state = form_named(isa, "fire", sizes);
        make_ready(&state, 0);
        shake_params(&state, 0.4f);
        set_param(&state, which, 0, 0);
        test_tile t = tile_at(&state, (corner){4, 32, -50, -60, 0}, 0);
        adds(&state, &t, fire, 2e-6, 2e-6);
        back(&state, &t);
        assert_true(state.grad[0][0] == 0.0f && state.grad[1][0] == 0.0f);
        for (int a = 0; a < 32; a++)
            assert_true(state.grad[2][a] == 0.0f && isfinite(state.grad[3][a]) && isfinite(state.grad[4][a]));
        drop_tile(&t);
        drop(&state);
    }
}

/* Where key j stands, and what the query finds there. */
static double gate(const test_tile *t, int i, int m)
{
    const bool open = !t->open || t->open[at(t, i, m)];
    return open && t->query_pos[i] >= t->key_pos[m] ? 1 / (1 + exp(-(double)t->before[at(t, i, m)])) : 0;
}

static double cope(const heed_form_state *state, const test_tile *t, int i, int j)
{
    const int max = (int)state->arg[0].number;
    double count = 0;
    for (int m = t->tile.cols - 1; m >= j; m--)
        count += gate(t, i, m);
    count = fmin(count, max - 1);
    const double f = count - floor(count);
    const int64_t dim = state->sizes.dim;
    return (1 - f) * product(t, i, state->param[0] + (int64_t)floor(count) * dim) +
           f * product(t, i, state->param[0] + (int64_t)ceil(count) * dim);
}

static void gradients_that_nobody_wants_are_left_out(heed_isa isa)
{
    static const char *const names[] = {"shaw", "fire", "cope"};
    static const definition by[] = {shaw, fire, cope};
    for (int n = 0; n < 3; n++) {
        heed_form_state state = form_named(isa, names[n], sizes);
        make_ready(&state, 0);
        shake_params(&state, 0.4f);
        test_tile t = tile_at(&state, corners[0], 0);
        adds(&state, &t, by[n], 2e-5, 1e-5);
        float *grad[6];
        memcpy(grad, state.grad, sizeof grad);
        memset(state.grad, 0, sizeof state.grad);
        back(&state, &t);
        memcpy(state.grad, grad, sizeof grad);
        drop_tile(&t);
        drop(&state);
    }
}

/* Scores go straight through as well. */
static double cope_and_score(const heed_form_state *state, const test_tile *t, int i, int j)
{
    return (double)t->before[at(t, i, j)] + cope(state, t, i, j);
}

static void close_some(test_tile *t)
{
    const int64_t n = (int64_t)t->tile.rows * t->tile.stride;
    t->open = malloc((size_t)n);
    for (int64_t k = 0; k < n; k++)
        t->open[k] = random_uniform(&draw) < 0.7;
    for (int i = 0; i < t->tile.rows; i++)
        for (int j = 0; j < t->tile.cols; j++)
            if (!t->open[at(t, i, j)])
                t->tile.dscore[at(t, i, j)] = 0;
    t->tile.open = t->open;
}

static void cope_by_formula(heed_isa isa)
{
    for (int max = 1; max <= 64; max += 21)
        for (int c = 0; c < CORNERS; c++) {
            heed_form_state state = form_named(isa, "cope", sizes);
            give(&state, "max", max);
            make_ready(&state, 0.25f);
            shake_params(&state, 1);
            test_tile t = tile_at(&state, corners[c], 1);
            if (c % 2)
                close_some(&t);
            adds(&state, &t, cope, 2e-5, 2e-6);
            float *kept = copy_of(t.tile.dscore, (int64_t)t.tile.rows * t.tile.stride);
            back(&state, &t);
            for (int n = 0; n < 12; n++) {
                const int i = (int)random_whole(&draw, 0, t.tile.rows - 1),
                          d = (int)random_whole(&draw, 0, 10);
                const int j = (int)random_whole(&draw, 0, t.tile.cols - 1);
                const int64_t x = random_whole(&draw, 0, param_floats(&state, 0) - 1),
                              q = i * t.tile.query_stride + d;
                near((double)state.grad[0][x] - 0.25,
                     slope(&state, &t, kept, cope, (float *)state.param[0] + x, 0.25f), 1e-4, 3e-6, "de",
                     (int)x, c);
                near((double)t.dquery[q], slope(&state, &t, kept, cope, t.query + q, 0.25f), 1e-4, 3e-6, "dq",
                     i, d);
                near((double)t.tile.dscore[at(&t, i, j)],
                     slope(&state, &t, kept, cope_and_score, t.before + at(&t, i, j), 1e-4f), 3e-4, 1e-3,
                     "dscore", i, j);
            }
            free(kept);
            drop_tile(&t);
            drop(&state);
        }
}

/* Gates of 1 count keys: the key at the query is at 1, the one before at 2, and so on to max - 1. */
static void cope_counts_keys_when_gates_are_open(heed_isa isa)
{
    heed_form_state state = form_named(isa, "cope", sizes);
    give(&state, "max", 10);
    make_ready(&state, 0);
    shake_params(&state, 1);
    test_tile t = tile_at(&state, (corner){2, 80, 70, 0, 0}, 0);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 80; j++)
            t.before[at(&t, i, j)] = t.tile.score[at(&t, i, j)] = 40;
    const heed_rows rows = query_rows(&t, t.aux, NULL);
    state.form->query_aux(&state, &rows);
    state.form->adjust(&state, &t.tile);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 80; j++) {
            const int distance = 70 + i - j, count = distance < 0 ? 0 : distance + 1;
            const double right = product(&t, i, state.param[0] + (count < 9 ? count : 9) * sizes.dim);
            near((double)t.tile.score[at(&t, i, j)] - 40, right, 1e-5, 1e-6, "added", i, j);
        }
    /* whole counts have no slope: nothing comes back through the gates */
    float *kept = copy_of(t.tile.dscore, 2 * t.tile.stride);
    back(&state, &t);
    for (int j = 0; j < 80; j++)
        assert_true(t.tile.dscore[j] == kept[j]);
    free(kept);
    drop_tile(&t);
    drop(&state);
}

/* What stands at closed pairs, even NaN, is not read; an open NaN stays in its row. */
static void cope_reads_open_pairs_only(heed_isa isa)
{
    heed_form_state state = form_named(isa, "cope", sizes);
    make_ready(&state, 0);
    shake_params(&state, 1);
    test_tile t = tile_at(&state, (corner){3, 128, 127, 0, 0}, 0);
    close_some(&t);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 128; j++)
            if (!t.open[at(&t, i, j)])
                t.before[at(&t, i, j)] = t.tile.score[at(&t, i, j)] = NAN;
    const int row = 1;
    int last = 127;
    while (!t.open[at(&t, row, last)] || last > 127 + row)
        last--;
    t.before[at(&t, row, last)] = t.tile.score[at(&t, row, last)] = NAN;
    const heed_rows rows = query_rows(&t, t.aux, NULL);
    state.form->query_aux(&state, &rows);
    state.form->adjust(&state, &t.tile);
    back(&state, &t);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 128; j++)
            if (t.open[at(&t, i, j)]) {
                assert_true(isnan(t.tile.score[at(&t, i, j)]) == (i == row && j <= last));
                if (i != row)
                    assert_true(isfinite(t.tile.dscore[at(&t, i, j)]));
            }
    drop_tile(&t);
    drop(&state);
}

/* A query row whose pairs are all closed may hold NaN: parameters do not feel it. */
static void closed_rows_give_parameters_nothing(heed_isa isa)
{
    static const char *const names[] = {"shaw", "cope"};
    for (int n = 0; n < 2; n++) {
        heed_form_state state = form_named(isa, names[n], sizes);
        make_ready(&state, 0);
        shake_params(&state, 1);
        test_tile t = tile_at(&state, corners[0], 0);
        const size_t row = (size_t)t.tile.stride;
        t.open = malloc((size_t)t.tile.rows * row);
        memset(t.open, 1, (size_t)t.tile.rows * row);
        memset(t.open + 2 * row, 0, row);
        t.tile.open = t.open;
        memset(t.tile.dscore + 2 * row, 0, row * sizeof(float));
        for (int d = 0; d < t.tile.dim; d++)
            t.query[2 * t.tile.query_stride + d] = NAN;
        for (int j = 0; j < t.tile.cols; j++)
            t.before[at(&t, 2, j)] = t.tile.score[at(&t, 2, j)] = NAN;
        const heed_rows rows = query_rows(&t, t.aux, NULL);
        state.form->query_aux(&state, &rows);
        state.form->adjust(&state, &t.tile);
        back(&state, &t);
        for (int64_t x = 0; x < param_floats(&state, 0); x++)
            assert_true(isfinite(state.grad[0][x]));
        for (int d = 0; d < t.tile.dim; d++)
            assert_true(t.dquery[2 * t.tile.query_stride + d] == 0.0f);
        drop_tile(&t);
        drop(&state);
    }
}

#define TEST(check)                                                                                          \
    static void test_##check(void **context)                                                                 \
    {                                                                                                        \
        (void)context;                                                                                       \
        in_each_build(check);                                                                                \
    }
TEST(shaw_by_formula)
TEST(fire_by_formula)
TEST(fire_starts_as_documented)
TEST(fire_is_constant_where_it_cannot_look)
TEST(gradients_that_nobody_wants_are_left_out)
TEST(cope_by_formula)
TEST(cope_counts_keys_when_gates_are_open)
TEST(cope_reads_open_pairs_only)
TEST(closed_rows_give_parameters_nothing)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shaw_by_formula),
        cmocka_unit_test(test_fire_by_formula),
        cmocka_unit_test(test_fire_starts_as_documented),
        cmocka_unit_test(test_fire_is_constant_where_it_cannot_look),
        cmocka_unit_test(test_gradients_that_nobody_wants_are_left_out),
        cmocka_unit_test(test_cope_by_formula),
        cmocka_unit_test(test_cope_counts_keys_when_gates_are_open),
        cmocka_unit_test(test_cope_reads_open_pairs_only),
        cmocka_unit_test(test_closed_rows_give_parameters_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
