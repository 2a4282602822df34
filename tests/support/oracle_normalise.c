/* select and normalise: from the scores of one row to its weights. */
#include "support/oracle_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct ranked {
    int64_t key;
    double score;
} ranked;

static int by_score(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return (a->key > b->key) - (a->key < b->key);
}

/* Scores that are exactly equal are so in every arithmetic, so that they are no danger to a choice. */
static double gap(double a, double b)
{
    return a == b ? INFINITY : fabs(a - b);
}

/* How many of the ranked keys stay. */
static int64_t kept(const oracle_form *f, const ranked *list, int64_t n, double *margin)
{
    double sum = 0;
    for (int64_t r = 0; r < n; r++)
        sum += exp(list[r].score - list[0].score);
    int64_t keep = 0;
    if (strcmp(f->name, "top_k") == 0) {
        keep = (int64_t)oracle_number(f, 0, "k", 0);
        keep = keep < n ? keep : n;
    } else if (strcmp(f->name, "top_p") == 0) {
        const double p = oracle_number(f, 0, "p", 1);
        if (p == 1)
            return n;
        double mass = 0;
        while (keep < n && (keep == 0 || mass < p)) {
            *margin = fmin(*margin, fabs(mass - p));
            mass += exp(list[keep++].score - list[0].score) / sum;
        }
        *margin = fmin(*margin, fabs(mass - p));
    } else if (strcmp(f->name, "threshold") == 0) {
        const double t = oracle_number(f, 0, "t", 0);
        for (int64_t r = 0; r < n; r++) {
            const double share = exp(list[r].score - list[0].score);
            *margin = t > 0 ? fmin(*margin, gap(share, t) / t) : *margin; /* as a difference of scores */
            keep += share >= t;
        }
        return keep;
    } else {
        fprintf(stderr, "the oracle knows no select=%s\n", f->name);
        abort();
    }
    if (keep < n)
        *margin = fmin(*margin, gap(list[keep - 1].score, list[keep].score));
    return keep;
}

/* What quest and moba think of a block of keys [first, end): a bound on the products, or the product with the
 * mean. */
static double value_for_head(const oracle_row *row, int64_t h, int64_t first, int64_t end, bool quest)
{
    const oracle_side *query = &row->query[h], *key = &row->key[h * row->o->problem.keys];
    const double *q = query->seen.x ? query->seen.x : row->t->value + query->seen.first;
    double value = 0;
    for (int64_t d = 0; d < row->o->problem.dim; d++) {
        double least = INFINITY, most = -INFINITY, sum = 0;
        for (int64_t j = first; j < end; j++) {
            const double x = key[j].seen.x[d * key[j].seen.stride] * oracle_key_factor(row, h, j);
            least = fmin(least, x), most = fmax(most, x), sum += x;
        }
        value += quest ? fmax(q[d] * least, q[d] * most) : q[d] * sum / (double)(end - first);
    }
    return value * oracle_query_factor(row, h);
}

/* The largest over the heads of the group, if they share. */
static double block_value(const oracle_row *row, int64_t h, int64_t first, int64_t end, bool quest,
                          bool share)
{
    const int64_t each = row->o->problem.heads / row->o->problem.kv_heads, h0 = h / each * each;
    if (!share)
        return value_for_head(row, h, first, end, quest);
    double value = -INFINITY;
    for (int64_t other = h0; other < h0 + each; other++)
        value = fmax(value, value_for_head(row, other, first, end, quest));
    return value;
}

