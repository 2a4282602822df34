/* Landmarks: after every n tokens of a text stands one more, which represents them. */
#ifndef HEED_ATTEND_LANDMARK_H
#define HEED_ATTEND_LANDMARK_H

#include "attend/form.h"

static inline int64_t heed_landmark_block(int32_t pos, int32_t n)
{
    const int64_t size = (int64_t)n + 1;
    return pos < 0 ? -(-((int64_t)pos + 1) / size) - 1 : pos / size;
}

static inline bool heed_landmark_is(int32_t pos, int32_t n)
{
    return pos - heed_landmark_block(pos, n) * ((int64_t)n + 1) == n;
}

#define HEED_LANDMARK_ARG                                                                                    \
    {                                                                                                        \
        .name = "block", .kind = HEED_ARG_INT, .value = 50, .least = 1, .most = INFINITY,                    \
        .summary = "tokens in front of each landmark"                                                        \
    }

#endif
