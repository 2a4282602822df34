/* Random combinations of forms, sizes, types and routes against the oracle, gradients too. HEED_SEED=n in the
 * environment starts from another seed; a failure prints the case with the seed that makes it. */
#include "support/attend.h"
#include "support/isas.h"
#include "support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

enum { CASES = 800, FEW = 250 /* where one instruction set is tested, under an emulator or instrumented */ };

static const char *pick(test_random *r, const char *const *list, size_t n)
{
    return list[random_whole(r, 0, (int64_t)n - 1)];
}

static bool chance(test_random *r, double p)
{
    return random_uniform(r) < p;
}

static void append(char *spec, const char *clause, const char *text)
{
    if (*spec)
        strcat(spec, "; ");
    strcat(strcat(spec, clause), text);
}

/* A random expression of at most `depth` levels. */
static void where_expression(test_random *r, char *text, int depth, const attend_case *c)
{
    static const char *const leaves[] = {
        "causal",           "causal",    "window(5)", "window(40)",
        "dilated(4, 3)",    "first(3)",  "last(7)",   "block(16)",
        "strided(3)",       "global(2)", "self",      "neighbourhood(7, 9, 2)",
        "random(2, 16, 5)", "all",
    };
    if (depth == 0 || chance(r, 0.4)) {
        if (c->mask && chance(r, 0.4))
            strcat(text, "mask");
        else if (c->segments && chance(r, 0.4))
            strcat(text, "segments");
        else
            strcat(text, pick(r, leaves, COUNT(leaves)));
        return;
    }
    const bool negate = chance(r, 0.15), brackets = negate || chance(r, 0.5);
    strcat(text, negate ? "!(" : brackets ? "(" : "");
    where_expression(r, text, depth - 1, c);
    strcat(text, chance(r, 0.5) ? " & " : " | ");
    where_expression(r, text, depth - 1, c);
    strcat(text, brackets ? ")" : "");
}

/* Rotations and waves need an even number of entries. */
static void position_sum(test_random *r, char *text, bool xpos, bool even)
{
    static const char *const rotations[] = {"rope",
                                            "rope(pairs=adjacent, base=500)",
                                            "rope(dim=2)",
                                            "rope(scaling=yarn(4, 64))",
                                            "rope(scaling=llama3(8, 64))",
                                            "rope(scaling=linear(2), pairs=adjacent)"};
    static const char *const biases[] = {"alibi",
                                         "alibi(slopes=published)",
                                         "t5(buckets=8, max=20)",
                                         "t5",
                                         "shaw(max=4)",
                                         "kerple",
                                         "kerple(kind=power)",
                                         "fire",
                                         "cope(max=5)",
                                         "sandwich"}; /* the last one is a wave */
    if (xpos)
        strcat(text, "xpos(scale_base=64)");
    else if (even && chance(r, 0.4))
        strcat(text, pick(r, rotations, COUNT(rotations)));
    for (int n = 0; n < 2; n++) {
        const char *form = pick(r, biases, COUNT(biases) - !even);
        char name[16] = "";
        memcpy(name, form, strcspn(form, "("));
        if (chance(r, 0.4) && !strstr(text, name)) /* each form once */
            strcat(strcat(text, *text ? " + " : ""), form);
    }
}

static void random_spec(test_random *r, char *spec, const attend_case *c)
{
    static const char *const scores[] = {"dot(0.4)",   "cosine",   "bilinear", "additive(dim=3)",
                                         "mlp(dim=3)", "gaussian", "laplace"};
    static const char *const selectors[] = {"top_k(5)",
                                            "top_p(0.8)",
                                            "threshold(0.1)",
                                            "top_k(12) > top_p(0.9)",
                                            "threshold(0.02) > top_k(4)",
                                            "quest(page=4, budget=12)",
                                            "moba(block=8, k=2)"};
    static const char *const normalisers[] = {"softmax(temperature=0.7)",
                                              "softmax1",
                                              "sink",
                                              "sigmoid",
                                              "relu(power=2)",
                                              "sparsemax",
                                              "entmax",
                                              "softcap(2)",
                                              "softcap(3) > sink",
                                              "softcap(2) > sigmoid",
                                              "softcap(1) > sparsemax"};
    char where[512] = "", position[256] = "";
    const bool even = c->dim % 2 == 0, xpos = even && chance(r, 0.06);
    if (xpos)
        strcpy(where, "causal & ");
    if (xpos || chance(r, 0.8))
        where_expression(r, where, xpos ? 0 : 2, c);
    if (xpos || chance(r, 0.6))
        position_sum(r, position, xpos, even);
    if (!xpos && chance(r, 0.4))
        append(spec, "score=", pick(r, scores, COUNT(scores)));
    if (*position)
        append(spec, "position=", position);
    if (*where)
        append(spec, "where=", where);
    if (chance(r, 0.25)) /* the last two look at q and k themselves, and so have a meaning of their own with
                            other scores */
        append(spec, "select=", pick(r, selectors, COUNT(selectors) - (strstr(spec, "score=") ? 2 : 0)));
    if (chance(r, 0.5))
        append(spec, "normalise=", pick(r, normalisers, COUNT(normalisers)));
    if (chance(r, 0.12))
        append(spec, "heads=", "talking");
    if (chance(r, 0.12))
        append(spec, "read=", "gate");
}

