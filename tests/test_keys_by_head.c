/* Plans whose kv heads hold different keys give, bit for bit, what each kv head gives in a plan of its own.
 */
#include "support/attend.h"
#include "support/isas.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, HEADS = 4, GROUPS = 2, GROUP = HEADS / GROUPS, KEYS = 300, DIM = 32, MOST = 40, PAGE = 16 };
enum { PAGES = (KEYS + PAGE - 1) / PAGE, POOL = BATCH * GROUPS * PAGES, TOP = 3 };

typedef struct data {
    float q[BATCH * HEADS * MOST * DIM];
    float k[BATCH * GROUPS * KEYS * DIM], v[BATCH * GROUPS * KEYS * DIM];
    float paged_k[POOL * PAGE * DIM], paged_v[POOL * PAGE * DIM];
    int32_t table[BATCH * GROUPS * PAGES];
    int32_t seq[BATCH * GROUPS], q_seq[BATCH], q_pos[BATCH * MOST], k_pos[BATCH * GROUPS * KEYS];
    float mass[BATCH * GROUPS * KEYS];
    uint8_t mask[HEADS * MOST * KEYS];
} data;

typedef struct outcome {
    float out[BATCH * HEADS * MOST * DIM], lse[BATCH * HEADS * MOST], entropy[BATCH * HEADS * MOST];
    float key_sums[BATCH * HEADS * KEYS], top[BATCH * HEADS * MOST * TOP];
    int32_t top_key[BATCH * HEADS * MOST * TOP];
} outcome;

/* How a plan is asked. */
typedef struct way {
    const char *spec;
    int queries;
    unsigned with;
    heed_isa isa;
    heed_kernel kernel;
} way;

static int below(test_random *random, int n)
{
    return (int)random_whole(random, 0, n - 1);
}

/* Keys whose positions have gaps, as if many had been evicted; the queries stand behind all of them. */
static data *make(uint64_t seed, int queries)
{
    static const int counts[] = {300, 129, 0, 77};
    data *d = calloc(1, sizeof *d);
    assert_non_null(d);
    test_random random = {seed};
    for (int i = 0; i < BATCH * HEADS * MOST * DIM; i++)
        d->q[i] = (float)random_normal(&random);
    for (int i = 0; i < BATCH * GROUPS * KEYS * DIM; i++) {
        d->k[i] = (float)random_normal(&random);
        d->v[i] = (float)random_normal(&random);
    }
    for (int i = 0; i < BATCH * GROUPS * KEYS; i++)
        d->mass[i] = 0.5f + (float)below(&random, 5);
    for (int i = 0; i < HEADS * MOST * KEYS; i++)
        d->mask[i] = below(&random, 3) > 0;
    for (int n = 0; n < BATCH * GROUPS; n++) {
        d->seq[n] = counts[n];
        for (int32_t j = 0, at = 0; j < KEYS; j++, at += 1 + (below(&random, 4) == 0) * below(&random, 9))
            d->k_pos[n * KEYS + j] = at;
        for (int i = 0; i < PAGES; i++)
            d->table[n * PAGES + i] = (n * PAGES + i) * 7 % POOL; /* 7 has no factor in common with POOL */
        for (int j = 0; j < KEYS; j++) {
            const size_t to = ((size_t)d->table[n * PAGES + j / PAGE] * PAGE + (size_t)(j % PAGE)) * DIM;
            const size_t from = ((size_t)n * KEYS + (size_t)j) * DIM;
            memcpy(d->paged_k + to, d->k + from, DIM * sizeof(float));
            memcpy(d->paged_v + to, d->v + from, DIM * sizeof(float));
        }
    }
    for (int b = 0; b < BATCH; b++) {
        d->q_seq[b] = b == 0 ? queries : (queries + 1) / 2;
        for (int i = 0; i < MOST; i++) /* within the keys, so that causal cuts at different places */
            d->q_pos[b * MOST + i] = 250 + 9 * i;
    }
    return d;
}

static void create(heed_plan **plan, const way *w, int64_t batch, unsigned with)
{
    const heed_problem problem = {.batch = batch,
                                  .heads = HEADS,
                                  .kv_heads = GROUPS,
                                  .queries = w->queries,
                                  .keys = KEYS,
                                  .dim = DIM,
                                  .threads = 1,
                                  .isa = w->isa,
                                  .kernel = w->kernel,
                                  .page = PAGE,
                                  .top = TOP,
                                  .with = with | w->with | HEED_WITH_SEQ | HEED_WITH_POSITIONS};
    if (heed_plan_create(plan, w->spec, &problem))
        fail_msg("%s: %s", w->spec, heed_message());
}

