/* Random numbers by counter: Philox 4x32-10 (Salmon et al. 2011). The same key and counter give the same four
 * numbers everywhere. */
#ifndef HEED_BASE_PHILOX_H
#define HEED_BASE_PHILOX_H

#include <stdint.h>

static inline void heed_philox(uint64_t seed, uint32_t c[4])
{
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t c0 = (uint32_t)(b >> 32) ^ c[1] ^ key0, c2 = (uint32_t)(a >> 32) ^ c[3] ^ key1;
        c[0] = c0;
        c[1] = (uint32_t)b;
        c[2] = c2;
        c[3] = (uint32_t)a;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

/* Four numbers for a place in a stream. */
static inline void heed_philox_at(uint64_t seed, uint64_t stream, uint64_t place, uint32_t c[4])
{
    c[0] = (uint32_t)place;
    c[1] = (uint32_t)(place >> 32);
    c[2] = (uint32_t)stream;
    c[3] = (uint32_t)(stream >> 32);
    heed_philox(seed, c);
}

#endif
