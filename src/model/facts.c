#include "model/facts.h"
#include "attend/spec_reader.h"
#include "base/try.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEY_SIZE = 160 };

static heed_status open_gguf(heed_facts *facts)
{
    const heed_meta *name = heed_model_file_meta(facts->file, "general.architecture");
    if (!name || name->kind != HEED_META_TEXT)
        return heed_fail(HEED_FORMAT, "%s does not say which architecture it is (general.architecture)",
                         heed_model_file_path(facts->file));
    if (name->size < 1 || (size_t)name->size >= sizeof facts->architecture ||
        strlen(name->text) != (size_t)name->size)
        return heed_fail(HEED_FORMAT, "%s: general.architecture is no name",
                         heed_model_file_path(facts->file));
    memcpy(facts->architecture, name->text, (size_t)name->size + 1);
    return HEED_OK;
}

static heed_status open_config(heed_facts *facts)
{
    size_t size = 0;
    const char *path = heed_model_file_path(facts->file);
    const char *text = heed_model_file_text(facts->file, "config.json", &size);
    if (!text)
        return heed_fail(HEED_FORMAT,
                         "%s: there is no config.json beside the weights, so the architecture is not known",
                         path);
    facts->config = cJSON_ParseWithLength(text, size);
    if (!cJSON_IsObject(facts->config))
        return heed_fail(HEED_FORMAT, "%s: config.json is no JSON object", path);
    const cJSON *type = heed_fact_json(facts, "model_type");
    if (!cJSON_IsString(type) || strlen(type->valuestring) >= sizeof facts->architecture)
        return heed_fail(HEED_FORMAT, "%s: config.json has no model_type, which names the architecture",
                         path);
    strcpy(facts->architecture, type->valuestring);
    return HEED_OK;
}

heed_status heed_facts_open(heed_facts *facts, const heed_model_file *file)
{
    *facts = (heed_facts){.file = file};
    return heed_model_file_format(file) == HEED_FORMAT_GGUF ? open_gguf(facts) : open_config(facts);
}

void heed_facts_close(heed_facts *facts)
{
    cJSON_Delete(facts->config);
    facts->config = NULL;
}

static void mark(heed_facts *facts, const char *key)
{
    for (int i = 0; i < facts->uses; i++)
        if (!strcmp(facts->used[i], key))
            return;
    if (facts->uses < HEED_MOST_FACTS)
        facts->used[facts->uses++] = key;
}

static bool is_marked(const heed_facts *facts, const char *key)
{
    for (int i = 0; i < facts->uses; i++)
        if (!strcmp(facts->used[i], key))
            return true;
    return false;
}

const cJSON *heed_fact_json(heed_facts *facts, const char *json)
{
    const cJSON *value = facts->config && json ? cJSON_GetObjectItemCaseSensitive(facts->config, json) : NULL;
    if (!value)
        return NULL;
    mark(facts, value->string);
    return cJSON_IsNull(value) ? NULL : value;
}

const heed_meta *heed_fact_meta(heed_facts *facts, const char *gguf)
{
    char key[KEY_SIZE];
    if (facts->config || !gguf)
        return NULL;
    snprintf(key, sizeof key, "%s.%s", facts->architecture, gguf);
    const heed_meta *meta = heed_model_file_meta(facts->file, key);
    if (meta)
        mark(facts, meta->key);
    return meta;
}

const char *heed_fact_key(const heed_facts *facts, const char *gguf, const char *json, char *text,
                          size_t size)
{
    if (facts->config)
        snprintf(text, size, "config.json: %s", json ? json : "?");
    else
        snprintf(text, size, "%s.%s", facts->architecture, gguf ? gguf : "?");
    return text;
}

static heed_status wrong_kind(const heed_facts *facts, const char *gguf, const char *json, const char *what)
{
    char key[KEY_SIZE];
    return heed_fail(HEED_FORMAT, "%s must be %s", heed_fact_key(facts, gguf, json, key, sizeof key), what);
}

/* Lists by layer are numbers when they agree. */
static bool same_whole(const heed_meta *meta, int64_t *value)
{
    if (meta->kind == HEED_META_INT) {
        *value = meta->whole;
        return true;
    }
    if (meta->kind != HEED_META_INTS || meta->size < 1)
        return false;
    for (int64_t i = 1; i < meta->size; i++)
        if (meta->wholes[i] != meta->wholes[0])
            return false;
    *value = meta->wholes[0];
    return true;
}

