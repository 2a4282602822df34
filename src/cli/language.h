/* What the commands that run a model share: opening it, reading a text, tokens and their texts, JSON. */
#ifndef HEED_CLI_LANGUAGE_H
#define HEED_CLI_LANGUAGE_H

#include "cli/cli.h"
#include <cjson/cJSON.h>
#include <heed/model.h>

/* Values of the shared options; first member of a command's own struct. */
typedef struct cli_language {
    const char *model, *prompt, *file, *attention, *params;
    bool exact, parse_special, json;
    int cache; /* of words; -1: not given */
    int truncate;
    int64_t threads, context, chunk, cache_ram; /* cache_ram 0: all of it */
    const char *cache_file;
} cli_language;

/* Where a text that is too long is cut. */
enum { CLI_CUT_NOTHING, CLI_CUT_HEAD, CLI_CUT_MIDDLE, CLI_CUT_TAIL };
const char *cli_cut_word(int i);

#define CLI_MODEL_OPTION(values)                                                                             \
    CLI_OPTION(values, use.model, .kind = CLI_TEXT, .name = "model", .letter = 'm', .value = "MODEL",        \
               .summary = "a model file, a folder, or the name of a fetched model")
#define CLI_PROMPT_OPTIONS(values)                                                                           \
    CLI_OPTION(values, use.prompt, .kind = CLI_TEXT, .name = "prompt", .letter = 'p', .value = "TEXT",       \
               .summary = "the text"),                                                                       \
        CLI_OPTION(values, use.file, .kind = CLI_TEXT, .name = "file", .letter = 'f', .value = "FILE",       \
                   .summary = "the text is in a file; standard input when neither is given")
#define CLI_SPECIAL_OPTION(values)                                                                           \
    CLI_FLAG_OPTION(values, use.parse_special, "parse-special",                                              \
                    "control tokens written in the text become control tokens")
#define CLI_RUN_OPTIONS(values)                                                                              \
    CLI_TEXT_OPTION(values, use.attention, "attention", "SPEC",                                              \
                    "clauses that replace those of the model's own attention, by layer and head"),           \
        CLI_TEXT_OPTION(values, use.params, "params", "FILE",                                                \
                        "learnt tensors of that attention, as heed calibrate writes them"),                  \
        CLI_CHOICE_OPTION(values, use.cache, "cache", "TYPE", cli_kv_word,                                   \
                          "keep keys and values as f32, f16, bf16, q8, q4, q3, q2 or rq8 to rq2; f16"),      \
        CLI_OPTION(values, use.cache_ram, .kind = CLI_BYTES, .name = "cache-ram", .value = "SIZE",           \
                   .summary =                                                                                \
                       "keep that much of the cache in memory, as 512M or 2G, and the rest in a file",       \
                   .least = 1, .most = INT64_C(1) << 46),                                                    \
        CLI_TEXT_OPTION(values, use.cache_file, "cache-file", "FOLDER",                                      \
                        "where that file lies; auto: TMPDIR or /var/tmp"),                                   \
        CLI_FLAG_OPTION(values, use.exact, "exact", "fp32 activations, weights as the file defines them"),   \
        CLI_THREADS_OPTION(values, use.threads)
#define CLI_LANGUAGE(...)                                                                                    \
    (cli_language)                                                                                           \
    {                                                                                                        \
        .cache = -1, __VA_ARGS__                                                                             \
    }

/* Opens the model that -m names, and says its notes on stderr. */
heed_status cli_open_model(const cli_command *command, const cli_language *use, heed_model **model);

/* Options of a session of `context` tokens as the user wants it. */
heed_session_options cli_session_options(const cli_language *use, int64_t context);

/* Says on stderr which positions and windows of the model's own a spec replaces. */
void cli_note_replaced(const cli_command *command, const heed_model *model, const char *attention);

/* Makes it, and says that on stderr, and which learnt tensors of its attention the model does not have. */
heed_status cli_create_session(const cli_command *command, heed_session **session, const heed_model *model,
                               const heed_session_options *options);

/* Says on stderr where a text of `tokens` brings keys farther from their queries than the model was made for.
 */
void cli_note_distance(const cli_command *command, const heed_model_info *model,
                       const heed_session_info *session, int64_t tokens);

/* A text in memory; freed with free(). */
typedef struct cli_text {
    char *bytes;
    size_t size;
} cli_text;

/* From -p, -f or standard input. */
heed_status cli_read_text(const cli_language *use, cli_text *text);
heed_status cli_read_file(const char *path, cli_text *text);

/* The tokens of a text, with those that the model wants around it. */
heed_status cli_tokens_of(const heed_model *model, const cli_language *use, const cli_text *text,
                          heed_tokens *tokens);

/* Cuts to `most` tokens where --truncate says, and returns how many were dropped; the first `keep_first` and
 * last `keep_last` stay. */
int64_t cli_cut(heed_tokens *tokens, int64_t most, int cut, int64_t keep_first, int64_t keep_last);

/* The text of one token by itself: valid UTF-8, freed with free(); NULL without memory. */
char *cli_token_text(const heed_tokenizer *tokenizer, int32_t id);

/* Prints an object on a line of its own and frees it. */
void cli_print_json(cJSON *object);

#endif
