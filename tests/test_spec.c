/* The spec language: what a text means and how it prints back; and the registry of forms and combinations. */
#include "attend/registry.h"
#include "attend/spec.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A user's own forms. */
static const heed_arg height_args[] = {
    {.name = "minimum", .kind = HEED_ARG_INT, .value = 1, .least = 1, .most = 1},
    {0},
};
static const heed_option fence_styles[] = {{.name = "low"}, {.name = "high", .args = height_args}, {0}};
static const heed_arg fence_args[] = {
    {.name = "gap", .value = 0.5, .least = -1, .most = INFINITY},
    {.name = "style", .kind = HEED_ARG_OPTION, .value = 0, .options = fence_styles},
    {.name = "depth", .kind = HEED_ARG_INT, .value = 3},
    {0},
};
static const heed_form fence = {.name = "fence", .stage = HEED_WHERE, .args = fence_args};
static const heed_form carry = {.name = "carry", .stage = HEED_SCAN};
static const heed_form pick = {.name = "pick", .stage = HEED_SELECT};
static const heed_form *const own[] = {&fence, &carry, &pick, NULL};

static const struct {
    const char *text, *canonical;
} valid[] = {
    /* nothing said, or no more than the defaults */
    {"", "score=dot"},
    {" \n\t;; ; ", "score=dot"},
    {"score=dot", "score=dot"},
    {"score=dot; position=none; where=all; select=none; normalise=softmax; heads=shared; read=sum",
     "score=dot"},
    {"scan=none; lowrank=none", "score=dot"},
    {"normalise=softmax(temperature=1)", "score=dot"},
    {"where=causal(align=end)", "where=causal"},
    {"where = causal ( )", "where=causal"},
    /* clauses in the order of the stages, whatever the order and the white space of the text */
    {"where=causal;score=cosine;", "score=cosine; where=causal"},
    {"\n where\n=\tcausal\n&window ( 512 ) ;", "where=causal & window(w=512)"},
    {"cache=q8; normalise=sigmoid", "normalise=sigmoid; cache=q8"},
    /* arguments by place, by name, and both */
    {"where=dilated(3, 2)", "where=dilated(w=3, step=2)"},
    {"where=dilated(step=2, w=3)", "where=dilated(w=3, step=2)"},
    {"where=dilated(3, step=2)", "where=dilated(w=3, step=2)"},
    {"score=cosine(eps=1e-3)", "score=cosine(eps=0.001)"},
    {"score=cosine(10, 1e-6)", "score=cosine"},
    {"position=rope(pairs=adjacent)", "position=rope(pairs=adjacent)"},
    {"position=rope(10000, 64, half)", "position=rope(dim=64)"},
    {"position=rope(base=500000, dim=128, scaling=llama3(8, low=1, high=4, original=8192))",
     "position=rope(base=500000, dim=128, scaling=llama3(factor=8, original=8192))"},
    {"position=rope(scaling=yarn(4, 4096, beta_slow=2))",
     "position=rope(scaling=yarn(factor=4, original=4096, beta_slow=2))"},
    {"position=rope(scaling=linear(2.5))", "position=rope(scaling=linear(factor=2.5))"},
    /* numbers */
    {"score=dot(1)", "score=dot(scale=1)"},
    {"score=dot(+1.50)", "score=dot(scale=1.5)"},
    {"score=dot(-.25e+1)", "score=dot(scale=-2.5)"},
    {"score=dot(- 2.)", "score=dot(scale=-2)"},
    {"score=dot(0.1)", "score=dot(scale=0.1)"},
    {"score=dot(0.1000000000000000055511151231257827)", "score=dot(scale=0.1)"},
    {"score=dot(0.30000000000000004)", "score=dot(scale=0.30000000000000004)"},
    {"score=dot(1E20)", "score=dot(scale=1e+20)"},
    {"score=dot(123456789012)", "score=dot(scale=123456789012)"},
    {"where=window(1e3)", "where=window(w=1000)"},
    {"where=window(3.0)", "where=window(w=3)"},
    {"where=window(9007199254740991)", "where=window(w=9007199254740991)"},
    {"where=fence(inf)", "where=fence(gap=inf)"},
    {"where=fence(-1)", "where=fence(gap=-1)"},
    {"where=fence(depth=-7)", "where=fence(depth=-7)"},
    /* masks: no more brackets than needed */
    {"where=causal & (window(512) | first(4))", "where=causal & (window(w=512) | first(n=4))"},
    {"where=(causal & window(2)) | first(4)", "where=causal & window(w=2) | first(n=4)"},
    {"where=((causal) & ((self | (all))))", "where=causal & (self | all)"},
    {"where=self & (causal & all)", "where=self & causal & all"},
    {"where=self | (causal | all)", "where=self | causal | all"},
    {"where=!(self|all)&!!causal|!self", "where=!(self | all) & !!causal | !self"},
    {"where=!(self)", "where=!self"},
    {"where=none", "where=none"},
    {"where=(all)", "score=dot"},
    {"where=!all", "where=!all"},
    /* sums and chains */
    {"position=alibi+rope", "position=alibi + rope"},
    {"position=t5(max=128) + rope + alibi(slopes=published)", "position=t5 + rope + alibi(slopes=published)"},
    {"select=top_k(8)>top_p(.5)>top_k(2)", "select=top_k(k=8) > top_p(p=0.5) > top_k(k=2)"},
    {"select=top_p(0.95, over=top_k(64))", "select=top_k(k=64) > top_p(p=0.95)"},
    {"select=top_p(over=quest(page=8, budget=64), p=.5)", "select=quest(page=8, budget=64) > top_p(p=0.5)"},
    {"select=top_k(8, over=top_p(.5, over=threshold(.1)))",
     "select=threshold(t=0.1) > top_p(p=0.5) > top_k(k=8)"},
    {"select=moba > top_k(8, over=top_p(.5)) > top_k(2)",
     "select=moba > top_p(p=0.5) > top_k(k=8) > top_k(k=2)"},
    {"select=moba(over=pick(over=moba(9)))", "select=moba(block=9) > pick > moba"},
    {"heads 0: select=pick(over=pick)", "heads 0: select=pick > pick"},
    {"normalise=softcap(30)", "normalise=softcap(c=30) > softmax"},
    {"normalise=softcap(30) > softmax(0.5)", "normalise=softcap(c=30) > softmax(temperature=0.5)"},
    {"normalise=softcap(30) > sigmoid(-3)", "normalise=softcap(c=30) > sigmoid(bias=-3)"},
    /* prefixes */
    {"layers 0: where=causal", "layers 0: where=causal"},
    {"score=cosine; layers 7,0-3: where=causal", "score=cosine; layers 0-3,7: where=causal"},
    {"layers 5,4,0-2,1-3,9: where=causal", "layers 0-5,9: where=causal"},
    {"heads 2-2: where=causal", "heads 2: where=causal"},
    {"layers 0: heads 1,2: where=causal", "layers 0: heads 1-2: where=causal"},
    {"heads 1,2: layers 0: where=causal", "layers 0: heads 1-2: where=causal"},
    {"layers 0: where=causal; score=cosine", "layers 0: score=cosine; where=causal"},
    {"layers 0: where=causal; heads 1: score=cosine", "layers 0: where=causal; heads 1: score=cosine"},
    {"layers 0: where=causal; heads 1: score=cosine; layers 0: select=top_k(1)",
     "layers 0: where=causal; select=top_k(k=1); heads 1: score=cosine"},
    {"layers 0: where=causal; layers all: score=cosine", "score=cosine; layers 0: where=causal"},
    {"layers 0: where=causal; layers all: heads all: where=self",
     "layers 0: where=causal; layers all: where=self"},
    {"where=causal; layers 0: where=all; position=none", "where=causal; layers 0: position=none; where=all"},
    {"layers 0-1: where=causal; layers 0: where=self; layers 0-1: score=cosine",
     "layers 0-1: score=cosine; where=causal; layers 0: where=self"},
    {"heads=shared; heads 0: heads=shared", "heads 0: heads=shared"},
    {"layers 0, 2 - 3 : heads all : read = sum", "layers 0,2-3: read=sum"},
    {"layers 0-2147483647: where=causal", "layers 0-2147483647: where=causal"},
    /* combinations */
    {"streaming", "where=causal & (window(w=1020) | first(n=4))"},
    {" ; streaming ( ) ; ", "where=causal & (window(w=1020) | first(n=4))"},
    {"streaming(2, window=8)", "where=causal & (window(w=8) | first(n=2))"},
    {"streaming; where=causal", "where=causal"},
    {"streaming; cache=q8", "where=causal & (window(w=1020) | first(n=4)); cache=q8"},
    {"t5; where=causal", "score=dot(scale=1); position=t5; where=causal"},
    {"t5; position=none", "score=dot(scale=1)"},
    {"streaming; layers 0: where=causal",
     "where=causal & (window(w=1020) | first(n=4)); layers 0: where=causal"},
    {"streaming; layers 0: where=causal; layers all: where=self",
     "layers 0: where=causal; layers all: where=self"},
    {"streaming; layers 0: where=causal; layers all: score=cosine",
     "score=cosine; where=causal & (window(w=1020) | first(n=4)); layers 0: where=causal"},
    {"longformer(window=5, global=2)", "where=window(w=5) | global(n=2)"},
    {"bigbird(3, 4, 5, 6, 7)", "where=window(w=3) | global(n=4) | random(n=5, block=6, seed=7)"},
    {"sparse_transformer(16)", "where=causal & (window(w=16) | strided(s=16))"},
    {"prefix_lm(9)", "where=causal | first(n=9)"},
    {"t5(buckets=8)", "score=dot(scale=1); position=t5(buckets=8)"},
    {"bloom", "position=alibi; where=causal"},
    {"mistral(window=8)", "position=rope; where=causal & window(w=8)"},
    {"llama3(factor=32)",
     "position=rope(base=500000, scaling=llama3(factor=32, original=8192)); where=causal"},
    {"gemma2", "position=rope; where=causal; normalise=softcap(c=50) > softmax"},
    {"gemma2_local(8, 30)", "position=rope; where=causal & window(w=8); normalise=softcap(c=30) > softmax"},
    {"gpt_oss", "position=rope(base=150000); where=causal & window(w=128); normalise=sink"},
    /* a user's own forms */
    {"where=fence", "where=fence"},
    {"where=fence(style=low)", "where=fence"},
    {"where=fence(style=high)", "where=fence(style=high)"},
    {"where=fence(0.25, high(1), 3)", "where=fence(gap=0.25, style=high)"},
    {"scan=carry", "scan=carry"},
};

