/* Layers with averages and memories against their formulas, with the gradient of every parameter. */
#include "support/layer_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 2048 };
#define ROWS (LAYER_B * t->n)
#define DEFINE(name) static void name(const layer_text *t, double *out)

static double silu(double x)
{
    return x * layer_sigmoid(x);
}

/* NAME.weight of rows x, and NAME.bias where `biased`. */
static void map_rows(const layer_text *t, const char *name, const double *x, int in, int out, bool biased,
                     double *y)
{
    char full[100];
    snprintf(full, sizeof full, "%s.weight", name);
    layer_map(layer_value(t, full), x, ROWS, in, out, y);
    snprintf(full, sizeof full, "%s.bias", name);
    for (int i = 0; biased && i < ROWS * out; i++)
        y[i] += layer_value(t, full)[i % out];
}

/* By the kernel of the average: eta·(alpha beta (1 - alpha delta)^t), summed up term by term; the same
 * numbers a convolution by FFT would give. `step` 1 looks back, -1 ahead. */
static void averages(const layer_text *t, const char *way, int paces, int step, double *y)
{
    const double *p[4];
    static const char *const parts[] = {"alpha", "delta", "beta", "eta"};
    for (int i = 0; i < 4; i++) {
        char name[40];
        snprintf(name, sizeof name, "%s.%s", way, parts[i]);
        p[i] = layer_value(t, name);
    }
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < t->width; c++)
            for (int s = r % t->n, lag = 0; s >= 0 && s < t->n; s -= step, lag++)
                for (int h = c * paces; h < (c + 1) * paces; h++) {
                    const double alpha = layer_sigmoid(p[0][h]), keep = 1 - alpha * layer_sigmoid(p[1][h]);
                    y[r * t->width + c] += p[3][h] * alpha * p[2][h] * pow(keep, lag) *
                                           t->x[(r / t->n * t->n + s) * t->width + c];
                }
}

static void gated_averages(const layer_text *t, int paces, int chunk, bool laplace, bool causal, double *out)
{
    static double e[ROOM], xs[ROOM], z[ROOM], v[ROOM], o[ROOM], g[ROOM], hidden[ROOM], u[ROOM], phi[ROOM];
    const int n = t->n, width = t->width, zs = width / 4;
    memset(e, 0, sizeof e);
    averages(t, "forward", paces, 1, e);
    if (!causal)
        averages(t, "backward", paces, -1, e);
    for (int i = 0; i < ROWS * width; i++)
        xs[i] = silu(e[i] + layer_value(t, "skip")[i % width] * t->x[i]);
    map_rows(t, "z_proj", xs, width, zs, true, z);
    map_rows(t, "v_proj", t->x, width, 2 * width, true, v);
    memset(o, 0, sizeof o);
    for (int r = 0; r < ROWS; r++) {
        const int i = r % n, text = r / n * n;
        double w[16];
        int first = chunk ? i / chunk * chunk : 0, end = causal ? i + 1 : chunk ? first + chunk : n;
        end = end > n ? n : end;
        for (int j = first; j < end; j++) {
            w[j] = 0;
            for (int c = 0; c < zs; c++) {
                const double q =
                    layer_value(t, "q_gain")[c] * silu(z[r * zs + c]) + layer_value(t, "q_shift")[c];
                const double k =
                    layer_value(t, "k_gain")[c] * silu(z[(text + j) * zs + c]) + layer_value(t, "k_shift")[c];
                w[j] += q * k / (laplace ? end - first : sqrt(zs));
            }
            w[j] += layer_value(t, "offsets")[j - i + n - 1];
            if (laplace)
                w[j] = 0.5 * (1 + erf((w[j] - sqrt(0.5)) / (sqrt(1 / (4 * acos(-1))) * sqrt(2))));
        }
        if (!laplace)
            layer_softmax(w + first, end - first);
        for (int j = first; j < end; j++)
            for (int c = 0; c < 2 * width; c++)
                o[r * 2 * width + c] += w[j] * silu(v[(text + j) * 2 * width + c]);
    }
    map_rows(t, "gate_proj", xs, width, 2 * width, false, g);
    for (int i = 0; i < ROWS * 2 * width; i++)
        o[i] *= silu(g[i]);
    map_rows(t, "h_proj", xs, width, width, true, hidden);
    map_rows(t, "o_proj", o, 2 * width, width, false, u);
    map_rows(t, "update_proj", xs, width, width, false, phi);
    for (int i = 0; i < ROWS * width; i++) {
        const double f = layer_sigmoid(phi[i]);
        out[i] = f * silu(hidden[i] + u[i]) + (1 - f) * t->x[i];
    }
}

