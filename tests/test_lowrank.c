/* Low-rank attention against its formulas, with the gradient of every parameter. */
#include "support/layer_check.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 4096 };
#define ROWS (LAYER_B * t->n)
#define DEFINE(name) static void name(const layer_text *t, double *out)

/* q, k and v of one head of one text: [n][d] */
typedef struct head {
    double q[256], k[256], v[256];
} head;

static double maps[3][ROOM], y[ROOM];

static void map_all(const layer_text *t)
{
    static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
    for (int p = 0; p < 3; p++)
        layer_mapped(t, names[p], t->heads * t->d, maps[p]);
}

static void take_head(const layer_text *t, int b, int h, head *to)
{
    double *const parts[] = {to->q, to->k, to->v};
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < t->n; i++)
            for (int c = 0; c < t->d; c++)
                parts[p][i * t->d + c] = maps[p][((b * t->n + i) * t->heads + h) * t->d + c];
}

static void put_head(const layer_text *t, int b, int h, const double *from)
{
    for (int i = 0; i < t->n; i++)
        for (int c = 0; c < t->d; c++)
            y[((b * t->n + i) * t->heads + h) * t->d + c] = from[i * t->d + c];
}

/* C [m][n] = A [m][k] B [k][n] */
static void multiply(const double *A, const double *B, int m, int k, int n, double *C)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            C[i * n + j] = 0;
            for (int c = 0; c < k; c++)
                C[i * n + j] += A[i * k + c] * B[c * n + j];
        }
}

/* softmax(A B^T / sqrt d): [m][n] */
static void weigh(const double *A, const double *B, int m, int n, int d, double *W)
{
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            W[i * n + j] = 0;
            for (int c = 0; c < d; c++)
                W[i * n + j] += A[i * d + c] * B[j * d + c] / sqrt(d);
        }
        layer_softmax(W + i * n, n);
    }
}

/* Each head of each text by one function. */
static void each_head(const layer_text *t,
                      void (*one)(const layer_text *t, int b, int h, const head *in, double *to), double *out)
{
    map_all(t);
    for (int b = 0; b < LAYER_B; b++)
        for (int h = 0; h < t->heads; h++) {
            static head in;
            static double made[256];
            take_head(t, b, h, &in);
            one(t, b, h, &in, made);
            put_head(t, b, h, made);
        }
    layer_out(t, y, out);
}

enum { K = 3 };

static void project(const layer_text *t, const double *E, const double *F, const head *in, double *to)
{
    double k[K * 16], v[K * 16], W[16 * K];
    multiply(E, in->k, K, t->n, t->d, k);
    multiply(F, in->v, K, t->n, t->d, v);
    weigh(in->q, k, t->n, K, t->d, W);
    multiply(W, v, t->n, K, t->d, to);
}

static void project_by_head(const layer_text *t, int b, int h, const head *in, double *to)
{
    (void)b;
    project(t, layer_value(t, "E") + h * K * t->n, layer_value(t, "F") + h * K * t->n, in, to);
}

static void project_by_layer(const layer_text *t, int b, int h, const head *in, double *to)
{
    (void)b, (void)h;
    project(t, layer_value(t, "E"), layer_value(t, "F"), in, to);
}

static void project_together(const layer_text *t, int b, int h, const head *in, double *to)
{
    (void)b, (void)h;
    project(t, layer_value(t, "E"), layer_value(t, "E"), in, to);
}

static void project_by_windows(const layer_text *t, int b, int h, const head *in, double *to)
{
    double E[K * 16] = {0};
    (void)b, (void)h;
    for (int i = 0; i < t->n; i++)
        E[i / (t->n / K) * t->n + i] = (double)K / t->n;
    project(t, E, E, in, to);
}

DEFINE(linformer_head)
{
    each_head(t, project_by_head, out);
}

DEFINE(linformer_headwise)
{
    each_head(t, project_by_layer, out);
}

DEFINE(linformer_kv)
{
    each_head(t, project_together, out);
}

DEFINE(linformer_mean)
{
    each_head(t, project_by_windows, out);
}

