/* Pieces of a vocabulary, and the tables that find them. */
#include "base/try.h"
#include "model/tokenizer/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PIECES = 1 << 24 };

static heed_status no_memory(void)
{
    return heed_fail(HEED_NO_MEMORY, "no memory for the tokeniser's vocabulary");
}

heed_status heed_piece_set(heed_tokenizer *tokenizer, int64_t id, const char *text, size_t size,
                           unsigned flags, double score)
{
    if (id < 0 || id >= MOST_PIECES)
        return heed_fail(HEED_FORMAT, "the tokeniser has a token with the number %lld; 0 to %d can be",
                         (long long)id, MOST_PIECES - 1);
    if (size > INT32_MAX)
        return heed_fail(HEED_FORMAT, "token %lld of the tokeniser has %zu bytes", (long long)id, size);
    if (isnan(score))
        return heed_fail(HEED_FORMAT, "the score of token %lld of the tokeniser is not a number",
                         (long long)id);
    const size_t place = (size_t)id;
    if (!heed_grow((void **)&tokenizer->piece, &tokenizer->pieces_capacity, place + 1,
                   sizeof *tokenizer->piece))
        return no_memory();
    while (tokenizer->pieces <= place) /* a gap: tokens without a text */
        tokenizer->piece[tokenizer->pieces++] = (heed_piece){.flags = HEED_PIECE_UNUSED};
    if (!tokenizer->texts.size)
        heed_bytes_add(&tokenizer->texts, "", 1);
    heed_piece *piece = &tokenizer->piece[place];
    *piece = (heed_piece){
        .text = tokenizer->texts.size, .size = (uint32_t)size, .flags = (uint8_t)flags, .score = score};
    heed_bytes_add(&tokenizer->texts, text, size);
    heed_bytes_add(&tokenizer->texts, "", 1);
    return tokenizer->texts.failed ? no_memory() : HEED_OK;
}

int32_t heed_token_find(const heed_tokenizer *tokenizer, const char *text, size_t size)
{
    const int32_t id = heed_text_table_find(&tokenizer->others, text, size);
    return id >= 0 ? id : heed_text_table_find(&tokenizer->table, text, size);
}

/* "<0x41>" */
static int byte_of_name(const char *text, size_t size)
{
    if (size != 6 || memcmp(text, "<0x", 3) || text[5] != '>')
        return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        const char digit = text[i];
        if (digit >= '0' && digit <= '9')
            value = value * 16 + digit - '0';
        else if (digit >= 'A' && digit <= 'F')
            value = value * 16 + digit - 'A' + 10;
        else
            return -1;
    }
    return value;
}

static void find_byte_tokens(heed_tokenizer *tokenizer)
{
    for (int byte = 0; byte < 256; byte++)
        tokenizer->byte_token[byte] = -1;
    if (tokenizer->decode == HEED_DECODE_BYTE_LEVEL) {
        for (int byte = 0; byte < 256; byte++) {
            heed_bytes name = {0};
            heed_bytes_add_character(&name, heed_byte_character((uint8_t)byte));
            if (!name.failed)
                tokenizer->byte_token[byte] = heed_text_table_find(&tokenizer->table, name.data, name.size);
            free(name.data);
        }
        return;
    }
    if (!tokenizer->byte_fallback)
        return;
    for (size_t i = 0; i < tokenizer->pieces; i++) {
        heed_piece *piece = &tokenizer->piece[i];
        const int byte = byte_of_name(heed_piece_text(tokenizer, (int32_t)i), piece->size);
        if (byte < 0 || !(piece->flags & (HEED_PIECE_BYTE | HEED_PIECE_MODEL)))
            continue;
        piece->flags |= HEED_PIECE_BYTE;
        piece->byte = (uint8_t)byte;
        tokenizer->byte_token[byte] = (int32_t)i;
    }
}

typedef struct scored {
    double score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b)
{
    const scored *first = a, *second = b;
    return first->score > second->score   ? -1
           : first->score < second->score ? 1
                                          : (first->id > second->id) - (first->id < second->id);
}

/* Better scores merge first; equal ones have equal rank, so that the place in the text decides. */
static heed_status rank_scores(heed_tokenizer *tokenizer)
{
    scored *order = malloc((tokenizer->pieces + 1) * sizeof *order);
    if (!order)
        return no_memory();
    for (size_t i = 0; i < tokenizer->pieces; i++)
        order[i] = (scored){tokenizer->piece[i].score, (int32_t)i};
    qsort(order, tokenizer->pieces, sizeof *order, by_score);
    for (size_t i = 0; i < tokenizer->pieces; i++)
        tokenizer->piece[order[i].id].rank =
            i && order[i].score == order[i - 1].score ? tokenizer->piece[order[i - 1].id].rank : (int32_t)i;
    free(order);
    return HEED_OK;
}

/* Which characters stand before a mark within a piece: only there can a merge reach across the beginning of a
 * word. */