static void point_captures(heed_extra *extra, outcome *o, const way *w, int64_t batch)
{
    extra->lse = heed_tensor_dense(o->lse, HEED_F32, 3, (int64_t[]){batch, HEADS, w->queries});
    if (w->with & HEED_WITH_ENTROPY)
        extra->capture.entropy = o->entropy;
    if (w->with & HEED_WITH_KEY_SUMS)
        extra->capture.key_sums = o->key_sums;
    if (w->with & HEED_WITH_TOP) {
        extra->capture.top_weight = o->top;
        extra->capture.top_key = o->top_key;
    }
}

/* Queries [batch, HEADS, queries, DIM] of entries b0... */
static heed_tensor queries_of(data *d, int64_t b0, int64_t batch, int64_t queries)
{
    heed_tensor q =
        heed_tensor_dense(d->q + b0 * HEADS * MOST * DIM, HEED_F32, 4, (int64_t[]){batch, HEADS, MOST, DIM});
    q.shape[2] = queries;
    return q;
}

static heed_tensor positions_of(int32_t *pos, int64_t batch, int64_t queries)
{
    heed_tensor t = heed_tensor_dense(pos, HEED_I32, 2, (int64_t[]){batch, MOST});
    t.shape[1] = queries;
    return t;
}

static heed_tensor mask_of(data *d, int64_t queries)
{
    heed_tensor t = heed_tensor_dense(d->mask, HEED_U8, 4, (int64_t[]){1, HEADS, MOST, KEYS});
    t.shape[2] = queries;
    return t;
}

/* All kv heads in one plan. */
static heed_kernel together(data *d, const way *w, outcome *o)
{
    heed_plan *plan;
    create(&plan, w, BATCH, HEED_WITH_KEYS_BY_HEAD);
    const bool paged = w->with & HEED_WITH_PAGES;
    const int64_t shape[] = {BATCH, GROUPS, KEYS, DIM}, pool[] = {POOL, 1, PAGE, DIM};
    const heed_tensor q = queries_of(d, 0, BATCH, w->queries);
    const heed_tensor k = heed_tensor_dense(paged ? d->paged_k : d->k, HEED_F32, 4, paged ? pool : shape);
    const heed_tensor v = heed_tensor_dense(paged ? d->paged_v : d->v, HEED_F32, 4, paged ? pool : shape);
    const heed_tensor out =
        heed_tensor_dense(o->out, HEED_F32, 4, (int64_t[]){BATCH, HEADS, w->queries, DIM});
    heed_extra extra = {.seq = heed_tensor_dense(d->seq, HEED_I32, 2, (int64_t[]){BATCH, GROUPS}),
                        .q_seq = heed_tensor_dense(d->q_seq, HEED_I32, 1, (int64_t[]){BATCH}),
                        .q_pos = positions_of(d->q_pos, BATCH, w->queries),
                        .k_pos = heed_tensor_dense(d->k_pos, HEED_I32, 3, (int64_t[]){BATCH, GROUPS, KEYS})};
    if (paged)
        extra.page_table = heed_tensor_dense(d->table, HEED_I32, 3, (int64_t[]){BATCH, GROUPS, PAGES});
    if (w->with & HEED_WITH_MASS)
        extra.mass = heed_tensor_dense(d->mass, HEED_F32, 3, (int64_t[]){BATCH, GROUPS, KEYS});
    if (w->with & HEED_WITH_MASK)
        extra.mask = mask_of(d, w->queries);
    point_captures(&extra, o, w, BATCH);
    if (heed_attend(plan, &q, &k, &v, &out, &extra))
        fail_msg("%s: %s", w->spec, heed_message());
    heed_plan_info info;
    heed_plan_get_info(plan, &info);
    heed_plan_free(plan);
    return info.kernel;
}

