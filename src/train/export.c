/* A trained model as a folder that other programs read: model.safetensors, and for models of the llama and
 * qwen3 architectures config.json and the tokeniser. */
#include "base/output.h"
#include "base/try.h"
#include "model/attention.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "train/base.h"
#include "train/trained.h"
#include "train/trainer.h"

#include <heed/attend.h>
#include <heed/scan.h>

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPEC = 2048 };

/* "model.layers.3.self_attn.normalise.sink.sink" is a form's parameter, of layer 3; NULL: it is none. */
static const char *form_parameter(const char *name, long long *layer)
{
    static const char before[] = "model.layers.", within[] = ".self_attn.";
    char *end;
    if (strncmp(name, before, strlen(before)) != 0)
        return NULL;
    *layer = strtoll(name + strlen(before), &end, 10);
    if (strncmp(end, within, strlen(within)) != 0)
        return NULL;
    for (int stage = 0; stage < HEED_STAGES; stage++) {
        const char *stage_name = heed_stage_name((heed_stage)stage);
        const size_t length = strlen(stage_name);
        if (!strncmp(end + strlen(within), stage_name, length) && end[strlen(within) + length] == '.')
            return end + strlen(within);
    }
    return NULL;
}

/* Parameters of forms lie beside the model, as --params takes them. */
static heed_status write_forms(heed_trainer *trainer, const char *folder)
{
    int count;
    heed_trainer_swap(trainer);
    const heed_status status =
        heed_forms_write(heed_trainer_parameters(trainer), form_parameter, folder, &count);
    heed_trainer_swap(trainer);
    return status;
}

/* `apart`: parameters of forms go elsewhere. */
static heed_status write_weights(heed_trainer *trainer, const char *folder, bool apart)
{
    char path[HEED_TRAIN_PATH];
    heed_parameters *parameters = heed_trainer_parameters(trainer);
    const int count = heed_parameters_count(parameters);
    static const char *const metadata[] = {"format", "pt", NULL};
    TRY(heed_train_path(path, folder, "model.safetensors"));
    heed_named_tensor *named = calloc((size_t)count + 1, sizeof *named);
    if (!named)
        return heed_fail(HEED_NO_MEMORY, "%s: no memory to write it", path);
    int written = 0;
    for (int i = 0; i < count; i++) {
        const heed_parameter *p = heed_parameters_at(parameters, i);
        long long layer;
        if (!apart || !form_parameter(p->name, &layer))
            named[written++] =
                (heed_named_tensor){p->name, heed_tensor_dense(p->value, HEED_F32, p->rank, p->shape)};
    }
    heed_trainer_swap(trainer);
    const heed_status status = heed_safetensors_write(path, named, written, metadata);
    heed_trainer_swap(trainer);
    free(named);
    return status;
}

static heed_status write_json(const char *folder, const char *name, cJSON *root)
{
    char path[HEED_TRAIN_PATH];
    char *text = root ? cJSON_Print(root) : NULL;
    heed_output output = {.descriptor = -1};
    cJSON_Delete(root);
    if (!text)
        return heed_fail(HEED_NO_MEMORY, "%s/%s: no memory to write it", folder, name);
    heed_status status = heed_train_path(path, folder, name);
    if (!status)
        status = heed_output_open(&output, path);
    if (!status)
        status = heed_output_write(&output, text, strlen(text));
    free(text);
    return heed_output_close(&output, status);
}

/* What config.json says of attention: rope of some base, causal, perhaps a window. */
typedef struct plain_attention {
    double base;
    long long window;
    const char *spec; /* what else it is; "": no more than that */
} plain_attention;

static double number_behind(const char *text, const char *word, double otherwise)
{
    const char *at = strstr(text, word);
    return at ? strtod(at + strlen(word), NULL) : otherwise;
}

/* Whether a spec is that: written out from its numbers, it must be the same spec. */
static bool is_plain(const char *spec, plain_attention *plain)
{
    char given[SPEC], made[SPEC], text[200];
    if (heed_spec_canonical(spec, NULL, given, sizeof given))
        return false;
    plain->base = number_behind(given, "base=", 10000.0);
    plain->window = (long long)number_behind(given, "window(w=", 0.0);
    if (plain->window > 0)
        snprintf(text, sizeof text, "position=rope(base=%.17g); where=causal & window(%lld)", plain->base,
                 plain->window);
    else
        snprintf(text, sizeof text, "position=rope(base=%.17g); where=causal", plain->base);
    return !heed_spec_canonical(text, NULL, made, sizeof made) && !strcmp(given, made);
}

