/* heed train, killed at a hundred random moments, ends with the bits of a run that was let alone. */
#include "support/program.h"
#include "support/random.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RUN                                                                                                  \
    "train --set 'data = recall(4, 8)' --set width=32 --set heads=2 --set layers=1 --set batch=8 --set "     \
    "steps=200 "                                                                                             \
    "--set save_every=1 --set log_every=1 --set dropout=0.1 --set seed=3 "

static void start_and_kill(long nanoseconds)
{
    const pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "exec " HEED_PROGRAM " " RUN "-o killed --resume >/dev/null 2>&1",
              (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0);
    nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void killed_runs_end_as_others(void **state)
{
    (void)state;
    test_random random = {11};
    run(RUN "-o whole");
    assert_int_equal(ran.status, 0);
    for (int i = 0; i < 100; i++)
        start_and_kill(random_whole(&random, 0, 90000000));
    run(RUN "-o killed --resume");
    if (ran.status)
        fail_msg("%s", ran.err);
    assert_true(same_file("whole/model.safetensors", "killed/model.safetensors"));
    assert_true(same_file("whole/checkpoint.safetensors", "killed/checkpoint.safetensors"));
}

/* Folders of runs too. */
static int remove_all(void **state)
{
    return system("rm -r ./*/") || program_folder_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_runs_end_as_others)};
    return cmocka_run_group_tests(tests, program_folder, remove_all);
}
