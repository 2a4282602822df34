#include "support/small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void must(heed_status status)
{
    if (status)
        fail_msg("%s", heed_message());
}

void open_small(small_model *small, const char *name, bool fast)
{
    char path[512];
    *small = (small_model){.model = NULL};
    snprintf(path, sizeof path, "%s/golden/models/%s", HEED_TEST_FOLDER, name);
    must(heed_model_open(&small->model, path, &(heed_model_options){.exact = !fast, .threads = 2}));
    heed_model_get_info(small->model, &small->info);
    snprintf(path, sizeof path, "%s/golden/models/%s/golden.safetensors", HEED_TEST_FOLDER, name);
    assert_true(golden_read(&small->golden, path));
    const golden_tensor *tokens = golden_find(&small->golden, "tokens");
    const golden_tensor *expected = golden_find(&small->golden, small->info.generates ? "logits" : "hidden");
    assert_true(tokens && expected);
    small->tokens = tokens->data;
    small->count = tokens->count;
    small->expected = expected->data;
    small->columns = expected->shape[1];
    assert_int_equal(small->columns, small->info.generates ? small->info.vocabulary : small->info.width);
}

void close_small(small_model *small)
{
    heed_model_close(small->model);
    golden_free(&small->golden);
}

void small_text(const small_model *small, int32_t *tokens, int64_t count)
{
    for (int64_t t = 0; t < count; t++)
        tokens[t] = small->tokens[(t * 7 + t / 31) % small->count];
}

void must_refuse(const small_model *small, const char *spec, int64_t context, const char *says)
{
    heed_session *session;
    const heed_status status = heed_session_create(
        &session, small->model, &(heed_session_options){.context = context, .attention = spec});
    if (!status || !strstr(heed_message(), says))
        fail_msg("%s: %s", spec, status ? heed_message() : "not refused");
}

heed_session *new_session(const heed_model *model, const heed_session_options *options)
{
    heed_session *session = NULL;
    must(heed_session_create(&session, model, options));
    return session;
}

float *feed_all(heed_session *session, const heed_model *model, const int32_t *tokens, int64_t count)
{
    heed_model_info info;
    heed_model_get_info(model, &info);
    float *out = malloc((size_t)(count * (info.generates ? info.vocabulary : info.width)) * sizeof *out);
    const heed_feed_item item = {.sequence = 0, .tokens = tokens, .count = count};
    const heed_feed_wants wants = {
        .logits = info.generates ? out : NULL, .all_logits = true, .hidden = info.generates ? NULL : out};
    must(heed_feed(session, &item, 1, &wants));
    return out;
}

double farthest(const float *a, const float *b, int64_t n)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        most = d > most || isnan(d) ? d : most;
    }
    return most;
}
