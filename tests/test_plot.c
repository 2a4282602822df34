/* Maps pooled from tiles, labels of tokens, and the pictures made of them. */
#include "support/program.h"
#include "support/random.h"

#include <base/npy.h>
#include <heed/heed.h>
#include <math.h>
#include <omp.h>
#include <plot/axis.h>
#include <plot/label.h>
#include <plot/plot.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HEED_HAVE_PICTURES
#include <cairo.h>
#endif

/* Causal softmax weights [n, n]. */
static float *make_weights(int n)
{
    float *weights = calloc((size_t)n * (size_t)n, sizeof *weights);
    for (int i = 0; i < n; i++) {
        float sum = 0.0f;
        for (int j = 0; j <= i; j++)
            sum += weights[i * n + j] = expf(2.0f * sinf((float)(i * 7 + j * j)));
        for (int j = 0; j <= i; j++)
            weights[i * n + j] /= sum;
    }
    return weights;
}

static heed_plot_pool *make_pool(int64_t maps, int64_t queries, int64_t keys, int64_t side)
{
    heed_plot_pool *pool;
    if (heed_plot_pool_create(&pool, maps, queries, keys, side))
        fail_msg("%s", heed_message());
    return pool;
}

static void a_pool_keeps_the_largest_and_the_mean_of_each_cell(void **state)
{
    (void)state;
    enum { N = 23 };
    float *weights = make_weights(N);
    for (int side = 1; side <= 30; side++) {
        heed_plot_pool *pool = make_pool(2, N, N, side);
        const int step = (int)heed_plot_pool_step(pool), cells = (int)heed_plot_pool_rows(pool);
        assert_true(cells <= side && cells * step >= N && (cells - 1) * step < N);
        heed_plot_pool_add_matrix(pool, 1, weights);
        for (int r = 0; r < cells; r++)
            for (int c = 0; c < cells; c++) {
                double sum = 0.0;
                float most = 0.0f;
                int count = 0;
                for (int i = r * step; i < N && i < (r + 1) * step; i++)
                    for (int j = c * step; j < N && j < (c + 1) * step; j++, count++) {
                        sum += (double)weights[i * N + j];
                        most = fmaxf(most, weights[i * N + j]);
                    }
                assert_true(heed_plot_pool_most(pool, 1, r, c) == most);
                assert_true(fabs((double)heed_plot_pool_mean(pool, 1, r, c) - sum / count) < 1e-7);
                assert_true(heed_plot_pool_most(pool, 0, r, c) == 0.0f &&
                            heed_plot_pool_mean(pool, 0, r, c) == 0.0f);
            }
        heed_plot_pool_free(pool);
    }
    free(weights);
}

static void tiles_in_any_order_from_any_thread_give_the_same(void **state)
{
    (void)state;
    enum { N = 70, TILE = 16 };
    float *weights = make_weights(N);
    heed_plot_pool *whole = make_pool(1, N, N, 20), *tiled = make_pool(1, N, N, 20);
    heed_plot_pool_add_matrix(whole, 0, weights);
#pragma omp parallel for num_threads(4) schedule(dynamic)
    for (int t = 0; t < 25; t++) {
        const int row = t * 7 % 25 / 5 * TILE, col = t * 7 % 25 % 5 * TILE;
        float tile[TILE][TILE + 3]; /* beyond the last query and key there is nothing of meaning */
        for (int i = 0; i < TILE; i++)
            for (int j = 0; j < TILE; j++)
                tile[i][j] = row + i < N && col + j < N ? weights[(row + i) * N + col + j] : 99.0f;
        const heed_weights_tile given = {0, 0, row, col, TILE, TILE, tile[0], TILE + 3};
        heed_plot_pool_add(tiled, 0, &given);
    }
    for (int r = 0; r < heed_plot_pool_rows(whole); r++)
        for (int c = 0; c < heed_plot_pool_cols(whole); c++) {
            assert_true(heed_plot_pool_most(whole, 0, r, c) == heed_plot_pool_most(tiled, 0, r, c));
            assert_true(heed_plot_pool_mean(whole, 0, r, c) == heed_plot_pool_mean(tiled, 0, r, c));
        }
    heed_plot_pool_free(whole);
    heed_plot_pool_free(tiled);
    free(weights);
    assert_int_equal(heed_plot_pool_create(&whole, 1, 0, 5, 20), HEED_INVALID);
}

