/* select=cca by its definition in double precision; gradients against differences of that definition; a text
 * read in pieces and token by token. */
#include "support/gathered.h"
#include "support/isas.h"
#include "support/pieces.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scene {
    gathered *g;
    int64_t block, window;
    double *q, *k, *v; /* copies in double, so that differences can be taken */
} scene;

static double product(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += x[c] * y[c];
    return sum;
}

/* out += w v over a list of keys and values; logits first, weights then. */
static void soft_sum(double *logit, double **value, int64_t n, int64_t dim, double *out)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        most = logit[j] > most ? logit[j] : most;
    for (int64_t j = 0; j < n; j++)
        sum += exp(logit[j] - most);
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < dim; c++)
            out[c] += exp(logit[j] - most) / sum * value[j][c];
}

/* The output of one query head; its keys are [N][dim]. */
static void define(const scene *s, const double *q, const double *k, const double *v, int64_t N, double *out)
{
    const int64_t dim = s->g->dim, blocks = N / s->block;
    const double scale = 1 / sqrt((double)dim);
    double *core = calloc((size_t)(2 * (blocks + 1) * dim), sizeof *core),
           *core_v = core + (blocks + 1) * dim;
    double *logit = calloc((size_t)(2 * N + 1), sizeof *logit);
    double **row = calloc((size_t)(2 * N + 1), sizeof *row);
    for (int64_t b = 0; b < blocks; b++)
        for (int side = 0; side < 2; side++) {
            for (int64_t j = 0; j < s->block; j++) {
                const int64_t key = b * s->block + j;
                logit[j] = scale * product(q + ((b + 1) * s->block - 1) * dim, k + key * dim, dim);
                row[j] = (double *)(uintptr_t)((side ? v : k) + key * dim);
            }
            soft_sum(logit, row, s->block, dim, (side ? core_v : core) + b * dim);
        }
    memset(out, 0, (size_t)(N * dim) * sizeof *out);
    for (int64_t i = 0; i < N; i++) {
        int64_t n = 0, start = 0;
        while (start + s->block <= i - s->window + 1)
            start += s->block;
        for (int64_t b = 0; b < start / s->block; b++, n++) {
            logit[n] = scale * product(q + i * dim, core + b * dim, dim);
            row[n] = core_v + b * dim;
        }
        for (int64_t j = start; j <= i; j++, n++) {
            logit[n] = scale * product(q + i * dim, k + j * dim, dim);
            row[n] = (double *)(uintptr_t)(v + j * dim);
        }
        soft_sum(logit, row, n, dim, out + i * dim);
    }
    free(core);
    free(logit);
    free(row);
}

static double *doubles(const float *x, int64_t n)
{
    double *y = calloc((size_t)n, sizeof *y);
    for (int64_t i = 0; i < n; i++)
        y[i] = (double)x[i];
    return y;
}

static void expect(scene *s)
{
    gathered *g = s->g;
    gathered_forget(g);
    for (int64_t b = 0; b < g->batch; b++)
        for (int64_t h = 0; h < g->heads; h++) {
            const int64_t at = gathered_query(g, g->q, b, h, 0) - g->q,
                          key = gathered_key(g, g->k, b, h, 0) - g->k;
            define(s, s->q + at, s->k + key, s->v + key, gathered_keys(g, b), g->out + at);
        }
}

static scene make(gathered *g, int64_t block, int64_t window)
{
    const int64_t Q = g->batch * g->heads * g->queries * g->dim,
                  K = g->batch * g->kv_heads * g->keys * g->dim;
    return (scene){g, block, window, doubles(g->q, Q), doubles(g->k, K), doubles(g->v, K)};
}

static void clear(scene *s)
{
    free(s->q);
    free(s->k);
    free(s->v);
    gathered_free(s->g);
}

static double loss(scene *s)
{
    const gathered *g = s->g;
    double sum = 0;
    expect(s);
    for (int64_t n = 0; n < g->batch * g->heads * g->queries * g->dim; n++)
        sum += g->out[n] * (double)g->dout[n];
    return sum;
}

static void match_slopes(scene *s, double *x, const float *got, int64_t n, const char *name)
{
    for (int64_t i = 0; i < n; i++) {
        const double at = x[i], step = 1e-5;
        x[i] = at + step;
        const double above = loss(s);
        x[i] = at - step;
        const double below = loss(s);
        x[i] = at;
        if (!(fabs((double)got[i] - (above - below) / (2 * step)) < 1e-4))
            fail_msg("%s[%lld] is %g, its difference %g", name, (long long)i, (double)got[i],
                     (above - below) / (2 * step));
    }
}

