/* A picture on its way into a file, .png or .svg. */
#ifndef HEED_PLOT_CANVAS_H
#define HEED_PLOT_CANVAS_H

#include "base/output.h"

#include <cairo.h>

typedef struct heed_canvas {
    cairo_t *cairo;
    cairo_surface_t *surface;
    heed_output output;
    bool svg;
    heed_status arrived; /* what became of the bytes so far */
} heed_canvas;

/* A white ground of this size in pixels. HEED_INVALID for another ending or a picture that is too large,
 * HEED_IO. */
heed_status heed_canvas_open(heed_canvas *canvas, const char *path, double width, double height);
/* Writes the file, or nothing when something went wrong. */
heed_status heed_canvas_close(heed_canvas *canvas);

#endif