/* One batch entry in which all kv heads hold the keys of kv head g. */
static void alone(data *d, const way *w, int b, int g, outcome *o)
{
    heed_plan *plan;
    create(&plan, w, 1, 0);
    const int n = b * GROUPS + g;
    const bool paged = w->with & HEED_WITH_PAGES;
    const int64_t shape[] = {1, GROUPS, KEYS, DIM}, pool[] = {POOL, GROUPS, PAGE, DIM};
    const size_t at = (size_t)n * KEYS * DIM;
    const heed_tensor q = queries_of(d, b, 1, w->queries);
    heed_tensor k = heed_tensor_dense(paged ? d->paged_k : d->k + at, HEED_F32, 4, paged ? pool : shape);
    heed_tensor v = heed_tensor_dense(paged ? d->paged_v : d->v + at, HEED_F32, 4, paged ? pool : shape);
    k.stride[1] = v.stride[1] = 0;
    if (paged)
        k.stride[0] = v.stride[0] = PAGE * DIM * (int64_t)sizeof(float);
    const heed_tensor out = heed_tensor_dense(o->out, HEED_F32, 4, (int64_t[]){1, HEADS, w->queries, DIM});
    heed_extra extra = {.seq = heed_tensor_dense(d->seq + n, HEED_I32, 1, (int64_t[]){1}),
                        .q_seq = heed_tensor_dense(d->q_seq + b, HEED_I32, 1, (int64_t[]){1}),
                        .q_pos = positions_of(d->q_pos + b * MOST, 1, w->queries),
                        .k_pos = heed_tensor_dense(d->k_pos + n * KEYS, HEED_I32, 2, (int64_t[]){1, KEYS})};
    if (paged)
        extra.page_table = heed_tensor_dense(d->table + n * PAGES, HEED_I32, 2, (int64_t[]){1, PAGES});
    if (w->with & HEED_WITH_MASS)
        extra.mass = heed_tensor_dense(d->mass + n * KEYS, HEED_F32, 2, (int64_t[]){1, KEYS});
    if (w->with & HEED_WITH_MASK)
        extra.mask = mask_of(d, w->queries);
    point_captures(&extra, o, w, 1);
    if (heed_attend(plan, &q, &k, &v, &out, &extra))
        fail_msg("%s: %s", w->spec, heed_message());
    heed_plan_free(plan);
}

static void same(const way *w, const char *what, const void *a, const void *b, size_t bytes, int entry,
                 int head)
{
    if (memcmp(a, b, bytes) != 0)
        fail_msg("%s, %d queries, with %u, %s, kernel %s: %s of batch entry %d, head %d differs", w->spec,
                 w->queries, w->with, heed_isa_name(w->isa), heed_kernel_name(w->kernel), what, entry, head);
}

/* The heads of group g of entry b of the whole, against the plan of its own. */
static void compare(const way *w, const outcome *all, const outcome *own, int b, int g)
{
    const size_t rows = (size_t)w->queries;
    for (size_t h = (size_t)g * GROUP; h < (size_t)(g + 1) * GROUP; h++) {
        const size_t at = (size_t)b * HEADS + h;
        const int head = (int)h;
        same(w, "the output", all->out + at * rows * DIM, own->out + h * rows * DIM,
             rows * DIM * sizeof(float), b, head);
        same(w, "lse", all->lse + at * rows, own->lse + h * rows, rows * sizeof(float), b, head);
        same(w, "the entropy", all->entropy + at * rows, own->entropy + h * rows, rows * sizeof(float), b,
             head);
        same(w, "the sum of weights", all->key_sums + at * KEYS, own->key_sums + h * KEYS,
             KEYS * sizeof(float), b, head);
        same(w, "the strongest weights", all->top + at * rows * TOP, own->top + h * rows * TOP,
             rows * TOP * sizeof(float), b, head);
        same(w, "the strongest keys", all->top_key + at * rows * TOP, own->top_key + h * rows * TOP,
             rows * TOP * sizeof(int32_t), b, head);
    }
}

static heed_kernel check(data *d, const way *w)
{
    static outcome all, own;
    memset(&all, 0, sizeof all);
    const heed_kernel kernel = together(d, w, &all);
    for (int b = 0; b < BATCH; b++)
        for (int g = 0; g < GROUPS; g++) {
            memset(&own, 0, sizeof own);
            alone(d, w, b, g, &own);
            compare(w, &all, &own, b, g);
        }
    return kernel;
}

