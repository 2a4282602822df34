/* heed: the program. Finds the command and runs it. */
#include "attend/spec_reader.h"
#include "cli/bench.h"
#include "cli/cli.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const cli_command *const cli_commands[] = {
    &cli_attend,   &cli_scan,    &cli_explain, &cli_forms,  &cli_random,     &cli_info_command, &cli_convert,
    &cli_tokenize, &cli_run,     &cli_compare, &cli_eval,   &cli_tune,       &cli_calibrate,    &cli_patterns,
    &cli_limits,   &cli_map,     &cli_cache,   &cli_logits, &cli_perplexity, &cli_embed,        &cli_train,
    &cli_finetune, &cli_predict, &cli_recipe,  &cli_sculpt, &cli_denoise,
#ifdef HEED_BENCH
    &cli_bench,
#endif
    &cli_help,     NULL,
};

static const char *command_word(int i)
{
    return cli_commands[i] ? cli_commands[i]->name : NULL;
}

const cli_command *cli_find_command(const char *name)
{
    for (const cli_command *const *command = cli_commands; *command; command++)
        if (!strcmp(name, (*command)->name))
            return *command;
    cli_fail(NULL, "unknown command '%s'%s", heed_quoted(name, (int)strnlen(name, 100)).text,
             cli_nearest(name, command_word).text);
    return NULL;
}

/* What was printed must have arrived: a full disk behind `>` is an error too. */
static int finish(int status)
{
    if ((fflush(stdout) || ferror(stdout)) && status == CLI_OK)
        return cli_fail(NULL, "the output could not be written");
    return status;
}

/* A mapped file that another program makes shorter takes its pages away from under whoever reads them. */
static void end_by_lost_pages(int number, siginfo_t *info, void *context)
{
    static const char said[] = "heed: a file became shorter, or its disk failed, while it was being read; "
                               "the work is not finished\n";
    (void)number;
    (void)context;
    if (info->si_code == BUS_ADRERR && write(STDERR_FILENO, said, sizeof said - 1) > 0)
        _exit(CLI_ERROR);
    signal(SIGBUS, SIG_DFL);
    raise(SIGBUS);
}

static void set_signals(void)
{
    const struct sigaction lost = {.sa_sigaction = end_by_lost_pages, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &lost, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a file that grows too large is an error to report, not an end */
}

/* gcc's OpenMP lets a thread that waits for others spin for milliseconds. When another program runs in the
 * place of one of those, all that time is lost, at hundreds of places a token: two threads were 20 times
 * slower than one beside a busy neighbour. 1,000 turns, some 25 us, cost nothing on an idle machine. The
 * library reads its setting before main, so the program begins once more with it; where that fails, it runs
 * as it is. */
static void wait_shortly(char **argv)
{
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0 || getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return;
    path[length] = 0;
    if (!setenv("GOMP_SPINCOUNT", "1000", 1))
        execv(path, argv);
}

int main(int argc, char **argv)
{
    wait_shortly(argv);
    set_signals();
    if (argc < 2) {
        char *words[] = {"help", NULL};
        return finish(cli_help.run(1, words));
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("heed %s\n", heed_version());
        return finish(CLI_OK);
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        argv[1] = "help";
    }
    const cli_command *command = cli_find_command(argv[1]);
    return command ? finish(command->run(argc - 1, argv + 1)) : CLI_ERROR;
}