heed_status heed_fact_whole(heed_facts *facts, const char *gguf, const char *json, int64_t *value)
{
    const cJSON *item = heed_fact_json(facts, json);
    const heed_meta *meta = heed_fact_meta(facts, gguf);
    if (item) {
        const double number = item->valuedouble;
        if (!cJSON_IsNumber(item) || number != floor(number) || fabs(number) > 9e15)
            return wrong_kind(facts, gguf, json, "a whole number");
        *value = (int64_t)number;
    } else if (meta && !same_whole(meta, value)) {
        return wrong_kind(facts, gguf, json, "one whole number, the same for all layers");
    }
    return HEED_OK;
}

heed_status heed_fact_number(heed_facts *facts, const char *gguf, const char *json, double *value)
{
    const cJSON *item = heed_fact_json(facts, json);
    const heed_meta *meta = heed_fact_meta(facts, gguf);
    if ((item && !cJSON_IsNumber(item)) ||
        (meta && meta->kind != HEED_META_FLOAT && meta->kind != HEED_META_INT))
        return wrong_kind(facts, gguf, json, "a number");
    *value = item ? item->valuedouble : meta ? meta->number : *value;
    return isfinite(*value) ? HEED_OK : wrong_kind(facts, gguf, json, "a finite number");
}

heed_status heed_fact_bool(heed_facts *facts, const char *gguf, const char *json, bool *value)
{
    const cJSON *item = heed_fact_json(facts, json);
    const heed_meta *meta = heed_fact_meta(facts, gguf);
    if ((item && !cJSON_IsBool(item)) ||
        (meta && meta->kind != HEED_META_BOOL && meta->kind != HEED_META_INT))
        return wrong_kind(facts, gguf, json, "true or false");
    *value = item ? cJSON_IsTrue(item) : meta ? meta->whole != 0 : *value;
    return HEED_OK;
}

heed_status heed_fact_text(heed_facts *facts, const char *gguf, const char *json, const char **value)
{
    const cJSON *item = heed_fact_json(facts, json);
    const heed_meta *meta = heed_fact_meta(facts, gguf);
    if ((item && !cJSON_IsString(item)) || (meta && meta->kind != HEED_META_TEXT))
        return wrong_kind(facts, gguf, json, "a text");
    *value = item ? item->valuestring : meta ? meta->text : *value;
    return HEED_OK;
}

heed_status heed_fact_size(heed_facts *facts, const char *gguf, const char *json, int64_t least, int64_t most,
                           int64_t *value)
{
    char key[KEY_SIZE];
    *value = INT64_MIN;
    TRY(heed_fact_whole(facts, gguf, json, value));
    heed_fact_key(facts, gguf, json, key, sizeof key);
    if (*value == INT64_MIN)
        return heed_fail(HEED_FORMAT, "%s is missing", key);
    if (*value < least || *value > most)
        return heed_fail(HEED_FORMAT, "%s is %lld, it must be %lld to %lld", key, (long long)*value,
                         (long long)least, (long long)most);
    return HEED_OK;
}

heed_status heed_fact_must_be(heed_facts *facts, const char *gguf, const char *json, const char *value)
{
    char key[KEY_SIZE], text[64] = "";
    const cJSON *item = heed_fact_json(facts, json);
    const heed_meta *meta = heed_fact_meta(facts, gguf);
    if (!item && !meta)
        return HEED_OK;
    if (item && cJSON_IsString(item))
        snprintf(text, sizeof text, "%s", item->valuestring);
    else if (item && cJSON_IsBool(item))
        snprintf(text, sizeof text, "%s", cJSON_IsTrue(item) ? "true" : "false");
    else if (item && cJSON_IsNumber(item))
        snprintf(text, sizeof text, "%g", item->valuedouble);
    else if (meta && meta->kind == HEED_META_TEXT)
        snprintf(text, sizeof text, "%s", meta->text);
    else if (meta && meta->kind == HEED_META_BOOL)
        snprintf(text, sizeof text, "%s", meta->whole ? "true" : "false");
    else if (meta)
        snprintf(text, sizeof text, "%g", meta->number);
    if (strcmp(text, value))
        return heed_fail(HEED_UNSUPPORTED, "%s is '%s', which heed cannot run; it can run '%s'",
                         heed_fact_key(facts, gguf, json, key, sizeof key), text, value);
    return HEED_OK;
}