static void run(scene *s, const char *more, heed_isa isa, bool backward)
{
    char spec[160];
    snprintf(spec, sizeof spec, "where=causal; select=cca(block=%lld, window=%lld)%s", (long long)s->block,
             (long long)s->window, more);
    if (gathered_run(s->g, spec, isa, 2, backward, NULL))
        fail_msg("%s: %s", spec, heed_message());
    expect(s);
    gathered_match(s->g, spec, false);
}

static void core_keys_equal_the_definition(void **state)
{
    (void)state;
    static const int64_t way[][3] = {{150, 4, 16}, {300, 16, 40}, {61, 7, 1}, {200, 5, 130}, {90, 200, 4}};
    for (size_t n = 0; n < sizeof way / sizeof *way; n++) {
        scene s = make(gathered_make(2, 4, 2, way[n][0], way[n][0], 12, n + 1), way[n][1], way[n][2]);
        if (n == 0) {
            s.g->seq = calloc(2, sizeof *s.g->seq);
            memcpy(s.g->seq, (int32_t[]){150, 67}, 2 * sizeof *s.g->seq);
        }
        for (const heed_isa *isa = test_isas(); *isa; isa++)
            run(&s, "", *isa, false);
        clear(&s);
    }
}

static void gradients_equal_differences(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++)
        for (const heed_isa *isa = test_isas(); *isa; isa++) {
            scene s = make(gathered_make(1, 2, 1, 22, 22, 4, 5), way ? 3 : 4, way ? 5 : 6);
            run(&s, "", *isa, true);
            match_slopes(&s, s.q, s.g->got_dq, 2 * 22 * 4, "dq");
            match_slopes(&s, s.k, s.g->got_dk, 22 * 4, "dk");
            match_slopes(&s, s.v, s.g->got_dv, 22 * 4, "dv");
            clear(&s);
        }
}

/* block=1, or a window as long as the text. */
static void nothing_is_lost_in_blocks_of_one(void **state)
{
    (void)state;
    static const char *const specs[] = {"where=causal; position=rope; select=cca(block=1, window=3)",
                                        "where=causal; position=rope; select=cca(block=4, window=90)"};
    gathered *g = gathered_make(1, 2, 1, 90, 90, 16, 4);
    assert_int_equal(gathered_run(g, "where=causal; position=rope", HEED_ISA_AUTO, 1, false, NULL), HEED_OK);
    gathered_expect_got(g);
    for (size_t n = 0; n < sizeof specs / sizeof *specs; n++) {
        assert_int_equal(gathered_run(g, specs[n], HEED_ISA_AUTO, 1, false, NULL), HEED_OK);
        gathered_match(g, specs[n], false);
    }
    gathered_free(g);
}

static void pieces_and_single_tokens_give_what_the_whole_gives(void **state)
{
    (void)state;
    enum { N = 96 };
    const char *spec = "where=causal; position=rope; select=cca(block=5, window=12)";
    gathered *g = gathered_make(1, 4, 2, N, N, 16, 11);
    assert_int_equal(gathered_run(g, spec, HEED_ISA_AUTO, 1, false, NULL), HEED_OK);
    gathered_expect_got(g);
    memset(g->got_out, 0, 4 * N * 16 * sizeof(float));
    heed_memory memory = {.keys = -1};
    static const int64_t pieces[] = {13, 40, 1, 1, 1, 1, 1, 1, 1, 36};
    read_pieces(g, spec, pieces, sizeof pieces / sizeof *pieces, N, &memory);
    gathered_match(g, "in pieces", false);
    assert_int_equal(memory.keys, N);
    memory.keys = 20; /* cut back: what comes after is made again */
    assert_int_equal(read_piece(g, spec, 20, 30, N, &memory), HEED_OK);
    gathered_match(g, "after a cut", false);
    memory.keys = 3;
    assert_int_equal(read_piece(g, spec, 20, 30, N, &memory), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "read again"));
    free(memory.real);
    free(memory.number);
    gathered_free(g);
}

static void what_core_keys_cannot_serve_is_refused(void **state)
{
    (void)state;
    static const char *const specs[] = {"select=cca", "select=cca; where=causal & window(9)",
                                        "select=cca; where=causal; position=alibi"};
    for (size_t n = 0; n < sizeof specs / sizeof *specs; n++) {
        gathered *g = gathered_make(1, 2, 2, 8, 8, 8, 1);
        gathered_refuse(g, specs[n], HEED_OK, "causal");
        gathered_free(g);
    }
    gathered *g = gathered_make(1, 2, 2, 4, 8, 8, 1);
    gathered_refuse(g, "select=cca; where=causal", HEED_UNSUPPORTED, "HEED_WITH_MEMORY");
    gathered_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(core_keys_equal_the_definition),
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(nothing_is_lost_in_blocks_of_one),
        cmocka_unit_test(pieces_and_single_tokens_give_what_the_whole_gives),
        cmocka_unit_test(what_core_keys_cannot_serve_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
