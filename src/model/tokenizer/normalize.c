/* Steps that change a text before it is split: each reads one buffer and fills another. */
#include "base/try.h"
#include "model/tokenizer/parts.h"
#include "model/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static heed_status no_memory(void)
{
    return heed_fail(HEED_NO_MEMORY, "no memory to normalise a text");
}

static heed_status compose(const char *text, size_t size, utf8proc_option_t options, heed_bytes *out)
{
    utf8proc_uint8_t *made = NULL;
    const utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size,
                                                 &made, options | UTF8PROC_STABLE);
    if (length < 0) {
        free(made);
        return length == UTF8PROC_ERROR_NOMEM
                   ? no_memory()
                   : heed_fail(HEED_INVALID, "a text cannot be normalised: %s", utf8proc_errmsg(length));
    }
    heed_bytes_add(out, made, (size_t)length);
    free(made);
    return HEED_OK;
}

static bool is_ascii(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (text[i] & 0x80)
            return false;
    return true;
}

static heed_status unicode_form(heed_normal_kind kind, const char *text, size_t size, heed_bytes *out)
{
    if (is_ascii(text, size)) {
        heed_bytes_add(out, text, size);
        return HEED_OK;
    }
    const int compat = kind == HEED_NORMAL_NFKC || kind == HEED_NORMAL_NFKD ? UTF8PROC_COMPAT : 0;
    const int form =
        kind == HEED_NORMAL_NFC || kind == HEED_NORMAL_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    return compose(text, size, (utf8proc_option_t)(compat | form), out);
}

/* One character of the steps that look at each alone. */
static void each_character(heed_normal_kind kind, int32_t c, const char *text, int length, heed_bytes *out)
{
    int32_t second;
    switch (kind) {
    case HEED_NORMAL_LOWERCASE: {
        const int32_t lower = heed_lowercase(c, &second);
        heed_bytes_add_character(out, lower);
        if (second)
            heed_bytes_add_character(out, second);
        return;
    }
    case HEED_NORMAL_STRIP_MARKS:
        if (!heed_is_mark(c))
            heed_bytes_add(out, text, (size_t)length);
        return;
    case HEED_NORMAL_STRIP_NONSPACING:
        if (!heed_is_nonspacing_mark(c))
            heed_bytes_add(out, text, (size_t)length);
        return;
    case HEED_NORMAL_CLEAN:
        if (c == '\t' || c == '\n' || c == '\r' || (heed_is_space(c) && !heed_is_other(c)))
            heed_bytes_add(out, " ", 1);
        else if (c != 0xfffd && !heed_is_other(c))
            heed_bytes_add(out, text, (size_t)length);
        return;
    default: /* HEED_NORMAL_SPACE_CJK */
        if (heed_is_ideograph(c))
            heed_bytes_add(out, " ", 1);
        heed_bytes_add(out, text, (size_t)length);
        if (heed_is_ideograph(c))
            heed_bytes_add(out, " ", 1);
    }
}

static void characters(heed_normal_kind kind, const char *text, size_t size, heed_bytes *out)
{
    heed_bytes_reserve(out, size);
    for (size_t i = 0; i < size;) {
        const int length = heed_utf8_size(text[i]);
        each_character(kind, heed_utf8_character(text + i), text + i, length, out);
        i += (size_t)length;
    }
}

static void strip(const heed_normal_step *step, const char *text, size_t size, heed_bytes *out)
{
    size_t begin = 0, end = 0, last = 0;
    bool leading = step->left;
    for (size_t i = 0; i < size;) {
        const bool space = heed_is_space(heed_utf8_character(text + i));
        i += (size_t)heed_utf8_size(text[i]);
        leading = leading && space;
        if (leading)
            begin = i;
        if (!space)
            last = i;
    }
    end = step->right ? last : size;
    if (end > begin)
        heed_bytes_add(out, text + begin, end - begin);
}

static void squeeze(const char *text, size_t size, heed_bytes *out)
{
    bool any = false, space = false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == ' ') {
            space = true;
            continue;
        }
        if (space && any)
            heed_bytes_add(out, " ", 1);
        heed_bytes_add(out, text + i, 1);
        any = true;
        space = false;
    }
    while (out->size >= 3 && !memcmp(out->data + out->size - 3, HEED_SPACE_MARK, 3)) {
        out->size -= 3; /* at the end, marks in the text count as the spaces that they stand for */
        while (out->size && out->data[out->size - 1] == ' ')
            out->size--;
    }
}

static void replace_text(const heed_normal_step *step, const char *text, size_t size, heed_bytes *out)
{
    const char *end = text + size;
    heed_bytes_reserve(out, size + size / 2);
    while (step->find_size && text < end) {
        const char *at = heed_find(text, (size_t)(end - text), step->find, step->find_size);
        if (!at)
            break;
        heed_bytes_add(out, text, (size_t)(at - text));
        heed_bytes_add(out, step->content, step->content_size);
        text = at + step->find_size;
    }
    heed_bytes_add(out, text, (size_t)(end - text));
}

