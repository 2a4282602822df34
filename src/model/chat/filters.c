/* Filters and tests. Each filter is a line of the table. */
#include "base/try.h"
#include "model/chat/template.h"
#include "model/tokenizer/unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static heed_status wrong_input(heed_value input, const char *name)
{
    if (input.kind == HEED_VALUE_UNDEFINED)
        return heed_fail(HEED_UNSUPPORTED, "the chat template filters '%.40s', which is not defined, with %s",
                         input.name, name);
    return heed_fail(HEED_UNSUPPORTED, "the chat template filters %s with %s", heed_value_kind_name(input),
                     name);
}

static heed_status take(heed_renderer *renderer, heed_builder *builder, heed_status status, heed_value *value)
{
    heed_string string;
    if (status) {
        heed_builder_free(builder);
        return status;
    }
    TRY(heed_builder_take(builder, renderer->pool, &string));
    *value = heed_value_string(string);
    return HEED_OK;
}

static heed_status as_text(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                           heed_value *value)
{
    heed_builder out = {0};
    (void)arguments;
    const heed_status status = heed_value_write(input, &out);
    return take(renderer, &out, status, value);
}

static heed_status trim(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                        heed_value *value)
{
    const heed_value *set = heed_argument(arguments, 0, "chars");
    if (input.kind != HEED_VALUE_STRING)
        TRY(as_text(renderer, input, arguments, &input));
    *value = heed_value_string(heed_string_strip(
        input.string, true, true, set && set->kind == HEED_VALUE_STRING ? set->string : (heed_string){0}));
    return HEED_OK;
}

static heed_status length(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                          heed_value *value)
{
    (void)renderer;
    (void)arguments;
    if (input.kind == HEED_VALUE_STRING)
        *value = heed_value_int((int64_t)heed_characters(input.string));
    else if (input.kind == HEED_VALUE_LIST)
        *value = heed_value_int((int64_t)input.list->count);
    else if (input.kind == HEED_VALUE_DICT)
        *value = heed_value_int((int64_t)input.dict->count);
    else if (input.kind == HEED_VALUE_UNDEFINED)
        *value = heed_value_int(0);
    else
        return wrong_input(input, "length");
    return HEED_OK;
}

static heed_status tojson(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                          heed_value *value)
{
    const heed_value *indent = heed_argument(arguments, 0, "indent");
    heed_builder out = {0};
    const int64_t spaces = indent && indent->kind == HEED_VALUE_INT ? indent->whole : -1;
    const heed_status status = heed_value_json(input, spaces > 16 ? 16 : (int)spaces, 0, &out);
    return take(renderer, &out, status, value);
}

typedef enum letter_case { UPPER, LOWER, TITLE, CAPITALIZE } letter_case;

static heed_status change_case(heed_renderer *renderer, heed_value input, letter_case wanted,
                               heed_value *value)
{
    heed_builder out = {0};
    bool first = true;
    if (input.kind != HEED_VALUE_STRING)
        return wrong_input(input, "upper, lower, title or capitalize");
    const heed_string text = input.string;
    for (size_t i = 0; i < text.size;) {
        const int32_t c = heed_utf8_character(text.text + i);
        const bool up = wanted == UPPER || (wanted != LOWER && first);
        const size_t before = out.text.size;
        int32_t second = 0;
        heed_bytes_add_character(&out.text, up ? utf8proc_toupper(c) : heed_lowercase(c, &second));
        if (second)
            heed_bytes_add_character(&out.text, second);
        const uint8_t user = heed_string_user(text, i);
        for (size_t k = before; k < out.text.size; k++)
            heed_bytes_add(&out.user, &user, 1);
        first =
            wanted == TITLE && (heed_is_space(c) || c == '-' || c == '(' || c == '[' || c == '{' || c == '<');
        i += (size_t)heed_utf8_size(text.text[i]);
    }
    return take(renderer, &out, HEED_OK, value);
}

static heed_status upper(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                         heed_value *value)
{
    (void)arguments;
    return change_case(renderer, input, UPPER, value);
}

static heed_status lower(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                         heed_value *value)
{
    (void)arguments;
    return change_case(renderer, input, LOWER, value);
}

static heed_status title(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                         heed_value *value)
{
    (void)arguments;
    return change_case(renderer, input, TITLE, value);
}

