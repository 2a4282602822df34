/* `heed attend` and its files: what is read, what is written, what is refused. */
#include "support/program.h"

#include <heed/heed.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, H = 4, G = 2, N = 5, M = 7, D = 8, E = 6, MOST = 20 };

static const int64_t q_shape[] = {B, H, N, D}, k_shape[] = {B, G, M, D}, v_shape[] = {B, G, M, E},
                     out_shape[] = {B, H, N, E};

static float q[B * H * N * D], k[B * G * M * D], v[B * G * M * E], dout[B * H * N * E];

/* The tensors of the next input file. */
static heed_named_tensor tensors[MOST];
static int count;

static float number(int i)
{
    return sinf(0.7f * (float)i + 0.1f * (float)(i % 11));
}

static void add(const char *name, heed_type type, int rank, const int64_t *shape, const float *values)
{
    assert_true(count < MOST);
    tensors[count++] = make_tensor(name, type, rank, shape, values);
}

static void write_input(void)
{
    write_file("in.safetensors", tensors, count);
    while (count > 0)
        free(tensors[--count].tensor.data);
}

static void add_plain(heed_type type)
{
    add("q", type, 4, q_shape, q);
    add("k", type, 4, k_shape, k);
    add("v", type, 4, v_shape, v);
}

static void assert_succeeded(void)
{
    if (ran.status)
        fail_msg("status %d: %s", ran.status, ran.err);
}

static void assert_near(const float *x, const double *right, int n, double tolerance, const char *what)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(x[i] - right[i]) <= tolerance * (1.0 + fabs(right[i]))) && !((double)x[i] == right[i]))
            fail_msg("%s[%d] is %.9g, not %.9g", what, i, x[i], right[i]);
}

/* softmax attention with a yes/no question for each pair, written from the definition. */
typedef bool (*pair_question)(int b, int i, int j);

static void define(pair_question open, const float *q_, const float *k_, const float *v_, double *out,
                   double *lse, double *weights)
{
    for (int row = 0; row < B * H * N; row++) {
        const int b = row / (H * N), h = row / N % H, i = row % N, g = h * G / H;
        double *weight = weights + row * M, largest = -INFINITY, sum = 0.0;
        for (int j = 0; j < M; j++) {
            double s = 0.0;
            for (int d = 0; d < D; d++)
                s += (double)q_[row * D + d] * k_[((b * G + g) * M + j) * D + d];
            weight[j] = open(b, i, j) ? s / sqrt(D) : -INFINITY;
            largest = fmax(largest, weight[j]);
        }
        for (int j = 0; j < M; j++)
            sum += weight[j] = weight[j] == -INFINITY ? 0.0 : exp(weight[j] - largest);
        lse[row] = sum > 0.0 ? log(sum) + largest : -INFINITY;
        for (int e = 0; e < E; e++)
            out[row * E + e] = 0.0;
        for (int j = 0; j < M; j++) {
            weight[j] /= sum > 0.0 ? sum : 1.0;
            for (int e = 0; e < E; e++)
                out[row * E + e] += weight[j] * v_[((b * G + g) * M + j) * E + e];
        }
    }
}

static double out_right[B * H * N * E], lse_right[B * H * N], weights_right[B * H * N * M];

static void assert_output(double tolerance)
{
    float *out = read_values("out.safetensors", "out", NULL),
          *lse = read_values("out.safetensors", "lse", NULL);
    assert_tensor("out.safetensors", "out", 4, out_shape);
    assert_tensor("out.safetensors", "lse", 3, out_shape);
    assert_near(out, out_right, B * H * N * E, tolerance, "out");
    assert_near(lse, lse_right, B * H * N, tolerance, "lse");
    free(out);
    free(lse);
}

static bool all(int b, int i, int j)
{
    return b >= 0 && i >= 0 && j >= 0;
}

static bool causal(int b, int i, int j)
{
    return b >= 0 && j <= i + M - N;
}

