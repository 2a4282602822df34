/* SentencePiece's compiled normaliser: a double-array trie of the texts to replace, and their replacements,
 * each ending with a zero. The first four bytes are the size of the trie in bytes. A unit of the trie holds a
 * label in its low byte, bit 8 whether a text ends below it, bit 9 and bits 10..30 the offset to its
 * children; a value has the top bit set. https://github.com/s-yata/darts-clone
 */
#include "model/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

heed_status heed_charsmap_make(heed_charsmap *map, const void *data, size_t size)
{
    uint32_t bytes;
    if (size < 4)
        return heed_fail(HEED_FORMAT, "the tokeniser's compiled normaliser has %zu bytes", size);
    memcpy(&bytes, data, 4);
    if (bytes % 4 || bytes > size - 4 || !bytes)
        return heed_fail(HEED_FORMAT,
                         "the tokeniser's compiled normaliser says that its trie has %u bytes of %zu", bytes,
                         size - 4);
    map->data = malloc(size - 4 + 1);
    if (!map->data)
        return heed_fail(HEED_NO_MEMORY, "no memory for the tokeniser's normaliser");
    memcpy(map->data, (const char *)data + 4, size - 4);
    map->data[size - 4] = 0;
    map->unit = (const uint32_t *)(const void *)map->data;
    map->units = bytes / 4;
    map->texts = map->data + bytes;
    map->texts_size = size - 4 - bytes;
    return HEED_OK;
}

static uint32_t offset_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & 512) >> 6);
}

/* The longest text of the map at the start of `text`, with its replacement; 0: none. */
static size_t longest(const heed_charsmap *map, const char *text, size_t size, const char **replacement)
{
    size_t found = 0;
    size_t node = offset_of(map->unit[0]);
    for (size_t i = 0; i < size; i++) {
        const unsigned char byte = (unsigned char)text[i];
        node ^= byte;
        if (!byte || node >= map->units || (map->unit[node] & 0x800000ffu) != byte)
            break;
        const uint32_t unit = map->unit[node];
        node ^= offset_of(unit);
        if (!(unit >> 8 & 1) || node >= map->units)
            continue;
        const uint32_t value = map->unit[node] & 0x7fffffffu;
        const bool inside = i + 1 < size && (text[i + 1] & 0xc0) == 0x80; /* of a character */
        if (value < map->texts_size && !inside &&
            heed_utf8_valid(map->texts + value, strlen(map->texts + value))) {
            found = i + 1;
            *replacement = map->texts + value;
        }
    }
    return found;
}

heed_status heed_charsmap_apply(const heed_charsmap *map, const char *text, size_t size, heed_bytes *out)
{
    heed_bytes_reserve(out, size);
    for (size_t i = 0; i < size;) {
        const char *replacement = NULL;
        const size_t length = longest(map, text + i, size - i, &replacement);
        if (length) {
            heed_bytes_add_text(out, replacement);
            i += length;
        } else {
            const size_t one = (size_t)heed_utf8_size(text[i]);
            heed_bytes_add(out, text + i, one);
            i += one;
        }
    }
    return HEED_OK;
}
