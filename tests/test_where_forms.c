/* The `where` forms by their hooks, in every build that this processor runs: masks pair by pair against their
 * definitions, block states against what the masks say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <heed/attend.h>
#include <stdlib.h>
#include <string.h>

#include "attend/registry.h"
#include "support/isas.h"
#include "support/where_definitions.h"

enum { TRIALS = 400, MOST_ROWS = 24, LIMIT = 1 << 30 };

static uint64_t state;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545F4914F6CDD1Du;
}

static int64_t between(int64_t low, int64_t high)
{
    return low + (int64_t)(draw() % (uint64_t)(high - low + 1));
}

static const definition *find(const char *name)
{
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        if (strcmp(forms[f].name, name) == 0)
            return &forms[f];
    fail_msg("no definition of %s", name);
    return NULL;
}

static void *fresh(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

/* Positions that count up from somewhere, or wander in a narrow or in the widest range. */
static void place(int32_t *pos, int n, bool contiguous, int kind)
{
    const int64_t start = kind == 0   ? between(-200, 200)
                          : kind == 1 ? between(-LIMIT, -LIMIT + 10)
                          : kind == 2 ? between(LIMIT - n - 10, LIMIT - n)
                                      : 0;
    for (int i = 0; i < n; i++)
        pos[i] = (int32_t)(contiguous  ? start + i
                           : kind == 0 ? between(-60, 300)
                           : kind == 1 ? between(-LIMIT, LIMIT)
                           : kind == 2 ? (draw() & 1 ? -LIMIT : LIMIT)
                                       : between(0, 2 * n));
}

static scene make_scene(void)
{
    scene s = {.queries = (int)between(1, 70), .keys = (int)between(1, MOST_KEYS)};
    const size_t n = (size_t)s.queries, m = (size_t)s.keys;
    s.batch = (int)between(0, 1);
    s.head = (int)between(0, 2);
    s.contiguous = draw() % 2;
    s.query_pos = fresh(n * sizeof(int32_t));
    s.key_pos = fresh(m * sizeof(int32_t));
    const int kind = (int)between(0, 3);
    place(s.query_pos, s.queries, s.contiguous, kind);
    place(s.key_pos, s.keys, s.contiguous, draw() % 4 ? kind : 3);
    s.key_end = fresh(2 * sizeof(int32_t));
    s.key_end[!s.batch] = 77;
    s.key_end[s.batch] = -LIMIT;
    for (int j = 0; j < s.keys; j++)
        if (s.key_pos[j] >= s.key_end[s.batch])
            s.key_end[s.batch] = s.key_pos[j] + 1;
    s.query_segment = fresh(2 * n * sizeof(int32_t));
    s.key_segment = fresh(2 * m * sizeof(int32_t));
    const int64_t run = between(1, 90), most = between(0, 5);
    for (size_t i = 0; i < 2 * n; i++)
        s.query_segment[i] = (int32_t)between(0, most);
    for (size_t j = 0; j < 2 * m; j++)
        s.key_segment[j] = (int32_t)(j % m / (size_t)run);
    s.mask = fresh(6 * n * m);
    const uint64_t rare = (uint64_t)between(1, 200);
    const bool mostly = draw() % 2;
    for (size_t x = 0; x < 6 * n * m; x++)
        s.mask[x] = (draw() % rare == 0) != mostly ? (uint8_t)between(1, 255) : 0;
    s.inputs = (heed_inputs){.query_segment = s.query_segment,
                             .key_segment = s.key_segment,
                             .query_segment_stride = s.queries,
                             .key_segment_stride = s.keys,
                             .mask = s.mask,
                             .mask_batch_stride = (int64_t)(3 * n * m),
                             .mask_head_stride = (int64_t)(n * m),
                             .mask_row_stride = s.keys,
                             .key_end = s.key_end,
                             .keys = s.keys};
    return s;
}

static void free_scene(scene *s)
{
    free(s->query_pos);
    free(s->key_pos);
    free(s->key_end);
    free(s->query_segment);
    free(s->key_segment);
    free(s->mask);
}

