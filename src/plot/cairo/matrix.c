/* One head: queries down, keys across, a token at every row and column that there is room for. */
#include "base/try.h"
#include "plot/cairo/canvas.h"
#include "plot/cairo/cells.h"

#include <math.h>
#include <stdio.h>

enum {
    MARGIN = 16,
    MOST_CELL = 26,   /* pixels of a cell of a small map */
    LABEL_ROOM = 120, /* pixels that the longest label may take */
    LABEL_STEP = 14,  /* between two labels */
    LABEL_GAP = 6,
    SPACE_SIGN = 0xb7,   /* a dot */
    EMPTY_SIGN = 0x2205, /* the empty set, for a token without bytes */
};

/* The labels of one axis. */
typedef struct plot_axis {
    const heed_plot_token *token;
    int64_t first, tokens, cells, step; /* position of the first token; tokens, and cells of `step` of them */
    int64_t each;                       /* cells from label to label */
    double room;                        /* pixels of the longest */
} plot_axis;

typedef struct layout {
    const heed_plot_matrix *plot;
    heed_type_sizes type;
    plot_axis query, key;
    int panels, pixels;
    double heading, left, top, width, height; /* of the first map */
    char note[200];
} layout;

/* The label of a cell: its token, with the position where not every token has a label. */
static void make_label(const plot_axis *axis, int64_t cell, heed_label *label)
{
    char text[1200];
    const int64_t at = cell * axis->step;
    int used = 0;
    if (!axis->token || axis->each > 1 || axis->step > 1)
        used = snprintf(text, sizeof text, "%lld%s", (long long)(axis->first + at), axis->token ? "  " : "");
    heed_label_make(label, text, (size_t)used, ' ');
    if (axis->token) {
        heed_label token;
        heed_label_make(&token, axis->token[at].text, axis->token[at].size, SPACE_SIGN);
        if (token.count == 0)
            token.part[token.count++] = (heed_label_part){.code = EMPTY_SIGN};
        for (int i = 0; i < token.count && label->count < HEED_LABEL_MOST; i++)
            label->part[label->count++] = token.part[i];
    }
}

static void measure_axis(const layout *all, plot_axis *axis)
{
    heed_label label;
    axis->each = (LABEL_STEP - 1) / all->pixels + 1;
    axis->room = 0.0;
    for (int64_t cell = 0; cell < axis->cells; cell += axis->each) {
        make_label(axis, cell, &label);
        axis->room = fmax(axis->room, heed_label_width(&all->type.label, &label));
    }
    axis->room = fmin(axis->room, LABEL_ROOM);
}

static void measure(layout *all, int64_t queries, int64_t keys)
{
    const heed_plot_matrix *plot = all->plot;
    const int64_t rows = heed_plot_pool_rows(plot->pool), cols = heed_plot_pool_cols(plot->pool);
    const int64_t step = heed_plot_pool_step(plot->pool), longest = rows > cols ? rows : cols;
    const int64_t pixels = HEED_PLOT_SIDE / longest;
    all->pixels = pixels < 1 ? 1 : pixels > MOST_CELL ? MOST_CELL : (int)pixels;
    all->panels = step > 1 ? 2 : 1;
    all->query = (plot_axis){plot->query, plot->query0, queries, rows, step, 1, 0.0};
    all->key = (plot_axis){plot->key, plot->key0, keys, cols, step, 1, 0.0};
    measure_axis(all, &all->query);
    measure_axis(all, &all->key);
    if (step > 1)
        snprintf(all->note, sizeof all->note,
                 "%lld queries by %lld keys, pooled: each cell is the largest (left) and the mean (right) of "
                 "%lld x %lld weights",
                 (long long)queries, (long long)keys, (long long)step, (long long)step);
    all->heading = heed_heading_height(&all->type, plot->title, plot->subtitle, step > 1 ? all->note : NULL);
    all->width = (double)(cols * all->pixels);
    all->height = (double)(rows * all->pixels);
    all->left = floor(MARGIN + 1.8 * all->type.text.size + all->query.room + LABEL_GAP);
    all->top = floor(all->heading + 1.8 * all->type.text.size + all->key.room + LABEL_GAP);
}

static void draw_tick(cairo_t *cairo, double x0, double y0, double x1, double y1)
{
    cairo_set_line_width(cairo, 1.0);
    cairo_set_source_rgb(cairo, 0.6, 0.6, 0.6);
    cairo_move_to(cairo, x0, y0);
    cairo_line_to(cairo, x1, y1);
    cairo_stroke(cairo);
    cairo_set_source_rgb(cairo, 0.1, 0.1, 0.1);
}

