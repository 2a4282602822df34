/* Chat templates: the part of Jinja's language that published templates use. A template is read into nodes
 * once and rendered with the variables of a conversation.
 *
 * Understood: texts with {{ }}, {% %}, {# #} and their white space control (as with trim_blocks and
 * lstrip_blocks); for (with if and else, loop.*, break, continue), if, set (also of attributes and as a
 * block), macro, generation; expressions with the usual operators, tests, filters, calls and slices. Anything
 * else is refused by its name.
 */
#ifndef HEED_MODEL_CHAT_TEMPLATE_H
#define HEED_MODEL_CHAT_TEMPLATE_H

#include "model/chat/value.h"

typedef enum heed_node_kind {
    /* statements */
    HEED_NODE_TEXT,  /* `string` */
    HEED_NODE_PRINT, /* first */
    HEED_NODE_IF,    /* first: condition; body; other */
    HEED_NODE_FOR, /* name, name2: the variables; first: what to go through; second: condition or NULL; body;
                      other */
    HEED_NODE_SET, /* first: a NAME or ATTRIBUTE; second: the value, or body */
    HEED_NODE_MACRO, /* name; list: parameters as KEYWORDs, first: the default or NULL; body */
    HEED_NODE_BREAK,
    HEED_NODE_CONTINUE,
    HEED_NODE_DO, /* first, for its effect */
    /* expressions */
    HEED_NODE_LITERAL, /* value */
    HEED_NODE_NAME,
    HEED_NODE_LIST,      /* list */
    HEED_NODE_DICT,      /* list: key, value, key, value, ... */
    HEED_NODE_UNARY,     /* name: "-", "+", "not"; first */
    HEED_NODE_BINARY,    /* name: the operator; first, second */
    HEED_NODE_TERNARY,   /* first if second else third */
    HEED_NODE_ATTRIBUTE, /* first.name */
    HEED_NODE_INDEX,     /* first[second] */
    HEED_NODE_SLICE,     /* first[second:third:list] */
    HEED_NODE_CALL,      /* first(list) */
    HEED_NODE_FILTER,    /* first | name(list) */
    HEED_NODE_TEST,      /* first is name(list) */
    HEED_NODE_KEYWORD,   /* name=first, among arguments */
} heed_node_kind;

typedef struct heed_node {
    heed_node_kind kind;
    const char *name, *name2;
    heed_value value;
    const struct heed_node *first, *second, *third;
    const struct heed_node *list, *body, *other; /* the first of those that `next` links */
    const struct heed_node *next;
    int line;
} heed_node;

/* Reads a template; nodes live in the pool. HEED_UNSUPPORTED names what is not understood, and its line. */
heed_status heed_template_parse(heed_chat_pool *pool, const char *text, size_t size, const heed_node **nodes);

/* Writes what the template makes of the variables. HEED_INVALID with the template's own words when it raises
 * an exception. */
heed_status heed_template_render(heed_chat_pool *pool, const heed_node *nodes, heed_dict *variables,
                                 heed_builder *out);

/* --- parts of the parser --- */
typedef enum heed_token_kind {
    HEED_TOKEN_END,
    HEED_TOKEN_TEXT,
    HEED_TOKEN_OPEN_PRINT,
    HEED_TOKEN_CLOSE_PRINT,
    HEED_TOKEN_OPEN_BLOCK,
    HEED_TOKEN_CLOSE_BLOCK,
    HEED_TOKEN_NAME,
    HEED_TOKEN_STRING,
    HEED_TOKEN_INT,
    HEED_TOKEN_FLOAT,
    HEED_TOKEN_SIGN, /* operators and brackets */
} heed_token_kind;

typedef struct heed_token {
    heed_token_kind kind;
    const char *text; /* in the pool, with a zero behind it */
    size_t size;
    int line;
} heed_token;

/* All tokens, an END last. */
heed_status heed_template_tokens(heed_chat_pool *pool, const char *text, size_t size, heed_token **tokens);

typedef struct heed_parser {
    heed_chat_pool *pool;
    const heed_token *token;
    int depth, loops;
} heed_parser;

heed_node *heed_node_new(heed_parser *parser, heed_node_kind kind);
bool heed_parser_at(const heed_parser *parser, heed_token_kind kind, const char *text);
bool heed_parser_take(heed_parser *parser, heed_token_kind kind, const char *text);
heed_status heed_parser_expect(heed_parser *parser, heed_token_kind kind, const char *text);
heed_status heed_parser_refuse(const heed_parser *parser, const char *what);
heed_status heed_parse_expression(heed_parser *parser, const heed_node **node);
/* An expression without `x if y else z`, as what `for` goes through. */
heed_status heed_parse_or(heed_parser *parser, const heed_node **node);
heed_status heed_parse_arguments(heed_parser *parser, const char *closing, const heed_node **list);

/* --- parts of the renderer --- */
typedef struct heed_scope {
    heed_dict *variables;
    const struct heed_scope *outer; /* NULL for the outermost */
} heed_scope;

typedef struct heed_renderer {
    heed_chat_pool *pool;
    heed_builder *out;
    heed_scope *scope;
    heed_scope *global;
    int64_t steps;
    int depth;
    enum { HEED_FLOW_ON, HEED_FLOW_BREAK, HEED_FLOW_CONTINUE } flow;
} heed_renderer;

/* Arguments of a call: by place, then by name. */
typedef struct heed_arguments {
    heed_value place[8];
    int places;
    struct {
        const char *name;
        heed_value value;
    } named[16];
    int names;
} heed_arguments;

heed_status heed_evaluate(heed_renderer *renderer, const heed_node *node, heed_value *value);
heed_status heed_run_nodes(heed_renderer *renderer, const heed_node *node);
heed_status heed_call_macro(heed_renderer *renderer, const heed_node *macro, const heed_arguments *arguments,
                            heed_value *value);
/* The argument at a place or of a name; NULL: not given. */
const heed_value *heed_argument(const heed_arguments *arguments, int place, const char *name);

heed_status heed_binary(heed_renderer *renderer, const char *name, heed_value a, heed_value b,
                        heed_value *value);
heed_status heed_contains(heed_value item, heed_value container, bool *contains);
heed_status heed_attribute(heed_renderer *renderer, heed_value object, const char *name, heed_value *value);
heed_status heed_index(heed_renderer *renderer, heed_value object, heed_value index, heed_value *value);
heed_status heed_slice(heed_renderer *renderer, heed_value object, const heed_value *parts,
                       heed_value *value);
heed_status heed_method(heed_renderer *renderer, heed_value object, const char *name,
                        const heed_arguments *arguments, heed_value *value);
heed_status heed_filter(heed_renderer *renderer, heed_value input, const char *name,
                        const heed_arguments *arguments, heed_value *value);
heed_status heed_test(heed_renderer *renderer, heed_value input, const char *name,
                      const heed_arguments *arguments, bool *holds);
heed_status heed_global(heed_renderer *renderer, const char *name, const heed_arguments *arguments,
                        heed_value *value);
/* Items of a list, keys of a mapping, characters of a text. */
heed_status heed_items(heed_renderer *renderer, heed_value value, heed_value *list);
size_t heed_characters(heed_string string);

#endif
