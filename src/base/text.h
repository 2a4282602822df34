/* Texts that end with 0. */
#ifndef HEED_BASE_TEXT_H
#define HEED_BASE_TEXT_H

#include <stdbool.h>
#include <string.h>

static inline bool heed_ends_with(const char *text, const char *ending)
{
    const size_t length = strlen(text), end = strlen(ending);
    return length >= end && !strcmp(text + length - end, ending);
}

#endif
