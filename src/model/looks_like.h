/* What a file that is not what it claims to be looks like. */
#ifndef HEED_MODEL_LOOKS_LIKE_H
#define HEED_MODEL_LOOKS_LIKE_H

#include <stddef.h>

#define HEED_LOOKS_LIKE_BYTES 64 /* from the start of the file, so many are enough */

/* "a web page", "a zip archive, ...", ...; NULL when it looks like nothing known. */
const char *heed_looks_like(const unsigned char *start, size_t size);

#endif
