/* Stored types against definitions written in double precision, without the bit arithmetic of the library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <heed/heed.h>

/* The value of an f16 from its fields; NaN and inf for exponent 31. */
static double f16_value(uint16_t h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const double sign = h & 0x8000 ? -1.0 : 1.0;
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static double bf16_value(uint16_t b)
{
    const int exponent = b >> 7 & 255, fraction = b & 127;
    const double sign = b & 0x8000 ? -1.0 : 1.0;
    if (exponent == 255)
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(128 + fraction, exponent - 134) : ldexp(fraction, -133));
}

/* Nearest of the sorted non-negative values 0..infinity_code, ties to the even code. Infinity stands one step
 * above the largest finite value, as the rule of rounding has it. */
static uint16_t nearest(double (*value)(uint16_t), uint16_t infinity_code, double x)
{
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const double size = fabs(x), largest = value(infinity_code - 1);
    const double beyond = largest + (largest - value(infinity_code - 2));
    if (size >= beyond)
        return sign | infinity_code;
    uint16_t low = 0, high = infinity_code; /* value(low) <= size < value(high) */
    while (high - low > 1) {
        const uint16_t middle = (uint16_t)((low + high) / 2);
        if (value(middle) <= size)
            low = middle;
        else
            high = middle;
    }
    const double above = high == infinity_code ? beyond : value(high);
    const double to_low = size - value(low), to_high = above - size;
    return sign | (to_low < to_high || (to_low == to_high && low % 2 == 0) ? low : high);
}

static uint16_t store_one(heed_type type, float x)
{
    uint16_t code;
    heed_store(type, &x, &code, 1);
    return code;
}

static uint64_t random_state = 88172645463325252u;

static uint32_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16);
}

static float random_float(void)
{
    return (float)random_bits() * 0x1p-31f - 1.0f;
}

static void assert_code(heed_type type, double (*value)(uint16_t), uint16_t infinity_code, float x)
{
    const uint16_t code = store_one(type, x), right = nearest(value, infinity_code, x);
    if (code != right)
        fail_msg("%s of %.9g (%a) is %04x, not %04x", heed_type_name(type), x, x, right, code);
}

static void every_16_bit_code_has_its_value_and_round_trips(void **state)
{
    (void)state;
    static uint16_t code[65536], back[65536];
    static float x[65536];
    for (int type = HEED_F16; type <= HEED_BF16; type++) {
        for (int i = 0; i < 65536; i++)
            code[i] = (uint16_t)i;
        heed_load((heed_type)type, code, x, 65536);
        heed_store((heed_type)type, x, back, 65536);
        for (int i = 0; i < 65536; i++) {
            const double right = type == HEED_F16 ? f16_value(code[i]) : bf16_value(code[i]);
            if (right != right) {
                assert_true(x[i] != x[i]);
                heed_load((heed_type)type, &back[i], &x[i], 1);
                assert_true(x[i] != x[i]);
                continue;
            }
            if ((double)x[i] != right || !signbit(x[i]) != !signbit(right))
                fail_msg("%04x reads as %a, not %a", i, x[i], right);
            assert_int_equal(back[i], code[i]);
        }
    }
}

static void rounding_is_to_nearest_with_ties_to_even(void **state)
{
    (void)state;
    /* every tie between neighbours of f16, and the floats beside it */
    for (int i = 0; i < 0x7c00; i++) {
        const double low = f16_value((uint16_t)i);
        const double high = i + 1 == 0x7c00 ? 65536.0 : f16_value((uint16_t)(i + 1));
        const float tie = (float)((low + high) / 2);
        const float near[] = {tie, nextafterf(tie, 0.0f), nextafterf(tie, INFINITY), (float)low};
        for (int j = 0; j < 4; j++) {
            assert_code(HEED_F16, f16_value, 0x7c00, near[j]);
            assert_code(HEED_F16, f16_value, 0x7c00, -near[j]);
        }
    }
    for (int i = 0; i < 400000; i++) {
        uint32_t bits = random_bits();
        if (i % 4 == 0)
            bits = (bits & 0xffff0000u) | 0x8000u; /* a tie of bf16 */
        const float x = heed_float_from_bits(bits);
        if (x != x)
            continue;
        assert_code(HEED_F16, f16_value, 0x7c00, x);
        assert_code(HEED_BF16, bf16_value, 0x7f80, x);
        assert_code(HEED_F16, f16_value, 0x7c00, ldexpf(random_float(), (int)(random_bits() % 44) - 28));
    }
}

