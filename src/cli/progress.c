#include "cli/progress.h"
#include "base/clock.h"

#include <stdio.h>
#include <unistd.h>

#define PATIENCE 0.5 /* seconds before anything is shown */
#define PERIOD 0.1   /* seconds between two pictures of the bar */

void cli_progress_show(cli_progress *progress, double done, double total)
{
    static const char bar[] = "##############################";
    const int width = (int)sizeof bar - 1;
    const double time = heed_seconds();
    if (progress->start == 0.0)
        progress->start = time;
    if (total <= 0.0 || !isatty(STDERR_FILENO) || time - progress->start < PATIENCE ||
        time - progress->shown < PERIOD)
        return;
    const double share = done < total ? done / total : 1.0, rate = done / (time - progress->start);
    const int full = (int)(share * width);
    progress->shown = time;
    progress->line = true;
    fprintf(stderr, "\r%s [%.*s%*s] %3.0f %%, %.1f of %.1f %s, %.1f %s/s, %.0f s left \033[K", progress->what,
            full, bar, width - full, "", 100.0 * share, done / progress->scale, total / progress->scale,
            progress->unit, rate / progress->scale, progress->unit, rate > 0.0 ? (total - done) / rate : 0.0);
    fflush(stderr);
}

void cli_progress_end(cli_progress *progress)
{
    if (progress->line)
        fputs("\r\033[K", stderr);
    progress->line = false;
}
