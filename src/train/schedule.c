#include "train/schedule.h"

#include <math.h>
#include <stddef.h>

static const char *const names[] = {"constant", "linear", "cosine", "trapezoid"};

const char *heed_schedule_name(int kind)
{
    return kind >= 0 && kind < (int)(sizeof names / sizeof *names) ? names[kind] : NULL;
}

heed_schedule heed_schedule_of(const heed_train_config *config)
{
    return (heed_schedule){.kind = (heed_schedule_kind)config->schedule,
                           .warmup = config->warmup,
                           .steps = config->steps,
                           .cooldown = config->cooldown,
                           .floor = config->floor};
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

bool heed_schedules_agree(const heed_schedule *a, const heed_schedule *b, int64_t done)
{
    if (a->steps == b->steps && a->cooldown == b->cooldown)
        return true;
    switch (a->kind) {
    case HEED_SCHEDULE_CONSTANT:
        return true;
    case HEED_SCHEDULE_TRAPEZOID:
        return done <= a->steps - a->cooldown && done <= b->steps - b->cooldown;
    default: /* the rate falls from the start, or a cooldown is not used */
        return a->steps == b->steps;
    }
}
