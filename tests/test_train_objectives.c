/* Records of files, and that each objective learns what it asks for. */
#include "base/npy.h"
#include "support/folder.h"
#include "train/trainer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *write_file(const char *name, const void *data, size_t size)
{
    static char path[100];
    snprintf(path, sizeof path, "%s/%s", test_folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
    return path;
}

static const char *write_text(const char *name, const char *text)
{
    return write_file(name, text, strlen(text));
}

static void is_text(const heed_records *all, int64_t record, int field, const char *expected)
{
    int64_t count;
    const int32_t *token = heed_record_text(all, record, field, &count);
    assert_int_equal(count, strlen(expected));
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(token[i], (unsigned char)expected[i]);
}

static void both_kinds_of_files_say_the_same(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"a.jsonl",
         "{\"prompt\": \"2+3\", \"completion\": \"5\\n\", \"label\": \"odd\", \"unknown\": [1]}\n\n"
         "{\"completion\": \"say \\\"ten\\\", or 10\", \"prompt\": \"\", \"label\": \"even\"}\r\n"
         "{\"prompt\": \"é\", \"completion\": \"\", \"label\": \"odd\"}"},
        {"a.csv",
         "prompt,unknown,completion,label\r\n2+3,7,\"5\n\",odd\r\n\r\n,,\"say \"\"ten\"\", or 10\",even\n"
         "é,x,,odd"}};
    for (int f = 0; f < 2; f++) {
        heed_records all;
        if (heed_records_read(&all, write_text(files[f][0], files[f][1]), NULL,
                              1u << HEED_FIELD_TEXT | 1u << HEED_FIELD_ANSWER | 1u << HEED_FIELD_LABEL))
            fail_msg("%s", heed_message());
        assert_int_equal(all.count, 3);
        is_text(&all, 0, HEED_FIELD_TEXT, "2+3");
        is_text(&all, 0, HEED_FIELD_ANSWER, "5\n");
        is_text(&all, 1, HEED_FIELD_TEXT, "");
        is_text(&all, 1, HEED_FIELD_ANSWER, "say \"ten\", or 10");
        is_text(&all, 2, HEED_FIELD_TEXT, "é");
        assert_int_equal(all.classes, 2);
        assert_true(all.label[0] == 0 && all.label[1] == 1 && all.label[2] == 0);
        heed_records_free(&all);
    }
}

static void broken_files_are_refused_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *words;
    } files[] = {
        {"b.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"",
         "line 2: this is no JSON object; the file may end early"},
        {"b.jsonl", "{\"text\": \"a\"}\nnonsense\n{}", "line 2: this is no JSON object"},
        {"b.jsonl", "[1]\n", "line 1: this is no JSON object"},
        {"b.jsonl", "{\"text\": 3}\n", "line 1: 'text' must be a text"},
        {"b.jsonl", "{\"words\": \"a\"}\n", "line 1: it has no text (or prompt"},
        {"b.jsonl", "\n\n", "it has no records"},
        {"b.csv", "text,label\na,b,c\n", "line 2: 3 values, and the header has 2"},
        {"b.csv", "text,label\na,b\nc", "line 3: 1 values, and the header has 2; the file may end early"},
        {"b.csv", "text\n\"a", "line 2: a quote is not closed; the file may end early"},
        {"b.csv", "text\n\"a\"b\n", "line 2: something stands behind a closing quote"},
        {"b.csv", "words,more\na,b\n", "line 1: the header names none of"},
        {"b.csv", "", "the header names none of"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        heed_records all;
        if (!heed_records_read(&all, write_text(files[i].name, files[i].text), NULL, 1u << HEED_FIELD_TEXT))
            fail_msg("'%s' was accepted", files[i].text);
        if (!strstr(heed_message(), files[i].words))
            fail_msg("'%s' does not say '%s'", heed_message(), files[i].words);
    }
    heed_records all;
    assert_int_not_equal(heed_records_read(&all,
                                           write_text("n.jsonl", "{\"text\": \"a\", \"number\": \"high\"}"),
                                           NULL, 1u << HEED_FIELD_TEXT | 1u << HEED_FIELD_NUMBER),
                         HEED_OK);
    assert_non_null(strstr(heed_message(), "line 1: its number is none"));
    assert_int_not_equal(heed_records_read(&all, write_file("z.jsonl", "{\"a\0\": 1}", 9), NULL, 1), HEED_OK);
    assert_non_null(strstr(heed_message(), "zero bytes"));
}

