/* Everything about forms, for programs. */
#include "cli/form_text.h"

#include "attend/registry.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void add_text(cJSON *object, const char *name, const char *text)
{
    if (text)
        cJSON_AddStringToObject(object, name, text);
    else
        cJSON_AddNullToObject(object, name);
}

static void add_number(cJSON *object, const char *name, double number)
{
    if (isfinite(number))
        cJSON_AddNumberToObject(object, name, number);
    else
        cJSON_AddNullToObject(object, name);
}

static void add_args(cJSON *object, const heed_arg *args);

static void add_options(cJSON *object, const heed_option *options)
{
    cJSON *list = cJSON_AddArrayToObject(object, "options");
    for (; options && options->name; options++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", options->name);
        add_args(item, options->args);
        cJSON_AddItemToArray(list, item);
    }
}

/* `default` is a number, a name, or null: computed from the sizes, not given, or required. */
static void add_arg(cJSON *list, const heed_arg *arg)
{
    static const char *const kind[] = {"number", "whole number", "choice", "option"};
    const bool named = arg->kind == HEED_ARG_CHOICE || arg->kind == HEED_ARG_OPTION;
    const bool bounded = arg->least != 0.0 || arg->most != 0.0;
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "name", arg->name);
    cJSON_AddStringToObject(item, "kind", kind[arg->kind]);
    cJSON_AddBoolToObject(item, "required", arg->required);
    if (named)
        add_text(item, "default",
                 arg->required || arg->value < 0 ? NULL : arg->options[(int)arg->value].name);
    else
        add_number(item, "default", arg->required || arg->computed ? NAN : arg->value);
    add_text(item, "computed", arg->computed);
    if (named) {
        add_options(item, arg->options);
    } else {
        add_number(item, "least", bounded ? arg->least : NAN);
        add_number(item, "most", bounded ? arg->most : NAN);
        cJSON_AddBoolToObject(item, "above_least", arg->above);
    }
    add_text(item, "summary", arg->summary);
    cJSON_AddItemToArray(list, item);
}

static void add_args(cJSON *object, const heed_arg *args)
{
    cJSON *list = cJSON_AddArrayToObject(object, "arguments");
    for (; args && args->name; args++)
        add_arg(list, args);
}

static void add_params(cJSON *object, const heed_form *form)
{
    cJSON *list = cJSON_AddArrayToObject(object, "parameters");
    char name[200];
    for (const heed_param *param = form->params; param && param->name; param++) {
        cJSON *item = cJSON_CreateObject();
        snprintf(name, sizeof name, "%s.%s.%s", heed_stage_name(form->stage), form->name, param->name);
        cJSON_AddStringToObject(item, "name", name);
        add_text(item, "shape", param->shape);
        add_number(item, "initial", param->required || param->fill ? NAN : cli_decimal(param->initial));
        cJSON_AddBoolToObject(item, "required", param->required);
        add_text(item, "summary", param->summary);
        cJSON_AddItemToArray(list, item);
    }
}

static void add_needs(cJSON *object, const heed_form *form)
{
    cJSON_AddBoolToObject(object, "needs_dot", form->flags & HEED_NEEDS_DOT);
    cJSON_AddBoolToObject(object, "needs_causal", form->flags & HEED_NEEDS_CAUSAL);
    cJSON_AddBoolToObject(object, "needs_segments", form->flags & HEED_NEEDS_SEGMENTS);
    cJSON_AddBoolToObject(object, "needs_mask", form->flags & HEED_NEEDS_MASK);
}

static void add_stage(cJSON *list, heed_stage stage)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", heed_stage_name(stage));
    cJSON_AddStringToObject(object, "question", cli_stage_texts[stage].question);
    cJSON_AddStringToObject(object, "conventions", cli_stage_texts[stage].conventions);
    cJSON *forms = cJSON_AddArrayToObject(object, "forms");
    for (const heed_form *const *form = cli_stage_forms(stage); form && *form; form++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", (*form)->name);
        add_text(item, "summary", (*form)->summary);
        add_text(item, "formula", (*form)->formula);
        add_text(item, "source", (*form)->source);
        add_text(item, "row", (*form)->row);
        add_needs(item, *form);
        add_args(item, (*form)->args);
        add_params(item, *form);
        cJSON_AddItemToArray(forms, item);
    }
    cJSON_AddItemToArray(list, object);
}

static void add_combinations(cJSON *root)
{
    cJSON *list = cJSON_AddArrayToObject(root, "combinations");
    for (const heed_combination *named = heed_combinations; named->name; named++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", named->name);
        add_text(item, "spec", named->spec);
        add_text(item, "summary", named->summary);
        add_text(item, "source", named->source);
        add_text(item, "row", named->row);
        add_args(item, named->args);
        cJSON_AddItemToArray(list, item);
    }
}

void cli_forms_json(void)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "version", heed_version());
    cJSON *stages = cJSON_AddArrayToObject(root, "stages");
    for (int stage = 0; stage < HEED_STAGES; stage++)
        add_stage(stages, (heed_stage)stage);
    add_combinations(root);
    char *text = cJSON_Print(root);
    if (text)
        puts(text);
    free(text);
    cJSON_Delete(root);
}
