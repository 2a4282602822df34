/* A PNG file as numbers. */
#include "base/try.h"
#include "plot/plot.h"

#include <cairo.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t grey_of(uint32_t pixel)
{
    const uint32_t red = pixel >> 16 & 255, green = pixel >> 8 & 255, blue = pixel & 255;
    return (int32_t)((299 * red + 587 * green + 114 * blue + 500) / 1000); /* ITU-R BT.601 */
}

/* What is transparent lies on black. */
static void take(cairo_surface_t *surface, heed_plot_pixels *to)
{
    const unsigned char *data = cairo_image_surface_get_data(surface);
    const int stride = cairo_image_surface_get_stride(surface);
    for (int64_t y = 0; y < to->height; y++)
        for (int64_t x = 0; x < to->width; x++) {
            const uint32_t pixel = ((const uint32_t *)(const void *)(data + y * stride))[x];
            int32_t *value = to->value + (y * to->width + x) * to->channels;
            if (to->channels == 1)
                *value = grey_of(pixel);
            for (int c = 0; to->channels == 3 && c < 3; c++)
                value[c] = (int32_t)(pixel >> (16 - 8 * c) & 255);
        }
}

static heed_status take_surface(cairo_surface_t *surface, const char *path, heed_plot_pixels *to)
{
    const cairo_status_t status = cairo_surface_status(surface);
    if (status)
        return heed_fail(status == CAIRO_STATUS_NO_MEMORY ? HEED_NO_MEMORY : HEED_FORMAT,
                         "%s: a damaged PNG file: %s", path, cairo_status_to_string(status));
    const cairo_format_t format = cairo_image_surface_get_format(surface);
    to->height = cairo_image_surface_get_height(surface);
    to->width = cairo_image_surface_get_width(surface);
    if (format != CAIRO_FORMAT_RGB24 && format != CAIRO_FORMAT_ARGB32)
        return heed_fail(HEED_UNSUPPORTED, "%s: a PNG file of more than 8 bits a colour", path);
    to->value = malloc((size_t)(to->height * to->width * to->channels) * sizeof *to->value + 1);
    if (!to->value)
        return heed_fail(HEED_NO_MEMORY, "%s: no memory for its pixels", path);
    take(surface, to);
    return HEED_OK;
}

/* Cairo takes a file of another kind for a lack of memory. */
static heed_status begins_as_png(const char *path)
{
    static const unsigned char signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    unsigned char begin[8] = {0};
    FILE *file = fopen(path, "rb");
    if (!file)
        return heed_fail(HEED_IO, "%s: cannot be read: %s", path, strerror(errno));
    const bool right =
        fread(begin, 1, sizeof begin, file) == sizeof begin && !memcmp(begin, signature, sizeof begin);
    fclose(file);
    return right ? HEED_OK : heed_fail(HEED_FORMAT, "%s: no PNG file", path);
}

heed_status heed_plot_read(const char *path, int channels, heed_plot_pixels *pixels)
{
    *pixels = (heed_plot_pixels){.channels = channels};
    TRY(begins_as_png(path));
    cairo_surface_t *surface = cairo_image_surface_create_from_png(path);
    const heed_status status = take_surface(surface, path, pixels);
    cairo_surface_destroy(surface);
    return status;
}