static void labels_show_every_byte_or_its_number(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int count;
        heed_label_part part[4];
    } cases[] = {
        {" a", 2, {{'.', false, false}, {'a', false, false}}},
        {"\n", 1, {{0x23ce, false, false}}},
        {"\t\r", 2, {{0x21e5, false, false}, {0x21e4, false, false}}},
        {"\x01", 1, {{1, true, false}}},
        {"\xe4\xbd", 2, {{0xe4, true, true}, {0xbd, true, true}}},
        {"\xe2\x80\x8b", 1, {{0x200b, true, false}}},                     /* zero-width space */
        {"\xcc\x81", 2, {{0x25cc, false, false}, {0x301, false, false}}}, /* an accent alone */
        {"\xd7\xa9\xd7\x9c",
         2,
         {{0x5dc, false, false}, {0x5e9, false, false}}}, /* Hebrew, from right to left */
        {"\xd7\xa9 12",
         4,
         {{'1', false, false}, {'2', false, false}, {'.', false, false}, {0x5e9, false, false}}},
        {"\xf0\x9f\x98\x80", 1, {{0x1f600, false, false}}},
        {"", 0, {{0, false, false}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        heed_label label;
        heed_label_make(&label, cases[i].text, strlen(cases[i].text), '.');
        if (label.count != cases[i].count)
            fail_msg("case %zu: %d parts", i, label.count);
        for (int j = 0; j < label.count; j++)
            if (label.part[j].code != cases[i].part[j].code || label.part[j].box != cases[i].part[j].box ||
                label.part[j].byte != cases[i].part[j].byte)
                fail_msg("case %zu, part %d: %x", i, j, label.part[j].code);
    }
    static char long_text[5000];
    heed_label label;
    memset(long_text, 'x', sizeof long_text);
    heed_label_make(&label, long_text, sizeof long_text, '.');
    assert_int_equal(label.count, HEED_LABEL_MOST);
    assert_int_equal(label.part[HEED_LABEL_MOST - 1].code, 0x2026);
}

static void an_array_for_numpy_is_aligned_and_says_its_shape(void **state)
{
    (void)state;
    const float numbers[] = {1, 2, 3, 4, 5, 6};
    unsigned char text[400];
    const int64_t shape[] = {1, 2, 3}, flat[] = {6};
    assert_int_equal(heed_npy_write("a.npy", 3, shape, numbers), HEED_OK);
    FILE *file = fopen("a.npy", "rb");
    const size_t size = fread(text, 1, sizeof text, file);
    fclose(file);
    const size_t header = (size_t)text[8] + 256u * text[9] + 10;
    assert_memory_equal(text, "\x93NUMPY\x01\x00", 8);
    assert_int_equal(header % 64, 0);
    assert_int_equal(size, header + sizeof numbers);
    assert_memory_equal(text + header, numbers, sizeof numbers);
    assert_int_equal(text[header - 1], '\n');
    text[header - 1] = 0;
    assert_said((char *)text + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3), }");
    assert_int_equal(heed_npy_write("a.npy", 1, flat, numbers), HEED_OK);
    file = fopen("a.npy", "rb");
    text[fread(text, 1, 120, file)] = 0;
    fclose(file);
    assert_said((char *)text + 10, "'shape': (6,), }");
}

static void the_front_holds_what_nothing_beats(void **state)
{
    (void)state;
    /* memory and loss; 1 is beaten by 0, 4 by 3 (as good, less memory), 5 was not measured */
    const double at[] = {1.0, 2.0, 3.0, 4.0, 5.0, 0.5, 3.0}, loss[] = {9.0, 9.5, 4.0, 2.0, 2.0, NAN, 4.0};
    const bool low[] = {true, false, true, true, false, false, true};
    bool front[7];
    heed_plot_front(at, loss, false, 7, front);
    assert_memory_equal(front, low, sizeof low);
    const bool high[] = {true, true, false, false, false, false, false};
    heed_plot_front(at, loss, true, 7, front);
    assert_memory_equal(front, high, sizeof high);
}

#ifdef HEED_HAVE_PICTURES

