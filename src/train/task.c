#include "train/task.h"

#include <stddef.h>

extern const heed_task heed_task_copy, heed_task_selective_copy, heed_task_reversal, heed_task_sorting,
    heed_task_recall, heed_task_multi_recall, heed_task_induction, heed_task_needle, heed_task_parity,
    heed_task_dyck, heed_task_addition, heed_task_regression;

static const heed_task *const tasks[] = {
    &heed_task_copy,   &heed_task_selective_copy, &heed_task_reversal,  &heed_task_sorting,
    &heed_task_recall, &heed_task_multi_recall,   &heed_task_induction, &heed_task_needle,
    &heed_task_parity, &heed_task_dyck,           &heed_task_addition,  &heed_task_regression,
};

const heed_task *heed_task_at(int i)
{
    return i >= 0 && i < (int)(sizeof tasks / sizeof *tasks) ? tasks[i] : NULL;
}
