/* Blocks of 32 values with a scale and a minimum: x = minimum + scale n, n of two or three bits.
 *
 *     q2: f16 scale, f16 minimum, 8 bytes; byte i holds n of values i, i + 8, i + 16, i + 24, lowest bits
 * first q3: the same with the lower two bits of n, then 4 bytes; bit i % 8 of byte i / 8 is the third of
 * value i
 */
#ifndef HEED_TENSOR_RANGE_H
#define HEED_TENSOR_RANGE_H

#include <heed/tensor.h>

enum { HEED_Q2_BYTES = 12, HEED_Q3_BYTES = 16 };

/* A block that holds a NaN, or values beyond the range of f16, reads back as NaN throughout. */
void heed_store_q2(const float x[HEED_BLOCK], uint8_t *block);
void heed_store_q3(const float x[HEED_BLOCK], uint8_t *block);
void heed_load_q2(const uint8_t *block, float x[HEED_BLOCK]);
void heed_load_q3(const uint8_t *block, float x[HEED_BLOCK]);

#endif
