#include "cli/report.h"

#include "base/cpu.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

const char *cli_seconds(double seconds, char *text, size_t size)
{
    if (seconds < 1e-3)
        snprintf(text, size, "%.1f us", seconds * 1e6);
    else if (seconds < 1.0)
        snprintf(text, size, "%.2f ms", seconds * 1e3);
    else
        snprintf(text, size, "%.2f s", seconds);
    return text;
}

void cli_note_threads(const char *command, int64_t threads)
{
    const int cores = heed_cpu_physical_cores();
    if (threads > cores)
        fprintf(stderr,
                "heed %s: note: %lld threads on %d %s: more threads than cores are slower, not faster\n",
                command, (long long)threads, cores, cores == 1 ? "core" : "cores");
}

void cli_limit_threads(const char *command, int64_t *threads)
{
    const int most = heed_cpu_threads();
    if (*threads <= most) {
        cli_note_threads(command, *threads);
        return;
    }
    fprintf(
        stderr,
        "heed %s: note: --threads %lld: %d %s at the same time here, and more would be slower; %d %s used\n",
        command, (long long)*threads, most, most == 1 ? "runs" : "run", most, most == 1 ? "is" : "are");
    *threads = most;
}

static void print_tensors(const cli_report *report)
{
    for (int i = 0; i < report->count; i++) {
        const heed_named_tensor *item = &report->tensors[i];
        printf("%s%s [", i ? ", " : "", item->name);
        for (int d = 0; d < item->tensor.rank; d++)
            printf("%s%lld", d ? ", " : "", (long long)item->tensor.shape[d]);
        printf("]");
    }
    printf("\n");
}

void cli_report_text(const cli_report *report)
{
    heed_plan_info info;
    char time[32];
    heed_plan_get_info(report->plan, &info);
    printf("%s: ", report->output);
    print_tensors(report);
    printf("kernel %s on %s, %d %s: %s", heed_kernel_name(info.kernel), heed_isa_name(info.isa), info.threads,
           info.threads == 1 ? "thread" : "threads", cli_seconds(report->seconds, time, sizeof time));
    if (report->seconds > 0.0)
        printf(", %.2f GFLOP/s", info.flops / report->seconds * 1e-9);
    if (report->backward)
        printf("; backward %s", cli_seconds(report->seconds_backward, time, sizeof time));
    printf("\n");
}

void cli_report_json(const cli_report *report)
{
    heed_plan_info info;
    heed_plan_get_info(report->plan, &info);
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "output", report->output);
    cJSON *tensors = cJSON_AddArrayToObject(root, "tensors");
    for (int i = 0; i < report->count; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", report->tensors[i].name);
        cJSON *shape = cJSON_AddArrayToObject(item, "shape");
        for (int d = 0; d < report->tensors[i].tensor.rank; d++)
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)report->tensors[i].tensor.shape[d]));
        cJSON_AddItemToArray(tensors, item);
    }
    cJSON_AddStringToObject(root, "kernel", heed_kernel_name(info.kernel));
    cJSON_AddStringToObject(root, "isa", heed_isa_name(info.isa));
    cJSON_AddNumberToObject(root, "threads", info.threads);
    cJSON_AddNumberToObject(root, "seconds", report->seconds);
    cJSON_AddNumberToObject(root, "flops", info.flops);
    if (report->backward)
        cJSON_AddNumberToObject(root, "seconds_backward", report->seconds_backward);
    char *text = cJSON_Print(root);
    if (text)
        puts(text);
    free(text);
    cJSON_Delete(root);
}