/* Keeps the block of the last open key and the best others, of equal ones the lower. */
static void select_blocks(oracle_row *row, int64_t h, const oracle_form *f, double *margin)
{
    const bool quest = strcmp(f->name, "quest") == 0;
    const int64_t size = (int64_t)oracle_number(f, 0, quest ? "page" : "block", quest ? 16 : 512);
    const double quarter = ceil((double)row->o->problem.keys / 4);
    const int64_t blocks = quest ? ((int64_t)oracle_number(f, 1, "budget", quarter) + size - 1) / size
                                 : (int64_t)oracle_number(f, 1, "k", 3);
    const bool share = oracle_word_is(f, 2, "share", "group");
    bool *open = row->open + h * row->o->problem.keys;
    ranked *list = malloc((size_t)(row->key_count / size + 1) * sizeof *list);
    int64_t n = 0;
    for (int64_t first = 0; first < row->key_count; first += size) {
        const int64_t end = first + size < row->key_count ? first + size : row->key_count;
        bool any = false;
        for (int64_t j = first; j < end; j++)
            any |= open[j];
        if (any)
            list[n++] = (ranked){first, block_value(row, h, first, end, quest, share)};
    }
    if (n > 0) {
        n--; /* the current block stays */
        qsort(list, (size_t)n, sizeof *list, by_score);
        const int64_t others = blocks - 1;
        if (others > 0 && others < n)
            *margin = fmin(*margin, gap(list[others - 1].score, list[others].score));
        for (int64_t r = others; r < n; r++)
            for (int64_t j = list[r].key; j < list[r].key + size && j < row->key_count; j++)
                open[j] = false;
    }
    free(list);
}

/* select=landmark: the k earlier blocks of largest score of their landmark. */
static void select_landmarks(oracle_row *row, int64_t h, const oracle_form *f, double *margin)
{
    const int64_t keys = row->o->problem.keys, block = (int64_t)oracle_number(f, 0, "block", 50),
                  k = (int64_t)oracle_number(f, 1, "k", 4),
                  recent = (int64_t)oracle_number(f, 2, "recent", 1), size = block + 1,
                  far = (int64_t)floor((double)row->pos / (double)size) - recent;
    bool *open = row->open + h * keys;
    ranked *list = malloc((size_t)(keys + 1) * sizeof *list);
    int64_t n = 0;
    for (int64_t j = 0; j < keys; j++) {
        const int64_t p = row->key[h * keys + j].pos, b = (int64_t)floor((double)p / (double)size);
        if (open[j] && b < far && p - b * size == block)
            list[n++] = (ranked){j, tape_value(row->t, row->score[h * keys + j])};
    }
    qsort(list, (size_t)n, sizeof *list, by_score);
    if (n > k)
        *margin = fmin(*margin, gap(list[k - 1].score, list[k].score));
    n = n > k ? k : n;
    for (int64_t j = 0; j < keys; j++) {
        const int64_t b = (int64_t)floor((double)row->key[h * keys + j].pos / (double)size);
        bool chosen = b >= far;
        for (int64_t r = 0; r < n; r++)
            chosen |= b == (int64_t)floor((double)row->key[h * keys + list[r].key].pos / (double)size);
        open[j] = open[j] && chosen;
    }
    free(list);
}

double oracle_select(oracle_row *row, int64_t h)
{
    const oracle_form *chain[8];
    const int forms = oracle_list(row->o->spec->root[SELECT], chain, 8);
    const int64_t keys = row->o->problem.keys;
    ranked *list = malloc((size_t)(keys + 1) * sizeof *list);
    double margin = INFINITY;
    for (int f = 0; f < forms; f++) {
        if (strcmp(chain[f]->name, "quest") == 0 || strcmp(chain[f]->name, "moba") == 0) {
            select_blocks(row, h, chain[f], &margin);
            continue;
        }
        if (strcmp(chain[f]->name, "landmark") == 0) {
            select_landmarks(row, h, chain[f], &margin);
            continue;
        }
        if (oracle_select_calibrated(row, h, chain[f], &margin))
            continue;
        int64_t n = 0;
        for (int64_t j = 0; j < keys; j++)
            if (row->open[h * keys + j])
                list[n++] = (ranked){j, tape_value(row->t, row->score[h * keys + j])};
        if (strcmp(chain[f]->name, "none") == 0 || n == 0)
            continue;
        qsort(list, (size_t)n, sizeof *list, by_score);
        for (int64_t r = kept(chain[f], list, n, &margin); r < n; r++)
            row->open[h * keys + list[r].key] = false;
    }
    free(list);
    return margin;
}

