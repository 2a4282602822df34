/* A line on stderr that tells how far a piece of work is: on a terminal, and only when it takes more than a
 * moment. */
#ifndef HEED_CLI_PROGRESS_H
#define HEED_CLI_PROGRESS_H

#include <stdbool.h>

/* Zero it and set `what`; give `unit` and how many numbers make one of it: "MB", 1e6. */
typedef struct cli_progress {
    const char *what, *unit;
    double scale;
    double start, shown; /* seconds; 0 at first */
    bool line;           /* something stands on the line */
} cli_progress;

void cli_progress_show(cli_progress *progress, double done, double total);
/* Wipes the line. */
void cli_progress_end(cli_progress *progress);

#endif
