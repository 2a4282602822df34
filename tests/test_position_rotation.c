/* rope and xpos by their hooks, in every build that this processor runs, against definitions in double. */
#include "support/position.h"

static const heed_sizes small = {
    .batch = 1, .heads = 2, .kv_heads = 2, .queries = 64, .keys = 300, .dim = 20};

/* Lists of positions: runs that cross borders of 128 and of the tables, and jumps. */
enum { COUNT = 70, LISTS = 9 };
static void positions(int list, int32_t *pos)
{
    static const int32_t starts[] = {0, 100, 250, -30, -1000000, 131040, 1048500};
    for (int i = 0; i < COUNT; i++)
        pos[i] = list < 7    ? starts[list] + i
                 : list == 7 ? (int32_t)random_whole(&draw, -2000000, 2000000)
                             : (int32_t)random_whole(&draw, -(1 << 30), 1 << 30);
}

/* Turns one row by the definition. */
static void turn(const double *frequency, double factor, int dim, bool adjacent, int64_t p, const float *in,
                 double *out, int all)
{
    for (int d = 0; d < all; d++)
        out[d] = (double)in[d];
    for (int t = 0; t < dim / 2; t++) {
        const int x = adjacent ? 2 * t : t, y = adjacent ? 2 * t + 1 : t + dim / 2;
        const double a = (double)p * frequency[t];
        out[x] = factor * ((double)in[x] * cos(a) - (double)in[y] * sin(a));
        out[y] = factor * ((double)in[x] * sin(a) + (double)in[y] * cos(a));
    }
}

static void rope_frequencies(int dim, double base, double *frequency)
{
    for (int t = 0; t < dim / 2; t++)
        frequency[t] = pow(base, -2.0 * t / dim);
}

/* Forward and backward of a ready form against `frequency` on all lists of positions. */
static void rotates_as(const heed_form_state *state, const double *frequency, double factor, int dim,
                       bool adjacent, double allowed)
{
    const int all = (int)state->sizes.dim, in_stride = all + 5, out_stride = all + 2;
    int32_t *pos = memory(COUNT * sizeof *pos);
    double *right = malloc(sizeof *right * (size_t)all), *back = malloc(sizeof *back * (size_t)all);
    double reverse[64];
    for (int t = 0; t < dim / 2; t++)
        reverse[t] = -frequency[t];
    for (int list = 0; list < LISTS; list++) {
        positions(list, pos);
        float *in = random_floats((int64_t)COUNT * in_stride),
              *out = random_floats((int64_t)COUNT * out_stride);
        float *dout = random_floats((int64_t)COUNT * out_stride),
              *din = random_floats((int64_t)COUNT * in_stride);
        float *start = floats((int64_t)COUNT * in_stride);
        memcpy(start, din, sizeof(float) * COUNT * (size_t)in_stride);
        heed_rows rows = {.count = COUNT,
                          .dim = all,
                          .pos = pos,
                          .contiguous = list < 7,
                          .in = in,
                          .in_stride = in_stride,
                          .out = out,
                          .out_stride = out_stride,
                          .din = din,
                          .din_stride = in_stride};
        state->form->prepare_key(state, &rows);
        rows.out = dout;
        state->form->prepare_query_backward(state, &rows);
        for (int i = 0; i < COUNT; i++) {
            turn(frequency, factor, dim, adjacent, pos[i], in + i * in_stride, right, all);
            turn(reverse, factor, dim, adjacent, pos[i], dout + i * out_stride, back, all);
            for (int d = 0; d < all; d++) {
                near((double)out[i * out_stride + d], right[d], allowed, 0, "rotated", pos[i], d);
                const double added = (double)din[i * in_stride + d] - (double)start[i * in_stride + d];
                near(added, back[d], 2 * allowed, 0, "gradient", pos[i], d);
            }
        }
        free(in);
        free(out);
        free(dout);
        free(din);
        free(start);
    }
    free(pos);
    free(right);
    free(back);
}

