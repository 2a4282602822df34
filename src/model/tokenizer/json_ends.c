/* What stands around a text, and how tokens become text: the post_processor and the decoder of
 * tokenizer.json.
 */
#include "base/try.h"
#include "model/tokenizer/json.h"

#include <stdlib.h>
#include <string.h>

static heed_status add_around(heed_tokenizer *tokenizer, bool before, const cJSON *id)
{
    int *count = before ? &tokenizer->befores : &tokenizer->afters;
    if (!cJSON_IsNumber(id) || !(id->valuedouble >= 0 && id->valuedouble < (double)tokenizer->pieces))
        return heed_fail(HEED_FORMAT,
                         "the post_processor of tokenizer.json adds a token that is none of the vocabulary");
    if (*count == HEED_AROUND)
        return heed_fail(HEED_UNSUPPORTED, "tokenizer.json puts more than %d tokens around a text",
                         HEED_AROUND);
    (before ? tokenizer->before : tokenizer->after)[(*count)++] = (int32_t)id->valuedouble;
    return HEED_OK;
}

/* [{"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}}, ...] */
static heed_status read_template(heed_tokenizer *tokenizer, const cJSON *object)
{
    const cJSON *part, *id, *table = heed_json_get(object, "special_tokens");
    bool before = true;
    cJSON_ArrayForEach(part, heed_json_get(object, "single"))
    {
        const char *name = heed_json_text(heed_json_get(part, "SpecialToken"), "id");
        if (heed_json_get(part, "Sequence")) {
            before = false;
        } else if (name) {
            const cJSON *ids = heed_json_get(heed_json_get(table, name), "ids");
            if (!cJSON_IsArray(ids))
                return heed_fail(HEED_FORMAT, "the post_processor of tokenizer.json has no token '%.40s'",
                                 name);
            cJSON_ArrayForEach(id, ids) TRY(add_around(tokenizer, before, id));
        } else {
            return heed_fail(
                HEED_UNSUPPORTED,
                "the post_processor of tokenizer.json has a part that is neither SpecialToken nor Sequence");
        }
    }
    return HEED_OK;
}

heed_status heed_json_post_processor(heed_tokenizer *tokenizer, const cJSON *object)
{
    const char *type = heed_json_type(object);
    const cJSON *step;
    if (!strcmp(type, "Sequence")) {
        cJSON_ArrayForEach(step, heed_json_get(object, "processors"))
            TRY(heed_json_post_processor(tokenizer, step));
        return HEED_OK;
    }
    if (!strcmp(type, "ByteLevel")) /* changes where tokens begin and end, not which they are */
        return HEED_OK;
    if (!strcmp(type, "TemplateProcessing"))
        return read_template(tokenizer, object);
    if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing")) {
        TRY(add_around(tokenizer, true, cJSON_GetArrayItem(heed_json_get(object, "cls"), 1)));
        return add_around(tokenizer, false, cJSON_GetArrayItem(heed_json_get(object, "sep"), 1));
    }
    return heed_fail(HEED_UNSUPPORTED, "tokenizer.json has a post_processor '%.40s', which is not known",
                     type);
}

static heed_status read_strip(heed_tokenizer *tokenizer, const cJSON *object)
{
    const char *content = heed_json_text(object, "content");
    const cJSON *start = heed_json_get(object, "start"), *stop = heed_json_get(object, "stop");
    if (!content || strcmp(content, " ") || !cJSON_IsNumber(start) || start->valuedouble > 1 ||
        (stop && stop->valuedouble != 0))
        return heed_fail(HEED_UNSUPPORTED,
                         "the decoder of tokenizer.json strips something else than one space at the start");
    tokenizer->drops_first_space = start->valuedouble == 1;
    return HEED_OK;
}

static heed_status read_replace(heed_tokenizer *tokenizer, const cJSON *object)
{
    const char *find = heed_json_text(heed_json_get(object, "pattern"), "String"),
               *content = heed_json_text(object, "content");
    if (!find || !content || strcmp(find, HEED_SPACE_MARK) || strcmp(content, " "))
        return heed_fail(HEED_UNSUPPORTED,
                         "the decoder of tokenizer.json replaces something else than U+2581 by a space");
    tokenizer->decode = HEED_DECODE_SENTENCEPIECE;
    return HEED_OK;
}

static heed_status read_metaspace(heed_tokenizer *tokenizer, const cJSON *object)
{
    const char *mark = heed_json_text(object, "replacement"),
               *scheme = heed_json_text(object, "prepend_scheme");
    if (!mark || strcmp(mark, HEED_SPACE_MARK))
        return heed_fail(HEED_UNSUPPORTED,
                         "the decoder of tokenizer.json has another mark for spaces than U+2581");
    tokenizer->decode = HEED_DECODE_SENTENCEPIECE;
    tokenizer->drops_first_space =
        scheme ? strcmp(scheme, "never") != 0 : heed_json_flag(object, "add_prefix_space", true);
    return HEED_OK;
}

static heed_status check_byte_level(const heed_tokenizer *tokenizer)
{
    return tokenizer->decode == HEED_DECODE_BYTE_LEVEL
               ? HEED_OK
               : heed_fail(HEED_UNSUPPORTED,
                           "tokenizer.json decodes with ByteLevel and has no such pre_tokenizer");
}

heed_status heed_json_decoder(heed_tokenizer *tokenizer, const cJSON *object)
{
    const char *type = heed_json_type(object);
    const cJSON *step;
    if (!strcmp(type, "Sequence")) {
        cJSON_ArrayForEach(step, heed_json_get(object, "decoders")) TRY(heed_json_decoder(tokenizer, step));
        return HEED_OK;
    }
    if (!strcmp(type, "ByteLevel"))
        return check_byte_level(tokenizer);
    if (!strcmp(type, "Fuse") || !strcmp(type, "ByteFallback")) { /* always so */
        if (tokenizer->decode == HEED_DECODE_PLAIN)
            tokenizer->decode = HEED_DECODE_SENTENCEPIECE;
        return HEED_OK;
    }
    if (tokenizer->decode == HEED_DECODE_BYTE_LEVEL)
        return heed_fail(HEED_UNSUPPORTED, "tokenizer.json splits with ByteLevel and decodes with '%.40s'",
                         type);
    if (!strcmp(type, "Strip"))
        return read_strip(tokenizer, object);
    if (!strcmp(type, "Replace"))
        return read_replace(tokenizer, object);
    if (!strcmp(type, "Metaspace"))
        return read_metaspace(tokenizer, object);
    if (!strcmp(type, "WordPiece")) { /* its clean-up of spaces would lose text and is left out */
        tokenizer->decode = HEED_DECODE_WORDPIECE;
        if (tokenizer->model != HEED_MODEL_WORDPIECE)
            return heed_fail(HEED_UNSUPPORTED, "tokenizer.json decodes with WordPiece and has another model");
        return HEED_OK;
    }
    return heed_fail(HEED_UNSUPPORTED, "tokenizer.json has a decoder '%.40s', which is not known", type);
}
