/* The bytes of tokens, for pictures that show parts of characters. */
#ifndef HEED_CLI_TOKEN_BYTES_H
#define HEED_CLI_TOKEN_BYTES_H

#include <heed/tokenizer.h>

/* What a token stands for, which may be a part of a character; freed with free(), no zero behind it. NULL
 * without memory. */
char *cli_token_bytes(const heed_tokenizer *tokenizer, int32_t id, size_t *size);

#endif
