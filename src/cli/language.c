#include "cli/language.h"
#include "attend/spec.h"
#include "base/try.h"
#include "base/utf8.h"
#include "cli/model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *cli_cut_word(int i)
{
    static const char *const words[] = {"never", "head", "middle", "tail"};
    return i < 4 ? words[i] : NULL;
}

heed_status cli_open_model(const cli_command *command, const cli_language *use, heed_model **model)
{
    cli_model_path path;
    *model = NULL;
    if (!use->model)
        return heed_fail(HEED_INVALID, "-m MODEL is missing");
    TRY(cli_find_model(use->model, &path));
    TRY(heed_model_open(model, path.text,
                        &(heed_model_options){.exact = use->exact, .threads = (int)use->threads}));
    for (int i = 0; i < heed_model_notes(*model); i++)
        fprintf(stderr, "heed %s: note: %s\n", command->name, heed_model_note(*model, i));
    return HEED_OK;
}

/* Folders of temporary files are often in memory, /var/tmp hardly ever. */
static const char *offload_folder(const cli_language *use)
{
    if (!use->cache_file && !use->cache_ram)
        return NULL;
    if (use->cache_file && strcmp(use->cache_file, "auto") != 0)
        return use->cache_file;
    const char *folder = getenv("TMPDIR");
    return folder && *folder ? folder : "/var/tmp";
}

heed_session_options cli_session_options(const cli_language *use, int64_t context)
{
    return (heed_session_options){.context = context,
                                  .chunk = use->chunk,
                                  .attention = use->attention,
                                  .params = use->params,
                                  .cache = use->cache < 0 ? HEED_F16 : cli_kv_type_of(use->cache),
                                  .cache_given = use->cache >= 0,
                                  .offload = offload_folder(use),
                                  .resident_bytes = (size_t)use->cache_ram,
                                  .threads = (int)use->threads};
}

static bool replaced(const heed_spec *spec, heed_stage stage, int64_t layer)
{
    for (int g = 0; g < spec->groups; g++)
        if (spec->group[g].root[stage] != HEED_ABSENT && heed_ranges_hold(&spec->group[g].layers, layer))
            return true;
    return false;
}

/* What a model was trained with: a clause that replaces its positions or its windows, and what it replaces,
 * are worth a line. */
static void note_clause(const cli_command *command, const heed_model *model, const char *attention,
                        const char *canonical, const heed_spec *spec, heed_stage stage, const char *begins,
                        const char *holds)
{
    char own[1024], first[1024];
    heed_model_info info;
    heed_model_get_info(model, &info);
    int64_t layers = 0;
    for (int64_t layer = 0; layer < info.layers; layer++) {
        char *clause = NULL;
        if (replaced(spec, stage, layer) && !heed_model_attention(model, layer, own, sizeof own))
            clause = strstr(own, begins);
        if (!clause)
            continue;
        clause[strcspn(clause, ";")] = 0;
        if (strstr(canonical, clause) || !strstr(clause, holds))
            continue;
        if (!layers++)
            snprintf(first, sizeof first, "%s", clause);
    }
    if (layers)
        fprintf(stderr, "heed %s: note: `%s` replaces the model's own `%s` in %lld of %lld layers\n",
                command->name, attention, first, (long long)layers, (long long)info.layers);
}

void cli_note_replaced(const cli_command *command, const heed_model *model, const char *attention)
{
    heed_spec *spec;
    char canonical[4096];
    if (!attention || heed_spec_canonical(attention, NULL, canonical, sizeof canonical) ||
        heed_spec_parse(&spec, attention, NULL))
        return;
    note_clause(command, model, attention, canonical, spec, HEED_POSITION, "position=", "");
    note_clause(command, model, attention, canonical, spec, HEED_WHERE, "where=", "window");
    heed_spec_free(spec);
}

heed_status cli_create_session(const cli_command *command, heed_session **session, const heed_model *model,
                               const heed_session_options *options)
{
    char names[400];
    TRY(heed_session_create(session, model, options));
    cli_note_replaced(command, model, options->attention);
    if (heed_session_untrained(*session, names, sizeof names))
        fprintf(stderr,
                "heed %s: note: `%s` has learnt tensors that the model does not have, and runs on their "
                "initial values: %s\n",
                command->name, options->attention ? options->attention : "", names);
    return HEED_OK;
}

void cli_note_distance(const cli_command *command, const heed_model_info *model,
                       const heed_session_info *session, int64_t tokens)
{
    const int64_t distance = session->distance < tokens ? session->distance : tokens;
    if (distance > model->context)
        fprintf(
            stderr,
            "heed %s: note: keys come to lie up to %lld tokens behind their queries, the model was made for "
            "%lld; where policies bound what is kept, `> packed` moves it together\n",
            command->name, (long long)distance, (long long)model->context);
}