/* Whether a session can run a layer: what it has to be given token by token, it cannot. */
static const char *why_not_layer(const char *spec, int64_t layer)
{
    static const struct {
        const char *word, *why;
    } words[] = {{"segments", "its attention wants segments"},
                 {"mask", "its attention wants a mask"},
                 {"read=gate", "its attention wants a gate"}};
    char given[SPEC];
    heed_scan_facts facts;
    heed_form_state form;
    char rest[HEED_LAYER_REST];
    if (heed_scan_of_layer(spec, NULL, layer, &facts) || heed_layer_of_spec(spec, layer, &form, rest) ||
        heed_attention_of_layer("score=dot", spec, NULL, layer, given, sizeof given))
        return "its attention is too long to be said";
    if (facts.scans)
        return NULL;
    if (form.form && form.form->stage == HEED_LOWRANK)
        return "its attention looks both ways";
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(given, words[i].word))
            return words[i].why;
    if (form.form && !form.form->layer->attends)
        return strstr(given, "causal=no") ? "its attention looks both ways" : NULL;
    return strstr(given, "where=causal") || strstr(given, "causal &") || strstr(given, "& causal")
               ? NULL
               : "its attention looks both ways";
}

static const char *why_not_attend(const heed_transformer *model)
{
    const char *why = NULL;
    for (int64_t l = 0; l < model->layers && !why; l++)
        why = why_not_layer(model->spec, l);
    return why;
}

static const char *why_not(const heed_trainer *trainer, plain_attention *plain)
{
    const heed_transformer *model = heed_trainer_model(trainer);
    if (!heed_objective_says_next(heed_trainer_data(trainer)->objective))
        return "it does not say the next token";
    if (model->encoder_layers > 0)
        return "it has an encoder";
    plain->spec = "";
    if (!is_plain(model->spec, plain)) {
        const char *sentence = why_not_attend(model);
        if (sentence)
            return sentence;
        if (strlen(model->spec) >= HEED_OWN_ATTENTION)
            return "its attention is too long to be said";
        *plain = (plain_attention){.base = 10000.0, .spec = model->spec};
    }
    if (model->norm != HEED_LAYER_RMS || model->after)
        return "its norms are not RMS norms before the layers";
    if (!model->gated || model->function != HEED_FN_SILU)
        return "its feed-forward layers are not swiglu";
    if (model->bias || model->positions != HEED_POSITIONS_NONE)
        return "it has biases or learned positions";
    if (model->kv_every > 1 || model->shortcuts)
        return "its layers share keys and values, or its last state asks all layers";
    return NULL;
}

static heed_status write_config(const heed_trainer *trainer, const char *folder, const plain_attention *plain)
{
    const heed_transformer *m = heed_trainer_model(trainer);
    cJSON *root = cJSON_CreateObject();
    const char *const names[] = {m->qk_norm      ? "Qwen3ForCausalLM"
                                 : plain->window ? "MistralForCausalLM"
                                                 : "LlamaForCausalLM"};
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"vocab_size", (double)m->vocabulary},     {"hidden_size", (double)m->width},
                   {"intermediate_size", (double)m->hidden},  {"num_hidden_layers", (double)m->layers},
                   {"num_attention_heads", (double)m->heads}, {"num_key_value_heads", (double)m->kv_heads},
                   {"head_dim", (double)m->head_dim},         {"max_position_embeddings", (double)m->context},
                   {"rms_norm_eps", (double)m->norm_eps},     {"rope_theta", plain->base}};
    cJSON_AddItemToObject(root, "architectures", cJSON_CreateStringArray(names, 1));
    cJSON_AddStringToObject(root, "model_type", m->qk_norm ? "qwen3" : plain->window ? "mistral" : "llama");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cJSON_AddNumberToObject(root, numbers[i].name, numbers[i].value);
    if (plain->window)
        cJSON_AddNumberToObject(root, "sliding_window", (double)plain->window);
    cJSON_AddStringToObject(root, "hidden_act", "silu");
    cJSON_AddStringToObject(root, "dtype", "float32");
    cJSON_AddBoolToObject(root, "tie_word_embeddings", m->tied);
    cJSON_AddBoolToObject(root, "attention_bias", false);
    if (*plain->spec)
        cJSON_AddStringToObject(root, "heed_attention", plain->spec);
    if (!m->qk_norm)
        cJSON_AddBoolToObject(root, "mlp_bias", false);
    return write_json(folder, "config.json", root);
}

/* How byte-level vocabularies write a byte: printable ones of Latin-1 as they are, the others from U+0100 on.
 */
static uint32_t letter_of(int byte, int *others)
{
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    return printable ? (uint32_t)byte : 256u + (uint32_t)(*others)++;
}

