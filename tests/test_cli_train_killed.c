/* heed train and finetune, killed at random moments, end with the bits of runs that were let alone. */
#include "support/program.h"
#include "support/random.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RUN                                                                                                  \
    "train --set 'data = recall(4, 8)' --set width=32 --set heads=2 --set layers=1 --set batch=8 --set "     \
    "steps=200 "                                                                                             \
    "--set save_every=1 --set log_every=1 --set dropout=0.1 --set seed=3 "

#define TUNE                                                                                                 \
    "finetune -m ./base --set file=text.txt --set learn=lora --set context=24 --set batch=4 --set "          \
    "steps=120 "                                                                                             \
    "--set eval_sequences=4 --set save_every=1 --set log_every=1 --set seed=3 "

static void start_and_kill(const char *arguments, long nanoseconds)
{
    char command[1000];
    snprintf(command, sizeof command, "exec " HEED_PROGRAM " %s >/dev/null 2>&1", arguments);
    const pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
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
        start_and_kill(RUN "-o killed --resume", random_whole(&random, 0, 90000000));
    run(RUN "-o killed --resume");
    if (ran.status)
        fail_msg("%s", ran.err);
    assert_true(same_file("whole/model.safetensors", "killed/model.safetensors"));
    assert_true(same_file("whole/checkpoint.safetensors", "killed/checkpoint.safetensors"));
}

/* A small model of bytes, and a text to go on with. */
static void make_base(void)
{
    assert_int_equal(
        system("for i in $(seq 200); do echo \"$i bottles of beer on the wall\"; done > text.txt"), 0);
    run("train --set data=text --set file=text.txt --set context=24 --set width=32 --set heads=2 --set "
        "layers=2 "
        "--set batch=4 --set steps=3 -o base");
    if (ran.status)
        fail_msg("%s", ran.err);
}

static void killed_finetuning_ends_as_other(void **state)
{
    (void)state;
    test_random random = {12};
    make_base();
    run(TUNE "-o tuned");
    if (ran.status)
        fail_msg("%s", ran.err);
    for (int i = 0; i < 60; i++)
        start_and_kill(TUNE "-o torn --resume", random_whole(&random, 0, 90000000));
    run(TUNE "-o torn --resume");
    if (ran.status)
        fail_msg("%s", ran.err);
    static const char *const files[] = {"model.safetensors", "adapter_model.safetensors",
                                        "checkpoint.safetensors"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char whole[60], torn[60];
        snprintf(whole, sizeof whole, "tuned/%s", files[i]);
        snprintf(torn, sizeof torn, "torn/%s", files[i]);
        assert_true(same_file(whole, torn));
    }
    assert_int_equal(system("test -z \"$(ls tuned/*.part 2>/dev/null)\""), 0);
}

/* Files may grow to some KiB: the checkpoint before, and the model that was written before, stay whole; then,
 * with room again, the run goes on. */
static void full_disks_leave_finetuning_whole(void **state)
{
    (void)state;
    make_base();
#define FULL                                                                                                 \
    "finetune -m ./base --set file=text.txt --set context=24 --set batch=4 --set steps=4 --set "             \
    "save_every=2 "
    run(FULL "-o full --stop-after 2");
    assert_int_equal(ran.status, 0);
    assert_int_equal(system("cp -r full before"), 0);
    assert_int_not_equal(
        system("bash -c 'ulimit -f 8; " HEED_PROGRAM " finetune -m ./base --resume -o full 2>said.txt'"), 0);
    assert_int_equal(system("grep -q 'cannot be written: File too large' said.txt"), 0);
    assert_true(same_file("full/checkpoint.safetensors", "before/checkpoint.safetensors"));
    assert_true(same_file("full/model.safetensors", "before/model.safetensors"));
    assert_int_equal(system("test -z \"$(ls full/*.part 2>/dev/null)\""), 0);
    run("finetune -m ./base --resume -o full");
    assert_int_equal(ran.status, 0);
    run(FULL "-o rest");
    assert_true(same_file("full/model.safetensors", "rest/model.safetensors"));
    assert_true(same_file("full/checkpoint.safetensors", "rest/checkpoint.safetensors"));
}

static int remove_made(void **state)
{
    (void)state;
    return system("rm -rf base full before rest tuned torn text.txt said.txt");
}

/* Folders of runs too. */
static int remove_all(void **state)
{
    return system("rm -r ./*/") || program_folder_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_runs_end_as_others),
        cmocka_unit_test_teardown(killed_finetuning_ends_as_other, remove_made),
        cmocka_unit_test_teardown(full_disks_leave_finetuning_whole, remove_made)};
    return cmocka_run_group_tests(tests, program_folder, remove_all);
}
