#include "cli/eval_columns.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define VALUE(name_, field_)                                                                                 \
    static double name_(const heed_result *result)                                                           \
    {                                                                                                        \
        return result->field_;                                                                               \
    }
VALUE(window, reading.window)
VALUE(text, reading.text)
VALUE(last_quarter, reading.last_quarter)
VALUE(kl_mean, reading.kl_mean)
VALUE(kl_999, reading.kl_999)
VALUE(same_top, reading.same_top)
VALUE(prefill, pace.prefill)
VALUE(decode, pace.decode)
VALUE(peak, pace.peak_bytes)
VALUE(final, pace.bytes)

static double keys_read(const heed_result *result)
{
    return result->pace.pairs_open > 0.0 ? result->pace.pairs_read / result->pace.pairs_open : NAN;
}

enum { TEXT, SPEED };

#define COLUMN(kind_, name_, above, below, width_, digits_, scale_, value_)                                  \
    {                                                                                                        \
        kind_,                                                                                               \
        {                                                                                                    \
            .name = name_, .head = {above, below}, .width = width_, .digits = digits_, .scale = scale_,      \
            .value = value_                                                                                  \
        }                                                                                                    \
    }

static const struct {
    int kind;
    cli_eval_column column;
} fixed[] = {
    COLUMN(TEXT, "perplexity_short", "perplexity", "short", 11, 3, 1.0, window),
    COLUMN(TEXT, "perplexity_long", "", "long", 9, 3, 1.0, text),
    COLUMN(TEXT, "perplexity_last_quarter", "", "last 1/4", 9, 3, 1.0, last_quarter),
    COLUMN(TEXT, "kl_mean", "KL", "mean", 9, -1, 1.0, kl_mean),
    COLUMN(TEXT, "kl_999", "", "99.9 %", 9, -1, 1.0, kl_999),
    COLUMN(TEXT, "same_top", "same", "top %", 7, 2, 100.0, same_top),
    COLUMN(SPEED, "prefill_tokens_per_second", "tokens/s", "read", 9, 1, 1.0, prefill),
    COLUMN(SPEED, "decode_tokens_per_second", "", "written", 8, 1, 1.0, decode),
    COLUMN(SPEED, "cache_bytes_peak", "cache MB", "peak", 9, 2, 1e-6, peak),
    COLUMN(SPEED, "cache_bytes_final", "", "final", 8, 2, 1e-6, final),
    COLUMN(SPEED, "keys_read", "keys", "read %", 7, 2, 100.0, keys_read),
};
enum { FIXED = sizeof fixed / sizeof *fixed };

double cli_eval_measure(const heed_task *task, const heed_result *result)
{
    const heed_score score = heed_result_sum(result, task->name, 0, -2.0);
    return task->by_token ? heed_score_right(&score) : heed_score_exact(&score);
}

double cli_eval_recall(const cli_eval_table *table, const heed_result *result)
{
    double sum = 0.0;
    int count = 0;
    for (const heed_task *const *task = table->evaluation->task; *task; task++, count++)
        sum += cli_eval_measure(*task, result);
    return count ? sum / count : NAN;
}

static void add_fixed(cli_eval_columns *all, int kind)
{
    for (int i = 0; i < FIXED; i++)
        if (fixed[i].kind == kind)
            all->column[all->count++] = fixed[i].column;
}

static void add_tasks(cli_eval_columns *all, const cli_eval_table *table)
{
    for (const heed_task *const *task = table->evaluation->task; *task; task++) {
        const int width = (int)strlen((*task)->name) + 1;
        all->column[all->count++] = (cli_eval_column){.name = (*task)->name,
                                                      .head = {"", (*task)->name},
                                                      .width = width < 7 ? 7 : width,
                                                      .digits = 1,
                                                      .scale = 100.0,
                                                      .task = *task};
    }
    if (*table->evaluation->task)
        all->column[all->count++] = (cli_eval_column){.name = "recall",
                                                      .head = {"all", "tasks"},
                                                      .width = 7,
                                                      .digits = 1,
                                                      .scale = 100.0,
                                                      .recall = true};
}

void cli_eval_choose_columns(cli_eval_columns *all, const cli_eval_table *table)
{
    all->count = 0;
    if (table->evaluation->text)
        add_fixed(all, TEXT);
    const int first = all->count;
    add_tasks(all, table);
    if (all->count > first) {
        all->column[first].head[0] = "right %";
        all->column[first].width += 2;
    }
    if (table->evaluation->speed)
        add_fixed(all, SPEED);
}

double cli_eval_value(const cli_eval_table *table, const cli_eval_column *column, const heed_result *result)
{
    return column->task     ? cli_eval_measure(column->task, result)
           : column->recall ? cli_eval_recall(table, result)
                            : column->value(result);
}
