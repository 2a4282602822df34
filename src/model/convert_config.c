/* What config.json says, as keys of a GGUF file, and whether they say the same when they are read again. */
#include "base/try.h"
#include "model/convert_folder.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

heed_status heed_convert_read_config(const heed_model_file *file, const heed_architecture **architecture,
                                     heed_config *config)
{
    heed_facts facts;
    heed_status status = heed_facts_open(&facts, file);
    if (!status)
        status = heed_architecture_find(facts.architecture, architecture);
    if (!status) {
        *config = (heed_config){.architecture = (*architecture)->name,
                                .gated = true,
                                .embedding_scale = 1.0,
                                .causal = true,
                                .generates = true,
                                .eps = 1e-6};
        status = (*architecture)->read(config, &facts);
    }
    if (!status)
        status = heed_facts_all_read(&facts);
    heed_facts_close(&facts);
    return status;
}

/* Puts keys with the architecture's prefix. */
typedef struct writer {
    heed_gguf_keys *keys;
    const char *architecture;
} writer;

static const char *full(const writer *to, const char *key, char text[160])
{
    snprintf(text, 160, "%s.%s", to->architecture, key);
    return text;
}

static void put_whole(const writer *to, const char *key, int64_t value)
{
    char text[160];
    heed_gguf_put_u32(to->keys, full(to, key, text), (uint32_t)value);
}

static void put_number(const writer *to, const char *key, double value)
{
    char text[160];
    heed_gguf_put_f32(to->keys, full(to, key, text), (float)value);
}

static void put_rope(const writer *to, const heed_config *config)
{
    static const char *const types[] = {[HEED_ROPE_LINEAR] = "linear", [HEED_ROPE_YARN] = "yarn"};
    const heed_rope *rope = &config->rope;
    char text[160];
    put_whole(to, "rope.dimension_count", rope->dim);
    put_number(to, "rope.freq_base", rope->base);
    if (rope->scaling == HEED_ROPE_LLAMA3 && rope->original != 8192.0)
        put_whole(to, "rope.scaling.original_context_length", (int64_t)rope->original);
    if (rope->scaling != HEED_ROPE_LINEAR && rope->scaling != HEED_ROPE_YARN)
        return; /* the factors of Llama 3 are a tensor */
    heed_gguf_put_text(to->keys, full(to, "rope.scaling.type", text), types[rope->scaling]);
    put_number(to, "rope.scaling.factor", rope->factor);
    if (rope->scaling == HEED_ROPE_YARN) {
        put_whole(to, "rope.scaling.original_context_length", (int64_t)rope->original);
        put_number(to, "rope.scaling.yarn_beta_fast", rope->beta_fast);
        put_number(to, "rope.scaling.yarn_beta_slow", rope->beta_slow);
    }
}

static bool has_window(const heed_config *config)
{
    for (int64_t l = 0; l < config->layers; l++)
        if (config->windowed[l])
            return true;
    return false;
}

/* Which layers have a window: every n-th has none, or a list of yes and no. Gemma 2 alternates, other
 * architectures have one in all layers or in none, where nothing is said. */
static void put_windows(const writer *to, const heed_config *config)
{
    static const char key[] = "attention.sliding_window_pattern";
    const bool gemma2 = !strcmp(config->architecture, "gemma2"),
               gemma3 = !strcmp(config->architecture, "gemma3"),
               qwen = !strncmp(config->architecture, "qwen", 4);
    char text[160];
    int64_t period = 0;
    while (period < config->layers && config->windowed[period])
        period++;
    period = gemma2 ? 2 : period + 1;
    bool regular = period <= config->layers;
    for (int64_t l = 0; l < config->layers; l++)
        regular = regular && config->windowed[l] == ((l + 1) % period != 0);
    if (gemma3 && regular) {
        put_whole(to, key, period);
    } else if (qwen || ((gemma2 || gemma3) && !regular)) {
        heed_gguf_put_array(to->keys, full(to, key, text), HEED_GGUF_BOOL, (uint64_t)config->layers);
        for (int64_t l = 0; l < config->layers; l++)
            heed_gguf_entry_u8(to->keys, config->windowed[l]);
    }
    if (gemma3)
        put_number(to, "rope.freq_base_swa", config->window_rope.base);
}

static double score_scale(const heed_config *config)
{
    return config->score_scale != 0.0 ? config->score_scale : 1.0 / sqrt((double)config->head_dim);
}

static void put_attention(const writer *to, const heed_config *config)
{
    put_whole(to, "attention.key_length", config->head_dim);
    put_whole(to, "attention.value_length", config->head_dim);
    if (fabs(score_scale(config) * sqrt((double)config->head_dim) - 1.0) > 1e-6)
        put_number(to, "attention.scale", config->score_scale);
    if (has_window(config)) {
        put_whole(to, "attention.sliding_window", config->window);
        put_windows(to, config);
    }
    if (config->score_cap > 0.0)
        put_number(to, "attn_logit_softcapping", config->score_cap);
    if (config->logit_cap > 0.0)
        put_number(to, "final_logit_softcapping", config->logit_cap);
}

