#include "model/config.h"
#include "attend/spec_reader.h"
#include "base/try.h"
#include "model/attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

heed_status heed_config_sizes(heed_config *config, heed_facts *facts)
{
    TRY(heed_fact_size(facts, "block_count", "num_hidden_layers", 1, HEED_MOST_LAYERS, &config->layers));
    TRY(heed_fact_size(facts, "embedding_length", "hidden_size", 1, 1 << 20, &config->width));
    TRY(heed_fact_size(facts, "feed_forward_length", "intermediate_size", 1, 1 << 24, &config->feed_forward));
    TRY(heed_fact_size(facts, "attention.head_count", "num_attention_heads", 1, 1 << 16, &config->heads));
    TRY(heed_fact_size(facts, "context_length", "max_position_embeddings", 1, 1 << 28, &config->context));
    config->kv_heads = config->heads;
    TRY(heed_fact_whole(facts, "attention.head_count_kv", "num_key_value_heads", &config->kv_heads));
    config->head_dim = config->width / config->heads;
    TRY(heed_fact_whole(facts, "attention.key_length", "head_dim", &config->head_dim));
    int64_t value_dim = config->head_dim;
    TRY(heed_fact_whole(facts, "attention.value_length", NULL, &value_dim));
    if (value_dim != config->head_dim)
        return heed_fail(HEED_UNSUPPORTED,
                         "%s.attention.value_length is %lld and key_length %lld; heed can run "
                         "only models where they agree",
                         facts->architecture, (long long)value_dim, (long long)config->head_dim);
    TRY(heed_fact_number(facts, "attention.scale", NULL, &config->score_scale));
    if (facts->config)
        return heed_fact_number(facts, NULL, "rms_norm_eps", &config->eps);
    return heed_fact_number(facts, "attention.layer_norm_rms_epsilon", NULL, &config->eps);
}

/* Where one scaling of rope is described: an object of config.json, or keys of a GGUF file. */
typedef struct rope_source {
    heed_facts *facts;
    const cJSON *object;
} rope_source;

static heed_status rope_number(const rope_source *source, const char *gguf, const char *json, double *value)
{
    if (!source->facts->config)
        return gguf ? heed_fact_number(source->facts, gguf, NULL, value) : HEED_OK;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(source->object, json);
    if (!item || cJSON_IsNull(item))
        return HEED_OK;
    if (!cJSON_IsNumber(item))
        return heed_fail(HEED_FORMAT, "config.json: %s of the rope parameters must be a number", json);
    *value = item->valuedouble;
    return HEED_OK;
}

static heed_status rope_type(const rope_source *source, const char **type)
{
    if (!source->facts->config)
        return heed_fact_text(source->facts, "rope.scaling.type", NULL, type);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(source->object, "rope_type");
    item = item ? item : cJSON_GetObjectItemCaseSensitive(source->object, "type");
    if (item && !cJSON_IsString(item))
        return heed_fail(HEED_FORMAT, "config.json: rope_type must be a text");
    *type = item ? item->valuestring : *type;
    return HEED_OK;
}

/* A member of the rope parameters that heed does not know changes angles in a way it cannot follow. */
static heed_status check_rope_members(const cJSON *object)
{
    static const char *const known[] = {"rope_theta",
                                        "rope_type",
                                        "type",
                                        "factor",
                                        "low_freq_factor",
                                        "high_freq_factor",
                                        "original_max_position_embeddings",
                                        "beta_fast",
                                        "beta_slow",
                                        "partial_rotary_factor",
                                        "attention_factor",
                                        "full_attention",
                                        "sliding_attention"};
    for (const cJSON *item = object ? object->child : NULL; item; item = item->next) {
        bool found = cJSON_IsNull(item);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= !strcmp(item->string, known[i]);
        if (!found)
            return heed_fail(HEED_UNSUPPORTED,
                             "config.json: %.100s of the rope parameters is not understood and "
                             "may change what the model computes",
                             item->string);
    }
    return HEED_OK;
}

static heed_status read_yarn(heed_rope *rope, const rope_source *source)
{
    rope->scaling = HEED_ROPE_YARN;
    rope->beta_fast = 32.0;
    rope->beta_slow = 1.0;
    TRY(rope_number(source, "rope.scaling.yarn_beta_fast", "beta_fast", &rope->beta_fast));
    TRY(rope_number(source, "rope.scaling.yarn_beta_slow", "beta_slow", &rope->beta_slow));
    const double usual = rope->factor > 1.0 ? 0.1 * log(rope->factor) + 1.0 : 1.0;
    double factor = usual;
    TRY(rope_number(source, NULL, "attention_factor", &factor));
    if (fabs(factor - usual) > 1e-4)
        return heed_fail(HEED_UNSUPPORTED,
                         "config.json: attention_factor of yarn is %g, which heed cannot run; it "
                         "can run 0.1 ln(factor) + 1 = %g",
                         factor, usual);
    return HEED_OK;
}

