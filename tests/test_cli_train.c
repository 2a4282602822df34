/* heed train as a user runs it: it learns, the bits do not depend on threads or on being stopped, and what
 * goes wrong is said in one sentence. */
#include "support/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TINY                                                                                                 \
    "--set 'data = copy(length=4, symbols=4)' --set width=32 --set heads=2 --set layers=1 --set batch=8 "

/* The loss lines of a log, without times. */
static char *losses(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[1024], *all = calloc(1, 1 << 18);
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        char *tokens = strstr(line, ", \"tokens\"");
        if (tokens)
            strcpy(tokens, "}\n");
        strcat(all, line);
    }
    fclose(file);
    return all;
}

static void assert_same_run(const char *a, const char *b)
{
    char x[200], y[200];
    static const char *const files[] = {"model.safetensors", "checkpoint.safetensors"};
    for (int i = 0; i < 2; i++) {
        snprintf(x, sizeof x, "%s/%s", a, files[i]);
        snprintf(y, sizeof y, "%s/%s", b, files[i]);
        if (!same_file(x, y))
            fail_msg("%s and %s differ", x, y);
    }
    snprintf(x, sizeof x, "%s/log.jsonl", a);
    snprintf(y, sizeof y, "%s/log.jsonl", b);
    char *first = losses(x), *second = losses(y);
    assert_string_equal(first, second);
    free(first);
    free(second);
}

static void copying_is_learnt(void **state)
{
    (void)state;
    run("train " TINY
        "--set layers=2 --set width=48 --set steps=300 --set batch=16 --set rate=3e-3 -o copy --json");
    if (ran.status)
        fail_msg("%s", ran.err);
    const char *accuracy = strstr(ran.out, "\"accuracy\": ");
    assert_non_null(accuracy);
    if (!(strtod(accuracy + 12, NULL) >= 0.99))
        fail_msg("%s", ran.out);
    assert_true(exists("copy/log.jsonl") && exists("copy/model.safetensors") &&
                exists("copy/checkpoint.safetensors"));
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    static const char *const extra[] = {
        "", "--set optimiser=muon --set dropout=0.1 --set average=0.9 --set recompute=yes",
        "--set optimiser=adafactor --set accumulate=2 --set objective=masked"};
    for (size_t e = 0; e < sizeof extra / sizeof *extra; e++) {
        for (int threads = 1; threads <= 3; threads++) {
            run("train " TINY "--set steps=12 --set log_every=1 %s --threads %d -o t%d", extra[e], threads,
                threads);
            if (ran.status)
                fail_msg("%s", ran.err);
        }
        assert_same_run("t1", "t2");
        assert_same_run("t1", "t3");
        assert_int_equal(system("rm -r t1 t2 t3"), 0);
    }
}

/* Stopped after a checkpoint, with a step behind it lost, then going on. */
static void going_on_is_not_stopping(void **state)
{
    (void)state;
    static const char *const optimisers[] = {"adamw", "sgd", "lion", "muon", "adafactor"};
    for (size_t o = 0; o < sizeof optimisers / sizeof *optimisers; o++) {
        run("train " TINY
            "--set optimiser=%s --set steps=14 --set save_every=3 --set log_every=1 --set dropout=0.1 "
            "--set average=0.8 -o whole",
            optimisers[o]);
        assert_int_equal(ran.status, 0);
        run("train " TINY
            "--set optimiser=%s --set steps=14 --set save_every=3 --set log_every=1 --set dropout=0.1 "
            "--set average=0.8 -o parts --stop-after 8",
            optimisers[o]);
        assert_int_equal(ran.status, 0);
        assert_false(same_file("whole/checkpoint.safetensors", "parts/checkpoint.safetensors"));
        run("train --resume -o parts --threads 3");
        if (ran.status)
            fail_msg("%s", ran.err);
        assert_same_run("whole", "parts");
        assert_int_equal(system("rm -r whole parts"), 0);
    }
}

/* A class of the whole sequence: which symbol is among the noise? */
static void classes_are_learnt(void **state)
{
    (void)state;
    run("train --set 'data = needle(6, 4)' --set objective=class --set attention=position=rope --set "
        "width=32 --set heads=2 "
        "--set layers=1 --set batch=16 --set steps=150 --set rate=3e-3 -o class --json");
    if (ran.status)
        fail_msg("%s", ran.err);
    const char *accuracy = strstr(ran.out, "\"accuracy\": ");
    assert_non_null(accuracy);
    if (!(strtod(accuracy + 12, NULL) >= 0.95))
        fail_msg("%s", ran.out);
}

