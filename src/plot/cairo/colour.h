/* From weights to colours: white for none, dark blue for the largest. The colour follows the square root,
 * since most weights are small and a few are large. */
#ifndef HEED_PLOT_COLOUR_H
#define HEED_PLOT_COLOUR_H

#include "plot/cairo/text.h"

typedef struct heed_colour {
    double red, green, blue;
} heed_colour;

/* Share 0..1 of the largest value, after the square root. */
double heed_colour_share(double value, double most);
heed_colour heed_colour_of(double share);
bool heed_colour_is_dark(double share); /* text on it should be white */

enum { HEED_BAR_WIDTH = 90, HEED_BAR_LEAST = 120 }; /* pixels that a colour bar takes */

/* A bar with values, its top left corner at x, y. `measure` stands above it. */
void heed_colour_bar(cairo_t *cairo, const heed_fonts *fonts, double x, double y, double height, double most,
                     const char *measure);

#endif
