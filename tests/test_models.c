/* Architectures and sessions, on small models whose results come from the reference implementation
 * (golden/make_models.py). */
#include "support/small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"llama",  "llama_tied",   "llama_sharded", "llama3", "mistral",
                                    "qwen2",  "qwen2_window", "qwen3",         "gemma",  "gemma2",
                                    "gemma3", "phi3",         "phi3_partial",  "gpt2",   "bert"};
enum { NAMES = sizeof names / sizeof *names };

static const heed_session_options exact_cache = {.cache = HEED_F32, .cache_given = true, .threads = 2};

static bool reads_both_ways(const small_model *small)
{
    return !small->info.causal;
}

static void every_architecture_gives_what_the_reference_gives(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        small_model small;
        open_small(&small, names[i], false);
        heed_session *session = new_session(small.model, reads_both_ways(&small) ? NULL : &exact_cache);
        float *out = feed_all(session, small.model, small.tokens, small.count);
        const double distance = farthest(out, small.expected, small.count * small.columns);
        if (!(distance < 2e-4))
            fail_msg("%s: off by %g", names[i], distance);
        free(out);
        heed_session_free(session);
        close_small(&small);
    }
}

/* Logits of all tokens, fed `step` at a time. */
static float *in_steps(const small_model *small, heed_session *session, int64_t step)
{
    float *out = malloc((size_t)(small->count * small->columns) * sizeof *out);
    for (int64_t t = 0; t < small->count; t += step) {
        const int64_t count = small->count - t < step ? small->count - t : step;
        const heed_feed_item item = {.tokens = small->tokens + t, .count = count};
        must(heed_feed(session, &item, 1,
                       &(heed_feed_wants){.logits = out + t * small->columns, .all_logits = true}));
    }
    return out;
}

static void pieces_of_any_size_give_the_same_logits(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        small_model small;
        open_small(&small, names[i], false);
        heed_session *session = reads_both_ways(&small) ? NULL : new_session(small.model, &exact_cache);
        float *whole = session ? feed_all(session, small.model, small.tokens, small.count) : NULL;
        for (int64_t step = 1; session && step < small.count; step = step * 3 - (step > 1)) {
            must(heed_session_cut(session, 0, 0));
            float *pieces = in_steps(&small, session, step);
            const double distance = farthest(whole, pieces, small.count * small.columns);
            if (!(distance < 1e-4))
                fail_msg("%s, %lld at a time: off by %g", names[i], (long long)step, distance);
            free(pieces);
        }
        free(whole);
        heed_session_free(session);
        close_small(&small);
    }
}

static void chunks_of_a_session_change_nothing(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "gemma3", false);
    for (int64_t chunk = 1; chunk < 40; chunk += 7) {
        heed_session_options options = exact_cache;
        options.chunk = chunk;
        heed_session *session = new_session(small.model, &options);
        float *out = feed_all(session, small.model, small.tokens, small.count);
        assert_true(farthest(out, small.expected, small.count * small.columns) < 2e-4);
        free(out);
        heed_session_free(session);
    }
    close_small(&small);
}

