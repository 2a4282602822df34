/* Byte-pair encoding: of all neighbours that may merge, those of the least rank do, the leftmost first, until
 * none may. Ranks come from a list of merges, or from the scores of what two pieces become (SentencePiece).
 */
#include "base/try.h"
#include "model/tokenizer/word.h"

#include <stdlib.h>
#include <string.h>

enum { FEW_SYMBOLS = 24 }; /* so few are looked through for the least rank; more stand in a heap */

static heed_status no_memory(void)
{
    return heed_fail(HEED_NO_MEMORY, "no memory to tokenise a text");
}

/* The merge of symbol i with the one behind it. */
static void look_up(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text, int32_t i)
{
    struct heed_symbol *symbol = &work->symbol[i];
    symbol->rank = INT32_MAX;
    if (symbol->behind < 0)
        return;
    const struct heed_symbol *next = &work->symbol[symbol->behind];
    if (tokenizer->model == HEED_MODEL_BPE) {
        const heed_merge *merge = heed_merge_table_find(&tokenizer->merges, symbol->id, next->id);
        if (merge) {
            symbol->rank = merge->rank;
            symbol->token = merge->token;
        }
        return;
    }
    const int32_t id =
        heed_text_table_find(&tokenizer->table, text + symbol->start, symbol->size + next->size);
    if (id >= 0) {
        symbol->rank = tokenizer->piece[id].rank;
        symbol->token = id;
    }
}

