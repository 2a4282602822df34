#include "eval/trial_log.h"
#include "base/output.h"
#include "base/try.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "heed tune trials 2: "

const heed_trial *heed_trial_log_find(const heed_trial_log *log, const char *spec)
{
    for (int64_t i = 0; i < log->count; i++)
        if (!strcmp(log->entry[i].spec, spec))
            return &log->entry[i].trial;
    return NULL;
}

static heed_status take(heed_trial_log *log, const char *spec, const heed_trial *trial)
{
    if (log->count == log->room) {
        const int64_t room = 2 * log->room + 64;
        heed_logged *grown = realloc(log->entry, (size_t)room * sizeof *grown);
        if (!grown)
            return heed_fail(HEED_NO_MEMORY, "no memory for the trials of a search");
        log->entry = grown;
        log->room = room;
    }
    char *copy = strdup(spec);
    if (!copy)
        return heed_fail(HEED_NO_MEMORY, "no memory for the trials of a search");
    log->entry[log->count++] = (heed_logged){copy, *trial};
    return HEED_OK;
}

static heed_status write_failed(const heed_trial_log *log)
{
    return heed_fail(HEED_IO, "%s: %s", log->path, strerror(errno));
}

static heed_status write_line(heed_output *output, const char *text)
{
    TRY(heed_output_write(output, text, strlen(text)));
    return heed_output_write(output, "\n", 1);
}

/* A trial as a line, freed with free(). */
static char *line_of(const heed_logged *entry)
{
    const size_t size = strlen(entry->spec) + 100;
    char *line = malloc(size);
    if (line)
        snprintf(line, size, "%.17g %.17g %.17g %s", entry->trial.text, entry->trial.answers,
                 entry->trial.bytes, entry->spec);
    return line;
}

/* Anew, without a line that was cut short. */
static heed_status write_all(const heed_trial_log *log)
{
    heed_output output;
    TRY(heed_output_open(&output, log->path));
    heed_status status = heed_output_write(&output, MAGIC, strlen(MAGIC));
    if (!status)
        status = write_line(&output, log->key);
    for (int64_t i = 0; i < log->count && !status; i++) {
        char *line = line_of(&log->entry[i]);
        status = line ? write_line(&output, line) : heed_fail(HEED_NO_MEMORY, "no memory for a trial");
        free(line);
    }
    return heed_output_close(&output, status);
}

static heed_status append_last(const heed_trial_log *log)
{
    FILE *file = fopen(log->path, "a");
    char *line = line_of(&log->entry[log->count - 1]);
    const bool written = file && line && fprintf(file, "%s\n", line) > 0;
    free(line);
    const bool closed = file && fclose(file) == 0;
    return written && closed ? HEED_OK : write_failed(log);
}

/* Three numbers and a spec; the last line may have been cut short. */
static heed_status read_lines(heed_trial_log *log, FILE *file, char **line, size_t *room)
{
    while (getline(line, room, file) > 0) {
        heed_trial trial;
        char *at = *line, *end = strchr(*line, '\n');
        double *const number[] = {&trial.text, &trial.answers, &trial.bytes};
        bool right = end != NULL;
        if (!end)
            return HEED_OK;
        *end = 0;
        for (int i = 0; i < 3 && right; i++) {
            char *behind;
            *number[i] = strtod(at, &behind);
            right = behind != at && *behind == ' ' && isfinite(*number[i]);
            at = behind + 1;
        }
        if (!right)
            return heed_fail(HEED_FORMAT, "%s: a line is no trial: %.60s", log->path, *line);
        TRY(take(log, at, &trial));
    }
    return HEED_OK;
}

static heed_status read_file(heed_trial_log *log, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    heed_status status = HEED_OK;
    if (getline(&line, &room, file) < 1 || strncmp(line, MAGIC, strlen(MAGIC)) != 0) {
        status = heed_fail(HEED_FORMAT, "%s: no trials of a search", log->path);
    } else {
        line[strcspn(line, "\n")] = 0;
        if (strcmp(line + strlen(MAGIC), log->key) != 0)
            status = heed_fail(HEED_INVALID, "%s has trials of `%.300s`, not of `%.300s`", log->path,
                               line + strlen(MAGIC), log->key);
    }
    if (!status)
        status = read_lines(log, file, &line, &room);
    free(line);
    return status;
}

heed_status heed_trial_log_open(heed_trial_log *log, const char *path, const char *key)
{
    *log = (heed_trial_log){.path = path, .key = strdup(key)};
    if (!log->key)
        return heed_fail(HEED_NO_MEMORY, "no memory for the trials of a search");
    FILE *file = path ? fopen(path, "r") : NULL;
    heed_status status = HEED_OK;
    if (path && !file && errno != ENOENT)
        status = write_failed(log);
    if (file) {
        status = read_file(log, file);
        fclose(file);
    }
    if (!status && path)
        status = write_all(log);
    if (status)
        heed_trial_log_close(log);
    return status;
}

void heed_trial_log_close(heed_trial_log *log)
{
    for (int64_t i = 0; i < log->count; i++)
        free(log->entry[i].spec);
    free(log->entry);
    free(log->key);
    *log = (heed_trial_log){.path = NULL};
}

heed_status heed_trial_log_add(heed_trial_log *log, const char *spec, const heed_trial *trial)
{
    TRY(take(log, spec, trial));
    return log->path ? append_last(log) : HEED_OK;
}
