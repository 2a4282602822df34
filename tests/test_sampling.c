/* Drawing tokens against plain definitions, and stop strings against a search of the whole text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <heed/sampling.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/random.h"

enum { VOCABULARY = 50, DRAWS = 40000 };

static void numbers_are_those_of_philox(void **state)
{
    (void)state;
    /* Known answers of Philox 4x32-10 in Random123's kat_vectors: all zero, all one bits, digits of pi. The
     * number is made of the second word and then the first, less the 11 lowest bits. */
    assert_true(heed_uniform(0, 0, 0) == (double)(0xe169c58d6627e8d5u >> 11) * 0x1p-53);
    assert_true(heed_uniform(UINT64_MAX, UINT64_MAX, UINT64_MAX) ==
                (double)(0x41c83b0e408f276du >> 11) * 0x1p-53);
    assert_true(heed_uniform(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u) ==
                (double)(0x94fdccebd16cfe09u >> 11) * 0x1p-53);
    double sum = 0, squares = 0;
    for (int i = 0; i < 100000; i++) {
        const double u = heed_uniform(7, 1, (uint64_t)i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        squares += u * u;
    }
    assert_true(fabs(sum / 1e5 - 0.5) < 0.004 && fabs(squares / 1e5 - 1.0 / 3) < 0.004);
    assert_true(heed_uniform(1, 0, 0) != heed_uniform(2, 0, 0));
    assert_true(heed_uniform(1, 0, 5) != heed_uniform(1, 1, 5) &&
                heed_uniform(1, 0, 5) != heed_uniform(1, 0, 6));
}

/* Probabilities by the definition: sorted, and each step on what is left. */
static void define(const float *logits, const int32_t *past, int64_t count, const heed_sampling *s,
                   double *probability)
{
    double logit[VOCABULARY], all = 0;
    int order[VOCABULARY], left = VOCABULARY, times[VOCABULARY] = {0};
    const int64_t first = s->penalty_window && count > s->penalty_window ? count - s->penalty_window : 0;
    for (int64_t i = first; i < count; i++)
        times[past[i]]++;
    for (int i = 0; i < VOCABULARY; i++) {
        float l = logits[i];
        if (times[i] && s->repetition > 0)
            l = l > 0 ? l / s->repetition : l * s->repetition;
        if (times[i])
            l -= s->frequency * (float)times[i] + s->presence;
        logit[i] = (double)l / (double)s->temperature;
        order[i] = i;
    }
    for (int i = 1; i < VOCABULARY; i++)
        for (int k = i; k > 0 && logit[order[k]] > logit[order[k - 1]]; k--) {
            const int swap = order[k];
            order[k] = order[k - 1];
            order[k - 1] = swap;
        }
    if (s->top_k && s->top_k < left)
        left = s->top_k;
    for (int i = 0; i < left; i++)
        all += exp(logit[order[i]] - logit[order[0]]);
    if (s->top_p > 0 && s->top_p < 1) {
        double taken = 0;
        int few = 0;
        while (few < left && taken < (double)s->top_p * all)
            taken += exp(logit[order[few++]] - logit[order[0]]);
        left = few;
    }
    while (left > 1 && exp(logit[order[left - 1]] - logit[order[0]]) < (double)s->min_p)
        left--;
    all = 0;
    memset(probability, 0, VOCABULARY * sizeof *probability);
    for (int i = 0; i < left; i++)
        all += exp(logit[order[i]] - logit[order[0]]);
    for (int i = 0; i < left; i++)
        probability[order[i]] = exp(logit[order[i]] - logit[order[0]]) / all;
}

