/* A learnt vocabulary as tokenizer.json. */
#include "base/output.h"
#include "base/try.h"
#include "model/tokenizer/learn.h"
#include "model/tokenizer/parts.h"

#include <heed/tokenizer.h>

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

/* A token's bytes as characters; false: no memory. */
static bool add_letters(heed_bytes *out, const heed_learnt_token *token, const int32_t letter[256])
{
    for (size_t i = 0; i < token->size; i++)
        heed_bytes_add_character(out, letter[(unsigned char)token->text[i]]);
    return !out->failed;
}

/* In the order of their numbers; false: no memory. */
static bool add_tokens(const heed_learnt_vocabulary *v, cJSON *model)
{
    cJSON *vocabulary = cJSON_AddObjectToObject(model, "vocab");
    cJSON *merges = cJSON_AddArrayToObject(model, "merges");
    heed_bytes text = {0};
    int32_t letter[256];
    bool done = vocabulary && merges;
    for (int byte = 0; byte < 256; byte++)
        letter[byte] = heed_byte_character((uint8_t)byte);
    for (int32_t id = 0; done && id < v->tokens; id++) {
        const heed_learnt_token *token = &v->token[id];
        text.size = 0;
        if (id)
            add_letters(&text, token, letter);
        else
            heed_bytes_add(&text, token->text, token->size);
        heed_bytes_add(&text, "", 1);
        done = !text.failed && cJSON_AddNumberToObject(vocabulary, text.data, id);
        if (!done || token->left < 0)
            continue;
        text.size = 0;
        add_letters(&text, &v->token[token->left], letter);
        heed_bytes_add(&text, " ", 1);
        add_letters(&text, &v->token[token->right], letter);
        heed_bytes_add(&text, "", 1);
        done = !text.failed && cJSON_AddItemToArray(merges, cJSON_CreateString(text.data));
    }
    free(text.data);
    return done;
}

/* All but vocabulary and merges. */
static const char frame[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":0,\"content\":\"<|"
    "endoftext|>\","
    "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}],"
    "\"normalizer\":null,"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_"
    "regex\":true},"
    "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":"
    "true,"
    "\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
    "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":"
    "false,"
    "\"ignore_merges\":false}}";

heed_status heed_vocabulary_write(const heed_learnt_vocabulary *vocabulary, const char *path)
{
    cJSON *root = cJSON_Parse(frame);
    const bool whole = root && add_tokens(vocabulary, cJSON_GetObjectItem(root, "model"));
    char *text = whole ? cJSON_Print(root) : NULL;
    heed_output output = {.descriptor = -1};
    cJSON_Delete(root);
    if (!text)
        return heed_fail(HEED_NO_MEMORY, "%s: no memory to write it", path);
    heed_status status = heed_output_open(&output, path);
    if (!status)
        status = heed_output_write(&output, text, strlen(text));
    if (!status)
        status = heed_output_write(&output, "\n", 1);
    free(text);
    return heed_output_close(&output, status);
}

heed_status heed_tokenizer_learn(const heed_text *text, int texts, int32_t tokens, const char *path,
                                 heed_tokenizer_learnt *learnt)
{
    heed_word_counts counts = {.total = 0};
    heed_learnt_vocabulary vocabulary = {.tokens = 0};
    heed_status status = HEED_OK;
    int64_t bytes = 0;
    if (tokens < HEED_LEARN_LEAST || tokens > 1 << 24)
        return heed_fail(
            HEED_INVALID,
            "a vocabulary of %d tokens: from %d (the bytes and the end of a text) to %d can be learnt",
            tokens, HEED_LEARN_LEAST, 1 << 24);
    for (int i = 0; i < texts && !status; i++) {
        status = heed_words_count(&counts, text[i].data, text[i].size);
        bytes += (int64_t)text[i].size;
    }
    if (!status && !counts.words)
        status = heed_fail(HEED_INVALID, "the texts to learn a vocabulary from are empty");
    if (!status)
        status = heed_vocabulary_learn(&vocabulary, &counts, tokens);
    if (!status)
        status = heed_vocabulary_write(&vocabulary, path);
    *learnt = (heed_tokenizer_learnt){bytes, counts.total, (int64_t)counts.words, vocabulary.length,
                                      vocabulary.tokens};
    heed_vocabulary_free(&vocabulary);
    heed_words_free(&counts);
    return status;
}
