/**
 * @file tokenizer.h
 * Text to tokens and back, as the model's own tokeniser does it.
 */
#ifndef HEED_TOKENIZER_H
#define HEED_TOKENIZER_H

#include <heed/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Immutable once made; may be used by several threads. */
typedef struct heed_tokenizer heed_tokenizer;

/** A growing list of tokens. Zero it first; free it with heed_tokens_free. */
typedef struct heed_tokens {
    int32_t *id;
    int64_t count, capacity;
} heed_tokens;

HEED_API void heed_tokens_free(heed_tokens *tokens);
HEED_API heed_status heed_tokens_add(heed_tokens *tokens, int32_t id);

/** How to read a text. */
enum heed_tokenize_flags {
    HEED_ADD_SPECIAL = 1, /**< begin- and end-tokens as the model wants them around a text */
    HEED_PARSE_SPECIAL =
        2, /**< "<|im_end|>" written in the text becomes the control token; else plain text */
};

/** Reads the tokeniser of a GGUF file, of a folder, or a tokenizer.json. HEED_IO, HEED_FORMAT,
 * HEED_UNSUPPORTED (a kind or pre-tokeniser that is not known, by name), HEED_NO_MEMORY. */
HEED_API heed_status heed_tokenizer_load(heed_tokenizer **tokenizer, const char *path);
HEED_API void heed_tokenizer_free(heed_tokenizer *tokenizer);

/** Adds the tokens of @p size bytes of text to @p tokens. Invalid UTF-8 is read as the reference tokeniser of
 * the model does (byte tokens where it has them, U+FFFD else). */
HEED_API heed_status heed_tokenize(const heed_tokenizer *tokenizer, const char *text, size_t size,
                                   unsigned flags, heed_tokens *tokens);

HEED_API int32_t heed_tokenizer_size(const heed_tokenizer *tokenizer);
/** "byte-level BPE (smollm)", "SentencePiece BPE", "WordPiece": for people. */
HEED_API const char *heed_tokenizer_kind(const heed_tokenizer *tokenizer);

/** Special tokens, -1 where the model has none. */
typedef struct heed_special_tokens {
    int32_t bos, eos, unk, pad, sep, cls, mask;
    bool add_bos, add_eos; /**< what HEED_ADD_SPECIAL does */
} heed_special_tokens;
HEED_API heed_special_tokens heed_tokenizer_special(const heed_tokenizer *tokenizer);
/** Whether generation ends at this token (end of text, end of turn). */
HEED_API bool heed_token_ends(const heed_tokenizer *tokenizer, int32_t id);
HEED_API bool heed_token_is_control(const heed_tokenizer *tokenizer, int32_t id);
/** The token as it is written in the vocabulary, for pictures and lists; NULL for an id that is none. */
HEED_API const char *heed_token_name(const heed_tokenizer *tokenizer, int32_t id);

/** Bytes to text, a token at a time; whole characters only. Zero it, then set `tokenizer`. */
typedef struct heed_detokenizer {
    const heed_tokenizer *tokenizer;
    bool control; /**< write control tokens too */
    bool raw;     /**< write bytes as they are, also where they are no UTF-8 */
    char held[8]; /**< the beginning of a character that is not complete */
    int helds;
    int64_t tokens; /**< written so far; before the first, a vocabulary that puts a space in front of texts
                       loses it */
} heed_detokenizer;

/**
 * Writes what @p id adds to the text, at most @p size bytes with the final 0, and returns the length needed
 * without it. An incomplete character is held back until it is complete; what can never become one is written
 * as U+FFFD. With id = -1 the text is at its end: what is held comes out as U+FFFD. A @p size that is too
 * small changes nothing.
 */
HEED_API size_t heed_detokenize(heed_detokenizer *detokenizer, int32_t id, char *text, size_t size);

/** A text in memory. */
typedef struct heed_text {
    const char *data;
    size_t size;
} heed_text;

/** What heed_tokenizer_learn read and found. */
typedef struct heed_tokenizer_learnt {
    int64_t bytes, words, different_words;
    int64_t text_tokens; /**< the texts have in the new vocabulary */
    int32_t tokens;      /**< of the vocabulary */
} heed_tokenizer_learnt;

/**
 * Learns a byte-level BPE vocabulary of at most @p tokens tokens (257 at least: all bytes, and
 * "<|endoftext|>" as token 0) from UTF-8 texts and writes it as tokenizer.json to @p path. Words are split as
 * GPT-2 does; of pairs that are as frequent the one of the smaller tokens merges first; pairs that stand
 * there once do not. The same texts give the same file. HEED_INVALID, HEED_IO, HEED_NO_MEMORY.
 */
HEED_API heed_status heed_tokenizer_learn(const heed_text *text, int texts, int32_t tokens, const char *path,
                                          heed_tokenizer_learnt *learnt);

/** A turn of a conversation. */
typedef struct heed_message_turn {
    const char *role; /**< "system", "user", "assistant" */
    const char *content;
} heed_message_turn;

/** The tokens of a conversation by the model's own chat template, with the opening of the assistant's next
 * turn when
 * @p open. Control tokens come from the template only: what stands in `content` stays text unless @p flags
 * has HEED_PARSE_SPECIAL. HEED_UNSUPPORTED when the model has no template, or one that is not understood, and
 * why. */
HEED_API heed_status heed_chat_tokens(const heed_tokenizer *tokenizer, const heed_message_turn *turns,
                                      int count, bool open, unsigned flags, heed_tokens *tokens);

#ifdef __cplusplus
}
#endif
#endif
