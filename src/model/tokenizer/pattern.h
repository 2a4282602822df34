/* Regular expressions of tokenisers, in the dialect that their files are written in, matched by PCRE2. */
#ifndef HEED_MODEL_TOKENIZER_PATTERN_H
#define HEED_MODEL_TOKENIZER_PATTERN_H

#include "model/tokenizer/bytes.h"

typedef struct heed_pattern heed_pattern;

/* `literal`: the text itself, no expression. HEED_UNSUPPORTED names what cannot be read the same way. */
heed_status heed_pattern_make(heed_pattern **pattern, const char *text, size_t size, bool literal);
void heed_pattern_free(heed_pattern *pattern);

/* A search through one text. */
typedef struct heed_search {
    const heed_pattern *pattern;
    void *match; /* of PCRE2 */
    const char *text;
    size_t size, from;
} heed_search;

/* `text` is UTF-8. Starts a search; HEED_NO_MEMORY. */
heed_status heed_search_start(heed_search *search, const heed_pattern *pattern);
void heed_search_text(heed_search *search, const char *text, size_t size);
void heed_search_end(heed_search *search);

/* The next match, leftmost first, never overlapping the one before; *found is false at the end. A match may
 * be empty. HEED_UNSUPPORTED when the pattern needs more steps than are allowed. */
heed_status heed_search_next(heed_search *search, heed_range *match, bool *found);

/* Symbols that count as letters. */
#define HEED_CIRCLED_LETTERS                                                                                 \
    "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

/* ASCII's symbols and Unicode's punctuation. */
#define HEED_PUNCTUATION "[!-\\/:-@\\[-`{-~\\p{P}]"

#endif
