/* The `select` forms by their hooks, in every build that this processor runs, against definitions in long
 * double that sort whole rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <heed/attend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attend/registry.h"
#include "support/isas.h"

enum { TRIALS = 1500, MOST_COLS = 600, MOST_DIM = 40 };

static uint64_t state;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545F4914F6CDD1Du;
}

static int between(int low, int high)
{
    return low + (int)(draw() % (uint64_t)(high - low + 1));
}

static double uniform(void)
{
    return (double)(draw() >> 11) * 0x1p-53;
}

static double normal(void)
{
    return sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
}

static void *fresh(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

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

static heed_form_state make_form(heed_isa isa, const char *name, double a, double b)
{
    const heed_form *form = heed_registry_find(isa, HEED_SELECT, name);
    if (!form)
        fail_msg("select=%s is missing from the build for %s", name, heed_isa_name(isa));
    heed_form_state made = {.form = form};
    made.arg[0].number = a;
    made.arg[1].number = b;
    return made;
}

/* Runs `choose` on a row with scratch of just the size that is promised. */
static void choose(const heed_form_state *form, float *score, int cols, const float *query, int dim,
                   const float *summary)
{
    float *work = fresh(2 * (size_t)cols * sizeof *work);
    for (int j = 0; j < 2 * cols; j++)
        work[j] = NAN;
    float *block_query = fresh(2 * (size_t)dim * sizeof *block_query);
    const float *const queries[1] = {block_query};
    if (form->form->block_query)
        form->form->block_query(form, 0, query, dim, block_query);
    heed_row row = {.cols = cols,
                    .block_query = queries,
                    .block_queries = 1,
                    .score = score,
                    .work = work,
                    .query_row = query,
                    .dim = dim,
                    .summary = summary,
                    .query = 3};
    form->form->choose(form, &row);
    free(block_query);
    free(work);
}

/* Kept keys keep their bits, the others are closed. */
static void check_kept(const char *what, const float *before, const float *after, const bool *kept, int cols)
{
    for (int j = 0; j < cols; j++) {
        const float wanted = kept[j] ? before[j] : -INFINITY;
        if (memcmp(&wanted, &after[j], sizeof wanted) != 0)
            fail_msg("%s: key %d of %d with score %.9g: is %.9g, should be %s", what, j, cols,
                     (double)before[j], (double)after[j], kept[j] ? "kept" : "closed");
    }
}

/* Definitions of the selectors that read scores only */

typedef struct ranked {
    float score;
    int index;
} ranked;

static int by_score_then_index(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : x->index - y->index;
}

/* Open keys, highest score first, of equal ones the lower index; returns how many. */
static int rank(const float *score, int cols, ranked *order)
{
    int count = 0;
    for (int j = 0; j < cols; j++)
        if (score[j] != -INFINITY)
            order[count++] = (ranked){score[j], j};
    qsort(order, (size_t)count, sizeof *order, by_score_then_index);
    return count;
}

static int top_k_count(double k, const ranked *order, int count)
{
    (void)order;
    return k < count ? (int)k : count;
}

static int top_p_count(double p, const ranked *order, int count)
{
    if (p == 1 || count == 0)
        return count;
    long double total = 0, sum = 0;
    for (int r = 0; r < count; r++)
        total += expl((long double)order[r].score - order[0].score);
    int kept = 0;
    while (kept < count && (kept == 0 || sum / total < p - 1e-12L))
        sum += expl((long double)order[kept++].score - order[0].score);
    return kept;
}

static int threshold_count(double t, const ranked *order, int count)
{
    int kept = 0;
    while (kept < count && (t == 0 || order[kept].score == order[0].score ||
                            (t < 1 && expl((long double)order[kept].score - order[0].score) >= t)))
        kept++;
    return kept;
}

typedef struct selector {
    const char *name;
    int (*count)(double arg, const ranked *order, int count);
} selector;

static const selector selectors[] = {
    {"top_k", top_k_count}, {"top_p", top_p_count}, {"threshold", threshold_count}};

static double choose_arg(const selector *one)
{
    const int kind = between(0, 7);
    if (one->count == top_k_count)
        return kind == 0 ? 1e12 : kind == 1 ? 1 : kind < 5 ? between(1, 20) : between(1, MOST_COLS);
    if (one->count == top_p_count)
        return kind == 0 ? 1 : kind == 1 ? 1e-9 : kind == 2 ? 1 - 1e-7 * uniform() : 1 - uniform();
    return kind == 0 ? 0 : kind == 1 ? 1 : kind == 2 ? 1e-30 * uniform() : uniform();
}