static const char *const words[] = {"The",
                                    " quick",
                                    "\n",
                                    " \xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d",
                                    "\xf0\x9f\x98\x80",
                                    "\xe4\xbd",
                                    " supercalifragilisticexpialidocious",
                                    "\t",
                                    ".",
                                    "\x01"};

static void make_tokens(heed_plot_token *tokens, int count)
{
    for (int i = 0; i < count; i++)
        tokens[i] = (heed_plot_token){words[i % 10], strlen(words[i % 10])};
}

static cairo_surface_t *read_picture(const char *path)
{
    cairo_surface_t *picture = cairo_image_surface_create_from_png(path);
    assert_int_equal(cairo_surface_status(picture), CAIRO_STATUS_SUCCESS);
    return picture;
}

/* Pixels of exactly this colour, 0xrrggbb. */
static int count_pixels(cairo_surface_t *picture, uint32_t colour)
{
    int count = 0;
    const unsigned char *data = cairo_image_surface_get_data(picture);
    for (int y = 0; y < cairo_image_surface_get_height(picture); y++)
        for (int x = 0; x < cairo_image_surface_get_width(picture); x++) {
            uint32_t pixel;
            memcpy(&pixel, data + y * cairo_image_surface_get_stride(picture) + 4 * x, 4);
            count += (pixel & 0xffffff) == colour;
        }
    return count;
}

static void assert_svg(const char *path, long most)
{
    static char text[1 << 23];
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    if (info.st_size >= most)
        fail_msg("%s has %lld bytes", path, (long long)info.st_size);
    FILE *file = fopen(path, "rb");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    assert_memory_equal(text, "<?xml", 5);
    assert_said(text + strlen(text) - 10, "</svg>");
}

static void a_matrix_has_a_cell_of_the_right_colour_for_each_weight(void **state)
{
    (void)state;
    enum { N = 10 };
    float weights[N * N] = {0};
    heed_plot_token tokens[N];
    make_tokens(tokens, N);
    for (int i = 0; i < N; i++)
        weights[i * N + i / 2] = 1.0f; /* all the darkest colour */
    heed_plot_pool *pool = make_pool(1, N, N, HEED_PLOT_SIDE);
    heed_plot_pool_add_matrix(pool, 0, weights);
    const heed_plot_matrix plot = {
        .title = "Layer 1, head 2", .subtitle = "a subtitle", .pool = pool, .query = tokens, .key = tokens};
    if (heed_plot_draw_matrix("m.png", &plot) || heed_plot_draw_matrix("again.png", &plot) ||
        heed_plot_draw_matrix("m.svg", &plot))
        fail_msg("%s", heed_message());
    cairo_surface_t *picture = read_picture("m.png");
    const int dark = count_pixels(picture, 0x071745); /* 0.03, 0.09, 0.27 */
    cairo_surface_destroy(picture);
    /* ten cells of 26 x 26 pixels */
    if (dark < 10 * 24 * 24 || dark > 10 * 27 * 27)
        fail_msg("%d dark pixels", dark);
    assert_true(same_file("m.png", "again.png"));
    assert_svg("m.svg", 1 << 20);
    heed_plot_pool_free(pool);
}

static void pictures_of_any_length_stay_small(void **state)
{
    (void)state;
    static const int lengths[] = {1, 2, 50, 500, 4000};
    heed_plot_token *tokens = calloc(4000, sizeof *tokens);
    make_tokens(tokens, 4000);
    for (int i = 0; i < 5; i++) {
        const int n = lengths[i];
        float *weights = make_weights(n);
        heed_plot_pool *pool = make_pool(1, n, n, HEED_PLOT_SIDE);
        heed_plot_pool_add_matrix(pool, 0, weights);
        const heed_plot_matrix plot = {
            .title = "A head", .pool = pool, .query = tokens, .key = tokens, .query0 = 7};
        if (heed_plot_draw_matrix("m.png", &plot) || heed_plot_draw_matrix("m.svg", &plot))
            fail_msg("%s", heed_message());
        cairo_surface_t *picture = read_picture("m.png");
        const int width = cairo_image_surface_get_width(picture),
                  height = cairo_image_surface_get_height(picture);
        if (width > 2200 || height > 1300)
            fail_msg("%d tokens: %d x %d pixels", n, width, height);
        cairo_surface_destroy(picture);
        assert_svg("m.svg", 3 << 20);
        heed_plot_pool_free(pool);
        free(weights);
    }
    free(tokens);
}