/* Arguments of any size that a spec may hold. */
static void choose_args(const definition *means, double *arg)
{
    for (int a = 0; a < means->args; a++) {
        const int64_t kind = between(0, 9);
        arg[a] = (double)(kind == 0   ? between(INT32_MAX - 1, INT64_C(1) << 33)
                          : kind == 1 ? INT64_C(1) << between(31, 52)
                          : kind < 4  ? between(1, 3)
                                      : between(1, 200));
    }
    if (means->open == causal)
        arg[0] = (double)between(0, 1);
    if (means->open == neighbourhood)
        arg[2] = draw() % 2 ? (double)between(0, 4) : arg[2] - 1;
    if (means->open == columns) {
        arg[1] = (double)between(1, 3);
        arg[2] = (double)between(0, 2);
        arg[0] = arg[0] < 9 ? 9 : arg[0];
    }
    if (means->open == power || means->open == lsg)
        for (int a = 1; a < means->args; a++)
            arg[a] = (double)between(a == 2 && means->open == lsg, 40);
    if (means->open == power)
        arg[1] += 1;
    if (means->open == halo)
        for (int a = 0; a < 4; a++)
            arg[a] = (double)between(a < 3, a < 2 ? 60 : a == 2 ? 70 : 9);
    if (means->open == arrow)
        arg[0] = (double)between(0, 1);
    if (means->open == probably) {
        arg[0] = (double)between(0, 8) / 16;
        arg[1] = (double)between(1, 16) / 16;
        arg[2] = (double)between(-5, 1000000);
    }
    if (means->open == randomly) {
        arg[0] = draw() % 2 ? (double)between(1, 4) : arg[0];
        arg[2] = (double)between(-5, 1000000);
    }
}

static heed_form_state make_form(heed_isa isa, const char *name, const double *arg, const scene *s)
{
    const heed_form *form = heed_registry_find(isa, HEED_WHERE, name);
    if (!form)
        fail_msg("where=%s is missing from the build for %s", name, heed_isa_name(isa));
    heed_form_state made = {.form = form,
                            .sizes = {.queries = s->queries, .keys = s->keys, .batch = 2, .heads = 3}};
    for (int a = 0; a < HEED_MAX_ARGS; a++)
        made.arg[a].number = arg ? arg[a] : 0;
    if (form->resolve)
        assert_int_equal(form->resolve(&made), HEED_OK);
    return made;
}

static pair pair_of(const scene *s, int i, int j)
{
    return (pair){.scene = s, .i = i, .j = j, .p = s->query_pos[i], .k = s->key_pos[j]};
}

/* A tile whose corner lies anywhere, and which may reach beyond the last query and key. */
static void check_tile(const heed_form_state *form, const definition *means, const double *arg,
                       const scene *s)
{
    const int rows = (int)between(1, MOST_ROWS), cols = 16 * (int)between(1, 20),
              stride = cols + (int)between(0, 40);
    const int query0 = (int)between(0, s->queries - 1), key0 = (int)between(0, s->keys - 1);
    int32_t *query_pos = fresh((size_t)rows * sizeof *query_pos),
            *key_pos = fresh((size_t)cols * sizeof *key_pos);
    for (int i = 0; i < rows; i++)
        query_pos[i] = query0 + i < s->queries ? s->query_pos[query0 + i] : query_pos[i - 1] + 1;
    for (int j = 0; j < cols; j++)
        key_pos[j] = key0 + j < s->keys ? s->key_pos[key0 + j] : key_pos[j - 1] + 1;
    uint8_t *open = fresh((size_t)(rows * stride));
    memset(open, 99, (size_t)(rows * stride));
    const heed_tile tile = {.rows = rows,
                            .cols = cols,
                            .batch = s->batch,
                            .head = s->head,
                            .query0 = query0,
                            .key0 = key0,
                            .query_pos = query_pos,
                            .key_pos = key_pos,
                            .contiguous = s->contiguous,
                            .stride = stride,
                            .inputs = &s->inputs};
    form->form->mask(form, &tile, open);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < stride; j++) {
            const uint8_t is = open[i * stride + j];
            if (j >= cols) {
                assert_int_equal(is, 99); /* left alone */
            } else if (query0 + i >= s->queries || key0 + j >= s->keys) {
                assert_in_range(is, 0, 1);
            } else {
                const pair x = pair_of(s, query0 + i, key0 + j);
                if (is != means->open(arg, &x))
                    fail_msg("%s(%.0f, %.0f, %.0f): query %d at %lld, key %d at %lld: mask says %d",
                             means->name, arg[0], arg[1], arg[2], x.i, (long long)x.p, x.j, (long long)x.k,
                             is);
            }
        }
    free(query_pos);
    free(key_pos);
    free(open);
}

