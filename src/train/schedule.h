/* How the rate changes over the steps of a run: a factor from 0 to 1. */
#ifndef HEED_TRAIN_SCHEDULE_H
#define HEED_TRAIN_SCHEDULE_H

#include "train/config.h"

typedef enum heed_schedule_kind {
    HEED_SCHEDULE_CONSTANT,  /* 1 */
    HEED_SCHEDULE_LINEAR,    /* falls in a line to `floor` */
    HEED_SCHEDULE_COSINE,    /* falls along half a cosine to `floor` */
    HEED_SCHEDULE_TRAPEZOID, /* 1, and over the last `cooldown` steps in a line to `floor` */
} heed_schedule_kind;

typedef struct heed_schedule {
    heed_schedule_kind kind;
    int64_t warmup; /* steps in which it rises in a line: (step + 1) / warmup */
    int64_t steps, cooldown;
    double floor;
} heed_schedule;

const char *heed_schedule_name(int kind); /* NULL beyond the last */
heed_schedule heed_schedule_of(const heed_train_config *config);
double heed_schedule_factor(const heed_schedule *schedule, int64_t step);

/* Whether the first `done` steps have the same rates though the runs differ in length or cooldown. */
bool heed_schedules_agree(const heed_schedule *a, const heed_schedule *b, int64_t done);

#endif
