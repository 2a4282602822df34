/* Selectors by blocks of keys in prefill: what is chosen, by naive definitions in double precision that write
 * the choice out as a mask; and that nothing else is read. */
#include "support/attend.h"
#include "support/oracle_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void check_kernel(const attend_case *c, heed_kernel kernel)
{
    attend_data *d = attend_prepare(c);
    attend_result *r = attend_run(d, &d->c.way);
    if (r->info.kernel != kernel)
        fail_msg("%s runs through %s", attend_describe(&d->c, &d->c.way), heed_kernel_name(r->info.kernel));
    attend_match(d, r);
    attend_result_free(r);
    attend_free(d);
}

/* Selectors that choose row by row mean the same in prefill. */
static void rows_choose_for_themselves_in_prefill(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "select=quest(page=16, budget=48); where=causal",
        "select=quest(page=4, budget=30, share=group); where=causal; position=rope",
        "select=quest(page=7, budget=20)",
        "select=quest(page=100, budget=100); where=window(150) & causal; position=alibi",
        "select=moba(block=32, k=3); where=causal; score=dot(0.7)",
        "select=moba(block=32, k=3); where=causal; score=cosine",
        "select=quest(page=16, budget=64, share=group); where=causal; score=cosine",
        "select=moba(block=40, k=2, share=group); where=causal; normalise=sigmoid",
    };
    static const int64_t queries[] = {9, 64, 150, 200};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t n = 0; n < COUNT(queries); n++)
            for (const heed_isa *isa = test_isas(); *isa; isa++)
                check_kernel(&(attend_case){.spec = specs[i],
                                            .batch = 1 + n % 2,
                                            .heads = 4,
                                            .kv_heads = 1 << n % 3,
                                            .queries = queries[n],
                                            .keys = queries[n] + 40 * (n % 2),
                                            .dim = 12,
                                            .value_dim = 10,
                                            .k_type = n % 2 ? HEED_F16 : HEED_F32,
                                            .ragged = n == 2 ? RAGGED_SEQ : RAGGED_NOT,
                                            .seed = 10 * i + n,
                                            .way = {.isa = *isa, .threads = 2, .statistics = n == 1}},
                             HEED_KERNEL_SPARSE);
}

typedef struct scene {
    const attend_data *d;
    int64_t batch, head, block, blocks;
    double *weight; /* [N][M] full causal attention */
} scene;

static const float *key_of(const scene *s, int64_t j)
{
    const attend_case *c = &s->d->c;
    const int64_t group = s->head * c->kv_heads / c->heads;
    return s->d->k + ((s->batch * c->kv_heads + group) * c->keys + j) * c->dim;
}

static const float *query_of(const scene *s, int64_t i)
{
    const attend_case *c = &s->d->c;
    return s->d->q + ((s->batch * c->heads + s->head) * c->queries + i) * c->dim;
}

static int64_t key_count(const scene *s)
{
    return s->d->seq ? s->d->seq[s->batch] : s->d->c.keys;
}

static int64_t query_count(const scene *s)
{
    const int64_t shift = s->d->c.keys - s->d->c.queries, queries = key_count(s) - shift;
    return s->d->q_seq ? s->d->q_seq[s->batch] : queries > 0 ? queries : 0;
}

static int64_t last_key(const scene *s, int64_t i)
{
    return i + (s->d->q_seq ? key_count(s) - query_count(s) : s->d->c.keys - s->d->c.queries);
}

static void weigh(scene *s)
{
    const attend_case *c = &s->d->c;
    for (int64_t i = 0; i < query_count(s); i++) {
        double *row = s->weight + i * c->keys, sum = 0;
        for (int64_t j = 0; j < key_count(s); j++) {
            double product = 0;
            for (int64_t x = 0; x < c->dim; x++)
                product += (double)query_of(s, i)[x] * (double)key_of(s, j)[x];
            row[j] = j <= last_key(s, i) ? exp(product / sqrt((double)c->dim)) : 0;
            sum += row[j];
        }
        for (int64_t j = 0; j < key_count(s); j++)
            row[j] /= sum;
    }
}

