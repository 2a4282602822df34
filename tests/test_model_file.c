/* Model files on disk: files in parts, folders with an index, what is no model at all. */
#include "support/gguf_bytes.h"
#include "support/program.h"

#include <fcntl.h>
#include <heed/heed.h>
#include <model/file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static heed_model_file *opened(const char *path)
{
    heed_model_file *file;
    if (heed_model_file_open(&file, path))
        fail_msg("%s", heed_message());
    return file;
}

static void assert_refused(const char *path, heed_status expected, const char *words)
{
    heed_model_file *file;
    const heed_status status = heed_model_file_open(&file, path);
    if (status != expected || file || !strstr(heed_message(), words) || strchr(heed_message(), '\n'))
        fail_msg("%s: expected '%s', got status %d: %s", path, words, status,
                 status ? heed_message() : "read");
}

static void assert_note(const heed_model_file *file, const char *words)
{
    for (int i = 0; i < heed_model_file_notes(file); i++)
        if (strstr(heed_model_file_note(file, i), words))
            return;
    fail_msg("no note with '%s'; the first of %d is: %s", words, heed_model_file_notes(file),
             heed_model_file_notes(file) ? heed_model_file_note(file, 0) : "none");
}

static void write_bytes(const char *path, const void *data, size_t size)
{
    const bytes b = {(unsigned char *)(uintptr_t)data, size, size};
    bytes_write(&b, path);
}

/* A file with tensors of these names, each [2] of `value`. */
static void write_shard(const char *path, float value, const char *first, const char *second)
{
    const int64_t shape[] = {2};
    const float x[] = {value, value};
    heed_named_tensor tensors[2] = {make_tensor(first, HEED_F32, 1, shape, x)};
    if (second)
        tensors[1] = make_tensor(second, HEED_F32, 1, shape, x);
    write_file(path, tensors, second ? 2 : 1);
    free(tensors[0].tensor.data);
    free(tensors[1].tensor.data);
}

static void empty_folder(void)
{
    assert_int_equal(system("rm -rf model && mkdir model"), 0);
}

static void make_shards(void)
{
    empty_folder();
    write_shard("model/model-00001-of-00002.safetensors", 1.0f, "a", "b");
    write_shard("model/model-00002-of-00002.safetensors", 2.0f, "c", NULL);
    write_text("model/config.json", "{\"model_type\": \"bert\"}");
    write_text("model/model.safetensors.index.json",
               "{\"metadata\": {}, \"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\", \"b\": "
               "\"model-00001-of-00002.safetensors\", \"c\": \"model-00002-of-00002.safetensors\"}}");
}

static float first_of(const heed_model_file *file, const char *name)
{
    const heed_model_tensor *tensor = heed_model_file_find(file, name);
    if (!tensor)
        fail_msg("no tensor %s", name);
    return *(const float *)tensor->tensor.data;
}

static void a_folder_is_read_by_its_index(void **state)
{
    (void)state;
    make_shards();
    heed_model_file *file = opened("model");
    size_t size;
    assert_int_equal(heed_model_file_format(file), HEED_FORMAT_SAFETENSORS);
    assert_int_equal(heed_model_file_tensors(file), 3);
    assert_int_equal(heed_model_file_bytes(file), 24);
    assert_true(first_of(file, "a") == 1.0f && first_of(file, "c") == 2.0f);
    assert_string_equal(heed_model_file_text(file, "config.json", &size), "{\"model_type\": \"bert\"}");
    assert_int_equal(size, 22);
    assert_null(heed_model_file_text(file, "tokenizer.json", &size));
    assert_int_equal(heed_model_file_notes(file), 0);
    assert_null(heed_model_file_meta(file, "general.architecture"));
    heed_model_file_close(file);
}

static void a_missing_shard_or_tensor_is_named(void **state)
{
    (void)state;
    make_shards();
    unlink("model/model-00002-of-00002.safetensors");
    assert_refused("model", HEED_IO, "its index names 1 files that are not there: model-00002-of-00002");
    unlink("model/model-00001-of-00002.safetensors");
    assert_refused("model", HEED_IO, "model-00001-of-00002.safetensors, model-00002-of-00002.safetensors");
    make_shards();
    write_shard("model/model-00002-of-00002.safetensors", 2.0f, "d", NULL);
    assert_refused("model", HEED_FORMAT, "c (in model-00002-of-00002.safetensors)");
    write_text("model/model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../secret\"}}");
    assert_refused("model", HEED_FORMAT, "no name of a file");
    write_text("model/model.safetensors.index.json", "{\"weight_map\": []}");
    assert_refused("model", HEED_FORMAT, "no JSON object with a weight_map");
}