static void rope_rotates_by_definition(heed_isa isa)
{
    double frequency[64];
    for (int adjacent = 0; adjacent < 2; adjacent++)
        for (int dim = 2; dim <= 20; dim += 6) {
            heed_form_state state = form_named(isa, "rope", small);
            if (dim < 20)
                give(&state, "dim", dim);
            give(&state, "pairs", adjacent);
            give(&state, "base", 500.0);
            make_ready(&state, 0);
            rope_frequencies(dim, 500.0, frequency);
            rotates_as(&state, frequency, 1, dim, adjacent, 2e-6);
            drop(&state);
        }
    heed_sizes odd = small;
    odd.dim = 7;
    heed_form_state state = form_named(isa, "rope", odd);
    give(&state, "dim", 6);
    make_ready(&state, 0);
    rope_frequencies(6, 10000.0, frequency);
    rotates_as(&state, frequency, 1, 6, false, 2e-6);
    drop(&state);
}

/* More pairs than are turned at a time. */
static void rope_rotates_wide_rows(heed_isa isa)
{
    heed_sizes wide = small;
    wide.dim = 200;
    heed_form_state state = form_named(isa, "rope", wide);
    make_ready(&state, 0);
    const int all = 200;
    int32_t pos[] = {5, 6, 131072 * 3 + 77};
    float *in = random_floats(3 * all), *out = floats(3 * all);
    const heed_rows rows = {
        .count = 3, .dim = all, .pos = pos, .in = in, .in_stride = all, .out = out, .out_stride = all};
    state.form->prepare_query(&state, &rows);
    double frequency[100], right[200];
    rope_frequencies(all, 10000.0, frequency);
    for (int i = 0; i < 3; i++) {
        turn(frequency, 1, all, false, pos[i], in + i * all, right, all);
        for (int d = 0; d < all; d++)
            near((double)out[i * all + d], right[d], 2e-6, 0, "rotated", pos[i], d);
    }
    free(in);
    free(out);
    drop(&state);
}

/* cos and sin of all pairs at one position: rows of ones on the first half. */
static void angles_at(const heed_form_state *state, int32_t position, double *cosine, double *sine)
{
    const int all = (int)state->sizes.dim;
    float *in = floats(all), *out = floats(all);
    for (int t = 0; t < all / 2; t++)
        in[t] = 1.0f;
    const heed_rows rows = {
        .count = 1, .dim = all, .pos = &position, .in = in, .in_stride = all, .out = out, .out_stride = all};
    state->form->prepare_query(state, &rows);
    for (int t = 0; t < all / 2; t++) {
        cosine[t] = (double)out[t];
        sine[t] = (double)out[t + all / 2];
    }
    free(in);
    free(out);
}

/* Far positions keep their angles: at 1857 pair 1 of 32 entries stands at 1044.2678 radians. */
static void rope_keeps_far_angles(heed_isa isa)
{
    heed_sizes sizes = small;
    sizes.dim = 32;
    heed_form_state state = form_named(isa, "rope", sizes);
    make_ready(&state, 0);
    double cosine[64], sine[64];
    angles_at(&state, 1857, cosine, sine);
    near(cosine[1], 0.30669, 5e-6, 0, "cos", 1857, 1);
    drop(&state);

    sizes.dim = 128;
    static const int32_t far[] = {1857, 131071, 131072, 1048575, -1048575, 1 << 30};
    for (int64_t keys = 1; keys < 2000000; keys = keys * 100 + 27) {
        sizes.keys = keys;
        state = form_named(isa, "rope", sizes);
        make_ready(&state, 0);
        for (int i = 0; i < 6; i++) {
            angles_at(&state, far[i], cosine, sine);
            for (int t = 0; t < 64; t++) {
                const double a = far[i] * pow(10000.0, -2.0 * t / 128);
                near(cosine[t], cos(a), 3e-7, 0, "cos", far[i], t);
                near(sine[t], sin(a), 3e-7, 0, "sin", far[i], t);
            }
        }
        drop(&state);
    }
}

/* Frequencies of the scaled form, read off where angles are small. */
static void frequencies_of(heed_form_state *state, double *frequency, double *factor)
{
    double cosine[64], sine[64];
    make_ready(state, 0);
    angles_at(state, 1, cosine, sine);
    for (int t = 0; t < state->sizes.dim / 2; t++)
        frequency[t] = atan2(sine[t], cosine[t]);
    *factor = hypot(cosine[0], sine[0]);
    drop(state);
}

