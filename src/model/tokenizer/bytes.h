/* Growing memory and UTF-8, as all parts of the tokenisers use them. */
#ifndef HEED_MODEL_TOKENIZER_BYTES_H
#define HEED_MODEL_TOKENIZER_BYTES_H

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

/* Bytes of the character that starts at `text`, with its code point; 0 when the bytes there are not UTF-8 (no
 * surrogates, nothing overlong, nothing above U+10FFFF), and then *bad says how many bytes belong to the
 * broken character: as many as could begin one, at least 1. */
int heed_utf8_read(const char *text, size_t size, int32_t *character, int *bad);

/* Where `wanted` stands first in `text`; NULL: nowhere. */
const char *heed_find(const char *text, size_t size, const char *wanted, size_t wanted_size);

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

/* U+FFFD and U+2581, the mark that stands for a space in SentencePiece vocabularies. */
#define HEED_REPLACEMENT "\xef\xbf\xbd"
#define HEED_SPACE_MARK "\xe2\x96\x81"

#endif
