/* What a run wrote down: a JSON object a line in log.jsonl, of which the curves are drawn. */
#ifndef HEED_TRAIN_LOG_H
#define HEED_TRAIN_LOG_H

#include "train/trainer.h"

#include <stdio.h>

/* One series. */
typedef struct heed_log_series {
    double *step, *value;
    int count, capacity;
} heed_log_series;

typedef struct heed_train_log {
    FILE *file;
    char path[1200];
    heed_log_series loss, held_out, accuracy;
} heed_train_log;

/* Opens FOLDER/log.jsonl. Lines of steps up to `steps` stay, later ones, and a broken last one, go. */
heed_status heed_log_open(heed_train_log *log, const char *folder, int64_t steps);
void heed_log_close(heed_train_log *log);
heed_status heed_log_step(heed_train_log *log, int64_t step, const heed_train_report *report, double tokens,
                          double seconds);
heed_status heed_log_evaluation(heed_train_log *log, int64_t step, const heed_evaluated *evaluated);
/* FOLDER/loss.png */
heed_status heed_log_draw(const heed_train_log *log, const char *folder, const char *title,
                          const char *subtitle);

#endif
