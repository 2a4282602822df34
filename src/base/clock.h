/* Time that only goes forward. */
#ifndef HEED_BASE_CLOCK_H
#define HEED_BASE_CLOCK_H

#include <time.h>

/* Seconds since some moment before. */
static inline double heed_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Seconds of processor that all threads of this process have had. */
static inline double heed_processor_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#endif