static void texts_print_canonically(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(valid); i++) {
        char text[512], again[512];
        if (heed_spec_canonical(valid[i].text, own, text, sizeof text))
            fail_msg("'%s': %s", valid[i].text, heed_message());
        if (strcmp(text, valid[i].canonical))
            fail_msg("'%s' prints as\n'%s', not\n'%s'", valid[i].text, text, valid[i].canonical);
        if (heed_spec_canonical(text, own, again, sizeof again) || strcmp(text, again))
            fail_msg("'%s' prints as '%s', which prints as '%s'", valid[i].text, text, again);
    }
}

static void later_groups_override_earlier_ones(void **state)
{
    (void)state;
    heed_spec *spec;
    assert_int_equal(heed_spec_parse(&spec,
                                     "score=cosine; position=alibi; layers 2-3: where=causal; position=none; "
                                     "heads 1: where=self; layers 3: heads 1-2: where=none",
                                     NULL),
                     HEED_OK);
    const struct {
        int64_t layer, head;
        const char *where; /* NULL: the default */
        bool alibi;
    } cases[] = {
        {0, 0, NULL, true},      {0, 1, "self", true},    {2, 0, "causal", false}, {2, 1, "self", false},
        {3, 0, "causal", false}, {3, 1, "none", false},   {3, 2, "none", false},   {3, 3, "causal", false},
        {4, 2, NULL, true},      {1000, 1, "self", true},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        int root[HEED_STAGES];
        heed_spec_clauses(spec, cases[i].layer, cases[i].head, root);
        assert_string_equal(spec->node[root[HEED_SCORE]].form->name, "cosine");
        assert_true(cases[i].alibi ? root[HEED_POSITION] >= 0 : root[HEED_POSITION] == -1);
        assert_int_equal(root[HEED_SELECT], -1);
        assert_int_equal(root[HEED_WHERE] >= 0, cases[i].where != NULL);
        if (cases[i].where)
            assert_string_equal(spec->node[root[HEED_WHERE]].form->name, cases[i].where);
    }
    heed_spec_free(spec);
}