/* Parameters of forms are made under the layer's name, learnt and kept. */
static void parameters_of_forms_are_learnt(void **state)
{
    (void)state;
    int64_t count;
    run("train " TINY "--set 'attention = position=t5(buckets=4) + fire; normalise=sink; where=causal' --set "
        "steps=5 -o forms");
    if (ran.status)
        fail_msg("%s", ran.err);
    assert_said(ran.out, "its tokens are not text");
    static const char *const names[] = {"position.t5.b", "position.fire.b2", "normalise.sink.sink"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[100];
        snprintf(name, sizeof name, "blk.0.%s", names[i]);
        float *values = read_values("forms/params.safetensors", name, &count);
        bool moved = false;
        for (int64_t j = 0; j < count; j++)
            moved = moved || values[j] != 0.0f;
        assert_true(moved);
        free(values);
    }
}

static void recipes_run(void **state)
{
    (void)state;
    static const char *const names[] = {"copy", "induction", "recall", "bytes"};
    write_text("text.txt", "");
    assert_int_equal(system("for i in $(seq 999); do echo \"line $i of a text\"; done >text.txt"), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        run("train " HEED_TEST_DATA
            "/../recipes/train/%s.train --set steps=1 --set eval_sequences=2 --set batch=2 -o recipe%zu",
            names[i], i);
        if (ran.status)
            fail_msg("%s: %s", names[i], ran.err);
    }
    assert_said(ran.out, "heed run -m recipe3");
    run("run -m recipe3 -p 'line 3' -n 4");
    assert_int_equal(ran.status, 0);
}

static void wrong_configs_are_refused_with_the_nearest(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"--set 'widht = 3'", "unknown key 'widht'; the nearest is 'width'"},
        {"--set width=2.5", "width = 2.5: a whole number"},
        {"--set heads=3", "heads = 3 does not divide width = 32"},
        {"--set optimiser=adamv", "optimiser = adamv is unknown; the nearest is 'adamw'"},
        {"--set 'data = copi'", "unknown task 'copi'; the nearest is 'copy'"},
        {"--set 'attention = where=windo(3)'", "attention: column 7: 'windo'"},
        {"--set tied=maybe", "tied = maybe: yes or no"},
        {"--set context=3", "context = 3: copy(length=4, symbols=4) needs 8 tokens"},
        {"--set data=text", "file is missing"},
        {"--set data=text --set file=missing.txt", "missing.txt: cannot be read"},
        {"--set kv_heads=3", "kv_heads = 3 does not divide heads = 2"},
        {"--set positions=learnt", "the nearest is 'learned'"},
        {"--set nothing", "'nothing' is not `key = value`"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        run("train " TINY "%s -o wrong", wrong[i][0]);
        assert_one_sentence(wrong[i][1]);
        assert_false(exists("wrong"));
    }
    write_text("bad.train", "width = 32 # fine\n\nhaeds = 3\n");
    run("train bad.train -o wrong");
    assert_one_sentence("bad.train line 3: unknown key 'haeds'; the nearest is 'heads'");
    run("train missing.train -o wrong");
    assert_one_sentence("missing.train: cannot be read");
    run("train -o wrong");
    assert_one_sentence("a config is missing");
    write_text("short.txt", "too short");
    run("train --set data=text --set file=short.txt -o wrong");
    assert_one_sentence("too few for context = 128");
}

static void losses_that_are_no_numbers_stop_the_run(void **state)
{
    (void)state;
    run("train " TINY
        "--set steps=60 --set optimiser=sgd --set rate=1000 --set clip=0 --set norm=none --set warmup=30 "
        "--set schedule=constant --set save_every=1 -o nan");
    assert_one_sentence("is no finite number; it begins in");
    assert_true(exists("nan/checkpoint.safetensors"));
    assert_int_equal(unfinished_files(), 0);
}

static void checkpoints_of_other_runs_are_refused(void **state)
{
    (void)state;
    run("train " TINY "--set steps=2 -o one");
    assert_int_equal(ran.status, 0);
    run("train " TINY "--set steps=2 -o one");
    assert_one_sentence("one has a checkpoint: --resume goes on from it");
    run("train " TINY "--set steps=2 --set width=48 -o one --resume");
    assert_one_sentence("was written with another width");
    run("train " TINY "--set steps=2 --set seed=9 -o one --resume");
    assert_one_sentence("seed");
    write_text("two.txt", "no checkpoint");
    assert_int_equal(system("mkdir -p two && cp two.txt two/checkpoint.safetensors"), 0);
    run("train --resume -o two");
    assert_one_sentence("checkpoint.safetensors");
    assert_int_equal(system("head -c 3000 one/checkpoint.safetensors >two/checkpoint.safetensors"), 0);
    run("train --resume -o two");
    assert_one_sentence("checkpoint.safetensors");
}

static double held_out_loss(void)
{
    const char *found = strstr(ran.out, "\"held_out_loss\": ");
    if (ran.status || !found)
        fail_msg("%s%s", ran.out, ran.err);
    return strtod(found + 17, NULL);
}