/* Marks the `wanted` largest of n values, ties to the lower. */
static void largest(const double *value, int64_t n, int64_t wanted, bool *kept)
{
    for (int64_t b = 0; b < n; b++)
        kept[b] = false;
    for (int64_t t = 0; t < wanted && t < n; t++) {
        int64_t best = -1;
        for (int64_t b = 0; b < n; b++)
            if (!kept[b] && (best < 0 || value[b] > value[best]))
                best = b;
        kept[best] = true;
    }
}

typedef void (*definition)(const scene *s, const double *arg, bool *chosen /* [N][blocks] */);

static void define_block_top(const scene *s, const double *arg, bool *chosen)
{
    const attend_case *c = &s->d->c;
    double *value = calloc((size_t)s->blocks, sizeof *value);
    for (int64_t i = 0; i < query_count(s); i++) {
        const int64_t first = i / s->block * s->block, current = last_key(s, i) / s->block;
        const int64_t end = first + s->block < query_count(s) ? first + s->block : query_count(s);
        for (int64_t b = 0; b < current; b++) {
            value[b] = 0;
            for (int64_t r = first; r < end; r++)
                for (int64_t j = b * s->block; j < (b + 1) * s->block; j++)
                    for (int64_t x = 0; x < c->dim; x++)
                        value[b] += (double)query_of(s, r)[x] * (double)key_of(s, j)[x];
        }
        largest(value, current, (int64_t)arg[0] - 1, chosen + i * s->blocks);
        chosen[i * s->blocks + current] = true;
    }
    free(value);
}

/* With the maps as they begin: means of queries and of keys; the first block is there. arg: k, threshold */
static void define_seer(const scene *s, const double *arg, bool *chosen)
{
    const attend_case *c = &s->d->c;
    double *value = calloc((size_t)s->blocks, sizeof *value);
    for (int64_t i = 0; i < query_count(s); i++) {
        const int64_t first = i / s->block * s->block, current = last_key(s, i) / s->block;
        const int64_t end = first + s->block < query_count(s) ? first + s->block : query_count(s);
        bool *row = chosen + i * s->blocks;
        double sum = 0;
        for (int64_t b = 0; b < current; b++) {
            value[b] = 0;
            for (int64_t r = first; r < end; r++)
                for (int64_t j = b * s->block; j < (b + 1) * s->block; j++)
                    for (int64_t x = 0; x < c->dim; x++)
                        value[b] += (double)query_of(s, r)[x] * (double)key_of(s, j)[x] /
                                    sqrt((double)c->dim) / (double)((end - first) * s->block);
            sum += exp(value[b]);
        }
        if (current > 0)
            largest(value + 1, current - 1, (int64_t)arg[0] - 2, row + 1);
        for (int64_t b = 0; b < current && arg[1] > 0; b++)
            row[b] = exp(value[b]) / sum > arg[1];
        row[0] = row[current] = true;
    }
    free(value);
}

static void define_vertical_slash(const scene *s, const double *arg, bool *chosen)
{
    const attend_case *c = &s->d->c;
    double *value = calloc(2 * (size_t)s->blocks, sizeof *value), *slash = value + s->blocks;
    bool *kept = calloc(2 * (size_t)s->blocks, sizeof *kept), *line = kept + s->blocks;
    for (int64_t i = query_count(s) - (int64_t)arg[2] < 0 ? 0 : query_count(s) - (int64_t)arg[2];
         i < query_count(s); i++)
        for (int64_t j = 0; j <= last_key(s, i); j++) {
            value[j / s->block] += s->weight[i * c->keys + j];
            slash[last_key(s, i) / s->block - j / s->block] += s->weight[i * c->keys + j];
        }
    largest(value, s->blocks, (int64_t)arg[0], kept);
    largest(slash, s->blocks, (int64_t)arg[1], line);
    for (int64_t i = 0; i < query_count(s); i++) {
        const int64_t current = last_key(s, i) / s->block;
        for (int64_t b = 0; b <= current; b++)
            chosen[i * s->blocks + b] = b == current || kept[b] || line[current - b];
    }
    free(value);
    free(kept);
}