/* A version 1.0 header, then the numbers. */
static const char *write_array(const char *name, const char *type, const char *shape, const void *data,
                               size_t size)
{
    char all[4096], header[200];
    const int length = snprintf(header, sizeof header,
                                "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", type, shape);
    memcpy(all, "\x93NUMPY\x01\0", 8);
    all[8] = (char)length;
    all[9] = (char)(length >> 8);
    memcpy(all + 10, header, (size_t)length);
    memcpy(all + 10 + length, data, size);
    return write_file(name, all, 10 + (size_t)length + size);
}

static void arrays_are_read(void **state)
{
    (void)state;
    heed_npy array;
    const int16_t small[] = {-3, 4, 32767, 0, 5, 6};
    const double wide[] = {0.5, -1e300};
    const uint8_t bytes[] = {1, 255};
    assert_int_equal(heed_npy_read(&array, write_array("a.npy", "<i2", "2, 3", small, sizeof small)),
                     HEED_OK);
    assert_true(array.rank == 2 && array.shape[0] == 2 && array.shape[1] == 3 && array.count == 6);
    for (int i = 0; i < 6; i++)
        assert_true(heed_npy_at(&array, i) == (double)small[i]);
    heed_npy_free(&array);
    assert_int_equal(heed_npy_read(&array, write_array("a.npy", "<f8", "2,", wide, sizeof wide)), HEED_OK);
    assert_true(heed_npy_at(&array, 0) == 0.5 && heed_npy_at(&array, 1) == -1e300);
    heed_npy_free(&array);
    assert_int_equal(heed_npy_read(&array, write_array("a.npy", "|u1", "2,", bytes, sizeof bytes)), HEED_OK);
    assert_true(heed_npy_at(&array, 1) == 255.0);
    heed_npy_free(&array);
    assert_int_not_equal(heed_npy_read(&array, write_array("a.npy", "<i2", "2, 4", small, sizeof small)),
                         HEED_OK);
    assert_non_null(strstr(heed_message(), "it ends early: 12 of 16 bytes"));
    assert_int_not_equal(heed_npy_read(&array, write_array("a.npy", ">i2", "6,", small, sizeof small)),
                         HEED_OK);
    assert_non_null(strstr(heed_message(), "of a type that is not read"));
    assert_int_not_equal(heed_npy_read(&array, write_text("a.npy", "\x93NUMPY")), HEED_OK);
    assert_int_not_equal(
        heed_npy_read(&array, write_array("a.npy", "<i8", "4611686018427387904, 16", small, sizeof small)),
        HEED_OK);
}

static heed_trainer *start(const char *lines)
{
    heed_train_config config;
    heed_trainer *trainer = NULL;
    heed_train_config_start(&config);
    if (heed_train_config_read(&config, lines, "test") || heed_trainer_create(&trainer, &config, 1))
        fail_msg("%s: %s", lines, heed_message());
    return trainer;
}

static heed_evaluated learn(const char *lines)
{
    heed_trainer *trainer = start(lines);
    heed_train_report report;
    heed_evaluated evaluated;
    while (heed_trainer_steps(trainer) < heed_trainer_config(trainer)->steps)
        if (heed_trainer_step(trainer, &report))
            fail_msg("%s: %s", lines, heed_message());
    if (heed_trainer_evaluate(trainer, &evaluated))
        fail_msg("%s", heed_message());
    heed_trainer_free(trainer);
    return evaluated;
}

