#include "eval/task.h"

#include <string.h>

const heed_task *const heed_tasks[] = {&heed_task_passkey,   &heed_task_needle,       &heed_task_multikey,
                                       &heed_task_variables, &heed_task_copying,      &heed_task_induction,
                                       &heed_task_key_value, &heed_task_interference, NULL};

const heed_task *heed_task_find(const char *name)
{
    for (const heed_task *const *task = heed_tasks; *task; task++)
        if (!strcmp((*task)->name, name))
            return *task;
    return NULL;
}
