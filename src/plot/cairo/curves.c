/* Curves in panels below each other, with axes and a legend in each. */
#include "plot/cairo/axis.h"
#include "plot/cairo/canvas.h"
#include "plot/cairo/cells.h"
#include "plot/plot.h"

#include <math.h>
#include <stdio.h>

enum { MARGIN = 16, LEFT = 70, WIDTH = 700, HEIGHT = 230, BELOW = 30, GAP = 34 };

static const heed_colour colours[] = {
    {0.03, 0.32, 0.61}, {0.80, 0.25, 0.10}, {0.13, 0.50, 0.25}, {0.47, 0.25, 0.60}};

static void set_colour(cairo_t *cairo, int i)
{
    const heed_colour *c = &colours[i % (int)(sizeof colours / sizeof *colours)];
    cairo_set_source_rgb(cairo, c->red, c->green, c->blue);
}

/* An axis with room for all curves of a panel; across or up. */
static heed_axis axis_of(const heed_plot_curves *plot, int panel, bool up)
{
    heed_axis all = {INFINITY, -INFINITY, false};
    for (int i = 0; i < plot->panel[panel].curves; i++) {
        const heed_plot_curve *curve = &plot->panel[panel].curve[i];
        const double *value = up ? curve->value : curve->at;
        for (int j = 0; j < curve->points; j++)
            if (isfinite(value[j])) {
                all.low = fmin(all.low, value[j]);
                all.high = fmax(all.high, value[j]);
            }
    }
    const double ends[] = {all.low, all.high};
    return heed_axis_for(ends, all.low <= all.high ? 2 : 0, false);
}

static void draw_curve(cairo_t *cairo, const heed_plot_curve *curve, const heed_axis *x, const heed_axis *up,
                       double y)
{
    bool drawing = false;
    for (int i = 0; i < curve->points; i++) {
        const double right = LEFT + WIDTH * heed_on_axis(x, curve->at[i]);
        const double down = y + HEIGHT * (1.0 - heed_on_axis(up, curve->value[i]));
        if (!isfinite(curve->value[i]))
            drawing = false;
        else if (drawing)
            cairo_line_to(cairo, right, down);
        else
            cairo_move_to(cairo, right, down);
        drawing = isfinite(curve->value[i]);
    }
    cairo_set_line_width(cairo, 1.5);
    cairo_stroke(cairo);
    for (int i = 0; i < curve->points && curve->points <= 40; i++)
        if (isfinite(curve->value[i])) {
            cairo_arc(cairo, LEFT + WIDTH * heed_on_axis(x, curve->at[i]),
                      y + HEIGHT * (1.0 - heed_on_axis(up, curve->value[i])), 2.5, 0.0, 6.2832);
            cairo_fill(cairo);
        }
}

static void draw_panel(cairo_t *cairo, const heed_type_sizes *type, const heed_plot_curves *plot, int panel,
                       double y)
{
    const heed_axis x = axis_of(plot, 0, false), up = axis_of(plot, panel, true);
    double at = LEFT + WIDTH;
    heed_draw_axes(cairo, type, &x, &up, &(heed_frame){LEFT, y, WIDTH, HEIGHT});
    heed_grey(cairo, 0.1);
    heed_text_draw(cairo, &type->text, LEFT, y - 7.0, plot->panel[panel].measure);
    heed_text_draw(cairo, &type->text, LEFT + WIDTH - heed_text_width(&type->text, plot->across),
                   y + HEIGHT + BELOW + 2.0, plot->across);
    for (int i = plot->panel[panel].curves - 1; i >= 0; i--) {
        const heed_plot_curve *curve = &plot->panel[panel].curve[i];
        set_colour(cairo, i + (plot->panel[panel].curves == 1));
        draw_curve(cairo, curve, &x, &up, y);
        at -= heed_text_width(&type->text, curve->name);
        heed_text_draw(cairo, &type->text, at, y - 7.0, curve->name);
        at -= 18.0;
    }
}

heed_status heed_plot_draw_curves(const char *path, const heed_plot_curves *plot)
{
    heed_type_sizes type;
    heed_canvas canvas;
    heed_type_open(&type);
    const double top = heed_heading_height(&type, plot->title, plot->subtitle, NULL) + GAP;
    const double width =
        fmax(LEFT + WIDTH, heed_heading_width(&type, plot->title, plot->subtitle, NULL)) + 2 * MARGIN;
    heed_status status =
        heed_canvas_open(&canvas, path, width, top + (double)plot->panels * (HEIGHT + BELOW + GAP) + MARGIN);
    if (!status) {
        heed_heading_draw(canvas.cairo, &type, MARGIN, plot->title, plot->subtitle, NULL);
        for (int p = 0; p < plot->panels; p++)
            draw_panel(canvas.cairo, &type, plot, p, top + (double)p * (HEIGHT + BELOW + GAP));
        status = heed_canvas_close(&canvas);
    }
    heed_type_close(&type);
    return status;
}