static void refused(const char *lines, const char *words)
{
    heed_train_config config;
    heed_trainer *trainer = NULL;
    heed_train_config_start(&config);
    assert_int_equal(heed_train_config_read(&config, lines, "test"), HEED_OK);
    if (!heed_trainer_create(&trainer, &config, 1))
        fail_msg("%s: this was accepted", lines);
    if (!strstr(heed_message(), words))
        fail_msg("%s: '%s' does not say '%s'", lines, heed_message(), words);
}

#define SMALL                                                                                                \
    "data = text\nwidth = 32\nheads = 2\nlayers = 1\nbatch = 8\nrate = 5e-3\nwarmup = 5\nheld_out = 0.2\n"

/* Words that begin alike belong together; capital letters are a class, their number a number. */
static void write_records(void)
{
    static char text[60000];
    size_t used = 0;
    for (int i = 0; i < 200; i++) {
        const int kind = i * 7 % 4, more = 1 + i * 13 % 5;
        const char letter = (char)('a' + kind);
        char word[9] = "--------", other[9];
        for (int j = 0; j < more; j++)
            word[(i + j) % 8] = letter;
        snprintf(other, sizeof other, "%c%c%c", letter + 4, letter + 4, letter + 4);
        used += (size_t)snprintf(
            text + used, sizeof text - used,
            "{\"text\": \"%s\", \"answer\": \"%s\", \"negative\": \"%c%c\", \"label\": \"k%d\", "
            "\"number\": %d}\n",
            word, other, 'e' + (kind + 1) % 4, 'e' + (kind + 1) % 4, kind, kind - more);
    }
    write_text("words.jsonl", text);
}

static void judge(const char *extra, double least)
{
    char lines[600];
    snprintf(lines, sizeof lines, SMALL "file = %s/words.jsonl\ncontext = 12\nsteps = 120\n%s", test_folder,
             extra);
    const heed_evaluated evaluated = learn(lines);
    if (!(evaluated.accuracy >= least) || !isfinite(evaluated.loss))
        fail_msg("%s: loss %g, accuracy %g", extra, evaluated.loss, evaluated.accuracy);
}

static void objectives_are_learnt_from_records(void **state)
{
    (void)state;
    write_records();
    judge("objective = class\nattention = where=segments; position=rope\n", 0.95);
    judge("objective = class\npooling = last\n", 0.95);
    judge("objective = regression\nattention = where=segments; position=rope\n", 0.9);
    judge("objective = sequence\n", 0.95);
    judge("objective = contrastive\nattention = where=segments; position=rope\ntemperature = 0.2\n", 0.15);
    judge("objective = masked\nattention = where=segments; position=rope\n", 0.5);
    judge("objective = span\n", 0.3);
}

static void answers_come_from_an_encoder_too(void **state)
{
    (void)state;
    write_records();
    judge("objective = sequence\nmodel = encoder_decoder\nsource_context = 8\n", 0.95);
    judge("objective = span\nmodel = encoder_decoder\ncontext = 12\nsource_context = 12\n", 0.3);
    const heed_evaluated evaluated = learn(
        "data = reversal(length=5, symbols=6)\nmodel = encoder_decoder\nobjective = sequence\nwidth = 48\n"
        "heads = 2\nlayers = 1\nbatch = 16\nrate = 5e-3\nsteps = 250\nattention = where=causal; "
        "position=rope\n"
        "positions = learned\n");
    if (!(evaluated.accuracy > 0.97))
        fail_msg("reversal: accuracy %g", evaluated.accuracy);
}

/* Padding and its amount change nothing. */
static void padding_is_not_seen(void **state)
{
    (void)state;
    double loss[2];
    write_records();
    for (int i = 0; i < 2; i++) {
        char lines[600];
        heed_train_report report;
        snprintf(lines, sizeof lines,
                 SMALL "file = %s/words.jsonl\ncontext = %d\nobjective = class\nattention = where=segments; "
                       "position=rope\n",
                 test_folder, i ? 31 : 9);
        heed_trainer *trainer = start(lines);
        assert_int_equal(heed_trainer_step(trainer, &report), HEED_OK);
        loss[i] = report.loss;
        heed_trainer_free(trainer);
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-5);
}

