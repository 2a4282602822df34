/* One position form by itself: its state made by hand, its parameters random, its tiles small. */
#ifndef HEED_TEST_POSITION_H
#define HEED_TEST_POSITION_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <heed/attend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attend/registry.h"
#include "support/isas.h"
#include "support/random.h"

static test_random draw;

/* Memory of exactly this size, so that a sanitizer sees what lies beyond. */
static inline void *memory(size_t bytes)
{
    void *x = NULL;
    if (posix_memalign(&x, 64, bytes ? bytes : 1))
        abort();
    memset(x, 0, bytes);
    return x;
}

static inline float *floats(int64_t n)
{
    float *x = calloc(n > 0 ? (size_t)n : 1, sizeof *x);
    assert_non_null(x);
    return x;
}

static inline float *random_floats(int64_t n)
{
    float *x = floats(n);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)random_normal(&draw);
    return x;
}

/* Runs a check for each build that this processor can run, from the same random numbers. */
static inline void in_each_build(void (*check)(heed_isa isa))
{
    int builds = 0;
    for (heed_isa isa = HEED_ISA_PORTABLE; isa <= HEED_ISA_NEON; isa++)
        if (test_isa_runs(isa)) {
            draw.state = 7;
            check(isa);
            builds++;
        }
    assert_true(builds > 0);
}

/* The form with its default arguments, not yet resolved. */
static inline heed_form_state form_named(heed_isa isa, const char *name, heed_sizes sizes)
{
    const heed_form *form = heed_registry_find(isa, HEED_POSITION, name);
    if (!form)
        fail_msg("position=%s is missing from the build for %s", name, heed_isa_name(isa));
    heed_form_state state = {.form = form, .sizes = sizes};
    for (int i = 0; form->args && form->args[i].name; i++)
        state.arg[i].number = form->args[i].value;
    return state;
}

static inline int arg_index(const heed_form_state *state, const char *name)
{
    for (int i = 0; state->form->args && state->form->args[i].name; i++)
        if (!strcmp(state->form->args[i].name, name))
            return i;
    fail_msg("%s has no argument %s", state->form->name, name);
    return -1;
}

static inline void give(heed_form_state *state, const char *name, double value)
{
    heed_value *arg = &state->arg[arg_index(state, name)];
    arg->number = value;
    arg->given = true;
}

/* Gives an option by name, with its first arguments; the others take their defaults. */
static inline void give_option(heed_form_state *state, const char *name, const char *option, int n,
                               const double *sub)
{
    const int at = arg_index(state, name);
    const heed_option *o = state->form->args[at].options;
    int i = 0;
    while (o[i].name && strcmp(o[i].name, option))
        i++;
    assert_non_null(o[i].name);
    give(state, name, i);
    for (int s = 0; o[i].args && o[i].args[s].name; s++)
        state->arg[at].sub[s] = s < n ? sub[s] : o[i].args[s].value;
}

/* A size of a parameter's shape. */
static inline int64_t shape_size(const heed_form_state *state, const char *text)
{
    if (!strcmp(text, "H"))
        return state->sizes.heads;
    if (!strcmp(text, "D"))
        return state->sizes.dim;
    if (!strcmp(text, "2*max+1"))
        return 2 * (int64_t)state->arg[arg_index(state, "max")].number + 1;
    if (text[0] >= '0' && text[0] <= '9')
        return atoll(text);
    return (int64_t)state->arg[arg_index(state, text)].number;
}

static inline int64_t param_floats(const heed_form_state *state, int i)
{
    char shape[64];
    snprintf(shape, sizeof shape, "%s", state->form->params[i].shape);
    int64_t n = 1;
    for (char *rest, *size = strtok_r(shape, ",", &rest); size; size = strtok_r(NULL, ",", &rest))
        n *= shape_size(state, size);
    return n;
}

/* Resolves, sets up and gives initial values to the parameters, with gradients that start at `start`. */
static inline void make_ready(heed_form_state *state, float start)
{
    const heed_form *form = state->form;
    if (form->resolve && form->resolve(state) != HEED_OK)
        fail_msg("%s", heed_message());
    if (form->table_bytes) {
        const size_t bytes = form->table_bytes(state);
        state->table = memory(bytes);
        memset(state->table, 0xa5, bytes);
    }
    if (form->setup)
        form->setup(state);
    for (int i = 0; form->params && form->params[i].name; i++) {
        const int64_t n = param_floats(state, i);
        float *x = floats(n);
        for (int64_t k = 0; k < n; k++)
            x[k] = form->params[i].initial;
        if (form->params[i].fill)
            form->params[i].fill(state, x);
        state->param[i] = x;
        state->grad[i] = floats(n);
        for (int64_t k = 0; k < n; k++)
            state->grad[i][k] = start;
    }
    if (form->begin)
        assert_int_equal(form->begin(state), HEED_OK);
}

