/* heed help: what the program and each command can do. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool wants_colour(FILE *file)
{
    const char *terminal = getenv("TERM"), *none = getenv("NO_COLOR");
    return isatty(fileno(file)) && terminal && strcmp(terminal, "dumb") && !(none && *none);
}

const char *cli_bold(FILE *file)
{
    return wants_colour(file) ? "\033[1m" : "";
}

const char *cli_plain(FILE *file)
{
    return wants_colour(file) ? "\033[0m" : "";
}

static void print_option(FILE *file, const cli_option *option)
{
    char words[80];
    const char *value = option->kind == CLI_FLAG ? "" : option->value;
    snprintf(words, sizeof words, "--%s%s%s", option->name, *value ? " " : "", value);
    if (option->letter)
        fprintf(file, "  -%c, %-24s %s\n", option->letter, words, option->summary);
    else
        fprintf(file, "      %-24s %s\n", words, option->summary);
}

/* Lines, four spaces in. */
static void print_indented(FILE *file, const char *text)
{
    while (*text) {
        const int length = (int)strcspn(text, "\n");
        fprintf(file, "    %.*s\n", length, text);
        text += length + (text[length] == '\n');
    }
}

void cli_print_help(FILE *file, const cli_command *command)
{
    const char *bold = cli_bold(file), *plain = cli_plain(file);
    fprintf(file, "%sheed %s%s %s\n    %s\n", bold, command->name, plain, command->arguments,
            command->summary);
    if (command->options) {
        fprintf(file, "\n%soptions%s\n", bold, plain);
        for (const cli_option *option = command->options; option->name; option++)
            print_option(file, option);
    }
    if (command->details)
        fprintf(file, "\n%s", command->details);
    fprintf(file, "\n%sexample%s\n", bold, plain);
    print_indented(file, command->example);
}

static void print_overview(FILE *file)
{
    const char *bold = cli_bold(file), *plain = cli_plain(file);
    fprintf(file, "heed %s: exact, fast attention on CPUs, in any published form, by a one-line spec\n\n",
            heed_version());
    fprintf(file, "%scommands%s\n", bold, plain);
    for (const cli_command *const *command = cli_commands; *command; command++)
        fprintf(file, "  %-9s %s\n", (*command)->name, (*command)->summary);
    fprintf(file, "\n`heed help COMMAND` shows the options of a command and an example.\n");
}

static int run(int argc, char **argv)
{
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_help, argc, argv, NULL, &arguments, 0, 1, &status))
        return status;
    if (arguments.count == 0) {
        print_overview(stdout);
        return CLI_OK;
    }
    const cli_command *command = cli_find_command(arguments.word[0]);
    if (!command)
        return CLI_ERROR;
    cli_print_help(stdout, command);
    return CLI_OK;
}

const cli_command cli_help = {
    .name = "help",
    .arguments = "[COMMAND]",
    .summary = "what there is, or how a command is used",
    .example = "heed help attend",
    .run = run,
};