static const struct {
    const char *spec;
    unsigned with;
} cases[] = {
    {"where=causal", 0},
    {"position=alibi; where=causal & window(60)", 0},
    {"position=rope; where=causal", 0},
    {"position=rope; where=causal", HEED_WITH_PREPARED_KEYS},
    {"position=t5; where=causal & (window(20) | first(4))", 0},
    {"where=last(90); normalise=softcap(5) > sink", 0},
    {"where=causal; normalise=sigmoid", 0},
    {"where=causal & mask", HEED_WITH_MASK},
    {"position=alibi; where=causal; select=top_k(9)", 0},
    {"position=rope; where=causal; select=quest(page=16, budget=64)", 0},
    {"where=causal; normalise=entmax", 0},
    {"heads 0: where=window(9); heads 1-3: where=causal; heads 1-3: position=alibi", 0},
};

static void each_kv_head_reads_its_own_keys(void **state)
{
    (void)state;
    static const int queries[] = {1, 3, MOST};
    static const unsigned more[] = {0, HEED_WITH_PAGES,
                                    HEED_WITH_ENTROPY | HEED_WITH_KEY_SUMS | HEED_WITH_TOP};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int n = 0; n < 3; n++) {
            data *d = make(c + 1, queries[n]);
            for (const heed_isa *isa = test_isas(); *isa; isa++)
                for (int m = 0; m < 3; m++)
                    check(d, &(way){.spec = cases[c].spec,
                                    .queries = queries[n],
                                    .with = cases[c].with | more[m],
                                    .isa = *isa});
            free(d);
        }
}

static void every_kernel_reads_them(void **state)
{
    (void)state;
    static const heed_kernel kernels[] = {HEED_KERNEL_FLASH, HEED_KERNEL_SPARSE, HEED_KERNEL_ROWS,
                                          HEED_KERNEL_DECODE};
    data *d = make(99, 5);
    for (const heed_isa *isa = test_isas(); *isa; isa++)
        for (int k = 0; k < 4; k++) {
            const way w = {.spec = "position=alibi; where=causal",
                           .queries = 5,
                           .with = HEED_WITH_MASS | HEED_WITH_KEY_SUMS,
                           .isa = *isa,
                           .kernel = kernels[k]};
            assert_int_equal(check(d, &w), kernels[k]);
        }
    free(d);
}

static void keys_with_gaps_are_decoded_where_they_lie(void **state)
{
    (void)state;
    data *d = make(7, 1);
    const way w = {.spec = "position=rope; where=causal",
                   .queries = 1,
                   .with = HEED_WITH_PREPARED_KEYS | HEED_WITH_PAGES};
    assert_int_equal(check(d, &w), HEED_KERNEL_DECODE);
    free(d);
}

static heed_status try(const char *spec, unsigned with)
{
    const heed_problem problem = {
        .batch = 1, .heads = HEADS, .kv_heads = GROUPS, .queries = 1, .keys = KEYS, .dim = DIM, .with = with};
    heed_plan *plan = NULL;
    const heed_status status = heed_plan_create(&plan, spec, &problem);
    heed_plan_free(plan);
    return status;
}

static void what_needs_common_keys_is_refused(void **state)
{
    (void)state;
    assert_int_equal(try("", HEED_WITH_KEYS_BY_HEAD | HEED_WITH_BACKWARD), HEED_UNSUPPORTED);
    assert_non_null(strstr(heed_message(), "kv heads"));
    assert_int_equal(try("heads=talking", HEED_WITH_KEYS_BY_HEAD | HEED_WITH_POSITIONS), HEED_UNSUPPORTED);
    assert_non_null(strstr(heed_message(), "talking"));
    assert_int_equal(try("where=segments", HEED_WITH_KEYS_BY_HEAD | HEED_WITH_SEGMENTS), HEED_UNSUPPORTED);
    assert_non_null(strstr(heed_message(), "k_segment"));
}

