/* The normalizer and the pre_tokenizer of tokenizer.json. */
#include "base/try.h"
#include "model/tokenizer/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each entry of a Sequence. */
static heed_status each(heed_tokenizer *tokenizer, const cJSON *object, const char *list,
                        heed_status (*read)(heed_tokenizer *, const cJSON *))
{
    const cJSON *steps = heed_json_get(object, list), *step;
    if (!cJSON_IsArray(steps))
        return heed_fail(HEED_FORMAT, "tokenizer.json has a Sequence without its list '%s'", list);
    cJSON_ArrayForEach(step, steps) TRY(read(tokenizer, step));
    return HEED_OK;
}

static heed_status add_normal(heed_tokenizer *tokenizer, heed_normal_kind kind)
{
    return heed_normal_step_add(tokenizer, kind) ? HEED_OK : HEED_UNSUPPORTED;
}

/* {"String": text} or {"Regex": expression} */
static heed_status read_pattern(const cJSON *object, const char **text, bool *literal)
{
    const cJSON *pattern = heed_json_get(object, "pattern");
    *literal = heed_json_text(pattern, "String") != NULL;
    *text = heed_json_text(pattern, *literal ? "String" : "Regex");
    return *text ? HEED_OK
                 : heed_fail(HEED_FORMAT, "tokenizer.json has a step '%.40s' without its pattern",
                             heed_json_type(object));
}

static heed_status read_replace(heed_tokenizer *tokenizer, const cJSON *object)
{
    const char *find, *content = heed_json_text(object, "content");
    bool literal;
    TRY(read_pattern(object, &find, &literal));
    if (!content)
        return heed_fail(HEED_FORMAT, "tokenizer.json has a Replace without its content");
    TRY(heed_normal_replace(tokenizer, find, content));
    heed_normal_step *step = &tokenizer->normal[tokenizer->normals - 1];
    return literal ? HEED_OK : heed_pattern_make(&step->pattern, find, strlen(find), false);
}

static heed_status read_bert(heed_tokenizer *tokenizer, const cJSON *object)
{
    const bool lowercase = heed_json_flag(object, "lowercase", true);
    if (heed_json_flag(object, "clean_text", true))
        TRY(add_normal(tokenizer, HEED_NORMAL_CLEAN));
    if (heed_json_flag(object, "handle_chinese_chars", true))
        TRY(add_normal(tokenizer, HEED_NORMAL_SPACE_CJK));
    if (heed_json_flag(object, "strip_accents", lowercase)) {
        TRY(add_normal(tokenizer, HEED_NORMAL_NFD));
        TRY(add_normal(tokenizer, HEED_NORMAL_STRIP_NONSPACING));
    }
    return lowercase ? add_normal(tokenizer, HEED_NORMAL_LOWERCASE) : HEED_OK;
}

/* The word characters of the pre-tokeniser Whitespace, which splits by another library than Split does. */
#define WORDS "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}" HEED_CIRCLED_LETTERS

static int base64_digit(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

static heed_status read_charsmap(heed_tokenizer *tokenizer, const cJSON *object)
{
    const char *text = heed_json_text(object, "precompiled_charsmap");
    heed_bytes bytes = {0};
    uint32_t bits = 0;
    int count = 0;
    if (!text || !*text)
        return HEED_OK;
    for (; *text && *text != '='; text++) {
        const int digit = base64_digit(*text);
        if (digit < 0)
            break;
        bits = bits << 6 | (uint32_t)digit;
        count += 6;
        if (count >= 8) {
            count -= 8;
            const char byte = (char)(bits >> count);
            heed_bytes_add(&bytes, &byte, 1);
        }
    }
    heed_normal_step *step = heed_normal_step_add(tokenizer, HEED_NORMAL_CHARSMAP);
    heed_status status = bytes.failed ? heed_fail(HEED_NO_MEMORY, "no memory for the tokeniser's normaliser")
                         : !step      ? HEED_UNSUPPORTED
                                      : heed_charsmap_make(&step->charsmap, bytes.data, bytes.size);
    free(bytes.data);
    return status;
}

heed_status heed_json_normalizer(heed_tokenizer *tokenizer, const cJSON *object)
{
    static const struct {
        const char *type;
        heed_normal_kind kind;
    } plain[] = {{"NFC", HEED_NORMAL_NFC},
                 {"NFD", HEED_NORMAL_NFD},
                 {"NFKC", HEED_NORMAL_NFKC},
                 {"NFKD", HEED_NORMAL_NFKD},
                 {"Lowercase", HEED_NORMAL_LOWERCASE},
                 {"StripAccents", HEED_NORMAL_STRIP_MARKS}};
    const char *type = heed_json_type(object);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcmp(type, plain[i].type))
            return add_normal(tokenizer, plain[i].kind);
    if (!strcmp(type, "Sequence"))
        return each(tokenizer, object, "normalizers", heed_json_normalizer);
    if (!strcmp(type, "BertNormalizer"))
        return read_bert(tokenizer, object);
    if (!strcmp(type, "Replace"))
        return read_replace(tokenizer, object);
    if (!strcmp(type, "Precompiled"))
        return read_charsmap(tokenizer, object);
    if (!strcmp(type, "Prepend") && heed_json_text(object, "prepend"))
        return heed_normal_prepend(tokenizer, heed_json_text(object, "prepend"));
    if (!strcmp(type, "Strip")) {
        heed_normal_step *step = heed_normal_step_add(tokenizer, HEED_NORMAL_STRIP);
        if (!step)
            return HEED_UNSUPPORTED;
        step->left = heed_json_flag(object, "strip_left", true);
        step->right = heed_json_flag(object, "strip_right", true);
        return HEED_OK;
    }
    return heed_fail(HEED_UNSUPPORTED, "tokenizer.json normalises with '%.40s', which is not known", type);
}