/* The threshold tau of the entmax projection of z: sum (z - tau)_+^power = 1. */
static double projection_threshold(const double *z, int64_t n, double power)
{
    double high = -INFINITY;
    for (int64_t j = 0; j < n; j++)
        high = fmax(high, z[j]);
    double low = high - 1;
    for (int step = 0; step < 200; step++) {
        const double middle = low + (high - low) / 2;
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += z[j] > middle ? pow(z[j] - middle, power) : 0;
        if (sum >= 1)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* w_j = ((alpha - 1) s_j - tau)_+^(1/(alpha-1)); tau is an implicit function of the scores:
 * d tau = (alpha - 1) sum g_j ds_j / sum g_j,   g_j = w_j^(2-alpha) on the support. */
static void entmax(tape *t, const var *s, int64_t n, double alpha, var *w)
{
    const double power = 1 / (alpha - 1);
    double *z = malloc((size_t)n * sizeof *z), *g = malloc((size_t)n * sizeof *g), sum = 0;
    for (int64_t j = 0; j < n; j++)
        z[j] = (alpha - 1) * tape_value(t, s[j]);
    const double threshold = projection_threshold(z, n, power);
    for (int64_t j = 0; j < n; j++) {
        g[j] = z[j] > threshold ? pow(z[j] - threshold, power - 1) : 0;
        sum += g[j];
    }
    var tau = tape_constant(t, threshold);
    for (int64_t j = 0; j < n; j++)
        tau = tape_function(t, threshold, tau, 1, s[j], (alpha - 1) * g[j] / sum);
    for (int64_t j = 0; j < n; j++)
        w[j] = tape_power(t, tape_relu(t, tape_linear(t, s[j], alpha - 1, tau, -1)), power);
    free(z);
    free(g);
}

/* alpha = 1 + sigmoid(a); the derivative by a from weights at alphas a little to both sides. */
static double learnt_entmax(oracle_row *row, int64_t h, const var *s, int64_t n, var *w)
{
    tape *t = row->t;
    const var a = tape_leaf(t, oracle_param_at(row->o, "normalise.entmax_learnt.a", h, 1), 0);
    const double x = tape_value(t, a), alpha = 1 + 1 / (1 + exp(-x)), step = 1e-5;
    double *side[2];
    for (int i = 0; i < 2; i++) {
        const double power = 1 + exp(-(x + (i ? -step : step))); /* 1 / (alpha - 1) */
        side[i] = malloc((size_t)n * sizeof *side[i]);
        double *z = side[i];
        for (int64_t j = 0; j < n; j++)
            z[j] = tape_value(t, s[j]) / power;
        const double threshold = projection_threshold(z, n, power);
        for (int64_t j = 0; j < n; j++)
            z[j] = z[j] > threshold ? pow(z[j] - threshold, power) : 0;
    }
    entmax(t, s, n, alpha, w);
    for (int64_t j = 0; j < n; j++)
        w[j] = tape_function(t, tape_value(t, w[j]), w[j], 1, a, (side[0][j] - side[1][j]) / (2 * step));
    free(side[0]);
    free(side[1]);
    return alpha;
}

/* exp(s) / (sum exp(s) + extra), extra = exp(outside) where there is one; outside -1: none. */
static void softmax(tape *t, const var *s, int64_t n, double largest, var outside, var *w)
{
    if (outside >= 0)
        largest = fmax(largest, tape_value(t, outside));
    var sum = outside >= 0 ? tape_exp(t, tape_shift(t, outside, -largest)) : tape_constant(t, 0);
    for (int64_t j = 0; j < n; j++) {
        w[j] = tape_exp(t, tape_shift(t, s[j], -largest));
        sum = tape_linear(t, sum, 1, w[j], 1);
    }
    for (int64_t j = 0; j < n; j++)
        w[j] = tape_divide(t, w[j], sum);
}

/* How fast the weights change with the scores, relative to the largest weight; 1 for softmax, for which dw <=
 * w ds. */
static double steepness(const tape *t, const char *name, double exponent, const var *s, const var *w,
                        int64_t n)
{
    double most = 0, fastest = 0;
    for (int64_t j = 0; j < n; j++) {
        const double weight = tape_value(t, w[j]), score = tape_value(t, s[j]);
        most = fmax(most, weight);
        if (weight > 0 && strcmp(name, "relu") == 0)
            fastest = fmax(fastest, exponent * pow(score, exponent - 1) / (double)n);
        else if (weight > 0 && strstr(name, "max") && strncmp(name, "soft", 4) != 0)
            fastest = fmax(fastest, pow(weight, 2 - exponent));
    }
    return most > 0 ? fmax(1, fastest / most) : 1;
}

/* Softmax over the members of a set, times a factor; the others stay. */
static void softmax_over(tape *t, const var *s, const bool *in, int64_t n, const var *factor, var *w)
{
    double largest = -INFINITY;
    var sum = tape_constant(t, 0);
    for (int64_t j = 0; j < n; j++)
        largest = in[j] ? fmax(largest, tape_value(t, s[j])) : largest;
    for (int64_t j = 0; j < n; j++)
        if (in[j])
            sum = tape_linear(t, sum, 1, w[j] = tape_exp(t, tape_shift(t, s[j], -largest)), 1);
    for (int64_t j = 0; j < n; j++)
        if (in[j])
            w[j] = tape_divide(t, factor ? tape_multiply(t, w[j], *factor) : w[j], sum);
}

static int64_t floor_of(int64_t p, int64_t size)
{
    return (int64_t)floor((double)p / (double)size);
}

/* normalise=landmark; s and w of the open keys. */
static void by_landmarks(const oracle_row *row, int64_t h, int64_t block, const var *s, var *w)
{
    const int64_t keys = row->o->problem.keys, size = block + 1, own = floor_of(row->pos, size);
    int64_t *pos = malloc((size_t)keys * sizeof *pos), n = 0;
    bool *in = calloc((size_t)keys, sizeof *in);
    for (int64_t j = 0; j < keys; j++)
        if (row->open[h * keys + j])
            pos[n++] = row->key[h * keys + j].pos;
    for (int64_t j = 0; j < n; j++) {
        const int64_t b = floor_of(pos[j], size);
        bool tokens = false, first = true;
        for (int64_t i = 0; i < n; i++) {
            tokens = tokens || (floor_of(pos[i], size) == b && pos[i] - b * size != block);
            first = first && (i >= j || pos[i] != pos[j]);
        }
        w[j] = tape_constant(row->t, 0);
        in[j] = pos[j] - b * size == block ? b != own && tokens && first : b == own;
    }
    softmax_over(row->t, s, in, n, NULL, w);
    for (int64_t j = 0; j < n; j++) {
        const var share = w[j];
        const int64_t b = floor_of(pos[j], size);
        if (pos[j] - b * size != block || !in[j])
            continue;
        bool *of = calloc((size_t)n, sizeof *of);
        for (int64_t i = 0; i < n; i++)
            of[i] = floor_of(pos[i], size) == b && pos[i] - b * size != block;
        softmax_over(row->t, s, of, n, &share, w);
        free(of);
        w[j] = tape_constant(row->t, 0);
    }
    free(pos);
    free(in);
}

double oracle_normalise(oracle_row *row, int64_t h, double *steep)
{
    static const oracle_form plain = {.name = "softmax"};
    const oracle_form *chain[4] = {&plain};
    int forms = oracle_list(row->o->spec->root[NORMALISE], chain, 4);
    const oracle_form *cap = strcmp(chain[0]->name, "softcap") == 0 ? chain[0] : NULL;
    const oracle_form *sharp = strcmp(chain[0]->name, "head_scale") == 0 ? chain[0] : NULL;
    const oracle_form *f = cap || sharp ? (forms > 1 ? chain[1] : &plain) : chain[0];
    tape *t = row->t;
    *steep = 1;
    const int64_t keys = row->o->problem.keys;
    var *s = malloc((size_t)(keys + 1) * sizeof *s), *w = malloc((size_t)(keys + 1) * sizeof *w);
    const double temperature = strcmp(f->name, "softmax") == 0 ? oracle_number(f, 0, "temperature", 1) : 1;
    int64_t n = 0;
    double largest = -INFINITY, sum = 0, exponent = 1;
    for (int64_t j = 0; j < keys; j++) {
        if (!row->open[h * keys + j])
            continue;
        var x = row->score[h * keys + j];
        if (cap) {
            const double c = oracle_number(cap, 0, "c", 1);
            x = tape_scale(t, tape_tanh(t, tape_scale(t, x, 1 / c)), c);
        }
        if (sharp) {
            const var lambda = tape_leaf(t, oracle_param_at(row->o, "normalise.head_scale.lambda", h, 1), 0);
            const double least = oracle_number(sharp, 0, "least", 1), value = tape_value(t, lambda);
            x = tape_multiply(t, x, tape_function(t, fmax(value, least), lambda, 1, -1, 0));
        }
        s[n] = tape_scale(t, x, 1 / temperature);
        largest = fmax(largest, tape_value(t, s[n++]));
    }
    if (n == 0) {
        free(s);
        free(w);
        return -INFINITY;
    }
    for (int64_t j = 0; j < n; j++)
        sum += exp(tape_value(t, s[j]) - largest);
    if (strcmp(f->name, "softmax") == 0) {
        softmax(t, s, n, largest, -1, w);
    } else if (strcmp(f->name, "softmax1") == 0) {
        softmax(t, s, n, largest, tape_constant(t, 0), w);
    } else if (strcmp(f->name, "sink") == 0) {
        softmax(t, s, n, largest, tape_leaf(t, oracle_param_at(row->o, "normalise.sink.sink", h, 1), 0), w);
    } else if (strcmp(f->name, "sigmoid") == 0) {
        const double bias = oracle_number(f, 0, "bias", -log((double)row->key_count));
        for (int64_t j = 0; j < n; j++)
            w[j] = tape_sigmoid(t, tape_shift(t, s[j], bias));
    } else if (strcmp(f->name, "relu") == 0) {
        exponent = oracle_number(f, 0, "power", 1);
        for (int64_t j = 0; j < n; j++)
            w[j] = tape_scale(t, tape_power(t, tape_relu(t, s[j]), exponent), 1 / (double)n);
    } else if (strcmp(f->name, "landmark") == 0) {
        by_landmarks(row, h, (int64_t)oracle_number(f, 0, "block", 50), s, w);
    } else if (strcmp(f->name, "plain") == 0) {
        for (int64_t j = 0; j < n; j++)
            w[j] = tape_scale(t, s[j], 1);
    } else if (strcmp(f->name, "entmax_learnt") == 0) {
        exponent = learnt_entmax(row, h, s, n, w);
    } else if (strcmp(f->name, "sparsemax") == 0 || strcmp(f->name, "entmax") == 0) {
        exponent = f->name[0] == 's' ? 2 : oracle_number(f, 0, "alpha", 1.5);
        if (exponent == 1)
            softmax(t, s, n, largest, -1, w);
        else
            entmax(t, s, n, exponent, w);
    } else {
        fprintf(stderr, "the oracle knows no normalise=%s\n", f->name);
        abort();
    }
    *steep = steepness(t, f->name, exponent, s, w, n);
    for (int64_t j = 0, m = 0; j < keys; j++)
        if (row->open[h * keys + j])
            row->weight[h * keys + j] = w[m++];
    free(s);
    free(w);
    return largest + log(sum);
}
