/* The tables of built-in forms, one set for each instruction set, and of combinations. All constant. */
#ifndef HEED_ATTEND_REGISTRY_H
#define HEED_ATTEND_REGISTRY_H

#include <heed/attend.h>

/* Forms of a stage in the build for `isa`, ended by NULL; the list of HEED_ISA_PORTABLE always exists. */
const heed_form *const *heed_registry_stage(heed_isa isa, heed_stage stage);

/* A form by name; NULL when there is none. */
const heed_form *heed_registry_find(heed_isa isa, heed_stage stage, const char *name);

/* Combinations, ended by name == NULL. */
extern const heed_combination heed_combinations[];

#endif
