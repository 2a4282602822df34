/* How keys and values are stored: the name of each form is that of a tensor type, and the kernels read all of
 * them. Keys are stored as they were given, before anything rotates them.
 *
 * A q8 block holds 32 entries of a row as whole numbers times max|x| / 127, a q4 block as 16 levels times
 * x_max / -8, x_max being the entry of largest magnitude; the scales are f16.
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
