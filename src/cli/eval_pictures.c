/* The pictures of heed eval. */
#include "cli/eval.h"
#include "plot/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 129, MOST_TABLES = 2 * MOST_ROWS };

heed_status cli_eval_check_pictures(const heed_evaluation *evaluation, bool memory, bool recall)
{
    bool by_depth = false;
    for (const heed_task *const *task = evaluation->task; *task; task++)
        by_depth = by_depth || (*task)->by_depth;
    if (memory && !evaluation->speed)
        return heed_fail(HEED_INVALID,
                         "--picture shows quality against memory: `speed` must be among --tasks");
    if (memory && !evaluation->text && !*evaluation->task)
        return heed_fail(HEED_INVALID,
                         "--picture shows quality against memory: `text` or a task must be among --tasks");
    if (recall && !by_depth)
        return heed_fail(HEED_INVALID,
                         "--grid shows recall by depth: `needle` or `passkey` must be among --tasks");
    return HEED_OK;
}

heed_status cli_eval_draw_memory(const cli_eval_table *table, const char *path)
{
    double at[MOST_ROWS], divergence[MOST_ROWS], recall[MOST_ROWS];
    const char *name[MOST_ROWS];
    heed_plot_panel panel[2];
    char subtitle[200];
    int panels = 0;
    for (int r = 0; r < table->rows; r++) {
        const heed_result *result = table->row[r].result;
        at[r] = result->paced ? 1e-6 * result->pace.bytes : NAN;
        divergence[r] = result->read ? result->reading.kl_mean : NAN;
        recall[r] = 100.0 * cli_eval_recall(table, result);
        name[r] = table->row[r].name;
    }
    if (table->evaluation->text)
        panel[panels++] =
            (heed_plot_panel){"KL from the model's own attention, nats", false, true, divergence};
    if (*table->evaluation->task)
        panel[panels++] = (heed_plot_panel){"right answers, mean of all tasks, %", true, false, recall};
    snprintf(subtitle, sizeof subtitle, "%.80s, suite %s, texts of up to %lld tokens", table->model,
             table->evaluation->suite.name, (long long)table->evaluation->suite.text);
    const heed_plot_points plot = {.title = "Quality against memory",
                                   .subtitle = subtitle,
                                   .across = "cache at the end of a text, MB",
                                   .at = at,
                                   .name = name,
                                   .points = table->rows,
                                   .panel = panel,
                                   .panels = panels};
    return heed_plot_draw_points(path, &plot);
}

typedef struct grid {
    char row[16][12], col[HEED_SUITE_LENGTHS][24], name[MOST_TABLES][160];
    const char *rows[16], *cols[HEED_SUITE_LENGTHS], *names[MOST_TABLES];
    double share[MOST_TABLES * 16 * HEED_SUITE_LENGTHS];
    int tables;
} grid;

static void add_table(grid *g, const cli_eval_table *table, const heed_task *task, int row)
{
    const heed_suite *suite = &table->evaluation->suite;
    double *share = g->share + g->tables * suite->depths * suite->lengths;
    snprintf(g->name[g->tables], sizeof *g->name, "%d %s: %.120s", row, task->name, table->row[row].name);
    for (int d = 0; d < suite->depths; d++)
        for (int l = 0; l < suite->lengths; l++) {
            const heed_score score = heed_result_sum(table->row[row].result, task->name, suite->length[l],
                                                     heed_suite_depth(suite, d));
            share[d * suite->lengths + l] = heed_score_exact(&score);
        }
    g->tables++;
}

heed_status cli_eval_draw_recall(const cli_eval_table *table, const char *path)
{
    const heed_suite *suite = &table->evaluation->suite;
    char subtitle[200];
    grid *g = calloc(1, sizeof *g);
    if (!g)
        return heed_fail(HEED_NO_MEMORY, "no memory for a picture");
    for (int d = 0; d < suite->depths; d++)
        snprintf(g->row[d], sizeof *g->row, "%.0f %%", 100.0 * heed_suite_depth(suite, d));
    for (int l = 0; l < suite->lengths; l++)
        snprintf(g->col[l], sizeof *g->col, "%lld", (long long)suite->length[l]);
    for (int r = 0; r < table->rows; r++)
        for (const heed_task *const *task = table->evaluation->task; *task; task++)
            if ((*task)->by_depth)
                add_table(g, table, *task, r);
    for (int i = 0; i < 16; i++)
        g->rows[i] = g->row[i];
    for (int i = 0; i < HEED_SUITE_LENGTHS; i++)
        g->cols[i] = g->col[i];
    for (int i = 0; i < g->tables; i++)
        g->names[i] = g->name[i];
    snprintf(subtitle, sizeof subtitle, "%.80s, suite %s, seed %llu", table->model, suite->name,
             (unsigned long long)table->evaluation->seed);
    const heed_plot_tables plot = {.title = "Recall by depth and length, % of right answers",
                                   .subtitle = subtitle,
                                   .down = "depth",
                                   .across =
                                       "columns: tokens of the text; rows: where in it the answer stands",
                                   .row = g->rows,
                                   .col = g->cols,
                                   .name = g->names,
                                   .tables = g->tables,
                                   .rows = suite->depths,
                                   .cols = suite->lengths,
                                   .share = g->share};
    const heed_status status = heed_plot_draw_tables(path, &plot);
    free(g);
    return status;
}
