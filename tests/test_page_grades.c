/* Pages of one cache that are stored in several ways: the store by itself, plans that read them, and models
 * that read on while pages age. */
#include "cache/pages.h"
#include "model/session.h"
#include "support/isas.h"
#include "support/random.h"
#include "support/small_models.h"
#include "tensor/channel.h"
#include "tensor/half.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIM = 48, PAGE = HEED_PAGE };

static float *normal_floats(test_random *random, int64_t count)
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)random_normal(random) * (i % 7 == 3 ? 8.0f : 1.0f);
    return x;
}

/* x = minimum + scale n for each channel of 64 tokens, n the nearest level. */
static void channels_read_back_as_defined(void **state)
{
    (void)state;
    static const heed_type types[] = {HEED_CHANNEL_Q4, HEED_CHANNEL_Q2};
    test_random random = {5};
    for (int t = 0; t < 2; t++) {
        const int levels = t ? 4 : 16;
        float *x = normal_floats(&random, PAGE * DIM), *y = malloc(PAGE * DIM * sizeof *y);
        x[70 * DIM + 9] = NAN;
        char *page = malloc((size_t)heed_channel_bytes(types[t], PAGE, DIM));
        assert_int_equal(heed_channel_bytes(types[t], PAGE, DIM), 2 * (4 * 64 + 64 * 64 * (t ? 2 : 4) / 8));
        heed_channel_store(types[t], x, DIM, PAGE, DIM, page);
        heed_channel_load(types[t], page, 0, 50, DIM, y, DIM);
        heed_channel_load(types[t], page, 50, PAGE - 50, DIM, y + 50 * DIM, DIM);
        for (int g = 0; g < 2; g++)
            for (int c = 0; c < DIM; c++) {
                float low = INFINITY, high = -INFINITY;
                for (int j = 64 * g; j < 64 * g + 64; j++) {
                    low = fminf(low, x[j * DIM + c]);
                    high = fmaxf(high, x[j * DIM + c]);
                }
                const float minimum = heed_float_from_f16(heed_f16_from_float(low));
                const float scale =
                    heed_float_from_f16(heed_f16_from_float((high - minimum) / (float)(levels - 1)));
                for (int j = 64 * g; j < 64 * g + 64; j++) {
                    if (g == 1 && c == 9) {
                        assert_true(isnan(y[j * DIM + c]));
                        continue;
                    }
                    const float n = floorf((x[j * DIM + c] - minimum) / scale + 0.5f);
                    const float right = minimum + scale * fminf(fmaxf(n, 0.0f), (float)(levels - 1));
                    const float nearest = fabsf(y[j * DIM + c] - x[j * DIM + c]);
                    if (fabsf(y[j * DIM + c] - right) > 1e-4f && nearest > 0.501f * scale)
                        fail_msg("%d bits, key %d, channel %d: %g instead of %g", t ? 2 : 4, j, c,
                                 (double)y[j * DIM + c], (double)right);
                }
            }
        free(x);
        free(y);
        free(page);
    }
}

enum { KEYS = 3 * PAGE + 40, GRADES = 5 };

static const heed_grade_types grade_types[GRADES] = {{HEED_Q8, HEED_Q8},
                                                     {HEED_CHANNEL_Q4, HEED_Q4},
                                                     {HEED_CHANNEL_Q2, HEED_Q2},
                                                     {HEED_F32, HEED_BF16},
                                                     {HEED_CHANNEL_Q4, HEED_F16}};

static heed_pages make_pages(int64_t sequences, bool placed)
{
    heed_pages_layer layer = {.key_type = HEED_F16,
                              .value_type = HEED_F16,
                              .most = KEYS + PAGE,
                              .placed = placed,
                              .summary_floats = 3,
                              .grades = GRADES};
    memcpy(layer.grade, grade_types, sizeof grade_types);
    heed_pages pages;
    must(heed_pages_create(
        &pages,
        &(heed_pages_shape){.layers = 1, .heads = 2, .dim = DIM, .value_dim = DIM, .sequences = sequences},
        &layer));
    return pages;
}

