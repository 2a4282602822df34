/* BERT (MiniLM, e5, bge): reads in both directions, learnt positions and token types, LayerNorm after each
 * sum, GELU. Gives no next tokens, only hidden states. Devlin et al. 2018. */
#include "base/try.h"
#include "model/architecture.h"

static heed_status read(heed_config *config, heed_facts *facts)
{
    TRY(heed_fact_size(facts, "block_count", "num_hidden_layers", 1, HEED_MOST_LAYERS, &config->layers));
    TRY(heed_fact_size(facts, "embedding_length", "hidden_size", 1, 1 << 20, &config->width));
    TRY(heed_fact_size(facts, "attention.head_count", "num_attention_heads", 1, 1 << 16, &config->heads));
    TRY(heed_fact_size(facts, "feed_forward_length", "intermediate_size", 1, 1 << 24, &config->feed_forward));
    TRY(heed_fact_size(facts, "context_length", "max_position_embeddings", 1, 1 << 24, &config->context));
    config->kv_heads = config->heads;
    config->head_dim = config->width / config->heads;
    config->positions = config->context;
    config->norm = HEED_NORM_LAYER;
    config->gated = false;
    config->eps = 1e-12;
    TRY(heed_fact_number(facts, "attention.layer_norm_epsilon", "layer_norm_eps", &config->eps));
    config->activation = HEED_GELU;
    TRY(heed_config_activation(config, facts, "hidden_act"));
    TRY(heed_fact_must_be(facts, NULL, "position_embedding_type", "absolute"));
    TRY(heed_fact_must_be(facts, "attention.causal", "is_decoder", "false"));
    TRY(heed_fact_must_be(facts, NULL, "add_cross_attention", "false"));
    bool unused = true; /* of the output over masks, which is not read */
    TRY(heed_fact_bool(facts, NULL, "tie_word_embeddings", &unused));
    heed_fact_meta(facts, "pooling_type"); /* read by who pools */
    config->causal = config->generates = false;
    return HEED_OK;
}

static const heed_tensor_name tensors[] = {
    {HEED_EMBEDDING, "token_embd", "embeddings.word_embeddings", 0},
    {HEED_POSITIONS, "position_embd", "embeddings.position_embeddings", 0},
    {HEED_TOKEN_TYPES, "token_types", "embeddings.token_type_embeddings", 0},
    {HEED_EMBEDDING_NORM, "token_embd_norm", "embeddings.LayerNorm", HEED_BIAS},
    {HEED_QUERY, "blk.%d.attn_q", "encoder.layer.%d.attention.self.query", HEED_BIAS},
    {HEED_KEY, "blk.%d.attn_k", "encoder.layer.%d.attention.self.key", HEED_BIAS},
    {HEED_VALUE, "blk.%d.attn_v", "encoder.layer.%d.attention.self.value", HEED_BIAS},
    {HEED_ATTENTION_OUTPUT, "blk.%d.attn_output", "encoder.layer.%d.attention.output.dense", HEED_BIAS},
    {HEED_ATTENTION_SUM_NORM, "blk.%d.attn_output_norm", "encoder.layer.%d.attention.output.LayerNorm",
     HEED_BIAS},
    {HEED_UP, "blk.%d.ffn_up", "encoder.layer.%d.intermediate.dense", HEED_BIAS},
    {HEED_DOWN, "blk.%d.ffn_down", "encoder.layer.%d.output.dense", HEED_BIAS},
    {HEED_FEED_SUM_NORM, "blk.%d.layer_output_norm", "encoder.layer.%d.output.LayerNorm", HEED_BIAS},
    {0},
};

const heed_architecture heed_bert = {
    .name = "bert",
    .prefixes = (const char *const[]){"", "bert.", NULL},
    .tensors = tensors,
    .unused = (const char *const[]){"*embeddings.position_ids", "*pooler.dense.weight", "*pooler.dense.bias",
                                    "cls.*", NULL},
    .read = read,
};
