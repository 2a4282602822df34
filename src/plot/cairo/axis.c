#include "plot/cairo/axis.h"

#include <math.h>
#include <stdio.h>

void heed_grey(cairo_t *cairo, double shade)
{
    cairo_set_source_rgb(cairo, shade, shade, shade);
}

void heed_line(cairo_t *cairo, double x0, double y0, double x1, double y1)
{
    cairo_move_to(cairo, floor(x0) + 0.5, floor(y0) + 0.5);
    cairo_line_to(cairo, floor(x1) + 0.5, floor(y1) + 0.5);
    cairo_stroke(cairo);
}

void heed_draw_axes(cairo_t *cairo, const heed_type_sizes *type, const heed_axis *x, const heed_axis *up,
                    const heed_frame *frame)
{
    const double right = frame->x + frame->width, bottom = frame->y + frame->height;
    double tick[HEED_TICKS];
    char text[40];
    cairo_set_line_width(cairo, 1.0);
    for (int i = 0, count = heed_axis_ticks(up, tick); i < count; i++) {
        const double at = bottom - frame->height * heed_on_axis(up, tick[i]);
        heed_grey(cairo, 0.9);
        heed_line(cairo, frame->x, at, right, at);
        heed_grey(cairo, 0.25);
        snprintf(text, sizeof text, "%.4g", tick[i]);
        heed_text_draw(cairo, &type->label, frame->x - 8 - heed_text_width(&type->label, text),
                       at + 0.36 * type->label.size, text);
    }
    for (int i = 0, count = heed_axis_ticks(x, tick); i < count; i++) {
        const double at = frame->x + frame->width * heed_on_axis(x, tick[i]);
        heed_grey(cairo, 0.9);
        heed_line(cairo, at, frame->y, at, bottom);
        heed_grey(cairo, 0.25);
        snprintf(text, sizeof text, "%.6g", tick[i]);
        heed_text_draw(cairo, &type->label, at - heed_text_width(&type->label, text) / 2.0,
                       bottom + 1.3 * type->label.size, text);
    }
    heed_grey(cairo, 0.4);
    cairo_rectangle(cairo, frame->x + 0.5, floor(frame->y) + 0.5, frame->width, frame->height);
    cairo_stroke(cairo);
}
