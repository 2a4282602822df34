/* Command lines: --name VALUE, --name=VALUE, -x VALUE, -xVALUE, and -- before words that begin with a dash.
 */
#include "attend/spec_reader.h"
#include "cli/cli.h"
#include "cli/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int cli_fail(const char *command, const char *format, ...)
{
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = ' ';
    fprintf(stderr, "heed%s%s: %s\n", command ? " " : "", command ? command : "", text);
    return CLI_ERROR;
}

int cli_fail_message(const char *command)
{
    return cli_fail(command, "%s", heed_message());
}

bool cli_whole(const char *text, int64_t least, int64_t most, int64_t *value)
{
    char *end;
    if (!(*text >= '0' && *text <= '9') && *text != '-')
        return false;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (errno || end == text || *end || number < least || number > most)
        return false;
    *value = number;
    return true;
}

cli_hint cli_nearest(const char *word, const char *(*words)(int i))
{
    heed_names names;
    cli_hint hint;
    heed_names_start(&names, (heed_word){HEED_WORD_NAME, word, (int)strnlen(word, 200)});
    for (int i = 0; words(i); i++)
        heed_names_add(&names, words(i));
    snprintf(hint.text, sizeof hint.text, "%s", heed_names_hint(&names).text);
    return hint;
}

const char *cli_isa_word(int i)
{
    return heed_isa_name((heed_isa)i);
}

const char *cli_kernel_word(int i)
{
    return i <= HEED_KERNEL_GATHER ? heed_kernel_name((heed_kernel)i) : NULL;
}

static const heed_type kv_types[] = {HEED_F32,        HEED_F16,        HEED_BF16,      HEED_Q8,
                                     HEED_Q4,         HEED_Q3,         HEED_Q2,        HEED_ROTATED_Q8,
                                     HEED_ROTATED_Q4, HEED_ROTATED_Q3, HEED_ROTATED_Q2};
enum { KV_TYPES = sizeof kv_types / sizeof *kv_types };

const char *cli_kv_word(int i)
{
    return i < KV_TYPES ? heed_type_name(kv_types[i]) : NULL;
}

heed_type cli_kv_type_of(int i)
{
    return kv_types[i];
}

const char *cli_float_word(int i)
{
    return i <= HEED_BF16 ? heed_type_name((heed_type)i) : NULL;
}

static int unknown_option(const cli_command *command, const char *word, size_t length)
{
    heed_names names;
    heed_names_start(&names, (heed_word){HEED_WORD_NAME, word + 2, (int)length - 2});
    for (const cli_option *option = command->options; option && option->name; option++)
        heed_names_add(&names, option->name);
    heed_names_add(&names, "help");
    return cli_fail(command->name, "unknown option '%s'%s", heed_quoted(word, (int)length).text,
                    length > 2 ? heed_names_hint(&names).text : "; `heed help` shows the options");
}

static const cli_option *find_option(const cli_command *command, const char *word, size_t length)
{
    for (const cli_option *option = command->options; option && option->name; option++) {
        if (word[1] == '-' && strlen(option->name) == length - 2 &&
            !memcmp(option->name, word + 2, length - 2))
            return option;
        if (word[1] != '-' && option->letter && option->letter == word[1])
            return option;
    }
    return NULL;
}

static int set_number(const cli_command *command, const cli_option *option, const char *value, double *place)
{
    char *end;
    errno = 0;
    const double number = strtod(value, &end);
    if (errno || end == value || *end || !(number >= option->low && number <= option->high))
        return cli_fail(command->name, "--%s %s: a number from %g to %g is needed", option->name,
                        heed_quoted(value, (int)strnlen(value, 100)).text, option->low, option->high);
    *place = number;
    return CLI_OK;
}

/* "4096", "512M", "1.5G": powers of 1024. */
static bool read_bytes(const char *text, int64_t least, int64_t most, int64_t *bytes)
{
    static const char units[] = "kMG";
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (errno || end == text || (*end && (!unit || end[1])))
        return false;
    for (const char *u = units; unit && u <= unit; u++)
        number *= 1024.0;
    if (!(number >= (double)least && number <= (double)most))
        return false;
    *bytes = (int64_t)number;
    return true;
}

