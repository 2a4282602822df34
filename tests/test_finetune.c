/* Going on from pretrained models: what learns and what stays, what is written, and that it is the model that
 * learned when a session reads it. */
#include "model/convert.h"
#include "model/safetensors.h"
#include "support/folder.h"
#include "support/small_models.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXT = 10, MOST = CONTEXT * 512 };

static char tokens[64], gguf[64];

static void ok(heed_status status)
{
    if (status)
        fail_msg("%s", heed_message());
}

static int make_files(void **state)
{
    (void)state;
    static int32_t token[600];
    const int64_t count[] = {600};
    if (test_folder_make(state))
        return -1;
    snprintf(tokens, sizeof tokens, "%s/tokens.safetensors", test_folder);
    snprintf(gguf, sizeof gguf, "%s/llama.gguf", test_folder);
    for (int i = 0; i < 600; i++)
        token[i] = (i * i + 3 * i) % 41;
    const heed_named_tensor tensor = {"tokens", heed_tensor_dense(token, HEED_I32, 1, count)};
    heed_model_file *file;
    heed_convert_report report;
    const heed_convert_options wishes = {.type = HEED_F32, .embedding = HEED_F32, .threads = 1};
    if (heed_safetensors_write(tokens, &tensor, 1, NULL) ||
        heed_model_file_open(&file, HEED_TEST_DATA "/golden/models/llama"))
        return -1;
    const heed_status status = heed_convert(file, gguf, &wishes, &report);
    heed_model_file_close(file);
    return (int)status;
}

static heed_trainer *start(const char *base, const char *extra)
{
    heed_train_config config;
    heed_trainer *trainer;
    char line[900];
    heed_train_config_start(&config);
    snprintf(line, sizeof line,
             "base = %s\nfile = %s\ncontext = %d\nbatch = 2\nsteps = 20\nwarmup = 1\nrate = 1e-2\n%s", base,
             tokens, CONTEXT, extra);
    ok(heed_train_config_read(&config, line, "test"));
    ok(heed_trainer_create(&trainer, &config, 1));
    return trainer;
}

static double steps(heed_trainer *trainer, int count)
{
    heed_train_report report = {.loss = 0.0};
    for (int i = 0; i < count; i++)
        ok(heed_trainer_step(trainer, &report));
    return report.loss;
}

/* Copies of all parameters. */
static float **copy_all(const heed_trainer *trainer)
{
    heed_parameters *all = heed_trainer_parameters(trainer);
    float **copy = calloc((size_t)heed_parameters_count(all), sizeof *copy);
    for (int i = 0; i < heed_parameters_count(all); i++) {
        const heed_parameter *p = heed_parameters_at(all, i);
        copy[i] = malloc((size_t)p->count * sizeof(float));
        memcpy(copy[i], p->value, (size_t)p->count * sizeof(float));
    }
    return copy;
}

/* Those that moved must be those whose name holds one of these words, and one of each. */
static void only_these_learn(const char *base, const char *extra, const char *const *words)
{
    heed_trainer *trainer = start(base, extra);
    heed_parameters *all = heed_trainer_parameters(trainer);
    float **before = copy_all(trainer);
    int moved_of[8] = {0};
    steps(trainer, 3);
    for (int i = 0; i < heed_parameters_count(all); i++) {
        const heed_parameter *p = heed_parameters_at(all, i);
        const bool moved = memcmp(before[i], p->value, (size_t)p->count * sizeof(float)) != 0;
        bool may = false;
        for (int w = 0; words[w]; w++)
            if (strstr(p->name, words[w])) {
                may = true;
                moved_of[w] += moved;
            }
        if (moved && !may)
            fail_msg("%s: %s has changed", extra, p->name);
        free(before[i]);
    }
    for (int w = 0; words[w]; w++)
        if (!moved_of[w])
            fail_msg("%s: no %s has changed", extra, words[w]);
    free(before);
    heed_trainer_free(trainer);
}

