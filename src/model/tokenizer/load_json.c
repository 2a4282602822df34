/* A tokeniser from tokenizer.json, the format of the `tokenizers` library. */
#include "base/try.h"
#include "model/tokenizer/json.h"

#include <stdlib.h>
#include <string.h>

const cJSON *heed_json_get(const cJSON *object, const char *name)
{
    const cJSON *found = cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, name) : NULL;
    return found && !cJSON_IsNull(found) ? found : NULL;
}

const char *heed_json_text(const cJSON *object, const char *name)
{
    const cJSON *found = heed_json_get(object, name);
    return cJSON_IsString(found) ? found->valuestring : NULL;
}

bool heed_json_flag(const cJSON *object, const char *name, bool otherwise)
{
    const cJSON *found = heed_json_get(object, name);
    return cJSON_IsBool(found) ? cJSON_IsTrue(found) : otherwise;
}

const char *heed_json_type(const cJSON *object)
{
    const char *type = heed_json_text(object, "type");
    return type ? type : "";
}

/* The token goes into the vocabulary, or is marked there. */
static heed_status add_piece(heed_tokenizer *tokenizer, int64_t id, const char *text, bool special)
{
    const unsigned flags = HEED_PIECE_ADDED | (special ? HEED_PIECE_CONTROL : 0u);
    if (id < (int64_t)tokenizer->pieces && tokenizer->piece[id].text) {
        if (strcmp(heed_piece_text(tokenizer, (int32_t)id), text))
            return heed_fail(HEED_FORMAT,
                             "tokenizer.json has two tokens with the number %lld, '%.40s' and '%.40s'",
                             (long long)id, heed_piece_text(tokenizer, (int32_t)id), text);
        tokenizer->piece[id].flags |= (uint8_t)flags;
        return HEED_OK;
    }
    return heed_piece_set(tokenizer, id, text, strlen(text), flags, 0);
}

static heed_status read_added_pieces(heed_tokenizer *tokenizer, const cJSON *list)
{
    const cJSON *token;
    const double most = 2 * (double)tokenizer->pieces + 100000;
    cJSON_ArrayForEach(token, list)
    {
        const char *text = heed_json_text(token, "content");
        const cJSON *id = heed_json_get(token, "id");
        if (!text || !cJSON_IsNumber(id) || !(id->valuedouble >= 0 && id->valuedouble < most))
            return heed_fail(HEED_FORMAT,
                             "tokenizer.json has an added token without a content or a sensible number");
        TRY(add_piece(tokenizer, (int64_t)id->valuedouble, text, heed_json_flag(token, "special", false)));
    }
    return HEED_OK;
}

/* Tokens that are looked for in normalised texts are normalised themselves. */
static heed_status read_added_texts(heed_tokenizer *tokenizer, const cJSON *list)
{
    const cJSON *token;
    heed_bytes normal = {0};
    heed_status status = HEED_OK;
    cJSON_ArrayForEach(token, list)
    {
        const char *text = heed_json_text(token, "content");
        const heed_added_token added = {.id = (int32_t)heed_json_get(token, "id")->valuedouble,
                                        .special = heed_json_flag(token, "special", false),
                                        .left = heed_json_flag(token, "lstrip", false),
                                        .right = heed_json_flag(token, "rstrip", false),
                                        .word = heed_json_flag(token, "single_word", false)};
        const bool normalized = heed_json_flag(token, "normalized", !added.special);
        if (!heed_utf8_valid(text, strlen(text)))
            continue;
        if (normalized && !status)
            status = heed_normalize(tokenizer, text, strlen(text), &normal, NULL);
        if (!status)
            status = heed_added_add(normalized ? &tokenizer->normalized : &tokenizer->raw, added,
                                    normalized ? normal.data : text, normalized ? normal.size : strlen(text));
    }
    free(normal.data);
    return status;
}

static heed_status read(heed_tokenizer *tokenizer, const cJSON *root)
{
    const cJSON *model = heed_json_get(root, "model"), *added = heed_json_get(root, "added_tokens"), *part;
    tokenizer->decode = HEED_DECODE_PLAIN;
    if ((part = heed_json_get(root, "normalizer")))
        TRY(heed_json_normalizer(tokenizer, part));
    if ((part = heed_json_get(root, "pre_tokenizer")))
        TRY(heed_json_pre_tokenizer(tokenizer, part));
    TRY(heed_json_model(tokenizer, model));
    TRY(read_added_pieces(tokenizer, added));
    TRY(heed_vocabulary_finish(tokenizer));
    TRY(heed_json_merges(tokenizer, model));
    TRY(read_added_texts(tokenizer, added));
    if ((part = heed_json_get(root, "decoder")))
        TRY(heed_json_decoder(tokenizer, part));
    if ((part = heed_json_get(root, "post_processor")))
        TRY(heed_json_post_processor(tokenizer, part));
    return HEED_OK;
}

heed_status heed_tokenizer_read_json(heed_tokenizer *tokenizer, const char *json, size_t size)
{
    cJSON *root = cJSON_ParseWithLength(json, size);
    if (!cJSON_IsObject(root)) {
        cJSON_Delete(root);
        return heed_fail(HEED_FORMAT, "tokenizer.json is no JSON object");
    }
    const heed_status status = read(tokenizer, root);
    cJSON_Delete(root);
    return status;
}
