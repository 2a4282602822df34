/* A tokeniser as keys of a GGUF file. The format says little of how a text is normalised and split, so the
 * keys are read again and must give the same tokens for texts of all kinds. */
#include "base/try.h"
#include "model/convert_folder.h"
#include "model/tokenizer/parts.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* tokenizer.ggml.token_type */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

/* Something to try: how words are split, and whether a space is put in front. */
typedef struct candidate {
    const char *pre;
    bool space_prefix;
} candidate;

/* The rules that differ. GPT-2's comes first: small vocabularies may give the same tokens by any of them, and
 * those that name none are split so. */
static const candidate byte_level[] = {{"gpt-2", false},       {"llama-bpe", false}, {"qwen2", false},
                                       {"smollm", false},      {"gpt-4o", false},    {"tekken", false},
                                       {"dbrx", false},        {"falcon", false},    {"stablelm2", false},
                                       {"deepseek-v3", false}, {NULL, false}};
static const candidate pieces[] = {{"default", false}, {"default", true}, {NULL, false}};

/* Texts that tell rules apart. The last ones are not in the normal form NFC: some tokenisers compose
 * characters first, which GGUF files have no word for. */
enum { NOT_COMPOSED = 1 };
static const char *const probes[] = {
    "",
    "a",
    " ",
    "Hello, world! Don't WE'LL they'VE 's 'S I'm",
    "  two spaces, then three   and a tab\there\n\nnew lines \n \r\n end  ",
    "1 12 123 1234 12345 3.14159 1,000,000 v2.0 \xc2\xbd \xe0\xa5\xa7\xe0\xa5\xa8",
    "def f(x):\n    return x+=1; // {\"a\": [1, 2]} <html> #include",
    "na\xc3\xafve caf\xc3\xa9 \xc3\x9c"
    "BER stra\xc3\x9f"
    "e \xc4\xb0stanbul",
    "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe3\x83\x86\xe3\x82\xad\xe3\x82\xb9\xe3\x83\x88 "
    "\xe4\xb8\xad\xe6\x96\x87",
    "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82, \xd0\xbc\xd0\xb8\xd1\x80! "
    "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d \xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7",
    "\xf0\x9f\x98\x80\xf0\x9f\x8e\x89 \xe2\x9d\xa4\xef\xb8\x8f \xf0\x9f\x87\xa9\xf0\x9f\x87\xaa "
    "\xe2\x80\x8b|\xc2\xa0|",
    "CamelCaseWORDS snake_case kebab-case ALLCAPS iPhone15Pro x\xc2\xb2 $100 50% a@b.c https://x.y/z?q=1&r=2",
    "<|im_start|>user\n<s>hi</s><bos>[CLS] [SEP] <|endoftext|>",
    "word\x01"
    "control\x7f end",
    "!!!??? ... --- === *** ~~~ ((())) [[]] {{}}",
    "cafe\xcc\x81 A\xcc\x8a",
};
enum { PROBES = sizeof probes / sizeof *probes };

static int32_t type_of(const heed_tokenizer *tokenizer, int32_t id)
{
    const heed_piece *piece = &tokenizer->piece[id];
    const bool scored =
        tokenizer->model == HEED_MODEL_SENTENCEPIECE || tokenizer->decode == HEED_DECODE_SENTENCEPIECE;
    if (id == tokenizer->special.unk && tokenizer->decode != HEED_DECODE_BYTE_LEVEL)
        return TYPE_UNKNOWN;
    if (piece->flags & HEED_PIECE_CONTROL)
        return TYPE_CONTROL;
    if (piece->flags & HEED_PIECE_BYTE && scored)
        return TYPE_BYTE;
    return piece->flags & HEED_PIECE_ADDED ? TYPE_USER : TYPE_NORMAL;
}

/* A WordPiece token: GGUF files mark the begin of a word, vocabularies what goes on within one. */
static void put_wordpiece(heed_gguf_keys *keys, const char *text, size_t size, bool special)
{
    char marked[600];
    if (special || size + 4 > sizeof marked) {
        heed_gguf_entry_text(keys, text, size);
    } else if (size > 2 && !memcmp(text, "##", 2)) {
        heed_gguf_entry_text(keys, text + 2, size - 2);
    } else {
        memcpy(marked, "\xe2\x96\x81", 3);
        memcpy(marked + 3, text, size);
        heed_gguf_entry_text(keys, marked, size + 3);
    }
}