static void output_equals_the_definition_in_every_float_type(void **state)
{
    (void)state;
    for (int type = HEED_F32; type <= HEED_BF16; type++) {
        float *stored[3];
        add_plain((heed_type)type);
        write_input();
        stored[0] = read_values("in.safetensors", "q", NULL);
        stored[1] = read_values("in.safetensors", "k", NULL);
        stored[2] = read_values("in.safetensors", "v", NULL);
        run("attend '' in.safetensors -o out.safetensors");
        assert_succeeded();
        assert_string_equal(ran.err, "");
        define(all, stored[0], stored[1], stored[2], out_right, lse_right, weights_right);
        assert_output(1e-5);
        assert_false(has_tensor("out.safetensors", "weights"));
        run("attend where=causal in.safetensors --output=out.safetensors --weights");
        assert_succeeded();
        define(causal, stored[0], stored[1], stored[2], out_right, lse_right, weights_right);
        assert_output(1e-5);
        float *weights = read_values("out.safetensors", "weights", NULL);
        assert_near(weights, weights_right, B * H * N * M, 1e-5, "weights");
        assert_tensor("out.safetensors", "weights", 4, (int64_t[]){B, H, N, M});
        free(weights);
        for (int i = 0; i < 3; i++)
            free(stored[i]);
    }
}

static bool three_segments(int b, int i, int j)
{
    return b >= 0 && i / 2 == j / 3;
}

static bool masked(int b, int i, int j)
{
    return (b + i * 3 + j) % 4 != 0 && i != 2;
}

static void positions_lengths_segments_and_masks_are_read(void **state)
{
    (void)state;
    float x[B * N * M];
    add_plain(HEED_F32);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i / 2);
    add("q_segment", HEED_I32, 1, (int64_t[]){N}, x);
    for (int j = 0; j < M; j++)
        x[j] = (float)(j / 3);
    add("k_segment", HEED_I32, 1, (int64_t[]){M}, x);
    for (int n = 0; n < B * N * M; n++)
        x[n] = masked(n / (N * M), n / M % N, n % M) ? (float)(1 + n % 3) : 0.0f;
    add("mask", HEED_U8, 3, (int64_t[]){B, N, M}, x);
    write_input();
    run("attend where=segments in.safetensors -o out.safetensors");
    assert_succeeded();
    define(three_segments, q, k, v, out_right, lse_right, weights_right);
    assert_output(1e-5);
    assert_said(ran.err, "tensor mask was not used");
    run("attend where=mask in.safetensors -o out.safetensors --weights"); /* row 2 sees nothing */
    assert_succeeded();
    define(masked, q, k, v, out_right, lse_right, weights_right);
    assert_output(1e-5);
    float *weights = read_values("out.safetensors", "weights", NULL);
    assert_near(weights, weights_right, B * H * N * M, 1e-5, "weights");
    free(weights);
}

static bool positions(int b, int i, int j)
{
    return j * 2 <= 3 * i + b;
}

static void given_positions_replace_the_default_ones(void **state)
{
    (void)state;
    float x[B * N + M];
    for (int n = 0; n < B * N; n++)
        x[n] = (float)(3 * (n % N) + n / N);
    add_plain(HEED_F32);
    add("q_pos", HEED_I32, 2, (int64_t[]){B, N}, x);
    for (int j = 0; j < M; j++)
        x[j] = (float)(2 * j);
    add("k_pos", HEED_I32, 1, (int64_t[]){M}, x);
    write_input();
    run("attend where=causal in.safetensors -o out.safetensors");
    assert_succeeded();
    define(positions, q, k, v, out_right, lse_right, weights_right);
    assert_output(1e-5);
}

static bool lengths(int b, int i, int j)
{
    const int seq = b ? 4 : 7;
    return i + M - N < seq && j < seq;
}