/* What a block's state would be if every pair were looked at. */
static int true_state(const definition *means, const double *arg, const scene *s, int query0, int query1,
                      int key0, int key1)
{
    bool some_open = false, some_closed = false;
    for (int i = query0; i <= query1; i++)
        for (int j = key0; j < key1; j++) {
            const pair x = pair_of(s, i, j);
            if (means->open(arg, &x))
                some_open = true;
            else
                some_closed = true;
        }
    return some_open && some_closed ? HEED_PARTLY : some_open ? HEED_OPEN : HEED_CLOSED;
}

/* Block states for queries query0..query1, every one checked; returns how many of them say all that is true.
 */
static int check_blocks(const heed_form_state *form, const definition *means, const double *arg,
                        const scene *s, int query0, int query1, int key0, int size, bool exact)
{
    const int count = (s->keys - key0 + size - 1) / size;
    int32_t *pos_min = fresh((size_t)count * sizeof *pos_min),
            *pos_max = fresh((size_t)count * sizeof *pos_max);
    uint8_t *is = fresh((size_t)count);
    for (int b = 0; b < count; b++) {
        pos_min[b] = INT32_MAX, pos_max[b] = INT32_MIN;
        for (int j = key0 + b * size; j < key0 + (b + 1) * size && j < s->keys; j++) {
            pos_min[b] = s->key_pos[j] < pos_min[b] ? s->key_pos[j] : pos_min[b];
            pos_max[b] = s->key_pos[j] > pos_max[b] ? s->key_pos[j] : pos_max[b];
        }
    }
    heed_query_range range = {.batch = s->batch,
                              .head = s->head,
                              .first = query0,
                              .last = query1,
                              .pos_min = INT32_MAX,
                              .pos_max = INT32_MIN,
                              .inputs = &s->inputs};
    for (int i = query0; i <= query1; i++) {
        range.pos_min = s->query_pos[i] < range.pos_min ? s->query_pos[i] : range.pos_min;
        range.pos_max = s->query_pos[i] > range.pos_max ? s->query_pos[i] : range.pos_max;
    }
    const heed_key_blocks keys = {
        .count = count, .size = size, .first = key0, .keys = s->keys, .pos_min = pos_min, .pos_max = pos_max};
    memset(is, 99, (size_t)count);
    form->form->blocks(form, &range, &keys, is);
    int agree = 0;
    for (int b = 0; b < count; b++) {
        const int end = key0 + (b + 1) * size < s->keys ? key0 + (b + 1) * size : s->keys;
        const int truth = true_state(means, arg, s, query0, query1, key0 + b * size, end);
        if (is[b] != truth && (is[b] != HEED_PARTLY || exact))
            fail_msg("%s(%.0f, %.0f, %.0f): queries at %d..%d, block %d of %d keys at %d..%d: says %d, is %d",
                     means->name, arg[0], arg[1], arg[2], range.pos_min, range.pos_max, b, size, pos_min[b],
                     pos_max[b], is[b], truth);
        agree += is[b] == truth;
    }
    free(pos_min);
    free(pos_max);
    free(is);
    return agree;
}

