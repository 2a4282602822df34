/* What stands beside tokenizer.json: which tokens begin, end and pad, and the chat template. */
#include "base/try.h"
#include "model/tokenizer/json.h"

#include <stdlib.h>
#include <string.h>

/* "text" or {"content": "text"} */
static const char *token_text(const cJSON *settings, const char *name)
{
    const char *text = heed_json_text(settings, name);
    return text ? text : heed_json_text(heed_json_get(settings, name), "content");
}

static void find_special(heed_tokenizer *tokenizer, const cJSON *settings)
{
    heed_special_tokens *special = &tokenizer->special;
    const struct {
        const char *name, *usual;
        int32_t *id;
    } names[] = {{"bos_token", NULL, &special->bos},      {"eos_token", NULL, &special->eos},
                 {"unk_token", NULL, &special->unk},      {"pad_token", "[PAD]", &special->pad},
                 {"sep_token", "[SEP]", &special->sep},   {"cls_token", "[CLS]", &special->cls},
                 {"mask_token", "[MASK]", &special->mask}};
    const bool bert = tokenizer->model == HEED_MODEL_WORDPIECE;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = token_text(settings, names[i].name);
        if (!text && bert)
            text = names[i].usual;
        if (text && *names[i].id < 0)
            *names[i].id = heed_token_find(tokenizer, text, strlen(text));
    }
}

/* A text, or a list of named ones, of which that called default is meant. */
static const char *template_of(const cJSON *settings)
{
    const cJSON *templates = heed_json_get(settings, "chat_template"), *entry;
    const char *found = cJSON_IsString(templates) ? templates->valuestring : NULL;
    if (cJSON_IsArray(templates))
        cJSON_ArrayForEach(entry, templates)
        {
            const char *name = heed_json_text(entry, "name");
            if (name && !strcmp(name, "default"))
                found = heed_json_text(entry, "template");
        }
    return found;
}

static void add_end(heed_tokenizer *tokenizer, const cJSON *id)
{
    if (cJSON_IsNumber(id) && id->valuedouble >= 0 && id->valuedouble < (double)tokenizer->pieces)
        heed_ends_add(tokenizer, (int32_t)id->valuedouble);
}

/* "eos_token_id": 2 or [2, 32000] */
static void read_ends(heed_tokenizer *tokenizer, const heed_tokenizer_texts *texts, const char *name)
{
    size_t size = 0;
    const char *text = texts->text(texts->context, name, &size);
    cJSON *root = text ? cJSON_ParseWithLength(text, size) : NULL;
    const cJSON *ids = heed_json_get(root, "eos_token_id"), *id;
    if (cJSON_IsArray(ids))
        cJSON_ArrayForEach(id, ids) add_end(tokenizer, id);
    else
        add_end(tokenizer, ids);
    cJSON_Delete(root);
}

heed_status heed_tokenizer_read_settings(heed_tokenizer *tokenizer, const heed_tokenizer_texts *texts)
{
    size_t size = 0, template_size = 0;
    const char *text = texts->text(texts->context, "tokenizer_config.json", &size);
    const char *template = texts->text(texts->context, "chat_template.jinja", &template_size);
    cJSON *settings = text ? cJSON_ParseWithLength(text, size) : NULL;
    if (text && !settings)
        return heed_fail(HEED_FORMAT, "tokenizer_config.json is no JSON");
    find_special(tokenizer, settings);
    if (!template)
        template = template_of(settings);
    if (template)
        tokenizer->chat_template = strdup(template);
    cJSON_Delete(settings);
    if (template && !tokenizer->chat_template)
        return heed_fail(HEED_NO_MEMORY, "no memory for the chat template");
    tokenizer->special.add_bos = tokenizer->befores > 0;
    tokenizer->special.add_eos = tokenizer->afters > 0;
    if (tokenizer->special.bos < 0 && tokenizer->befores && tokenizer->special.cls != tokenizer->before[0])
        tokenizer->special.bos = tokenizer->before[0];
    if (tokenizer->special.eos < 0 && tokenizer->afters && tokenizer->special.sep != tokenizer->after[0])
        tokenizer->special.eos = tokenizer->after[0];
    heed_ends_add(tokenizer, tokenizer->special.eos);
    read_ends(tokenizer, texts, "generation_config.json");
    read_ends(tokenizer, texts, "config.json");
    heed_ends_find(tokenizer);
    return HEED_OK;
}
