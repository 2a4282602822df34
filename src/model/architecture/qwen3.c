/* Qwen 3: as Llama, with a norm on each head's queries and keys. Yang et al. 2025. */
#include "base/try.h"
#include "model/architecture.h"

static heed_status read(heed_config *config, heed_facts *facts)
{
    TRY(heed_config_sizes(config, facts));
    TRY(heed_config_own_attention(config, facts));
    TRY(heed_config_rope(config, facts));
    TRY(heed_config_activation(config, facts, "hidden_act"));
    TRY(heed_fact_bool(facts, NULL, "attention_bias", &config->needs_biases));
    TRY(heed_config_tied(config, facts, false));
    return heed_config_late_window(config, facts);
}

static const heed_tensor_name tensors[] = {
    {HEED_EMBEDDING, "token_embd", "embed_tokens", HEED_OPTIONAL},
    {HEED_LAST_NORM, "output_norm", "norm", 0},
    {HEED_OUTPUT, "output", "lm_head", HEED_OPTIONAL | HEED_OUTSIDE},
    {HEED_ATTENTION_NORM, "blk.%d.attn_norm", "layers.%d.input_layernorm", 0},
    {HEED_QUERY, "blk.%d.attn_q", "layers.%d.self_attn.q_proj", HEED_MAY_BIAS},
    {HEED_KEY, "blk.%d.attn_k", "layers.%d.self_attn.k_proj", HEED_MAY_BIAS},
    {HEED_VALUE, "blk.%d.attn_v", "layers.%d.self_attn.v_proj", HEED_MAY_BIAS},
    {HEED_QUERY_NORM, "blk.%d.attn_q_norm", "layers.%d.self_attn.q_norm", 0},
    {HEED_KEY_NORM, "blk.%d.attn_k_norm", "layers.%d.self_attn.k_norm", 0},
    {HEED_ATTENTION_OUTPUT, "blk.%d.attn_output", "layers.%d.self_attn.o_proj", HEED_MAY_BIAS},
    {HEED_FEED_NORM, "blk.%d.ffn_norm", "layers.%d.post_attention_layernorm", 0},
    {HEED_GATE, "blk.%d.ffn_gate", "layers.%d.mlp.gate_proj", 0},
    {HEED_UP, "blk.%d.ffn_up", "layers.%d.mlp.up_proj", 0},
    {HEED_DOWN, "blk.%d.ffn_down", "layers.%d.mlp.down_proj", 0},
    {0},
};

const heed_architecture heed_qwen3 = {
    .name = "qwen3",
    .prefixes = (const char *const[]){"model.", "", NULL},
    .tensors = tensors,
    .unused = (const char *const[]){"*.rotary_emb.inv_freq", NULL},
    .read = read,
};
