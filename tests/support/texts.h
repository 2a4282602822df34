/* Golden texts and ids of tests/golden/tokenizer, as make_tokenizers.py writes them. */
#ifndef HEED_TEST_TEXTS_H
#define HEED_TEST_TEXTS_H

#include <heed/tokenizer.h>

/* A tokeniser from a file of tests/golden/tokenizer, or from any path. */
heed_tokenizer *golden_tokenizer(const char *name);
heed_tokenizer *tokenizer_at(const char *path);

typedef struct test_texts {
    unsigned char *data;
    size_t size;
    const char **text;
    size_t *bytes;
    int count;
} test_texts;

test_texts read_texts(const char *name); /* "plain" */
void free_texts(test_texts *texts);

/* All texts become the golden ids: NAME.ids. Fails with the first text that differs, and both lists. */
void assert_golden_ids(const heed_tokenizer *tokenizer, const char *texts, const char *ids, unsigned flags);

/* The text of tokens, control tokens too, bytes as they are; *size bytes, freed by the caller. */
char *decoded(const heed_tokenizer *tokenizer, const int32_t *ids, int64_t count, bool raw, size_t *size);

/* Encoding and decoding gives the text back; `but` says which texts cannot come back, NULL: all do. Returns
 * how many were excused. */
int assert_round_trips(const heed_tokenizer *tokenizer, const char *texts,
                       bool (*but)(const heed_tokenizer *tokenizer, const char *text, size_t size));

/* The tokens of a text that ends with a zero; freed with heed_tokens_free. */
heed_tokens tokens_of(const heed_tokenizer *tokenizer, const char *text, unsigned flags);

#endif
