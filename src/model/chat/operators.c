/* Operators, indices and slices. */
#include "base/try.h"
#include "model/chat/template.h"

#include <math.h>
#include <string.h>

static bool is_number(heed_value value)
{
    return value.kind == HEED_VALUE_BOOL || value.kind == HEED_VALUE_INT || value.kind == HEED_VALUE_FLOAT;
}

static int64_t whole_of(heed_value value)
{
    return value.kind == HEED_VALUE_BOOL ? value.truth : value.whole;
}

static double number_of(heed_value value)
{
    return value.kind == HEED_VALUE_FLOAT ? value.number : (double)whole_of(value);
}

/* Two texts, or two lists, one behind the other. */
static heed_status join(heed_renderer *renderer, heed_value a, heed_value b, heed_value *value)
{
    if (a.kind == HEED_VALUE_LIST) {
        TRY(heed_value_list_new(renderer->pool, value));
        for (size_t i = 0; i < a.list->count; i++)
            TRY(heed_value_list_add(renderer->pool, value->list, a.list->item[i]));
        for (size_t i = 0; i < b.list->count; i++)
            TRY(heed_value_list_add(renderer->pool, value->list, b.list->item[i]));
        return HEED_OK;
    }
    heed_builder both = {0};
    heed_string string;
    heed_builder_add(&both, a.string);
    heed_builder_add(&both, b.string);
    TRY(heed_builder_take(&both, renderer->pool, &string));
    *value = heed_value_string(string);
    return HEED_OK;
}

/* a ~ b: both as they would be written */
static heed_status join_written(heed_renderer *renderer, heed_value a, heed_value b, heed_value *value)
{
    heed_builder both = {0};
    heed_string string;
    heed_status status = heed_value_write(a, &both);
    if (!status)
        status = heed_value_write(b, &both);
    if (status) {
        heed_builder_free(&both);
        return status;
    }
    TRY(heed_builder_take(&both, renderer->pool, &string));
    *value = heed_value_string(string);
    return HEED_OK;
}

static heed_status too_large(void)
{
    return heed_fail(HEED_UNSUPPORTED, "a number in the chat template grows too large");
}

/* Division and remainder go down, as in Python. */
static heed_status whole_arithmetic(char sign, int64_t a, int64_t b, heed_value *value)
{
    int64_t result = 0;
    bool overflow = false;
    if ((sign == '/' || sign == '%') && (b == 0 || (a == INT64_MIN && b == -1)))
        return b ? too_large() : heed_fail(HEED_UNSUPPORTED, "the chat template divides by zero");
    switch (sign) {
    case '+':
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case '-':
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case '/':
        result = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    default:
        result = a % b + ((a % b != 0 && (a < 0) != (b < 0)) ? b : 0);
    }
    *value = heed_value_int(result);
    return overflow ? too_large() : HEED_OK;
}

static heed_status arithmetic(const char *name, heed_value a, heed_value b, heed_value *value)
{
    const bool whole = a.kind != HEED_VALUE_FLOAT && b.kind != HEED_VALUE_FLOAT;
    const bool quotient = !strcmp(name, "/"), power = !strcmp(name, "**");
    if (whole && !quotient && !power)
        return whole_arithmetic(name[0], whole_of(a), whole_of(b), value);
    const double x = number_of(a), y = number_of(b);
    if (!power && *name != '+' && *name != '-' && *name != '*' && y == 0)
        return heed_fail(HEED_UNSUPPORTED, "the chat template divides by zero");
    const double result = power          ? pow(x, y)
                          : *name == '+' ? x + y
                          : *name == '-' ? x - y
                          : *name == '*' ? x * y
                          : quotient     ? x / y
                          : *name == '/' ? floor(x / y)
                                         : x - y * floor(x / y);
    if (power && whole && whole_of(b) >= 0 && fabs(result) < 9e15)
        *value = heed_value_int((int64_t)result);
    else
        *value = (heed_value){.kind = HEED_VALUE_FLOAT, .number = result};
    return HEED_OK;
}

