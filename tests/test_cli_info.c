/* heed info: models found by name or path, described, and refused in one sentence. */
#include "support/gguf_bytes.h"
#include "support/program.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A llama in name and sizes, with few tensors. */
static void put_llama(bytes *b, const char *architecture)
{
    put_start(b, 3, 2, 8);
    put_key_text(b, "general.architecture", architecture);
    put_key_text(b, "general.name", "A small one");
    char key[80];
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {{"block_count", 3},          {"context_length", 100},        {"embedding_length", 64},
                 {"attention.head_count", 4}, {"attention.head_count_kv", 2}, {"vocab_size", 32}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, sizes[i].key);
        put_key_u32(b, key, sizes[i].value);
    }
    put_tensor(b, "token_embd.weight", 2, (const uint64_t[]){64, 32}, 8, 0);
    put_tensor(b, "output_norm.weight", 1, (const uint64_t[]){64}, 0, 2176);
    put_padding(b, 32);
    for (int i = 0; i < 2176 + 256; i++)
        put_number(b, 0, 1);
}

static void write_llama(const char *path, const char *architecture)
{
    bytes b = {0};
    put_llama(&b, architecture);
    bytes_write(&b, path);
    bytes_free(&b);
}

static void a_model_is_described(void **state)
{
    (void)state;
    write_llama("m.gguf", "llama");
    run("info m.gguf");
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "m.gguf: GGUF, 2 tensors, 2.4 kB");
    assert_said(ran.out, "architecture  llama");
    assert_said(ran.out, "name          A small one");
    assert_said(ran.out, "parameters    2112\n");
    assert_said(ran.out, "3 layers of width 64, 4 query heads on 2 key heads of 16, vocabulary 32");
    assert_said(ran.out, "context       100 tokens");
    /* 3 layers, 2 heads, 16 + 16 numbers of 2 bytes */
    assert_said(ran.out, "384 bytes in f16");
    run("info m.gguf --tensors --metadata");
    assert_said(ran.out, "llama.block_count = 3");
    assert_said(ran.out, "token_embd.weight   Q8_0             2176 bytes  [32, 64]");
}

static void json_says_the_same(void **state)
{
    (void)state;
    write_llama("m.gguf", "llama");
    run("info m.gguf --json --tensors");
    assert_int_equal(ran.status, 0);
    cJSON *root = cJSON_Parse(ran.out);
    assert_non_null(root);
    assert_string_equal(cJSON_GetObjectItem(root, "architecture")->valuestring, "llama");
    assert_int_equal(cJSON_GetObjectItem(root, "layers")->valueint, 3);
    assert_int_equal(cJSON_GetObjectItem(cJSON_GetObjectItem(root, "cache_bytes_per_token"), "f16")->valueint,
                     384);
    assert_int_equal(cJSON_GetObjectItem(root, "bytes")->valueint, 2432);
    const cJSON *tensors = cJSON_GetObjectItem(root, "tensors");
    assert_int_equal(cJSON_GetArraySize(tensors), 2);
    assert_string_equal(cJSON_GetObjectItem(cJSON_GetArrayItem(tensors, 0), "type")->valuestring, "Q8_0");
    assert_int_equal(cJSON_GetObjectItem(cJSON_GetObjectItem(root, "metadata"), "llama.vocab_size")->valueint,
                     32);
    cJSON_Delete(root);
}

static void models_are_found_by_the_name_they_were_fetched_by(void **state)
{
    (void)state;
    assert_int_equal(system("mkdir store"), 0);
    write_llama("store/smollm2.gguf", "llama");
    setenv("HEED_MODELS", "store", 1);
    run("info smollm2");
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "store/smollm2.gguf: GGUF");
    run("info gemma3");
    assert_one_sentence(
        "no model 'gemma3': neither a file or folder here nor fetched into store, which holds smollm2");
    run("info ./gemma3");
    assert_one_sentence("no model './gemma3': there is no such file or folder");
    unsetenv("HEED_MODELS");
    assert_int_equal(system("mkdir -p home/.cache && mv store home/.cache/heed"), 0);
    const char *home = getenv("HOME");
    char *before = home ? strdup(home) : NULL;
    setenv("HOME", "home", 1);
    run("info smollm2");
    assert_int_equal(ran.status, 0);
    if (before)
        setenv("HOME", before, 1);
    free(before);
    assert_int_equal(system("rm -r home"), 0);
}

static void cut_files_are_refused(void **state)
{
    (void)state;
    bytes b = {0};
    put_llama(&b, "llama");
    const size_t sizes[] = {b.size / 2, b.size - 2432 + 100, b.size - 10};
    static const char *const names[] = {"token_embd.weight", "token_embd.weight", "output_norm.weight"};
    for (int i = 0; i < 3; i++) {
        const bytes cut = {b.data, sizes[i], sizes[i]};
        char words[200];
        snprintf(words, sizeof words,
                 "cut.gguf: truncated: it should have %zu bytes and has %zu; the first tensor that is not "
                 "whole is %s",
                 b.size, sizes[i], names[i]);
        bytes_write(&cut, "cut.gguf");
        run("info cut.gguf");
        assert_one_sentence(words);
    }
    bytes_free(&b);
    write_text("page.gguf", "<html>");
    run("info page.gguf");
    assert_one_sentence("it looks like a web page");
    run("info .");
    assert_one_sentence("a folder without safetensors files");
}

static void what_heed_does_not_run_is_described_too(void **state)
{
    (void)state;
    write_llama("m.gguf", "mamba9");
    run("info m.gguf");
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "architecture  mamba9, which heed does not run\n");
    assert_said(ran.out, "known are llama");
    assert_said(ran.out, "3 layers of width 64");
    run("info m.gguf --json");
    assert_said(ran.out, "\"refused\":\t\"the architecture 'mamba9' is not known");
    make_plain_input();
    run("info in.safetensors --json");
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "\"architecture\":\tnull");
}

/* Bytes that are no UTF-8 become U+FFFD, so that the JSON can be read. */
static void json_is_utf8_whatever_the_file_holds(void **state)
{
    (void)state;
    bytes b = {0};
    put_start(&b, 3, 1, 2);
    put_key(&b, "k\xff", 8), put_number(&b, 4, 8), put(&b, "a\xe4\0z", 4);
    put_key_array(&b, "list", 8, 1), put_number(&b, 2, 8), put(&b, "\xc3(", 2);
    put_tensor(&b, "t\x80", 1, (const uint64_t[]){1}, 0, 0);
    put_padding(&b, 32);
    put_float(&b, 1.0f);
    bytes_write(&b, "odd.gguf");
    bytes_free(&b);
    run("info odd.gguf --json --tensors");
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "\"k\xef\xbf\xbd\":\t\"a\xef\xbf\xbd\xef\xbf\xbdz\"");
    assert_said(ran.out, "[\"\xef\xbf\xbd(\"]");
    assert_said(ran.out, "\"name\":\t\"t\xef\xbf\xbd\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_described),
        cmocka_unit_test(json_says_the_same),
        cmocka_unit_test(models_are_found_by_the_name_they_were_fetched_by),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(what_heed_does_not_run_is_described_too),
        cmocka_unit_test(json_is_utf8_whatever_the_file_holds),
    };
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