static void what_the_index_does_not_name_is_left_out_with_a_note(void **state)
{
    (void)state;
    make_shards();
    write_shard("model/another.safetensors", 9.0f, "a", "z");
    write_shard("model/model-00002-of-00002.safetensors", 2.0f, "c", "extra");
    heed_model_file *file = opened("model");
    assert_int_equal(heed_model_file_tensors(file), 3);
    assert_true(first_of(file, "a") == 1.0f);
    assert_note(file, "left out: another.safetensors");
    assert_note(file, "does not name are left out: extra");
    heed_model_file_close(file);
}

static void parts_without_an_index_are_read_if_all_are_there(void **state)
{
    (void)state;
    make_shards();
    unlink("model/model.safetensors.index.json");
    heed_model_file *file = opened("model");
    assert_int_equal(heed_model_file_tensors(file), 3);
    heed_model_file_close(file);
    unlink("model/model-00001-of-00002.safetensors");
    assert_refused("model", HEED_IO, "missing model-00001-of-00002.safetensors");
    write_shard("model/x.safetensors", 1.0f, "a", NULL);
    assert_refused("model", HEED_FORMAT, "which of its files are the model?");
    empty_folder();
    write_shard("model/model-00001-of-00002.safetensors", 1.0f, "a", "b");
    write_shard("model/model-00002-of-00002.safetensors", 1.0f, "b", NULL);
    assert_refused("model", HEED_FORMAT, "tensor b stands there twice");
}

static void a_single_file_is_read_with_the_texts_beside_it(void **state)
{
    (void)state;
    empty_folder();
    write_shard("model/model.safetensors", 3.0f, "a", NULL);
    write_text("model/config.json", "{}");
    assert_int_equal(mkdir("model/1_Pooling", 0777), 0);
    write_text("model/1_Pooling/config.json", "{\"x\": 1}");
    static const char *const paths[] = {"model", "model/", "model/model.safetensors"};
    for (int i = 0; i < 3; i++) {
        heed_model_file *file = opened(paths[i]);
        assert_true(first_of(file, "a") == 3.0f);
        assert_string_equal(heed_model_file_path(file), paths[i]);
        assert_string_equal(heed_model_file_text(file, "1_Pooling/config.json", NULL), "{\"x\": 1}");
        heed_model_file_close(file);
    }
    empty_folder();
    write_shard("model/any.safetensors", 4.0f, "a", NULL);
    heed_model_file *file = opened("model");
    assert_true(first_of(file, "a") == 4.0f);
    heed_model_file_close(file);
}

static void what_is_no_model_is_named(void **state)
{
    (void)state;
    empty_folder();
    write_text("model/page.gguf", "<!DOCTYPE html>\n<html><body>Not found</body></html>");
    assert_refused("model/page.gguf", HEED_FORMAT, "it looks like a web page; GGUF or safetensors is needed");
    write_text("model/m.safetensors",
               "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n");
    assert_refused("model/m.safetensors", HEED_FORMAT, "a Git LFS pointer");
    assert_refused("model", HEED_FORMAT, "a Git LFS pointer");
    write_bytes("model/m.safetensors", "PK\003\004\024\000\000\000\010\000\000\000\000\000", 14);
    assert_refused("model/m.safetensors", HEED_FORMAT, "a zip archive");
    write_text("model/m.safetensors", "");
    assert_refused("model/m.safetensors", HEED_FORMAT, "an empty file");
    write_bytes("model/old.bin", "tjgg\003\000\000\000", 8);
    assert_refused("model/old.bin", HEED_FORMAT, "a GGML file from before GGUF");
    write_text("model/odd", "nothing of the kind");
    assert_refused("model/odd", HEED_FORMAT, "its 19 bytes begin neither as GGUF nor as safetensors");
    assert_refused("model/no", HEED_IO, "model/no: cannot be opened: No such file or directory");
    assert_int_equal(mkfifo("model/pipe", 0600), 0);
    assert_refused("model/pipe", HEED_FORMAT, "a device or a pipe");
    empty_folder();
    assert_refused("model", HEED_FORMAT, "a folder without safetensors files; a GGUF file or a folder");
    write_text("model/pytorch_model.bin", "");
    write_text("model/x.gguf", "");
    assert_refused("model", HEED_FORMAT, "it holds x.gguf, pytorch_model.bin");
}

static void put_part(bytes *b, int part, int count, int tensors, const char *name)
{
    put_start(b, 3, 1, 3);
    put_key(b, "split.no", 2), put_number(b, (uint64_t)part, 2);
    put_key(b, "split.count", 2), put_number(b, (uint64_t)count, 2);
    put_key(b, "split.tensors.count", 5), put_number(b, (uint64_t)tensors, 4);
    put_tensor(b, name, 1, (const uint64_t[]){1}, 0, 0);
    put_padding(b, 32);
    put_float(b, (float)part);
}

static void write_part(const char *path, int part, int count, int tensors, const char *name)
{
    bytes b = {0};
    put_part(&b, part, count, tensors, name);
    bytes_write(&b, path);
    bytes_free(&b);
}

