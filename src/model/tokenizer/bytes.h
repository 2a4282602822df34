/* Growing memory, as all parts of the tokenisers use them. */
#ifndef HEED_MODEL_TOKENIZER_BYTES_H
#define HEED_MODEL_TOKENIZER_BYTES_H

#include "base/utf8.h"
#include <heed/base.h>

/* Bytes that grow. Zero it first; free `data`. After a failure to get memory `failed` stays set and nothing
 * more is added, so that it need be looked at only once. */
typedef struct heed_bytes {
    char *data;
    size_t size, capacity;
    bool failed;
} heed_bytes;

bool heed_bytes_reserve(heed_bytes *bytes, size_t more);
void heed_bytes_add(heed_bytes *bytes, const void *data, size_t size);
void heed_bytes_add_text(heed_bytes *bytes, const char *text);
void heed_bytes_add_character(heed_bytes *bytes, int32_t character); /* as UTF-8 */

/* A piece of a text: `size` bytes from `start`. */
typedef struct heed_range {
    size_t start, size;
} heed_range;

typedef struct heed_ranges {
    heed_range *range;
    size_t count, capacity;
    bool failed;
} heed_ranges;

void heed_ranges_add(heed_ranges *ranges, size_t start, size_t end); /* nothing for an empty one */

/* Makes room for `count` entries of `size` bytes behind *memory, which holds *capacity; false when there is
 * none, and then all is as before. */
bool heed_grow(void **memory, size_t *capacity, size_t count, size_t size);

/* Where `wanted` stands first in `text`; NULL: nowhere. */
const char *heed_find(const char *text, size_t size, const char *wanted, size_t wanted_size);

/* U+2581, the mark that stands for a space in SentencePiece vocabularies. */
#define HEED_SPACE_MARK "\xe2\x96\x81"

#endif
