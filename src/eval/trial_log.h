/* Trials that were made, in memory and in a file from which a search goes on after it was ended. */
#ifndef HEED_EVAL_TRIAL_LOG_H
#define HEED_EVAL_TRIAL_LOG_H

#include <heed/base.h>

/* What a choice of policies loses and takes. */
typedef struct heed_trial {
    double text, answers; /* KL from the model's own attention, nats: mean over texts; over answers */
    double bytes;         /* of the caches at the end of the text that takes most, in whole pages */
} heed_trial;

static inline double heed_trial_loss(const heed_trial *trial)
{
    return trial->text + trial->answers;
}

typedef struct heed_logged {
    char *spec;
    heed_trial trial;
} heed_logged;

typedef struct heed_trial_log {
    const char *path; /* NULL: no file */
    char *key;        /* what must be the same for trials to belong together; one line */
    heed_logged *entry;
    int64_t count, room;
} heed_trial_log;

/* Takes over what the file has, if there is one: HEED_INVALID where it is of another key. */
heed_status heed_trial_log_open(heed_trial_log *log, const char *path, const char *key);
void heed_trial_log_close(heed_trial_log *log);

const heed_trial *heed_trial_log_find(const heed_trial_log *log, const char *spec);
/* Adds it to memory and file. */
heed_status heed_trial_log_add(heed_trial_log *log, const char *spec, const heed_trial *trial);

#endif
