/* A tokeniser from the metadata of a GGUF file. */
#include "base/try.h"
#include "model/file.h"
#include "model/tokenizer/merges.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* tokenizer.ggml.token_type */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

/* How the kinds of tokenizer.ggml.model differ where the file does not say. */
static const struct gguf_model {
    const char *name, *kind;
    heed_model_kind model;
    heed_decode_kind decode;
    bool add_bos, add_eos, space_prefix, squeeze;
} models[] = {
    {"gpt2", "byte-level BPE", HEED_MODEL_BPE, HEED_DECODE_BYTE_LEVEL, false, false, false, false},
    {"llama", "SentencePiece BPE", HEED_MODEL_SENTENCEPIECE, HEED_DECODE_SENTENCEPIECE, true, false, true,
     false},
    {"t5", "SentencePiece unigram", HEED_MODEL_UNIGRAM, HEED_DECODE_SENTENCEPIECE, false, true, true, true},
    {"bert", "WordPiece", HEED_MODEL_WORDPIECE, HEED_DECODE_WORDPIECE, true, true, false, false},
};

static const heed_meta *meta(const heed_model_file *file, const char *name, heed_meta_kind kind)
{
    char key[120];
    snprintf(key, sizeof key, "tokenizer.%s", name);
    const heed_meta *found = heed_model_file_meta(file, key);
    return found && found->kind == kind ? found : NULL;
}

static bool flag(const heed_model_file *file, const char *name, bool otherwise)
{
    const heed_meta *found = meta(file, name, HEED_META_BOOL);
    return found ? found->whole != 0 : otherwise;
}

static heed_status special_id(const heed_tokenizer *tokenizer, const heed_model_file *file, const char *name,
                              int32_t *id)
{
    char key[100];
    snprintf(key, sizeof key, "ggml.%s_token_id", name);
    const heed_meta *found = meta(file, key, HEED_META_INT);
    *id = -1;
    if (!found || found->whole == -1 || found->whole == UINT32_MAX)
        return HEED_OK;
    if (found->whole < 0 || (uint64_t)found->whole >= tokenizer->pieces)
        return heed_fail(HEED_FORMAT, "tokenizer.%s is %lld, but there are %zu tokens", key,
                         (long long)found->whole, tokenizer->pieces);
    *id = (int32_t)found->whole;
    return HEED_OK;
}

static unsigned flags_of(const heed_tokenizer *tokenizer, int64_t type)
{
    switch (type) {
    case TYPE_CONTROL:
    case TYPE_UNKNOWN:
        return HEED_PIECE_CONTROL | HEED_PIECE_ADDED;
    case TYPE_USER:
        return HEED_PIECE_ADDED | HEED_PIECE_USER |
               (tokenizer->decode == HEED_DECODE_SENTENCEPIECE ? HEED_PIECE_MODEL : 0u);
    case TYPE_UNUSED:
        return HEED_PIECE_MODEL | HEED_PIECE_UNUSED;
    case TYPE_BYTE:
        return HEED_PIECE_BYTE;
    default:
        return HEED_PIECE_MODEL;
    }
}

/* WordPiece files may lack types: then what stands in brackets is special. */
static int64_t type_of(const heed_tokenizer *tokenizer, const heed_meta *types, const heed_meta *tokens,
                       int64_t i)
{
    const char *text = tokens->texts[i];
    const int32_t size = tokens->text_size[i];
    if (types)
        return types->wholes[i];
    return tokenizer->model == HEED_MODEL_WORDPIECE && size > 2 && text[0] == '[' && text[size - 1] == ']'
               ? TYPE_CONTROL
               : TYPE_NORMAL;
}

static heed_status read_pieces(heed_tokenizer *tokenizer, const heed_model_file *file)
{
    const heed_meta *tokens = meta(file, "ggml.tokens", HEED_META_TEXTS);
    const heed_meta *types = meta(file, "ggml.token_type", HEED_META_INTS);
    const heed_meta *scores = meta(file, "ggml.scores", HEED_META_FLOATS);
    const bool scored =
        tokenizer->model == HEED_MODEL_SENTENCEPIECE || tokenizer->model == HEED_MODEL_UNIGRAM;
    if (!tokens)
        return heed_fail(HEED_FORMAT, "the file has no tokenizer.ggml.tokens");
    if (types && types->size != tokens->size)
        return heed_fail(HEED_FORMAT, "the file has %lld tokens and the types of %lld",
                         (long long)tokens->size, (long long)types->size);
    if (scored && (!scores || scores->size != tokens->size))
        return heed_fail(HEED_FORMAT, "the file has %lld tokens and the scores of %lld",
                         (long long)tokens->size, (long long)(scores ? scores->size : 0));
    tokenizer->byte_fallback = false;
    for (int64_t i = 0; i < tokens->size; i++) {
        const int64_t type = type_of(tokenizer, types, tokens, i);
        if (type == TYPE_UNUSED && tokenizer->model == HEED_MODEL_SENTENCEPIECE)
            return heed_fail(
                HEED_UNSUPPORTED,
                "token %lld ('%.40s') is of the type 'unused', which SentencePiece BPE is not read with",
                (long long)i, tokens->texts[i]);
        tokenizer->byte_fallback = tokenizer->byte_fallback || (scored && type == TYPE_BYTE);
        TRY(heed_piece_set(tokenizer, i, tokens->texts[i], (size_t)tokens->text_size[i],
                           flags_of(tokenizer, type), scored ? (double)scores->numbers[i] : 0));
    }
    return HEED_OK;
}

