/* Random specs and random damage: what prints reads back the same, the last clause written holds, and nothing
 * crashes. */
#include "attend/registry.h"
#include "attend/spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SPACE 8192 /* bytes of a text; a longer one is cut, and then refused */
#define INDICES 5  /* layers and heads looked at */

/* A form with every kind of argument, beside the built-in ones. */
static const heed_arg sub_args[] = {
    {.name = "far", .required = true, .least = -4, .most = 1e6},
    {.name = "near", .kind = HEED_ARG_INT, .value = 2, .least = 1, .most = INFINITY},
    {0},
};
static const heed_option choices[] = {{.name = "one"}, {.name = "two"}, {0}};
static const heed_option options[] = {{.name = "plain"}, {.name = "rich", .args = sub_args}, {0}};
static const heed_arg every_args[] = {
    {.name = "must", .kind = HEED_ARG_INT, .required = true, .least = -9, .most = 1 << 20},
    {.name = "may", .value = 0.1, .above = true, .most = INFINITY},
    {.name = "which", .kind = HEED_ARG_CHOICE, .value = 1, .options = choices},
    {.name = "how", .kind = HEED_ARG_OPTION, .value = -1, .options = options},
    {.name = "free", .value = NAN, .computed = "sqrt(D)"},
    {0},
};
static const heed_form every_mask = {.name = "every", .stage = HEED_WHERE, .args = every_args};
static const heed_form every_choice = {.name = "every", .stage = HEED_SELECT, .args = every_args};
static const heed_form every_state = {.name = "every", .stage = HEED_SCAN, .args = every_args};
static const heed_form *const own[] = {&every_mask, &every_choice, &every_state, NULL};

typedef struct writer {
    uint64_t seed;
    char text[SPACE];
    int length;
} writer;

static uint32_t draw(writer *w, uint32_t below)
{
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->seed >> 33) % below;
}

static void put(writer *w, const char *text)
{
    static const char *const space[] = {" ", "\n", "\t ", "  "};
    w->length += snprintf(w->text + w->length, sizeof w->text - (size_t)w->length, "%s%s",
                          draw(w, 4) ? "" : space[draw(w, 4)], text);
    assert_true(w->length < SPACE - 64);
}

static void put_number(writer *w, const heed_arg *arg)
{
    const bool bounded = arg->least != 0 || arg->most != 0;
    const double least = bounded ? arg->least : -1e3;
    const double most = !bounded ? 1e3 : isinf(arg->most) ? least + 1e6 : arg->most;
    double x = least + (most - least) * (draw(w, 1u << 30) + 1.0) / (1u << 30);
    if (draw(w, 2)) /* many ranges are wide; stay near their start */
        x = least + fmin(most - least, draw(w, 400) / 4.0 + 0.25);
    if (arg->kind == HEED_ARG_INT)
        x = fmax(floor(x) < least ? ceil(x) : floor(x), -9007199254740991.0); /* 1 - 2^53 */
    const char *const format[] = {"%.17g", "%.17e", "%+.17g"};
    char text[64];
    snprintf(text, sizeof text, format[draw(w, 3)], x);
    put(w, arg->most == INFINITY && arg->kind == HEED_ARG_FLOAT && !draw(w, 8) ? "inf" : text);
}

static void put_form(writer *w, heed_stage stage, unsigned with, unsigned without);
static void put_arguments(writer *w, const heed_arg *args, bool over);

static void put_value(writer *w, const heed_arg *arg)
{
    if (arg->kind == HEED_ARG_FLOAT || arg->kind == HEED_ARG_INT) {
        put_number(w, arg);
        return;
    }
    uint32_t count = 0;
    while (arg->options[count].name)
        count++;
    const heed_option *option = &arg->options[draw(w, count)];
    put(w, option->name);
    put_arguments(w, option->args, false);
}

/* Some by place, then some by name in any order, the required ones always; `over` last, a form of select. */
static void put_arguments(writer *w, const heed_arg *args, bool over)
{
    int count = 0;
    while (args && args[count].name)
        count++;
    const int by_place = (int)draw(w, (uint32_t)count + 1);
    bool any = false;
    for (int i = 0; i < by_place; i++) {
        put(w, any ? "," : "(");
        put_value(w, &args[i]);
        any = true;
    }
    const int turn = count ? (int)draw(w, (uint32_t)count) : 0;
    for (int step = 0; step < count; step++) {
        const int i = (step + turn) % count;
        if (i < by_place || (!args[i].required && draw(w, 2)))
            continue;
        put(w, any ? "," : "(");
        put(w, args[i].name);
        put(w, "=");
        put_value(w, &args[i]);
        any = true;
    }
    if (over) {
        put(w, any ? "," : "(");
        put(w, "over=");
        put_form(w, HEED_SELECT, 0, 0);
        any = true;
    }
    put(w, any ? ")" : draw(w, 8) ? "" : "()");
}

