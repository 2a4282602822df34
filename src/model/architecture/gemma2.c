/* Gemma 2: norms before and after each part, capped scores and logits, a window in every other layer. Gemma
 * Team 2024.
 *
 * GGUF files need not say by what scores are scaled: 1 / sqrt(head_dim), but 1 / sqrt(width / heads) in the
 * model of 46 layers (27B).
 */
#include "base/try.h"
#include "model/architecture.h"

static heed_status read(heed_config *config, heed_facts *facts)
{
    bool given, listed;
    TRY(heed_config_sizes(config, facts));
    TRY(heed_config_rope(config, facts));
    const char *old = NULL;
    TRY(heed_fact_text(facts, NULL, "hidden_act", &old));
    TRY(heed_fact_must_be(facts, NULL, "hidden_activation", "gelu_pytorch_tanh"));
    config->activation = HEED_GELU_TANH;
    TRY(heed_fact_must_be(facts, NULL, "attention_bias", "false"));
    TRY(heed_fact_must_be(facts, NULL, "use_bidirectional_attention", "false"));
    TRY(heed_config_tied(config, facts, true));
    config->embedding_scale = sqrt((double)config->width);
    config->norm_shift = facts->config ? 1.0f : 0.0f;

    double scalar =
        config->layers == 46 ? (double)config->width / (double)config->heads : (double)config->head_dim;
    TRY(heed_fact_number(facts, NULL, "query_pre_attn_scalar", &scalar));
    if (config->score_scale == 0.0)
        config->score_scale = 1.0 / sqrt(scalar);
    config->score_cap = 50.0;
    config->logit_cap = 30.0;
    TRY(heed_fact_number(facts, "attn_logit_softcapping", "attn_logit_softcapping", &config->score_cap));
    TRY(heed_fact_number(facts, "final_logit_softcapping", "final_logit_softcapping", &config->logit_cap));
    config->window = 4096;
    TRY(heed_fact_whole(facts, "attention.sliding_window", "sliding_window", &config->window));
    heed_config_window_list(config, facts, &listed);
    TRY(heed_config_layer_types(config, facts, &given));
    for (int64_t l = 0; !given && !listed && l < config->layers; l++)
        config->windowed[l] = l % 2 == 0;
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
    {HEED_ATTENTION_POST_NORM, "blk.%d.post_attention_norm", "layers.%d.post_attention_layernorm", 0},
    {HEED_FEED_NORM, "blk.%d.ffn_norm", "layers.%d.pre_feedforward_layernorm", 0},
    {HEED_GATE, "blk.%d.ffn_gate", "layers.%d.mlp.gate_proj", 0},
    {HEED_UP, "blk.%d.ffn_up", "layers.%d.mlp.up_proj", 0},
    {HEED_DOWN, "blk.%d.ffn_down", "layers.%d.mlp.down_proj", 0},
    {HEED_FEED_POST_NORM, "blk.%d.post_ffw_norm", "layers.%d.post_feedforward_layernorm", 0},
    {0},
};

const heed_architecture heed_gemma2 = {
    .name = "gemma2",
    .prefixes = (const char *const[]){"model.", "", NULL},
    .tensors = tensors,
    .unused = (const char *const[]){"*.rotary_emb.inv_freq", NULL},
    .read = read,
};
