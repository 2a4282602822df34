/* Model folders that are changed by hand: what they ask for is done, noted, or refused by name. */
#include "model/safetensors.h"
#include "support/program.h"
#include "support/small_models.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

/* A model of golden/models in memory, to be changed and written to the present folder. */
typedef struct changeable {
    golden file;
    heed_named_tensor tensor[MOST];
    int tensors;
    cJSON *config;
} changeable;

static char *slurp(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = calloc(1, 1 << 16);
    assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

static changeable *take(const char *name)
{
    static changeable changed;
    changeable *c = &changed;
    *c = (changeable){.tensors = 0};
    char path[512];
    snprintf(path, sizeof path, "%s/golden/models/%s/model.safetensors", HEED_TEST_DATA, name);
    assert_true(golden_read(&c->file, path));
    for (int i = 0; i < c->file.tensors; i++) {
        const golden_tensor *t = &c->file.tensor[i];
        c->tensor[c->tensors++] = (heed_named_tensor){
            t->name, heed_tensor_dense((void *)(uintptr_t)t->data, HEED_F32, t->rank, t->shape)};
    }
    snprintf(path, sizeof path, "%s/golden/models/%s/config.json", HEED_TEST_DATA, name);
    char *text = slurp(path);
    c->config = cJSON_Parse(text);
    free(text);
    assert_non_null(c->config);
    return c;
}

static void drop(changeable *c, const char *name)
{
    for (int i = 0; i < c->tensors; i++)
        if (!strcmp(c->tensor[i].name, name)) {
            c->tensor[i] = c->tensor[--c->tensors];
            return;
        }
    fail_msg("there is no tensor %s", name);
}

static heed_named_tensor *named(changeable *c, const char *name)
{
    for (int i = 0; i < c->tensors; i++)
        if (!strcmp(c->tensor[i].name, name))
            return &c->tensor[i];
    fail_msg("there is no tensor %s", name);
    return NULL;
}

/* The value is JSON text. */
static void set(changeable *c, const char *key, const char *value)
{
    cJSON_DeleteItemFromObject(c->config, key);
    cJSON_AddItemToObject(c->config, key, cJSON_Parse(value));
}

static heed_status open_changed(changeable *c, heed_model **model)
{
    must(heed_safetensors_write("model.safetensors", c->tensor, c->tensors, NULL));
    char *text = cJSON_Print(c->config);
    FILE *file = fopen("config.json", "w");
    fputs(text, file);
    fclose(file);
    free(text);
    cJSON_Delete(c->config);
    const heed_status status = heed_model_open(model, ".", &(heed_model_options){.threads = 1});
    golden_free(&c->file);
    return status;
}

/* Logits of a few tokens. */
static float *logits_of(changeable *c, const char *note)
{
    static const int32_t tokens[] = {5, 80, 33, 127, 9};
    heed_model *model;
    must(open_changed(c, &model));
    bool noted = note == NULL;
    for (int i = 0; i < heed_model_notes(model); i++)
        noted |= note && strstr(heed_model_note(model, i), note);
    if (!noted)
        fail_msg("no note says '%s'", note);
    heed_session *session = new_session(model, NULL);
    float *out = feed_all(session, model, tokens, 5);
    heed_session_free(session);
    heed_model_close(model);
    return out;
}

/* The same matrix as embedding and output, however the file says so. */
static void a_shared_matrix_gives_the_same_logits_however_it_is_stored(void **state)
{
    (void)state;
    const size_t bytes = 5 * 128 * sizeof(float);
    changeable *c = take("llama_tied"); /* absent, and the flag says tied */
    float *tied = logits_of(c, NULL);

    c = take("llama_tied"); /* both present and equal */
    c->tensor[c->tensors] = *named(c, "model.embed_tokens.weight");
    c->tensor[c->tensors++].name = "lm_head.weight";
    float *both = logits_of(c, NULL);

    c = take("llama_tied"); /* absent, and the flag says otherwise */
    set(c, "tie_word_embeddings", "false");
    float *odd = logits_of(c, "there is no lm_head.weight");

    c = take("llama_tied"); /* only the output matrix */
    named(c, "model.embed_tokens.weight")->name = "lm_head.weight";
    float *other = logits_of(c, "serves as both");

    assert_memory_equal(tied, both, bytes);
    assert_memory_equal(tied, odd, bytes);
    assert_memory_equal(tied, other, bytes);
    free(tied);
    free(both);
    free(odd);
    free(other);
}

static void a_tie_flag_that_the_tensors_contradict_is_noted(void **state)
{
    (void)state;
    changeable *c = take("llama"); /* two matrices */
    set(c, "tie_word_embeddings", "true");
    float *tied = logits_of(c, "lm_head.weight differs from it");
    c = take("llama");
    drop(c, "lm_head.weight");
    set(c, "tie_word_embeddings", "true");
    float *same = logits_of(c, NULL);
    assert_memory_equal(tied, same, 5 * 128 * sizeof(float));
    free(tied);
    free(same);
}

static void what_changes_the_mathematics_and_is_not_understood_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *model, *key, *value, *words;
    } cases[] = {
        {"llama", "model_type", "\"mamba\"", "'mamba' is not known; known are llama, qwen2, qwen3"},
        {"llama", "hidden_act", "\"tanhshrink\"", "hidden_act is 'tanhshrink'"},
        {"llama", "attn_logit_softcapping", "30.0", "attn_logit_softcapping is not understood"},
        {"llama", "rope_parameters", "{\"rope_type\":\"spiral\",\"factor\":2}", "rope scaling 'spiral'"},
        {"llama", "rope_scaling", "{\"type\":\"dynamic\",\"factor\":2}", "rope scaling 'dynamic'"},
        {"llama", "rope_parameters", "{\"rope_type\":\"default\",\"wobble\":2}",
         "wobble of the rope parameters"},
        {"llama", "mlp_bias", "true", "mlp_bias is 'true'"},
        {"llama", "residual_multiplier", "0.2", "residual_multiplier is not understood"},
        {"llama", "num_attention_heads", "5", "no multiple of its 2 kv heads"},
        {"llama", "hidden_size", "-4", "hidden_size is -4"},
        {"llama", "num_hidden_layers", "\"two\"", "num_hidden_layers must be a whole number"},
        {"llama", "num_hidden_layers", "3", "the tensor model.layers.2.input_layernorm.weight is missing"},
        {"llama", "num_hidden_layers", "1", "is not understood: llama models"},
        {"llama", "intermediate_size", "32", "must be [32, 32]"},
        {"llama", "attention_bias", "true", "q_proj.bias is missing"},
        {"phi3", "rope_parameters", "{\"rope_type\":\"longrope\",\"factor\":2,\"rope_theta\":10000}",
         "longrope"},
        {"gemma3", "layer_types", "[\"full_attention\",\"full_attention\",\"chunked_attention\"]",
         "chunked_attention"},
        {"gemma3", "use_bidirectional_attention", "true", "use_bidirectional_attention is 'true'"},
        {"gpt2", "scale_attn_by_inverse_layer_idx", "true", "scale_attn_by_inverse_layer_idx is 'true'"},
        {"bert", "position_embedding_type", "\"relative_key\"", "position_embedding_type is 'relative_key'"},
        {"bert", "is_decoder", "true", "is_decoder is 'true'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        changeable *c = take(cases[i].model);
        heed_model *model;
        set(c, cases[i].key, cases[i].value);
        if (!strcmp(cases[i].key, "rope_scaling"))
            cJSON_DeleteItemFromObject(c->config, "rope_parameters");
        const heed_status status = open_changed(c, &model);
        if (status == HEED_OK || !strstr(heed_message(), cases[i].words))
            fail_msg("%s %s=%s: status %d, %s", cases[i].model, cases[i].key, cases[i].value, (int)status,
                     heed_message());
        assert_null(model);
    }
}