/* Forms of a stage with and without some flags: built-in ones, then our own. */
static int list_forms(heed_stage stage, unsigned with, unsigned without, const heed_form *list[64])
{
    int count = 0;
    const heed_form *const *tables[] = {heed_registry_stage(HEED_ISA_PORTABLE, stage), own};
    for (int t = 0; t < 2; t++)
        for (const heed_form *const *form = tables[t]; *form; form++)
            if ((*form)->stage == stage && ((*form)->flags & with) == with && !((*form)->flags & without) &&
                count < 64)
                list[count++] = *form;
    return count;
}

static void put_form(writer *w, heed_stage stage, unsigned with, unsigned without)
{
    const heed_form *list[64];
    const heed_form *form = list[draw(w, (uint32_t)list_forms(stage, with, without, list))];
    put(w, form->name);
    put_arguments(w, form->args, stage == HEED_SELECT && !draw(w, 3));
}

static void put_mask(writer *w, int depth)
{
    const uint32_t kind = depth < 5 ? draw(w, 8) : 0;
    if (kind < 3)
        put_form(w, HEED_WHERE, 0, 0);
    else if (kind == 3) {
        put(w, "!");
        put(w, "(");
        put_mask(w, depth + 1);
        put(w, ")");
    } else {
        const bool bracket = draw(w, 2);
        put(w, bracket ? "(" : "");
        put_mask(w, depth + 1);
        put(w, kind & 1 ? "&" : "|");
        put_mask(w, depth + 1);
        put(w, bracket ? ")" : "");
    }
}

static void put_sum(writer *w)
{
    const heed_form *list[64];
    const int count = list_forms(HEED_POSITION, 0, HEED_ROTATES, list);
    const int start = (int)draw(w, (uint32_t)count), terms = (int)draw(w, 3);
    for (int i = 0; i < terms; i++) {
        const heed_form *form = list[(start + i) % count];
        put(w, form->name);
        put_arguments(w, form->args, false);
        put(w, "+");
    }
    put_form(w, HEED_POSITION, HEED_ROTATES, 0);
}

static void put_expression(writer *w, heed_stage stage)
{
    const bool nothing = stage == HEED_POSITION || stage == HEED_SELECT || stage == HEED_SCAN;
    if (nothing && !draw(w, 4))
        put(w, "none");
    else if (stage == HEED_WHERE)
        put_mask(w, 0);
    else if (stage == HEED_POSITION)
        put_sum(w);
    else if (stage == HEED_SELECT)
        for (uint32_t more = draw(w, 3);; more--) {
            put_form(w, stage, 0, 0);
            if (!more)
                break;
            put(w, ">");
        }
    else {
        const bool capped = stage == HEED_NORMALISE && draw(w, 2);
        put(w, capped ? "softcap(30)" : "");
        if (capped && draw(w, 2))
            put(w, ">");
        else if (capped)
            return;
        put_form(w, stage, 0, HEED_MODIFIER);
    }
}

/* Sets of layers and heads, each written in two ways. */
static const struct {
    const char *written[2];
    bool layers[INDICES], heads[INDICES];
} sets[] = {
    {{"layers all:", "layers all: heads all:"}, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}},
    {{"layers 0:", "layers 0-0: heads all:"}, {1, 0, 0, 0, 0}, {1, 1, 1, 1, 1}},
    {{"layers 0-2:", "layers 2,0,1:"}, {1, 1, 1, 0, 0}, {1, 1, 1, 1, 1}},
    {{"heads 1,3:", "heads 3,1,3: layers all:"}, {1, 1, 1, 1, 1}, {0, 1, 0, 1, 0}},
    {{"layers 2-4: heads 1-2:", "heads 2,1: layers 4,2-3:"}, {0, 0, 1, 1, 1}, {0, 1, 1, 0, 0}},
};
enum { SETS = sizeof sets / sizeof *sets };

static const heed_stage stages[] = {HEED_SCORE,  HEED_POSITION,  HEED_WHERE,
                                    HEED_SELECT, HEED_NORMALISE, HEED_SCAN};
enum { USED = sizeof stages / sizeof *stages };

/* What must hold, by the rule that the last clause written for a layer and head does. */
typedef struct spec_model {
    char *clause[INDICES][INDICES][HEED_STAGES]; /* canonical; NULL where nothing was written */
    char *keep[64];
    int kept;
} spec_model;

static char *canonical(const char *text)
{
    static char room[4 * SPACE];
    if (heed_spec_canonical(text, own, room, sizeof room))
        fail_msg("'%s': %s", text, heed_message());
    char *copy = strdup(room);
    assert_non_null(copy);
    return copy;
}

