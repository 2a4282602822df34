/* Pages that are packed as a whole: what they read back as, which channels and bits forms choose, and models
 * that read on with them. */
#include "attend/registry.h"
#include "model/session.h"
#include "support/random.h"
#include "support/small_models.h"
#include "tensor/half.h"
#include "tensor/packed.h"

#include <heed/policy.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEYS = 128, MOST_DIM = 64, LONG = 700 };

static float half(double x)
{
    return heed_float_from_f16(heed_f16_from_float((float)x));
}

static void fill(test_random *random, float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)random_normal(random) * (i % 11 == 3 ? 6.0f : 1.0f);
}

/* One number of a row of codes, from the definition. */
static double coded(const float *row, const uint8_t *outlier, int dim, int bits, int c)
{
    double low = INFINITY, high = -INFINITY;
    if (bits == 16 || (outlier && outlier[c]))
        return half(row[c]);
    for (int i = 0; i < dim; i++)
        if (!outlier || !outlier[i]) {
            low = fmin(low, row[i]);
            high = fmax(high, row[i]);
        }
    const double minimum = half(low), scale = half((high - minimum) / ((1 << bits) - 1));
    const double n = scale > 0 ? floor((row[c] - minimum) / scale + 0.5) : 0;
    return minimum + scale * fmin(fmax(n, 0), (1 << bits) - 1);
}

static void check_rows(const void *page, const float *rows, const uint8_t *outlier, const uint8_t *bits,
                       int dim)
{
    float *all = malloc(KEYS * MOST_DIM * sizeof *all), *some = malloc(KEYS * MOST_DIM * sizeof *some);
    heed_packed_load(page, 0, KEYS, dim, all, dim);
    heed_packed_load(page, 37, 50, dim, some, MOST_DIM);
    for (int j = 0; j < KEYS; j++)
        for (int c = 0; c < dim; c++) {
            const double right = coded(rows + j * dim, outlier ? outlier + j * dim : NULL, dim, bits[j], c);
            const double step = bits[j] == 16 ? 0 : 12.0 / ((1 << bits[j]) - 1); /* a tie may go either way */
            const double far = fabs(all[j * dim + c] - right),
                         from = fabs(all[j * dim + c] - rows[j * dim + c]);
            if (far > 1e-5 && !(from < 0.501 * step))
                fail_msg("%d bits, row %d, channel %d: %g, not %g", bits[j], j, c, all[j * dim + c], right);
            if (j >= 37 && j < 87)
                assert_true(some[(j - 37) * MOST_DIM + c] == all[j * dim + c]);
        }
    free(all);
    free(some);
}

static void rows_read_back_as_defined(void **state)
{
    (void)state;
    test_random random = {3};
    static const int dims[] = {64, 48, 13};
    for (int n = 0; n < 3; n++) {
        const int dim = dims[n];
        float rows[KEYS * MOST_DIM];
        uint8_t bits[KEYS], outlier[KEYS * MOST_DIM];
        int32_t order[KEYS * MOST_DIM];
        int64_t all = 0;
        fill(&random, rows, KEYS * dim);
        heed_mark_outliers(rows, KEYS * dim, 81, order, outlier);
        for (int j = 0; j < KEYS; j++) {
            bits[j] = (uint8_t)(j % 9 == 8 ? 16 : 1 + j % 9);
            all += bits[j];
        }
        const size_t most = heed_packed_rows_bytes(KEYS, dim, all, 81);
        char *page = calloc(most, 1);
        heed_pack_rows(rows, KEYS, dim, bits, n == 1 ? NULL : outlier, page);
        check_rows(page, rows, n == 1 ? NULL : outlier, bits, dim);
        assert_true(heed_packed_is_sound(page, most, KEYS, dim));
        assert_false(heed_packed_is_sound(page, most / 2, KEYS, dim));
        assert_false(heed_packed_is_sound(page, most, KEYS - 1, dim));
        ((uint16_t *)(void *)page)[2]++;
        assert_false(heed_packed_is_sound(page, most, KEYS, dim));
        ((uint16_t *)(void *)page)[2]--;
        page[6 + 4 * KEYS + 5] = 11; /* bits that there are none of */
        assert_false(heed_packed_is_sound(page, most, KEYS, dim));
        free(page);
    }
}

