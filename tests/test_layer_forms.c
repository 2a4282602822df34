/* Layers by a form against their formulas, with the gradient of every parameter. */
#include "support/layer_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 2048 };
#define DEFINE(name) static void name(const layer_text *t, double *out)
#define ROWS (LAYER_B * t->n)

/* Heads that share one map and have a vector each. */
static void embed_heads(const layer_text *t, bool mul, double *out)
{
    static double one[3][ROOM], all[3][ROOM], y[ROOM];
    static const char *const maps[] = {"q_proj", "k_proj", "v_proj"};
    static const char *const vectors[] = {"q_embedding", "k_embedding", "v_embedding"};
    const int wide = t->heads * t->d;
    for (int p = 0; p < 3; p++) {
        const double *e = layer_value(t, vectors[p]);
        layer_mapped(t, maps[p], t->d, one[p]);
        for (int i = 0; i < ROWS * wide; i++) {
            const double x = one[p][i / wide * t->d + i % t->d];
            all[p][i] = mul ? x * (1 + e[i % wide]) : x + e[i % wide];
        }
    }
    layer_attend(t, all[0], all[1], all[2], true, y);
    layer_out(t, y, out);
}

DEFINE(mhe_add)
{
    embed_heads(t, false, out);
}

DEFINE(mhe_mul)
{
    embed_heads(t, true, out);
}

/* Without embeddings all heads are the same; they cost 3 n d numbers. */
static void heads_by_embeddings(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "layer=mhe; where=causal", .define = mhe_add, .causal = true});
    layer_check(
        &(layer_case){.spec = "layer=mhe(kind=mul); where=causal", .define = mhe_mul, .causal = true});
    const int64_t one = 3 * 4 * 8 + 8 * 8, with = layer_parameters(&(layer_case){.spec = "layer=mhe"});
    assert_int_equal(with - one, 3 * 2 * 4);
}

static void gate_heads(const layer_text *t, int shared, int chosen, double *out)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM], always[ROOM], route[ROOM], level[ROOM];
    const int wide = t->heads * t->d, routed = t->heads - shared;
    layer_attend(t, layer_mapped(t, "q_proj", wide, q), layer_mapped(t, "k_proj", t->kv_heads * t->d, k),
                 layer_mapped(t, "v_proj", t->kv_heads * t->d, v), true, y);
    layer_mapped(t, "routed_proj", routed, route);
    if (shared) {
        layer_mapped(t, "shared_proj", shared, always);
        layer_mapped(t, "level_proj", 2, level);
    }
    for (int r = 0; r < ROWS; r++) {
        double g[8], kept = 0, *way = route + r * routed;
        bool is_kept[8];
        layer_softmax(way, routed);
        for (int i = 0; i < routed; i++) {
            int above = 0;
            for (int j = 0; j < routed; j++)
                above += way[j] > way[i];
            is_kept[i] = above < chosen;
            kept += is_kept[i] ? way[i] : 0;
        }
        if (shared) {
            layer_softmax(always + r * shared, shared);
            layer_softmax(level + r * 2, 2);
        }
        for (int h = 0; h < shared; h++)
            g[h] = 2 * level[r * 2] * shared * always[r * shared + h];
        for (int i = 0; i < routed; i++)
            g[shared + i] = is_kept[i] ? (shared ? 2 * level[r * 2 + 1] : 1) * chosen * way[i] / kept : 0;
        for (int i = 0; i < wide; i++)
            y[r * wide + i] *= g[i / t->d];
    }
    layer_out(t, y, out);
}

DEFINE(moh_shared)
{
    gate_heads(t, 1, 2, out);
}

DEFINE(moh_all)
{
    gate_heads(t, 0, 2, out);
}

DEFINE(plain)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    const int wide = t->heads * t->d, narrow = t->kv_heads * t->d;
    layer_attend(t, layer_mapped(t, "q_proj", wide, q), layer_mapped(t, "k_proj", narrow, k),
                 layer_mapped(t, "v_proj", narrow, v), true, y);
    layer_out(t, y, out);
}

