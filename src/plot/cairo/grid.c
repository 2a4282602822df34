/* All heads as thumbnails: layers down, heads across, one scale of colours. */
#include "base/try.h"
#include "plot/cairo/canvas.h"
#include "plot/cairo/cells.h"

#include <math.h>
#include <stdio.h>

enum { MARGIN = 16, GAP = 8 };

typedef struct layout {
    const heed_plot_grid *plot;
    heed_type_sizes type;
    int pixels;
    double left, top, width, height; /* of the first thumbnail */
    char note[200];
} layout;

static void measure(layout *all)
{
    const heed_plot_grid *plot = all->plot;
    const int64_t rows = heed_plot_pool_rows(plot->pool), cols = heed_plot_pool_cols(plot->pool);
    const int64_t step = heed_plot_pool_step(plot->pool), longest = rows > cols ? rows : cols;
    int64_t queries, keys;
    char text[40];
    heed_plot_pool_sizes(plot->pool, &queries, &keys);
    all->pixels = longest < HEED_PLOT_THUMBNAIL ? (int)(HEED_PLOT_THUMBNAIL / longest) : 1;
    all->width = (double)(cols * all->pixels);
    all->height = (double)(rows * all->pixels);
    if (step > 1)
        snprintf(all->note, sizeof all->note,
                 "queries down, keys across: %lld by %lld, pooled: each cell is the largest of %lld x %lld "
                 "weights",
                 (long long)queries, (long long)keys, (long long)step, (long long)step);
    else
        snprintf(all->note, sizeof all->note, "queries down, keys across: %lld by %lld", (long long)queries,
                 (long long)keys);
    all->left = 0.0;
    for (int64_t l = 0; l < plot->layers; l++) {
        snprintf(text, sizeof text, "layer %lld", (long long)plot->layer[l]);
        all->left = fmax(all->left, heed_text_width(&all->type.label, text));
    }
    all->left += MARGIN + GAP;
    all->top =
        heed_heading_height(&all->type, plot->title, plot->subtitle, all->note) + 2.0 * all->type.label.size;
}

static void draw_names(cairo_t *cairo, const layout *all)
{
    const heed_plot_grid *plot = all->plot;
    const heed_fonts *fonts = &all->type.label;
    char text[40];
    cairo_set_source_rgb(cairo, 0.1, 0.1, 0.1);
    for (int64_t l = 0; l < plot->layers; l++) {
        snprintf(text, sizeof text, "layer %lld", (long long)plot->layer[l]);
        heed_text_draw(cairo, fonts, all->left - GAP - heed_text_width(fonts, text),
                       all->top + (double)l * (all->height + GAP) + all->height / 2.0 + 0.36 * fonts->size,
                       text);
    }
    for (int64_t h = 0; h < plot->heads; h++) {
        snprintf(text, sizeof text, "head %lld", (long long)plot->head[h]);
        if (heed_text_width(fonts, text) > all->width + GAP - 2.0)
            snprintf(text, sizeof text, "%lld", (long long)plot->head[h]);
        heed_text_draw(cairo, fonts,
                       all->left + (double)h * (all->width + GAP) +
                           (all->width - heed_text_width(fonts, text)) / 2.0,
                       all->top - 6.0, text);
    }
}

static heed_status draw(cairo_t *cairo, const layout *all)
{
    const heed_plot_grid *plot = all->plot;
    const heed_colours colours =
        heed_cells_colours(plot->pool, 0, plot->layers * plot->heads, heed_plot_pool_most);
    const double right = all->left + (double)plot->heads * (all->width + GAP) + 12.0;
    heed_heading_draw(cairo, &all->type, MARGIN, plot->title, plot->subtitle, all->note);
    draw_names(cairo, all);
    for (int64_t l = 0; l < plot->layers; l++)
        for (int64_t h = 0; h < plot->heads; h++)
            TRY(heed_cells_draw(cairo, plot->pool, l * plot->heads + h, heed_plot_pool_most, &colours,
                                floor(all->left) + (double)h * (all->width + GAP),
                                floor(all->top) + (double)l * (all->height + GAP), all->pixels));
    heed_colour_bar(cairo, &all->type.label, right, all->top + 8.0, HEED_BAR_LEAST, &colours, "weight");
    return HEED_OK;
}

heed_status heed_plot_draw_grid(const char *path, const heed_plot_grid *plot)
{
    layout all = {.plot = plot};
    heed_canvas canvas;
    heed_type_open(&all.type);
    measure(&all);
    const double width = all.left + (double)plot->heads * (all.width + GAP) + 12.0 + HEED_BAR_WIDTH;
    const double needed = heed_heading_width(&all.type, plot->title, plot->subtitle, all.note) + 2 * MARGIN;
    const double height = fmax((double)plot->layers * (all.height + GAP), HEED_BAR_LEAST + 24.0);
    heed_status status = heed_canvas_open(&canvas, path, fmax(width, needed), all.top + height + MARGIN);
    if (!status) {
        const heed_status drawn = draw(canvas.cairo, &all);
        if (drawn)
            canvas.arrived = drawn;
        status = heed_canvas_close(&canvas);
    }
    heed_type_close(&all.type);
    return status;
}
