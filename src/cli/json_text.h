/* Texts in JSON. */
#ifndef HEED_CLI_JSON_TEXT_H
#define HEED_CLI_JSON_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* The text in quotes; `text` is UTF-8 and may hold zeros. */
void cli_json_text(FILE *file, const char *text, size_t size);

#endif
