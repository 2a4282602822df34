/* Layers that keep little of a text, or look into others, against their formulas. */
#include "support/layer_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 4096 };
#define DEFINE(name) static void name(const layer_text *t, double *out)

/* q, k, v [B][n][heads d] */
static void map_all(const layer_text *t, double *q, double *k, double *v)
{
    const int wide = t->heads * t->d;
    layer_mapped(t, "q_proj", wide, q);
    layer_mapped(t, "k_proj", wide, k);
    layer_mapped(t, "v_proj", wide, v);
}

static double *row(const layer_text *t, double *x, int b, int i, int h)
{
    return x + ((b * t->n + i) * t->heads + h) * t->d;
}

static double dot(const double *a, const double *b, int d)
{
    double sum = 0;
    for (int c = 0; c < d; c++)
        sum += a[c] * b[c];
    return sum / sqrt(d);
}

static void rope(const layer_text *t, double *x)
{
    for (int i = 0; i < LAYER_B * t->n * t->heads; i++)
        for (int c = 0; c < t->d / 2; c++) {
            const double angle = (double)(i / t->heads % t->n) * pow(10000, -2.0 * c / t->d);
            double *pair = x + i * t->d + c;
            const double a = pair[0], b = pair[t->d / 2];
            pair[0] = a * cos(angle) - b * sin(angle);
            pair[t->d / 2] = b * cos(angle) + a * sin(angle);
        }
}

/* ---- focused ---- */

/* Tokens from `before` on see the first `before` of 1 + others texts, the k best of them. */
static void focus(const layer_text *t, int before, int others, int k, double *out)
{
    static double q[ROOM], key[ROOM], v[ROOM], y[ROOM];
    map_all(t, q, key, v);
    for (int r = 0; r < LAYER_B * t->n * t->heads; r++) {
        const int b = r / (t->n * t->heads), i = r / t->heads % t->n, h = r % t->heads;
        double w[64];
        const double *value[64];
        int count = 0;
        for (int o = 0; o <= (i < before ? 0 : others); o++)
            for (int j = 0; j < before && (i >= before || j <= i); j++) {
                w[count] = dot(row(t, q, b, i, h), row(t, key, (b + o) % LAYER_B, j, h), t->d);
                value[count++] = row(t, v, (b + o) % LAYER_B, j, h);
            }
        for (int e = 0, all = count; k && i >= before && e < all; e++) {
            int above = 0;
            for (int j = 0; j < all; j++)
                above += dot(row(t, q, b, i, h), row(t, key, (b + j / before) % LAYER_B, j % before, h),
                             t->d) > w[e];
            w[e] = above < k ? w[e] : -INFINITY;
        }
        for (int j = before; j <= i; j++) {
            w[count] = dot(row(t, q, b, i, h), row(t, key, b, j, h), t->d);
            value[count++] = row(t, v, b, j, h);
        }
        layer_softmax(w, count);
        for (int c = 0; c < t->d; c++) {
            y[r * t->d + c] = 0;
            for (int e = 0; e < count; e++)
                y[r * t->d + c] += w[e] * value[e][c];
        }
    }
    layer_out(t, y, out);
}

DEFINE(focused_alone)
{
    focus(t, 3, 0, 0, out);
}

DEFINE(focused_with_another)
{
    focus(t, 3, 1, 0, out);
}

DEFINE(focused_short)
{
    focus(t, 4, 1, 2, out);
}

DEFINE(plain)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    map_all(t, q, k, v);
    layer_attend(t, q, k, v, true, y);
    layer_out(t, y, out);
}

/* Alone it is attention to everything before; the gradients checked are also those of the other text's keys.
 */
static void texts_are_each_others_distractors(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "layer=focused", .define = focused_alone, .causal = true});
    layer_check(&(layer_case){.spec = "layer=focused", .define = plain, .causal = true});
    layer_check(&(layer_case){.spec = "layer=focused(others=1)", .define = focused_with_another});
    layer_check(&(layer_case){.spec = "layer=focused(others=1, k=6)", .define = focused_with_another});
    layer_check(&(layer_case){.spec = "layer=focused(others=1, local=2, k=2)", .define = focused_short});
}

