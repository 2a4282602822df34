/* Finds a tokeniser: in a GGUF file, or in tokenizer.json or vocab.txt of a folder, with the settings beside
 * them. */
#include "base/text.h"
#include "base/try.h"
#include "model/file.h"
#include "model/tokenizer/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_FILE_BYTES = 1 << 29 };

static heed_tokenizer *new_tokenizer(void)
{
    heed_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer) {
        heed_fail(HEED_NO_MEMORY, "no memory for a tokeniser");
        return NULL;
    }
    tokenizer->word_start = tokenizer->word_inner = "";
    tokenizer->special = (heed_special_tokens){-1, -1, -1, -1, -1, -1, -1, false, false};
    tokenizer->unknown = -1;
    for (int byte = 0; byte < 256; byte++)
        tokenizer->byte_token[byte] = -1;
    return tokenizer;
}

static heed_status hand_out(heed_tokenizer **out, heed_tokenizer *tokenizer, heed_status status)
{
    if (status) {
        heed_tokenizer_free(tokenizer);
        return status;
    }
    *out = tokenizer;
    return HEED_OK;
}

/* The special tokens of BERT's vocabularies. */
static bool is_special(const char *text, size_t size)
{
    static const char *const names[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (size == strlen(names[i]) && !memcmp(text, names[i], size))
            return true;
    return false;
}

/* vocab.txt: a piece a line, its number is that of the line; the text is read as BERT does, in lower case
 * unless the settings say otherwise. */
heed_status heed_tokenizer_read_vocabulary(heed_tokenizer *tokenizer, const heed_tokenizer_texts *texts,
                                           const char *lines, size_t size)
{
    size_t config_size = 0;
    const char *config_text = texts->text(texts->context, "tokenizer_config.json", &config_size);
    cJSON *config = config_text ? cJSON_ParseWithLength(config_text, config_size) : NULL;
    const bool lowercase = heed_json_flag(config, "do_lower_case", true);
    const bool strip = heed_json_flag(config, "strip_accents", lowercase);
    const bool cjk = heed_json_flag(config, "tokenize_chinese_chars", true);
    cJSON_Delete(config);
    const struct {
        heed_normal_kind kind;
        bool wanted;
    } steps[] = {{HEED_NORMAL_CLEAN, true},
                 {HEED_NORMAL_SPACE_CJK, cjk},
                 {HEED_NORMAL_NFD, strip},
                 {HEED_NORMAL_STRIP_NONSPACING, strip},
                 {HEED_NORMAL_LOWERCASE, lowercase}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i].wanted && !heed_normal_step_add(tokenizer, steps[i].kind))
            return HEED_UNSUPPORTED;
    TRY(heed_split_bert(tokenizer));
    tokenizer->model = HEED_MODEL_WORDPIECE;
    tokenizer->decode = HEED_DECODE_WORDPIECE;
    tokenizer->word_inner = "##";
    tokenizer->word_characters = 100;
    snprintf(tokenizer->kind, sizeof tokenizer->kind, "WordPiece");
    int64_t id = 0;
    for (const char *at = lines, *end = lines + size; at < end; id++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        const char *next = line_end ? line_end + 1 : end;
        size_t length = (size_t)((line_end ? line_end : end) - at);
        length -= length && at[length - 1] == '\r';
        const bool special = is_special(at, length);
        TRY(heed_piece_set(tokenizer, id, at, length,
                           HEED_PIECE_MODEL | (special ? HEED_PIECE_CONTROL | HEED_PIECE_ADDED : 0u), 0));
        if (special)
            TRY(heed_added_add(&tokenizer->raw, (heed_added_token){.id = (int32_t)id, .special = true}, at,
                               length));
        at = next;
    }
    TRY(heed_vocabulary_finish(tokenizer));
    const int32_t unknown = heed_token_find(tokenizer, "[UNK]", 5),
                  cls = heed_token_find(tokenizer, "[CLS]", 5), sep = heed_token_find(tokenizer, "[SEP]", 5);
    if (unknown < 0 || cls < 0 || sep < 0)
        return heed_fail(HEED_FORMAT, "vocab.txt lacks [UNK], [CLS] or [SEP]");
    tokenizer->special.unk = tokenizer->unknown = unknown;
    tokenizer->before[tokenizer->befores++] = cls;
    tokenizer->after[tokenizer->afters++] = sep;
    return HEED_OK;
}