/* Facts that change nothing about what the model computes from tokens. */
static const char *const harmless[] = {
    "rope.scaling.finetuned",
    "vocab_size",
    "model_type",
    "architectures",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "use_cache",
    "initializer_range",
    "initializer_factor",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "hidden_dropout_prob",
    "hidden_dropout",
    "attn_pdrop",
    "embd_pdrop",
    "resid_pdrop",
    "classifier_dropout",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "cache_implementation",
    "_name_or_path",
    "pretraining_tp",
    "gradient_checkpointing",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "cls_token_id",
    "unk_token_id",
    "tokenizer_class",
    "task_specific_params",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "id2label",
    "label2id",
    "reorder_and_upcast_attn",
    "auto_map",
    "problem_type",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "_sliding_window_pattern",
    "use_bfloat16",
    "chunk_size_feed_forward",
    "finetuning_task",
    "rope_interleaved",
    "type_vocab_size",
    "is_llama_config",
    "transformers.js_config",
    "max_position_embeddings",
    "n_ctx",
    "tensor_data_layout",
    "context_length",
    "block_count",
    "attention.value_length_mla",
    "max_length",
    "min_length",
    "do_sample",
    "num_beams",
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "length_penalty",
    "decoder_start_token_id",
    "prefix",
    "torchscript",
    "keys_to_ignore_at_inference",
    "unsloth_version",
    "unsloth_fixed",
    "num_labels",
    "language",
    "license",
};

/* Words in names of facts about the mathematics. */
static const char *const telling[] = {
    "rope",   "rotary", "cap",        "scal",     "norm",  "act",   "window", "attn",    "attention",
    "expert", "bias",   "multiplier", "position", "alibi", "layer", "clip",   "qk",      "mlp",
    "head",   "dim",    "state",      "residual", "embed", "route", "quant",  "encoder",
};

static bool is_listed(const char *key)
{
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (!strcmp(harmless[i], key))
            return true;
    return false;
}

static bool is_telling(const char *key)
{
    for (size_t i = 0; i < sizeof telling / sizeof *telling; i++)
        if (strstr(key, telling[i]))
            return true;
    return false;
}

/* null, false, 0, "", [] and {} say that something is not there. */
static bool says_nothing(const cJSON *item)
{
    return cJSON_IsNull(item) || cJSON_IsFalse(item) || (cJSON_IsNumber(item) && item->valuedouble == 0.0) ||
           (cJSON_IsString(item) && !*item->valuestring) ||
           ((cJSON_IsArray(item) || cJSON_IsObject(item)) && !item->child);
}

static bool meta_says_nothing(const heed_meta *meta)
{
    const bool number =
        meta->kind == HEED_META_INT || meta->kind == HEED_META_BOOL || meta->kind == HEED_META_FLOAT;
    return number && meta->whole == 0 && meta->number == 0.0;
}

static heed_status not_understood(const char *where, const char *key)
{
    return heed_fail(HEED_UNSUPPORTED, "%s%.200s is not understood and may change what the model computes",
                     where, key);
}

/* Whether nobody has read a fact of config.json that says something. */
static bool is_unread(const heed_facts *facts, const cJSON *item)
{
    return !is_marked(facts, item->string) && !is_listed(item->string) && !says_nothing(item);
}

size_t heed_facts_unknown(const heed_facts *facts, char *text, size_t size)
{
    heed_out out = {text, size, 0};
    if (size)
        text[0] = 0;
    for (const cJSON *item = facts->config ? facts->config->child : NULL; item; item = item->next)
        if (is_unread(facts, item)) {
            heed_put(&out, out.length ? ", " : "");
            heed_put(&out, heed_quoted(item->string, (int)strnlen(item->string, 60)).text);
        }
    return out.length;
}

heed_status heed_facts_all_read(const heed_facts *facts)
{
    if (facts->config) {
        for (const cJSON *item = facts->config->child; item; item = item->next)
            if (is_unread(facts, item) && is_telling(item->string))
                return not_understood("config.json: ", item->string);
        return HEED_OK;
    }
    const size_t length = strlen(facts->architecture);
    for (int i = 0; i < heed_model_file_metas(facts->file); i++) {
        const heed_meta *meta = heed_model_file_meta_at(facts->file, i);
        const char *key = meta->key;
        if (!strncmp(key, facts->architecture, length) && key[length] == '.' && !is_marked(facts, key) &&
            !is_listed(key + length + 1) && !meta_says_nothing(meta))
            return not_understood("", key);
    }
    return HEED_OK;
}
