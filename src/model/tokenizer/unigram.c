/* Unigram: of all ways to cut a word into pieces, the one whose scores add up to most, found by Viterbi's
 * algorithm. A character that no piece is stands for the unknown token, whose score is 10 below the least.
 * Kudo: Subword Regularization, 2018.
 */
#include "base/try.h"
#include "model/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

/* The best way that ends at a byte. */
struct heed_viterbi_step {
    double score;
    int64_t start; /* where its last piece begins; -1: none ends here */
    int32_t id;    /* of that piece; -1: unknown */
};

static heed_status no_memory(void)
{
    return heed_fail(HEED_NO_MEMORY, "no memory to tokenise a text");
}

static double piece_score(const heed_tokenizer *tokenizer, int32_t id, size_t length)
{
    const heed_piece *piece = &tokenizer->piece[id];
    return piece->flags & HEED_PIECE_USER ? (double)length * tokenizer->most_score - 0.1 : piece->score;
}

static void offer(const heed_tokenizer *tokenizer, struct heed_viterbi_step *step, size_t start, size_t end,
                  int32_t id, double score)
{
    double total = step[start].score + score;
    if (tokenizer->single_floats)
        total = (float)total;
    if (step[end].start >= 0 && total <= step[end].score)
        return;
    step[end] = (struct heed_viterbi_step){total, (int64_t)start, id};
}

static void find_best(const heed_tokenizer *tokenizer, struct heed_viterbi_step *step, const char *text,
                      size_t size)
{
    for (size_t i = 0; i <= size; i++)
        step[i] = (struct heed_viterbi_step){.start = -1, .id = -1};
    for (size_t start = 0; start < size;) {
        const size_t one = (size_t)heed_utf8_size(text[start]);
        bool single = false;
        int32_t node = 0;
        for (size_t end = start; end < size;) {
            node = heed_trie_step(&tokenizer->trie, node, text[end++]);
            if (node < 0)
                break;
            const int32_t id = tokenizer->trie.id[node];
            if (id < 0)
                continue;
            offer(tokenizer, step, start, end, id, piece_score(tokenizer, id, end - start));
            single = single || end - start == one;
        }
        if (!single)
            offer(tokenizer, step, start, start + one, -1, tokenizer->unknown_score);
        start += one;
    }
}

/* Characters in a row that are unknown: their bytes where there are tokens for all, else one unknown token.
 */
static heed_status add_unknown(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text,
                               size_t size, heed_tokens *tokens)
{
    work->bytes.size = 0;
    for (size_t i = 0; i < size;) {
        const size_t length = (size_t)heed_utf8_size(text[i]);
        uint8_t byte;
        if (heed_raw_byte(work, text + i, &byte))
            heed_bytes_add(&work->bytes, &byte, 1);
        else
            heed_bytes_add(&work->bytes, text + i, length);
        i += length;
    }
    if (work->bytes.failed)
        return no_memory();
    bool complete = tokenizer->byte_fallback;
    for (size_t i = 0; i < work->bytes.size && complete; i++)
        complete = tokenizer->byte_token[(uint8_t)work->bytes.data[i]] >= 0;
    if (!complete && tokenizer->unknown < 0)
        return heed_fail(HEED_INVALID,
                         "the text has characters that the tokeniser does not know, and it has no "
                         "unknown token for them");
    if (!complete)
        return heed_tokens_add(tokens, tokenizer->unknown);
    for (size_t i = 0; i < work->bytes.size; i++)
        TRY(heed_tokens_add(tokens, tokenizer->byte_token[(uint8_t)work->bytes.data[i]]));
    return HEED_OK;
}

heed_status heed_unigram_word(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text,
                              size_t size, heed_tokens *tokens)
{
    if (!heed_grow((void **)&work->step, &work->steps_capacity, size + 1, sizeof *work->step) ||
        !heed_grow((void **)&work->path, &work->path_capacity, size + 1, sizeof *work->path))
        return no_memory();
    struct heed_viterbi_step *step = work->step;
    find_best(tokenizer, step, text, size);
    /* Back to the front: the ends of the pieces on the way. */
    size_t pieces = 0;
    for (size_t end = size; end > 0; end = (size_t)step[end].start)
        work->path[pieces++] = (int32_t)end;
    size_t start = 0;
    while (pieces) {
        size_t end = (size_t)work->path[--pieces];
        const int32_t id = step[end].id;
        while (id < 0 && tokenizer->fuse_unknown && pieces && step[work->path[pieces - 1]].id < 0)
            end = (size_t)work->path[--pieces];
        if (id >= 0)
            TRY(heed_tokens_add(tokens, id));
        else
            TRY(add_unknown(tokenizer, work, text + start, end - start, tokens));
        start = end;
    }
    return HEED_OK;
}
