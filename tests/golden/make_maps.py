"""Attention weights of SmolLM2 as transformers computes them in fp32, for test_cli_map.c.

    pip install torch transformers gguf safetensors; python make_maps.py ~/.cache/heed maps/smollm2.safetensors

ids [tokens]; weights [layers, heads, tokens, tokens] of layers 3 and 10, heads 0, 2 and 8.
"""
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXT = "The cat sat on the mat because it was tired."
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], gguf_file="smollm2.gguf")
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], gguf_file="smollm2.gguf", dtype=torch.float32,
                                             attn_implementation="eager")
ids = tokenizer(TEXT, return_tensors="pt").input_ids
with torch.no_grad():
    attentions = model(ids, output_attentions=True).attentions
weights = torch.stack([attentions[layer][0][[0, 2, 8]] for layer in (3, 10)])
save_file({"ids": ids[0].int(), "weights": weights.contiguous()}, sys.argv[2], {"spec": "where=causal"})
