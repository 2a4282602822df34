/* GPT-2: learnt positions, LayerNorm before, GELU, q, k and v in one matrix. Radford et al. 2019.
 *
 * In safetensors the matrices of layers lie [in, out].
 */
#include "base/try.h"
#include "model/architecture.h"

static heed_status read(heed_config *config, heed_facts *facts)
{
    TRY(heed_fact_size(facts, "block_count", "n_layer", 1, HEED_MOST_LAYERS, &config->layers));
    TRY(heed_fact_size(facts, "embedding_length", "n_embd", 1, 1 << 20, &config->width));
    TRY(heed_fact_size(facts, "attention.head_count", "n_head", 1, 1 << 16, &config->heads));
    TRY(heed_fact_size(facts, "context_length", "n_positions", 1, 1 << 24, &config->context));
    config->feed_forward = 4 * config->width;
    TRY(heed_fact_whole(facts, "feed_forward_length", "n_inner", &config->feed_forward));
    config->kv_heads = config->heads;
    config->head_dim = config->width / config->heads;
    config->positions = config->context;
    config->norm = HEED_NORM_LAYER;
    config->gated = false;
    config->transposed = facts->config != NULL;
    config->eps = 1e-5;
    TRY(heed_fact_number(facts, "attention.layer_norm_epsilon", "layer_norm_epsilon", &config->eps));
    config->activation = HEED_GELU_TANH;
    TRY(heed_config_activation(config, facts, "activation_function"));
    TRY(heed_fact_must_be(facts, NULL, "add_cross_attention", "false"));
    TRY(heed_fact_must_be(facts, NULL, "scale_attn_weights", "true"));
    TRY(heed_fact_must_be(facts, NULL, "scale_attn_by_inverse_layer_idx", "false"));
    return heed_config_tied(config, facts, true);
}

static const heed_tensor_name tensors[] = {
    {HEED_EMBEDDING, "token_embd", "wte", HEED_OPTIONAL},
    {HEED_POSITIONS, "position_embd", "wpe", 0},
    {HEED_LAST_NORM, "output_norm", "ln_f", HEED_BIAS},
    {HEED_OUTPUT, "output", "lm_head", HEED_OPTIONAL | HEED_OUTSIDE},
    {HEED_ATTENTION_NORM, "blk.%d.attn_norm", "h.%d.ln_1", HEED_BIAS},
    {HEED_QUERY_KEY_VALUE, "blk.%d.attn_qkv", "h.%d.attn.c_attn", HEED_BIAS},
    {HEED_ATTENTION_OUTPUT, "blk.%d.attn_output", "h.%d.attn.c_proj", HEED_BIAS},
    {HEED_FEED_NORM, "blk.%d.ffn_norm", "h.%d.ln_2", HEED_BIAS},
    {HEED_UP, "blk.%d.ffn_up", "h.%d.mlp.c_fc", HEED_BIAS},
    {HEED_DOWN, "blk.%d.ffn_down", "h.%d.mlp.c_proj", HEED_BIAS},
    {0},
};

const heed_architecture heed_gpt2 = {
    .name = "gpt2",
    .prefixes = (const char *const[]){"transformer.", "", NULL},
    .tensors = tensors,
    .unused = (const char *const[]){"*.attn.bias", "*.attn.masked_bias", NULL},
    .read = read,
};