static void lengths_close_what_does_not_exist(void **state)
{
    (void)state;
    add_plain(HEED_F32);
    add("seq", HEED_I32, 1, (int64_t[]){B}, (float[]){7, 4});
    write_input();
    run("attend '' in.safetensors -o out.safetensors");
    assert_succeeded();
    define(lengths, q, k, v, out_right, lse_right, weights_right);
    assert_output(1e-5);
}

static void kv_attends_to_what_the_type_holds(void **state)
{
    (void)state;
    for (int type = HEED_F32; type <= HEED_Q4; type++) {
        float k_held[B * G * M * D], v_held[B * G * M * E];
        uint8_t row[64];
        for (int r = 0; r < B * G * M; r++) {
            heed_store((heed_type)type, k + r * D, row, D);
            heed_load((heed_type)type, row, k_held + r * D, D);
            heed_store((heed_type)type, v + r * E, row, E);
            heed_load((heed_type)type, row, v_held + r * E, E);
        }
        add_plain(HEED_F32);
        write_input();
        run("attend where=causal in.safetensors -o out.safetensors --kv %s", heed_type_name((heed_type)type));
        assert_succeeded();
        define(causal, q, k_held, v_held, out_right, lse_right, weights_right);
        assert_output(1e-5);
        run("attend 'where=causal; cache=%s' in.safetensors -o cache.safetensors",
            heed_type_name((heed_type)type));
        assert_succeeded();
        float *a = read_values("out.safetensors", "out", NULL),
              *b = read_values("cache.safetensors", "out", NULL);
        assert_memory_equal(a, b, B * H * N * E * sizeof *a);
        free(a);
        free(b);
    }
    run("attend cache=q8 in.safetensors -o x.safetensors --kv f32");
    assert_one_sentence("--kv f32 and cache=q8 in the spec disagree");
    assert_false(exists("x.safetensors"));
}

static void gradients_come_with_every_parameter(void **state)
{
    (void)state;
    static double dv[B * G * M * E];
    add_plain(HEED_F32);
    add("dout", HEED_F32, 4, out_shape, dout);
    add("position.t5.b", HEED_F32, 2, (int64_t[]){H, 8}, q);
    write_input();
    run("attend 'position=t5(buckets=8) + shaw(max=3); where=causal; score=bilinear; normalise=sink' "
        "in.safetensors "
        "-o out.safetensors --backward --weights");
    assert_succeeded();
    assert_string_equal(ran.err, "");
    assert_tensor("out.safetensors", "dq", 4, q_shape);
    assert_tensor("out.safetensors", "dk", 4, k_shape);
    assert_tensor("out.safetensors", "dv", 4, v_shape);
    assert_tensor("out.safetensors", "d.position.t5.b", 2, (int64_t[]){H, 8});
    assert_tensor("out.safetensors", "d.position.shaw.r", 2, (int64_t[]){7, D});
    assert_tensor("out.safetensors", "d.score.bilinear.W", 3, (int64_t[]){H, D, D});
    assert_tensor("out.safetensors", "d.normalise.sink.sink", 1, (int64_t[]){H});
    float *weights = read_values("out.safetensors", "weights", NULL),
          *found = read_values("out.safetensors", "dv", NULL);
    memset(dv, 0, sizeof dv);
    for (int row = 0; row < B * H * N; row++)
        for (int j = 0; j < M; j++)
            for (int e = 0; e < E; e++)
                dv[((row / (H * N) * G + row / N % H * G / H) * M + j) * E + e] +=
                    (double)weights[row * M + j] * dout[row * E + e];
    assert_near(found, dv, B * G * M * E, 1e-5, "dv");
    free(weights);
    free(found);
    run("attend '' in.safetensors -o x.safetensors --backward --kv bf16");
    assert_one_sentence("--kv bf16 with --backward");
    run("attend cache=q8 in.safetensors -o x.safetensors --backward");
    assert_one_sentence("cache=q8 with --backward");
    run("attend '' in.safetensors -o out.safetensors --backward --kv f32");
    assert_succeeded();
    run("attend '' in.safetensors -o out.safetensors");
    assert_said(ran.err, "tensor dout was not used: it goes with --backward");
    assert_said(ran.err, "tensor position.t5.b was not used: no form of the spec reads it");
}

