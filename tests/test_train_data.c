/* Tasks: the answers are right by another way to find them, sequences belong to their seed and number, and
 * wrong names are answered with the nearest. Texts: crops, the held-out part, masks. */
#include "train/data.h"
#include "train/marks.h"

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

/* The value of the expression that begins at *at, read from the right operand by operand. */
static int read_list(int64_t *at)
{
    int value[MOST], count = 0, sum = 0;
    const int32_t operation = token[(*at)++];
    if (operation < 10)
        return operation;
    assert_in_range(operation, 10, 13);
    while (token[*at] != 14)
        value[count++] = read_list(at);
    (*at)++;
    assert_true(count >= 2);
    qsort(value, (size_t)count, sizeof *value, rising);
    for (int i = 0; i < count; i++)
        sum += value[i];
    return operation == 10   ? value[count - 1]
           : operation == 11 ? value[0]
           : operation == 12 ? value[(count - 1) / 2]
                             : sum % 10;
}

static void check_listops(const heed_data *data, int64_t n)
{
    int64_t at = 0;
    (void)data;
    while (token[at] == 16)
        at++;
    assert_true(token[at] >= 10 && token[at] < 14);
    const int value = read_list(&at);
    assert_int_equal(at, n - 1);
    assert_int_equal(token[at], 15);
    assert_int_equal(target[at], value);
}

/* Paths of each number of edges from all nodes to all, by products of the matrix of edges. */
static void check_graph(const heed_data *data, int64_t n)
{
    const int nodes = (int)data->arg[0];
    bool path[64][64] = {{false}}, edge[64][64] = {{false}}, next[64][64];
    for (int64_t e = 0; e + 3 < n; e += 2)
        edge[token[e]][token[e + 1]] = edge[token[e + 1]][token[e]] = true;
    for (int i = 0; i < nodes; i++)
        path[i][i] = true;
    int distance = 0;
    for (int far = 1; far < nodes && !distance; far++) {
        memset(next, 0, sizeof next);
        for (int i = 0; i < nodes; i++)
            for (int j = 0; j < nodes; j++)
                for (int k = 0; k < nodes; k++)
                    next[i][j] = next[i][j] || (path[i][k] && edge[k][j]);
        memcpy(path, next, sizeof path);
        distance = path[token[n - 2]][token[n - 1]] ? far : 0;
    }
    assert_true(token[n - 2] != token[n - 1]);
    assert_int_equal(target[n - 1], nodes + distance);
}

/* The return has the steps of the first phrase. */
static void check_melody(const heed_data *data, int64_t n)
{
    const int phrase = (int)data->arg[0], notes = (int)data->arg[1];
    const int64_t last = n - phrase;
    for (int64_t i = 0; i < n; i++) {
        const bool asked = i >= last && i + 1 < n;
        assert_int_equal(token[i] == notes, i < last && i % (phrase + 1) == phrase);
        assert_int_equal(target[i] >= 0, asked);
        if (asked) {
            assert_int_equal(target[i], token[i + 1]);
            assert_int_equal((token[i + 1] - token[i] + notes) % notes,
                             (token[i - last + 1] - token[i - last] + notes) % notes);
        }
    }
}

/* An event is asked for where one of its kind stood a round before, and it is the same. */
static void check_events(const heed_data *data, int64_t n)
{
    int64_t place[2][MOST], count[2] = {0, 0};
    const int64_t round[2] = {data->arg[1], data->arg[3]};
    for (int64_t i = 0; i < n; i++) {
        const int slow = token[i] >= 16;
        assert_int_equal(slow, i % data->arg[2] == data->arg[2] - 1);
        const bool known = count[slow] >= round[slow];
        if (i > 0)
            assert_int_equal(target[i - 1], known ? token[i] : -1);
        if (known)
            assert_int_equal(token[place[slow][count[slow] - round[slow]]], token[i]);
        place[slow][count[slow]++] = i;
    }
    assert_int_equal(target[n - 1], -1);
}

