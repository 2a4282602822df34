/* What each `where` form opens, pair by pair, written from the table of forms. */
#ifndef HEED_TEST_WHERE_DEFINITIONS_H
#define HEED_TEST_WHERE_DEFINITIONS_H

#include <heed/form.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KEYS = 400 };

/* A problem with one batch entry and head in view. Arrays that forms may read have just the size they should.
 */
typedef struct scene {
    int queries, keys, batch, head;
    int32_t *query_pos, *key_pos;         /* [queries], [keys] */
    int32_t *key_end;                     /* [2] */
    int32_t *query_segment, *key_segment; /* [2][queries], [2][keys] */
    uint8_t *mask;                        /* [2][3][queries][keys] */
    bool contiguous;
    heed_inputs inputs;
} scene;

/* A pair, and what its definition may need. */
typedef struct pair {
    const scene *scene;
    int i, j;
    int64_t p, k; /* positions */
} pair;

typedef struct definition {
    const char *name;
    bool (*open)(const double *arg, const pair *pair);
    int args;
    bool contiguous_states_exact; /* blocks tells the whole truth when positions are contiguous */
} definition;

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static bool all(const double *arg, const pair *x)
{
    (void)arg, (void)x;
    return true;
}

static bool none(const double *arg, const pair *x)
{
    (void)arg, (void)x;
    return false;
}

static bool causal(const double *arg, const pair *x)
{
    return x->k <= (arg[0] == 1 ? x->i : x->p);
}

static bool window(const double *arg, const pair *x)
{
    return (double)llabs(x->p - x->k) < arg[0];
}

static bool dilated(const double *arg, const pair *x)
{
    const int64_t distance = x->p - x->k;
    return (double)llabs(distance) < arg[0] * arg[1] && distance % (int64_t)arg[1] == 0;
}

static bool first(const double *arg, const pair *x)
{
    return (double)x->k < arg[0];
}

static bool last(const double *arg, const pair *x)
{
    return (double)x->k >= (double)x->scene->key_end[x->scene->batch] - arg[0];
}

static bool block(const double *arg, const pair *x)
{
    return floor_div(x->p, (int64_t)arg[0]) == floor_div(x->k, (int64_t)arg[0]);
}

static bool strided(const double *arg, const pair *x)
{
    return (x->p - x->k) % (int64_t)arg[0] == 0;
}

static bool global(const double *arg, const pair *x)
{
    return (double)x->p < arg[0] || (double)x->k < arg[0];
}

static bool self(const double *arg, const pair *x)
{
    (void)arg;
    return x->p == x->k;
}

static bool segments(const double *arg, const pair *x)
{
    (void)arg;
    const scene *s = x->scene;
    return s->query_segment[s->batch * s->queries + x->i] == s->key_segment[s->batch * s->keys + x->j];
}

static bool masked(const double *arg, const pair *x)
{
    (void)arg;
    const scene *s = x->scene;
    return s->mask[((s->batch * 3 + s->head) * s->queries + x->i) * s->keys + x->j] != 0;
}

static bool near(double query, double key, double side, double radius)
{
    if (side < 2 * radius + 1)
        return true;
    double centre = query < radius ? radius : query;
    centre = centre > side - 1 - radius ? side - 1 - radius : centre;
    return fabs(key - centre) <= radius;
}

static bool neighbourhood(const double *arg, const pair *x)
{
    const int64_t cols = (int64_t)arg[1];
    const double places = arg[0] * arg[1];
    if (x->p < 0 || x->k < 0 || (double)x->p >= places || (double)x->k >= places)
        return false;
    return near((double)(x->p / cols), (double)(x->k / cols), arg[0], arg[2]) &&
           near((double)(x->p % cols), (double)(x->k % cols), arg[1], arg[2]);
}

/* The first n different blocks that the hash names, in `chosen`; returns how many. */
static int draw_blocks(int64_t n, int64_t blocks, uint64_t seed, int64_t b, int64_t *chosen)
{
    int found = 0;
    for (uint64_t d = 0; found < n && found < blocks; d++) {
        uint64_t z = seed * 0x9E3779B97F4A7C15u + (uint64_t)b * 0xBF58476D1CE4E5B9u + d * 0x94D049BB133111EBu;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        const int64_t now = (int64_t)((z ^ (z >> 31)) % (uint64_t)blocks);
        bool known = false;
        for (int f = 0; f < found; f++)
            known |= chosen[f] == now;
        if (!known)
            chosen[found++] = now;
    }
    return found;
}

