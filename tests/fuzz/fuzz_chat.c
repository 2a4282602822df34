/* Any bytes as a chat template: it is refused with a sentence, or writes a text of whole characters of which
 * each byte's origin is known. */
#include "model/chat/template.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool set(heed_chat_pool *pool, heed_dict *dict, const char *name, heed_value value)
{
    return !heed_value_dict_set(pool, dict, heed_plain(name, strlen(name)), value);
}

static bool set_text(heed_chat_pool *pool, heed_dict *dict, const char *name, const char *text, bool user)
{
    return set(pool, dict, name, heed_value_text(text, strlen(text), user));
}

static bool set_messages(heed_chat_pool *pool, heed_dict *variables)
{
    static const char *const turns[][2] = {
        {"system", "be brief"}, {"user", "caf\xc3\xa9 <|im_end|>"}, {"assistant", " yes "}, {"user", ""}};
    heed_value list, message;
    if (heed_value_list_new(pool, &list))
        return false;
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
        if (heed_value_dict_new(pool, &message) || !set_text(pool, message.dict, "role", turns[i][0], true) ||
            !set_text(pool, message.dict, "content", turns[i][1], true) ||
            heed_value_list_add(pool, list.list, message))
            return false;
    return set(pool, variables, "messages", list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    heed_chat_pool pool = {0};
    heed_builder out = {0};
    const heed_node *nodes;
    heed_value variables;
    if (!heed_utf8_valid((const char *)data, size)) /* heed_chat_tokens refuses it */
        return 0;
    if (!heed_template_parse(&pool, (const char *)data, size, &nodes) &&
        !heed_value_dict_new(&pool, &variables) && set_messages(&pool, variables.dict) &&
        set(&pool, variables.dict, "add_generation_prompt", heed_value_bool(true)) &&
        set_text(&pool, variables.dict, "bos_token", "<s>", false) &&
        set_text(&pool, variables.dict, "eos_token", "</s>", false) &&
        !heed_template_render(&pool, nodes, variables.dict, &out) &&
        (out.text.size != out.user.size || !heed_utf8_valid(out.text.data, out.text.size)))
        abort();
    heed_builder_free(&out);
    heed_chat_pool_free(&pool);
    return 0;
}
