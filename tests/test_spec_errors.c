/* What is said when a spec is wrong, and what no spec may be. */
#include "attend/spec.h"

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
    const char *text;
    int column;
    const char *words[3];
} invalid[] = {
    /* unknown names, with the nearest */
    {"where=windw(3)", 7, {"'windw'", "nearest is 'window'"}},
    {"score=dot; where=causal & windo(4)", 27, {"'windo'", "'window'"}},
    {"where=Causal", 7, {"'Causal'", "nearest is 'causal'"}},
    {"where=cuasal", 7, {"'cuasal'", "'causal'"}},
    {"select=topk(3)", 8, {"'topk'", "'top_k'"}},
    {"score=xyzzyx", 7, {"'xyzzyx'", "of dot, cosine", "laplace"}},
    {"where=fense", 7, {"'fense'", "'fence'"}},
    {"where=alibi", 7, {"'alibi' is a form of position, not of where"}},
    {"normalise=none", 11, {"'none' is a form of where, not of normalise"}},
    {"wher=causal", 1, {"'wher' is no stage", "'where'"}},
    {"score=dot;  normalize=softmax", 13, {"'normalize'", "'normalise'"}},
    {"Where=causal", 1, {"'Where'", "'where'"}},
    {"streming", 1, {"'streming' is no combination", "'streaming'"}},
    {"causal", 1, {"'causal' is a form of where", "where=causal"}},
    {"where", 1, {"'where' is a stage", "where=..."}},
    {"score=dot; slect", 12, {"'slect'", "'select'"}},
    {"where=window(width=3)", 14, {"'width'", "window", "nearest is 'w'"}},
    {"where=dilated(3, stp=3)", 18, {"'stp'", "nearest is 'step'"}},
    {"position=rope(pairs=halve)", 21, {"'halve'", "pairs", "'half'"}},
    {"position=rope(scaling=yran(4, 4096))", 23, {"'yran'", "'yarn'"}},
    {"position=rope(scaling=yarn(4, orignal=4096))", 31, {"'orignal'", "'original'"}},
    {"gpt-oss", 1, {"'gpt' is no combination", "nearest is 'gpt_oss'"}},
    {"streaming(widow=3)", 11, {"'widow'", "'window'"}},
    {"scan=mamba", 6, {"'mamba'", "'mamba2'"}},
    {"scan=cary", 6, {"'cary'", "'carry'"}},
    {"lowrank=nystrum", 9, {"'nystrum'", "'nystrom'"}},
    /* values */
    {"where=window(-3)", 7, {"where=window(-3): w must be at least 1"}},
    {"score=dot; where=causal & window(0)", 27, {"where=window(0): w must be at least 1"}},
    {"where=window(2.5)", 7, {"where=window(2.5): w must be a whole number"}},
    {"where=window(inf)", 7, {"where=window(inf): w must be a whole number"}},
    {"where=window(9007199254740992)", 7, {"w must be between -2^53 and 2^53"}},
    {"where=window", 7, {"where=window: w must be given"}},
    {"where=window()", 7, {"where=window(): w must be given"}},
    {"where=dilated(3)", 7, {"where=dilated(3): step must be given"}},
    {"select=top_p(0)", 8, {"select=top_p(0): p must be above 0"}},
    {"select=top_p(1.5)", 8, {"p must be at most 1"}},
    {"normalise=softcap(0)", 11, {"c must be above 0"}},
    {"score=dot(inf)", 7, {"scale must be finite"}},
    {"score=dot(-inf)", 7, {"scale must be finite"}},
    {"score=dot(nan)", 11, {"'nan'", "a number for scale"}},
    {"score=dot(1e999)", 11, {"'1e999' is too large"}},
    {"score=dot(-1e999)", 11, {"'1e999' is too large"}},
    {"score=dot(1e39)", 7, {"scale must be within the range of 32-bit numbers"}},
    {"score=dot(1e-40)", 7, {"scale must be 0 or within the range of 32-bit numbers"}},
    {"score=dot(0x10)", 11, {"'0x10' is no number"}},
    {"score=dot(1.2.3)", 11, {"'1.2.3' is no number"}},
    {"score=dot(1e)", 11, {"'1e' is no number"}},
    {"score=dot(3px)", 11, {"'3px' is no number"}},
    {"score=dot(half)", 11, {"'half'", "a number for scale"}},
    {"where=fence(-inf)", 7, {"gap must be at least -1"}},
    {"where=fence(style=3)", 19, {"'3' is no choice for style"}},
    {"where=fence(style=high(2))", 7, {"where=fence(style=high(2)): minimum of high must be at most 1"}},
    {"position=rope(scaling=yarn(4))", 10, {"original of yarn must be given"}},
    {"position=rope(scaling=yarn(-4, 4096))", 10, {"factor of yarn must be above 0"}},
    {"position=rope(scaling=yarn(4, 4096.5))", 10, {"original of yarn must be a whole number"}},
    {"streaming(window=0)", 1, {"streaming(window=0): window must be at least 1"}},
    {"prefix_lm", 1, {"prefix_lm: prefix must be given"}},
    /* argument lists */
    {"where=causal(end, 3)", 19, {"'3' is one too many: causal takes at most 1 argument"}},
    {"where=window(3, 4, 5)", 17, {"'4' is one too many: window takes at most 1 argument"}},
    {"where=self(3)", 12, {"self takes no arguments"}},
    {"where=self(x=3)", 12, {"self takes no arguments"}},
    {"where=window(3, w=4)", 17, {"'w' of window is given twice"}},
    {"where=dilated(w=3, 4)", 20, {"'4'", "by place after"}},
    {"where=window(3,)", 16, {"')'", "an argument of window"}},
    {"where=window(,3)", 14, {"','", "an argument of window"}},
    {"where=window(3", 15, {"the text ends", "')' of window"}},
    {"where=window(", 14, {"the text ends", "an argument of window"}},
    {"where=window(3; score=dot", 15, {"';'", "')' of window"}},
    {"where=dilated(3 2)", 17, {"'2'", "','"}},
    {"where=window(w=)", 16, {"')'", "a number for w"}},
    {"where=fence(style=low(1))", 23, {"'1': low takes no arguments"}},
    /* the form that another one of select chooses from */
    {"select=top_p(0.9, ovr=moba)", 19, {"'ovr' is no argument of top_p; the nearest is 'over'"}},
    {"select=top_p(0.9, over=qest(16))", 24, {"'qest' is no form of select; the nearest is 'quest'"}},
    {"select=top_p(0.9, over=causal)", 24, {"'causal' is a form of where, not of select"}},
    {"select=top_p(0.9, over=top_k(0))", 24, {"select=top_k(0): k must be at least 1"}},
    {"select=top_p(over=moba)", 8, {"select=top_p(over=moba): p must be given"}},
    {"select=top_p(0.9, over=none)", 24, {"'none' stands alone in select"}},
    {"select=top_p(0.9, over=)", 24, {"')'", "a form of select"}},
    {"select=top_p(0.9, over=3)", 24, {"'3'", "a form of select"}},
    {"select=top_p(0.9, over=moba", 28, {"the text ends", "',' or ')' of top_p"}},
    {"select=top_p(over=moba, 0.9)", 25, {"'0.9' stands by place after"}},
    {"select=top_p(0.9, over=moba, over=moba)", 30, {"'over' of top_p is given twice"}},
    {"select=top_p(0.9, moba)", 19, {"'moba' is one too many: top_p takes at most 1 argument"}},
    {"select=pick(3)", 13, {"'3': pick takes no argument but over"}},
    {"select=pick(x=3)", 13, {"'x' is no argument of pick; the nearest is 'over'"}},
    {"where=window(3, over=self)", 17, {"'over' is no argument of window"}},
    {"position=rope(over=alibi)", 15, {"'over' is no argument of rope"}},
    {"twilight(over=moba)", 10, {"'over' is no argument of twilight"}},
    /* marks where they do not belong */
    {"where=causal > window(3)", 14, {"'>' has no place in where", "&, |, !"}},
    {"where=(causal > window(3))", 15, {"'>' has no place in where"}},
    {"where=causal + window(3)", 14, {"'+' has no place in where"}},
    {"where=causal &", 15, {"the text ends", "a form of where"}},
    {"where=& causal", 7, {"'&'", "a form of where"}},
    {"where=causal && self", 15, {"'&'", "a form of where"}},
    {"where=(causal", 14, {"the text ends", "bracket at column 7"}},
    {"where=causal)", 13, {"')'", "';'"}},
    {"where=()", 8, {"')'", "a form of where"}},
    {"where=causal self", 14, {"'self'", "';'"}},
    {"where=", 7, {"the text ends", "a form of where"}},
    {"where=;", 7, {"';'", "a form of where"}},
    {"score=dot & cosine", 11, {"'&' has no place in score", "one form"}},
    {"score=(dot)", 7, {"'(' has no place in score"}},
    {"position=alibi | t5", 16, {"'|' has no place in position", "+"}},
    {"position=!alibi", 10, {"'!' has no place in position"}},
    {"position=alibi > t5", 16, {"'>' has no place in position"}},
    {"select=top_k(3) & top_p(.5)", 17, {"'&' has no place in select", ">"}},
    {"normalise=softcap(3) + softmax", 22, {"'+' has no place in normalise"}},
    {"cache=q8 + q4", 10, {"'+' has no place in cache"}},
    {"score=dot$", 10, {"'$'", "';'"}},
    {"where=caus\xc3\xa4l", 7, {"'caus'"}},
    {"\xc3\xa4=1", 1, {"'\xc3\xa4'"}},
    {"\xff", 1, {"'\\xff'"}},
    {"score=dot\x01", 10, {"'\\x01'"}},
    {"= dot", 1, {"'='", "a clause"}},
    {"3", 1, {"'3'", "a clause"}},
    /* what may stand beside what */
    {"position=alibi + alibi", 18, {"'alibi' stands twice in position"}},
    {"position=rope + t5 + xpos", 22, {"'xpos' rotates, as 'rope'"}},
    {"position=none + alibi", 10, {"'none' stands alone in position"}},
    {"position=alibi + none", 18, {"'none' stands alone in position"}},
    {"select=none()", 8, {"'none' stands alone in select"}},
    {"normalise=softmax > softcap(3)", 21, {"'softcap' may not follow 'softmax'"}},
    {"normalise=softmax > sigmoid", 21, {"'sigmoid' may not follow 'softmax'"}},
    {"normalise=softcap(3) > softcap(4)", 24, {"'softcap' stands twice in normalise"}},
    /* clauses and groups */
    {"score=dot; score=cosine", 12, {"'score' stands twice", "column 1"}},
    {"position=none; position=alibi", 16, {"'position' stands twice", "column 1"}},
    {"score=dot; layers all: score=dot", 24, {"'score' stands twice", "column 1"}},
    {"layers 0-1: score=dot; heads 0: score=dot; layers 1,0: score=cosine",
     56,
     {"'score' stands twice", "column 13"}},
    {"streaming; where=all; where=all", 23, {"'where' stands twice", "column 12"}},
    {"streaming; layers 0: where=all; layers all: where=causal; where=all", 59, {"'where' stands twice"}},
    {"score=dot; streaming", 12, {"'streaming' may stand only at the start"}},
    {"layers 0: streaming", 11, {"'streaming' may stand only at the start"}},
    {"streaming; longformer", 12, {"'longformer' may stand only at the start"}},
    {"streaming where=all", 11, {"'where'", "';'"}},
    {"layers 0:", 10, {"the text ends", "a clause"}},
    {"layers 0: ; score=dot", 11, {"';'", "a clause"}},
    {"layers 0: layers 1: score=dot", 11, {"'layers' stands twice before one clause"}},
    {"layers: score=dot", 7, {"':'", "layers"}},
    {"layers 0 score=dot", 10, {"'score'", "':' after layers"}},
    {"layers 3-1: score=dot", 8, {"'3-1' in layers runs backwards"}},
    {"heads 0,: score=dot", 9, {"':'", "heads"}},
    {"heads 1.5: score=dot", 7, {"'1.5' in heads must be a whole number"}},
    {"heads -1: score=dot", 7, {"'-'"}},
    {"layers 2147483648: score=dot", 8, {"'2147483648' in layers must be at most 2147483647"}},
    {"layers 0-99999999999999999999: score=dot", 10, {"must be at most 2147483647"}},
    {"layers=3", 1, {"'layers' is no stage"}},
};

