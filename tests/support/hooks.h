/* One form by itself: its state made by hand, its parameters bound, its hooks called on small data. */
#ifndef HEED_TEST_HOOKS_H
#define HEED_TEST_HOOKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <heed/attend.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attend/registry.h"
#include "support/isas.h"
#include "support/random.h"

static test_random draw;

/* Runs a check for each build that this processor can run, from the same random numbers. */
static inline void in_each_build(void (*check)(heed_isa isa))
{
    int builds = 0;
    for (heed_isa isa = HEED_ISA_PORTABLE; isa <= HEED_ISA_NEON; isa++)
        if (test_isa_runs(isa)) {
            draw.state = 11;
            check(isa);
            builds++;
        }
    assert_true(builds > 0);
}

/* Memory of exactly this size, so that a sanitizer sees what lies beyond. Freed by release_all. */
static void *kept[4096];
static int keeps;

static inline float *floats(int64_t n)
{
    float *x = calloc(n > 0 ? (size_t)n : 1, sizeof *x);
    assert_non_null(x);
    assert_true(keeps < 4096);
    kept[keeps++] = x;
    return x;
}

static inline float *random_floats(int64_t n, double size)
{
    float *x = floats(n);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(size * random_normal(&draw));
    return x;
}

static inline float *copy_of(const float *x, int64_t n)
{
    float *y = floats(n);
    memcpy(y, x, (size_t)n * sizeof *y);
    return y;
}

static inline void release_all(void)
{
    while (keeps > 0)
        free(kept[--keeps]);
}

/* NaN equals NaN, and an infinity itself. `most` is the allowed error. */
static inline void expect_near(double got, double want, double most, const char *what, int64_t i, int64_t j)
{
    const bool same = isnan(want) ? isnan(got) : isinf(want) ? got == want : fabs(got - want) <= most;
    if (!same)
        fail_msg("%s [%lld, %lld] is %.9g, not %.9g +- %.2g", what, (long long)i, (long long)j, got, want,
                 most);
}

static inline int arg_index(const heed_form *form, const char *name)
{
    for (int i = 0; form->args && form->args[i].name; i++)
        if (!strcmp(form->args[i].name, name))
            return i;
    fail_msg("%s has no argument %s", form->name, name);
    return -1;
}

/* A size of a parameter's shape: of "B|1" the first. */
static inline int64_t shape_size(const heed_form_state *state, char letter_of[16])
{
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = {{"B", state->sizes.batch},    {"H", state->sizes.heads}, {"G", state->sizes.kv_heads},
                 {"N", state->sizes.queries},  {"M", state->sizes.keys},  {"D", state->sizes.dim},
                 {"E", state->sizes.value_dim}};
    letter_of[strcspn(letter_of, "|")] = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(sizes[i].name, letter_of))
            return sizes[i].size;
    return (int64_t)state->arg[arg_index(state->form, letter_of)].number;
}

static inline int64_t param_floats(const heed_form_state *state, int p)
{
    return state->shape[p][0] * state->shape[p][1] * state->shape[p][2] * state->shape[p][3];
}

static inline void set_shape(heed_form_state *state, int p)
{
    const char *text = state->form->params[p].shape;
    for (int d = 0; d < 4; d++) {
        char word[16] = "";
        size_t n = strcspn(text, ",");
        memcpy(word, text, n);
        state->shape[p][d] = n ? shape_size(state, word) : 1;
        text += n + (text[n] == ',');
    }
}

/* The form with one argument given (NULL: none) and resolved, parameters at their initial values, gradients
 * 0. */
static inline heed_form_state make_form(heed_isa isa, heed_stage stage, const char *name, heed_sizes sizes,
                                        const char *given, double value)
{
    const heed_form *form = heed_registry_find(isa, stage, name);
    if (!form)
        fail_msg("%s is missing from the build for %s", name, heed_isa_name(isa));
    heed_form_state state = {.form = form, .sizes = sizes};
    for (int i = 0; form->args && form->args[i].name; i++)
        state.arg[i].number = form->args[i].value;
    if (given) {
        state.arg[arg_index(form, given)].number = value;
        state.arg[arg_index(form, given)].given = true;
    }
    if (form->resolve)
        assert_int_equal(form->resolve(&state), HEED_OK);
    for (int p = 0; form->params && form->params[p].name; p++) {
        set_shape(&state, p);
        float *x = floats(param_floats(&state, p));
        for (int64_t i = 0; i < param_floats(&state, p); i++)
            x[i] = form->params[p].initial;
        if (form->params[p].fill)
            form->params[p].fill(&state, x);
        state.param[p] = x;
        state.grad[p] = floats(param_floats(&state, p));
    }
    return state;
}

/* Parameters become random. */
static inline void shake(heed_form_state *state)
{
    for (int p = 0; state->form->params && state->form->params[p].name; p++)
        state->param[p] = random_floats(param_floats(state, p), 0.6);
}

#endif