static void captures_agree_with_the_weights(void **state)
{
    (void)state;
    add_plain(HEED_F32);
    write_input();
    run("attend where=causal in.safetensors -o out.safetensors --weights --entropy --key-sums --top 3");
    assert_succeeded();
    float *weights = read_values("out.safetensors", "weights", NULL);
    float *entropy = read_values("out.safetensors", "entropy", NULL);
    float *sums = read_values("out.safetensors", "key_sums", NULL);
    float *top = read_values("out.safetensors", "top_weight", NULL);
    float *key = read_values("out.safetensors", "top_key", NULL);
    for (int row = 0; row < B * H * N; row++) {
        double right = 0.0;
        float largest = 0.0f;
        int at = -1;
        for (int j = 0; j < M; j++) {
            const float w = weights[row * M + j];
            right -= w > 0.0f ? w * log(w) : 0.0;
            at = w > largest ? j : at;
            largest = fmaxf(w, largest);
        }
        assert_true(fabs(entropy[row] - right) < 1e-5);
        assert_true(fabsf(top[3 * row] - largest) < 1e-6f);
        assert_int_equal(key[3 * row], at);
    }
    for (int h = 0; h < B * H; h++)
        for (int j = 0; j < M; j++) {
            double right = 0.0;
            for (int i = 0; i < N; i++)
                right += weights[(h * N + i) * M + j];
            assert_true(fabs(sums[h * M + j] - right) < 1e-5);
        }
    free(weights);
    free(entropy);
    free(sums);
    free(top);
    free(key);
}

