/* Any bytes as tokenizer.json and a text, a zero byte between them: the tokeniser is refused with a sentence,
 * or the text becomes tokens that can be written again, in whole characters. */
#include "model/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const char *json;
    size_t size;
} input;

static const char *text_of(void *context, const char *name, size_t *size)
{
    const input *given = context;
    const bool list = given->size && *given->json == '#'; /* '#': a vocab.txt */
    if (strcmp(name, list ? "vocab.txt" : "tokenizer.json"))
        return NULL;
    *size = given->size;
    return given->json;
}

static void write_all(const heed_tokenizer *tokenizer, const heed_tokens *tokens)
{
    heed_detokenizer stream = {.tokenizer = tokenizer, .control = true};
    for (int64_t i = 0; i <= tokens->count; i++) {
        char text[256];
        const int32_t id = i < tokens->count ? tokens->id[i] : -1;
        if (id >= heed_tokenizer_size(tokenizer) || (id < 0 && i < tokens->count))
            abort();
        const size_t length = heed_detokenize(&stream, id, text, sizeof text);
        if (length >=
            sizeof text) { /* a long piece: nothing was written, so that the stream is where it was */
            char *longer = malloc(length + 1);
            if (!longer || heed_detokenize(&stream, id, longer, length + 1) != length ||
                !heed_utf8_valid(longer, length))
                abort();
            free(longer);
        } else if (!heed_utf8_valid(text, length)) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    const size_t json_size = zero ? (size_t)(zero - data) : size;
    char *json = malloc(json_size + 1), *text = malloc(size - json_size + 1);
    heed_tokenizer *tokenizer;
    if (!json || !text)
        abort();
    memcpy(json, data, json_size);
    json[json_size] = 0;
    const size_t text_size = zero ? size - json_size - 1 : 0;
    memcpy(text, data + json_size + (zero ? 1 : 0), text_size);
    input given = {json, json_size};
    if (!heed_tokenizer_from_texts(&tokenizer, &(heed_tokenizer_texts){&given, text_of})) {
        for (unsigned flags = 0; flags < 4; flags++) {
            heed_tokens tokens = {0};
            if (!heed_tokenize(tokenizer, text, text_size, flags, &tokens))
                write_all(tokenizer, &tokens);
            heed_tokens_free(&tokens);
        }
        heed_tokenizer_free(tokenizer);
    }
    free(json);
    free(text);
    return 0;
}
