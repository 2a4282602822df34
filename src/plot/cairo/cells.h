/* The cells of a map, and the heading of a picture. */
#ifndef HEED_PLOT_CELLS_H
#define HEED_PLOT_CELLS_H

#include "plot/cairo/colour.h"
#include "plot/plot.h"

typedef float (*heed_cell_value)(const heed_plot_pool *pool, int64_t map, int64_t row, int64_t col);

/* Draws all cells of a map, `pixels` a side each, from x, y on, with a frame. */
heed_status heed_cells_draw(cairo_t *cairo, const heed_plot_pool *pool, int64_t map, heed_cell_value value,
                            const heed_colours *colours, double x, double y, int pixels);

/* A scale for some maps. */
heed_colours heed_cells_colours(const heed_plot_pool *pool, int64_t map0, int64_t maps,
                                heed_cell_value value);

/* Sizes of type that the pictures share. */
typedef struct heed_type_sizes {
    heed_fonts title, text, label;
} heed_type_sizes;
void heed_type_open(heed_type_sizes *type);
void heed_type_close(heed_type_sizes *type);

/* Title and, below it, sentences; NULL ones are left out. Returns the height taken. */
double heed_heading_draw(cairo_t *cairo, const heed_type_sizes *type, double x, const char *title,
                         const char *subtitle, const char *note);
double heed_heading_height(const heed_type_sizes *type, const char *title, const char *subtitle,
                           const char *note);
double heed_heading_width(const heed_type_sizes *type, const char *title, const char *subtitle,
                          const char *note);

#endif
