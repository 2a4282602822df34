/* The canonical text of a spec: what was said, in one way of saying it. */
#include "attend/spec_reader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The form that a stage has when nothing is said; a clause that says no more is not printed for all layers
 * and heads. */
static const char *const default_form[HEED_STAGES] = {
    [HEED_SCORE] = "dot",    [HEED_WHERE] = "all", [HEED_NORMALISE] = "softmax",
    [HEED_HEADS] = "shared", [HEED_READ] = "sum",
};

void heed_put_bytes(heed_out *out, const char *text, size_t length)
{
    if (out->length < out->size) {
        const size_t room = out->size - out->length - 1; /* one byte is for the final 0 */
        const size_t part = length < room ? length : room;
        memcpy(out->text + out->length, text, part);
        out->text[out->length + part] = 0;
    }
    out->length += length;
}

void heed_put(heed_out *out, const char *text)
{
    heed_put_bytes(out, text, strlen(text));
}

void heed_put_number(heed_out *out, double number)
{
    char text[40];
    if (number == floor(number) && fabs(number) < 9007199254740992.0) /* 2^53 */
        snprintf(text, sizeof text, "%.0f", number);
    else
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, number);
            if (strtod(text, NULL) == number)
                break;
        }
    heed_put(out, text);
}

static void put_separator(heed_out *out, bool *first, const char *before_first, const char *between)
{
    heed_put(out, *first ? before_first : between);
    *first = false;
}

void heed_put_value(heed_out *out, const heed_arg *arg, const heed_value *value)
{
    if (arg->kind == HEED_ARG_FLOAT || arg->kind == HEED_ARG_INT) {
        heed_put_number(out, value->number);
        return;
    }
    const heed_option *option = &arg->options[(int)value->number];
    heed_put(out, option->name);
    bool first = true;
    for (int i = 0; option->args && option->args[i].name; i++) {
        const heed_arg *sub = &option->args[i];
        if (isnan(value->sub[i]) || (!sub->required && value->sub[i] == sub->value))
            continue;
        put_separator(out, &first, "(", ", ");
        heed_put(out, sub->name);
        heed_put(out, "=");
        heed_put_number(out, value->sub[i]);
    }
    heed_put(out, first ? "" : ")");
}

/* Was it said, and is it more than the default says? */
static bool is_worth_saying(const heed_arg *arg, const heed_value *value)
{
    if (arg->required || !value->given)
        return value->given;
    if (value->number != arg->value)
        return true;
    if (arg->kind == HEED_ARG_OPTION) {
        const heed_arg *sub = arg->options[(int)value->number].args;
        for (int i = 0; sub && sub[i].name; i++)
            if (!isnan(value->sub[i]) && value->sub[i] != sub[i].value)
                return true;
    }
    return false;
}

static bool has_arguments(const heed_node *node)
{
    const heed_arg *args = node->form->args;
    for (int i = 0; args && args[i].name; i++)
        if (is_worth_saying(&args[i], &node->arg[i]))
            return true;
    return false;
}

static void put_form(heed_out *out, const heed_node *node)
{
    const heed_arg *args = node->form->args;
    bool first = true;
    heed_put(out, node->form->name);
    for (int i = 0; args && args[i].name; i++) {
        if (!is_worth_saying(&args[i], &node->arg[i]))
            continue;
        put_separator(out, &first, "(", ", ");
        heed_put(out, args[i].name);
        heed_put(out, "=");
        heed_put_value(out, &args[i], &node->arg[i]);
    }
    heed_put(out, first ? "" : ")");
}

/* How tightly a node holds together; brackets go round a part that is looser than what it is part of. */
static const int tightness[] = {
    [HEED_NODE_CHAIN] = 0, [HEED_NODE_ADD] = 0, [HEED_NODE_OR] = 1,
    [HEED_NODE_AND] = 2,   [HEED_NODE_NOT] = 3, [HEED_NODE_FORM] = 4,
};

static const char *const mark[] = {
    [HEED_NODE_CHAIN] = " > ", [HEED_NODE_ADD] = " + ", [HEED_NODE_OR] = " | ", [HEED_NODE_AND] = " & "};

static void put_node(heed_out *out, const heed_spec *spec, int index, int least)
{
    const heed_node *node = &spec->node[index];
    const int here = tightness[node->kind];
    heed_put(out, here < least ? "(" : "");
    if (node->kind == HEED_NODE_FORM)
        put_form(out, node);
    else if (node->kind == HEED_NODE_NOT) {
        heed_put(out, "!");
        put_node(out, spec, node->left, here);
    } else {
        put_node(out, spec, node->left, here);
        heed_put(out, mark[node->kind]);
        put_node(out, spec, node->right, here);
    }
    heed_put(out, here < least ? ")" : "");
}

static bool is_default(const heed_spec *spec, int root, int stage)
{
    if (root == HEED_NONE)
        return true;
    const heed_node *node = &spec->node[root];
    return default_form[stage] && node->kind == HEED_NODE_FORM &&
           !strcmp(node->form->name, default_form[stage]) && !has_arguments(node);
}

static void put_ranges(heed_out *out, const char *what, const heed_ranges *ranges)
{
    heed_put(out, what);
    for (int i = 0; i < ranges->count; i++) {
        const int64_t *range = ranges->range[i];
        heed_put(out, i ? "," : " ");
        heed_put_number(out, (double)range[0]);
        if (range[1] != range[0]) {
            heed_put(out, "-");
            heed_put_number(out, (double)range[1]);
        }
    }
    heed_put(out, ranges->count ? ": " : " all: ");
}

static void put_prefix(heed_out *out, const heed_group *group)
{
    if (group->layers.count || !group->heads.count)
        put_ranges(out, "layers", &group->layers);
    if (group->heads.count)
        put_ranges(out, "heads", &group->heads);
}

static void put_spec(heed_out *out, const heed_spec *spec)
{
    bool first = true;
    for (int g = 0; g < spec->groups; g++) {
        const heed_group *group = &spec->group[g];
        bool prefixed = g == 0;
        for (int stage = 0; stage < HEED_STAGES; stage++) {
            const int root = group->root[stage];
            if (root == HEED_ABSENT || (g == 0 && is_default(spec, root, stage)))
                continue;
            put_separator(out, &first, "", "; ");
            if (!prefixed)
                put_prefix(out, group);
            prefixed = true;
            heed_put(out, heed_stage_name((heed_stage)stage));
            heed_put(out, "=");
            if (root == HEED_NONE)
                heed_put(out, "none");
            else
                put_node(out, spec, root, 0);
        }
    }
    heed_put(out, first ? "score=dot" : "");
}

size_t heed_spec_print(const heed_spec *spec, char *text, size_t size)
{
    const heed_plain_locale locale = heed_plain_locale_enter();
    heed_out out = {text, text ? size : 0, 0};
    if (out.size)
        *text = 0;
    put_spec(&out, spec);
    heed_plain_locale_leave(locale);
    return out.length;
}