/* Colour spreads from the first dot along lines. */
static void check_pathfinder(const heed_data *data, int64_t n)
{
    const int side = (int)data->arg[0], cells = side * side;
    int dot[2], dots = 0, lines = 0, reached[MOST] = {0};
    for (int i = 0; i < cells; i++) {
        lines += token[i] > 0;
        if (token[i] == 2 && dots < 2)
            dot[dots++] = i;
    }
    assert_int_equal(dots, 2);
    assert_int_equal(lines, 2 * data->arg[1]);
    reached[dot[0]] = 1;
    for (int again = 1; again;) {
        again = 0;
        for (int i = 0; i < cells; i++) {
            const bool beside = (i % side > 0 && reached[i - 1]) || (i % side < side - 1 && reached[i + 1]) ||
                                (i >= side && reached[i - side]) || (i + side < cells && reached[i + side]);
            if (!reached[i] && token[i] && beside)
                again = reached[i] = 1;
        }
    }
    int length = 0;
    for (int i = 0; i < cells; i++)
        length += reached[i];
    assert_int_equal(length, data->arg[1]); /* lines do not touch */
    assert_int_equal(token[n - 1], 3);
    assert_int_equal(target[n - 1], reached[dot[1]] ? 5 : 4);
}

/* The shape and colour of what stands in a part of the picture, and its corner. */
static int read_shape(int side, int x0, int x1, int y0, int y1, int *colour, int corner[2])
{
    static const int counts[] = {9, 5, 8, 5};
    int cells = 0, left = side, top = side, right = 0, bottom = 0;
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++)
            if (token[y * side + x]) {
                cells++;
                *colour = token[y * side + x] - 1;
                left = x < left ? x : left;
                top = y < top ? y : top;
                right = x > right ? x : right;
                bottom = y > bottom ? y : bottom;
            }
    corner[0] = left;
    corner[1] = top;
    if (!cells || right - left != 2 || bottom - top != 2)
        return -1;
    const bool at_corner = token[top * side + left], in_middle = token[(top + 1) * side + left + 1];
    for (int shape = 0; shape < 4; shape++)
        if (cells == counts[shape] && (cells == 9 || (cells == 8 ? !in_middle : at_corner == (shape == 3))))
            return shape;
    return -1;
}

static void check_shapes(const heed_data *data, int64_t n)
{
    const int side = (int)data->arg[0], colours = (int)data->arg[1], half = side / 2, mark = 1 + colours;
    int colour[2] = {0, 0}, corner[2][2], shape[2], ways = 0;
    check_answers(data, n, mark);
    for (int above = 0; above < 2; above++) {
        shape[0] = read_shape(side, 0, above ? side : half, 0, above ? half : side, &colour[0], corner[0]);
        shape[1] = read_shape(side, above ? 0 : half, side, above ? half : 0, side, &colour[1], corner[1]);
        if (shape[0] < 0 || shape[1] < 0 || corner[0][!above] != corner[1][!above])
            continue;
        ways++;
        const int32_t caption[] = {mark + 1 + colour[0], mark + 1 + colours + shape[0],
                                   mark + 1 + colours + 4 + above, mark + 1 + colour[1],
                                   mark + 1 + colours + shape[1]};
        assert_memory_equal(caption, target + n - 5, sizeof caption);
    }
    assert_int_equal(ways, 1);
}

static void check_points(const heed_data *data, int64_t n)
{
    const int side = (int)data->arg[1];
    bool mirror[4] = {false, true, true, true};
    int answer = 0;
    for (int kind = 1; kind < 4; kind++)
        for (int64_t i = 0; i + 1 < n; i++) {
            const int x = token[i] % side, y = token[i] / side;
            const int want = (kind & 2 ? side - 1 - y : y) * side + (kind & 1 ? side - 1 - x : x);
            bool there = false;
            for (int64_t j = 0; j + 1 < n; j++) {
                there = there || token[j] == want;
                assert_true(i == j || token[i] != token[j]);
            }
            mirror[kind] = mirror[kind] && there;
        }
    for (int kind = 1; kind < 4; kind++)
        answer = mirror[kind] ? kind : answer;
    assert_true(mirror[1] + mirror[2] + mirror[3] <= 1);
    assert_int_equal(token[n - 1], side * side);
    assert_int_equal(target[n - 1], side * side + 1 + answer);
}

/* Each of the answers comes about as often as it should, so that always giving one of them is worth little.
 */
static void answers_are_spread(void **state)
{
    (void)state;
    static const struct {
        const char *task;
        int least; /* answers of which each comes a tenth of the time or more */
    } tasks[] = {{"pathfinder", 2}, {"points", 4}, {"graph", 4}, {"listops", 4}, {"parity", 2}};
    for (size_t t = 0; t < sizeof tasks / sizeof *tasks; t++) {
        const heed_data data = open_task(tasks[t].task);
        int count[MOST] = {0}, often = 0;
        for (uint64_t which = 0; which < 400; which++) {
            heed_data_make(&data, false, which, data.context, token, target);
            assert_in_range(target[data.context - 1], 0, MOST - 1);
            count[target[data.context - 1]]++;
        }
        for (int i = 0; i < MOST; i++)
            often += count[i] >= 40;
        if (often < tasks[t].least)
            fail_msg("%s has %d answers that come often", tasks[t].task, often);
    }
}

