#include "base/output.h"
#include "base/try.h"
#include "eval/results.h"
#include "eval/task.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1, MOST_BYTES = 1 << 28, COLUMNS = 9 };

typedef struct field {
    const char *name;
    size_t offset;
} field;

#define READ(name_)                                                                                          \
    {                                                                                                        \
#name_, offsetof(heed_read_result, name_)                                                            \
    }
static const field read_fields[] = {READ(window),  READ(text),   READ(last_quarter),
                                    READ(kl_mean), READ(kl_999), READ(same_top)};
#define PACE(name_)                                                                                          \
    {                                                                                                        \
#name_, offsetof(heed_pace, name_)                                                                   \
    }
static const field pace_fields[] = {PACE(prefill),    PACE(decode),     PACE(bytes),
                                    PACE(peak_bytes), PACE(pairs_read), PACE(pairs_open)};

#define KEY(name_)                                                                                           \
    {                                                                                                        \
#name_, offsetof(heed_results_key, name_)                                                            \
    }
static const field key_fields[] = {KEY(model), KEY(suite), KEY(seed), KEY(length), KEY(question)};
enum { KEYS = sizeof key_fields / sizeof *key_fields, NUMBERS = 6 };

/* So that the same number is read again; null for one that is none, which JSON does not have. */
static cJSON *number_of(double x)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", x);
    return isfinite(x) ? cJSON_CreateRaw(text) : cJSON_CreateNull();
}

static cJSON *numbers(const field *fields, const void *values)
{
    cJSON *object = cJSON_CreateObject();
    for (int i = 0; i < NUMBERS; i++) {
        double x;
        memcpy(&x, (const char *)values + fields[i].offset, sizeof x);
        cJSON_AddItemToObject(object, fields[i].name, number_of(x));
    }
    return object;
}

static cJSON *cells_of(const heed_result *result, const char *task)
{
    cJSON *cells = cJSON_CreateArray();
    for (int i = 0; i < result->cells; i++) {
        const heed_cell *cell = &result->cell[i];
        const heed_score *s = &cell->score;
        const double column[COLUMNS] = {(double)cell->length, cell->depth,        (double)s->asked,
                                        (double)s->exact,     (double)s->choices, (double)s->chosen,
                                        (double)s->tokens,    (double)s->right,   s->nll};
        if (strcmp(cell->task, task))
            continue;
        cJSON *columns = cJSON_CreateArray();
        for (int c = 0; c < COLUMNS; c++)
            cJSON_AddItemToArray(columns, number_of(column[c]));
        cJSON_AddItemToArray(cells, columns);
    }
    return cells;
}

/* Writes the object on a line of its own and frees it. */
static heed_status write_line(heed_output *output, cJSON *object)
{
    char *text = object ? cJSON_PrintUnformatted(object) : NULL;
    cJSON_Delete(object);
    if (!text)
        return heed_fail(HEED_NO_MEMORY, "no memory for a line of results");
    heed_status status = heed_output_write(output, text, strlen(text));
    if (!status)
        status = heed_output_write(output, "\n", 1);
    free(text);
    return status;
}

static cJSON *line_of(const heed_result *result)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "spec", result->spec);
    return line;
}

static heed_status write_result(heed_output *output, const heed_result *result)
{
    if (result->read) {
        cJSON *line = line_of(result), *reading = numbers(read_fields, &result->reading);
        cJSON_AddNumberToObject(reading, "positions", (double)result->reading.positions);
        cJSON_AddItemToObject(line, "reading", reading);
        TRY(write_line(output, line));
    }
    if (result->paced) {
        cJSON *line = line_of(result);
        cJSON_AddItemToObject(line, "pace", numbers(pace_fields, &result->pace));
        TRY(write_line(output, line));
    }
    for (const heed_task *const *task = heed_tasks; *task; task++)
        if (heed_result_has(result, (*task)->name)) {
            cJSON *line = line_of(result);
            cJSON_AddStringToObject(line, "task", (*task)->name);
            cJSON_AddItemToObject(line, "cells", cells_of(result, (*task)->name));
            TRY(write_line(output, line));
        }
    return HEED_OK;
}

heed_status heed_results_write(const heed_results *results, const char *path)
{
    heed_output output;
    TRY(heed_output_open(&output, path));
    cJSON *head = cJSON_CreateObject();
    cJSON_AddNumberToObject(head, "heed_eval", FORMAT);
    for (int i = 0; i < KEYS; i++)
        cJSON_AddStringToObject(head, key_fields[i].name, (const char *)&results->key + key_fields[i].offset);
    heed_status status = write_line(&output, head);
    for (int i = 0; i < results->count && !status; i++)
        status = write_result(&output, &results->result[i]);
    return heed_output_close(&output, status);
}

static heed_status damaged(const char *path, int line)
{
    return heed_fail(HEED_FORMAT, "%s: line %d is none of a file of results", path, line);
}

