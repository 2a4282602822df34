/* How keys and values are stored: the name of each form is that of a tensor type, and the kernels read all of
 * them. Keys are stored as they were given, before anything rotates them.
 *
 * A q8 block holds 32 entries of a row as whole numbers times max|x| / 127, a q4 block as 16 levels times
 * x_max / -8, x_max being the entry of largest magnitude; q3 and q2 blocks as 8 and 4 levels between a
 * minimum and a maximum. Scales and minima are f16. `rotated` stores rows that a Walsh-Hadamard matrix has
 * spread first, as QuaRot does (Ashkboos et al. 2024): queries are turned the same way, and what comes out is
 * turned back.
 */
#include "attend/form.h"

const heed_form HEED_FORM(cache_f32) = {
    .name = "f32",
    .stage = HEED_CACHE,
    .summary = "keys and values as 32-bit floats",
    .formula = "4 bytes an entry",
};

const heed_form HEED_FORM(cache_f16) = {
    .name = "f16",
    .stage = HEED_CACHE,
    .summary = "keys and values as half precision floats",
    .formula = "2 bytes an entry",
};

const heed_form HEED_FORM(cache_bf16) = {
    .name = "bf16",
    .stage = HEED_CACHE,
    .summary = "keys and values as 32-bit floats without their lower half",
    .formula = "2 bytes an entry",
};

const heed_form HEED_FORM(cache_q8) = {
    .name = "q8",
    .stage = HEED_CACHE,
    .summary = "keys and values in blocks of 32 signed bytes with one scale",
    .formula = "x = n max|x|/127, 34 bytes for 32 entries",
};

const heed_form HEED_FORM(cache_q4) = {
    .name = "q4",
    .stage = HEED_CACHE,
    .summary = "keys and values in blocks of 32 half bytes with one scale",
    .formula = "x = (n - 8) x_max/-8, 18 bytes for 32 entries",
};

const heed_form HEED_FORM(cache_q3) = {
    .name = "q3",
    .stage = HEED_CACHE,
    .summary = "keys and values in blocks of 32 three-bit levels with a scale and a minimum",
    .formula = "x = minimum + scale n, n = 0..7, 16 bytes for 32 entries",
};

const heed_form HEED_FORM(cache_q2) = {
    .name = "q2",
    .stage = HEED_CACHE,
    .summary = "keys and values in blocks of 32 two-bit levels with a scale and a minimum",
    .formula = "x = minimum + scale n, n = 0..3, 12 bytes for 32 entries",
};

static const heed_option types[] = {{"f32", NULL}, {"f16", NULL}, {"bf16", NULL}, {"q8", NULL},
                                    {"q4", NULL},  {"q3", NULL},  {"q2", NULL},   {"rq8", NULL},
                                    {"rq4", NULL}, {"rq3", NULL}, {"rq2", NULL},  {0}};
static const heed_option block_types[] = {{"q8", NULL}, {"q4", NULL}, {"q3", NULL}, {"q2", NULL}, {0}};

static const heed_arg any_type[] = {
    {.name = "type",
     .kind = HEED_ARG_CHOICE,
     .value = -1,
     .required = true,
     .options = types,
     .summary = "a storage type; rq8 is a rotated q8, and so on"},
    {0},
};

static const heed_arg block_type[] = {
    {.name = "type",
     .kind = HEED_ARG_CHOICE,
     .value = 1,
     .options = block_types,
     .summary = "blocks in which the rotated rows are stored"},
    {0},
};

const heed_form HEED_FORM(cache_keys) = {
    .name = "keys",
    .stage = HEED_CACHE,
    .summary = "how keys are stored, whatever values are",
    .formula = "the type's",
    .args = any_type,
};

const heed_form HEED_FORM(cache_values) = {
    .name = "values",
    .stage = HEED_CACHE,
    .summary = "how values are stored, whatever keys are",
    .formula = "the type's",
    .args = any_type,
};

const heed_form HEED_FORM(cache_rotated) = {
    .name = "rotated",
    .stage = HEED_CACHE,
    .summary = "rows of keys and values rotated by a Walsh-Hadamard matrix, then in blocks",
    .formula = "x W in blocks, W_ij = (-1)^|bits of i and j|/sqrt(D); q.k = (q W).(k W), out = (w v W) W",
    .source = "Ashkboos et al. 2024",
    .row = "001.026",
    .args = block_type,
};
