/* The words of a spec, and how errors speak of them. */
#include "attend/spec_reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Bytes of the UTF-8 character at text, of at most `length` bytes; 0 when it is none. */
static int utf8_bytes(const char *text, int length)
{
    const unsigned char lead = (unsigned char)text[0];
    const int bytes = lead < 0x80   ? 1
                      : lead < 0xc2 ? 0
                      : lead < 0xe0 ? 2
                      : lead < 0xf0 ? 3
                      : lead < 0xf5 ? 4
                                    : 0;
    if (bytes > length)
        return 0;
    for (int i = 1; i < bytes; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
    return bytes;
}

static const char *after_digits(const char *text)
{
    while (is_digit(*text))
        text++;
    return text;
}

/* Takes in everything that could be meant as one number; it is one if it is all of
 * digits[.digits][e[+-]digits]. */
static heed_word number_at(const char *text)
{
    const char *whole = after_digits(text);
    const char *fraction = *whole == '.' ? after_digits(whole + 1) : whole;
    const char *end = fraction;
    if (*end == 'e' || *end == 'E') {
        const char *exponent = end[1] == '+' || end[1] == '-' ? end + 2 : end + 1;
        if (is_digit(*exponent))
            end = after_digits(exponent);
    }
    const char *tail = end;
    while (is_letter(*tail) || is_digit(*tail) || *tail == '.')
        tail++;
    return (heed_word){tail == end ? HEED_WORD_NUMBER : HEED_WORD_STRANGE, text, (int)(tail - text)};
}

static heed_word word_at(const char *text)
{
    while (is_space(*text))
        text++;
    if (!*text)
        return (heed_word){HEED_WORD_END, text, 0};
    if (is_letter(*text)) {
        const char *end = text;
        while (is_letter(*end) || is_digit(*end))
            end++;
        return (heed_word){HEED_WORD_NAME, text, (int)(end - text)};
    }
    if (is_digit(*text) || (*text == '.' && is_digit(text[1])))
        return number_at(text);
    if (strchr("=;:,()&|!>+-", *text))
        return (heed_word){HEED_WORD_MARK, text, 1};
    const int bytes = utf8_bytes(text, (int)strnlen(text, 4));
    return (heed_word){HEED_WORD_STRANGE, text, bytes ? bytes : 1};
}

void heed_reader_start(heed_reader *reader, const char *text)
{
    reader->text = text;
    reader->behind = text;
    reader->now = word_at(text);
}

void heed_reader_next(heed_reader *reader)
{
    reader->behind = reader->now.text + reader->now.length;
    reader->now = word_at(reader->behind);
}

heed_word heed_reader_peek(const heed_reader *reader)
{
    return word_at(reader->now.text + reader->now.length);
}

bool heed_word_is(heed_word word, const char *name)
{
    return strlen(name) == (size_t)word.length && !memcmp(word.text, name, (size_t)word.length);
}

bool heed_word_is_mark(heed_word word, const char *marks)
{
    return word.kind == HEED_WORD_MARK && strchr(marks, *word.text);
}

int heed_reader_column(const heed_reader *reader, const char *at)
{
    return reader->fixed_column ? reader->fixed_column : (int)(at - reader->text) + 1;
}

heed_quote heed_quoted(const char *text, int length)
{
    heed_quote quote;
    const int room = (int)sizeof quote.text - (int)sizeof "...";
    int out = 0;
    for (int i = 0; i < length;) {
        const int bytes = utf8_bytes(text + i, length - i);
        char piece[5] = {0};
        if (bytes == 1 && is_space(text[i]))
            piece[0] = ' ';
        else if (bytes == 0 || (bytes == 1 && (text[i] < ' ' || text[i] == 0x7f)))
            snprintf(piece, sizeof piece, "\\x%02x", (unsigned char)text[i]);
        else
            memcpy(piece, text + i, (size_t)bytes);
        const int width = (int)strlen(piece);
        if (out + width > room) {
            memcpy(quote.text + out, "...", 3);
            out += 3;
            break;
        }
        memcpy(quote.text + out, piece, (size_t)width);
        out += width;
        i += bytes ? bytes : 1;
    }
    quote.text[out] = 0;
    return quote;
}

heed_quote heed_quoted_word(heed_word word)
{
    return heed_quoted(word.text, word.length);
}

heed_status heed_reader_fail(const heed_reader *reader, const char *at, const char *format, ...)
{
    char sentence[960];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return heed_fail(HEED_INVALID, "column %d: %s", heed_reader_column(reader, at), sentence);
}

heed_status heed_reader_expected(const heed_reader *reader, const char *format, ...)
{
    char what[240];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);

    const heed_word word = reader->now;
    const heed_quote quote = heed_quoted_word(word);
    if (word.kind == HEED_WORD_END)
        return heed_reader_fail(reader, word.text, "expected %s, but the text ends", what);
    if (word.kind == HEED_WORD_STRANGE && (is_digit(*word.text) || *word.text == '.'))
        return heed_reader_fail(reader, word.text, "'%s' is no number", quote.text);
    return heed_reader_fail(reader, word.text, "expected %s, found '%s'", what, quote.text);
}