/* A user-defined token of SentencePiece with spaces, which files write as such or as marks: it is looked for
 * in the normalised text, where spaces are marks. */
static heed_status add_spaced(heed_tokenizer *tokenizer, int32_t id)
{
    const heed_piece *piece = &tokenizer->piece[id];
    const char *text = heed_piece_text(tokenizer, id);
    heed_bytes marked = {0};
    for (size_t i = 0; i < piece->size; i++)
        if (text[i] == ' ')
            heed_bytes_add_text(&marked, HEED_SPACE_MARK);
        else
            heed_bytes_add(&marked, text + i, 1);
    const heed_status status =
        marked.failed
            ? heed_fail(HEED_NO_MEMORY, "no memory for the tokeniser's added tokens")
            : heed_added_add(&tokenizer->normalized, (heed_added_token){.id = id}, marked.data, marked.size);
    free(marked.data);
    return status;
}

/* The other user-defined tokens and control tokens are looked for in the text as it was given. */
static heed_status read_added(heed_tokenizer *tokenizer)
{
    for (size_t i = 0; i < tokenizer->pieces; i++) {
        const heed_piece *piece = &tokenizer->piece[i];
        const char *text = heed_piece_text(tokenizer, (int32_t)i);
        if (!(piece->flags & (HEED_PIECE_CONTROL | HEED_PIECE_USER)) || !piece->size)
            continue;
        const bool spaced =
            heed_find(text, piece->size, HEED_SPACE_MARK, 3) || memchr(text, ' ', piece->size);
        if (spaced && tokenizer->decode == HEED_DECODE_SENTENCEPIECE && !(piece->flags & HEED_PIECE_CONTROL))
            TRY(add_spaced(tokenizer, (int32_t)i));
        else
            TRY(heed_added_add(
                &tokenizer->raw,
                (heed_added_token){.id = (int32_t)i, .special = piece->flags & HEED_PIECE_CONTROL}, text,
                piece->size));
    }
    return HEED_OK;
}

static heed_status read_merges(heed_tokenizer *tokenizer, const heed_model_file *file)
{
    const heed_meta *merges = meta(file, "ggml.merges", HEED_META_TEXTS);
    if (!merges)
        return heed_fail(HEED_FORMAT, "the file has a byte-pair vocabulary and no tokenizer.ggml.merges");
    TRY(heed_merges_make(tokenizer, (size_t)merges->size));
    for (int64_t i = 0; i < merges->size; i++)
        TRY(heed_merges_add_line(tokenizer, i, merges->texts[i], (size_t)merges->text_size[i]));
    return HEED_OK;
}

static heed_status read_byte_level(heed_tokenizer *tokenizer, const heed_model_file *file)
{
    const heed_meta *pre = meta(file, "ggml.pre", HEED_META_TEXT);
    const heed_meta *architecture = heed_model_file_meta(file, "general.architecture");
    const bool gpt2 =
        architecture && architecture->kind == HEED_META_TEXT && !strcmp(architecture->text, "gpt2");
    if (!pre && !gpt2)
        return heed_fail(HEED_FORMAT,
                         "the file does not say how its tokeniser splits words (no tokenizer.ggml.pre)");
    const char *name = pre ? pre->text : "gpt-2";
    TRY(heed_split_named(tokenizer, name));
    snprintf(tokenizer->kind, sizeof tokenizer->kind, "byte-level BPE (%.60s)", name);
    return read_merges(tokenizer, file);
}

static heed_status read_sentencepiece(heed_tokenizer *tokenizer, const heed_model_file *file,
                                      const struct gguf_model *model)
{
    const heed_meta *map = meta(file, "ggml.precompiled_charsmap", HEED_META_INTS);
    if (map && map->size) {
        char *bytes = malloc((size_t)map->size);
        if (!bytes)
            return heed_fail(HEED_NO_MEMORY, "no memory for the tokeniser's normaliser");
        for (int64_t i = 0; i < map->size; i++)
            bytes[i] = (char)map->wholes[i];
        heed_normal_step *step = heed_normal_step_add(tokenizer, HEED_NORMAL_CHARSMAP);
        const heed_status status =
            step ? heed_charsmap_make(&step->charsmap, bytes, (size_t)map->size) : HEED_UNSUPPORTED;
        free(bytes);
        TRY(status);
    }
    if (flag(file, "ggml.remove_extra_whitespaces", model->squeeze) &&
        !heed_normal_step_add(tokenizer, HEED_NORMAL_SQUEEZE))
        return HEED_UNSUPPORTED;
    tokenizer->fuse_unknown = true;
    tokenizer->single_floats = true;
    tokenizer->drops_first_space = flag(file, "ggml.add_space_prefix", model->space_prefix);
    if (tokenizer->drops_first_space)
        TRY(heed_normal_prepend(tokenizer, " "));
    return heed_normal_replace(tokenizer, " ", HEED_SPACE_MARK);
}