static void the_rest_stays_as_it_was(void **state)
{
    (void)state;
    const char *llama = HEED_TEST_DATA "/golden/models/llama", *gpt2 = HEED_TEST_DATA "/golden/models/gpt2";
    only_these_learn(llama, "", (const char *const[]){"proj", "norm", "embed_tokens", "lm_head", NULL});
    only_these_learn(llama, "learn = chosen\ntensors = mlp.down_proj *norm\n",
                     (const char *const[]){"down_proj", "layernorm", "model.norm", NULL});
    only_these_learn(
        llama, "learn = lora\nlora_targets = q_proj v_proj\nlora_rank = 2\n",
        (const char *const[]){"q_proj.lora_A", "q_proj.lora_B", "v_proj.lora_A", "v_proj.lora_B", NULL});
    only_these_learn(gpt2, "learn = lora\n",
                     (const char *const[]){"c_attn.lora_B", "c_proj.lora_B", "c_fc.lora_B", "lora_A", NULL});
    only_these_learn(gguf, "learn = forms\nattention = normalise=sink; position=t5 + rope\n",
                     (const char *const[]){"normalise.sink", "position.t5", NULL});
}

/* Logits of a session of what was written. */
static void session_logits(const char *path, const char *attention, const char *params, const int32_t *token,
                           float *to)
{
    heed_model *model;
    heed_session *session;
    ok(heed_model_open(&model, path, &(heed_model_options){.threads = 1, .exact = true}));
    ok(heed_session_create(&session, model,
                           &(heed_session_options){.context = CONTEXT,
                                                   .attention = attention,
                                                   .params = params,
                                                   .cache = HEED_F32,
                                                   .cache_given = true,
                                                   .threads = 1}));
    const heed_feed_item item = {.tokens = token, .count = CONTEXT};
    ok(heed_feed(session, &item, 1, &(heed_feed_wants){.logits = to, .all_logits = true}));
    heed_session_free(session);
    heed_model_close(model);
}

/* Trained, written and read again. */
static void written_as_it_learned(const char *base, const char *extra, const char *attention,
                                  const char *name)
{
    static float got[MOST], expected[MOST], untrained[MOST];
    int32_t token[CONTEXT];
    char path[200], params[200];
    const char *why;
    heed_trainer *trainer = start(base, extra);
    heed_parameters *all = heed_trainer_parameters(trainer);
    steps(trainer, 5);
    ok(heed_trainer_export(trainer, test_folder, &why));
    const heed_base *opened = heed_trainer_base(trainer);
    const heed_base_learn learn = heed_config_learn(heed_trainer_config(trainer));
    heed_transformer_nodes nodes = {
        .tokens = HEED_NO_INPUT, .segments = HEED_NO_INPUT, .places = HEED_NO_INPUT};
    heed_graph *graph;
    for (int i = 0; i < CONTEXT; i++)
        token[i] = (i * 5 + 1) % 41;
    ok(heed_graph_create(&graph, all, 1, HEED_ISA_AUTO));
    heed_base_make(graph, opened,
                   &(heed_base_use){.batch = 1, .context = CONTEXT, .attention = attention, .learn = &learn},
                   &nodes);
    heed_graph_keep(graph, nodes.logits);
    ok(heed_graph_finish(graph, HEED_NO_INPUT));
    memcpy(heed_graph_data(graph, nodes.tokens), token, sizeof token);
    heed_trainer_swap(trainer); /* what is written are averages, where there are any */
    ok(heed_graph_forward(graph));
    heed_trainer_swap(trainer);
    const int64_t count = CONTEXT * opened->config.vocabulary;
    assert_true(count <= MOST);
    memcpy(expected, heed_graph_data(graph, nodes.logits), (size_t)count * sizeof(float));
    snprintf(path, sizeof path, "%s%s", test_folder, name);
    snprintf(params, sizeof params, "%s/params.safetensors", test_folder);
    session_logits(learn.learn == HEED_LEARN_FORMS ? base : path, attention, attention ? params : NULL, token,
                   got);
    session_logits(base, NULL, NULL, token, untrained);
    const double off = farthest(got, expected, count), moved = farthest(untrained, expected, count);
    if (!(off < 2e-4 * (1.0 + moved)) || !(moved > 0.01))
        fail_msg("%s, %s: logits are off by %g, and have moved by %g", base, extra, off, moved);
    heed_graph_free(graph);
    heed_trainer_free(trainer);
    char command[200];
    snprintf(command, sizeof command, "cd %s && rm -f model.* adapter* params* *.json", test_folder);
    assert_int_equal(system(command), 0);
}

