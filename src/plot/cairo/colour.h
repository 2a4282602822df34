/* From weights to colours: white for none, dark blue for the largest.
 *
 * Most weights are small and a few are large, so the colour follows a root of the weight; the bar beside a
 * picture says which colour is which weight. */
#ifndef HEED_PLOT_COLOUR_H
#define HEED_PLOT_COLOUR_H

#include "plot/cairo/text.h"

typedef struct heed_colour {
    double red, green, blue;
} heed_colour;

typedef struct heed_colours {
    double most;     /* the value that is darkest */
    double exponent; /* of value / most */
} heed_colours;

/* A scale for these values, of which a sample is enough; it is put in order. A root from the second to the
 * fifth, so that the middle one among those above 0 can be seen. */
heed_colours heed_colours_for(double most, float *sample, size_t count);

/* How dark a value is, 0..1. */
double heed_colour_share(const heed_colours *colours, double value);
heed_colour heed_colour_of(double share);
bool heed_colour_is_dark(double share); /* text on it should be white */

enum { HEED_BAR_WIDTH = 90, HEED_BAR_LEAST = 120 }; /* pixels that a colour bar takes */

/* A bar with values, its top left corner at x, y. `measure` stands above it. */
void heed_colour_bar(cairo_t *cairo, const heed_fonts *fonts, double x, double y, double height,
                     const heed_colours *colours, const char *measure);

#endif
