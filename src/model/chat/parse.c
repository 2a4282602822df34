/* Statements of templates. */
#include "base/try.h"
#include "model/chat/template.h"

#include <string.h>

static heed_status parse_body(heed_parser *parser, const char *const *ends, const heed_node **body);

heed_node *heed_node_new(heed_parser *parser, heed_node_kind kind)
{
    heed_node *node = heed_chat_pool_take(parser->pool, 1, sizeof *node);
    if (node) {
        node->kind = kind;
        node->line = parser->token->line;
    }
    return node;
}

bool heed_parser_at(const heed_parser *parser, heed_token_kind kind, const char *text)
{
    return parser->token->kind == kind && !strcmp(parser->token->text, text);
}

bool heed_parser_take(heed_parser *parser, heed_token_kind kind, const char *text)
{
    const bool here = heed_parser_at(parser, kind, text);
    parser->token += here;
    return here;
}

heed_status heed_parser_expect(heed_parser *parser, heed_token_kind kind, const char *text)
{
    if (heed_parser_take(parser, kind, text))
        return HEED_OK;
    return heed_fail(HEED_UNSUPPORTED, "line %d of the chat template: '%.40s' where '%s' should be",
                     parser->token->line,
                     parser->token->kind == HEED_TOKEN_END ? "the end" : parser->token->text, text);
}

heed_status heed_parser_refuse(const heed_parser *parser, const char *what)
{
    if (what)
        return heed_fail(HEED_UNSUPPORTED, "line %d of the chat template: %s is not understood",
                         parser->token->line, what);
    return heed_fail(HEED_UNSUPPORTED, "line %d of the chat template: '%.40s' is not understood here",
                     parser->token->line,
                     parser->token->kind == HEED_TOKEN_END ? "the end" : parser->token->text);
}

static heed_status end_block(heed_parser *parser)
{
    return heed_parser_expect(parser, HEED_TOKEN_CLOSE_BLOCK, "%}");
}

/* {% endX %} behind a body */
static heed_status end_statement(heed_parser *parser, const char *name)
{
    TRY(heed_parser_expect(parser, HEED_TOKEN_OPEN_BLOCK, "{%"));
    TRY(heed_parser_expect(parser, HEED_TOKEN_NAME, name));
    return end_block(parser);
}

static heed_status take_name(heed_parser *parser, const char **name)
{
    if (parser->token->kind != HEED_TOKEN_NAME)
        return heed_parser_refuse(parser, NULL);
    *name = parser->token++->text;
    return HEED_OK;
}

/* Behind `if` or `elif`. */
static heed_status parse_if(heed_parser *parser, heed_node *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    node->kind = HEED_NODE_IF;
    TRY(heed_parse_expression(parser, &node->first));
    TRY(end_block(parser));
    TRY(parse_body(parser, ends, &node->body));
    parser->token++; /* {% */
    if (heed_parser_take(parser, HEED_TOKEN_NAME, "elif")) {
        heed_node *other = heed_node_new(parser, HEED_NODE_IF);
        if (!other)
            return HEED_NO_MEMORY;
        node->other = other;
        if (++parser->depth > 200)
            return heed_parser_refuse(parser, "so many branches");
        TRY(parse_if(parser, other));
        parser->depth--;
        return HEED_OK;
    }
    if (heed_parser_take(parser, HEED_TOKEN_NAME, "else")) {
        TRY(end_block(parser));
        TRY(parse_body(parser, last, &node->other));
        parser->token++;
    }
    TRY(heed_parser_expect(parser, HEED_TOKEN_NAME, "endif"));
    return end_block(parser);
}

