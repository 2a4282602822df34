/* Which forms a spec may name: the built-in ones, then a user's own. */
#include "attend/registry.h"
#include "attend/spec_reader.h"

#include <string.h>

/* `none` stands for the default, so no form may have that name. */
bool heed_stage_allows_none(heed_stage stage)
{
    return stage == HEED_POSITION || stage == HEED_SELECT || stage == HEED_SCAN || stage == HEED_LOWRANK ||
           stage == HEED_LAYER;
}

static bool is_name(const char *name)
{
    heed_reader reader;
    heed_reader_start(&reader, name);
    return reader.now.kind == HEED_WORD_NAME && heed_word_is(reader.now, name);
}

static const char *wrong_args(const heed_arg *args, int most, bool numbers_only)
{
    int count = 0;
    for (const heed_arg *arg = args; arg && arg->name; arg++, count++) {
        const bool number = arg->kind == HEED_ARG_FLOAT || arg->kind == HEED_ARG_INT;
        if (count == most)
            return "it has too many arguments";
        if (!is_name(arg->name))
            return "the name of an argument must be letters, digits and underscores";
        if (!number && (numbers_only || !arg->options || !arg->options[0].name))
            return "an argument that is no number must list its options, and those of an option must be "
                   "numbers";
        for (const heed_option *option = number ? NULL : arg->options; option && option->name; option++) {
            const char *wrong = is_name(option->name)
                                    ? wrong_args(option->args, HEED_MAX_SUBARGS, true)
                                    : "the name of an option must be letters, digits and underscores";
            if (wrong)
                return wrong;
        }
    }
    return NULL;
}

static const char *wrong_form(const heed_form *const *forms, int index)
{
    const heed_form *form = forms[index];
    if (!is_name(form->name))
        return "its name must be letters, digits and underscores";
    if (heed_registry_find(HEED_ISA_PORTABLE, form->stage, form->name))
        return "there is a built-in form of that name";
    if (heed_stage_allows_none(form->stage) && !strcmp(form->name, "none"))
        return "that name stands for the default of the stage";
    for (int i = 0; i < index; i++)
        if (forms[i]->stage == form->stage && !strcmp(forms[i]->name, form->name))
            return "it is given twice";
    for (const heed_arg *arg = form->args; form->stage == HEED_SELECT && arg && arg->name; arg++)
        if (!strcmp(arg->name, HEED_OVER))
            return "its argument '" HEED_OVER "' is one that every form of select takes already";
    return wrong_args(form->args, HEED_MAX_ARGS, false);
}

heed_status heed_check_forms(const heed_form *const *forms)
{
    for (int i = 0; forms && forms[i]; i++) {
        const char *stage = heed_stage_name(forms[i]->stage);
        if (!stage || !forms[i]->name)
            return heed_fail(HEED_INVALID, "form %d of the user's own must have a name and a stage", i);
        const char *wrong = wrong_form(forms, i);
        if (wrong)
            return heed_fail(HEED_INVALID, "the user's own form %s=%s cannot be used: %s", stage,
                             heed_quoted(forms[i]->name, (int)strnlen(forms[i]->name, 100)).text, wrong);
    }
    return HEED_OK;
}

const heed_form *heed_find_form(const heed_form *const *forms, heed_stage stage, heed_word name)
{
    const heed_form *const *form = heed_registry_stage(HEED_ISA_PORTABLE, stage);
    for (; form && *form; form++)
        if (heed_word_is(name, (*form)->name))
            return *form;
    for (form = forms; form && *form; form++)
        if ((*form)->stage == stage && heed_word_is(name, (*form)->name))
            return *form;
    return NULL;
}

heed_status heed_unknown_form(const heed_reader *reader, heed_stage stage)
{
    const heed_quote word = heed_quoted_word(reader->now);
    for (int other = 0; other < HEED_STAGES; other++)
        if (heed_find_form(reader->forms, (heed_stage)other, reader->now))
            return heed_reader_fail(reader, reader->now.text, "'%s' is a form of %s, not of %s", word.text,
                                    heed_stage_name((heed_stage)other), heed_stage_name(stage));
    heed_names names;
    heed_names_start(&names, reader->now);
    if (heed_stage_allows_none(stage))
        heed_names_add(&names, "none");
    const heed_form *const *form = heed_registry_stage(HEED_ISA_PORTABLE, stage);
    for (; form && *form; form++)
        heed_names_add(&names, (*form)->name);
    for (form = reader->forms; form && *form; form++)
        if ((*form)->stage == stage)
            heed_names_add(&names, (*form)->name);
    return heed_reader_fail(reader, reader->now.text, "'%s' is no form of %s%s", word.text,
                            heed_stage_name(stage), heed_names_hint(&names).text);
}
