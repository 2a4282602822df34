/* Policies over many acts while tokens are generated: what they remember of a key goes where it goes. */
#include "support/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 300, PROMPT = 40 };

/* What a definition remembers of every token of the text, held or not. */
typedef struct memory {
    bool held[TOKENS];
    double score[TOKENS];
} memory;

typedef void remember_rule(memory *m, const stream *s, const int32_t *pos, int64_t count);

static heed_moment moment_of(int t)
{
    return t < PROMPT - 1 ? HEED_IN_PROMPT : t == PROMPT - 1 ? HEED_PROMPT_ENDS : HEED_DECODING;
}

/* Of the tokens held the `recent` newest and the best of the others, of equal ones the later. */
static void keep_best(memory *m, int last, int budget, int recent)
{
    bool keep[TOKENS] = {0};
    int kept = 0;
    for (int t = last; t >= 0 && kept < recent; t--)
        if (m->held[t]) {
            keep[t] = true;
            kept++;
        }
    for (; kept < budget; kept++) {
        int best = -1;
        for (int t = 0; t <= last; t++)
            if (m->held[t] && !keep[t] && (best < 0 || m->score[t] >= m->score[best]))
                best = t;
        if (best < 0)
            break;
        keep[best] = true;
    }
    memcpy(m->held, keep, sizeof keep);
}

/* Runs a chain and its definition side by side; after each act both hold the same tokens. */
static void follow(const char *text, remember_rule *remember, int budget, int recent, int every)
{
    stream *s = stream_new(text, 7);
    memory *m = calloc(1, sizeof *m);
    assert_non_null(m);
    for (int t = 0; t < TOKENS; t++) {
        int32_t pos[STREAM_MOST];
        int64_t before = s->count;
        memcpy(pos, s->pos, (size_t)before * sizeof *pos);
        pos[before] = t;
        m->held[t] = true;
        const bool acted = stream_read(s, NULL, NULL, moment_of(t));
        remember(m, s, pos, before + 1);
        const bool due = t == PROMPT - 1 || (t >= PROMPT && before + 1 >= budget + every);
        assert_int_equal(acted, due);
        if (acted)
            keep_best(m, t, budget, recent);
        for (int64_t j = 0; j < s->count; j++)
            if (!m->held[s->pos[j]])
                fail_msg("%s: after token %d, %d is held", text, t, s->pos[j]);
        int64_t held = 0;
        for (int i = 0; i <= t; i++)
            held += m->held[i];
        assert_int_equal(held, s->count);
    }
    assert_true(s->acts > 5);
    free(m);
    stream_free(s);
}

static void add_weights(memory *m, const stream *s, const int32_t *pos, int64_t count)
{
    for (int h = 0; h < STREAM_GROUP; h++)
        for (int64_t j = 0; j < count; j++)
            m->score[pos[j]] += s->weight[h][j];
}

static void age_and_add_weights(memory *m, const stream *s, const int32_t *pos, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        m->score[pos[j]] *= 0.8;
    add_weights(m, s, pos, count);
}

static void take_weights(memory *m, const stream *s, const int32_t *pos, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        m->score[pos[j]] = s->weight[0][j] + s->weight[1][j];
}

static void count_strongest(memory *m, const stream *s, const int32_t *pos, int64_t count)
{
    (void)count;
    for (int h = 0; h < STREAM_GROUP; h++)
        for (int t = 0; t < 3; t++)
            if (s->top[h][t] >= 0)
                m->score[pos[s->top[h][t]]]++;
}

static void date_strongest(memory *m, const stream *s, const int32_t *pos, int64_t count)
{
    m->score[pos[count - 1]] = pos[count - 1];
    for (int h = 0; h < STREAM_GROUP; h++)
        for (int t = 0; t < 3; t++)
            if (s->top[h][t] >= 0)
                m->score[pos[s->top[h][t]]] = pos[count - 1];
}

static void sums_of_weights_go_where_their_keys_go(void **state)
{
    (void)state;
    follow("h2o(budget=20) > every(6)", add_weights, 20, 10, 6);
    follow("h2o(budget=21, recent=0.2) > every(1)", add_weights, 21, 4, 1);
    follow("h2o(budget=20, ageing=0.8) > every(10)", age_and_add_weights, 20, 10, 10);
}