static void a_gguf_file_in_parts_is_read_whole(void **state)
{
    (void)state;
    empty_folder();
    write_part("model/m-00001-of-00003.gguf", 0, 3, 3, "a");
    write_part("model/m-00002-of-00003.gguf", 1, 3, 3, "b");
    assert_refused("model/m-00001-of-00003.gguf", HEED_IO, "missing model/m-00003-of-00003.gguf");
    write_part("model/m-00003-of-00003.gguf", 2, 3, 3, "c");
    heed_model_file *file = opened("model/m-00001-of-00003.gguf");
    assert_int_equal(heed_model_file_tensors(file), 3);
    assert_true(first_of(file, "a") == 0.0f && first_of(file, "b") == 1.0f && first_of(file, "c") == 2.0f);
    heed_model_file_release(file, heed_model_file_find(file, "b"));
    assert_true(first_of(file, "b") == 1.0f);
    heed_model_file_close(file);
    assert_refused("model/m-00002-of-00003.gguf", HEED_FORMAT, "is part 2 of 3: open the first");
    write_part("model/m-00003-of-00003.gguf", 2, 3, 3, "a");
    assert_refused("model/m-00001-of-00003.gguf", HEED_FORMAT, "tensor a stands there twice");
    write_part("model/m-00003-of-00003.gguf", 1, 3, 3, "c");
    assert_refused("model/m-00001-of-00003.gguf", HEED_FORMAT,
                   "says that it is part 2 of 3: 3 of 3 is needed");
    write_part("model/m-00003-of-00003.gguf", 2, 3, 3, "c");
    write_part("model/m-00001-of-00003.gguf", 0, 3, 7, "a");
    assert_refused("model/m-00001-of-00003.gguf", HEED_FORMAT,
                   "its parts hold 3 tensors: the first announces 7");
    write_part("model/renamed.gguf", 0, 3, 3, "a");
    assert_refused("model/renamed.gguf", HEED_FORMAT, "its name must end in -00001-of-00003.gguf");
}

static void unaligned_tensors_are_copied(void **state)
{
    (void)state;
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} ";
    empty_folder();
    bytes b = {0};
    put_number(&b, sizeof header - 1, 8);
    put(&b, header, sizeof header - 1);
    assert_int_not_equal(b.size % 4, 0);
    put_float(&b, 2.5f);
    bytes_write(&b, "model/model.safetensors");
    bytes_free(&b);
    heed_model_file *file = opened("model");
    assert_int_equal((uintptr_t)heed_model_file_find(file, "a")->tensor.data % 4, 0);
    assert_true(first_of(file, "a") == 2.5f);
    heed_model_file_release(file, heed_model_file_find(file, "a"));
    assert_true(first_of(file, "a") == 2.5f);
    assert_note(file, "tensor a is not aligned in the file and was copied");
    heed_model_file_close(file);
}

static void tensors_of_many_dimensions_and_unknown_types_are_listed(void **state)
{
    (void)state;
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,2],\"data_offsets\":[0,8]},"
                                 "\"b\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[8,12]}}";
    empty_folder();
    bytes b = {0};
    put_number(&b, sizeof header - 1, 8);
    put(&b, header, sizeof header - 1);
    put(&b, "0123456789ab", 12);
    bytes_write(&b, "model/model.safetensors");
    bytes_free(&b);
    heed_model_file *file = opened("model");
    const heed_model_tensor *a = heed_model_file_find(file, "a"), *f8 = heed_model_file_find(file, "b");
    assert_int_equal(a->rank, 5);
    assert_int_equal(a->shape[4], 2);
    assert_int_equal(a->tensor.type, HEED_TYPES);
    assert_memory_equal(a->tensor.data, "01234567", 8);
    assert_string_equal(f8->dtype, "F8_E4M3");
    assert_int_equal(f8->tensor.type, HEED_TYPES);
    heed_model_file_close(file);
}

static int leave(void **state)
{
    assert_int_equal(system("rm -rf model"), 0);
    return program_folder_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_read_by_its_index),
        cmocka_unit_test(a_missing_shard_or_tensor_is_named),
        cmocka_unit_test(what_the_index_does_not_name_is_left_out_with_a_note),
        cmocka_unit_test(parts_without_an_index_are_read_if_all_are_there),
        cmocka_unit_test(a_single_file_is_read_with_the_texts_beside_it),
        cmocka_unit_test(what_is_no_model_is_named),
        cmocka_unit_test(a_gguf_file_in_parts_is_read_whole),
        cmocka_unit_test(unaligned_tensors_are_copied),
        cmocka_unit_test(tensors_of_many_dimensions_and_unknown_types_are_listed),
    };
    return cmocka_run_group_tests(tests, program_folder, leave);
}
