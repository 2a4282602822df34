/* Gemma 3, text: as Gemma 2 with norms on queries and keys instead of caps, five layers with a window to one
 * that sees everything, and a rope base for each kind. Gemma Team 2025.
 *
 * GGUF files may leave out what the first models had in common: every sixth layer sees everything, windowed
 * layers turn by base 10000. Scores are scaled by 1 / sqrt(head_dim), but by 1 / sqrt(width / heads) in the
 * model of 62 layers (27B).
 */
#include "base/try.h"
#include "model/architecture.h"

/* rope_parameters of both kinds, as newer files of transformers have them. */
static heed_status read_rope(heed_config *config, heed_facts *facts)
{
    TRY(heed_config_rope(config, facts));
    const heed_rope rope = config->rope;
    const cJSON *kinds = heed_fact_json(facts, "rope_parameters");
    const cJSON *sliding = cJSON_GetObjectItemCaseSensitive(kinds, "sliding_attention");
    config->window_rope = (heed_rope){.base = 10000.0, .dim = rope.dim};
    TRY(heed_fact_number(facts, "rope.freq_base_swa", "rope_local_base_freq", &config->window_rope.base));
    if (!sliding)
        return HEED_OK;
    const cJSON *base = cJSON_GetObjectItemCaseSensitive(sliding, "rope_theta");
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(sliding, "rope_type");
    if (type && (!cJSON_IsString(type) || strcmp(type->valuestring, "default")))
        return heed_fail(HEED_UNSUPPORTED,
                         "config.json: rope_parameters of sliding_attention has rope_type "
                         "'%s', which heed cannot run; it can run 'default'",
                         cJSON_IsString(type) ? type->valuestring : "?");
    if (cJSON_IsNumber(base))
        config->window_rope.base = base->valuedouble;
    return HEED_OK;
}

/* Which layers have a window: all but every n-th, or a list of yes and no. */
static heed_status read_pattern(heed_config *config, heed_facts *facts)
{
    bool listed;
    int64_t pattern = 6;
    heed_config_window_list(config, facts, &listed);
    if (listed)
        return HEED_OK;
    TRY(heed_fact_whole(facts, "attention.sliding_window_pattern", "sliding_window_pattern", &pattern));
    for (int64_t l = 0; l < config->layers; l++)
        config->windowed[l] = pattern < 1 || (l + 1) % pattern != 0;
    return HEED_OK;
}

static heed_status read(heed_config *config, heed_facts *facts)
{
    bool given;
    TRY(heed_config_sizes(config, facts));
    TRY(read_rope(config, facts));
    TRY(heed_fact_must_be(facts, NULL, "hidden_activation", "gelu_pytorch_tanh"));
    config->activation = HEED_GELU_TANH;
    TRY(heed_fact_must_be(facts, NULL, "attention_bias", "false"));
    TRY(heed_fact_must_be(facts, NULL, "use_bidirectional_attention", "false"));
    TRY(heed_config_tied(config, facts, true));
    config->embedding_scale = sqrt((double)config->width);
    config->norm_shift = facts->config ? 1.0f : 0.0f;

    double scalar =
        config->layers == 62 ? (double)config->width / (double)config->heads : (double)config->head_dim;
    TRY(heed_fact_number(facts, NULL, "query_pre_attn_scalar", &scalar));
    if (config->score_scale == 0.0)
        config->score_scale = 1.0 / sqrt(scalar);
    TRY(heed_fact_number(facts, "attn_logit_softcapping", "attn_logit_softcapping", &config->score_cap));
    TRY(heed_fact_number(facts, "final_logit_softcapping", "final_logit_softcapping", &config->logit_cap));
    config->window = 4096;
    TRY(heed_fact_size(facts, "attention.sliding_window", "sliding_window", 1, 1 << 30, &config->window));
    TRY(read_pattern(config, facts));
    return heed_config_layer_types(config, facts, &given); /* which goes before the pattern */
}

static const heed_tensor_name tensors[] = {
    {HEED_EMBEDDING, "token_embd", "embed_tokens", HEED_OPTIONAL},
    {HEED_LAST_NORM, "output_norm", "norm", 0},
    {HEED_OUTPUT, "output", "lm_head", HEED_OPTIONAL | HEED_OUTSIDE},
    {HEED_ATTENTION_NORM, "blk.%d.attn_norm", "layers.%d.input_layernorm", 0},
    {HEED_QUERY, "blk.%d.attn_q", "layers.%d.self_attn.q_proj", 0},
    {HEED_KEY, "blk.%d.attn_k", "layers.%d.self_attn.k_proj", 0},
    {HEED_VALUE, "blk.%d.attn_v", "layers.%d.self_attn.v_proj", 0},
    {HEED_QUERY_NORM, "blk.%d.attn_q_norm", "layers.%d.self_attn.q_norm", 0},
    {HEED_KEY_NORM, "blk.%d.attn_k_norm", "layers.%d.self_attn.k_norm", 0},
    {HEED_ATTENTION_OUTPUT, "blk.%d.attn_output", "layers.%d.self_attn.o_proj", 0},
    {HEED_ATTENTION_POST_NORM, "blk.%d.post_attention_norm", "layers.%d.post_attention_layernorm", 0},
    {HEED_FEED_NORM, "blk.%d.ffn_norm", "layers.%d.pre_feedforward_layernorm", 0},
    {HEED_GATE, "blk.%d.ffn_gate", "layers.%d.mlp.gate_proj", 0},
    {HEED_UP, "blk.%d.ffn_up", "layers.%d.mlp.up_proj", 0},
    {HEED_DOWN, "blk.%d.ffn_down", "layers.%d.mlp.down_proj", 0},
    {HEED_FEED_POST_NORM, "blk.%d.post_ffw_norm", "layers.%d.post_feedforward_layernorm", 0},
    {0},
};

const heed_architecture heed_gemma3 = {
    .name = "gemma3",
    .types = (const char *const[]){"gemma3_text", NULL},
    .prefixes = (const char *const[]){"model.", "", NULL},
    .tensors = tensors,
    .unused = (const char *const[]){"*.rotary_emb.inv_freq", NULL},
    .read = read,
};
