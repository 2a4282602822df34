/* What a tokeniser consists of: a text is cut at added tokens, normalised, split into words, and each word
 * becomes pieces of the vocabulary. Which steps there are is data that the loaders fill in.
 */
#ifndef HEED_MODEL_TOKENIZER_PARTS_H
#define HEED_MODEL_TOKENIZER_PARTS_H

#include "model/tokenizer.h"
#include "model/tokenizer/bytes.h"
#include "model/tokenizer/pattern.h"
#include "model/tokenizer/table.h"

#include <heed/tokenizer.h>

/* Steps that change a text before it is split. */
typedef enum heed_normal_kind {
    HEED_NORMAL_NFC,
    HEED_NORMAL_NFD,
    HEED_NORMAL_NFKC,
    HEED_NORMAL_NFKD,
    HEED_NORMAL_LOWERCASE,
    HEED_NORMAL_STRIP_MARKS,      /* combining marks of all kinds go */
    HEED_NORMAL_STRIP_NONSPACING, /* BERT: non-spacing marks only */
    HEED_NORMAL_CLEAN,            /* BERT: control characters go, white space becomes a space */
    HEED_NORMAL_SPACE_CJK,        /* BERT: spaces around ideographs */
    HEED_NORMAL_STRIP,            /* white space at the ends: `left`, `right` */
    HEED_NORMAL_PREPEND,          /* `content`, unless the text is empty */
    HEED_NORMAL_REPLACE,          /* matches of `pattern` by `content` */
    HEED_NORMAL_CHARSMAP,         /* SentencePiece's compiled map */
    HEED_NORMAL_SQUEEZE,          /* SentencePiece: no spaces at the ends, one between words */
} heed_normal_kind;

typedef struct heed_charsmap {
    char *data; /* owned */
    const uint32_t *unit;
    size_t units;
    const char *texts;
    size_t texts_size;
} heed_charsmap;

typedef struct heed_normal_step {
    heed_normal_kind kind;
    heed_pattern *pattern;
    char *find, *content; /* `find` beside `pattern` when it is a plain text */
    size_t find_size, content_size;
    bool left, right;
    heed_charsmap charsmap;
} heed_normal_step;

/* Steps that split a text into words. What becomes of the matches of a pattern: */
typedef enum heed_split_kind {
    HEED_SPLIT_REMOVED,
    HEED_SPLIT_ISOLATED,
    HEED_SPLIT_WITH_PREVIOUS,
    HEED_SPLIT_WITH_NEXT,
    HEED_SPLIT_CONTIGUOUS,
    /* Steps that write a new text: */
    HEED_SPLIT_PREFIX_SPACE, /* a space before every word that does not begin with one */
    HEED_SPLIT_MARK_SPACES,  /* spaces become U+2581, and one may be put in front */
} heed_split_kind;

typedef enum heed_prefix_scheme {
    HEED_PREFIX_NEVER,
    HEED_PREFIX_FIRST,
    HEED_PREFIX_ALWAYS
} heed_prefix_scheme;

typedef struct heed_split_step {
    heed_split_kind kind;
    heed_pattern *pattern;
    bool inverted; /* what lies between the matches counts as matched */
    heed_prefix_scheme prefix;
    char *mark; /* MARK_SPACES: what stands for a space */
    bool split; /* and words begin at each */
} heed_split_step;

typedef enum heed_model_kind {
    HEED_MODEL_BPE,
    HEED_MODEL_SENTENCEPIECE, /* BPE by the score of what two pieces become */
    HEED_MODEL_UNIGRAM,
    HEED_MODEL_WORDPIECE,
} heed_model_kind;

/* How tokens become bytes again. */
typedef enum heed_decode_kind {
    HEED_DECODE_BYTE_LEVEL,    /* each character of a piece stands for a byte */
    HEED_DECODE_SENTENCEPIECE, /* U+2581 is a space, <0x41> a byte */
    HEED_DECODE_WORDPIECE,     /* a space before pieces that begin a word */
    HEED_DECODE_PLAIN,         /* pieces as they are */
} heed_decode_kind;

