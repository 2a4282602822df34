/* What heed eval found, as a table, as CSV and as JSON. */
#include "cli/eval_columns.h"

#include <math.h>
#include <string.h>

static void print_cell(const cli_eval_column *column, double x)
{
    if (isnan(x))
        printf("%*s", column->width, "-");
    else if (column->digits < 0)
        printf("%*.1e", column->width, x * column->scale);
    else
        printf("%*.*f", column->width, column->digits, x * column->scale);
}

void cli_eval_print(const cli_eval_table *table)
{
    const heed_suite *suite = &table->evaluation->suite;
    cli_eval_columns all;
    cli_eval_choose_columns(&all, table);
    printf("%s, suite %s, seed %llu: texts of up to %lld tokens\n\n", table->model, suite->name,
           (unsigned long long)table->evaluation->seed, (long long)suite->text);
    for (int line = 0; line < 2; line++) {
        printf("%3s", line ? "nr" : "");
        for (int c = 0; c < all.count; c++)
            printf("%*s", all.column[c].width, all.column[c].head[line]);
        putchar('\n');
    }
    for (int r = 0; r < table->rows; r++) {
        printf("%3d", r);
        for (int c = 0; c < all.count; c++)
            print_cell(&all.column[c], cli_eval_value(table, &all.column[c], table->row[r].result));
        putchar('\n');
    }
    putchar('\n');
    for (int r = 0; r < table->rows; r++)
        printf("%3d  %s\n", r, table->row[r].name);
}

/* In quotes where a comma or a quote asks for them. */
static void print_field(const char *text)
{
    if (!strpbrk(text, ",\"\n")) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++)
        printf(*text == '"' ? "\"\"" : "%c", *text);
    putchar('"');
}

void cli_eval_csv(const cli_eval_table *table)
{
    cli_eval_columns all;
    cli_eval_choose_columns(&all, table);
    fputs("attention", stdout);
    for (int c = 0; c < all.count; c++)
        printf(",%s", all.column[c].name);
    putchar('\n');
    for (int r = 0; r < table->rows; r++) {
        const heed_result *result = table->row[r].result;
        print_field(r ? table->row[r].name : "own");
        for (int c = 0; c < all.count; c++) {
            const double x = cli_eval_value(table, &all.column[c], result);
            printf(isnan(x) ? "," : ",%.9g", x);
        }
        putchar('\n');
    }
}

static void add_number(cJSON *object, const char *name, double x)
{
    if (isfinite(x))
        cJSON_AddNumberToObject(object, name, x);
    else
        cJSON_AddNullToObject(object, name);
}

static cJSON *cells_of(const heed_result *result, const heed_task *task)
{
    cJSON *cells = cJSON_CreateArray();
    for (int i = 0; i < result->cells; i++) {
        const heed_cell *cell = &result->cell[i];
        if (strcmp(cell->task, task->name))
            continue;
        cJSON *object = cJSON_CreateObject();
        cJSON_AddNumberToObject(object, "length", (double)cell->length);
        if (cell->depth >= 0.0)
            cJSON_AddNumberToObject(object, "depth", cell->depth);
        cJSON_AddNumberToObject(object, "asked", (double)cell->score.asked);
        add_number(object, "exact", heed_score_exact(&cell->score));
        add_number(object, "chosen", heed_score_chosen(&cell->score));
        add_number(object, "right_tokens", heed_score_right(&cell->score));
        add_number(object, "nll", heed_score_surprise(&cell->score));
        cJSON_AddItemToArray(cells, object);
    }
    return cells;
}

static void add_task(cJSON *tasks, const heed_task *task, const heed_result *result)
{
    const heed_score sum = heed_result_sum(result, task->name, 0, -2.0);
    cJSON *object = cJSON_AddObjectToObject(tasks, task->name);
    cJSON_AddNumberToObject(object, "asked", (double)sum.asked);
    add_number(object, "exact", heed_score_exact(&sum));
    add_number(object, "chosen", heed_score_chosen(&sum));
    add_number(object, "right_tokens", heed_score_right(&sum));
    add_number(object, "nll", heed_score_surprise(&sum));
    cJSON_AddItemToObject(object, "cells", cells_of(result, task));
}

void cli_eval_json(const cli_eval_table *table)
{
    cli_eval_columns all;
    cli_eval_choose_columns(&all, table);
    for (int r = 0; r < table->rows; r++) {
        const heed_result *result = table->row[r].result;
        cJSON *line = cJSON_CreateObject();
        cJSON_AddStringToObject(line, "attention", r ? table->row[r].name : "own");
        cJSON_AddStringToObject(line, "suite", table->evaluation->suite.name);
        cJSON_AddNumberToObject(line, "tokens", (double)table->evaluation->suite.text);
        cJSON_AddNumberToObject(line, "seed", (double)table->evaluation->seed);
        for (int c = 0; c < all.count; c++)
            add_number(line, all.column[c].name, cli_eval_value(table, &all.column[c], result));
        cJSON *tasks = cJSON_AddObjectToObject(line, "tasks");
        for (const heed_task *const *task = table->evaluation->task; *task; task++)
            add_task(tasks, *task, result);
        cli_print_json(line);
    }
}