static void find_joins(heed_tokenizer *tokenizer)
{
    for (size_t i = 0; i < tokenizer->pieces; i++) {
        const heed_piece *piece = &tokenizer->piece[i];
        const char *text = heed_piece_text(tokenizer, (int32_t)i);
        if (!(piece->flags & HEED_PIECE_MODEL))
            continue;
        for (size_t at = 1; at + 3 <= piece->size; at++)
            if (!memcmp(text + at, HEED_SPACE_MARK, 3) &&
                !(at >= 3 && !memcmp(text + at - 3, HEED_SPACE_MARK, 3)))
                tokenizer->joins_mark[text[at - 1] & 0x80 ? 128 : text[at - 1]] = true;
    }
}

/* A control token never comes out of a text by itself, even where the model could write it. */
static bool from_model(const heed_piece *piece)
{
    return (piece->flags & (HEED_PIECE_MODEL | HEED_PIECE_CONTROL)) == HEED_PIECE_MODEL;
}

static heed_status fill_trie(heed_tokenizer *tokenizer)
{
    if (!heed_trie_make(&tokenizer->trie))
        return no_memory();
    double least = 0, most = -INFINITY;
    bool any = false;
    for (size_t i = 0; i < tokenizer->pieces; i++) {
        const heed_piece *piece = &tokenizer->piece[i];
        if (!(piece->flags & HEED_PIECE_MODEL))
            continue;
        least = !any || piece->score < least ? piece->score : least;
        most = piece->score > most ? piece->score : most;
        any = true;
        if (from_model(piece) && !(piece->flags & HEED_PIECE_UNUSED) && piece->size &&
            !heed_trie_add(&tokenizer->trie, heed_piece_text(tokenizer, (int32_t)i), piece->size, (int32_t)i))
            return no_memory();
    }
    tokenizer->unknown_score = least - 10;
    tokenizer->most_score = any ? most : 0;
    return HEED_OK;
}

heed_status heed_vocabulary_finish(heed_tokenizer *tokenizer)
{
    if (!tokenizer->pieces)
        return heed_fail(HEED_FORMAT, "the tokeniser has no tokens");
    size_t model = 0;
    for (size_t i = 0; i < tokenizer->pieces; i++)
        model += from_model(&tokenizer->piece[i]);
    if (!heed_text_table_make(&tokenizer->table, model) ||
        !heed_text_table_make(&tokenizer->others, tokenizer->pieces - model))
        return no_memory();
    for (size_t i = 0; i < tokenizer->pieces; i++) {
        const heed_piece *piece = &tokenizer->piece[i];
        if (piece->text)
            heed_text_table_add(from_model(piece) ? &tokenizer->table : &tokenizer->others,
                                heed_piece_text(tokenizer, (int32_t)i), piece->size, (int32_t)i);
    }
    if (tokenizer->decode == HEED_DECODE_BYTE_LEVEL)
        for (size_t i = 0; i < tokenizer->pieces; i++)
            if (!heed_utf8_valid(heed_piece_text(tokenizer, (int32_t)i), tokenizer->piece[i].size))
                tokenizer->piece[i].flags |= HEED_PIECE_ADDED; /* not in the alphabet of bytes */
    find_byte_tokens(tokenizer);
    if (tokenizer->model == HEED_MODEL_SENTENCEPIECE) {
        find_joins(tokenizer);
        return rank_scores(tokenizer);
    }
    return tokenizer->model == HEED_MODEL_UNIGRAM ? fill_trie(tokenizer) : HEED_OK;
}

void heed_ends_find(heed_tokenizer *tokenizer)
{
    static const char *const names[] = {"<|eot_id|>",      "<|eom_id|>",        "<|im_end|>",      "<|end|>",
                                        "<end_of_turn>",   "<|endoftext|>",     "<|end_of_text|>", "<EOT>",
                                        "<|end_of_turn|>", "<end_of_utterance>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int32_t id = heed_token_find(tokenizer, names[i], strlen(names[i]));
        if (id >= 0 && (tokenizer->piece[id].flags & HEED_PIECE_ADDED))
            heed_ends_add(tokenizer, id);
    }
}

void heed_ends_add(heed_tokenizer *tokenizer, int32_t id)
{
    for (int i = 0; i < tokenizer->ends; i++)
        if (tokenizer->end[i] == id)
            return;
    if (id >= 0 && tokenizer->ends < (int)(sizeof tokenizer->end / sizeof *tokenizer->end))
        tokenizer->end[tokenizer->ends++] = id;
}

/* Printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards in their order (the alphabet of
 * GPT-2's tokeniser). */
static bool stands_for_itself(int c)
{
    return (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

int32_t heed_byte_character(uint8_t byte)
{
    if (stands_for_itself(byte))
        return byte;
    int before = 0;
    for (int other = 0; other < byte; other++)
        before += !stands_for_itself(other);
    return 0x100 + before;
}

int heed_character_byte(int32_t character)
{
    if (character >= 0 && character < 0x100)
        return stands_for_itself(character) ? character : -1;
    if (character < 0x100 || character >= 0x144)
        return -1;
    const int place = character - 0x100; /* bytes 0..20, 7f..a0 and ad */
    return place < 0x21 ? place : place < 0x43 ? place - 0x21 + 0x7f : 0xad;
}