/* ---- lococo ---- */

typedef struct entry {
    double key[8], value[8], mass;
} entry;

static bool is_best(const entry *all, int count, int i, int best, int recent)
{
    int above = 0;
    for (int j = 0; j < count; j++) {
        const double a = all[j].mass + (j >= count - recent ? 1e6 : 0),
                     b = all[i].mass + (i >= count - recent ? 1e6 : 0);
        above += a > b || (a == b && j < i);
    }
    return above < best;
}

static int compress(const layer_text *t, entry *all, int count, int slots, int keep, int recent, int taps,
                    double g)
{
    entry kept[64], rest[64];
    const int m = slots - keep, d = t->d;
    int n = 0, s = 0;
    for (int i = 0; i < count; i++)
        if (is_best(all, count, i, keep, recent))
            kept[n++] = all[i];
        else
            rest[s++] = all[i];
    const double *weight = layer_value(t, "taps");
    int chosen = 0;
    for (int r = 0; r < m; r++) {
        double w[64];
        while (!is_best(rest, s, chosen, m, 0))
            chosen++;
        for (int j = 0; j < s; j++) {
            w[j] = 0;
            for (int tap = 0; tap < taps; tap++) {
                const int from = j + tap - (taps - 1) / 2;
                for (int c = 0; from >= 0 && from < s && c < 2 * d; c++)
                    w[j] += weight[(tap * m + r) * 2 * d + c] *
                            (c < d ? rest[from].key[c] : rest[from].value[c - d]);
            }
            w[j] = w[j] > 0 ? w[j] : 0;
        }
        layer_softmax(w, s);
        entry new = {.mass = (1 - g) * rest[chosen].mass};
        for (int c = 0; c < d; c++) {
            new.key[c] = (1 - g) * rest[chosen].key[c];
            new.value[c] = (1 - g) * rest[chosen].value[c];
        }
        double sum = 1 - g;
        for (int j = 0; j < s; j++) {
            sum += g * w[j];
            new.mass += g *w[j] * rest[j].mass;
            for (int c = 0; c < d; c++) {
                new.key[c] += g *w[j] * rest[j].key[c];
                new.value[c] += g *w[j] * rest[j].value[c];
            }
        }
        assert_true(fabs(sum - 1) < 1e-12);
        kept[n++] = new;
        chosen++;
    }
    memcpy(all, kept, (size_t)n * sizeof *all);
    return n;
}

typedef struct memory_shape {
    int slots, block, keep, recent, taps;
} memory_shape;

static void remember(const layer_text *t, const memory_shape *m, double g, double *out)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    map_all(t, q, k, v);
    rope(t, q);
    rope(t, k);
    for (int r = 0; r < LAYER_B * t->heads; r++) {
        const int b = r / t->heads, h = r % t->heads;
        entry all[64];
        int held = 0;
        for (int at = 0; at < t->n; at += m->block) {
            const int end = at + m->block < t->n ? at + m->block : t->n;
            for (int i = at; i < end; i++) {
                entry *new = &all[held + i - at];
                memcpy(new->key, row(t, k, b, i, h), (size_t)t->d * sizeof(double));
                memcpy(new->value, row(t, v, b, i, h), (size_t)t->d * sizeof(double));
                new->mass = 0;
            }
            for (int i = at; i < end; i++) {
                const int seen = held + i - at + 1;
                double w[64];
                for (int j = 0; j < seen; j++)
                    w[j] = dot(row(t, q, b, i, h), all[j].key, t->d);
                layer_softmax(w, seen);
                for (int c = 0; c < t->d; c++) {
                    double *to = row(t, y, b, i, h) + c;
                    *to = 0;
                    for (int j = 0; j < seen; j++)
                        *to += w[j] * all[j].value[c];
                }
                for (int j = 0; j < seen; j++)
                    all[j].mass += w[j];
            }
            held += end - at;
            if (held > m->slots)
                held = compress(t, all, held, m->slots, m->keep, m->recent, m->taps, g);
            assert_true(held <= m->slots);
        }
    }
    layer_out(t, y, out);
}