heed_status heed_contains(heed_value item, heed_value container, bool *contains)
{
    *contains = false;
    if (container.kind == HEED_VALUE_LIST) {
        for (size_t i = 0; i < container.list->count && !*contains; i++)
            *contains = heed_value_equal(item, container.list->item[i]);
        return HEED_OK;
    }
    if (container.kind == HEED_VALUE_DICT && item.kind == HEED_VALUE_STRING) {
        *contains = heed_value_dict_find(container.dict, item.string.text, item.string.size) != NULL;
        return HEED_OK;
    }
    if (container.kind == HEED_VALUE_STRING && item.kind == HEED_VALUE_STRING) {
        *contains = !item.string.size || heed_find(container.string.text, container.string.size,
                                                   item.string.text, item.string.size);
        return HEED_OK;
    }
    return heed_fail(HEED_UNSUPPORTED, "the chat template looks for %s in %s", heed_value_kind_name(item),
                     heed_value_kind_name(container));
}

static heed_status compare(const char *name, heed_value a, heed_value b, heed_value *value)
{
    int order = 0;
    bool holds;
    if (!strcmp(name, "==") || !strcmp(name, "!=")) {
        holds = heed_value_equal(a, b) == (*name == '=');
    } else if (!strcmp(name, "in") || !strcmp(name, "not in")) {
        TRY(heed_contains(a, b, &holds));
        holds = holds == (*name == 'i');
    } else {
        TRY(heed_value_compare(a, b, &order));
        holds = *name == '<' ? (name[1] ? order <= 0 : order < 0) : (name[1] ? order >= 0 : order > 0);
    }
    *value = heed_value_bool(holds);
    return HEED_OK;
}

heed_status heed_binary(heed_renderer *renderer, const char *name, heed_value a, heed_value b,
                        heed_value *value)
{
    static const char *const comparisons[] = {"==", "!=", "<", ">", "<=", ">=", "in", "not in"};
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++)
        if (!strcmp(name, comparisons[i]))
            return compare(name, a, b, value);
    if (*name == '~')
        return join_written(renderer, a, b, value);
    if (*name == '+' && a.kind == b.kind && (a.kind == HEED_VALUE_STRING || a.kind == HEED_VALUE_LIST))
        return join(renderer, a, b, value);
    if (is_number(a) && is_number(b))
        return arithmetic(name, a, b, value);
    const heed_value bad = a.kind == HEED_VALUE_UNDEFINED ? a : b;
    if (bad.kind == HEED_VALUE_UNDEFINED)
        return heed_fail(HEED_UNSUPPORTED, "the chat template uses '%.40s', which is not defined", bad.name);
    return heed_fail(HEED_UNSUPPORTED, "the chat template has %s %s %s", heed_value_kind_name(a), name,
                     heed_value_kind_name(b));
}

size_t heed_characters(heed_string string)
{
    size_t count = 0;
    for (size_t i = 0; i < string.size; i++)
        count += (string.text[i] & 0xc0) != 0x80;
    return count;
}

heed_status heed_items(heed_renderer *renderer, heed_value value, heed_value *list)
{
    if (value.kind == HEED_VALUE_LIST) {
        *list = value;
        return HEED_OK;
    }
    TRY(heed_value_list_new(renderer->pool, list));
    if (value.kind == HEED_VALUE_DICT) {
        for (size_t i = 0; i < value.dict->count; i++)
            TRY(heed_value_list_add(renderer->pool, list->list, heed_value_string(value.dict->entry[i].key)));
    } else if (value.kind == HEED_VALUE_STRING) {
        for (size_t i = 0; i < value.string.size;) {
            const size_t end = i + (size_t)heed_utf8_size(value.string.text[i]);
            TRY(heed_value_list_add(renderer->pool, list->list,
                                    heed_value_string(heed_string_part(value.string, i, end))));
            i = end;
        }
    } else if (value.kind != HEED_VALUE_UNDEFINED) {
        return heed_fail(HEED_UNSUPPORTED, "the chat template goes through %s", heed_value_kind_name(value));
    }
    return HEED_OK;
}

