/* Expressions of templates, in the order of their binding: if-else, or, and, not, comparisons, + -, ~, * / //
 * %, **, signs, then what follows a value: attributes, indices, calls, filters and tests.
 */
#include "base/try.h"
#include "model/chat/template.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 100 };

static heed_status parse_unary(heed_parser *parser, bool filters, const heed_node **node);

static heed_status deeper(heed_parser *parser)
{
    return ++parser->depth > DEEPEST
               ? heed_fail(HEED_UNSUPPORTED,
                           "line %d of the chat template: brackets stand in more than %d others",
                           parser->token->line, DEEPEST)
               : HEED_OK;
}

static heed_status binary(heed_parser *parser, const char *name, const heed_node *first,
                          const heed_node *second, const heed_node **node)
{
    heed_node *made = heed_node_new(parser, HEED_NODE_BINARY);
    if (!made)
        return HEED_NO_MEMORY;
    made->name = name;
    made->first = first;
    made->second = second;
    *node = made;
    return HEED_OK;
}

/* Levels of operators that bind to the left. */
static const struct level {
    const char *signs[4];
} levels[] = {{{"+", "-"}}, {{"~"}}, {{"*", "/", "//", "%"}}, {{"**"}}};
enum { LEVELS = sizeof levels / sizeof *levels };

static heed_status parse_level(heed_parser *parser, int level, const heed_node **node)
{
    if (level == LEVELS)
        return parse_unary(parser, true, node);
    TRY(parse_level(parser, level + 1, node));
    for (int i = 0; i < 4 && levels[level].signs[i];) {
        const heed_node *second;
        if (!heed_parser_take(parser, HEED_TOKEN_SIGN, levels[level].signs[i])) {
            i++;
            continue;
        }
        TRY(parse_level(parser, level + 1, &second));
        TRY(binary(parser, levels[level].signs[i], *node, second, node));
        i = 0;
    }
    return HEED_OK;
}

static const char *comparison(heed_parser *parser)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (heed_parser_take(parser, HEED_TOKEN_SIGN, signs[i]))
            return signs[i];
    if (heed_parser_take(parser, HEED_TOKEN_NAME, "in"))
        return "in";
    if (heed_parser_at(parser, HEED_TOKEN_NAME, "not") && parser->token[1].kind == HEED_TOKEN_NAME &&
        !strcmp(parser->token[1].text, "in")) {
        parser->token += 2;
        return "not in";
    }
    return NULL;
}

/* a < b < c means a < b and b < c */
static heed_status parse_comparison(heed_parser *parser, const heed_node **node)
{
    const heed_node *last, *next, *compared;
    const char *name;
    TRY(parse_level(parser, 0, node));
    last = *node;
    for (int count = 0; (name = comparison(parser)); count++) {
        TRY(parse_level(parser, 0, &next));
        TRY(binary(parser, name, last, next, &compared));
        if (count)
            TRY(binary(parser, "and", *node, compared, node));
        else
            *node = compared;
        last = next;
    }
    return HEED_OK;
}

static heed_status parse_not(heed_parser *parser, const heed_node **node)
{
    if (!heed_parser_take(parser, HEED_TOKEN_NAME, "not"))
        return parse_comparison(parser, node);
    heed_node *made = heed_node_new(parser, HEED_NODE_UNARY);
    if (!made)
        return HEED_NO_MEMORY;
    made->name = "not";
    TRY(deeper(parser));
    TRY(parse_not(parser, &made->first));
    parser->depth--;
    *node = made;
    return HEED_OK;
}

static heed_status parse_and(heed_parser *parser, const heed_node **node)
{
    TRY(parse_not(parser, node));
    while (heed_parser_take(parser, HEED_TOKEN_NAME, "and")) {
        const heed_node *second;
        TRY(parse_not(parser, &second));
        TRY(binary(parser, "and", *node, second, node));
    }
    return HEED_OK;
}

heed_status heed_parse_or(heed_parser *parser, const heed_node **node)
{
    TRY(parse_and(parser, node));
    while (heed_parser_take(parser, HEED_TOKEN_NAME, "or")) {
        const heed_node *second;
        TRY(parse_and(parser, &second));
        TRY(binary(parser, "or", *node, second, node));
    }
    return HEED_OK;
}

