/* WordPiece: from the left, the longest piece that is in the vocabulary; a word that cannot be written so is
 * unknown as a whole. Schuster, Nakajima: Japanese and Korean Voice Search, 2012.
 */
#include "base/try.h"
#include "model/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

/* The longest piece at text[start], with its end. */
static int32_t longest(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text, size_t start,
                       size_t size, size_t *end)
{
    const char *front = start ? tokenizer->word_inner : tokenizer->word_start;
    const size_t before = strlen(front);
    size_t most = tokenizer->table.longest > before ? tokenizer->table.longest - before : 0;
    if (most > size - start)
        most = size - start;
    /* A piece that is written with the mark of beginnings begins a word; within one, the mark is only itself.
     */
    const size_t mark = strlen(tokenizer->word_start);
    if (start && mark && most > mark && !memcmp(text + start, tokenizer->word_start, mark))
        most = mark;
    work->bytes.size = 0;
    heed_bytes_add(&work->bytes, front, before);
    heed_bytes_add(&work->bytes, text + start, most);
    for (size_t length = most; length > 0 && !work->bytes.failed; length--) {
        if (start + length < size && (text[start + length] & 0xc0) == 0x80)
            continue; /* within a character */
        const int32_t id = heed_text_table_find(&tokenizer->table, work->bytes.data, before + length);
        if (id >= 0) {
            *end = start + length;
            return id;
        }
    }
    return -1;
}

heed_status heed_wordpiece_word(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text,
                                size_t size, heed_tokens *tokens)
{
    int64_t characters = 0;
    for (size_t i = 0; i < size; i++)
        characters += (text[i] & 0xc0) != 0x80;
    const int64_t before = tokens->count;
    bool known = characters <= tokenizer->word_characters;
    for (size_t start = 0; known && start < size;) {
        size_t end = start;
        const int32_t id = longest(tokenizer, work, text, start, size, &end);
        if (work->bytes.failed)
            return heed_fail(HEED_NO_MEMORY, "no memory to tokenise a text");
        known = id >= 0;
        if (known)
            TRY(heed_tokens_add(tokens, id));
        start = end;
    }
    if (known)
        return HEED_OK;
    tokens->count = before;
    return heed_tokens_add(tokens, tokenizer->unknown);
}