static void nan_and_infinity_survive_16_bits(void **state)
{
    (void)state;
    const uint32_t nans[] = {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0x7fffffffu, 0xff80ffffu};
    for (int type = HEED_F16; type <= HEED_BF16; type++) {
        for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
            const uint16_t code = store_one((heed_type)type, heed_float_from_bits(nans[i]));
            float x;
            heed_load((heed_type)type, &code, &x, 1);
            assert_true(x != x);
        }
        for (int sign = -1; sign <= 1; sign += 2) {
            const uint16_t code = store_one((heed_type)type, (float)sign * INFINITY);
            float x;
            heed_load((heed_type)type, &code, &x, 1);
            assert_true(x == (float)sign * INFINITY);
        }
    }
}

/* Each value must be the level of the stored scale that lies nearest to x, which only brute force decides
 * here. */
static void assert_nearest_levels(heed_type type, const float x[HEED_BLOCK], int least, int most)
{
    uint8_t block[34];
    float back[HEED_BLOCK], largest = 0.0f;
    heed_store(type, x, block, HEED_BLOCK);
    heed_load(type, block, back, HEED_BLOCK);
    uint16_t h;
    memcpy(&h, block, 2);
    for (int i = 0; i < HEED_BLOCK; i++)
        largest = fabsf(x[i]) > fabsf(largest) ? x[i] : largest;
    const float scale = type == HEED_Q8 ? fabsf(largest) / 127.0f : largest / -8.0f;
    assert_int_equal(h, nearest(f16_value, 0x7c00, scale));
    const double d = f16_value(h);
    for (int i = 0; i < HEED_BLOCK; i++) {
        double best = INFINITY;
        bool is_level = false;
        for (int n = least; n <= most; n++) {
            best = fmin(best, fabs(x[i] - d * n));
            is_level |= back[i] == (float)(d * n);
        }
        if (!is_level || fabs(x[i] - (double)back[i]) > best + 1e-6 * fabs(d))
            fail_msg("%s: %.9g reads back as %.9g; scale %g, nearest level at %g", heed_type_name(type), x[i],
                     back[i], d, best);
    }
}

static void blocks_hold_the_nearest_levels(void **state)
{
    (void)state;
    for (int run = 0; run < 3000; run++) {
        float x[HEED_BLOCK];
        const int exponent = (int)(random_bits() % 40) - 25;
        for (int i = 0; i < HEED_BLOCK; i++)
            x[i] = run % 7 == 0 && i % 3 == 0 ? 0.0f : ldexpf(random_float(), exponent);
        assert_nearest_levels(HEED_Q8, x, -127, 127);
        assert_nearest_levels(HEED_Q4, x, -8, 7);
    }
    assert_nearest_levels(HEED_Q8, (float[HEED_BLOCK]){0}, -127, 127);
    assert_nearest_levels(HEED_Q4, (float[HEED_BLOCK]){0}, -8, 7);
}