/* Scores of every kind that a selector may meet. */
static void fill(float *score, int cols)
{
    const int kind = between(0, 9);
    const double closed = between(0, 2) * 0.45;
    for (int j = 0; j < cols; j++) {
        const double x = kind == 0   ? between(-2, 2)
                         : kind == 1 ? 0.5
                         : kind == 2 ? 1e4 * normal()
                         : kind == 3 ? ldexp(1, between(-149, 127)) * (draw() & 1 ? 1 : -1)
                         : kind == 4 ? (draw() & 1 ? 0.0 : -0.0)
                         : kind == 5 ? 3 + between(0, 3) * 0x1p-22
                         : kind == 6 ? between(0, 5) * 1e-45 + (draw() % 50 == 0)
                         : kind == 7 ? (draw() % 40 ? -FLT_MAX : FLT_MAX)
                                     : 4 * normal();
        score[j] = uniform() < closed ? -INFINITY : (float)x;
    }
    if (between(0, 20) == 0)
        for (int j = 0; j < cols; j++)
            score[j] = -INFINITY;
    if (between(0, 20) == 0) {
        for (int j = 0; j < cols; j++)
            score[j] = -INFINITY;
        score[between(0, cols - 1)] = (float)(-1e4 * uniform());
    }
}

/* One selector after another on a row, each seeing what the one before it left. */
static void check_chain(heed_isa isa, const float *row, int cols, const selector *const *chain,
                        const double *arg, int length)
{
    float *score = fresh((size_t)cols * sizeof *score), *left = fresh((size_t)cols * sizeof *left);
    ranked *order = fresh((size_t)cols * sizeof *order);
    bool *kept = fresh((size_t)cols);
    memcpy(score, row, (size_t)cols * sizeof *score);
    for (int c = 0; c < length; c++) {
        memcpy(left, score, (size_t)cols * sizeof *left);
        const heed_form_state form = make_form(isa, chain[c]->name, arg[c], 0);
        choose(&form, score, cols, NULL, 0, NULL);
        const int open = rank(left, cols, order), count = chain[c]->count(arg[c], order, open);
        memset(kept, 0, (size_t)cols);
        for (int r = 0; r < count; r++)
            kept[order[r].index] = true;
        char what[64];
        snprintf(what, sizeof what, "%s(%.17g), %d open, step %d", chain[c]->name, arg[c], open, c);
        check_kept(what, left, score, kept, cols);
    }
    free(score);
    free(left);
    free(order);
    free(kept);
}

static void check_single(heed_isa isa)
{
    float score[MOST_COLS];
    for (size_t s = 0; s < sizeof selectors / sizeof *selectors; s++)
        for (int trial = 0; trial < TRIALS; trial++) {
            const int cols = between(1, trial % 2 ? 40 : MOST_COLS);
            fill(score, cols);
            const selector *one = &selectors[s];
            const double arg = choose_arg(one);
            check_chain(isa, score, cols, &one, &arg, 1);
        }
}

static void a_selector_keeps_what_its_definition_keeps(void **unused)
{
    (void)unused;
    for_each_isa(check_single);
}

static void check_chained(heed_isa isa)
{
    float score[MOST_COLS];
    for (int trial = 0; trial < TRIALS; trial++) {
        const int cols = between(1, MOST_COLS);
        fill(score, cols);
        const selector *chain[2] = {&selectors[between(0, 2)], &selectors[between(0, 2)]};
        const double arg[2] = {choose_arg(chain[0]), choose_arg(chain[1])};
        check_chain(isa, score, cols, chain, arg, 2);
    }
}

static void a_second_selector_sums_the_weights_anew(void **unused)
{
    (void)unused;
    /* weights 4/8, 2/8, 1/8, 1/8: of the two that top_k leaves the first has 2/3, not 1/2 */
    const float row[4] = {(float)log(4), (float)log(2), 0, 0};
    float score[4];
    memcpy(score, row, sizeof row);
    const heed_form_state top_k = make_form(HEED_ISA_PORTABLE, "top_k", 2, 0);
    const heed_form_state top_p = make_form(HEED_ISA_PORTABLE, "top_p", 0.6, 0);
    choose(&top_k, score, 4, NULL, 0, NULL);
    choose(&top_p, score, 4, NULL, 0, NULL);
    const bool kept[4] = {true};
    check_kept("top_k(2) > top_p(0.6)", row, score, kept, 4);
    for_each_isa(check_chained);
}

static void check_long(heed_isa isa)
{
    enum { LONG = 20000 };
    float *score = fresh(LONG * sizeof *score);
    for (int kind = 0; kind < 2; kind++) {
        for (int j = 0; j < LONG; j++)
            score[j] = kind ? (float)normal() : (float)(j % 100 ? -j : 1e4 / (j + 1));
        for (size_t s = 0; s < sizeof selectors / sizeof *selectors; s++)
            for (int trial = 0; trial < 4; trial++) {
                const selector *one = &selectors[s];
                const double arg = choose_arg(one);
                check_chain(isa, score, LONG, &one, &arg, 1);
            }
    }
    free(score);
}