static void draws_follow_the_definition(void **state)
{
    (void)state;
    static const heed_sampling cases[] = {
        {.temperature = 1, .seed = 1},
        {.temperature = 0.5f, .seed = 2},
        {.temperature = 2, .top_k = 7, .seed = 3},
        {.temperature = 1, .top_p = 0.8f, .seed = 4},
        {.temperature = 1, .min_p = 0.2f, .seed = 5},
        {.temperature = 1.5f, .top_k = 20, .top_p = 0.9f, .min_p = 0.05f, .seed = 6},
        {.temperature = 1, .repetition = 1.5f, .seed = 7},
        {.temperature = 1, .frequency = 0.7f, .seed = 8},
        {.temperature = 1, .presence = 1.2f, .seed = 9},
        {.temperature = 0.8f,
         .repetition = 1.2f,
         .frequency = 0.3f,
         .presence = 0.2f,
         .penalty_window = 4,
         .top_k = 30,
         .top_p = 0.95f,
         .seed = 10},
        {.temperature = 1, .top_k = 1, .seed = 11},
        {.temperature = 1, .top_p = 1e-6f, .seed = 12},
        {.temperature = 1, .top_k = 500, .min_p = 1, .seed = 13},
    };
    static const int32_t past[] = {3, 3, 8, 11, 3, 20, 8, 49};
    test_random random = {5};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        float logits[VOCABULARY];
        double probability[VOCABULARY];
        int count[VOCABULARY] = {0};
        heed_sampler *sampler;
        for (int i = 0; i < VOCABULARY; i++)
            logits[i] = (float)(2 * random_normal(&random));
        logits[17] = -INFINITY;
        define(logits, past, 8, &cases[c], probability);
        assert_int_equal(heed_sampler_create(&sampler, &cases[c], VOCABULARY), HEED_OK);
        for (int i = 0; i < DRAWS; i++) {
            int32_t token;
            assert_int_equal(heed_sample(sampler, logits, past, 8, 0, (uint64_t)i, &token), HEED_OK);
            assert_true(token >= 0 && token < VOCABULARY);
            count[token]++;
        }
        for (int i = 0; i < VOCABULARY; i++) {
            const double error = sqrt(probability[i] * (1 - probability[i]) / DRAWS);
            if (fabs(count[i] / (double)DRAWS - probability[i]) > 5 * error + 1e-12)
                fail_msg("case %zu: token %d was drawn %d times of %d; its probability is %g", c, i, count[i],
                         DRAWS, probability[i]);
        }
        heed_sampler_free(sampler);
    }
}

static void the_most_likely_of_equal_ones_is_the_first(void **state)
{
    (void)state;
    heed_sampler *sampler;
    int32_t token;
    const float logits[] = {-1, 3, 2, 3, 3}, penalised[] = {1, 2, 1.5f, -5, -5};
    assert_int_equal(heed_sampler_create(&sampler, &(heed_sampling){0}, 5), HEED_OK);
    assert_int_equal(heed_sample(sampler, logits, NULL, 0, 0, 0, &token), HEED_OK);
    assert_int_equal(token, 1);
    heed_sampler_free(sampler);
    assert_int_equal(heed_sampler_create(&sampler, &(heed_sampling){.repetition = 2}, 5), HEED_OK);
    assert_int_equal(heed_sample(sampler, penalised, (int32_t[]){1}, 1, 0, 0, &token), HEED_OK);
    assert_int_equal(token, 2);
    assert_int_equal(heed_sample(sampler, penalised, NULL, 0, 0, 0, &token),
                     HEED_OK); /* nothing is left of the past */
    assert_int_equal(token, 1);
    heed_sampler_free(sampler);
    /* of equal logits top_k keeps the first */
    const heed_sampling two = {.temperature = 1, .top_k = 2};
    assert_int_equal(heed_sampler_create(&sampler, &two, 5), HEED_OK);
    for (uint64_t i = 0; i < 200; i++) {
        assert_int_equal(heed_sample(sampler, logits, NULL, 0, 0, i, &token), HEED_OK);
        assert_true(token == 1 || token == 3);
    }
    heed_sampler_free(sampler);
}