static inline void set_param(heed_form_state *state, int i, int64_t k, float value)
{
    ((float *)state->param[i])[k] = value;
}

/* Normal numbers times `spread` around the initial values. */
static inline void shake_params(heed_form_state *state, float spread)
{
    for (int i = 0; state->form->params && state->form->params[i].name; i++)
        for (int64_t k = 0; k < param_floats(state, i); k++)
            set_param(state, i, k, state->param[i][k] + spread * (float)random_normal(&draw));
}

static inline void drop(heed_form_state *state)
{
    free(state->table);
    for (int i = 0; state->form->params && state->form->params[i].name; i++) {
        free((float *)state->param[i]);
        free(state->grad[i]);
    }
}

/* Makes the form's `resolve` fail, and looks for a word in its sentence. */
static inline void refused(heed_form_state state, const char *word)
{
    if (state.form->resolve(&state) != HEED_INVALID)
        fail_msg("%s was not refused (expected: %s)", state.form->name, word);
    if (!strstr(heed_message(), word))
        fail_msg("'%s' does not say '%s'", heed_message(), word);
}

static inline void near(double got, double right, double absolute, double relative, const char *what, int i,
                        int j)
{
    const double allowed = absolute + relative * fabs(right);
    if (!(fabs(got - right) <= allowed))
        fail_msg("%s (%d, %d) is %.9g, not %.9g: off by %.3g, allowed %.3g", what, i, j, got, right,
                 got - right, allowed);
}

/* A tile with its memory; strides are larger than rows and columns. */
typedef struct test_tile {
    heed_tile tile;
    int32_t *query_pos, *key_pos;
    float *query, *key, *aux, *dquery, *dkey, *daux, *before;
    uint8_t *open;
    int aux_floats;
} test_tile;

/* Positions that run by one from the given corners or, with jumps, random ones within `jumps` of them. */
static inline test_tile make_tile(const heed_form_state *state, int rows, int cols, int32_t query_pos,
                                  int32_t key_pos, int32_t jumps)
{
    test_tile t = {.query_pos = memory((size_t)rows * sizeof(int32_t)),
                   .key_pos = memory((size_t)cols * sizeof(int32_t))};
    for (int i = 0; i < rows; i++)
        t.query_pos[i] = jumps ? query_pos + (int32_t)random_whole(&draw, -jumps, jumps) : query_pos + i;
    for (int j = 0; j < cols; j++)
        t.key_pos[j] = jumps ? key_pos + (int32_t)random_whole(&draw, -jumps, jumps) : key_pos + j;
    const int dim = (int)state->sizes.dim, query_stride = dim + 3, key_stride = cols + 16, stride = cols + 32;
    t.aux_floats = state->form->aux_floats ? state->form->aux_floats(state) : 0;
    t.query = random_floats((int64_t)rows * query_stride);
    t.key = random_floats((int64_t)dim * key_stride);
    t.aux = floats((int64_t)rows * t.aux_floats);
    t.daux = floats((int64_t)rows * t.aux_floats);
    t.dquery = floats((int64_t)rows * query_stride);
    t.dkey = floats((int64_t)dim * key_stride);
    t.before = random_floats((int64_t)rows * stride);
    t.tile = (heed_tile){.rows = rows,
                         .cols = cols,
                         .query_pos = t.query_pos,
                         .key_pos = t.key_pos,
                         .contiguous = !jumps,
                         .score = floats((int64_t)rows * stride),
                         .stride = stride,
                         .query = t.query,
                         .query_stride = query_stride,
                         .key = t.key,
                         .key_stride = key_stride,
                         .dim = dim,
                         .aux = t.aux,
                         .dscore = random_floats((int64_t)rows * stride),
                         .dquery = t.dquery,
                         .dkey = t.dkey,
                         .daux = t.daux,
                         .before = t.before};
    memcpy(t.tile.score, t.before, sizeof(float) * (size_t)rows * (size_t)stride);
    return t;
}

static inline void drop_tile(test_tile *t)
{
    free(t->query_pos);
    free(t->key_pos);
    free(t->query);
    free(t->key);
    free(t->aux);
    free(t->daux);
    free(t->dquery);
    free(t->dkey);
    free(t->before);
    free(t->open);
    free(t->tile.score);
    free(t->tile.dscore);
}

/* The rows of a tile's queries, as query_aux and its gradient see them. */
static inline heed_rows query_rows(const test_tile *t, float *out, float *din)
{
    return (heed_rows){.count = t->tile.rows,
                       .dim = t->tile.dim,
                       .head = t->tile.head,
                       .pos = t->query_pos,
                       .contiguous = t->tile.contiguous,
                       .in = t->query,
                       .in_stride = t->tile.query_stride,
                       .out = out,
                       .out_stride = t->aux_floats,
                       .din = din,
                       .din_stride = t->tile.query_stride};
}

#endif