heed_status heed_parse_expression(heed_parser *parser, const heed_node **node)
{
    TRY(deeper(parser));
    TRY(heed_parse_or(parser, node));
    while (heed_parser_take(parser, HEED_TOKEN_NAME, "if")) {
        heed_node *made = heed_node_new(parser, HEED_NODE_TERNARY);
        if (!made)
            return HEED_NO_MEMORY;
        made->first = *node;
        TRY(heed_parse_or(parser, &made->second));
        if (heed_parser_take(parser, HEED_TOKEN_NAME, "else"))
            TRY(heed_parse_expression(parser, &made->third));
        *node = made;
    }
    parser->depth--;
    return HEED_OK;
}

/* Expressions between commas up to a bracket, which is taken; `pairs`: key: value. */
static heed_status parse_list(heed_parser *parser, const char *closing, bool pairs, const heed_node **list)
{
    const heed_node **end = list;
    *list = NULL;
    while (!heed_parser_take(parser, HEED_TOKEN_SIGN, closing)) {
        for (int i = 0; i < (pairs ? 2 : 1); i++) {
            const heed_node *item;
            if (i)
                TRY(heed_parser_expect(parser, HEED_TOKEN_SIGN, ":"));
            TRY(heed_parse_expression(parser, &item));
            heed_node *link = heed_node_new(parser, HEED_NODE_KEYWORD);
            if (!link)
                return HEED_NO_MEMORY;
            link->first = item;
            *end = link;
            end = &link->next;
        }
        if (!heed_parser_at(parser, HEED_TOKEN_SIGN, closing))
            TRY(heed_parser_expect(parser, HEED_TOKEN_SIGN, ","));
    }
    return HEED_OK;
}

heed_status heed_parse_arguments(heed_parser *parser, const char *closing, const heed_node **list)
{
    const heed_node **end = list;
    *list = NULL;
    while (!heed_parser_take(parser, HEED_TOKEN_SIGN, closing)) {
        heed_node *argument = heed_node_new(parser, HEED_NODE_KEYWORD);
        if (!argument)
            return HEED_NO_MEMORY;
        if (parser->token->kind == HEED_TOKEN_NAME && parser->token[1].kind == HEED_TOKEN_SIGN &&
            !strcmp(parser->token[1].text, "=")) {
            argument->name = parser->token->text;
            parser->token += 2;
        }
        TRY(heed_parse_expression(parser, &argument->first));
        *end = argument;
        end = &argument->next;
        if (!heed_parser_at(parser, HEED_TOKEN_SIGN, closing))
            TRY(heed_parser_expect(parser, HEED_TOKEN_SIGN, ","));
    }
    return HEED_OK;
}

static heed_status literal(heed_parser *parser, heed_value value, const heed_node **node)
{
    heed_node *made = heed_node_new(parser, HEED_NODE_LITERAL);
    if (!made)
        return HEED_NO_MEMORY;
    made->value = value;
    *node = made;
    parser->token++;
    return HEED_OK;
}

/* Texts that stand side by side are one. */
static heed_status parse_string(heed_parser *parser, const heed_node **node)
{
    heed_value value = heed_value_text(parser->token->text, parser->token->size, false);
    while (parser->token[1].kind == HEED_TOKEN_STRING) {
        const size_t size = value.string.size + parser->token[1].size;
        char *both = heed_chat_pool_take(parser->pool, size + 1, 1);
        if (!both)
            return HEED_NO_MEMORY;
        memcpy(both, value.string.text, value.string.size);
        memcpy(both + value.string.size, parser->token[1].text, parser->token[1].size);
        value = heed_value_text(both, size, false);
        parser->token++;
    }
    return literal(parser, value, node);
}

static heed_status parse_number(heed_parser *parser, const heed_node **node)
{
    char digits[64];
    size_t size = 0;
    for (size_t i = 0; i < parser->token->size && size < sizeof digits - 1; i++)
        if (parser->token->text[i] != '_')
            digits[size++] = parser->token->text[i];
    digits[size] = 0;
    if (parser->token->kind == HEED_TOKEN_FLOAT)
        return literal(parser, (heed_value){.kind = HEED_VALUE_FLOAT, .number = strtod(digits, NULL)}, node);
    errno = 0;
    const long long whole = strtoll(digits, NULL, 10);
    if (errno)
        return heed_parser_refuse(parser, "so large a number");
    return literal(parser, heed_value_int(whole), node);
}

