/* A run of heed eval, shared by what judges and what shows. */
#ifndef HEED_CLI_EVAL_H
#define HEED_CLI_EVAL_H

#include "cli/language.h"
#include "eval/evaluation.h"

/* The model's own attention first, then the specs as they were given. */
typedef struct cli_eval_row {
    const char *name; /* the spec; "the model's own attention" */
    const heed_result *result;
} cli_eval_row;

typedef struct cli_eval_table {
    const heed_evaluation *evaluation;
    const heed_results *results;
    const char *model; /* its name */
    cli_eval_row *row;
    int rows;
} cli_eval_table;

void cli_eval_print(const cli_eval_table *table);
void cli_eval_csv(const cli_eval_table *table);
void cli_eval_json(const cli_eval_table *table);

/* Whether the tasks give what the pictures show. */
heed_status cli_eval_check_pictures(const heed_evaluation *evaluation, bool memory, bool recall);
/* Quality against memory, and recall by depth and length. */
heed_status cli_eval_draw_memory(const cli_eval_table *table, const char *path);
heed_status cli_eval_draw_recall(const cli_eval_table *table, const char *path);

/* Mean share of right answers over all tasks; NaN without any. */
double cli_eval_recall(const cli_eval_table *table, const heed_result *result);

#endif
