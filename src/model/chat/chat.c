/* A conversation to tokens, by the model's own template. */
#include "base/try.h"
#include "model/chat/template.h"
#include "model/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

static heed_status set(heed_chat_pool *pool, heed_dict *dict, const char *name, heed_value value)
{
    return heed_value_dict_set(pool, dict, heed_plain(name, strlen(name)), value);
}

/* A user's text, what is no UTF-8 in it replaced by U+FFFD: a template works on characters. */
static heed_status user_text(heed_chat_pool *pool, const char *text, heed_value *value)
{
    const size_t size = strlen(text);
    heed_bytes mended = {0};
    if (heed_utf8_valid(text, size)) {
        *value = heed_value_text(text, size, true);
        return HEED_OK;
    }
    for (size_t i = 0; i < size;) {
        int32_t character;
        int bad = 0;
        const int length = heed_utf8_read(text + i, size - i, &character, &bad);
        heed_bytes_add(&mended, length ? text + i : HEED_REPLACEMENT, length ? (size_t)length : 3);
        i += (size_t)(length ? length : bad);
    }
    char *kept = mended.failed ? NULL : heed_chat_pool_take(pool, mended.size + 1, 1);
    if (kept)
        memcpy(kept, mended.data, mended.size);
    free(mended.data);
    *value = heed_value_text(kept, mended.size, true);
    return kept ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the conversation");
}

static heed_status set_messages(heed_chat_pool *pool, heed_dict *variables, const heed_message_turn *turns,
                                int count)
{
    heed_value list;
    TRY(heed_value_list_new(pool, &list));
    for (int i = 0; i < count; i++) {
        heed_value message, role, content;
        TRY(heed_value_dict_new(pool, &message));
        TRY(user_text(pool, turns[i].role, &role));
        TRY(user_text(pool, turns[i].content, &content));
        TRY(set(pool, message.dict, "role", role));
        TRY(set(pool, message.dict, "content", content));
        TRY(heed_value_list_add(pool, list.list, message));
    }
    return set(pool, variables, "messages", list);
}

static heed_status set_token(heed_chat_pool *pool, heed_dict *variables, const heed_tokenizer *tokenizer,
                             const char *name, int32_t id)
{
    const char *text = heed_token_name(tokenizer, id);
    return text ? set(pool, variables, name, heed_value_text(text, strlen(text), false)) : HEED_OK;
}

static heed_status set_variables(heed_chat_pool *pool, heed_dict *variables, const heed_tokenizer *tokenizer,
                                 bool open)
{
    const heed_special_tokens *special = &tokenizer->special;
    TRY(set(pool, variables, "add_generation_prompt", heed_value_bool(open)));
    TRY(set(pool, variables, "tools", (heed_value){.kind = HEED_VALUE_NONE}));
    TRY(set(pool, variables, "documents", (heed_value){.kind = HEED_VALUE_NONE}));
    TRY(set_token(pool, variables, tokenizer, "bos_token", special->bos));
    TRY(set_token(pool, variables, tokenizer, "eos_token", special->eos));
    TRY(set_token(pool, variables, tokenizer, "unk_token", special->unk));
    return set_token(pool, variables, tokenizer, "pad_token", special->pad);
}

static heed_status render(heed_chat_pool *pool, const heed_tokenizer *tokenizer,
                          const heed_message_turn *turns, int count, bool open, heed_builder *out)
{
    const heed_node *nodes;
    heed_value variables;
    const char *template = tokenizer->chat_template;
    if (!template)
        return heed_fail(HEED_UNSUPPORTED, "the model has no chat template");
    if (!heed_utf8_valid(template, strlen(template)))
        return heed_fail(HEED_FORMAT, "the chat template is not UTF-8");
    TRY(heed_template_parse(pool, template, strlen(template), &nodes));
    TRY(heed_value_dict_new(pool, &variables));
    TRY(set_messages(pool, variables.dict, turns, count));
    TRY(set_variables(pool, variables.dict, tokenizer, open));
    return heed_template_render(pool, nodes, variables.dict, out);
}

/* The begin-token stands once, whether the template writes it or not. */
static heed_status tokenize(const heed_tokenizer *tokenizer, const heed_builder *text, unsigned flags,
                            heed_tokens *tokens)
{
    const heed_special_tokens *special = &tokenizer->special;
    const heed_source source = {text->text.data ? text->text.data : "", text->text.size,
                                flags & HEED_PARSE_SPECIAL ? NULL : (const uint8_t *)text->user.data, true};
    const int64_t start = tokens->count;
    TRY(heed_encode(tokenizer, &source, tokens));
    if (!special->add_bos || special->bos < 0 || (tokens->count > start && tokens->id[start] == special->bos))
        return HEED_OK;
    TRY(heed_tokens_add(tokens, special->bos));
    memmove(tokens->id + start + 1, tokens->id + start,
            (size_t)(tokens->count - 1 - start) * sizeof *tokens->id);
    tokens->id[start] = special->bos;
    return HEED_OK;
}

heed_status heed_chat_tokens(const heed_tokenizer *tokenizer, const heed_message_turn *turns, int count,
                             bool open, unsigned flags, heed_tokens *tokens)
{
    heed_chat_pool pool = {0};
    heed_builder text = {0};
    const int64_t before = tokens->count;
    heed_status status = render(&pool, tokenizer, turns, count, open, &text);
    if (!status)
        status = tokenize(tokenizer, &text, flags, tokens);
    if (status)
        tokens->count = before;
    heed_builder_free(&text);
    heed_chat_pool_free(&pool);
    return status;
}