static void heads_that_tokens_choose(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "layer=moh(shared=1, chosen=2); where=causal",
                              .define = moh_shared,
                              .causal = true,
                              .heads = 4,
                              .kv_heads = 2});
    layer_check(&(layer_case){.spec = "layer=moh(shared=0, chosen=2); where=causal", .define = moh_all});
    layer_check(&(layer_case){.spec = "where=causal", .define = plain, .heads = 4, .kv_heads = 2});
}

DEFINE(castle)
{
    static const char *const names[] = {"q_proj",       "k_proj",       "v_proj",
                                        "ahead_q_proj", "ahead_k_proj", "ahead_v_proj"};
    static double m[6][ROOM], y[ROOM];
    const int n = t->n, d = t->d, wide = t->heads * d;
    for (int p = 0; p < 6; p++)
        layer_mapped(t, names[p], wide, m[p]);
    for (int b = 0; b < LAYER_B; b++)
        for (int h = 0; h < t->heads; h++)
            for (int i = 0; i < n; i++) {
                double w[16];
                const double *q = m[0] + (b * n + i) * wide + h * d;
                for (int s = 0; s <= i; s++) {
                    const double *k = m[1] + (b * n + s) * wide + h * d;
                    double u[16] = {0}, score = 0, ahead = 0; /* the lookahead key of s at time i */
                    for (int j = s + 1; j <= i; j++) {
                        double look = 0;
                        for (int c = 0; c < d; c++)
                            look += m[3][(b * n + s) * wide + h * d + c] *
                                    m[4][(b * n + j) * wide + h * d + c] / sqrt(d);
                        for (int c = 0; c < d; c++)
                            u[c] += layer_sigmoid(look) * m[5][(b * n + j) * wide + h * d + c];
                    }
                    for (int c = 0; c < d; c++) {
                        score += q[c] * k[c] / sqrt(d);
                        ahead += q[c] * u[c] / sqrt(d);
                    }
                    w[s] = score - ahead * layer_sigmoid(ahead);
                }
                layer_softmax(w, i + 1);
                for (int c = 0; c < d; c++) {
                    double *to = &y[(b * n + i) * wide + h * d + c];
                    *to = 0;
                    for (int s = 0; s <= i; s++)
                        *to += w[s] * m[2][(b * n + s) * wide + h * d + c];
                }
            }
    layer_out(t, y, out);
}

static void keys_that_look_ahead(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "layer=castle", .define = castle, .causal = true});
}

static void cross_heads(const layer_text *t, bool causal, bool relu, int maps, double *out)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    const double *inner = layer_value(t, "inner"), *across = layer_value(t, "across");
    const int n = t->n, d = t->d, H = t->heads, wide = H * d;
    layer_mapped(t, "q_proj", wide, q);
    layer_mapped(t, "k_proj", wide, k);
    layer_mapped(t, "v_proj", wide, v);
    for (int b = 0; b < LAYER_B; b++)
        for (int i = 0; i < n; i++)
            for (int z = 0; z < H; z++) {
                const int seen = causal ? i + 1 : n;
                double w[16];
                for (int s = 0; s < seen; s++) {
                    w[s] = 0;
                    for (int a = 0; a < H; a++)
                        for (int m = 0; m < maps; m++) {
                            double x = 0;
                            for (int j = 0; j < H; j++) {
                                double score = 0;
                                for (int c = 0; c < d; c++)
                                    score += q[(b * n + i) * wide + a * d + c] *
                                             k[(b * n + s) * wide + j * d + c] / sqrt(d);
                                x += inner[(a * maps + m) * H + j] * score;
                            }
                            x = relu && x < 0 ? 0 : x;
                            w[s] += across[z * H * maps + a * maps + m] * x;
                        }
                }
                layer_softmax(w, seen);
                for (int c = 0; c < d; c++) {
                    double *to = &y[(b * n + i) * wide + z * d + c];
                    *to = 0;
                    for (int s = 0; s < seen; s++)
                        *to += w[s] * v[(b * n + s) * wide + z * d + c];
                }
            }
    layer_out(t, y, out);
}

DEFINE(emha)
{
    cross_heads(t, true, true, 2, out);
}

DEFINE(emha_both_ways)
{
    cross_heads(t, false, false, 3, out);
}

