/* A text to tokens: cut at added tokens, normalise, cut at those added tokens that are looked for then, split
 * into words, and give each word to the model.
 */
#include "base/try.h"
#include "model/tokenizer/word.h"

#include <stdlib.h>
#include <string.h>

static heed_status no_memory(void)
{
    return heed_fail(HEED_NO_MEMORY, "no memory to tokenise a text");
}

void heed_word_work_free(heed_word_work *work)
{
    free(work->bytes.data);
    free(work->mapped.data);
    free(work->symbol);
    free(work->heap);
    free(work->step);
    free(work->path);
}

bool heed_raw_byte(const heed_word_work *work, const char *character, uint8_t *byte)
{
    if (work->raw_block < 0 || (unsigned char)*character != 0xf4)
        return false;
    const int32_t c = heed_utf8_character(character);
    *byte = (uint8_t)c;
    return c >> 8 == work->raw_block;
}

/* All of one encoding: memory that is reused from piece to piece. */
typedef struct text_encoder {
    const heed_tokenizer *tokenizer;
    heed_word_work word;
    heed_bytes normal, split;
    heed_ranges words;
    heed_tokens *tokens;
} text_encoder;

static heed_status encode_word(text_encoder *encoder, const char *text, size_t size)
{
    switch (encoder->tokenizer->model) {
    case HEED_MODEL_UNIGRAM:
        return heed_unigram_word(encoder->tokenizer, &encoder->word, text, size, encoder->tokens);
    case HEED_MODEL_WORDPIECE:
        return heed_wordpiece_word(encoder->tokenizer, &encoder->word, text, size, encoder->tokens);
    default:
        return heed_bpe_word(encoder->tokenizer, &encoder->word, text, size, encoder->tokens);
    }
}

/* Text without added tokens. */
static heed_status encode_plain(text_encoder *encoder, const char *text, size_t size, bool at_start)
{
    const heed_tokenizer *tokenizer = encoder->tokenizer;
    if (!size)
        return HEED_OK;
    if (!tokenizer->splits)
        return encode_word(encoder, text, size);
    encoder->split.size = 0;
    encoder->words.count = 0;
    heed_bytes_add(&encoder->split, text, size);
    heed_ranges_add(&encoder->words, 0, size);
    if (encoder->split.failed || encoder->words.failed)
        return no_memory();
    for (int i = 0; i < tokenizer->splits; i++)
        TRY(heed_split(&tokenizer->split[i], at_start, &encoder->split, &encoder->words));
    for (size_t i = 0; i < encoder->words.count; i++)
        TRY(encode_word(encoder, encoder->split.data + encoder->words.range[i].start,
                        encoder->words.range[i].size));
    return HEED_OK;
}

/* Text between the added tokens that are looked for as it was given. */
static heed_status encode_given(text_encoder *encoder, const heed_source *source, size_t start, size_t end)
{
    if (end <= start)
        return HEED_OK;
    const heed_tokenizer *tokenizer = encoder->tokenizer;
    bool front;
    TRY(heed_normalize(tokenizer, source->text + start, end - start, &encoder->normal, &front));
    front = front && start == 0;
    const bool user = source->user && memchr(source->user + start, 1, end - start);
    const heed_source normal = {encoder->normal.data, encoder->normal.size, NULL, source->special && !user};
    size_t done = 0;
    heed_range range;
    int32_t id;
    while (heed_added_next(&tokenizer->normalized, &normal, done, &range, &id)) {
        TRY(encode_plain(encoder, normal.text + done, range.start - done, front && done == 0));
        TRY(heed_tokens_add(encoder->tokens, id));
        done = range.start + range.size;
    }
    return encode_plain(encoder, normal.text + done, normal.size - done, front && done == 0);
}