static void blocks_are_laid_out_as_documented(void **state)
{
    (void)state;
    float x[HEED_BLOCK];
    uint8_t block[34];
    for (int i = 0; i < HEED_BLOCK; i++)
        x[i] = (float)(i - 16); /* -16..15; largest magnitude -16, so q4's scale is 2 */
    heed_store(HEED_Q4, x, block, HEED_BLOCK);
    assert_int_equal(block[0] | block[1] << 8, 0x4000);
    /* entry 1: -15/2 = -7.5, a tie, to the even level -8; entry 17: 1/2, to 0 */
    assert_int_equal(block[2], 0 | 8 << 4);
    assert_int_equal(block[3], 0 | 8 << 4);
    assert_int_equal(block[2 + 14], (8 - 1) | (8 + 7) << 4); /* entries 14 and 30: -2 and 14 */

    for (int i = 0; i < HEED_BLOCK; i++)
        x[i] = (float)(i == 5 ? -127 : i);
    heed_store(HEED_Q8, x, block, HEED_BLOCK);
    assert_int_equal(block[0] | block[1] << 8, 0x3c00);
    for (int i = 0; i < HEED_BLOCK; i++)
        assert_int_equal((int8_t)block[2 + i], i == 5 ? -127 : i);
}

static void short_last_block_is_padded_with_zeros(void **state)
{
    (void)state;
    float x[40], back[41];
    uint8_t q8[68], q4[36];
    for (int i = 0; i < 40; i++)
        x[i] = 1.0f + random_float() * 0.5f;
    memset(q8, 0xaa, sizeof q8);
    memset(q4, 0xaa, sizeof q4);
    heed_store(HEED_Q8, x, q8, 40);
    heed_store(HEED_Q4, x, q4, 40);
    for (int i = 8; i < HEED_BLOCK; i++) {
        assert_int_equal(q8[34 + 2 + i], 0);
        assert_int_equal(i < 16 ? q4[18 + 2 + i] & 15 : q4[18 + 2 + i - 16] >> 4, 8);
    }
    back[40] = 77.0f;
    heed_load(HEED_Q8, q8, back, 40);
    for (int i = 0; i < 40; i++)
        assert_true(fabsf(back[i] - x[i]) <= 1.5f / 127.0f * 0.51f);
    assert_true(back[40] == 77.0f);
    heed_load(HEED_Q4, q4, back, 40);
    for (int i = 0; i < 40; i++)
        assert_true(fabsf(back[i] - x[i]) <= 1.5f / 8.0f * 0.51f);
    assert_true(back[40] == 77.0f);
}

static void block_without_levels_reads_as_nan(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    for (int type = HEED_Q8; type <= HEED_Q4; type++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            float x[64] = {0}, back[64];
            uint8_t block[68];
            x[3] = bad[i];
            x[40] = 1.0f;
            heed_store((heed_type)type, x, block, 64);
            heed_load((heed_type)type, block, back, 64);
            for (int j = 0; j < HEED_BLOCK; j++)
                assert_true(back[j] != back[j]);
            assert_true(fabsf(back[40] - 1.0f) < 1e-3f && back[41] == 0.0f);
        }
}

static void whole_number_types_round_and_stay_in_range(void **state)
{
    (void)state;
    const float x[] = {2.5f, 3.5f, -1.0f, 300.0f, 3e9f, -3e9f};
    int32_t i32[6];
    uint8_t u8[6];
    float back[6];
    heed_store(HEED_I32, x, i32, 6);
    heed_store(HEED_U8, x, u8, 6);
    assert_int_equal(i32[0], 2);
    assert_int_equal(i32[1], 4);
    assert_int_equal(i32[4], INT32_MAX);
    assert_int_equal(i32[5], INT32_MIN);
    assert_int_equal(u8[2], 0);
    assert_int_equal(u8[3], 255);
    heed_load(HEED_I32, i32, back, 6);
    assert_true(back[2] == -1.0f);
    heed_load(HEED_U8, u8, back, 6);
    assert_true(back[1] == 4.0f);
}