static void nodes_and_groups_know_their_columns(void **state)
{
    (void)state;
    heed_spec *spec;
    assert_int_equal(heed_spec_parse(&spec, "where=causal & window(3); layers 0: select=top_k(2)", NULL),
                     HEED_OK);
    assert_int_equal(spec->groups, 2);
    assert_int_equal(spec->group[0].column[HEED_WHERE], 1);
    assert_int_equal(spec->group[1].column[HEED_SELECT], 37);
    const heed_node *both = &spec->node[spec->group[0].root[HEED_WHERE]];
    assert_int_equal(both->kind, HEED_NODE_AND);
    assert_int_equal(both->column, 14);
    assert_int_equal(spec->node[both->left].column, 7);
    assert_int_equal(spec->node[both->right].column, 16);
    assert_true(spec->node[both->right].arg[0].given && spec->node[both->right].arg[0].number == 3);
    assert_ptr_equal(spec->node[both->right].form,
                     heed_registry_find(HEED_ISA_PORTABLE, HEED_WHERE, "window"));
    heed_spec_free(spec);
}

static void defaults_are_filled_in_where_nothing_is_written(void **state)
{
    (void)state;
    heed_spec *spec;
    assert_int_equal(heed_spec_parse(&spec, "score=cosine; where=fence(style=high)", own), HEED_OK);
    const heed_node *cosine = &spec->node[spec->group[0].root[HEED_SCORE]];
    assert_true(cosine->arg[0].number == 10 && !cosine->arg[0].given && cosine->arg[1].number == 1e-6);
    const heed_node *mask = &spec->node[spec->group[0].root[HEED_WHERE]];
    assert_true(mask->arg[0].number == 0.5 && mask->arg[1].number == 1 && mask->arg[1].sub[0] == 1);
    heed_spec_free(spec);
}