/* Bright rows against bright columns, cut into patches. */
static void classes_of_pictures_are_learnt(void **state)
{
    (void)state;
    enum { COUNT = 160, SIDE = 8 };
    static uint8_t pixel[COUNT][SIDE][SIDE];
    uint8_t label[COUNT];
    char lines[900], pictures[100], labels[100], *all = malloc(200 + sizeof pixel);
    for (int i = 0; i < COUNT; i++) {
        label[i] = (uint8_t)(i * 7 % 5 % 2);
        for (int at = 0; at < SIDE * SIDE; at++)
            pixel[i][at / SIDE][at % SIDE] = (uint8_t)(i * 31 + at * 17) % 60;
        for (int at = 0; at < SIDE; at++)
            *(label[i] ? &pixel[i][i % SIDE][at] : &pixel[i][at][i % SIDE]) = 250;
    }
    const int length =
        snprintf(all + 10, 180, "{'descr': '|u1', 'fortran_order': False, 'shape': (160, 8, 8), }\n");
    memcpy(all, "\x93NUMPY\x01\0", 8);
    all[8] = (char)length;
    all[9] = 0;
    memcpy(all + 10 + length, pixel, sizeof pixel);
    strcpy(pictures, write_file("p.npy", all, 10 + (size_t)length + sizeof pixel));
    free(all);
    strcpy(labels, write_array("l.npy", "|u1", "160,", label, sizeof label));
    static const char *const poolings[] = {"mean", "lama"};
    for (int i = 0; i < 2; i++) {
        snprintf(lines, sizeof lines,
                 SMALL "file = %s\nlabels = %s\nobjective = class\nimage = 8x8\npatch = 4\nattention = "
                       "score=dot\npositions = learned\nsteps = 150\npooling = %s\n",
                 pictures, labels, poolings[i]);
        const heed_evaluated evaluated = learn(lines);
        if (!(evaluated.accuracy > 0.9))
            fail_msg("pictures, %s: loss %g, accuracy %g", poolings[i], evaluated.loss, evaluated.accuracy);
    }
    refused("data = copy(length=8)\nobjective = class\nimage = 8x8\n",
            "image = 8x8 has 64 numbers, the data 16");
    refused("data = copy(length=32)\nobjective = class\nimage = 8x6\n",
            "patch = 4 does not divide image = 8x6");
    refused("data = copy(length=32)\nimage = 8x8\n", "image needs objective = class");
    refused("data = copy(length=32)\nobjective = class\nimage = large\n", "height and width are needed");
}

/* Freely, from its own words. */
static void answers_are_generated(void **state)
{
    (void)state;
    static const char *const models[] = {
        "model = encoder_decoder\nobjective = sequence\npositions = learned\n", ""};
    for (int m = 0; m < 2; m++) {
        char lines[500];
        heed_train_report report;
        heed_generated made, before;
        snprintf(
            lines, sizeof lines,
            "data = copy(length=3, symbols=5)\nwidth = 48\nheads = 2\nlayers = 2\nbatch = 16\nrate = 5e-3\n"
            "steps = 200\n%s",
            models[m]);
        heed_trainer *trainer = start(lines);
        assert_int_equal(heed_trainer_generate(trainer, 32, &before, NULL, NULL), HEED_OK);
        for (int i = 0; i < 200; i++)
            assert_int_equal(heed_trainer_step(trainer, &report), HEED_OK);
        assert_int_equal(heed_trainer_generate(trainer, 32, &made, NULL, NULL), HEED_OK);
        if (made.sequences != 32 || before.exact > 2 || made.exact < 30)
            fail_msg("%s: %d, then %d of 32", models[m], (int)before.exact, (int)made.exact);
        heed_trainer_free(trainer);
    }
}

