/* UTF-8. */
#ifndef HEED_BASE_UTF8_H
#define HEED_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEED_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Bytes of the character that starts at `text`, with its code point; 0 when the bytes there are not UTF-8 (no
 * surrogates, nothing overlong, nothing above U+10FFFF), and then *bad says how many bytes belong to the
 * broken character: as many as could begin one, at least 1. */
int heed_utf8_read(const char *text, size_t size, int32_t *character, int *bad);

bool heed_utf8_valid(const char *text, size_t size);

/* Whether the bytes could become a character if more followed. */
bool heed_utf8_is_beginning(const char *text, size_t size);

/* Bytes of a character of text that is known to be UTF-8, from its first byte. */
static inline int heed_utf8_size(char first)
{
    const unsigned char byte = (unsigned char)first;
    return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/* The code point of a character of text that is known to be UTF-8. */
int32_t heed_utf8_character(const char *text);

/* A copy with U+FFFD for each byte that is no part of a character, and for zeros; freed by the caller. NULL
 * when there is no memory. */
char *heed_utf8_copy(const char *text, size_t size);

#endif