static void facts_that_say_nothing_new_are_let_pass(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"attn_logit_softcapping", "null"},
                                           {"alibi", "false"},
                                           {"torch_dtype", "\"bfloat16\""},
                                           {"mlp_bias", "false"},
                                           {"unsloth_fixed", "true"}};
    changeable *c = take("llama");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        set(c, pairs[i][0], pairs[i][1]);
    heed_model *model;
    must(open_changed(c, &model));
    for (int i = 0; i < heed_model_notes(model); i++)
        assert_null(strstr(heed_model_note(model, i), "not known here"));
    heed_model_close(model);
}

static void facts_that_are_not_known_are_named(void **state)
{
    (void)state;
    changeable *c = take("llama");
    set(c, "wobble", "3");
    set(c, "sparkle", "\"blue\"");
    set(c, "glimmer", "0");
    heed_model *model;
    must(open_changed(c, &model));
    int named = 0;
    for (int i = 0; i < heed_model_notes(model); i++)
        named += strstr(heed_model_note(model, i), "change nothing: wobble, sparkle") != NULL;
    assert_int_equal(named, 1);
    heed_model_close(model);
    c = take("llama");
    set(c, "quantization_config", "{\"quant_method\":\"awq\"}");
    assert_int_not_equal(open_changed(c, &model), HEED_OK);
    assert_non_null(strstr(heed_message(), "quantization_config is not understood"));
}

