/* HyperAttention: large weights by hashing, the rest by sampling.
 *
 *     queries and keys are hashed to `bits` signs of products with random directions, and stand sorted by the
 *     rank of their hash among Gray codes, so that neighbouring buckets differ in one sign; both lists are
 * cut into ceil(n / block) blocks, and blocks of the same number meet m keys, drawn evenly and without
 * repetition, stand for the others: with weight n / m, and without those of the query's own block
 *
 * Both parts are one softmax. With m >= n nothing is lost. Under `causal` a text is halved until no more than
 * `base` keys are left, which are met exactly; the later half meets the earlier as above. Keys from before
 * the first query, as in a text that is read in pieces, are met as above too; no more than `base` are met
 * exactly. A query that comes alone, in decoding, reads everything. Lists do not pass gradients on.
 *
 * Draws come from a hash of the seed, the head and the place of the keys. Han et al.: HyperAttention, 2023.
 */
#include "attend/form.h"
#include "attend/select/draw.h"
#include "base/arena.h"

#include <heed/gather.h>

enum { BLOCK, SAMPLES, BITS, BASE, SEED };
enum { ROWS = 128 }; /* keys that are loaded at a time */

static int bits_of(const heed_form_state *form)
{
    return heed_arg_int(form, BITS);
}

/* Directions [bits][dim] */
static size_t table_bytes(const heed_form_state *form)
{
    return (size_t)bits_of(form) * (size_t)form->sizes.dim * sizeof(float);
}

static void setup(heed_form_state *form)
{
    uint64_t state = (uint64_t)heed_arg_int(form, SEED);
    heed_draw_normal(&state, bits_of(form) * form->sizes.dim, form->table);
}

typedef struct lists {
    int32_t *query, *key;   /* [N], [M] sorted by hash */
    int32_t *code;          /* [N or M, the larger] */
    int32_t *bucket;        /* [2^bits + 1] */
    int32_t *sample, *rank; /* [m] keys, and where they stand in the sorted list */
    int32_t *from, *until;  /* [N] samples of the query's own block */
    float *mass;            /* [m] */
    float *rows;            /* [ROWS][dim] */
} lists;

static lists carve(const heed_form_state *form, void *base, size_t *bytes)
{
    const size_t N = (size_t)form->sizes.queries, M = (size_t)form->sizes.keys;
    const size_t m = (size_t)heed_arg_int(form, SAMPLES) < M ? (size_t)heed_arg_int(form, SAMPLES) : M;
    heed_arena arena = {.base = base};
    lists l = {.query = heed_arena_take(&arena, N, sizeof *l.query)};
    l.key = heed_arena_take(&arena, M, sizeof *l.key);
    l.code = heed_arena_take(&arena, N > M ? N : M, sizeof *l.code);
    l.bucket = heed_arena_take(&arena, ((size_t)1 << bits_of(form)) + 1, sizeof *l.bucket);
    l.sample = heed_arena_take(&arena, m, sizeof *l.sample);
    l.rank = heed_arena_take(&arena, m, sizeof *l.rank);
    l.from = heed_arena_take(&arena, N, sizeof *l.from);
    l.until = heed_arena_take(&arena, N, sizeof *l.until);
    l.mass = heed_arena_take(&arena, m, sizeof *l.mass);
    l.rows = heed_arena_take(&arena, ROWS * (size_t)form->sizes.dim, sizeof *l.rows);
    *bytes = arena.used;
    return l;
}

static size_t bytes_of(const heed_form_state *form)
{
    size_t bytes;
    carve(form, NULL, &bytes);
    return bytes;
}

/* The place of a hash among Gray codes: the number whose Gray code it is. */
static int32_t rank_of(int32_t hash)
{
    int32_t rank = 0;
    for (; hash; hash >>= 1)
        rank ^= hash;
    return rank;
}

static int32_t hash(const heed_form_state *form, const float *row)
{
    const float *direction = form->table;
    const int64_t dim = form->sizes.dim;
    int32_t bits = 0;
    for (int b = 0; b < bits_of(form); b++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < dim; c++)
            sum += row[c] * direction[b * dim + c];
        bits |= (sum > 0) << b;
    }
    return rank_of(bits);
}

/* The numbers first .. first+n-1 by their codes; of equal ones the lower first. */
static void sort(const heed_form_state *form, lists *l, int64_t first, int64_t n, int32_t *to)
{
    const int32_t buckets = 1 << bits_of(form);
    memset(l->bucket, 0, ((size_t)buckets + 1) * sizeof *l->bucket);
    for (int64_t i = 0; i < n; i++)
        l->bucket[l->code[i] + 1]++;
    for (int32_t b = 0; b < buckets; b++)
        l->bucket[b + 1] += l->bucket[b];
    for (int64_t i = 0; i < n; i++)
        to[l->bucket[l->code[i]]++] = (int32_t)(first + i);
}

static void sort_queries(const heed_form_state *form, const heed_gathering *at, lists *l, int64_t q0,
                         int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        l->code[i] = hash(form, at->query + (q0 + i) * at->query_stride);
    sort(form, l, q0, n, l->query);
}

static void sort_keys(const heed_form_state *form, const heed_gathering *at, lists *l, int64_t k0, int64_t n)
{
    for (int64_t j = 0; j < n; j += ROWS) {
        const int64_t here = n - j < ROWS ? n - j : ROWS;
        at->load_keys(at, k0 + j, here, l->rows, at->dim);
        for (int64_t i = 0; i < here; i++)
            l->code[j + i] = hash(form, l->rows + i * at->dim);
    }
    sort(form, l, k0, n, l->key);
}

