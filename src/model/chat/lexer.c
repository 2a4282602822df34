/* A template to tokens, with the white space around blocks as transformers has it: a newline right behind a
 * block goes, and so do the spaces before a block that begins its line.
 */
#include "base/try.h"
#include "model/chat/template.h"

#include <stdlib.h>
#include <string.h>

typedef struct template_lexer {
    heed_chat_pool *pool;
    const char *text;
    size_t size, at;
    int line;
    heed_token *token;
    size_t count, capacity;
    bool trim;    /* the text that follows loses its leading white space ... */
    bool newline; /* ... or one newline */
} template_lexer;

static heed_status add(template_lexer *lexer, heed_token_kind kind, const char *text, size_t size)
{
    char *copy = heed_chat_pool_take(lexer->pool, size + 1, 1);
    if (!copy)
        return HEED_NO_MEMORY;
    if (size)
        memcpy(copy, text, size);
    if (lexer->count == lexer->capacity) {
        const size_t wanted = lexer->capacity ? 2 * lexer->capacity : 64;
        heed_token *wider = heed_chat_pool_take(lexer->pool, wanted, sizeof *wider);
        if (!wider)
            return HEED_NO_MEMORY;
        if (lexer->count)
            memcpy(wider, lexer->token, lexer->count * sizeof *wider);
        lexer->token = wider;
        lexer->capacity = wanted;
    }
    lexer->token[lexer->count++] = (heed_token){kind, copy, size, lexer->line};
    return HEED_OK;
}

