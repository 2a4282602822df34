"""Makes nn/decoder.safetensors: a decoder of two layers by PyTorch in float64, with the loss and the gradient of every
parameter, and nn/optimisers.safetensors: steps of PyTorch's optimisers.

    pip install torch safetensors
    python make_nn.py            # writes into nn/ beside itself
"""

import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent / "nn"
WIDTH, HEADS, KV, DIM, HIDDEN, VOCABULARY, LAYERS, BATCH, CONTEXT = 24, 4, 2, 6, 40, 31, 2, 2, 11


def rope(x):
    """x [batch, heads, n, dim]: entry t turned with t + dim / 2."""
    half = DIM // 2
    angle = torch.arange(CONTEXT, dtype=x.dtype)[:, None] * 10000.0 ** (-2 * torch.arange(half, dtype=x.dtype) / DIM)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def norm(x, weight):
    return F.rms_norm(x, (WIDTH,), weight, 1e-5)


def split(x, heads):
    return x.view(BATCH, CONTEXT, heads, DIM).transpose(1, 2)


def decoder():
    torch.manual_seed(3)
    shapes = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "model.norm.weight": (WIDTH,)}
    layer_shapes = {
        "input_layernorm": (WIDTH,), "self_attn.q_proj": (HEADS * DIM, WIDTH), "self_attn.k_proj": (KV * DIM, WIDTH),
        "self_attn.v_proj": (KV * DIM, WIDTH), "self_attn.o_proj": (WIDTH, HEADS * DIM), "post_attention_layernorm": (WIDTH,),
        "mlp.gate_proj": (HIDDEN, WIDTH), "mlp.up_proj": (HIDDEN, WIDTH), "mlp.down_proj": (WIDTH, HIDDEN),
    }
    for layer in range(LAYERS):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in layer_shapes.items()}
    p = {name: (torch.randn(shape) * 0.3 + (len(shape) == 1)).double().requires_grad_() for name, shape in shapes.items()}
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT))
    targets = torch.randint(VOCABULARY, (BATCH, CONTEXT))
    targets[0, 3] = targets[1, 9] = -1
    embedding = p["model.embed_tokens.weight"]
    x = embedding[tokens]
    for layer in range(LAYERS):
        w = {name: p[f"model.layers.{layer}.{name}.weight"] for name in layer_shapes}
        h = norm(x, w["input_layernorm"])
        q, k = (rope(split(h @ w[f"self_attn.{name}_proj"].T, heads)) for name, heads in (("q", HEADS), ("k", KV)))
        v = split(h @ w["self_attn.v_proj"].T, KV)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + a.transpose(1, 2).reshape(BATCH, CONTEXT, -1) @ w["self_attn.o_proj"].T
        h = norm(x, w["post_attention_layernorm"])
        x = x + (F.silu(h @ w["mlp.gate_proj"].T) * (h @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
    logits = norm(x, p["model.norm.weight"]) @ embedding.T
    loss = F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1), ignore_index=-1, label_smoothing=0.1)
    loss.backward()
    file = {"tokens": tokens.int(), "targets": targets.int(), "expected.loss": loss.detach()[None], "expected.logits": logits.detach()}
    for name, value in p.items():
        file[name] = value.detach().float()
        file["expected.d." + name] = value.grad
    save_file({k: v.contiguous() for k, v in file.items()}, HERE / "decoder.safetensors")


def muon(w, gradients, rate=0.02, momentum=0.95, decay=0.1):
    """Jordan et al. 2024, by its formula: PyTorch's own rounds to bfloat16 on the way."""
    m = torch.zeros_like(w)
    for g in gradients:
        m = momentum * m + (1 - momentum) * g
        x = (1 - momentum) * g + momentum * m
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        w = w * (1 - rate * decay) - rate * max(1, w.shape[0] / w.shape[1]) ** 0.5 * x
    return w


def lion(w, gradients, rate=0.01, beta1=0.9, beta2=0.99, decay=0.1):
    """Chen et al. 2023, by its formula."""
    m = torch.zeros_like(w)
    for g in gradients:
        w = w * (1 - rate * decay) - rate * (beta1 * m + (1 - beta1) * g).sign()
        m = beta2 * m + (1 - beta2) * g
    return w


def optimisers():
    """Three steps on a weight [6, 10] with given gradients."""
    torch.manual_seed(5)
    start, gradients = torch.randn(6, 10), torch.randn(3, 6, 10)
    file = {"start": start, "gradients": gradients}
    makes = {
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
        "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.1),
        "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    }
    for name, make in makes.items():
        w = start.double().clone().requires_grad_()
        optimiser = make([w])
        for g in gradients.double():
            w.grad = g.clone()
            optimiser.step()
        file["expected." + name] = w.detach()
    file["expected.muon"] = muon(start.double(), gradients.double())
    file["expected.lion"] = lion(start.double(), gradients.double())
    save_file({k: v.contiguous() for k, v in file.items()}, HERE / "optimisers.safetensors")


HERE.mkdir(exist_ok=True)
decoder()
optimisers()