DEFINE(mega)
{
    gated_averages(t, 3, 0, false, true, out);
}

DEFINE(mega_by_chunks)
{
    gated_averages(t, 2, 4, true, true, out);
}

DEFINE(mega_both_ways)
{
    gated_averages(t, 2, 0, true, false, out);
}

/* A chunk that holds the text is no chunk. */
static void moving_averages_with_gates(void **state)
{
    (void)state;
    layer_check(
        &(layer_case){.spec = "layer=mega(paces=3)", .define = mega, .causal = true, .tolerance = 1e-4});
    layer_check(&(layer_case){.spec = "layer=mega(paces=3, chunk=6)", .define = mega, .tolerance = 1e-4});
    layer_check(&(layer_case){.spec = "layer=mega(paces=2, chunk=4, function=laplace)",
                              .define = mega_by_chunks,
                              .causal = true,
                              .tolerance = 1e-4});
    layer_check(&(layer_case){.spec = "layer=mega(paces=2, function=laplace, causal=no)",
                              .define = mega_both_ways,
                              .tolerance = 1e-4});
}

static void fade_and_turn(const layer_text *t, int layer, double *out)
{
    static double q[ROOM], k[ROOM], v[ROOM], u[ROOM], o[ROOM];
    const int n = t->n, d = t->d, H = t->heads, wide = H * d;
    const double *theta = layer ? NULL : layer_value(t, "theta");
    layer_mapped(t, "q_proj", wide, q);
    layer_mapped(t, "k_proj", wide, k);
    layer_mapped(t, "v_proj", wide, v);
    layer_mapped(t, "u_proj", wide, u);
    memset(o, 0, sizeof o);
    for (int r = 0; r < ROWS; r++) {
        double squares = 0;
        for (int h = 0; h < H; h++)
            for (int s = 0; s <= r % n; s++) {
                const int at = r * wide + h * d, to = (r / n * n + s) * wide + h * d, lag = r % n - s;
                double sum =
                    0; /* the real part of q conj(k) e^{i theta lag}, entries c and c + d/2 one number */
                for (int c = 0; c < d / 2; c++) {
                    const double a = silu(q[at + c]), b = silu(q[at + c + d / 2]), x = silu(k[to + c]),
                                 y = silu(k[to + c + d / 2]), angle = layer ? 0 : theta[h * d / 2 + c] * lag;
                    sum += (a * x + b * y) * cos(angle) - (b * x - a * y) * sin(angle);
                }
                const double fade = pow(exp(-8.0 * h / H * (1 - layer / 3.0)), lag);
                for (int c = 0; c < d; c++)
                    o[at + c] += fade * sum * v[to + c];
            }
        for (int c = 0; c < wide; c++)
            squares += o[r * wide + c] * o[r * wide + c];
        for (int c = 0; c < wide; c++)
            o[r * wide + c] *= sqrt(wide) / sqrt(squares + 1e-6 * wide) * u[r * wide + c];
    }
    layer_out(t, o, out);
}

DEFINE(transnormer)
{
    fade_and_turn(t, 0, out);
}

DEFINE(transnormer_above)
{
    fade_and_turn(t, 1, out);
}

static void linear_attention_that_fades_and_turns(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "layer=transnormer",
                              .define = transnormer,
                              .causal = true,
                              .tolerance = 1e-4,
                              .start = false});
    layer_check(&(layer_case){
        .spec = "layer=transnormer", .define = transnormer_above, .layer = 1, .tolerance = 1e-4});
}

/* silu(convolution(x W)) */
static void short_map(const layer_text *t, const char *part, int taps, double *y)
{
    static double x[ROOM];
    char name[60];
    const int wide = t->heads * t->d;
    snprintf(name, sizeof name, "memory_%s_proj", part);
    layer_mapped(t, name, wide, x);
    snprintf(name, sizeof name, "memory_%s_taps", part);
    for (int i = 0; i < ROWS * wide; i++) {
        y[i] = 0;
        for (int k = 0; k < taps; k++) {
            const int back = taps - 1 - k;
            if (i / wide % t->n >= back)
                y[i] += layer_value(t, name)[k * wide + i % wide] * x[i - back * wide];
        }
        y[i] = silu(y[i]);
    }
}

static void unit(const double *x, int n, double *y)
{
    double squares = 1e-6;
    for (int i = 0; i < n; i++)
        squares += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(squares);
}

