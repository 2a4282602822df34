/* Keys quantised by channel: groups of tokens in which every channel has a scale and a minimum of its own.
 *
 *     x[j][c] = minimum[c] + scale[c] n[j][c],     n of 4 or 2 bits
 *
 * Keys have a few channels of large magnitude, the same for all tokens, which would spoil a scale that
 * channels of one token share. A page holds its groups one after the other:
 *
 *     scale [dim] f16, minimum [dim] f16, then for each of HEED_CHANNEL_GROUP tokens the levels of its row,
 *     32 channels at a time: 4 bits: byte i holds channels i (low) and i + 16; 2 bits: byte i holds channels
 *     i, i + 8, i + 16, i + 24, lowest bits first
 *
 * with dim rounded up to whole blocks of 32.
 */
#ifndef HEED_TENSOR_CHANNEL_H
#define HEED_TENSOR_CHANNEL_H

#include <heed/tensor.h>

enum { HEED_CHANNEL_GROUP = 64 };

static inline bool heed_type_by_channel(heed_type type)
{
    return type == HEED_CHANNEL_Q4 || type == HEED_CHANNEL_Q2;
}

static inline int64_t heed_channel_dim(int64_t dim)
{
    return (dim + HEED_BLOCK - 1) / HEED_BLOCK * HEED_BLOCK;
}

/* Bytes of one group; of `keys` keys, a multiple of HEED_CHANNEL_GROUP. */
static inline int64_t heed_channel_group_bytes(heed_type type, int64_t dim)
{
    return 4 * heed_channel_dim(dim) + HEED_CHANNEL_GROUP * heed_type_bytes(type, dim);
}

static inline int64_t heed_channel_bytes(heed_type type, int64_t keys, int64_t dim)
{
    return keys / HEED_CHANNEL_GROUP * heed_channel_group_bytes(type, dim);
}

/* Scales (minima stand heed_channel_dim further on) of group g, and the levels of a key of the page. */
static inline const char *heed_channel_scales(heed_type type, const void *page, int64_t group, int64_t dim)
{
    return (const char *)page + group * heed_channel_group_bytes(type, dim);
}

static inline const char *heed_channel_levels(heed_type type, const void *page, int64_t key, int64_t dim)
{
    return heed_channel_scales(type, page, key / HEED_CHANNEL_GROUP, dim) + 4 * heed_channel_dim(dim) +
           key % HEED_CHANNEL_GROUP * heed_type_bytes(type, dim);
}

/* Quantises rows [keys][stride] from least to greatest value of each channel of a group. A channel that holds
 * a NaN, or values beyond the range of f16, reads back as NaN throughout its group. */
void heed_channel_store(heed_type type, const float *rows, int64_t stride, int64_t keys, int64_t dim,
                        void *page);

/* Keys first... of a page as rows [count][stride]. */
void heed_channel_load(heed_type type, const void *page, int64_t first, int64_t count, int64_t dim, float *to,
                       int64_t stride);

#endif
