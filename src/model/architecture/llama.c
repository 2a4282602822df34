/* Llama 1 to 3, Mistral, SmolLM: RMS norms before, gated SiLU, rope.
 *
 * GGUF files hold the rows of q and k in another order, so that pairs that turn together stand beside each
 * other. Touvron et al. 2023; Jiang et al.: Mistral 7B, 2023 (the window).
 */
#include "base/try.h"
#include "model/architecture.h"

static heed_status read(heed_config *config, heed_facts *facts)
{
    TRY(heed_config_sizes(config, facts));
    TRY(heed_config_own_attention(config, facts));
    TRY(heed_config_rope(config, facts));
    config->rope.adjacent = !facts->config;
    TRY(heed_config_activation(config, facts, "hidden_act"));
    TRY(heed_fact_must_be(facts, NULL, "mlp_bias", "false"));
    TRY(heed_fact_bool(facts, NULL, "attention_bias", &config->needs_biases));
    TRY(heed_config_tied(config, facts, false));
    TRY(heed_fact_whole(facts, "attention.sliding_window", "sliding_window", &config->window));
    for (int64_t l = 0; l < config->layers; l++)
        config->windowed[l] = config->window > 0;
    config->window_rope = config->rope;
    return HEED_OK;
}

static const heed_tensor_name tensors[] = {
    {HEED_EMBEDDING, "token_embd", "embed_tokens", HEED_OPTIONAL},
    {HEED_LAST_NORM, "output_norm", "norm", 0},
    {HEED_OUTPUT, "output", "lm_head", HEED_OPTIONAL | HEED_OUTSIDE},
    {HEED_ATTENTION_NORM, "blk.%d.attn_norm", "layers.%d.input_layernorm", 0},
    {HEED_QUERY, "blk.%d.attn_q", "layers.%d.self_attn.q_proj", HEED_MAY_BIAS},
    {HEED_KEY, "blk.%d.attn_k", "layers.%d.self_attn.k_proj", HEED_MAY_BIAS},
    {HEED_VALUE, "blk.%d.attn_v", "layers.%d.self_attn.v_proj", HEED_MAY_BIAS},
    {HEED_ATTENTION_OUTPUT, "blk.%d.attn_output", "layers.%d.self_attn.o_proj", HEED_MAY_BIAS},
    {HEED_FEED_NORM, "blk.%d.ffn_norm", "layers.%d.post_attention_layernorm", 0},
    {HEED_GATE, "blk.%d.ffn_gate", "layers.%d.mlp.gate_proj", 0},
    {HEED_UP, "blk.%d.ffn_up", "layers.%d.mlp.up_proj", 0},
    {HEED_DOWN, "blk.%d.ffn_down", "layers.%d.mlp.down_proj", 0},
    {0},
};

const heed_architecture heed_llama = {
    .name = "llama",
    .types = (const char *const[]){"mistral", NULL},
    .prefixes = (const char *const[]){"model.", "", NULL},
    .tensors = tensors,
    .unused = (const char *const[]){"*.rotary_emb.inv_freq", NULL},
    .read = read,
};