/* How a sentence's vector is made of its tokens': 1 the mean, 2 the first, 3 the last. */
static void put_pooling(const writer *to, const heed_model_file *file)
{
    static const char *const modes[] = {"pooling_mode_mean_tokens", "pooling_mode_cls_token",
                                        "pooling_mode_lasttoken"};
    size_t size;
    const char *text = heed_model_file_text(file, "1_Pooling/config.json", &size);
    cJSON *root = text ? cJSON_ParseWithLength(text, size) : NULL;
    for (int i = 0; i < 3; i++)
        if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, modes[i]))) {
            put_whole(to, "pooling_type", i + 1);
            break;
        }
    cJSON_Delete(root);
}

void heed_convert_config_keys(const heed_config *config, const heed_model_file *file, heed_gguf_keys *keys)
{
    const writer to = {keys, config->architecture};
    const bool rms = config->norm == HEED_NORM_RMS;
    heed_gguf_put_text(keys, "general.architecture", config->architecture);
    heed_gguf_put_text(keys, "general.type", "model");
    put_whole(&to, "block_count", config->layers);
    put_whole(&to, "context_length", config->context);
    put_whole(&to, "embedding_length", config->width);
    put_whole(&to, "feed_forward_length", config->feed_forward);
    put_whole(&to, "attention.head_count", config->heads);
    put_number(&to, rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", config->eps);
    if (config->rope.dim > 0) {
        put_whole(&to, "attention.head_count_kv", config->kv_heads);
        put_attention(&to, config);
        put_rope(&to, config);
    }
    if (!config->causal) {
        char text[160];
        heed_gguf_put_bool(keys, full(&to, "attention.causal", text), false);
        put_pooling(&to, file);
    }
}

heed_status heed_convert_parse_keys(const heed_gguf_keys *keys, heed_model_file **file, void **memory)
{
    heed_gguf_keys whole = {0};
    heed_gguf_start(&whole, 0, keys);
    *file = NULL;
    *memory = whole.data;
    if (whole.failed || keys->failed)
        return heed_fail(HEED_NO_MEMORY, "no memory for the metadata of a GGUF file");
    return heed_gguf_parse(file, whole.data, whole.size, "metadata");
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

static bool same_rope(const heed_rope *a, const heed_rope *b)
{
    if (a->dim != b->dim || !near(a->base, b->base))
        return false;
    if (a->scaling == HEED_ROPE_LLAMA3) /* a tensor says it, for these turns of a pair */
        return (a->original == 8192.0 || near(a->original, b->original)) && a->low == 1.0 && a->high == 4.0;
    const bool factors = near(a->factor, b->factor) || a->scaling == HEED_ROPE_PLAIN;
    const bool yarn =
        a->scaling != HEED_ROPE_YARN || (near(a->original, b->original) && near(a->beta_fast, b->beta_fast) &&
                                         near(a->beta_slow, b->beta_slow));
    return a->scaling == b->scaling && factors && yarn;
}

/* The name of the first thing that differs; NULL when nothing does. */
static const char *first_difference(const heed_config *a, const heed_config *b)
{
    const struct {
        const char *name;
        bool same;
    } checks[] = {
        {"the sizes", a->layers == b->layers && a->width == b->width && a->heads == b->heads &&
                          a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
                          a->feed_forward == b->feed_forward},
        {"the context", a->context == b->context && a->positions == b->positions},
        {"the norm", a->norm == b->norm && near(a->eps, b->eps)},
        {"the activation", a->activation == b->activation && a->gated == b->gated},
        {"the scale of the embedding", near(a->embedding_scale, b->embedding_scale)},
        {"the scale of scores", near(score_scale(a), score_scale(b))},
        {"the caps", near(a->score_cap, b->score_cap) && near(a->logit_cap, b->logit_cap)},
        {"the rotation (rope)", same_rope(&a->rope, &b->rope)},
        {"the rotation of layers with a window",
         !has_window(a) || same_rope(&a->window_rope, &b->window_rope)},
        {"the window", !has_window(a) || a->window == b->window},
        {"which layers have a window", !memcmp(a->windowed, b->windowed, (size_t)a->layers)},
        {"the attention", !strcmp(a->attention, b->attention)},
        {"the direction of reading", a->causal == b->causal && a->generates == b->generates},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (!checks[i].same)
            return checks[i].name;
    return NULL;
}

heed_status heed_convert_check_config(const heed_config *config, const heed_gguf_keys *keys, bool *adjacent)
{
    const heed_architecture *architecture;
    heed_model_file *file;
    void *memory;
    heed_config *again = calloc(1, sizeof *again);
    heed_status status = again ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a configuration");
    if (!status)
        status = heed_convert_parse_keys(keys, &file, &memory);
    else
        return status;
    if (!status)
        status = heed_convert_read_config(file, &architecture, again);
    const char *lost = status ? NULL : first_difference(config, again);
    if (lost)
        status = heed_fail(HEED_UNSUPPORTED, "%s of this model cannot be said in a GGUF file of %s", lost,
                           config->architecture);
    *adjacent = again->rope.adjacent;
    heed_model_file_close(file);
    free(memory);
    free(again);
    return status;
}