static void fill(heed_pages *pages, int64_t sequence, int64_t head, int64_t count, test_random *random)
{
    const heed_kept_keys *list = heed_pages_list(pages, sequence, 0, head);
    const int64_t before = list->count;
    must(heed_pages_append(pages, sequence, 0, head, before, before, count));
    float *x = normal_floats(random, 2 * count * DIM);
    for (int64_t i = count * DIM; i < 2 * count * DIM; i++)
        x[i] *= i % 7 == 3 ? 0.125f : 1.0f; /* channels of values are alike */
    for (int64_t i = 0; i < count; i++) {
        heed_store(HEED_F16, x + i * DIM, heed_pages_key(pages, 0, list, before + i), DIM);
        heed_store(HEED_F16, x + (count + i) * DIM, heed_pages_value(pages, 0, list, before + i), DIM);
    }
    free(x);
}

static float *keys_of(const heed_pages *pages, int64_t sequence, int64_t head, bool values)
{
    const heed_kept_keys *list = heed_pages_list(pages, sequence, 0, head);
    float *x = malloc((size_t)list->count * DIM * sizeof *x);
    if (values)
        heed_pages_load_values(pages, 0, list, 0, list->count, x);
    else
        heed_pages_load_keys(pages, 0, list, 0, list->count, x);
    return x;
}

static void a_shared_page_stays_as_it_was_for_others(void **state)
{
    (void)state;
    test_random random = {9};
    heed_pages pages = make_pages(2, false);
    fill(&pages, 0, 0, KEYS, &random);
    heed_pages_summary(&pages, 0, heed_pages_list(&pages, 0, 0, 0), 1)[2] = 7.0f;
    float *before = keys_of(&pages, 0, 0, false);
    heed_pages_share(&pages, 0, 1);
    const size_t all = heed_pages_bytes(&pages);
    heed_pages_regrade(&pages, 0, 0, 0, 1, 2, NULL);
    assert_int_equal(heed_pages_bytes(&pages),
                     all + pages.layer[0].layout[2].page_bytes + pages.layer[0].side_bytes);
    assert_float_equal(heed_pages_summary(&pages, 0, heed_pages_list(&pages, 0, 0, 0), 1)[2], 7.0f, 0.0);
    float *other = keys_of(&pages, 1, 0, false), *own = keys_of(&pages, 0, 0, false);
    assert_memory_equal(other, before, KEYS * DIM * sizeof *other);
    assert_memory_equal(own, before, PAGE * DIM * sizeof *own);
    assert_memory_not_equal(own, before, KEYS * DIM * sizeof *own);
    heed_pages_clear(&pages, 1);
    const heed_page_layout *layout = pages.layer[0].layout;
    assert_int_equal(heed_pages_bytes(&pages),
                     3 * layout[0].page_bytes + layout[2].page_bytes + 4 * pages.layer[0].side_bytes);
    heed_pages_clear(&pages, 0);
    assert_int_equal(heed_pages_bytes(&pages), 0);
    free(before);
    free(other);
    free(own);
    heed_pages_free(&pages);
}

/* Thinning out pages of all grades keeps what each key reads as, to the rounding of grade 0. */
static void keys_move_out_of_pages_of_all_grades(void **state)
{
    (void)state;
    test_random random = {11};
    heed_pages pages = make_pages(1, true);
    fill(&pages, 0, 0, KEYS, &random);
    for (int p = 0; p < 3; p++)
        heed_pages_regrade(&pages, 0, 0, 0, p, p + 1, NULL);
    float *keys = keys_of(&pages, 0, 0, false), *values = keys_of(&pages, 0, 0, true);
    uint8_t keep[KEYS];
    int64_t left = 0;
    for (int i = 0; i < KEYS; i++)
        left += keep[i] = i < PAGE || i % 3 != 0;
    assert_int_equal(heed_pages_keep(&pages, 0, 0, 0, keep), PAGE + 1); /* 129 is divisible by 3 */
    const heed_kept_keys *list = heed_pages_list(&pages, 0, 0, 0);
    assert_int_equal(list->count, left);
    assert_int_equal(heed_page_grade(list, 0), 1);
    assert_int_equal(heed_page_grade(list, 1), 0);
    float *now = keys_of(&pages, 0, 0, false), *now_values = keys_of(&pages, 0, 0, true);
    for (int64_t i = 0; i < left; i++)
        for (int c = 0; c < DIM; c++) {
            const int64_t from = list->place[i] * DIM + c;
            assert_true(keep[list->place[i]]);
            assert_float_equal(now[i * DIM + c], keys[from], 1e-3f * (1.0f + fabsf(keys[from])));
            assert_float_equal(now_values[i * DIM + c], values[from], 1e-3f * (1.0f + fabsf(values[from])));
        }
    free(keys);
    free(values);
    free(now);
    free(now_values);
    heed_pages_free(&pages);
}