static heed_status capitalize(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                              heed_value *value)
{
    (void)arguments;
    return change_case(renderer, input, CAPITALIZE, value);
}

static heed_status join(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                        heed_value *value)
{
    const heed_value *between = heed_argument(arguments, 0, "d"),
                     *attribute = heed_argument(arguments, 1, "attribute");
    heed_builder out = {0};
    heed_value list;
    TRY(heed_items(renderer, input, &list));
    heed_status status = HEED_OK;
    for (size_t i = 0; i < list.list->count && !status; i++) {
        heed_value item = list.list->item[i];
        if (attribute)
            status = heed_index(renderer, item, *attribute, &item);
        if (i && between && !status)
            status = heed_value_write(*between, &out);
        if (!status)
            status = heed_value_write(item, &out);
    }
    return take(renderer, &out, status, value);
}

static heed_status first(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                         heed_value *value)
{
    (void)arguments;
    return heed_index(renderer, input, heed_value_int(0), value);
}

static heed_status last(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                        heed_value *value)
{
    (void)arguments;
    return heed_index(renderer, input, heed_value_int(-1), value);
}

static heed_status otherwise(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                             heed_value *value)
{
    const heed_value *given = heed_argument(arguments, 0, "default_value"),
                     *all = heed_argument(arguments, 1, "boolean");
    (void)renderer;
    const bool missing =
        input.kind == HEED_VALUE_UNDEFINED || (all && heed_value_truth(*all) && !heed_value_truth(input));
    *value = !missing ? input : given ? *given : heed_value_text("", 0, false);
    return HEED_OK;
}

static heed_status as_list(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                           heed_value *value)
{
    heed_value items;
    (void)arguments;
    TRY(heed_items(renderer, input, &items));
    TRY(heed_value_list_new(renderer->pool, value));
    for (size_t i = 0; i < items.list->count; i++)
        TRY(heed_value_list_add(renderer->pool, value->list, items.list->item[i]));
    return HEED_OK;
}

static heed_status reverse(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                           heed_value *value)
{
    const heed_value none = {.kind = HEED_VALUE_NONE}, back[] = {none, none, heed_value_int(-1)};
    (void)arguments;
    return heed_slice(renderer, input, back, value);
}

static heed_status as_int(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                          heed_value *value)
{
    (void)renderer;
    (void)arguments;
    char digits[32] = "";
    if (input.kind == HEED_VALUE_STRING && input.string.size < sizeof digits)
        memcpy(digits, input.string.text, input.string.size);
    if (input.kind == HEED_VALUE_FLOAT && fabs(input.number) < 9e15)
        *value = heed_value_int((int64_t)input.number);
    else
        *value = input.kind == HEED_VALUE_INT    ? input
                 : input.kind == HEED_VALUE_BOOL ? heed_value_int(input.truth)
                                                 : heed_value_int(strtoll(digits, NULL, 10));
    return HEED_OK;
}

static heed_status as_float(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                            heed_value *value)
{
    if (input.kind != HEED_VALUE_FLOAT)
        TRY(as_int(renderer, input, arguments, &input));
    *value = input.kind == HEED_VALUE_FLOAT
                 ? input
                 : (heed_value){.kind = HEED_VALUE_FLOAT, .number = (double)input.whole};
    return HEED_OK;
}

static heed_status absolute(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                            heed_value *value)
{
    (void)renderer;
    (void)arguments;
    *value = input;
    if (input.kind == HEED_VALUE_FLOAT)
        value->number = fabs(input.number);
    else if (input.kind == HEED_VALUE_INT && input.whole != INT64_MIN)
        value->whole = input.whole < 0 ? -input.whole : input.whole;
    else
        return wrong_input(input, "abs");
    return HEED_OK;
}

static heed_status replace(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                           heed_value *value)
{
    const heed_value *old = heed_argument(arguments, 0, "old"), *new = heed_argument(arguments, 1, "new");
    heed_builder out = {0};
    if (input.kind != HEED_VALUE_STRING || !old || !new || old->kind != HEED_VALUE_STRING ||
        new->kind != HEED_VALUE_STRING || !old->string.size)
        return wrong_input(input, "replace");
    heed_string left = input.string;
    const char *at;
    while ((at = heed_find(left.text, left.size, old->string.text, old->string.size))) {
        const size_t before = (size_t)(at - left.text);
        heed_builder_add(&out, heed_string_part(left, 0, before));
        heed_builder_add(&out, new->string);
        left = heed_string_part(left, before + old->string.size, left.size);
        if (out.text.size > (size_t)1 << 27)
            return take(renderer, &out,
                        heed_fail(HEED_UNSUPPORTED, "the chat template makes a text of more than 128 MiB"),
                        value);
    }
    heed_builder_add(&out, left);
    return take(renderer, &out, HEED_OK, value);
}

