/* The cache of pretrained models: small types past a window, bytes that stay, sequences that are saved. */
#include "support/models.h"
#include "support/small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONG = 1000 };

static heed_model *open_model(const char *name)
{
    heed_model *model;
    must(heed_model_open(&model, fetched_model(name), NULL));
    return model;
}

/* Tokens of plain words, the same each time. */
static void make_text(const heed_model *model, int32_t *tokens, int64_t count)
{
    static const char text[] = "The river ran past the old mill, and the miller counted his sacks of flour. "
                               "In spring the water rose; in autumn it fell. Children came with 17 boats. ";
    heed_tokens all = {.id = NULL};
    while (all.count < count)
        must(heed_tokenize(heed_model_tokenizer(model), text + all.count % 11,
                           sizeof text - 1 - (size_t)(all.count % 11), 0, &all));
    memcpy(tokens, all.id, (size_t)count * sizeof *tokens);
    heed_tokens_free(&all);
}

static double divergence(const float *a, const float *b, int64_t n)
{
    double most_a = a[0], most_b = b[0], sum_a = 0.0, sum_b = 0.0, kl = 0.0;
    for (int64_t i = 0; i < n; i++) {
        most_a = fmax(most_a, a[i]);
        most_b = fmax(most_b, b[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        sum_a += exp(a[i] - most_a);
        sum_b += exp(b[i] - most_b);
    }
    const double norm_a = most_a + log(sum_a), norm_b = most_b + log(sum_b);
    for (int64_t i = 0; i < n; i++)
        kl += exp(a[i] - norm_a) * ((a[i] - norm_a) - (b[i] - norm_b));
    return kl;
}

enum { STEP = 50, WINDOW = 500, END = 800 };

static void gemma3_is_no_worse_behind_its_window(void **state)
{
    (void)state;
    heed_model *model = open_model("gemma3.gguf");
    heed_model_info info;
    heed_model_get_info(model, &info);
    int32_t tokens[LONG];
    make_text(model, tokens, LONG);
    static const heed_type types[] = {HEED_F16, HEED_Q8, HEED_Q4};
    heed_session *session[3];
    float *logits[3];
    double before[3] = {0}, behind[3] = {0};
    for (int i = 0; i < 3; i++) {
        session[i] = new_session(
            model,
            &(heed_session_options){.context = LONG, .cache = types[i], .cache_given = true, .threads = 1});
        logits[i] = malloc((size_t)info.vocabulary * sizeof *logits[i]);
    }
    for (int64_t t = 0; t < END; t += STEP)
        for (int i = 0; i < 3; i++) {
            must(heed_feed(session[i], &(heed_feed_item){.tokens = tokens + t, .count = STEP}, 1,
                           &(heed_feed_wants){.logits = logits[i]}));
            const double kl = divergence(logits[0], logits[i], info.vocabulary);
            *(t < WINDOW ? &before[i] : &behind[i]) +=
                kl / (double)((t < WINDOW ? WINDOW : END - WINDOW) / STEP);
        }
    for (int i = 0; i < 3; i++) {
        if (!(behind[i] <= 3.0 * before[i]))
            fail_msg("%s: KL %g behind the window, %g before", heed_type_name(types[i]), behind[i],
                     before[i]);
        free(logits[i]);
        heed_session_free(session[i]);
    }
    heed_model_close(model);
}

static void saved_and_shared_sequences_go_on_with_the_same_bits(void **state)
{
    (void)state;
    static const char *const names[] = {"gemma3.gguf", "smollm2.gguf"};
    for (int i = 0; i < 2; i++) {
        heed_model *model = open_model(names[i]);
        heed_model_info info;
        heed_model_get_info(model, &info);
        char path[64];
        snprintf(path, sizeof path, "/tmp/heed_pretrained_%d", (int)getpid());
        int32_t tokens[LONG];
        make_text(model, tokens, LONG);
        const size_t bytes = (size_t)info.vocabulary * sizeof(float);
        float *a = malloc(bytes), *b = malloc(bytes);
        heed_session *session =
            new_session(model, &(heed_session_options){.context = LONG, .sequences = 3, .threads = 1});
        must(heed_feed(session, &(heed_feed_item){.tokens = tokens, .count = 640}, 1, NULL));
        must(heed_session_share(session, 0, 1, 600)); /* the last 40 tokens are taken back */
        must(heed_session_save(session, 0, path));
        must(heed_session_load(session, 2, path));
        must(heed_feed(session, &(heed_feed_item){.sequence = 1, .tokens = tokens + 600, .count = 40}, 1,
                       NULL));
        for (int64_t t = 640; t < 643; t++) {
            must(heed_feed(session, &(heed_feed_item){.tokens = tokens + t, .count = 1}, 1,
                           &(heed_feed_wants){.logits = a}));
            must(heed_feed(session, &(heed_feed_item){.sequence = 2, .tokens = tokens + t, .count = 1}, 1,
                           &(heed_feed_wants){.logits = b}));
            assert_memory_equal(a, b, bytes);
            must(heed_feed(session, &(heed_feed_item){.sequence = 1, .tokens = tokens + t, .count = 1}, 1,
                           &(heed_feed_wants){.logits = b}));
            assert_true(divergence(a, b, info.vocabulary) < 1e-3); /* other pieces, other rounding */
        }
        remove(path);
        free(a);
        free(b);
        heed_session_free(session);
        heed_model_close(model);
    }
}

/* Pages of Gemma 3 are large, so all of its layers keep all keys here: else a short text would fit in memory.
 */
static void pages_in_a_file_change_no_bit(void **state)
{
    (void)state;
    static const struct {
        const char *name, *spec;
        size_t resident;
    } each[] = {{"smollm2.gguf", "layers 3-29: select=quest(page=16, budget=96)", 2 << 20},
                {"gemma3.gguf", "where=causal", 3600 << 10}};
    for (int i = 0; i < 2; i++) {
        heed_model *model = open_model(each[i].name);
        heed_model_info info;
        heed_model_get_info(model, &info);
        int32_t tokens[LONG];
        make_text(model, tokens, LONG);
        const size_t bytes = (size_t)info.vocabulary * sizeof(float);
        float *logits[2] = {malloc(bytes), malloc(bytes)};
        heed_session_options options = {.context = LONG, .threads = 1, .attention = each[i].spec};
        heed_session *session[2] = {new_session(model, &options)};
        options.offload = "/var/tmp";
        options.resident_bytes = each[i].resident;
        session[1] = new_session(model, &options);
        for (int64_t t = 0, n; t < 262; t += n) {
            n = t < 256 ? 256 : 2;
            for (int s = 0; s < 2; s++)
                must(heed_feed(session[s], &(heed_feed_item){.tokens = tokens + t, .count = n}, 1,
                               &(heed_feed_wants){.logits = logits[s]}));
            assert_memory_equal(logits[0], logits[1], bytes);
        }
        heed_session_usage usage;
        heed_session_get_usage(session[1], &usage);
        assert_true(usage.offloaded_bytes > 0);
        assert_true(usage.bytes - usage.offloaded_bytes < each[i].resident + (2 << 20)); /* and summaries */
        for (int s = 0; s < 2; s++) {
            heed_session_free(session[s]);
            free(logits[s]);
        }
        heed_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemma3_is_no_worse_behind_its_window),
        cmocka_unit_test(pages_in_a_file_change_no_bit),
        cmocka_unit_test(saved_and_shared_sequences_go_on_with_the_same_bits),
    };
    if (!fetched_model("smollm2.gguf") || !fetched_model("gemma3.gguf"))
        return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