static void random_case(test_random *r, attend_case *c, char *spec)
{
    static const int64_t heads[][2] = {{1, 1}, {2, 1}, {2, 2}, {3, 3}, {4, 2}, {6, 2}};
    static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16, HEED_Q8, HEED_Q4};
    const int64_t *h = heads[random_whole(r, 0, COUNT(heads) - 1)];
    *c = (attend_case){.batch = random_whole(r, 1, 3),
                       .heads = h[0],
                       .kv_heads = h[1],
                       .dim = random_whole(r, 2, 36),
                       .value_dim = random_whole(r, 1, 40),
                       .queries = random_whole(r, 1, chance(r, 0.5) ? 6 : 50),
                       .keys = random_whole(r, 1, chance(r, 0.3) ? chance(r, 0.3) ? 300 : 140 : 50),
                       .seed = random_bits(r) >> 16};
    if (chance(r, 0.3))
        c->keys = c->queries;
    if (chance(r, 0.25))
        c->positions = (attend_positions)random_whole(r, 1, 2);
    if (chance(r, 0.3))
        c->ragged = (attend_ragged)random_whole(r, 1, 2);
    if (chance(r, 0.2))
        c->segments = (int)random_whole(r, 1, 2);
    if (chance(r, 0.2))
        c->mask = (attend_mask)random_whole(r, 1, 5);
    if (chance(r, 0.3)) {
        c->q_type = types[random_whole(r, 0, 2)];
        c->k_type = types[random_whole(r, 0, 4)];
        c->v_type = types[random_whole(r, 0, 4)];
        if (chance(r, 0.4))
            c->k_type = c->v_type = c->q_type;
    }
    random_spec(r, spec, c);
    c->spec = spec;
    const bool floating = c->k_type <= HEED_BF16 && c->v_type <= HEED_BF16;
    int isas = 0;
    while (test_isas()[isas])
        isas++;
    c->way = (attend_way){.isa = test_isas()[random_whole(r, 0, isas - 1)],
                          .threads = (int)random_whole(r, 1, 3),
                          .kernel = chance(r, 0.5) ? HEED_KERNEL_AUTO
                                                   : (heed_kernel)random_whole(r, 1, HEED_KERNEL_DECODE),
                          .backward = floating && chance(r, 0.6),
                          .weights = chance(r, 0.5),
                          .statistics = chance(r, 0.3) && !strstr(spec, "talking"),
                          .layout = chance(r, 0.2) ? LAYOUT_HEADS_INSIDE : LAYOUT_DENSE,
                          .row_state = chance(r, 0.5),
                          .own_scratch = chance(r, 0.5)};
    if (!c->way.backward && chance(r, 0.3))
        c->way.page = INT64_C(1) << random_whole(r, 0, 7);
}

/* A forced kernel that cannot run the spec says so; the plan's own choice runs it then. */
static void check(const attend_case *c)
{
    attend_data *d = attend_prepare(c);
    attend_result *r = attend_try(d, &d->c.way);
    if (r->status == HEED_UNSUPPORTED && c->way.kernel != HEED_KERNEL_AUTO &&
        c->way.kernel != HEED_KERNEL_ROWS) {
        attend_result_free(r);
        d->c.way.kernel = HEED_KERNEL_AUTO;
        r = attend_run(d, &d->c.way);
    }
    if (r->status != HEED_OK)
        fail_msg("%s\n  refused: %s", attend_describe(&d->c, &d->c.way), r->message);
    attend_match(d, r);
    attend_result_free(r);
    attend_free(d);
}

static void random_combinations_equal_the_oracle(void **state)
{
    (void)state;
    const char *wish = getenv("HEED_SEED");
    const uint64_t seed = wish ? strtoull(wish, NULL, 10) : 20240607;
    print_message("HEED_SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < (getenv("HEED_TEST_ISA") ? FEW : CASES); i++) {
        test_random r = {seed + i}; /* so that HEED_SEED=seed+i begins with the case that failed */
        char spec[1024] = "";
        attend_case c;
        random_case(&r, &c, spec);
        check(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_combinations_equal_the_oracle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
