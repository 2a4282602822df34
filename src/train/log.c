#include "train/log.h"
#include "base/output.h"
#include "base/try.h"
#include "plot/plot.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static heed_status add(heed_log_series *series, double step, double value)
{
    if (series->count == series->capacity) {
        const int capacity = series->capacity ? 2 * series->capacity : 256;
        double *steps = realloc(series->step, (size_t)capacity * sizeof *steps);
        series->step = steps ? steps : series->step;
        double *values = realloc(series->value, (size_t)capacity * sizeof *values);
        series->value = values ? values : series->value;
        if (!steps || !values)
            return heed_fail(HEED_NO_MEMORY, "no memory for the log");
        series->capacity = capacity;
    }
    series->step[series->count] = step;
    series->value[series->count++] = value;
    return HEED_OK;
}

static heed_status take_number(heed_log_series *series, const cJSON *line, const char *name, double step)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(line, name);
    return cJSON_IsNumber(number) ? add(series, step, number->valuedouble) : HEED_OK;
}

/* Lines that stay, into `to`. */
static heed_status read_lines(heed_train_log *log, FILE *from, int64_t steps, heed_output *to)
{
    char line[1024];
    while (fgets(line, sizeof line, from)) {
        cJSON *object = cJSON_Parse(line);
        const cJSON *step = cJSON_GetObjectItemCaseSensitive(object, "step");
        const bool stays = cJSON_IsNumber(step) && step->valuedouble <= (double)steps && strchr(line, '\n');
        heed_status status = HEED_OK;
        if (stays) {
            status = take_number(&log->loss, object, "loss", step->valuedouble);
            if (!status)
                status = take_number(&log->held_out, object, "held_out_loss", step->valuedouble);
            if (!status)
                status = take_number(&log->accuracy, object, "accuracy", step->valuedouble);
            if (!status)
                status = heed_output_write(to, line, strlen(line));
        }
        cJSON_Delete(object);
        TRY(status);
    }
    return HEED_OK;
}

heed_status heed_log_open(heed_train_log *log, const char *folder, int64_t steps)
{
    *log = (heed_train_log){.file = NULL};
    heed_output kept = {.descriptor = -1};
    if (snprintf(log->path, sizeof log->path, "%s/log.jsonl", folder) >= (int)sizeof log->path)
        return heed_fail(HEED_INVALID, "%.60s...: the path is too long", folder);
    TRY(heed_output_open(&kept, log->path));
    FILE *before = fopen(log->path, "r");
    heed_status status = before && steps > 0 ? read_lines(log, before, steps, &kept) : HEED_OK;
    if (before)
        fclose(before);
    TRY(heed_output_close(&kept, status));
    log->file = fopen(log->path, "a");
    return log->file ? HEED_OK : heed_fail(HEED_IO, "%s: cannot be written: %s", log->path, strerror(errno));
}

void heed_log_close(heed_train_log *log)
{
    heed_log_series *const all[] = {&log->loss, &log->held_out, &log->accuracy};
    for (int i = 0; i < 3; i++) {
        free(all[i]->step);
        free(all[i]->value);
    }
    if (log->file)
        fclose(log->file);
    *log = (heed_train_log){.file = NULL};
}

static heed_status written(const heed_train_log *log)
{
    if (fflush(log->file) || ferror(log->file))
        return heed_fail(HEED_IO, "%s: cannot be written: %s", log->path, strerror(errno));
    return HEED_OK;
}

heed_status heed_log_step(heed_train_log *log, int64_t step, const heed_train_report *report, double tokens,
                          double seconds)
{
    fprintf(log->file,
            "{\"step\": %lld, \"loss\": %.9g, \"gradient\": %.9g, \"rate\": %.9g, \"tokens\": %.0f, "
            "\"seconds\": %.3f}\n",
            (long long)step, report->loss, report->norm, report->rate, tokens, seconds);
    TRY(add(&log->loss, (double)step, report->loss));
    return written(log);
}

heed_status heed_log_evaluation(heed_train_log *log, int64_t step, const heed_evaluated *evaluated)
{
    fprintf(log->file, "{\"step\": %lld, \"held_out_loss\": %.9g, \"accuracy\": %.9g, \"targets\": %lld",
            (long long)step, evaluated->loss, evaluated->accuracy, (long long)evaluated->targets);
    if (!isnan(evaluated->bits))
        fprintf(log->file, ", \"bits_per_byte\": %.9g", evaluated->bits);
    fprintf(log->file, "}\n");
    TRY(add(&log->held_out, (double)step, evaluated->loss));
    TRY(add(&log->accuracy, (double)step, evaluated->accuracy));
    return written(log);
}

heed_status heed_log_draw(const heed_train_log *log, const char *folder, const char *title,
                          const char *subtitle)
{
    char path[1200];
    const heed_plot_curve loss[] = {
        {"training", log->loss.step, log->loss.value, log->loss.count},
        {"held out", log->held_out.step, log->held_out.value, log->held_out.count}};
    const heed_plot_curve accuracy[] = {
        {"held out", log->accuracy.step, log->accuracy.value, log->accuracy.count}};
    const heed_plot_curves plot = {
        .title = title,
        .subtitle = subtitle,
        .across = "step",
        .panel = {{"loss (nats a token)", loss, 2}, {"accuracy", accuracy, 1}},
        .panels = 2,
    };
    if (snprintf(path, sizeof path, "%s/loss.png", folder) >= (int)sizeof path)
        return heed_fail(HEED_INVALID, "%.60s...: the path is too long", folder);
    return heed_plot_draw_curves(path, &plot);
}