/* Calls `check` for each build that runs here. */
static void for_each_isa(void (*check)(heed_isa isa))
{
    int builds = 0;
    for (heed_isa isa = HEED_ISA_PORTABLE; isa <= HEED_ISA_NEON; isa++)
        if (test_isa_runs(isa)) {
            state = 0x9E3779B97F4A7C15u;
            check(isa);
            builds++;
        }
    assert_true(builds > 0);
}

static void check_masks(heed_isa isa)
{
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (int trial = 0; trial < TRIALS; trial++) {
            scene s = make_scene();
            double arg[HEED_MAX_ARGS] = {0};
            choose_args(&forms[f], arg);
            const heed_form_state form = make_form(isa, forms[f].name, arg, &s);
            check_tile(&form, &forms[f], arg, &s);
            free_scene(&s);
        }
}

static void a_mask_equals_its_definition_pair_by_pair(void **unused)
{
    (void)unused;
    for_each_isa(check_masks);
}

static void check_states(heed_isa isa)
{
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (int trial = 0; trial < TRIALS; trial++) {
            scene s = make_scene();
            double arg[HEED_MAX_ARGS] = {0};
            choose_args(&forms[f], arg);
            const heed_form_state form = make_form(isa, forms[f].name, arg, &s);
            const int query0 = (int)between(0, s.queries - 1), query1 = (int)between(query0, s.queries - 1);
            const int size = 16 * (int)between(1, 8);
            const int key0 = draw() % 2 ? 0 : size * (int)between(0, (s.keys - 1) / size);
            check_blocks(&form, &forms[f], arg, &s, query0, query1, key0, size,
                         s.contiguous && forms[f].contiguous_states_exact);
            free_scene(&s);
        }
}

static void block_states_never_contradict_the_definition(void **unused)
{
    (void)unused;
    for_each_isa(check_states);
}

/* A square problem at the default positions, 64 queries and keys a block. */
typedef struct usual {
    const char *name;
    double arg[4];
} usual;

static void check_usual(heed_isa isa)
{
    static const usual cases[] = {
        {"causal", {0}},
        {"causal", {1}},
        {"window", {100}},
        {"first", {4}},
        {"last", {70}},
        {"block", {64}},
        {"block", {128}},
        {"global", {65}},
        {"random", {2, 64, 9}},
        {"random", {1, 16, 3}},
        {"random", {99, 64, 0}},
        {"pr_blocks", {0.5, 0.25, 3, 16}},
        {"strided", {1}},
        {"dilated", {3, 1}},
        {"self", {0}},
        {"neighbourhood", {5, 64, 1}},
        {"neighbourhood", {3, 128, 9}},
        {"segments", {0}},
        {"mask", {0}},
    };
    scene s = {.queries = 320, .keys = 320, .contiguous = true, .batch = 1, .head = 2};
    const size_t n = 320;
    s.query_pos = fresh(n * sizeof(int32_t));
    s.key_pos = fresh(n * sizeof(int32_t));
    s.query_segment = fresh(2 * n * sizeof(int32_t));
    s.key_segment = fresh(2 * n * sizeof(int32_t));
    s.mask = fresh(6 * n * n);
    s.key_end = fresh(2 * sizeof(int32_t));
    s.key_end[1] = (int32_t)n;
    for (size_t i = 0; i < n; i++)
        s.query_pos[i] = s.key_pos[i] = (int32_t)i;
    for (size_t i = 0; i < 2 * n; i++)
        s.query_segment[i] = s.key_segment[i] = i % n < 100 ? 4 : 5; /* a border inside a block */
    for (size_t x = 0; x < 6 * n * n; x++)
        s.mask[x] = x % n < 128 || x / n % n < 70;
    s.inputs = (heed_inputs){.query_segment = s.query_segment,
                             .key_segment = s.key_segment,
                             .query_segment_stride = 320,
                             .key_segment_stride = 320,
                             .mask = s.mask,
                             .mask_batch_stride = (int64_t)(3 * n * n),
                             .mask_head_stride = (int64_t)(n * n),
                             .mask_row_stride = 320,
                             .key_end = s.key_end,
                             .keys = 320};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double arg[HEED_MAX_ARGS] = {cases[c].arg[0], cases[c].arg[1], cases[c].arg[2], cases[c].arg[3]};
        const heed_form_state form = make_form(isa, cases[c].name, arg, &s);
        for (int query0 = 0; query0 < 320; query0 += 64)
            check_blocks(&form, find(cases[c].name), arg, &s, query0, query0 + 63, 0, 64, true);
    }
    /* a stride larger than a block leaves most blocks out for one query, as in decoding */
    double stride[HEED_MAX_ARGS] = {150};
    const heed_form_state form = make_form(isa, "strided", stride, &s);
    for (int query = 0; query < 320; query++)
        check_blocks(&form, find("strided"), stride, &s, query, query, 0, 64, true);
    free_scene(&s);
}