heed_status heed_attribute(heed_renderer *renderer, heed_value object, const char *name, heed_value *value)
{
    (void)renderer;
    if (object.kind == HEED_VALUE_UNDEFINED)
        return heed_fail(HEED_UNSUPPORTED,
                         "the chat template asks for '%.40s' of '%.40s', which is not defined", name,
                         object.name);
    const heed_value *found =
        object.kind == HEED_VALUE_DICT ? heed_value_dict_find(object.dict, name, strlen(name)) : NULL;
    *value = found ? *found : (heed_value){.kind = HEED_VALUE_UNDEFINED, .name = name};
    return HEED_OK;
}

heed_status heed_index(heed_renderer *renderer, heed_value object, heed_value index, heed_value *value)
{
    if (object.kind == HEED_VALUE_UNDEFINED)
        return heed_fail(HEED_UNSUPPORTED, "the chat template looks into '%.40s', which is not defined",
                         object.name);
    *value = (heed_value){.kind = HEED_VALUE_UNDEFINED, .name = "an entry that is not there"};
    if (object.kind == HEED_VALUE_DICT && index.kind == HEED_VALUE_STRING) {
        const heed_value *found = heed_value_dict_find(object.dict, index.string.text, index.string.size);
        if (found)
            *value = *found;
        return HEED_OK;
    }
    if ((object.kind != HEED_VALUE_LIST && object.kind != HEED_VALUE_STRING) || index.kind != HEED_VALUE_INT)
        return HEED_OK;
    heed_value list;
    TRY(heed_items(renderer, object, &list));
    const int64_t count = (int64_t)list.list->count, i = index.whole < 0 ? index.whole + count : index.whole;
    if (i >= 0 && i < count)
        *value = list.list->item[i];
    return HEED_OK;
}

/* A bound of a slice: from the end when negative, and within least..most. */
static int64_t bound(heed_value part, int64_t otherwise, int64_t count, int64_t least, int64_t most)
{
    if (part.kind != HEED_VALUE_INT)
        return otherwise;
    const int64_t at = part.whole < 0 ? part.whole + count : part.whole;
    return at < least ? least : at > most ? most : at;
}

heed_status heed_slice(heed_renderer *renderer, heed_value object, const heed_value *parts, heed_value *value)
{
    heed_value list, picked;
    if (object.kind != HEED_VALUE_LIST && object.kind != HEED_VALUE_STRING)
        return heed_fail(HEED_UNSUPPORTED, "the chat template takes a slice of %s",
                         heed_value_kind_name(object));
    TRY(heed_items(renderer, object, &list));
    const int64_t count = (int64_t)list.list->count,
                  step = parts[2].kind == HEED_VALUE_INT ? parts[2].whole : 1;
    if (step == 0 || step < -count - 1 || step > count + 1)
        return heed_fail(HEED_UNSUPPORTED, "the chat template takes a slice in steps of %lld",
                         (long long)step);
    const int64_t start =
        step > 0 ? bound(parts[0], 0, count, 0, count) : bound(parts[0], count - 1, count, -1, count - 1);
    const int64_t end =
        step > 0 ? bound(parts[1], count, count, 0, count) : bound(parts[1], -1, count, -1, count - 1);
    TRY(heed_value_list_new(renderer->pool, &picked));
    for (int64_t i = start; step > 0 ? i < end : i > end; i += step)
        TRY(heed_value_list_add(renderer->pool, picked.list, list.list->item[i]));
    *value = picked;
    if (object.kind == HEED_VALUE_LIST)
        return HEED_OK;
    heed_builder text = {0};
    heed_string string;
    for (size_t i = 0; i < picked.list->count; i++)
        heed_builder_add(&text, picked.list->item[i].string);
    TRY(heed_builder_take(&text, renderer->pool, &string));
    *value = heed_value_string(string);
    return HEED_OK;
}
