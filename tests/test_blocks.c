/* Block formats of GGUF: reading against the published definition (golden/make_blocks.py), writing by the
 * error it leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"
#include "support/random.h"
#include "tensor/block.h"

#define EACH_FORMAT(format)                                                                                  \
    for (int type = 0; type < HEED_TYPES; type++)                                                            \
        for (const heed_block_format *format = heed_block_format_of((heed_type)type); format; format = NULL)

static golden open_golden(const heed_block_format *format)
{
    golden g;
    char path[512];
    snprintf(path, sizeof path, "%s/golden/blocks/%s.safetensors", HEED_TEST_DATA,
             heed_type_name(format->type));
    assert_true(golden_read(&g, path));
    return g;
}

static void every_format_reads_as_published(void **state)
{
    (void)state;
    int formats = 0;
    EACH_FORMAT(format)
    {
        golden g = open_golden(format);
        const golden_tensor *blocks = golden_find(&g, "blocks"), *values = golden_find(&g, "values");
        assert_int_equal(blocks->shape[1], format->bytes);
        assert_int_equal(values->shape[1], format->values);
        float *x = malloc((size_t)values->count * sizeof *x);
        heed_load(format->type, blocks->data, x, values->count);
        for (int64_t i = 0; i < values->count; i++) {
            float right;
            memcpy(&right, (const char *)values->data + (size_t)i * sizeof right, sizeof right);
            if (memcmp(&x[i], &right, sizeof right) != 0)
                fail_msg("%s: value %lld is %.9g, not %.9g", heed_type_name(format->type), (long long)i, x[i],
                         right);
        }
        free(x);
        golden_free(&g);
        formats++;
    }
    assert_int_equal(formats, 13);
}

static void blocks_taken_apart_go_together_again(void **state)
{
    (void)state;
    test_random random = {7};
    EACH_FORMAT(format)
    for (int run = 0; run < 500; run++) {
        uint8_t block[256] = {0}, back[256];
        heed_block_parts parts;
        for (int i = 0; i < format->bytes; i++)
            block[i] = (uint8_t)random_bits(&random);
        memset(back, 0xaa, sizeof back);
        memset(&parts, 0x55, sizeof parts);
        format->take(block, &parts);
        format->put(&parts, back);
        assert_memory_equal(block, back, (size_t)format->bytes);
        assert_int_equal(back[format->bytes], 0xaa);
    }
}

static double squared_error(heed_type type, const float *x, int64_t n)
{
    uint8_t *stored = malloc((size_t)heed_type_bytes(type, n));
    float *back = malloc((size_t)n * sizeof *back);
    heed_store(type, x, stored, n);
    heed_load(type, stored, back, n);
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)back[i] - x[i]) * ((double)back[i] - x[i]);
    free(stored);
    free(back);
    return sum / (double)n;
}

static void stored_values_are_nearer_than_the_published_way_stores_them(void **state)
{
    (void)state;
    int compared = 0;
    EACH_FORMAT(format)
    {
        golden g = open_golden(format);
        const golden_tensor *floats = golden_find(&g, "floats");
        /* q8 and q4 are stored the quick way on purpose */
        if (floats && format->type != HEED_Q8 && format->type != HEED_Q4) {
            float published;
            memcpy(&published, golden_find(&g, "stored")->data, sizeof published);
            const double error = squared_error(format->type, floats->data, floats->count);
            if (!(error <= 0.97 * (double)published))
                fail_msg("%s leaves a mean squared error of %g, the published way %g",
                         heed_type_name(format->type), error, (double)published);
            compared++;
        }
        golden_free(&g);
    }
    assert_int_equal(compared, 4);
}

/* The error of levels spread evenly from the least to the greatest value of each group, with scales not
 * rounded. */
static double even_error(const heed_block_format *format, const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i += format->group) {
        double low = x[i], high = x[i];
        for (int j = 1; j < format->group; j++) {
            low = fmin(low, x[i + j]);
            high = fmax(high, x[i + j]);
        }
        if (format->sub.most_offset == 0)
            low = -(high = fmax(high, -low));
        const double step = (high - low) / ((1 << format->bits) - 1);
        sum += step * step / 12 * format->group;
    }
    return sum / (double)n;
}

