/* select=ltri by its definition in double precision: maps, triangles, spans, votes, and what is read of a
 * text that comes in pieces and token by token. */
#include "support/gathered.h"
#include "support/pieces.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 100, SPANS = 200 };

typedef struct scene {
    gathered *g;
    int chunk, window, sinks, least, most, budget, persist;
    double theta;
    int from[SPANS], until[SPANS], spans, ends[20]; /* spans of the chunks up to the n-th: ends[n] */
    bool opens[N][N];
} scene;

static double score(const scene *s, int64_t h, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t c = 0; c < s->g->dim; c++)
        sum += (double)gathered_query(s->g, s->g->q, 0, h, i)[c] *
               (double)gathered_key(s->g, s->g->k, 0, h, j)[c];
    return sum / sqrt((double)s->g->dim);
}

/* Spans of the chunk that begins at t. */
static void find_spans(scene *s, int t)
{
    static double map[64][64];
    bool taken[64] = {false}, tried[64][65] = {{false}};
    const int first = s->spans;
    memset(map, 0, sizeof map);
    for (int64_t h = 0; h < s->g->heads; h++)
        for (int i = 0; i < s->chunk; i++) {
            double sum = 0;
            for (int j = 0; j <= i; j++)
                sum += exp(score(s, h, t + i, t + j));
            for (int j = 0; j <= i; j++)
                map[i][j] += exp(score(s, h, t + i, t + j)) / sum / (double)s->g->heads;
        }
    for (;;) {
        double best = 0;
        int at = -1, size = 0;
        for (int a = 0; a < s->chunk; a++)
            for (int n = s->least; n <= s->most && a + n <= s->chunk; n++) {
                double sum = 0;
                for (int i = a; i < a + n; i++)
                    for (int j = a; j <= i; j++)
                        sum += map[i][j] - s->theta;
                if (!tried[a][n] && sum > best) {
                    best = sum;
                    at = a;
                    size = n;
                }
            }
        if (at < 0)
            break;
        tried[at][size] = true;
        bool near = false;
        for (int x = first; x < s->spans; x++) {
            const int from = s->from[x] - t, until = s->until[x] - t;
            const int both = (until < at + size ? until : at + size) - (from > at ? from : at);
            near |= both > 0 && both > 0.5 * (until - from + size - both);
        }
        int longest = 0, begin = 0;
        for (int a = at; a < at + size; a++) {
            int b = a;
            while (b < at + size && !taken[b])
                b++;
            if (b - a > longest) {
                longest = b - a;
                begin = a;
            }
        }
        if (near || longest < s->least)
            continue;
        for (int b = begin; b < begin + longest; b++)
            taken[b] = true;
        s->from[s->spans] = t + begin;
        s->until[s->spans++] = t + begin + longest;
    }
    for (int a = 0, b; a < s->chunk; a = b) {
        b = a + 1;
        if (taken[a])
            continue;
        while (b < s->chunk && !taken[b] && b - a < s->most)
            b++;
        s->from[s->spans] = t + a;
        s->until[s->spans++] = t + b;
    }
}

/* Votes of the queries first .. end-1 for the first `spans` spans that begin before `near`. */
static void elect(const scene *s, int first, int end, int spans, int near, bool *elected)
{
    int votes[SPANS] = {0};
    double total[SPANS] = {0};
    for (int64_t h = 0; h < s->g->heads; h++) {
        double value[SPANS];
        bool done[SPANS] = {false};
        for (int x = 0; x < spans; x++) {
            value[x] = 0;
            for (int i = first; i < end; i++)
                for (int j = s->from[x]; j < s->until[x]; j++)
                    value[x] += score(s, h, i, j) / (end - first) / (s->until[x] - s->from[x]);
            total[x] += s->from[x] < near ? value[x] : 0;
        }
        for (int read = 0;;) {
            int best = -1;
            for (int x = 0; x < spans; x++)
                if (!done[x] && s->from[x] < near && (best < 0 || value[x] > value[best]))
                    best = x;
            if (best < 0 || (read += s->until[best] - s->from[best]) > s->budget)
                break;
            done[best] = true;
            votes[best]++;
        }
    }
    memset(elected, 0, SPANS);
    for (int read = 0;;) {
        int best = -1;
        for (int x = 0; x < spans; x++)
            if (!elected[x] && votes[x] > 0 &&
                (best < 0 || votes[x] > votes[best] || (votes[x] == votes[best] && total[x] > total[best])))
                best = x;
        if (best < 0 || (read += s->until[best] - s->from[best]) > s->budget)
            break;
        elected[best] = true;
    }
}

static void define(scene *s, const int *pieces)
{
    bool elected[SPANS] = {false};
    int since = 0;
    s->spans = 0;
    for (int first = 0, n = 0; first < N; first += pieces[n++])
        for (int t = first, end; t < first + pieces[n]; t = end) {
            const int c = t / s->chunk;
            end = (c + 1) * s->chunk < first + pieces[n] ? (c + 1) * s->chunk : first + pieces[n];
            const int near = t - s->window + 1 > 0 ? t - s->window + 1 : 0;
            const bool goes_on = pieces[n] == 1 && t % s->chunk != 0 && t - since < s->persist;
            if (!goes_on) {
                elect(s, t, end, c > 0 ? s->ends[c - 1] : 0, near + s->persist - 1, elected);
                since = t;
            }
            for (int i = t; i < end; i++)
                for (int j = 0; j <= i; j++) {
                    bool opens = j >= near || j < s->sinks;
                    for (int x = 0; x < (c > 0 ? s->ends[c - 1] : 0); x++)
                        opens |= elected[x] && j >= s->from[x] && j < s->until[x];
                    s->opens[i][j] = opens;
                }
            if (end == (c + 1) * s->chunk) {
                find_spans(s, c * s->chunk);
                s->ends[c] = s->spans;
            }
        }
}

