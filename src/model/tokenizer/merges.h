/* Merges of a byte-pair vocabulary as files write them. */
#ifndef HEED_MODEL_TOKENIZER_MERGES_H
#define HEED_MODEL_TOKENIZER_MERGES_H

#include "model/tokenizer/parts.h"

/* The tables of the vocabulary are filled; the next merge, by the texts of its halves. */
heed_status heed_merges_make(heed_tokenizer *tokenizer, size_t count);
heed_status heed_merges_add(heed_tokenizer *tokenizer, int64_t rank, const char *left, size_t left_size,
                            const char *right, size_t right_size);
/* "left right" in one text. */
heed_status heed_merges_add_line(heed_tokenizer *tokenizer, int64_t rank, const char *line, size_t size);

#endif