static heed_status behavior_of(const cJSON *object, const char *otherwise, heed_split_kind *kind)
{
    static const struct {
        const char *name;
        heed_split_kind kind;
    } behaviors[] = {{"Removed", HEED_SPLIT_REMOVED},
                     {"Isolated", HEED_SPLIT_ISOLATED},
                     {"MergedWithPrevious", HEED_SPLIT_WITH_PREVIOUS},
                     {"MergedWithNext", HEED_SPLIT_WITH_NEXT},
                     {"Contiguous", HEED_SPLIT_CONTIGUOUS}};
    const char *name = heed_json_text(object, "behavior");
    if (!name)
        name = otherwise;
    for (size_t i = 0; i < sizeof behaviors / sizeof *behaviors; i++)
        if (!strcmp(name, behaviors[i].name)) {
            *kind = behaviors[i].kind;
            return HEED_OK;
        }
    return heed_fail(HEED_UNSUPPORTED, "tokenizer.json splits with the behaviour '%.40s', which is not known",
                     name);
}

static heed_status read_split(heed_tokenizer *tokenizer, const cJSON *object)
{
    const char *text;
    bool literal;
    heed_split_kind kind = HEED_SPLIT_ISOLATED;
    TRY(read_pattern(object, &text, &literal));
    TRY(behavior_of(object, "Isolated", &kind));
    TRY(heed_split_step_add(tokenizer, kind, NULL, heed_json_flag(object, "invert", false)));
    if (literal && !*text)
        return heed_fail(HEED_FORMAT, "tokenizer.json splits at an empty text");
    return heed_pattern_make(&tokenizer->split[tokenizer->splits - 1].pattern, text, strlen(text), literal);
}

static heed_status read_byte_level(heed_tokenizer *tokenizer, const cJSON *object)
{
    if (heed_json_flag(object, "add_prefix_space", true))
        TRY(heed_split_step_add(tokenizer, HEED_SPLIT_PREFIX_SPACE, NULL, false));
    if (heed_json_flag(object, "use_regex", true))
        TRY(heed_split_named(tokenizer, "gpt-2"));
    tokenizer->decode = HEED_DECODE_BYTE_LEVEL;
    return HEED_OK;
}

static heed_status read_metaspace(heed_tokenizer *tokenizer, const cJSON *object)
{
    const char *mark = heed_json_text(object, "replacement"),
               *scheme = heed_json_text(object, "prepend_scheme");
    TRY(heed_split_step_add(tokenizer, HEED_SPLIT_MARK_SPACES, NULL, false));
    heed_split_step *step = &tokenizer->split[tokenizer->splits - 1];
    step->split = heed_json_flag(object, "split", true);
    step->prefix = scheme ? (!strcmp(scheme, "never")   ? HEED_PREFIX_NEVER
                             : !strcmp(scheme, "first") ? HEED_PREFIX_FIRST
                                                        : HEED_PREFIX_ALWAYS)
                   : heed_json_flag(object, "add_prefix_space", true) ? HEED_PREFIX_ALWAYS
                                                                      : HEED_PREFIX_NEVER;
    if (scheme && strcmp(scheme, "never") && strcmp(scheme, "first") && strcmp(scheme, "always"))
        return heed_fail(HEED_UNSUPPORTED,
                         "tokenizer.json puts a space in front by the scheme '%.40s', which is not known",
                         scheme);
    if (!mark || !*mark || !heed_utf8_valid(mark, strlen(mark)))
        return heed_fail(HEED_FORMAT, "tokenizer.json has a Metaspace without its replacement");
    step->mark = strdup(mark);
    return step->mark ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the tokeniser's steps");
}

heed_status heed_json_pre_tokenizer(heed_tokenizer *tokenizer, const cJSON *object)
{
    const char *type = heed_json_type(object);
    heed_split_kind kind = HEED_SPLIT_ISOLATED;
    if (tokenizer->decode == HEED_DECODE_BYTE_LEVEL)
        return heed_fail(HEED_UNSUPPORTED, "tokenizer.json has the step '%.40s' behind ByteLevel", type);
    if (!strcmp(type, "Sequence"))
        return each(tokenizer, object, "pretokenizers", heed_json_pre_tokenizer);
    if (!strcmp(type, "Split"))
        return read_split(tokenizer, object);
    if (!strcmp(type, "ByteLevel"))
        return read_byte_level(tokenizer, object);
    if (!strcmp(type, "Metaspace"))
        return read_metaspace(tokenizer, object);
    if (!strcmp(type, "BertPreTokenizer"))
        return heed_split_bert(tokenizer);
    if (!strcmp(type, "Digits"))
        return heed_split_step_add(tokenizer, HEED_SPLIT_ISOLATED,
                                   heed_json_flag(object, "individual_digits", false) ? "\\p{N}" : "\\p{N}+",
                                   false);
    if (!strcmp(type, "Whitespace"))
        return heed_split_step_add(tokenizer, HEED_SPLIT_REMOVED, "[" WORDS "]+|[^" WORDS "\\s]+", true);
    if (!strcmp(type, "WhitespaceSplit"))
        return heed_split_step_add(tokenizer, HEED_SPLIT_REMOVED, "\\s", false);
    if (!strcmp(type, "Punctuation")) {
        TRY(behavior_of(object, "Isolated", &kind));
        return heed_split_step_add(tokenizer, kind, HEED_PUNCTUATION, false);
    }
    return heed_fail(HEED_UNSUPPORTED, "tokenizer.json splits words with '%.40s', which is not known", type);
}