static void draw_query_labels(cairo_t *cairo, const layout *all)
{
    const heed_fonts *fonts = &all->type.label;
    heed_label label;
    for (int64_t cell = 0; cell < all->query.cells; cell += all->query.each) {
        const double middle = all->top + ((double)cell + 0.5) * all->pixels;
        make_label(&all->query, cell, &label);
        draw_tick(cairo, all->left - 4.0, middle, all->left, middle);
        const double width = fmin(heed_label_width(fonts, &label), all->query.room);
        heed_label_draw(cairo, fonts, all->left - LABEL_GAP - width, middle + 0.36 * fonts->size, &label,
                        all->query.room + 0.01);
    }
}

/* Keys stand upright above their columns, to be read with the head tilted to the left. */
static void draw_key_labels(cairo_t *cairo, const layout *all, double left)
{
    const heed_fonts *fonts = &all->type.label;
    heed_label label;
    for (int64_t cell = 0; cell < all->key.cells; cell += all->key.each) {
        const double middle = left + ((double)cell + 0.5) * all->pixels;
        make_label(&all->key, cell, &label);
        draw_tick(cairo, middle, all->top - 4.0, middle, all->top);
        cairo_save(cairo);
        cairo_translate(cairo, middle + 0.36 * fonts->size, all->top - LABEL_GAP);
        cairo_rotate(cairo, -M_PI / 2.0);
        heed_label_draw(cairo, fonts, 0.0, 0.0, &label, all->key.room + 0.01);
        cairo_restore(cairo);
    }
}

static const char *down(const heed_plot_matrix *plot)
{
    return plot->down ? plot->down : "query: the token that looks";
}

static const char *across(const heed_plot_matrix *plot)
{
    return plot->across ? plot->across : "key: the token looked at";
}

static void draw_axis_names(cairo_t *cairo, const layout *all, double left)
{
    const char *queries = down(all->plot), *keys = across(all->plot);
    const heed_fonts *fonts = &all->type.text;
    cairo_set_source_rgb(cairo, 0.35, 0.35, 0.35);
    heed_text_draw(cairo, fonts, left, all->heading + 1.3 * fonts->size, keys);
    if (left > all->left)
        return;
    cairo_save(cairo);
    cairo_translate(cairo, MARGIN + fonts->size,
                    all->top + fmax(all->height, heed_text_width(fonts, queries)));
    cairo_rotate(cairo, -M_PI / 2.0);
    heed_text_draw(cairo, fonts, 0.0, 0.0, queries);
    cairo_restore(cairo);
}

static double panel_width(const layout *all)
{
    return fmax(all->width, heed_text_width(&all->type.text, across(all->plot)));
}

static heed_status draw(cairo_t *cairo, const layout *all)
{
    static const heed_cell_value values[] = {heed_plot_pool_most, heed_plot_pool_mean};
    const heed_plot_matrix *plot = all->plot;
    const double bar = fmax(fmin(all->height, 240.0), HEED_BAR_LEAST);
    double left = all->left;
    heed_heading_draw(cairo, &all->type, MARGIN, plot->title, plot->subtitle,
                      all->panels > 1 ? all->note : NULL);
    draw_query_labels(cairo, all);
    for (int i = 0; i < all->panels; i++) {
        const heed_colours colours = heed_cells_colours(plot->pool, plot->map, 1, values[i]);
        draw_axis_names(cairo, all, left);
        draw_key_labels(cairo, all, left);
        TRY(heed_cells_draw(cairo, plot->pool, plot->map, values[i], &colours, left, all->top, all->pixels));
        left += floor(panel_width(all)) + 20.0;
        heed_colour_bar(cairo, &all->type.label, left, all->top + 4.0, bar, &colours,
                        all->panels == 1 ? plot->measure ? plot->measure : "weight"
                        : i              ? "mean"
                                         : "largest");
        left += HEED_BAR_WIDTH;
    }
    return HEED_OK;
}

heed_status heed_plot_draw_matrix(const char *path, const heed_plot_matrix *plot)
{
    layout all = {.plot = plot};
    heed_canvas canvas;
    int64_t queries, keys;
    heed_plot_pool_sizes(plot->pool, &queries, &keys);
    heed_type_open(&all.type);
    measure(&all, queries, keys);
    const double needed =
        heed_heading_width(&all.type, plot->title, plot->subtitle, all.panels > 1 ? all.note : NULL);
    const double width =
        fmax(all.left + all.panels * (panel_width(&all) + 20.0 + HEED_BAR_WIDTH), needed + 2 * MARGIN);
    const double least = fmax(HEED_BAR_LEAST, heed_text_width(&all.type.text, down(plot)));
    heed_status status = heed_canvas_open(&canvas, path, width, all.top + fmax(all.height, least) + MARGIN);
    if (!status) {
        const heed_status drawn = draw(canvas.cairo, &all);
        if (drawn)
            canvas.arrived = drawn;
        status = heed_canvas_close(&canvas);
    }
    heed_type_close(&all.type);
    return status;
}
