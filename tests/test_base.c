/* Instruction sets, cores, and memory whose sizes are checked. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <base/arena.h>
#include <base/cpu.h>
#include <cmocka.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static void names_of_instruction_sets_are_found_again(void **state)
{
    (void)state;
    heed_isa isa;
    for (int i = HEED_ISA_AUTO; i <= HEED_ISA_NEON; i++) {
        assert_true(heed_isa_from_name(heed_isa_name((heed_isa)i), &isa));
        assert_int_equal(isa, i);
    }
    assert_false(heed_isa_from_name("AVX2", &isa));
    assert_false(heed_isa_from_name(NULL, &isa));
    assert_null(heed_isa_name((heed_isa)99));
    assert_true(heed_isa_available(HEED_ISA_PORTABLE));
}

static void the_environment_chooses_unless_the_caller_does(void **state)
{
    (void)state;
    heed_isa isa;
    setenv("HEED_ISA", "portable", 1);
    assert_int_equal(heed_isa_resolve(HEED_ISA_AUTO, &isa), HEED_OK);
    assert_int_equal(isa, HEED_ISA_PORTABLE);
    setenv("HEED_ISA", "sse9", 1);
    assert_int_equal(heed_isa_resolve(HEED_ISA_AUTO, &isa), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "HEED_ISA=sse9"));
    assert_non_null(strstr(heed_message(), "portable"));
    assert_int_equal(heed_isa_resolve(HEED_ISA_PORTABLE, &isa), HEED_OK);
    setenv("HEED_ISA", "", 1);
    assert_int_equal(heed_isa_resolve(HEED_ISA_AUTO, &isa), HEED_OK);
    assert_true(isa != HEED_ISA_AUTO && heed_isa_available(isa));
    unsetenv("HEED_ISA");
    for (int i = HEED_ISA_PORTABLE; i <= HEED_ISA_NEON; i++) {
        const heed_status status = heed_isa_resolve((heed_isa)i, &isa);
        assert_int_equal(status, heed_isa_available((heed_isa)i) ? HEED_OK : HEED_UNSUPPORTED);
        if (status == HEED_OK)
            assert_int_equal(isa, i);
    }
    assert_int_equal(heed_isa_resolve((heed_isa)99, &isa), HEED_INVALID);
}

static void cores_are_those_the_process_may_use(void **state)
{
    (void)state;
    cpu_set_t before, one;
    const int cores = heed_cpu_physical_cores();
    assert_true(cores >= 1);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_true(cores <= CPU_COUNT(&before));
    int first = 0;
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(heed_cpu_physical_cores(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(heed_cpu_physical_cores(), cores);
}

static void the_processor_has_a_name(void **state)
{
    (void)state;
    char name[100], shorter[4];
    assert_true(strlen(heed_cpu_name(name, sizeof name)) > 0);
    assert_true(strlen(heed_cpu_name(shorter, sizeof shorter)) <= 3);
}

static void memory_is_aligned_and_zero(void **state)
{
    (void)state;
    for (size_t size = 0; size < 300; size += 37) {
        unsigned char *memory = heed_allocate(3, size);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % HEED_ALIGNMENT, 0);
        for (size_t i = 0; i < 3 * size; i++)
            assert_int_equal(memory[i], 0);
        free(memory);
    }
    assert_null(heed_allocate(SIZE_MAX / 2, 3));
    assert_null(heed_allocate(SIZE_MAX, 1)); /* rounding up overflows */
}

static void an_arena_measures_and_then_carves_the_same(void **state)
{
    (void)state;
    heed_arena measure = {0};
    assert_null(heed_arena_take(&measure, 5, 3));
    assert_null(heed_arena_take(&measure, 0, 8));
    assert_null(heed_arena_take(&measure, 1, 65));
    assert_int_equal(measure.used, 64 + 0 + 128);
    heed_arena carve = {.base = heed_allocate(1, measure.used)};
    char *a = heed_arena_take(&carve, 5, 3), *b = heed_arena_take(&carve, 0, 8),
         *c = heed_arena_take(&carve, 1, 65);
    assert_true(a == carve.base && b == a + 64 && c == b);
    assert_int_equal(carve.used, measure.used);
    free(carve.base);
    assert_null(heed_arena_take(&measure, SIZE_MAX / 8, 16));
    assert_true(measure.overflow);
    heed_arena full = {.used = SIZE_MAX - 100};
    assert_null(heed_arena_take(&full, 1, 200));
    assert_true(full.overflow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_instruction_sets_are_found_again),
        cmocka_unit_test(the_environment_chooses_unless_the_caller_does),
        cmocka_unit_test(cores_are_those_the_process_may_use),
        cmocka_unit_test(the_processor_has_a_name),
        cmocka_unit_test(memory_is_aligned_and_zero),
        cmocka_unit_test(an_arena_measures_and_then_carves_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
