#include "plot/label.h"

#include <utf8proc.h>

#define DOTTED_CIRCLE 0x25cc
#define ELLIPSIS 0x2026
#define RETURN_SIGN 0x23ce
#define CARRIAGE_RETURN_SIGN 0x21e4 /* to the start of the line */
#define TAB_SIGN 0x21e5

static bool is_mark(uint32_t code)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME ||
           category == UTF8PROC_CATEGORY_MC;
}

/* Characters that show nothing of themselves. */
static bool is_invisible(uint32_t code)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return true;
    default: /* variation selectors */
        return (code >= 0xfe00 && code <= 0xfe0f) || (code >= 0xe0100 && code <= 0xe01ef);
    }
}

static bool is_right_to_left(const heed_label_part *part)
{
    if (part->box)
        return false;
    const int class = utf8proc_get_property((utf8proc_int32_t)part->code)->bidi_class;
    return class == UTF8PROC_BIDI_CLASS_R || class == UTF8PROC_BIDI_CLASS_AL;
}

static bool is_left_to_right(const heed_label_part *part)
{
    if (part->box)
        return true;
    const int class = utf8proc_get_property((utf8proc_int32_t)part->code)->bidi_class;
    return class == UTF8PROC_BIDI_CLASS_L || class == UTF8PROC_BIDI_CLASS_EN;
}

static heed_label_part part_of(uint32_t code, uint32_t space)
{
    switch (code) {
    case ' ':
        return (heed_label_part){.code = space};
    case '\n':
        return (heed_label_part){.code = RETURN_SIGN};
    case '\r':
        return (heed_label_part){.code = CARRIAGE_RETURN_SIGN};
    case '\t':
        return (heed_label_part){.code = TAB_SIGN};
    default:
        return (heed_label_part){.code = code, .box = is_invisible(code)};
    }
}

static void reverse(heed_label_part *part, int from, int to)
{
    for (to--; from < to; from++, to--) {
        const heed_label_part other = part[from];
        part[from] = part[to];
        part[to] = other;
    }
}

/* Turns a label round that has letters written from right to left: all of it, then marks behind their letters
 * again, and what is written from left to right within it. */
static void turn(heed_label *label)
{
    heed_label_part *part = label->part;
    bool any = false;
    for (int i = 0; i < label->count; i++)
        any = any || is_right_to_left(&part[i]);
    if (!any)
        return;
    reverse(part, 0, label->count);
    for (int i = 0; i < label->count;) {
        int end = i + 1;
        if (is_left_to_right(&part[i]))
            while (end < label->count && is_left_to_right(&part[end]))
                end++;
        else if (!part[i].box && is_mark(part[i].code))
            while (end < label->count && is_mark(part[end - 1].code))
                end++;
        reverse(part, i, end);
        i = end;
    }
}

void heed_label_make(heed_label *label, const char *text, size_t size, uint32_t space)
{
    const utf8proc_uint8_t *at = (const utf8proc_uint8_t *)text, *end = at + size;
    label->count = 0;
    while (at < end) {
        utf8proc_int32_t code;
        const utf8proc_ssize_t length = utf8proc_iterate(at, end - at, &code);
        if (label->count + 2 > HEED_LABEL_MOST) {
            label->part[HEED_LABEL_MOST - 1] = (heed_label_part){.code = ELLIPSIS};
            label->count = HEED_LABEL_MOST;
            break;
        }
        if (length <= 0) {
            label->part[label->count++] = (heed_label_part){.code = *at++, .box = true, .byte = true};
            continue;
        }
        if (label->count == 0 && is_mark((uint32_t)code))
            label->part[label->count++] = (heed_label_part){.code = DOTTED_CIRCLE};
        label->part[label->count++] = part_of((uint32_t)code, space);
        at += length;
    }
    turn(label);
}