static void stored_values_are_as_near_as_levels_spread_evenly(void **state)
{
    (void)state;
    enum { N = 256 * 64 };
    float *x = malloc(N * sizeof *x);
    test_random random = {11};
    EACH_FORMAT(format)
    {
        const float size = ldexpf(1.0f, (int)random_whole(&random, -9, 9));
        for (int i = 0; i < N; i++)
            x[i] = size * (float)random_normal(&random);
        const double error = squared_error(format->type, x, N), even = even_error(format, x, N);
        /* MXFP4's scale is a power of two, up to sqrt(2) from the best; q4 has its scale from one value */
        const double most = format->type == HEED_MXFP4 ? 1.8 : format->type == HEED_Q4 ? 1.25 : 1.1;
        if (!(error <= most * even))
            fail_msg("%s leaves a mean squared error of %g, %g times that of even levels",
                     heed_type_name(format->type), error, error / even);
    }
    free(x);
}

static void a_block_that_holds_a_nan_reads_as_nan(void **state)
{
    (void)state;
    static const float wrong[] = {NAN, INFINITY, -INFINITY, 1e30f};
    EACH_FORMAT(format)
    for (int w = 0; w < 4; w++) {
        float x[512], back[512];
        uint8_t stored[1024];
        for (int i = 0; i < 512; i++)
            x[i] = (float)(i % 7) - 3.0f;
        x[5] = wrong[w];
        heed_store(format->type, x, stored, 512);
        heed_load(format->type, stored, back, 512);
        for (int i = 0; i < format->values && format->type != HEED_MXFP4; i++)
            assert_true(back[i] != back[i]);
        assert_true(fabsf(back[format->values]) <= 4.0f);
    }
}

static void zeros_stay_zeros_and_equal_values_stay_near(void **state)
{
    (void)state;
    EACH_FORMAT(format)
    {
        float x[256] = {0}, back[256];
        uint8_t stored[512];
        heed_store(format->type, x, stored, 256);
        heed_load(format->type, stored, back, 256);
        for (int i = 0; i < 256; i++)
            assert_true(back[i] == 0.0f);
        for (int sign = -1; sign <= 1; sign += 2) {
            for (int i = 0; i < 256; i++)
                x[i] = (float)sign * 0.37f;
            heed_store(format->type, x, stored, 256);
            heed_load(format->type, stored, back, 256);
            for (int i = 0; i < 256; i++)
                if (fabsf(back[i] - x[i]) > (format->type == HEED_MXFP4 ? 0.07f : 0.004f))
                    fail_msg("%s: %g reads back as %g", heed_type_name(format->type), x[i], back[i]);
        }
    }
}

static void a_short_last_block_is_padded_with_zeros(void **state)
{
    (void)state;
    EACH_FORMAT(format)
    {
        const int n = format->values + 9;
        float x[512] = {0}, back[512];
        uint8_t stored[512] = {0}, padded[512];
        for (int i = 0; i < n; i++)
            x[i] = sinf((float)i);
        const int64_t bytes = heed_type_bytes(format->type, n);
        assert_int_equal(bytes, 2 * format->bytes);
        stored[bytes] = 0x77;
        heed_store(format->type, x, stored, n);
        heed_store(format->type, x, padded, 2 * format->values);
        assert_memory_equal(stored, padded, (size_t)bytes);
        assert_int_equal(stored[bytes], 0x77);
        back[n] = 77.0f;
        heed_load(format->type, stored, back, n);
        assert_true(back[n] == 77.0f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_reads_as_published),
        cmocka_unit_test(blocks_taken_apart_go_together_again),
        cmocka_unit_test(stored_values_are_nearer_than_the_published_way_stores_them),
        cmocka_unit_test(stored_values_are_as_near_as_levels_spread_evenly),
        cmocka_unit_test(a_block_that_holds_a_nan_reads_as_nan),
        cmocka_unit_test(zeros_stay_zeros_and_equal_values_stay_near),
        cmocka_unit_test(a_short_last_block_is_padded_with_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
