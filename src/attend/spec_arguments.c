/* The arguments of a form, an option or a combination: (a, b, name=c), by place first, then by name. */
#include "attend/spec_reader.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGEST_WHOLE                                                                                        \
    9007199254740991.0 /* 2^53 - 1: up to here every whole number is a double of its own                     \
                        */

static heed_value default_value(const heed_arg *arg)
{
    heed_value value = {.number = arg->value};
    if (arg->kind == HEED_ARG_OPTION && arg->value >= 0) {
        const heed_arg *sub = arg->options[(int)arg->value].args;
        for (int i = 0; sub && sub[i].name; i++)
            value.sub[i] = sub[i].value;
    }
    return value;
}

static int count_args(const heed_arg *args)
{
    int count = 0;
    while (args && args[count].name)
        count++;
    return count;
}

static heed_status read_number(heed_reader *reader, const heed_arg *arg, double *number)
{
    const char *at = reader->now.text;
    bool negative = false;
    if (heed_word_is_mark(reader->now, "+-")) {
        negative = *at == '-';
        heed_reader_next(reader);
    }
    const heed_word word = reader->now;
    if (word.kind == HEED_WORD_NAME && heed_word_is(word, "inf"))
        *number = INFINITY;
    else if (word.kind == HEED_WORD_NUMBER)
        *number = strtod(word.text, NULL); /* ends where the word ends */
    else
        return heed_reader_expected(reader, "a number for %s", arg->name);
    if (word.kind == HEED_WORD_NUMBER && isinf(*number))
        return heed_reader_fail(reader, at, "'%s' is too large for a number", heed_quoted_word(word).text);
    if (negative)
        *number = -*number;
    heed_reader_next(reader);
    return HEED_OK;
}

static heed_status read_list(heed_reader *reader, heed_word owner, const heed_arg *args, heed_value *value,
                             int *over);

static heed_status read_option(heed_reader *reader, const heed_arg *arg, heed_value *value)
{
    heed_names names;
    heed_names_start(&names, reader->now);
    int chosen = -1;
    for (int i = 0; arg->options[i].name; i++) {
        heed_names_add(&names, arg->options[i].name);
        if (reader->now.kind == HEED_WORD_NAME && heed_word_is(reader->now, arg->options[i].name))
            chosen = i;
    }
    if (reader->now.kind == HEED_WORD_NUMBER || reader->now.kind == HEED_WORD_NAME) {
        if (chosen < 0)
            return heed_reader_fail(reader, reader->now.text, "'%s' is no choice for %s%s",
                                    heed_quoted_word(reader->now).text, arg->name,
                                    heed_names_hint(&names).text);
    } else
        return heed_reader_expected(reader, "a choice for %s (of %s)", arg->name, names.list);

    const heed_word name = reader->now;
    heed_reader_next(reader);
    const heed_arg *sub = arg->options[chosen].args;
    heed_value sub_value[HEED_MAX_ARGS] = {{0}};
    for (int i = 0; sub && sub[i].name; i++)
        sub_value[i].number = sub[i].value;
    const heed_status status = read_list(reader, name, sub, sub_value, NULL);
    if (status)
        return status;
    *value = (heed_value){.number = chosen};
    for (int i = 0; sub && sub[i].name; i++)
        value->sub[i] = sub[i].required && !sub_value[i].given ? NAN : sub_value[i].number;
    return HEED_OK;
}

static heed_status read_value(heed_reader *reader, const heed_arg *arg, heed_value *value)
{
    const heed_status status = arg->kind == HEED_ARG_FLOAT || arg->kind == HEED_ARG_INT
                                   ? read_number(reader, arg, &value->number)
                                   : read_option(reader, arg, value);
    value->given = !status;
    return status;
}

/* Finds which argument is named here, and steps behind the `=`. Its index is that behind the last for `over`,
 * where that may stand. */
static heed_status read_name(heed_reader *reader, heed_word owner, const heed_arg *args, bool takes_over,
                             int *index)
{
    heed_names names;
    heed_names_start(&names, reader->now);
    const int count = count_args(args);
    for (*index = 0; *index < count && !heed_word_is(reader->now, args[*index].name); ++*index)
        heed_names_add(&names, args[*index].name);
    if (takes_over)
        heed_names_add(&names, HEED_OVER);
    if (*index == count && !(takes_over && heed_word_is(reader->now, HEED_OVER)))
        return heed_reader_fail(reader, reader->now.text, "'%s' is no argument of %s%s",
                                heed_quoted_word(reader->now).text, heed_quoted_word(owner).text,
                                heed_names_hint(&names).text);
    heed_reader_next(reader);
    heed_reader_next(reader);
    return HEED_OK;
}

static heed_status too_many(const heed_reader *reader, heed_word owner, int count, bool takes_over)
{
    const heed_quote name = heed_quoted_word(owner), word = heed_quoted_word(reader->now);
    if (count == 0)
        return heed_reader_fail(reader, reader->now.text, "'%s': %s takes no argument%s", word.text,
                                name.text, takes_over ? " but " HEED_OVER : "s");
    return heed_reader_fail(reader, reader->now.text, "'%s' is one too many: %s takes at most %d argument%s",
                            word.text, name.text, count, count == 1 ? "" : "s");
}

static heed_status given_twice(const heed_reader *reader, const char *at, const char *name, heed_word owner)
{
    return heed_reader_fail(reader, at, "'%s' of %s is given twice", name, heed_quoted_word(owner).text);
}

