/* Attention that keeps the layer's input: equal to keys and values kept, by themselves and in a GPT-2. */
#include "model/el.h"
#include "support/random.h"
#include "support/small_models.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 24, HEADS = 3, DIM = 8, KEYS = 40 };

static float *normal_floats(test_random *random, int64_t count, double size)
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)(size * random_normal(random));
    return x;
}

static heed_el_weights random_weights(test_random *random)
{
    const double size = 1 / sqrt(WIDTH);
    return (heed_el_weights){.width = WIDTH,
                             .heads = HEADS,
                             .head_dim = DIM,
                             .query = normal_floats(random, HEADS * DIM * WIDTH, size),
                             .key = normal_floats(random, HEADS * DIM * WIDTH, size),
                             .value = normal_floats(random, HEADS * DIM * WIDTH, size),
                             .output = normal_floats(random, WIDTH * HEADS * DIM, size),
                             .query_bias = normal_floats(random, HEADS * DIM, 1),
                             .value_bias = normal_floats(random, HEADS * DIM, 1),
                             .output_bias = normal_floats(random, WIDTH, 1)};
}

static void free_weights(const heed_el_weights *w)
{
    const float *const all[] = {w->query,      w->key,        w->value,      w->output,
                                w->query_bias, w->value_bias, w->output_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free((void *)(uintptr_t)all[i]);
}

static double row(const float *w, const float *bias, const float *x, int64_t r, int64_t cols)
{
    double sum = bias ? bias[r] : 0;
    for (int64_t c = 0; c < cols; c++)
        sum += (double)w[r * cols + c] * x[c];
    return sum;
}

/* Keys, with a bias of their own, and values made of H, as everybody does; query i sees keys up to `last`. */
static void naive(const heed_el_weights *w, const float *key_bias, const float *x, const float *held,
                  int64_t last, double *out)
{
    double all[HEADS * DIM];
    for (int64_t h = 0; h < w->heads; h++) {
        double score[KEYS], most = -INFINITY, sum = 0;
        for (int64_t j = 0; j <= last; j++) {
            score[j] = 0;
            for (int64_t d = 0; d < w->head_dim; d++) {
                const int64_t r = h * w->head_dim + d;
                score[j] += row(w->query, w->query_bias, x, r, w->width) *
                            row(w->key, key_bias, held + j * w->width, r, w->width) /
                            sqrt((double)w->head_dim);
            }
            most = fmax(most, score[j]);
        }
        for (int64_t j = 0; j <= last; j++)
            sum += score[j] = exp(score[j] - most);
        for (int64_t d = 0; d < w->head_dim; d++) {
            const int64_t r = h * w->head_dim + d;
            all[r] = 0;
            for (int64_t j = 0; j <= last; j++)
                all[r] += score[j] / sum * row(w->value, w->value_bias, held + j * w->width, r, w->width);
        }
    }
    for (int64_t c = 0; c < w->width; c++) {
        out[c] = w->output_bias ? w->output_bias[c] : 0;
        for (int64_t r = 0; r < w->heads * w->head_dim; r++)
            out[c] += w->output[c * w->heads * w->head_dim + r] * all[r];
    }
}

/* In prompts, piece by piece and token by token; in f32 and f16; biases given or not. */
static void it_is_multi_head_attention(void **state)
{
    (void)state;
    test_random random = {31};
    for (int round = 0; round < 4; round++) {
        heed_el_weights w = random_weights(&random), plain = w;
        float *held = normal_floats(&random, KEYS * WIDTH, 1),
              *key_bias = normal_floats(&random, HEADS * DIM, 1);
        if (round == 1)
            plain.query_bias = plain.value_bias = plain.output_bias = NULL;
        uint16_t half[KEYS * WIDTH];
        for (int64_t i = 0; i < KEYS * WIDTH; i++)
            half[i] = heed_f16_from_float(held[i]);
        const heed_type type = round == 2 ? HEED_F16 : HEED_F32;
        heed_el *el;
        must(heed_el_create(&el, &(heed_el_options){.width = WIDTH,
                                                    .heads = HEADS,
                                                    .head_dim = DIM,
                                                    .queries = 9,
                                                    .keys = KEYS,
                                                    .attention = round == 3 ? NULL : "where=causal",
                                                    .type = type,
                                                    .threads = 1}));
        assert_int_equal(heed_el_token_bytes(el), WIDTH * (type == HEED_F16 ? 2 : 4));
        for (int64_t first = 0, count; first < KEYS; first += count) {
            float out[9 * WIDTH];
            count = first < 18 ? 9 : first == 18 ? 4 : 1;
            must(heed_el_attend(el, &plain, held + first * WIDTH, count,
                                type == HEED_F16 ? (void *)half : held, round == 3 ? KEYS : first + count,
                                out));
            for (int64_t i = 0; i < count; i++) {
                double right[WIDTH];
                naive(&plain, key_bias, held + (first + i) * WIDTH, held, round == 3 ? KEYS - 1 : first + i,
                      right);
                for (int c = 0; c < WIDTH; c++)
                    if (!(fabs(out[i * WIDTH + c] - right[c]) <= (type == HEED_F16 ? 5e-3 : 1e-4)))
                        fail_msg("round %d, query %d: %g, not %g", round, (int)(first + i),
                                 out[i * WIDTH + c], right[c]);
            }
        }
        heed_el_free(el);
        free(held);
        free(key_bias);
        free_weights(&w);
    }
}

/* Cross-attention: one H for all layers, half of one layer's keys and values, a share 1/(2 layers) of all. */
static void layers_and_beams_share_what_is_kept(void **state)
{
    (void)state;
    test_random random = {8};
    enum { LAYERS = 3 };
    float *held = normal_floats(&random, KEYS * WIDTH, 1), *x = normal_floats(&random, 2 * WIDTH, 1);
    heed_el *el;
    must(heed_el_create(
        &el, &(heed_el_options){
                 .width = WIDTH, .heads = HEADS, .head_dim = DIM, .queries = 1, .keys = KEYS, .threads = 1}));
    for (int l = 0; l < LAYERS; l++) {
        heed_el_weights w = random_weights(&random);
        for (int beam = 0; beam < 2; beam++) {
            float out[WIDTH];
            double right[WIDTH];
            must(heed_el_attend(el, &w, x + beam * WIDTH, 1, held, KEYS, out));
            naive(&w, NULL, x + beam * WIDTH, held, KEYS - 1, right);
            for (int c = 0; c < WIDTH; c++)
                assert_true(fabs(out[c] - right[c]) <= 1e-4);
        }
        free_weights(&w);
    }
    const size_t usual = LAYERS * 2 * HEADS * DIM * sizeof(float);
    assert_int_equal(heed_el_token_bytes(el) * 2 * LAYERS, usual);
    heed_el_free(el);
    free(held);
    free(x);
}

static void turned_keys_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"position=rope", "position=xpos; where=causal"};
    for (int i = 0; i < 2; i++) {
        heed_el *el;
        assert_int_not_equal(heed_el_create(&el, &(heed_el_options){.width = WIDTH,
                                                                    .heads = HEADS,
                                                                    .head_dim = DIM,
                                                                    .queries = 1,
                                                                    .keys = KEYS,
                                                                    .attention = wrong[i],
                                                                    .threads = 1}),
                             HEED_OK);
        assert_null(el);
        assert_non_null(strstr(heed_message(), "turns keys"));
    }
    heed_el *el;
    must(heed_el_create(&el, &(heed_el_options){.width = WIDTH,
                                                .heads = HEADS,
                                                .head_dim = DIM,
                                                .queries = 2,
                                                .keys = KEYS,
                                                .attention = "position=alibi; where=causal",
                                                .threads = 1}));
    float none[WIDTH] = {0};
    test_random random = {1};
    heed_el_weights w = random_weights(&random);
    assert_int_not_equal(heed_el_attend(el, &w, none, 3, none, 3, none), HEED_OK);
    assert_int_not_equal(heed_el_attend(el, &w, none, 1, none, KEYS + 1, none), HEED_OK);
    heed_el_free(el);
    free_weights(&w);
}