/* Sequences of several lengths in one call, then each a token more, against each alone. */
static void a_batch_equals_its_sequences_alone_bit_for_bit(void **state)
{
    (void)state;
    static const int64_t lengths[] = {3, 1, 17, 40, 1, 9};
    enum { SEQUENCES = sizeof lengths / sizeof *lengths };
    for (int i = 0; i < NAMES; i++) {
        small_model small;
        open_small(&small, names[i], i % 2 == 0);
        const int64_t columns = small.columns;
        const bool generates = small.info.generates;
        heed_session *together =
            new_session(small.model, &(heed_session_options){.sequences = SEQUENCES, .threads = 2});
        heed_session *alone = new_session(small.model, &(heed_session_options){.threads = 1});
        heed_feed_item items[SEQUENCES];
        int64_t rows = 0;
        for (int s = 0; s < SEQUENCES; s++) {
            items[s] = (heed_feed_item){.sequence = s, .tokens = small.tokens + s, .count = lengths[s]};
            rows += lengths[s];
        }
        float *all = malloc((size_t)(rows * columns) * sizeof *all);
        float *next = malloc((size_t)(SEQUENCES * columns) * sizeof *next);
        const heed_feed_wants wants = {
            .logits = generates ? all : NULL, .all_logits = true, .hidden = generates ? NULL : all};
        must(heed_feed(together, items, SEQUENCES, &wants));
        for (int s = 0; s < SEQUENCES; s++) {
            items[s].tokens = small.tokens + s + lengths[s];
            items[s].count = 1;
        }
        if (generates)
            must(heed_feed(together, items, SEQUENCES, &(heed_feed_wants){.logits = next}));
        const float *row = all;
        for (int s = 0; s < SEQUENCES; s++) {
            float *one = feed_all(alone, small.model, small.tokens + s, lengths[s]);
            assert_memory_equal(one, row, (size_t)(lengths[s] * columns) * sizeof *one);
            row += lengths[s] * columns;
            free(one);
            if (!generates)
                continue;
            one = feed_all(alone, small.model, small.tokens + s + lengths[s], 1);
            assert_memory_equal(one, next + s * columns, (size_t)columns * sizeof *one);
            free(one);
            must(heed_session_cut(alone, 0, 0));
        }
        free(all);
        free(next);
        heed_session_free(together);
        heed_session_free(alone);
        close_small(&small);
    }
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "gemma2", true);
    heed_session *one = new_session(small.model, &(heed_session_options){.threads = 1});
    heed_session *three = new_session(small.model, &(heed_session_options){.threads = 3});
    float *a = feed_all(one, small.model, small.tokens, small.count);
    float *b = feed_all(three, small.model, small.tokens, small.count);
    assert_memory_equal(a, b, (size_t)(small.count * small.columns) * sizeof *a);
    free(a);
    free(b);
    heed_session_free(one);
    heed_session_free(three);
    close_small(&small);
}

/* Largest difference of log probabilities between a cache of `type` and one of f32. */
static double distance_of_cache(const small_model *small, heed_type type)
{
    heed_session *exact = new_session(small->model, &exact_cache);
    heed_session *coarse =
        new_session(small->model, &(heed_session_options){.cache = type, .cache_given = true});
    float *a = feed_all(exact, small->model, small->tokens, small->count);
    float *b = in_steps(small, coarse, 1);
    const double distance = farthest(a, b, small->count * small->columns);
    free(a);
    free(b);
    heed_session_free(exact);
    heed_session_free(coarse);
    return distance;
}

static void smaller_caches_cost_little_and_ever_more(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", false);
    const double f16 = distance_of_cache(&small, HEED_F16), bf16 = distance_of_cache(&small, HEED_BF16);
    const double q8 = distance_of_cache(&small, HEED_Q8), q4 = distance_of_cache(&small, HEED_Q4);
    if (!(f16 < 1e-2 && f16 < bf16 && bf16 < 0.1 && q8 < 0.3 && q8 < q4 && q4 < 5.0))
        fail_msg("f16 %g, bf16 %g, q8 %g, q4 %g", f16, bf16, q8, q4);
    close_small(&small);
}

static float *with_attention(const small_model *small, const char *attention)
{
    heed_session *session = new_session(small->model, &(heed_session_options){.attention = attention});
    float *out = feed_all(session, small->model, small->tokens, small->count);
    heed_session_free(session);
    return out;
}

static void causal_on_a_causal_model_changes_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        small_model small;
        open_small(&small, names[i], true);
        const bool windowed = strstr("mistral qwen2_window gemma2 gemma3 phi3_partial", names[i]) != NULL;
        if (!windowed && small.info.causal) {
            float *own = with_attention(&small, NULL), *same = with_attention(&small, "where=causal");
            assert_memory_equal(own, same, (size_t)(small.count * small.columns) * sizeof *own);
            free(own);
            free(same);
        }
        close_small(&small);
    }
}

static void clauses_replace_stages_by_layer_and_head(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "gemma3", true);
    heed_session *session = new_session(
        small.model, &(heed_session_options){.attention = "layers 0: where=causal; layers 1: heads 2-3: "
                                                          "where=causal & window(3); layers 2: cache=q8"});
    char text[2048];
    heed_session_describe(session, 0, 1, text, sizeof text);
    assert_non_null(
        strstr(text, "position=rope(dim=16); where=causal\n")); /* its window is gone, its rope stays */
    heed_session_describe(session, 1, 1, text, sizeof text);
    if (!strstr(text, "where=causal & window(w=8); heads 2-3: where=causal & window(w=3)\n"))
        fail_msg("%s", text);
    heed_session_describe(session, 2, 1, text, sizeof text);
    assert_non_null(strstr(text, "cache=q8"));
    float *changed = feed_all(session, small.model, small.tokens, small.count);
    const double distance = farthest(changed, small.expected, small.count * small.columns);
    assert_true(distance > 1e-2 && isfinite(distance));
    free(changed);
    heed_session_free(session);
    close_small(&small);
}