/* Reads `(...)` if it stands here; `value` holds the defaults. `over`: see heed_read_arguments. */
static heed_status read_list(heed_reader *reader, heed_word owner, const heed_arg *args, heed_value *value,
                             int *over)
{
    if (!heed_word_is_mark(reader->now, "("))
        return HEED_OK;
    heed_reader_next(reader);
    const int count = count_args(args);
    bool named = false;
    bool more = !heed_word_is_mark(reader->now, ")");
    for (int place = 0; more; place++) {
        const heed_word start = reader->now;
        if (start.kind == HEED_WORD_END || heed_word_is_mark(start, ",);="))
            return heed_reader_expected(reader, "an argument of %s", heed_quoted_word(owner).text);
        const bool by_name = start.kind == HEED_WORD_NAME && heed_word_is_mark(heed_reader_peek(reader), "=");
        int index = place;
        heed_status status = HEED_OK;
        if ((count == 0 && !(over && by_name)) || (!by_name && !named && place >= count))
            return too_many(reader, owner, count, over != NULL);
        if (by_name)
            status = read_name(reader, owner, args, over != NULL, &index);
        else if (named)
            status = heed_reader_fail(reader, start.text, "'%s' stands by place after an argument by name",
                                      heed_quoted_word(start).text);
        const bool is_over = index == count;
        if (!status && (is_over ? *over != HEED_ABSENT : value[index].given))
            status = given_twice(reader, start.text, is_over ? HEED_OVER : args[index].name, owner);
        if (!status)
            status = is_over ? heed_read_over(reader, over) : read_value(reader, &args[index], &value[index]);
        if (status)
            return status;
        named = by_name;
        more = heed_word_is_mark(reader->now, ",");
        if (more)
            heed_reader_next(reader);
    }
    if (!heed_word_is_mark(reader->now, ")"))
        return heed_reader_expected(reader, "',' or ')' of %s", heed_quoted_word(owner).text);
    heed_reader_next(reader);
    return HEED_OK;
}

/* What a number must be, when it is not: "at least 1". Infinity is a value only where the range names it. */
static bool is_wrong(const heed_arg *arg, double x, char *must, size_t size)
{
    heed_out out = {must, size, 0};
    const bool bounded = arg->least != 0 || arg->most != 0;
    const double most = bounded && arg->most >= arg->least ? arg->most : INFINITY;
    const double least = bounded || arg->above ? arg->least : -INFINITY;
    if (arg->kind == HEED_ARG_INT && (x != floor(x) || isinf(x)))
        heed_put(&out, "a whole number");
    else if (arg->above && x <= least) {
        heed_put(&out, "above ");
        heed_put_number(&out, least);
    } else if (x < least) {
        heed_put(&out, "at least ");
        heed_put_number(&out, least);
    } else if (x > most) {
        heed_put(&out, "at most ");
        heed_put_number(&out, most);
    } else if (isinf(x) && !(bounded && (x > 0 ? arg->most : arg->least) == x))
        heed_put(&out, "finite");
    else if (arg->kind == HEED_ARG_INT && fabs(x) > LARGEST_WHOLE)
        heed_put(&out, "between -2^53 and 2^53, and not these");
    else if (!isinf(x) && fabs(x) > (double)FLT_MAX)
        heed_put(&out, "within the range of 32-bit numbers, at most 3.4e38");
    else if (x != 0 && fabs(x) < (double)FLT_MIN)
        heed_put(&out, "0 or within the range of 32-bit numbers, at least 1.2e-38");
    return out.length > 0;
}

/* Fails because a value that is given, or should be, is wrong: "where=window(-3): w must be at least 1". */
static heed_status must_be(const heed_reader *reader, const char *stage, heed_word name, const char *option,
                           const char *arg, const char *what)
{
    const heed_quote call = heed_quoted(name.text, (int)(reader->behind - name.text));
    return heed_reader_fail(reader, name.text, "%s%s%s: %s%s%s must be %s", stage ? stage : "",
                            stage ? "=" : "", call.text, arg, option ? " of " : "", option ? option : "",
                            what);
}

static heed_status check(const heed_reader *reader, const char *stage, heed_word name, const heed_arg *arg,
                         const heed_value *value)
{
    char must[96];
    if (!value->given)
        return arg->required ? must_be(reader, stage, name, NULL, arg->name, "given") : HEED_OK;
    if (arg->kind == HEED_ARG_FLOAT || arg->kind == HEED_ARG_INT)
        return is_wrong(arg, value->number, must, sizeof must)
                   ? must_be(reader, stage, name, NULL, arg->name, must)
                   : HEED_OK;
    const heed_option *option = &arg->options[(int)value->number];
    for (int i = 0; option->args && option->args[i].name; i++) {
        const heed_arg *sub = &option->args[i];
        if (sub->required && isnan(value->sub[i]))
            return must_be(reader, stage, name, option->name, sub->name, "given");
        if (!isnan(value->sub[i]) && is_wrong(sub, value->sub[i], must, sizeof must))
            return must_be(reader, stage, name, option->name, sub->name, must);
    }
    return HEED_OK;
}

heed_status heed_read_arguments(heed_reader *reader, const char *stage, heed_word name, const heed_arg *args,
                                heed_value value[HEED_MAX_ARGS], int *over)
{
    const int count = count_args(args);
    for (int i = 0; i < count; i++)
        value[i] = default_value(&args[i]);
    heed_status status = read_list(reader, name, args, value, over);
    for (int i = 0; i < count && !status; i++)
        status = check(reader, stage, name, &args[i], &value[i]);
    return status;
}