static heed_status parse_for(heed_parser *parser, heed_node *node)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    node->kind = HEED_NODE_FOR;
    const bool bracket = heed_parser_take(parser, HEED_TOKEN_SIGN, "(");
    TRY(take_name(parser, &node->name));
    if (heed_parser_take(parser, HEED_TOKEN_SIGN, ","))
        TRY(take_name(parser, &node->name2));
    if (bracket)
        TRY(heed_parser_expect(parser, HEED_TOKEN_SIGN, ")"));
    TRY(heed_parser_expect(parser, HEED_TOKEN_NAME, "in"));
    TRY(heed_parse_or(parser, &node->first));
    if (heed_parser_take(parser, HEED_TOKEN_NAME, "if"))
        TRY(heed_parse_expression(parser, &node->second));
    if (heed_parser_at(parser, HEED_TOKEN_NAME, "recursive"))
        return heed_parser_refuse(parser, NULL);
    TRY(end_block(parser));
    parser->loops++;
    TRY(parse_body(parser, ends, &node->body));
    parser->loops--;
    parser->token++;
    if (heed_parser_take(parser, HEED_TOKEN_NAME, "else")) {
        TRY(end_block(parser));
        TRY(parse_body(parser, last, &node->other));
        parser->token++;
    }
    TRY(heed_parser_expect(parser, HEED_TOKEN_NAME, "endfor"));
    return end_block(parser);
}

static heed_status parse_set(heed_parser *parser, heed_node *node)
{
    static const char *const ends[] = {"endset", NULL};
    node->kind = HEED_NODE_SET;
    heed_node *target = heed_node_new(parser, HEED_NODE_NAME);
    if (!target)
        return HEED_NO_MEMORY;
    TRY(take_name(parser, &target->name));
    node->first = target;
    if (heed_parser_take(parser, HEED_TOKEN_SIGN, ".")) {
        heed_node *attribute = heed_node_new(parser, HEED_NODE_ATTRIBUTE);
        if (!attribute)
            return HEED_NO_MEMORY;
        attribute->first = target;
        TRY(take_name(parser, &attribute->name));
        node->first = attribute;
    }
    if (heed_parser_take(parser, HEED_TOKEN_SIGN, "=")) {
        TRY(heed_parse_expression(parser, &node->second));
        return end_block(parser);
    }
    TRY(end_block(parser));
    TRY(parse_body(parser, ends, &node->body));
    return end_statement(parser, "endset");
}

static heed_status parse_macro(heed_parser *parser, heed_node *node)
{
    static const char *const ends[] = {"endmacro", NULL};
    node->kind = HEED_NODE_MACRO;
    TRY(take_name(parser, &node->name));
    TRY(heed_parser_expect(parser, HEED_TOKEN_SIGN, "("));
    const heed_node **end = &node->list;
    while (!heed_parser_take(parser, HEED_TOKEN_SIGN, ")")) {
        heed_node *parameter = heed_node_new(parser, HEED_NODE_KEYWORD);
        if (!parameter)
            return HEED_NO_MEMORY;
        TRY(take_name(parser, &parameter->name));
        if (heed_parser_take(parser, HEED_TOKEN_SIGN, "="))
            TRY(heed_parse_expression(parser, &parameter->first));
        *end = parameter;
        end = &parameter->next;
        if (!heed_parser_at(parser, HEED_TOKEN_SIGN, ")"))
            TRY(heed_parser_expect(parser, HEED_TOKEN_SIGN, ","));
    }
    TRY(end_block(parser));
    TRY(parse_body(parser, ends, &node->body));
    return end_statement(parser, "endmacro");
}

/* {% generation %} marks what an assistant said, for training; here it is what stands in it. */
static heed_status parse_generation(heed_parser *parser, heed_node *node)
{
    static const char *const ends[] = {"endgeneration", NULL};
    heed_node *always = heed_node_new(parser, HEED_NODE_LITERAL);
    if (!always)
        return HEED_NO_MEMORY;
    always->value = heed_value_bool(true);
    node->kind = HEED_NODE_IF;
    node->first = always;
    TRY(end_block(parser));
    TRY(parse_body(parser, ends, &node->body));
    return end_statement(parser, "endgeneration");
}