static void heads_that_meet_all_heads(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "layer=emha", .define = emha, .causal = true, .tolerance = 1e-4});
    layer_check(&(layer_case){
        .spec = "layer=emha(causal=no, maps=3, relu=no)", .define = emha_both_ways, .tolerance = 1e-4});
}

static void fewer_maps(const layer_text *t, int kind, bool causal, double *out)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    const int n = t->n, width = t->width;
    layer_mapped(t, "q_proj", width, q);
    if (kind == 0)
        layer_mapped(t, "k_proj", width, k);
    if (kind == 2) {
        const double *W = layer_value(t, "align");
        memset(v, 0, sizeof v);
        for (int r = 0; r < ROWS; r++)
            for (int j = 0; j < (causal ? r % n + 1 : n); j++)
                for (int c = 0; c < width; c++)
                    v[r * width + c] += W[r % n * n + j] * t->x[(r / n * n + j) * width + c];
    }
    layer_attend(t, q, kind ? t->x : k, kind == 2 ? v : t->x, causal, y);
    layer_out(t, y, out);
}

DEFINE(optimised)
{
    fewer_maps(t, 0, true, out);
}

DEFINE(efficient)
{
    fewer_maps(t, 1, false, out);
}

DEFINE(super_causal)
{
    fewer_maps(t, 2, true, out);
}

DEFINE(super_both_ways)
{
    fewer_maps(t, 2, false, out);
}

/* Super begins as efficient; the maps that are left out are a quarter and a half of the numbers. */
static void attention_with_fewer_maps(void **state)
{
    (void)state;
    const layer_case efficient_case = {.spec = "layer=optimised(kind=efficient, causal=no)",
                                       .define = efficient};
    layer_check(&(layer_case){.spec = "layer=optimised", .define = optimised, .causal = true});
    layer_check(&efficient_case);
    layer_check(&(layer_case){.spec = "layer=optimised(kind=super)", .define = super_causal, .causal = true});
    layer_check(&(layer_case){.spec = "layer=optimised(kind=super, causal=no)", .define = super_both_ways});
    layer_check(
        &(layer_case){.spec = "layer=optimised(kind=super, causal=no)", .define = efficient, .start = true});
    assert_int_equal(layer_parameters(&(layer_case){.spec = "layer=optimised"}), 3 * 64);
    assert_int_equal(layer_parameters(&efficient_case), 2 * 64);
    assert_int_equal(layer_parameters(&(layer_case){.spec = "where=causal"}), 4 * 64);
}

static void scale_rows(const layer_text *t, double *rows, int heads, const double *u, const double *a)
{
    const int wide = heads * t->d;
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < heads; h++) {
            double *x = rows + r * wide + h * t->d, content = 0;
            for (int c = 0; c < t->d; c++)
                content += u[h * t->d + c] * 0.5 * x[c] * (1 + erf(x[c] / sqrt(2)));
            const double tau = tanh(content) + 1 + layer_sigmoid(a[h]) * log(r % t->n + 1);
            for (int c = 0; c < t->d; c++)
                x[c] *= tau;
        }
}

DEFINE(ssa)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    const int wide = t->heads * t->d, narrow = t->kv_heads * t->d;
    layer_mapped(t, "q_proj", wide, q);
    layer_mapped(t, "k_proj", narrow, k);
    layer_mapped(t, "v_proj", narrow, v);
    scale_rows(t, q, t->heads, layer_value(t, "query_vector"), layer_value(t, "query_place"));
    scale_rows(t, v, t->kv_heads, layer_value(t, "value_vector"), layer_value(t, "value_place"));
    layer_attend(t, q, k, v, true, y);
    layer_out(t, y, out);
}

/* With u = 0 and a far below 0 it is attention. */
static void rows_that_choose_their_temperature(void **state)
{
    (void)state;
    layer_check(&(layer_case){
        .spec = "layer=ssa; where=causal", .define = ssa, .causal = true, .heads = 4, .kv_heads = 2});
    layer_check(&(layer_case){.spec = "layer=ssa(start=-100); where=causal", .define = plain, .start = true});
}

