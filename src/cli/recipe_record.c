/* What is kept of a run: results/NAME.json, a picture of the measures that were compared, and the table of
 * all results. */
#include "base/cpu.h"
#include "base/output.h"
#include "base/try.h"
#include "cli/language.h"
#include "cli/recipe.h"
#include "plot/plot.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *verdict(bool holds)
{
    return holds ? "as published" : "not reproduced at this size";
}

cJSON *recipe_report(const heed_recipe *recipe)
{
    char commit[41], processor[120];
    cJSON *report = cJSON_CreateObject();
    static const char *const kept[] = {"row", "name", "says", "note"};
    recipe_commit(recipe->folder, commit);
    cJSON_AddStringToObject(report, "recipe", recipe->name);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (*recipe_text(recipe, kept[i]))
            cJSON_AddStringToObject(report, kept[i], recipe_text(recipe, kept[i]));
    cJSON_AddStringToObject(report, "verdict", verdict(recipe->holds));
    cJSON_AddNumberToObject(report, "seeds", recipe->seeds);
    cJSON_AddStringToObject(report, "version", heed_version());
    if (*commit)
        cJSON_AddStringToObject(report, "commit", commit);
    cJSON_AddStringToObject(report, "processor", heed_cpu_name(processor, sizeof processor));
    cJSON_AddNumberToObject(report, "seconds", round(10.0 * recipe->seconds) / 10.0);
    cJSON_AddItemToObject(report, "expected", cJSON_Duplicate(recipe->judged, true));
    if (recipe->calibrated)
        cJSON_AddItemToObject(report, "calibrated", cJSON_Duplicate(recipe->calibrated, true));
    if (!cJSON_AddItemToObject(report, "measured", cJSON_Duplicate(recipe->measured, true))) {
        cJSON_Delete(report);
        return NULL;
    }
    return report;
}

static heed_status write_whole(const char *path, const char *text)
{
    heed_output output = {.descriptor = -1};
    heed_status status =
        text ? heed_output_open(&output, path) : heed_fail(HEED_NO_MEMORY, "%s: no memory to write it", path);
    if (!status)
        status = heed_output_write(&output, text, strlen(text));
    if (!status)
        status = heed_output_write(&output, "\n", 1);
    return heed_output_close(&output, status);
}

static heed_status write_report(const heed_recipe *recipe)
{
    char path[RECIPE_PATH + 200];
    cJSON *report = recipe_report(recipe);
    char *text = report ? cJSON_Print(report) : NULL;
    snprintf(path, sizeof path, "%s/results/%.150s.json", recipe->folder, recipe->name);
    const heed_status status = write_whole(path, text);
    free(text);
    cJSON_Delete(report);
    return status;
}

/* A panel for each of the first measures that expectations name, a bar for each arm. */
typedef struct picture {
    char measure[HEED_PLOT_PANELS][64];
    heed_plot_bar bar[HEED_PLOT_PANELS][RECIPE_ARMS + 1];
    int bars, panels;
} picture;

static void add_panel(const heed_recipe *recipe, picture *p, const char *measure)
{
    const cJSON *arm;
    for (int i = 0; i < p->panels; i++)
        if (!strcmp(p->measure[i], measure))
            return;
    if (!*measure || p->panels == HEED_PLOT_PANELS)
        return;
    snprintf(p->measure[p->panels], sizeof p->measure[0], "%s", measure);
    p->bars = 0;
    cJSON_ArrayForEach(arm, recipe->measured)
    {
        recipe_value value = {NAN, 0.0};
        if (p->bars > RECIPE_ARMS)
            break;
        if (!recipe_mean(recipe, arm->string, measure, &value))
            value = (recipe_value){NAN, 0.0};
        p->bar[p->panels][p->bars++] = (heed_plot_bar){arm->string, value.mean, value.spread};
    }
    p->panels++;
}

static heed_status draw(const heed_recipe *recipe)
{
    char path[RECIPE_PATH + 200], subtitle[100];
    const cJSON *text;
    picture *p = calloc(1, sizeof *p);
    if (!p)
        return heed_fail(HEED_NO_MEMORY, "no memory for a picture");
    cJSON_ArrayForEach(text, cJSON_GetObjectItem(recipe->root, "expect"))
    {
        recipe_comparison comparison;
        if (recipe_read_comparison(text->valuestring, &comparison))
            continue;
        add_panel(recipe, p, comparison.left.measure);
        add_panel(recipe, p, comparison.right.measure);
    }
    heed_plot_bars bars = {.title = *recipe_text(recipe, "name") ? recipe_text(recipe, "name") : recipe->name,
                           .subtitle = subtitle,
                           .panels = p->panels};
    snprintf(subtitle, sizeof subtitle, "%s; %d %s", verdict(recipe->holds), recipe->seeds,
             recipe->seeds == 1 ? "run" : "runs of each");
    for (int i = 0; i < p->panels; i++) {
        bars.panel[i].measure = p->measure[i];
        bars.panel[i].bar = p->bar[i];
        bars.panel[i].bars = p->bars;
    }
    snprintf(path, sizeof path, "%s/results/%.150s.png", recipe->folder, recipe->name);
    const heed_status status = p->panels ? heed_plot_draw_bars(path, &bars) : HEED_OK;
    free(p);
    return status == HEED_UNSUPPORTED ? HEED_OK : status; /* a build without pictures */
}

