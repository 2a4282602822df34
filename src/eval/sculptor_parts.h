/* A sculptor from the inside. */
#ifndef HEED_EVAL_SCULPTOR_PARTS_H
#define HEED_EVAL_SCULPTOR_PARTS_H

#include "eval/sculptor.h"

struct heed_sculptor {
    const heed_tokenizer *tokenizer;
    heed_session *session;
    heed_tokens tokens;
    char *text; /* as the tokens write it */
    heed_fragment *fragment;
    int fragments;
};

#endif
