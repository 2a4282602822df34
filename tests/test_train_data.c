/* Tasks: the answers are right by another way to find them, sequences belong to their seed and number, and
 * wrong names are answered with the nearest. Texts: crops, the held-out part, masks. */
#include "train/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 512, ROUNDS = 200 };

static int32_t token[MOST], target[MOST];

static heed_data open_task(const char *text)
{
    heed_data data = {.seed = 5};
    if (heed_data_task(&data, text))
        fail_msg("%s", heed_message());
    assert_true(data.context <= MOST);
    return data;
}

/* What must hold of every sequence; n is its length. */
typedef void check_sequence(const heed_data *data, int64_t n);

static void for_all(const char *text, check_sequence *check)
{
    const heed_data data = open_task(text);
    for (uint64_t which = 0; which < ROUNDS; which++) {
        heed_data_make(&data, which % 2, which, data.context, token, target);
        int64_t asked = 0;
        for (int64_t i = 0; i < data.context; i++) {
            assert_in_range(token[i], 0, data.vocabulary - 1);
            assert_true(target[i] >= -1 && target[i] < data.vocabulary);
            asked += target[i] >= 0;
        }
        assert_true(asked > 0);
        check(&data, data.context);
    }
}

/* Answers stand behind the mark, and each is the token that follows. */
static int64_t check_answers(const heed_data *data, int64_t n, int32_t mark)
{
    int64_t at = 0;
    while (at < n && token[at] != mark)
        at++;
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(target[i] >= 0, i >= at);
        if (i >= at && i + 1 < n)
            assert_int_equal(target[i], token[i + 1]);
    }
    (void)data;
    return at;
}

static void check_copy(const heed_data *data, int64_t n)
{
    const int64_t at = check_answers(data, n, 6);
    assert_int_equal(at, 9);
    for (int64_t i = 0; i < 9; i++)
        assert_int_equal(target[9 + i], token[i]);
}

static void check_reversal(const heed_data *data, int64_t n)
{
    check_answers(data, n, 6);
    for (int64_t i = 0; i < 9; i++)
        assert_int_equal(target[9 + i], token[8 - i]);
}

static int rising(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

static void check_sorting(const heed_data *data, int64_t n)
{
    int32_t sorted[9];
    check_answers(data, n, 6);
    memcpy(sorted, token, sizeof sorted);
    qsort(sorted, 9, sizeof *sorted, rising);
    assert_memory_equal(sorted, target + 9, sizeof sorted);
}

static void check_selective(const heed_data *data, int64_t n)
{
    int64_t at = check_answers(data, n, 6), put = at;
    assert_int_equal(at, 20);
    for (int64_t i = 0; i < at; i++)
        if (token[i] < 6)
            assert_int_equal(target[put++], token[i]);
    assert_int_equal(put, n);
}

/* Each question is answered by what follows its only earlier place. */
static void check_recall(const heed_data *data, int64_t n)
{
    (void)data;
    for (int64_t i = 0; i < n; i++) {
        int found = 0;
        if (target[i] < 0)
            continue;
        for (int64_t j = 0; j < i; j++)
            if (token[j] == token[i]) {
                assert_int_equal(token[j + 1], target[i]);
                found++;
            }
        assert_int_equal(found, 1);
    }
}

static void check_needle(const heed_data *data, int64_t n)
{
    int found = 0;
    assert_int_equal(token[n - 1], data->vocabulary - 1);
    for (int64_t i = 0; i + 1 < n; i++)
        if (token[i] < data->vocabulary / 2) {
            assert_int_equal(token[i], target[n - 1]);
            found++;
        }
    assert_int_equal(found, 1);
}

static void check_parity(const heed_data *data, int64_t n)
{
    int sum = 0;
    (void)data;
    for (int64_t i = 0; i < n; i++) {
        sum += token[i];
        assert_int_equal(target[i], sum % 2);
    }
}

/* Brackets vanish in pairs that stand side by side until none is left. */
static void check_dyck(const heed_data *data, int64_t n)
{
    int32_t left[MOST];
    int64_t count = 0;
    const int32_t kinds = (int32_t)data->arg[1];
    for (int64_t i = 0; i < n; i++) {
        if (i + 1 < n)
            assert_int_equal(target[i], token[i + 1] >= kinds ? token[i + 1] : -1);
        if (count > 0 && token[i] == left[count - 1] + kinds)
            count--;
        else
            left[count++] = token[i];
        assert_true(count <= data->arg[2]);
    }
    assert_int_equal(count, 0);
}

static void check_addition(const heed_data *data, int64_t n)
{
    const int digits = (int)data->arg[0];
    long a = 0, b = 0, c = 0;
    for (int i = 0; i < digits; i++) {
        a = 10 * a + token[i];
        b = 10 * b + token[digits + 1 + i];
    }
    for (int i = digits; i >= 0; i--)
        c = 10 * c + target[2 * digits + 1 + i];
    assert_int_equal(a + b, c);
    check_answers(data, n, 11);
}

/* The only line through the points before, by trying all, gives the answer; where many lines fit and differ
 * there, nothing is asked. */
static void check_regression(const heed_data *data, int64_t n)
{
    const int prime = (int)data->arg[1];
    for (int64_t i = 0; i < n; i += 2) {
        int answer = -1;
        bool known = true;
        for (int line = 0; line < prime * prime; line++) {
            const int a = line / prime, b = line % prime;
            bool fits = true;
            for (int64_t j = 0; j < i; j += 2)
                fits = fits && (a * token[j] + b) % prime + prime == token[j + 1];
            const int y = (a * token[i] + b) % prime + prime;
            known = known && (!fits || answer < 0 || answer == y);
            answer = fits ? y : answer;
        }
        assert_int_equal(target[i], known ? answer : -1);
        assert_int_equal(target[i + 1], -1);
    }
}

static void answers_are_right(void **state)
{
    (void)state;
    for_all("copy(length=9, symbols=6)", check_copy);
    for_all("reversal(9, 6)", check_reversal);
    for_all("sorting(9, symbols=6)", check_sorting);
    for_all("selective_copy(5, 6, 20)", check_selective);
    for_all("recall", check_recall);
    for_all("recall(12, 12)", check_recall);
    for_all("multi_recall(8, 20, 8)", check_recall);
    for_all("induction(length=20)", check_recall);
    for_all("needle(100, 5)", check_needle);
    for_all("parity(33)", check_parity);
    for_all("dyck(20, kinds=3, depth=4)", check_dyck);
    for_all("addition(5)", check_addition);
    for_all("regression(pairs=6, prime=7)", check_regression);
}

static void sequences_belong_to_seed_and_number(void **state)
{
    (void)state;
    heed_data data = open_task("copy(30)");
    int32_t first[MOST], unused[MOST];
    heed_data_make(&data, false, 7, 60, first, unused);
    heed_data_make(&data, false, 7, 60, token, target);
    assert_memory_equal(first, token, 60 * sizeof *token);
    heed_data_make(&data, false, 8, 60, token, target);
    assert_memory_not_equal(first, token, 60 * sizeof *token);
    heed_data_make(&data, true, 7, 60, token, target);
    assert_memory_not_equal(first, token, 60 * sizeof *token);
    data.seed = 6;
    heed_data_make(&data, false, 7, 60, token, target);
    assert_memory_not_equal(first, token, 60 * sizeof *token);
}

static void wrong_tasks_are_refused_with_the_nearest(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"copie(length=3)", "unknown task 'copie'; the nearest is 'copy'"},
        {"copy(lenght=3)", "copy has no argument 'lenght'; the nearest is 'length'"},
        {"copy(length=0)", "length of copy is '0'"},
        {"copy(2.5)", "length of copy is '2.5'"},
        {"copy(3", "closing bracket"},
        {"copy(3) x", "'x' stands behind"},
        {"copy(1, 2, 3)", "only 2 arguments"},
        {"recall(20, 10)", "at least as many symbols as pairs"},
        {"regression(prime=9)", "prime number"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        heed_data data = {.seed = 1};
        assert_int_not_equal(heed_data_task(&data, wrong[i][0]), HEED_OK);
        if (!strstr(heed_message(), wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], heed_message());
    }
}

