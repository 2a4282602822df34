#include "eval/results.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void heed_results_free(heed_results *results)
{
    for (int i = 0; i < results->count; i++) {
        free(results->result[i].spec);
        free(results->result[i].cell);
    }
    free(results->result);
    results->result = NULL;
    results->count = 0;
}

heed_result *heed_results_of(heed_results *results, const char *spec)
{
    for (int i = 0; i < results->count; i++)
        if (!strcmp(results->result[i].spec, spec))
            return &results->result[i];
    heed_result *grown = realloc(results->result, ((size_t)results->count + 1) * sizeof *grown);
    char *copy = strdup(spec);
    if (grown)
        results->result = grown;
    if (!grown || !copy) {
        free(copy);
        heed_fail(HEED_NO_MEMORY, "no memory for results");
        return NULL;
    }
    grown[results->count] = (heed_result){.spec = copy};
    return &grown[results->count++];
}

bool heed_result_has(const heed_result *result, const char *task)
{
    for (int i = 0; i < result->cells; i++)
        if (!strcmp(result->cell[i].task, task))
            return true;
    return false;
}

heed_status heed_result_add(heed_result *result, const heed_cell *cells, int count)
{
    heed_cell *grown = realloc(result->cell, (size_t)(result->cells + count) * sizeof *grown);
    if (!grown)
        return heed_fail(HEED_NO_MEMORY, "no memory for results");
    result->cell = grown;
    memcpy(grown + result->cells, cells, (size_t)count * sizeof *cells);
    result->cells += count;
    return HEED_OK;
}

heed_score heed_result_sum(const heed_result *result, const char *task, int64_t length, double depth)
{
    heed_score sum = {.asked = 0};
    for (int i = 0; i < result->cells; i++) {
        const heed_cell *cell = &result->cell[i];
        if (!strcmp(cell->task, task) && (!length || cell->length == length) &&
            (depth < -1.0 || fabs(cell->depth - depth) < 1e-9))
            heed_score_add(&sum, &cell->score);
    }
    return sum;
}