static void dense(const layer_text *t, int b, int h, const head *in, double *to)
{
    double W[256];
    (void)b, (void)h;
    weigh(in->q, in->k, t->n, t->n, t->d, W);
    multiply(W, in->v, t->n, t->n, t->d, to);
}

DEFINE(softmax_attention)
{
    each_head(t, dense, out);
}

/* Windows of one token are no projection: dense attention. */
static void texts_projected_to_a_few_rows(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "lowrank=linformer(k=3, share=head)", .define = linformer_head});
    layer_check(
        &(layer_case){.spec = "lowrank=linformer(k=3, share=headwise)", .define = linformer_headwise});
    layer_check(&(layer_case){.spec = "lowrank=linformer(k=3, share=kv)", .define = linformer_kv});
    layer_check(&(layer_case){.spec = "lowrank=linformer(k=3, projection=mean)", .define = linformer_mean});
    layer_check(
        &(layer_case){.spec = "lowrank=linformer(k=6, projection=mean)", .define = softmax_attention});
    assert_int_equal(layer_parameters(&(layer_case){.spec = "lowrank=linformer(k=3)"}), 4 * 64 + 3 * 6);
}

/* Rounds of the iteration, as it is written. */
static void nearly_invert(const double *A, int m, int rounds, double *Z)
{
    double sums[16] = {0}, most = 0, AZ[256], x[256], next[256];
    for (int i = 0; i < m * m; i++)
        sums[i % m] += A[i];
    for (int i = 0; i < m; i++)
        most = fmax(most, sums[i]);
    for (int i = 0; i < m * m; i++)
        Z[i] = A[i % m * m + i / m] / most;
    for (int r = 0; r < rounds; r++) {
        const double sizes[] = {7, 15, 13};
        multiply(A, Z, m, m, m, AZ);
        memcpy(x, AZ, sizeof x);
        for (int s = 0; s < 3; s++) {
            for (int i = 0; i < m * m; i++)
                x[i] = (i % m == i / m ? sizes[s] : 0) - x[i];
            multiply(s < 2 ? AZ : Z, x, m, m, m, next);
            memcpy(x, next, sizeof x);
        }
        for (int i = 0; i < m * m; i++)
            Z[i] = x[i] / 4;
    }
}

static void through_landmarks(const layer_text *t, const head *in, int m, int rounds, int taps, int h,
                              double *to)
{
    const int n = t->n, d = t->d, size = n / m;
    double q[64] = {0}, k[64] = {0}, F[256], A[256], B[256], Z[256], BV[256], ZBV[256];
    for (int i = 0; i < n * d; i++) {
        q[i / d / size * d + i % d] += in->q[i] / size;
        k[i / d / size * d + i % d] += in->k[i] / size;
    }
    weigh(in->q, k, n, m, d, F);
    weigh(q, k, m, m, d, A);
    weigh(q, in->k, m, n, d, B);
    nearly_invert(A, m, rounds, Z);
    multiply(B, in->v, m, n, d, BV);
    multiply(Z, BV, m, m, d, ZBV);
    multiply(F, ZBV, n, m, d, to);
    for (int i = 0; i < n * d; i++)
        for (int j = 0; j < taps; j++) {
            const int from = i / d + j - taps / 2;
            if (from >= 0 && from < n)
                to[i] += layer_value(t, "taps")[j * t->heads + h] * in->v[from * d + i % d];
        }
}

static void three_landmarks(const layer_text *t, int b, int h, const head *in, double *to)
{
    (void)b;
    through_landmarks(t, in, 3, 2, 3, h, to);
}

DEFINE(nystrom)
{
    each_head(t, three_landmarks, out);
}

/* With every token a landmark and rounds enough it is softmax attention; and the iteration finds the inverse.
 */
static void attention_through_landmarks(void **state)
{
    (void)state;
    layer_check(&(layer_case){
        .spec = "lowrank=nystrom(m=3, rounds=2, taps=3)", .define = nystrom, .tolerance = 2e-4});
    layer_check(&(layer_case){.spec = "lowrank=nystrom(m=6, rounds=30, taps=0)",
                              .define = softmax_attention,
                              .start = true,
                              .tolerance = 5e-3});
    double A[25], Z[25], AZ[25];
    test_random random = {6};
    for (int i = 0; i < 25; i++)
        A[i] = random_normal(&random) + (i % 6 == 0 ? 3 : 0);
    for (int i = 0; i < 5; i++)
        layer_softmax(A + 5 * i, 5);
    nearly_invert(A, 5, 30, Z);
    multiply(A, Z, 5, 5, 5, AZ);
    for (int i = 0; i < 25; i++)
        assert_float_equal(AZ[i], (i % 6 == 0), 1e-6);
}