static void a_draw_depends_on_its_place_alone(void **state)
{
    (void)state;
    float logits[VOCABULARY];
    heed_sampler *one, *other;
    int32_t forward[100], token;
    for (int i = 0; i < VOCABULARY; i++)
        logits[i] = (float)(i % 7);
    const heed_sampling s = {.temperature = 1, .top_p = 0.9f, .seed = 42};
    assert_int_equal(heed_sampler_create(&one, &s, VOCABULARY), HEED_OK);
    assert_int_equal(heed_sampler_create(&other, &s, VOCABULARY), HEED_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(heed_sample(one, logits, NULL, 0, 3, (uint64_t)i, &forward[i]), HEED_OK);
    for (int i = 99; i >= 0; i--) {
        assert_int_equal(heed_sample(other, logits, NULL, 0, 3, (uint64_t)i, &token), HEED_OK);
        assert_int_equal(token, forward[i]);
    }
    heed_sampler_free(one);
    heed_sampler_free(other);
}

static void log_probabilities_are_those_of_softmax(void **state)
{
    (void)state;
    test_random random = {9};
    float logits[VOCABULARY];
    double sum = 0;
    heed_logprob best[VOCABULARY + 5];
    for (int i = 0; i < VOCABULARY; i++)
        logits[i] = 900 + (float)(10 * random_normal(&random)); /* exp of which overflows */
    logits[4] = logits[30] = 940;
    for (int i = 0; i < VOCABULARY; i++)
        sum += exp((double)logits[i] - 940);
    assert_true(fabs(heed_log_sum_exp(logits, VOCABULARY) - 940 - log(sum)) < 1e-12);
    assert_int_equal(heed_top_logprobs(logits, VOCABULARY, 3, best), 3);
    assert_int_equal(best[0].token, 4);
    assert_int_equal(best[1].token, 30);
    assert_true(fabs(best[0].logprob + log(sum)) < 1e-12);
    assert_int_equal(heed_top_logprobs(logits, VOCABULARY, VOCABULARY + 5, best), VOCABULARY);
    double all = 0;
    for (int i = 0; i < VOCABULARY; i++) {
        all += exp(best[i].logprob);
        assert_true(i == 0 || best[i].logprob <= best[i - 1].logprob);
    }
    assert_true(fabs(all - 1) < 1e-12);
    const float closed[] = {-INFINITY, -INFINITY};
    assert_true(heed_log_sum_exp(closed, 2) == -INFINITY);
}

static void wrong_wishes_are_refused(void **state)
{
    (void)state;
    static const heed_sampling wrong[] = {
        {.temperature = -1}, {.temperature = NAN},    {.top_k = -1},
        {.top_p = 1.5f},     {.top_p = NAN},          {.min_p = -0.1f},
        {.repetition = -2},  {.frequency = INFINITY}, {.penalty_window = -1}};
    heed_sampler *sampler = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(heed_sampler_create(&sampler, &wrong[i], 5), HEED_INVALID);
        assert_null(sampler);
    }
    assert_int_equal(heed_sampler_create(&sampler, &(heed_sampling){.temperature = 1, .presence = 1}, 3),
                     HEED_OK);
    int32_t token;
    assert_int_equal(heed_sample(sampler, (float[]){0, NAN, 1}, NULL, 0, 0, 0, &token), HEED_INVALID);
    assert_int_equal(heed_sample(sampler, (float[]){-INFINITY, -INFINITY, -INFINITY}, NULL, 0, 0, 0, &token),
                     HEED_INVALID);
    assert_int_equal(heed_sample(sampler, (float[]){0, INFINITY, 1}, NULL, 0, 0, 0, &token), HEED_INVALID);
    assert_int_equal(heed_sample(sampler, (float[]){0, 0, 1}, (int32_t[]){3}, 1, 0, 0, &token), HEED_INVALID);
    heed_sampler_free(sampler);
}

/* The whole text up to the first stop that is complete, by trying every end; *which: -1 when there is none.
 */
static size_t text_before_stop(const char *text, const char *const *stops, int count, int *which)
{
    const size_t size = strlen(text);
    *which = -1;
    for (size_t end = 1; end <= size; end++)
        for (int i = 0; i < count; i++) {
            const size_t length = strlen(stops[i]);
            if (length <= end && !memcmp(text + end - length, stops[i], length) &&
                (*which < 0 || length > strlen(stops[*which])))
                *which = i;
            if (i == count - 1 && *which >= 0)
                return end - strlen(stops[*which]);
        }
    return size;
}

/* Streams the text in pieces of random sizes and compares. */
static void check_stream(const char *text, const char *const *texts, int count, test_random *random)
{
    heed_stops *stops;
    char shown[600] = "";
    size_t used = 0, size = strlen(text), more;
    int which;
    const char *out;
    const size_t right = text_before_stop(text, texts, count, &which);
    assert_int_equal(heed_stops_create(&stops, texts, count), HEED_OK);
    for (size_t at = 0; at < size;) {
        size_t piece = (size_t)random_whole(random, 1, 5);
        piece = piece < size - at ? piece : size - at;
        assert_int_equal(heed_stops_push(stops, text + at, piece, &out, &more), HEED_OK);
        memcpy(shown + used, out, more);
        used += more;
        assert_true(used <= right); /* nothing of a stop is ever shown */
        at += piece;
    }
    heed_stops_flush(stops, &out, &more);
    memcpy(shown + used, out, more);
    used += more;
    if (used != right || memcmp(shown, text, right) || heed_stops_met(stops) != which)
        fail_msg("'%s' shows '%.*s', not '%.*s'; stop %d, not %d", text, (int)used, shown, (int)right, text,
                 heed_stops_met(stops), which);
    heed_stops_free(stops);
}