/* "0.98 ± 0.01" */
static void print_value(FILE *file, const cJSON *one, const char *side)
{
    char with[40];
    snprintf(with, sizeof with, "%s_spread", side);
    const cJSON *spread = cJSON_GetObjectItem(one, with);
    fprintf(file, "%.4g", cJSON_GetNumberValue(cJSON_GetObjectItem(one, side)));
    if (spread)
        fprintf(file, " ± %.2g", spread->valuedouble);
}

/* In cells of a table a bar would end the cell. */
static void print_cell(FILE *file, const char *text)
{
    for (; text && *text; text++)
        fprintf(file, *text == '|' ? "\\%c" : "%c", *text);
}

static bool all_hold(const cJSON *report)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, cJSON_GetObjectItem(report, "expected")) if (!cJSON_IsTrue(cJSON_GetObjectItem(
                                                                             one, "holds"))) return false;
    return true;
}

const char *recipe_verdict(const char *folder, const char *name)
{
    char path[RECIPE_PATH + 200];
    cli_text json;
    snprintf(path, sizeof path, "%s/results/%.150s.json", folder, name);
    if (cli_read_file(path, &json))
        return "not recorded";
    cJSON *report = cJSON_ParseWithLength(json.bytes, json.size);
    const char *found = report ? verdict(all_hold(report)) : "not recorded";
    cJSON_Delete(report);
    free(json.bytes);
    return found;
}

static void print_result(FILE *file, const cJSON *report, const char *name)
{
    const cJSON *expected = cJSON_GetObjectItem(report, "expected"), *one;
    const cJSON *seeds = cJSON_GetObjectItem(report, "seeds");
    const char *commit = cJSON_GetStringValue(cJSON_GetObjectItem(report, "commit"));
    fprintf(file, "| %s | [%s](results/%s.json) | ",
            cJSON_GetStringValue(cJSON_GetObjectItem(report, "row"))
                ? cJSON_GetStringValue(cJSON_GetObjectItem(report, "row"))
                : "",
            name, name);
    cJSON_ArrayForEach(one, expected)
    {
        fprintf(file, "%s", one == expected->child ? "" : "<br>");
        print_cell(file, cJSON_GetStringValue(cJSON_GetObjectItem(one, "expectation")));
        fprintf(file, ": ");
        print_value(file, one, "left");
        fprintf(file, ", ");
        print_value(file, one, "right");
        fprintf(file, "%s", cJSON_IsTrue(cJSON_GetObjectItem(one, "holds")) ? "" : " (no)");
    }
    fprintf(file, " | %d | %s | ", seeds ? (int)seeds->valuedouble : 1, verdict(all_hold(report)));
    print_cell(file, cJSON_GetStringValue(cJSON_GetObjectItem(report, "processor")));
    fprintf(file, " | %s |\n", commit ? commit : "");
}

/* RESULTS.md of all results that are there. */
static heed_status write_table(const heed_recipe *recipe)
{
    char folder[RECIPE_PATH + 20], path[RECIPE_PATH + 200];
    recipe_names names;
    char *text = NULL;
    size_t size = 0;
    snprintf(folder, sizeof folder, "%s/results", recipe->folder);
    TRY(recipe_names_read(&names, folder));
    FILE *file = open_memstream(&text, &size);
    heed_status status = file ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the table of results");
    if (file)
        fprintf(file, "# Results\n\nWhat `heed recipe` measured, and whether it is what was published. "
                      "Written by the program; ± is the "
                      "standard deviation\nover seeds, and a comparison holds when it does in every seed. "
                      "[README.md](README.md) says what recipes are.\n\n"
                      "| row | recipe | compared | seeds | verdict | processor | commit "
                      "|\n|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < names.count && !status; i++) {
        cli_text json;
        snprintf(path, sizeof path, "%s/%.150s.json", folder, names.name[i]);
        status = cli_read_file(path, &json);
        cJSON *report = status ? NULL : cJSON_ParseWithLength(json.bytes, json.size);
        if (report)
            print_result(file, report, names.name[i]);
        cJSON_Delete(report);
        free(json.bytes);
    }
    if (file)
        fclose(file);
    while (size && text[size - 1] == '\n')
        text[--size] = 0;
    snprintf(path, sizeof path, "%s/RESULTS.md", recipe->folder);
    if (!status)
        status = write_whole(path, text);
    free(text);
    recipe_names_free(&names);
    return status;
}

heed_status recipe_record(const heed_recipe *recipe)
{
    char path[RECIPE_PATH + 20];
    snprintf(path, sizeof path, "%s/results", recipe->folder);
    if (mkdir(path, 0777) && errno != EEXIST)
        return heed_fail(HEED_IO, "%s: cannot be made: %s", path, strerror(errno));
    TRY(write_report(recipe));
    TRY(draw(recipe));
    return write_table(recipe);
}
