/* The safetensors reader on right and wrong files, and the writer's promise: a whole file or none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <heed/heed.h>
#include <model/safetensors.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/heed_safetensors_XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[4][160];
    static int next;
    char *text = path[next++ % 4];
    snprintf(text, sizeof path[0], "%s/%s", folder, name);
    return text;
}

/* Bytes of a file with this header and `data` bytes counting 0, 1, 2, ...; length < 0: the header's own. */
static size_t make_file(unsigned char *bytes, const char *header, long long length, size_t data)
{
    const size_t size = strlen(header);
    const uint64_t announced = length < 0 ? size : (uint64_t)length;
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(announced >> 8 * i);
    memcpy(bytes + 8, header, size);
    for (size_t i = 0; i < data; i++)
        bytes[8 + size + i] = (unsigned char)i;
    return 8 + size + data;
}

static void assert_refused(const void *bytes, size_t size, const char *words)
{
    heed_safetensors *file;
    /* a block of exactly this size, so that a sanitizer sees a read beyond it */
    void *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    const heed_status status = heed_safetensors_parse(&file, copy, size, "x.safetensors");
    free(copy);
    if (status != HEED_FORMAT || file || !strstr(heed_message(), words) ||
        strncmp(heed_message(), "x.safetensors: ", 15) || strchr(heed_message(), '\n'))
        fail_msg("expected '%s', got status %d: %s", words, status, heed_message());
}

static void assert_header_refused(const char *header, size_t data, const char *words)
{
    unsigned char bytes[4096];
    assert_refused(bytes, make_file(bytes, header, -1, data), words);
}

static void a_plain_file_is_read(void **state)
{
    (void)state;
    unsigned char bytes[1024], values[24];
    heed_safetensors *file;
    const size_t size =
        make_file(bytes,
                  "{\"b\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[24,32]},"
                  "\"__metadata__\":{\"format\":\"pt\"},"
                  "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                  "\"empty\":{\"dtype\":\"BF16\",\"shape\":[0,7],\"data_offsets\":[24,24]}}   ",
                  -1, 32);
    assert_int_equal(heed_safetensors_parse(&file, bytes, size, "x"), HEED_OK);
    assert_int_equal(heed_safetensors_count(file), 3);
    assert_string_equal(heed_safetensors_tensor(file, 0)->name, "a");
    const heed_file_tensor *a = heed_safetensors_find(file, "a");
    assert_non_null(a);
    assert_int_equal(a->type, HEED_F32);
    assert_int_equal(a->rank, 2);
    assert_int_equal(a->shape[1], 3);
    assert_int_equal(heed_safetensors_read(file, a, values), HEED_OK);
    for (int i = 0; i < 24; i++)
        assert_int_equal(values[i], i);
    assert_int_equal(heed_safetensors_find(file, "b")->type, HEED_I64);
    assert_string_equal(heed_safetensors_find(file, "b")->dtype, "I64");
    assert_int_equal(heed_safetensors_find(file, "b")->rank, 0);
    assert_int_equal(heed_safetensors_find(file, "empty")->bytes, 0);
    assert_null(heed_safetensors_find(file, "c"));
    heed_safetensors_close(file);
    assert_int_equal(heed_safetensors_parse(&file, bytes, make_file(bytes, "{}", -1, 0), "x"), HEED_OK);
    assert_int_equal(heed_safetensors_count(file), 0);
    assert_null(heed_safetensors_find(file, "a"));
    heed_safetensors_close(file);
}

