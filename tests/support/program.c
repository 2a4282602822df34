#include "support/program.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

program_run ran;
static char folder[64];

int program_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/heed_program_XXXXXX");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

int program_folder_remove(void **state)
{
    (void)state;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    if (directory)
        closedir(directory);
    return chdir("/") || rmdir(folder);
}

static void read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "rb");
    size_t length = 0;
    if (file) {
        length = fread(text, 1, size - 1, file);
        fclose(file);
        unlink(path);
    }
    text[length] = 0;
}

void run_program(const char *program, const char *format, ...)
{
    char arguments[4096], command[8192];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    snprintf(command, sizeof command, "'%s' %s >stdout.txt 2>stderr.txt </dev/null", program, arguments);
    const int status = system(command);
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    read_text("stdout.txt", ran.out, sizeof ran.out);
    read_text("stderr.txt", ran.err, sizeof ran.err);
    if (ran.status < 0 || ran.status > 127 || strstr(ran.err, "Sanitizer"))
        fail_msg("heed %s: ended with %d: %s", arguments, status, ran.err);
}

void assert_one_sentence(const char *words)
{
    const char *end = strchr(ran.err, '\n');
    if (ran.status != 2 || *ran.out || !end || end[1] || !strstr(ran.err, words))
        fail_msg("expected status 2 and one sentence with \"%s\"; got %d, \"%s\", stdout \"%.200s\"", words,
                 ran.status, ran.err, ran.out);
}

void assert_said(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("\"%s\" is not in \"%.2000s\"", words, text);
}

heed_named_tensor make_tensor(const char *name, heed_type type, int rank, const int64_t *shape,
                              const float *values)
{
    size_t bytes;
    assert_int_equal(heed_tensor_bytes(type, rank, shape, &bytes), HEED_OK);
    void *data = calloc(1, bytes + 1);
    heed_store(type, values, data, (int64_t)bytes / heed_type_bytes(type, 1));
    return (heed_named_tensor){name, heed_tensor_dense(data, type, rank, shape)};
}

void write_file(const char *path, const heed_named_tensor *tensors, int count)
{
    if (heed_safetensors_write(path, tensors, count, NULL))
        fail_msg("%s", heed_message());
}

void make_plain_input(void)
{
    const int64_t shape[] = {1, 2, 3, 4};
    float x[24];
    for (int i = 0; i < 24; i++)
        x[i] = (float)(i % 5) - 2.0f;
    heed_named_tensor tensors[] = {make_tensor("q", HEED_F32, 4, shape, x),
                                   make_tensor("k", HEED_F32, 4, shape, x),
                                   make_tensor("v", HEED_F32, 4, shape, x)};
    write_file("in.safetensors", tensors, 3);
    for (int i = 0; i < 3; i++)
        free(tensors[i].tensor.data);
}

static heed_safetensors *open_file(const char *path)
{
    heed_safetensors *file;
    if (heed_safetensors_open(&file, path))
        fail_msg("%s", heed_message());
    return file;
}

float *read_values(const char *path, const char *name, int64_t *count)
{
    heed_safetensors *file = open_file(path);
    const heed_file_tensor *tensor = heed_safetensors_find(file, name);
    if (!tensor)
        fail_msg("%s has no tensor %s", path, name);
    void *data = malloc(tensor->bytes + 1);
    assert_int_equal(heed_safetensors_read(file, tensor, data), HEED_OK);
    const int64_t n = (int64_t)tensor->bytes / heed_type_bytes(tensor->type, 1);
    float *values = malloc((size_t)(n + 1) * sizeof *values);
    heed_load(tensor->type, data, values, n);
    free(data);
    heed_safetensors_close(file);
    if (count)
        *count = n;
    return values;
}

void assert_tensor(const char *path, const char *name, int rank, const int64_t *shape)
{
    heed_safetensors *file = open_file(path);
    const heed_file_tensor *tensor = heed_safetensors_find(file, name);
    if (!tensor)
        fail_msg("%s has no tensor %s", path, name);
    assert_int_equal(tensor->rank, rank);
    for (int i = 0; i < rank; i++)
        assert_int_equal(tensor->shape[i], shape[i]);
    heed_safetensors_close(file);
}

bool has_tensor(const char *path, const char *name)
{
    heed_safetensors *file = open_file(path);
    const bool found = heed_safetensors_find(file, name) != NULL;
    heed_safetensors_close(file);
    return found;
}

void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

bool same_file(const char *a, const char *b)
{
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    assert_non_null(x);
    assert_non_null(y);
    int c, d;
    do {
        c = fgetc(x);
        d = fgetc(y);
    } while (c == d && c != EOF);
    fclose(x);
    fclose(y);
    return c == d;
}

bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

int unfinished_files(void)
{
    DIR *directory = opendir(".");
    int count = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        const char *end = strrchr(entry->d_name, '.');
        count += end && !strcmp(end, ".part");
    }
    if (directory)
        closedir(directory);
    return count;
}