static heed_status items(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                         heed_value *value)
{
    (void)arguments;
    if (input.kind != HEED_VALUE_DICT)
        return wrong_input(input, "items");
    TRY(heed_value_list_new(renderer->pool, value));
    for (size_t i = 0; i < input.dict->count; i++) {
        heed_value pair;
        TRY(heed_value_list_new(renderer->pool, &pair));
        TRY(heed_value_list_add(renderer->pool, pair.list, heed_value_string(input.dict->entry[i].key)));
        TRY(heed_value_list_add(renderer->pool, pair.list, input.dict->entry[i].value));
        TRY(heed_value_list_add(renderer->pool, value->list, pair));
    }
    return HEED_OK;
}

/* map(attribute="x") or map("filter") */
static heed_status map(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                       heed_value *value)
{
    const heed_value *attribute = heed_argument(arguments, -1, "attribute"),
                     *name = heed_argument(arguments, 0, NULL);
    const heed_arguments none = {0};
    heed_value list;
    if (!attribute && (!name || name->kind != HEED_VALUE_STRING))
        return wrong_input(input, "map");
    TRY(heed_items(renderer, input, &list));
    TRY(heed_value_list_new(renderer->pool, value));
    for (size_t i = 0; i < list.list->count; i++) {
        heed_value item = list.list->item[i];
        if (attribute)
            TRY(heed_index(renderer, item, *attribute, &item));
        else
            TRY(heed_filter(renderer, item, name->string.text, &none, &item));
        TRY(heed_value_list_add(renderer->pool, value->list, item));
    }
    return HEED_OK;
}

/* selectattr("role", "equalto", "user"): items of which the test holds; `wanted` false: of which it does not.
 */
static heed_status choose(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                          bool attribute, bool wanted, heed_value *value)
{
    const int shift = attribute ? 1 : 0;
    const heed_value *key = heed_argument(arguments, 0, NULL), *test = heed_argument(arguments, shift, NULL);
    heed_arguments rest = {0};
    heed_value list;
    if ((attribute && !key) || (test && test->kind != HEED_VALUE_STRING))
        return wrong_input(input, "select");
    for (int i = shift + 1; i < arguments->places; i++)
        rest.place[rest.places++] = arguments->place[i];
    TRY(heed_items(renderer, input, &list));
    TRY(heed_value_list_new(renderer->pool, value));
    for (size_t i = 0; i < list.list->count; i++) {
        heed_value item = list.list->item[i];
        if (attribute)
            TRY(heed_index(renderer, item, *key, &item));
        bool holds = heed_value_truth(item);
        if (test)
            TRY(heed_test(renderer, item, test->string.text, &rest, &holds));
        if (holds == wanted)
            TRY(heed_value_list_add(renderer->pool, value->list, list.list->item[i]));
    }
    return HEED_OK;
}

static heed_status selectattr(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                              heed_value *value)
{
    return choose(renderer, input, arguments, true, true, value);
}

static heed_status rejectattr(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                              heed_value *value)
{
    return choose(renderer, input, arguments, true, false, value);
}

static heed_status selected(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                            heed_value *value)
{
    return choose(renderer, input, arguments, false, true, value);
}

static heed_status rejected(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                            heed_value *value)
{
    return choose(renderer, input, arguments, false, false, value);
}

static heed_status as_is(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                         heed_value *value)
{
    (void)renderer;
    (void)arguments;
    *value = input;
    return HEED_OK;
}

