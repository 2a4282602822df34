/* A text, each token on a ground of the colour of its value. */
#include "plot/cairo/canvas.h"
#include "plot/cairo/cells.h"

#include <math.h>
#include <string.h>

enum { MARGIN = 16, LINE = 26, WIDTH = 900, LABEL_ROOM = 400, PAD = 2 };

typedef struct layout {
    const heed_plot_text *plot;
    heed_type_sizes type;
    heed_fonts fonts;
    double top;
    heed_colours colours;
} layout;

static bool breaks_line(const heed_plot_token *token)
{
    return token->size > 0 && memchr(token->text, '\n', token->size);
}

static void draw_token(cairo_t *cairo, const layout *all, const heed_label *label, double x, double y,
                       double width, float value)
{
    const double share = heed_colour_share(&all->colours, value);
    const heed_colour colour = heed_colour_of(share);
    cairo_set_source_rgb(cairo, colour.red, colour.green, colour.blue);
    cairo_rectangle(cairo, floor(x), y, ceil(width) - 1.0, LINE - 4.0);
    cairo_fill(cairo);
    const double grey = heed_colour_is_dark(share) ? 1.0 : 0.05;
    cairo_set_source_rgb(cairo, grey, grey, grey);
    heed_label_draw(cairo, &all->fonts, floor(x) + PAD, y + LINE - 10.0, label, LABEL_ROOM);
}

/* Places all tokens, and draws them where there is something to draw on. Returns the height of the lines. */
static double flow(cairo_t *cairo, const layout *all)
{
    const heed_plot_text *plot = all->plot;
    double x = 0.0, y = 0.0;
    heed_label label;
    for (int64_t i = 0; i < plot->tokens; i++) {
        heed_label_make(&label, plot->token[i].text, plot->token[i].size, ' ');
        const double width = ceil(fmin(heed_label_width(&all->fonts, &label), LABEL_ROOM)) + 2 * PAD + 1.0;
        if (x > 0.0 && x + width > WIDTH) {
            x = 0.0;
            y += LINE;
        }
        if (cairo)
            draw_token(cairo, all, &label, MARGIN + x, all->top + y, width, plot->value[i]);
        x += width;
        if (breaks_line(&plot->token[i])) {
            x = 0.0;
            y += LINE;
        }
    }
    return y + (x > 0.0 ? LINE : 0.0);
}

static heed_colours colours_of(const heed_plot_text *plot)
{
    enum { MOST = 8192 };
    const int64_t each = plot->tokens / MOST + 1;
    float sample[MOST];
    double most = 0.0;
    size_t count = 0;
    for (int64_t i = 0; i < plot->tokens; i++) {
        most = fmax(most, (double)plot->value[i]);
        if (i % each == 0)
            sample[count++] = plot->value[i];
    }
    return heed_colours_for(most, sample, count);
}

heed_status heed_plot_draw_text(const char *path, const heed_plot_text *plot)
{
    layout all = {.plot = plot};
    heed_canvas canvas;
    heed_type_open(&all.type);
    heed_fonts_open(&all.fonts, 15.0, false);
    all.colours = colours_of(plot);
    all.top = heed_heading_height(&all.type, plot->title, plot->subtitle, NULL) + 10.0;
    const double height = fmax(flow(NULL, &all), HEED_BAR_LEAST + 24.0);
    const double needed = heed_heading_width(&all.type, plot->title, plot->subtitle, NULL) + 2 * MARGIN;
    const double right = MARGIN + WIDTH + 16.0;
    const double bar = fmax(HEED_BAR_WIDTH, heed_text_width(&all.type.label, plot->measure) + MARGIN);
    heed_status status =
        heed_canvas_open(&canvas, path, fmax(right + bar, needed), all.top + height + MARGIN);
    if (!status) {
        heed_heading_draw(canvas.cairo, &all.type, MARGIN, plot->title, plot->subtitle, NULL);
        flow(canvas.cairo, &all);
        heed_colour_bar(canvas.cairo, &all.type.label, right, all.top + 16.0, HEED_BAR_LEAST, &all.colours,
                        plot->measure);
        status = heed_canvas_close(&canvas);
    }
    heed_fonts_close(&all.fonts);
    heed_type_close(&all.type);
    return status;
}