static void long_rows_are_cut_exactly(void **unused)
{
    (void)unused;
    for_each_isa(check_long);
}

/* n equal keys and p = m/n: m keys, though neither p nor a sum of n-ths is exact in binary. */
static void check_equal(heed_isa isa)
{
    for (int n = 1; n <= 60; n++)
        for (int m = 1; m <= n; m++) {
            float row[60], score[60];
            bool kept[60];
            for (int j = 0; j < n; j++) {
                row[j] = score[j] = -3.7f;
                kept[j] = j < m;
            }
            const heed_form_state form = make_form(isa, "top_p", (double)m / n, 0);
            choose(&form, score, n, NULL, 0, NULL);
            check_kept("top_p(m/n) of n equal keys", row, score, kept, n);
        }
}

static void top_p_of_equal_keys_counts_them(void **unused)
{
    (void)unused;
    for_each_isa(check_equal);
}

/* Shares .4, .3, .2, .1 as floats hold them: whether two keys reach 0.7 hangs on the eighth digit, and is
 * decided as in double. */
static void check_close(heed_isa isa)
{
    const float row[4] = {(float)log(0.1), (float)log(0.4), (float)log(0.2), (float)log(0.3)};
    const double total = exp(row[0]) + exp(row[1]) + exp(row[2]) + exp(row[3]);
    const double two = (exp(row[1]) + exp(row[3])) / total;
    for (int side = -1; side <= 1; side += 2) {
        float score[4];
        memcpy(score, row, sizeof row);
        const heed_form_state form = make_form(isa, "top_p", two + side * 1e-10, 0);
        choose(&form, score, 4, NULL, 0, NULL);
        const bool kept[4] = {false, true, side > 0, true};
        check_kept("top_p at a border", row, score, kept, 4);
    }
}

static void top_p_decides_close_sums_as_in_double(void **unused)
{
    (void)unused;
    for_each_isa(check_close);
}

/* A row over keys whose entries are small whole numbers, so that products are exact and ties are many. */
typedef struct scene {
    int cols, keys, dim, size;
    float query[MOST_DIM];
    float *key, *score, *summary; /* [keys][dim], [cols], as the form likes */
} scene;

static scene make_scene(const heed_form_state *form, int size)
{
    scene s = {.keys = between(1, MOST_COLS), .dim = between(1, MOST_DIM), .size = size};
    s.cols = (s.keys + 15) / 16 * 16;
    const int range = between(1, 3);
    for (int c = 0; c < s.dim; c++)
        s.query[c] = (float)between(-range, range);
    s.key = fresh((size_t)(s.keys * s.dim) * sizeof(float));
    for (int x = 0; x < s.keys * s.dim; x++)
        s.key[x] = (float)between(-range, range);
    s.score = fresh((size_t)s.cols * sizeof(float));
    const int seen = between(0, 8) ? between(1, s.keys) : 0;
    const double closed = between(0, 2) ? 0 : 0.9;
    for (int j = 0; j < s.cols; j++)
        s.score[j] = j < seen && uniform() >= closed ? (float)normal() : -INFINITY;
    heed_form_state with_sizes = *form;
    with_sizes.sizes.keys = s.keys;
    s.summary = fresh((size_t)form->form->summary_floats(&with_sizes, s.dim, s.keys) * sizeof(float));
    for (int first = 0; first < s.keys;) {
        /* in runs of any length, spread out in memory */
        const int count = between(1, s.keys - first), stride = s.dim + between(0, 5);
        float *run = fresh((size_t)(count * stride) * sizeof(float));
        for (int i = 0; i < count; i++)
            for (int c = 0; c < stride; c++)
                run[i * stride + c] = c < s.dim ? s.key[(first + i) * s.dim + c] : NAN;
        const heed_rows rows = {.count = count, .dim = s.dim, .in = run, .in_stride = stride};
        form->form->summarise(&with_sizes, &rows, first, s.summary);
        free(run);
        first += count;
    }
    return s;
}

static void free_scene(scene *s)
{
    free(s->key);
    free(s->score);
    free(s->summary);
}

/* What the form thinks of the keys first..end-1. */
static double page_bound(const scene *s, int first, int end)
{
    double bound = 0;
    for (int c = 0; c < s->dim; c++) {
        double most = -INFINITY;
        for (int j = first; j < end; j++)
            most = fmax(most, (double)s->query[c] * (double)s->key[j * s->dim + c]);
        bound += most;
    }
    return bound;
}

static double block_gate(const scene *s, int first, int end)
{
    double sum = 0;
    for (int j = first; j < end; j++)
        for (int c = 0; c < s->dim; c++)
            sum += (double)s->query[c] * (double)s->key[j * s->dim + c];
    return sum / (end - first);
}

