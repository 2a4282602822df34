/* Pictures made step by step: what is reused changes nothing where it should change nothing, and costs what
 * it says. */
#include "nn/graph.h"
#include "train/glyphs.h"
#include "train/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PICTURES = 3, LAYERS = 3, STEPS = 12, SIDE = 4, FRAMES = 2, NUMBERS = FRAMES * SIDE * SIDE };

static const int32_t labels[PICTURES] = {0, 2, 3};
static const heed_transformer model = {
    .batch = PICTURES,
    .context = FRAMES * 4,
    .vocabulary = 4,
    .width = 16,
    .layers = LAYERS,
    .heads = 2,
    .hidden = 24,
    .spec = "where=all",
    .cross_spec = "where=all",
    .norm = HEED_LAYER_RMS,
    .norm_eps = 1e-5f,
    .function = HEED_FN_SILU,
    .gated = true,
    .deviation = 0.3f,
    .image = {.height = FRAMES * SIDE, .width = SIDE, .channels = 1, .patch = 2}};

static heed_parameters *parameters;

static heed_sampled sample(const char *reuse)
{
    heed_sampled out;
    heed_sampling_job job = {.model = &model,
                             .parameters = parameters,
                             .threads = 1,
                             .steps = STEPS,
                             .frames = FRAMES,
                             .guidance = 2,
                             .seed = 7,
                             .label = labels};
    if (heed_reuse_read(&job.reuse, reuse) || heed_sample_pictures(&job, &out))
        fail_msg("%s: %s", reuse, heed_message());
    return out;
}

/* `layers` that add nothing when still. */
static void begin(bool still)
{
    assert_int_equal(heed_parameters_create(&parameters, 11), HEED_OK);
    heed_sampled made = sample("none"); /* makes them */
    heed_sampled_free(&made);
    heed_parameter *noise = heed_parameters_find(parameters, "model.noise.weight");
    for (int64_t i = 0; i < noise->count; i++)
        noise->value[i] *= 20;
    for (int i = 0; i < heed_parameters_count(parameters) && still; i++) {
        heed_parameter *p = heed_parameters_at(parameters, i);
        if (strstr(p->name, "o_proj") || strstr(p->name, "down_proj"))
            memset(p->value, 0, (size_t)p->count * sizeof(float));
    }
}

static double apart(const heed_sampled *a, const heed_sampled *b)
{
    double most = 0;
    for (int i = 0; i < PICTURES * NUMBERS; i++)
        most = fmax(most, fabs((double)a->pixels[i] - (double)b->pixels[i]));
    return most;
}

static void same(const char *reuse, int64_t computed)
{
    heed_sampled plain = sample("none"), made = sample(reuse);
    assert_memory_equal(plain.pixels, made.pixels, PICTURES * NUMBERS * sizeof(float));
    assert_int_equal(made.computed, computed);
    heed_sampled_free(&plain);
    heed_sampled_free(&made);
}

/* The sampler written out once more, from one graph: x := a' clip((x - b e) / a) + b' e, e guided by words.
 */
static void plain_steps_are_those_of_the_formula(void **state)
{
    (void)state;
    begin(false);
    heed_sampled made = sample("none");
    heed_graph *graph;
    heed_denoiser at;
    heed_transformer one = model;
    one.batch = 1;
    assert_int_equal(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), HEED_OK);
    heed_denoiser_make(graph, &one, HEED_DENOISE_ALL, &at);
    heed_graph_keep(graph, at.noise);
    if (heed_graph_finish(graph, HEED_NO_INPUT))
        fail_msg("%s", heed_message());
    for (int picture = 0; picture < PICTURES; picture++) {
        float x[NUMBERS], e[2][NUMBERS];
        for (int i = 0; i < NUMBERS; i++)
            x[i] = heed_normal_at(7, (uint64_t)picture, (uint64_t)i);
        for (int step = 0; step < STEPS; step++) {
            const double level = 0.98 * (STEPS - step) / STEPS, later = 0.98 * (STEPS - step - 1) / STEPS;
            for (int half = 0; half < 2; half++) {
                memcpy(heed_graph_data(graph, at.pixels), x, sizeof x);
                heed_denoiser_level(level, heed_graph_data(graph, at.features));
                *(int32_t *)heed_graph_data(graph, at.label) = half ? 4 : labels[picture];
                assert_int_equal(heed_graph_forward(graph), HEED_OK);
                memcpy(e[half], heed_graph_data(graph, at.noise), sizeof e[half]);
            }
            for (int i = 0; i < NUMBERS; i++) {
                const int patch = i / 4, where = (patch / 2 * 2 + i % 4 / 2) * SIDE + patch % 2 * 2 + i % 2;
                const double guess = e[1][i] + 2 * ((double)e[0][i] - e[1][i]),
                             clean = (x[where] - sin(level * M_PI / 2) * guess) / cos(level * M_PI / 2),
                             kept = fmin(1, fmax(-1, clean));
                x[where] = (float)(cos(later * M_PI / 2) * kept + sin(later * M_PI / 2) * guess);
            }
        }
        for (int i = 0; i < NUMBERS; i++)
            assert_float_equal(x[i], made.pixels[picture * NUMBERS + i], 5e-3);
    }
    heed_graph_free(graph);
    heed_sampled_free(&made);
    heed_parameters_free(parameters);
}

static void nothing_reused_is_the_plain_sampler(void **state)
{
    (void)state;
    begin(false);
    same("tgate(m=12)", STEPS);
    same("adacache(codes=1:1)", STEPS);
    same("fixed(every=1)", STEPS);
    heed_parameters_free(parameters);
}

/* After the gate no cross-attention is computed, one picture instead of two, and what was kept is their mean.
 */