static void wrong_tensors_are_named_with_both_values(void **state)
{
    (void)state;
    float x[B * H * N * D * 2] = {0};
    static const struct {
        const char *name;
        heed_type type;
        int rank;
        int64_t shape[4];
        const char *spec, *words;
    } cases[] = {
        {"q",
         HEED_F32,
         3,
         {B, N, D},
         "",
         "tensor q is [2, 5, 8], it must have 4 dimensions: [batch, heads, queries, dim]"},
        {"q", HEED_I32, 4, {B, H, N, D}, "", "tensor q is I32, it must be F32, F16 or BF16"},
        {"q", HEED_F32, 4, {B, H, N, 4}, "", "k has dim 8 and q has 4, they must be equal"},
        {"q", HEED_F32, 4, {1, H, N, D}, "", "k has batch 2 and q has 1"},
        {"q", HEED_F32, 4, {B, 3, N, D}, "", "q has heads 3 and k has 2"},
        {"v", HEED_F32, 4, {B, G, 6, E}, "", "v has keys 6 and k has 7"},
        {"v", HEED_F32, 4, {B, 4, M, E}, "", "v has kv_heads 4 and k has 2"},
        {"mask", HEED_F32, 2, {N, M}, "where=mask", "tensor mask is F32, it must be U8"},
        {"mask", HEED_U8, 2, {M, N}, "where=mask", "mask"},
        {"q_pos", HEED_F32, 1, {N}, "", "tensor q_pos is F32, it must be I32"},
        {"q_pos", HEED_I32, 1, {M}, "", "q_pos"},
        {"seq", HEED_I32, 1, {3}, "", "seq"},
        {"q_seq", HEED_I32, 1, {B}, "", "there is q_seq but no seq"},
        {"q_segment", HEED_I32, 1, {N}, "where=segments", "there is no tensor k_segment"},
        {"position.t5.b", HEED_F16, 2, {H, 32}, "position=t5", "tensor position.t5.b is F16, it must be F32"},
        {"position.t5.b",
         HEED_F32,
         2,
         {H, 16},
         "position=t5",
         "tensor position.t5.b is [4, 16], it must be [4, 32]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = cases[i].name;
        if (strcmp(name, "q"))
            add("q", HEED_F32, 4, q_shape, q);
        add("k", HEED_F32, 4, k_shape, k);
        if (strcmp(name, "v"))
            add("v", HEED_F32, 4, v_shape, v);
        add(name, cases[i].type, cases[i].rank, cases[i].shape, x);
        write_input();
        run("attend '%s' in.safetensors -o x.safetensors", cases[i].spec);
        assert_one_sentence(cases[i].words);
        assert_false(exists("x.safetensors"));
    }
    add("q", HEED_F32, 4, q_shape, q);
    add("v", HEED_F32, 4, v_shape, v);
    write_input();
    run("attend '' in.safetensors -o x.safetensors");
    assert_one_sentence("there is no tensor k");
    add_plain(HEED_F32);
    write_input();
    run("attend '' in.safetensors -o x.safetensors --backward");
    assert_one_sentence("there is no tensor dout");
    run("attend where=mask in.safetensors -o x.safetensors");
    assert_one_sentence("there is no tensor mask, which the spec needs");
    add_plain(HEED_F32);
    add("dout", HEED_F32, 4, q_shape, q);
    write_input();
    run("attend '' in.safetensors -o x.safetensors --backward");
    assert_one_sentence("tensor dout is [2, 4, 5, 8], it must be as out: [2, 4, 5, 6]");
}

static void an_error_leaves_the_old_output_and_nothing_else(void **state)
{
    (void)state;
    add_plain(HEED_F32);
    write_input();
    run("attend '' in.safetensors -o out.safetensors");
    assert_succeeded();
    run("attend '' in.safetensors -o before.safetensors");
    add_plain(HEED_F32);
    add("seq", HEED_I32, 1, (int64_t[]){B}, (float[]){1, M + 1}); /* seen only when executing */
    write_input();
    run("attend '' in.safetensors -o out.safetensors");
    assert_one_sentence("seq[1] is 8");
    assert_true(same_file("out.safetensors", "before.safetensors"));
    assert_int_equal(unfinished_files(), 0);
}

static void unknown_tensors_are_ignored_with_a_note(void **state)
{
    (void)state;
    add_plain(HEED_F32);
    add("Mask", HEED_F32, 1, (int64_t[]){2}, q);
    add("position.t5.B", HEED_F32, 1, (int64_t[]){2}, q);
    write_input();
    run("attend '' in.safetensors -o out.safetensors");
    assert_succeeded();
    assert_said(ran.err, "tensor Mask is unknown and was ignored; the nearest is 'mask'");
    assert_said(ran.err, "tensor position.t5.B is unknown and was ignored");
    define(all, q, k, v, out_right, lse_right, weights_right);
    assert_output(1e-5);
}

static void threads_and_sets_of_instructions_change_no_bit_or_little(void **state)
{
    (void)state;
    add_plain(HEED_F32);
    add("dout", HEED_F32, 4, out_shape, dout);
    write_input();
    run("attend 'where=causal; position=t5' in.safetensors -o one.safetensors --backward --threads 1");
    assert_succeeded();
    for (int threads = 2; threads <= 5; threads++) {
        run("attend 'where=causal; position=t5' in.safetensors -o out.safetensors --backward --threads %d",
            threads);
        assert_succeeded();
        assert_true(same_file("one.safetensors", "out.safetensors"));
    }
    define(causal, q, k, v, out_right, lse_right, weights_right);
    for (int isa = HEED_ISA_PORTABLE; isa <= HEED_ISA_NEON; isa++) {
        run("attend where=causal in.safetensors -o out.safetensors --isa %s", heed_isa_name((heed_isa)isa));
        if (heed_isa_available((heed_isa)isa)) {
            assert_succeeded();
            assert_said(ran.out, heed_isa_name((heed_isa)isa));
            assert_output(1e-5);
        } else {
            assert_one_sentence("this processor or this build lacks it");
        }
    }
    run("attend '' in.safetensors -o out.safetensors --threads 1024");
    assert_succeeded();
    assert_said(ran.err, "note: 1024 threads on");
}

static void kernels_can_be_forced_and_agree(void **state)
{
    (void)state;
    add_plain(HEED_F32);
    write_input();
    define(causal, q, k, v, out_right, lse_right, weights_right);
    for (int kernel = HEED_KERNEL_FLASH; kernel <= HEED_KERNEL_ROWS; kernel++) {
        run("attend where=causal in.safetensors -o out.safetensors --kernel %s",
            heed_kernel_name((heed_kernel)kernel));
        assert_succeeded();
        assert_said(ran.out, heed_kernel_name((heed_kernel)kernel));
        assert_output(1e-5);
    }
    run("attend 'where=causal; select=top_k(3)' in.safetensors -o x.safetensors --kernel flash");
    assert_one_sentence("flash");
}

static void layers_choose_their_clauses(void **state)
{
    (void)state;
    add_plain(HEED_F32);
    write_input();
    for (int layer = 0; layer < 2; layer++) {
        run("attend 'layers 1: where=causal' in.safetensors -o out.safetensors --layer %d", layer);
        assert_succeeded();
        define(layer ? causal : all, q, k, v, out_right, lse_right, weights_right);
        assert_output(1e-5);
    }
}

static void nan_reaches_only_the_rows_that_see_it(void **state)
{
    (void)state;
    static float with_nan[B * G * M * D];
    memcpy(with_nan, k, sizeof k);
    with_nan[6 * D] = NAN; /* batch 0, kv head 0, key 6: only the last query sees it */
    add("q", HEED_F32, 4, q_shape, q);
    add("k", HEED_F32, 4, k_shape, with_nan);
    add("v", HEED_F32, 4, v_shape, v);
    write_input();
    run("attend where=causal in.safetensors -o out.safetensors");
    assert_succeeded();
    define(causal, q, k, v, out_right, lse_right, weights_right);
    float *out = read_values("out.safetensors", "out", NULL);
    for (int row = 0; row < B * H * N; row++) {
        const bool reached = row / (H * N) == 0 && row / N % H < H / G && row % N == N - 1;
        for (int e = 0; e < E; e++)
            assert_true(reached ? isnan(out[row * E + e])
                                : fabs(out[row * E + e] - out_right[row * E + e]) < 1e-5);
    }
    free(out);
}

static int make_data(void **state)
{
    for (int i = 0; i < B * H * N * D; i++)
        q[i] = number(i);
    for (int i = 0; i < B * G * M * D; i++)
        k[i] = number(3 * i + 5);
    for (int i = 0; i < B * G * M * E; i++)
        v[i] = number(7 * i + 2);
    for (int i = 0; i < B * H * N * E; i++)
        dout[i] = number(5 * i + 1);
    return program_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_equals_the_definition_in_every_float_type),
        cmocka_unit_test(positions_lengths_segments_and_masks_are_read),
        cmocka_unit_test(given_positions_replace_the_default_ones),
        cmocka_unit_test(lengths_close_what_does_not_exist),
        cmocka_unit_test(kv_attends_to_what_the_type_holds),
        cmocka_unit_test(gradients_come_with_every_parameter),
        cmocka_unit_test(captures_agree_with_the_weights),
        cmocka_unit_test(wrong_tensors_are_named_with_both_values),
        cmocka_unit_test(an_error_leaves_the_old_output_and_nothing_else),
        cmocka_unit_test(unknown_tensors_are_ignored_with_a_note),
        cmocka_unit_test(threads_and_sets_of_instructions_change_no_bit_or_little),
        cmocka_unit_test(kernels_can_be_forced_and_agree),
        cmocka_unit_test(layers_choose_their_clauses),
        cmocka_unit_test(nan_reaches_only_the_rows_that_see_it),
    };
    return cmocka_run_group_tests(tests, make_data, program_folder_remove);
}