enum heed_piece_flags {
    HEED_PIECE_CONTROL = 1, /* parsed only when asked for, and written only when asked for */
    HEED_PIECE_ADDED = 2,   /* its text is itself, not in the alphabet of the model */
    HEED_PIECE_BYTE = 4,
    HEED_PIECE_UNUSED = 8,
    HEED_PIECE_MODEL = 16, /* may come out of the model */
    HEED_PIECE_USER = 32,  /* SentencePiece: user defined */
};

typedef struct heed_piece {
    size_t text; /* offset into `texts`; a zero follows */
    uint32_t size;
    uint8_t flags;
    uint8_t byte; /* HEED_PIECE_BYTE */
    int32_t rank; /* SentencePiece BPE: how many scores are better */
    double score;
} heed_piece;

typedef struct heed_added_token {
    int32_t id;
    char *text; /* as it is looked for */
    size_t size;
    bool special, left, right, word; /* takes the white space beside it; only as a whole word */
} heed_added_token;

/* Added tokens that are looked for in the text as it was given, or as it is normalised. */
typedef struct heed_added_set {
    heed_trie trie;
    heed_added_token *token;
    size_t count, capacity;
} heed_added_set;

enum { HEED_STEPS = 32, HEED_AROUND = 8 };

struct heed_tokenizer {
    heed_model_kind model;
    heed_decode_kind decode;
    char kind[120];

    heed_bytes texts;
    heed_piece *piece;
    size_t pieces, pieces_capacity;
    heed_text_table table;  /* pieces that come out of the model */
    heed_text_table others; /* special and added ones */
    heed_merge_table merges;
    heed_trie trie; /* unigram */

    heed_normal_step normal[HEED_STEPS];
    int normals;
    heed_split_step split[HEED_STEPS];
    int splits;
    heed_added_set raw, normalized;

    int32_t byte_token[256]; /* -1 where there is none */
    bool byte_fallback;
    bool fuse_unknown, ignore_merges;
    bool joins_mark[129]; /* SentencePiece BPE: some piece has a U+2581 behind this character, 128: behind one
                             outside ASCII */
    bool single_floats;   /* unigram scores are added as floats, as SentencePiece does */
    double unknown_score, most_score;
    int32_t unknown;                     /* what the model writes for what it does not know; -1: nothing */
    int32_t word_characters;             /* WordPiece: longer words are unknown */
    const char *word_start, *word_inner; /* WordPiece: what stands before pieces */
    char *continuing;                    /* what word_start or word_inner point to, or NULL */

    bool drops_first_space;                          /* when decoding */
    int32_t before[HEED_AROUND], after[HEED_AROUND]; /* what HEED_ADD_SPECIAL adds */
    int befores, afters;
    heed_special_tokens special;
    int32_t end[16];
    int ends;
    char *chat_template; /* NULL: none */
};

/* A text on its way. `user[i]` tells that byte i came from a user's text and can be no part of a special
 * token; NULL: by `special` alone. */
typedef struct heed_source {
    const char *text;
    size_t size;
    const uint8_t *user;
    bool special; /* special tokens are parsed */
} heed_source;

/* Adds the tokens of a text, nothing around them. */
heed_status heed_encode(const heed_tokenizer *tokenizer, const heed_source *source, heed_tokens *tokens);

/* Vocabulary. */
heed_status heed_piece_set(heed_tokenizer *tokenizer, int64_t id, const char *text, size_t size,
                           unsigned flags, double score);
static inline const char *heed_piece_text(const heed_tokenizer *tokenizer, int32_t id)
{
    return tokenizer->texts.data + tokenizer->piece[id].text;
}
int32_t heed_token_find(const heed_tokenizer *tokenizer, const char *text, size_t size); /* any; -1: none */
/* Fills the tables once all pieces are set. */
heed_status heed_vocabulary_finish(heed_tokenizer *tokenizer);
/* Tokens that end an answer: one that the files name, and special tokens that do so in published models. */
void heed_ends_add(heed_tokenizer *tokenizer, int32_t id);
void heed_ends_find(heed_tokenizer *tokenizer);