static void outliers_are_the_farthest_out(void **state)
{
    (void)state;
    test_random random = {9};
    for (int round = 0; round < 40; round++) {
        const int values = (int)random_whole(&random, 1, 300), count = (int)random_whole(&random, 0, values);
        float x[300];
        uint8_t marked[300];
        int32_t order[300];
        for (int i = 0; i < values; i++)
            x[i] = round % 2 ? (float)random_whole(&random, 0, 6) : (float)random_normal(&random);
        heed_mark_outliers(x, values, count, order, marked);
        int low = count - count / 2, high = count / 2, all = 0;
        for (int i = 0; i < values; i++) {
            int below = 0, above = 0;
            for (int j = 0; j < values; j++) {
                below += x[j] < x[i] || (x[j] == x[i] && j < i);
                above += x[j] > x[i] || (x[j] == x[i] && j < i && below >= 0);
            }
            all += marked[i];
            if (below < low)
                assert_int_equal(marked[i], 1);
            else if (round % 2 == 0)
                assert_int_equal(marked[i], above < high);
        }
        assert_int_equal(all, count);
    }
}

/* A page of a made-up sequence. */
typedef struct made {
    heed_page_state page;
    float key[KEYS * MOST_DIM], value[KEYS * MOST_DIM], query[2 * 5 * MOST_DIM], weight[2 * 5 * 2 * KEYS];
    char work[8 * KEYS * MOST_DIM];
} made;

static made *make(uint64_t seed)
{
    made *m = calloc(1, sizeof *m);
    test_random random = {seed};
    assert_non_null(m);
    fill(&random, m->key, KEYS * MOST_DIM);
    fill(&random, m->value, KEYS * MOST_DIM);
    fill(&random, m->query, 2 * 5 * MOST_DIM);
    for (int i = 0; i < 2 * 5 * 2 * KEYS; i++)
        m->weight[i] = (float)exp(2 * random_normal(&random)) / (float)(2 * KEYS);
    m->page = (heed_page_state){.layers = 1,
                                .first = KEYS,
                                .last = 2 * KEYS - 1,
                                .read = 3 * KEYS,
                                .behind = KEYS,
                                .kv_heads = 1,
                                .group = 2,
                                .dim = MOST_DIM,
                                .value_dim = MOST_DIM,
                                .count = KEYS,
                                .key = m->key,
                                .value = m->value,
                                .index = KEYS / 2,
                                .held = 2 * KEYS,
                                .queries = 5,
                                .query = m->query,
                                .weight = m->weight,
                                .work = m->work};
    return m;
}

static heed_form_state form_of(const char *name)
{
    heed_form_state state = {.form = heed_registry_find(HEED_ISA_PORTABLE, HEED_CACHE, name)};
    assert_non_null(state.form);
    for (int i = 0; state.form->args[i].name; i++)
        state.arg[i].number = state.form->args[i].value;
    state.sizes = (heed_sizes){.dim = MOST_DIM, .value_dim = MOST_DIM, .heads = 2, .kv_heads = 1};
    return state;
}

static int arg_of(const heed_form_state *form, const char *name)
{
    int i = 0;
    while (strcmp(form->form->args[i].name, name) != 0)
        i++;
    return i;
}

static void *packed(const heed_form_state *form, const made *m, bool values)
{
    const int grade = form->form->storage->grade(form, &m->page);
    assert_true(grade > 0);
    const size_t bytes = form->form->storage->page_bytes(form, grade, values, KEYS, MOST_DIM);
    char *page = malloc(bytes);
    form->form->storage->pack(form, &m->page, grade, values, page);
    assert_true(heed_packed_is_sound(page, bytes, KEYS, MOST_DIM));
    return page;
}

