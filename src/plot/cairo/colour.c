#include "plot/cairo/colour.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct stop {
    double share;
    heed_colour colour;
} stop;

static const stop stops[] = {{0.00, {1.00, 1.00, 1.00}}, {0.15, {0.87, 0.92, 0.97}},
                             {0.35, {0.62, 0.79, 0.88}}, {0.55, {0.26, 0.57, 0.78}},
                             {0.75, {0.03, 0.32, 0.61}}, {1.00, {0.03, 0.09, 0.27}}};

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

heed_colours heed_colours_for(double most, float *sample, size_t count)
{
    const double visible = 0.25; /* of the way to the darkest colour, for the middle value */
    size_t zeros = 0;
    if (count > 1)
        qsort(sample, count, sizeof *sample, compare_floats);
    while (zeros < count && !(sample[zeros] > 0.0f))
        zeros++;
    if (zeros == count || !(most > 0.0))
        return (heed_colours){most, 0.5};
    const double middle = sample[zeros + (count - zeros) / 2] / most;
    const double exponent = middle < 1.0 ? log(visible) / log(middle) : 0.5;
    return (heed_colours){most, fmin(fmax(exponent, 0.2), 0.5)};
}

double heed_colour_share(const heed_colours *colours, double value)
{
    if (!(value > 0.0) || !(colours->most > 0.0))
        return 0.0;
    return value < colours->most ? pow(value / colours->most, colours->exponent) : 1.0;
}

heed_colour heed_colour_of(double share)
{
    int i = 1;
    while (i + 1 < (int)(sizeof stops / sizeof *stops) && share > stops[i].share)
        i++;
    const stop *low = &stops[i - 1], *high = &stops[i];
    const double part = (share - low->share) / (high->share - low->share);
    return (heed_colour){low->colour.red + part * (high->colour.red - low->colour.red),
                         low->colour.green + part * (high->colour.green - low->colour.green),
                         low->colour.blue + part * (high->colour.blue - low->colour.blue)};
}

bool heed_colour_is_dark(double share)
{
    return share > 0.5;
}

void heed_colour_bar(cairo_t *cairo, const heed_fonts *fonts, double x, double y, double height,
                     const heed_colours *colours, const char *measure)
{
    enum { STEPS = 64, TICKS = 4, WIDTH = 14 };
    char text[40];
    x = floor(x);
    y = floor(y);
    cairo_set_source_rgb(cairo, 0.25, 0.25, 0.25);
    heed_text_draw(cairo, fonts, x, y - 12.0, measure);
    for (int i = 0; i < STEPS; i++) {
        const heed_colour colour = heed_colour_of(1.0 - (i + 0.5) / STEPS);
        cairo_set_source_rgb(cairo, colour.red, colour.green, colour.blue);
        cairo_rectangle(cairo, x, y + floor(height * i / STEPS), WIDTH,
                        floor(height * (i + 1) / STEPS) - floor(height * i / STEPS));
        cairo_fill(cairo);
    }
    cairo_set_source_rgb(cairo, 0.25, 0.25, 0.25);
    cairo_set_line_width(cairo, 1.0);
    cairo_rectangle(cairo, x - 0.5, y - 0.5, WIDTH + 1.0, height + 1.0);
    cairo_stroke(cairo);
    for (int i = 0; i <= TICKS; i++) {
        const double share = (double)i / TICKS, at = floor(y + height * (1.0 - share)) + 0.5;
        snprintf(text, sizeof text, "%.3g", colours->most * pow(share, 1.0 / colours->exponent));
        cairo_move_to(cairo, x + WIDTH, at);
        cairo_line_to(cairo, x + WIDTH + 4.0, at);
        cairo_stroke(cairo);
        heed_text_draw(cairo, fonts, x + WIDTH + 7.0, at + 0.35 * fonts->size, text);
    }
}
