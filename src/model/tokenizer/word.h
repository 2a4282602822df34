/* Symbols of a word while they merge. */
#ifndef HEED_MODEL_TOKENIZER_WORD_H
#define HEED_MODEL_TOKENIZER_WORD_H

#include "model/tokenizer/parts.h"

struct heed_symbol {
    int32_t id;             /* -1: none of the vocabulary */
    int32_t before, behind; /* symbols, -1 at the ends; `behind` of a symbol that was merged away is -2 */
    uint32_t start, size;   /* in the text of the word */
    int32_t rank, token;    /* of the merge with the symbol behind; rank INT32_MAX when there is none */
};

#endif