static void texts_keep_their_end_for_evaluation(void **state)
{
    (void)state;
    char path[] = "/tmp/heed-text-XXXXXX";
    const int descriptor = mkstemp(path);
    FILE *file = fdopen(descriptor, "w");
    for (int i = 0; i < 1000; i++)
        fputc(i < 900 ? 'a' + i % 20 : 'A' + i % 20, file);
    fclose(file);
    heed_data data = {.seed = 3};
    assert_int_equal(heed_data_text(&data, path, NULL, 0.1), HEED_OK);
    assert_int_equal(data.vocabulary, 256);
    assert_int_equal(heed_data_evaluations(&data, 16), 6);
    for (uint64_t which = 0; which < 300; which++) {
        heed_data_make(&data, false, which, 16, token, target);
        for (int i = 0; i < 16; i++) {
            assert_in_range(token[i], 'a', 't');
            assert_in_range(target[i], 'a', 't');
            assert_int_equal((token[i] - 'a' + 1) % 20, target[i] - 'a');
        }
    }
    for (uint64_t which = 0; which < 6; which++) {
        heed_data_make(&data, true, which, 16, token, target);
        for (int i = 0; i < 16; i++)
            assert_int_equal(token[i], 'A' + (900 + 16 * (int)which + i) % 20);
    }
    heed_data_free(&data);
    data = (heed_data){.seed = 3, .objective = HEED_OBJECTIVE_MASKED};
    assert_int_equal(heed_data_text(&data, path, NULL, 0.1), HEED_OK);
    int hidden = 0, changed = 0, asked = 0;
    for (uint64_t which = 0; which < 500; which++) {
        heed_data_make(&data, false, which, 100, token, target);
        for (int i = 0; i < 100; i++) {
            asked += target[i] >= 0;
            hidden += token[i] == 256;
            changed += target[i] >= 0 && token[i] != 256 && token[i] != target[i];
            assert_true(target[i] >= 0 || (token[i] >= 'a' && token[i] <= 't'));
        }
    }
    assert_true(abs(asked - 7500) < 300 && abs(hidden - 6000) < 300 && abs(changed - 750) < 120);
    heed_data_free(&data);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_right),
        cmocka_unit_test(sequences_belong_to_seed_and_number),
        cmocka_unit_test(wrong_tasks_are_refused_with_the_nearest),
        cmocka_unit_test(texts_keep_their_end_for_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
