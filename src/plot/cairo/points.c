/* Points in panels below each other, with axes, numbers and a legend. */
#include "plot/cairo/axis.h"
#include "plot/cairo/canvas.h"
#include "plot/cairo/cells.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MARGIN = 16, LEFT = 78, WIDTH = 560, HEIGHT = 250, BELOW = 26, GAP = 34, LEGEND = 30 };

/* A frame of WIDTH x HEIGHT with its top left corner at LEFT, y. */
static void draw_frame(cairo_t *cairo, const heed_type_sizes *type, const heed_plot_panel *panel,
                       const char *across, const heed_axis *x, const heed_axis *up, double y)
{
    char text[60];
    heed_draw_axes(cairo, type, x, up, &(heed_frame){LEFT, y, WIDTH, HEIGHT});
    heed_grey(cairo, 0.1);
    snprintf(text, sizeof text, "%.40s%s", panel->measure,
             panel->high_is_good ? " (more is better)" : " (less is better)");
    heed_text_draw(cairo, &type->text, LEFT, y - 7.0, text);
    heed_text_draw(cairo, &type->text, LEFT + WIDTH - heed_text_width(&type->text, across),
                   y + HEIGHT + BELOW + 4.0, across);
}

typedef struct place {
    double x, y;
} place;

static place place_of(const heed_plot_points *plot, const heed_plot_panel *panel, const heed_axis *x,
                      const heed_axis *up, double y, int i)
{
    return (place){LEFT + WIDTH * heed_on_axis(x, plot->at[i]),
                   y + HEIGHT * (1.0 - heed_on_axis(up, panel->value[i]))};
}

/* Steps along the front, from the least memory to the most. */
static void draw_front(cairo_t *cairo, const heed_plot_points *plot, const heed_plot_panel *panel,
                       const bool *front, const heed_axis *x, const heed_axis *up, double y)
{
    int last = -1;
    cairo_set_source_rgb(cairo, 0.80, 0.25, 0.10);
    cairo_set_line_width(cairo, 1.5);
    for (int step = 0; step < plot->points; step++) {
        int next = -1;
        for (int i = 0; i < plot->points; i++) /* the nearest to the right of the last one */
            if (front[i] && (last < 0 || plot->at[i] > plot->at[last]) &&
                (next < 0 || plot->at[i] < plot->at[next]))
                next = i;
        if (next < 0)
            break;
        const place to = place_of(plot, panel, x, up, y, next);
        if (last < 0) {
            cairo_move_to(cairo, to.x, to.y);
        } else {
            cairo_line_to(cairo, to.x, place_of(plot, panel, x, up, y, last).y);
            cairo_line_to(cairo, to.x, to.y);
        }
        last = next;
    }
    cairo_stroke(cairo);
}

/* Numbers beside the points, where none stands yet: to the right above, below, to the left. */
static void draw_number(cairo_t *cairo, const heed_fonts *fonts, place *taken, int *count, place at,
                        int number)
{
    static const place around[] = {{6.0, -4.0}, {6.0, 12.0}, {-18.0, -4.0}, {-18.0, 12.0}};
    char text[16];
    place to = at;
    for (int i = 0; i < 4; i++) {
        bool free_place = true;
        to = (place){at.x + around[i].x, at.y + around[i].y};
        for (int j = 0; j < *count; j++)
            free_place &= fabs(taken[j].x - to.x) > 14.0 || fabs(taken[j].y - to.y) > 11.0;
        if (free_place)
            break;
    }
    taken[(*count)++] = to;
    heed_grey(cairo, 0.1);
    snprintf(text, sizeof text, "%d", number);
    heed_text_draw(cairo, fonts, to.x, to.y, text);
}

/* `front` [points] and `taken` [points] are work memory. */
static void draw_panel(cairo_t *cairo, const heed_type_sizes *type, const heed_plot_points *plot,
                       const heed_plot_panel *panel, bool *front, place *taken, double y)
{
    const heed_axis x = heed_axis_for(plot->at, plot->points, true),
                    up = heed_axis_for(panel->value, plot->points, panel->powers);
    int count = 0;
    draw_frame(cairo, type, panel, plot->across, &x, &up, y);
    heed_plot_front(plot->at, panel->value, panel->high_is_good, plot->points, front);
    draw_front(cairo, plot, panel, front, &x, &up, y);
    for (int i = 0; i < plot->points; i++) {
        if (isnan(panel->value[i]) || isnan(plot->at[i]))
            continue;
        const place at = place_of(plot, panel, &x, &up, y, i);
        if (front[i])
            cairo_set_source_rgb(cairo, 0.80, 0.25, 0.10);
        else
            cairo_set_source_rgb(cairo, 0.03, 0.32, 0.61);
        cairo_arc(cairo, at.x, at.y, 4.0, 0.0, 6.2832);
        cairo_fill(cairo);
        draw_number(cairo, &type->label, taken, &count, at, i);
    }
}

static void draw_legend(cairo_t *cairo, const heed_type_sizes *type, const heed_plot_points *plot, double x,
                        double y)
{
    char text[200];
    heed_grey(cairo, 0.1);
    for (int i = 0; i < plot->points; i++) {
        snprintf(text, sizeof text, "%d  %.150s%s", i, plot->name[i],
                 isnan(plot->at[i]) ? " (not measured)" : "");
        heed_text_draw(cairo, &type->text, x, y + 1.5 * type->text.size * (double)i, text);
    }
}

static double legend_width(const heed_type_sizes *type, const heed_plot_points *plot)
{
    double width = 0.0;
    char text[200];
    for (int i = 0; i < plot->points; i++) {
        snprintf(text, sizeof text, "%d  %.150s (not measured)", i, plot->name[i]);
        width = fmax(width, heed_text_width(&type->text, text));
    }
    return width;
}

heed_status heed_plot_draw_points(const char *path, const heed_plot_points *plot)
{
    static const char note[] = "red: no other one is better in both (Pareto front)";
    heed_type_sizes type;
    heed_canvas canvas;
    bool *front = calloc((size_t)plot->points + 1, sizeof *front);
    place *taken = calloc((size_t)plot->points + 1, sizeof *taken);
    if (!front || !taken) {
        free(front);
        free(taken);
        return heed_fail(HEED_NO_MEMORY, "no memory for a picture of %d points", plot->points);
    }
    heed_type_open(&type);
    const double top = heed_heading_height(&type, plot->title, plot->subtitle, note) + GAP;
    const double legend = top + 1.5 * type.text.size * (double)plot->points;
    const double below = top + (double)plot->panels * (HEIGHT + BELOW + GAP);
    heed_status status = heed_canvas_open(&canvas, path,
                                          fmax(LEFT + WIDTH + LEGEND + legend_width(&type, plot),
                                               heed_heading_width(&type, plot->title, plot->subtitle, note)) +
                                              2 * MARGIN,
                                          fmax(below, legend) + MARGIN);
    if (!status) {
        heed_heading_draw(canvas.cairo, &type, MARGIN, plot->title, plot->subtitle, note);
        for (int p = 0; p < plot->panels; p++)
            draw_panel(canvas.cairo, &type, plot, &plot->panel[p], front, taken,
                       top + (double)p * (HEIGHT + BELOW + GAP));
        draw_legend(canvas.cairo, &type, plot, LEFT + WIDTH + LEGEND, top + type.text.size);
        status = heed_canvas_close(&canvas);
    }
    heed_type_close(&type);
    free(front);
    free(taken);
    return status;
}