static void think_keeps_the_channels_of_largest_norms(void **state)
{
    (void)state;
    for (int drop = 0; drop < 100; drop += 30) {
        made *m = make(5 + (uint64_t)drop);
        heed_form_state form = form_of("think");
        form.arg[arg_of(&form, "drop")].number = drop / 100.0;
        void *page = packed(&form, m, false);
        float read[KEYS * MOST_DIM];
        double score[MOST_DIM];
        heed_packed_load(page, 0, KEYS, MOST_DIM, read, MOST_DIM);
        for (int c = 0; c < MOST_DIM; c++) {
            double q = 0, k = 0;
            for (int i = 0; i < 10; i++)
                q += pow(m->query[i * MOST_DIM + c], 2);
            for (int j = 0; j < KEYS; j++)
                k += pow(m->key[j * MOST_DIM + c], 2);
            score[c] = sqrt(q) * sqrt(k);
        }
        int kept = 0;
        for (int c = 0; c < MOST_DIM; c++) {
            int better = 0;
            for (int other = 0; other < MOST_DIM; other++)
                better += score[other] > score[c];
            const bool stays = better < MOST_DIM - drop * MOST_DIM / 100;
            kept += stays;
            for (int j = 0; j < KEYS; j++)
                assert_true(read[j * MOST_DIM + c] == (stays ? half(m->key[j * MOST_DIM + c]) : 0.0f));
        }
        assert_int_equal(form.form->storage->page_bytes(&form, 1, false, KEYS, MOST_DIM),
                         6 + 2 * kept + 2 * KEYS * kept);
        m->page.goes_on = true;
        assert_int_equal(form.form->storage->grade(&form, &m->page), 0);
        free(page);
        free(m);
    }
}

/* Bits by the formula; falling in e, rising with attention. */
static int bits_of(const made *m, int j, double e, bool values, const uint8_t *outlier)
{
    double length = 0, most = 0, low = INFINITY, high = -INFINITY;
    const float *row = (values ? m->value : m->key) + j * MOST_DIM;
    for (int i = 0; i < 10; i++) {
        double square = 0;
        for (int c = 0; c < MOST_DIM; c++)
            square += pow(m->query[i * MOST_DIM + c], 2);
        length += sqrt(square * MOST_DIM) / 10;
        most = fmax(most, m->weight[i * 2 * KEYS + KEYS / 2 + j]);
    }
    for (int c = 0; c < MOST_DIM; c++)
        if (!outlier[j * MOST_DIM + c]) {
            low = fmin(low, row[c]);
            high = fmax(high, row[c]);
        }
    const double n = 2 * KEYS, sigma = values ? sqrt(12 / n) * e / most
                                              : sqrt(12 / length * log(e * e * pow(n, 3) / (n - 1) + 1));
    return (int)fmin(fmax(ceil(log2((high - low) / (2 * sigma) + 1)), 1), 8);
}

static void bits_come_from_the_allowed_error(void **state)
{
    (void)state;
    int64_t before = INT64_MAX;
    for (double e = 1e-3; e < 20; e *= 7) {
        made *m = make(21);
        heed_form_state form = form_of("qaq");
        form.arg[arg_of(&form, "e")].number = e;
        int32_t order[KEYS * MOST_DIM];
        uint8_t outlier[KEYS * MOST_DIM], bits[KEYS];
        int64_t all = 0;
        for (int values = 0; values < 2; values++) {
            const float *rows = values ? m->value : m->key;
            void *page = packed(&form, m, values);
            heed_mark_outliers(rows, KEYS * MOST_DIM, 82, order, outlier);
            for (int j = 0; j < KEYS; j++) {
                bits[j] = (uint8_t)bits_of(m, j, e, values, outlier);
                all += bits[j];
            }
            check_rows(page, rows, outlier, bits, MOST_DIM);
            free(page);
        }
        for (int j = 0; j < KEYS; j++) {
            const int was = bits_of(m, j, e, true, outlier);
            m->weight[KEYS / 2 + j] *= 50;
            assert_true(bits_of(m, j, e, true, outlier) >= was);
        }
        assert_true(all <= before);
        before = all;
        free(m);
    }
    assert_true(before <= 4 * KEYS);
}

