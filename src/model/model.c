/* Opening a model: file, facts, architecture, weights, tokeniser. */
#include "base/clock.h"
#include "base/cpu.h"
#include "base/try.h"
#include "model/weights.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void heed_model_add_note(heed_model *model, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (model->notes < HEED_MOST_NOTES && (model->note[model->notes] = strdup(text)))
        model->notes++;
}

static heed_status check_config(const heed_config *c)
{
    const struct {
        const char *name;
        int64_t size, most;
    } sizes[] = {{"the feed-forward size", c->feed_forward, 1 << 24},
                 {"the number of kv heads", c->kv_heads, 1 << 16},
                 {"the size of a head", c->head_dim, 1 << 12},
                 {"the window", c->window + 1, 1 << 30}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].size < 1 || sizes[i].size > sizes[i].most)
            return heed_fail(HEED_FORMAT, "%s is %lld, it must be 1 to %lld", sizes[i].name,
                             (long long)sizes[i].size, (long long)sizes[i].most);
    if (c->heads % c->kv_heads != 0)
        return heed_fail(HEED_FORMAT, "the model has %lld heads, which is no multiple of its %lld kv heads",
                         (long long)c->heads, (long long)c->kv_heads);
    if (!(c->eps >= 0.0 && c->eps < 1.0))
        return heed_fail(HEED_FORMAT, "the epsilon of norms is %g, it must be 0 to 1", c->eps);
    if (!(fabs(c->score_scale) < 1e6 && c->score_cap >= 0.0 && c->logit_cap >= 0.0))
        return heed_fail(HEED_FORMAT, "scores are scaled by %g and capped at %g, logits at %g: no such model",
                         c->score_scale, c->score_cap, c->logit_cap);
    return HEED_OK;
}

static heed_status read_config(heed_model *model, heed_facts *facts, const heed_architecture *architecture)
{
    model->config = (heed_config){.architecture = architecture->name,
                                  .gated = true,
                                  .embedding_scale = 1.0,
                                  .causal = true,
                                  .generates = true,
                                  .eps = 1e-6};
    TRY(architecture->read(&model->config, facts));
    TRY(heed_facts_all_read(facts));
    char unknown[400];
    if (heed_facts_unknown(facts, unknown, sizeof unknown))
        heed_model_add_note(model, "config.json: not known here, and taken to change nothing: %s", unknown);
    return check_config(&model->config);
}

/* "general.name", or the last part of the path. */
static void name_it(heed_model *model)
{
    const heed_meta *meta = heed_model_file_meta(model->file, "general.name");
    const char *path = heed_model_file_path(model->file);
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t first = length;
    while (first > 0 && path[first - 1] != '/')
        first--;
    if (meta && meta->kind == HEED_META_TEXT)
        snprintf(model->name, sizeof model->name, "%s", meta->text);
    else
        snprintf(model->name, sizeof model->name, "%.*s", (int)(length - first), path + first);
}

/* The products of the first layer and of the output, each once. */
static void list_kernels(heed_model *model)
{
    const heed_layer *layer = &model->layer[0];
    const heed_linear *linear[] = {&layer->query_key_value, &layer->attention_output, &layer->up,
                                   &layer->down, &model->output};
    for (size_t i = 0; i < sizeof linear / sizeof *linear; i++) {
        const char *kernel = linear[i]->matrix ? heed_matrix_kernel(linear[i]->matrix) : "";
        const size_t used = strlen(model->kernels);
        if (!strstr(model->kernels, kernel))
            snprintf(model->kernels + used, sizeof model->kernels - used, "%s%s", used ? "; " : "", kernel);
    }
}

/* A model without tokeniser can still be fed tokens. */
static heed_status load_tokenizer(heed_model *model, const char *path)
{
    const heed_status status = heed_tokenizer_load(&model->tokenizer, path);
    if (status == HEED_OK) {
        const int32_t size = heed_tokenizer_size(model->tokenizer);
        if (size > model->config.vocabulary)
            heed_model_add_note(model, "the tokeniser has %d tokens, the embedding rows for only %lld",
                                (int)size, (long long)model->config.vocabulary);
        return HEED_OK;
    }
    model->tokenizer = NULL;
    if (status == HEED_NO_MEMORY)
        return status;
    heed_model_add_note(model, "no tokeniser: %s", heed_message());
    return HEED_OK;
}

static int64_t number_of(heed_facts *facts, const char *gguf, const char *json)
{
    const cJSON *item = heed_fact_json(facts, json);
    const heed_meta *meta = heed_fact_meta(facts, gguf);
    if (item && cJSON_IsNumber(item) && fabs(item->valuedouble) < 9e15)
        return (int64_t)item->valuedouble;
    return meta && meta->kind == HEED_META_INT ? meta->whole : -1;
}

