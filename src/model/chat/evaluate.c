/* Expressions to values. */
#include "base/try.h"
#include "model/chat/template.h"

#include <string.h>

enum { MOST_STEPS = 5000000, DEEPEST = 400 };

const heed_value *heed_argument(const heed_arguments *arguments, int place, const char *name)
{
    if (place >= 0 && place < arguments->places)
        return &arguments->place[place];
    for (int i = 0; name && i < arguments->names; i++)
        if (!strcmp(arguments->named[i].name, name))
            return &arguments->named[i].value;
    return NULL;
}

static heed_status arguments_of(heed_renderer *renderer, const heed_node *list, heed_arguments *arguments)
{
    *arguments = (heed_arguments){0};
    for (; list; list = list->next) {
        heed_value value;
        TRY(heed_evaluate(renderer, list->first, &value));
        if ((list->name && arguments->names == 16) || (!list->name && arguments->places == 8))
            return heed_fail(HEED_UNSUPPORTED, "line %d of the chat template: a call has too many arguments",
                             list->line);
        if (list->name) {
            arguments->named[arguments->names].name = list->name;
            arguments->named[arguments->names++].value = value;
        } else {
            arguments->place[arguments->places++] = value;
        }
    }
    return HEED_OK;
}

static void look_up(const heed_renderer *renderer, const char *name, heed_value *value)
{
    static const char *const globals[] = {"raise_exception", "namespace", "range", "dict"};
    for (const heed_scope *scope = renderer->scope; scope; scope = scope->outer) {
        const heed_value *found = heed_value_dict_find(scope->variables, name, strlen(name));
        if (found) {
            *value = *found;
            return;
        }
    }
    *value = (heed_value){.kind = HEED_VALUE_UNDEFINED, .name = name};
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (!strcmp(name, globals[i]))
            *value = (heed_value){.kind = HEED_VALUE_GLOBAL, .name = globals[i]};
}

static heed_status list_value(heed_renderer *renderer, const heed_node *node, heed_value *value)
{
    TRY(heed_value_list_new(renderer->pool, value));
    for (const heed_node *item = node->list; item; item = item->next) {
        heed_value entry;
        TRY(heed_evaluate(renderer, item->first, &entry));
        TRY(heed_value_list_add(renderer->pool, value->list, entry));
    }
    return HEED_OK;
}

static heed_status dict_value(heed_renderer *renderer, const heed_node *node, heed_value *value)
{
    TRY(heed_value_dict_new(renderer->pool, value));
    for (const heed_node *item = node->list; item && item->next; item = item->next->next) {
        heed_value key, entry;
        TRY(heed_evaluate(renderer, item->first, &key));
        TRY(heed_evaluate(renderer, item->next->first, &entry));
        if (key.kind != HEED_VALUE_STRING)
            return heed_fail(HEED_UNSUPPORTED, "line %d of the chat template: %s as the key of a mapping",
                             node->line, heed_value_kind_name(key));
        TRY(heed_value_dict_set(renderer->pool, value->dict, key.string, entry));
    }
    return HEED_OK;
}

static heed_status unary(heed_renderer *renderer, const heed_node *node, heed_value *value)
{
    heed_value operand;
    TRY(heed_evaluate(renderer, node->first, &operand));
    if (!strcmp(node->name, "not")) {
        *value = heed_value_bool(!heed_value_truth(operand));
        return HEED_OK;
    }
    const heed_value zero = heed_value_int(0);
    return heed_binary(renderer, node->name, zero, operand, value);
}

static heed_status binary(heed_renderer *renderer, const heed_node *node, heed_value *value)
{
    heed_value second;
    TRY(heed_evaluate(renderer, node->first, value));
    const bool is_and = !strcmp(node->name, "and"), is_or = !strcmp(node->name, "or");
    if (is_and || is_or)
        return heed_value_truth(*value) == is_or ? HEED_OK : heed_evaluate(renderer, node->second, value);
    TRY(heed_evaluate(renderer, node->second, &second));
    return heed_binary(renderer, node->name, *value, second, value);
}