/* A window over the pairs of a head, later pairs 0: [n][n] */
static void slide(const double *W, int rows, int cols, int n, const double *x, double *y)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            y[i * n + j] = 0;
            for (int a = 0; a < rows; a++)
                for (int b = 0; b < cols; b++) {
                    const int r = i - a, c = j - (b - cols / 2);
                    if (r >= 0 && c >= 0 && c <= r)
                        y[i * n + j] += W[a * cols + b] * x[r * n + c];
                }
        }
}

static void many_tokens(const layer_text *t, bool after, int group, bool finish, double *out)
{
    enum { CQ = 2, CK = 3 };
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM], w[8][256], x[256];
    const int n = t->n, d = t->d, H = t->heads, wide = H * d;
    layer_mapped(t, "q_proj", wide, q);
    layer_mapped(t, "k_proj", wide, k);
    layer_mapped(t, "v_proj", wide, v);
    for (int b = 0; b < LAYER_B; b++) {
        for (int h = 0; h < H; h++) {
            for (int i = 0; i < n * n; i++) {
                x[i] = 0;
                for (int c = 0; c < d; c++)
                    x[i] += q[(b * n + i / n) * wide + h * d + c] * k[(b * n + i % n) * wide + h * d + c] /
                            sqrt(d);
            }
            slide(layer_value(t, "window") + h * CQ * CK, CQ, CK, n, x, w[h]);
            for (int i = 0; i < n; i++) {
                layer_softmax(w[h] + i * n, i + 1);
                for (int j = i + 1; j < n; j++)
                    w[h][i * n + j] = 0;
            }
            if (after) {
                slide(layer_value(t, "window_after") + h * CQ * CK, CQ, CK, n, w[h], x);
                for (int i = 0; i < n * n; i++)
                    w[h][i] = i % n > i / n ? 0 : x[i];
            }
        }
        for (int h = 0; h < H; h++)
            for (int i = 0; i < n; i++) {
                double o[16] = {0}, squares = 0, open = 0;
                for (int g = group ? h / group * group : h; g < (group ? h / group * group + group : h + 1);
                     g++)
                    for (int j = 0; j < n; j++)
                        for (int c = 0; c < d; c++)
                            o[c] += (group ? layer_value(t, "mix")[h * group + g % group] : 1) *
                                    w[g][i * n + j] * v[(b * n + j) * wide + h * d + c];
                for (int c = 0; c < d; c++)
                    squares += o[c] * o[c] / d;
                for (int c = 0; finish && c < d; c++) {
                    o[c] *= layer_value(t, "norm")[c] / sqrt(squares + 1e-5);
                    open += o[c] * layer_value(t, "gate")[c];
                }
                for (int c = 0; c < d; c++)
                    y[(b * n + i) * wide + h * d + c] =
                        o[c] * (finish ? layer_sigmoid(open + layer_value(t, "gate_bias")[0]) : 1);
            }
    }
    layer_out(t, y, out);
}

DEFINE(mta)
{
    many_tokens(t, true, 2, true, out);
}

DEFINE(mta_plain)
{
    many_tokens(t, false, 0, false, out);
}

static void neighbours_that_decide_together(void **state)
{
    (void)state;
    layer_check(&(layer_case){
        .spec = "layer=mta(queries=2, keys=3, group=2)", .define = mta, .causal = true, .tolerance = 1e-4});
    layer_check(&(layer_case){.spec = "layer=mta(queries=2, keys=3, after=no, norm=no, gate=no)",
                              .define = mta_plain,
                              .causal = true,
                              .tolerance = 1e-4});
    layer_check(&(layer_case){
        .spec = "layer=mta(group=2, norm=no, gate=no)", .define = plain, .start = true, .tolerance = 1e-5});
}

