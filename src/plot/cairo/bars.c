/* Bars from 0 on beside their names, the value behind each, and a whisker for the spread of several runs. */
#include "plot/cairo/axis.h"
#include "plot/cairo/canvas.h"

#include <math.h>
#include <stdio.h>

enum { MARGIN = 16, WIDTH = 420, ROW = 22, BEFORE = 26, AFTER = 20, NAMES = 8, NUMBERS = 150 };

static double names_width(const heed_type_sizes *type, const heed_plot_bars *plot)
{
    double width = 0.0;
    for (int p = 0; p < plot->panels; p++)
        for (int i = 0; i < plot->panel[p].bars; i++)
            width = fmax(width, heed_text_width(&type->text, plot->panel[p].bar[i].name));
    return width + NAMES;
}

static double height_of(const heed_plot_bars *plot, int panel)
{
    return BEFORE + ROW * plot->panel[panel].bars + AFTER;
}

/* From value `from` to `to` of an axis that starts at x. */
static void draw_bar(cairo_t *cairo, const heed_type_sizes *type, const heed_plot_bar *bar, double from,
                     double to, double x, double y)
{
    const double scale = WIDTH / (to - from), zero = x - from * scale;
    char text[60];
    if (bar->spread > 0.0)
        snprintf(text, sizeof text, "%.4g ± %.2g", bar->value, bar->spread);
    else
        snprintf(text, sizeof text, "%.4g", bar->value);
    cairo_set_source_rgb(cairo, 0.03, 0.32, 0.61);
    cairo_rectangle(cairo, fmin(zero, zero + bar->value * scale), y + 4.0,
                    fmax(fabs(bar->value) * scale, 1.0), ROW - 8.0);
    cairo_fill(cairo);
    if (bar->spread > 0.0) {
        const double low = zero + (bar->value - bar->spread) * scale,
                     high = zero + (bar->value + bar->spread) * scale;
        cairo_set_source_rgb(cairo, 0.80, 0.25, 0.10);
        cairo_set_line_width(cairo, 1.5);
        heed_line(cairo, low, y + ROW / 2.0, high, y + ROW / 2.0);
        heed_line(cairo, low, y + 7.0, low, y + ROW - 7.0);
        heed_line(cairo, high, y + 7.0, high, y + ROW - 7.0);
    }
    heed_grey(cairo, 0.25);
    heed_text_draw(cairo, &type->label, x + WIDTH + 10.0, y + ROW / 2.0 + 0.36 * type->label.size, text);
}

static void draw_panel(cairo_t *cairo, const heed_type_sizes *type, const heed_plot_bars *plot, int panel,
                       double x, double y)
{
    const heed_plot_bar *bar = plot->panel[panel].bar;
    const int bars = plot->panel[panel].bars;
    double from = 0.0, to = 0.0;
    for (int i = 0; i < bars; i++)
        if (isfinite(bar[i].value)) {
            from = fmin(from, bar[i].value - bar[i].spread);
            to = fmax(to, bar[i].value + bar[i].spread);
        }
    to = to > from ? to : from + 1.0;
    heed_grey(cairo, 0.1);
    heed_text_draw(cairo, &type->text, x, y + BEFORE - 9.0, plot->panel[panel].measure);
    for (int i = 0; i < bars; i++) {
        const double row = y + BEFORE + ROW * i;
        heed_grey(cairo, 0.1);
        heed_text_draw(cairo, &type->text, x - NAMES - heed_text_width(&type->text, bar[i].name),
                       row + ROW / 2.0 + 0.36 * type->text.size, bar[i].name);
        if (isfinite(bar[i].value))
            draw_bar(cairo, type, &bar[i], from, to, x, row);
    }
    heed_grey(cairo, 0.4);
    cairo_set_line_width(cairo, 1.0);
    const double zero = x - from * WIDTH / (to - from);
    heed_line(cairo, zero, y + BEFORE, zero, y + BEFORE + ROW * bars);
}

heed_status heed_plot_draw_bars(const char *path, const heed_plot_bars *plot)
{
    heed_type_sizes type;
    heed_canvas canvas;
    heed_type_open(&type);
    const double top = heed_heading_height(&type, plot->title, plot->subtitle, NULL) + MARGIN,
                 left = MARGIN + names_width(&type, plot);
    double height = top + MARGIN;
    for (int p = 0; p < plot->panels; p++)
        height += height_of(plot, p);
    const double width =
        fmax(left + WIDTH + NUMBERS, heed_heading_width(&type, plot->title, plot->subtitle, NULL) + MARGIN);
    heed_status status = heed_canvas_open(&canvas, path, width + MARGIN, height);
    if (!status) {
        heed_heading_draw(canvas.cairo, &type, MARGIN, plot->title, plot->subtitle, NULL);
        double y = top;
        for (int p = 0; p < plot->panels; p++) {
            draw_panel(canvas.cairo, &type, plot, p, left, y);
            y += height_of(plot, p);
        }
        status = heed_canvas_close(&canvas);
    }
    heed_type_close(&type);
    return status;
}