static void the_error_of_what_is_read_is_the_one_allowed(void **state)
{
    (void)state;
    made *m = make(77);
    const double e = 0.02;
    heed_form_state form = form_of("qaq");
    form.arg[arg_of(&form, "e")].number = e;
    m->page.held = KEYS;
    m->page.index = 0;
    for (int i = 0; i < 10 * KEYS; i++)
        m->weight[i] = 1.0f / KEYS;
    void *page = packed(&form, m, true);
    float read[KEYS * MOST_DIM];
    heed_packed_load(page, 0, KEYS, MOST_DIM, read, MOST_DIM);
    double squares = 0;
    for (int c = 0; c < MOST_DIM; c++) {
        double error = 0;
        for (int j = 0; j < KEYS; j++)
            error += (read[j * MOST_DIM + c] - m->value[j * MOST_DIM + c]) / (double)KEYS;
        squares += error * error / MOST_DIM;
    }
    assert_true(sqrt(squares) < 2 * e && sqrt(squares) > 0.01 * e);
    free(page);
    free(m);
}

static void values_and_tokens_that_stand_out_stay(void **state)
{
    (void)state;
    made *m = make(4);
    heed_form_state form = form_of("outliers");
    form.arg[arg_of(&form, "bits")].number = 2;
    form.arg[arg_of(&form, "tokens")].number = 3;
    form.arg[arg_of(&form, "values")].number = 0.005;
    form.arg[arg_of(&form, "keys")].number = 1;
    for (int c = 0; c < MOST_DIM; c++)
        m->key[17 * MOST_DIM + c] *= 100; /* more numbers than outliers are */
    m->value[9] = 1000;
    uint8_t outlier[KEYS * MOST_DIM], bits[KEYS];
    int32_t order[KEYS * MOST_DIM];
    for (int values = 0; values < 2; values++) {
        const float *rows = values ? m->value : m->key;
        void *page = packed(&form, m, values);
        float read[KEYS * MOST_DIM];
        heed_packed_load(page, 0, KEYS, MOST_DIM, read, MOST_DIM);
        heed_mark_outliers(rows, KEYS * MOST_DIM, 41, order, outlier);
        memset(bits, 2, sizeof bits);
        int whole = 0;
        for (int j = 0; j < KEYS; j++) {
            bool same = true;
            for (int c = 0; c < MOST_DIM; c++)
                same &= read[j * MOST_DIM + c] == half(rows[j * MOST_DIM + c]);
            bits[j] = same ? 16 : 2;
            whole += same;
        }
        assert_int_equal(whole, 3);
        assert_true(values || bits[17] == 16);
        check_rows(page, rows, outlier, bits, MOST_DIM);
        free(page);
    }
    free(m);
}

/* The page turned round: [MOST_DIM][KEYS]. */
static void turn(const float *rows, float *to)
{
    for (int i = 0; i < KEYS * MOST_DIM; i++)
        to[i % MOST_DIM * KEYS + i / MOST_DIM] = rows[i];
}