static void wrong_texts_are_refused_with_column_and_word(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(invalid); i++) {
        heed_spec *spec;
        const heed_status status = heed_spec_parse(&spec, invalid[i].text, own);
        const char *message = heed_message();
        if (status != HEED_INVALID)
            fail_msg("'%s' gives status %d", invalid[i].text, (int)status);
        assert_null(spec);
        char column[32];
        snprintf(column, sizeof column, "column %d: ", invalid[i].column);
        if (strncmp(message, column, strlen(column)))
            fail_msg("'%s' fails with\n'%s', not with '%s'", invalid[i].text, message, column);
        for (size_t w = 0; w < COUNT(invalid[i].words) && invalid[i].words[w]; w++)
            if (!strstr(message, invalid[i].words[w]))
                fail_msg("'%s' fails with\n'%s', which lacks\n'%s'", invalid[i].text, message,
                         invalid[i].words[w]);
    }
}

static void swapped_letters_and_other_case_are_near(void **state)
{
    (void)state;
    const char *const near[] = {"lwo", "LOW", "lo", "lowe"}, *const far[] = {"loud", "xyz", "l"};
    char text[64], message[128];
    for (size_t i = 0; i < COUNT(near); i++) {
        snprintf(text, sizeof text, "where=fence(style=%s)", near[i]);
        snprintf(message, sizeof message, "column 19: '%s' is no choice for style; the nearest is 'low'",
                 near[i]);
        assert_int_equal(heed_spec_canonical(text, own, NULL, 0), HEED_INVALID);
        assert_string_equal(heed_message(), message);
    }
    for (size_t i = 0; i < COUNT(far); i++) {
        snprintf(text, sizeof text, "where=fence(style=%s)", far[i]);
        assert_int_equal(heed_spec_canonical(text, own, NULL, 0), HEED_INVALID);
        assert_non_null(strstr(heed_message(), "; the nearest is 'low' (of low, high)"));
    }
}

