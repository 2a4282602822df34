#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* What the first byte of a character says: its length, and the range of the second byte, which is narrower
 * than 80..BF where overlong forms, surrogates or too large numbers would follow. 0 for no first byte. */
static int first_byte(unsigned char byte, unsigned char *least, unsigned char *most)
{
    *least = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
    *most = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    return byte < 0x80 ? 1 : byte < 0xc2 ? 0 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : byte < 0xf5 ? 4 : 0;
}

/* Bytes from the start that are right so far, at most `length`. */
static int right_bytes(const unsigned char *at, size_t size, int length, unsigned char least,
                       unsigned char most)
{
    int right = 1;
    while (right < length && (size_t)right < size && at[right] >= (right == 1 ? least : 0x80) &&
           at[right] <= (right == 1 ? most : 0xbf))
        right++;
    return right;
}

int heed_utf8_read(const char *text, size_t size, int32_t *character, int *bad)
{
    const unsigned char *at = (const unsigned char *)text;
    unsigned char least, most;
    const int length = first_byte(at[0], &least, &most);
    const int right = length ? right_bytes(at, size, length, least, most) : 1;
    if (!length || right < length) {
        *bad = right;
        return 0;
    }
    *character = heed_utf8_character(text);
    return length;
}

bool heed_utf8_valid(const char *text, size_t size)
{
    for (size_t i = 0; i < size;) {
        int32_t character;
        int bad;
        const int length = heed_utf8_read(text + i, size - i, &character, &bad);
        if (!length)
            return false;
        i += (size_t)length;
    }
    return true;
}

bool heed_utf8_is_beginning(const char *text, size_t size)
{
    const unsigned char *at = (const unsigned char *)text;
    unsigned char least, most;
    const int length = size ? first_byte(at[0], &least, &most) : 0;
    return (size_t)length > size && right_bytes(at, size, length, least, most) == (int)size;
}

int32_t heed_utf8_character(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    switch (heed_utf8_size(*text)) {
    case 1:
        return at[0];
    case 2:
        return (at[0] & 0x1f) << 6 | (at[1] & 0x3f);
    case 3:
        return (at[0] & 0x0f) << 12 | (at[1] & 0x3f) << 6 | (at[2] & 0x3f);
    default:
        return (at[0] & 0x07) << 18 | (at[1] & 0x3f) << 12 | (at[2] & 0x3f) << 6 | (at[3] & 0x3f);
    }
}

char *heed_utf8_copy(const char *text, size_t size)
{
    char *copy = size < SIZE_MAX / 3 ? malloc(3 * size + 1) : NULL, *to = copy;
    for (size_t i = 0; copy && i < size;) {
        int32_t character;
        int bad;
        const int length = heed_utf8_read(text + i, size - i, &character, &bad);
        const bool kept = length && character;
        const size_t bytes = kept ? (size_t)length : strlen(HEED_REPLACEMENT);
        memcpy(to, kept ? text + i : HEED_REPLACEMENT, bytes);
        to += bytes;
        i += kept ? bytes : 1;
    }
    if (copy)
        *to = 0;
    return copy;
}
