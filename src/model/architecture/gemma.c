/* Gemma: as Llama, with GELU, embeddings times sqrt(width) and norms stored as their distance from 1. Gemma
 * Team 2024. */
#include "base/try.h"
#include "model/architecture.h"

static heed_status read(heed_config *config, heed_facts *facts)
{
    TRY(heed_config_sizes(config, facts));
    TRY(heed_config_rope(config, facts));
    /* the first files name "gelu" in hidden_act and mean its tanh form, which hidden_activation names */
    const char *old = NULL;
    TRY(heed_fact_text(facts, NULL, "hidden_act", &old));
    TRY(heed_fact_must_be(facts, NULL, "hidden_activation", "gelu_pytorch_tanh"));
    config->activation = HEED_GELU_TANH;
    TRY(heed_fact_must_be(facts, NULL, "attention_bias", "false"));
    TRY(heed_fact_must_be(facts, NULL, "use_bidirectional_attention", "false"));
    TRY(heed_config_tied(config, facts, true));
    config->embedding_scale = sqrt((double)config->width);
    config->norm_shift = facts->config ? 1.0f : 0.0f;
    config->window_rope = config->rope;
    return HEED_OK;
}

static const heed_tensor_name tensors[] = {
    {HEED_EMBEDDING, "token_embd", "embed_tokens", HEED_OPTIONAL},
    {HEED_LAST_NORM, "output_norm", "norm", 0},
    {HEED_OUTPUT, "output", "lm_head", HEED_OPTIONAL | HEED_OUTSIDE},
    {HEED_ATTENTION_NORM, "blk.%d.attn_norm", "layers.%d.input_layernorm", 0},
    {HEED_QUERY, "blk.%d.attn_q", "layers.%d.self_attn.q_proj", 0},
    {HEED_KEY, "blk.%d.attn_k", "layers.%d.self_attn.k_proj", 0},
    {HEED_VALUE, "blk.%d.attn_v", "layers.%d.self_attn.v_proj", 0},
    {HEED_ATTENTION_OUTPUT, "blk.%d.attn_output", "layers.%d.self_attn.o_proj", 0},
    {HEED_FEED_NORM, "blk.%d.ffn_norm", "layers.%d.post_attention_layernorm", 0},
    {HEED_GATE, "blk.%d.ffn_gate", "layers.%d.mlp.gate_proj", 0},
    {HEED_UP, "blk.%d.ffn_up", "layers.%d.mlp.up_proj", 0},
    {HEED_DOWN, "blk.%d.ffn_down", "layers.%d.mlp.down_proj", 0},
    {0},
};

const heed_architecture heed_gemma = {
    .name = "gemma",
    .prefixes = (const char *const[]){"model.", "", NULL},
    .tensors = tensors,
    .unused = (const char *const[]){"*.rotary_emb.inv_freq", NULL},
    .read = read,
};
