/* Learnt tensors beside a model: made on a text, saved, read by sessions, and refused where they do not fit.
 */
#include "support/small_models.h"

#include "model/safetensors.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *path_of(const char *name)
{
    static char path[4][128];
    static int next;
    char *to = path[next++ % 4];
    snprintf(to, sizeof path[0], "/tmp/heed-params-%d-%s.safetensors", (int)getpid(), name);
    return to;
}

/* The model's own tokens, over and over. */
static int32_t *long_text(const small_model *small, int64_t count)
{
    int32_t *tokens = calloc((size_t)count, sizeof *tokens);
    for (int64_t i = 0; i < count; i++)
        tokens[i] = small->tokens[(i + i / small->count) % small->count];
    return tokens;
}

static char *calibrated(const small_model *small, const char *attention, int threads, const char *name)
{
    enum { TOKENS = 200 };
    char *path = path_of(name);
    int32_t *tokens = long_text(small, TOKENS);
    heed_params *params;
    must(heed_calibrate(&params, small->model,
                        &(heed_calibration_options){.attention = attention, .window = 64, .threads = threads},
                        tokens, TOKENS));
    must(heed_params_save(params, path));
    heed_params_free(params);
    free(tokens);
    return path;
}

static float *logits_with(const small_model *small, const char *attention, const char *params)
{
    heed_session *session =
        new_session(small->model, &(heed_session_options){.attention = attention, .params = params});
    float *logits = feed_all(session, small->model, small->tokens, small->count);
    heed_session_free(session);
    return logits;
}

static void calibration_is_the_same_for_any_number_of_threads(void **state)
{
    (void)state;
    static const char *const specs[] = {"select=loki", "select=top_theta(k=4)", "select=qada(sinks=2)",
                                        "where=causal & dam(length=16)",
                                        "where=causal & dam(length=16); select=loki > top_theta(k=4)"};
    small_model small;
    open_small(&small, "llama", true);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        char *one = calibrated(&small, specs[i], 1, "one"), *two = calibrated(&small, specs[i], 2, "two");
        heed_safetensors *a, *b;
        must(heed_safetensors_open(&a, one));
        must(heed_safetensors_open(&b, two));
        assert_int_equal(heed_safetensors_count(a), heed_safetensors_count(b));
        assert_true(heed_safetensors_count(a) >= small.info.layers);
        for (int t = 0; t < heed_safetensors_count(a); t++) {
            const heed_file_tensor *tensor = heed_safetensors_tensor(a, t);
            char *x = malloc(tensor->bytes), *y = malloc(tensor->bytes);
            must(heed_safetensors_read(a, tensor, x));
            must(heed_safetensors_read(b, heed_safetensors_tensor(b, t), y));
            assert_memory_equal(x, y, tensor->bytes);
            free(x);
            free(y);
        }
        heed_safetensors_close(a);
        heed_safetensors_close(b);
        float *logits = logits_with(&small, specs[i], one);
        assert_true(isfinite(farthest(logits, small.expected, small.count * small.columns)));
        free(logits);
        unlink(one);
        unlink(two);
    }
    close_small(&small);
}

/* With them the logits differ from those at initial values; without a cut they are the model's own. */
static void sessions_run_on_the_tensors_of_a_file(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", true);
    const int64_t n = small.count * small.columns;
    char *path = calibrated(&small, "select=loki", 2, "loki");
    float *own = logits_with(&small, NULL, NULL), *all = logits_with(&small, "select=loki(1, 1)", path),
          *cut = logits_with(&small, "select=loki(0.25, 0.25)", path),
          *initial = logits_with(&small, "select=loki(0.25, 0.25)", NULL);
    assert_true(farthest(own, all, n) < 1e-4 * 100);
    assert_true(farthest(cut, initial, n) > 1e-3);
    assert_true(farthest(cut, own, n) > 1e-3);
    free(all);
    free(initial);
    char text[200];
    heed_session *session =
        new_session(small.model, &(heed_session_options){.attention = "select=loki", .params = path});
    assert_int_equal(heed_session_untrained(session, text, sizeof text), 0);
    heed_session_free(session);

    /* token by token, where decoding reads summaries, as in one piece */
    session = new_session(small.model,
                          &(heed_session_options){.attention = "select=loki(0.25, 0.25)", .params = path});
    float *row = malloc((size_t)small.columns * sizeof *row);
    for (int64_t t = 0; t < small.count; t++) {
        const heed_feed_item item = {.tokens = small.tokens + t, .count = 1};
        must(heed_feed(session, &item, 1, &(heed_feed_wants){.logits = row}));
        assert_true(farthest(row, cut + t * small.columns, small.columns) < 0.02);
    }
    heed_session_free(session);
    free(row);
    free(own);
    free(cut);
    unlink(path);
    close_small(&small);
}

