/* The program's own commands, run as a user would run them. */
#include "base/try.h"
#include "cli/language.h"
#include "cli/recipe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child: streams to the two files, the folder, and the program. */
static void become(const char *program, char **words, const char *folder, const int files[2])
{
    if (dup2(files[0], 1) < 0 || dup2(files[1], 2) < 0 || chdir(folder))
        _exit(126);
    execvp(program, words);
    _exit(127);
}

static heed_status wait_for(pid_t child, int *status)
{
    while (waitpid(child, status, 0) < 0)
        if (errno != EINTR)
            return heed_fail(HEED_IO, "heed could not be waited for: %s", strerror(errno));
    return HEED_OK;
}

static bool interrupted;

bool recipe_interrupted(void)
{
    return interrupted;
}

/* `program` is a path, or a name to look for. Ctrl-C at the keyboard ends the child alone, so that what it
 * worked in can be removed first. */
static heed_status run_to_files(const char *program, const char *const *words, const char *folder,
                                const int files[2], int *status)
{
    char *argv[402] = {(char *)program};
    for (int i = 0; i < 400 && words[i]; i++)
        argv[i + 1] = (char *)words[i];
    struct sigaction before;
    sigaction(SIGINT, &(struct sigaction){.sa_handler = SIG_IGN}, &before);
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        sigaction(SIGINT, &before, NULL);
        become(program, argv, folder, files);
    }
    const heed_status waited = child < 0
                                   ? heed_fail(HEED_IO, "%s cannot be started: %s", program, strerror(errno))
                                   : wait_for(child, status);
    sigaction(SIGINT, &before, NULL);
    if (!waited && WIFSIGNALED(*status) && WTERMSIG(*status) == SIGINT)
        interrupted = true;
    return waited;
}

heed_status recipe_temporary(char path[RECIPE_PATH], const char *name)
{
    const char *given = getenv("TMPDIR");
    char *folder = realpath(given && *given ? given : "/tmp", NULL); /* commands run elsewhere */
    const bool fits = folder && snprintf(path, RECIPE_PATH, "%s/heed-%s-XXXXXX", folder, name) < RECIPE_PATH;
    free(folder);
    return fits ? HEED_OK
                : heed_fail(HEED_IO, "TMPDIR: '%.300s' is no folder", given && *given ? given : "/tmp");
}

/* -1: it could not be made. */
static int temporary(char path[RECIPE_PATH], const char *what)
{
    return recipe_temporary(path, what) ? -1 : mkstemp(path);
}

/* Lines that are JSON objects. */
static heed_status read_lines(const char *path, cJSON **lines)
{
    cli_text text;
    TRY(cli_read_file(path, &text));
    *lines = cJSON_CreateArray();
    for (char *line = text.bytes; line && *line;) {
        const size_t length = strcspn(line, "\n");
        cJSON *object = *line == '{' ? cJSON_ParseWithLength(line, length) : NULL;
        if (object)
            cJSON_AddItemToArray(*lines, object);
        line += length + (line[length] == '\n');
    }
    free(text.bytes);
    return HEED_OK;
}

/* The last line that it said, which is the sentence of an error. */
static heed_status said(const char *path, const char *command)
{
    cli_text text;
    TRY(cli_read_file(path, &text));
    size_t end = text.size;
    while (end && (text.bytes[end - 1] == '\n' || text.bytes[end - 1] == '\r'))
        end--;
    text.bytes[end] = 0;
    const char *line = strrchr(text.bytes, '\n');
    const heed_status status =
        heed_fail(HEED_INVALID, "%.700s", end ? (line ? line + 1 : text.bytes) : command);
    free(text.bytes);
    return status;
}

static heed_status own_path(char program[PATH_MAX])
{
    const ssize_t length = readlink("/proc/self/exe", program, PATH_MAX - 1);
    program[length > 0 ? length : 0] = 0;
    return length > 0 ? HEED_OK : heed_fail(HEED_IO, "the program cannot find itself: %s", strerror(errno));
}

void recipe_commit(const char *folder, char commit[41])
{
    char out[RECIPE_PATH];
    const int files[] = {temporary(out, "git"), open("/dev/null", O_WRONLY | O_CLOEXEC)};
    const char *const words[] = {"rev-parse", "--short=10", "HEAD", NULL};
    int ended = -1;
    cli_text text = {.bytes = NULL};
    *commit = 0;
    if (files[0] >= 0 && files[1] >= 0 && !run_to_files("git", words, folder, files, &ended) &&
        WIFEXITED(ended) && WEXITSTATUS(ended) == 0 && !cli_read_file(out, &text))
        snprintf(commit, 41, "%.*s", (int)strcspn(text.bytes, "\n"), text.bytes);
    free(text.bytes);
    if (files[0] >= 0)
        unlink(out);
    for (int i = 0; i < 2; i++)
        if (files[i] >= 0)
            close(files[i]);
}

heed_status recipe_run_heed(const char *const *words, const char *folder, cJSON **lines)
{
    char program[PATH_MAX];
    TRY(own_path(program));
    char out[RECIPE_PATH] = "", err[RECIPE_PATH] = "";
    const int files[] = {temporary(out, "out"), temporary(err, "err")};
    int ended = 0;
    heed_status status = files[0] < 0 || files[1] < 0 ? heed_fail(HEED_IO, "%s: cannot be made: %s",
                                                                  files[0] < 0 ? out : err, strerror(errno))
                                                      : run_to_files(program, words, folder, files, &ended);
    if (!status && lines)
        status = read_lines(out, lines);
    if (!status && !(WIFEXITED(ended) && WEXITSTATUS(ended) == 0)) {
        char what[200];
        snprintf(what, sizeof what, "heed %s ended with status %d", words[0],
                 WIFEXITED(ended) ? WEXITSTATUS(ended) : -1);
        status = said(err, what);
        if (lines) {
            cJSON_Delete(*lines);
            *lines = NULL;
        }
    }
    for (int i = 0; i < 2; i++)
        if (files[i] >= 0) {
            close(files[i]);
            unlink(i ? err : out);
        }
    return status;
}