DEFINE(mixing)
{
    remember(t, &(memory_shape){4, 3, 2, 0, 3}, layer_value(t, "mix")[0], out);
}

DEFINE(mixing_half)
{
    remember(t, &(memory_shape){6, 4, 3, 1, 5}, 0.5, out);
}

DEFINE(evicting)
{
    remember(t, &(memory_shape){4, 3, 2, 0, 3}, 0, out);
}

/* Heavy hitters: those `slots` that received most stay, and nothing else. */
DEFINE(heavy_hitters)
{
    remember(t, &(memory_shape){4, 3, 4, 0, 3}, 0, out);
}

DEFINE(roped)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    map_all(t, q, k, v);
    rope(t, q);
    rope(t, k);
    layer_attend(t, q, k, v, true, y);
    layer_out(t, y, out);
}

/* With slots for all tokens it is attention; with g = 0 the slots hold the heaviest keys. */
static void what_no_longer_fits_is_mixed_into_slots(void **state)
{
    (void)state;
    layer_check(&(layer_case){
        .spec = "layer=lococo(slots=4, block=3, taps=3)", .define = mixing, .causal = true, .n = 12});
    layer_check(&(layer_case){.spec = "layer=lococo(slots=6, block=4, taps=5, recent=1, learn=no)",
                              .define = mixing_half,
                              .causal = true,
                              .n = 11});
    layer_check(&(layer_case){.spec = "layer=lococo(slots=4, block=3, taps=3, start=0, learn=no)",
                              .define = evicting,
                              .causal = true,
                              .n = 12});
    layer_check(&(layer_case){.spec = "layer=lococo(slots=4, block=3, taps=3, start=0, learn=no)",
                              .define = heavy_hitters,
                              .causal = true,
                              .n = 12});
    layer_check(
        &(layer_case){.spec = "layer=lococo(slots=16, block=5)", .define = roped, .causal = true, .n = 12});
}

/* ---- adore ---- */

enum { G = 3 };

/* s [B][n] */
static void control(const layer_text *t, double *s)
{
    static double x[ROOM];
    const double *gates = layer_value(t, "gru_gates"), *last = layer_value(t, "gru_candidate"),
                 *place = layer_value(t, "place");
    layer_mapped(t, "gru_proj", 3 * G, x);
    for (int b = 0; b < LAYER_B; b++) {
        double h[G] = {0};
        for (int i = 0; i < t->n; i++) {
            const double *in = x + (b * t->n + i) * 3 * G;
            double update[G], reset[G], next[G], middle[G];
            for (int c = 0; c < G; c++) {
                double u = in[c], r = in[G + c];
                for (int e = 0; e < G; e++) {
                    u += gates[c * G + e] * h[e];
                    r += gates[(G + c) * G + e] * h[e];
                }
                update[c] = layer_sigmoid(u);
                reset[c] = layer_sigmoid(r);
            }
            for (int c = 0; c < G; c++) {
                double y = in[2 * G + c];
                for (int e = 0; e < G; e++)
                    y += last[c * G + e] * reset[e] * h[e];
                next[c] = tanh(y);
            }
            for (int c = 0; c < G; c++)
                h[c] = (1 - update[c]) * h[c] + update[c] * next[c];
            layer_map(layer_value(t, "score_proj.weight"), h, 1, G, G, middle);
            for (int c = 0; c < G; c++) {
                const double y = middle[c] + place[c] * i / t->n;
                middle[c] = y * layer_sigmoid(y);
            }
            layer_map(layer_value(t, "score.weight"), middle, 1, G, 1, s + b * t->n + i);
        }
    }
}

