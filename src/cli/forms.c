/* heed forms: what there is to choose from. */
#include "cli/form_text.h"

#include "attend/registry.h"
#include "attend/spec_reader.h"
#include "cli/cli.h"

#include <string.h>

typedef struct forms_options {
    bool json, reference;
} forms_options;

static const cli_option options[] = {
    CLI_FLAG_OPTION(forms_options, json, "json", "everything, as JSON"),
    CLI_FLAG_OPTION(forms_options, reference, "reference", "everything, as a page of Markdown"),
    {0},
};

/* Widths of the columns of a listing, in characters. */
typedef struct widths {
    int name, summary, source;
} widths;

/* Characters of UTF-8. */
static int characters(const char *text)
{
    int count = 0;
    for (; text && *text; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

static void widen(int *width, const char *text)
{
    const int count = characters(text);
    *width = count > *width ? count : *width;
}

static widths measure_stage(heed_stage stage)
{
    widths all = {0};
    for (const heed_form *const *form = cli_stage_forms(stage); form && *form; form++) {
        widen(&all.name, (*form)->name);
        widen(&all.summary, (*form)->summary);
        widen(&all.source, (*form)->source);
    }
    return all;
}

static widths measure_combinations(void)
{
    widths all = {0};
    for (const heed_combination *named = heed_combinations; named->name; named++) {
        widen(&all.name, named->name);
        widen(&all.summary, named->summary);
        widen(&all.source, named->source);
    }
    return all;
}

static void print_cell(const char *text, int width)
{
    printf("%s%*s  ", text ? text : "", width - characters(text), "");
}

/* One form or combination: a line, and its arguments below the summary. */
static void print_entry(const widths *all, const char *name, const char *summary, const char *source,
                        const char *row, const heed_arg *args)
{
    const char *cell[] = {name, summary, source, row};
    const int width[] = {all->name, all->summary, all->source, 0};
    int last = 3;
    while (last > 0 && !(cell[last] && *cell[last]))
        last--;
    printf("  ");
    for (int i = 0; i < last; i++)
        print_cell(cell[i], width[i]);
    printf("%s\n", cell[last]);
    const cli_line signature = cli_signature(args);
    if (*signature.text)
        printf("  %*s  (%s)\n", all->name, "", signature.text);
}

static void list_stage(heed_stage stage)
{
    const heed_form *const *form = cli_stage_forms(stage);
    if (!form || !*form)
        return;
    const widths all = measure_stage(stage);
    printf("%s%s%s: %s\n", cli_bold(stdout), heed_stage_name(stage), cli_plain(stdout),
           cli_stage_texts[stage].question);
    for (; *form; form++)
        print_entry(&all, (*form)->name, (*form)->summary, (*form)->source, (*form)->row, (*form)->args);
    printf("\n");
}

static void list_combinations(void)
{
    const widths all = measure_combinations();
    if (!heed_combinations[0].name)
        return;
    printf("%scombinations%s: names that stand for a whole spec\n", cli_bold(stdout), cli_plain(stdout));
    for (const heed_combination *named = heed_combinations; named->name; named++)
        print_entry(&all, named->name, named->summary, named->source, named->row, named->args);
    printf("\n");
}

/* Sentences in lines of at most 100 characters. */
static void print_wrapped(const char *text, int indent)
{
    int column = 0;
    while (*text) {
        const int length = (int)strcspn(text, " ");
        if (column > 0 && column + 1 + length > 100 - indent) {
            printf("\n");
            column = 0;
        }
        printf("%*s%.*s", column ? 1 : indent, "", length, text);
        column += (column > 0) + length;
        text += length;
        text += strspn(text, " ");
    }
    if (column > 0)
        printf("\n");
}

static void list_all(void)
{
    for (int stage = 0; stage < HEED_STAGES; stage++)
        list_stage((heed_stage)stage);
    list_combinations();
    printf("`heed forms NAME` tells more of one, `heed forms STAGE` lists one stage with its conventions.\n");
}

static void print_field(const char *name, const char *text)
{
    if (text && *text)
        printf("  %-10s  %s\n", name, text);
}

static void print_args(const heed_arg *args)
{
    if (!args || !args[0].name)
        return;
    int name = 0, value = 0, values = 0;
    for (const heed_arg *arg = args; arg->name; arg++) {
        widen(&name, arg->name);
        widen(&value, arg->required ? "required" : cli_default(arg).text);
        widen(&values, cli_values(arg).text);
    }
    printf("  arguments: name, default, values\n");
    for (const heed_arg *arg = args; arg->name; arg++) {
        printf("    ");
        print_cell(arg->name, name);
        print_cell(arg->required ? "required" : cli_default(arg).text, value);
        print_cell(cli_values(arg).text, values);
        printf("%s\n", arg->summary ? arg->summary : "");
    }
}

static void print_params(const heed_form *form)
{
    if (!form->params || !form->params[0].name)
        return;
    printf("  parameters: tensor, shape, initial value\n");
    for (const heed_param *param = form->params; param->name; param++)
        printf("    %s.%s.%s  [%s]  %s  %s\n", heed_stage_name(form->stage), form->name, param->name,
               param->shape, cli_initial(param).text, param->summary ? param->summary : "");
}

static void detail_form(const heed_form *form)
{
    printf("%s%s=%s%s\n  %s\n", cli_bold(stdout), heed_stage_name(form->stage), form->name, cli_plain(stdout),
           form->summary);
    print_field("formula", form->formula);
    print_field("source", form->source);
    print_field("row", form->row);
    print_field("needs", cli_needs(form).text);
    print_args(form->args);
    print_params(form);
    printf("\n");
    print_wrapped(cli_stage_texts[form->stage].conventions, 2);
    printf("\n");
}

static void detail_combination(const heed_combination *named)
{
    printf("%s%s%s\n  %s\n", cli_bold(stdout), named->name, cli_plain(stdout), named->summary);
    print_field("stands for", named->spec);
    print_field("source", named->source);
    print_field("row", named->row);
    print_args(named->args);
    printf("\n");
}

/* "rope", or "position=rope" */
static bool is_named(const heed_form *form, const char *name)
{
    const char *stage = heed_stage_name(form->stage), *equals = strchr(name, '=');
    if (!equals)
        return !strcmp(form->name, name);
    return strlen(stage) == (size_t)(equals - name) && !memcmp(stage, name, strlen(stage)) &&
           !strcmp(form->name, equals + 1);
}

static int unknown(const char *name)
{
    heed_names names;
    heed_names_start(&names, (heed_word){HEED_WORD_NAME, name, (int)strnlen(name, 200)});
    for (int stage = 0; stage < HEED_STAGES; stage++) {
        heed_names_add(&names, heed_stage_name((heed_stage)stage));
        for (const heed_form *const *form = cli_stage_forms((heed_stage)stage); form && *form; form++)
            heed_names_add(&names, (*form)->name);
    }
    for (const heed_combination *named = heed_combinations; named->name; named++)
        heed_names_add(&names, named->name);
    return cli_fail(cli_forms.name, "'%s' is no form, stage or combination; the nearest is '%s'",
                    heed_quoted(name, (int)strnlen(name, 100)).text, names.nearest);
}

static int show(const char *name)
{
    bool found = false;
    for (int stage = 0; stage < HEED_STAGES; stage++)
        if (!strcmp(heed_stage_name((heed_stage)stage), name)) {
            list_stage((heed_stage)stage);
            print_wrapped(cli_stage_texts[stage].conventions, 0);
            return CLI_OK;
        }
    for (int stage = 0; stage < HEED_STAGES; stage++)
        for (const heed_form *const *form = cli_stage_forms((heed_stage)stage); form && *form; form++)
            if (is_named(*form, name)) {
                detail_form(*form);
                found = true;
            }
    for (const heed_combination *named = heed_combinations; named->name; named++)
        if (!strcmp(named->name, name)) {
            detail_combination(named);
            found = true;
        }
    return found ? CLI_OK : unknown(name);
}

static int run(int argc, char **argv)
{
    forms_options wanted = {0};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_forms, argc, argv, &wanted, &arguments, 0, 1, &status))
        return status;
    if ((wanted.json || wanted.reference) && (arguments.count || (wanted.json && wanted.reference)))
        return cli_fail(cli_forms.name, "--json and --reference write everything, each by itself");
    if (wanted.json)
        cli_forms_json();
    else if (wanted.reference)
        cli_forms_reference();
    else if (arguments.count)
        return show(arguments.word[0]);
    else
        list_all();
    return CLI_OK;
}

const cli_command cli_forms = {
    .name = "forms",
    .arguments = "[STAGE | NAME]",
    .summary = "the forms there are: name, arguments, source, catalogue row",
    .example = "heed forms where\n"
               "heed forms rope\n",
    .options = options,
    .run = run,
};