/* A folder that heed train writes, with a tokeniser of bytes. */
static void make_base(char path[100])
{
    char lines[600];
    const char *why;
    snprintf(path, 100, "%s/base", test_folder);
    snprintf(lines, sizeof lines,
             "mkdir -p %s && for i in $(seq 60); do echo \"line $i of a text\"; done >%s/t.txt", path,
             test_folder);
    assert_int_equal(system(lines), 0);
    snprintf(lines, sizeof lines, SMALL "file = %s/t.txt\ncontext = 16\n", test_folder);
    heed_trainer *trainer = start(lines);
    heed_train_report report;
    for (int i = 0; i < 3; i++)
        assert_int_equal(heed_trainer_step(trainer, &report), HEED_OK);
    assert_int_equal(heed_trainer_export(trainer, path, &why), HEED_OK);
    assert_null(why);
    heed_trainer_free(trainer);
}

/* The model that went on prefers the first answer more and more. */
static void answers_are_preferred(void **state)
{
    (void)state;
    char lines[900], base[100];
    static const char *const kinds[] = {"learn = all\n", "learn = lora\nrate = 1e-2\n"};
    make_base(base);
    write_text("prefer.csv", "prompt,chosen,rejected\nab,xy,zw\nba,xv,uw\nbb,x,tw\naa,xyy,zw\n");
    for (int k = 0; k < 2; k++) {
        heed_train_report report;
        heed_evaluated evaluated;
        snprintf(lines, sizeof lines,
                 "base = %s\nfile = %s/prefer.csv\nobjective = preference\npreference_beta = 0.5\ncontext = "
                 "8\nbatch = 3\nsteps = "
                 "30\nrate = 1e-3\nwarmup = 1\nheld_out = 0.3\n%s",
                 base, test_folder, kinds[k]);
        heed_trainer *trainer = start(lines);
        assert_int_equal(heed_trainer_step(trainer, &report), HEED_OK);
        assert_true(fabs(report.loss - log(2.0)) < 1e-6); /* nothing has changed yet */
        for (int i = 0; i < 29; i++)
            assert_int_equal(heed_trainer_step(trainer, &report), HEED_OK);
        if (!(report.loss < 0.6))
            fail_msg("%s: loss %g", kinds[k], report.loss);
        assert_int_equal(heed_trainer_evaluate(trainer, &evaluated), HEED_OK);
        assert_true(evaluated.accuracy == 1.0 && evaluated.loss < log(2.0));
        heed_trainer_free(trainer);
    }
}

/* What pools reads one vector a text of a base too, and hidden states of a teacher come nearer. */
static void other_objectives_go_on_from_a_base(void **state)
{
    (void)state;
    char lines[900], base[100];
    static const struct {
        const char *lines;
        double least;
    } each[] = {{"objective = class\npooling = last\n", 0.95},
                {"objective = regression\nlearn = lora\nlora_rank = 4\nsteps = 150\n", 0.8},
                {"objective = contrastive\ntemperature = 0.2\npooling = last\n", 0.15},
                {"objective = distil\nhidden_share = 1\nteacher_share = 0.5\nlearn = lora\n", 0.0}};
    make_base(base);
    write_records();
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        snprintf(
            lines, sizeof lines,
            "base = %s\nfile = %s/words.jsonl\ncontext = 12\nbatch = 8\nsteps = 80\nrate = 5e-3\nwarmup = "
            "5\nheld_out = 0.2\n%s",
            base, test_folder, each[i].lines);
        const heed_evaluated evaluated = learn(lines);
        if (!(evaluated.accuracy >= each[i].least))
            fail_msg("%s: accuracy %g", each[i].lines, evaluated.accuracy);
    }
}

/* The last layer's relations of a model of another width come nearer to its teacher's. */
static void relations_come_nearer_to_those_of_a_teacher(void **state)
{
    (void)state;
    char lines[900], base[100];
    heed_train_report report = {.loss = 0.0};
    make_base(base);
    write_records();
    snprintf(lines, sizeof lines,
             "data = text\nfile = %s/words.jsonl\ntokenizer = %s\nteacher = %s\nobjective = "
             "distil\nteacher_share = "
             "0\nrelation_share = 1\nrelation_heads = 4\nlayers = 1\nwidth = 24\nhidden = 32\ncontext = "
             "12\nbatch = "
             "8\nsteps = 80\nrate = 1e-2\nwarmup = 1\n",
             test_folder, base, base);
    heed_trainer *trainer = start(lines);
    assert_int_equal(heed_trainer_step(trainer, &report), HEED_OK);
    const double first = report.loss;
    for (int i = 1; i < 80; i++)
        assert_int_equal(heed_trainer_step(trainer, &report), HEED_OK);
    if (!(first > 0.0 && report.loss < 0.5 * first))
        fail_msg("loss %g after %g", report.loss, first);
    heed_trainer_free(trainer);
}

