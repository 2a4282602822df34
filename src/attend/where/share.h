/* Blocks of keys that are seen with a probability that falls with their distance: the draw, and the
 * probability, which the weights of what is seen may be divided by.
 *
 *     p = 1 for the query's own block and for block 0, else max(pmin, exp(-lam |B - b|))
 *
 * with B = floor(position of the query / block), b = floor(position of the key / block). Seen when hash(seed,
 * B, b) / 2^64 < p, where hash = mix(seed 0x9E3779B97F4A7C15 + B 0xBF58476D1CE4E5B9 + b 0x94D049BB133111EB)
 * and mix is the finaliser of splitmix64.
 */
#ifndef HEED_ATTEND_WHERE_SHARE_H
#define HEED_ATTEND_WHERE_SHARE_H

#include "attend/where/where.h"
#include <math.h>

enum { HEED_SHARE_LAM, HEED_SHARE_LEAST, HEED_SHARE_SEED, HEED_SHARE_BLOCK };

#define HEED_SHARE_ARGS                                                                                      \
    [HEED_SHARE_LAM] = {.name = "lam",                                                                       \
                        .value = 0.05,                                                                       \
                        .least = 0,                                                                          \
                        .most = INFINITY,                                                                    \
                        .summary = "how fast the probability falls, a block"},                               \
    [HEED_SHARE_LEAST] = {.name = "pmin",                                                                    \
                          .value = 0.1,                                                                      \
                          .least = 0,                                                                        \
                          .most = 1,                                                                         \
                          .above = true,                                                                     \
                          .summary = "least probability"},                                                   \
    [HEED_SHARE_SEED] = {.name = "seed",                                                                     \
                         .kind = HEED_ARG_INT,                                                               \
                         .least = -9007199254740992.0,                                                       \
                         .most = 9007199254740992.0,                                                         \
                         .summary = "another seed, another draw"},                                           \
    [HEED_SHARE_BLOCK] = {.name = "block", HEED_WHOLE, .value = 64, .summary = "positions in a block"}

static inline double heed_share_of(const heed_form_state *form, int64_t query_block, int64_t key_block)
{
    const double apart = fabs((double)(query_block - key_block));
    if (apart == 0 || key_block == 0)
        return 1;
    return fmax(form->arg[HEED_SHARE_LEAST].number, exp(-form->arg[HEED_SHARE_LAM].number * apart));
}

static inline bool heed_share_drawn(const heed_form_state *form, int64_t query_block, int64_t key_block)
{
    const uint64_t seed = (uint64_t)(int64_t)form->arg[HEED_SHARE_SEED].number;
    uint64_t z = seed * 0x9E3779B97F4A7C15u + (uint64_t)query_block * 0xBF58476D1CE4E5B9u +
                 (uint64_t)key_block * 0x94D049BB133111EBu;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53 < heed_share_of(form, query_block, key_block);
}

static inline double heed_share_size(const heed_form_state *form)
{
    return (double)heed_whole(form, HEED_SHARE_BLOCK);
}

#endif