static void the_newest_query_judges_in_tova(void **state)
{
    (void)state;
    follow("tova(budget=20) > every(6)", take_weights, 20, 1, 6);
}

static void counts_and_dates_of_attention_go_where_their_keys_go(void **state)
{
    (void)state;
    follow("lfa(budget=20, top=3) > every(6)", count_strongest, 20, 0, 6);
    follow("lra(budget=20, top=3) > every(6)", date_strongest, 20, 0, 6);
}

static void two_policies_do_not_share_what_they_remember(void **state)
{
    (void)state;
    /* the first never has to drop anything, so the second must do as if it were alone */
    follow("lfa(budget=200, top=2) > h2o(budget=20) > every(6)", add_weights, 20, 10, 6);
    follow("h2o(budget=200) > lfa(budget=20, top=3) > every(6)", count_strongest, 20, 0, 6);
}

static void merged_masses_sum_to_the_tokens_read(void **state)
{
    (void)state;
    static const char *const text[] = {"streaming(budget=20) > mean > every(5)", "razor(least=12) > every(5)",
                                       "h2o(budget=20) > nearest > every(5)",
                                       "tova(budget=20) > neighbour > every(5)"};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        stream *s = stream_new(text[i], 3);
        for (int t = 0; t < TOKENS; t++) {
            double mass = 0;
            stream_read(s, NULL, NULL, moment_of(t));
            for (int64_t j = 0; j < s->count; j++)
                mass += s->mass[j];
            assert_true(mass == t + 1);
            assert_true(t < PROMPT || s->count < 90);
        }
        assert_true(s->acts > 5);
        stream_free(s);
    }
}

/* With keys that come in few kinds, one token for each is as good as all. */
static void keys_that_are_alike_are_merged_without_a_trace(void **state)
{
    (void)state;
    enum { KINDS = 5 };
    test_random random = {11};
    float key[KINDS][STREAM_DIM], value[KINDS][STREAM_DIM];
    for (int k = 0; k < KINDS; k++)
        for (int d = 0; d < STREAM_DIM; d++) {
            key[k][d] = (float)random_normal(&random);
            value[k][d] = (float)random_normal(&random);
        }
    stream *full = stream_new("q8", 5), *s = stream_new("fifo(budget=20) > nearest > every(5)", 5);
    stream *one = stream_new("razor(first=2, least=8) > every(5)", 5), *all = stream_new("q8", 5);
    for (int t = 0; t < 200; t++) {
        const int kind = t % KINDS;
        stream_read(full, key[kind], value[kind], moment_of(t));
        stream_read(s, key[kind], value[kind], moment_of(t));
        stream_read(all, key[0], value[0], moment_of(t));
        stream_read(one, key[0], value[0], moment_of(t));
        for (int h = 0; h < STREAM_GROUP; h++)
            for (int d = 0; d < STREAM_DIM; d++) {
                assert_true(fabs(full->out[h][d] - s->out[h][d]) < 1e-5);
                assert_true(fabs(all->out[h][d] - one->out[h][d]) < 1e-5);
            }
    }
    assert_int_equal(full->count, 200);
    assert_true(s->count < 26 && one->count < 60);
    stream_free(full);
    stream_free(s);
    stream_free(one);
    stream_free(all);
}

static void a_prompt_read_in_chunks_is_held_within_the_budget(void **state)
{
    (void)state;
    stream *s = stream_new("observed(budget=16) > chunked(8)", 5);
    for (int t = 0; t < 64; t++) /* a session asks after every chunk */
        stream_read(s, NULL, NULL, t % 8 == 7 ? HEED_IN_PROMPT : HEED_DECODING);
    assert_int_equal(s->count, 16);
    assert_true(s->acts == 6);
    stream_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_weights_go_where_their_keys_go),
        cmocka_unit_test(the_newest_query_judges_in_tova),
        cmocka_unit_test(counts_and_dates_of_attention_go_where_their_keys_go),
        cmocka_unit_test(two_policies_do_not_share_what_they_remember),
        cmocka_unit_test(merged_masses_sum_to_the_tokens_read),
        cmocka_unit_test(keys_that_are_alike_are_merged_without_a_trace),
        cmocka_unit_test(a_prompt_read_in_chunks_is_held_within_the_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