static void sessions_read_what_learned(void **state)
{
    (void)state;
    const char *llama = HEED_TEST_DATA "/golden/models/llama",
               *gemma = HEED_TEST_DATA "/golden/models/gemma3", *gpt2 = HEED_TEST_DATA "/golden/models/gpt2";
    const char *lora = "learn = lora\nlora_rank = 3\nlora_alpha = 12\n";
    written_as_it_learned(llama, "", NULL, "");
    written_as_it_learned(llama, lora, NULL, "");
    written_as_it_learned(llama, "average = 0.5\n", NULL, "");
    written_as_it_learned(gemma, "", NULL, "");
    written_as_it_learned(gemma, lora, NULL, "");
    written_as_it_learned(gpt2, lora, NULL, "");
    written_as_it_learned(gguf, "", NULL, "/model.gguf");
    written_as_it_learned(gguf, lora, NULL, "/model.gguf");
    written_as_it_learned(gguf, "learn = forms\nrate = 0.1\nattention = normalise=sink\n", "normalise=sink",
                          "");
    written_as_it_learned(llama, "attention = position=rope + t5\n", "position=rope + t5", "");
}

/* The layout of PEFT: names, shapes, and what adapter_config.json says. */
static void adapters_lie_as_peft_has_them(void **state)
{
    (void)state;
    const char *why;
    char path[100], text[2000];
    heed_safetensors *file;
    heed_trainer *trainer =
        start(HEED_TEST_DATA "/golden/models/llama",
              "learn = lora\nlora_rank = 2\nlora_targets = q_proj down_proj\nlora_write = adapter\n");
    steps(trainer, 2);
    ok(heed_trainer_export(trainer, test_folder, &why));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", test_folder);
    ok(heed_safetensors_open(&file, path));
    const heed_file_tensor *a = heed_safetensors_find(
                               file, "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight"),
                           *b = heed_safetensors_find(
                               file, "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight");
    const heed_config *c = &heed_trainer_base(trainer)->config;
    assert_non_null(a);
    assert_non_null(b);
    assert_true(a->shape[0] == 2 && a->shape[1] == c->feed_forward);
    assert_true(b->shape[0] == c->heads * c->head_dim && b->shape[1] == 2);
    assert_int_equal(heed_safetensors_count(file), 4 * c->layers);
    heed_safetensors_close(file);
    snprintf(path, sizeof path, "%s/adapter_config.json", test_folder);
    FILE *json = fopen(path, "r");
    text[fread(text, 1, sizeof text - 1, json)] = 0;
    fclose(json);
    assert_non_null(strstr(text, "\"peft_type\":\t\"LORA\""));
    assert_non_null(strstr(text, "\"r\":\t2"));
    assert_non_null(strstr(text, "\"lora_alpha\":\t16"));
    assert_non_null(strstr(text, "[\"q_proj\", \"down_proj\"]"));
    snprintf(path, sizeof path, "%s/model.safetensors", test_folder);
    assert_int_equal(access(path, F_OK), -1);
    heed_trainer_free(trainer);
}

static void runs_go_on_with_the_same_bits_and_base(void **state)
{
    (void)state;
    static const char *const kinds[] = {"learn = lora\n",
                                        "learn = chosen\ntensors = *down_proj\naverage = 0.9\n"};
    char path[100];
    snprintf(path, sizeof path, "%s/checkpoint.safetensors", test_folder);
    for (int k = 0; k < 2; k++) {
        heed_trainer *whole = start(HEED_TEST_DATA "/golden/models/llama", kinds[k]),
                     *parts = start(HEED_TEST_DATA "/golden/models/llama", kinds[k]);
        steps(whole, 6);
        steps(parts, 2);
        ok(heed_trainer_save(parts, path));
        heed_trainer_free(parts);
        parts = start(HEED_TEST_DATA "/golden/models/llama", kinds[k]);
        ok(heed_trainer_load(parts, path));
        steps(parts, 4);
        for (int i = 0; i < heed_trainer_tensors(whole); i++) {
            const heed_trainer_tensor a = heed_trainer_tensor_at(whole, i),
                                      b = heed_trainer_tensor_at(parts, i);
            assert_string_equal(a.name, b.name);
            size_t bytes;
            ok(heed_tensor_bytes(HEED_F32, a.rank, a.shape, &bytes));
            assert_memory_equal(a.data, b.data, bytes);
        }
        heed_trainer_free(whole);
        heed_trainer_free(parts);
    }
    heed_trainer *other = start(HEED_TEST_DATA "/golden/models/llama3", kinds[1]);
    assert_int_not_equal(heed_trainer_load(other, path), HEED_OK);
    heed_trainer_free(other);
}