/* Bytes that are no UTF-8 would be read as something else, or as nothing where a vocabulary lacks them. */
static heed_status check_utf8(const cli_text *text, const char *name)
{
    int64_t line = 1;
    for (size_t i = 0; i < text->size;) {
        int32_t character;
        int bad;
        const int length = heed_utf8_read(text->bytes + i, text->size - i, &character, &bad);
        if (length == 0)
            return heed_fail(HEED_INVALID, "%s is not UTF-8: byte %zu, in line %lld, is 0x%02x", name, i,
                             (long long)line, (unsigned char)text->bytes[i]);
        line += character == '\n';
        i += (size_t)length;
    }
    return HEED_OK;
}

static heed_status checked(heed_status status, cli_text *text, const char *name)
{
    if (!status)
        status = check_utf8(text, name);
    if (status) {
        free(text->bytes);
        *text = (cli_text){.bytes = NULL};
    }
    return status;
}

static heed_status read_stream(FILE *file, const char *name, cli_text *text)
{
    size_t room = 1 << 16;
    *text = (cli_text){.bytes = malloc(room)};
    while (text->bytes) {
        text->size += fread(text->bytes + text->size, 1, room - text->size - 1, file);
        if (text->size < room - 1)
            break;
        char *grown = realloc(text->bytes, room *= 2);
        if (!grown)
            free(text->bytes);
        text->bytes = grown;
    }
    if (!text->bytes)
        return heed_fail(HEED_NO_MEMORY, "no memory for the text of %s", name);
    text->bytes[text->size] = 0;
    if (!ferror(file))
        return HEED_OK;
    free(text->bytes);
    *text = (cli_text){.bytes = NULL};
    return heed_fail(HEED_IO, "%s: cannot be read: %s", name, strerror(errno));
}

heed_status cli_read_file(const char *path, cli_text *text)
{
    FILE *file = fopen(path, "rb");
    *text = (cli_text){.bytes = NULL};
    if (!file)
        return heed_fail(HEED_IO, "%s: cannot be opened: %s", path, strerror(errno));
    const heed_status status = read_stream(file, path, text);
    fclose(file);
    return checked(status, text, path);
}

heed_status cli_read_text(const cli_language *use, cli_text *text)
{
    if (use->prompt && use->file)
        return heed_fail(HEED_INVALID, "-p TEXT and -f FILE: one of them is the text");
    if (use->file)
        return cli_read_file(use->file, text);
    if (!use->prompt)
        return checked(read_stream(stdin, "standard input", text), text, "standard input");
    text->size = strlen(use->prompt);
    text->bytes = strdup(use->prompt);
    return checked(text->bytes ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the text"), text,
                   "the text");
}

heed_status cli_tokens_of(const heed_model *model, const cli_language *use, const cli_text *text,
                          heed_tokens *tokens)
{
    const heed_tokenizer *tokenizer = heed_model_tokenizer(model);
    const unsigned special = use->parse_special ? HEED_PARSE_SPECIAL : 0;
    if (!tokenizer)
        return heed_fail(HEED_UNSUPPORTED, "the model has no tokeniser, so it cannot read a text");
    return heed_tokenize(tokenizer, text->bytes, text->size, HEED_ADD_SPECIAL | special, tokens);
}

int64_t cli_cut(heed_tokens *tokens, int64_t most, int cut, int64_t keep_first, int64_t keep_last)
{
    const int64_t dropped = tokens->count - most, between = tokens->count - keep_first - keep_last;
    if (dropped <= 0 || cut == CLI_CUT_NOTHING || dropped > between)
        return 0;
    const int64_t from = cut == CLI_CUT_HEAD   ? keep_first
                         : cut == CLI_CUT_TAIL ? tokens->count - keep_last - dropped
                                               : keep_first + (between - dropped) / 2;
    memmove(tokens->id + from, tokens->id + from + dropped,
            (size_t)(tokens->count - from - dropped) * sizeof *tokens->id);
    tokens->count -= dropped;
    return dropped;
}

char *cli_token_text(const heed_tokenizer *tokenizer, int32_t id)
{
    heed_detokenizer d = {.tokenizer = tokenizer, .control = true, .tokens = 1};
    const heed_detokenizer fresh = d;
    const size_t size = heed_detokenize(&d, id, NULL, 0) + 32;
    char *text = malloc(size);
    if (!text)
        return NULL;
    d = fresh;
    const size_t used = heed_detokenize(&d, id, text, size);
    heed_detokenize(&d, -1, text + used, size - used);
    return text;
}

void cli_print_json(cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);
    puts(text ? text : "{}");
    free(text);
    cJSON_Delete(object);
}
