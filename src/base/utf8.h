/* Texts for formats that hold nothing but UTF-8. */
#ifndef HEED_BASE_UTF8_H
#define HEED_BASE_UTF8_H

#include <stddef.h>

/* A copy with U+FFFD for each byte that is no part of a character, and for zeros; freed by the caller. NULL
 * when there is no memory. */
char *heed_utf8_copy(const char *text, size_t size);

#endif
