/* The spec language: what a text means, how it prints back, and what is said when it is wrong. */
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
static const heed_form *const own[] = {&fence, &carry, NULL};

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
    {"scan=mamba", 6, {"'mamba'", "'carry'"}},
    {"lowrank=nystrom", 9, {"'nystrom'", "'none'"}},
    /* values */
    {"where=window(-3)", 7, {"where=window(-3): w must be at least 1"}},
    {"score=dot; where=causal & window(0)", 27, {"where=window(0): w must be at least 1"}},
    {"where=window(2.5)", 7, {"where=window(2.5): w must be a whole number"}},
    {"where=window(inf)", 7, {"where=window(inf): w must be a whole number"}},
    {"where=window(9007199254740992)", 7, {"below 2^53"}},
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
    strcpy(brackets, "self");
    for (int level = 0; level < 8; level++) {
        char *half = strdup(brackets);
        sprintf(brackets, "(%s)&(%s)", half, half);
        free(half);
    }
    memmove(brackets + 6, brackets, strlen(brackets) + 1);
    memcpy(brackets, "where=", 6);
    assert_int_equal(heed_spec_canonical(brackets, NULL, row, 65536), HEED_OK);
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
        assert_int_equal(root[HEED_POSITION] >= 0, cases[i].alibi);
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

static void own_forms_that_cannot_be_named_are_refused(void **state)
{
    (void)state;
    heed_arg many[HEED_MAX_ARGS + 2] = {{0}};
    for (int i = 0; i <= HEED_MAX_ARGS; i++)
        many[i].name = "x";
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
        {{.name = "x", .stage = HEED_WHERE, .args = choice_without_options}, "options"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const heed_form *const forms[] = {&fence, &cases[i].form, NULL};
        assert_int_equal(heed_spec_canonical("", forms, NULL, 0), HEED_INVALID);
        if (!strstr(heed_message(), cases[i].word))
            fail_msg("case %zu: '%s' lacks '%s'", i, heed_message(), cases[i].word);
    }
}

/* Every combination stands for a spec, with its defaults and at the ends of its ranges. */
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
            const double value = arg->above ? 1.5 : end && !strcmp(arg->name, "window") ? 1e6 : arg->least;
            if (!arg->required && !end)
                continue;
            /* some arguments go into forms that allow less than any number */
            length += snprintf(call + length, sizeof call - (size_t)length, "%s%s=%g", any ? ", " : "",
                               arg->name, !strcmp(arg->name, "buckets") ? 2 : value);
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

/* Where numbers are written with a comma, specs are not. */
static void the_locale_changes_nothing(void **state)
{
    (void)state;
    const char *const with_comma[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                      "fr_FR.utf8",  "de_DE",      "fr_FR"};
    size_t i = 0;
    while (i < COUNT(with_comma) && !setlocale(LC_ALL, with_comma[i]))
        i++;
    if (i == COUNT(with_comma))
        skip();
    char text[64];
    const heed_status status = heed_spec_canonical("score=dot(0.25)", NULL, text, sizeof text);
    setlocale(LC_ALL, "C");
    assert_int_equal(status, HEED_OK);
    assert_string_equal(text, "score=dot(scale=0.25)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_print_canonically),
        cmocka_unit_test(wrong_texts_are_refused_with_column_and_word),
        cmocka_unit_test(depth_and_length_are_bounded),
        cmocka_unit_test(a_canonical_text_can_always_be_read),
        cmocka_unit_test(a_name_of_any_length_is_cut_in_the_message),
        cmocka_unit_test(later_groups_override_earlier_ones),
        cmocka_unit_test(nodes_and_groups_know_their_columns),
        cmocka_unit_test(defaults_are_filled_in_where_nothing_is_written),
        cmocka_unit_test(a_buffer_gets_what_fits),
        cmocka_unit_test(own_forms_that_cannot_be_named_are_refused),
        cmocka_unit_test(combinations_stand_for_specs),
        cmocka_unit_test(every_build_has_the_same_forms),
        cmocka_unit_test(the_locale_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
