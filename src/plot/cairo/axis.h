/* Axes and grid lines, for pictures of curves and points. */
#ifndef HEED_PLOT_CAIRO_AXIS_H
#define HEED_PLOT_CAIRO_AXIS_H

#include "plot/axis.h"
#include "plot/cairo/cells.h"

#include <cairo.h>

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