/* One token after the other: the new one comes in, the lowest goes out when there are more than `slots`, and
 * the best `rebuilt` of those that went are read beside. */
static void release(const layer_text *t, int slots, int rebuilt, double *out)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM], s[ROOM];
    map_all(t, q, k, v);
    rope(t, q);
    rope(t, k);
    control(t, s);
    for (int b = 0; b < LAYER_B; b++) {
        bool kept[32] = {false};
        for (int i = 0; i < t->n; i++) {
            bool seen[32];
            int count = 0, lowest = i;
            memcpy(seen, kept, sizeof seen);
            for (int r = 0; r < rebuilt; r++) {
                int best = -1;
                for (int j = 0; j < i; j++)
                    if (!seen[j] && (best < 0 || s[b * t->n + j] > s[b * t->n + best]))
                        best = j;
                if (best >= 0)
                    seen[best] = true;
            }
            seen[i] = true;
            for (int h = 0; h < t->heads; h++) {
                double w[32];
                for (int j = 0; j <= i; j++)
                    w[j] = seen[j] ? dot(row(t, q, b, i, h), row(t, k, b, j, h), t->d) : -INFINITY;
                layer_softmax(w, i + 1);
                for (int c = 0; c < t->d; c++) {
                    double *to = row(t, y, b, i, h) + c;
                    *to = 0;
                    for (int j = 0; j <= i; j++)
                        *to += w[j] * row(t, v, b, j, h)[c];
                }
            }
            kept[i] = true;
            for (int j = 0; j <= i; j++) {
                count += kept[j];
                if (kept[j] && s[b * t->n + j] < s[b * t->n + lowest])
                    lowest = j;
            }
            kept[lowest] = count <= slots;
            assert_true(count <= slots + 1);
        }
    }
    layer_out(t, y, out);
}

DEFINE(released)
{
    release(t, 4, 0, out);
}

DEFINE(released_and_rebuilt)
{
    release(t, 3, 2, out);
}

static void a_controller_chooses_what_stays(void **state)
{
    (void)state;
    layer_check(&(layer_case){
        .spec = "layer=adore(slots=4, rebuilt=0, gru=3)", .define = released, .causal = true, .n = 12});
    layer_check(&(layer_case){.spec = "layer=adore(slots=3, rebuilt=2, gru=3)",
                              .define = released_and_rebuilt,
                              .causal = true,
                              .n = 20});
    layer_check(&(layer_case){.spec = "layer=adore(slots=12)", .define = roped, .causal = true, .n = 12});
    layer_check(&(layer_case){
        .spec = "layer=adore(slots=2, rebuilt=10, gru=3)", .define = roped, .causal = true, .n = 12});
}

/* ---- matryoshka ---- */

enum { D = 8 };

/* U [d][d] = (I - S)(I + S)^-1, S = A - A^T: the inverse by elimination. */
static void cayley(const double *a, int d, double *u)
{
    double s[D][D], left[D][2 * D];
    for (int i = 0; i < d; i++)
        for (int j = 0; j < d; j++) {
            s[i][j] = a[i * d + j] - a[j * d + i];
            left[i][j] = (i == j) + s[i][j];
            left[i][d + j] = i == j;
        }
    for (int p = 0; p < d; p++) {
        const double by = left[p][p];
        for (int j = 0; j < 2 * d; j++)
            left[p][j] /= by;
        for (int i = 0; i < d; i++) {
            const double times = i == p ? 0 : left[i][p];
            for (int j = 0; j < 2 * d; j++)
                left[i][j] -= times * left[p][j];
        }
    }
    for (int i = 0; i < d; i++)
        for (int j = 0; j < d; j++) {
            u[i * d + j] = left[i][d + j];
            for (int e = 0; e < d; e++)
                u[i * d + j] -= s[i][e] * left[e][d + j];
        }
    for (int i = 0; i < d; i++)
        for (int j = 0; j < d; j++) {
            double sum = 0;
            for (int e = 0; e < d; e++)
                sum += u[e * d + i] * u[e * d + j];
            assert_true(fabs(sum - (i == j)) < 1e-12);
        }
}