static void count_lines(template_lexer *lexer, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        lexer->line += lexer->text[i] == '\n';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

static bool opens(const template_lexer *lexer, size_t at)
{
    const char *text = lexer->text + at;
    return at + 1 < lexer->size && text[0] == '{' && (text[1] == '{' || text[1] == '%' || text[1] == '#');
}

/* The text up to the next opening, with its white space as both sides want it. */
static heed_status lex_text(template_lexer *lexer)
{
    const size_t begin = lexer->at;
    size_t end = begin;
    while (end < lexer->size && !opens(lexer, end))
        end++;
    size_t start = begin, stop = end;
    const char mark = end + 2 < lexer->size ? lexer->text[end + 2] : 0;
    const bool block = end + 1 < lexer->size && lexer->text[end + 1] != '{';
    if (lexer->trim)
        while (start < stop && is_blank(lexer->text[start]))
            start++;
    else if (lexer->newline && start < stop && lexer->text[start] == '\n')
        start++;
    else if (lexer->newline && start + 1 < stop && lexer->text[start] == '\r' &&
             lexer->text[start + 1] == '\n')
        start += 2;
    if (end < lexer->size && mark == '-') {
        while (stop > start && is_blank(lexer->text[stop - 1]))
            stop--;
    } else if (end < lexer->size && block && mark != '+') {
        size_t line = stop;
        while (line > begin && (lexer->text[line - 1] == ' ' || lexer->text[line - 1] == '\t'))
            line--;
        if ((line == begin && (begin == 0 || lexer->text[begin - 1] == '\n')) ||
            (line > begin && lexer->text[line - 1] == '\n'))
            stop = line > start ? line : start;
    }
    const heed_status status =
        stop > start ? add(lexer, HEED_TOKEN_TEXT, lexer->text + start, stop - start) : HEED_OK;
    count_lines(lexer, begin, end);
    lexer->at = end;
    lexer->trim = lexer->newline = false;
    return status;
}

static heed_status skip_comment(template_lexer *lexer)
{
    const char *from = lexer->text + lexer->at + 2, *end = lexer->text + lexer->size;
    const char *close = heed_find(from, (size_t)(end - from), "#}", 2);
    if (!close)
        return heed_fail(HEED_UNSUPPORTED, "line %d of the chat template: a comment does not end",
                         lexer->line);
    lexer->trim = close > from && close[-1] == '-';
    lexer->newline = !lexer->trim;
    const size_t next = (size_t)(close - lexer->text) + 2;
    count_lines(lexer, lexer->at, next);
    lexer->at = next;
    return HEED_OK;
}

/* \n, \t, \', \\, \x41, \u0041; an unknown escape stays as it is, as in Python. */
static size_t lex_escape(const char *text, size_t size, heed_bytes *out)
{
    static const char names[] = "ntrfvab0\\'\"", values[] = "\n\t\r\f\v\a\b\0\\'\"";
    const char *name = size > 1 && text[1] ? memchr(names, text[1], sizeof names - 1) : NULL;
    const size_t digits = size > 1 && text[1] == 'x' ? 2 : size > 1 && text[1] == 'u' ? 4 : 0;
    if (name) {
        heed_bytes_add(out, &values[name - names], 1);
        return 2;
    }
    if (digits && size >= 2 + digits) {
        char hex[5] = "", *end;
        memcpy(hex, text + 2, digits);
        const long value = strtol(hex, &end, 16);
        if (end == hex + digits && value >= 0 && !(value >= 0xd800 && value < 0xe000)) {
            heed_bytes_add_character(out, (int32_t)value);
            return 2 + digits;
        }
    }
    heed_bytes_add(out, text, size > 1 ? 2 : 1);
    return size > 1 ? 2 : 1;
}

static heed_status lex_string(template_lexer *lexer)
{
    const char quote = lexer->text[lexer->at];
    heed_bytes out = {0};
    size_t at = lexer->at + 1;
    while (at < lexer->size && lexer->text[at] != quote) {
        if (lexer->text[at] == '\\') {
            at += lex_escape(lexer->text + at, lexer->size - at, &out);
        } else {
            heed_bytes_add(&out, lexer->text + at++, 1);
        }
    }
    heed_status status = HEED_OK;
    if (at >= lexer->size)
        status = heed_fail(HEED_UNSUPPORTED, "line %d of the chat template: a text in quotes does not end",
                           lexer->line);
    else if (out.failed)
        status = heed_fail(HEED_NO_MEMORY, "no memory for the chat template");
    else
        status = add(lexer, HEED_TOKEN_STRING, out.data, out.size);
    free(out.data);
    count_lines(lexer, lexer->at, at < lexer->size ? at : lexer->size);
    lexer->at = at + 1;
    return status;
}

static bool is_name(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

static heed_status lex_word(template_lexer *lexer)
{
    const char *text = lexer->text + lexer->at;
    const size_t left = lexer->size - lexer->at;
    size_t size = 1;
    heed_token_kind kind = HEED_TOKEN_NAME;
    if (is_name(*text, true)) {
        while (size < left && is_name(text[size], false))
            size++;
    } else {
        kind = HEED_TOKEN_INT;
        while (size < left && ((text[size] >= '0' && text[size] <= '9') || text[size] == '_' ||
                               (text[size] == '.' && kind == HEED_TOKEN_INT && size + 1 < left &&
                                text[size + 1] >= '0' && text[size + 1] <= '9'))) {
            kind = text[size] == '.' ? HEED_TOKEN_FLOAT : kind;
            size++;
        }
    }
    TRY(add(lexer, kind, text, size));
    lexer->at += size;
    return HEED_OK;
}

static heed_status lex_sign(template_lexer *lexer)
{
    static const char *const signs[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "|",
                                        "<",  ">",  "=",  "(",  ")",  "[",  "]", "{", "}", ",", ":", "."};
    const size_t left = lexer->size - lexer->at;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        const size_t size = strlen(signs[i]);
        if (size <= left && !memcmp(lexer->text + lexer->at, signs[i], size)) {
            lexer->at += size;
            return add(lexer, HEED_TOKEN_SIGN, signs[i], size);
        }
    }
    return heed_fail(HEED_UNSUPPORTED, "line %d of the chat template: '%.1s' is not understood", lexer->line,
                     lexer->text + lexer->at);
}

/* Whether the expression ends here: "%}", "-%}", "+%}" or the same with "}}". */
static size_t closing(const template_lexer *lexer, char kind, bool *trim, bool *newline)
{
    const char *text = lexer->text + lexer->at;
    const size_t left = lexer->size - lexer->at;
    const size_t sign = left && (text[0] == '-' || (text[0] == '+' && kind == '%')) ? 1 : 0;
    if (left < sign + 2 || text[sign] != kind || text[sign + 1] != '}')
        return 0;
    *trim = sign && text[0] == '-';
    *newline = !sign && kind == '%';
    return sign + 2;
}

/* {{ ... }} or {% ... %} */
static heed_status lex_code(template_lexer *lexer)
{
    const bool print = lexer->text[lexer->at + 1] == '{';
    int brackets = 0;
    TRY(add(lexer, print ? HEED_TOKEN_OPEN_PRINT : HEED_TOKEN_OPEN_BLOCK, lexer->text + lexer->at, 2));
    lexer->at += 2;
    if (lexer->at < lexer->size && (lexer->text[lexer->at] == '-' || lexer->text[lexer->at] == '+'))
        lexer->at++;
    while (lexer->at < lexer->size) {
        const char c = lexer->text[lexer->at];
        const size_t close = brackets ? 0 : closing(lexer, print ? '}' : '%', &lexer->trim, &lexer->newline);
        if (close) {
            lexer->at += close;
            return add(lexer, print ? HEED_TOKEN_CLOSE_PRINT : HEED_TOKEN_CLOSE_BLOCK, print ? "}}" : "%}",
                       2);
        }
        if (is_blank(c)) {
            lexer->line += c == '\n';
            lexer->at++;
        } else if (c == '"' || c == '\'') {
            TRY(lex_string(lexer));
        } else if (is_name(c, true) || (c >= '0' && c <= '9')) {
            TRY(lex_word(lexer));
        } else {
            brackets += c == '(' || c == '[' || c == '{';
            brackets -= brackets && (c == ')' || c == ']' || c == '}');
            TRY(lex_sign(lexer));
        }
    }
    return heed_fail(HEED_UNSUPPORTED, "line %d of the chat template: '%s' does not end", lexer->line,
                     print ? "{{" : "{%");
}

heed_status heed_template_tokens(heed_chat_pool *pool, const char *text, size_t size, heed_token **tokens)
{
    if (size && text[size - 1] == '\n') /* one newline at the end goes */
        size -= size > 1 && text[size - 2] == '\r' ? 2 : 1;
    template_lexer lexer = {.pool = pool, .text = text, .size = size, .line = 1};
    while (lexer.at < size) {
        if (!opens(&lexer, lexer.at))
            TRY(lex_text(&lexer));
        else if (text[lexer.at + 1] == '#')
            TRY(skip_comment(&lexer));
        else {
            lexer.trim = lexer.newline = false;
            TRY(lex_code(&lexer));
        }
    }
    TRY(add(&lexer, HEED_TOKEN_END, "", 0));
    *tokens = lexer.token;
    return HEED_OK;
}
