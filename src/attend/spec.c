/* A spec as a whole: an optional combination, then clauses. */
#include "attend/registry.h"
#include "attend/spec_reader.h"

#include <stdlib.h>
#include <string.h>

static const heed_combination *find_combination(heed_word name)
{
    const heed_combination *combination = heed_combinations;
    while (combination->name && !heed_word_is(name, combination->name))
        combination++;
    return combination->name ? combination : NULL;
}

static heed_status unknown_stage(const heed_reader *reader)
{
    heed_names names;
    heed_names_start(&names, reader->now);
    for (int stage = 0; stage < HEED_STAGES; stage++)
        heed_names_add(&names, heed_stage_name((heed_stage)stage));
    return heed_reader_fail(reader, reader->now.text, "'%s' is no stage%s",
                            heed_quoted_word(reader->now).text, heed_names_hint(&names).text);
}

/* Fails because a word without `=` is no combination, or stands where none may. */
static heed_status no_clause(const heed_reader *reader, bool start)
{
    const heed_quote word = heed_quoted_word(reader->now);
    const char *at = reader->now.text;
    if (find_combination(reader->now))
        return heed_reader_fail(
            reader, at, "the combination '%s' may stand only at the start, without prefix", word.text);
    for (int stage = 0; stage < HEED_STAGES; stage++) {
        const char *name = heed_stage_name((heed_stage)stage);
        if (heed_word_is(reader->now, name))
            return heed_reader_fail(reader, at, "'%s' is a stage and needs a form, %s=...", name, name);
        if (heed_find_form(reader->forms, (heed_stage)stage, reader->now))
            return heed_reader_fail(reader, at, "'%s' is a form of %s; write %s=%s", word.text, name, name,
                                    word.text);
    }
    if (!start)
        return unknown_stage(reader);
    heed_names names;
    heed_names_start(&names, reader->now);
    for (const heed_combination *combination = heed_combinations; combination->name; combination++)
        heed_names_add(&names, combination->name);
    return heed_reader_fail(reader, at, "'%s' is no combination%s", word.text, heed_names_hint(&names).text);
}

/* stage = expression */
static heed_status read_clause(heed_reader *reader, const heed_ranges *layers, const heed_ranges *heads)
{
    const char *at = reader->now.text;
    if (reader->now.kind != HEED_WORD_NAME)
        return heed_reader_expected(reader, "a clause, stage=form,");
    if (!heed_word_is_mark(heed_reader_peek(reader), "="))
        return no_clause(reader, false);
    int stage = 0;
    while (stage < HEED_STAGES && !heed_word_is(reader->now, heed_stage_name((heed_stage)stage)))
        stage++;
    if (stage == HEED_STAGES)
        return unknown_stage(reader);
    heed_reader_next(reader);
    heed_reader_next(reader);
    int root;
    const heed_status status = heed_read_expression(reader, (heed_stage)stage, &root);
    return status ? status : heed_place_clause(reader, layers, heads, (heed_stage)stage, at, root);
}

static heed_status read_clauses(heed_reader *reader)
{
    heed_ranges layers = {0}, heads = {0};
    heed_status status = HEED_OK;
    while (!status && reader->now.kind != HEED_WORD_END) {
        if (heed_word_is_mark(reader->now, ";")) {
            heed_reader_next(reader);
            continue;
        }
        if (heed_at_prefix(reader))
            status = heed_read_prefixes(reader, &layers, &heads);
        if (!status)
            status = read_clause(reader, &layers, &heads);
    }
    free(layers.range);
    free(heads.range);
    return status;
}

/* The spec that a combination stands for, with its arguments put in. */
static void expand(heed_out *out, const heed_combination *combination, const heed_value *value)
{
    const char *rest = combination->spec;
    for (const char *open; (open = strchr(rest, '{'));) {
        heed_put_bytes(out, rest, (size_t)(open - rest));
        const size_t length = strcspn(open + 1, "}");
        for (int i = 0; combination->args && combination->args[i].name; i++)
            if (strlen(combination->args[i].name) == length &&
                !memcmp(combination->args[i].name, open + 1, length))
                heed_put_value(out, &combination->args[i], &value[i]);
        rest = open + 1 + length;
        rest += *rest == '}';
    }
    heed_put(out, rest);
}

