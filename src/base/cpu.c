/* Processor features, cores and names, and the choice of an instruction set. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(HEED_HAVE_AVX2) || defined(HEED_HAVE_AVX512)
#include <cpuid.h>
#define CPU_HAS(feature) (__builtin_cpu_supports(feature) != 0)

/* Conversion of half floats, for which not every compiler's builtin has a name. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
#else
#define CPU_HAS(feature) false
#endif

static const char *const isa_names[] = {"auto", "portable", "avx2", "avx512", "neon"};
enum { ISAS = sizeof isa_names / sizeof *isa_names };

const char *heed_isa_name(heed_isa isa)
{
    return (unsigned)isa < ISAS ? isa_names[isa] : NULL;
}

bool heed_isa_from_name(const char *name, heed_isa *isa)
{
    for (int i = 0; name && i < ISAS; i++)
        if (!strcmp(name, isa_names[i])) {
            *isa = (heed_isa)i;
            return true;
        }
    return false;
}

bool heed_isa_available(heed_isa isa)
{
    switch (isa) {
    case HEED_ISA_AUTO:
    case HEED_ISA_PORTABLE:
        return true;
    case HEED_ISA_AVX2:
#ifdef HEED_HAVE_AVX2
        return CPU_HAS("avx2") && CPU_HAS("fma") && has_f16c();
#else
        return false;
#endif
    case HEED_ISA_AVX512:
#ifdef HEED_HAVE_AVX512
        return CPU_HAS("avx512f") && CPU_HAS("avx512bw") && CPU_HAS("avx512vl") && CPU_HAS("avx512dq") &&
               CPU_HAS("fma") && has_f16c();
#else
        return false;
#endif
    case HEED_ISA_NEON:
#ifdef HEED_HAVE_NEON
        return true; /* every 64-bit ARM has it */
#else
        return false;
#endif
    }
    return false;
}

bool heed_cpu_has_avx512_bf16(void)
{
    return CPU_HAS("avx512bf16");
}

bool heed_cpu_has_avx512_vnni(void)
{
    return CPU_HAS("avx512vnni");
}

/* "portable, avx2 or avx512" */
static const char *available_list(char *text, size_t size)
{
    size_t used = 0;
    int left = 0;
    for (int i = HEED_ISA_PORTABLE; i < ISAS; i++)
        left += heed_isa_available((heed_isa)i);
    text[0] = 0;
    for (int i = HEED_ISA_PORTABLE; i < ISAS && used < size; i++)
        if (heed_isa_available((heed_isa)i)) {
            left--;
            const char *separator = left > 1 ? ", " : left == 1 ? " or " : "";
            used += (size_t)snprintf(text + used, size - used, "%s%s", isa_names[i], separator);
        }
    return text;
}

static heed_isa best_isa(void)
{
    static const heed_isa order[] = {HEED_ISA_AVX512, HEED_ISA_AVX2, HEED_ISA_NEON};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (heed_isa_available(order[i]))
            return order[i];
    return HEED_ISA_PORTABLE;
}

heed_status heed_isa_resolve(heed_isa wanted, heed_isa *isa)
{
    char list[64];
    const char *origin = "isa";
    if ((unsigned)wanted >= ISAS)
        return heed_fail(HEED_INVALID, "%d is no instruction set: %s can be had here", (int)wanted,
                         available_list(list, sizeof list));
    if (wanted == HEED_ISA_AUTO) {
        const char *name = getenv("HEED_ISA");
        if (name && *name) {
            origin = "HEED_ISA";
            if (!heed_isa_from_name(name, &wanted))
                return heed_fail(HEED_INVALID, "HEED_ISA=%.40s: unknown instruction set; %s can be had here",
                                 name, available_list(list, sizeof list));
        }
    }
    if (!heed_isa_available(wanted))
        return heed_fail(HEED_UNSUPPORTED, "%s=%s: this processor or this build lacks it; %s can be had here",
                         origin, isa_names[wanted], available_list(list, sizeof list));
    *isa = wanted == HEED_ISA_AUTO ? best_isa() : wanted;
    return HEED_OK;
}

/* First number in a file such as thread_siblings_list ("0,64" or "0-1"); -1 when there is none. */
static int first_number(const char *path)
{
    FILE *file = fopen(path, "r");
    int number = -1;
    if (file) {
        if (fscanf(file, "%d", &number) != 1)
            number = -1;
        fclose(file);
    }
    return number;
}

/* The lowest numbered hardware thread of the core that `cpu` belongs to; `cpu` itself where the system does
 * not tell. */
static int core_leader(int cpu)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    const int leader = first_number(path);
    return leader >= 0 ? leader : cpu;
}

/* Among the hardware threads that this process may use, how many numbers `name` gives them; at least 1. */
static int count_allowed(int (*name)(int cpu))
{
    const long configured = sysconf(_SC_NPROCESSORS_CONF);
    const int most = configured > CPU_SETSIZE ? (int)configured : CPU_SETSIZE;
    const size_t bytes = CPU_ALLOC_SIZE(most);
    cpu_set_t *allowed = CPU_ALLOC(most), *named = CPU_ALLOC(most);
    int count = 0;
    if (allowed && named && sched_getaffinity(0, bytes, allowed) == 0) {
        CPU_ZERO_S(bytes, named);
        for (int cpu = 0; cpu < most; cpu++)
            if (CPU_ISSET_S(cpu, bytes, allowed))
                CPU_SET_S(name(cpu), bytes, named);
        count = CPU_COUNT_S(bytes, named);
    }
    CPU_FREE(allowed);
    CPU_FREE(named);
    if (count < 1)
        count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count;
}

int heed_cpu_physical_cores(void)
{
    return count_allowed(core_leader);
}

static int same(int cpu)
{
    return cpu;
}

int heed_cpu_threads(void)
{
    return count_allowed(same);
}

const char *heed_cpu_name(char *text, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];
    snprintf(text, size, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon)
            continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(text, size, "%s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    if (file)
        fclose(file);
    return text;
}
