/* Pretrained models against what transformers makes of the same tokens in fp32 (golden/make_model_golden.py).
 */
#include "support/models.h"
#include "support/small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 10, TOP = 128, BUCKETS = 32 };

static golden file;

static const golden_tensor *part(int piece, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "%d.%s", piece, name);
    const golden_tensor *tensor = golden_find(&file, key);
    assert_non_null(tensor);
    return tensor;
}

static double log_sum_exp(const float *x, int64_t n)
{
    double most = x[0], sum = 0.0;
    for (int64_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] - most);
    return most + log(sum);
}

typedef struct agreement {
    double sum, worst;          /* KL of the next-token distributions */
    double farthest;            /* largest difference of a log probability among the reference's first two */
    int positions, same, close; /* places; those with the same first token; those where the reference itself
                                   hardly decides */
} agreement;

/* KL of the reference against these logits; what is not among its likeliest tokens goes by buckets. */
static double divergence(const float *logits, int64_t vocabulary, const int32_t *ids, const float *logprobs,
                         const float *rest)
{
    const double lse = log_sum_exp(logits, vocabulary);
    double bucket[BUCKETS] = {0}, kl = 0.0;
    bool *listed = calloc((size_t)vocabulary, sizeof *listed);
    for (int i = 0; i < TOP; i++) {
        listed[ids[i]] = true;
        kl += exp(logprobs[i]) * (logprobs[i] - (logits[ids[i]] - lse));
    }
    for (int64_t i = 0; i < vocabulary; i++)
        bucket[i % BUCKETS] += listed[i] ? 0.0 : exp(logits[i] - lse);
    for (int b = 0; b < BUCKETS; b++)
        kl += rest[b] > 0.0f ? rest[b] * log(rest[b] / bucket[b]) : 0.0;
    free(listed);
    return kl;
}

