/* position: rope and xpos turn the vectors before the score, the others add to it. */
#include "support/oracle_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static const oracle_form *find(const oracle *o, const char *name)
{
    return oracle_find_form(o->spec, POSITION, name);
}

static double clamp01(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* Frequencies f[t], t < dim/2, and the factor on the rotated entries. */
static double frequencies(const oracle_form *rope, int dim, double *f)
{
    double base = oracle_number(rope, 0, "base", 10000), magnitude = 1;
    const oracle_arg *scaling = oracle_option(rope, 3, "scaling");
    const char *kind = scaling ? scaling->word : "";
    const double factor = scaling ? oracle_sub_number(scaling, 0, "factor", 1) : 1;
    const double original = scaling ? oracle_sub_number(scaling, 1, "original", 0) : 0;
    if (strcmp(kind, "ntk") == 0)
        base *= pow(factor, (double)dim / (dim - 2));
    for (int t = 0; t < dim / 2; t++)
        f[t] = pow(base, -2.0 * t / dim);
    if (strcmp(kind, "linear") == 0)
        for (int t = 0; t < dim / 2; t++)
            f[t] /= factor;
    if (strcmp(kind, "yarn") == 0) {
        const double fast = oracle_sub_number(scaling, 2, "beta_fast", 32);
        const double slow = oracle_sub_number(scaling, 3, "beta_slow", 1);
        const double low = fmax(floor(dim * log(original / (2 * pi * fast)) / (2 * log(base))), 0);
        const double high = fmin(ceil(dim * log(original / (2 * pi * slow)) / (2 * log(base))), dim - 1);
        for (int t = 0; t < dim / 2; t++) {
            const double r = clamp01((t - low) / fmax(high - low, 0.001));
            f[t] = f[t] * (1 - r) + f[t] / factor * r;
        }
        magnitude = factor <= 1 ? 1 : 0.1 * log(factor) + 1;
    }
    if (strcmp(kind, "llama3") == 0) {
        const double low = oracle_sub_number(scaling, 2, "low", 1);
        const double high = oracle_sub_number(scaling, 3, "high", 4);
        for (int t = 0; t < dim / 2; t++) {
            const double g = clamp01((original * f[t] / (2 * pi) - low) / (high - low));
            f[t] = (1 - g) * f[t] / factor + g * f[t];
        }
    }
    return magnitude;
}

void oracle_rotate(oracle *o, tape *t, oracle_side *side)
{
    const oracle_form *rope = find(o, "rope"), *xpos = find(o, "xpos"), *extended = find(o, "self_extend");
    const int64_t all = o->problem.dim;
    side->seen = side->given;
    if (!rope && !xpos && !extended)
        return;
    const int dim = rope ? (int)oracle_number(rope, 1, "dim", (double)all) : (int)all;
    const bool adjacent = rope && oracle_word_is(rope, 2, "pairs", "adjacent");
    const oracle_form plain = {.name = "rope", .args = 0};
    oracle_form as_rope = rope ? *rope : plain;
    if (xpos || extended) {
        as_rope.args = 1;
        as_rope.arg[0] = (oracle_arg){.number = oracle_number(xpos ? xpos : extended, 0, "base", 10000)};
    }
    double f[512];
    const double magnitude = frequencies(&as_rope, dim, f);
    const var given = t->count;
    for (int64_t d = 0; d < all; d++)
        tape_leaf(t, side->given, d);
    side->seen = tape_inside(t->count);
    for (int64_t d = 0; d < all; d++) {
        if (d >= dim) {
            tape_scale(t, given + (var)d, 1);
            continue;
        }
        const int64_t pair = adjacent ? d / 2 : d % (dim / 2);
        const bool second = adjacent ? d % 2 : d >= dim / 2;
        const var x = given + (var)(adjacent ? 2 * pair : pair);
        const var y = given + (var)(adjacent ? 2 * pair + 1 : pair + dim / 2);
        const long double angle = (long double)side->pos * f[pair];
        const double c = magnitude * (double)cosl(angle), s = magnitude * (double)sinl(angle);
        if (second)
            tape_linear(t, x, s, y, c);
        else
            tape_linear(t, x, c, y, -s);
    }
}

void oracle_twist(oracle_row *row)
{
    const oracle_form *xpos = find(row->o, "xpos");
    const int64_t dim = row->o->problem.dim, keys = row->o->problem.keys;
    if (!xpos)
        return;
    const double scale_base = oracle_number(xpos, 1, "scale_base", 512);
    for (int64_t j = 0; j < keys; j++)
        for (int64_t d = 0; d < dim; d++) {
            const int64_t pair = d % (dim / 2);
            const double zeta = (2.0 * (double)pair / (double)dim + 0.4) / 1.4;
            row->twist[j * dim + d] = pow(zeta, (double)(row->pos - row->key[j].pos) / scale_base);
        }
}

static double alibi_slope(const oracle_form *f, int64_t h, int64_t heads)
{
    if (!oracle_word_is(f, 0, "slopes", "published"))
        return pow(2, -8.0 * (double)(h + 1) / (double)heads);
    /* the slopes of the nearest lower power of two, then every other one of its double */
    int64_t power = 1;
    while (2 * power <= heads)
        power *= 2;
    return h < power ? pow(2, -8.0 * (double)(h + 1) / (double)power)
                     : pow(2, -8.0 * (double)(2 * (h - power) + 1) / (double)(2 * power));
}

/* Whole numbers of any size, 16 bits a limb. */
enum { LIMBS = 1024 };
typedef struct big {
    uint32_t limb[LIMBS];
} big;

static void big_multiply(big *x, uint64_t by)
{
    uint64_t carry = 0;
    for (int i = 0; i < LIMBS; i++) {
        const uint64_t y = x->limb[i] * by + carry;
        x->limb[i] = (uint32_t)(y & 0xffff);
        carry = y >> 16;
    }
    if (carry)
        abort();
}

static bool big_at_least(const big *x, const big *y)
{
    for (int i = LIMBS - 1; i >= 0; i--)
        if (x->limb[i] != y->limb[i])
            return x->limb[i] > y->limb[i];
    return true;
}

/* floor(ln(n/exact) / ln(max/exact) (count - exact)), with exact decisions:
 * it is at least r where n^(count-exact) exact^r >= max^r exact^(count-exact). */
static int64_t logarithmic_bucket(int64_t n, int64_t exact, int64_t count, int64_t max)
{
    int64_t r = 0;
    for (; r + 1 < count - exact; r++) {
        static big left, right;
        memset(&left, 0, sizeof left);
        memset(&right, 0, sizeof right);
        left.limb[0] = right.limb[0] = 1;
        for (int64_t i = 0; i < count - exact; i++) {
            big_multiply(&left, (uint64_t)n);
            big_multiply(&right, (uint64_t)exact);
        }
        for (int64_t i = 0; i < r + 1; i++) {
            big_multiply(&left, (uint64_t)exact);
            big_multiply(&right, (uint64_t)max);
        }
        if (!big_at_least(&left, &right))
            break;
    }
    return r;
}

static int64_t t5_bucket(int64_t distance, int64_t buckets, int64_t max, bool causal)
{
    const int64_t count = causal ? buckets : buckets / 2, exact = count / 2;
    const int64_t base = !causal && distance < 0 ? count : 0;
    const int64_t n = causal ? (distance > 0 ? distance : 0) : llabs(distance);
    if (n < exact)
        return base + n;
    if (n >= max)
        return base + count - 1;
    const int64_t bucket = exact + logarithmic_bucket(n, exact, count, max);
    return base + (bucket < count - 1 ? bucket : count - 1);
}

/* Buckets of distances seen before, since exact decisions are slow. */
static int64_t cached_t5_bucket(int64_t distance, int64_t buckets, int64_t max, bool causal)
{
    enum { SPAN = 1024 };
    static int64_t known[2 * SPAN + 1], of[3] = {-1, -1, -1};
    if (llabs(distance) > SPAN)
        return t5_bucket(distance, buckets, max, causal);
    if (of[0] != buckets || of[1] != max || of[2] != causal) {
        for (int i = 0; i <= 2 * SPAN; i++)
            known[i] = -1;
        of[0] = buckets, of[1] = max, of[2] = causal;
    }
    int64_t *bucket = &known[distance + SPAN];
    if (*bucket < 0)
        *bucket = t5_bucket(distance, buckets, max, causal);
    return *bucket;
}

static var absolute(tape *t, var x)
{
    const double v = tape_value(t, x);
    return tape_scale(t, x, v < 0 ? -1 : 1);
}

static var kerple(oracle *o, tape *t, const oracle_form *f, int64_t h, int64_t distance)
{
    const double d = (double)llabs(distance);
    if (d == 0)
        return tape_constant(t, 0);
    const var r1 = tape_leaf(t, oracle_param_at(o, "position.kerple.r1", h, 1), 0);
    const var r2 = tape_leaf(t, oracle_param_at(o, "position.kerple.r2", h, 1), 0);
    const var inner = oracle_word_is(f, 0, "kind", "power")
                          ? tape_exp(t, tape_scale(t, r2, log(d)))
                          : tape_log(t, tape_shift(t, tape_scale(t, r2, d), 1));
    return tape_scale(t, tape_multiply(t, r1, inner), -1);
}

static var fire(oracle *o, tape *t, int64_t h, int64_t distance, int64_t pos)
{
    enum { UNITS = 32 };
    const var c = absolute(t, tape_leaf(t, oracle_param_at(o, "position.fire.c", 0, 1), 0));
    const var least = absolute(t, tape_leaf(t, oracle_param_at(o, "position.fire.L", 0, 1), 0));
    const var reach = tape_value(t, least) >= (double)pos ? least : tape_constant(t, (double)pos);
    const var above = tape_log(t, tape_shift(t, tape_scale(t, c, (double)llabs(distance)), 1));
    const var below = tape_log(t, tape_shift(t, tape_multiply(t, c, reach), 1));
    const var z = tape_divide(t, above, below);
    var sum = tape_leaf(t, oracle_param_at(o, "position.fire.b2", h, 1), 0);
    for (int a = 0; a < UNITS; a++) {
        const var w1 = tape_leaf(t, oracle_param_at(o, "position.fire.w1", a, 1), 0);
        const var b1 = tape_leaf(t, oracle_param_at(o, "position.fire.b1", a, 1), 0);
        const var w2 = tape_leaf(t, oracle_param_at(o, "position.fire.w2", h * UNITS + a, 1), 0);
        const var unit = tape_relu(t, tape_linear(t, tape_multiply(t, w1, z), 1, b1, 1));
        sum = tape_linear(t, sum, 1, tape_multiply(t, w2, unit), 1);
    }
    return sum;
}

static double sandwich(const oracle_form *f, int64_t h, int64_t heads, int64_t distance, int64_t dim)
{
    const int64_t dims = (int64_t)oracle_number(f, 0, "dims", (double)dim);
    double sum = 0;
    for (int64_t t = 0; t < dims / 2; t++)
        sum += cos((double)distance * pow(10000, -2.0 * (double)t / (double)dims));
    return sum / (8.0 * (double)(h + 1) / (double)heads);
}

static void add(oracle_row *row, int64_t h, int64_t j, var bias)
{
    var *score = &row->score[h * row->o->problem.keys + j];
    *score = tape_linear(row->t, *score, 1, bias, 1);
}

/* `raw`: scores before any form has added to them. */
static void add_cope(oracle_row *row, int64_t h, const oracle_form *f, const var *raw)
{
    oracle *o = row->o;
    tape *t = row->t;
    const int64_t keys = o->problem.keys, dim = o->problem.dim;
    const int64_t max = (int64_t)oracle_number(f, 0, "max", 64);
    const tape_vector q = row->query[h].given;
    var *read = calloc((size_t)max, sizeof *read);
    for (int64_t m = 0; m < max; m++)
        read[m] = tape_sum(t, TAPE_DOT, q, oracle_param_at(o, "position.cope.e", m * dim, 1), NULL, (int)dim);
    var count = tape_constant(t, 0);
    for (int64_t j = keys - 1; j >= 0; j--) {
        if (row->open[h * keys + j] && row->pos - row->key[h * keys + j].pos >= 0)
            count = tape_linear(t, count, 1, tape_sigmoid(t, raw[j]), 1);
        if (!row->any[j])
            continue;
        const double c = tape_value(t, count);
        if (!(c < (double)(max - 1))) {
            add(row, h, j, read[max - 1]);
            continue;
        }
        const int64_t low = (int64_t)floor(c), high = (int64_t)ceil(c);
        const double part = c - (double)low;
        if (part > 0)
            t->kink = fmin(t->kink, fmin(part, 1 - part));
        const double slope = tape_value(t, read[high]) - tape_value(t, read[low]);
        const var between = tape_linear(t, read[low], 1 - part, read[high], part);
        add(row, h, j, tape_function(t, tape_value(t, between), between, 1, count, slope));
    }
    free(read);
}

static var bias(oracle_row *row, const oracle_form *f, int64_t h, int64_t distance)
{
    oracle *o = row->o;
    tape *t = row->t;
    const int64_t dim = o->problem.dim;
    if (strcmp(f->name, "alibi") == 0)
        return tape_constant(t, -alibi_slope(f, h, o->problem.heads) * (double)llabs(distance));
    if (strcmp(f->name, "t5") == 0) {
        const int64_t buckets = (int64_t)oracle_number(f, 0, "buckets", 32);
        const int64_t max = (int64_t)oracle_number(f, 1, "max", 128);
        const int64_t bucket =
            cached_t5_bucket(distance, buckets, max, oracle_is_causal(o->spec->root[WHERE]));
        return tape_leaf(t, oracle_param_at(o, "position.t5.b", h * buckets + bucket, 1), 0);
    }
    if (strcmp(f->name, "shaw") == 0) {
        const int64_t max = (int64_t)oracle_number(f, 0, "max", 16);
        const int64_t clipped = distance > max ? -max : distance < -max ? max : -distance;
        const tape_vector r = oracle_param_at(o, "position.shaw.r", (clipped + max) * dim, 1);
        return tape_scale(t, tape_sum(t, TAPE_DOT, row->query[h].given, r, NULL, (int)dim),
                          oracle_score_scale(o));
    }
    if (strcmp(f->name, "skew") == 0) {
        const int64_t max = (int64_t)oracle_number(f, 0, "max", 128);
        const int64_t back = distance < 0 ? 0 : distance > max ? max : distance;
        const tape_vector e = oracle_param_at(o, "position.skew.E", (h * (max + 1) + back) * dim, 1);
        return tape_scale(t, tape_sum(t, TAPE_DOT, row->query[h].given, e, NULL, (int)dim),
                          oracle_score_scale(o));
    }
    if (strcmp(f->name, "kerple") == 0)
        return kerple(o, t, f, h, distance);
    if (strcmp(f->name, "fire") == 0)
        return fire(o, t, h, distance, row->pos);
    if (strcmp(f->name, "sandwich") == 0)
        return tape_constant(t, sandwich(f, h, o->problem.heads, distance, dim));
    fprintf(stderr, "the oracle knows no position=%s\n", f->name);
    abort();
}

/* The score of a far pair anew, from the rows as given and the positions of their groups. */
static void extend(oracle_row *row, int64_t h, int64_t j, const oracle_form *f)
{
    oracle *o = row->o;
    tape *t = row->t;
    const int64_t dim = o->problem.dim, G = (int64_t)oracle_number(f, 1, "group", 8),
                  w = (int64_t)oracle_number(f, 2, "window", 1024);
    const oracle_side *query = &row->query[h], *key = &row->key[h * o->problem.keys + j];
    if (query->pos - key->pos < w)
        return;
    const int64_t apart = floor_div(query->pos, G) + w - w / G - floor_div(key->pos, G);
    const double base = oracle_number(f, 0, "base", 10000);
    var sum = tape_constant(t, 0);
    for (int64_t c = 0; c < dim / 2; c++) {
        var x[4];
        const tape_vector sides[] = {query->given, key->given};
        for (int i = 0; i < 4; i++) {
            const tape_vector v = sides[i / 2];
            const int64_t at = c + i % 2 * (dim / 2);
            x[i] = v.x ? tape_leaf(t, v, at) : v.first + (var)at;
        }
        const long double angle = (long double)apart * powl(base, -2.0L * c / dim);
        const var along = tape_linear(t, tape_multiply(t, x[0], x[2]), 1, tape_multiply(t, x[1], x[3]), 1);
        const var across = tape_linear(t, tape_multiply(t, x[0], x[3]), 1, tape_multiply(t, x[1], x[2]), -1);
        sum = tape_linear(t, sum, 1, tape_linear(t, along, (double)cosl(angle), across, (double)sinl(angle)),
                          1);
    }
    row->score[h * o->problem.keys + j] = tape_scale(t, sum, oracle_score_scale(o));
}

void oracle_add_positions(oracle_row *row, int64_t h)
{
    const oracle_form *list[16];
    const int64_t keys = row->o->problem.keys;
    const int n = oracle_list(row->o->spec->root[POSITION], list, 16);
    var *raw = malloc((size_t)(keys ? keys : 1) * sizeof *raw);
    memcpy(raw, row->score + h * keys, (size_t)keys * sizeof *raw);
    for (int i = 0; i < n; i++) {
        if (strcmp(list[i]->name, "rope") == 0 || strcmp(list[i]->name, "xpos") == 0 ||
            strcmp(list[i]->name, "none") == 0)
            continue;
        if (strcmp(list[i]->name, "self_extend") == 0) {
            for (int64_t j = 0; j < keys; j++)
                if (row->any[j])
                    extend(row, h, j, list[i]);
            continue;
        }
        if (strcmp(list[i]->name, "cope") == 0) {
            add_cope(row, h, list[i], raw);
            continue;
        }
        if (strcmp(list[i]->name, "pr_blocks") == 0) {
            for (int64_t j = 0; j < keys; j++)
                if (row->any[j])
                    add(row, h, j,
                        tape_constant(
                            row->t, -log(oracle_block_share(list[i], row->pos, row->key[h * keys + j].pos))));
            continue;
        }
        for (int64_t j = 0; j < keys; j++)
            if (row->any[j])
                add(row, h, j, bias(row, list[i], h, row->pos - row->key[h * keys + j].pos));
    }
    free(raw);
}
