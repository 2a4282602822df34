#include "cli/json_text.h"

#include <string.h>

void cli_json_text(FILE *file, const char *text, size_t size)
{
    static const char names[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    putc('"', file);
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)text[i];
        const char *name = c ? strchr(names, c) : NULL;
        if (name)
            fprintf(file, "\\%c", letters[name - names]);
        else if (c < 0x20 || c == 0x7f)
            fprintf(file, "\\u%04x", c);
        else
            putc(c, file);
    }
    putc('"', file);
}