/* Every way in which a decoder may read an encoder learns to copy, the first way's other names left aside. */
static void readers_learn(void **state)
{
    (void)state;
    for (int i = 1; heed_reader_word(i); i++) {
        char lines[400];
        heed_train_report first, last;
        snprintf(
            lines, sizeof lines,
            "data = copy(length=4, symbols=4)\nmodel = encoder_decoder\nobjective = sequence\npositions = "
            "learned\nreader = %s\nlayers = 1\nwidth = 16\nheads = 2\nbatch = 8\nsteps = 120\nrate = "
            "2e-2\nwarmup = 1\n",
            heed_reader_word(i));
        heed_trainer *trainer = start(lines);
        assert_int_equal(heed_trainer_step(trainer, &first), HEED_OK);
        for (int step = 1; step < 120; step++)
            assert_int_equal(heed_trainer_step(trainer, &last), HEED_OK);
        if (!(last.loss < 0.8 * first.loss))
            fail_msg("%s: loss %g after %g", heed_reader_word(i), last.loss, first.loss);
        heed_trainer_free(trainer);
    }
}

static void what_does_not_go_together_is_said(void **state)
{
    (void)state;
    char lines[600];
    static const char *const wrong[][2] = {
        {"objective = class\nattention = position=rope\n", "make segments a factor of where"},
        {"objective = class\npooling = lama\nattention = position=rope; where=segments\n",
         "lama sees padding"},
        {"reader = gmm\n", "reader = gmm is for model = encoder_decoder"},
        {"reader = gmm\nobjective = sequence\nmodel = encoder_decoder\n", "sees padding"},
        {"objective = preference\n", "preference needs a model to go on from"},
        {"objective = next\nmodel = encoder_decoder\n",
         "model = encoder_decoder learns objective = sequence or span"},
    };
    write_records();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(lines, sizeof lines, SMALL "file = %s/words.jsonl\n%s", test_folder, wrong[i][0]);
        refused(lines, wrong[i][1]);
    }
    write_text("plain.txt", "a text");
    snprintf(lines, sizeof lines, SMALL "file = %s/plain.txt\nobjective = contrastive\n", test_folder);
    refused(lines, "objective = contrastive needs records");
    refused("data = copy\nobjective = span\n", "objective = span needs data = text");
    write_text("one.jsonl", "{\"text\": \"a\"}\n");
    snprintf(lines, sizeof lines, SMALL "file = %s/one.jsonl\n", test_folder);
    refused(lines, "1 records are too few");
    snprintf(lines, sizeof lines, SMALL "file = %s\n", write_array("f.npy", "<f4", "1,", "abcd", 4));
    refused(lines, "these are floats");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_kinds_of_files_say_the_same),
        cmocka_unit_test(broken_files_are_refused_with_their_line),
        cmocka_unit_test(arrays_are_read),
        cmocka_unit_test(objectives_are_learnt_from_records),
        cmocka_unit_test(answers_come_from_an_encoder_too),
        cmocka_unit_test(padding_is_not_seen),
        cmocka_unit_test(answers_are_preferred),
        cmocka_unit_test(other_objectives_go_on_from_a_base),
        cmocka_unit_test(classes_of_pictures_are_learnt),
        cmocka_unit_test(answers_are_generated),
        cmocka_unit_test(relations_come_nearer_to_those_of_a_teacher),
        cmocka_unit_test(readers_learn),
        cmocka_unit_test(what_does_not_go_together_is_said),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
