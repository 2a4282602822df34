/* select=longheads by its definition in double precision, turned rows included; a text read in pieces. */
#include "support/gathered.h"
#include "support/isas.h"
#include "support/pieces.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scene {
    gathered *g;
    int64_t chunk, reads; /* keys in a chunk, chunks that a query reads */
    bool turned;
} scene;

/* x as it stands at a position: entries c and c + dim/2 turned by pos 10000^(-2c/dim). */
static void turn(const scene *s, const float *x, double pos, double *to)
{
    const int64_t half = s->g->dim / 2;
    for (int64_t c = 0; c < half; c++) {
        const double angle = s->turned ? pos * pow(10000, -(double)c / (double)half) : 0;
        to[c] = (double)x[c] * cos(angle) - (double)x[c + half] * sin(angle);
        to[c + half] = (double)x[c] * sin(angle) + (double)x[c + half] * cos(angle);
    }
}

static double score(const scene *s, const float *q, double q_pos, const float *k, double k_pos)
{
    double a[64], b[64], sum = 0;
    turn(s, q, q_pos, a);
    turn(s, k, k_pos, b);
    for (int64_t c = 0; c < s->g->dim; c++)
        sum += a[c] * b[c];
    return sum / sqrt((double)s->g->dim);
}

static void soften(double *x, int64_t n)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum += x[j] = exp(x[j]);
    for (int64_t j = 0; j < n; j++)
        x[j] /= sum;
}

static void represent(const scene *s, int64_t h, int64_t c, double *core)
{
    gathered *g = s->g;
    const int64_t l = s->chunk, dim = g->dim;
    double *w = calloc((size_t)l, sizeof *w), *o = calloc((size_t)dim, sizeof *o);
    for (int64_t i = 0; i < l; i++) {
        for (int64_t j = 0; j < l; j++)
            w[j] = score(s, gathered_query(g, g->q, 0, h, c * l + i), (double)i,
                         gathered_key(g, g->k, 0, h, c * l + j), (double)j);
        soften(w, l);
        for (int64_t j = 0; j < l; j++)
            for (int64_t x = 0; x < dim; x++)
                o[x] += w[j] * (double)gathered_key(g, g->v, 0, h, c * l + j)[x] / (double)l;
    }
    double key[64];
    for (int64_t j = 0; j < l; j++) {
        turn(s, gathered_key(g, g->k, 0, h, c * l + j), (double)j, key);
        w[j] = 0;
        for (int64_t x = 0; x < dim; x++)
            w[j] += o[x] * key[x] / sqrt((double)dim);
    }
    soften(w, l);
    memset(core, 0, (size_t)dim * sizeof *core);
    for (int64_t j = 0; j < l; j++) {
        turn(s, gathered_key(g, g->k, 0, h, c * l + j), (double)j, key);
        for (int64_t x = 0; x < dim; x++)
            core[x] += w[j] * key[x];
    }
    free(w);
    free(o);
}

static void expect_row(const scene *s, int64_t h, int64_t i, const double *core, double *out)
{
    gathered *g = s->g;
    const int64_t l = s->chunk, own = i / l, dim = g->dim;
    double *value = calloc((size_t)own + 1, sizeof *value), *w = calloc((size_t)g->keys, sizeof *w);
    int64_t *key = calloc((size_t)g->keys, sizeof *key), n = 0, rank = 0;
    for (int64_t c = 0; c <= own; c++)
        for (int64_t x = 0; x < dim; x++)
            value[c] += core[c * dim + x] * (double)gathered_query(g, g->q, 0, h, i)[x];
    for (int64_t c = 0; c <= own; c++) {
        int64_t above = 0;
        for (int64_t d = 1; d < own - 1; d++)
            above += value[d] > value[c];
        if (own >= s->reads && c > 0 && c < own - 1 && above >= s->reads - 3)
            continue;
        for (int64_t j = c * l; j < (c + 1) * l && j <= i; j++, n++) {
            const double new_key = (double)(rank * l + j - c * l);
            const double new_query = (double)((own < s->reads ? own : s->reads - 1) * l + i - own * l);
            w[n] = score(s, gathered_query(g, g->q, 0, h, i), new_query, gathered_key(g, g->k, 0, h, j),
                         new_key);
            key[n] = j;
            assert_true(new_query - new_key < (double)(s->reads * l)); /* within what was trained */
        }
        rank++;
    }
    assert_true(rank <= s->reads);
    soften(w, n);
    for (int64_t j = 0; j < n; j++)
        for (int64_t x = 0; x < dim; x++)
            out[x] += w[j] * (double)gathered_key(g, g->v, 0, h, key[j])[x];
    free(value);
    free(w);
    free(key);
}

