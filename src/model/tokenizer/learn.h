/* Learning a byte-level BPE vocabulary from texts: words are counted, and the neighbours that stand together
 * most often become one token, again and again (Sennrich, Haddow, Birch 2016; on bytes: Radford et al. 2019).
 */
#ifndef HEED_MODEL_TOKENIZER_LEARN_H
#define HEED_MODEL_TOKENIZER_LEARN_H

#include "model/tokenizer/bytes.h"

/* Different words in the order in which they first came, and how often each did. */
typedef struct heed_word_counts {
    heed_bytes texts; /* of all words, one behind the other */
    struct heed_counted_word {
        size_t start;
        uint32_t size;
        int64_t count;
    } * word;
    size_t words, capacity;
    uint32_t *slot; /* word + 1 by the hash of its text; 0: free */
    size_t slots;   /* a power of two */
    int64_t total;
} heed_word_counts;

/* Splits a text as GPT-2 does and counts its words. It must be UTF-8: HEED_INVALID names the first byte that
 * is none. */
heed_status heed_words_count(heed_word_counts *counts, const char *text, size_t size);
void heed_words_free(heed_word_counts *counts);

/* Tokens 0 .. tokens - 1: the end of a text, the 256 bytes in the order of their characters, then what
 * merged. */
typedef struct heed_learnt_token {
    char *text; /* owned; the bytes themselves */
    size_t size;
    int32_t left, right; /* what it merged from; -1: it is a byte */
} heed_learnt_token;

typedef struct heed_learnt_vocabulary {
    heed_learnt_token *token; /* [0] is "<|endoftext|>" */
    int32_t tokens;
    int64_t length; /* of all words together, in tokens */
} heed_learnt_vocabulary;

enum { HEED_LEARN_LEAST = 257 }; /* bytes, and the end of a text */

/* At most `most` tokens; fewer when no two neighbours are there twice. Of pairs that are as frequent the one
 * of the smaller token is taken. */
heed_status heed_vocabulary_learn(heed_learnt_vocabulary *vocabulary, const heed_word_counts *counts,
                                  int32_t most);
void heed_vocabulary_free(heed_learnt_vocabulary *vocabulary);

/* As tokenizer.json. */
heed_status heed_vocabulary_write(const heed_learnt_vocabulary *vocabulary, const char *path);

#endif