static void keys_have_a_range_by_channel(void **state)
{
    (void)state;
    made *m = make(7);
    heed_form_state form = form_of("outliers");
    form.arg[arg_of(&form, "tokens")].number = 2;
    form.arg[arg_of(&form, "values")].number = 0.02;
    for (int j = 0; j < KEYS; j++)
        m->key[j * MOST_DIM + 5] += 40; /* a mean of its own */
    for (int c = 0; c < MOST_DIM; c++)
        m->key[17 * MOST_DIM + c] += 30;
    void *page = packed(&form, m, false);
    float read[KEYS * MOST_DIM], some[9 * MOST_DIM], rows[KEYS * MOST_DIM], back[KEYS * MOST_DIM];
    heed_packed_load(page, 0, KEYS, MOST_DIM, read, MOST_DIM);
    heed_packed_load(page, 12, 9, MOST_DIM, some, MOST_DIM);
    assert_memory_equal(some, read + 12 * MOST_DIM, sizeof some);
    turn(m->key, rows);
    turn(read, back);
    int whole = 0, all = (int)(0.02 * KEYS * MOST_DIM + 0.5);
    uint8_t stays[KEYS];
    for (int j = 0; j < KEYS; j++) {
        int same = 0;
        for (int c = 0; c < MOST_DIM; c++)
            same += read[j * MOST_DIM + c] == half(m->key[j * MOST_DIM + c]);
        stays[j] = same == MOST_DIM;
        whole += stays[j];
    }
    assert_true(stays[17]);
    assert_int_equal(whole, 2);
    for (int c = 0; c < MOST_DIM; c++) {
        const float *row = rows + c * KEYS;
        const int share = (c + 1) * all / MOST_DIM - c * all / MOST_DIM;
        uint8_t outlier[KEYS];
        for (int j = 0; j < KEYS; j++) {
            int below = 0, above = 0;
            for (int i = 0; i < KEYS; i++) {
                below += !stays[i] && row[i] < row[j];
                above += !stays[i] && row[i] > row[j];
            }
            outlier[j] = stays[j] || below < share - share / 2 || above < share / 2;
        }
        for (int j = 0; j < KEYS; j++) {
            const double right = coded(row, outlier, KEYS, 3, j),
                         step = 12.0 / 7; /* a tie may go either way */
            if (fabs(back[c * KEYS + j] - right) > 1e-5 &&
                !(fabs(back[c * KEYS + j] - row[j]) < 0.501 * step))
                fail_msg("channel %d, key %d: %g, not %g", c, j, back[c * KEYS + j], right);
        }
    }
    const size_t bytes = heed_packed_columns_bytes(KEYS, MOST_DIM, 3 * MOST_DIM, 164 + 2 * MOST_DIM);
    assert_int_equal(bytes, form.form->storage->page_bytes(&form, 1, false, KEYS, MOST_DIM));
    assert_false(heed_packed_is_sound(page, bytes / 2, KEYS, MOST_DIM));
    ((uint8_t *)page)[6 + 4 * MOST_DIM + 5] = 16; /* bits that columns have none of */
    assert_false(heed_packed_is_sound(page, bytes, KEYS, MOST_DIM));
    free(page);
    free(m);
}

static heed_session *start(const small_model *small, const char *spec, int64_t chunk, int threads)
{
    return new_session(
        small->model,
        &(heed_session_options){
            .context = LONG, .sequences = 2, .chunk = chunk, .threads = threads, .attention = spec});
}

static void read_text(heed_session *session, int64_t sequence, const int32_t *tokens, int64_t count,
                      float *logits)
{
    must(heed_feed(session, &(heed_feed_item){.sequence = sequence, .tokens = tokens, .count = count}, 1,
                   &(heed_feed_wants){.logits = logits}));
}

static size_t page_bytes(const heed_session *session)
{
    const heed_pages *pages = &session->pages;
    size_t bytes = 0;
    for (int64_t l = 0; l < pages->layers; l++)
        for (int64_t g = 0; g < pages->heads; g++) {
            const heed_kept_keys *list = heed_pages_list(pages, 0, l, g);
            for (int64_t p = 0; p < heed_pages_for(list->count); p++)
                bytes += pages->layer[l].layout[heed_page_grade(list, p)].page_bytes;
        }
    return bytes;
}

/* What loses nothing is the plain cache, whatever the chunks of a prompt; pages are packed at its end; what
 * was saved goes on with the same bits. */