static const struct filter {
    const char *name;
    heed_status (*apply)(heed_renderer *renderer, heed_value input, const heed_arguments *arguments,
                         heed_value *value);
} filters[] = {
    {"trim", trim},
    {"length", length},
    {"count", length},
    {"tojson", tojson},
    {"upper", upper},
    {"lower", lower},
    {"title", title},
    {"capitalize", capitalize},
    {"join", join},
    {"first", first},
    {"last", last},
    {"default", otherwise},
    {"d", otherwise},
    {"list", as_list},
    {"reverse", reverse},
    {"string", as_text},
    {"int", as_int},
    {"float", as_float},
    {"abs", absolute},
    {"replace", replace},
    {"items", items},
    {"map", map},
    {"selectattr", selectattr},
    {"rejectattr", rejectattr},
    {"select", selected},
    {"reject", rejected},
    {"safe", as_is},
};

heed_status heed_filter(heed_renderer *renderer, heed_value input, const char *name,
                        const heed_arguments *arguments, heed_value *value)
{
    if (++renderer->depth > 300)
        return heed_fail(HEED_UNSUPPORTED,
                         "the chat template has filters within filters, more than 300 deep");
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (!strcmp(name, filters[i].name)) {
            const heed_status status = filters[i].apply(renderer, input, arguments, value);
            renderer->depth--;
            return status;
        }
    return heed_fail(HEED_UNSUPPORTED, "the chat template uses the filter '%.40s', which is not understood",
                     name);
}

static bool kind_test(heed_value input, const char *name, bool *holds)
{
    static const struct {
        const char *name;
        unsigned kinds;
    } tests[] = {
        {"undefined", 1u << HEED_VALUE_UNDEFINED},
        {"none", 1u << HEED_VALUE_NONE},
        {"boolean", 1u << HEED_VALUE_BOOL},
        {"integer", 1u << HEED_VALUE_INT},
        {"float", 1u << HEED_VALUE_FLOAT},
        {"number", 1u << HEED_VALUE_INT | 1u << HEED_VALUE_FLOAT | 1u << HEED_VALUE_BOOL},
        {"string", 1u << HEED_VALUE_STRING},
        {"mapping", 1u << HEED_VALUE_DICT},
        {"sequence", 1u << HEED_VALUE_LIST | 1u << HEED_VALUE_STRING | 1u << HEED_VALUE_DICT},
        {"iterable", 1u << HEED_VALUE_LIST | 1u << HEED_VALUE_STRING | 1u << HEED_VALUE_DICT},
        {"callable", 1u << HEED_VALUE_MACRO | 1u << HEED_VALUE_GLOBAL},
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (!strcmp(name, tests[i].name)) {
            *holds = tests[i].kinds >> input.kind & 1;
            return true;
        }
    return false;
}

static bool operator_test(const char *name, const char **sign)
{
    static const char *const names[][2] = {{"equalto", "=="}, {"eq", "=="}, {"==", "=="}, {"sameas", "=="},
                                           {"ne", "!="},      {"!=", "!="}, {"lt", "<"},  {"<", "<"},
                                           {"gt", ">"},       {">", ">"},   {"le", "<="}, {"ge", ">="},
                                           {"in", "in"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i][0])) {
            *sign = names[i][1];
            return true;
        }
    return false;
}

heed_status heed_test(heed_renderer *renderer, heed_value input, const char *name,
                      const heed_arguments *arguments, bool *holds)
{
    const heed_value *other = heed_argument(arguments, 0, NULL);
    const char *sign;
    heed_value value;
    *holds = false;
    if (kind_test(input, name, holds))
        return HEED_OK;
    if (!strcmp(name, "defined")) {
        *holds = input.kind != HEED_VALUE_UNDEFINED;
        return HEED_OK;
    }
    if (!strcmp(name, "true") || !strcmp(name, "false")) {
        *holds = input.kind == HEED_VALUE_BOOL && input.truth == (*name == 't');
        return HEED_OK;
    }
    if (operator_test(name, &sign) && other) {
        TRY(heed_binary(renderer, sign, input, *other, &value));
        *holds = heed_value_truth(value);
        return HEED_OK;
    }
    const bool odd = !strcmp(name, "odd"), even = !strcmp(name, "even");
    if ((odd || even || (!strcmp(name, "divisibleby") && other)) && input.kind == HEED_VALUE_INT) {
        TRY(heed_binary(renderer, "%", input, odd || even ? heed_value_int(2) : *other, &value));
        *holds = heed_value_truth(value) == odd;
        return HEED_OK;
    }
    return heed_fail(HEED_UNSUPPORTED, "the chat template uses the test '%.40s', which is not understood",
                     name);
}
