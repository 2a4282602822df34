#include "cli/token_bytes.h"
#include "cli/language.h"
#include "model/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

/* A piece of a byte-level vocabulary writes each byte as a character, of one or two bytes of UTF-8. */
static char *byte_level(const char *text, size_t length, size_t *size)
{
    char *bytes = malloc(length + 1);
    *size = 0;
    for (size_t i = 0; bytes && i < length;) {
        const unsigned char lead = (unsigned char)text[i];
        const int32_t character = lead < 0x80 ? lead : (lead & 31) << 6 | (text[i + 1] & 63);
        bytes[(*size)++] = (char)heed_character_byte(character);
        i += lead < 0x80 ? 1 : 2;
    }
    return bytes;
}

char *cli_token_bytes(const heed_tokenizer *tokenizer, int32_t id, size_t *size)
{
    const heed_piece *piece = &tokenizer->piece[id];
    char *text = cli_token_text(tokenizer, id);
    *size = text ? strlen(text) : 0;
    if (!text || !strstr(text, "\xef\xbf\xbd")) /* the text of a part of a character */
        return text;
    if (piece->flags & HEED_PIECE_BYTE) {
        text[0] = (char)piece->byte;
        *size = 1;
        return text;
    }
    if (tokenizer->decode != HEED_DECODE_BYTE_LEVEL || piece->flags & HEED_PIECE_ADDED)
        return text;
    free(text);
    return byte_level(heed_piece_text(tokenizer, id), piece->size, size);
}
