/* Pages of rows that are stored as a whole, in one of the ways below, which the page itself says.
 *
 * Channels: of each row only some channels are there, the same for all; the others read as 0.
 *
 *     way, keys, channels [u16]; channel [channels] u16, rising; then rows [keys][channels] f16
 *
 * Rows: each row has a number of bits of its own, and codes between its least and greatest value,
 *
 *     x = minimum + scale n, n = 0 .. 2^bits - 1,     or f16 where bits is 16
 *
 * while some values of the page, its outliers, are kept beside the codes as f16 and count for no range:
 *
 *     way, keys, outliers [u16]; minimum [keys] f16, scale [keys] f16, bits [keys] u8, outliers [keys] u8 of
 *     each row; channel [outliers] u16, value [outliers] f16; then rows of ceil(dim bits / 8) bytes, lowest
 *     bits first
 *
 * Columns: the same of the page turned round, so that a channel has a least and a greatest value over the
 * keys: minimum, scale, bits and outliers are [dim], `channel` is a key, and rows are those of channels.
 */
#ifndef HEED_TENSOR_PACKED_H
#define HEED_TENSOR_PACKED_H

#include <heed/tensor.h>

enum { HEED_PACKED_KEYS = 256, HEED_PACKED_OUTLIERS = 255 }; /* most keys of a page, outliers of a row */

size_t heed_packed_channels_bytes(int64_t keys, int64_t channels);
/* channel [channels], rising. */
void heed_pack_channels(const float *rows, int64_t keys, int64_t dim, const uint16_t *channel,
                        int64_t channels, void *to);

/* For `bits` of all rows together and so many outliers. */
size_t heed_packed_rows_bytes(int64_t keys, int64_t dim, int64_t bits, int64_t outliers);
/* bits [keys] 1 to 8, or 16; outlier [keys][dim] 1 where a value is kept beside, or NULL. A row with values
 * that are not finite or beyond f16 reads back as NaN where they are no outliers. */
void heed_pack_rows(const float *rows, int64_t keys, int64_t dim, const uint8_t *bits, const uint8_t *outlier,
                    void *to);

/* The same of columns: bits [dim], 1 to 8. */
size_t heed_packed_columns_bytes(int64_t keys, int64_t dim, int64_t bits, int64_t outliers);
void heed_pack_columns(const float *rows, int64_t keys, int64_t dim, const uint8_t *bits,
                       const uint8_t *outlier, void *to);

/* Marks the `count` values of [keys][dim] that are farthest out: the lowest half (rounded up) and the
 * highest, of equal ones the earlier. order: room for keys dim numbers. */
void heed_mark_outliers(const float *rows, int64_t values, int64_t count, int32_t *order, uint8_t *outlier);

/* Rows first... of a page as floats [count][stride]. */
void heed_packed_load(const void *page, int64_t first, int64_t count, int64_t dim, float *to, int64_t stride);

/* Whether `bytes` that came from a file are such a page of so many keys. */
bool heed_packed_is_sound(const void *page, size_t bytes, int64_t keys, int64_t dim);

#endif