/* A GPT-2 of two layers, as its file has it. */
typedef struct gpt {
    golden file;
    int64_t width, heads, layers, vocabulary;
    heed_el_weights weights[2];

    float *held[2]; /* [tokens][width] */
} gpt;

static const float *numbers(const gpt *g, const char *format, int layer)
{
    char name[64];
    snprintf(name, sizeof name, format, layer);
    const golden_tensor *tensor = golden_find(&g->file, name);
    assert_non_null(tensor);
    return tensor->data;
}

static float *turned(const float *from, int64_t rows, int64_t cols, int64_t first, int64_t count)
{
    float *to = malloc((size_t)(rows * count) * sizeof *to);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < count; c++)
            to[c * rows + r] = from[r * cols + first + c];
    return to;
}

static void open_gpt(gpt *g)
{
    char path[512];
    *g = (gpt){.width = 32, .heads = 4, .layers = 2, .vocabulary = 128};
    snprintf(path, sizeof path, "%s/golden/models/gpt2/model.safetensors", HEED_TEST_DATA);
    assert_true(golden_read(&g->file, path));
    for (int l = 0; l < g->layers; l++) {
        const float *all = numbers(g, "transformer.h.%d.attn.c_attn.weight", l),
                    *bias = numbers(g, "transformer.h.%d.attn.c_attn.bias", l);
        float *q = turned(all, g->width, 3 * g->width, 0, g->width),
              *k = turned(all, g->width, 3 * g->width, g->width, g->width),
              *v = turned(all, g->width, 3 * g->width, 2 * g->width, g->width);
        g->weights[l] =
            (heed_el_weights){.width = g->width,
                              .heads = g->heads,
                              .head_dim = g->width / g->heads,
                              .query = q,
                              .key = k,
                              .value = v,
                              .output = turned(numbers(g, "transformer.h.%d.attn.c_proj.weight", l), g->width,
                                               g->width, 0, g->width),
                              .query_bias = bias,
                              .value_bias = bias + 2 * g->width,
                              .output_bias = numbers(g, "transformer.h.%d.attn.c_proj.bias", l)};
        g->held[l] = calloc(64, (size_t)g->width * sizeof(float));
    }
}