static void define_sample(const scene *s, const double *arg, bool *chosen)
{
    const attend_case *c = &s->d->c;
    double *value = calloc((size_t)s->blocks, sizeof *value), total = 0, sum = 0;
    bool *kept = calloc((size_t)s->blocks, sizeof *kept);
    const int64_t count = (int64_t)ceil(arg[1] * (double)query_count(s));
    for (int64_t n = 0; n < count; n++) {
        const int64_t i = query_count(s) - 1 - n * query_count(s) / count;
        for (int64_t j = 0; j < key_count(s); j++)
            value[j / s->block] += s->weight[i * c->keys + j];
    }
    for (int64_t b = 0; b < s->blocks; b++)
        total += value[b];
    for (int64_t n = 1; n <= s->blocks; n++) {
        largest(value, s->blocks, n, kept);
        sum = 0;
        for (int64_t b = 0; b < s->blocks; b++)
            sum += kept[b] ? value[b] : 0;
        if (sum >= arg[0] * total && arg[0] < 1)
            break;
    }
    const int64_t window = (int64_t)ceil(arg[2] * (double)s->blocks);
    for (int64_t i = 0; i < query_count(s); i++) {
        const int64_t current = last_key(s, i) / s->block;
        for (int64_t b = 0; b <= current; b++)
            chosen[i * s->blocks + b] = b == current || b > current - window || kept[b];
    }
    free(value);
    free(kept);
}

static void define_a_shape(const scene *s, const double *arg, bool *chosen)
{
    for (int64_t i = 0; i < query_count(s); i++) {
        const int64_t current = last_key(s, i) / s->block;
        for (int64_t b = 0; b <= current; b++)
            chosen[i * s->blocks + b] =
                b * s->block < (int64_t)arg[0] || (current - b - 1) * s->block < (int64_t)arg[1];
    }
}

/* The mean product of queries first..end-1 with the keys of a block that exist, over sqrt(dim). */
static double mean_product(const scene *s, int64_t first, int64_t end, int64_t block)
{
    const int64_t key0 = block * s->block;
    const int64_t key1 = key0 + s->block < key_count(s) ? key0 + s->block : key_count(s);
    double sum = 0;
    for (int64_t i = first; i < end; i++)
        for (int64_t j = key0; j < key1; j++)
            for (int64_t x = 0; x < s->d->c.dim; x++)
                sum += (double)query_of(s, i)[x] * (double)key_of(s, j)[x];
    return sum / (double)((end - first) * (key1 - key0)) / sqrt((double)s->d->c.dim);
}

/* The fewest of n weights that sum to a share of all. */
static void heaviest(const double *weight, int64_t n, double share, bool *kept)
{
    double total = 0, sum = 0;
    for (int64_t b = 0; b < n; b++)
        total += weight[b], kept[b] = false;
    for (int64_t wanted = 1; wanted <= n && sum < share * total; wanted++) {
        largest(weight, n, wanted, kept);
        sum = 0;
        for (int64_t b = 0; b < n; b++)
            sum += kept[b] ? weight[b] : 0;
    }
}

static void define_flexprefill(const scene *s, const double *arg, bool *chosen)
{
    const attend_case *c = &s->d->c;
    double column[64] = {0}, slash[64] = {0}, mean[64] = {0}, apart = 0, total = 0, mass = 0;
    bool columns[64], slashes[64];
    const int64_t seen = query_count(s) < s->block ? 0 : query_count(s) - s->block;
    for (int64_t i = seen; i < query_count(s); i++)
        for (int64_t j = 0; j <= last_key(s, i); j++) {
            column[j / s->block] += s->weight[i * c->keys + j];
            slash[last_key(s, i) / s->block - j / s->block] += s->weight[i * c->keys + j];
        }
    for (int64_t b = 0; b < s->blocks; b++) {
        mean[b] = exp(mean_product(s, seen, query_count(s), b));
        total += column[b], mass += mean[b];
    }
    for (int64_t b = 0; b < s->blocks; b++) {
        const double a = column[b] / total, e = mean[b] / mass, m = (a + e) / 2;
        apart += (a > 0 ? a * log(a / m) : 0) / 2 + (e > 0 ? e * log(e / m) : 0) / 2;
    }
    heaviest(column, s->blocks, arg[0], columns);
    heaviest(slash, s->blocks, arg[0], slashes);
    for (int64_t i = 0; i < query_count(s); i++) {
        const int64_t current = last_key(s, i) / s->block, first = i / s->block * s->block;
        const int64_t end = first + s->block < query_count(s) ? first + s->block : query_count(s);
        bool *row = chosen + i * s->blocks, nearest[64] = {0};
        if (sqrt(apart) < arg[1]) {
            for (int64_t b = 0; b < current; b++)
                mean[b] = exp(mean_product(s, first, end, b));
            heaviest(mean, current, arg[0], nearest);
        }
        for (int64_t b = 0; b <= current; b++)
            row[b] = b == 0 || b == current || arg[0] == 1 ||
                     (sqrt(apart) < arg[1] ? nearest[b] : columns[b] || slashes[current - b]);
    }
}

