/* Any bytes as a spec: it is refused with a column, or its canonical text reads back and prints as the same
 * text. */
#include "attend/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Parses and prints; NULL when the text is refused. The caller frees. */
static char *canonical(const char *text)
{
    heed_spec *spec;
    if (heed_spec_parse(&spec, text, NULL)) {
        int column = 0;
        if (sscanf(heed_message(), "column %d: ", &column) != 1 || column < 1 ||
            (size_t)column > strlen(text) + 1)
            abort();
        return NULL;
    }
    const size_t length = heed_spec_print(spec, NULL, 0);
    char *printed = malloc(length + 1);
    if (!printed || heed_spec_print(spec, printed, length + 1) != length || strlen(printed) != length)
        abort();
    heed_spec_free(spec);
    return printed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    char *once = canonical(text);
    if (once) {
        char *twice = strlen(once) <= 65536 ? canonical(once) : strdup(once); /* a spec may be no longer */
        if (!twice || strcmp(once, twice))
            abort();
        free(twice);
    }
    free(once);
    free(text);
    return 0;
}