static void close_gpt(gpt *g)
{
    for (int l = 0; l < g->layers; l++) {
        free((void *)(uintptr_t)g->weights[l].query);
        free((void *)(uintptr_t)g->weights[l].key);
        free((void *)(uintptr_t)g->weights[l].value);
        free((void *)(uintptr_t)g->weights[l].output);
        free(g->held[l]);
    }
    golden_free(&g->file);
}

static void norm(const float *x, const float *weight, const float *bias, int64_t n, float *out)
{
    double mean = 0, square = 0;
    for (int64_t i = 0; i < n; i++)
        mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)((x[i] - mean) / sqrt(square + 1e-5) * weight[i] + bias[i]);
}

/* x += W2 gelu(W1 h + b1) + b2, matrices [in, out]. */
static void feed_forward(const gpt *g, int l, const float *h, float *x)
{
    const float *w1 = numbers(g, "transformer.h.%d.mlp.c_fc.weight", l),
                *b1 = numbers(g, "transformer.h.%d.mlp.c_fc.bias", l),
                *w2 = numbers(g, "transformer.h.%d.mlp.c_proj.weight", l),
                *b2 = numbers(g, "transformer.h.%d.mlp.c_proj.bias", l);
    const int64_t n = g->width, inner = 4 * n;
    for (int64_t c = 0; c < n; c++)
        x[c] += b2[c];
    for (int64_t i = 0; i < inner; i++) {
        double sum = b1[i];
        for (int64_t c = 0; c < n; c++)
            sum += (double)h[c] * w1[c * inner + i];
        const double gelu = 0.5 * sum * (1 + tanh(sqrt(2 / acos(-1.0)) * (sum + 0.044715 * pow(sum, 3))));
        for (int64_t c = 0; c < n; c++)
            x[c] += (float)(gelu * w2[i * n + c]);
    }
}

