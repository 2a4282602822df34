/* The model of tokenizer.json: vocabulary and merges. */
#include "base/try.h"
#include "model/tokenizer/json.h"
#include "model/tokenizer/merges.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* {"text": id, ...} */
static heed_status read_map(heed_tokenizer *tokenizer, const cJSON *vocabulary)
{
    const cJSON *entry;
    int64_t entries = 0;
    if (!cJSON_IsObject(vocabulary))
        return heed_fail(HEED_FORMAT, "tokenizer.json has no vocabulary");
    cJSON_ArrayForEach(entry, vocabulary) entries++;
    cJSON_ArrayForEach(entry, vocabulary)
    {
        const double id = entry->valuedouble;
        if (!cJSON_IsNumber(entry) || !(id >= 0 && id < 2 * (double)entries + 100000) ||
            id != (double)(int64_t)id)
            return heed_fail(HEED_FORMAT,
                             "token '%.60s' of tokenizer.json has the number %g among %lld tokens",
                             entry->string, id, (long long)entries);
        TRY(heed_piece_set(tokenizer, (int64_t)id, entry->string, strlen(entry->string), HEED_PIECE_MODEL,
                           0));
    }
    return HEED_OK;
}

/* [["text", score], ...] */
static heed_status read_scored(heed_tokenizer *tokenizer, const cJSON *vocabulary)
{
    const cJSON *entry;
    int64_t id = 0;
    if (!cJSON_IsArray(vocabulary))
        return heed_fail(HEED_FORMAT, "tokenizer.json has a Unigram model without its vocabulary");
    cJSON_ArrayForEach(entry, vocabulary)
    {
        const cJSON *text = cJSON_GetArrayItem(entry, 0), *score = cJSON_GetArrayItem(entry, 1);
        if (!cJSON_IsString(text) || !cJSON_IsNumber(score))
            return heed_fail(HEED_FORMAT, "token %lld of tokenizer.json is not a pair of text and score",
                             (long long)id);
        TRY(heed_piece_set(tokenizer, id++, text->valuestring, strlen(text->valuestring), HEED_PIECE_MODEL,
                           score->valuedouble));
    }
    return HEED_OK;
}

static heed_status refuse_text(const cJSON *model, const char *name)
{
    const char *text = heed_json_text(model, name);
    return text && *text
               ? heed_fail(HEED_UNSUPPORTED, "the model of tokenizer.json has %s '%.40s', which is not known",
                           name, text)
               : HEED_OK;
}

static heed_status read_bpe(heed_tokenizer *tokenizer, const cJSON *model)
{
    TRY(refuse_text(model, "continuing_subword_prefix"));
    TRY(refuse_text(model, "end_of_word_suffix"));
    const cJSON *dropout = heed_json_get(model, "dropout");
    if (dropout && dropout->valuedouble != 0)
        return heed_fail(HEED_UNSUPPORTED, "the model of tokenizer.json drops merges at random (dropout %g)",
                         dropout->valuedouble);
    tokenizer->model = HEED_MODEL_BPE;
    tokenizer->fuse_unknown = heed_json_flag(model, "fuse_unk", false);
    tokenizer->ignore_merges = heed_json_flag(model, "ignore_merges", false);
    snprintf(tokenizer->kind, sizeof tokenizer->kind, "%s",
             tokenizer->decode == HEED_DECODE_BYTE_LEVEL ? "byte-level BPE" : "BPE");
    return read_map(tokenizer, heed_json_get(model, "vocab"));
}

heed_status heed_json_merges(heed_tokenizer *tokenizer, const cJSON *model)
{
    const cJSON *merges = heed_json_get(model, "merges"), *entry;
    int64_t rank = 0;
    if (tokenizer->model != HEED_MODEL_BPE)
        return HEED_OK;
    if (!cJSON_IsArray(merges))
        return heed_fail(HEED_FORMAT, "tokenizer.json has a BPE model without its merges");
    TRY(heed_merges_make(tokenizer, (size_t)cJSON_GetArraySize(merges)));
    cJSON_ArrayForEach(entry, merges)
    {
        const cJSON *left = cJSON_GetArrayItem(entry, 0), *right = cJSON_GetArrayItem(entry, 1);
        if (cJSON_IsString(entry))
            TRY(heed_merges_add_line(tokenizer, rank++, entry->valuestring, strlen(entry->valuestring)));
        else if (cJSON_IsString(left) && cJSON_IsString(right))
            TRY(heed_merges_add(tokenizer, rank++, left->valuestring, strlen(left->valuestring),
                                right->valuestring, strlen(right->valuestring)));
        else
            return heed_fail(HEED_FORMAT, "merge %lld of tokenizer.json is no pair of texts",
                             (long long)rank);
    }
    return HEED_OK;
}