static void what_is_no_safetensors_file_is_recognised(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *words;
    } cases[] = {
        {"", 0, "an empty file"},
        {"\n  <!DOCTYPE html><html><body>404</body></html>", 46, "a web page"},
        {"<HTML lang=en><head></head></HTML>", 34, "a web page"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", 64, "a Git LFS pointer"},
        {"PK\003\004\024\000\000\000\010\000\000\000\000\000\000\000", 16, "a zip archive"},
        {"\200\002}q\000(X\006\000\000\000weight", 16, "a Python pickle"},
        {"GGUF\003\000\000\000\000\000\000\000\000\000\000\000", 16, "a GGUF file"},
        {"{\"weight_map\": {\"q\": \"model-00001-of-2.safetensors\"}}", 53, "JSON text"},
        {"\223NUMPY\001\000v\000{'descr'", 18, "a NumPy array"},
        {"\037\213\010\000\000\000\000\000\000\003", 10, "a gzip archive"},
        {"hello", 5, "it has 5 bytes"},
        {"hello, world, this is text", 26, "not a safetensors file"},
        {"\003\000\000\000\000\000\000\000[1]", 11, "must be a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(cases[i].bytes, cases[i].size, cases[i].words);
    heed_safetensors *file;
    assert_int_equal(heed_safetensors_open(&file, folder), HEED_FORMAT);
    assert_non_null(strstr(heed_message(), "a directory"));
    assert_int_equal(heed_safetensors_open(&file, in_folder("missing")), HEED_IO);
    assert_non_null(strstr(heed_message(), "No such file"));
    assert_int_equal(heed_safetensors_open(&file, "/dev/zero"), HEED_FORMAT);
    assert_non_null(strstr(heed_message(), "a device"));
}

static void a_wrong_header_is_refused_with_the_reason(void **state)
{
    (void)state;
    unsigned char bytes[1024];
    assert_refused(bytes, make_file(bytes, "{\"a\":1}", 1000, 0), "truncated");
    assert_refused(bytes, make_file(bytes, "{\"a\":1}", INT64_MAX, 0),
                   "announce a header of 9223372036854775807");
    assert_header_refused("{\"a\":", 0, "not valid JSON at byte");
    assert_header_refused("{\"a\"", 0, "not valid JSON");
    assert_header_refused("{} {}", 0, "goes on after");
    assert_header_refused("{\"a\\u0000b\":{}}", 0, "zero character");
    assert_header_refused("{\"a\xff\":{}}", 0, "not UTF-8");
    assert_header_refused("{\"\xed\xa0\x80\":{}}", 0, "not UTF-8");
    assert_header_refused("{\"a\":7}", 0, "tensor a: its entry in the header is no object");
    assert_header_refused("{\"__metadata__\":[]}", 0, "__metadata__ is no object");
    assert_header_refused("{\"__metadata__\":{\"a\":1}}", 0, "something else than text");
    assert_header_refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype is missing");
    assert_header_refused("{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                          "unknown dtype F33");
    assert_header_refused("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape is missing");
    assert_header_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4,
                          "whole numbers");
    assert_header_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
                          "whole numbers");
    assert_header_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1e300],\"data_offsets\":[0,4]}}", 4,
                          "whole numbers");
    assert_header_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4]}}", 4,
                          "two whole numbers");
    assert_header_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4,
                          "two whole numbers");
    assert_header_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                          "twice");
    assert_header_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
                          "takes 8 bytes, but its data_offsets span 4");
    assert_header_refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1,
                          "64 bits can count");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
        "multiply to more");
    assert_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}",
                          1, "more than 8 dimensions");
    assert_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                          "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                          2, "two entries of this name");
    assert_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                          "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]}}",
                          5, "tensor b overlaps tensor a");
    assert_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]}}", 5,
                          "2 bytes before tensor a");
    assert_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 5,
                          "2 bytes after the last tensor");
    assert_header_refused("{\"line\\nbreak\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 2,
                          "tensor line?break ends at byte");
}

static void nesting_without_end_is_refused(void **state)
{
    (void)state;
    static unsigned char bytes[300000];
    static char header[200001];
    memset(header, '[', sizeof header - 1);
    memcpy(header, "{\"a\":", 5);
    assert_refused(bytes, make_file(bytes, header, -1, 0), "not valid JSON");
}