static void a_grid_has_a_frame_for_each_head(void **state)
{
    (void)state;
    enum { N = 12, LAYERS = 3, HEADS = 4 };
    const int64_t layer[LAYERS] = {0, 5, 11}, head[HEADS] = {0, 1, 2, 7};
    float *weights = make_weights(N);
    heed_plot_pool *pool = make_pool(LAYERS * HEADS, N, N, HEED_PLOT_THUMBNAIL);
    for (int i = 0; i < LAYERS * HEADS; i++)
        heed_plot_pool_add_matrix(pool, i, weights);
    const heed_plot_grid plot = {"All heads", "12 tokens", pool, LAYERS, HEADS, layer, head};
    if (heed_plot_draw_grid("g.png", &plot) || heed_plot_draw_grid("g.svg", &plot))
        fail_msg("%s", heed_message());
    cairo_surface_t *picture = read_picture("g.png");
    /* the first weight of each map is 1 and alone in its row: 8 x 8 pixels of the darkest colour */
    const int dark = count_pixels(picture, 0x071745);
    cairo_surface_destroy(picture);
    if (dark < LAYERS * HEADS * 6 * 6)
        fail_msg("%d dark pixels", dark);
    assert_svg("g.svg", 1 << 20);
    heed_plot_pool_free(pool);
    free(weights);
}

static void a_text_is_coloured_by_what_it_received(void **state)
{
    (void)state;
    enum { N = 300 };
    heed_plot_token tokens[N];
    float value[N];
    make_tokens(tokens, N);
    for (int i = 0; i < N; i++)
        value[i] = (float)(i % 7);
    const heed_plot_text plot = {"A text", NULL, "attention received", tokens, value, N};
    if (heed_plot_draw_text("t.png", &plot) || heed_plot_draw_text("t.svg", &plot))
        fail_msg("%s", heed_message());
    cairo_surface_t *picture = read_picture("t.png");
    assert_true(count_pixels(picture, 0x071745) > 1000);
    cairo_surface_destroy(picture);
    assert_svg("t.svg", 1 << 20);
    const heed_plot_text none = {NULL, NULL, "nothing", tokens, value, 0};
    assert_int_equal(heed_plot_draw_text("t.png", &none), HEED_OK);
}

static void points_of_the_front_are_red_and_the_others_blue(void **state)
{
    (void)state;
    const double at[] = {1.0, 2.0, 40.0, NAN}, loss[] = {0.1, 0.2, 0.0, 1.0},
                 recall[] = {50.0, 60.0, NAN, 1.0};
    const char *const name[] = {"own", "streaming", "a spec", "not measured"};
    const heed_plot_panel panel[] = {{"KL", false, true, loss}, {"right %", true, false, recall}};
    const heed_plot_points plot = {"Quality", "a subtitle", "cache, MB", at, name, 4, panel, 2};
    if (heed_plot_draw_points("p.png", &plot) || heed_plot_draw_points("p.svg", &plot))
        fail_msg("%s", heed_message());
    cairo_surface_t *picture = read_picture("p.png");
    const int red = count_pixels(picture, 0xcc4019), blue = count_pixels(picture, 0x07519c);
    cairo_surface_destroy(picture);
    /* discs of about 50 pixels, of which some 30 are of the full colour: 2 + 2 on the fronts, 1 beside */
    if (red < 100 || blue < 20 || blue > 60)
        fail_msg("%d red and %d blue pixels", red, blue);
    assert_svg("p.svg", 1 << 20);
    const heed_plot_points none = {NULL, NULL, "MB", at, name, 0, panel, 1};
    assert_int_equal(heed_plot_draw_points("p.png", &none), HEED_OK);
}