/* `unit` so many times between `before` and `after`; the caller frees */
static char *repeated(const char *before, const char *unit, int times, const char *after)
{
    const size_t length = strlen(before) + strlen(unit) * (size_t)times + strlen(after);
    char *text = malloc(length + 1);
    assert_non_null(text);
    char *end = stpcpy(text, before);
    for (int i = 0; i < times; i++)
        end = stpcpy(end, unit);
    stpcpy(end, after);
    return text;
}

static void depth_and_length_are_bounded(void **state)
{
    (void)state;
    const struct {
        const char *before, *unit, *after;
        int good, bad, column; /* how often the unit may stand, or not; where the error is */
    } cases[] = {
        {"where=", "!", "self", 200, 201, 207},
        {"where=", "!", "self", 1, 60000, 207},
        {"where=", "(", "self", 0, 200, 211},
        {"where=", "(", "self", 0, 60000, 207},
        {"where=self", "&self", "", 499, 500, 2506},
        {"where=self", "|self", "", 1, 12000, 2506},
        {"select=top_k(3)", ">top_k(3)", "", 499, 7000, 4507},
        {"select=moba", ">moba(over=moba)", "", 249, 4000, 3996},
        {"select=", "moba(over=", "moba", 0, 200, 2012},
        {"select=", "moba(over=", "moba", 0, 6000, 2018},
        {"", ";", "", 65536, 65537, 65537},
        {"score=dot", " ", "", 60000, 70000, 65537},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *good = repeated(cases[i].before, cases[i].unit, cases[i].good, cases[i].after);
        char *bad = repeated(cases[i].before, cases[i].unit, cases[i].bad, cases[i].after);
        if (heed_spec_canonical(good, own, NULL, 0))
            fail_msg("%d times '%s': %s", cases[i].good, cases[i].unit, heed_message());
        int column = 0;
        assert_int_equal(heed_spec_canonical(bad, own, NULL, 0), HEED_INVALID);
        assert_int_equal(sscanf(heed_message(), "column %d: ", &column), 1);
        if (column != cases[i].column)
            fail_msg("%d times '%s': %s", cases[i].bad, cases[i].unit, heed_message());
        free(good);
        free(bad);
    }
}