static void sizes_are_checked_for_overflow(void **state)
{
    (void)state;
    size_t bytes;
    assert_int_equal(heed_type_bytes(HEED_Q8, 33), 68);
    assert_int_equal(heed_type_bytes(HEED_Q4, 32), 18);
    assert_int_equal(heed_type_bytes(HEED_F32, INT64_MAX / 2), -1);
    assert_int_equal(heed_type_bytes(HEED_F32, -1), -1);
    assert_int_equal(heed_tensor_bytes(HEED_F32, 3, (int64_t[]){2, 3, 4}, &bytes), HEED_OK);
    assert_int_equal(bytes, 96);
    assert_int_equal(heed_tensor_bytes(HEED_Q8, 2, (int64_t[]){3, 40}, &bytes), HEED_OK);
    assert_int_equal(bytes, 3 * 68);
    assert_int_equal(heed_tensor_bytes(HEED_F32, 3, (int64_t[]){1LL << 31, 1LL << 31, 4}, &bytes),
                     HEED_INVALID);
    assert_int_equal(heed_tensor_bytes(HEED_F32, 3, (int64_t[]){1LL << 40, 1LL << 40, 0}, &bytes), HEED_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(heed_tensor_bytes(HEED_F32, 2, (int64_t[]){-1, 0}, &bytes), HEED_INVALID);
    const heed_tensor dense = heed_tensor_dense(NULL, HEED_Q8, 3, (int64_t[]){2, 5, 40});
    assert_int_equal(dense.stride[1], 68);
    assert_int_equal(dense.stride[0], 5 * 68);
}

static void type_names_are_found_again(void **state)
{
    (void)state;
    heed_type type;
    for (int i = 0; i < HEED_TYPES; i++) {
        assert_true(heed_type_from_name(heed_type_name((heed_type)i), &type));
        assert_int_equal(type, i);
    }
    assert_false(heed_type_from_name("F32", &type));
    assert_null(heed_type_name(HEED_TYPES));
}

/* ---- few levels, and rotation ---- */

/* A sum of uniform numbers, of mean 0 and variance 1. */
static double normal(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += random_bits() * 0x1p-32;
    return sum;
}

/* Each stored value is the level nearest to it of the line that the block holds, or lies beyond its ends. */
static void assert_levels_of_a_line(heed_type type, int bits, const float *x)
{
    uint8_t block[16];
    float back[HEED_BLOCK], scale, minimum, low = INFINITY, high = -INFINITY;
    uint16_t half[2];
    heed_store(type, x, block, HEED_BLOCK);
    heed_load(type, block, back, HEED_BLOCK);
    memcpy(half, block, sizeof half);
    heed_load(HEED_F16, half, &scale, 1);
    heed_load(HEED_F16, half + 1, &minimum, 1);
    const int most = (1 << bits) - 1;
    for (int i = 0; i < HEED_BLOCK; i++) {
        const int n =
            (block[4 + i % 8] >> (i / 8 * 2) & 3) | (bits == 3 ? (block[12 + i / 8] >> i % 8 & 1) << 2 : 0);
        assert_true(n <= most);
        assert_float_equal(back[i], minimum + scale * (float)n, 0);
        const float end = fminf(fmaxf(x[i], minimum), minimum + scale * (float)most);
        assert_true(fabsf(back[i] - end) <= 0.5001f * scale);
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    assert_true(scale * (float)most >= 0.69f * (high - low)); /* the line spans most of the block */
}

static void few_levels_lie_on_a_line(void **state)
{
    (void)state;
    float x[HEED_BLOCK];
    for (int run = 0; run < 200; run++) {
        for (int i = 0; i < HEED_BLOCK; i++)
            x[i] = (float)(normal() * (run % 7 + 0.1) + run % 5);
        assert_levels_of_a_line(HEED_Q2, 2, x);
        assert_levels_of_a_line(HEED_Q3, 3, x);
    }
    for (int type = HEED_Q2; type <= HEED_Q3; type++) {
        uint8_t block[16];
        float back[HEED_BLOCK];
        x[3] = NAN;
        heed_store((heed_type)type, x, block, HEED_BLOCK);
        heed_load((heed_type)type, block, back, HEED_BLOCK);
        for (int i = 0; i < HEED_BLOCK; i++)
            assert_true(isnan(back[i]));
        for (int i = 0; i < HEED_BLOCK; i++)
            x[i] = -7.0f;
        heed_store((heed_type)type, x, block, HEED_BLOCK);
        heed_load((heed_type)type, block, back, HEED_BLOCK);
        for (int i = 0; i < HEED_BLOCK; i++)
            assert_true(back[i] == -7.0f);
    }
}

static double error_of(heed_type type, const float *x, int n)
{
    uint8_t row[2048];
    float back[256];
    double error = 0;
    heed_store(type, x, row, n);
    heed_load(type, row, back, n);
    for (int i = 0; i < n; i++)
        error += ((double)back[i] - x[i]) * ((double)back[i] - x[i]);
    return error;
}

/* Against the matrix written out: what is stored is the row times it. */
static void rotated_rows_are_stored_turned_and_come_back(void **state)
{
    (void)state;
    static const struct {
        int n, run;
    } sizes[] = {{64, 64}, {128, 128}, {96, 32}, {40, 8}, {7, 1}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int n = sizes[s].n, run = sizes[s].run;
        float x[256], turned[256], back[256], stored[256];
        uint8_t row[512], same[512];
        for (int i = 0; i < n; i++)
            x[i] = (float)normal();
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int i = 0; i < run; i++)
                sum += x[j / run * run + i] * (__builtin_popcount((unsigned)(i & (j % run))) % 2 ? -1 : 1);
            turned[j] = (float)(sum / sqrt(run));
        }
        heed_store(HEED_ROTATED_Q8, x, row, n);
        heed_store(HEED_Q8, turned, same, n);
        heed_load(HEED_Q8, row, stored, n);
        heed_load(HEED_Q8, same, back, n);
        for (int i = 0; i < n; i++) /* a level more or less where the sums round differently */
            assert_float_equal(stored[i], back[i], 0.03);
        heed_load(HEED_ROTATED_Q8, row, back, n);
        for (int i = 0; i < n; i++)
            assert_float_equal(back[i], x[i], 0.1);
        assert_int_equal(heed_type_bytes(HEED_ROTATED_Q2, n), heed_type_bytes(HEED_Q2, n));
    }
}