static heed_status replace(const heed_normal_step *step, const char *text, size_t size, heed_bytes *out)
{
    if (!step->pattern) {
        replace_text(step, text, size, out);
        return HEED_OK;
    }
    heed_search search;
    TRY(heed_search_start(&search, step->pattern));
    heed_search_text(&search, text, size);
    size_t done = 0;
    heed_range match;
    bool found;
    heed_status status;
    while (!(status = heed_search_next(&search, &match, &found)) && found) {
        heed_bytes_add(out, text + done, match.start - done);
        heed_bytes_add(out, step->content, step->content_size);
        done = match.start + match.size;
    }
    heed_bytes_add(out, text + done, size - done);
    heed_search_end(&search);
    return status;
}

static heed_status apply(const heed_normal_step *step, const char *text, size_t size, heed_bytes *out)
{
    switch (step->kind) {
    case HEED_NORMAL_NFC:
    case HEED_NORMAL_NFD:
    case HEED_NORMAL_NFKC:
    case HEED_NORMAL_NFKD:
        return unicode_form(step->kind, text, size, out);
    case HEED_NORMAL_STRIP:
        strip(step, text, size, out);
        return HEED_OK;
    case HEED_NORMAL_PREPEND:
        if (size)
            heed_bytes_add(out, step->content, step->content_size);
        heed_bytes_add(out, text, size);
        return HEED_OK;
    case HEED_NORMAL_REPLACE:
        return replace(step, text, size, out);
    case HEED_NORMAL_CHARSMAP:
        return heed_charsmap_apply(&step->charsmap, text, size, out);
    case HEED_NORMAL_SQUEEZE:
        squeeze(text, size, out);
        return HEED_OK;
    default:
        characters(step->kind, text, size, out);
        return HEED_OK;
    }
}

/* Whether a step that takes characters away takes the first one, so that the text no longer begins where the
 * user's does. */
static bool takes_first(const heed_normal_step *step, const char *text, size_t size)
{
    heed_bytes out = {0};
    const size_t first = size ? (size_t)heed_utf8_size(*text) : 0;
    if (!size || step->kind == HEED_NORMAL_PREPEND || step->kind <= HEED_NORMAL_NFKD)
        return false;
    if (step->kind == HEED_NORMAL_STRIP)
        return step->left && heed_is_space(heed_utf8_character(text));
    if (step->kind == HEED_NORMAL_REPLACE)
        return !step->pattern && !step->content_size && step->find_size && size >= step->find_size &&
               !memcmp(text, step->find, step->find_size);
    const bool taken = !apply(step, text, first, &out) && !out.size && !out.failed;
    free(out.data);
    return taken;
}

heed_status heed_normalize(const heed_tokenizer *tokenizer, const char *text, size_t size, heed_bytes *out,
                           bool *front)
{
    heed_bytes other = {0};
    heed_status status = HEED_OK;
    out->size = 0;
    if (front)
        *front = true;
    if (!tokenizer->normals)
        heed_bytes_add(out, text, size);
    for (int i = 0; i < tokenizer->normals && !status; i++) {
        /* from `other` into `out`, the text that was given first */
        const heed_bytes swap = *out;
        *out = other;
        other = swap;
        out->size = 0;
        const char *from = i == 0 ? text : other.data;
        const size_t length = i == 0 ? size : other.size;
        if (front && takes_first(&tokenizer->normal[i], from, length))
            *front = false;
        status = apply(&tokenizer->normal[i], from, length, out);
    }
    const bool failed = out->failed || other.failed;
    free(other.data);
    return status ? status : failed ? no_memory() : HEED_OK;
}

heed_normal_step *heed_normal_step_add(heed_tokenizer *tokenizer, heed_normal_kind kind)
{
    if (tokenizer->normals == HEED_STEPS) {
        heed_fail(HEED_UNSUPPORTED, "the tokeniser has more than %d normalising steps", HEED_STEPS);
        return NULL;
    }
    heed_normal_step *step = &tokenizer->normal[tokenizer->normals++];
    *step = (heed_normal_step){.kind = kind};
    return step;
}

heed_status heed_normal_replace(heed_tokenizer *tokenizer, const char *find, const char *content)
{
    if (!heed_utf8_valid(find, strlen(find)) || !heed_utf8_valid(content, strlen(content)))
        return heed_fail(HEED_FORMAT, "a text that the tokeniser replaces is not UTF-8");
    heed_normal_step *step = heed_normal_step_add(tokenizer, HEED_NORMAL_REPLACE);
    if (!step)
        return HEED_UNSUPPORTED;
    step->find = strdup(find);
    step->content = strdup(content);
    step->find_size = strlen(find);
    step->content_size = strlen(content);
    return step->find && step->content ? HEED_OK : no_memory();
}

heed_status heed_normal_prepend(heed_tokenizer *tokenizer, const char *content)
{
    if (!heed_utf8_valid(content, strlen(content)))
        return heed_fail(HEED_FORMAT, "the text that the tokeniser prepends is not UTF-8");
    heed_normal_step *step = heed_normal_step_add(tokenizer, HEED_NORMAL_PREPEND);
    if (!step)
        return HEED_UNSUPPORTED;
    step->content = strdup(content);
    step->content_size = strlen(content);
    return step->content ? HEED_OK : no_memory();
}