static void block_states_are_exact_in_the_usual_cases(void **unused)
{
    (void)unused;
    for_each_isa(check_usual);
}

/* Blocks drawn by an independent program for 1024 keys in blocks of 64. */
static void check_draws(heed_isa isa)
{
    static const struct {
        double seed;
        int b, block[3];
    } known[] = {{0, 0, {0, 1, 5}},   {0, 1, {7, 13, 14}}, {0, -1, {8, 0, 9}},  {7, 0, {1, 4, 3}},
                 {7, 5, {15, 8, 13}}, {7, -1, {9, 7, 2}},  {-3, 5, {7, 15, 5}}, {-3, -1, {11, 15, 4}}};
    enum { KEYS = 1024, SIZE = 64 };
    int32_t key_pos[KEYS], query_pos[1];
    uint8_t open[KEYS];
    for (int j = 0; j < KEYS; j++)
        key_pos[j] = j;
    const heed_inputs inputs = {.keys = KEYS};
    const scene s = {.queries = 1, .keys = KEYS};
    for (size_t c = 0; c < sizeof known / sizeof *known; c++) {
        const double arg[HEED_MAX_ARGS] = {3, SIZE, known[c].seed};
        const heed_form_state form = make_form(isa, "random", arg, &s);
        query_pos[0] = known[c].b * SIZE + 63;
        const heed_tile tile = {.rows = 1,
                                .cols = KEYS,
                                .query_pos = query_pos,
                                .key_pos = key_pos,
                                .stride = KEYS,
                                .inputs = &inputs};
        form.form->mask(&form, &tile, open);
        for (int j = 0; j < KEYS; j++) {
            const int b = j / SIZE;
            assert_int_equal(open[j],
                             b == known[c].block[0] || b == known[c].block[1] || b == known[c].block[2]);
        }
    }
}

static void random_draws_the_blocks_of_the_published_hash(void **unused)
{
    (void)unused;
    for_each_isa(check_draws);
}

static void random_refuses_more_blocks_than_it_can_draw_among(void **unused)
{
    (void)unused;
    const heed_form *form = heed_registry_find(HEED_ISA_PORTABLE, HEED_WHERE, "random");
    heed_form_state state_of = {.form = form, .sizes = {.keys = 300000}};
    state_of.arg[0].number = 1;
    state_of.arg[1].number = 1;
    assert_int_equal(form->resolve(&state_of), HEED_UNSUPPORTED);
    assert_non_null(strstr(heed_message(), "block=2"));
    state_of.arg[1].number = 2;
    assert_int_equal(form->resolve(&state_of), HEED_OK);
}

/* On a 4 x 5 grid with radius 1 the corner sees the 3 x 3 square in the corner, as the published code does.
 */
