#include "model/summary.h"
#include "model/carried.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* Where facts are looked for: the metadata of a GGUF file, or config.json with its text_config, if it has
 * one. */
typedef struct source {
    const heed_model_file *file;
    const char *prefix;
    const cJSON *config, *text_config;
} source;

static const heed_meta *find_meta(const source *from, const char *key)
{
    char name[200];
    snprintf(name, sizeof name, "%s.%s", from->prefix, key);
    return heed_model_file_meta(from->file, name);
}

static const cJSON *find_json(const source *from, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(from->config, key);
    return item ? item : cJSON_GetObjectItemCaseSensitive(from->text_config, key);
}

/* The names of a fact: a key in GGUF files, and in config.json one of two. */
static int64_t whole(const source *from, const char *gguf, const char *json, const char *other)
{
    const heed_meta *meta = find_meta(from, gguf);
    const cJSON *item = find_json(from, json);
    if (meta && meta->kind == HEED_META_INT && meta->whole > 0)
        return meta->whole;
    if (!cJSON_IsNumber(item) && other)
        item = find_json(from, other);
    if (cJSON_IsNumber(item) && item->valuedouble >= 1.0 && item->valuedouble < 1e15)
        return (int64_t)item->valuedouble;
    return 0;
}

static void copy_text(char *to, size_t size, const char *text)
{
    heed_printable(text, to, size);
}

static void find_names(source *from, heed_model_summary *summary)
{
    const heed_meta *architecture = heed_model_file_meta(from->file, "general.architecture");
    const heed_meta *name = heed_model_file_meta(from->file, "general.name");
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(from->config, "model_type");
    const cJSON *path = cJSON_GetObjectItemCaseSensitive(from->config, "_name_or_path");
    if (architecture && architecture->kind == HEED_META_TEXT)
        copy_text(summary->architecture, sizeof summary->architecture, architecture->text);
    else if (cJSON_IsString(type))
        copy_text(summary->architecture, sizeof summary->architecture, type->valuestring);
    if (name && name->kind == HEED_META_TEXT)
        copy_text(summary->name, sizeof summary->name, name->text);
    else if (cJSON_IsString(path))
        copy_text(summary->name, sizeof summary->name, path->valuestring);
    from->prefix = summary->architecture;
}

/* Key heads, which a GGUF file may give layer by layer; the sum over all layers. */
static double key_heads(const source *from, heed_model_summary *summary)
{
    const heed_meta *meta = find_meta(from, "attention.head_count_kv");
    double sum = 0.0;
    if (!meta || meta->kind != HEED_META_INTS) {
        summary->kv_heads = whole(from, "attention.head_count_kv", "num_key_value_heads", NULL);
        if (!summary->kv_heads)
            summary->kv_heads = summary->heads;
        summary->kv_heads_most = summary->kv_heads;
        return (double)summary->layers * (double)summary->kv_heads;
    }
    for (int64_t i = 0; i < meta->size; i++) {
        const int64_t heads = meta->wholes[i] > 0 ? meta->wholes[i] : 0;
        sum += (double)heads;
        if (i == 0 || heads < summary->kv_heads)
            summary->kv_heads = heads;
        if (heads > summary->kv_heads_most)
            summary->kv_heads_most = heads;
    }
    return sum;
}

static bool is_causal(const source *from, const heed_model_summary *summary)
{
    const heed_meta *causal = find_meta(from, "attention.causal");
    if (causal && causal->kind == HEED_META_BOOL)
        return causal->whole != 0;
    return !strstr(summary->architecture, "bert") && !strstr(summary->architecture, "encoder");
}

static void count_vocabulary(const source *from, heed_model_summary *summary)
{
    const heed_meta *tokens = heed_model_file_meta(from->file, "tokenizer.ggml.tokens");
    summary->vocabulary = whole(from, "vocab_size", "vocab_size", NULL);
    if (!summary->vocabulary && tokens && tokens->kind == HEED_META_TEXTS)
        summary->vocabulary = tokens->size;
}

/* The share of layers that keep keys and values. */
static double share_that_attends(const source *from, const heed_model_summary *summary)
{
    const cJSON *spec = find_json(from, "heed_attention");
    heed_config config = {.layers = summary->layers};
    int64_t attends = 0;
    if (!cJSON_IsString(spec) || strlen(spec->valuestring) >= sizeof config.attention ||
        summary->layers < 1 || summary->layers > HEED_MOST_LAYERS)
        return 1.0;
    strcpy(config.attention, spec->valuestring);
    for (int64_t l = 0; l < summary->layers; l++) {
        heed_carries carries;
        attends += heed_carries_of_layer(&config, l, &carries) || carries == HEED_CARRIES_NOTHING;
    }
    return (double)attends / (double)summary->layers;
}

static void find_sizes(const source *from, heed_model_summary *summary)
{
    summary->layers = whole(from, "block_count", "num_hidden_layers", "n_layer");
    summary->width = whole(from, "embedding_length", "hidden_size", "n_embd");
    summary->heads = whole(from, "attention.head_count", "num_attention_heads", "n_head");
    summary->feed_forward = whole(from, "feed_forward_length", "intermediate_size", "n_inner");
    summary->context = whole(from, "context_length", "max_position_embeddings", "n_positions");
    summary->window = whole(from, "attention.sliding_window", "sliding_window", NULL);
    summary->key_dim = whole(from, "attention.key_length", "head_dim", NULL);
    summary->value_dim = whole(from, "attention.value_length", "head_dim", NULL);
    if (!summary->key_dim && summary->heads)
        summary->key_dim = summary->width / summary->heads;
    if (!summary->value_dim)
        summary->value_dim = summary->key_dim;
    const double heads = key_heads(from, summary);
    summary->causal = is_causal(from, summary);
    if (summary->causal)
        summary->cache_values =
            share_that_attends(from, summary) * heads * (double)(summary->key_dim + summary->value_dim);
}

static double count_parameters(const heed_model_file *file)
{
    double sum = 0.0;
    for (int i = 0; i < heed_model_file_tensors(file); i++) {
        const heed_model_tensor *tensor = heed_model_file_tensor(file, i);
        double count = 1.0;
        for (int d = 0; d < tensor->rank; d++)
            count *= (double)tensor->shape[d];
        sum += count;
    }
    return sum;
}

void heed_summarise(const heed_model_file *file, heed_model_summary *summary)
{
    size_t size;
    const char *text = heed_model_file_text(file, "config.json", &size);
    cJSON *config = text ? cJSON_ParseWithLength(text, size) : NULL;
    source from = {file, "", config, cJSON_GetObjectItemCaseSensitive(config, "text_config")};
    *summary = (heed_model_summary){0};
    find_names(&from, summary);
    find_sizes(&from, summary);
    count_vocabulary(&from, summary);
    summary->parameters = count_parameters(file);
    cJSON_Delete(config);
}