static heed_status read_texts(heed_tokenizer *tokenizer, const heed_tokenizer_texts *texts)
{
    size_t size = 0;
    const char *text = texts->text(texts->context, "tokenizer.json", &size);
    if (text) {
        TRY(heed_tokenizer_read_json(tokenizer, text, size));
    } else if ((text = texts->text(texts->context, "vocab.txt", &size))) {
        TRY(heed_tokenizer_read_vocabulary(tokenizer, texts, text, size));
    } else {
        return heed_fail(HEED_FORMAT,
                         "the model has no tokeniser: there is neither tokenizer.json nor vocab.txt");
    }
    return heed_tokenizer_read_settings(tokenizer, texts);
}

heed_status heed_tokenizer_from_texts(heed_tokenizer **out, const heed_tokenizer_texts *texts)
{
    heed_tokenizer *tokenizer = new_tokenizer();
    return tokenizer ? hand_out(out, tokenizer, read_texts(tokenizer, texts)) : HEED_NO_MEMORY;
}

static const char *text_of_file(void *context, const char *name, size_t *size)
{
    return heed_model_file_text(context, name, size);
}

heed_status heed_tokenizer_from_file(heed_tokenizer **out, const heed_model_file *file)
{
    if (heed_model_file_format(file) != HEED_FORMAT_GGUF)
        return heed_tokenizer_from_texts(out, &(heed_tokenizer_texts){(void *)(uintptr_t)file, text_of_file});
    heed_tokenizer *tokenizer = new_tokenizer();
    return tokenizer ? hand_out(out, tokenizer, heed_tokenizer_read_gguf(tokenizer, file)) : HEED_NO_MEMORY;
}

/* Texts of a folder, read when asked for. */
typedef struct text_folder {
    const char *path;      /* ends with a slash, or is empty */
    const char *tokenizer; /* the file that stands for tokenizer.json; NULL: that of the folder */
    struct {
        char name[40];
        char *text;
        size_t size;
    } file[8];
    int files;
    heed_status status;
} text_folder;

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (!file)
        return NULL;
    char *text = NULL;
    if (!fstat(fileno(file), &info) && S_ISREG(info.st_mode) && info.st_size <= MOST_FILE_BYTES &&
        (text = malloc((size_t)info.st_size + 1))) {
        *size = fread(text, 1, (size_t)info.st_size, file);
        text[*size] = 0;
    }
    fclose(file);
    return text;
}

static const char *text_of_folder(void *context, const char *name, size_t *size)
{
    text_folder *folder = context;
    char path[4096];
    for (int i = 0; i < folder->files; i++)
        if (!strcmp(folder->file[i].name, name)) {
            *size = folder->file[i].size;
            return folder->file[i].text;
        }
    if (folder->files == (int)(sizeof folder->file / sizeof *folder->file))
        return NULL;
    if (!strcmp(name, "tokenizer.json") && folder->tokenizer)
        snprintf(path, sizeof path, "%s", folder->tokenizer);
    else
        snprintf(path, sizeof path, "%s%s", folder->path, name);
    snprintf(folder->file[folder->files].name, sizeof folder->file->name, "%s", name);
    folder->file[folder->files].text = read_file(path, &folder->file[folder->files].size);
    *size = folder->file[folder->files].size;
    return folder->file[folder->files++].text;
}

static heed_status load_folder(heed_tokenizer **tokenizer, const char *path, const char *file)
{
    text_folder folder = {.path = path, .tokenizer = file};
    const heed_status status =
        heed_tokenizer_from_texts(tokenizer, &(heed_tokenizer_texts){&folder, text_of_folder});
    for (int i = 0; i < folder.files; i++)
        free(folder.file[i].text);
    return status;
}

heed_status heed_tokenizer_load(heed_tokenizer **tokenizer, const char *path)
{
    struct stat info;
    char parent[4096];
    if (strlen(path) > sizeof parent - 100)
        return heed_fail(HEED_IO, "the path has %zu bytes; at most %zu can be", strlen(path),
                         sizeof parent - 100);
    if (stat(path, &info))
        return heed_fail(HEED_IO, "'%.200s' cannot be opened: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) {
        snprintf(parent, sizeof parent, "%s/", path);
        return load_folder(tokenizer, parent, NULL);
    }
    const char *slash = strrchr(path, '/');
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path) + 1 : 0, path);
    if (heed_ends_with(path, ".json"))
        return load_folder(tokenizer, parent, path);
    if (heed_ends_with(path, ".safetensors") || heed_ends_with(path, "vocab.txt"))
        return load_folder(tokenizer, parent, NULL);
    heed_model_file *file;
    TRY(heed_model_file_open(&file, path));
    const heed_status status = heed_tokenizer_from_file(tokenizer, file);
    heed_model_file_close(file);
    return status;
}
