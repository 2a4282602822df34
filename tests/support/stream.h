/* A small model of decoding with a policy: one kv head reads tokens one after the other, attends in double
 * with masses, and lets its chain act when it is due. */
#ifndef HEED_TEST_STREAM_H
#define HEED_TEST_STREAM_H

#include "cache/keep.h"
#include "support/random.h"

enum { STREAM_MOST = 256, STREAM_DIM = 6, STREAM_GROUP = 2, STREAM_WINDOW = 64, STREAM_TOP = 4 };

typedef struct stream {
    heed_chain chain;
    test_random random;
    int64_t read, count, since, acts;
    int32_t pos[STREAM_MOST], token[STREAM_MOST];
    uint8_t kind[STREAM_MOST], keep[STREAM_MOST];
    float key[STREAM_MOST * STREAM_DIM], value[STREAM_MOST * STREAM_DIM], mass[STREAM_MOST];
    float *state;    /* [STREAM_MOST][chain.state_floats] */
    int64_t queries; /* the last ones, at most STREAM_WINDOW */
    int32_t query_pos[STREAM_WINDOW];
    float query[STREAM_GROUP][STREAM_WINDOW][STREAM_DIM];
    /* of the newest token */
    double weight[STREAM_GROUP][STREAM_MOST], out[STREAM_GROUP][STREAM_DIM];
    int32_t top[STREAM_GROUP][STREAM_TOP]; /* indices of the strongest keys */
} stream;

stream *stream_new(const char *text, uint64_t seed);
void stream_free(stream *s);

/* One more token: its key and value are NULL for random ones. Attends, observes, and acts if the chain is
 * due. Returns whether it acted. */
bool stream_read(stream *s, const float *key, const float *value, heed_moment moment);

#endif
