/* Golden files made by PyTorch and peers (golden/make_golden.py): they check the oracle, and heed itself. */
#include "support/attend.h"
#include "support/golden.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES = 128 };
static char names[FILES][64];
static int files;

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int list_files(void **state)
{
    (void)state;
    DIR *folder = opendir(HEED_TEST_DATA "/golden");
    if (!folder)
        return -1;
    for (const struct dirent *entry; (entry = readdir(folder)) && files < FILES;) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && strcmp(end, ".safetensors") == 0)
            snprintf(names[files++], sizeof *names, "%.63s", entry->d_name);
    }
    closedir(folder);
    qsort(names, (size_t)files, sizeof *names, by_name);
    return files >= 50 ? 0 : -1; /* a folder that has lost its files must not pass */
}

static int32_t *whole_numbers(const golden *g, const char *name)
{
    const golden_tensor *t = golden_find(g, name);
    if (!t)
        return NULL;
    int32_t *x = malloc((size_t)t->count * sizeof *x);
    memcpy(x, t->data, (size_t)t->count * sizeof *x);
    return x;
}

static void copy_floats(const golden *g, const char *name, float *x)
{
    const golden_tensor *t = golden_find(g, name);
    memcpy(x, t->data, (size_t)t->count * sizeof *x);
}

static void open_file(golden *g, int f)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%.63s", HEED_TEST_DATA "/golden", names[f]);
    assert_true(golden_read(g, path));
}

/* The problem of a golden file; its results stay in the file. */
static attend_data *load(const golden *g)
{
    const golden_tensor *q = golden_find(g, "q"), *k = golden_find(g, "k"), *v = golden_find(g, "v");
    const attend_case c = {.spec = g->spec,
                           .batch = q->shape[0],
                           .heads = q->shape[1],
                           .kv_heads = k->shape[1],
                           .queries = q->shape[2],
                           .keys = k->shape[2],
                           .dim = q->shape[3],
                           .value_dim = v->shape[3],
                           .mask = golden_find(g, "mask") ? MASK_BHNM : MASK_NONE,
                           .way = {.backward = true, .weights = true}};
    attend_data *d = attend_make(&c);
    copy_floats(g, "q", d->q);
    copy_floats(g, "k", d->k);
    copy_floats(g, "v", d->v);
    copy_floats(g, "dout", d->dout);
    d->seq = whole_numbers(g, "seq");
    d->q_segment = whole_numbers(g, "q_segment");
    d->k_segment = whole_numbers(g, "k_segment");
    if (d->mask)
        memcpy(d->mask, golden_find(g, "mask")->data, (size_t)golden_find(g, "mask")->count);
    attend_changed(d);
    for (int i = 0; i < d->o->params; i++) {
        oracle_param *p = &d->o->param[i];
        double *value = golden_numbers(g, p->name);
        assert_non_null(value);
        memcpy(p->value, value, (size_t)p->count * sizeof *value);
        free(value);
    }
    return d;
}

static void oracle_equals(const golden *g, const char *file, const char *name, const double *got,
                          double tolerance)
{
    double *expected = golden_numbers(g, name);
    assert_non_null(expected);
    const int64_t n = golden_find(g, name)->count;
    double scale = 1e-3; /* some gradients are 0 but for rounding */
    for (int64_t i = 0; i < n; i++)
        scale = isfinite(expected[i]) ? fmax(scale, fabs(expected[i])) : scale;
    for (int64_t i = 0; i < n; i++)
        if (!(got[i] == expected[i] || fabs(got[i] - expected[i]) <= tolerance * scale))
            fail_msg("%s: %s[%lld] of the oracle is %.12g, not %.12g", file, name, (long long)i, got[i],
                     expected[i]);
    free(expected);
}

static void the_oracle_equals_the_golden_files(void **state)
{
    (void)state;
    for (int f = 0; f < files; f++) {
        char name[80];
        golden g;
        open_file(&g, f);
        attend_data *d = load(&g);
        const oracle *o = d->o;
        attend_expect(d);
        /* both sides are doubles; iterated projections and single-precision constants of the peers stop at
         * 1e-9 */
        const double tolerance = 1e-8;
        oracle_equals(&g, names[f], "expected.out", o->out, tolerance);
        oracle_equals(&g, names[f], "expected.lse", o->lse, tolerance);
        oracle_equals(&g, names[f], "expected.weights", o->weights, tolerance);
        oracle_equals(&g, names[f], "expected.dq", o->dq, tolerance);
        oracle_equals(&g, names[f], "expected.dk", o->dk, tolerance);
        oracle_equals(&g, names[f], "expected.dv", o->dv, tolerance);
        for (int i = 0; i < o->params; i++) {
            snprintf(name, sizeof name, "expected.d.%s", o->param[i].name);
            oracle_equals(&g, names[f], name, o->param[i].gradient, tolerance);
        }
        attend_free(d);
        golden_free(&g);
    }
}

static void replace(const golden *g, const char *name, double *values)
{
    double *expected = golden_numbers(g, name);
    memcpy(values, expected, (size_t)golden_find(g, name)->count * sizeof *values);
    free(expected);
}

static void heed_equals_the_golden_files(void **state)
{
    (void)state;
    for (int f = 0; f < files; f++) {
        char name[80];
        golden g;
        open_file(&g, f);
        attend_data *d = load(&g);
        attend_expect(d); /* for the magnitudes; the numbers come from the file */
        replace(&g, "expected.out", d->o->out);
        replace(&g, "expected.lse", d->o->lse);
        replace(&g, "expected.weights", d->o->weights);
        replace(&g, "expected.dq", d->o->dq);
        replace(&g, "expected.dk", d->o->dk);
        replace(&g, "expected.dv", d->o->dv);
        for (int i = 0; i < d->o->params; i++) {
            snprintf(name, sizeof name, "expected.d.%s", d->o->param[i].name);
            replace(&g, name, d->o->param[i].gradient);
        }
        attend_result *r = attend_run(d, &d->c.way);
        attend_match(d, r);
        attend_result_free(r);
        attend_free(d);
        golden_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oracle_equals_the_golden_files),
        cmocka_unit_test(heed_equals_the_golden_files),
    };
    return cmocka_run_group_tests(tests, list_files, NULL);
}