static void relate(const layer_text *t, int max, bool causal, double *out)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    const double *aK = layer_value(t, "key_offsets"), *aV = layer_value(t, "value_offsets");
    const int n = t->n, d = t->d, wide = t->heads * d;
    layer_mapped(t, "q_proj", wide, q);
    layer_mapped(t, "k_proj", wide, k);
    layer_mapped(t, "v_proj", wide, v);
    for (int b = 0; b < LAYER_B; b++)
        for (int h = 0; h < t->heads; h++)
            for (int i = 0; i < n; i++) {
                const int seen = causal ? i + 1 : n;
                double w[16];
                for (int j = 0; j < seen; j++) {
                    const int o = (j - i < -max ? -max : j - i > max ? max : j - i) + max;
                    w[j] = 0;
                    for (int c = 0; c < d; c++)
                        w[j] += q[(b * n + i) * wide + h * d + c] *
                                (k[(b * n + j) * wide + h * d + c] + aK[o * d + c]) / sqrt(d);
                }
                layer_softmax(w, seen);
                for (int c = 0; c < d; c++) {
                    double *to = &y[(b * n + i) * wide + h * d + c];
                    *to = 0;
                    for (int j = 0; j < seen; j++) {
                        const int o = (j - i < -max ? -max : j - i > max ? max : j - i) + max;
                        *to += w[j] * (v[(b * n + j) * wide + h * d + c] + aV[o * d + c]);
                    }
                }
            }
    layer_out(t, y, out);
}

DEFINE(relations)
{
    relate(t, 2, true, out);
}

DEFINE(relations_both_ways)
{
    relate(t, 16, false, out);
}

static void vectors_of_offsets(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "layer=relations(max=2)", .define = relations, .causal = true});
    layer_check(&(layer_case){.spec = "layer=relations(causal=no)", .define = relations_both_ways});
}

DEFINE(no_mixing)
{
    static double gate[ROOM], up[ROOM];
    const int hidden = (4 * t->width + 2) / 3;
    layer_mapped(t, "gate_proj", hidden, gate);
    layer_mapped(t, "up_proj", hidden, up);
    for (int i = 0; i < ROWS * hidden; i++)
        up[i] *= gate[i] * layer_sigmoid(gate[i]);
    layer_map(layer_value(t, "o_proj.weight"), up, ROWS, hidden, t->width, out);
}

/* As two running sums. */
DEFINE(scores_of_keys)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    const int n = t->n, d = t->d, wide = t->heads * d;
    layer_mapped(t, "q_proj", wide, q);
    layer_mapped(t, "k_proj", wide, k);
    layer_mapped(t, "v_proj", wide, v);
    for (int b = 0; b < LAYER_B; b++)
        for (int h = 0; h < t->heads; h++) {
            double above[16] = {0}, below = 0;
            for (int i = 0; i < n; i++) {
                const int at = (b * n + i) * wide + h * d;
                double s = 0;
                for (int c = 0; c < d; c++)
                    s += q[at + c] * layer_sigmoid(q[at + c]) * k[at + c] / sqrt(d);
                below += exp(s);
                for (int c = 0; c < d; c++) {
                    above[c] += exp(s) * v[at + c];
                    y[at + c] = above[c] / below;
                }
            }
        }
    layer_out(t, y, out);
}

/* The places of the frozen vectors in place of x for queries and keys. */
DEFINE(fixed_map)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    const int wide = t->heads * t->d, size = t->n * wide;
    layer_map(layer_value(t, "q_proj.weight"), layer_value(t, "places"), t->n, t->width, wide, q);
    layer_map(layer_value(t, "k_proj.weight"), layer_value(t, "places"), t->n, t->width, wide, k);
    memcpy(q + size, q, (size_t)size * sizeof *q);
    memcpy(k + size, k, (size_t)size * sizeof *k);
    layer_mapped(t, "v_proj", wide, v);
    layer_attend(t, q, k, v, true, y);
    layer_out(t, y, out);
}

static void attention_with_a_principle_relaxed(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "layer=relaxed(kind=mlp)", .define = no_mixing, .causal = true});
    layer_check(&(layer_case){.spec = "layer=relaxed", .define = scores_of_keys, .causal = true});
    layer_check(&(layer_case){.spec = "layer=relaxed(kind=random)", .define = fixed_map, .causal = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_by_embeddings),
        cmocka_unit_test(heads_that_tokens_choose),
        cmocka_unit_test(keys_that_look_ahead),
        cmocka_unit_test(heads_that_meet_all_heads),
        cmocka_unit_test(attention_with_fewer_maps),
        cmocka_unit_test(rows_that_choose_their_temperature),
        cmocka_unit_test(neighbours_that_decide_together),
        cmocka_unit_test(vectors_of_offsets),
        cmocka_unit_test(attention_with_a_principle_relaxed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