static void step(gpt *g, heed_el *el, int32_t token, int64_t at, float *logits)
{
    float x[32], h[32], out[32];
    const float *embedding = numbers(g, "transformer.wte.weight", 0),
                *place = numbers(g, "transformer.wpe.weight", 0);
    for (int64_t c = 0; c < g->width; c++)
        x[c] = embedding[token * g->width + c] + place[at * g->width + c];
    for (int l = 0; l < g->layers; l++) {
        norm(x, numbers(g, "transformer.h.%d.ln_1.weight", l), numbers(g, "transformer.h.%d.ln_1.bias", l),
             g->width, h);
        memcpy(g->held[l] + at * g->width, h, (size_t)g->width * sizeof *h);
        must(heed_el_attend(el, &g->weights[l], h, 1, g->held[l], at + 1, out));
        for (int64_t c = 0; c < g->width; c++)
            x[c] += out[c];
        norm(x, numbers(g, "transformer.h.%d.ln_2.weight", l), numbers(g, "transformer.h.%d.ln_2.bias", l),
             g->width, h);
        feed_forward(g, l, h, x);
    }
    norm(x, numbers(g, "transformer.ln_f.weight", 0), numbers(g, "transformer.ln_f.bias", 0), g->width, h);
    for (int64_t t = 0; t < g->vocabulary; t++)
        logits[t] = (float)row(embedding, NULL, h, t, g->width);
}

/* A GPT-2 that keeps H writes what the model's session writes, which keeps keys and values. */
static void a_gpt2_writes_the_same(void **state)
{
    (void)state;
    gpt g;
    small_model small;
    heed_el *el;
    open_gpt(&g);
    open_small(&small, "gpt2", true);
    must(heed_el_create(&el, &(heed_el_options){.width = g.width,
                                                .heads = g.heads,
                                                .head_dim = g.width / g.heads,
                                                .queries = 1,
                                                .keys = 64,
                                                .attention = "where=causal",
                                                .threads = 1}));
    heed_session *session = new_session(
        small.model, &(heed_session_options){.threads = 1, .cache = HEED_F32, .cache_given = true});
    heed_session_info info;
    heed_session_get_info(session, &info);
    assert_int_equal((int)info.cache_token_bytes, 2 * g.layers * (int64_t)heed_el_token_bytes(el));
    int32_t token = small.tokens[0];
    for (int64_t at = 0; at < 40; at++) {
        float logits[128], right[128];
        int64_t best = 0;
        step(&g, el, token, at, logits);
        must(heed_feed(session, &(heed_feed_item){.tokens = &token, .count = 1}, 1,
                       &(heed_feed_wants){.logits = right}));
        if (!(farthest(logits, right, 128) <= 1e-4))
            fail_msg("token %d: logits are off by %g", (int)at, farthest(logits, right, 128));
        for (int64_t t = 1; t < 128; t++)
            best = right[t] > right[best] ? t : best;
        token = at < 8 ? small.tokens[at + 1] : (int32_t)best;
    }
    heed_session_free(session);
    heed_el_free(el);
    close_small(&small);
    close_gpt(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_multi_head_attention),
        cmocka_unit_test(layers_and_beams_share_what_is_kept),
        cmocka_unit_test(turned_keys_are_refused),
        cmocka_unit_test(a_gpt2_writes_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
