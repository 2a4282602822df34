/* The paged store by itself: what lists of keys hold after they grew, shrank, were shared and thinned out. */
#include "cache/pages.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 3, HEADS = 2, DIM = 32, VALUE_DIM = 64, SEQUENCES = 3, MOST = 1000, STATES = 2 };

static heed_pages make_in(const char *folder)
{
    const heed_pages_layer plain = {.key_type = HEED_F32, .value_type = HEED_F16, .most = MOST},
                           placed = {.key_type = HEED_F32,
                                     .value_type = HEED_Q8,
                                     .most = MOST,
                                     .placed = true,
                                     .moved = true,
                                     .mass = true,
                                     .states = STATES,
                                     .summary_floats = 5};
    heed_pages_layer layer[LAYERS] = {plain, placed, plain};
    for (int l = 0; l < LAYERS; l++)
        layer[l].offloaded = folder != NULL;
    const heed_pages_shape shape = {.layers = LAYERS,
                                    .heads = HEADS,
                                    .dim = DIM,
                                    .value_dim = VALUE_DIM,
                                    .sequences = SEQUENCES,
                                    .folder = folder,
                                    .resident = 1400 << 10,
                                    .threads = 1,
                                    .at_once = HEED_PAGE};
    heed_pages pages;
    if (heed_pages_create(&pages, &shape, layer))
        fail_msg("%s", heed_message());
    return pages;
}

static heed_pages make(void)
{
    return make_in(NULL);
}

/* A key's first number says which token it belongs to. */
static void write_keys(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t count,
                       float from)
{
    const heed_kept_keys *list = heed_pages_list(pages, sequence, layer, head);
    const int64_t before = list->count;
    assert_int_equal(heed_pages_append(pages, sequence, layer, head, (int64_t)from, (int64_t)from + 7, count),
                     HEED_OK);
    for (int64_t i = before; i < list->count; i++) {
        const float value = from + (float)(i - before);
        memcpy(heed_pages_key(pages, layer, list, i), &value, sizeof value);
        *heed_pages_value(pages, layer, list, i) = (char)(int)value;
        if (list->state)
            list->state[i * STATES + 1] = value + 0.5f;
    }
}

static float key_at(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t i)
{
    float value;
    memcpy(&value, heed_pages_key(pages, layer, list, i), sizeof value);
    return value;
}

static void expect_key(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t i,
                       float value)
{
    assert_float_equal(key_at(pages, layer, list, i), value, 0.0);
    assert_int_equal(*heed_pages_value(pages, layer, list, i), (char)(int)value);
    assert_int_equal(heed_key_place(list, i), (int64_t)value);
    if (list->state) {
        assert_int_equal(list->position[i], (int64_t)value + 7);
        assert_float_equal(list->state[i * STATES + 1], value + 0.5f, 0.0);
        assert_float_equal(list->mass[i], 1.0f, 0.0);
    }
}

static int64_t used(const heed_pages *pages)
{
    int64_t sum = 0;
    for (int p = 0; p < pages->pools; p++)
        sum += pages->pool[p].used;
    return sum;
}

static void lists_have_counts_of_their_own(void **state)
{
    (void)state;
    heed_pages pages = make();
    assert_int_equal(pages.pools, 2); /* the plain layers share theirs */
    for (int64_t l = 0; l < LAYERS; l++)
        for (int64_t g = 0; g < HEADS; g++) {
            write_keys(&pages, 1, l, g, 100 + 50 * g, 0.0f);
            write_keys(&pages, 1, l, g, 60 + 200 * l, (float)(100 + 50 * g));
        }
    for (int64_t l = 0; l < LAYERS; l++)
        for (int64_t g = 0; g < HEADS; g++) {
            const heed_kept_keys *list = heed_pages_list(&pages, 1, l, g);
            assert_int_equal(list->count, 160 + 50 * g + 200 * l);
            for (int64_t i = 0; i < list->count; i++)
                expect_key(&pages, l, list, i, (float)i);
        }
    assert_int_equal(used(&pages), 2 + 2 + 3 + 4 + 5 + 5);
    assert_true(heed_pages_append(&pages, 1, 0, 0, 0, 0, MOST) != HEED_OK);
    assert_int_equal(heed_pages_list(&pages, 1, 0, 0)->count, 160);
    heed_pages_free(&pages);
}