static void a_list_that_ends_in_a_quantised_page_goes_on(void **state)
{
    (void)state;
    test_random random = {12};
    heed_pages pages = make_pages(1, false);
    fill(&pages, 0, 1, 2 * PAGE, &random);
    heed_pages_regrade(&pages, 0, 0, 1, 1, 2, NULL);
    float *before = keys_of(&pages, 0, 1, false);
    heed_pages_truncate(&pages, 0, 0, 1, PAGE + 30);
    fill(&pages, 0, 1, 5, &random);
    float *after = keys_of(&pages, 0, 1, false);
    for (int i = 0; i < (PAGE + 30) * DIM; i++)
        assert_float_equal(after[i], before[i], 1e-3f * (1.0f + fabsf(before[i])));
    free(before);
    free(after);
    heed_pages_free(&pages);
}

typedef struct case_of_plan {
    const char *spec;
    int queries;
    bool whole;
} case_of_plan;

/* The same keys, read as floats first, in a plan without pages. */
static void compare_with_floats(const heed_pages *pages, const case_of_plan *c, heed_isa isa)
{
    enum { HEADS = 6, GROUPS = 2 };
    test_random random = {77};
    float *q = normal_floats(&random, HEADS * c->queries * DIM);
    for (int i = 0; i < HEADS * c->queries * DIM; i++)
        q[i] *= 0.2f;
    float *out[2];
    float *k = malloc(2 * KEYS * DIM * sizeof *k), *v = malloc(2 * KEYS * DIM * sizeof *v);
    int32_t *table = malloc(2 * (size_t)heed_pages_for(KEYS) * sizeof *table), seq = KEYS;
    int32_t seqs[GROUPS] = {KEYS, KEYS};
    for (int g = 0; g < GROUPS; g++) {
        const heed_kept_keys *list = heed_pages_list(pages, 0, 0, g);
        heed_pages_load_keys(pages, 0, list, 0, KEYS, k + g * KEYS * DIM);
        heed_pages_load_values(pages, 0, list, 0, KEYS, v + g * KEYS * DIM);
        memcpy(table + g * heed_pages_for(KEYS), list->page, (size_t)heed_pages_for(KEYS) * sizeof *table);
    }
    heed_grade grade[GRADES];
    for (int g = 0; g < GRADES; g++)
        grade[g] =
            (heed_grade){.k = heed_pages_keys(pages, 0, g + 1), .v = heed_pages_values(pages, 0, g + 1)};
    const heed_tensor Q = heed_tensor_dense(q, HEED_F32, 4, (int64_t[]){1, HEADS, c->queries, DIM});
    for (int paged = 0; paged < 2; paged++) {
        heed_problem problem = {.batch = 1,
                                .heads = HEADS,
                                .kv_heads = GROUPS,
                                .queries = c->queries,
                                .keys = KEYS,
                                .dim = DIM,
                                .threads = 1,
                                .isa = isa,
                                .k_type = paged ? HEED_F16 : HEED_F32,
                                .v_type = paged ? HEED_F16 : HEED_F32,
                                .page = PAGE,
                                .grades = paged ? GRADES : 0,
                                .with = HEED_WITH_SEQ | (c->whole ? HEED_WITH_WHOLE_NUMBERS : 0u)};
        memcpy(problem.grade, grade_types, sizeof grade_types);
        if (paged)
            problem.with |= HEED_WITH_PAGES | HEED_WITH_KEYS_BY_HEAD;
        heed_plan *plan;
        must(heed_plan_create(&plan, c->spec, &problem));
        out[paged] = malloc((size_t)(HEADS * c->queries * DIM) * sizeof(float));
        const heed_tensor O = heed_tensor_dense(out[paged], HEED_F32, 4, Q.shape);
        heed_extra extra = {.seq = paged ? heed_tensor_dense(seqs, HEED_I32, 2, (int64_t[]){1, GROUPS})
                                         : heed_tensor_dense(&seq, HEED_I32, 1, (int64_t[]){1})};
        heed_tensor K = heed_tensor_dense(k, HEED_F32, 4, (int64_t[]){1, GROUPS, KEYS, DIM});
        heed_tensor V = heed_tensor_dense(v, HEED_F32, 4, K.shape);
        if (paged) {
            extra.page_table =
                heed_tensor_dense(table, HEED_I32, 3, (int64_t[]){1, GROUPS, heed_pages_for(KEYS)});
            K = heed_pages_keys(pages, 0, 0);
            V = heed_pages_values(pages, 0, 0);
            assert_true(heed_attend(plan, &Q, &K, &V, &O, &extra) == HEED_INVALID); /* grades are missing */
            extra.grade = grade;
        }
        must(heed_attend(plan, &Q, &K, &V, &O, &extra));
        heed_plan_free(plan);
    }
    const double off = farthest(out[0], out[1], HEADS * c->queries * DIM);
    if (!(off < (c->whole ? 1e-3 : 1e-4)))
        fail_msg("%s, %d queries, %s: off by %g", c->spec, c->queries, heed_isa_name(isa), off);
    free(q);
    free(k);
    free(v);
    free(table);
    free(out[0]);
    free(out[1]);
}