static void a_truncated_file_names_the_first_tensor_that_does_not_fit(void **state)
{
    (void)state;
    const char *header = "{\"first\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
                         "\"last\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[32,48]},"
                         "\"middle\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,32]}}";
    unsigned char bytes[1024];
    char words[120];
    const size_t begin = 8 + strlen(header);
    const size_t size = make_file(bytes, header, -1, 48);
    for (size_t cut = 0; cut < size; cut++) {
        if (cut < begin) {
            assert_refused(bytes, cut, cut == 0 ? "empty" : cut < 9 ? "not a safetensors file" : "truncated");
            continue;
        }
        const size_t data = cut - begin;
        snprintf(words, sizeof words, "truncated: tensor %s ends at byte %zu, but the file has %zu bytes",
                 data < 16   ? "first"
                 : data < 32 ? "middle"
                             : "last",
                 begin + (data < 16   ? 16
                          : data < 32 ? 32
                                      : 48),
                 cut);
        assert_refused(bytes, cut, words);
    }
}

static void every_byte_of_a_header_may_be_wrong_without_harm(void **state)
{
    (void)state;
    unsigned char bytes[512], wrong[512];
    const size_t size = make_file(bytes,
                                  "{\"a\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                                  "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[12,16]}}",
                                  -1, 16);
    int opened = 0;
    for (size_t at = 0; at < size - 16; at++)
        for (int value = 0; value < 256; value++) {
            heed_safetensors *file;
            memcpy(wrong, bytes, size);
            wrong[at] = (unsigned char)value;
            if (heed_safetensors_parse(&file, wrong, size, "x"))
                continue;
            opened++;
            for (int i = 0; i < heed_safetensors_count(file); i++) {
                unsigned char to[16];
                const heed_file_tensor *tensor = heed_safetensors_tensor(file, i);
                assert_true(tensor->bytes <= sizeof to);
                assert_int_equal(heed_safetensors_read(file, tensor, to), HEED_OK);
            }
            heed_safetensors_close(file);
        }
    assert_true(opened > 100); /* other names, other types of the same size */
}

static heed_named_tensor named(const char *name, void *data, heed_type type, int rank, const int64_t *shape)
{
    return (heed_named_tensor){name, heed_tensor_dense(data, type, rank, shape)};
}

static int files_in_folder(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    float f32[6] = {1, 2, 3, 4, 5, NAN}, back[6];
    uint8_t u8[3] = {7, 8, 9};
    uint16_t f16[1] = {0x3c00};
    const heed_named_tensor tensors[] = {
        named("mask", u8, HEED_U8, 1, (int64_t[]){3}),
        named("half \"quoted\" \xc3\xa9", f16, HEED_F16, 4, (int64_t[]){1, 1, 1, 1}),
        named("out", f32, HEED_F32, 2, (int64_t[]){2, 3}),
        named("none", NULL, HEED_I32, 2, (int64_t[]){0, 3}),
    };
    const char *const metadata[] = {"spec", "score=dot", NULL};
    const char *path = in_folder("a.safetensors");
    heed_safetensors *file;
    assert_int_equal(heed_safetensors_write(path, tensors, 4, metadata), HEED_OK);
    if (heed_safetensors_open(&file, path))
        fail_msg("%s", heed_message());
    assert_int_equal(heed_safetensors_count(file), 4);
    const heed_file_tensor *out = heed_safetensors_find(file, "out");
    assert_int_equal(out->begin % 4, 0);
    assert_int_equal(heed_safetensors_read(file, out, back), HEED_OK);
    assert_memory_equal(back, f32, sizeof f32);
    assert_int_equal(heed_safetensors_find(file, "none")->shape[1], 3);
    assert_int_equal(heed_safetensors_find(file, "half \"quoted\" \xc3\xa9")->rank, 4);
    heed_safetensors_close(file);
    FILE *raw = fopen(path, "rb");
    unsigned char length[8];
    assert_int_equal(fread(length, 1, 8, raw), 8);
    assert_int_equal(length[0] % 8, 0);
    fclose(raw);
    unlink(path);
}

