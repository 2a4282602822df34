#include "cli/eval.h"
heed_status cli_eval_draw_memory(const cli_eval_table *table, const char *path)
{
    (void)table;
    (void)path;
    return HEED_OK;
}
heed_status cli_eval_draw_recall(const cli_eval_table *table, const char *path)
{
    (void)table;
    (void)path;
    return HEED_OK;
}