static int64_t first_of(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void judge(agreement *a, const float *logits, int64_t vocabulary, const int32_t *ids,
                  const float *logprobs, const float *rest, double margin)
{
    const double kl = divergence(logits, vocabulary, ids, logprobs, rest),
                 lse = log_sum_exp(logits, vocabulary);
    a->sum += kl;
    a->worst = kl > a->worst || isnan(kl) ? kl : a->worst;
    for (int i = 0; i < 2; i++) {
        const double d = fabs(logits[ids[i]] - lse - logprobs[i]);
        a->farthest = d > a->farthest ? d : a->farthest;
    }
    const bool same = first_of(logits, vocabulary) == ids[0], close = logprobs[0] - logprobs[1] < margin;
    a->positions++;
    a->same += same;
    a->close += !same && close;
}

/* Reads every piece up to each position of interest in turn. */
static agreement compare(const char *name, bool exact, heed_type cache, double margin)
{
    agreement a = {0};
    char path[512];
    heed_model *model;
    heed_model_info info;
    must(heed_model_open(&model, fetched_model(name), &(heed_model_options){.exact = exact, .threads = 2}));
    heed_model_get_info(model, &info);
    snprintf(path, sizeof path, "%s/golden/logits/%.*s.logits.safetensors", HEED_TEST_DATA,
             (int)strcspn(name, "."), name);
    assert_true(golden_read(&file, path));
    heed_session *session =
        new_session(model, &(heed_session_options){.context = 2000, .cache = cache, .cache_given = true});
    float *logits = malloc((size_t)info.vocabulary * sizeof *logits);
    for (int p = 0; p < PIECES; p++) {
        const int32_t *tokens = part(p, "tokens")->data, *positions = part(p, "positions")->data;
        const int64_t places = part(p, "positions")->count;
        must(heed_session_cut(session, 0, 0));
        for (int64_t i = 0; i < places; i++) {
            const int64_t held = heed_session_length(session, 0);
            const heed_feed_item item = {.tokens = tokens + held, .count = positions[i] + 1 - held};
            must(heed_feed(session, &item, 1, &(heed_feed_wants){.logits = logits}));
            judge(&a, logits, info.vocabulary, (const int32_t *)part(p, "ids")->data + i * TOP,
                  (const float *)part(p, "logprobs")->data + i * TOP,
                  (const float *)part(p, "rest")->data + i * BUCKETS, margin);
        }
    }
    printf("%s %s: KL %.3g on average, %.3g at worst over %d positions; log probabilities off by at most "
           "%.3g; first "
           "token differs at %d\n",
           name, exact ? "exact" : "fast", a.sum / a.positions, a.worst, a.positions, a.farthest,
           a.positions - a.same);
    free(logits);
    golden_free(&file);
    heed_session_free(session);
    heed_model_close(model);
    return a;
}

static void check(const char *name, bool exact)
{
    if (!fetched_model(name))
        skip();
    const agreement a = compare(name, exact, exact ? HEED_F32 : HEED_F16, exact ? 1e-3 : 0.3);
    assert_true(a.positions > 60);
    assert_true(a.worst < (exact ? 1e-6 : 2e-2));
    assert_true(a.sum / a.positions < (exact ? 1e-6 : 2e-3));
    assert_int_equal(a.same + a.close, a.positions);
}

static void smollm2_is_exact(void **state)
{
    (void)state;
    check("smollm2.gguf", true);
}

static void smollm2_with_fast_products_is_close(void **state)
{
    (void)state;
    check("smollm2.gguf", false);
}

static void gemma3_is_exact(void **state)
{
    (void)state;
    check("gemma3.gguf", true);
}

static void gemma3_with_fast_products_is_close(void **state)
{
    (void)state;
    check("gemma3.gguf", false);
}

static void check_minilm(bool exact)
{
    if (!fetched_model("minilm"))
        skip();
    enum { TEXTS = 16 };
    heed_model *model;
    heed_model_info info;
    double worst = 1.0;
    must(heed_model_open(&model, fetched_model("minilm"),
                         &(heed_model_options){.exact = exact, .threads = 2}));
    heed_model_get_info(model, &info);
    assert_true(golden_read(&file, HEED_TEST_DATA "/golden/logits/minilm.embeddings.safetensors"));
    heed_session *session = new_session(model, &(heed_session_options){.context = 256});
    for (int p = 0; p < TEXTS; p++) {
        const golden_tensor *tokens = part(p, "tokens"), *embedding = part(p, "embedding");
        float *hidden = feed_all(session, model, tokens->data, tokens->count);
        const float *expected = embedding->data;
        double dot = 0.0, squares = 0.0;
        for (int64_t d = 0; d < info.width; d++) {
            double mean = 0.0;
            for (int64_t t = 0; t < tokens->count; t++)
                mean += hidden[t * info.width + d];
            dot += mean * expected[d];
            squares += mean * mean;
        }
        worst = fmin(worst, dot / sqrt(squares));
        free(hidden);
    }
    printf("minilm %s: least cosine 1 - %.3g\n", exact ? "exact" : "fast", 1.0 - worst);
    assert_true(worst > (exact ? 0.999999 : 0.9999));
    golden_free(&file);
    heed_session_free(session);
    heed_model_close(model);
}

static void minilm_is_exact(void **state)
{
    (void)state;
    check_minilm(true);
}

static void minilm_with_fast_products_is_close(void **state)
{
    (void)state;
    check_minilm(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm2_is_exact), cmocka_unit_test(smollm2_with_fast_products_is_close),
        cmocka_unit_test(gemma3_is_exact),  cmocka_unit_test(gemma3_with_fast_products_is_close),
        cmocka_unit_test(minilm_is_exact),  cmocka_unit_test(minilm_with_fast_products_is_close),
    };
    if (!fetched_model("smollm2.gguf") && !fetched_model("gemma3.gguf") && !fetched_model("minilm"))
        return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