/* A text may grow when it is printed; what could not be read back is refused at once. */
static void a_canonical_text_can_always_be_read(void **state)
{
    (void)state;
    for (int groups = 40; groups <= 60; groups += 20) {
        char *text = malloc(65536), *end = text;
        assert_non_null(text);
        for (int g = 0; g < groups; g++) {
            end += sprintf(end, "layers %d:where=all", g);
            for (int i = 0; i < 100; i++)
                end = stpcpy(end, "|first(1)");
            end = stpcpy(end, ";");
        }
        assert_true(strlen(text) < 60000);
        const heed_status status = heed_spec_canonical(text, NULL, NULL, 0);
        assert_int_equal(status, groups == 40 ? HEED_OK : HEED_INVALID);
        if (status)
            assert_non_null(strstr(heed_message(), "column 1: the spec is too long"));
        free(text);
    }
    /* a deep tree of brackets becomes one long row */
    char *brackets = malloc(65536), *row = malloc(65536), *again = malloc(65536);
    assert_true(brackets && row && again);
    strcpy(brackets, "self");
    for (int level = 0; level < 8; level++) {
        char *half = strdup(brackets);
        sprintf(brackets, "(%s)&(%s)", half, half);
        free(half);
    }
    sprintf(again, "where=%s", brackets);
    assert_int_equal(heed_spec_canonical(again, NULL, row, 65536), HEED_OK);
    assert_int_equal(strlen(row), strlen("where=self") + 255 * strlen(" & self"));
    assert_int_equal(heed_spec_canonical(row, NULL, again, 65536), HEED_OK);
    assert_string_equal(row, again);
    free(brackets);
    free(row);
    free(again);
}