static void expect(scene *s)
{
    double *mass = calloc(N * N, sizeof *mass);
    for (int i = 0; i < N * N; i++)
        mass[i] = s->opens[i / N][i % N];
    gathered_forget(s->g);
    for (int64_t h = 0; h < s->g->heads; h++)
        gathered_add(s->g, 0, h, mass, NULL);
    free(mass);
}

static const char *spec_of(const scene *s)
{
    static char text[240];
    snprintf(
        text, sizeof text,
        "where=causal; select=ltri(chunk=%d, window=%d, sinks=%d, least=%d, most=%d, theta=%g, budget=%d, "
        "persist=%d)",
        s->chunk, s->window, s->sinks, s->least, s->most, s->theta, s->budget, s->persist);
    return text;
}

static void read_in(scene *s, const int *pieces)
{
    heed_memory memory = {.keys = -1};
    for (int first = 0, n = 0; first < N; first += pieces[n++])
        if (read_piece(s->g, spec_of(s), first, pieces[n], N, &memory))
            fail_msg("%s: %s", spec_of(s), heed_message());
    free(memory.number);
    free(memory.real);
}

static const int ways[][24] = {
    {N}, {30, 45, 25}, {50, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 31}};

static void what_is_read_equals_the_definition(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++)
        for (int budget = 8; budget <= 32; budget += 12) {
            scene *s = calloc(1, sizeof *s);
            *s = (scene){.g = gathered_make(1, 4, 2, N, N, 12, (uint64_t)(10 * way + budget)),
                         .chunk = 16,
                         .window = 18,
                         .sinks = 3,
                         .least = 3,
                         .most = 7,
                         .budget = budget,
                         .persist = 4,
                         .theta = 0.1};
            define(s, ways[way]);
            expect(s);
            read_in(s, ways[way]);
            gathered_match(s->g, spec_of(s), false);
            gathered_free(s->g);
            free(s);
        }
}

/* A budget that holds every span, remainders too, reads everything. */
static void every_token_is_in_one_span_or_the_remainder(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        scene *s = calloc(1, sizeof *s);
        *s = (scene){.g = gathered_make(1, 2, 1, N, N, 8, 3),
                     .chunk = 16,
                     .window = 16,
                     .least = 3,
                     .most = 8,
                     .budget = N,
                     .persist = 5,
                     .theta = 0.1};
        for (int i = 0; i < N * N; i++)
            s->opens[i / N][i % N] = i % N <= i / N;
        expect(s);
        read_in(s, ways[way]);
        gathered_match(s->g, "everything", false);
        gathered_free(s->g);
        free(s);
    }
}

/* Planted topics: a topic's tokens attend to each other, so that a stretch that begins inside one loses
 * weight. */
static void spans_begin_where_topics_do(void **state)
{
    (void)state;
    static const int edge[] = {0, 11, 20, 32, 40, 48};
    scene *s = calloc(1, sizeof *s);
    *s = (scene){.g = gathered_make(1, 1, 1, N, N, 8, 5),
                 .chunk = 48,
                 .window = 48,
                 .least = 4,
                 .most = 20,
                 .budget = 16,
                 .persist = 1,
                 .theta = 0.09};
    for (int topic = 0; topic < 5; topic++)
        for (int t = edge[topic]; t < edge[topic + 1]; t++)
            for (int c = 0; c < 8; c++) {
                float *q = gathered_query(s->g, s->g->q, 0, 0, t), *k = gathered_key(s->g, s->g->k, 0, 0, t);
                q[c] = 0.3f * q[c] + (c == topic ? 5.0f : 0.0f);
                k[c] = 0.3f * k[c] + (c == topic ? 5.0f : 0.0f);
            }
    heed_memory memory = {.keys = -1};
    if (read_piece(s->g, spec_of(s), 0, N, N, &memory))
        fail_msg("%s", heed_message());
    const int32_t *ends = memory.number + 2, *span = memory.number + 2 + 3; /* behind 3 chunks */
    int begin = 0;
    for (int topic = 0; topic < 5; topic++)
        for (int32_t x = 0; x < ends[0]; x++)
            begin += span[2 * x] == edge[topic];
    if (begin < 4) /* one may be lost to the end of the span before it */
        fail_msg("of five topics, spans begin with %d", begin);
    free(memory.number);
    free(memory.real);
    gathered_free(s->g);
    free(s);
}

static void what_it_cannot_serve_is_refused(void **state)
{
    (void)state;
    static const char *const specs[][2] = {
        {"where=causal; select=ltri", "HEED_WITH_MEMORY"},
        {"where=causal; select=ltri(chunk=64, window=32)", "at least a chunk"},
        {"select=ltri", "causal"},
    };
    gathered *g = gathered_make(1, 2, 2, 8, 8, 8, 1);
    for (size_t n = 0; n < sizeof specs / sizeof *specs; n++)
        gathered_refuse(g, specs[n][0], HEED_OK, specs[n][1]);
    gathered_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_equals_the_definition),
        cmocka_unit_test(every_token_is_in_one_span_or_the_remainder),
        cmocka_unit_test(spans_begin_where_topics_do),
        cmocka_unit_test(what_it_cannot_serve_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