static void rotation_spreads_what_far_entries_hold(void **state)
{
    (void)state;
    float x[128];
    static const heed_type pairs[][2] = {{HEED_Q2, HEED_ROTATED_Q2}, {HEED_Q4, HEED_ROTATED_Q4}};
    for (int p = 0; p < 2; p++) {
        double plain = 0, rotated = 0;
        for (int run = 0; run < 50; run++) {
            for (int i = 0; i < 128; i++)
                x[i] = (float)normal() * (i % 8 == 3 ? 10.0f : 1.0f);
            plain += error_of(pairs[p][0], x, 128);
            rotated += error_of(pairs[p][1], x, 128);
        }
        if (!(rotated < 0.7 * plain))
            fail_msg("%s: %g, %s: %g", heed_type_name(pairs[p][0]), plain, heed_type_name(pairs[p][1]),
                     rotated);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_16_bit_code_has_its_value_and_round_trips),
        cmocka_unit_test(rounding_is_to_nearest_with_ties_to_even),
        cmocka_unit_test(nan_and_infinity_survive_16_bits),
        cmocka_unit_test(blocks_hold_the_nearest_levels),
        cmocka_unit_test(blocks_are_laid_out_as_documented),
        cmocka_unit_test(short_last_block_is_padded_with_zeros),
        cmocka_unit_test(block_without_levels_reads_as_nan),
        cmocka_unit_test(whole_number_types_round_and_stay_in_range),
        cmocka_unit_test(sizes_are_checked_for_overflow),
        cmocka_unit_test(type_names_are_found_again),
        cmocka_unit_test(few_levels_lie_on_a_line),
        cmocka_unit_test(rotated_rows_are_stored_turned_and_come_back),
        cmocka_unit_test(rotation_spreads_what_far_entries_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