static void what_has_no_place_in_a_file_is_refused(void **state)
{
    (void)state;
    float x[64] = {0};
    const int64_t shape[] = {32};
    const heed_named_tensor twice[] = {named("a", x, HEED_F32, 1, shape), named("a", x, HEED_F32, 1, shape)};
    const heed_named_tensor block = named("b", x, HEED_Q8, 1, shape);
    assert_int_equal(heed_safetensors_write(in_folder("b"), twice, 2, NULL), HEED_INVALID);
    assert_int_equal(heed_safetensors_write(in_folder("b"), &block, 1, NULL), HEED_INVALID);
    assert_int_equal(files_in_folder(folder), 0);
}

static void write_number(const char *path, const char *number)
{
    FILE *file = fopen(path, "w");
    fputs(number, file);
    fclose(file);
}

static void a_failed_write_leaves_nothing_and_keeps_the_old_file(void **state)
{
    (void)state;
    static float x[100000];
    const heed_named_tensor tensor = named("x", x, HEED_F32, 1, (int64_t[]){100000});
    const char *path = in_folder("old.safetensors");
    char text[16] = {0};
    write_number(path, "old");
    /* a disk that is full after 64 KiB */
    const struct rlimit small = {65536, RLIM_INFINITY};
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    const heed_status status = heed_safetensors_write(path, &tensor, 1, NULL);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, HEED_IO);
    assert_int_equal(files_in_folder(folder), 1);
    FILE *file = fopen(path, "r");
    assert_int_equal(fread(text, 1, sizeof text - 1, file), 3);
    fclose(file);
    assert_string_equal(text, "old");
    unlink(path);
    assert_int_equal(heed_safetensors_write(in_folder("no/such/folder"), &tensor, 1, NULL), HEED_IO);
    assert_int_equal(heed_safetensors_write(folder, &tensor, 1, NULL), HEED_IO);
    assert_int_equal(heed_safetensors_write("/dev/full", &tensor, 1, NULL), HEED_IO);
    assert_int_equal(files_in_folder(folder), 0);
}

static void a_link_keeps_pointing_and_a_device_stays(void **state)
{
    (void)state;
    float x[1] = {1};
    const heed_named_tensor tensor = named("x", x, HEED_F32, 1, (int64_t[]){1});
    struct stat info;
    write_number(in_folder("target"), "old");
    assert_int_equal(symlink("target", in_folder("link")), 0);
    assert_int_equal(heed_safetensors_write(in_folder("link"), &tensor, 1, NULL), HEED_OK);
    assert_int_equal(lstat(in_folder("link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    heed_safetensors *file;
    assert_int_equal(heed_safetensors_open(&file, in_folder("target")), HEED_OK);
    heed_safetensors_close(file);
    unlink(in_folder("link"));
    unlink(in_folder("target"));
    assert_int_equal(heed_safetensors_write("/dev/null", &tensor, 1, NULL), HEED_OK);
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

static void a_file_that_shrinks_while_open_is_an_error(void **state)
{
    (void)state;
    float x[1000] = {0};
    const heed_named_tensor tensor = named("x", x, HEED_F32, 1, (int64_t[]){1000});
    const char *path = in_folder("shrinks");
    heed_safetensors *file;
    assert_int_equal(heed_safetensors_write(path, &tensor, 1, NULL), HEED_OK);
    assert_int_equal(heed_safetensors_open(&file, path), HEED_OK);
    assert_int_equal(truncate(path, 200), 0);
    assert_int_equal(heed_safetensors_read(file, heed_safetensors_find(file, "x"), x), HEED_IO);
    heed_safetensors_close(file);
    unlink(path);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_file_is_read),
        cmocka_unit_test(what_is_no_safetensors_file_is_recognised),
        cmocka_unit_test(a_wrong_header_is_refused_with_the_reason),
        cmocka_unit_test(nesting_without_end_is_refused),
        cmocka_unit_test(a_truncated_file_names_the_first_tensor_that_does_not_fit),
        cmocka_unit_test(every_byte_of_a_header_may_be_wrong_without_harm),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(what_has_no_place_in_a_file_is_refused),
        cmocka_unit_test(a_failed_write_leaves_nothing_and_keeps_the_old_file),
        cmocka_unit_test(a_link_keeps_pointing_and_a_device_stays),
        cmocka_unit_test(a_file_that_shrinks_while_open_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