static heed_status ternary(heed_renderer *renderer, const heed_node *node, heed_value *value)
{
    heed_value condition;
    TRY(heed_evaluate(renderer, node->second, &condition));
    if (heed_value_truth(condition))
        return heed_evaluate(renderer, node->first, value);
    *value = (heed_value){.kind = HEED_VALUE_UNDEFINED, .name = "the value of an if without else"};
    return node->third ? heed_evaluate(renderer, node->third, value) : HEED_OK;
}

static heed_status slice(heed_renderer *renderer, const heed_node *node, heed_value *value)
{
    heed_value object, parts[3];
    const heed_node *const nodes[] = {node->second, node->third, node->list};
    TRY(heed_evaluate(renderer, node->first, &object));
    for (int i = 0; i < 3; i++) {
        parts[i] = (heed_value){.kind = HEED_VALUE_NONE};
        if (nodes[i])
            TRY(heed_evaluate(renderer, nodes[i], &parts[i]));
    }
    return heed_slice(renderer, object, parts, value);
}

static heed_status call(heed_renderer *renderer, const heed_node *node, heed_value *value)
{
    heed_value function;
    heed_arguments arguments;
    TRY(arguments_of(renderer, node->list, &arguments));
    if (node->first->kind == HEED_NODE_ATTRIBUTE) {
        heed_value object;
        TRY(heed_evaluate(renderer, node->first->first, &object));
        return heed_method(renderer, object, node->first->name, &arguments, value);
    }
    TRY(heed_evaluate(renderer, node->first, &function));
    if (function.kind == HEED_VALUE_MACRO)
        return heed_call_macro(renderer, function.macro, &arguments, value);
    if (function.kind == HEED_VALUE_GLOBAL)
        return heed_global(renderer, function.name, &arguments, value);
    return heed_fail(HEED_UNSUPPORTED, "line %d of the chat template: the function '%.40s' is not understood",
                     node->line,
                     function.kind == HEED_VALUE_UNDEFINED ? function.name : heed_value_kind_name(function));
}

static heed_status filter_or_test(heed_renderer *renderer, const heed_node *node, heed_value *value)
{
    heed_value input;
    heed_arguments arguments;
    bool holds = false;
    TRY(heed_evaluate(renderer, node->first, &input));
    TRY(arguments_of(renderer, node->list, &arguments));
    if (node->kind == HEED_NODE_FILTER)
        return heed_filter(renderer, input, node->name, &arguments, value);
    TRY(heed_test(renderer, input, node->name, &arguments, &holds));
    *value = heed_value_bool(holds);
    return HEED_OK;
}

static heed_status evaluate(heed_renderer *renderer, const heed_node *node, heed_value *value)
{
    heed_value object, index;
    switch (node->kind) {
    case HEED_NODE_LITERAL:
        *value = node->value;
        return HEED_OK;
    case HEED_NODE_NAME:
        look_up(renderer, node->name, value);
        return HEED_OK;
    case HEED_NODE_LIST:
        return list_value(renderer, node, value);
    case HEED_NODE_DICT:
        return dict_value(renderer, node, value);
    case HEED_NODE_UNARY:
        return unary(renderer, node, value);
    case HEED_NODE_BINARY:
        return binary(renderer, node, value);
    case HEED_NODE_TERNARY:
        return ternary(renderer, node, value);
    case HEED_NODE_ATTRIBUTE:
        TRY(heed_evaluate(renderer, node->first, &object));
        return heed_attribute(renderer, object, node->name, value);
    case HEED_NODE_INDEX:
        TRY(heed_evaluate(renderer, node->first, &object));
        TRY(heed_evaluate(renderer, node->second, &index));
        return heed_index(renderer, object, index, value);
    case HEED_NODE_SLICE:
        return slice(renderer, node, value);
    case HEED_NODE_CALL:
        return call(renderer, node, value);
    default:
        return filter_or_test(renderer, node, value);
    }
}

heed_status heed_evaluate(heed_renderer *renderer, const heed_node *node, heed_value *value)
{
    if (++renderer->steps > MOST_STEPS)
        return heed_fail(HEED_UNSUPPORTED, "the chat template takes more than %d steps", MOST_STEPS);
    if (++renderer->depth > DEEPEST)
        return heed_fail(HEED_UNSUPPORTED,
                         "line %d of the chat template: calls within calls, more than %d deep", node->line,
                         DEEPEST);
    const heed_status status = evaluate(renderer, node, value);
    renderer->depth--;
    return status;
}
