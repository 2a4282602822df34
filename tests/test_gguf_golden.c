/* The two GGUF files that models/get fetches, byte for byte as the Python package gguf reads them. */
#include "support/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <heed/heed.h>
#include <inttypes.h>
#include <model/file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CRC-32 of ISO 3309, as zlib computes it; goes on from `crc`, 0 at first. */
static uint32_t crc32_of(uint32_t crc, const void *data, size_t size)
{
    static uint32_t table[256];
    const unsigned char *bytes = data;
    if (!table[1])
        for (uint32_t i = 0; i < 256; i++) {
            table[i] = i;
            for (int bit = 0; bit < 8; bit++)
                table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
        }
    crc = ~crc;
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 255];
    return ~crc;
}

/* Name of the kind, number of entries and checksum, as make_gguf.py writes them. */
static void describe_meta(const heed_meta *meta, char *text, size_t size)
{
    static const char *const kinds[] = {"none", "int", "float", "bool", "text", "ints", "floats", "texts"};
    int64_t count = 1;
    uint32_t crc = 0;
    const float number = (float)meta->number;
    switch (meta->kind) {
    case HEED_META_INT:
    case HEED_META_BOOL:
        crc = crc32_of(0, &meta->whole, 8);
        break;
    case HEED_META_FLOAT:
        crc = crc32_of(0, &number, 4);
        break;
    case HEED_META_TEXT:
        count = meta->size;
        crc = crc32_of(0, meta->text, (size_t)count + 1);
        break;
    case HEED_META_INTS:
        count = meta->size;
        crc = crc32_of(0, meta->wholes, (size_t)count * 8);
        break;
    case HEED_META_FLOATS:
        count = meta->size;
        crc = crc32_of(0, meta->numbers, (size_t)count * 4);
        break;
    case HEED_META_TEXTS:
        count = meta->size;
        for (int64_t i = 0; i < count; i++)
            crc = crc32_of(crc, meta->texts[i], (size_t)meta->text_size[i] + 1);
        break;
    case HEED_META_NONE:
        count = 0;
    }
    snprintf(text, size, "key %s %s %" PRId64 " %08x", meta->key, kinds[meta->kind], count, crc);
}

static void describe_tensor(const heed_model_tensor *tensor, char *text, size_t size)
{
    int used = snprintf(text, size, "tensor %s %s %zu %08x", tensor->name, tensor->dtype, tensor->bytes,
                        crc32_of(0, tensor->tensor.data, tensor->bytes));
    for (int i = 0; i < tensor->rank; i++)
        used += snprintf(text + used, size - (size_t)used, " %" PRId64, tensor->shape[i]);
}

static void assert_as_golden(const char *name)
{
    char path[400], line[600], text[600];
    heed_model_file *file;
    int metas = 0, tensors = 0;
    snprintf(path, sizeof path, "%s.gguf", name);
    const char *model = fetched_model(path);
    if (!model)
        skip();
    if (heed_model_file_open(&file, model))
        fail_msg("%s", heed_message());
    snprintf(path, sizeof path, HEED_TEST_DATA "/golden/gguf_%s.txt", name);
    FILE *golden = fopen(path, "r");
    assert_non_null(golden);
    while (fgets(line, sizeof line, golden)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "key ", 4)) {
            assert_true(metas < heed_model_file_metas(file));
            describe_meta(heed_model_file_meta_at(file, metas++), text, sizeof text);
        } else {
            assert_true(tensors < heed_model_file_tensors(file));
            describe_tensor(heed_model_file_tensor(file, tensors++), text, sizeof text);
        }
        assert_string_equal(text, line);
    }
    fclose(golden);
    assert_int_equal(metas, heed_model_file_metas(file));
    assert_int_equal(tensors, heed_model_file_tensors(file));
    heed_model_file_close(file);
}

static void smollm2_is_read_as_the_reference_reads_it(void **state)
{
    (void)state;
    assert_as_golden("smollm2");
}

static void gemma3_is_read_as_the_reference_reads_it(void **state)
{
    (void)state;
    assert_as_golden("gemma3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm2_is_read_as_the_reference_reads_it),
        cmocka_unit_test(gemma3_is_read_as_the_reference_reads_it),
    };
    if (!fetched_model("smollm2.gguf") && !fetched_model("gemma3.gguf"))
        return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
