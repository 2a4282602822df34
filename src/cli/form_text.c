#include "cli/form_text.h"

#include "attend/registry.h"
#include "attend/spec_reader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static heed_out start(cli_line *line)
{
    line->text[0] = 0;
    return (heed_out){line->text, sizeof line->text, 0};
}

/* Between the items of a list: "" first, then `between`. */
static void put_between(heed_out *out, bool *first, const char *between)
{
    if (!*first)
        heed_put(out, between);
    *first = false;
}

static void put_option(heed_out *out, const heed_option *option)
{
    heed_put(out, option->name);
    if (!option->args || !option->args[0].name)
        return;
    heed_put(out, "(");
    heed_put(out, cli_signature(option->args).text);
    heed_put(out, ")");
}

static void put_default(heed_out *out, const heed_arg *arg)
{
    const bool named = arg->kind == HEED_ARG_CHOICE || arg->kind == HEED_ARG_OPTION;
    if (arg->required)
        return;
    if (arg->computed)
        heed_put(out, arg->computed);
    else if (!named)
        heed_put_number(out, arg->value);
    else if (arg->value < 0)
        heed_put(out, "none");
    else
        put_option(out, &arg->options[(int)arg->value]);
}

cli_line cli_default(const heed_arg *arg)
{
    cli_line line;
    heed_out out = start(&line);
    put_default(&out, arg);
    return line;
}

cli_line cli_signature(const heed_arg *args)
{
    cli_line line;
    heed_out out = start(&line);
    bool first = true;
    for (const heed_arg *arg = args; arg && arg->name; arg++) {
        put_between(&out, &first, ", ");
        heed_put(&out, arg->name);
        if (arg->required)
            continue;
        heed_put(&out, "=");
        put_default(&out, arg);
    }
    return line;
}

static void put_range(heed_out *out, const heed_arg *arg)
{
    const bool bounded = arg->least != 0.0 || arg->most != 0.0;
    heed_put(out, arg->kind == HEED_ARG_INT ? "whole number" : "number");
    if (bounded && isfinite(arg->least)) {
        heed_put(out, arg->above ? ", above " : ", at least ");
        heed_put_number(out, arg->least);
    }
    if (bounded && isfinite(arg->most) &&
        arg->most < 9007199254740992.0) { /* 2^53: no bound that anyone meets */
        heed_put(out, ", at most ");
        heed_put_number(out, arg->most);
    }
}

cli_line cli_values(const heed_arg *arg)
{
    cli_line line;
    heed_out out = start(&line);
    if (arg->kind == HEED_ARG_FLOAT || arg->kind == HEED_ARG_INT) {
        put_range(&out, arg);
        return line;
    }
    bool first = true;
    for (const heed_option *option = arg->options; option && option->name; option++) {
        put_between(&out, &first, option[1].name ? ", " : " or ");
        put_option(&out, option);
    }
    return line;
}

cli_line cli_needs(const heed_form *form)
{
    static const struct {
        unsigned flag;
        const char *text;
    } needs[] = {
        {HEED_NEEDS_DOT, "score=dot"},
        {HEED_NEEDS_CAUSAL, "`causal` as a factor of `where`"},
        {HEED_NEEDS_SEGMENTS, "the tensors q_segment and k_segment"},
        {HEED_NEEDS_MASK, "the tensor mask"},
    };
    cli_line line;
    heed_out out = start(&line);
    bool first = true;
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (form->flags & needs[i].flag) {
            put_between(&out, &first, ", ");
            heed_put(&out, needs[i].text);
        }
    return line;
}

double cli_decimal(float x)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x)
            break;
    }
    return strtod(text, NULL);
}

cli_line cli_initial(const heed_param *param)
{
    cli_line line;
    heed_out out = start(&line);
    if (param->required)
        heed_put(&out, "must be given");
    else if (param->fill)
        heed_put(&out, "its own for each entry");
    else
        heed_put_number(&out, cli_decimal(param->initial));
    return line;
}

const heed_form *const *cli_stage_forms(heed_stage stage)
{
    return heed_registry_stage(HEED_ISA_PORTABLE, stage);
}

/* N queries, M keys, D entries of q and k, H heads. */
const cli_stage_text cli_stage_texts[HEED_STAGES] = {
    [HEED_SCORE] = {"how are a query and a key compared?",
                    "Query head h of H reads the keys and values of kv head floor(h G / H) of G. A score of "
                    "-inf closes its "
                    "pair, +inf makes its row NaN."},
    [HEED_POSITION] =
        {"what does distance or order add?",
         "Query i stands at p(i) = i + M - N, so that the last query stands at the last key; key j stands at "
         "k_pos(j) = j; the tensors q_pos and k_pos replace these. Distance is p(i) - k_pos(j). At most one "
         "form "
         "that rotates; the others add up with `+`, each once."},
    [HEED_WHERE] = {"what may be seen at all?", "A query sees the pairs that are open; a row with nothing "
                                                "open has weights 0, output 0 and lse -inf. `!` "
                                                "binds tightest, then `&`, then `|`. Positions are those of "
                                                "`position`: with fewer queries than keys the "
                                                "last query stands at the last key."},
    [HEED_SELECT] =
        {"what is worth seeing, from the data?",
         "A selector sees the scores after `position`, before soft cap and temperature; its "
         "weights are those of a "
         "softmax over the open keys. `a > b`: b sees only what a left; `b(over=a)` says the same, "
         "with any form of select. No gradient flows through the choice."},
    [HEED_NORMALISE] =
        {"how do scores become weights?",
         "lse is the log of the sum of exp(logit) over the open and selected keys, the logit after soft cap "
         "and "
         "temperature, without a sink, softmax1's 1 or sigmoid's bias, whatever the normaliser."},
    [HEED_HEADS] = {"how do heads share and mix?",
                    "Multi-head, grouped and multi-query attention follow from the shapes of q, k and v."},
    [HEED_READ] = {"how are values read and combined?", ""},
    [HEED_SCAN] =
        {"what state is carried along?",
         "A recurrence instead of scores, alone in its spec: `heed scan`, heed/scan.h. G kv heads have a "
         "state each, D channels by E values, that all their query heads read. decay and gate are logs of "
         "what stays, 0 or less; where a form reads them, or beta, erase or rate, is said by its source "
         "and refused when missing."},
    [HEED_LOWRANK] =
        {"what small set stands between?",
         "Alone in its spec, in models that `heed train` makes: `attention = lowrank=...`. Tokens "
         "see later ones, so they are for encoders."},
    [HEED_LAYER] =
        {"what stands in attention's place?",
         "Layers of a model that `heed train` makes: `attention = layer=...`, with maps of their own, "
         "trained by a graph of operations. A layer that says so in its formula, attend(q, k, v), "
         "takes the other clauses of the spec for that attention; else it stands alone."},
    [HEED_CACHE] = {"what is kept of the past, and how small?",
                    "A chain: `cache=snapkv(share=0.25) > by_head > packed > q8`. A policy says which keys "
                    "stay; the forms "
                    "behind it, up to the next policy, shape it; a storage type may end the chain. `budget` "
                    "counts keys a kv "
                    "head, `share` is of the tokens read, on layers that see a window of what it holds. Of "
                    "equal scores the "
                    "later key stays. Keys and values are stored as given, before any rotation. No gradients "
                    "through a type "
                    "other than f32."},
};
