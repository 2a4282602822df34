#include "support/texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

heed_tokenizer *tokenizer_at(const char *path)
{
    heed_tokenizer *tokenizer = NULL;
    if (heed_tokenizer_load(&tokenizer, path))
        fail_msg("%s: %s", path, heed_message());
    return tokenizer;
}

static void golden_path(char *path, size_t size, const char *name, const char *ending)
{
    snprintf(path, size, "%s/golden/tokenizer/%s%s", HEED_TEST_FOLDER, name, ending);
}

heed_tokenizer *golden_tokenizer(const char *name)
{
    char path[4096];
    golden_path(path, sizeof path, name, "");
    return tokenizer_at(path);
}

static unsigned char *read_all(const char *name, const char *ending, size_t *size)
{
    char path[4096];
    golden_path(path, sizeof path, name, ending);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be opened", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, file), *size);
    fclose(file);
    return data;
}

/* A number in base 128. */
static size_t number(const unsigned char *data, size_t size, size_t *at)
{
    size_t value = 0;
    for (int shift = 0; *at < size; shift += 7) {
        const unsigned char byte = data[(*at)++];
        value |= (size_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
    }
    return value;
}

test_texts read_texts(const char *name)
{
    test_texts texts = {0};
    texts.data = read_all(name, ".texts", &texts.size);
    texts.text = calloc(texts.size, sizeof *texts.text);
    texts.bytes = calloc(texts.size, sizeof *texts.bytes);
    assert_true(texts.text && texts.bytes);
    for (size_t at = 0; at < texts.size;) {
        texts.bytes[texts.count] = number(texts.data, texts.size, &at);
        texts.text[texts.count] = (const char *)texts.data + at;
        at += texts.bytes[texts.count++];
        assert_true(at <= texts.size);
    }
    return texts;
}

void free_texts(test_texts *texts)
{
    free(texts->data);
    free(texts->text);
    free(texts->bytes);
}

static void print_ids(const char *what, const heed_tokenizer *tokenizer, const int32_t *id, size_t count)
{
    fprintf(stderr, "%s", what);
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, " %d'%s'", id[i], heed_token_name(tokenizer, id[i]));
    fprintf(stderr, "\n");
}

void assert_golden_ids(const heed_tokenizer *tokenizer, const char *texts_name, const char *ids_name,
                       unsigned flags)
{
    test_texts texts = read_texts(texts_name);
    size_t size, at = 0;
    unsigned char *data = read_all(ids_name, ".ids", &size);
    int wrong = 0;
    for (int i = 0; i < texts.count; i++) {
        heed_tokens tokens = {0}, right = {0};
        for (size_t count = number(data, size, &at); count; count--)
            assert_int_equal(heed_tokens_add(&right, (int32_t)number(data, size, &at)), HEED_OK);
        if (heed_tokenize(tokenizer, texts.text[i], texts.bytes[i], flags, &tokens))
            fail_msg("text %d: %s", i, heed_message());
        if (tokens.count != right.count ||
            (right.count && memcmp(tokens.id, right.id, (size_t)right.count * sizeof *right.id))) {
            if (!wrong++) {
                fprintf(stderr, "text %d: '%.*s'\n", i, (int)texts.bytes[i], texts.text[i]);
                print_ids("  gives", tokenizer, tokens.id, (size_t)tokens.count);
                print_ids("  right", tokenizer, right.id, (size_t)right.count);
            }
        }
        heed_tokens_free(&tokens);
        heed_tokens_free(&right);
    }
    assert_int_equal(at, size);
    if (wrong)
        fail_msg("%d of %d texts of %s differ", wrong, texts.count, ids_name);
    free(data);
    free_texts(&texts);
}

char *decoded(const heed_tokenizer *tokenizer, const int32_t *ids, int64_t count, bool raw, size_t *size)
{
    heed_detokenizer detokenizer = {.tokenizer = tokenizer, .control = true, .raw = raw};
    char *text = NULL;
    *size = 0;
    for (int64_t i = 0; i <= count; i++) {
        const int32_t id = i < count ? ids[i] : -1;
        const size_t length = heed_detokenize(&detokenizer, id, NULL, 0);
        text = realloc(text, *size + length + 1);
        assert_non_null(text);
        assert_int_equal(heed_detokenize(&detokenizer, id, text + *size, length + 1), length);
        *size += length;
    }
    return text;
}

int assert_round_trips(const heed_tokenizer *tokenizer, const char *texts_name,
                       bool (*but)(const heed_tokenizer *tokenizer, const char *text, size_t size))
{
    test_texts texts = read_texts(texts_name);
    int excused = 0;
    for (int i = 0; i < texts.count; i++) {
        heed_tokens tokens = {0};
        size_t size;
        assert_int_equal(heed_tokenize(tokenizer, texts.text[i], texts.bytes[i], 0, &tokens), HEED_OK);
        char *back = decoded(tokenizer, tokens.id, tokens.count, true, &size);
        if (but && but(tokenizer, texts.text[i], texts.bytes[i]))
            excused++;
        else if (size != texts.bytes[i] || memcmp(back, texts.text[i], size))
            fail_msg("text %d, '%.*s', comes back as '%.*s'", i, (int)texts.bytes[i], texts.text[i],
                     (int)size, back);
        free(back);
        heed_tokens_free(&tokens);
    }
    free_texts(&texts);
    return excused;
}

heed_tokens tokens_of(const heed_tokenizer *tokenizer, const char *text, unsigned flags)
{
    heed_tokens tokens = {0};
    if (heed_tokenize(tokenizer, text, strlen(text), flags, &tokens))
        fail_msg("'%s': %s", text, heed_message());
    return tokens;
}