/* The same task gives the same judgement; a longer one another, and the weights stay the same. */
static void evaluations_may_be_on_longer_sequences(void **state)
{
    (void)state;
    run("train " TINY "--set steps=3 --set eval_sequences=16 -o judged --json");
    const double same = held_out_loss();
    run("train --resume -o judged --set 'eval_data = copy(length=4, symbols=4)' --json");
    assert_true(held_out_loss() == same);
    run("train --resume -o judged --set 'eval_data = copy(length=12, symbols=3)' --json");
    const double other = held_out_loss();
    assert_true(other != same && other > 0.0);
    run("train " TINY "--set steps=3 --set eval_sequences=16 --set 'eval_data = copy(length=12, symbols=3)' "
        "-o judged_too --json");
    assert_true(held_out_loss() == other);
    assert_true(same_file("judged/model.safetensors", "judged_too/model.safetensors"));
    write_text("letters.txt", "");
    assert_int_equal(system("for i in $(seq 99); do echo \"line $i of a text\"; done >letters.txt"), 0);
    run("train --set data=text --set file=letters.txt --set width=16 --set heads=2 --set layers=1 --set "
        "steps=1 --set context=16 "
        "--set eval_context=100 -o letters --json");
    assert_true(held_out_loss() > 0.0);
    static const char *const wrong[][2] = {
        {"--set 'eval_data = copy(length=4, symbols=9)'", "eval_data has 10 different tokens, data 5"},
        {"--set 'eval_data = copie'", "nearest is 'copy'"},
        {"--set eval_context=3", "eval_context = 3: copy"},
        {"--set positions=learned --set eval_context=20", "positions = learned"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        run("train " TINY "%s -o wrong", wrong[i][0]);
        assert_one_sentence(wrong[i][1]);
    }
}

/* A trapezoid that is made longer before its cooldown has the bits of the longer run; a cosine cannot be. */
static void runs_can_be_made_longer(void **state)
{
    (void)state;
    run("train " TINY
        "--set schedule=trapezoid --set cooldown=4 --set steps=20 --set eval_every=2 -o longer");
    run("train " TINY
        "--set schedule=trapezoid --set cooldown=2 --set steps=9 --set eval_every=2 --set save_every=2 "
        "-o short --stop-after 6");
    assert_int_equal(ran.status, 0);
    run("train --resume --set steps=20 --set cooldown=4 -o short");
    if (ran.status)
        fail_msg("%s", ran.err);
    assert_same_run("longer", "short");
    run("train --resume --set steps=30 -o short");
    assert_one_sentence("step 20 of 20, and with steps = 30");
    run("train " TINY "--set steps=9 -o cosine --stop-after 4");
    run("train --resume --set steps=20 -o cosine");
    assert_one_sentence("step 4 of 9");
}

/* A file may grow to 8 KiB: the checkpoint of a larger model does not fit, and the one before stays whole. */
static void full_disks_keep_the_last_checkpoint(void **state)
{
    (void)state;
    run("train " TINY "--set steps=4 --set save_every=2 -o full --stop-after 2");
    assert_int_equal(ran.status, 0);
    assert_int_equal(system("cp full/checkpoint.safetensors before.safetensors"), 0);
    assert_int_not_equal(system("bash -c 'ulimit -f 8; " HEED_PROGRAM " train --resume -o full 2>said.txt'"),
                         0);
    assert_true(same_file("full/checkpoint.safetensors", "before.safetensors"));
    assert_int_equal(system("grep -q 'cannot be written: File too large' said.txt"), 0);
    assert_int_equal(system("test -z \"$(ls full/*.part 2>/dev/null)\""), 0);
}

static void answers_are_shown(void **state)
{
    (void)state;
    run("train " TINY "--set steps=2 --set model=encoder_decoder --set objective=sequence -o shown --show 3");
    if (ran.status)
        fail_msg("%s", ran.err);
    assert_said(ran.out, "  said:  ");
    assert_said(ran.out, "of 3 sequences are wholly right");
    run("train --resume -o shown --show 2 --json");
    assert_said(ran.out, "{\"sequences\": 2, \"exact\": ");
}

static void keys_and_tasks_are_listed(void **state)
{
    (void)state;
    run("train --keys");
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "  optimiser       adamw");
    assert_said(ran.out, "  multi_recall(pairs=8, symbols=16, queries=4)");
}

/* Folders of runs too. */
static int remove_all(void **state)
{
    return system("rm -r ./*/") || program_folder_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copying_is_learnt),
        cmocka_unit_test(classes_are_learnt),
        cmocka_unit_test(parameters_of_forms_are_learnt),
        cmocka_unit_test(recipes_run),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(going_on_is_not_stopping),
        cmocka_unit_test(wrong_configs_are_refused_with_the_nearest),
        cmocka_unit_test(losses_that_are_no_numbers_stop_the_run),
        cmocka_unit_test(checkpoints_of_other_runs_are_refused),
        cmocka_unit_test(evaluations_may_be_on_longer_sequences),
        cmocka_unit_test(runs_can_be_made_longer),
        cmocka_unit_test(full_disks_keep_the_last_checkpoint),
        cmocka_unit_test(answers_are_shown),
        cmocka_unit_test(keys_and_tasks_are_listed),
    };
    return cmocka_run_group_tests(tests, program_folder, remove_all);
}