static void summarise(const layer_text *t, const head *in, bool scaling, double *to)
{
    const int n = t->n, d = t->d;
    double W[16];
    memset(to, 0, 256 * sizeof *to);
    for (int i = 0; i < n; i++) {
        double sum = 0, q[16];
        memcpy(q, in->q + i * d, (size_t)d * sizeof *q);
        if (!scaling)
            layer_softmax(q, d);
        for (int j = 0; j < n; j++) {
            W[j] = 0; /* the weight of the pair, written out */
            for (int c = 0; c < d; c++) {
                double k[16];
                for (int s = 0; s < n; s++)
                    k[s] = in->k[s * d + c];
                if (!scaling)
                    layer_softmax(k, n);
                W[j] += q[c] * (scaling ? k[j] / n : k[j]);
            }
            sum += W[j];
            for (int e = 0; e < d; e++)
                to[i * d + e] += W[j] * in->v[j * d + e];
        }
        if (!scaling)
            assert_float_equal(sum, 1, 1e-9);
    }
}

static void summarise_softly(const layer_text *t, int b, int h, const head *in, double *to)
{
    (void)b, (void)h;
    summarise(t, in, false, to);
}

static void summarise_plainly(const layer_text *t, int b, int h, const head *in, double *to)
{
    (void)b, (void)h;
    summarise(t, in, true, to);
}

DEFINE(efficient)
{
    each_head(t, summarise_softly, out);
}

DEFINE(efficient_scaling)
{
    each_head(t, summarise_plainly, out);
}

static void summaries_of_channels(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "lowrank=efficient", .define = efficient});
    layer_check(&(layer_case){.spec = "lowrank=efficient(norm=scaling)", .define = efficient_scaling});
}

static void weigh_by_powers(const layer_text *t, const head *in, int p, double *to)
{
    const int n = t->n, d = t->d;
    double h[2][256];
    const double *const given[] = {in->q, in->k};
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < n; i++) {
            double mean = 0, squares = 0;
            for (int c = 0; c < d; c++)
                mean += given[s][i * d + c] / d;
            for (int c = 0; c < d; c++)
                squares += pow(given[s][i * d + c] - mean, 2) / d;
            for (int c = 0; c < d; c++)
                h[s][i * d + c] = (given[s][i * d + c] - mean) / sqrt(squares + 1e-10);
        }
    for (int i = 0; i < n; i++) {
        double all = 0, sum[16] = {0};
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int c = 0; c < d; c++)
                s += h[0][i * d + c] * h[1][j * d + c];
            const double w = 1 + s + (p == 2 ? s * s / 2 : 0);
            all += w;
            for (int c = 0; c < d; c++)
                sum[c] += w * in->v[j * d + c];
        }
        for (int c = 0; c < d; c++)
            to[i * d + c] = sum[c] / all;
    }
}

static void weigh_by_squares(const layer_text *t, int b, int h, const head *in, double *to)
{
    (void)b, (void)h;
    weigh_by_powers(t, in, 2, to);
}

static void weigh_by_lines(const layer_text *t, int b, int h, const head *in, double *to)
{
    (void)b, (void)h;
    weigh_by_powers(t, in, 1, to);
}

DEFINE(fast)
{
    each_head(t, weigh_by_squares, out);
}

DEFINE(fast_lines)
{
    each_head(t, weigh_by_lines, out);
}

static void moments_of_keys(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "lowrank=fast", .define = fast, .tolerance = 1e-4});
    layer_check(&(layer_case){.spec = "lowrank=fast(p=1)", .define = fast_lines, .tolerance = 1e-3});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_projected_to_a_few_rows),
        cmocka_unit_test(attention_through_landmarks),
        cmocka_unit_test(summaries_of_channels),
        cmocka_unit_test(moments_of_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
