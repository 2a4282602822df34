/* The built-in forms: one table for each instruction set they were compiled for. */
#include "attend/registry.h"
#include "base/each_isa.h"

#include <string.h>

static const char *const stage_name[HEED_STAGES] = {
    [HEED_SCORE] = "score",   [HEED_POSITION] = "position",   [HEED_WHERE] = "where",
    [HEED_SELECT] = "select", [HEED_NORMALISE] = "normalise", [HEED_HEADS] = "heads",
    [HEED_READ] = "read",     [HEED_SCAN] = "scan",           [HEED_LOWRANK] = "lowrank",
    [HEED_CACHE] = "cache",   [HEED_LAYER] = "layer",
};

/* [stage][form], each list ended by NULL; see kernels/forms.c */
typedef const heed_form *const *const form_table[HEED_STAGES];

#define DECLARE(name, isa) extern form_table heed_form_table_##name;
HEED_EACH_ISA(DECLARE)

static const form_table *const table[] = {[HEED_ISA_AUTO] = NULL,
#define ENTRY(name, isa) [isa] = &heed_form_table_##name,
                                          HEED_EACH_ISA(ENTRY)};

const char *heed_stage_name(heed_stage stage)
{
    return (unsigned)stage < HEED_STAGES ? stage_name[stage] : NULL;
}

const heed_form *const *heed_registry_stage(heed_isa isa, heed_stage stage)
{
    const size_t tables = sizeof table / sizeof *table;
    if ((unsigned)isa >= tables || !table[isa] || (unsigned)stage >= HEED_STAGES)
        return NULL;
    return (*table[isa])[stage];
}

const heed_form *heed_registry_find(heed_isa isa, heed_stage stage, const char *name)
{
    const heed_form *const *form = heed_registry_stage(isa, stage);
    while (form && *form && strcmp((*form)->name, name))
        form++;
    return form ? *form : NULL;
}

void heed_forms_visit(void (*visit)(void *context, const heed_form *form), void *context)
{
    for (int stage = 0; stage < HEED_STAGES; stage++) {
        const heed_form *const *form = heed_registry_stage(HEED_ISA_PORTABLE, (heed_stage)stage);
        for (; form && *form; form++)
            visit(context, *form);
    }
}

void heed_combinations_visit(void (*visit)(void *context, const heed_combination *combination), void *context)
{
    for (const heed_combination *combination = heed_combinations; combination->name; combination++)
        visit(context, combination);
}