/* The largest product of the block's queries with a key, of one head or of all that share the kv head. */
static double largest_product(const scene *s, int64_t first, int64_t end, int64_t j, bool share)
{
    const attend_case *c = &s->d->c;
    const int64_t each = c->heads / c->kv_heads, h0 = share ? s->head / each * each : s->head;
    double value = -INFINITY;
    for (int64_t h = h0; h < h0 + (share ? each : 1); h++)
        for (int64_t i = first; i < end; i++) {
            const scene other = {.d = s->d, .batch = s->batch, .head = h};
            double product = 0;
            for (int64_t x = 0; x < c->dim; x++)
                product += (double)query_of(&other, i)[x] * (double)key_of(&other, j)[x];
            value = fmax(value, product);
        }
    return value;
}

/* Chunks of blocks are kept by the value of their middle block's middle key, and halved, until they are
 * blocks. */
static void define_hip(const scene *s, const double *arg, bool *chosen)
{
    const int64_t together = (int64_t)arg[1], wanted = ((int64_t)arg[0] + s->block - 1) / s->block;
    const int64_t sinks = ((int64_t)arg[2] + s->block - 1) / s->block;
    const int64_t window = ((int64_t)arg[3] + s->block - 1) / s->block;
    struct {
        int64_t first, end;
    } chunk[512], next[512];
    double value[512];
    bool kept[512];
    for (int64_t first = 0; first < query_count(s); first += together) {
        const int64_t end = first + together < query_count(s) ? first + together : query_count(s);
        const int64_t seen = last_key(s, end - 1) / s->block + 1;
        int64_t n = 2 * wanted < seen ? 2 * wanted : seen;
        for (int64_t i = 0; i < n; i++)
            chunk[i].first = i * seen / n, chunk[i].end = (i + 1) * seen / n;
        for (bool halved = true; halved;) {
            for (int64_t i = 0; i < n; i++) {
                const int64_t key = (chunk[i].first + chunk[i].end) / 2 * s->block + s->block / 2;
                value[i] =
                    largest_product(s, first, end, key < key_count(s) ? key : key_count(s) - 1, arg[4] != 0);
            }
            largest(value, n, wanted, kept);
            int64_t count = 0;
            halved = false;
            for (int64_t i = 0; i < n; i++) {
                const int64_t a = chunk[i].first, b = chunk[i].end, half = (a + b) / 2;
                if (!kept[i])
                    continue;
                next[count].first = a, next[count++].end = b - a > 1 ? half : b;
                if (b - a > 1)
                    next[count].first = half, next[count++].end = b, halved = true;
            }
            memcpy(chunk, next, sizeof chunk);
            n = count;
        }
        for (int64_t i = first; i < end; i++) {
            bool *row = chosen + i * s->blocks;
            for (int64_t x = 0; x < n; x++)
                row[chunk[x].first] = true;
            for (int64_t b = 0; b < s->blocks; b++)
                row[b] |= b < sinks || (b >= last_key(s, first) / s->block - window);
        }
    }
}

/* The choice of every head as a mask of the problem, whose own spec is where=mask. */
static void write_mask(attend_data *d, definition define, int64_t block, const double *arg)
{
    const attend_case *c = &d->c;
    scene s = {.d = d, .block = block, .blocks = (c->keys + block - 1) / block};
    s.weight = calloc((size_t)(c->queries * c->keys), sizeof *s.weight);
    bool *chosen = calloc((size_t)(c->queries * s.blocks + 1), sizeof *chosen);
    for (s.batch = 0; s.batch < c->batch; s.batch++) {
        s.blocks = (key_count(&s) + block - 1) / block;
        for (s.head = 0; s.head < c->heads; s.head++) {
            memset(chosen, 0, (size_t)(c->queries * s.blocks) * sizeof *chosen);
            memset(d->mask + (s.batch * c->heads + s.head) * c->queries * c->keys, 0,
                   (size_t)(c->queries * c->keys));
            weigh(&s);
            define(&s, arg, chosen);
            uint8_t *mask = d->mask + (s.batch * c->heads + s.head) * c->queries * c->keys;
            for (int64_t i = 0; i < query_count(&s); i++)
                for (int64_t j = 0; j < key_count(&s); j++)
                    mask[i * c->keys + j] = j <= last_key(&s, i) && chosen[i * s.blocks + j / block];
        }
    }
    free(chosen);
    free(s.weight);
}