static void plans_read_pages_of_all_grades(void **state)
{
    (void)state;
    static const case_of_plan cases[] = {{"where=causal", 1, false},
                                         {"where=causal", 1, true},
                                         {"where=causal", 3, true},
                                         {"where=causal & window(150)", 1, true},
                                         {"where=causal", 60, false},
                                         {"where=causal; select=quest(page=32, budget=128)", 1, true},
                                         {"where=causal; select=top_k(40)", 1, false},
                                         {"where=causal; select=top_k(40)", 20, false},
                                         {"where=causal & strided(3)", 40, false}};
    test_random random = {31};
    heed_pages pages = make_pages(1, false);
    for (int g = 0; g < 2; g++) {
        fill(&pages, 0, g, KEYS, &random);
        for (int p = 0; p < 3; p++)
            heed_pages_regrade(&pages, 0, 0, g, p, 1 + (2 * g + p) % GRADES, NULL);
    }
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int isa = HEED_ISA_PORTABLE; isa <= HEED_ISA_NEON; isa++)
            if (heed_isa_available((heed_isa)isa))
                compare_with_floats(&pages, &cases[c], (heed_isa)isa);
    heed_pages_free(&pages);
}

static void wrong_grades_are_refused(void **state)
{
    (void)state;
    heed_problem problem = {.batch = 1, .heads = 1, .queries = 1, .keys = 256, .dim = 32, .grades = 1};
    problem.grade[0] = (heed_grade_types){HEED_CHANNEL_Q4, HEED_Q4};
    heed_plan *plan;
    assert_int_equal(heed_plan_create(&plan, "", &problem), HEED_INVALID); /* no pages */
    problem.with = HEED_WITH_PAGES;
    problem.page = 32;
    assert_int_equal(heed_plan_create(&plan, "", &problem), HEED_INVALID); /* half a group */
    problem.page = 128;
    problem.grade[0].v = HEED_CHANNEL_Q4;
    assert_int_equal(heed_plan_create(&plan, "", &problem), HEED_INVALID);
    problem.grade[0].v = HEED_ROTATED_Q4;
    assert_int_equal(heed_plan_create(&plan, "", &problem), HEED_UNSUPPORTED);
    problem.grade[0].v = HEED_Q4;
    must(heed_plan_create(&plan, "", &problem));
    heed_plan_free(plan);
    assert_int_equal(heed_plan_create(&plan, "cache=kivi", &problem), HEED_UNSUPPORTED);
}

