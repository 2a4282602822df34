#include "plot/cairo/axis.h"

#include <math.h>
#include <stdio.h>

double heed_on_axis(const heed_axis *a, double x)
{
    const double y = !a->powers ? x : x > 0.0 ? log10(x) : a->low;
    return (fmin(fmax(y, a->low), a->high) - a->low) / (a->high - a->low);
}

heed_axis heed_axis_for(const double *value, int points, bool powers)
{
    heed_axis a = {INFINITY, -INFINITY, powers};
    for (int i = 0; i < points; i++) {
        if (isnan(value[i]) || (powers && !(value[i] > 0.0)))
            continue;
        const double y = powers ? log10(value[i]) : value[i];
        a.low = fmin(a.low, y);
        a.high = fmax(a.high, y);
    }
    if (!(a.low <= a.high))
        a.low = a.high = 0.0;
    const double edge = fmax(0.08 * (a.high - a.low), powers ? 0.05 : 1e-3);
    a.low -= edge;
    a.high += edge;
    return a;
}

int heed_axis_ticks(const heed_axis *a, double *tick)
{
    static const double coarse[] = {1.0, 2.0, 5.0}, fine[] = {1.0, 1.5, 2.0, 3.0, 5.0, 7.0};
    int count = 0;
    if (!a->powers) {
        double step = pow(10.0, floor(log10(a->high - a->low)) - 1.0);
        for (int i = 0; (a->high - a->low) / step > 6.0; i++)
            step *= i % 3 == 1 ? 2.5 : 2.0;
        for (double x = ceil(a->low / step) * step; x <= a->high && count < HEED_TICKS; x += step)
            tick[count++] = fabs(x) < 1e-9 * step ? 0.0 : x;
        return count;
    }
    const double range = a->high - a->low, *const steps = range < 1.0 ? fine : coarse;
    const int between = range < 1.0 ? 6 : range < 2.0 ? 3 : 1, every = (int)ceil(range / HEED_TICKS);
    for (int power = (int)floor(a->low); power <= (int)ceil(a->high); power += every)
        for (int i = 0; i < between && count < HEED_TICKS; i++) {
            const double x = steps[i] * pow(10.0, power);
            if (log10(x) >= a->low && log10(x) <= a->high)
                tick[count++] = x;
        }
    return count;
}

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