static bool randomly(const double *arg, const pair *x)
{
    static int before_keys;
    static double before_arg[3];
    static int64_t before_b = INT64_MIN, chosen[MOST_KEYS];
    static int found;
    const int64_t size = (int64_t)arg[1], b = floor_div(x->p, size);
    if (before_keys != x->scene->keys || before_b != b || memcmp(arg, before_arg, sizeof before_arg) != 0) {
        found = draw_blocks((int64_t)arg[0], (x->scene->keys + size - 1) / size, (uint64_t)(int64_t)arg[2], b,
                            chosen);
        before_keys = x->scene->keys;
        before_b = b;
        memcpy(before_arg, arg, sizeof before_arg);
    }
    for (int f = 0; f < found; f++)
        if (floor_div(x->k, size) == chosen[f])
            return true;
    return false;
}

static bool probably(const double *arg, const pair *x)
{
    const int64_t size = arg[3] > 4e9 ? INT64_C(4000000000) : (int64_t)arg[3];
    const int64_t query = floor_div(x->p, size), key = floor_div(x->k, size);
    const double falls = exp(-arg[0] * (double)llabs(query - key));
    uint64_t z = (uint64_t)(int64_t)arg[2] * 0x9E3779B97F4A7C15u + (uint64_t)query * 0xBF58476D1CE4E5B9u +
                 (uint64_t)key * 0x94D049BB133111EBu;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return query == key || key == 0 || ldexp((double)(z >> 11), -53) < (falls > arg[1] ? falls : arg[1]);
}

static bool columns(const double *arg, const pair *x)
{
    const int64_t l = (int64_t)arg[0], place = x->k - floor_div(x->k, l) * l;
    return place >= l - ((int64_t)arg[2] + 1) * (int64_t)arg[1] && place < l - (int64_t)(arg[2] * arg[1]);
}

static bool power(const double *arg, const pair *x)
{
    const int64_t size = (int64_t)arg[0], key = floor_div(x->k, size),
                  apart = llabs(floor_div(x->p, size) - key);
    bool two = false;
    for (int64_t d = 1; d <= apart; d *= 2)
        two |= d == apart;
    return apart < (int64_t)arg[1] || (key >= 0 && key < (int64_t)arg[2]) || two;
}

static bool halo(const double *arg, const pair *x)
{
    const int64_t rows = (int64_t)arg[0], cols = (int64_t)arg[1], b = (int64_t)arg[2], rim = (int64_t)arg[3];
    if (x->p < 0 || x->p >= rows * cols || x->k < 0 || x->k >= rows * cols)
        return false;
    const int64_t r = x->p / cols / b * b, c = x->p % cols / b * b, kr = x->k / cols, kc = x->k % cols;
    return kr >= r - rim && kr < r + b + rim && kc >= c - rim && kc < c + b + rim;
}

static bool arrow(const double *arg, const pair *x)
{
    const int32_t query = x->scene->query_segment[x->scene->batch * x->scene->queries + x->i];
    const int32_t key = x->scene->key_segment[x->scene->batch * x->scene->keys + x->j];
    return query == key || key == 0 || (query == 0 && arg[0] == 0);
}

static bool lsg(const double *arg, const pair *x)
{
    const int64_t b = (int64_t)arg[0], wider = (int64_t)(arg[1] * arg[2]), f = (int64_t)arg[2],
                  g = (int64_t)arg[3];
    const int64_t first = (floor_div(x->p, b) - 1) * b;
    return (x->k >= first && x->k < first + 3 * b) || x->p < g || x->k < g ||
           (x->k >= first - wider && x->k < first + 3 * b + wider &&
            x->k - floor_div(x->k, f) * f == x->scene->head % f);
}

static const definition forms[] = {
    {"all", all, 0, true},          {"none", none, 0, true},
    {"causal", causal, 1, true},    {"window", window, 1, true},
    {"dilated", dilated, 2, false}, {"first", first, 1, true},
    {"last", last, 1, true},        {"block", block, 1, true},
    {"strided", strided, 1, false}, {"global", global, 1, true},
    {"self", self, 0, true},        {"segments", segments, 0, false},
    {"mask", masked, 0, true},      {"neighbourhood", neighbourhood, 3, false},
    {"random", randomly, 3, false}, {"pr_blocks", probably, 4, false},
    {"columns", columns, 3, false}, {"power", power, 3, false},
    {"halo", halo, 4, false},       {"arrow", arrow, 1, false},
    {"lsg", lsg, 4, false},
};

#endif
