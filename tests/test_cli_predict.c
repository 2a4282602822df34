/* heed predict: the small encoder-decoder and the small classifier of this repository, and models that are
 * made here. */
#include "support/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODELS HEED_TEST_DATA "/../models/"

static void dates_are_read(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"the 3rd of March 1814", "1814-03-03"},
                                           {"Thursday, 4 July 1776", "1776-07-04"},
                                           {"9.11.1989", "1989-11-09"},
                                           {"Dec 25, 2031", "2031-12-25"},
                                           {"1666/09/02", "1666-09-02"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char right[20];
        run("predict -m " MODELS "dates -p '%s'", pairs[i][0]);
        assert_int_equal(ran.status, 0);
        snprintf(right, sizeof right, "%s\n", pairs[i][1]);
        if (strcmp(ran.out, right) != 0)
            fail_msg("%s: %s", pairs[i][0], ran.out);
    }
    run("predict -m " MODELS "dates -p '4 July 1776' --json --threads 1");
    assert_said(ran.out, "\"text\":\"1776-07-04\"");
}

static void maps_are_drawn(void **state)
{
    (void)state;
    run("predict -m " MODELS "dates -p '4 July 1776' --map where.png --layer 1 --head 2");
#ifdef HEED_HAVE_PICTURES
    assert_int_equal(ran.status, 0);
    assert_true(exists("where.png"));
    assert_int_equal(remove("where.png"), 0);
#else
    assert_int_equal(ran.status, 2);
#endif
    run("predict -m " MODELS "dates -p '4 July 1776' --map where.png --layer 2");
    assert_int_equal(ran.status, 2);
    assert_said(ran.err, "2 layers of 4 heads");
}

/* A disc of `ink` on 24 by 24 pixels of `ground`, as a NumPy file of bytes; broken where `side` is another.
 */
static void draw_disc(const char *path, int side, double radius, int ground, int ink)
{
    FILE *file = fopen(path, "wb");
    char header[128];
    memset(header, ' ', sizeof header);
    const int length = snprintf(header + 10, sizeof header - 10,
                                "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }", side, side);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    header[10 + length] = ' ';
    header[127] = '\n';
    fwrite(header, 1, sizeof header, file);
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            fputc((x - 11) * (x - 11) + (y - 12) * (y - 12) < radius * radius ? ink : ground, file);
    assert_int_equal(fclose(file), 0);
}

static void shapes_are_told(void **state)
{
    (void)state;
    draw_disc("disc.npy", 24, 7.0, 40, 200);
    run("predict -m " MODELS "shapes --picture disc.npy");
    assert_int_equal(ran.status, 0);
    assert_int_equal(strncmp(ran.out, "disc ", 5), 0);
    run("predict -m " MODELS "shapes --picture disc.npy --json");
    assert_said(ran.out, "\"class\":\"disc\"");
    assert_said(ran.out, "\"triangle\"");
    draw_disc("disc.npy", 20, 7.0, 40, 200);
    run("predict -m " MODELS "shapes --picture disc.npy");
    assert_one_sentence("a picture of 400 numbers: the model reads 24 by 24");
    write_text("no.png", "no picture");
    run("predict -m " MODELS "shapes --picture no.png");
    assert_one_sentence("no.png: no PNG file");
    assert_int_equal(remove("no.png"), 0);
    assert_int_equal(remove("disc.npy"), 0);
}

static void what_does_not_fit_is_said(void **state)
{
    (void)state;
    run("predict -m " MODELS "shapes -p text");
    assert_one_sentence("--picture FILE is missing");
    run("predict -m " MODELS "dates --picture x.npy");
    assert_one_sentence("the model reads texts");
    run("predict -m " MODELS "dates -p ''");
    assert_one_sentence("0 tokens: the model reads 1 to 32");
    run("predict -m " MODELS "dates -p 'a text of more characters than the encoder has ever read'");
    assert_one_sentence("the model reads 1 to 32");
    run("predict -m " MODELS " -p x");
    assert_one_sentence("there is no trained.json");
    run("predict -p x");
    assert_one_sentence("-m FOLDER is missing");
}

/* Classes and numbers of records, from training to the answer; a folder whose parts do not fit is refused. */
static void records_are_judged(void **state)
{
    (void)state;
    assert_int_equal(
        system("for w in aab bba abb baa aaab bbba; do "
               "echo \"$w,$(test ${w%${w#?}} = a && echo first,-2 || echo second,2)\"; done > rows; "
               "(echo text,label,number; cat rows rows rows rows) > words.csv"),
        0);
#define WORDS                                                                                                \
    "train --set data=text --set file=words.csv --set width=16 --set heads=2 --set layers=1 --set "          \
    "context=6 "                                                                                             \
    "--set 'attention=position=rope; where=segments' --set batch=8 --set rate=1e-2 --set steps=80 "          \
    "--set warmup=2 --set seed=2 "
    run(WORDS "--set objective=class -o words");
    if (ran.status)
        fail_msg("%s", ran.err);
    assert_said(ran.out, "heed predict -m words");
    run("predict -m words -p aab");
    assert_int_equal(strncmp(ran.out, "first ", 6), 0);
    run("predict -m words -p bba");
    assert_int_equal(strncmp(ran.out, "second ", 7), 0);
    run(WORDS "--set objective=regression -o numbers");
    run("predict -m numbers -p aab");
    assert_true(strtod(ran.out, NULL) < -1.0);
    run("predict -m numbers -p bba --json");
    assert_said(ran.out, "{\"number\": ");
    assert_true(strtod(ran.out + strlen("{\"number\": "), NULL) > 1.0);
    assert_int_equal(system("cp words/trained.json numbers/ && echo '{}' > words/trained.json"), 0);
    run("predict -m numbers -p aab");
    assert_one_sentence("there is no tensor score.weight of the shape");
    run("predict -m words -p aab");
    assert_one_sentence("not JSON with a config");
    assert_int_equal(system("rm -r rows words numbers words.csv"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dates_are_read), cmocka_unit_test(maps_are_drawn), cmocka_unit_test(shapes_are_told),
        cmocka_unit_test(what_does_not_fit_is_said), cmocka_unit_test(records_are_judged)};
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
