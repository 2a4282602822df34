/* Small tables of shares beside each other, each cell coloured by its share and with its number. */
#include "plot/cairo/canvas.h"
#include "plot/cairo/cells.h"

#include <math.h>
#include <stdio.h>

enum { MARGIN = 16, CELL_WIDTH = 38, CELL_HEIGHT = 20, GAP = 26, ACROSS = 1000, NAME = 34, LEAST = 220 };

typedef struct layout {
    const heed_plot_tables *plot;
    heed_type_sizes type;
    double left, top, width,
        height;  /* left: of the names of rows; width and height: of one table, names included */
    int columns; /* tables beside each other */
} layout;

static void measure(layout *all)
{
    const heed_plot_tables *plot = all->plot;
    for (int r = 0; r < plot->rows; r++)
        all->left = fmax(all->left, heed_text_width(&all->type.label, plot->row[r]));
    all->left = fmax(all->left, heed_text_width(&all->type.label, plot->down)) + 6.0;
    all->width = fmax(all->left + (double)plot->cols * CELL_WIDTH, LEAST); /* room for a name */
    all->height = NAME + (double)(plot->rows + 1) * CELL_HEIGHT;
    all->columns = (int)((ACROSS + GAP) / (all->width + GAP));
    if (all->columns < 1)
        all->columns = 1;
    if (all->columns > plot->tables)
        all->columns = plot->tables;
    all->top = heed_heading_height(&all->type, plot->title, plot->subtitle, plot->across) + 8.0;
}

static void draw_cell(cairo_t *cairo, const heed_fonts *fonts, double share, double x, double y)
{
    char text[16];
    const double dark = isnan(share) ? 0.0 : 0.75 * fmin(fmax(share, 0.0), 1.0);
    const heed_colour colour = heed_colour_of(dark);
    cairo_set_source_rgb(cairo, colour.red, colour.green, colour.blue);
    cairo_rectangle(cairo, x, y, CELL_WIDTH - 1, CELL_HEIGHT - 1);
    cairo_fill(cairo);
    if (isnan(share))
        snprintf(text, sizeof text, "-");
    else
        snprintf(text, sizeof text, "%.0f", 100.0 * share);
    const double shade = heed_colour_is_dark(dark) ? 1.0 : 0.1;
    cairo_set_source_rgb(cairo, shade, shade, shade);
    heed_text_draw(cairo, fonts, x + (CELL_WIDTH - heed_text_width(fonts, text)) / 2.0,
                   y + CELL_HEIGHT / 2.0 + 0.36 * fonts->size, text);
}

static void draw_name(cairo_t *cairo, const layout *all, const char *name, double x, double y)
{
    heed_label label;
    size_t size = 0;
    while (name[size])
        size++;
    heed_label_make(&label, name, size, ' ');
    cairo_set_source_rgb(cairo, 0.1, 0.1, 0.1);
    heed_label_draw(cairo, &all->type.text, x, y + all->type.text.size, &label, all->width);
}

static void draw_table(cairo_t *cairo, const layout *all, int table, double x, double y)
{
    const heed_plot_tables *plot = all->plot;
    const heed_fonts *fonts = &all->type.label;
    draw_name(cairo, all, plot->name[table], x, y);
    cairo_set_source_rgb(cairo, 0.35, 0.35, 0.35);
    heed_text_draw(cairo, fonts, x, y + NAME - 5.0, plot->down);
    for (int c = 0; c < plot->cols; c++)
        heed_text_draw(cairo, fonts,
                       x + all->left + ((double)c + 0.5) * CELL_WIDTH -
                           heed_text_width(fonts, plot->col[c]) / 2.0,
                       y + NAME - 5.0, plot->col[c]);
    for (int r = 0; r < plot->rows; r++) {
        const double at = y + NAME + (double)r * CELL_HEIGHT;
        cairo_set_source_rgb(cairo, 0.35, 0.35, 0.35);
        heed_text_draw(cairo, fonts, x + all->left - 6.0 - heed_text_width(fonts, plot->row[r]),
                       at + CELL_HEIGHT / 2.0 + 0.36 * fonts->size, plot->row[r]);
        for (int c = 0; c < plot->cols; c++)
            draw_cell(cairo, fonts, plot->share[(table * plot->rows + r) * plot->cols + c],
                      x + all->left + (double)c * CELL_WIDTH, at);
    }
}

heed_status heed_plot_draw_tables(const char *path, const heed_plot_tables *plot)
{
    layout all = {.plot = plot};
    heed_canvas canvas;
    heed_type_open(&all.type);
    measure(&all);
    const int lines = (plot->tables + all.columns - 1) / all.columns;
    const double width = (double)all.columns * (all.width + GAP) - GAP,
                 needed = heed_heading_width(&all.type, plot->title, plot->subtitle, plot->across);
    heed_status status = heed_canvas_open(&canvas, path, fmax(width, needed) + 2 * MARGIN,
                                          all.top + (double)lines * all.height + MARGIN);
    if (!status) {
        heed_heading_draw(canvas.cairo, &all.type, MARGIN, plot->title, plot->subtitle, plot->across);
        for (int t = 0; t < plot->tables; t++)
            draw_table(canvas.cairo, &all, t, MARGIN + (double)(t % all.columns) * (all.width + GAP),
                       all.top + (double)(t / all.columns) * all.height);
        status = heed_canvas_close(&canvas);
    }
    heed_type_close(&all.type);
    return status;
}
