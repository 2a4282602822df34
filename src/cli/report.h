/* What `heed attend` says when it is done. */
#ifndef HEED_CLI_REPORT_H
#define HEED_CLI_REPORT_H

#include "model/safetensors.h"
#include <heed/attend.h>

typedef struct cli_report {
    const char *output;
    const heed_named_tensor *tensors;
    int count;
    const heed_plan *plan;
    double seconds, seconds_backward;
    bool backward;
} cli_report;

void cli_report_text(const cli_report *report);
void cli_report_json(const cli_report *report);

/* A hint on stderr when more threads were asked for than there are cores. */
void cli_note_threads(const char *command, int64_t threads);

/* The same; and no more threads are used than run at the same time. */
void cli_limit_threads(const char *command, int64_t *threads);

/* Seconds with a unit that suits them. */
const char *cli_seconds(double seconds, char *text, size_t size);

#endif
