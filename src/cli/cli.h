/* What the commands of the program share: descriptions, options, messages. */
#ifndef HEED_CLI_CLI_H
#define HEED_CLI_CLI_H

#include <heed/heed.h>
#include <stdio.h>

enum { CLI_OK = 0, CLI_ERROR = 2 };

typedef enum cli_kind {
    CLI_FLAG,   /* bool */
    CLI_TEXT,   /* const char * */
    CLI_WHOLE,  /* int64_t from least to most */
    CLI_CHOICE, /* int: index of the word among `words` */
    CLI_NUMBER, /* double from low to high */
    CLI_LIST,   /* cli_list: may be given several times */
    CLI_BYTES,  /* int64_t from least to most, written in bytes or with k, M or G behind it */
    CLI_CORES,  /* int64_t from 1 to 1024, cut with a note to the threads that the machine runs at once */
} cli_kind;

typedef struct cli_list {
    const char *word[64];
    int count;
} cli_list;

/* An option, and the place of its value in the command's own struct. A table ends with name == NULL. */
typedef struct cli_option {
    const char *name; /* "threads", written --threads */
    char letter;      /* 'o' for -o; 0 when there is none */
    cli_kind kind;
    size_t offset;
    const char *value; /* what stands for the value in the help: "FILE" */
    const char *summary;
    int64_t least, most;
    const char *(*words)(int i); /* NULL from the end of the list on */
    double low, high;
} cli_option;

/* A line of such a table; `values` is the type of the command's own struct. */
#define CLI_OPTION(values, field, ...)                                                                       \
    {                                                                                                        \
        .offset = offsetof(values, field), __VA_ARGS__                                                       \
    }
#define CLI_FLAG_OPTION(values, field, option, text)                                                         \
    CLI_OPTION(values, field, .kind = CLI_FLAG, .name = option, .value = "", .summary = text)
#define CLI_TEXT_OPTION(values, field, option, word, text)                                                   \
    CLI_OPTION(values, field, .kind = CLI_TEXT, .name = option, .value = word, .summary = text)
#define CLI_WHOLE_OPTION(values, field, option, from, to, text)                                              \
    CLI_OPTION(values, field, .kind = CLI_WHOLE, .name = option, .value = "N", .summary = text,              \
               .least = from, .most = to)
#define CLI_THREADS_OPTION(values, field)                                                                    \
    CLI_OPTION(values, field, .kind = CLI_CORES, .name = "threads", .value = "N", .summary = CLI_THREADS,    \
               .least = 1, .most = 1024)
#define CLI_CHOICE_OPTION(values, field, option, word, list, text)                                           \
    CLI_OPTION(values, field, .kind = CLI_CHOICE, .name = option, .value = word, .summary = text,            \
               .words = list)
#define CLI_NUMBER_OPTION(values, field, option, from, to, text)                                             \
    CLI_OPTION(values, field, .kind = CLI_NUMBER, .name = option, .value = "X", .summary = text,             \
               .low = from, .high = to)
#define CLI_LIST_OPTION(values, field, option, word, text)                                                   \
    CLI_OPTION(values, field, .kind = CLI_LIST, .name = option, .value = word, .summary = text)

typedef struct cli_command {
    const char *name;
    const char *arguments; /* "SPEC IN.safetensors -o OUT.safetensors" */
    const char *summary;   /* one line */
    const char *details;   /* what the help says below the options; may be NULL */
    const char *example;   /* lines that work when pasted */
    const cli_option *options;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns the exit status */
} cli_command;

extern const cli_command cli_attend, cli_scan, cli_explain, cli_forms, cli_random, cli_info_command,
    cli_convert, cli_tokenize, cli_logits, cli_perplexity, cli_embed, cli_run, cli_compare, cli_map,
    cli_cache, cli_eval, cli_tune, cli_train, cli_predict, cli_finetune, cli_recipe, cli_sculpt,
    cli_calibrate, cli_patterns, cli_limits, cli_denoise, cli_help;

/* Ended by NULL. */
extern const cli_command *const cli_commands[];
const cli_command *cli_find_command(const char *name);

enum { CLI_ARGUMENTS = 256 };

/* The words of a command line that are no options. */
typedef struct cli_arguments {
    char *word[CLI_ARGUMENTS];
    int count;
} cli_arguments;

/* Reads options into `values` and the rest into `arguments`, of which there must be least..most. False when
 * the command is done, with *status the exit status: after --help, or after an error, of which it has spoken.
 */
bool cli_parse(const cli_command *command, int argc, char **argv, void *values, cli_arguments *arguments,
               int least, int most, int *status);

/* "heed COMMAND: sentence" on stderr, one line; returns CLI_ERROR. */
int cli_fail(const char *command, const char *format, ...) HEED_PRINTF(2, 3);

/* The same with the library's sentence for the last failure. */
int cli_fail_message(const char *command);

/* A whole number of the range, and nothing behind it. */
bool cli_whole(const char *text, int64_t least, int64_t most, int64_t *value);

/* "; the nearest is 'window'" for a word that is not on a list; `words` as in cli_option. */
typedef struct cli_hint {
    char text[480];
} cli_hint;
cli_hint cli_nearest(const char *word, const char *(*words)(int i));

/* Words for CLI_CHOICE; the index is the value of the enumeration. */
const char *cli_isa_word(int i);
const char *cli_kernel_word(int i);
const char *cli_kv_word(int i);
heed_type cli_kv_type_of(int i);
const char *cli_float_word(int i);

/* What several commands say of an option of theirs. */
#define CLI_THREADS "threads, 1 to 1024; one a core when not given"
#define CLI_ISAS "instruction set: portable, avx2, avx512 or neon; the best when not given"
#define CLI_KERNELS "force flash, rows, sparse, decode or gather"
#define CLI_LAYER "which layer this is, for `layers` prefixes in the spec; 0"

void cli_print_help(FILE *file, const cli_command *command);

/* Escape sequences for bold text and back, "" unless `file` is a terminal that wants colour. */
const char *cli_bold(FILE *file);
const char *cli_plain(FILE *file);

#endif