enum { LONG = 700 };

static heed_session *start(const small_model *small, const char *spec)
{
    return new_session(small->model,
                       &(heed_session_options){.context = LONG, .threads = 1, .attention = spec});
}

static void read_text(heed_session *session, const int32_t *tokens, int64_t count, float *logits)
{
    must(heed_feed(session, &(heed_feed_item){.tokens = tokens, .count = count}, 1,
                   &(heed_feed_wants){.logits = logits}));
}

static void full_precision_is_the_plain_cache(void **state)
{
    (void)state;
    static const char *const specs[] = {"cache=kivi(bits=16)", "cache=staircase(least=16)",
                                        "cache=kivi(residual=1000)", "cache=kivi(first=1000)"};
    small_model small;
    open_small(&small, "gemma3", true);
    int32_t tokens[LONG];
    small_text(&small, tokens, LONG);
    const size_t bytes = (size_t)small.columns * sizeof(float);
    float *a = malloc(bytes), *b = malloc(bytes);
    heed_session *plain = start(&small, NULL);
    read_text(plain, tokens, 600, a);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        heed_session *aged = start(&small, specs[i]);
        read_text(aged, tokens, 600, b);
        assert_memory_equal(a, b, bytes);
        heed_session_free(aged);
    }
    free(a);
    free(b);
    heed_session_free(plain);
    close_small(&small);
}

/* Rotated pages of f16 are the plain cache to its rounding; with few bits the first pages, and the first
 * layers, have more of them. */
static void rotated_pages_follow_layer_and_token(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", true);
    int32_t tokens[LONG];
    small_text(&small, tokens, LONG);
    const size_t bytes = (size_t)small.columns * sizeof(float);
    float *a = malloc(bytes), *b = malloc(bytes);
    heed_session *plain = start(&small, NULL), *full = start(&small, "cache=akvq(low=16, high=16)"),
                 *few = start(&small, "cache=akvq(layers=1, pivots=4)");
    read_text(plain, tokens, 600, a);
    read_text(full, tokens, 600, b);
    read_text(plain, tokens + 600, 1, a);
    read_text(full, tokens + 600, 1, b);
    float most = 0.0f;
    for (int64_t i = 0; i < small.columns; i++)
        most = fmaxf(most, fabsf(a[i]));
    assert_true(farthest(a, b, small.columns) < 1e-2 * (double)most);
    read_text(few, tokens, 600, b);
    for (int64_t l = 0; l < few->pages.layers; l++)
        for (int p = 0; p < 3; p++) /* the last full one is asked when the next is full */
            assert_int_equal(heed_page_grade(heed_pages_list(&few->pages, 0, l, 0), p), l < 1    ? 2
                                                                                        : p == 0 ? 0
                                                                                                 : 1);
    free(a);
    free(b);
    heed_session_free(plain);
    heed_session_free(full);
    heed_session_free(few);
    close_small(&small);
}

/* Bytes of pages as they must be after a prompt, then token by token; saved sequences go on with the same
 * bits; cutting into what was quantised since is refused. */