static void tables_have_a_cell_for_each_share(void **state)
{
    (void)state;
    const char *const row[] = {"0 %", "50 %", "100 %"}, *const col[] = {"512", "2048"},
                      *const name[] = {"own", "streaming"};
    const double share[] = {1, 1, 1, 1, 1, 1, 0, NAN, 0, 0, 0, 1};
    const heed_plot_tables plot = {"Recall", NULL, "depth", "tokens", row, col, name, 2, 3, 2, share};
    if (heed_plot_draw_tables("t.png", &plot) || heed_plot_draw_tables("t.svg", &plot))
        fail_msg("%s", heed_message());
    cairo_surface_t *picture = read_picture("t.png");
    const int dark = count_pixels(picture, 0x07519c); /* the colour of a share of 1 */
    cairo_surface_destroy(picture);
    /* seven cells of 37 x 19 pixels, less their numbers */
    if (dark < 7 * 37 * 19 * 3 / 4 || dark > 7 * 37 * 19)
        fail_msg("%d dark pixels", dark);
    assert_svg("t.svg", 1 << 20);
}

static void a_picture_that_cannot_be_written_leaves_nothing(void **state)
{
    (void)state;
    const float one = 1.0f;
    heed_plot_pool *pool = make_pool(1, 1, 1, HEED_PLOT_SIDE);
    heed_plot_pool_add_matrix(pool, 0, &one);
    const heed_plot_matrix plot = {.pool = pool};
    assert_int_equal(heed_plot_draw_matrix("m.jpg", &plot), HEED_INVALID);
    assert_said(heed_message(), "must end in .png or .svg");
    assert_int_equal(heed_plot_draw_matrix("no/m.png", &plot), HEED_IO);
    assert_int_equal(symlink("/dev/full", "full.png"), 0);
    assert_int_equal(heed_plot_draw_matrix("full.png", &plot), HEED_IO);
    assert_said(heed_message(), "No space left on device");
    assert_int_equal(symlink("/dev/full", "full.svg"), 0);
    assert_int_equal(heed_plot_draw_matrix("full.svg", &plot), HEED_IO);
    assert_int_equal(unfinished_files(), 0);
    heed_plot_pool_free(pool);
}

#endif

static void an_axis_has_two_round_numbers_at_least(void **state)
{
    (void)state;
    test_random random = {9};
    for (int i = 0; i < 3000; i++) {
        const bool powers = i % 2;
        double value[3] = {0.0, pow(10.0, 8.0 * random_uniform(&random) - 5.0), NAN}, tick[HEED_TICKS];
        if (i % 3 == 0)
            value[2] = value[1] * (1.0 + random_uniform(&random));
        const heed_axis axis = heed_axis_for(value + (i % 5 != 0), i % 5 ? 2 : 3, powers);
        const int ticks = heed_axis_ticks(&axis, tick);
        char text[2][40];
        if (ticks < 2)
            fail_msg("%d ticks from %g to %g", ticks, axis.low, axis.high);
        for (int t = 0; t < ticks; t++) {
            assert_true(heed_on_axis(&axis, tick[t]) >= -1e-9 && heed_on_axis(&axis, tick[t]) <= 1.0 + 1e-9);
            snprintf(text[t % 2], sizeof *text, "%.4g", tick[t]);
            if (t && !strcmp(text[0], text[1]))
                fail_msg("two ticks at %s", text[0]);
        }
        assert_true(heed_on_axis(&axis, value[1]) > 0.0 && heed_on_axis(&axis, value[1]) < 1.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_keeps_the_largest_and_the_mean_of_each_cell),
        cmocka_unit_test(tiles_in_any_order_from_any_thread_give_the_same),
        cmocka_unit_test(labels_show_every_byte_or_its_number),
        cmocka_unit_test(an_array_for_numpy_is_aligned_and_says_its_shape),
        cmocka_unit_test(the_front_holds_what_nothing_beats),
        cmocka_unit_test(an_axis_has_two_round_numbers_at_least),
#ifdef HEED_HAVE_PICTURES
        cmocka_unit_test(a_matrix_has_a_cell_of_the_right_colour_for_each_weight),
        cmocka_unit_test(pictures_of_any_length_stay_small),
        cmocka_unit_test(a_grid_has_a_frame_for_each_head),
        cmocka_unit_test(a_text_is_coloured_by_what_it_received),
        cmocka_unit_test(points_of_the_front_are_red_and_the_others_blue),
        cmocka_unit_test(tables_have_a_cell_for_each_share),
        cmocka_unit_test(a_picture_that_cannot_be_written_leaves_nothing),
#endif
    };
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