static void bytes_follow_the_pages_in_use(void **state)
{
    (void)state;
    heed_pages pages = make();
    assert_int_equal(heed_pages_bytes(&pages), 0);
    write_keys(&pages, 0, 0, 0, 129, 0.0f);
    const size_t plain = HEED_PAGE * (DIM * 4 + VALUE_DIM * 2);
    assert_int_equal(heed_pages_bytes(&pages), 2 * plain);
    write_keys(&pages, 0, 1, 0, 10, 0.0f);
    const size_t placed = HEED_PAGE * (DIM * 4 + VALUE_DIM / 32 * 34) + 64;
    assert_int_equal(heed_pages_bytes(&pages), 2 * plain + placed + 10 * 4 * (3 + STATES));
    heed_pages_share(&pages, 0, 2);
    assert_int_equal(heed_pages_bytes(&pages), 2 * plain + placed + 20 * 4 * (3 + STATES));
    heed_pages_clear(&pages, 0);
    heed_pages_clear(&pages, 2);
    assert_int_equal(heed_pages_bytes(&pages), 0);
    assert_int_equal(pages.peak_bytes, 2 * plain + placed + 10 * 4 * (3 + STATES));
    assert_float_equal(heed_pages_token_bytes(&pages),
                       HEADS * (2 * (DIM * 4 + VALUE_DIM * 2) + DIM * 4 + VALUE_DIM / 32 * 34), 0.0);
    heed_pages_free(&pages);
}

static void shared_pages_are_copied_before_they_are_written(void **state)
{
    (void)state;
    heed_pages pages = make();
    for (int64_t l = 0; l < LAYERS; l++)
        write_keys(&pages, 0, l, 0, 300, 0.0f);
    const int64_t before = used(&pages);
    heed_pages_share(&pages, 0, 1);
    heed_pages_share(&pages, 1, 2);
    assert_int_equal(used(&pages), before);
    for (int64_t l = 0; l < LAYERS; l++) {
        heed_pages_truncate(&pages, 1, l, 0, 200);
        write_keys(&pages, 1, l, 0, 100, 5000.0f);
        write_keys(&pages, 2, l, 0, 10, 300.0f);
    }
    assert_int_equal(used(&pages), before + LAYERS * 3); /* two of sequence 1, one of 2 */
    for (int64_t l = 0; l < LAYERS; l++)
        for (int64_t i = 0; i < 300; i++) {
            expect_key(&pages, l, heed_pages_list(&pages, 0, l, 0), i, (float)i);
            expect_key(&pages, l, heed_pages_list(&pages, 2, l, 0), i, (float)i);
            const float there = key_at(&pages, l, heed_pages_list(&pages, 1, l, 0), i);
            assert_float_equal(there, i < 200 ? (float)i : 4800.0f + (float)i, 0.0);
        }
    for (int64_t s = 0; s < SEQUENCES; s++)
        heed_pages_clear(&pages, s);
    assert_int_equal(used(&pages), 0);
    heed_pages_free(&pages);
}

static void keys_that_stay_move_together_with_what_is_theirs(void **state)
{
    (void)state;
    heed_pages pages = make();
    static uint8_t keep[MOST];
    write_keys(&pages, 0, 1, 1, 900, 0.0f);
    heed_pages_share(&pages, 0, 2);
    for (int64_t i = 0; i < 900; i++)
        keep[i] = i < 140 || i % 7 == 3;
    assert_int_equal(heed_pages_keep(&pages, 0, 1, 1, keep), 140);
    const heed_kept_keys *list = heed_pages_list(&pages, 0, 1, 1);
    int64_t to = 0;
    for (int64_t i = 0; i < 900; i++)
        if (keep[i])
            expect_key(&pages, 1, list, to++, (float)i);
    assert_int_equal(list->count, to);
    for (int64_t i = 0; i < 900; i++) /* who shared them still has all */
        expect_key(&pages, 1, heed_pages_list(&pages, 2, 1, 1), i, (float)i);
    memset(keep, 1, sizeof keep);
    assert_int_equal(heed_pages_keep(&pages, 0, 1, 1, keep), to);
    memset(keep, 0, sizeof keep);
    heed_pages_keep(&pages, 0, 1, 1, keep);
    assert_int_equal(list->count, 0);
    heed_pages_free(&pages);
}