static void models_read_on_with_packed_pages(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        int grade; /* of the first page; 8: any */
        double slack;
    } cases[] = {{"cache=think(drop=0)", 1, 1e-4},
                 {"cache=outliers(bits=8, tokens=128, residual=0)", 1, 1e-4},
                 {"cache=qaq(bmin=16, bmax=16)", 0, 1e-4},
                 {"cache=think(drop=0.5)", 1, INFINITY},
                 {"cache=outliers(bits=2)", 1, INFINITY},
                 {"cache=qaq(e=0.1)", 8, INFINITY},
                 {"cache=h2o(budget=300) > outliers(residual=0)", 1, INFINITY}};
    static const char *const models[] = {"llama", "gemma3"};
    char path[64];
    snprintf(path, sizeof path, "/tmp/heed_packed_%d", (int)getpid());
    for (int m = 0; m < 2; m++) {
        small_model small;
        open_small(&small, models[m], true);
        int32_t tokens[LONG];
        small_text(&small, tokens, LONG);
        const size_t bytes = (size_t)small.columns * sizeof(float);
        float *a = malloc(bytes), *b = malloc(bytes), *c = malloc(bytes);
        heed_session *plain = start(&small, NULL, 0, 1);
        read_text(plain, 0, tokens, 500, a);
        read_text(plain, 0, tokens + 500, 1, a);
        float most = 0.0f;
        for (int64_t i = 0; i < small.columns; i++)
            most = fmaxf(most, fabsf(a[i]));
        for (size_t i = m ? 3 : 0; i < (m ? 6 : sizeof cases / sizeof *cases); i++) {
            heed_session *session = start(&small, cases[i].spec, 100, 1),
                         *second = start(&small, cases[i].spec, 0, 1);
            read_text(session, 0, tokens, 500, b);
            int64_t layer = 0; /* the last one sees everything */
            while (layer + 1 < small.info.layers)
                layer++;
            const int grade = heed_page_grade(heed_pages_list(&session->pages, 0, layer, 0), 0);
            if (cases[i].grade < 8 && grade != cases[i].grade)
                fail_msg("%s, %s: the first page is of grade %d", models[m], cases[i].spec, grade);
            read_text(session, 0, tokens + 500, 1, b);
            const double far = farthest(a, b, small.columns);
            if (!(far <= cases[i].slack * (double)most) || !isfinite(b[0]))
                fail_msg("%s, %s: off by %g of %g", models[m], cases[i].spec, far, most);
            heed_session_usage usage;
            heed_session_get_usage(session, &usage);
            assert_true(usage.bytes >= page_bytes(session));
            must(heed_session_save(session, 0, path));
            must(heed_session_load(second, 1, path));
            for (int t = 501; t < 520; t++) {
                read_text(session, 0, tokens + t, 1, b);
                read_text(second, 1, tokens + t, 1, c);
                if (memcmp(b, c, bytes) != 0)
                    fail_msg("%s, %s: other logits after token %d", models[m], cases[i].spec, t);
            }
            heed_session_free(session);
            heed_session_free(second);
        }
        heed_session_free(plain);
        free(a);
        free(b);
        free(c);
        close_small(&small);
    }
    remove(path);
}

static void what_packed_pages_cannot_do_is_refused(void **state)
{
    (void)state;
    static const char *const refused[] = {"cache=snapkv(budget=60) > packed > think",
                                          "cache=h2o(budget=60) > mean > outliers", "cache=qaq > q8",
                                          "heads 0: cache=think", "cache=qaq(bmin=5, bmax=3)"};
    small_model small;
    open_small(&small, "llama", true);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        must_refuse(&small, refused[i], LONG, "");
    close_small(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_read_back_as_defined),
        cmocka_unit_test(outliers_are_the_farthest_out),
        cmocka_unit_test(think_keeps_the_channels_of_largest_norms),
        cmocka_unit_test(bits_come_from_the_allowed_error),
        cmocka_unit_test(the_error_of_what_is_read_is_the_one_allowed),
        cmocka_unit_test(values_and_tokens_that_stand_out_stay),
        cmocka_unit_test(keys_have_a_range_by_channel),
        cmocka_unit_test(models_read_on_with_packed_pages),
        cmocka_unit_test(what_packed_pages_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
