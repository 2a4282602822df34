#include "model/tokenizer/pattern.h"

#include "base/try.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct heed_pattern {
    pcre2_code *code;
    pcre2_match_context *limits;
};

enum { MATCH_STEPS = 20000000, PATTERN_BYTES = 100000 };

/* White space and word characters as the reference's expressions have them (Unicode's White_Space; letters,
 * marks, digits, connectors, circled letters and Latin-1's small digits). PCRE2's \s also has U+180E, and its
 * \w has no marks. */
#define SPACES                                                                                               \
    "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORDS "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" HEED_CIRCLED_LETTERS

static void add_class(heed_bytes *out, const char *class, bool inside, bool negated)
{
    if (!inside)
        heed_bytes_add_text(out, negated ? "[^" : "[");
    heed_bytes_add_text(out, class);
    if (!inside)
        heed_bytes_add_text(out, "]");
}

/* One escape at text[i]; returns its bytes. */
static size_t add_escape(heed_bytes *out, const char *text, size_t size, bool inside)
{
    const char kind = size > 1 ? text[1] : 0;
    if (kind == 's' || (kind == 'S' && !inside)) {
        add_class(out, SPACES, inside, kind == 'S');
    } else if (kind == 'w' || (kind == 'W' && !inside)) {
        add_class(out, WORDS, inside, kind == 'W');
    } else {
        heed_bytes_add(out, text, size > 1 ? 2 : 1);
    }
    return size > 1 ? 2 : 1;
}

/* The expression in PCRE2's words. */
static heed_status translate(heed_bytes *out, const char *text, size_t size)
{
    bool inside = false;
    if (size > 1 && text[0] == '(' && text[1] == '*')
        return heed_fail(HEED_UNSUPPORTED,
                         "the tokeniser's pattern begins with '(*', which has no meaning in "
                         "the dialect of tokenizer.json");
    for (size_t i = 0; i < size;) {
        if (text[i] == '\\') {
            i += add_escape(out, text + i, size - i, inside);
            continue;
        }
        if (!inside && text[i] == '[') {
            inside = true;
            const size_t skip = i + 1 < size && text[i + 1] == '^' ? 2 : 1;
            const size_t first = i + skip < size && text[i + skip] == ']' ? 1 : 0;
            heed_bytes_add(out, text + i, skip + first);
            i += skip + first;
            continue;
        }
        if (inside && text[i] == '[' && !(i + 1 < size && text[i + 1] == ':'))
            return heed_fail(HEED_UNSUPPORTED, "the tokeniser's pattern has a set within a set, '%.40s'",
                             text + i);
        if (inside && text[i] == '&' && i + 1 < size && text[i + 1] == '&')
            return heed_fail(HEED_UNSUPPORTED, "the tokeniser's pattern intersects sets, '%.40s'", text + i);
        if (inside && text[i] == '[') { /* [:name:] */
            const char *end = memchr(text + i + 1, ']', size - i - 1);
            const size_t length = end ? (size_t)(end - text) + 1 - i : 1;
            heed_bytes_add(out, text + i, length);
            i += length;
            continue;
        }
        if (inside && text[i] == ']')
            inside = false;
        heed_bytes_add(out, text + i++, 1);
    }
    return out->failed ? heed_fail(HEED_NO_MEMORY, "no memory for a tokeniser's pattern") : HEED_OK;
}

static heed_status compile(heed_pattern *pattern, const char *text, size_t size, bool literal)
{
    int error;
    size_t offset;
    const uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
    pattern->code = pcre2_compile((PCRE2_SPTR)text, size, options, &error, &offset, NULL);
    if (!pattern->code) {
        char why[120] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        return heed_fail(HEED_UNSUPPORTED, "the tokeniser's pattern '%.100s' cannot be read at byte %zu: %s",
                         text, offset, why);
    }
    pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE); /* without it matching is slower and the same */
    pattern->limits = pcre2_match_context_create(NULL);
    if (!pattern->limits)
        return heed_fail(HEED_NO_MEMORY, "no memory for a tokeniser's pattern");
    pcre2_set_match_limit(pattern->limits, MATCH_STEPS);
    pcre2_set_heap_limit(pattern->limits, 256 * 1024); /* KiB */
    return HEED_OK;
}

heed_status heed_pattern_make(heed_pattern **made, const char *text, size_t size, bool literal)
{
    if (size > PATTERN_BYTES)
        return heed_fail(HEED_UNSUPPORTED, "a pattern of the tokeniser has %zu bytes; at most %d are read",
                         size, PATTERN_BYTES);
    heed_bytes translated = {0};
    heed_pattern *pattern = calloc(1, sizeof *pattern);
    heed_status status = pattern ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a tokeniser's pattern");
    if (!status && !literal)
        status = translate(&translated, text, size);
    heed_bytes_add(&translated, "", literal ? 0 : 1);
    if (!status)
        status = literal ? compile(pattern, text, size, true)
                         : compile(pattern, translated.data, translated.size - 1, false);
    free(translated.data);
    if (status) {
        heed_pattern_free(pattern);
        return status;
    }
    *made = pattern;
    return HEED_OK;
}

void heed_pattern_free(heed_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    pcre2_match_context_free(pattern->limits);
    free(pattern);
}

heed_status heed_search_start(heed_search *search, const heed_pattern *pattern)
{
    *search = (heed_search){.pattern = pattern, .match = pcre2_match_data_create(1, NULL)};
    return search->match ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory to search a text");
}

void heed_search_text(heed_search *search, const char *text, size_t size)
{
    search->text = text;
    search->size = size;
    search->from = 0;
}

void heed_search_end(heed_search *search)
{
    pcre2_match_data_free(search->match);
}

heed_status heed_search_next(heed_search *search, heed_range *match, bool *found)
{
    *found = false;
    if (search->from > search->size)
        return HEED_OK;
    const uint32_t options = PCRE2_NO_UTF_CHECK;
    int result = pcre2_match(search->pattern->code, (PCRE2_SPTR)search->text, search->size, search->from,
                             options, search->match, search->pattern->limits);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)
        result = pcre2_match(search->pattern->code, (PCRE2_SPTR)search->text, search->size, search->from,
                             options | PCRE2_NO_JIT, search->match, search->pattern->limits);
    if (result == PCRE2_ERROR_NOMATCH) {
        search->from = search->size + 1;
        return HEED_OK;
    }
    if (result < 0 && result == PCRE2_ERROR_NOMEMORY)
        return heed_fail(HEED_NO_MEMORY, "no memory to search a text");
    if (result < 0)
        return heed_fail(HEED_UNSUPPORTED, "the tokeniser's pattern needs too many steps for this text");
    const size_t *ends = pcre2_get_ovector_pointer(search->match);
    if (ends[0] < search->from || ends[1] < ends[0])
        return heed_fail(HEED_UNSUPPORTED, "the tokeniser's pattern matches backwards");
    *match = (heed_range){ends[0], ends[1] - ends[0]};
    *found = true;
    search->from = ends[1];
    if (ends[1] == ends[0])
        search->from += ends[0] < search->size ? (size_t)heed_utf8_size(search->text[ends[0]]) : 1;
    return HEED_OK;
}