/* The base expects exactly what it expects; a model that went astray comes back to its teacher. */
static void models_learn_from_their_teacher(void **state)
{
    (void)state;
    const char *llama = HEED_TEST_DATA "/golden/models/llama";
    heed_train_report report;
    heed_trainer *same = start(llama, "objective = distil\nlearn = lora\n");
    ok(heed_trainer_step(same, &report));
    assert_true(fabs(report.loss) < 1e-6);
    heed_trainer_free(same);
    heed_trainer *astray = start(llama, "objective = distil\ntemperature = 2\nrate = 3e-3\n");
    for (int i = 0; i < heed_parameters_count(heed_trainer_parameters(astray)); i++) {
        const heed_parameter *p = heed_parameters_at(heed_trainer_parameters(astray), i);
        for (int64_t j = 0; !p->frozen && j < p->count; j++)
            p->value[j] *= 1.0f + 0.3f * (float)((i + j) % 3 - 1);
    }
    ok(heed_trainer_step(astray, &report));
    const double before = report.loss;
    const double after = steps(astray, 19);
    if (!(before > 0.01 && after < 0.5 * before))
        fail_msg("divergence %g, then %g", before, after);
    heed_trainer_free(astray);
}

static void refused(const char *line, const char *words)
{
    heed_train_config config;
    heed_trainer *trainer = NULL;
    char text[700];
    heed_train_config_start(&config);
    snprintf(text, sizeof text, "file = %s\ncontext = %d\n%s", tokens, CONTEXT, line);
    ok(heed_train_config_read(&config, text, "test"));
    if (!heed_trainer_create(&trainer, &config, 1))
        fail_msg("%s: this was accepted", line);
    if (!strstr(heed_message(), words))
        fail_msg("%s: '%s' does not say '%s'", line, heed_message(), words);
}

#define LLAMA "base = " HEED_TEST_DATA "/golden/models/llama\n"

static void what_cannot_be_is_said(void **state)
{
    (void)state;
    refused(LLAMA "width = 32\n", "width: the model to go on from says that itself");
    refused(LLAMA "norm = layer\n", "norm: the model to go on from says that itself");
    refused("data = text\nlearn = lora\n", "learn needs a model to go on from");
    refused(LLAMA "learn = chosen\n", "tensors is missing");
    refused(LLAMA "learn = chosen\ntensors = dwn_proj\n", "dwn_proj fits no tensor of the model");
    refused(LLAMA "learn = lora\nlora_targets = *norm\n", "*norm fits no linear map");
    refused(LLAMA "learn = forms\n", "the loss depends on no parameter that may change");
    refused(LLAMA "attention = where=windo(3)\n", "windo");
    refused("base = /nowhere/model.gguf\n", "/nowhere/model.gguf");
    refused("base = " HEED_TEST_DATA "/golden/models/bert\n", "give no logits");
    refused("data = text\nobjective = distil\n", "teacher is missing");
    refused(LLAMA "params = /nowhere/p.safetensors\n", "/nowhere/p.safetensors");
    refused("base = " HEED_TEST_DATA "/golden/models/gpt2\nheld_out = 0.3\ncontext = 100\n", "positions");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rest_stays_as_it_was),
        cmocka_unit_test(sessions_read_what_learned),
        cmocka_unit_test(adapters_lie_as_peft_has_them),
        cmocka_unit_test(runs_go_on_with_the_same_bits_and_base),
        cmocka_unit_test(models_learn_from_their_teacher),
        cmocka_unit_test(what_cannot_be_is_said),
    };
    return cmocka_run_group_tests(tests, make_files, test_folder_remove);
}