/* Marks the keys of the current block and of the best others, `wanted` blocks in all. */
static void best_blocks(const scene *s, double (*value)(const scene *s, int first, int end), int wanted,
                        bool *kept)
{
    int current = -1;
    bool open[MOST_COLS] = {false};
    double of[MOST_COLS];
    const int blocks = (s->keys + s->size - 1) / s->size;
    for (int j = 0; j < s->keys; j++)
        if (s->score[j] != -INFINITY) {
            current = j / s->size;
            open[current] = true;
        }
    for (int b = 0; b < blocks; b++)
        of[b] = b == current
                    ? INFINITY
                    : value(s, b * s->size, (b + 1) * s->size < s->keys ? (b + 1) * s->size : s->keys);
    memset(kept, 0, (size_t)s->cols);
    for (int taken = 0; taken < wanted; taken++) {
        int best = -1;
        for (int b = 0; b < blocks; b++)
            if (open[b] && (best < 0 || of[b] > of[best]))
                best = b;
        if (best < 0)
            return;
        open[best] = false;
        for (int j = best * s->size; j < (best + 1) * s->size && j < s->keys; j++)
            kept[j] = s->score[j] != -INFINITY;
    }
}

static void check_blocks(heed_isa isa)
{
    for (int trial = 0; trial < 2 * TRIALS; trial++) {
        const bool quest = trial % 2;
        const int size = between(0, 9) ? between(1, 40) : 100000, amount = between(1, quest ? MOST_COLS : 12);
        const heed_form_state form = make_form(isa, quest ? "quest" : "moba", size, amount);
        scene s = make_scene(&form, size);
        float *score = fresh((size_t)s.cols * sizeof *score);
        bool *kept = fresh((size_t)s.cols);
        memcpy(score, s.score, (size_t)s.cols * sizeof *score);
        choose(&form, score, s.cols, s.query, s.dim, s.summary);
        best_blocks(&s, quest ? page_bound : block_gate, quest ? (amount + size - 1) / size : amount, kept);
        char what[64];
        snprintf(what, sizeof what, "%s(%d, %d) over %d keys", quest ? "quest" : "moba", size, amount,
                 s.keys);
        check_kept(what, s.score, score, kept, s.cols);
        free(score);
        free(kept);
        free_scene(&s);
    }
}

static void block_selectors_keep_the_best_blocks_and_the_current_one(void **unused)
{
    (void)unused;
    for_each_isa(check_blocks);
}

/* Keys that the row does not see may hold anything. Their page comes first, and nothing else changes. */
static void a_key_that_is_no_number_but_not_seen_leaves_a_choice(void **unused)
{
    (void)unused;
    const char *const names[] = {"quest", "moba"};
    for (int n = 0; n < 2; n++) {
        const heed_form_state form = make_form(HEED_ISA_PORTABLE, names[n], 2, n == 0 ? 6 : 3);
        float key[8] = {9, 9, 1, 2, 1, INFINITY, 3, 3}; /* four pages of two keys with one entry */
        const float query = 0;                          /* 0 inf = NaN */
        float summary[16], score[8] = {0, 0, 0, 0, 0, -INFINITY, 0, 0}, before[8];
        memcpy(before, score, sizeof score);
        heed_form_state with_sizes = form;
        with_sizes.sizes.keys = 8;
        assert_true(form.form->summary_floats(&with_sizes, 1, 8) <= 16);
        const heed_rows rows = {.count = 8, .dim = 1, .in = key, .in_stride = 1};
        form.form->summarise(&with_sizes, &rows, 0, summary);
        choose(&form, score, 8, &query, 1, summary);
        const bool kept[8] = {true, true, false, false, true, false, true, true};
        check_kept(names[n], before, score, kept, 8);
    }
}

static void every_form_is_described(void **unused)
{
    (void)unused;
    const heed_form *const *form = heed_registry_stage(HEED_ISA_PORTABLE, HEED_SELECT);
    for (; *form; form++) {
        assert_int_equal((*form)->stage, HEED_SELECT);
        assert_non_null((*form)->summary);
        assert_non_null((*form)->formula);
        assert_true((*form)->choose || (*form)->vote || (*form)->recall || (*form)->gathers);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_selector_keeps_what_its_definition_keeps),
        cmocka_unit_test(a_second_selector_sums_the_weights_anew),
        cmocka_unit_test(long_rows_are_cut_exactly),
        cmocka_unit_test(top_p_of_equal_keys_counts_them),
        cmocka_unit_test(top_p_decides_close_sums_as_in_double),
        cmocka_unit_test(block_selectors_keep_the_best_blocks_and_the_current_one),
        cmocka_unit_test(a_key_that_is_no_number_but_not_seen_leaves_a_choice),
        cmocka_unit_test(every_form_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