/* Exactly one block has all the letters, and the answer ends it; blocks are of four symbols. */
static void check_blocks(const heed_data *data, int64_t n)
{
    const int64_t blocks = data->arg[0], letters = data->arg[3];
    int64_t found = 0;
    assert_int_equal(token[5 * blocks], data->arg[2] + 1);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t here = 0;
        for (int64_t l = 0; l < letters; l++)
            for (int64_t i = 0; i < 4; i++)
                here += token[5 * b + i] == token[n - letters + l];
        assert_int_equal(token[5 * b + 4], data->arg[2]);
        if (here == letters) {
            assert_int_equal(target[n - 1], token[5 * b + 3]);
            found++;
        }
    }
    assert_int_equal(found, 1);
}

static void check_same(const heed_data *data, int64_t n)
{
    const int64_t half = data->arg[0];
    int64_t others = 0;
    for (int64_t i = 0; i < half; i++)
        others += token[i] != token[half + 1 + i];
    assert_in_range(others, 0, 1);
    assert_int_equal(target[n - 1], data->arg[1] + 2 + (others == 0));
}

/* A read asks for the bit of the last write before it. */
static void check_flip_flop(const heed_data *data, int64_t n)
{
    (void)data;
    assert_int_equal(token[n - 2], 4);
    for (int64_t i = 0; i < n; i += 2) {
        int64_t at = i;
        while (at > 0 && token[at] != 2)
            at -= 2;
        assert_int_equal(target[i], token[i] == 4 ? token[at + 1] : -1);
        if (token[i] == 4)
            assert_int_equal(token[i + 1], target[i]);
    }
}

/* Backwards: how often the variable was counted up since it was set. */
static void check_counting(const heed_data *data, int64_t n)
{
    const int32_t asked = token[n - 1] - 2;
    int32_t count = 0;
    for (int64_t i = n - 2; i >= 0 && token[i] != asked; i--)
        count += token[i] == asked + 1;
    assert_int_equal(target[n - 1], 3 * data->arg[1] + 1 + (count < 9 ? count : 9));
}

static void check_rows(const heed_data *data, int64_t n)
{
    const int64_t period = data->arg[1];
    for (int64_t i = 0; i + 1 < n; i++)
        if (target[i] >= 0) {
            assert_int_equal(target[i], token[i + 1]);
            assert_int_equal(target[i], token[i + 1 - period]);
        }
    assert_int_equal(target[n - 1], token[n - period]);
}

/* The smallest period of all rows together. */
static void check_texture(const heed_data *data, int64_t n)
{
    const int64_t side = data->arg[0];
    int64_t period = 1;
    for (int64_t i = 0; i < side * side; i++)
        if (i % side >= period && token[i] != token[i - period]) {
            period++;
            i = -1;
        }
    assert_int_equal(target[n - 1], 2 + period);
}

/* A reply fits when all that its words name stands in the context, which is part 0. */
static void check_replies(const heed_data *data, int64_t n)
{
    const int64_t context = data->arg[0], length = data->arg[2];
    for (int64_t i = context; i < n; i += length) {
        int64_t found = 0;
        for (int64_t j = i; j < i + length; j++) {
            assert_int_equal(data->task->part(data->arg, j), 1 + (i - context) / length);
            for (int64_t c = 0; c < context; c++)
                found += token[c] == token[j] - data->arg[3];
        }
        assert_int_equal(target[i + length - 1], 2 * data->arg[3] + (found == length));
    }
    assert_int_equal(data->task->part(data->arg, context - 1), 0);
}

