/* Axes, grid lines and their round numbers, for pictures of curves and points. */
#ifndef HEED_PLOT_AXIS_H
#define HEED_PLOT_AXIS_H

#include "plot/cairo/cells.h"

#include <cairo.h>
#include <stdbool.h>

enum { HEED_TICKS = 8 };

/* An axis: from value to 0..1. */
typedef struct heed_axis {
    double low, high; /* logarithms where `powers` */
    bool powers;
} heed_axis;

double heed_on_axis(const heed_axis *a, double x);
/* Room for all values, and a little more. */
heed_axis heed_axis_for(const double *value, int points, bool powers);
/* Round values inside the axis; as many as fit. Returns how many. */
int heed_axis_ticks(const heed_axis *a, double *tick);

void heed_grey(cairo_t *cairo, double shade);
/* On whole pixels. */
void heed_line(cairo_t *cairo, double x0, double y0, double x1, double y1);

/* Where a plot lies: its top left corner and its extent. */
typedef struct heed_frame {
    double x, y, width, height;
} heed_frame;

/* Grid lines with their numbers, and the frame around them. */
void heed_draw_axes(cairo_t *cairo, const heed_type_sizes *type, const heed_axis *x, const heed_axis *up,
                    const heed_frame *frame);

#endif