static void a_name_of_any_length_is_cut_in_the_message(void **state)
{
    (void)state;
    char *text = repeated("where=", "w", 60000, "");
    assert_int_equal(heed_spec_canonical(text, NULL, NULL, 0), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "www...' is no form of where"));
    assert_true(strlen(heed_message()) < 600);
    free(text);
}

static void own_forms_that_cannot_be_named_are_refused(void **state)
{
    (void)state;
    heed_arg many[HEED_MAX_ARGS + 2] = {{0}};
    for (int i = 0; i <= HEED_MAX_ARGS; i++)
        many[i].name = "x";
    const heed_arg over[] = {{.name = "over"}, {0}};
    const heed_arg choice_without_options[] = {{.name = "x", .kind = HEED_ARG_CHOICE}, {0}};
    const struct {
        heed_form form;
        const char *word;
    } cases[] = {
        {{.name = "causal", .stage = HEED_WHERE}, "built-in"},
        {{.name = "none", .stage = HEED_POSITION}, "default of the stage"},
        {{.name = "fence", .stage = HEED_WHERE}, "twice"},
        {{.name = "two words", .stage = HEED_WHERE}, "letters"},
        {{.name = "", .stage = HEED_WHERE}, "letters"},
        {{.name = NULL, .stage = HEED_WHERE}, "name"},
        {{.name = "x", .stage = HEED_STAGES}, "stage"},
        {{.name = "x", .stage = HEED_WHERE, .args = many}, "too many"},
        {{.name = "x", .stage = HEED_SELECT, .args = over}, "every form of select takes"},
        {{.name = "x", .stage = HEED_WHERE, .args = choice_without_options}, "options"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const heed_form *const forms[] = {&fence, &cases[i].form, NULL};
        assert_int_equal(heed_spec_canonical("", forms, NULL, 0), HEED_INVALID);
        if (!strstr(heed_message(), cases[i].word))
            fail_msg("case %zu: '%s' lacks '%s'", i, heed_message(), cases[i].word);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_texts_are_refused_with_column_and_word),
        cmocka_unit_test(swapped_letters_and_other_case_are_near),
        cmocka_unit_test(depth_and_length_are_bounded),
        cmocka_unit_test(a_canonical_text_can_always_be_read),
        cmocka_unit_test(a_name_of_any_length_is_cut_in_the_message),
        cmocka_unit_test(own_forms_that_cannot_be_named_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