static void write_tensor(const char *path, const char *name, int rank, const int64_t *shape)
{
    static float data[4096];
    const heed_named_tensor tensor = {name, heed_tensor_dense(data, HEED_F32, rank, shape)};
    must(heed_safetensors_write(path, &tensor, 1, NULL));
}

static void refused(const small_model *small, const char *path, heed_status status, const char *words)
{
    heed_session *session;
    const heed_session_options options = {.attention = "select=loki", .params = path};
    assert_int_equal(heed_session_create(&session, small->model, &options), status);
    assert_null(session);
    if (!strstr(heed_message(), words))
        fail_msg("`%s` does not say `%s`", heed_message(), words);
}

static void tensors_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    small_model small;
    char *path = path_of("wrong");
    open_small(&small, "llama", true);
    refused(&small, "/nowhere/params.safetensors", HEED_IO, "/nowhere/params.safetensors");
    write_tensor(path, "blk.0.select.loki.bases", 1, (int64_t[]){4});
    refused(&small, path, HEED_INVALID, "the nearest is 'select.loki.basis'");
    write_tensor(path, "blk.99.select.loki.basis", 1, (int64_t[]){4});
    refused(&small, path, HEED_INVALID, "layers");
    write_tensor(path, "select.loki.basis", 1, (int64_t[]){4});
    refused(&small, path, HEED_FORMAT, "names of attention's tensors");
    write_tensor(path, "blk.0.select.loki.basis", 2, (int64_t[]){2, 3});
    refused(&small, path, HEED_INVALID, "is [2, 3], the attention of the model's layer 0 takes [");
    unlink(path);
    close_small(&small);
}

static void layers_without_tensors_are_named(void **state)
{
    (void)state;
    small_model small;
    char text[200], *path = path_of("half");
    open_small(&small, "llama", true);
    write_tensor(path, "blk.1.select.top_theta.theta", 2, (int64_t[]){small.info.heads, 24});
    heed_session *session =
        new_session(small.model, &(heed_session_options){.attention = "select=top_theta", .params = path});
    heed_session_untrained(session, text, sizeof text);
    assert_non_null(strstr(text, "select.top_theta.theta (layers 0"));
    assert_null(strstr(text, "0, 1"));
    heed_session_free(session);
    unlink(path);
    close_small(&small);
}

static void a_saved_session_goes_with_its_tensors(void **state)
{
    (void)state;
    small_model small;
    char saved[128];
    open_small(&small, "llama", true);
    char *path = calibrated(&small, "select=loki", 2, "saved");
    snprintf(saved, sizeof saved, "%s.session", path);
    const heed_session_options options = {.attention = "select=loki", .params = path};
    heed_session *session = new_session(small.model, &options);
    float *logits = feed_all(session, small.model, small.tokens, small.count);
    must(heed_session_save(session, 0, saved));
    heed_session_free(session);
    session = new_session(small.model, &options);
    must(heed_session_load(session, 0, saved));
    heed_session_free(session);
    session = new_session(small.model, &(heed_session_options){.attention = "select=loki"});
    assert_int_equal(heed_session_load(session, 0, saved), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "learnt tensors"));
    heed_session_free(session);
    free(logits);
    unlink(saved);
    unlink(path);
    close_small(&small);
}

static void calibration_that_cannot_be_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *attention, *words;
    } wrong[] = {{NULL, "no form that can be calibrated"},
                 {"select=top_k(3)", "no form that can be calibrated"},
                 {"position=alibi; select=loki", "no products"},
                 {"where=causal & dam(length=100)", "windows of 100"}};
    small_model small;
    open_small(&small, "llama", true);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        heed_params *params;
        assert_true(heed_calibrate(&params, small.model,
                                   &(heed_calibration_options){.attention = wrong[i].attention}, small.tokens,
                                   small.count < 50 ? small.count : 50) != HEED_OK);
        assert_null(params);
        if (!strstr(heed_message(), wrong[i].words))
            fail_msg("`%s` does not say `%s`", heed_message(), wrong[i].words);
    }
    close_small(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calibration_is_the_same_for_any_number_of_threads),
        cmocka_unit_test(sessions_run_on_the_tensors_of_a_file),
        cmocka_unit_test(tensors_that_do_not_fit_are_refused),
        cmocka_unit_test(layers_without_tensors_are_named),
        cmocka_unit_test(a_saved_session_goes_with_its_tensors),
        cmocka_unit_test(calibration_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