static void pages_age_as_said(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        int grade[4]; /* of the four full pages after 600 tokens */
    } cases[] = {{"cache=kivi", {1, 1, 1, 0}},
                 {"cache=kivi(residual=0)", {1, 1, 1, 1}},
                 {"cache=kivi(bits=2, residual=200, first=4)", {0, 1, 0, 0}},
                 {"cache=staircase(newest=0, step=128)", {3, 3, 2, 1}},
                 {"cache=staircase(newest=100, step=150, least=4)", {2, 2, 1, 0}}};
    char path[64];
    snprintf(path, sizeof path, "/tmp/heed_grades_%d", (int)getpid());
    small_model small;
    open_small(&small, "llama", true);
    int32_t tokens[LONG];
    small_text(&small, tokens, LONG);
    const size_t bytes = (size_t)small.columns * sizeof(float);
    float *a = malloc(bytes), *b = malloc(bytes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        heed_session *session = start(&small, cases[i].spec), *second = start(&small, cases[i].spec);
        read_text(session, tokens, 380, a);
        for (int t = 380; t < 600; t++)
            read_text(session, tokens + t, 1, a);
        const heed_pages *pages = &session->pages;
        size_t expected = 0;
        for (int64_t l = 0; l < pages->layers; l++)
            for (int64_t g = 0; g < pages->heads; g++) {
                const heed_page_layout *layout = pages->layer[l].layout;
                expected += layout[0].page_bytes; /* the page that fills */
                for (int p = 0; p < 4; p++) {
                    const int grade = heed_page_grade(heed_pages_list(pages, 0, l, g), p);
                    if (grade != cases[i].grade[p])
                        fail_msg("%s: page %d is of grade %d", cases[i].spec, p, grade);
                    expected += layout[grade].page_bytes;
                }
            }
        heed_session_usage usage;
        heed_session_get_usage(session, &usage);
        assert_int_equal(usage.bytes, expected);
        assert_true(usage.reserved_bytes > usage.peak_bytes);
        must(heed_session_save(session, 0, path));
        must(heed_session_load(second, 0, path));
        for (int t = 600; t < 690; t++) {
            read_text(session, tokens + t, 1, a);
            read_text(second, tokens + t, 1, b);
            assert_memory_equal(a, b, bytes);
        }
        must(heed_session_cut(session, 0, 660));
        assert_true(heed_session_cut(session, 0, 400) == HEED_INVALID);
        assert_non_null(strstr(heed_message(), "has quantised keys that token 400 would see; "
                                               "it can be cut to 640 tokens or more"));
        must(heed_session_cut(session, 0, 640));
        for (int t = 640; t < 690; t++)
            read_text(session, tokens + t, 1, b);
        assert_memory_equal(a, b, bytes);
        heed_session_free(session);
        heed_session_free(second);
    }
    remove(path);
    free(a);
    free(b);
    close_small(&small);
}

static void what_quantised_pages_cannot_do_is_refused(void **state)
{
    (void)state;
    static const char *const refused[] = {"cache=snapkv(budget=60) > packed > kivi",
                                          "cache=h2o(budget=60) > mean > staircase", "cache=kivi > q8",
                                          "cache=kivi(bits=3)", "heads 0: cache=kivi"};
    small_model small;
    open_small(&small, "llama", true);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        must_refuse(&small, refused[i], LONG, "");
    int32_t tokens[LONG];
    small_text(&small, tokens, LONG);
    heed_session *session = start(&small, "cache=h2o(budget=300) > kivi(residual=64)");
    float *a = malloc((size_t)small.columns * sizeof *a);
    read_text(session, tokens, 500, a);
    for (int t = 500; t < 600; t++)
        read_text(session, tokens + t, 1, a);
    for (int64_t i = 0; i < small.columns; i++)
        assert_true(isfinite(a[i]));
    assert_int_equal(heed_page_grade(heed_pages_list(&session->pages, 0, 0, 0), 0), 1);
    free(a);
    heed_session_free(session);
    close_small(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channels_read_back_as_defined),
        cmocka_unit_test(a_shared_page_stays_as_it_was_for_others),
        cmocka_unit_test(keys_move_out_of_pages_of_all_grades),
        cmocka_unit_test(a_list_that_ends_in_a_quantised_page_goes_on),
        cmocka_unit_test(plans_read_pages_of_all_grades),
        cmocka_unit_test(wrong_grades_are_refused),
        cmocka_unit_test(full_precision_is_the_plain_cache),
        cmocka_unit_test(pages_age_as_said),
        cmocka_unit_test(rotated_pages_follow_layer_and_token),
        cmocka_unit_test(what_quantised_pages_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
