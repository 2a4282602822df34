#include "base/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

char *heed_utf8_copy(const char *text, size_t size)
{
    static const char replacement[] = "\xef\xbf\xbd";
    char *copy = size < SIZE_MAX / 3 ? malloc(3 * size + 1) : NULL, *to = copy;
    const utf8proc_uint8_t *from = (const utf8proc_uint8_t *)text, *end = from + size;
    while (copy && from < end) {
        utf8proc_int32_t code;
        const utf8proc_ssize_t length = utf8proc_iterate(from, end - from, &code);
        if (length > 0 && code != 0) {
            memcpy(to, from, (size_t)length);
            to += length;
            from += length;
        } else {
            memcpy(to, replacement, 3);
            to += 3;
            from++;
        }
    }
    if (copy)
        *to = 0;
    return copy;
}