static void expect(const scene *s)
{
    gathered *g = s->g;
    const int64_t chunks = g->keys / s->chunk;
    double *core = calloc((size_t)((chunks + 1) * g->dim), sizeof *core);
    gathered_forget(g);
    for (int64_t h = 0; h < g->heads; h++) {
        for (int64_t c = 0; c < chunks; c++)
            represent(s, h, c, core + c * g->dim);
        for (int64_t i = 0; i < g->queries; i++)
            expect_row(s, h, i, core, g->out + (gathered_query(g, g->q, 0, h, i) - g->q));
    }
    free(core);
}

static const char *spec_of(const scene *s, char text[160])
{
    snprintf(text, 160, "where=causal; select=longheads(chunk=%lld, length=%lld)%s", (long long)s->chunk,
             (long long)(s->chunk * s->reads), s->turned ? "; position=rope" : "");
    return text;
}

static void chunks_equal_the_definition(void **state)
{
    (void)state;
    static const int64_t way[][3] = {{100, 10, 4}, {131, 8, 3}, {90, 16, 5}, {30, 40, 3}};
    for (size_t n = 0; n < 4; n++)
        for (int turned = 0; turned < 2; turned++) {
            char text[160];
            scene s = {gathered_make(1, 4, 2, way[n][0], way[n][0], 8, n + 3), way[n][1], way[n][2], turned};
            expect(&s);
            for (const heed_isa *isa = test_isas(); *isa; isa++) {
                if (gathered_run(s.g, spec_of(&s, text), *isa, 2, false, NULL))
                    fail_msg("%s: %s", text, heed_message());
                gathered_match(s.g, text, false);
            }
            gathered_free(s.g);
        }
}

static void a_text_within_the_trained_length_is_unchanged(void **state)
{
    (void)state;
    gathered *g = gathered_make(1, 2, 1, 96, 96, 16, 4);
    assert_int_equal(gathered_run(g, "where=causal; position=rope", HEED_ISA_AUTO, 1, false, NULL), HEED_OK);
    gathered_expect_got(g);
    const char *spec = "where=causal; position=rope; select=longheads(chunk=16, length=96)";
    assert_int_equal(gathered_run(g, spec, HEED_ISA_AUTO, 1, false, NULL), HEED_OK);
    gathered_match(g, spec, false);
    gathered_free(g);
}

static void pieces_and_single_tokens_give_what_the_whole_gives(void **state)
{
    (void)state;
    enum { N = 110 };
    const char *spec = "where=causal; position=rope; select=longheads(chunk=8, length=32)";
    gathered *g = gathered_make(1, 4, 2, N, N, 16, 11);
    assert_int_equal(gathered_run(g, spec, HEED_ISA_AUTO, 1, false, NULL), HEED_OK);
    gathered_expect_got(g);
    memset(g->got_out, 0, 4 * N * 16 * sizeof(float));
    heed_memory memory = {.keys = -1};
    static const int64_t pieces[] = {13, 40, 1, 1, 1, 1, 1, 1, 1, 50};
    read_pieces(g, spec, pieces, sizeof pieces / sizeof *pieces, N, &memory);
    gathered_match(g, "in pieces", false);
    memory.keys = 107; /* within the chunk whose queries are held, and at the edge of another */
    assert_int_equal(read_piece(g, spec, 107, 3, N, &memory), HEED_OK);
    memory.keys = 40;
    assert_int_equal(read_piece(g, spec, 40, 9, N, &memory), HEED_OK);
    gathered_match(g, "after cuts", false);
    memory.keys = 30; /* inside a chunk whose queries are gone */
    assert_int_equal(read_piece(g, spec, 30, 9, N, &memory), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "read again"));
    free(memory.real);
    free(memory.number);
    gathered_free(g);
}

static void what_it_cannot_serve_is_refused(void **state)
{
    (void)state;
    static const char *const specs[][2] = {
        {"where=causal; select=longheads(chunk=16, length=40)", "at least 3 chunks"},
        {"where=causal & window(9); select=longheads", "no other mask"},
        {"select=longheads", "causal"},
    };
    gathered *g = gathered_make(1, 2, 2, 8, 8, 8, 1);
    for (size_t n = 0; n < sizeof specs / sizeof *specs; n++)
        gathered_refuse(g, specs[n][0], HEED_OK, specs[n][1]);
    assert_int_equal(gathered_run(g, "where=causal; select=longheads", HEED_ISA_AUTO, 1, true, NULL),
                     HEED_UNSUPPORTED);
    gathered_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_equal_the_definition),
        cmocka_unit_test(a_text_within_the_trained_length_is_unchanged),
        cmocka_unit_test(pieces_and_single_tokens_give_what_the_whole_gives),
        cmocka_unit_test(what_it_cannot_serve_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
