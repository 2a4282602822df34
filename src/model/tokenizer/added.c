/* Added tokens: texts that are one token wherever they stand, looked for before a model sees the text. The
 * leftmost match counts, of those the longest.
 */
#include "base/try.h"
#include "model/tokenizer/parts.h"
#include "model/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

heed_status heed_added_add(heed_added_set *set, heed_added_token token, const char *text, size_t size)
{
    if (!size || !heed_utf8_valid(text, size)) /* such a text cannot stand in a text of whole characters */
        return HEED_OK;
    if (!set->trie.slot && !heed_trie_make(&set->trie))
        return heed_fail(HEED_NO_MEMORY, "no memory for the tokeniser's added tokens");
    if (!heed_grow((void **)&set->token, &set->capacity, set->count + 1, sizeof *set->token) ||
        !(token.text = malloc(size)))
        return heed_fail(HEED_NO_MEMORY, "no memory for the tokeniser's added tokens");
    memcpy(token.text, text, size);
    token.size = size;
    set->token[set->count] = token;
    if (!heed_trie_add(&set->trie, text, size, (int32_t)set->count++))
        return heed_fail(HEED_NO_MEMORY, "no memory for the tokeniser's added tokens");
    return HEED_OK;
}

static size_t character_before(const char *text, size_t at)
{
    do
        at--;
    while (at && (text[at] & 0xc0) == 0x80);
    return at;
}

static bool word_ends_before(const char *text, size_t at)
{
    return at && heed_is_word(heed_utf8_character(text + character_before(text, at)));
}

static bool word_begins_at(const heed_source *source, size_t at)
{
    return at < source->size && heed_is_word(heed_utf8_character(source->text + at));
}

static bool may_stand(const heed_added_token *token, const heed_source *source, size_t start, size_t end)
{
    if (token->special && !source->special)
        return false;
    if (token->special && source->user && memchr(source->user + start, 1, end - start))
        return false;
    return !token->word || (!word_ends_before(source->text, start) && !word_begins_at(source, end));
}

/* The longest token at `start` that may stand there. */
static const heed_added_token *longest(const heed_added_set *set, const heed_source *source, size_t start)
{
    const heed_added_token *best = NULL;
    int32_t node = 0;
    for (size_t end = start; end < source->size;) {
        node = heed_trie_step(&set->trie, node, source->text[end++]);
        if (node < 0)
            break;
        const int32_t token = set->trie.id[node];
        if (token >= 0 && may_stand(&set->token[token], source, start, end))
            best = &set->token[token];
    }
    return best;
}

bool heed_added_next(const heed_added_set *set, const heed_source *source, size_t from, heed_range *range,
                     int32_t *id)
{
    if (!set->count)
        return false;
    for (size_t start = from; start < source->size; start++) {
        if (set->trie.first[(unsigned char)source->text[start]] < 0)
            continue;
        const heed_added_token *token = longest(set, source, start);
        if (!token)
            continue;
        size_t begin = start, end = start + token->size;
        while (token->left && begin > from) {
            const size_t before = character_before(source->text, begin);
            if (before < from || !heed_is_space(heed_utf8_character(source->text + before)))
                break;
            begin = before;
        }
        while (token->right && end < source->size && heed_is_space(heed_utf8_character(source->text + end)))
            end += (size_t)heed_utf8_size(source->text[end]);
        *range = (heed_range){begin, end - begin};
        *id = token->id;
        return true;
    }
    return false;
}
