#include "plot/cairo/canvas.h"
#include "base/text.h"
#include "base/try.h"

#include <cairo-svg.h>
#include <math.h>
#include <string.h>

#define MOST_PIXELS 32000 /* a side; cairo's own limit is 32767 */

static cairo_status_t take_bytes(void *context, const unsigned char *data, unsigned length)
{
    heed_canvas *canvas = context;
    if (!canvas->arrived)
        canvas->arrived = heed_output_write(&canvas->output, data, length);
    return canvas->arrived ? CAIRO_STATUS_WRITE_ERROR : CAIRO_STATUS_SUCCESS;
}

heed_status heed_canvas_open(heed_canvas *canvas, const char *path, double width, double height)
{
    *canvas = (heed_canvas){.output.descriptor = -1, .svg = heed_ends_with(path, ".svg")};
    if (!canvas->svg && !heed_ends_with(path, ".png"))
        return heed_fail(HEED_INVALID, "%s: a picture's name must end in .png or .svg", path);
    if (!(width <= MOST_PIXELS && height <= MOST_PIXELS))
        return heed_fail(HEED_INVALID, "%s: the picture would have %.0f times %.0f pixels: at most %d a side",
                         path, width, height, MOST_PIXELS);
    TRY(heed_output_open(&canvas->output, path));
    canvas->surface =
        canvas->svg ? cairo_svg_surface_create_for_stream(take_bytes, canvas, width, height)
                    : cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)ceil(width), (int)ceil(height));
    canvas->cairo = cairo_create(canvas->surface);
    cairo_set_source_rgb(canvas->cairo, 1.0, 1.0, 1.0);
    cairo_paint(canvas->cairo);
    return HEED_OK;
}

heed_status heed_canvas_close(heed_canvas *canvas)
{
    cairo_status_t status = cairo_status(canvas->cairo);
    cairo_destroy(canvas->cairo);
    if (!canvas->svg && !status)
        status = cairo_surface_write_to_png_stream(canvas->surface, take_bytes, canvas);
    cairo_surface_finish(canvas->surface);
    if (!status)
        status = cairo_surface_status(canvas->surface);
    cairo_surface_destroy(canvas->surface);
    if (!canvas->arrived && status)
        canvas->arrived =
            heed_fail(status == CAIRO_STATUS_NO_MEMORY ? HEED_NO_MEMORY : HEED_IO, "%s: cannot be drawn: %s",
                      canvas->output.path, cairo_status_to_string(status));
    return heed_output_close(&canvas->output, canvas->arrived);
}
