#include "plot/cairo/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ELLIPSIS 0x2026

/* Families in the order they are asked; fontconfig gives another where one is not installed. */
static const char *const families[HEED_FONTS] = {
    "DejaVu Sans",        "Noto Sans",  "Noto Sans CJK SC", "WenQuanYi Micro Hei",
    "Noto Sans Symbols2", "Noto Emoji", "Symbola",          "Unifont"};

static cairo_scaled_font_t *open_font(const char *family, double size, bool bold)
{
    cairo_font_face_t *face = cairo_toy_font_face_create(
        family, CAIRO_FONT_SLANT_NORMAL, bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_font_options_t *options = cairo_font_options_create();
    cairo_matrix_t scale, identity;
    cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
    cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
    cairo_matrix_init_scale(&scale, size, size);
    cairo_matrix_init_identity(&identity);
    cairo_scaled_font_t *font = cairo_scaled_font_create(face, &scale, &identity, options);
    cairo_font_options_destroy(options);
    cairo_font_face_destroy(face);
    return font;
}

void heed_fonts_open(heed_fonts *fonts, double size, bool bold)
{
    cairo_font_extents_t extents;
    for (int i = 0; i < HEED_FONTS; i++)
        fonts->font[i] = open_font(families[i], size, bold);
    fonts->small = open_font(families[0], 0.62 * size, false);
    fonts->size = size;
    cairo_scaled_font_extents(fonts->font[0], &extents);
    fonts->ascent = extents.ascent;
    fonts->descent = extents.descent;
}

void heed_fonts_close(heed_fonts *fonts)
{
    for (int i = 0; i < HEED_FONTS; i++)
        cairo_scaled_font_destroy(fonts->font[i]);
    cairo_scaled_font_destroy(fonts->small);
}

static int encode(uint32_t code, char text[5])
{
    int length = 0;
    if (code < 0x80) {
        text[length++] = (char)code;
    } else if (code < 0x800) {
        text[length++] = (char)(0xc0 | code >> 6);
        text[length++] = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        text[length++] = (char)(0xe0 | code >> 12);
        text[length++] = (char)(0x80 | (code >> 6 & 63));
        text[length++] = (char)(0x80 | (code & 63));
    } else {
        text[length++] = (char)(0xf0 | code >> 18);
        text[length++] = (char)(0x80 | (code >> 12 & 63));
        text[length++] = (char)(0x80 | (code >> 6 & 63));
        text[length++] = (char)(0x80 | (code & 63));
    }
    text[length] = 0;
    return length;
}

/* The glyph of a character and how far it goes on; false when this font has none (its number is 0 then). */
static bool find_glyph(cairo_scaled_font_t *font, uint32_t code, unsigned long *glyph, double *advance)
{
    char text[5];
    cairo_glyph_t place, *glyphs = &place;
    cairo_text_extents_t extents;
    int count = 1;
    const int length = encode(code, text);
    if (cairo_scaled_font_text_to_glyphs(font, 0.0, 0.0, text, length, &glyphs, &count, NULL, NULL, NULL))
        return false;
    const bool found = count == 1 && glyphs->index != 0;
    if (found) {
        cairo_scaled_font_glyph_extents(font, glyphs, 1, &extents);
        *glyph = glyphs->index;
        *advance = extents.x_advance;
    }
    if (glyphs != &place)
        cairo_glyph_free(glyphs);
    return found;
}

static int find_font(const heed_fonts *fonts, uint32_t code, unsigned long *glyph, double *advance)
{
    for (int i = 0; i < HEED_FONTS; i++)
        if (find_glyph(fonts->font[i], code, glyph, advance))
            return i;
    return -1;
}

/* The number of a character that cannot be shown, "200B", or a byte that is no character, "xE4". */
static const char *box_digits(const heed_label_part *part, char digits[8])
{
    snprintf(digits, 8, part->byte ? "x%02X" : part->code < 0x100 ? "%02X" : "%04X", part->code & 0x1fffff);
    return digits;
}

static double box_width(const heed_fonts *fonts, const heed_label_part *part)
{
    char digits[8];
    cairo_text_extents_t extents;
    cairo_scaled_font_text_extents(fonts->small, box_digits(part, digits), &extents);
    return extents.x_advance + 0.5 * fonts->size;
}

static double draw_box(cairo_t *cairo, const heed_fonts *fonts, double x, double y,
                       const heed_label_part *part)
{
    char digits[8];
    const double width = box_width(fonts, part), side = 0.1 * fonts->size, height = 0.85 * fonts->size;
    cairo_set_line_width(cairo, 0.7);
    cairo_rectangle(cairo, x + side, y - 0.72 * fonts->size, width - 2.0 * side, height);
    cairo_stroke(cairo);
    cairo_set_scaled_font(cairo, fonts->small);
    cairo_move_to(cairo, x + 0.25 * fonts->size, y - 0.07 * fonts->size);
    cairo_show_text(cairo, box_digits(part, digits));
    return width;
}

static double part_width(const heed_fonts *fonts, const heed_label_part *part)
{
    unsigned long glyph;
    double advance;
    if (!part->box && find_font(fonts, part->code, &glyph, &advance) >= 0)
        return advance;
    return box_width(fonts, part);
}

static double draw_part(cairo_t *cairo, const heed_fonts *fonts, double x, double y,
                        const heed_label_part *part)
{
    unsigned long number;
    double advance;
    const int font = part->box ? -1 : find_font(fonts, part->code, &number, &advance);
    if (font < 0)
        return draw_box(cairo, fonts, x, y, part);
    const cairo_glyph_t glyph = {number, x, y};
    cairo_set_scaled_font(cairo, fonts->font[font]);
    cairo_show_glyphs(cairo, &glyph, 1);
    return advance;
}

double heed_label_width(const heed_fonts *fonts, const heed_label *label)
{
    double width = 0.0;
    for (int i = 0; i < label->count; i++)
        width += part_width(fonts, &label->part[i]);
    return width;
}

double heed_label_draw(cairo_t *cairo, const heed_fonts *fonts, double x, double y, const heed_label *label,
                       double most)
{
    static const heed_label_part ellipsis = {.code = ELLIPSIS};
    const bool fits = heed_label_width(fonts, label) <= most;
    const double room = fits ? HUGE_VAL : most - part_width(fonts, &ellipsis);
    double width = 0.0;
    int i = 0;
    for (; i < label->count; i++) {
        const double next = part_width(fonts, &label->part[i]);
        if (width + next > room)
            break;
        width += draw_part(cairo, fonts, x + width, y, &label->part[i]);
    }
    if (i < label->count)
        width += draw_part(cairo, fonts, x + width, y, &ellipsis);
    return width;
}

double heed_text_width(const heed_fonts *fonts, const char *text)
{
    heed_label label;
    heed_label_make(&label, text, strlen(text), ' ');
    return heed_label_width(fonts, &label);
}

double heed_text_draw(cairo_t *cairo, const heed_fonts *fonts, double x, double y, const char *text)
{
    heed_label label;
    heed_label_make(&label, text, strlen(text), ' ');
    return heed_label_draw(cairo, fonts, x, y, &label, HUGE_VAL);
}