static int add_word(const cli_command *command, const cli_option *option, const char *value, cli_list *place)
{
    const int most = (int)(sizeof place->word / sizeof *place->word);
    if (place->count == most)
        return cli_fail(command->name, "--%s may be given %d times at most", option->name, most);
    place->word[place->count++] = value;
    return CLI_OK;
}

static int set_option(const cli_command *command, const cli_option *option, const char *value, void *values)
{
    char *place = (char *)values + option->offset;
    const int length = (int)strnlen(value, 100);
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)place = true;
        return CLI_OK;
    case CLI_TEXT:
        *(const char **)place = value;
        return CLI_OK;
    case CLI_CORES:
    case CLI_WHOLE:
        if (cli_whole(value, option->least, option->most, (int64_t *)place)) {
            if (option->kind == CLI_CORES)
                cli_limit_threads(command->name, (int64_t *)place);
            return CLI_OK;
        }
        return cli_fail(command->name, "--%s %s: a whole number from %lld to %lld is needed", option->name,
                        heed_quoted(value, length).text, (long long)option->least, (long long)option->most);
    case CLI_BYTES:
        if (read_bytes(value, option->least, option->most, (int64_t *)place))
            return CLI_OK;
        return cli_fail(command->name, "--%s %s: a size like 4096, 512M or 2G is needed, at least %lld bytes",
                        option->name, heed_quoted(value, length).text, (long long)option->least);
    case CLI_CHOICE:
        for (int i = 0; option->words(i); i++)
            if (!strcmp(value, option->words(i))) {
                *(int *)place = i;
                return CLI_OK;
            }
        return cli_fail(command->name, "--%s %s: unknown%s", option->name, heed_quoted(value, length).text,
                        cli_nearest(value, option->words).text);
    case CLI_NUMBER:
        return set_number(command, option, value, (double *)place);
    case CLI_LIST:
        return add_word(command, option, value, (cli_list *)place);
    }
    return CLI_ERROR;
}

/* Takes the option at argv[*at], and its value. */
static int take_option(const cli_command *command, int argc, char **argv, int *at, void *values)
{
    const char *word = argv[*at];
    const bool is_long = word[1] == '-';
    const size_t length = is_long ? strcspn(word, "=") : 2;
    const cli_option *option = find_option(command, word, length);
    const char *behind = word + length; /* "=VALUE", "VALUE" or "" */
    if (!option)
        return unknown_option(command, word, length);
    if (option->kind == CLI_FLAG) {
        if (*behind)
            return cli_fail(command->name, "--%s takes no value", option->name);
        return set_option(command, option, "", values);
    }
    if (*behind)
        return set_option(command, option, is_long ? behind + 1 : behind, values);
    if (*at + 1 == argc)
        return cli_fail(command->name, "--%s needs a value: --%s %s", option->name, option->name,
                        option->value);
    return set_option(command, option, argv[++*at], values);
}

static bool asks_for_help(const char *word)
{
    return !strcmp(word, "--help") || !strcmp(word, "-h");
}

bool cli_parse(const cli_command *command, int argc, char **argv, void *values, cli_arguments *arguments,
               int least, int most, int *status)
{
    bool options = true;
    arguments->count = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (options && !strcmp(word, "--")) {
            options = false;
        } else if (options && asks_for_help(word)) {
            cli_print_help(stdout, command);
            *status = CLI_OK;
            return false;
        } else if (options && word[0] == '-' && word[1]) {
            *status = take_option(command, argc, argv, &i, values);
            if (*status)
                return false;
        } else if (arguments->count == most) {
            *status =
                cli_fail(command->name, "'%s' is one argument too many; usage: heed %s %s",
                         heed_quoted(word, (int)strnlen(word, 100)).text, command->name, command->arguments);
            return false;
        } else {
            arguments->word[arguments->count++] = argv[i];
        }
    }
    if (arguments->count < least) {
        *status = cli_fail(command->name, "an argument is missing; usage: heed %s %s", command->name,
                           command->arguments);
        return false;
    }
    return true;
}
