/* Phi 3: as Llama, with q, k and v in one matrix, and gate and up in another. Abdin et al. 2024. Contexts
 * stretched by `longrope` are refused. */
#include "base/try.h"
#include "model/architecture.h"

static heed_status read(heed_config *config, heed_facts *facts)
{
    TRY(heed_config_sizes(config, facts));
    TRY(heed_config_rope(config, facts));
    TRY(heed_config_activation(config, facts, "hidden_act"));
    TRY(heed_fact_must_be(facts, NULL, "attention_bias", "false"));
    TRY(heed_config_tied(config, facts, false));
    int64_t original = 0; /* of longrope, which heed_config_rope refuses */
    TRY(heed_fact_whole(facts, "rope.scaling.original_context_length", "original_max_position_embeddings",
                        &original));
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
    {HEED_QUERY_KEY_VALUE, "blk.%d.attn_qkv", "layers.%d.self_attn.qkv_proj", 0},
    {HEED_ATTENTION_OUTPUT, "blk.%d.attn_output", "layers.%d.self_attn.o_proj", 0},
    {HEED_FEED_NORM, "blk.%d.ffn_norm", "layers.%d.post_attention_layernorm", 0},
    {HEED_GATE_UP, "blk.%d.ffn_up", "layers.%d.mlp.gate_up_proj", 0},
    {HEED_DOWN, "blk.%d.ffn_down", "layers.%d.mlp.down_proj", 0},
    {0},
};

const heed_architecture heed_phi3 = {
    .name = "phi3",
    .prefixes = (const char *const[]){"model.", "", NULL},
    .tensors = tensors,
    .unused = (const char *const[]){"*.rotary_emb.inv_freq", NULL},
    .read = read,
};
