/* The public face of tokenisers. */
#include "base/try.h"
#include "model/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

void heed_tokens_free(heed_tokens *tokens)
{
    free(tokens->id);
    *tokens = (heed_tokens){0};
}

heed_status heed_tokens_add(heed_tokens *tokens, int32_t id)
{
    size_t capacity = (size_t)tokens->capacity;
    if (!heed_grow((void **)&tokens->id, &capacity, (size_t)tokens->count + 1, sizeof *tokens->id))
        return heed_fail(HEED_NO_MEMORY, "no memory for %lld tokens", (long long)tokens->count + 1);
    tokens->capacity = (int64_t)capacity;
    tokens->id[tokens->count++] = id;
    return HEED_OK;
}

static void free_set(heed_added_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        free(set->token[i].text);
    free(set->token);
    heed_trie_free(&set->trie);
}

void heed_tokenizer_free(heed_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    free(tokenizer->texts.data);
    free(tokenizer->piece);
    free(tokenizer->table.slot);
    free(tokenizer->others.slot);
    free(tokenizer->merges.slot);
    heed_trie_free(&tokenizer->trie);
    for (int i = 0; i < tokenizer->normals; i++) {
        heed_pattern_free(tokenizer->normal[i].pattern);
        free(tokenizer->normal[i].find);
        free(tokenizer->normal[i].content);
        free(tokenizer->normal[i].charsmap.data);
    }
    for (int i = 0; i < tokenizer->splits; i++) {
        heed_pattern_free(tokenizer->split[i].pattern);
        free(tokenizer->split[i].mark);
    }
    free_set(&tokenizer->raw);
    free_set(&tokenizer->normalized);
    free(tokenizer->continuing);
    free(tokenizer->chat_template);
    free(tokenizer);
}

/* Takes away the begin-token that would stand twice because it was typed too. */
static void drop_second_begin(const heed_tokenizer *tokenizer, heed_tokens *tokens, int64_t start,
                              int64_t text)
{
    if (text == start || tokens->count == text || tokenizer->special.bos < 0 ||
        tokens->id[start] != tokenizer->special.bos || tokens->id[text] != tokenizer->special.bos)
        return;
    memmove(tokens->id + text, tokens->id + text + 1,
            (size_t)(tokens->count - text - 1) * sizeof *tokens->id);
    tokens->count--;
}

static heed_status tokenize(const heed_tokenizer *tokenizer, const heed_source *source, unsigned flags,
                            heed_tokens *tokens)
{
    const int64_t start = tokens->count;
    for (int i = 0; (flags & HEED_ADD_SPECIAL) && i < tokenizer->befores; i++)
        TRY(heed_tokens_add(tokens, tokenizer->before[i]));
    const int64_t text = tokens->count;
    TRY(heed_encode(tokenizer, source, tokens));
    drop_second_begin(tokenizer, tokens, start, text);
    for (int i = 0; (flags & HEED_ADD_SPECIAL) && i < tokenizer->afters; i++)
        TRY(heed_tokens_add(tokens, tokenizer->after[i]));
    return HEED_OK;
}

heed_status heed_tokenize(const heed_tokenizer *tokenizer, const char *text, size_t size, unsigned flags,
                          heed_tokens *tokens)
{
    const int64_t before = tokens->count;
    const heed_source source = {text, size, NULL, (flags & HEED_PARSE_SPECIAL) != 0};
    const heed_status status = tokenize(tokenizer, &source, flags, tokens);
    if (status)
        tokens->count = before;
    return status;
}

int32_t heed_tokenizer_size(const heed_tokenizer *tokenizer)
{
    return (int32_t)tokenizer->pieces;
}

const char *heed_tokenizer_kind(const heed_tokenizer *tokenizer)
{
    return tokenizer->kind;
}

heed_special_tokens heed_tokenizer_special(const heed_tokenizer *tokenizer)
{
    return tokenizer->special;
}

bool heed_token_ends(const heed_tokenizer *tokenizer, int32_t id)
{
    for (int i = 0; i < tokenizer->ends; i++)
        if (tokenizer->end[i] == id)
            return true;
    return false;
}

static bool is_token(const heed_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && (size_t)id < tokenizer->pieces;
}

bool heed_token_is_control(const heed_tokenizer *tokenizer, int32_t id)
{
    return is_token(tokenizer, id) && (tokenizer->piece[id].flags & HEED_PIECE_CONTROL);
}

const char *heed_token_name(const heed_tokenizer *tokenizer, int32_t id)
{
    return is_token(tokenizer, id) ? heed_piece_text(tokenizer, id) : NULL;
}
