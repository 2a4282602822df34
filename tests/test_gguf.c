/* The GGUF reader on right files, and on hostile ones: refused at once, with little memory and a sentence. */
#include "support/gguf_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <heed/heed.h>
#include <model/file.h>
#include <model/gguf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Parses a copy of exactly this size, so that a sanitizer sees a read beyond it. The copy outlives the file.
 */
static heed_status parse_copy(heed_model_file **file, const void *data, size_t size, void **copy)
{
    /* no pointer of malloc's is as aligned as a mapped page: data of tensors must be, or it would be copied
     */
    *copy = aligned_alloc(64, (size + 63) / 64 * 64 + 64);
    assert_non_null(*copy);
    memcpy(*copy, data, size);
    return heed_gguf_parse(file, *copy, size, "x.gguf");
}

static void assert_refused(const bytes *b, heed_status expected, const char *words)
{
    heed_model_file *file;
    void *copy = malloc(b->size ? b->size : 1);
    memcpy(copy, b->data, b->size);
    const heed_status status = heed_gguf_parse(&file, copy, b->size, "x.gguf");
    free(copy);
    if (status != expected || file || !strstr(heed_message(), words) ||
        strncmp(heed_message(), "x.gguf: ", 8) || strchr(heed_message(), '\n'))
        fail_msg("expected '%s', got status %d: %s", words, status, status ? heed_message() : "read");
}

static const heed_meta *meta(const heed_model_file *file, const char *key)
{
    const heed_meta *found = heed_model_file_meta(file, key);
    if (!found)
        fail_msg("no key %s", key);
    return found;
}

static void assert_small_metadata(const heed_model_file *file)
{
    static const struct {
        const char *key;
        int64_t value;
    } wholes[] = {{"x.u8", 200},     {"x.i8", -3},         {"x.u16", 60000}, {"x.i16", -300},
                  {"x.i32", -70000}, {"x.u64", INT64_MAX}, {"x.i64", -5}};
    assert_int_equal(heed_model_file_metas(file), 15);
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        assert_int_equal(meta(file, wholes[i].key)->kind, HEED_META_INT);
        assert_int_equal(meta(file, wholes[i].key)->whole, wholes[i].value);
    }
    assert_string_equal(heed_model_file_meta_at(file, 0)->key, "general.architecture");
    assert_string_equal(meta(file, "general.architecture")->text, "llama");
    assert_int_equal(meta(file, "general.architecture")->size, 5);
    assert_int_equal(meta(file, "x.bool")->kind, HEED_META_BOOL);
    assert_int_equal(meta(file, "x.bool")->whole, 1);
    assert_true(meta(file, "x.f32")->number == 0.5 && meta(file, "x.f64")->number == 3.125);
    assert_int_equal(meta(file, "x.ints")->kind, HEED_META_INTS);
    assert_int_equal(meta(file, "x.ints")->wholes[0], -1);
    assert_true(meta(file, "x.floats")->numbers[1] == -2.0f);
    const heed_meta *texts = meta(file, "x.texts");
    assert_int_equal(texts->size, 3);
    assert_int_equal(texts->text_size[1], 3);
    assert_memory_equal(texts->texts[1], "a\0b", 4);
    assert_string_equal(texts->texts[2], "last");
    assert_string_equal(texts->texts[0], "");
    assert_int_equal(meta(file, "x.nested")->kind, HEED_META_NONE);
    assert_null(heed_model_file_meta(file, "x.no"));
    assert_null(heed_model_file_meta_at(file, 15));
}

static void both_versions_are_read(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        bytes b = {0};
        heed_model_file *file;
        void *copy;
        put_small_model(&b, version);
        assert_int_equal(parse_copy(&file, b.data, b.size, &copy), HEED_OK);
        assert_small_metadata(file);
        assert_int_equal(heed_model_file_tensors(file), 3);
        assert_int_equal(heed_model_file_bytes(file), 24 + 34 + 8);
        const heed_model_tensor *a = heed_model_file_find(file, "a.weight");
        assert_non_null(a);
        assert_int_equal(a->tensor.type, HEED_F32);
        assert_int_equal(a->tensor.rank, 2);
        assert_int_equal(a->tensor.shape[0], 2);
        assert_int_equal(a->shape[1], 3);
        assert_true(((float *)a->tensor.data)[5] == 5.0f);
        const heed_model_tensor *q = heed_model_file_find(file, "b.weight");
        float row[32];
        assert_string_equal(q->dtype, "Q8_0");
        assert_int_equal(q->tensor.type, HEED_Q8);
        heed_load(q->tensor.type, q->tensor.data, row, 32);
        assert_true(row[0] == -16.0f && row[31] == 15.0f);
        assert_null(heed_model_file_find(file, "d.weight"));
        assert_null(heed_model_file_text(file, "config.json", NULL));
        heed_model_file_close(file);
        free(copy);
        bytes_free(&b);
    }
}