/* On a beat stands the note of the skeleton, else two above the one before; the part is that of the beat. */
static void check_tune(const heed_data *data, int64_t n)
{
    const int64_t notes = data->arg[2], beats = n / (notes + 1);
    assert_int_equal(token[beats], 24);
    for (int64_t i = 0; i < notes * beats; i++) {
        assert_int_equal(target[beats + i], i % notes ? (target[beats + i - 1] + 2) % 24 : token[i / notes]);
        assert_int_equal(data->task->part(data->arg, beats + i), data->task->part(data->arg, i / notes));
        assert_int_equal(data->task->part(data->arg, beats + i), i / notes / data->arg[1]);
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
    for_all("listops", check_listops);
    for_all("listops(length=5, depth=1, operands=2)", check_listops);
    for_all("listops(200, 9, 16)", check_listops);
    for_all("graph", check_graph);
    for_all("graph(nodes=2, edges=1)", check_graph);
    for_all("graph(nodes=20, edges=60)", check_graph);
    for_all("melody", check_melody);
    for_all("melody(phrase=2, notes=5, between=0)", check_melody);
    for_all("events", check_events);
    for_all("events(length=40, fast=7, every=3, slow=4)", check_events);
    for_all("pathfinder", check_pathfinder);
    for_all("pathfinder(side=4, line=4)", check_pathfinder);
    for_all("pathfinder(side=20, line=12)", check_pathfinder);
    for_all("shapes", check_shapes);
    for_all("shapes(side=13, colours=2)", check_shapes);
    for_all("points", check_points);
    for_all("points(points=30, side=12)", check_points);
    for_all("blocks", check_blocks);
    for_all("blocks(blocks=9, size=4, symbols=5, letters=3)", check_blocks);
    for_all("same", check_same);
    for_all("same(length=1, symbols=2)", check_same);
    for_all("flip_flop", check_flip_flop);
    for_all("flip_flop(orders=40, ignore=0)", check_flip_flop);
    for_all("counting", check_counting);
    for_all("counting(orders=60, variables=3, pass=10)", check_counting);
    for_all("rows", check_rows);
    for_all("rows(length=9, period=8, symbols=2, noise=100)", check_rows);
    for_all("texture", check_texture);
    for_all("texture(side=12, periods=8)", check_texture);
    for_all("replies", check_replies);
    for_all("replies(context=5, replies=3, length=5, symbols=6)", check_replies);
    for_all("tune", check_tune);
    for_all("tune(phrases=1, beats=3, notes=1)", check_tune);
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
        {"replies(length=17)", "no longer than the context"},
        {"replies(symbols=16)", "more symbols than the context"},
        {"blocks(size=16)", "more symbols than a block has"},
        {"rows(period=64)", "length must be above the period"},
        {"texture(side=4, periods=4)", "periods must be below the side"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        heed_data data = {.seed = 1};
        assert_int_not_equal(heed_data_task(&data, wrong[i][0]), HEED_OK);
        if (!strstr(heed_message(), wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], heed_message());
    }
}

/* Without the marks a sequence is what it was, wherever it ends. */
static void marks_stand_between_tokens(void **state)
{
    (void)state;
    int32_t plain[MOST], asked[MOST];
    for (int64_t length = 2; length < 40; length++)
        for (int kinds = 1; kinds <= 2; kinds++) {
            heed_data data = {.seed = 5};
            char text[64];
            snprintf(text, sizeof text, "needle(length=%d)", (int)length);
            assert_int_equal(heed_data_task(&data, text), HEED_OK);
            heed_data_make(&data, true, 3, length, plain, asked);
            const int64_t symbols = data.vocabulary;
            assert_int_equal(heed_marks_open(&data, kinds == 1 ? 5 : 0, kinds == 2 ? 5 : 0), HEED_OK);
            for (int64_t more = 0; more < 3; more++) {
                const int64_t n = data.context + more;
                heed_data_make(&data, true, 3, n, token, target);
                int64_t at = 0;
                for (int64_t i = 0; i < n; i++) {
                    const int64_t place = i % (5 + kinds);
                    const bool first = kinds == 2 && place == 0, mark = first || place == 4 + kinds;
                    assert_int_equal(token[i] >= symbols, mark);
                    if (mark)
                        assert_int_equal(token[i], symbols + (kinds == 2 && !first));
                    if (mark || at >= length) {
                        assert_int_equal(target[i], -1);
                        continue;
                    }
                    assert_int_equal(token[i], plain[at]);
                    assert_int_equal(target[i], asked[at++]);
                }
                assert_int_equal(at, length);
            }
        }
    heed_data data = {.seed = 5, .objective = HEED_OBJECTIVE_CLASS};
    assert_int_equal(heed_marks_open(&data, 5, 0), HEED_INVALID);
    data.objective = HEED_OBJECTIVE_NEXT;
    assert_int_equal(heed_marks_open(&data, 5, 5), HEED_INVALID);
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
        cmocka_unit_test(answers_are_spread),
        cmocka_unit_test(sequences_belong_to_seed_and_number),
        cmocka_unit_test(wrong_tasks_are_refused_with_the_nearest),
        cmocka_unit_test(texts_keep_their_end_for_evaluation),
        cmocka_unit_test(marks_stand_between_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