static void a_vocabulary_size_that_the_tensors_contradict_is_noted(void **state)
{
    (void)state;
    changeable *c = take("llama");
    heed_model *model;
    set(c, "vocab_size", "100");
    must(open_changed(c, &model));
    int noted = 0;
    for (int i = 0; i < heed_model_notes(model); i++)
        noted += !strcmp(heed_model_note(model, i),
                         "vocab_size of config.json is 100, the embedding has 128 rows: these count");
    assert_int_equal(noted, 1);
    heed_model_close(model);
}

static void a_tensor_that_nobody_reads_is_refused(void **state)
{
    (void)state;
    changeable *c = take("llama");
    heed_model *model;
    c->tensor[c->tensors] = *named(c, "model.norm.weight");
    c->tensor[c->tensors++].name = "model.layers.0.self_attn.q_norm.weight";
    assert_int_equal(open_changed(c, &model), HEED_UNSUPPORTED);
    assert_non_null(strstr(heed_message(), "q_norm.weight is not understood"));
    assert_null(model);
}

static void wrong_shapes_and_types_are_refused(void **state)
{
    (void)state;
    changeable *c = take("llama");
    heed_model *model;
    heed_tensor *norm = &named(c, "model.norm.weight")->tensor;
    norm->shape[0] = 31;
    assert_int_equal(open_changed(c, &model), HEED_FORMAT);
    assert_non_null(strstr(heed_message(), "model.norm.weight is [31], it must be [32]"));
    c = take("llama");
    heed_tensor *embedding = &named(c, "model.embed_tokens.weight")->tensor;
    *embedding = heed_tensor_dense(embedding->data, HEED_F32, 2, (int64_t[]){256, 16});
    assert_int_equal(open_changed(c, &model), HEED_FORMAT);
    assert_non_null(strstr(heed_message(), "must be [256, 32]"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_matrix_gives_the_same_logits_however_it_is_stored),
        cmocka_unit_test(a_tie_flag_that_the_tensors_contradict_is_noted),
        cmocka_unit_test(what_changes_the_mathematics_and_is_not_understood_is_refused_by_name),
        cmocka_unit_test(facts_that_say_nothing_new_are_let_pass),
        cmocka_unit_test(facts_that_are_not_known_are_named),
        cmocka_unit_test(a_vocabulary_size_that_the_tensors_contradict_is_noted),
        cmocka_unit_test(a_tensor_that_nobody_reads_is_refused),
        cmocka_unit_test(wrong_shapes_and_types_are_refused),
    };
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