static heed_status read_scaling(heed_rope *rope, const rope_source *source)
{
    const char *type = "none";
    TRY(rope_type(source, &type));
    TRY(check_rope_members(source->object));
    rope->factor = 1.0;
    TRY(rope_number(source, "rope.scaling.factor", "factor", &rope->factor));
    TRY(rope_number(source, "rope.scaling.original_context_length", "original_max_position_embeddings",
                    &rope->original));
    if (!strcmp(type, "none") || !strcmp(type, "default")) {
        rope->scaling = HEED_ROPE_PLAIN;
        return HEED_OK;
    }
    if (!(rope->factor > 0.0))
        return heed_fail(HEED_FORMAT, "the factor of rope scaling is %g, it must be above 0", rope->factor);
    if (!strcmp(type, "linear")) {
        rope->scaling = rope->factor == 1.0 ? HEED_ROPE_PLAIN : HEED_ROPE_LINEAR;
        return HEED_OK;
    }
    const bool yarn = !strcmp(type, "yarn"), llama3 = !strcmp(type, "llama3");
    if (!yarn && !llama3)
        return heed_fail(HEED_UNSUPPORTED,
                         "the rope scaling '%.60s' is not understood; heed knows linear, yarn and "
                         "llama3",
                         type);
    if (!(rope->original >= 1.0))
        return heed_fail(HEED_FORMAT, "the rope scaling %s needs the original context length", type);
    if (yarn)
        return read_yarn(rope, source);
    rope->scaling = HEED_ROPE_LLAMA3;
    rope->low = 1.0;
    rope->high = 4.0;
    TRY(rope_number(source, NULL, "low_freq_factor", &rope->low));
    return rope_number(source, NULL, "high_freq_factor", &rope->high);
}

heed_status heed_config_rope(heed_config *config, heed_facts *facts)
{
    heed_rope *rope = &config->rope;
    rope->base = 10000.0;
    rope->dim = config->head_dim;
    TRY(heed_fact_number(facts, "rope.freq_base", "rope_theta", &rope->base));
    TRY(heed_fact_whole(facts, "rope.dimension_count", NULL, &rope->dim));
    double share = 1.0;
    TRY(heed_fact_number(facts, NULL, "partial_rotary_factor", &share));
    rope_source source = {.facts = facts, .object = heed_fact_json(facts, "rope_scaling")};
    const cJSON *newer = heed_fact_json(facts, "rope_parameters");
    if (newer) {
        TRY(check_rope_members(newer));
        const cJSON *full = cJSON_GetObjectItemCaseSensitive(newer, "full_attention");
        source.object = full ? full : newer;
        TRY(rope_number(&source, NULL, "rope_theta", &rope->base));
        TRY(rope_number(&source, NULL, "partial_rotary_factor", &share));
    }
    if (facts->config)
        rope->dim = (int64_t)((double)config->head_dim * share);
    if (rope->dim < 2 || rope->dim % 2 || rope->dim > config->head_dim)
        return heed_fail(HEED_FORMAT,
                         "rope would rotate %lld entries of a head, it must be an even number from 2 to %lld",
                         (long long)rope->dim, (long long)config->head_dim);
    if (!(rope->base > 0.0))
        return heed_fail(HEED_FORMAT, "the base of rope is %g, it must be above 0", rope->base);
    return read_scaling(rope, &source);
}

heed_status heed_config_activation(heed_config *config, heed_facts *facts, const char *json)
{
    static const struct {
        const char *name;
        heed_activation activation;
    } known[] = {{"silu", HEED_SILU},           {"swish", HEED_SILU},
                 {"gelu", HEED_GELU},           {"gelu_python", HEED_GELU},
                 {"gelu_new", HEED_GELU_TANH},  {"gelu_pytorch_tanh", HEED_GELU_TANH},
                 {"gelu_fast", HEED_GELU_TANH}, {"relu", HEED_RELU}};
    const char *name = NULL;
    TRY(heed_fact_text(facts, NULL, json, &name));
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name)) {
            config->activation = known[i].activation;
            return HEED_OK;
        }
    if (name)
        return heed_fail(HEED_UNSUPPORTED,
                         "config.json: %s is '%.60s', which heed does not know; it knows silu, gelu, "
                         "gelu_new, gelu_pytorch_tanh and relu",
                         json, name);
    return HEED_OK;
}

heed_status heed_config_layer_types(heed_config *config, heed_facts *facts, bool *given)
{
    const cJSON *types = heed_fact_json(facts, "layer_types");
    *given = types != NULL;
    if (!types)
        return HEED_OK;
    if (cJSON_GetArraySize(types) != config->layers)
        return heed_fail(HEED_FORMAT, "config.json: layer_types has %d entries for %lld layers",
                         cJSON_GetArraySize(types), (long long)config->layers);
    int64_t l = 0;
    for (const cJSON *type = types->child; type; type = type->next, l++) {
        const char *name = cJSON_IsString(type) ? type->valuestring : "?";
        const bool sliding = !strcmp(name, "sliding_attention");
        if (!sliding && strcmp(name, "full_attention"))
            return heed_fail(HEED_UNSUPPORTED,
                             "config.json: layer_types holds '%.60s', which is not understood; heed "
                             "knows full_attention and sliding_attention",
                             name);
        config->windowed[l] = sliding && config->window > 0;
    }
    return HEED_OK;
}