static heed_status encode_valid(text_encoder *encoder, const heed_source *source)
{
    size_t done = 0;
    heed_range range;
    int32_t id;
    while (heed_added_next(&encoder->tokenizer->raw, source, done, &range, &id)) {
        TRY(encode_given(encoder, source, done, range.start));
        TRY(heed_tokens_add(encoder->tokens, id));
        done = range.start + range.size;
    }
    return encode_given(encoder, source, done, source->size);
}

/* Text and origins with what is no UTF-8 replaced. */
typedef struct mended_text {
    heed_bytes text, user;
} mended_text;

/* How much of the text is UTF-8, and which blocks of private characters it uses. */
static size_t valid_bytes(const char *text, size_t size, size_t from, bool used[256])
{
    while (from < size) {
        int32_t character = 0;
        int bad;
        const int length =
            (text[from] & 0x80) ? heed_utf8_read(text + from, size - from, &character, &bad) : 1;
        if (!length)
            break;
        if (character >= 0x100000)
            used[character >> 8 & 0xff] = true;
        from += (size_t)length;
    }
    return from;
}

static bool has_byte_tokens(const heed_tokenizer *tokenizer)
{
    if (tokenizer->decode == HEED_DECODE_BYTE_LEVEL)
        return true;
    for (int byte = 0x80; byte < 256; byte++)
        if (tokenizer->byte_token[byte] < 0)
            return false;
    return true;
}

/* Replaces bytes that are no UTF-8: by private characters that carry them, where the tokeniser has tokens for
 * bytes; else by U+FFFD for each broken character. */
static heed_status mend(const heed_tokenizer *tokenizer, const heed_source *source, heed_word_work *work,
                        mended_text *out)
{
    bool used[256] = {false};
    for (size_t at = valid_bytes(source->text, source->size, 0, used); at < source->size;)
        at = valid_bytes(source->text, source->size, at + 1, used);
    for (int block = 255; block >= 0 && work->raw_block < 0 && has_byte_tokens(tokenizer); block--)
        if (!used[block])
            work->raw_block = 0x1000 | block;
    for (size_t i = 0; i < source->size;) {
        int32_t character;
        int bad = 0;
        const int length = heed_utf8_read(source->text + i, source->size - i, &character, &bad);
        const size_t step = (size_t)(length ? length : work->raw_block < 0 ? bad : 1);
        const size_t before = out->text.size;
        if (length)
            heed_bytes_add(&out->text, source->text + i, step);
        else if (work->raw_block < 0)
            heed_bytes_add_text(&out->text, HEED_REPLACEMENT);
        else
            heed_bytes_add_character(&out->text, work->raw_block << 8 | (uint8_t)source->text[i]);
        for (size_t k = before; source->user && k < out->text.size; k++)
            heed_bytes_add(&out->user, source->user + i, 1);
        i += step;
    }
    return out->text.failed || out->user.failed ? no_memory() : HEED_OK;
}

heed_status heed_encode(const heed_tokenizer *tokenizer, const heed_source *given, heed_tokens *tokens)
{
    text_encoder encoder = {.tokenizer = tokenizer, .tokens = tokens, .word = {.raw_block = -1}};
    mended_text mended = {0};
    heed_source source = *given;
    bool used[256];
    heed_status status = HEED_OK;
    const int64_t before = tokens->count;
    if (source.size > INT32_MAX / 4)
        return heed_fail(HEED_INVALID,
                         "a text of %zu bytes cannot be tokenised in one piece; at most %d bytes can",
                         source.size, INT32_MAX / 4);
    if (valid_bytes(source.text, source.size, 0, used) < source.size) {
        status = mend(tokenizer, given, &encoder.word, &mended);
        source.text = mended.text.data;
        source.size = mended.text.size;
        source.user = given->user ? (const uint8_t *)mended.user.data : NULL;
    }
    if (!status)
        status = encode_valid(&encoder, &source);
    heed_word_work_free(&encoder.word);
    free(encoder.normal.data);
    free(encoder.split.data);
    free(encoder.words.range);
    free(mended.text.data);
    free(mended.user.data);
    if (status)
        tokens->count = before;
    return status;
}