static void learnt_tensors_that_the_model_lacks_are_named(void **state)
{
    (void)state;
    small_model small;
    char untrained[200];
    open_small(&small, "gemma3", true);
    heed_session *session = new_session(small.model, &(heed_session_options){0});
    assert_int_equal(heed_session_untrained(session, untrained, sizeof untrained), 0);
    assert_string_equal(untrained, "");
    heed_session_free(session);
    session = new_session(small.model, &(heed_session_options){.attention = "position=t5; heads=talking"});
    const size_t length = heed_session_untrained(session, untrained, sizeof untrained);
    assert_string_equal(untrained, "position.t5.b, heads.talking.before, heads.talking.after");
    assert_int_equal(length, strlen(untrained));
    heed_session_free(session);
    close_small(&small);
}

static void attention_that_a_session_cannot_run_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *attention, *words;
    } wrong[] = {{"where=window(4)", "make `causal` a factor"},
                 {"where=windw(4)", "column 7"},
                 {"read=gate", "learnt tensor"},
                 {"where=causal & mask", "needs the tensor mask"},
                 {"heads 0: cache=q8", "share one cache"},
                 {"cache=q8 > fifo(budget=20)", "column 12"}};
    small_model small;
    open_small(&small, "llama", true);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        heed_session *session;
        const heed_session_options options = {.attention = wrong[i].attention};
        const heed_status status = heed_session_create(&session, small.model, &options);
        if (status == HEED_OK || !strstr(heed_message(), wrong[i].words))
            fail_msg("%s: %s", wrong[i].attention, heed_message());
        assert_null(session);
    }
    close_small(&small);
}

static void too_long_a_prompt_is_refused_and_nothing_is_read(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", true);
    heed_session *session = new_session(small.model, &(heed_session_options){.context = 40});
    const heed_feed_item first = {.tokens = small.tokens, .count = 41},
                         fits = {.tokens = small.tokens, .count = 39};
    assert_int_equal(heed_feed(session, &first, 1, NULL), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "41 tokens do not fit into the context of 40"));
    assert_int_equal(heed_session_length(session, 0), 0);
    must(heed_feed(session, &fits, 1, NULL));
    const heed_feed_item two = {.tokens = small.tokens, .count = 2};
    assert_int_equal(heed_feed(session, &two, 1, NULL), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "2 tokens after the 39 that are held"));
    assert_int_equal(heed_session_length(session, 0), 39);
    const int32_t odd[] = {5, 128};
    const heed_feed_item strange = {.tokens = odd, .count = 1}, stranger = {.tokens = odd + 1, .count = 1};
    assert_int_equal(heed_feed(session, &stranger, 1, NULL), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "token 128"));
    must(heed_feed(session, &strange, 1, NULL));
    assert_int_equal(heed_session_length(session, 0), 40);
    heed_session_free(session);
    close_small(&small);
}

/* Cutting back and reading on gives what reading on gives. */
static void a_sequence_that_was_cut_reads_on(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "mistral", true);
    heed_session *session = new_session(small.model, NULL);
    float *whole = feed_all(session, small.model, small.tokens, small.count);
    must(heed_session_cut(session, 0, 30));
    assert_int_equal(heed_session_cut(session, 0, 31), HEED_INVALID);
    float *rest = feed_all(session, small.model, small.tokens + 30, small.count - 30);
    assert_true(farthest(whole + 30 * small.columns, rest, (small.count - 30) * small.columns) < 1e-4);
    free(whole);
    free(rest);
    heed_session_free(session);
    close_small(&small);
}

/* What the callbacks have seen of gemma3's maps. */
typedef struct seen {
    double *map; /* [layers, heads, tokens, tokens] */
    double *sums, *entropy;
    int64_t heads, tokens;
    int calls;
} seen;

static void see_weights(void *context, int64_t layer, int64_t sequence, const heed_weights_tile *tile)
{
    seen *s = context;
    assert_int_equal(sequence, 0);
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->cols; j++)
            if (tile->query0 + i < s->tokens && tile->key0 + j < s->tokens)
                s->map[((layer * s->heads + tile->head) * s->tokens + tile->query0 + i) * s->tokens +
                       tile->key0 + j] = tile->weight[i * tile->stride + j];
}