/* x [B][n][heads d], those of `group` heads by one basis: what is left of it in the first r columns. */
static void project(const layer_text *t, const char *name, int heads, int group, int r, double *x)
{
    const int d = t->d;
    for (int i = 0; i < LAYER_B * t->n * heads; i++) {
        double u[D * D], in[D], *row_of = x + i * d;
        cayley(layer_value(t, name) + i % heads / group * d * d, d, u);
        memcpy(in, row_of, (size_t)d * sizeof *in);
        memset(row_of, 0, (size_t)d * sizeof *in);
        for (int c = 0; c < r; c++) {
            double share = 0;
            for (int e = 0; e < d; e++)
                share += in[e] * u[e * d + c];
            for (int e = 0; e < d; e++)
                row_of[e] += share * u[e * d + c];
        }
    }
}

static void rope_heads(const layer_text *t, int heads, double *x)
{
    layer_text other = *t;
    other.heads = heads;
    rope(&other, x);
}

/* q U (k U)^T = q (k U U^T)^T, and the same of values: what is kept of each row, in its own directions. */
static void compressed(const layer_text *t, int keys, int values, double *out)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    layer_mapped(t, "q_proj", t->heads * t->d, q);
    layer_mapped(t, "k_proj", t->kv_heads * t->d, k);
    layer_mapped(t, "v_proj", t->kv_heads * t->d, v);
    rope_heads(t, t->heads, q);
    rope_heads(t, t->kv_heads, k);
    project(t, "key_basis", t->kv_heads, 1, keys, k);
    project(t, "value_basis", t->kv_heads, 1, values, v);
    layer_attend(t, q, k, v, true, y);
    layer_out(t, y, out);
}

DEFINE(whole)
{
    compressed(t, t->d, t->d, out);
}

DEFINE(half_of_keys)
{
    compressed(t, t->d / 2, t->d, out);
}

DEFINE(few)
{
    compressed(t, 1, 3, out);
}

DEFINE(roped_groups)
{
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM];
    layer_mapped(t, "q_proj", t->heads * t->d, q);
    layer_mapped(t, "k_proj", t->kv_heads * t->d, k);
    layer_mapped(t, "v_proj", t->kv_heads * t->d, v);
    rope_heads(t, t->heads, q);
    rope_heads(t, t->kv_heads, k);
    layer_attend(t, q, k, v, true, y);
    layer_out(t, y, out);
}

/* All columns of any basis are attention as it is. */
static void bases_whose_first_columns_are_kept(void **state)
{
    (void)state;
    layer_check(&(layer_case){
        .spec = "layer=matryoshka(keys=1, values=1)", .define = whole, .causal = true, .tolerance = 1e-4});
    layer_check(&(layer_case){.spec = "layer=matryoshka(keys=1, values=1)",
                              .define = roped_groups,
                              .causal = true,
                              .tolerance = 1e-4});
    layer_check(&(layer_case){.spec = "layer=matryoshka(keys=1, values=1)",
                              .define = roped_groups,
                              .causal = true,
                              .tolerance = 1e-4,
                              .heads = 4,
                              .kv_heads = 2});
    layer_check(&(layer_case){.spec = "layer=matryoshka(keys=0.5, values=1)",
                              .define = half_of_keys,
                              .causal = true,
                              .tolerance = 1e-4});
    layer_check(&(layer_case){.spec = "layer=matryoshka(keys=0.25, values=0.75, nested=no)",
                              .define = few,
                              .causal = true,
                              .tolerance = 1e-4,
                              .width = 16,
                              .heads = 4,
                              .kv_heads = 2});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_each_others_distractors),
        cmocka_unit_test(what_no_longer_fits_is_mixed_into_slots),
        cmocka_unit_test(a_controller_chooses_what_stays),
        cmocka_unit_test(bases_whose_first_columns_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
