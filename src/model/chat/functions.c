/* What a template may call: functions of the language, and methods of texts, mappings and lists. */
#include "base/try.h"
#include "model/chat/template.h"
#include "model/tokenizer/unicode.h"

#include <string.h>

static const heed_string blanks = {0};

static heed_status raise_exception(const heed_arguments *arguments)
{
    const heed_value *said = heed_argument(arguments, 0, "message");
    if (!said || said->kind != HEED_VALUE_STRING)
        return heed_fail(HEED_INVALID, "the chat template refuses this conversation");
    return heed_fail(HEED_INVALID, "the chat template refuses this conversation: %.*s",
                     (int)(said->string.size < 300 ? said->string.size : 300), said->string.text);
}

static heed_status range(heed_renderer *renderer, const heed_arguments *arguments, heed_value *value)
{
    int64_t bounds[3] = {0, 0, 1};
    if (arguments->places < 1 || arguments->places > 3)
        return heed_fail(HEED_UNSUPPORTED, "the chat template calls range with %d arguments",
                         arguments->places);
    for (int i = 0; i < arguments->places; i++) {
        if (arguments->place[i].kind != HEED_VALUE_INT)
            return heed_fail(HEED_UNSUPPORTED, "the chat template calls range with %s",
                             heed_value_kind_name(arguments->place[i]));
        bounds[arguments->places == 1 ? 1 : i] = arguments->place[i].whole;
    }
    TRY(heed_value_list_new(renderer->pool, value));
    if (bounds[2] == 0 || bounds[0] < -1000000000 || bounds[0] > 1000000000 || bounds[2] < -1000000000 ||
        bounds[2] > 1000000000)
        return heed_fail(HEED_UNSUPPORTED, "the chat template calls range with a step of %lld",
                         (long long)bounds[2]);
    for (int64_t i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1]; i += bounds[2])
        TRY(heed_value_list_add(renderer->pool, value->list, heed_value_int(i)));
    return HEED_OK;
}

heed_status heed_global(heed_renderer *renderer, const char *name, const heed_arguments *arguments,
                        heed_value *value)
{
    if (!strcmp(name, "raise_exception"))
        return raise_exception(arguments);
    if (!strcmp(name, "range"))
        return range(renderer, arguments, value);
    TRY(heed_value_dict_new(renderer->pool, value)); /* namespace, dict */
    for (int i = 0; i < arguments->names; i++)
        TRY(heed_value_dict_set(renderer->pool, value->dict,
                                heed_plain(arguments->named[i].name, strlen(arguments->named[i].name)),
                                arguments->named[i].value));
    return HEED_OK;
}

static heed_status no_method(heed_value object, const char *name)
{
    if (object.kind == HEED_VALUE_UNDEFINED)
        return heed_fail(HEED_UNSUPPORTED, "the chat template calls %.40s of '%.40s', which is not defined",
                         name, object.name);
    return heed_fail(HEED_UNSUPPORTED,
                     "the chat template calls the method '%.40s' of %s, which is not understood", name,
                     heed_value_kind_name(object));
}

static bool text_argument(const heed_arguments *arguments, int place, heed_string *string)
{
    const heed_value *given = heed_argument(arguments, place, NULL);
    if (!given || given->kind != HEED_VALUE_STRING)
        return false;
    *string = given->string;
    return true;
}

/* Between separators, at most `most` of them (< 0: all); without a separator between runs of white space. */
static heed_status split(heed_renderer *renderer, heed_string text, const heed_string *separator,
                         int64_t most, heed_value *value)
{
    TRY(heed_value_list_new(renderer->pool, value));
    if (separator && !separator->size)
        return heed_fail(HEED_UNSUPPORTED, "the chat template splits a text at an empty one");
    for (;;) {
        if (!separator)
            text = heed_string_strip(text, true, false, blanks);
        if (!separator && !text.size)
            return HEED_OK;
        size_t end = text.size, skip = 0;
        const bool may = most < 0 || (int64_t)value->list->count < most;
        if (separator && may) {
            const char *at = heed_find(text.text, text.size, separator->text, separator->size);
            end = at ? (size_t)(at - text.text) : text.size;
            skip = at ? separator->size : 0;
        } else if (may) {
            for (end = 0; end < text.size && !heed_is_space(heed_utf8_character(text.text + end));)
                end += (size_t)heed_utf8_size(text.text[end]);
            skip = end < text.size ? (size_t)heed_utf8_size(text.text[end]) : 0;
        }
        TRY(heed_value_list_add(renderer->pool, value->list,
                                heed_value_string(heed_string_part(text, 0, end))));
        if (!skip)
            return HEED_OK;
        text = heed_string_part(text, end + skip, text.size);
    }
}