static void the_gate_ends_words(void **state)
{
    (void)state;
    begin(false);
    heed_sampled plain = sample("none"), early = sample("tgate(m=4)"), later = sample("tgate(m=9)");
    assert_int_equal(plain.cross_calls, LAYERS * STEPS);
    assert_int_equal(early.cross_calls, LAYERS * 4);
    assert_int_equal(later.cross_calls, LAYERS * 9);
    for (int step = 0; step < STEPS; step++)
        assert_int_equal(isnan(early.change[step]), step == 0 || step >= 4);
    const double full = plain.flops / STEPS, alone = (early.flops - 4 * full) / (STEPS - 4);
    assert_true(alone < 0.5 * full);
    assert_float_equal(later.flops, 9 * full + 3 * alone, 1e-6 * plain.flops);
    assert_true(apart(&plain, &early) > 1e-4);
    heed_sampled_free(&plain);
    heed_sampled_free(&early);
    heed_sampled_free(&later);
    heed_sampled found = sample("tgate(m=0, threshold=1000)"); /* every change is less */
    assert_int_equal(found.until, 2);
    heed_sampled_free(&found);
    heed_parameters_free(parameters);
}

/* What layers add does not change: it is reused for as long as can be, without an error. */
static void what_does_not_change_is_reused(void **state)
{
    (void)state;
    begin(true);
    same("adacache(codes=0.1:4 1:1)", 6); /* of 12: 0, 1, 5, 9, 10, 11 */
    same("fixed(every=3)", 6);            /* 0, 1, 4, 7, 10, 11 */
    heed_parameters_free(parameters);
    begin(false);
    heed_sampled plain = sample("none"), made = sample("adacache(codes=0.0001:4 100:3)");
    assert_int_equal(made.computed, 6);
    const double held = (made.flops - 6 * plain.flops / STEPS) / 6;
    assert_true(held < 0.2 * plain.flops / STEPS && held > 0);
    assert_true(apart(&plain, &made) > 1e-5);
    heed_sampled_free(&plain);
    heed_sampled_free(&made);
    heed_parameters_free(parameters);
}

/* Codes and motion by their formulas. */
static void changes_say_when_to_compute_again(void **state)
{
    (void)state;
    heed_reuse reuse;
    float before[8] = {1, -1, 2, -2, 1, -1, 2, -2}, now[8];
    double motion = NAN;
    assert_int_equal(heed_reuse_read(&reuse, "adacache"), HEED_OK);
    const double changes[] = {0.029, 0.049, 0.069, 0.089, 0.109, 0.5, 5};
    const int64_t after[] = {12, 10, 8, 6, 4, 3, 3};
    for (int i = 0; i < 7; i++) { /* change of all entries by that share, over two steps */
        for (int j = 0; j < 8; j++)
            now[j] = (float)(before[j] * (1 + 2 * changes[i]));
        assert_int_equal(heed_adacache_next(&reuse, before, now, 1, 8, 2, 2, true, &motion), after[i]);
    }
    assert_int_equal(heed_adacache_next(&reuse, before, before, 1, 8, 2, 1, true, &motion), 12);
    /* two frames that are alike do not move: whatever changes is reused; opposite ones have motion 1 */
    assert_int_equal(heed_reuse_read(&reuse, "adacache(motion=yes, codes=0.1:5 10:1, scale=0.5, power=2)"),
                     HEED_OK);
    motion = NAN;
    for (int j = 0; j < 8; j++)
        now[j] = 1.5f * before[j];
    assert_int_equal(heed_adacache_next(&reuse, before, now, 1, 8, 2, 1, true, &motion), 5);
    assert_float_equal(motion, 0, 0);
    for (int j = 4; j < 8; j++)
        now[j] = -now[j];
    assert_int_equal(heed_adacache_next(&reuse, before, now, 1, 8, 2, 1, true, &motion), 1);
    assert_float_equal(motion, 4, 1e-9); /* (1 / 0.5)^2 */
}

static void refused(const char *text, const char *sentence)
{
    heed_reuse reuse;
    assert_int_equal(heed_reuse_read(&reuse, text), HEED_INVALID);
    if (!strstr(heed_message(), sentence))
        fail_msg("%s: %s", text, heed_message());
}

static void wrong_words_are_refused(void **state)
{
    (void)state;
    refused("tgates", "none, tgate, adacache or fixed");
    refused("tgate(m=3", "closing bracket");
    refused("tgate(every=3)", "no argument");
    refused("tgate(m=2.5)", "a number");
    refused("fixed(every=0)", "at least 1");
    refused("adacache(codes=0.1:4 0.05:3)", "rise");
    refused("adacache(codes=)", "there are none");
    refused("adacache(motion=perhaps)", "yes or no");
}

static void shapes_are_told_apart(void **state)
{
    (void)state;
    float frame[64];
    for (int64_t kind = 0; kind < HEED_GLYPHS; kind++)
        for (int at = 0; at < 36; at += 7) {
            for (int i = 0; i < 64; i++) {
                const int row = i / 8 - at / 6, col = i % 8 - at % 6;
                const bool inside = row >= 0 && row < 3 && col >= 0 && col < 3;
                frame[i] = (inside && heed_glyph_has(kind, row, col) ? 0.7f : -0.9f) + 0.01f * (float)(i % 5);
            }
            assert_int_equal(heed_glyph_nearest(frame, 8), kind);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_steps_are_those_of_the_formula),
        cmocka_unit_test(nothing_reused_is_the_plain_sampler),
        cmocka_unit_test(the_gate_ends_words),
        cmocka_unit_test(what_does_not_change_is_reused),
        cmocka_unit_test(changes_say_when_to_compute_again),
        cmocka_unit_test(wrong_words_are_refused),
        cmocka_unit_test(shapes_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