static heed_status check_key(const heed_results_key *key, const cJSON *head, const char *path)
{
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(head, "heed_eval");
    if (!cJSON_IsNumber(format))
        return heed_fail(HEED_FORMAT, "%s is no file of results", path);
    if (format->valueint != FORMAT)
        return heed_fail(HEED_UNSUPPORTED, "%s: results of format %d, only %d is known", path,
                         format->valueint, FORMAT);
    for (int i = 0; i < KEYS; i++) {
        const char *mine = (const char *)key + key_fields[i].offset;
        const cJSON *theirs = cJSON_GetObjectItemCaseSensitive(head, key_fields[i].name);
        if (!cJSON_IsString(theirs))
            return damaged(path, 1);
        if (strcmp(theirs->valuestring, mine))
            return heed_fail(HEED_INVALID, "%s has results of another %s: '%.200s', not '%s'", path,
                             key_fields[i].name, theirs->valuestring, mine);
    }
    return HEED_OK;
}

static bool take_numbers(const cJSON *object, const field *fields, void *values)
{
    for (int i = 0; i < NUMBERS; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, fields[i].name);
        if (!cJSON_IsNumber(item) && !cJSON_IsNull(item))
            return false;
        const double x = cJSON_IsNumber(item) ? item->valuedouble : NAN;
        memcpy((char *)values + fields[i].offset, &x, sizeof x);
    }
    return true;
}

static bool take_cell(const cJSON *item, const char *task, heed_cell *cell)
{
    double column[COLUMNS];
    if (cJSON_GetArraySize(item) != COLUMNS)
        return false;
    for (int i = 0; i < COLUMNS; i++) {
        const cJSON *number = cJSON_GetArrayItem(item, i);
        if (!cJSON_IsNumber(number) || !(fabs(number->valuedouble) < 1e15))
            return false;
        column[i] = number->valuedouble;
    }
    *cell = (heed_cell){.task = task,
                        .length = (int64_t)column[0],
                        .depth = column[1],
                        .score = {.asked = (int64_t)column[2],
                                  .exact = (int64_t)column[3],
                                  .choices = (int64_t)column[4],
                                  .chosen = (int64_t)column[5],
                                  .tokens = (int64_t)column[6],
                                  .right = (int64_t)column[7],
                                  .nll = column[8]}};
    return true;
}

static heed_status take_task(heed_result *result, const cJSON *line, const char *path, int number)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(line, "task");
    const cJSON *cells = cJSON_GetObjectItemCaseSensitive(line, "cells"), *item;
    const heed_task *task = cJSON_IsString(name) ? heed_task_find(name->valuestring) : NULL;
    if (!task || !cJSON_IsArray(cells) || heed_result_has(result, task->name))
        return damaged(path, number);
    cJSON_ArrayForEach(item, cells)
    {
        heed_cell cell;
        if (!take_cell(item, task->name, &cell))
            return damaged(path, number);
        TRY(heed_result_add(result, &cell, 1));
    }
    return HEED_OK;
}

static heed_status take_line(heed_results *results, const cJSON *line, const char *path, int number)
{
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(line, "spec");
    const cJSON *reading = cJSON_GetObjectItemCaseSensitive(line, "reading");
    const cJSON *pace = cJSON_GetObjectItemCaseSensitive(line, "pace");
    if (!cJSON_IsString(spec))
        return damaged(path, number);
    heed_result *result = heed_results_of(results, spec->valuestring);
    if (!result)
        return HEED_NO_MEMORY;
    if (reading) {
        const cJSON *positions = cJSON_GetObjectItemCaseSensitive(reading, "positions");
        if (!take_numbers(reading, read_fields, &result->reading) || !cJSON_IsNumber(positions))
            return damaged(path, number);
        result->reading.positions = (int64_t)positions->valuedouble;
        result->read = true;
        return HEED_OK;
    }
    if (pace) {
        if (!take_numbers(pace, pace_fields, &result->pace))
            return damaged(path, number);
        result->paced = true;
        return HEED_OK;
    }
    return take_task(result, line, path, number);
}

static heed_status take_text(heed_results *results, char *text, const char *path)
{
    int number = 1;
    for (char *next; *text; text = next, number++) {
        char *end = strchr(text, '\n');
        if (!end)
            return damaged(path, number);
        *end = 0;
        next = end + 1;
        cJSON *line = cJSON_ParseWithOpts(text, NULL, 1);
        if (!line)
            return damaged(path, number);
        const heed_status status =
            number == 1 ? check_key(&results->key, line, path) : take_line(results, line, path, number);
        cJSON_Delete(line);
        TRY(status);
    }
    return number > 1 ? HEED_OK : heed_fail(HEED_FORMAT, "%s is empty, no file of results", path);
}

heed_status heed_results_read(heed_results *results, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return errno == ENOENT ? HEED_OK
                               : heed_fail(HEED_IO, "%s: cannot be opened: %s", path, strerror(errno));
    heed_status status = HEED_OK;
    char *text = NULL;
    const long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    if (size < 0 || size > MOST_BYTES)
        status = heed_fail(HEED_FORMAT, "%s is no file of results", path);
    else if (!(text = malloc((size_t)size + 1)))
        status = heed_fail(HEED_NO_MEMORY, "no memory for %s", path);
    else if (fseek(file, 0, SEEK_SET) || fread(text, 1, (size_t)size, file) != (size_t)size)
        status = heed_fail(HEED_IO, "%s: cannot be read", path);
    fclose(file);
    if (!status) {
        text[size] = 0;
        status = take_text(results, text, path);
    }
    free(text);
    if (status)
        heed_results_free(results);
    return status;
}