static heed_status read_unigram(heed_tokenizer *tokenizer, const cJSON *model)
{
    const cJSON *unknown = heed_json_get(model, "unk_id");
    tokenizer->model = HEED_MODEL_UNIGRAM;
    tokenizer->fuse_unknown = true;
    snprintf(tokenizer->kind, sizeof tokenizer->kind, "unigram");
    TRY(read_scored(tokenizer, heed_json_get(model, "vocab")));
    if (!unknown)
        return HEED_OK;
    if (!cJSON_IsNumber(unknown) ||
        !(unknown->valuedouble >= 0 && unknown->valuedouble < (double)tokenizer->pieces))
        return heed_fail(HEED_FORMAT, "the unk_id of tokenizer.json is none of its %zu tokens",
                         tokenizer->pieces);
    tokenizer->special.unk = tokenizer->unknown = (int32_t)unknown->valuedouble;
    return HEED_OK;
}

static heed_status read_wordpiece(heed_tokenizer *tokenizer, const cJSON *model)
{
    const char *prefix = heed_json_text(model, "continuing_subword_prefix");
    const cJSON *most = heed_json_get(model, "max_input_chars_per_word");
    tokenizer->model = HEED_MODEL_WORDPIECE;
    snprintf(tokenizer->kind, sizeof tokenizer->kind, "WordPiece");
    tokenizer->continuing = strdup(prefix ? prefix : "##");
    if (!tokenizer->continuing)
        return heed_fail(HEED_NO_MEMORY, "no memory for the tokeniser");
    tokenizer->word_start = "";
    tokenizer->word_inner = tokenizer->continuing;
    tokenizer->word_characters = 100;
    if (cJSON_IsNumber(most) && most->valuedouble >= 1 && most->valuedouble <= 1e6)
        tokenizer->word_characters = (int32_t)most->valuedouble;
    return read_map(tokenizer, heed_json_get(model, "vocab"));
}

/* Files of early versions do not name the type. */
static const char *model_type(const cJSON *model)
{
    const char *type = heed_json_type(model);
    return *type                                          ? type
           : heed_json_get(model, "merges")               ? "BPE"
           : cJSON_IsArray(heed_json_get(model, "vocab")) ? "Unigram"
                                                          : "WordPiece";
}

heed_status heed_json_model(heed_tokenizer *tokenizer, const cJSON *model)
{
    if (!cJSON_IsObject(model))
        return heed_fail(HEED_FORMAT, "tokenizer.json has no model");
    const char *type = model_type(model);
    tokenizer->byte_fallback = heed_json_flag(model, "byte_fallback", false);
    if (strcmp(type, "BPE") && tokenizer->decode == HEED_DECODE_BYTE_LEVEL)
        return heed_fail(HEED_UNSUPPORTED, "tokenizer.json has a model of the type '%.40s' behind ByteLevel",
                         type);
    if (!strcmp(type, "BPE"))
        TRY(read_bpe(tokenizer, model));
    else if (!strcmp(type, "Unigram"))
        TRY(read_unigram(tokenizer, model));
    else if (!strcmp(type, "WordPiece"))
        TRY(read_wordpiece(tokenizer, model));
    else
        return heed_fail(HEED_UNSUPPORTED,
                         "tokenizer.json has a model of the type '%.40s', which is not known", type);
    const char *unknown = heed_json_text(model, "unk_token");
    for (size_t i = 0; unknown && i < tokenizer->pieces; i++)
        if (!strcmp(heed_piece_text(tokenizer, (int32_t)i), unknown))
            tokenizer->special.unk = tokenizer->unknown = (int32_t)i;
    if (tokenizer->model == HEED_MODEL_WORDPIECE && tokenizer->unknown < 0)
        return heed_fail(HEED_FORMAT, "the unknown token '%.40s' of tokenizer.json is none of its vocabulary",
                         unknown ? unknown : "");
    return HEED_OK;
}