static void memory(const layer_text *t, int taps, int chunk, double *out)
{
    static double q[ROOM], k[ROOM], v[ROOM], gate[ROOM], M[16][16], S[16][16], start[16][16];
    const int n = t->n, d = t->d, wide = t->heads * d;
    short_map(t, "q", taps, q);
    short_map(t, "k", taps, k);
    short_map(t, "v", taps, v);
    layer_mapped(t, "memory_gate_proj", 3 * t->heads, gate);
    memset(out, 0, ROOM * sizeof *out);
    for (int b = 0; b < LAYER_B; b++)
        for (int h = 0; h < t->heads; h++) {
            memset(M, 0, sizeof M);
            memset(S, 0, sizeof S);
            for (int i = 0; i < n; i++) {
                const int row = b * n + i, at = row * wide + h * d;
                const double *g = gate + (row * t->heads + h) * 3;
                double key[16], query[16];
                unit(k + at, d, key);
                unit(q + at, d, query);
                if (i % chunk == 0)
                    memcpy(start, M, sizeof M);
                for (int e = 0; e < d; e++) {
                    double wrong = -v[at + e];
                    for (int c = 0; c < d; c++)
                        wrong += key[c] * start[c][e];
                    for (int c = 0; c < d; c++) {
                        S[c][e] = layer_sigmoid(g[0]) * S[c][e] - layer_sigmoid(g[1]) * 2 * key[c] * wrong;
                        M[c][e] = (1 - layer_sigmoid(g[2])) * M[c][e] + S[c][e];
                        out[at + e] += query[c] * M[c][e];
                    }
                }
            }
        }
}

static void window(const layer_text *t, const double *x, int size, int persistent, double *y)
{
    static double q[ROOM], k[ROOM], v[ROOM];
    const int n = t->n, d = t->d, wide = t->heads * d;
    map_rows(t, "q_proj", x, t->width, wide, false, q);
    map_rows(t, "k_proj", x, t->width, wide, false, k);
    map_rows(t, "v_proj", x, t->width, wide, false, v);
    memset(y, 0, ROOM * sizeof *y);
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < t->heads; h++) {
            double w[32], sum = 0;
            const int first = r % n - size + 1 > 0 ? r % n - size + 1 : 0;
            for (int j = -persistent; j <= r % n; j++) {
                const double *key = j < 0 ? layer_value(t, "persistent_keys") + (j + persistent) * wide
                                          : k + (r / n * n + j) * wide;
                double score = 0;
                for (int c = 0; c < d; c++)
                    score += q[r * wide + h * d + c] * key[h * d + c] / sqrt(d);
                w[j + persistent] = j < 0 || j >= first ? exp(score) : 0;
                sum += w[j + persistent];
            }
            for (int j = -persistent; j <= r % n; j++) {
                const double *value = j < 0 ? layer_value(t, "persistent_values") + (j + persistent) * wide
                                            : v + (r / n * n + j) * wide;
                for (int c = 0; c < d; c++)
                    y[r * wide + h * d + c] += w[j + persistent] / sum * value[h * d + c];
            }
        }
}

static void norm(const layer_text *t, const char *name, double *x)
{
    const int wide = t->heads * t->d;
    for (int r = 0; r < ROWS; r++) {
        double squares = 0;
        for (int c = 0; c < wide; c++)
            squares += x[r * wide + c] * x[r * wide + c] / wide;
        for (int c = 0; c < wide; c++)
            x[r * wide + c] *= layer_value(t, name)[c] / sqrt(squares + 1e-5);
    }
}

DEFINE(titans_gated)
{
    static double m[ROOM], y[ROOM];
    memory(t, 2, 3, m);
    window(t, t->x, 3, 2, y);
    norm(t, "memory_norm", m);
    norm(t, "local_norm", y);
    for (int i = 0; i < ROWS * t->heads * t->d; i++)
        y[i] *= layer_sigmoid(m[i]);
    layer_out(t, y, out);
}

DEFINE(titans_before)
{
    static double m[ROOM], y[ROOM];
    memory(t, 2, 1, m);
    window(t, m, 3, 0, y);
    layer_out(t, y, out);
}

static void memories_beside_and_before_attention(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "layer=titans(window=3, persistent=2, chunk=3, taps=2)",
                              .define = titans_gated,
                              .causal = true,
                              .tolerance = 1e-4});
    layer_check(&(layer_case){.spec = "layer=titans(kind=before, window=3, persistent=0, chunk=1, taps=2)",
                              .define = titans_before,
                              .causal = true,
                              .tolerance = 1e-4});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moving_averages_with_gates),
        cmocka_unit_test(linear_attention_that_fades_and_turns),
        cmocka_unit_test(memories_beside_and_before_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