/* GGUF writes U+2581 before pieces that begin a word and nothing before the others. */
static heed_status read_wordpiece(heed_tokenizer *tokenizer)
{
    static const heed_normal_kind steps[] = {HEED_NORMAL_CLEAN, HEED_NORMAL_SPACE_CJK, HEED_NORMAL_NFD,
                                             HEED_NORMAL_STRIP_NONSPACING, HEED_NORMAL_LOWERCASE};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (!heed_normal_step_add(tokenizer, steps[i]))
            return HEED_UNSUPPORTED;
    tokenizer->word_start = HEED_SPACE_MARK;
    tokenizer->word_inner = "";
    tokenizer->word_characters = 100;
    return heed_split_bert(tokenizer);
}

static heed_status read_special(heed_tokenizer *tokenizer, const heed_model_file *file,
                                const struct gguf_model *model)
{
    heed_special_tokens *special = &tokenizer->special;
    int32_t eot, eom;
    TRY(special_id(tokenizer, file, "bos", &special->bos));
    TRY(special_id(tokenizer, file, "eos", &special->eos));
    TRY(special_id(tokenizer, file, "unknown", &special->unk));
    tokenizer->unknown = tokenizer->decode == HEED_DECODE_BYTE_LEVEL ? -1 : special->unk;
    TRY(special_id(tokenizer, file, "padding", &special->pad));
    TRY(special_id(tokenizer, file, "seperator", &special->sep)); /* spelt so in the format */
    TRY(special_id(tokenizer, file, "cls", &special->cls));
    TRY(special_id(tokenizer, file, "mask", &special->mask));
    TRY(special_id(tokenizer, file, "eot", &eot));
    TRY(special_id(tokenizer, file, "eom", &eom));
    const bool word = tokenizer->model == HEED_MODEL_WORDPIECE;
    special->add_bos = flag(file, "ggml.add_bos_token", model->add_bos || tokenizer->ignore_merges);
    special->add_eos = flag(file, word ? "ggml.add_sep_token" : "ggml.add_eos_token", model->add_eos);
    if (word && special->cls < 0)
        special->cls = special->bos;
    if (word && special->sep < 0)
        special->sep = special->eos;
    const int32_t before = word ? special->cls : special->bos, after = word ? special->sep : special->eos;
    if (special->add_bos && before >= 0)
        tokenizer->before[tokenizer->befores++] = before;
    if (special->add_eos && after >= 0)
        tokenizer->after[tokenizer->afters++] = after;
    heed_ends_add(tokenizer, special->eos);
    heed_ends_add(tokenizer, eot);
    heed_ends_add(tokenizer, eom);
    heed_ends_find(tokenizer);
    if (special->unk < 0 && word)
        return heed_fail(HEED_FORMAT, "the file has a WordPiece vocabulary and names no unknown token");
    return HEED_OK;
}

heed_status heed_tokenizer_read_gguf(heed_tokenizer *tokenizer, const heed_model_file *file)
{
    const heed_meta *name = meta(file, "ggml.model", HEED_META_TEXT);
    const struct gguf_model *model = NULL;
    if (!name)
        return heed_fail(HEED_FORMAT, "the file has no tokeniser (no tokenizer.ggml.model)");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (!strcmp(name->text, models[i].name))
            model = &models[i];
    if (!model)
        return heed_fail(
            HEED_UNSUPPORTED,
            "the tokeniser is of the kind '%.40s', which is not known; known are gpt2, llama, t5 and bert",
            name->text);
    tokenizer->model = model->model;
    tokenizer->decode = model->decode;
    snprintf(tokenizer->kind, sizeof tokenizer->kind, "%s", model->kind);
    TRY(read_pieces(tokenizer, file));
    TRY(heed_vocabulary_finish(tokenizer));
    TRY(read_added(tokenizer));
    if (tokenizer->model == HEED_MODEL_BPE)
        TRY(read_byte_level(tokenizer, file));
    else if (tokenizer->model == HEED_MODEL_WORDPIECE)
        TRY(read_wordpiece(tokenizer));
    else
        TRY(read_sentencepiece(tokenizer, file, model));
    TRY(read_special(tokenizer, file, model));
    const heed_meta *chat = meta(file, "chat_template", HEED_META_TEXT);
    if (chat && !(tokenizer->chat_template = strdup(chat->text)))
        return heed_fail(HEED_NO_MEMORY, "no memory for the chat template");
    return HEED_OK;
}