static const struct {
    const char *spec;
    definition define;
    int64_t block;
    double arg[5];
} cases[] = {
    {"select=block_top(block=16, k=3); where=causal", define_block_top, 16, {3}},
    {"select=block_top(block=40, k=2); where=causal", define_block_top, 40, {2}},
    {"select=block_top(block=64, k=100); where=causal", define_block_top, 64, {100}},
    {"select=seer(block=16, k=4); where=causal", define_seer, 16, {4}},
    {"select=seer(block=8, threshold=0.06); where=causal", define_seer, 8, {8, 0.06}},
    {"select=seer(block=16, k=100); where=causal", define_seer, 16, {100}},
    {"select=vertical_slash(block=16, columns=2, slashes=3, last=20); where=causal",
     define_vertical_slash,
     16,
     {2, 3, 20}},
    {"select=vertical_slash(block=32, columns=0, slashes=0); where=causal",
     define_vertical_slash,
     32,
     {0, 0, 64}},
    {"select=vertical_slash(block=7, columns=5, slashes=9, last=1000); where=causal",
     define_vertical_slash,
     7,
     {5, 9, 1000}},
    {"select=sample(alpha=0.6, rows=0.2, window=0.1, block=16); where=causal",
     define_sample,
     16,
     {0.6, 0.2, 0.1}},
    {"select=sample(alpha=1); where=causal", define_sample, 64, {1, 0.05, 0.08}},
    {"select=hip(k=16, queries=8, block=4, sinks=4, window=8); where=causal",
     define_hip,
     4,
     {16, 8, 4, 8, 0}},
    {"select=hip(k=20, queries=32, sinks=0, window=0); where=causal", define_hip, 2, {20, 32, 0, 0, 0}},
    {"select=hip(k=40, queries=64, block=16, sinks=1, window=3, share=group); where=causal",
     define_hip,
     16,
     {40, 64, 1, 3, 1}},
    {"select=hip(k=300); where=causal", define_hip, 2, {300, 32, 16, 64, 0}},
    {"select=a_shape(sinks=5, window=20, block=8); where=causal", define_a_shape, 8, {5, 20}},
    {"select=a_shape(sinks=0, window=0); where=causal", define_a_shape, 64, {0, 0}},
    {"select=flexprefill(gamma=0.6, tau=0.3, block=16); where=causal", define_flexprefill, 16, {0.6, 0.3}},
    {"select=flexprefill(gamma=0.8, tau=inf, block=20); where=causal",
     define_flexprefill,
     20,
     {0.8, INFINITY}},
    {"select=flexprefill(gamma=0.5, tau=0, block=8); where=causal", define_flexprefill, 8, {0.5, 0}},
    {"select=flexprefill(gamma=1); where=causal", define_flexprefill, 64, {1, 0.1}},
    {"select=sample(alpha=0.3, rows=1, window=0, block=24); where=causal", define_sample, 24, {0.3, 1, 0}},
};

/* Changes the spec, with the parameters that the new one begins with. */
static void run_as(attend_data *d, const char *spec)
{
    const int64_t heads = d->c.heads, dim = d->c.dim;
    d->c.spec = spec;
    if (!strstr(spec, "seer"))
        return;
    oracle_add_param(d->o, "select.seer.query", 3, (const int64_t[]){heads, dim, dim}, 0);
    oracle_add_param(d->o, "select.seer.key", 3, (const int64_t[]){heads, dim, 3 * dim}, 0);
    for (int64_t i = 0; i < heads * dim * dim; i++)
        oracle_find_param(d->o, "select.seer.query")->value[i] = i / dim % dim == i % dim;
    for (int64_t i = 0; i < heads * 3 * dim * dim; i++)
        oracle_find_param(d->o, "select.seer.key")->value[i] = i / (3 * dim) % dim + 2 * dim == i % (3 * dim);
}

