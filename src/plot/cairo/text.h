/* Text in pictures, with another font for characters that the first lacks, and boxes where none has them. */
#ifndef HEED_PLOT_TEXT_H
#define HEED_PLOT_TEXT_H

#include "plot/label.h"

#include <cairo.h>

enum { HEED_FONTS = 8 };

/* One size of type. */
typedef struct heed_fonts {
    cairo_scaled_font_t *font[HEED_FONTS];
    cairo_scaled_font_t *small; /* for the numbers in boxes */
    double size, ascent, descent;
} heed_fonts;

void heed_fonts_open(heed_fonts *fonts, double size, bool bold);
void heed_fonts_close(heed_fonts *fonts);

double heed_label_width(const heed_fonts *fonts, const heed_label *label);
/* Draws a label from x, y on its base line, in the colour that is set. What is wider than `most` ends in an
 * ellipsis. Returns its width. */
double heed_label_draw(cairo_t *cairo, const heed_fonts *fonts, double x, double y, const heed_label *label,
                       double most);

/* The same for text of our own. */
double heed_text_width(const heed_fonts *fonts, const char *text);
double heed_text_draw(cairo_t *cairo, const heed_fonts *fonts, double x, double y, const char *text);

#endif
