/* The reference of forms as a page of Markdown, from the same descriptors that the kernels run. */
#include "cli/form_text.h"

#include "attend/registry.h"

#include <ctype.h>
#include <stdio.h>

/* Inside a table, where a bar would end the cell. */
static void print_cell(const char *text)
{
    printf(" ");
    for (; text && *text; text++)
        printf(*text == '|' ? "\\%c" : "%c", *text);
    printf(" |");
}

static void print_args(const heed_arg *args)
{
    if (!args || !args[0].name)
        return;
    printf("| argument | default | values | meaning |\n|---|---|---|---|\n");
    for (const heed_arg *arg = args; arg->name; arg++) {
        printf("| `%s` |", arg->name);
        print_cell(arg->required ? "must be given" : cli_default(arg).text);
        print_cell(cli_values(arg).text);
        print_cell(arg->summary);
        printf("\n");
    }
    printf("\n");
}

static void print_params(const heed_form *form)
{
    if (!form->params || !form->params[0].name)
        return;
    printf("| parameter | shape | initial value | meaning |\n|---|---|---|---|\n");
    for (const heed_param *param = form->params; param->name; param++) {
        printf("| `%s.%s.%s` |", heed_stage_name(form->stage), form->name, param->name);
        printf(" `[%s]` |", param->shape);
        print_cell(cli_initial(param).text);
        print_cell(param->summary);
        printf("\n");
    }
    printf("\n");
}

static void print_source(const char *source, const char *row)
{
    if (source && *source)
        printf("Source: %s.", source);
    if (row && *row)
        printf("%sCatalogue row %s.", source && *source ? " " : "", row);
    if ((source && *source) || (row && *row))
        printf("\n\n");
}

static void print_sentence(const char *summary)
{
    printf("%c%s.\n\n", toupper((unsigned char)summary[0]), summary[0] ? summary + 1 : "");
}

static void print_form(const heed_form *form)
{
    const cli_line signature = cli_signature(form->args), needs = cli_needs(form);
    printf("### %s=%s\n\n", heed_stage_name(form->stage), form->name);
    if (*signature.text)
        printf("    %s(%s)\n\n", form->name, signature.text);
    print_sentence(form->summary);
    if (form->formula && *form->formula)
        printf("    %s\n\n", form->formula);
    if (*needs.text)
        printf("Needs %s.\n\n", needs.text);
    print_args(form->args);
    print_params(form);
    print_source(form->source, form->row);
}

static void print_combination(const heed_combination *named)
{
    const cli_line signature = cli_signature(named->args);
    printf("### %s\n\n", named->name);
    print_sentence(named->summary);
    printf("    %s\n\n", named->spec);
    if (*signature.text)
        printf("Arguments: %s.\n\n", signature.text);
    print_args(named->args);
    print_source(named->source, named->row);
}

void cli_forms_reference(void)
{
    printf("# Forms\n\nWritten by `heed forms --reference`. N queries, M keys, D entries of q and k, E of v, "
           "H heads, G kv heads,\n"
           "B batch entries; p(i) is the position of query i, k_pos(j) that of key j.\n\n");
    for (int stage = 0; stage < HEED_STAGES; stage++) {
        const heed_form *const *form = cli_stage_forms((heed_stage)stage);
        if (!form || !*form)
            continue;
        printf("## %s: %s\n\n", heed_stage_name((heed_stage)stage), cli_stage_texts[stage].question);
        if (*cli_stage_texts[stage].conventions)
            printf("%s\n\n", cli_stage_texts[stage].conventions);
        for (; *form; form++)
            print_form(*form);
    }
    if (heed_combinations[0].name)
        printf("## Combinations: names that stand for a whole spec\n\n");
    for (const heed_combination *named = heed_combinations; named->name; named++)
        print_combination(named);
}