/* m of n sorted keys, each as likely, in rising order. */
static void sample_keys(const heed_form_state *form, const heed_gathering *at, lists *l, int64_t k0,
                        int64_t n, int64_t m)
{
    uint64_t state = (uint64_t)heed_arg_int(form, SEED) + 1;
    state = heed_draw(&state) ^ ((uint64_t)at->head << 40) ^ (uint64_t)(k0 + n);
    for (int64_t r = 0, taken = 0; r < n && taken < m; r++) {
        if (heed_draw_unit(&state) * (double)(n - r) >= (double)(m - taken))
            continue;
        l->rank[taken] = (int32_t)r;
        l->mass[taken] = (float)log((double)n / (double)m);
        l->sample[taken++] = l->key[r];
    }
}

static void meet_all(const heed_gathering *at, int64_t q0, int64_t nq, int64_t k0, int64_t nk)
{
    at->meet(at, &(heed_meeting){.first_query = q0, .queries = nq, .first_key = k0, .keys = nk});
}

/* Queries q0.. meet keys k0.., of which they may see all that `where` leaves. */
static void cross(const heed_form_state *form, const heed_gathering *at, int64_t q0, int64_t nq, int64_t k0,
                  int64_t nk)
{
    const int64_t block = heed_arg_int(form, BLOCK), blocks = (nk + block - 1) / block;
    const int64_t asked = heed_arg_int(form, SAMPLES), m = asked < nk ? asked : nk;
    if (nq == 0 || nk == 0)
        return;
    if (blocks < 2 || nk <= heed_arg_int(form, BASE)) {
        meet_all(at, q0, nq, k0, nk);
        return;
    }
    size_t bytes;
    lists l = carve(form, at->work, &bytes);
    sort_queries(form, at, &l, q0, nq);
    sort_keys(form, at, &l, k0, nk);
    sample_keys(form, at, &l, k0, nk, m);
    for (int64_t b = 0, first = 0, sampled = 0; b < blocks; b++) {
        const int64_t end = (b + 1) * nq / blocks, until = (b + 1) * block < nk ? (b + 1) * block : nk;
        const int64_t before = sampled;
        while (sampled < m && l.rank[sampled] < until)
            sampled++;
        for (int64_t i = first; i < end; i++) {
            l.from[i] = (int32_t)before;
            l.until[i] = (int32_t)sampled;
        }
        at->meet(at, &(heed_meeting){.query = l.query + first,
                                     .queries = end - first,
                                     .key = l.key + b * block,
                                     .keys = until - b * block});
        first = end;
    }
    at->meet(at, &(heed_meeting){.query = l.query,
                                 .queries = nq,
                                 .key = l.sample,
                                 .keys = m,
                                 .log_mass = l.mass,
                                 .from = l.from,
                                 .until = l.until,
                                 .outside = true});
}

/* n queries from q0 on and their own keys. */
static void halve(const heed_form_state *form, const heed_gathering *at, int64_t q0, int64_t n)
{
    const int64_t half = n / 2, base = heed_arg_int(form, BASE);
    if (n <= base || n < 2) {
        meet_all(at, q0, n, at->before + q0, n);
        return;
    }
    halve(form, at, q0, half);
    halve(form, at, q0 + half, n - half);
    cross(form, at, q0 + half, n - half, at->before + q0, half);
}

static void gather(const heed_form_state *form, const heed_gathering *at)
{
    const int64_t own = at->keys - at->before;
    if (!form->sizes.causal) {
        cross(form, at, 0, at->queries, 0, at->keys);
        return;
    }
    cross(form, at, 0, at->queries, 0, at->before);
    if (own == at->queries)
        halve(form, at, 0, own);
    else /* queries that have no key of their own */
        meet_all(at, 0, at->queries, at->before, own);
}

static bool serves(const heed_form_state *form)
{
    return form->sizes.queries != 1 || form->backward;
}

static const heed_arg args[] = {
    [BLOCK] = {.name = "block",
               .kind = HEED_ARG_INT,
               .value = 256,
               .least = 1,
               .most = INFINITY,
               .summary = "keys in a block of the sorted list"},
    [SAMPLES] = {.name = "m",
                 .kind = HEED_ARG_INT,
                 .value = 256,
                 .least = 1,
                 .most = INFINITY,
                 .summary = "keys that stand for those of other blocks"},
    [BITS] =
        {.name = "bits", .kind = HEED_ARG_INT, .value = 7, .least = 1, .most = 16, .summary = "of a hash"},
    [BASE] = {.name = "base",
              .kind = HEED_ARG_INT,
              .value = 4096,
              .least = 1,
              .most = INFINITY,
              .summary = "keys up to which everything is met"},
    [SEED] = {.name = "seed",
              .kind = HEED_ARG_INT,
              .value = 0,
              .least = 0,
              .most = 2147483647,
              .summary = "of directions and samples"},
    {0},
};

static const heed_gather_rule rule = {.serves = serves, .bytes = bytes_of, .gather = gather};

const heed_form HEED_FORM(select_hyper) = {
    .name = "hyper",
    .stage = HEED_SELECT,
    .summary = "keys of the query's bucket, and a sample that stands for the others",
    .formula = "blocks of queries and keys sorted by hash; n/m times m sampled keys of other blocks",
    .source = "Han et al.: HyperAttention: Long-context Attention in Near-Linear Time, 2023",
    .row = "001.092",
    .args = args,
    .table_bytes = table_bytes,
    .setup = setup,
    .gathers = &rule,
};