static void a_buffer_gets_what_fits(void **state)
{
    (void)state;
    const char *full = "where=causal & window(w=3)";
    heed_spec *spec;
    assert_int_equal(heed_spec_parse(&spec, "where=causal&window(3)", NULL), HEED_OK);
    for (size_t size = 0; size < strlen(full) + 3; size++) {
        char text[64];
        memset(text, '#', sizeof text);
        assert_int_equal(heed_spec_print(spec, text, size), strlen(full));
        const size_t held = size == 0 ? 0 : size - 1 < strlen(full) ? size - 1 : strlen(full);
        assert_memory_equal(text, full, held);
        assert_int_equal(text[size ? held : 0], size ? 0 : '#');
        assert_int_equal(text[size], '#');
        assert_int_equal(heed_spec_canonical("where=causal&window(3)", NULL, text, size),
                         size > strlen(full) ? HEED_OK : HEED_INVALID);
    }
    heed_spec_free(spec);
    assert_int_equal(heed_spec_canonical(NULL, NULL, NULL, 0), HEED_INVALID);
}

/* Every combination stands for a spec, with its defaults and with the least values it allows. */
static void check_combination(void *context, const heed_combination *combination)
{
    int *count = context;
    ++*count;
    assert_non_null(combination->summary);
    assert_non_null(combination->source);
    for (int end = 0; end < 2; end++) {
        char call[256], canonical[512];
        int length = snprintf(call, sizeof call, "%s(", combination->name);
        bool any = false;
        for (const heed_arg *arg = combination->args; arg && arg->name; arg++) {
            assert_non_null(arg->summary);
            assert_null(arg->computed);
            const double value = arg->above ? arg->least + 1 : arg->least;
            if (!arg->required && !end)
                continue;
            length += snprintf(call + length, sizeof call - (size_t)length, "%s%s=%g", any ? ", " : "",
                               arg->name, value);
            any = true;
        }
        snprintf(call + length, sizeof call - (size_t)length, ")");
        if (heed_spec_canonical(call, NULL, canonical, sizeof canonical))
            fail_msg("%s: %s", call, heed_message());
        assert_null(strpbrk(canonical, "{}"));
        assert_string_not_equal(canonical, "score=dot");
    }
}

static void combinations_stand_for_specs(void **state)
{
    (void)state;
    int count = 0;
    heed_combinations_visit(check_combination, &count);
    assert_true(count >= 9);
}

static void count_form(void *context, const heed_form *form)
{
    int *count = context;
    ++*count;
    assert_ptr_equal(heed_registry_find(HEED_ISA_PORTABLE, form->stage, form->name), form);
}