static void pages_behind_a_window_are_dropped(void **state)
{
    (void)state;
    heed_pages pages = make();
    write_keys(&pages, 0, 0, 0, 700, 0.0f);
    heed_pages_drop(&pages, 0, 0, 0, 0, 255);
    const heed_kept_keys *list = heed_pages_list(&pages, 0, 0, 0);
    assert_int_equal(list->start, 128); /* key 255 is the last of its page and stays */
    heed_pages_drop(&pages, 0, 0, 0, 0, 256);
    assert_int_equal(list->start, 256);
    assert_int_equal(list->count, 444);
    for (int64_t i = 0; i < list->count; i++)
        expect_key(&pages, 0, list, i, (float)(256 + i));
    heed_pages_clear(&pages, 0);

    write_keys(&pages, 0, 1, 0, 700, 0.0f); /* at positions 7... */
    heed_pages_drop(&pages, 0, 1, 0, 10, 600);
    list = heed_pages_list(&pages, 0, 1, 0);
    assert_int_equal(list->count, 700 - 3 * 128);
    for (int64_t i = 0; i < list->count; i++)
        expect_key(&pages, 1, list, i, (float)(i < 128 ? i : i + 3 * 128));
    heed_pages_free(&pages);
}

/* Any order of changes, against plain arrays. */
static void change_a_thousand_times(const char *folder)
{
    heed_pages pages = make_in(folder);
    static float model[SEQUENCES][MOST];
    static uint8_t keep[MOST];
    int64_t count[SEQUENCES] = {0}, next[SEQUENCES] = {0};
    test_random seed = {7};
    for (int step = 0; step < 1000; step++) {
        const int64_t s = random_whole(&seed, 0, SEQUENCES - 1),
                      other = random_whole(&seed, 0, SEQUENCES - 1);
        switch (random_whole(&seed, 0, 4)) {
        case 0:
        case 1: {
            const int64_t n = random_whole(&seed, 1, MOST - count[s] < 200 ? 1 : 200);
            if (count[s] + n > MOST)
                break;
            write_keys(&pages, s, 1, 0, n, (float)next[s]);
            for (int64_t i = 0; i < n; i++)
                model[s][count[s]++] = (float)next[s]++;
            break;
        }
        case 2: {
            int64_t to = 0;
            for (int64_t i = 0; i < count[s]; i++) {
                keep[i] = random_whole(&seed, 0, 2) > 0;
                if (keep[i])
                    model[s][to++] = model[s][i];
            }
            count[s] = to;
            heed_pages_keep(&pages, s, 1, 0, keep);
            break;
        }
        case 3:
            if (s != other) {
                memcpy(model[other], model[s], sizeof model[s]);
                count[other] = count[s];
                next[other] = next[s];
            }
            heed_pages_share(&pages, s, other);
            break;
        default:
            count[s] = random_whole(&seed, 0, count[s]);
            heed_pages_truncate(&pages, s, 1, 0, count[s]);
        }
        for (int64_t q = 0; q < SEQUENCES; q++) {
            const heed_kept_keys *list = heed_pages_list(&pages, q, 1, 0);
            assert_int_equal(list->count, count[q]);
            for (int64_t i = 0; i < count[q]; i += 1 + count[q] / 16)
                expect_key(&pages, 1, list, i, model[q][i]);
        }
    }
    for (int64_t s = 0; s < SEQUENCES; s++)
        heed_pages_clear(&pages, s);
    assert_int_equal(used(&pages), 0);
    assert_int_equal(heed_pages_bytes(&pages), 0);
    heed_pages_free(&pages);
}

static void a_thousand_changes_equal_plain_lists(void **state)
{
    (void)state;
    change_a_thousand_times(NULL);
    change_a_thousand_times("/var/tmp");
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    heed_pages pages;
    const heed_pages_layer big = {.key_type = HEED_F32, .value_type = HEED_F32, .most = (int64_t)1 << 60};
    assert_int_not_equal(
        heed_pages_create(
            &pages,
            &(heed_pages_shape){.layers = 1, .heads = 8, .dim = 128, .value_dim = 128, .sequences = 64},
            &big),
        HEED_OK);
    const heed_pages_layer odd = {.key_type = HEED_TYPES, .value_type = HEED_F32, .most = 10};
    assert_int_not_equal(
        heed_pages_create(
            &pages, &(heed_pages_shape){.layers = 1, .heads = 1, .dim = 8, .value_dim = 8, .sequences = 1},
            &odd),
        HEED_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_have_counts_of_their_own),
        cmocka_unit_test(bytes_follow_the_pages_in_use),
        cmocka_unit_test(shared_pages_are_copied_before_they_are_written),
        cmocka_unit_test(keys_that_stay_move_together_with_what_is_theirs),
        cmocka_unit_test(pages_behind_a_window_are_dropped),
        cmocka_unit_test(a_thousand_changes_equal_plain_lists),
        cmocka_unit_test(impossible_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