/* A tokeniser of 256 bytes: byte-level BPE without merges. */
static heed_status write_bytes_tokenizer(const char *folder)
{
    cJSON *root = cJSON_CreateObject(), *vocabulary = cJSON_CreateObject();
    int others = 0;
    for (int byte = 0; byte < 256; byte++) {
        char letter[8];
        const uint32_t code = letter_of(byte, &others);
        /* of at most U+0143: one byte, or two */
        if (code < 0x80)
            snprintf(letter, sizeof letter, "%c", (int)code);
        else
            snprintf(letter, sizeof letter, "%c%c", (int)(0xC0 | code >> 6), (int)(0x80 | (code & 0x3F)));
        cJSON_AddNumberToObject(vocabulary, letter, byte);
    }
    static const char text[] =
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}";
    cJSON_AddStringToObject(root, "version", "1.0");
    cJSON_AddItemToObject(root, "added_tokens", cJSON_CreateArray());
    cJSON_AddItemToObject(root, "normalizer", cJSON_CreateNull());
    cJSON_AddItemToObject(root, "pre_tokenizer", cJSON_Parse(text));
    cJSON_AddItemToObject(root, "post_processor", cJSON_CreateNull());
    cJSON_AddItemToObject(root, "decoder", cJSON_Parse(text));
    cJSON *model = cJSON_AddObjectToObject(root, "model");
    cJSON_AddStringToObject(model, "type", "BPE");
    cJSON_AddItemToObject(model, "vocab", vocabulary);
    cJSON_AddItemToObject(model, "merges", cJSON_CreateArray());
    return write_json(folder, "tokenizer.json", root);
}

/* tokenizer.json of a folder, or such a file itself. */
static heed_status copy_tokenizer(const char *from, const char *folder)
{
    char path[HEED_TRAIN_PATH], to[HEED_TRAIN_PATH], buffer[1 << 14];
    const size_t length = strlen(from);
    const bool is_file = length > 5 && !strcmp(from + length - 5, ".json");
    heed_output output = {.descriptor = -1};
    TRY(is_file ? heed_train_path(path, from, "") : heed_train_path(path, from, "tokenizer.json"));
    if (is_file)
        path[length] = 0;
    TRY(heed_train_path(to, folder, "tokenizer.json"));
    FILE *file = fopen(path, "rb");
    if (!file)
        return heed_fail(HEED_IO, "%s: there is no tokenizer.json to copy beside the model", from);
    heed_status status = heed_output_open(&output, to);
    for (size_t got; !status && (got = fread(buffer, 1, sizeof buffer, file)) > 0;)
        status = heed_output_write(&output, buffer, got);
    fclose(file);
    return heed_output_close(&output, status);
}

/* A model that went on from another is written as that lies on disk. */
static heed_status export_base(heed_trainer *trainer, const char *folder)
{
    const heed_train_config *config = heed_trainer_config(trainer);
    const heed_base *base = heed_trainer_base(trainer);
    heed_parameters *parameters = heed_trainer_parameters(trainer);
    const heed_base_learn learn = heed_config_learn(config);
    const bool lora = learn.learn == HEED_LEARN_LORA;
    int forms;
    heed_status status = HEED_OK;
    heed_trainer_swap(trainer);
    if (lora && config->lora_write != HEED_LORA_MERGED)
        status = heed_lora_write(base, parameters, &learn, folder);
    if (!status && learn.learn != HEED_LEARN_FORMS && !(lora && config->lora_write == HEED_LORA_ADAPTER))
        status = heed_base_write(base, parameters, &learn, folder);
    if (!status)
        status = heed_forms_write(parameters, heed_base_form_parameter, folder, &forms);
    heed_trainer_swap(trainer);
    return status;
}

heed_status heed_trainer_export(heed_trainer *trainer, const char *folder, const char **why)
{
    plain_attention plain;
    if (heed_trainer_base(trainer)) {
        *why = NULL;
        return export_base(trainer, folder);
    }
    const heed_train_config *config = heed_trainer_config(trainer);
    *why = why_not(trainer, &plain);
    TRY(write_weights(trainer, folder, !*why));
    if (heed_trained_has(trainer))
        TRY(heed_trained_write(trainer, folder));
    if (*why)
        return heed_trained_has(trainer) && !*config->image && strcmp(config->tokenizer, "bytes") != 0
                   ? copy_tokenizer(config->tokenizer, folder)
                   : HEED_OK;
    TRY(write_forms(trainer, folder));
    TRY(write_config(trainer, folder, &plain));
    if (strcmp(config->data, "text")) {
        *why = "its tokens are not text";
        return HEED_OK;
    }
    if (!strcmp(config->tokenizer, "bytes"))
        return write_bytes_tokenizer(folder);
    return copy_tokenizer(config->tokenizer, folder);
}
