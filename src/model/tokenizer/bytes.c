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