static void llama3_gives_published_frequencies(heed_isa isa)
{
    heed_sizes sizes = small;
    sizes.dim = 128;
    heed_form_state state = form_named(isa, "rope", sizes);
    give(&state, "base", 500000);
    give_option(&state, "scaling", "llama3", 4, (double[]){8, 8192, 1, 4});
    double f[64], factor;
    frequencies_of(&state, f, &factor);
    near(factor, 1, 1e-6, 0, "factor", 0, 0);
    for (int t = 0; t < 64; t++) {
        const double plain = pow(500000.0, -2.0 * t / 128);
        if (t <= 28)
            near(f[t], plain, 0, 1e-6, "kept", t, 0);
        if (t >= 35)
            near(f[t], plain / 8, 0, 1e-6, "divided", t, 0);
    }
    near(f[29], 0.0021666, 5e-8, 0, "between", 29, 0);
    near(f[34], 1.7851e-4, 5e-9, 0, "between", 34, 0);
    near(f[63], 3.0689e-7, 5e-12, 0, "last", 63, 0);
}

static void scalings_follow_their_formulas(heed_isa isa)
{
    heed_sizes sizes = small;
    sizes.dim = 64;
    double f[64], factor;

    heed_form_state state = form_named(isa, "rope", sizes);
    give_option(&state, "scaling", "linear", 1, (double[]){4});
    frequencies_of(&state, f, &factor);
    for (int t = 0; t < 32; t++)
        near(f[t], pow(10000.0, -t / 32.0) / 4, 0, 1e-6, "linear", t, 0);

    state = form_named(isa, "rope", sizes);
    give_option(&state, "scaling", "ntk", 1, (double[]){4});
    frequencies_of(&state, f, &factor);
    for (int t = 0; t < 32; t++)
        near(f[t], pow(10000.0 * pow(4, 64.0 / 62), -t / 32.0), 0, 1e-6, "ntk", t, 0);
    near(f[31], pow(10000.0, -31 / 32.0) / 4, 0, 1e-6, "ntk's slowest is linear's", 31, 0);

    /* turns 32 and 1 over 4096 tokens lie at pairs 10.46 and 22.51 */
    state = form_named(isa, "rope", sizes);
    give_option(&state, "scaling", "yarn", 2, (double[]){16, 4096});
    frequencies_of(&state, f, &factor);
    near(factor, 0.1 * log(16.0) + 1, 1e-6, 0, "yarn's factor", 0, 0);
    for (int t = 0; t < 32; t++) {
        const double plain = pow(10000.0, -t / 32.0);
        const double ramp = t <= 10 ? 0 : t >= 23 ? 1 : (t - 10) / 13.0;
        near(f[t], plain * (1 - ramp) + plain / 16 * ramp, 0, 1e-6, "yarn", t, 0);
    }

    state = form_named(isa, "rope", sizes);
    give_option(&state, "scaling", "yarn", 2, (double[]){0.5, 4096});
    frequencies_of(&state, f, &factor);
    near(factor, 1, 1e-6, 0, "yarn's factor below 1", 0, 0);
}

static void yarn_factor_reaches_gradients(heed_isa isa)
{
    heed_form_state state = form_named(isa, "rope", small);
    give_option(&state, "scaling", "yarn", 2, (double[]){4, 1 << 20}); /* so long that all pairs turn often */
    give(&state, "base", 8.0);
    make_ready(&state, 0);
    double frequency[64];
    rope_frequencies(20, 8.0, frequency);
    rotates_as(&state, frequency, 0.1 * log(4.0) + 1, 20, false, 3e-6);
    drop(&state);
}