static void push(heed_word_work *work, int32_t i)
{
    if (work->symbol[i].rank == INT32_MAX)
        return;
    uint64_t *heap = work->heap;
    const uint64_t key = (uint64_t)(uint32_t)work->symbol[i].rank << 32 | (uint32_t)i;
    size_t place = work->heap_count++;
    while (place && heap[(place - 1) / 2] > key) {
        heap[place] = heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap[place] = key;
}

static uint64_t pop(heed_word_work *work)
{
    uint64_t *heap = work->heap;
    const uint64_t top = heap[0], last = heap[--work->heap_count];
    const size_t count = work->heap_count;
    size_t place = 0;
    for (size_t child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= last)
            break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = last;
    return top;
}

/* Symbol i takes the one behind it. */
static void merge(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text, int32_t i)
{
    struct heed_symbol *symbol = &work->symbol[i], *next = &work->symbol[symbol->behind];
    symbol->id = symbol->token;
    symbol->size += next->size;
    symbol->behind = next->behind;
    next->behind = -2;
    next->rank = INT32_MAX;
    if (symbol->behind >= 0)
        work->symbol[symbol->behind].before = i;
    look_up(tokenizer, work, text, i);
    if (symbol->before >= 0)
        look_up(tokenizer, work, text, symbol->before);
}

static void merge_few(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text)
{
    for (;;) {
        int32_t best = 0;
        for (int32_t i = 0; i >= 0; i = work->symbol[i].behind)
            if (work->symbol[i].rank < work->symbol[best].rank)
                best = i;
        if (work->symbol[best].rank == INT32_MAX)
            return;
        merge(tokenizer, work, text, best);
    }
}

/* A merge adds two entries and takes one away, so there are never more than twice the symbols. */
static heed_status merge_many(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text)
{
    if (!heed_grow((void **)&work->heap, &work->heap_capacity, 2 * work->symbols + 2, sizeof *work->heap))
        return no_memory();
    work->heap_count = 0;
    for (size_t i = 0; i < work->symbols; i++)
        push(work, (int32_t)i);
    while (work->heap_count) {
        const uint64_t top = pop(work);
        const int32_t i = (int32_t)(uint32_t)top;
        if (work->symbol[i].rank != (int32_t)(top >> 32)) /* what it stood for has merged otherwise */
            continue;
        merge(tokenizer, work, text, i);
        push(work, i);
        if (work->symbol[i].before >= 0)
            push(work, work->symbol[i].before);
    }
    return HEED_OK;
}

/* Bytes of a symbol that the vocabulary lacks. */
static heed_status add_unknown(const heed_tokenizer *tokenizer, const heed_word_work *work, const char *text,
                               const struct heed_symbol *symbol, heed_tokens *tokens, bool *unknown)
{
    bool complete = tokenizer->byte_fallback;
    uint8_t raw = 0;
    const bool carried =
        tokenizer->decode != HEED_DECODE_BYTE_LEVEL && heed_raw_byte(work, text + symbol->start, &raw);
    const uint8_t *byte = carried ? &raw : (const uint8_t *)text + symbol->start;
    const uint32_t size = carried ? 1 : symbol->size;
    for (uint32_t i = 0; i < size && complete; i++)
        complete = tokenizer->byte_token[byte[i]] >= 0;
    if (complete) {
        for (uint32_t i = 0; i < size; i++)
            TRY(heed_tokens_add(tokens, tokenizer->byte_token[byte[i]]));
        *unknown = false;
        return HEED_OK;
    }
    if (tokenizer->unknown >= 0 && !(*unknown && tokenizer->fuse_unknown))
        TRY(heed_tokens_add(tokens, tokenizer->unknown));
    *unknown = true;
    return HEED_OK;
}

static heed_status add_symbol(heed_word_work *work, int32_t id, size_t start, size_t size)
{
    if (work->symbols >= INT32_MAX / 2 || start > UINT32_MAX)
        return heed_fail(HEED_INVALID, "a text of more than %d characters cannot be tokenised",
                         INT32_MAX / 2);
    if (!heed_grow((void **)&work->symbol, &work->symbols_capacity, work->symbols + 1, sizeof *work->symbol))
        return no_memory();
    const int32_t i = (int32_t)work->symbols++;
    work->symbol[i] = (struct heed_symbol){
        .id = id, .before = i - 1, .behind = i + 1, .start = (uint32_t)start, .size = (uint32_t)size};
    return HEED_OK;
}

/* A symbol a byte, or a character. */
static heed_status first_symbols(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text,
                                 size_t size)
{
    work->symbols = 0;
    const bool bytes = tokenizer->decode == HEED_DECODE_BYTE_LEVEL;
    for (size_t i = 0; i < size;) {
        const size_t length = bytes ? 1 : (size_t)heed_utf8_size(text[i]);
        const int32_t id = bytes ? tokenizer->byte_token[(uint8_t)text[i]]
                                 : heed_text_table_find(&tokenizer->table, text + i, length);
        TRY(add_symbol(work, id, i, length));
        i += length;
    }
    if (work->symbols)
        work->symbol[work->symbols - 1].behind = -1;
    return HEED_OK;
}

static heed_status merged(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text,
                          size_t size, heed_tokens *tokens)
{
    TRY(first_symbols(tokenizer, work, text, size));
    if (!work->symbols)
        return HEED_OK;
    for (size_t i = 0; i < work->symbols; i++)
        look_up(tokenizer, work, text, (int32_t)i);
    if (work->symbols <= FEW_SYMBOLS)
        merge_few(tokenizer, work, text);
    else
        TRY(merge_many(tokenizer, work, text));
    bool unknown = false;
    for (int32_t i = 0; i >= 0; i = work->symbol[i].behind) {
        const struct heed_symbol *symbol = &work->symbol[i];
        if (symbol->id < 0) {
            TRY(add_unknown(tokenizer, work, text, symbol, tokens, &unknown));
        } else {
            TRY(heed_tokens_add(tokens, symbol->id));
            unknown = false;
        }
    }
    return HEED_OK;
}

/* The bytes of a word of a byte-level vocabulary, raw ones unpacked. */
static heed_status unpack(heed_word_work *work, const char **text, size_t *size)
{
    if (work->raw_block < 0)
        return HEED_OK;
    work->bytes.size = 0;
    for (size_t i = 0; i < *size;) {
        const size_t length = (size_t)heed_utf8_size((*text)[i]);
        uint8_t byte;
        if (heed_raw_byte(work, *text + i, &byte))
            heed_bytes_add(&work->bytes, &byte, 1);
        else
            heed_bytes_add(&work->bytes, *text + i, length);
        i += length;
    }
    if (work->bytes.failed)
        return no_memory();
    *text = work->bytes.data;
    *size = work->bytes.size;
    return HEED_OK;
}

/* The token that is the whole word; -1: none. */
static int32_t whole_word(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text,
                          size_t size)
{
    if (tokenizer->decode != HEED_DECODE_BYTE_LEVEL)
        return heed_text_table_find(&tokenizer->table, text, size);
    if (size > tokenizer->table.longest)
        return -1;
    work->mapped.size = 0;
    for (size_t i = 0; i < size; i++)
        heed_bytes_add_character(&work->mapped, heed_byte_character((uint8_t)text[i]));
    return work->mapped.failed
               ? -1
               : heed_text_table_find(&tokenizer->table, work->mapped.data, work->mapped.size);
}

/* Whether no merge can reach across the beginning of a word at text[i]. */
static bool breaks_at(const heed_tokenizer *tokenizer, const char *text, size_t i, size_t size)
{
    if (i + 3 > size || memcmp(text + i, HEED_SPACE_MARK, 3))
        return false;
    const char last = text[i - 1];
    return !(i >= 3 && !memcmp(text + i - 3, HEED_SPACE_MARK, 3)) &&
           !tokenizer->joins_mark[last & 0x80 ? 128 : last];
}

heed_status heed_bpe_word(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text,
                          size_t size, heed_tokens *tokens)
{
    if (tokenizer->model == HEED_MODEL_SENTENCEPIECE) {
        size_t start = 0;
        for (size_t i = 1; i < size; i++)
            if (breaks_at(tokenizer, text, i, size)) {
                TRY(merged(tokenizer, work, text + start, i - start, tokens));
                start = i;
            }
        return merged(tokenizer, work, text + start, size - start, tokens);
    }
    if (tokenizer->decode == HEED_DECODE_BYTE_LEVEL)
        TRY(unpack(work, &text, &size));
    const int32_t whole = tokenizer->ignore_merges ? whole_word(tokenizer, work, text, size) : -1;
    return whole >= 0 ? heed_tokens_add(tokens, whole) : merged(tokenizer, work, text, size, tokens);
}
