"""Makes small randomly initialised models with transformers, and what transformers makes of a few tokens with them.

Each folder under models/ holds config.json, model.safetensors (or shards with an index) and golden.safetensors: `tokens`
[n], and `logits` [n, vocabulary], or `hidden` [n, width] for models that give none. Weights are large enough for every part
of the graph to matter, windows short enough to close keys within the text.

    pip install torch transformers safetensors
    python make_models.py            # writes models/*
"""

import json
import pathlib
import shutil

import torch
import transformers as t
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent / "models"
TOKENS = 48
SMALL = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=128)
GROUPED = dict(SMALL, num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64, rope_theta=500.0)


def randomise(model, seed):
    """Every weight away from its start: matrices N(0, 1/inputs), norms around 1, biases around 0."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        with torch.no_grad():
            if weight.dim() > 1:
                weight.copy_(noise * (0.5 if "embed" in name or "wte" in name or "wpe" in name else weight.shape[-1] ** -0.5 * 1.5))
            elif "bias" in name:
                weight.copy_(noise * 0.2)
            else:
                centre = 0.0 if "Gemma" in type(model).__name__ else 1.0
                weight.copy_(centre + noise * 0.2)


def tokens_of(vocabulary, seed):
    return torch.randint(3, vocabulary, (1, TOKENS), generator=torch.Generator().manual_seed(seed + 1000))


def make(name, model_class, config, seed, shard=None):
    model = model_class(config).eval().float()
    model.config._attn_implementation = "eager"
    randomise(model, seed)
    model.tie_weights()
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size=shard or "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens = tokens_of(config.vocab_size, seed)
    with torch.no_grad():
        out = model(tokens)
    golden = {"tokens": tokens[0].int()}
    if hasattr(out, "logits"):
        golden["logits"] = out.logits[0].float().contiguous()
    else:
        golden["hidden"] = out.last_hidden_state[0].float().contiguous()
    save_file(golden, folder / "golden.safetensors")
    print(name, sum(f.stat().st_size for f in folder.iterdir()))
    return model


def main():
    make("llama", t.LlamaForCausalLM, t.LlamaConfig(**GROUPED, tie_word_embeddings=False), 1)
    make("llama_tied", t.LlamaForCausalLM, t.LlamaConfig(**GROUPED, tie_word_embeddings=True), 2)
    make("llama_sharded", t.LlamaForCausalLM, t.LlamaConfig(**GROUPED, tie_word_embeddings=False, attention_bias=True), 3, "40KB")
    make("llama3", t.LlamaForCausalLM, t.LlamaConfig(**GROUPED, rope_parameters=dict(LLAMA3)), 4)
    make("mistral", t.MistralForCausalLM, t.MistralConfig(**GROUPED, sliding_window=8, head_dim=16), 5)
    make("qwen2", t.Qwen2ForCausalLM, t.Qwen2Config(**GROUPED, tie_word_embeddings=True), 6)
    make("qwen2_window", t.Qwen2ForCausalLM, t.Qwen2Config(**GROUPED, use_sliding_window=True, sliding_window=8, max_window_layers=1), 7)
    make("qwen3", t.Qwen3ForCausalLM, t.Qwen3Config(**GROUPED, head_dim=16), 8)
    make("gemma", t.GemmaForCausalLM, t.GemmaConfig(**GROUPED, head_dim=16), 9)
    make("gemma2", t.Gemma2ForCausalLM, t.Gemma2Config(**GROUPED, head_dim=16, sliding_window=8, query_pre_attn_scalar=24, attn_logit_softcapping=5.0, final_logit_softcapping=6.0), 10)
    make("gemma3", t.Gemma3ForCausalLM, t.Gemma3TextConfig(**dict(GROUPED, num_hidden_layers=3), head_dim=16, sliding_window=8, query_pre_attn_scalar=24,
         layer_types=["sliding_attention", "sliding_attention", "full_attention"],
         rope_parameters={"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}), 11)
    make("phi3", t.Phi3ForCausalLM, t.Phi3Config(**GROUPED), 12)
    make("phi3_partial", t.Phi3ForCausalLM, t.Phi3Config(**GROUPED, sliding_window=8, partial_rotary_factor=0.5), 13)
    make("gpt2", t.GPT2LMHeadModel, t.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=128, n_positions=64, bos_token_id=0, eos_token_id=0), 14)
    make("bert", t.BertModel, t.BertConfig(**SMALL, max_position_embeddings=64), 15)


main()