static void see_statistics(void *context, int64_t layer, int64_t sequence, int64_t query0, int64_t queries,
                           int64_t keys, const heed_capture *capture)
{
    seen *s = context;
    assert_int_equal(sequence, 0);
    assert_int_equal(keys, query0 + queries);
    for (int64_t h = 0; h < s->heads; h++) {
        for (int64_t i = 0; i < queries; i++)
            s->entropy[(layer * s->heads + h) * s->tokens + query0 + i] = capture->entropy[h * queries + i];
        for (int64_t j = 0; j < keys; j++)
            s->sums[(layer * s->heads + h) * s->tokens + j] += capture->key_sums[h * keys + j];
    }
    s->calls++;
}

/* Maps from the fused kernels, in chunks and steps: rows sum to 1, nothing lies above the diagonal or beyond
 * the window, and the statistics are those of the map. */
static void captured_maps_and_statistics_agree(void **state)
{
    (void)state;
    enum { LAYERS = 3, WINDOW = 8 };
    small_model small;
    open_small(&small, "gemma3", true);
    const int64_t n = small.count, heads = small.info.heads, rows = LAYERS * heads * n;
    seen s = {.heads = heads, .tokens = n};
    s.map = calloc((size_t)(rows * n), sizeof *s.map);
    s.sums = calloc((size_t)rows, sizeof *s.sums);
    s.entropy = calloc((size_t)rows, sizeof *s.entropy);
    const unsigned with = HEED_WITH_ENTROPY | HEED_WITH_KEY_SUMS | HEED_WITH_WEIGHTS;
    heed_session *session =
        new_session(small.model, &(heed_session_options){.with = with, .chunk = 20, .threads = 2});
    heed_session *plain = new_session(small.model, &(heed_session_options){.chunk = 20, .threads = 2});
    float *logits = malloc((size_t)small.columns * sizeof *logits),
          *same = malloc((size_t)small.columns * sizeof *same);
    const heed_feed_wants wants = {
        .logits = logits, .captured = see_statistics, .weights = see_weights, .context = &s};
    for (int64_t t = 0; t < n;) {
        const heed_feed_item item = {.tokens = small.tokens + t, .count = t < 40 ? 40 : 1};
        must(heed_feed(session, &item, 1, &wants));
        must(heed_feed(plain, &item, 1, &(heed_feed_wants){.logits = same}));
        t += item.count;
    }
    assert_memory_equal(logits, same, (size_t)small.columns * sizeof *logits);
    assert_int_equal(s.calls, LAYERS * (2 + 8));
    for (int64_t r = 0; r < rows; r++) {
        const int64_t query = r % n, layer = r / n / heads;
        double sum = 0.0, entropy = 0.0, received = 0.0;
        for (int64_t j = 0; j < n; j++) {
            const double w = s.map[r * n + j];
            if (j > query || (layer < 2 && j <= query - WINDOW))
                assert_true(w == 0.0);
            sum += w;
            entropy -= w > 0.0 ? w * log(w) : 0.0;
            received += s.map[(r - query + j) * n + query];
        }
        assert_true(fabs(sum - 1.0) < 1e-5);
        assert_true(fabs(entropy - s.entropy[r]) < 1e-4);
        assert_true(fabs(received - s.sums[r]) < 1e-4);
    }
    free(s.map);
    free(s.sums);
    free(s.entropy);
    free(logits);
    free(same);
    heed_session_free(session);
    heed_session_free(plain);
    close_small(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_gives_what_the_reference_gives),
        cmocka_unit_test(pieces_of_any_size_give_the_same_logits),
        cmocka_unit_test(chunks_of_a_session_change_nothing),
        cmocka_unit_test(a_batch_equals_its_sequences_alone_bit_for_bit),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(smaller_caches_cost_little_and_ever_more),
        cmocka_unit_test(causal_on_a_causal_model_changes_no_bit),
        cmocka_unit_test(clauses_replace_stages_by_layer_and_head),
        cmocka_unit_test(learnt_tensors_that_the_model_lacks_are_named),
        cmocka_unit_test(attention_that_a_session_cannot_run_is_refused),
        cmocka_unit_test(too_long_a_prompt_is_refused_and_nothing_is_read),
        cmocka_unit_test(a_sequence_that_was_cut_reads_on),
        cmocka_unit_test(captured_maps_and_statistics_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
