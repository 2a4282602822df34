/* Tokens to text. */
#include "model/tokenizer/parts.h"

#include <string.h>

/* Where the text of a token goes: whole characters to `text`, as far as there is room. */
typedef struct text_writer {
    heed_detokenizer state;
    char *text;
    size_t size, length;
    bool any; /* a byte has come from this token */
} text_writer;

static void put(text_writer *writer, const char *bytes, size_t size)
{
    if (writer->length + size < writer->size)
        memcpy(writer->text + writer->length, bytes, size);
    writer->length += size;
}

/* Writes out what is held as far as it can become no other character; `last`: nothing follows. */
static void flush(text_writer *writer, bool last)
{
    heed_detokenizer *state = &writer->state;
    if (state->raw) {
        put(writer, state->held, (size_t)state->helds);
        state->helds = 0;
    }
    while (state->helds) {
        int32_t character;
        int bad = 0;
        const int length = heed_utf8_read(state->held, (size_t)state->helds, &character, &bad);
        if (!length && !last && heed_utf8_is_beginning(state->held, (size_t)state->helds))
            return;
        put(writer, length ? state->held : HEED_REPLACEMENT, length ? (size_t)length : 3);
        const int done = length ? length : bad;
        memmove(state->held, state->held + done, (size_t)(state->helds - done));
        state->helds -= done;
    }
}

static void byte(text_writer *writer, char value)
{
    const heed_tokenizer *tokenizer = writer->state.tokenizer;
    const bool first = writer->state.tokens == 0 && !writer->any;
    writer->any = true;
    if (first && value == ' ' && tokenizer->drops_first_space)
        return;
    writer->state.held[writer->state.helds++] = value;
    flush(writer, false);
}

static void bytes(text_writer *writer, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        byte(writer, text[i]);
}

static void byte_level(text_writer *writer, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i += (size_t)heed_utf8_size(text[i]))
        if (heed_character_byte(heed_utf8_character(text + i)) < 0) {
            bytes(writer, text, size); /* not written in the alphabet of bytes */
            return;
        }
    for (size_t i = 0; i < size; i += (size_t)heed_utf8_size(text[i]))
        byte(writer, (char)heed_character_byte(heed_utf8_character(text + i)));
}

static void sentencepiece(text_writer *writer, const heed_piece *piece, const char *text)
{
    if (piece->flags & HEED_PIECE_BYTE) {
        byte(writer, (char)piece->byte);
        return;
    }
    for (size_t i = 0; i < piece->size;) {
        const bool mark = piece->size - i >= 3 && !memcmp(text + i, HEED_SPACE_MARK, 3);
        byte(writer, mark ? ' ' : text[i]);
        i += mark ? 3 : 1;
    }
}

static void wordpiece(text_writer *writer, const char *text, size_t size)
{
    const heed_tokenizer *tokenizer = writer->state.tokenizer;
    const size_t start = strlen(tokenizer->word_start), inner = strlen(tokenizer->word_inner);
    const bool starts = start ? size >= start && !memcmp(text, tokenizer->word_start, start)
                              : !(inner && size >= inner && !memcmp(text, tokenizer->word_inner, inner));
    const size_t skip = starts ? start : inner;
    if (starts && writer->state.tokens)
        byte(writer, ' ');
    if (!writer->state.tokens && !starts) { /* the first piece stays as it is */
        bytes(writer, text, size);
        return;
    }
    bytes(writer, text + skip, size - skip);
}

static void token(text_writer *writer, int32_t id)
{
    const heed_tokenizer *tokenizer = writer->state.tokenizer;
    const heed_piece *piece = &tokenizer->piece[id];
    const char *text = heed_piece_text(tokenizer, id);
    if ((piece->flags & HEED_PIECE_CONTROL) && !writer->state.control)
        return;
    if (tokenizer->decode == HEED_DECODE_WORDPIECE)
        wordpiece(writer, text, piece->size);
    else if (tokenizer->decode == HEED_DECODE_SENTENCEPIECE && !(piece->flags & HEED_PIECE_CONTROL))
        sentencepiece(writer, piece, text);
    else if (tokenizer->decode == HEED_DECODE_BYTE_LEVEL && !(piece->flags & HEED_PIECE_ADDED))
        byte_level(writer, text, piece->size);
    else
        bytes(writer, text, piece->size);
    writer->state.tokens++;
}

size_t heed_detokenize(heed_detokenizer *detokenizer, int32_t id, char *text, size_t size)
{
    text_writer writer = {.state = *detokenizer, .text = text, .size = size};
    if (id >= 0 && (size_t)id < detokenizer->tokenizer->pieces)
        token(&writer, id);
    else if (id < 0)
        flush(&writer, true);
    if (writer.length < size) {
        text[writer.length] = 0;
        *detokenizer = writer.state;
    } else if (size) {
        text[0] = 0;
    }
    return writer.length;
}