static bool begins(heed_string text, heed_string part, bool at_end)
{
    return text.size >= part.size &&
           !memcmp(text.text + (at_end ? text.size - part.size : 0), part.text, part.size);
}

static heed_status begins_or_ends(const char *name, heed_string text, const heed_arguments *arguments,
                                  heed_value *value)
{
    const heed_value *given = heed_argument(arguments, 0, NULL);
    const bool at_end = name[0] == 'e';
    *value = heed_value_bool(false);
    if (given && given->kind == HEED_VALUE_STRING) {
        *value = heed_value_bool(begins(text, given->string, at_end));
        return HEED_OK;
    }
    if (!given || given->kind != HEED_VALUE_LIST)
        return heed_fail(HEED_UNSUPPORTED, "the chat template calls %s without a text", name);
    for (size_t i = 0; i < given->list->count; i++)
        if (given->list->item[i].kind == HEED_VALUE_STRING &&
            begins(text, given->list->item[i].string, at_end))
            *value = heed_value_bool(true);
    return HEED_OK;
}

static heed_status string_method(heed_renderer *renderer, heed_value object, const char *name,
                                 const heed_arguments *arguments, heed_value *value)
{
    static const char *const filters[] = {"upper", "lower", "title", "capitalize", "replace"};
    const heed_string text = object.string;
    heed_string given = {0};
    const bool has = text_argument(arguments, 0, &given);
    if (!strcmp(name, "strip") || !strcmp(name, "lstrip") || !strcmp(name, "rstrip")) {
        *value = heed_value_string(heed_string_strip(text, *name != 'r', *name != 'l', has ? given : blanks));
        return HEED_OK;
    }
    if (!strcmp(name, "startswith") || !strcmp(name, "endswith"))
        return begins_or_ends(name, text, arguments, value);
    if (!strcmp(name, "split")) {
        const heed_value *most = heed_argument(arguments, 1, "maxsplit");
        return split(renderer, text, has ? &given : NULL,
                     most && most->kind == HEED_VALUE_INT ? most->whole : -1, value);
    }
    if (!strcmp(name, "find") && has) {
        const char *at = given.size ? heed_find(text.text, text.size, given.text, given.size) : text.text;
        *value = heed_value_int(
            at ? (int64_t)heed_characters(heed_string_part(text, 0, (size_t)(at - text.text))) : -1);
        return HEED_OK;
    }
    if (!strcmp(name, "join") && arguments->places == 1) {
        const heed_arguments separator = {.place = {object}, .places = 1};
        return heed_filter(renderer, arguments->place[0], "join", &separator, value);
    }
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (!strcmp(name, filters[i]))
            return heed_filter(renderer, object, name, arguments, value);
    return no_method(object, name);
}

static heed_status dict_method(heed_renderer *renderer, heed_value object, const char *name,
                               const heed_arguments *arguments, heed_value *value)
{
    const heed_value *member = heed_value_dict_find(object.dict, name, strlen(name));
    heed_string key = {0};
    if (member && member->kind == HEED_VALUE_MACRO)
        return heed_call_macro(renderer, member->macro, arguments, value);
    if (!strcmp(name, "items"))
        return heed_filter(renderer, object, "items", arguments, value);
    if (!strcmp(name, "keys"))
        return heed_items(renderer, object, value);
    if (!strcmp(name, "values")) {
        TRY(heed_value_list_new(renderer->pool, value));
        for (size_t i = 0; i < object.dict->count; i++)
            TRY(heed_value_list_add(renderer->pool, value->list, object.dict->entry[i].value));
        return HEED_OK;
    }
    if (!strcmp(name, "get") && text_argument(arguments, 0, &key)) {
        const heed_value *found = heed_value_dict_find(object.dict, key.text, key.size);
        const heed_value *otherwise = heed_argument(arguments, 1, "default");
        *value = found ? *found : otherwise ? *otherwise : (heed_value){.kind = HEED_VALUE_NONE};
        return HEED_OK;
    }
    return no_method(object, name);
}

heed_status heed_method(heed_renderer *renderer, heed_value object, const char *name,
                        const heed_arguments *arguments, heed_value *value)
{
    if (object.kind == HEED_VALUE_STRING)
        return string_method(renderer, object, name, arguments, value);
    if (object.kind == HEED_VALUE_DICT)
        return dict_method(renderer, object, name, arguments, value);
    if (object.kind == HEED_VALUE_LIST && !strcmp(name, "append") && arguments->places == 1) {
        *value = (heed_value){.kind = HEED_VALUE_NONE};
        return heed_value_list_add(renderer->pool, object.list, arguments->place[0]);
    }
    return no_method(object, name);
}