static void the_choice_is_that_of_its_definition(void **state)
{
    (void)state;
    static const int64_t queries[] = {2, 70, 201, 1};
    for (size_t i = 0; i < COUNT(cases); i++)
        for (size_t n = 0; n < COUNT(queries); n++) {
            attend_data *d = attend_make(&(attend_case){.spec = "where=mask",
                                                        .batch = 1 + n % 2,
                                                        .heads = 4,
                                                        .kv_heads = 2,
                                                        .queries = queries[n],
                                                        .keys = queries[n] + 50 * (n % 2),
                                                        .dim = 10,
                                                        .mask = MASK_BHNM,
                                                        .ragged = (int)(n + i) % 3,
                                                        .spread = 1.5,
                                                        .seed = 10 * i + n});
            write_mask(d, cases[i].define, cases[i].block, cases[i].arg);
            attend_expect(d);
            run_as(d, cases[i].spec);
            for (const heed_isa *isa = test_isas(); *isa; isa++) {
                const attend_way way = {.isa = *isa, .pairs = true, .weights = true, .threads = 2};
                attend_result *r = attend_run(d, &way);
                assert_true(r->info.kernel == HEED_KERNEL_SPARSE ||
                            (r->info.kernel == HEED_KERNEL_DECODE && queries[n] <= 2));
                attend_match(d, r);
                double open = 0;
                for (int64_t x = 0; x < d->c.batch * 4 * queries[n] * d->c.keys; x++)
                    open += d->mask[x];
                if (r->pairs[0] != open)
                    fail_msg("%s: %g pairs are said to be read, %g are", cases[i].spec, r->pairs[0], open);
                attend_result_free(r);
            }
            attend_free(d);
        }
}

/* What hangs on the row's own place alone goes through whole rows too, backward as well. */
static void a_shape_has_a_gradient(void **state)
{
    (void)state;
    attend_data *d = attend_make(&(attend_case){.spec = "where=mask",
                                                .heads = 4,
                                                .kv_heads = 2,
                                                .queries = 70,
                                                .mask = MASK_BHNM,
                                                .way.backward = true});
    write_mask(d, define_a_shape, 8, (double[]){5, 20});
    attend_expect(d);
    d->c.spec = "select=a_shape(sinks=5, window=20, block=8); where=causal";
    attend_result *r = attend_run(d, &d->c.way);
    attend_match(d, r);
    attend_result_free(r);
    attend_free(d);
}

static void same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        attend_data *d = attend_prepare(&(attend_case){.spec = "where=causal",
                                                       .batch = 2,
                                                       .heads = 4,
                                                       .kv_heads = 2,
                                                       .queries = 150,
                                                       .dim = 8,
                                                       .seed = i});
        run_as(d, cases[i].spec);
        attend_result *one = attend_run(d, &(attend_way){.threads = 1});
        attend_result *five = attend_run(d, &(attend_way){.threads = 5, .own_scratch = true});
        attend_same_bits(d, one, five);
        attend_result_free(one);
        attend_result_free(five);
        attend_free(d);
    }
}

static void what_cannot_be_chosen_together_is_refused(void **state)
{
    (void)state;
    static const char *const specs[] = {"select=block_top > top_k(5)",
                                        "select=vertical_slash; normalise=sparsemax",
                                        "select=sample; heads=talking", "select=top_k(4) > vertical_slash"};
    for (size_t i = 0; i < COUNT(specs); i++) {
        heed_plan *plan;
        const heed_problem problem = {.batch = 1, .heads = 2, .queries = 64, .keys = 64, .dim = 8};
        assert_int_equal(heed_plan_create(&plan, specs[i], &problem), HEED_UNSUPPORTED);
        assert_non_null(strstr(heed_message(), "chooses for several queries together"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_choose_for_themselves_in_prefill),
        cmocka_unit_test(the_choice_is_that_of_its_definition),
        cmocka_unit_test(a_shape_has_a_gradient),
        cmocka_unit_test(same_bits_for_any_number_of_threads),
        cmocka_unit_test(what_cannot_be_chosen_together_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