static void streams_end_before_the_first_stop(void **state)
{
    (void)state;
    static const struct {
        const char *text, *stops[4];
        int count;
    } cases[] = {
        {"A B C D", {"C"}, 1},
        {"L M N O P Q R S", {"O P Q"}, 1},
        {"O P R O P O P Q", {"O P Q"}, 1},
        {"a begun but not finis", {"finished", "but now"}, 2},
        {"xabcy", {"ab", "abc"}, 2},
        {"xabcy", {"abc", "bc", "c"}, 3},
        {"xabdabcx", {"abdabd", "abc"}, 2},
        {"caf\xc3\xa8 caf\xc3\xa9 x", {"\xc3\xa9"}, 1},
        {"aaaaab", {"aab"}, 1},
        {"nothing", {"q", "zz"}, 2},
        {"", {"a"}, 1},
        {"stop", {"stop", "stop"}, 2},
    };
    test_random random = {3};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int round = 0; round < 20; round++)
            check_stream(cases[i].text, cases[i].stops, cases[i].count, &random);
    for (int round = 0; round < 3000; round++) { /* small alphabets, where stops begin and overlap often */
        char text[60], stop[3][8];
        const char *stops[3];
        const int count = (int)random_whole(&random, 1, 3), length = (int)random_whole(&random, 0, 50);
        for (int i = 0; i < length; i++)
            text[i] = (char)('a' + random_whole(&random, 0, 1 + round % 3));
        text[length] = 0;
        for (int k = 0; k < count; k++) {
            const int size = (int)random_whole(&random, 1, 7);
            for (int i = 0; i < size; i++)
                stop[k][i] = (char)('a' + random_whole(&random, 0, 1 + round % 3));
            stop[k][size] = 0;
            stops[k] = stop[k];
        }
        check_stream(text, stops, count, &random);
    }
}

static void what_cannot_become_a_stop_comes_at_once(void **state)
{
    (void)state;
    heed_stops *stops;
    const char *out;
    size_t size;
    assert_int_equal(heed_stops_create(&stops, (const char *const[]){"<end>"}, 1), HEED_OK);
    assert_int_equal(heed_stops_push(stops, "abc", 3, &out, &size), HEED_OK);
    assert_int_equal(size, 3);
    assert_int_equal(heed_stops_push(stops, "d<en", 4, &out, &size), HEED_OK);
    assert_int_equal(size, 1);
    assert_int_equal(heed_stops_push(stops, "x", 1, &out, &size), HEED_OK);
    assert_int_equal(size, 4);
    assert_memory_equal(out, "<enx", 4);
    assert_int_equal(heed_stops_push(stops, "y<end>z", 7, &out, &size), HEED_OK);
    assert_int_equal(size, 1);
    assert_int_equal(heed_stops_met(stops), 0);
    assert_int_equal(heed_stops_push(stops, "more", 4, &out, &size), HEED_OK);
    assert_int_equal(size, 0);
    heed_stops_restart(stops);
    assert_int_equal(heed_stops_push(stops, "a<", 2, &out, &size), HEED_OK);
    heed_stops_flush(stops, &out, &size);
    assert_int_equal(size, 1);
    assert_int_equal(*out, '<');
    heed_stops_free(stops);
    assert_int_equal(heed_stops_create(&stops, (const char *const[]){"a", ""}, 2), HEED_INVALID);
    assert_int_equal(heed_stops_create(&stops, NULL, 0), HEED_OK); /* no stops: all comes at once */
    assert_int_equal(heed_stops_push(stops, "abc", 3, &out, &size), HEED_OK);
    assert_int_equal(size, 3);
    heed_stops_free(stops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_philox),
        cmocka_unit_test(draws_follow_the_definition),
        cmocka_unit_test(the_most_likely_of_equal_ones_is_the_first),
        cmocka_unit_test(a_draw_depends_on_its_place_alone),
        cmocka_unit_test(log_probabilities_are_those_of_softmax),
        cmocka_unit_test(wrong_wishes_are_refused),
        cmocka_unit_test(streams_end_before_the_first_stop),
        cmocka_unit_test(what_cannot_become_a_stop_comes_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
