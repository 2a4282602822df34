/* Running the program `heed` in a folder of its own, and looking at the files it reads and writes. */
#ifndef HEED_TEST_PROGRAM_H
#define HEED_TEST_PROGRAM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/safetensors.h"

/* What the last run did. */
typedef struct program_run {
    int status;
    char out[1 << 18], err[1 << 14];
} program_run;

extern program_run ran;

/* Set-up and tear-down of a group: an empty folder, which becomes the current one, and its removal. */
int program_folder(void **state);
int program_folder_remove(void **state);

/* Runs heed with these arguments, which the shell reads. `program` is the path of the program. */
void run_program(const char *program, const char *format, ...) HEED_PRINTF(2, 3);
#define run(...) run_program(HEED_PROGRAM, __VA_ARGS__)

/* Status 2, nothing on stdout, and one line on stderr that holds these words. */
void assert_one_sentence(const char *words);

void assert_said(const char *text, const char *words);

/* A tensor of the test's own making, freed with free(). Values are floats, stored as `type`. */
heed_named_tensor make_tensor(const char *name, heed_type type, int rank, const int64_t *shape,
                              const float *values);
void write_file(const char *path, const heed_named_tensor *tensors, int count);

/* q, k, v [1, 2, 3, 4] of small numbers in in.safetensors. */
void make_plain_input(void);

/* The values of a tensor as floats, freed by the caller; fails the test when the file does not have it. */
float *read_values(const char *path, const char *name, int64_t *count);

void assert_tensor(const char *path, const char *name, int rank, const int64_t *shape);
bool has_tensor(const char *path, const char *name);
void write_text(const char *path, const char *text);
bool same_file(const char *a, const char *b);
bool exists(const char *path);
/* Names in the folder that end with ".part". */
int unfinished_files(void);

#endif