static void a_neighbourhood_moves_inside_at_the_borders(void **unused)
{
    (void)unused;
    const scene s = {.queries = 20, .keys = 20};
    const double arg[HEED_MAX_ARGS] = {4, 5, 1};
    const heed_form_state form = make_form(HEED_ISA_PORTABLE, "neighbourhood", arg, &s);
    int32_t pos[32];
    for (int j = 0; j < 32; j++)
        pos[j] = j;
    static const struct {
        int32_t query;
        const char *seen; /* row by row */
    } known[] = {{0, "11100111001110000000"},
                 {4, "00111001110011100000"},
                 {19, "00000001110011100111"},
                 {7, "01110011100111000000"},
                 {12, "00000011100111001110"}};
    for (size_t c = 0; c < sizeof known / sizeof *known; c++) {
        uint8_t open[32];
        const heed_inputs inputs = {.keys = 20};
        const heed_tile tile = {.rows = 1,
                                .cols = 32,
                                .query_pos = &known[c].query,
                                .key_pos = pos,
                                .stride = 32,
                                .inputs = &inputs};
        form.form->mask(&form, &tile, open);
        for (int j = 0; j < 32; j++)
            assert_int_equal(open[j], j < 20 ? known[c].seen[j] - '0' : 0);
    }
}

static void every_form_is_described(void **unused)
{
    (void)unused;
    const heed_form *const *form = heed_registry_stage(HEED_ISA_PORTABLE, HEED_WHERE);
    size_t count = 0, with_tensors = 0;
    for (; form[count]; count++) {
        assert_int_equal(form[count]->stage, HEED_WHERE);
        assert_non_null(form[count]->summary);
        assert_non_null(form[count]->formula);
        assert_non_null(form[count]->mask);
        with_tensors += form[count]->params != NULL; /* test_calibrated_forms.c */
        assert_true(form[count]->params || find(form[count]->name));
    }
    assert_int_equal(count - with_tensors, sizeof forms / sizeof *forms);
}

/* Whether information goes from key j to query i in `layers` steps of masks, alternating two. */
static void reached(bool (*const mask[2])(const double *, const pair *), const double *const arg[2], int n,
                    int layers, bool *to)
{
    bool *before = fresh((size_t)(n * n));
    for (int i = 0; i < n * n; i++)
        to[i] = i % n == i / n;
    for (int l = 0; l < layers; l++) {
        memcpy(before, to, (size_t)(n * n));
        memset(to, 0, (size_t)(n * n));
        for (int i = 0; i < n; i++)
            for (int m = 0; m <= i; m++) {
                const pair x = {.i = i, .j = m, .p = i, .k = m};
                for (int j = 0; mask[l % 2](arg[l % 2], &x) && j < n; j++)
                    to[i * n + j] |= before[m * n + j];
            }
    }
    free(before);
}

/* Powers of two reach every distance up to 2^(d+1) - 2 after d layers and have a hole behind it. */
static void powers_reach_without_holes(void **unused)
{
    (void)unused;
    enum { N = 140 };
    static bool to[N * N];
    const double arg[] = {1, 1, 0}, *const args[] = {arg, arg};
    bool (*const masks[])(const double *, const pair *) = {power, power};
    for (int layers = 1; layers <= 5; layers++) {
        reached(masks, args, N, layers, to);
        int far = 0;
        while (far < N && to[(N - 1) * N + N - 1 - far])
            far++;
        assert_int_equal(far - 1, (1 << (layers + 1)) - 2);
    }
}

/* A stretch and then every l-th place before it: all earlier places. */
static void strides_compose_to_all(void **unused)
{
    (void)unused;
    enum { N = 50 };
    static bool to[N * N];
    const double l[] = {7}, *const args[] = {l, l};
    bool (*const masks[])(const double *, const pair *) = {strided, window};
    reached(masks, args, N, 2, to);
    for (int i = 0; i < N * N; i++)
        assert_int_equal(to[i], i % N <= i / N);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_reach_without_holes),
        cmocka_unit_test(strides_compose_to_all),
        cmocka_unit_test(a_mask_equals_its_definition_pair_by_pair),
        cmocka_unit_test(block_states_never_contradict_the_definition),
        cmocka_unit_test(block_states_are_exact_in_the_usual_cases),
        cmocka_unit_test(random_draws_the_blocks_of_the_published_hash),
        cmocka_unit_test(random_refuses_more_blocks_than_it_can_draw_among),
        cmocka_unit_test(a_neighbourhood_moves_inside_at_the_borders),
        cmocka_unit_test(every_form_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