static void put_tokens(const heed_tokenizer *tokenizer, int64_t rows, heed_gguf_keys *keys)
{
    const int64_t count = (int64_t)tokenizer->pieces, all = rows > count ? rows : count;
    const bool scored = tokenizer->decode == HEED_DECODE_SENTENCEPIECE;
    char text[40];
    heed_gguf_put_array(keys, "tokenizer.ggml.tokens", HEED_GGUF_TEXT, (uint64_t)all);
    for (int64_t i = 0; i < all; i++) {
        if (i >= count) {
            snprintf(text, sizeof text, "[PAD%lld]", (long long)i);
            heed_gguf_entry_text(keys, text, strlen(text));
        } else if (tokenizer->model == HEED_MODEL_WORDPIECE) {
            put_wordpiece(keys, heed_piece_text(tokenizer, (int32_t)i), tokenizer->piece[i].size,
                          (tokenizer->piece[i].flags & HEED_PIECE_CONTROL) != 0);
        } else {
            heed_gguf_entry_text(keys, heed_piece_text(tokenizer, (int32_t)i), tokenizer->piece[i].size);
        }
    }
    heed_gguf_put_array(keys, "tokenizer.ggml.token_type", HEED_GGUF_I32, (uint64_t)all);
    for (int64_t i = 0; i < all; i++)
        heed_gguf_entry_i32(keys, i < count ? type_of(tokenizer, (int32_t)i)
                                  : scored  ? TYPE_CONTROL
                                            : TYPE_UNUSED);
}

/* The two halves of a merge, "a b" or ["a", "b"], as one text; NULL when it is neither. Freed by the caller.
 */
static char *merge_text(const cJSON *merge)
{
    if (cJSON_IsString(merge))
        return strdup(merge->valuestring);
    const cJSON *left = cJSON_GetArrayItem(merge, 0), *right = cJSON_GetArrayItem(merge, 1);
    if (!cJSON_IsString(left) || !cJSON_IsString(right))
        return NULL;
    const size_t size = strlen(left->valuestring) + strlen(right->valuestring) + 2;
    char *text = malloc(size);
    if (text)
        snprintf(text, size, "%s %s", left->valuestring, right->valuestring);
    return text;
}

static heed_status put_merges(const cJSON *merges, heed_gguf_keys *keys)
{
    const cJSON *merge;
    heed_gguf_put_array(keys, "tokenizer.ggml.merges", HEED_GGUF_TEXT, (uint64_t)cJSON_GetArraySize(merges));
    cJSON_ArrayForEach(merge, merges)
    {
        char *text = merge_text(merge);
        if (!text)
            return heed_fail(HEED_FORMAT, "tokenizer.json: a merge is no pair of texts");
        heed_gguf_entry_text(keys, text, strlen(text));
        free(text);
    }
    return HEED_OK;
}

/* Scores of pieces by the first merge that makes them: what is merged earlier is better. */
static heed_status put_scores(const heed_tokenizer *tokenizer, const cJSON *merges, int64_t rows,
                              heed_gguf_keys *keys)
{
    const int64_t count = (int64_t)tokenizer->pieces, all = rows > count ? rows : count;
    float *score = malloc((size_t)all * sizeof *score);
    const cJSON *merge;
    heed_status status =
        score ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the scores of a vocabulary");
    int rank = 0;
    for (int64_t i = 0; i < all && score; i++)
        score[i] = -1e6f;
    cJSON_ArrayForEach(merge, merges)
    {
        char *text = status ? NULL : merge_text(merge), *space = text ? strchr(text, ' ') : NULL;
        if (space) {
            memmove(space, space + 1, strlen(space));
            const int32_t id = heed_token_find(tokenizer, text, strlen(text));
            if (id >= 0 && score[id] == -1e6f)
                score[id] = (float)-rank;
        }
        free(text);
        rank++;
    }
    if (!status) {
        heed_gguf_put_array(keys, "tokenizer.ggml.scores", HEED_GGUF_F32, (uint64_t)all);
        for (int64_t i = 0; i < all; i++)
            heed_gguf_entry_f32(keys, score[i]);
    }
    free(score);
    return status;
}

static void put_special(const heed_tokenizer *tokenizer, heed_gguf_keys *keys)
{
    const heed_special_tokens *s = &tokenizer->special;
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {{"bos", s->bos}, {"eos", s->eos},       {"unknown", s->unk}, {"padding", s->pad},
               {"cls", s->cls}, {"seperator", s->sep}, {"mask", s->mask}}; /* spelt so in the format */
    char key[80];
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i].id >= 0) {
            snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ids[i].name);
            heed_gguf_put_u32(keys, key, (uint32_t)ids[i].id);
        }
    heed_gguf_put_bool(keys, "tokenizer.ggml.add_bos_token", tokenizer->befores > 0);
    heed_gguf_put_bool(keys,
                       tokenizer->model == HEED_MODEL_WORDPIECE ? "tokenizer.ggml.add_sep_token"
                                                                : "tokenizer.ggml.add_eos_token",
                       tokenizer->afters > 0);
    if (tokenizer->chat_template)
        heed_gguf_put_text(keys, "tokenizer.chat_template", tokenizer->chat_template);
}

