#include "plot/cairo/cells.h"

#include <math.h>

enum { MOST_RECTANGLES = 4096, MOST_SAMPLES = 8192, MARGIN = 16 };

void heed_type_open(heed_type_sizes *type)
{
    heed_fonts_open(&type->title, 16.0, true);
    heed_fonts_open(&type->text, 12.0, false);
    heed_fonts_open(&type->label, 11.0, false);
}

void heed_type_close(heed_type_sizes *type)
{
    heed_fonts_close(&type->title);
    heed_fonts_close(&type->text);
    heed_fonts_close(&type->label);
}

heed_colours heed_cells_colours(const heed_plot_pool *pool, int64_t map0, int64_t maps, heed_cell_value value)
{
    const int64_t rows = heed_plot_pool_rows(pool), cols = heed_plot_pool_cols(pool),
                  cells = maps * rows * cols;
    const int64_t each = cells / MOST_SAMPLES + 1;
    float sample[MOST_SAMPLES];
    double most = 0.0;
    size_t count = 0;
    for (int64_t i = 0; i < cells; i++) {
        const float x = value(pool, map0 + i / (rows * cols), i / cols % rows, i % cols);
        most = fmax(most, (double)x);
        if (i % each == 0 && count < MOST_SAMPLES)
            sample[count++] = x;
    }
    return heed_colours_for(most, sample, count);
}

/* A rectangle a cell, which stays sharp at any size of an SVG file. */
static void draw_rectangles(cairo_t *cairo, const heed_plot_pool *pool, int64_t map, heed_cell_value value,
                            const heed_colours *colours, double x, double y, int pixels)
{
    cairo_set_antialias(cairo, CAIRO_ANTIALIAS_NONE); /* no seams between neighbours */
    for (int64_t row = 0; row < heed_plot_pool_rows(pool); row++)
        for (int64_t col = 0; col < heed_plot_pool_cols(pool); col++) {
            const double share = heed_colour_share(colours, value(pool, map, row, col));
            if (share <= 0.0)
                continue;
            const heed_colour colour = heed_colour_of(share);
            cairo_set_source_rgb(cairo, colour.red, colour.green, colour.blue);
            cairo_rectangle(cairo, x + (double)(col * pixels), y + (double)(row * pixels), pixels, pixels);
            cairo_fill(cairo);
        }
    cairo_set_antialias(cairo, CAIRO_ANTIALIAS_DEFAULT);
}

/* As cairo itself turns a share of a colour into a byte. */
static uint32_t byte_of(double share)
{
    return (uint32_t)(share * 65535.0 + 0.5) >> 8;
}

static uint32_t pixel_of(heed_colour colour)
{
    return byte_of(colour.red) << 16 | byte_of(colour.green) << 8 | byte_of(colour.blue);
}

/* An image, for many cells. */
static heed_status draw_image(cairo_t *cairo, const heed_plot_pool *pool, int64_t map, heed_cell_value value,
                              const heed_colours *colours, double x, double y, int pixels)
{
    const int width = (int)heed_plot_pool_cols(pool) * pixels,
              height = (int)heed_plot_pool_rows(pool) * pixels;
    cairo_surface_t *image = cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
    unsigned char *data = cairo_image_surface_get_data(image);
    const int stride = cairo_image_surface_get_stride(image);
    if (!data) {
        cairo_surface_destroy(image);
        return heed_fail(HEED_NO_MEMORY, "no memory for a picture of %d times %d pixels", width, height);
    }
    for (int row = 0; row < height; row++) {
        uint32_t *line = (uint32_t *)(void *)(data + (size_t)row * (size_t)stride);
        for (int col = 0; col < width; col++) {
            const double share = heed_colour_share(colours, value(pool, map, row / pixels, col / pixels));
            line[col] = pixel_of(heed_colour_of(share));
        }
    }
    cairo_surface_mark_dirty(image);
    cairo_set_source_surface(cairo, image, x, y);
    cairo_rectangle(cairo, x, y, width, height);
    cairo_fill(cairo);
    cairo_surface_destroy(image);
    return HEED_OK;
}

heed_status heed_cells_draw(cairo_t *cairo, const heed_plot_pool *pool, int64_t map, heed_cell_value value,
                            const heed_colours *colours, double x, double y, int pixels)
{
    const int64_t rows = heed_plot_pool_rows(pool), cols = heed_plot_pool_cols(pool);
    heed_status status = HEED_OK;
    if (rows * cols <= MOST_RECTANGLES)
        draw_rectangles(cairo, pool, map, value, colours, x, y, pixels);
    else
        status = draw_image(cairo, pool, map, value, colours, x, y, pixels);
    cairo_set_source_rgb(cairo, 0.6, 0.6, 0.6);
    cairo_set_line_width(cairo, 1.0);
    cairo_rectangle(cairo, x - 0.5, y - 0.5, (double)(cols * pixels) + 1.0, (double)(rows * pixels) + 1.0);
    cairo_stroke(cairo);
    return status;
}

double heed_heading_height(const heed_type_sizes *type, const char *title, const char *subtitle,
                           const char *note)
{
    const double line = 1.5 * type->text.size;
    return MARGIN + (title ? 1.5 * type->title.size : 0.0) + (subtitle ? line : 0.0) + (note ? line : 0.0);
}

double heed_heading_width(const heed_type_sizes *type, const char *title, const char *subtitle,
                          const char *note)
{
    double width = title ? heed_text_width(&type->title, title) : 0.0;
    if (subtitle)
        width = fmax(width, heed_text_width(&type->text, subtitle));
    return note ? fmax(width, heed_text_width(&type->text, note)) : width;
}

double heed_heading_draw(cairo_t *cairo, const heed_type_sizes *type, double x, const char *title,
                         const char *subtitle, const char *note)
{
    double y = MARGIN;
    cairo_set_source_rgb(cairo, 0.1, 0.1, 0.1);
    if (title) {
        heed_text_draw(cairo, &type->title, x, y + type->title.size, title);
        y += 1.5 * type->title.size;
    }
    cairo_set_source_rgb(cairo, 0.35, 0.35, 0.35);
    if (subtitle) {
        heed_text_draw(cairo, &type->text, x, y + type->text.size, subtitle);
        y += 1.5 * type->text.size;
    }
    if (note)
        heed_text_draw(cairo, &type->text, x, y + type->text.size, note);
    return heed_heading_height(type, title, subtitle, note);
}