static void every_build_has_the_same_forms(void **state)
{
    (void)state;
    int visited = 0, listed = 0;
    heed_forms_visit(count_form, &visited);
    for (int stage = 0; stage < HEED_STAGES; stage++)
        for (const heed_form *const *form = heed_registry_stage(HEED_ISA_PORTABLE, (heed_stage)stage); *form;
             form++) {
            assert_int_equal((*form)->stage, stage);
            listed++;
            for (heed_isa isa = HEED_ISA_AVX2; isa <= HEED_ISA_NEON; isa++)
                if (heed_registry_stage(isa, (heed_stage)stage))
                    assert_non_null(heed_registry_find(isa, (heed_stage)stage, (*form)->name));
        }
    assert_int_equal(visited, listed);
    assert_null(heed_registry_find(HEED_ISA_PORTABLE, HEED_WHERE, "nothing_like_it"));
    assert_null(heed_registry_stage((heed_isa)99, HEED_WHERE));
    assert_null(heed_registry_stage(HEED_ISA_PORTABLE, HEED_STAGES));
    assert_null(heed_stage_name(HEED_STAGES));
    assert_string_equal(heed_stage_name(HEED_LOWRANK), "lowrank");
}

/* Makes one of the system's locales in a directory of its own, where the system has none. */
static bool locale_with_comma(char *directory)
{
    static const char *const installed[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8",
                                            "de_DE"};
    for (size_t i = 0; i < COUNT(installed); i++)
        if (setlocale(LC_ALL, installed[i]))
            return true;
    char command[200];
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/comma >%s/log 2>&1", directory,
             directory);
    return !system(command) && !setenv("LOCPATH", directory, 1) && setlocale(LC_NUMERIC, "comma");
}

/* Where numbers are written with a comma, specs are not. */
static void the_locale_changes_nothing(void **state)
{
    (void)state;
    char directory[] = "/tmp/heed_locale_XXXXXX", text[64], printed[16], command[64];
    assert_non_null(mkdtemp(directory));
    const bool found = locale_with_comma(directory);
    snprintf(printed, sizeof printed, "%g", 0.25);
    const heed_status status = heed_spec_canonical("score=dot(0.25)", NULL, text, sizeof text);
    setlocale(LC_ALL, "C");
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
    if (!found)
        skip();
    assert_string_equal(printed, "0,25");
    assert_int_equal(status, HEED_OK);
    assert_string_equal(text, "score=dot(scale=0.25)");
}

/* ---- storage ---- */

static void the_cache_says_how_keys_and_values_are_stored(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        heed_type keys, values; /* HEED_TYPES: not said */
    } stored[] = {{"", HEED_TYPES, HEED_TYPES},
                  {"cache=q8", HEED_Q8, HEED_Q8},
                  {"cache=q2", HEED_Q2, HEED_Q2},
                  {"cache=rotated", HEED_ROTATED_Q4, HEED_ROTATED_Q4},
                  {"cache=rotated(q2)", HEED_ROTATED_Q2, HEED_ROTATED_Q2},
                  {"cache=keys(q8) > values(f16)", HEED_Q8, HEED_F16},
                  {"cache=values(rq3) > keys(bf16)", HEED_BF16, HEED_ROTATED_Q3},
                  {"cache=keys(q4)", HEED_Q4, HEED_TYPES}};
    static const char *const twice[] = {"cache=q8 > q4", "cache=keys(q8) > q4", "cache=rotated > values(q8)"};
    for (size_t i = 0; i < COUNT(stored) + COUNT(twice); i++) {
        const bool right = i < COUNT(stored);
        const char *text = right ? stored[i].text : twice[i - COUNT(stored)];
        heed_spec *spec;
        heed_type keys = HEED_TYPES, values = HEED_TYPES;
        const heed_form *policy;
        int root[HEED_STAGES];
        assert_int_equal(heed_spec_parse(&spec, text, NULL), HEED_OK);
        heed_spec_clauses(spec, 0, 0, root);
        const heed_status status = heed_spec_storage(spec, root[HEED_CACHE], &keys, &values, &policy);
        heed_spec_free(spec);
        if (status != (right ? HEED_OK : HEED_INVALID))
            fail_msg("%s: %d, %s", text, status, heed_message());
        if (right && (keys != stored[i].keys || values != stored[i].values))
            fail_msg("%s: keys are %d, values %d", text, keys, values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_print_canonically),
        cmocka_unit_test(later_groups_override_earlier_ones),
        cmocka_unit_test(nodes_and_groups_know_their_columns),
        cmocka_unit_test(defaults_are_filled_in_where_nothing_is_written),
        cmocka_unit_test(a_buffer_gets_what_fits),
        cmocka_unit_test(combinations_stand_for_specs),
        cmocka_unit_test(every_build_has_the_same_forms),
        cmocka_unit_test(the_locale_changes_nothing),
        cmocka_unit_test(the_cache_says_how_keys_and_values_are_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