void heed_config_window_list(heed_config *config, heed_facts *facts, bool *given)
{
    const heed_meta *list = heed_fact_meta(facts, "attention.sliding_window_pattern");
    *given = list && list->kind == HEED_META_INTS && list->size == config->layers;
    for (int64_t l = 0; *given && l < config->layers; l++)
        config->windowed[l] = list->wholes[l] != 0;
}

heed_status heed_config_late_window(heed_config *config, heed_facts *facts)
{
    bool uses_window = !facts->config, listed, given;
    int64_t window = 0, first = 0;
    TRY(heed_fact_bool(facts, NULL, "use_sliding_window", &uses_window));
    TRY(heed_fact_whole(facts, "attention.sliding_window", "sliding_window", &window));
    TRY(heed_fact_whole(facts, NULL, "max_window_layers", &first));
    config->window = uses_window ? window : 0;
    heed_config_window_list(config, facts, &listed);
    if (!facts->config && config->window > 0 && !listed)
        return heed_fail(HEED_UNSUPPORTED,
                         "%s.attention.sliding_window is %lld, and no list %s.attention."
                         "sliding_window_pattern says which of the %lld layers have it",
                         facts->architecture, (long long)window, facts->architecture,
                         (long long)config->layers);
    TRY(heed_config_layer_types(config, facts, &given));
    for (int64_t l = 0; !given && !listed && l < config->layers; l++)
        config->windowed[l] = config->window > 0 && l >= first;
    config->window_rope = config->rope;
    return HEED_OK;
}

heed_status heed_config_own_attention(heed_config *config, heed_facts *facts)
{
    const char *spec = NULL;
    TRY(heed_fact_text(facts, NULL, "heed_attention", &spec));
    if (!spec)
        return HEED_OK;
    if (strlen(spec) >= sizeof config->attention)
        return heed_fail(HEED_FORMAT, "config.json: heed_attention has more than %d characters",
                         HEED_OWN_ATTENTION - 1);
    if (heed_spec_canonical(spec, NULL, NULL, 0)) {
        char sentence[400];
        snprintf(sentence, sizeof sentence, "%s", heed_message());
        return heed_fail(HEED_FORMAT, "config.json: heed_attention: %s", sentence);
    }
    strcpy(config->attention, spec);
    return HEED_OK;
}

heed_status heed_config_tied(heed_config *config, heed_facts *facts, bool otherwise)
{
    config->tied = otherwise;
    config->tied_given = heed_fact_json(facts, "tie_word_embeddings") != NULL;
    return heed_fact_bool(facts, NULL, "tie_word_embeddings", &config->tied);
}

static void put_rope(heed_out *out, const heed_rope *rope)
{
    heed_put(out, "position=rope(base=");
    heed_put_number(out, rope->base);
    heed_put(out, ", dim=");
    heed_put_number(out, (double)rope->dim);
    heed_put(out, rope->adjacent ? ", pairs=adjacent" : "");
    if (rope->scaling == HEED_ROPE_LINEAR) {
        heed_put(out, ", scaling=linear(");
        heed_put_number(out, rope->factor);
        heed_put(out, ")");
    } else if (rope->scaling != HEED_ROPE_PLAIN) {
        const bool yarn = rope->scaling == HEED_ROPE_YARN;
        const double number[] = {rope->factor, rope->original, yarn ? rope->beta_fast : rope->low,
                                 yarn ? rope->beta_slow : rope->high};
        heed_put(out, yarn ? ", scaling=yarn(" : ", scaling=llama3(");
        for (int i = 0; i < 4; i++) {
            heed_put(out, i ? ", " : "");
            heed_put_number(out, number[i]);
        }
        heed_put(out, ")");
    }
    heed_put(out, ")");
}

heed_status heed_config_attention(const heed_config *config, int64_t layer, char *text, size_t size)
{
    char raw[1024] = "";
    heed_out out = {raw, sizeof raw, 0};
    if (*config->attention)
        return heed_attention_of_layer("score=dot", config->attention, NULL, layer, text, size);
    const bool windowed = config->windowed[layer];
    const heed_plain_locale locale = heed_plain_locale_enter();
    heed_put(&out, "score=dot");
    if (config->score_scale != 0.0) {
        heed_put(&out, "(scale=");
        heed_put_number(&out, config->score_scale);
        heed_put(&out, ")");
    }
    if (config->rope.dim) {
        heed_put(&out, "; ");
        put_rope(&out, windowed ? &config->window_rope : &config->rope);
    }
    heed_put(&out, config->causal ? "; where=causal" : "");
    if (windowed) {
        heed_put(&out, config->causal ? " & window(" : "; where=window(");
        heed_put_number(&out, (double)config->window);
        heed_put(&out, ")");
    }
    if (config->score_cap != 0.0) {
        heed_put(&out, "; normalise=softcap(");
        heed_put_number(&out, config->score_cap);
        heed_put(&out, ")");
    }
    heed_plain_locale_leave(locale);
    return heed_spec_canonical(raw, NULL, text, size);
}