static heed_status put_tokenizer(const heed_tokenizer *tokenizer, const cJSON *merges, int64_t rows,
                                 const candidate *way, heed_gguf_keys *keys)
{
    const bool word = tokenizer->model == HEED_MODEL_WORDPIECE,
               scored = tokenizer->decode == HEED_DECODE_SENTENCEPIECE;
    heed_gguf_put_text(keys, "tokenizer.ggml.model", word ? "bert" : scored ? "llama" : "gpt2");
    heed_gguf_put_text(keys, "tokenizer.ggml.pre", way->pre);
    put_tokens(tokenizer, rows, keys);
    if (scored) {
        TRY(put_scores(tokenizer, merges, rows, keys));
        heed_gguf_put_bool(keys, "tokenizer.ggml.add_space_prefix", way->space_prefix);
    } else if (!word) {
        TRY(put_merges(merges, keys));
    }
    put_special(tokenizer, keys);
    return HEED_OK;
}

static bool same_tokens(const heed_tokenizer *a, const heed_tokenizer *b, const char *text, unsigned flags)
{
    heed_tokens x = {0}, y = {0};
    const bool same = heed_tokenize(a, text, strlen(text), flags, &x) == HEED_OK &&
                      heed_tokenize(b, text, strlen(text), flags, &y) == HEED_OK && x.count == y.count &&
                      (x.count == 0 || !memcmp(x.id, y.id, (size_t)x.count * sizeof *x.id));
    heed_tokens_free(&x);
    heed_tokens_free(&y);
    return same;
}

/* How many of the texts, from the first on, the tokeniser that these keys make turns into the same tokens. */
static int count_same(const heed_tokenizer *tokenizer, const heed_gguf_keys *keys)
{
    heed_model_file *file;
    heed_tokenizer *again = NULL;
    void *memory;
    int same = 0;
    bool goes_on = heed_convert_parse_keys(keys, &file, &memory) == HEED_OK &&
                   heed_tokenizer_from_file(&again, file) == HEED_OK;
    while (goes_on && same < PROBES) {
        for (unsigned flags = 0; flags < 4 && goes_on; flags++)
            goes_on = same_tokens(tokenizer, again, probes[same], flags);
        same += goes_on;
    }
    heed_tokenizer_free(again);
    heed_model_file_close(file);
    free(memory);
    return same;
}

/* The first way that gives the same tokens for all texts is kept, else the first that does for all composed
 * ones. */
static heed_status find_way(const heed_tokenizer *tokenizer, const cJSON *merges, const char *architecture,
                            int64_t rows, heed_gguf_keys *keys, bool *composes)
{
    const candidate *best = NULL;
    *composes = false;
    for (const candidate *way = tokenizer->decode == HEED_DECODE_BYTE_LEVEL ? byte_level : pieces; way->pre;
         way++) {
        heed_gguf_keys trial = {0};
        heed_gguf_put_text(&trial, "general.architecture", architecture);
        const heed_status status = put_tokenizer(tokenizer, merges, rows, way, &trial);
        const int same = status ? 0 : count_same(tokenizer, &trial);
        heed_gguf_keys_free(&trial);
        if (status)
            return status;
        if (same == PROBES)
            return put_tokenizer(tokenizer, merges, rows, way, keys);
        if (same == PROBES - NOT_COMPOSED && !best)
            best = way;
    }
    *composes = best != NULL;
    if (best)
        return put_tokenizer(tokenizer, merges, rows, best, keys);
    return heed_fail(HEED_UNSUPPORTED,
                     "its tokeniser (%s) normalises or splits texts in a way that a GGUF file cannot say",
                     heed_tokenizer_kind(tokenizer));
}

static heed_status convert(const heed_tokenizer *tokenizer, const heed_model_file *file,
                           const char *architecture, int64_t rows, heed_gguf_keys *keys, bool *composes)
{
    size_t size;
    const char *text = heed_model_file_text(file, "tokenizer.json", &size);
    cJSON *root = text ? cJSON_ParseWithLength(text, size) : NULL;
    const cJSON *merges =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(root, "model"), "merges");
    heed_status status = HEED_OK;
    if (tokenizer->model == HEED_MODEL_UNIGRAM)
        status =
            heed_fail(HEED_UNSUPPORTED,
                      "unigram vocabularies are not written to GGUF files, which add their scores in single "
                      "precision and treat spaces in their own way: some texts would get other tokens");
    else if (tokenizer->model == HEED_MODEL_BPE && !cJSON_IsArray(merges))
        status = heed_fail(HEED_FORMAT, "tokenizer.json: its model has no list of merges");
    if (!status)
        status = find_way(tokenizer, merges, architecture, rows, keys, composes);
    cJSON_Delete(root);
    return status;
}

heed_status heed_convert_tokenizer_keys(const heed_model_file *file, const heed_config *config, int64_t rows,
                                        heed_gguf_keys *keys, heed_convert_report *report)
{
    heed_tokenizer *tokenizer;
    report->no_tokenizer =
        !heed_model_file_text(file, "tokenizer.json", NULL) && !heed_model_file_text(file, "vocab.txt", NULL);
    if (report->no_tokenizer)
        return HEED_OK;
    TRY(heed_tokenizer_from_file(&tokenizer, file));
    const heed_status status = convert(tokenizer, file, config->architecture, rows, keys, &report->composes);
    heed_tokenizer_free(tokenizer);
    return status;
}
