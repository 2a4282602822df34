/* A book in the public domain, for filling contexts and for perplexity: Lewis Carroll, Alice's Adventures in
 * Wonderland (1865), one paragraph a line. */
#ifndef HEED_EVAL_BOOK_H
#define HEED_EVAL_BOOK_H

#include <stddef.h>

/* ASCII; not ended by 0. */
const char *heed_book(size_t *size);

#endif