/* Byte-level vocabularies write each byte as a character. */
int32_t heed_byte_character(uint8_t byte);
int heed_character_byte(int32_t character); /* -1: stands for none */

/* Steps. */
/* *front, where given: the text begins with what stood first before. */
heed_status heed_normalize(const heed_tokenizer *tokenizer, const char *text, size_t size, heed_bytes *out,
                           bool *front);
heed_status heed_charsmap_make(heed_charsmap *map, const void *data, size_t size);
heed_status heed_charsmap_apply(const heed_charsmap *map, const char *text, size_t size, heed_bytes *out);
heed_status heed_split(const heed_split_step *step, bool at_start, heed_bytes *text, heed_ranges *words);
heed_status heed_split_step_add(heed_tokenizer *tokenizer, heed_split_kind kind, const char *pattern,
                                bool inverted);
heed_status heed_split_bert(heed_tokenizer *tokenizer); /* at white space and punctuation */
heed_status heed_split_named(heed_tokenizer *tokenizer, const char *name);
heed_normal_step *heed_normal_step_add(heed_tokenizer *tokenizer, heed_normal_kind kind);
heed_status heed_normal_replace(heed_tokenizer *tokenizer, const char *find, const char *content);
heed_status heed_normal_prepend(heed_tokenizer *tokenizer, const char *content);

/* Added tokens. */
heed_status heed_added_add(heed_added_set *set, heed_added_token token, const char *text, size_t size);
/* The first added token at or behind `from` that may stand there; false: none. The range holds the white
 * space that it takes. */
bool heed_added_next(const heed_added_set *set, const heed_source *source, size_t from, heed_range *range,
                     int32_t *id);

/* Memory that one call reuses from word to word. */
typedef struct heed_word_work {
    /* Bytes that are no UTF-8 travel as private characters, U+xxFF00 + byte with the block that the text
     * itself does not use; -1: there are none. */
    int32_t raw_block;
    heed_bytes bytes, mapped; /* of the word, when they are not its text */
    struct heed_symbol *symbol;
    size_t symbols, symbols_capacity;
    uint64_t *heap; /* rank << 32 | symbol, least on top */
    size_t heap_count, heap_capacity;
    struct heed_viterbi_step *step;
    size_t steps_capacity;
    int32_t *path;
    size_t path_capacity;
} heed_word_work;

void heed_word_work_free(heed_word_work *work);

/* The bytes that a character stands for as it came from the user: itself, or the one that it carries. */
bool heed_raw_byte(const heed_word_work *work, const char *character, uint8_t *byte);

/* One word to tokens, by the kinds of model. */
heed_status heed_bpe_word(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text,
                          size_t size, heed_tokens *tokens);
heed_status heed_unigram_word(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text,
                              size_t size, heed_tokens *tokens);
heed_status heed_wordpiece_word(const heed_tokenizer *tokenizer, heed_word_work *work, const char *text,
                                size_t size, heed_tokens *tokens);

/* Loaders. */
typedef struct heed_tokenizer_texts {
    void *context;
    const char *(*text)(void *context, const char *name, size_t *size); /* NULL: no such file */
} heed_tokenizer_texts;

heed_status heed_tokenizer_from_texts(heed_tokenizer **tokenizer, const heed_tokenizer_texts *texts);
heed_status heed_tokenizer_read_gguf(heed_tokenizer *tokenizer, const heed_model_file *file);
heed_status heed_tokenizer_read_json(heed_tokenizer *tokenizer, const char *json, size_t size);
/* tokenizer_config.json and its neighbours: special tokens, chat template, ends. */
heed_status heed_tokenizer_read_settings(heed_tokenizer *tokenizer, const heed_tokenizer_texts *texts);
heed_status heed_tokenizer_read_vocabulary(heed_tokenizer *tokenizer, const heed_tokenizer_texts *texts,
                                           const char *lines, size_t size);

#endif
