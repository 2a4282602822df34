/* The columns of the table of heed eval: one list serves text, CSV and JSON. */
#ifndef HEED_CLI_EVAL_COLUMNS_H
#define HEED_CLI_EVAL_COLUMNS_H

#include "cli/eval.h"

typedef struct cli_eval_column {
    const char *name;    /* in CSV and JSON */
    const char *head[2]; /* two lines above the table */
    int width, digits;   /* digits behind the point; -1: as a power of ten */
    double scale;        /* from the value to the table's unit */
    double (*value)(const heed_result *result);
    const heed_task *task; /* or the share of right answers of a task */
    bool recall;           /* or the mean of all tasks */
} cli_eval_column;

enum { CLI_EVAL_COLUMNS = 40 };
typedef struct cli_eval_columns {
    cli_eval_column column[CLI_EVAL_COLUMNS];
    int count;
} cli_eval_columns;

/* Those for which something was measured. */
void cli_eval_choose_columns(cli_eval_columns *all, const cli_eval_table *table);
double cli_eval_value(const cli_eval_table *table, const cli_eval_column *column, const heed_result *result);

/* The share of right answers, or of right tokens where a task is judged so. */
double cli_eval_measure(const heed_task *task, const heed_result *result);

#endif