static void put_clause(writer *w, heed_stage stage, int set, spec_model *model)
{
    writer expression = {.seed = w->seed};
    put(&expression, heed_stage_name(stage));
    put(&expression, "=");
    put_expression(&expression, stage);
    w->seed = expression.seed;
    put(w, expression.text);
    char *clause = canonical(expression.text);
    model->keep[model->kept++] = clause;
    for (int layer = 0; layer < INDICES; layer++)
        for (int head = 0; head < INDICES; head++)
            if (sets[set].layers[layer] && sets[set].heads[head])
                model->clause[layer][head][stage] = clause;
}

static void put_spec(writer *w, spec_model *model)
{
    bool used[SETS][HEED_STAGES] = {{false}};
    int set = 0;
    for (int clauses = 1 + (int)draw(w, 14); clauses > 0; clauses--) {
        const int next = draw(w, 2) ? set : (int)draw(w, SETS);
        const heed_stage stage = stages[draw(w, USED)];
        if (used[next][stage])
            continue;
        used[next][stage] = true;
        if (next != set || (next && !draw(w, 3)))
            put(w, sets[next].written[draw(w, 2)]);
        set = next;
        put_clause(w, stage, set, model);
        put(w, draw(w, 6) ? ";" : ";;");
    }
}

static void check_clauses(const heed_spec *spec, const spec_model *model, const char *text)
{
    for (int layer = 0; layer < INDICES; layer++)
        for (int head = 0; head < INDICES; head++) {
            int root[HEED_STAGES];
            heed_spec_clauses(spec, layer, head, root);
            for (int stage = 0; stage < HEED_STAGES; stage++) {
                heed_group group = {.layers = {0}};
                for (int s = 0; s < HEED_STAGES; s++)
                    group.root[s] = s == stage ? root[s] : HEED_ABSENT;
                const heed_spec one = {
                    .node = spec->node, .nodes = spec->nodes, .group = &group, .groups = 1};
                static char found[4 * SPACE];
                assert_true(heed_spec_print(&one, found, sizeof found) < sizeof found);
                const char *clause = model->clause[layer][head][stage];
                const char *wanted = clause ? clause : "score=dot";
                if (strcmp(found, wanted))
                    fail_msg("layer %d, head %d of '%s' has\n'%s', not\n'%s'", layer, head, text, found,
                             wanted);
            }
        }
}

static void random_specs_mean_and_print_the_same(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        writer w = {.seed = seed};
        spec_model model = {.kept = 0};
        put_spec(&w, &model);
        char *once = canonical(w.text), *twice = canonical(once);
        if (strcmp(once, twice))
            fail_msg("'%s' prints as\n'%s', which prints as\n'%s'", w.text, once, twice);
        const char *texts[] = {w.text, once};
        for (int i = 0; i < 2; i++) {
            heed_spec *spec;
            assert_int_equal(heed_spec_parse(&spec, texts[i], own), HEED_OK);
            check_clauses(spec, &model, texts[i]);
            heed_spec_free(spec);
        }
        free(once);
        free(twice);
        for (int i = 0; i < model.kept; i++)
            free(model.keep[i]);
    }
}

static void damaged_specs_are_refused_or_print_the_same(void **state)
{
    (void)state;
    int refused = 0, accepted = 0;
    static const char bits[] = "=;:,()&|!>+-.0123456789e abcdefghijklmnopqrstuvwxyz_\n\xc3\x01";
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        writer w = {.seed = seed};
        spec_model model = {.kept = 0};
        put_spec(&w, &model);
        for (int i = 0; i < model.kept; i++)
            free(model.keep[i]);
        for (uint32_t hits = 1 + draw(&w, 3); hits > 0 && w.length; hits--) {
            char *at = w.text + draw(&w, (uint32_t)w.length);
            if (draw(&w, 2))
                *at = bits[draw(&w, sizeof bits - 1)];
            else
                memmove(at, at + 1, strlen(at));
            w.length = (int)strlen(w.text);
        }
        if (heed_spec_canonical(w.text, own, NULL, 0)) {
            int column = 0;
            refused++;
            if (sscanf(heed_message(), "column %d: ", &column) != 1 || column < 1 || column > w.length + 1)
                fail_msg("'%s' fails with '%s'", w.text, heed_message());
            continue;
        }
        accepted++;
        char *once = canonical(w.text), *twice = canonical(once);
        if (strcmp(once, twice))
            fail_msg("'%s' prints as\n'%s', which prints as\n'%s'", w.text, once, twice);
        free(once);
        free(twice);
    }
    assert_true(refused > 5000 && accepted > 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_specs_mean_and_print_the_same),
        cmocka_unit_test(damaged_specs_are_refused_or_print_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
