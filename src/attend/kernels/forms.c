/* The table of forms in the build for one instruction set: each stage's table.h lists its forms, one a line.
 */
#include "attend/kernels/isa.h"

#include <heed/form.h>

#define HEED_ENTRY(name) extern const heed_form HEED_FORM(name);
#include "attend/cache/table.h"
#include "attend/heads/table.h"
#include "attend/normalise/table.h"
#include "attend/position/table.h"
#include "attend/read/table.h"
#include "attend/score/table.h"
#include "attend/select/table.h"
#include "attend/where/table.h"
#include "scan/forms/table.h"
#undef HEED_ENTRY
/* layers are graphs, the same for all instruction sets */
#define HEED_ENTRY(name) extern const heed_form heed_layer_form_##name;
#include "nn/layers/table.h"
#undef HEED_ENTRY
#define HEED_ENTRY(name) extern const heed_form heed_lowrank_form_##name;
#include "lowrank/table.h"
#undef HEED_ENTRY

#define HEED_ENTRY(name) &HEED_FORM(name),
static const heed_form *const score[] = {
#include "attend/score/table.h"
    NULL};
static const heed_form *const position[] = {
#include "attend/position/table.h"
    NULL};
static const heed_form *const where[] = {
#include "attend/where/table.h"
    NULL};
static const heed_form *const select[] = {
#include "attend/select/table.h"
    NULL};
static const heed_form *const normalise[] = {
#include "attend/normalise/table.h"
    NULL};
static const heed_form *const heads[] = {
#include "attend/heads/table.h"
    NULL};
static const heed_form *const read[] = {
#include "attend/read/table.h"
    NULL};
static const heed_form *const cache[] = {
#include "attend/cache/table.h"
    NULL};
static const heed_form *const scan[] = {
#include "scan/forms/table.h"
    NULL};
#undef HEED_ENTRY
#define HEED_ENTRY(name) &heed_layer_form_##name,
static const heed_form *const layer[] = {
#include "nn/layers/table.h"
    NULL};
#undef HEED_ENTRY
#define HEED_ENTRY(name) &heed_lowrank_form_##name,
static const heed_form *const lowrank[] = {
#include "lowrank/table.h"
    NULL};

const heed_form *const *const heed_form_table[HEED_STAGES] = {
    score, position, where, select, normalise, heads, read, scan, lowrank, cache, layer};
