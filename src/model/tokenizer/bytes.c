#include "model/tokenizer/bytes.h"

#include <stdlib.h>
#include <string.h>

bool heed_grow(void **memory, size_t *capacity, size_t count, size_t size)
{
    if (count <= *capacity)
        return true;
    size_t wanted = *capacity < 16 ? 16 : *capacity + *capacity / 2;
    if (wanted < count)
        wanted = count;
    size_t bytes;
    if (__builtin_mul_overflow(wanted, size, &bytes))
        return false;
    void *larger = realloc(*memory, bytes);
    if (!larger)
        return false;
    *memory = larger;
    *capacity = wanted;
    return true;
}

bool heed_bytes_reserve(heed_bytes *bytes, size_t more)
{
    size_t wanted;
    if (bytes->failed || __builtin_add_overflow(bytes->size, more, &wanted) ||
        !heed_grow((void **)&bytes->data, &bytes->capacity, wanted, 1))
        bytes->failed = true;
    return !bytes->failed;
}

void heed_bytes_add(heed_bytes *bytes, const void *data, size_t size)
{
    if (!size || !heed_bytes_reserve(bytes, size))
        return;
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

void heed_bytes_add_text(heed_bytes *bytes, const char *text)
{
    heed_bytes_add(bytes, text, strlen(text));
}

void heed_bytes_add_character(heed_bytes *bytes, int32_t character)
{
    const uint32_t c = (uint32_t)character;
    char out[4];
    if (c < 0x80) {
        out[0] = (char)c;
        heed_bytes_add(bytes, out, 1);
    } else if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        heed_bytes_add(bytes, out, 2);
    } else if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        heed_bytes_add(bytes, out, 3);
    } else {
        out[0] = (char)(0xf0 | c >> 18);
        out[1] = (char)(0x80 | (c >> 12 & 0x3f));
        out[2] = (char)(0x80 | (c >> 6 & 0x3f));
        out[3] = (char)(0x80 | (c & 0x3f));
        heed_bytes_add(bytes, out, 4);
    }
}

void heed_ranges_add(heed_ranges *ranges, size_t start, size_t end)
{
    if (end <= start || ranges->failed)
        return;
    if (!heed_grow((void **)&ranges->range, &ranges->capacity, ranges->count + 1, sizeof *ranges->range)) {
        ranges->failed = true;
        return;
    }
    ranges->range[ranges->count++] = (heed_range){start, end - start};
}

const char *heed_find(const char *text, size_t size, const char *wanted, size_t wanted_size)
{
    const char *end = text + size;
    while (wanted_size && (size_t)(end - text) >= wanted_size) {
        const char *at = memchr(text, wanted[0], (size_t)(end - text) - wanted_size + 1);
        if (!at || !memcmp(at, wanted, wanted_size))
            return at;
        text = at + 1;
    }
    return NULL;
}