/* Every type of the table by its number, with a block in the file. */
static void types_have_the_sizes_of_the_format(void **state)
{
    (void)state;
    static const struct {
        uint32_t number;
        int64_t values, bytes;
        const char *name;
        heed_type type;
    } cases[] = {
        {0, 1, 4, "F32", HEED_F32},          {1, 1, 2, "F16", HEED_F16},
        {2, 32, 18, "Q4_0", HEED_Q4},        {3, 32, 20, "Q4_1", HEED_Q4_1},
        {6, 32, 22, "Q5_0", HEED_Q5_0},      {7, 32, 24, "Q5_1", HEED_Q5_1},
        {8, 32, 34, "Q8_0", HEED_Q8},        {10, 256, 84, "Q2_K", HEED_Q2_K},
        {11, 256, 110, "Q3_K", HEED_Q3_K},   {12, 256, 144, "Q4_K", HEED_Q4_K},
        {13, 256, 176, "Q5_K", HEED_Q5_K},   {14, 256, 210, "Q6_K", HEED_Q6_K},
        {20, 32, 18, "IQ4_NL", HEED_IQ4_NL}, {23, 256, 136, "IQ4_XS", HEED_IQ4_XS},
        {24, 1, 1, "I8", HEED_I8},           {25, 1, 2, "I16", HEED_I16},
        {26, 1, 4, "I32", HEED_I32},         {27, 1, 8, "I64", HEED_I64},
        {28, 1, 8, "F64", HEED_F64},         {30, 1, 2, "BF16", HEED_BF16},
        {39, 32, 17, "MXFP4", HEED_MXFP4},   {16, 256, 66, "IQ2_XXS", HEED_TYPES},
        {34, 256, 54, "TQ1_0", HEED_TYPES},  {77, 1, 4096, "type 77", HEED_TYPES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bytes b = {0};
        heed_model_file *file;
        void *copy;
        const uint64_t shape[] = {(uint64_t)cases[i].values};
        put_start(&b, 3, 1, 0);
        put_tensor(&b, "w", 1, shape, cases[i].number, 0);
        put_padding(&b, 32);
        for (int64_t j = 0; j < cases[i].bytes; j++)
            put_number(&b, 0, 1);
        assert_int_equal(parse_copy(&file, b.data, b.size, &copy), HEED_OK);
        const heed_model_tensor *tensor = heed_model_file_find(file, "w");
        assert_string_equal(tensor->dtype, cases[i].name);
        assert_int_equal(tensor->bytes, cases[i].bytes);
        assert_int_equal(tensor->tensor.type, cases[i].type);
        heed_model_file_close(file);
        free(copy);
        bytes_free(&b);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static long peak_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static void assert_refused_cheaply(bytes *b, heed_status status, const char *words)
{
    const double start = seconds();
    const long before = peak_kib();
    assert_refused(b, status, words);
    if (seconds() - start > 0.1 || peak_kib() - before > 10000)
        fail_msg("'%s' took %.3f s and %ld KiB", words, seconds() - start, peak_kib() - before);
    bytes_free(b);
}

static void claims_of_enormous_sizes_are_refused_at_once(void **state)
{
    (void)state;
    bytes b = {0};
    put_start(&b, 3, 0, (uint64_t)1 << 63);
    assert_refused_cheaply(&b, HEED_FORMAT, "announces 9223372036854775808 keys");
    put_start(&b, 3, (uint64_t)1 << 63, 0);
    assert_refused_cheaply(&b, HEED_FORMAT, "announces 9223372036854775808 tensors");
    put_start(&b, 3, 0, 1);
    put_key(&b, "k", 8), put_number(&b, 1 << 30, 8), put(&b, "abc", 3);
    assert_refused_cheaply(&b, HEED_FORMAT,
                           "truncated: key k has a text of 1073741824 bytes, but only 3 are left");
    put_start(&b, 3, 0, 1);
    put_number(&b, 1 << 30, 8), put(&b, "abcdefgh", 8);
    assert_refused_cheaply(&b, HEED_FORMAT, "key 0 has a text of 1073741824 bytes");
    for (uint32_t type = 0; type < 13; type++) {
        put_start(&b, 3, 0, 1);
        put_key_array(&b, "k", type, (uint64_t)1 << 63), put(&b, "abc", 3);
        assert_refused_cheaply(&b, HEED_FORMAT, "key k has an array of 9223372036854775808 entries");
    }
    put_start(&b, 3, 0, 1);
    put_key_array(&b, "k", 9, 1);
    for (int i = 0; i < 1000; i++)
        put_number(&b, 9, 4), put_number(&b, 1, 8);
    assert_refused_cheaply(&b, HEED_FORMAT, "key k has arrays within arrays more than 4 deep");
    put_start(&b, 3, 1, 0);
    put_tensor(&b, "w", 4, (const uint64_t[]){1u << 31, 1u << 31, 1u << 31, 2}, 0, 0);
    assert_refused_cheaply(&b, HEED_FORMAT,
                           "the sizes of tensor w multiply to more bytes than 64 bits can count");
    put_start(&b, 3, 1, 0);
    put_tensor(&b, "w", 1, (const uint64_t[]){UINT64_MAX}, 0, 0);
    assert_refused_cheaply(&b, HEED_FORMAT, "a dimension of size 18446744073709551615");
    put_start(&b, 3, 1, 0);
    put_tensor(&b, "w", 1, (const uint64_t[]){1}, 0, UINT64_MAX - 31);
    assert_refused_cheaply(&b, HEED_FORMAT, "where no file reaches");
    put_start(&b, 3, 1, 0);
    put_text(&b, "w"), put_number(&b, UINT32_MAX, 4), put_number(&b, 0, 8), put_number(&b, 0, 8);
    assert_refused_cheaply(&b, HEED_FORMAT, "tensor w has 4294967295 dimensions: from 0 to 4");
}

static void wrong_files_are_refused_with_the_reason(void **state)
{
    (void)state;
    bytes b = {0};
    put_start(&b, 1, 0, 0);
    assert_refused_cheaply(&b, HEED_UNSUPPORTED, "version 1 of GGUF: 2 or 3 is needed");
    put_start(&b, 0x03000000, 0, 0);
    assert_refused_cheaply(&b, HEED_UNSUPPORTED, "big-endian");
    put(&b, "GGUX", 4);
    assert_refused_cheaply(&b, HEED_FORMAT, "does not begin with GGUF");
    put_start(&b, 3, 0, 1);
    put_key(&b, "k", 13), put_number(&b, 0, 8);
    assert_refused_cheaply(&b, HEED_FORMAT, "key k has a value of unknown type 13");
    put_start(&b, 3, 0, 2);
    put_key_u32(&b, "k", 1), put_key_u32(&b, "k", 2);
    assert_refused_cheaply(&b, HEED_FORMAT, "key k stands there twice");
    put_start(&b, 3, 0, 1);
    put_number(&b, 2, 8), put(&b, "k\0", 2), put_number(&b, 4, 4), put_number(&b, 4, 4);
    assert_refused_cheaply(&b, HEED_FORMAT, "the name of key 0 holds a zero byte");
    for (int wrong = 0; wrong < 3; wrong++) {
        put_start(&b, 3, 0, 1);
        put_key_u32(&b, "general.alignment", (const uint32_t[]){0, 24, 4}[wrong]);
        assert_refused_cheaply(&b, HEED_FORMAT, "a power of two from 8 to 2^30 is needed");
    }
    put_start(&b, 3, 2, 0);
    put_tensor(&b, "w", 1, (const uint64_t[]){1}, 0, 0);
    put_tensor(&b, "w", 1, (const uint64_t[]){1}, 0, 32);
    put_padding(&b, 32), put_padding(&b, 32), put_number(&b, 0, 8), put_padding(&b, 32), put_number(&b, 0, 8);
    assert_refused_cheaply(&b, HEED_FORMAT, "tensor w stands there twice");
    put_start(&b, 3, 2, 0);
    put_tensor(&b, "v", 1, (const uint64_t[]){16}, 0, 0);
    put_tensor(&b, "w", 1, (const uint64_t[]){1}, 0, 32);
    put_padding(&b, 32), put(&b, (char[128]){0}, 128);
    assert_refused_cheaply(&b, HEED_FORMAT, "tensor w overlaps tensor v");
    put_start(&b, 3, 1, 0);
    put_tensor(&b, "w", 1, (const uint64_t[]){1}, 0, 4);
    put_padding(&b, 32), put(&b, (char[128]){0}, 128);
    assert_refused_cheaply(&b, HEED_FORMAT,
                           "tensor w begins at byte 4 of the data: a multiple of 32 is needed");
    put_start(&b, 3, 1, 0);
    put_tensor(&b, "w", 1, (const uint64_t[]){33}, 8, 0);
    put_padding(&b, 32), put(&b, (char[128]){0}, 128);
    assert_refused_cheaply(&b, HEED_FORMAT, "tensor w has rows of 33 numbers: Q8_0 needs multiples of 32");
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    bytes b = {0};
    put_small_model(&b, 3);
    for (size_t size = 4; size < b.size; size++) {
        const bytes cut = {b.data, size, size};
        assert_refused(&cut, HEED_FORMAT, "");
        if (!strstr(heed_message(), "truncated") && !strstr(heed_message(), "no room"))
            fail_msg("%zu of %zu bytes: %s", size, b.size, heed_message());
    }
    const bytes cut = {b.data, b.size - 10, b.size - 10};
    char words[200];
    snprintf(words, sizeof words,
             "it should have %zu bytes and has %zu; the first tensor that is not whole is b.weight", b.size,
             cut.size);
    /* 10 bytes take all of c.bias and the padding before it */
    const bytes shorter = {b.data, b.size - 40, b.size - 40};
    assert_refused(&shorter, HEED_FORMAT, "the first tensor that is not whole is b.weight");
    assert_refused(&cut, HEED_FORMAT, "the first tensor that is not whole is c.bias");
    snprintf(words, sizeof words, "it should have %zu bytes and has %zu", b.size, cut.size);
    assert_refused(&cut, HEED_FORMAT, words);
    bytes_free(&b);
}

/* Whatever is read of a tensor lies in the file. */
static void read_all(const heed_model_file *file)
{
    static volatile unsigned sum; /* so that no read is left out */
    for (int i = 0; i < heed_model_file_tensors(file); i++) {
        const heed_model_tensor *tensor = heed_model_file_tensor(file, i);
        const unsigned char *data = tensor->tensor.data;
        for (size_t j = 0; j < tensor->bytes; j++)
            sum += data[j];
    }
}

static void every_bit_may_be_wrong_without_harm(void **state)
{
    (void)state;
    bytes b = {0};
    int read = 0;
    put_small_model(&b, 3);
    for (size_t bit = 0; bit < 8 * b.size; bit++) {
        heed_model_file *file;
        unsigned char *copy = malloc(b.size);
        memcpy(copy, b.data, b.size);
        copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (heed_gguf_parse(&file, copy, b.size, "x.gguf") == HEED_OK) {
            read_all(file);
            read++;
        } else if (strncmp(heed_message(), "x.gguf: ", 8)) {
            fail_msg("bit %zu: %s", bit, heed_message());
        }
        heed_model_file_close(file);
        free(copy);
    }
    assert_true(read > 0);
    bytes_free(&b);
}

static void tensors_may_be_empty_or_without_dimensions(void **state)
{
    (void)state;
    bytes b = {0};
    heed_model_file *file;
    void *copy;
    put_start(&b, 3, 3, 0);
    put_tensor(&b, "scalar", 0, NULL, 0, 0);
    put_tensor(&b, "empty", 2, (const uint64_t[]){0, UINT64_MAX >> 1}, 0, 32);
    put_tensor(&b, "last", 1, (const uint64_t[]){2}, 0, 32);
    put_padding(&b, 32);
    put_float(&b, 7.0f);
    put_padding(&b, 32);
    put_float(&b, 8.0f), put_float(&b, 9.0f);
    if (parse_copy(&file, b.data, b.size, &copy))
        fail_msg("%s", heed_message());
    assert_true(*(float *)heed_model_file_find(file, "scalar")->tensor.data == 7.0f);
    assert_int_equal(heed_model_file_find(file, "empty")->bytes, 0);
    assert_true(((float *)heed_model_file_find(file, "last")->tensor.data)[1] == 9.0f);
    heed_model_file_close(file);
    free(copy);
    bytes_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_versions_are_read),
        cmocka_unit_test(types_have_the_sizes_of_the_format),
        cmocka_unit_test(claims_of_enormous_sizes_are_refused_at_once),
        cmocka_unit_test(wrong_files_are_refused_with_the_reason),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_bit_may_be_wrong_without_harm),
        cmocka_unit_test(tensors_may_be_empty_or_without_dimensions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