static heed_status parse_name(heed_parser *parser, const heed_node **node)
{
    static const struct {
        const char *name;
        heed_value value;
    } words[] = {{"true", {.kind = HEED_VALUE_BOOL, .truth = true}},
                 {"True", {.kind = HEED_VALUE_BOOL, .truth = true}},
                 {"false", {.kind = HEED_VALUE_BOOL, .truth = false}},
                 {"False", {.kind = HEED_VALUE_BOOL, .truth = false}},
                 {"none", {.kind = HEED_VALUE_NONE}},
                 {"None", {.kind = HEED_VALUE_NONE}}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (heed_parser_at(parser, HEED_TOKEN_NAME, words[i].name))
            return literal(parser, words[i].value, node);
    heed_node *made = heed_node_new(parser, HEED_NODE_NAME);
    if (!made)
        return HEED_NO_MEMORY;
    made->name = parser->token++->text;
    *node = made;
    return HEED_OK;
}

/* ( ... ): an expression, or a tuple, which is a list here. */
static heed_status parse_bracket(heed_parser *parser, const heed_node **node)
{
    if (heed_parser_take(parser, HEED_TOKEN_SIGN, ")")) {
        *node = heed_node_new(parser, HEED_NODE_LIST);
        return *node ? HEED_OK : HEED_NO_MEMORY;
    }
    TRY(heed_parse_expression(parser, node));
    if (heed_parser_take(parser, HEED_TOKEN_SIGN, ")"))
        return HEED_OK;
    TRY(heed_parser_expect(parser, HEED_TOKEN_SIGN, ","));
    heed_node *list = heed_node_new(parser, HEED_NODE_LIST),
              *first = heed_node_new(parser, HEED_NODE_KEYWORD);
    if (!list || !first)
        return HEED_NO_MEMORY;
    first->first = *node;
    TRY(parse_list(parser, ")", false, &first->next));
    list->list = first;
    *node = list;
    return HEED_OK;
}

static heed_status parse_primary(heed_parser *parser, const heed_node **node)
{
    const bool list = heed_parser_at(parser, HEED_TOKEN_SIGN, "["),
               dict = heed_parser_at(parser, HEED_TOKEN_SIGN, "{");
    if (list || dict) {
        heed_node *made = heed_node_new(parser, list ? HEED_NODE_LIST : HEED_NODE_DICT);
        if (!made)
            return HEED_NO_MEMORY;
        parser->token++;
        *node = made;
        return parse_list(parser, list ? "]" : "}", dict, &made->list);
    }
    if (heed_parser_take(parser, HEED_TOKEN_SIGN, "("))
        return parse_bracket(parser, node);
    switch (parser->token->kind) {
    case HEED_TOKEN_STRING:
        return parse_string(parser, node);
    case HEED_TOKEN_INT:
    case HEED_TOKEN_FLOAT:
        return parse_number(parser, node);
    case HEED_TOKEN_NAME:
        return parse_name(parser, node);
    default:
        return heed_parser_refuse(parser, NULL);
    }
}

/* object[index], object[from:to:step]; each part may lack. */
static heed_status parse_index(heed_parser *parser, heed_node *made)
{
    const heed_node **parts[] = {&made->second, &made->third, &made->list};
    made->kind = HEED_NODE_INDEX;
    for (int i = 0; i < 3; i++) {
        if (!heed_parser_at(parser, HEED_TOKEN_SIGN, ":") && !heed_parser_at(parser, HEED_TOKEN_SIGN, "]"))
            TRY(heed_parse_expression(parser, parts[i]));
        if (!heed_parser_take(parser, HEED_TOKEN_SIGN, ":"))
            break;
        made->kind = HEED_NODE_SLICE;
    }
    if (made->kind == HEED_NODE_INDEX && !made->second)
        return heed_parser_refuse(parser, NULL);
    return heed_parser_expect(parser, HEED_TOKEN_SIGN, "]");
}

/* x is [not] name [(arguments) or one plain argument] */
static heed_status parse_test(heed_parser *parser, heed_node *made, const heed_node **node)
{
    const bool negated = heed_parser_take(parser, HEED_TOKEN_NAME, "not");
    made->kind = HEED_NODE_TEST;
    if (parser->token->kind != HEED_TOKEN_NAME)
        return heed_parser_refuse(parser, NULL);
    made->name = parser->token++->text;
    if (heed_parser_take(parser, HEED_TOKEN_SIGN, "(")) {
        TRY(heed_parse_arguments(parser, ")", &made->list));
    } else if (parser->token->kind == HEED_TOKEN_STRING || parser->token->kind == HEED_TOKEN_INT ||
               (parser->token->kind == HEED_TOKEN_NAME &&
                (!strcmp(made->name, "equalto") || !strcmp(made->name, "divisibleby") ||
                 !strcmp(made->name, "sameas") || !strcmp(made->name, "in")))) {
        heed_node *argument = heed_node_new(parser, HEED_NODE_KEYWORD);
        if (!argument)
            return HEED_NO_MEMORY;
        TRY(parse_primary(parser, &argument->first));
        made->list = argument;
    }
    *node = made;
    if (!negated)
        return HEED_OK;
    heed_node *not_node = heed_node_new(parser, HEED_NODE_UNARY);
    if (!not_node)
        return HEED_NO_MEMORY;
    not_node->name = "not";
    not_node->first = made;
    *node = not_node;
    return HEED_OK;
}

/* What may follow a value. */
static heed_status parse_postfix(heed_parser *parser, bool filters, const heed_node **node)
{
    for (int count = 0; count < 1000; count++) {
        heed_node *made = heed_node_new(parser, HEED_NODE_ATTRIBUTE);
        if (!made)
            return HEED_NO_MEMORY;
        made->first = *node;
        if (heed_parser_take(parser, HEED_TOKEN_SIGN, ".")) {
            if (parser->token->kind != HEED_TOKEN_NAME && parser->token->kind != HEED_TOKEN_INT)
                return heed_parser_refuse(parser, NULL);
            made->name = parser->token->text;
            if (parser->token->kind == HEED_TOKEN_INT) {
                made->kind = HEED_NODE_INDEX;
                TRY(parse_number(parser, &made->second));
            } else {
                parser->token++;
            }
        } else if (heed_parser_take(parser, HEED_TOKEN_SIGN, "[")) {
            TRY(parse_index(parser, made));
        } else if (heed_parser_take(parser, HEED_TOKEN_SIGN, "(")) {
            made->kind = HEED_NODE_CALL;
            TRY(heed_parse_arguments(parser, ")", &made->list));
        } else if (filters && heed_parser_take(parser, HEED_TOKEN_SIGN, "|")) {
            made->kind = HEED_NODE_FILTER;
            if (parser->token->kind != HEED_TOKEN_NAME)
                return heed_parser_refuse(parser, NULL);
            made->name = parser->token++->text;
            if (heed_parser_take(parser, HEED_TOKEN_SIGN, "("))
                TRY(heed_parse_arguments(parser, ")", &made->list));
        } else if (filters && heed_parser_take(parser, HEED_TOKEN_NAME, "is")) {
            TRY(parse_test(parser, made, node));
            continue;
        } else {
            return HEED_OK;
        }
        *node = made;
    }
    return heed_parser_refuse(parser, "so long an expression");
}

static heed_status parse_unary(heed_parser *parser, bool filters, const heed_node **node)
{
    const char *sign = heed_parser_take(parser, HEED_TOKEN_SIGN, "-")   ? "-"
                       : heed_parser_take(parser, HEED_TOKEN_SIGN, "+") ? "+"
                                                                        : NULL;
    if (sign) {
        heed_node *made = heed_node_new(parser, HEED_NODE_UNARY);
        if (!made)
            return HEED_NO_MEMORY;
        made->name = sign;
        TRY(deeper(parser));
        TRY(parse_unary(parser, false, &made->first));
        parser->depth--;
        *node = made;
    } else {
        TRY(parse_primary(parser, node));
    }
    return parse_postfix(parser, filters, node);
}