static heed_status read_combination(heed_reader *reader)
{
    const heed_word name = reader->now;
    const heed_combination *combination = find_combination(name);
    if (!combination)
        return no_clause(reader, true);
    heed_reader_next(reader);
    heed_value value[HEED_MAX_ARGS] = {{0}};
    heed_status status = heed_read_arguments(reader, NULL, name, combination->args, value, NULL);
    if (!status && reader->now.kind != HEED_WORD_END && !heed_word_is_mark(reader->now, ";"))
        status = heed_reader_expected(reader, "';' or the end");
    if (status)
        return status;

    heed_out count = {NULL, 0, 0};
    expand(&count, combination, value);
    char *text = malloc(count.length + 1);
    if (!text)
        return heed_fail(HEED_NO_MEMORY, "no memory for the text of a combination");
    heed_out out = {text, count.length + 1, 0};
    expand(&out, combination, value);
    heed_reader inside = {.forms = reader->forms, .spec = reader->spec};
    heed_reader_start(&inside, text);
    inside.fixed_column = heed_reader_column(reader, name.text);
    status = read_clauses(&inside);
    free(text);
    for (int stage = 0; stage < HEED_STAGES; stage++)
        reader->replaceable[stage] = reader->spec->group[0].root[stage] != HEED_ABSENT;
    return status;
}

static heed_status read_spec(heed_reader *reader)
{
    heed_spec *spec = reader->spec;
    spec->group = malloc(sizeof *spec->group);
    if (!spec->group)
        return heed_fail(HEED_NO_MEMORY, "no memory for a spec");
    spec->group[0] = (heed_group){.layers = {0}};
    for (int stage = 0; stage < HEED_STAGES; stage++)
        spec->group[0].root[stage] = HEED_ABSENT;
    spec->groups = 1;

    while (heed_word_is_mark(reader->now, ";"))
        heed_reader_next(reader);
    const bool combined = reader->now.kind == HEED_WORD_NAME && !heed_at_prefix(reader) &&
                          !heed_word_is_mark(heed_reader_peek(reader), "=");
    const heed_status status = combined ? read_combination(reader) : HEED_OK;
    return status ? status : read_clauses(reader);
}

heed_status heed_spec_parse(heed_spec **spec, const char *text, const heed_form *const *forms)
{
    *spec = NULL;
    const heed_status wrong = heed_check_forms(forms);
    if (wrong)
        return wrong;
    if (!text)
        return heed_fail(HEED_INVALID, "the text of the spec must not be NULL");
    if (strnlen(text, HEED_SPEC_BYTES + 1) > HEED_SPEC_BYTES)
        return heed_fail(HEED_INVALID, "column %d: a spec may be at most %d bytes long", HEED_SPEC_BYTES + 1,
                         HEED_SPEC_BYTES);
    heed_spec *made = calloc(1, sizeof *made);
    if (!made)
        return heed_fail(HEED_NO_MEMORY, "no memory for a spec");
    const heed_plain_locale locale = heed_plain_locale_enter();
    heed_reader reader = {.forms = forms, .spec = made};
    heed_reader_start(&reader, text);
    heed_status status = read_spec(&reader);
    const size_t printed = status ? 0 : heed_spec_print(made, NULL, 0);
    if (printed > HEED_SPEC_BYTES) /* what is printed can be read */
        status = heed_reader_fail(&reader, text,
                                  "the spec is too long: its canonical text takes %zu bytes, more than %d",
                                  printed, HEED_SPEC_BYTES);
    heed_plain_locale_leave(locale);
    if (status)
        heed_spec_free(made);
    else
        *spec = made;
    return status;
}

void heed_spec_free(heed_spec *spec)
{
    if (!spec)
        return;
    for (int g = 0; g < spec->groups; g++) {
        free(spec->group[g].layers.range);
        free(spec->group[g].heads.range);
    }
    free(spec->group);
    free(spec->node);
    free(spec);
}

void heed_spec_clauses(const heed_spec *spec, int64_t layer, int64_t head, int root[HEED_STAGES])
{
    for (int stage = 0; stage < HEED_STAGES; stage++)
        root[stage] = HEED_ABSENT;
    for (int g = 0; g < spec->groups; g++) {
        const heed_group *group = &spec->group[g];
        if (!heed_ranges_hold(&group->layers, layer) || !heed_ranges_hold(&group->heads, head))
            continue;
        for (int stage = 0; stage < HEED_STAGES; stage++)
            if (group->root[stage] != HEED_ABSENT)
                root[stage] = group->root[stage] == HEED_NONE ? HEED_ABSENT : group->root[stage];
    }
}

heed_status heed_spec_canonical(const char *spec, const heed_form *const *forms, char *text, size_t size)
{
    heed_spec *parsed;
    const heed_status status = heed_spec_parse(&parsed, spec, forms);
    if (status)
        return status;
    const size_t length = heed_spec_print(parsed, text, size);
    heed_spec_free(parsed);
    if (text && length >= size)
        return heed_fail(HEED_INVALID, "the canonical spec needs room for %zu bytes, not %zu", length + 1,
                         size);
    return HEED_OK;
}
