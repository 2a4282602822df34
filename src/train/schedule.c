#include "train/schedule.h"

#include <math.h>
#include <stddef.h>

static const char *const names[] = {"constant", "linear", "cosine", "trapezoid"};

const char *heed_schedule_name(int kind)
{
    return kind >= 0 && kind < (int)(sizeof names / sizeof *names) ? names[kind] : NULL;
}

/* Share of the way from `from` to the last step, 0 to 1. */
static double share(int64_t step, int64_t from, int64_t steps)
{
    const double all = (double)(steps - from);
    return step <= from || all <= 0.0 ? 0.0 : fmin((double)(step - from) / all, 1.0);
}

double heed_schedule_factor(const heed_schedule *schedule, int64_t step)
{
    const double least = schedule->floor, span = 1.0 - least;
    if (step < schedule->warmup)
        return (double)(step + 1) / (double)schedule->warmup;
    switch (schedule->kind) {
    case HEED_SCHEDULE_LINEAR:
        return 1.0 - span * share(step, schedule->warmup, schedule->steps);
    case HEED_SCHEDULE_COSINE:
        return least +
               span * 0.5 *
                   (1.0 + cos(3.14159265358979323846 * share(step, schedule->warmup, schedule->steps)));
    case HEED_SCHEDULE_TRAPEZOID:
        return 1.0 - span * share(step, schedule->steps - schedule->cooldown, schedule->steps);
    default:
        return 1.0;
    }
}