static void rope_refuses_what_it_cannot_do(heed_isa isa)
{
    heed_sizes odd = small;
    odd.dim = 7;
    refused(form_named(isa, "rope", odd), "7 entries");
    const struct {
        const char *name;
        double value;
        const char *word;
    } wrong[] = {{"dim", 5, "even"},
                 {"dim", 22, "2 to 20"},
                 {"dim", 0, "2 to 20"},
                 {"base", 0, "base"},
                 {"base", -2, "base"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        heed_form_state state = form_named(isa, "rope", small);
        give(&state, wrong[i].name, wrong[i].value);
        refused(state, wrong[i].word);
    }
    heed_form_state state = form_named(isa, "rope", small);
    give_option(&state, "scaling", "linear", 1, (double[]){0});
    refused(state, "factor");
    give_option(&state, "scaling", "llama3", 4, (double[]){8, 8192, 4, 4});
    refused(state, "high");
    give_option(&state, "scaling", "yarn", 2, (double[]){8, 8192});
    give(&state, "base", 1);
    refused(state, "yarn");
}

/* sum_t zeta^(distance/scale_base) (rotated product of pair t), in double, of prepared rows. */
static double faded(const double *query, const double *key, int dim, double distance, double scale_base)
{
    double sum = 0;
    for (int t = 0; t < dim / 2; t++) {
        const double zeta = (2.0 * t / dim + 0.4) / 1.4;
        sum += pow(zeta, distance / scale_base) * (query[t] * key[t] + query[t + dim / 2] * key[t + dim / 2]);
    }
    return sum;
}

static void entries(const test_tile *t, int i, int j, double *query, double *key)
{
    for (int d = 0; d < t->tile.dim; d++) {
        query[d] = (double)t->query[i * t->tile.query_stride + d];
        key[d] = (double)t->key[d * t->tile.key_stride + j];
    }
}

/* The largest sum of sizes that a score may have: what errors are measured by. */
static double size_of_score(const double *query, const double *key, int dim, double distance,
                            double scale_base)
{
    double a[64], b[64];
    for (int d = 0; d < dim; d++) {
        a[d] = fabs(query[d]);
        b[d] = fabs(key[d]);
    }
    return faded(a, b, dim, distance, scale_base);
}

typedef struct corner {
    int rows, cols, dim;
    int32_t query_pos, key_pos, jumps;
    double scale_base;
} corner;

static const corner corners[] = {
    {8, 128, 20, 127, 0, 0, 512},
    {6, 32, 20, 1000, 870, 0, 512},
    {1, 16, 2, 0, 0, 0, 512},
    {13, 272, 24, 300, 0, 0, 512},
    {8, 128, 20, -200, -327, 0, 512},
    {4, 64, 20, 1048575, 1048512, 0, 512},
    {8, 128, 20, 5000, 0, 0, 512},
    {8, 128, 20, 127, 0, 0, 3},
    {5, 48, 20, 60, 20, 0, 0.25},
    {7, 64, 20, 500, 0, 250, 512},
    {7, 64, 20, 1000000, 999000, 3000, 512},
    {8, 128, 6, (1 << 30) - 8, 0, 0, 512},
    {8, 64, 6, 1 << 29, -(1 << 29), 100, 1},
    {8, 128, 20, 0, 100, 0, 512},
    {3, 32, 20, 0, 1500, 0, 512},
    {3, 32, 20, 0, 1500, 40, 512},
    {8, 128, 20, 0, 1 << 20, 0, 512},
    {8, 128, 20, -(1 << 29), 1 << 29, 0, 512},
};

static void xpos_fades_by_definition(heed_isa isa)
{
    for (size_t n = 0; n < sizeof corners / sizeof *corners; n++) {
        const corner c = corners[n];
        heed_sizes sizes = small;
        sizes.dim = c.dim;
        sizes.causal = true;
        heed_form_state state = form_named(isa, "xpos", sizes);
        give(&state, "scale_base", c.scale_base);
        make_ready(&state, 0);
        test_tile t = make_tile(&state, c.rows, c.cols, c.query_pos, c.key_pos, c.jumps);
        state.form->pair(&state, &t.tile);
        double query[64], key[64];
        for (int i = 0; i < c.rows; i++)
            for (int j = 0; j < c.cols; j++) {
                const double distance = (double)t.query_pos[i] - (double)t.key_pos[j];
                const double got = (double)t.tile.score[i * t.tile.stride + j];
                assert_true(isfinite(got));
                if (distance < 0 && -distance / c.scale_base > 4)
                    continue; /* such a pair is closed */
                entries(&t, i, j, query, key);
                near(got, faded(query, key, c.dim, distance, c.scale_base),
                     1e-6 * size_of_score(query, key, c.dim, distance, c.scale_base) + 1e-12, 0, "score", i,
                     j);
            }
        drop_tile(&t);
        drop(&state);
    }
}

static void xpos_gradients_match_differences(heed_isa isa)
{
    for (size_t n = 0; n < sizeof corners / sizeof *corners; n++) {
        const corner c = corners[n];
        heed_sizes sizes = small;
        sizes.dim = c.dim;
        sizes.causal = true;
        heed_form_state state = form_named(isa, "xpos", sizes);
        give(&state, "scale_base", c.scale_base);
        make_ready(&state, 0);
        test_tile t = make_tile(&state, c.rows, c.cols, c.query_pos, c.key_pos, c.jumps);
        for (int i = 0; i < c.rows; i++)
            for (int j = 0; j < c.cols; j++)
                if (t.query_pos[i] < t.key_pos[j])
                    t.tile.dscore[i * t.tile.stride + j] = 0;
        for (int d = 0; d < c.dim; d++)
            t.dquery[d] = t.dkey[d * t.tile.key_stride] = 1; /* gradients are added to what is there */
        state.form->pair_backward(&state, &t.tile);
        double query[64], key[64];
        for (int d = 0; d < c.dim; d++) {
            double *dkey = calloc((size_t)c.cols, sizeof *dkey);
            double *room = calloc((size_t)c.cols, sizeof *room);
            for (int i = 0; i < c.rows; i++) {
                double dquery = 0, most = 0;
                for (int j = 0; j < c.cols; j++) {
                    const double distance = (double)t.query_pos[i] - (double)t.key_pos[j];
                    const double g = (double)t.tile.dscore[i * t.tile.stride + j];
                    if (distance < 0)
                        continue;
                    entries(&t, i, j, query, key);
                    /* linear in each entry: the difference is exact for any step */
                    const double q = query[d], k = key[d];
                    double at[2];
                    for (int s = 0; s < 2; s++) {
                        query[d] = q + (s ? 0.5 : -0.5);
                        at[s] = faded(query, key, c.dim, distance, c.scale_base);
                    }
                    dquery += g * (at[1] - at[0]);
                    most += fabs(g * (at[1] - at[0]));
                    query[d] = q;
                    for (int s = 0; s < 2; s++) {
                        key[d] = k + (s ? 0.5 : -0.5);
                        at[s] = faded(query, key, c.dim, distance, c.scale_base);
                    }
                    dkey[j] += g * (at[1] - at[0]);
                    room[j] += fabs(g * (at[1] - at[0]));
                }
                near((double)t.dquery[i * t.tile.query_stride + d] - (i == 0), dquery, 2e-6 * (most + 1), 0,
                     "dquery", i, d);
            }
            for (int j = 0; j < c.cols; j++)
                near((double)t.dkey[d * t.tile.key_stride + j] - (j == 0), dkey[j], 2e-6 * (room[j] + 1), 0,
                     "dkey", d, j);
            free(dkey);
            free(room);
        }
        drop_tile(&t);
        drop(&state);
    }
}

/* Rotated and faded together: score of raw rows depends on the distance only. */
static void xpos_sees_distance_only(heed_isa isa)
{
    heed_sizes sizes = small;
    sizes.causal = true;
    heed_form_state state = form_named(isa, "xpos", sizes);
    make_ready(&state, 0);
    const int dim = (int)sizes.dim;
    float *q = random_floats(dim), *k = random_floats(dim);
    double first = 0;
    for (int s = 0; s < 5; s++) {
        static const int32_t shift[] = {0, 1000, -77, 1048575, -200000};
        test_tile t = make_tile(&state, 1, 16, 40 + shift[s], shift[s], 0);
        heed_rows rows = {.count = 1,
                          .dim = dim,
                          .pos = t.query_pos,
                          .in = q,
                          .in_stride = dim,
                          .out = t.query,
                          .out_stride = dim};
        state.form->prepare_query(&state, &rows);
        float *turned = floats(dim);
        rows.pos = t.key_pos;
        rows.in = k;
        rows.out = turned;
        state.form->prepare_key(&state, &rows);
        for (int d = 0; d < dim; d++)
            t.key[d * t.tile.key_stride] = turned[d];
        state.form->pair(&state, &t.tile);
        double right = 0;
        for (int p = 0; p < dim / 2; p++) {
            const double a = 40 * pow(10000.0, -2.0 * p / dim), zeta = (2.0 * p / dim + 0.4) / 1.4;
            const double qx = (double)q[p], qy = (double)q[p + dim / 2], kx = (double)k[p],
                         ky = (double)k[p + dim / 2];
            right += pow(zeta, 40 / 512.0) * ((qx * kx + qy * ky) * cos(a) + (qx * ky - qy * kx) * sin(a));
        }
        first = s ? first : (double)t.tile.score[0];
        near((double)t.tile.score[0], right, 5e-6, 0, "score", shift[s], 0);
        near((double)t.tile.score[0], first, 5e-6, 0, "score moved", shift[s], 0);
        free(turned);
        drop_tile(&t);
    }
    free(q);
    free(k);
    drop(&state);
}

/* NaN in a query or key whose pairs are closed leaves the gradients alone. */
static void xpos_gradients_ignore_closed_nan(heed_isa isa)
{
    heed_sizes sizes = small;
    sizes.causal = true;
    for (int jumps = 0; jumps < 2; jumps++) {
        heed_form_state state = form_named(isa, "xpos", sizes);
        make_ready(&state, 0);
        test_tile t = make_tile(&state, 4, 32, 100, 0, jumps);
        for (int d = 0; d < t.tile.dim; d++) {
            t.query[2 * t.tile.query_stride + d] = NAN;
            t.key[d * t.tile.key_stride + 5] = NAN;
        }
        for (int i = 0; i < 4; i++)
            t.tile.dscore[i * t.tile.stride + 5] = 0;
        for (int j = 0; j < 32; j++)
            t.tile.dscore[2 * t.tile.stride + j] = 0;
        state.form->pair_backward(&state, &t.tile);
        for (int d = 0; d < t.tile.dim; d++) {
            for (int i = 0; i < 4; i++)
                assert_true(isfinite(t.dquery[i * t.tile.query_stride + d]));
            for (int j = 0; j < 32; j++)
                assert_true(isfinite(t.dkey[d * t.tile.key_stride + j]));
            assert_true(t.dquery[2 * t.tile.query_stride + d] == 0.0f);
            assert_true(t.dkey[d * t.tile.key_stride + 5] == 0.0f);
        }
        drop_tile(&t);
        drop(&state);
    }
}

static void xpos_refuses_what_it_cannot_do(heed_isa isa)
{
    heed_sizes odd = small;
    odd.dim = 7;
    refused(form_named(isa, "xpos", odd), "7 entries");
    heed_form_state state = form_named(isa, "xpos", small);
    give(&state, "scale_base", 0);
    refused(state, "scale_base");
    state = form_named(isa, "xpos", small);
    give(&state, "base", -1);
    refused(state, "base");
    assert_true(state.form->flags & HEED_NEEDS_DOT && state.form->flags & HEED_NEEDS_CAUSAL);
}

#define TEST(check)                                                                                          \
    static void test_##check(void **context)                                                                 \
    {                                                                                                        \
        (void)context;                                                                                       \
        in_each_build(check);                                                                                \
    }
TEST(rope_rotates_by_definition)
TEST(rope_rotates_wide_rows)
TEST(rope_keeps_far_angles)
TEST(llama3_gives_published_frequencies)
TEST(scalings_follow_their_formulas)
TEST(yarn_factor_reaches_gradients)
TEST(rope_refuses_what_it_cannot_do)
TEST(xpos_fades_by_definition)
TEST(xpos_gradients_match_differences)
TEST(xpos_sees_distance_only)
TEST(xpos_gradients_ignore_closed_nan)
TEST(xpos_refuses_what_it_cannot_do)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_rotates_by_definition),
        cmocka_unit_test(test_rope_rotates_wide_rows),
        cmocka_unit_test(test_rope_keeps_far_angles),
        cmocka_unit_test(test_llama3_gives_published_frequencies),
        cmocka_unit_test(test_scalings_follow_their_formulas),
        cmocka_unit_test(test_yarn_factor_reaches_gradients),
        cmocka_unit_test(test_rope_refuses_what_it_cannot_do),
        cmocka_unit_test(test_xpos_fades_by_definition),
        cmocka_unit_test(test_xpos_gradients_match_differences),
        cmocka_unit_test(test_xpos_sees_distance_only),
        cmocka_unit_test(test_xpos_gradients_ignore_closed_nan),
        cmocka_unit_test(test_xpos_refuses_what_it_cannot_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