static void heads_of_different_lengths_need_the_place_of_the_query(void **state)
{
    (void)state;
    data *d = make(3, 1);
    heed_plan *plan;
    const way w = {.spec = "where=causal", .queries = 1};
    create(&plan, &w, BATCH, HEED_WITH_KEYS_BY_HEAD);
    static float out[BATCH * HEADS * DIM];
    const int64_t shape[] = {BATCH, GROUPS, KEYS, DIM};
    const heed_tensor q = queries_of(d, 0, BATCH, 1), k = heed_tensor_dense(d->k, HEED_F32, 4, shape),
                      o = heed_tensor_dense(out, HEED_F32, 4, (int64_t[]){BATCH, HEADS, 1, DIM});
    heed_extra extra = {.seq = heed_tensor_dense(d->seq, HEED_I32, 2, (int64_t[]){BATCH, GROUPS})};
    assert_int_equal(heed_attend(plan, &q, &k, &k, &o, &extra), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "q_pos"));
    extra.q_seq = heed_tensor_dense(d->q_seq, HEED_I32, 1, (int64_t[]){BATCH});
    assert_int_equal(heed_attend(plan, &q, &k, &k, &o, &extra), HEED_INVALID);
    extra.q_pos = positions_of(d->q_pos, BATCH, 1);
    assert_int_equal(heed_attend(plan, &q, &k, &k, &o, &extra), HEED_OK);
    extra.seq = heed_tensor_dense(d->seq, HEED_I32, 1, (int64_t[]){BATCH});
    assert_int_equal(heed_attend(plan, &q, &k, &k, &o, &extra), HEED_INVALID);
    heed_plan_free(plan);
    free(d);
}

/* A start moves queries and keys alike: what depends on distances stays, what counts from the first position
 * moves. Against positions written out. */
static void a_start_is_where_default_positions_begin(void **state)
{
    (void)state;
    static const char *const specs[] = {"position=rope; where=causal & (window(30) | first(120))",
                                        "position=alibi; where=causal & last(140)",
                                        "position=rope; where=causal"};
    enum { N = 20, START = 100 };
    data *d = make(11, N);
    static float started[BATCH * HEADS * N * DIM], written[BATCH * HEADS * N * DIM];
    int32_t start[BATCH] = {START, 3}, q_pos[BATCH * N], k_pos[BATCH * KEYS];
    for (int b = 0; b < BATCH; b++) {
        for (int i = 0; i < N; i++)
            q_pos[b * N + i] = start[b] + KEYS - N + i;
        for (int j = 0; j < KEYS; j++)
            k_pos[b * KEYS + j] = start[b] + j;
    }
    const int64_t shape[] = {BATCH, GROUPS, KEYS, DIM}, wide[] = {BATCH, HEADS, N, DIM};
    const heed_tensor q = queries_of(d, 0, BATCH, N), k = heed_tensor_dense(d->k, HEED_F32, 4, shape),
                      v = heed_tensor_dense(d->v, HEED_F32, 4, shape);
    for (size_t s = 0; s < 3; s++)
        for (int by_head = 0; by_head < 2; by_head++) {
            heed_plan *plan;
            const way w = {.spec = specs[s], .queries = N};
            create(&plan, &w, BATCH, HEED_WITH_START | (by_head ? HEED_WITH_KEYS_BY_HEAD : 0));
            heed_tensor out = heed_tensor_dense(started, HEED_F32, 4, wide);
            heed_extra extra = {.start = heed_tensor_dense(start, HEED_I32, 1, (int64_t[]){BATCH})};
            assert_int_equal(heed_attend(plan, &q, &k, &v, &out, &extra), HEED_OK);
            heed_plan_free(plan);
            create(&plan, &w, BATCH, 0);
            out = heed_tensor_dense(written, HEED_F32, 4, wide);
            extra = (heed_extra){.q_pos = heed_tensor_dense(q_pos, HEED_I32, 2, (int64_t[]){BATCH, N}),
                                 .k_pos = heed_tensor_dense(k_pos, HEED_I32, 2, (int64_t[]){BATCH, KEYS})};
            assert_int_equal(heed_attend(plan, &q, &k, &v, &out, &extra), HEED_OK);
            heed_plan_free(plan);
            assert_memory_equal(started, written, sizeof started);
        }
    heed_plan *plan;
    const way w = {.spec = "", .queries = N};
    create(&plan, &w, BATCH, HEED_WITH_START);
    start[0] = 1 << 30;
    const heed_tensor out = heed_tensor_dense(started, HEED_F32, 4, wide);
    const heed_extra extra = {.start = heed_tensor_dense(start, HEED_I32, 1, (int64_t[]){BATCH})};
    assert_int_equal(heed_attend(plan, &q, &k, &v, &out, &extra), HEED_INVALID);
    heed_plan_free(plan);
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kv_head_reads_its_own_keys),
        cmocka_unit_test(every_kernel_reads_them),
        cmocka_unit_test(keys_with_gaps_are_decoded_where_they_lie),
        cmocka_unit_test(what_needs_common_keys_is_refused),
        cmocka_unit_test(heads_of_different_lengths_need_the_place_of_the_query),
        cmocka_unit_test(a_start_is_where_default_positions_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
