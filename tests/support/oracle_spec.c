#include "support/oracle_spec.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const stage_name[STAGES] = {"score",     "position", "where", "select",
                                               "normalise", "heads",    "read"};

/* What binds tighter stands later. */
static const char *const level[] = {">", "+", "|", "&"};
enum { LEVELS = sizeof level / sizeof *level };

typedef struct reader {
    const char *text, *at;
} reader;

static void give_up(const reader *r, const char *expected)
{
    fprintf(stderr, "the oracle cannot read \"%s\" at \"%s\": %s expected\n", r->text, r->at, expected);
    abort();
}

static bool take(reader *r, char sign)
{
    while (*r->at == ' ')
        r->at++;
    if (*r->at != sign)
        return false;
    r->at++;
    return true;
}

static void expect(reader *r, char sign)
{
    const char expected[2] = {sign, 0};
    if (!take(r, sign))
        give_up(r, expected);
}

static bool read_word(reader *r, char word[24])
{
    while (*r->at == ' ')
        r->at++;
    int n = 0;
    if (isalpha((unsigned char)*r->at))
        for (; (isalnum((unsigned char)*r->at) || *r->at == '_') && n < 23; r->at++)
            word[n++] = *r->at;
    word[n] = 0;
    return n > 0;
}

static void read_args(reader *r, oracle_arg *arg, int *args, int most);

static void read_arg(reader *r, oracle_arg *arg)
{
    if (read_word(r, arg->word) && take(r, '=')) {
        memcpy(arg->name, arg->word, sizeof arg->name);
        read_word(r, arg->word);
    }
    if (!arg->word[0]) {
        char *end;
        arg->number = strtod(r->at, &end);
        if (end == r->at)
            give_up(r, "a number");
        r->at = end;
    } else if (take(r, '(')) {
        arg->sub = calloc(6, sizeof *arg->sub);
        read_args(r, arg->sub, &arg->subs, 6);
    }
}

static void read_args(reader *r, oracle_arg *arg, int *args, int most)
{
    while (!take(r, ')')) {
        if (*args == most)
            give_up(r, "fewer arguments");
        read_arg(r, &arg[(*args)++]);
        take(r, ',');
    }
}

static oracle_node *read_level(reader *r, int n)
{
    if (n == LEVELS) {
        if (take(r, '(')) {
            oracle_node *inside = read_level(r, 0);
            expect(r, ')');
            return inside;
        }
        oracle_node *node = calloc(1, sizeof *node);
        if (take(r, '!')) {
            node->kind = '!';
            node->left = read_level(r, LEVELS);
        } else {
            if (!read_word(r, node->form.name))
                give_up(r, "a form");
            if (take(r, '('))
                read_args(r, node->form.arg, &node->form.args, 8);
        }
        return node;
    }
    oracle_node *left = read_level(r, n + 1);
    while (take(r, level[n][0])) {
        oracle_node *both = calloc(1, sizeof *both);
        both->kind = level[n][0];
        both->left = left;
        both->right = read_level(r, n + 1);
        left = both;
    }
    return left;
}

oracle_spec *oracle_spec_read(const char *text)
{
    oracle_spec *spec = calloc(1, sizeof *spec);
    reader r = {text, text};
    char word[24];
    while (read_word(&r, word)) {
        int stage = 0;
        while (stage < STAGES && strcmp(word, stage_name[stage]) != 0)
            stage++;
        if (stage == STAGES)
            give_up(&r, "a stage");
        expect(&r, '=');
        spec->root[stage] = read_level(&r, 0);
        if (!take(&r, ';'))
            break;
    }
    take(&r, ' ');
    if (*r.at)
        give_up(&r, "the end");
    return spec;
}

static void free_node(oracle_node *node)
{
    if (!node)
        return;
    free_node(node->left);
    free_node(node->right);
    for (int i = 0; i < node->form.args; i++)
        free(node->form.arg[i].sub);
    free(node);
}

void oracle_spec_free(oracle_spec *spec)
{
    for (int i = 0; i < STAGES; i++)
        free_node(spec->root[i]);
    free(spec);
}

static const oracle_arg *find_arg(const oracle_arg *arg, int args, int place, const char *name)
{
    for (int i = 0; i < args; i++)
        if (arg[i].name[0] ? strcmp(arg[i].name, name) == 0 : i == place)
            return &arg[i];
    return NULL;
}

double oracle_number(const oracle_form *form, int place, const char *name, double fallback)
{
    const oracle_arg *arg = find_arg(form->arg, form->args, place, name);
    return arg ? arg->number : fallback;
}

const oracle_arg *oracle_option(const oracle_form *form, int place, const char *name)
{
    return find_arg(form->arg, form->args, place, name);
}

double oracle_sub_number(const oracle_arg *arg, int place, const char *name, double fallback)
{
    const oracle_arg *sub = find_arg(arg->sub, arg->subs, place, name);
    return sub ? sub->number : fallback;
}

bool oracle_word_is(const oracle_form *form, int place, const char *name, const char *word)
{
    const oracle_arg *arg = find_arg(form->arg, form->args, place, name);
    return arg && strcmp(arg->word, word) == 0;
}

int oracle_list(const oracle_node *node, const oracle_form **list, int most)
{
    if (!node)
        return 0;
    if (node->kind) {
        const int n = oracle_list(node->left, list, most);
        return n + oracle_list(node->right, list + n, most - n);
    }
    if (most == 0)
        abort();
    *list = &node->form;
    return 1;
}

const oracle_form *oracle_find_form(const oracle_spec *spec, enum oracle_stage stage, const char *name)
{
    const oracle_form *list[16];
    const int n = oracle_list(spec->root[stage], list, 16);
    for (int i = 0; i < n; i++)
        if (strcmp(list[i]->name, name) == 0)
            return list[i];
    return NULL;
}

bool oracle_is_causal(const oracle_node *where)
{
    if (!where)
        return false;
    if (where->kind == '&')
        return oracle_is_causal(where->left) || oracle_is_causal(where->right);
    return !where->kind && strcmp(where->form.name, "causal") == 0;
}