static heed_status parse_jump(heed_parser *parser, heed_node *node, heed_node_kind kind)
{
    node->kind = kind;
    if (!parser->loops)
        return heed_parser_refuse(parser, "break or continue outside a loop");
    return end_block(parser);
}

static heed_status parse_do(heed_parser *parser, heed_node *node)
{
    node->kind = HEED_NODE_DO;
    TRY(heed_parse_expression(parser, &node->first));
    return end_block(parser);
}

static heed_status parse_statement(heed_parser *parser, heed_node *node)
{
    if (heed_parser_take(parser, HEED_TOKEN_NAME, "if"))
        return parse_if(parser, node);
    if (heed_parser_take(parser, HEED_TOKEN_NAME, "for"))
        return parse_for(parser, node);
    if (heed_parser_take(parser, HEED_TOKEN_NAME, "set"))
        return parse_set(parser, node);
    if (heed_parser_take(parser, HEED_TOKEN_NAME, "macro"))
        return parse_macro(parser, node);
    if (heed_parser_take(parser, HEED_TOKEN_NAME, "generation"))
        return parse_generation(parser, node);
    if (heed_parser_take(parser, HEED_TOKEN_NAME, "break"))
        return parse_jump(parser, node, HEED_NODE_BREAK);
    if (heed_parser_take(parser, HEED_TOKEN_NAME, "continue"))
        return parse_jump(parser, node, HEED_NODE_CONTINUE);
    if (heed_parser_take(parser, HEED_TOKEN_NAME, "do"))
        return parse_do(parser, node);
    return heed_fail(HEED_UNSUPPORTED,
                     "line %d of the chat template: the statement '%.40s' is not understood",
                     parser->token->line, parser->token->text);
}

/* Whether a block begins here that ends the body. */
static bool ends_here(const heed_parser *parser, const char *const *ends)
{
    if (parser->token->kind != HEED_TOKEN_OPEN_BLOCK || parser->token[1].kind != HEED_TOKEN_NAME)
        return false;
    for (; *ends; ends++)
        if (!strcmp(parser->token[1].text, *ends))
            return true;
    return false;
}

/* Up to {% END, which is left; to the end of the template when there are no ends. */
static heed_status parse_body(heed_parser *parser, const char *const *ends, const heed_node **body)
{
    const heed_node **end = body;
    *body = NULL;
    if (++parser->depth > 200)
        return heed_parser_refuse(parser, "so many blocks within blocks");
    while (!ends_here(parser, ends)) {
        if (parser->token->kind == HEED_TOKEN_END && !*ends)
            break;
        if (parser->token->kind == HEED_TOKEN_END)
            return heed_fail(HEED_UNSUPPORTED, "line %d of the chat template: the end where '%s' should be",
                             parser->token->line, *ends);
        heed_node *node = heed_node_new(parser, HEED_NODE_TEXT);
        if (!node)
            return HEED_NO_MEMORY;
        if (parser->token->kind == HEED_TOKEN_TEXT) {
            node->value = heed_value_text(parser->token->text, parser->token->size, false);
            parser->token++;
        } else if (heed_parser_take(parser, HEED_TOKEN_OPEN_PRINT, "{{")) {
            node->kind = HEED_NODE_PRINT;
            TRY(heed_parse_expression(parser, &node->first));
            TRY(heed_parser_expect(parser, HEED_TOKEN_CLOSE_PRINT, "}}"));
        } else {
            TRY(heed_parser_expect(parser, HEED_TOKEN_OPEN_BLOCK, "{%"));
            TRY(parse_statement(parser, node));
        }
        *end = node;
        end = &node->next;
    }
    parser->depth--;
    return HEED_OK;
}

heed_status heed_template_parse(heed_chat_pool *pool, const char *text, size_t size, const heed_node **nodes)
{
    static const char *const ends[] = {NULL};
    heed_token *tokens;
    TRY(heed_template_tokens(pool, text, size, &tokens));
    heed_parser parser = {.pool = pool, .token = tokens};
    return parse_body(&parser, ends, nodes);
}