/* Notes on what config.json, or the metadata, says otherwise than the tensors and the tokeniser. */
static heed_status note_contradictions(heed_model *model)
{
    heed_facts facts;
    const long long rows = model->config.vocabulary;
    TRY(heed_facts_open(&facts, model->file));
    const long long named = number_of(&facts, "vocab_size", "vocab_size"),
                    bos = number_of(&facts, NULL, "bos_token_id"),
                    eos = number_of(&facts, NULL, "eos_token_id");
    const char *where = facts.config ? "config.json" : "the metadata";
    if (named >= 0 && named != rows)
        heed_model_add_note(model, "vocab_size of %s is %lld, the embedding has %lld rows: these count",
                            where, named, rows);
    if (model->tokenizer) {
        const heed_special_tokens special = heed_tokenizer_special(model->tokenizer);
        if (bos >= 0 && special.bos >= 0 && bos != special.bos)
            heed_model_add_note(
                model, "bos_token_id of %s is %lld, the tokeniser begins texts with %d: so it is done", where,
                bos, (int)special.bos);
        if (eos >= 0 && special.eos >= 0 && eos != special.eos)
            heed_model_add_note(model,
                                "eos_token_id of %s is %lld, the tokeniser's %d: either ends an answer",
                                where, eos, (int)special.eos);
    }
    heed_facts_close(&facts);
    return HEED_OK;
}

static void give_back(void *context, const void *data, size_t bytes)
{
    heed_model_file_release_bytes(context, data, bytes);
}

static heed_status open_model(heed_model *model, const char *path)
{
    const heed_architecture *architecture;
    heed_facts facts;
    TRY(heed_model_file_open(&model->file, path));
    for (int i = 0; i < heed_model_file_notes(model->file); i++)
        heed_model_add_note(model, "%s", heed_model_file_note(model->file, i));
    heed_status status = heed_facts_open(&facts, model->file);
    if (!status)
        status = heed_architecture_find(facts.architecture, &architecture);
    if (!status)
        status = read_config(model, &facts, architecture);
    heed_facts_close(&facts);
    if (status)
        return status;
    const double start = heed_seconds();
    TRY(heed_matrix_pool_create(&model->packing.pool, give_back, model->file));
    TRY(heed_weights_load(model, architecture));
    model->pack_seconds = heed_seconds() - start;
    name_it(model);
    list_kernels(model);
    TRY(heed_pooling_read(model));
    TRY(load_tokenizer(model, path));
    return note_contradictions(model);
}

heed_status heed_model_open(heed_model **out, const char *path, const heed_model_options *options)
{
    static const heed_model_options none = {.exact = false};
    if (!out || !path)
        return heed_fail(HEED_INVALID, "a model and a path are needed");
    *out = NULL;
    options = options ? options : &none;
    heed_isa isa;
    TRY(heed_isa_resolve(options->isa, &isa));
    heed_model *model = calloc(1, sizeof *model);
    if (!model)
        return heed_fail(HEED_NO_MEMORY, "no memory for a model");
    model->isa = isa;
    model->rows = heed_rows_of(isa);
    model->packing =
        (heed_packing){.kind = options->exact ? HEED_PRODUCT_EXACT : HEED_PRODUCT_FAST,
                       .isa = isa,
                       .threads = options->threads > 0 ? options->threads : heed_cpu_physical_cores()};
    const heed_status status = open_model(model, path);
    if (status) {
        heed_model_close(model);
        return status;
    }
    *out = model;
    return HEED_OK;
}

void heed_model_close(heed_model *model)
{
    if (!model)
        return;
    heed_weights_free(model);
    heed_matrix_pool_free(model->packing.pool);
    heed_tokenizer_free(model->tokenizer);
    heed_model_file_close(model->file);
    for (int i = 0; i < model->notes; i++)
        free(model->note[i]);
    free(model);
}

void heed_model_get_info(const heed_model *model, heed_model_info *info)
{
    const heed_config *c = &model->config;
    *info = (heed_model_info){.architecture = c->architecture,
                              .name = model->name,
                              .layers = c->layers,
                              .width = c->width,
                              .heads = c->heads,
                              .kv_heads = c->kv_heads,
                              .head_dim = c->head_dim,
                              .feed_forward = c->feed_forward,
                              .vocabulary = c->vocabulary,
                              .context = c->context,
                              .parameters = model->parameters,
                              .file_bytes = heed_model_file_bytes(model->file),
                              .packed_bytes = model->packed_bytes,
                              .pack_seconds = model->pack_seconds,
                              .generates = c->generates,
                              .causal = c->causal,
                              .kernels = model->kernels,
                              .pooling = model->pooling,
                              .embed_tokens = model->embed_tokens};
}

const heed_tokenizer *heed_model_tokenizer(const heed_model *model)
{
    return model->tokenizer;
}

int heed_model_notes(const heed_model *model)
{
    return model->notes;
}

const char *heed_model_note(const heed_model *model, int i)
{
    return i >= 0 && i < model->notes ? model->note[i] : NULL;
}

heed_status heed_model_attention(const heed_model *model, int64_t layer, char *text, size_t size)
{
    if (!model || layer < 0 || layer >= model->config.layers)
        return heed_fail(HEED_INVALID, "there is no layer %lld", (long long)layer);
    return heed_config_attention(&model->config, layer, text, size);
}

bool heed_model_attends(const heed_model *model, int64_t layer)
{
    return model && layer >= 0 && layer < model->config.layers &&
           model->carries[layer] == HEED_CARRIES_NOTHING;
}
