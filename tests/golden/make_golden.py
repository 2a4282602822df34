"""Makes the golden files: small attention problems, worked out in float64 by PyTorch and by peers' published code.

Each file holds inputs (F32), expected results and gradients (F64), and the spec in the metadata. They check the oracle of
the tests, and heed itself. Where a peer has the form (PyTorch's scaled_dot_product_attention, the rotary, T5 and gpt-oss
code of transformers, the projections of entmax), the peer computes it.

    pip install torch numpy safetensors transformers entmax
    python make_golden.py            # writes *.safetensors beside itself
"""

import math
import pathlib

import entmax
import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.nn.attention.bias import causal_lower_right
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

HERE = pathlib.Path(__file__).parent
INF = float("inf")


def problem(seed, b=1, h=2, g=None, n=7, m=9, d=8, e=6, **params):
    """Random q, k, v and parameters (name with __ for the dots, shape), rounded to float32."""
    rng = numpy.random.default_rng(seed)
    g = g or h
    shapes = dict(q=(b, h, n, d), k=(b, g, m, d), v=(b, g, m, e))
    shapes.update({name.replace("__", "."): shape for name, shape in params.items()})
    return {
        name: torch.tensor(rng.standard_normal(shape).astype(numpy.float32)).double().requires_grad_()
        for name, shape in shapes.items()
    }


def save(name, spec, x, out, weights=None, scores=None, lse=None, **extra):
    """Gradients of sum(dout out) by autograd; lse from the logits as they enter the function unless given."""
    torch.manual_seed(len(name))
    dout = torch.randn_like(out).float().double()
    gradients = torch.autograd.grad((dout * out).sum(), list(x.values()))
    file = {k: v.detach().float().contiguous() for k, v in x.items()}
    file["dout"] = dout.float()
    file["expected.out"] = out.detach().contiguous()
    if lse is None:
        lse = torch.logsumexp(scores, -1)
    file["expected.lse"] = lse.detach().contiguous()
    if weights is not None:
        file["expected.weights"] = weights.detach().contiguous()
    for key, gradient in zip(x, gradients):
        file["expected.d" + ("." if "." in key else "") + key] = gradient.contiguous()
    file.update({k: v.clone() for k, v in extra.items()})
    save_file(file, HERE / f"{name}.safetensors", metadata={"spec": spec})


def repeated(x, heads):
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def dot(q, k, scale=None):
    return q @ repeated(k, q.shape[1]).transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)


def distance(n, m):
    """Of query i, aligned with the end of the keys, to key j."""
    return (torch.arange(n)[:, None] + m - n) - torch.arange(m)[None, :]


def closed(scores, mask):
    return scores.masked_fill(~mask, -INF)


def soft(name, spec, x, scores, **extra):
    weights = torch.softmax(scores, -1)
    save(name, spec, x, weights @ repeated(x["v"], scores.shape[1]), weights, scores, **extra)


def plain():
    x = problem(1, b=2)
    out = F.scaled_dot_product_attention(x["q"], x["k"], x["v"])
    s = dot(x["q"], x["k"])
    save("plain", "", x, out, torch.softmax(s, -1), s)

    x = problem(2, n=9, m=9)
    out = F.scaled_dot_product_attention(x["q"], x["k"], x["v"], is_causal=True)
    s = closed(dot(x["q"], x["k"]), torch.ones(9, 9).tril().bool())
    save("causal", "where=causal", x, out, torch.softmax(s, -1), s)

    x = problem(3, n=3, m=9)
    out = F.scaled_dot_product_attention(x["q"], x["k"], x["v"], attn_mask=causal_lower_right(3, 9))
    s = closed(dot(x["q"], x["k"]), distance(3, 9) >= 0)
    save("causal_cache", "where=causal", x, out, torch.softmax(s, -1), s)

    for name, h, g in (("gqa", 6, 2), ("mqa", 4, 1)):
        x = problem(4 + h, b=2, h=h, g=g, n=5, m=6)
        out = F.scaled_dot_product_attention(x["q"], x["k"], x["v"], enable_gqa=True)
        s = dot(x["q"], x["k"])
        save(name, "", x, out, torch.softmax(s, -1), s)


def where():
    x = problem(20, b=2, h=2)
    mask = torch.rand(2, 2, 7, 9, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[..., 0] = True
    out = F.scaled_dot_product_attention(x["q"], x["k"], x["v"], attn_mask=mask)
    s = closed(dot(x["q"], x["k"]), mask)
    save("mask", "where=mask", x, out, torch.softmax(s, -1), s, mask=mask.to(torch.uint8))

    x = problem(21, n=10, m=10)
    d = distance(10, 10)
    soft("window", "where=causal & window(4)", x, closed(dot(x["q"], x["k"]), (d >= 0) & (d < 4)))
    x = problem(22, n=10, m=10)
    first = torch.arange(10)[None, :] < 2
    soft("streaming", "where=causal & (window(3) | first(2))", x,
         closed(dot(x["q"], x["k"]), (d >= 0) & ((d < 3) | first)))
    x = problem(23, n=11, m=11)
    d = distance(11, 11)
    soft("dilated", "where=dilated(2, 3)", x, closed(dot(x["q"], x["k"]), (d.abs() < 6) & (d % 3 == 0)))
    x = problem(24, n=8, m=8)
    segment = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2], dtype=torch.int32)
    same = segment[:, None] == segment[None, :]
    soft("segments", "where=causal & segments", x, closed(dot(x["q"], x["k"]), same & (distance(8, 8) >= 0)),
         q_segment=segment, k_segment=segment)

    # a 4 x 5 grid, radius 1: the 3 x 3 window whose corner is held inside the grid
    x = problem(25, h=1, n=20, m=20)
    mask = torch.zeros(20, 20, dtype=torch.bool)
    for i in range(20):
        top, left = min(max(i // 5 - 1, 0), 1), min(max(i % 5 - 1, 0), 2)
        grid = torch.zeros(4, 5, dtype=torch.bool)
        grid[top : top + 3, left : left + 3] = True
        mask[i] = grid.flatten()
    soft("neighbourhood", "where=neighbourhood(4, 5, 1)", x, closed(dot(x["q"], x["k"]), mask))


def published_slopes(heads):
    """As in the code of the ALiBi paper."""

    def power_of_two(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power_of_two(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return power_of_two(closest) + published_slopes(2 * closest)[0::2][: heads - closest]


def rotary(d, n, m, frequencies, factor=1.0):
    """cos and sin for queries and keys, [1, positions, d], halves repeated as transformers does."""
    angles = torch.arange(m).double()[:, None] * frequencies
    both = torch.cat((angles, angles), -1)[None]
    cos, sin = both.cos() * factor, both.sin() * factor
    return (cos[:, m - n :], sin[:, m - n :]), (cos, sin)


def rope_frequencies(kind, d, base, **parameters):
    """transformers' own frequencies, its single-precision steps made in double."""
    config = LlamaConfig(hidden_size=d, num_attention_heads=1, max_position_embeddings=4096, head_dim=d)
    config.rope_parameters = dict(rope_type=kind, rope_theta=float(base), **parameters)
    config.rope_theta = float(base)
    single = torch.float32
    torch.float = torch.float32 = torch.float64
    try:
        return ROPE_INIT_FUNCTIONS[kind](config, "cpu")
    finally:
        torch.float = torch.float32 = single


def rotated(x, frequencies, factor=1.0):
    n, m, d = x["q"].shape[2], x["k"].shape[2], x["q"].shape[3]
    (qc, qs), (kc, ks) = rotary(d, n, m, frequencies, factor)
    q, _ = apply_rotary_pos_emb(x["q"], x["q"], qc, qs)
    k, _ = apply_rotary_pos_emb(x["k"], x["k"], kc, ks)
    return q, k


def turned(x, positions, frequencies):
    """Adjacent entries as complex numbers, as in the first Llama code."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    angles = torch.polar(torch.ones(1).double(), positions.double()[:, None] * frequencies)
    return torch.view_as_real(pairs * angles).flatten(-2)


def position():
    for name, heads, arguments, slopes in (
        ("alibi", 4, "", [2.0 ** (-8 * (i + 1) / 4) for i in range(4)]),
        ("alibi_published", 6, "(slopes=published)", published_slopes(6)),
    ):
        x = problem(30 + heads, h=heads, n=5, m=7)
        bias = -torch.tensor(slopes).double()[:, None, None] * distance(5, 7).abs()
        soft(name, f"position=alibi{arguments}", x, dot(x["q"], x["k"]) + bias)

    usual = lambda d, base=10000.0: base ** (-torch.arange(0, d, 2).double() / d)
    x = problem(31, h=4, g=2)
    soft("rope", "position=rope", x, dot(*rotated(x, usual(8))))
    x = problem(32)
    q = turned(x["q"], torch.arange(2, 9), usual(8, 500.0))
    k = turned(x["k"], torch.arange(9), usual(8, 500.0))
    soft("rope_adjacent", "position=rope(base=500, pairs=adjacent)", x, dot(q, k))
    x = problem(33)
    part = dict(q=x["q"][..., :4], k=x["k"][..., :4])
    q, k = (torch.cat((a, x[b][..., 4:]), -1) for a, b in zip(rotated(part, usual(4)), "qk"))
    soft("rope_partial", "position=rope(dim=4)", x, dot(q, k))
    x = problem(34, d=32, n=30, m=40)
    f, factor = rope_frequencies("yarn", 32, 1e4, factor=4.0, original_max_position_embeddings=64)
    soft("rope_yarn", "position=rope(scaling=yarn(4, 64))", x, dot(*rotated(x, f, factor)))
    x = problem(35, d=32, n=30, m=40)
    f, factor = rope_frequencies("llama3", 32, 1e3, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                 original_max_position_embeddings=128)
    soft("rope_llama3", "position=rope(base=1000, scaling=llama3(8, low=1, high=4, original=128))", x,
         dot(*rotated(x, f, factor)))
    x = problem(36)
    f, _ = rope_frequencies("linear", 8, 1e4, factor=4.0)
    soft("rope_linear", "position=rope(scaling=linear(4))", x, dot(*rotated(x, f)))
    x = problem(37)
    soft("rope_ntk", "position=rope(scaling=ntk(4))", x, dot(*rotated(x, usual(8, 10000 * 4 ** (8 / 6)))))

    for name, causal, spec in (
        ("t5", False, "score=dot(1); position=t5"),
        ("t5_causal", True, "score=dot(1); position=t5(buckets=16, max=40); where=causal"),
    ):
        buckets, most = (16, 40) if causal else (32, 128)
        n = m = 60 if causal else 180
        n = n if causal else 20
        x = problem(38, n=n, m=m, d=4, e=2, position__t5__b=(2, buckets))
        bucket = T5Attention._relative_position_bucket(-distance(n, m), not causal, buckets, most)
        s = dot(x["q"], x["k"], 1.0) + x["position.t5.b"][:, bucket]
        soft(name, spec, x, closed(s, distance(n, m) >= 0) if causal else s)

    x = problem(40, n=9, m=12, position__shaw__r=(7, 8))
    r = x["position.shaw.r"][(-distance(9, 12)).clamp(-3, 3) + 3]
    soft("shaw", "position=shaw(max=3)", x,
         dot(x["q"], x["k"]) + torch.einsum("bhnd,nmd->bhnm", x["q"], r) / math.sqrt(8))

    for kind in ("log", "power"):
        x = problem(41, position__kerple__r1=(2,), position__kerple__r2=(2,))
        with torch.no_grad():
            for p in ("r1", "r2"):
                x[f"position.kerple.{p}"].copy_((x[f"position.kerple.{p}"].abs().clamp(max=1) + 0.5).float())
        r1, r2 = (x[f"position.kerple.{p}"][:, None, None] for p in ("r1", "r2"))
        away = distance(7, 9).abs().double()
        near = away.clamp(min=1)
        bias = -r1 * torch.log1p(r2 * away) if kind == "log" else -r1 * near**r2 * (away > 0)
        soft(f"kerple_{kind}", f"position=kerple(kind={kind})", x, dot(x["q"], x["k"]) + bias)

    x = problem(42, n=9, m=12, position__fire__c=(1,), position__fire__L=(1,), position__fire__w1=(32,),
                position__fire__b1=(32,), position__fire__w2=(2, 32), position__fire__b2=(2,))
    with torch.no_grad():
        x["position.fire.L"].fill_(-7.5)  # between the positions, and negative, so that both branches are met
    p = {name.split(".")[-1]: value for name, value in x.items()}
    away = distance(9, 12).abs().double()
    reach = torch.maximum(p["L"].abs(), torch.arange(3, 12).double())[:, None]
    z = torch.log(p["c"].abs() * away + 1) / torch.log(p["c"].abs() * reach + 1)
    hidden = torch.relu(z[..., None] * p["w1"] + p["b1"])
    bias = torch.einsum("nma,ha->hnm", hidden, p["w2"]) + p["b2"][:, None, None]
    soft("fire", "position=fire", x, dot(x["q"], x["k"]) + bias)

    # the code in the CoPE paper: sigmoid gates, a sum from the right, interpolated logits
    x = problem(43, n=8, m=8, position__cope__e=(4, 8))
    s = closed(dot(x["q"], x["k"]), distance(8, 8) >= 0)
    gates = torch.sigmoid(s)
    pos = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=3)
    ceil, floor = pos.ceil().long(), pos.floor().long()
    logits = torch.matmul(x["q"], x["position.cope.e"].t())
    w = pos - floor
    soft("cope", "position=cope(max=4); where=causal", x,
         s + logits.gather(-1, ceil) * w + logits.gather(-1, floor) * (1 - w))

    x = problem(44, n=7, m=9)
    q, k = rotated(x, usual(8))
    zeta = (torch.arange(0, 8, 2).double() / 8 + 0.4) / 1.4
    decay = torch.cat((zeta, zeta)) ** (distance(7, 9).double()[..., None] / 16)
    s = torch.einsum("bhnd,bhmd,nmd->bhnm", q, k, decay) / math.sqrt(8)
    soft("xpos", "position=xpos(scale_base=16); where=causal", x, closed(s, distance(7, 9) >= 0))

    x = problem(45)
    waves = torch.cos(distance(7, 9).double()[..., None] * usual(6)).sum(-1)
    ratio = 8 * (torch.arange(2).double() + 1) / 2
    soft("sandwich", "position=sandwich(dims=6)", x, dot(x["q"], x["k"]) + waves / ratio[:, None, None])


def score():
    x = problem(50)
    s = 10 * F.cosine_similarity(x["q"][:, :, :, None], x["k"][:, :, None], dim=-1)
    soft("cosine", "score=cosine", x, s)
    x = problem(51, h=2, g=1, score__bilinear__W=(2, 8, 8))
    s = torch.einsum("bhnd,hde,bhme->bhnm", x["q"], x["score.bilinear.W"], repeated(x["k"], 2)) / math.sqrt(8)
    soft("bilinear", "score=bilinear", x, s)
    for name, f in (("additive", torch.tanh), ("mlp", torch.relu)):
        shapes = dict(Wq=(4, 5, 8), Wk=(4, 5, 8), b=(4, 5), u=(4, 5))
        if name == "mlp":
            shapes["c"] = (4,)
        x = problem(52, h=4, g=2, n=5, m=6, **{f"score__{name}__{p}": shape for p, shape in shapes.items()})
        p = {key.split(".")[-1]: value for key, value in x.items()}
        a = torch.einsum("bhnd,had->bhna", x["q"], p["Wq"]) + p["b"][:, None]
        c = torch.einsum("bhmd,had->bhma", repeated(x["k"], 4), p["Wk"])
        s = torch.einsum("bhnma,ha->bhnm", f(a[:, :, :, None] + c[:, :, None]), p["u"])
        soft(name, f"score={name}(dim=5)", x, s + p["c"][:, None, None] if name == "mlp" else s)
    x = problem(53)
    away = (x["q"][:, :, :, None] - x["k"][:, :, None]).pow(2).sum(-1)
    soft("gaussian", "score=gaussian", x, -away / (2 * math.sqrt(8)))
    x = problem(54)
    soft("laplace", "score=laplace", x, -torch.cdist(x["q"], x["k"], p=1) / math.sqrt(8))


def normalise():
    x = problem(60)
    s = dot(x["q"], x["k"], 2.0)
    capped = 3 * torch.tanh(s / 3)
    soft("softcap", "score=dot(2); normalise=softcap(3)", x, capped)
    x = problem(61)
    soft("temperature", "normalise=softmax(temperature=0.5)", x, dot(x["q"], x["k"]) / 0.5)

    projections = (
        ("sparsemax", "sparsemax", lambda s: entmax.sparsemax(s, dim=-1)),
        ("entmax15", "entmax", lambda s: entmax.entmax15(s, dim=-1)),
        ("entmax125", "entmax(1.25)", lambda s: entmax.entmax_bisect(s, alpha=1.25, dim=-1, n_iter=60)),
        ("entmax3", "entmax(alpha=3)", lambda s: entmax.entmax_bisect(s, alpha=3.0, dim=-1, n_iter=60)),
    )
    others = (
        ("softmax1", "softmax1", lambda s: torch.exp(s) / (1 + torch.exp(s).sum(-1, keepdim=True))),
        ("sigmoid", "sigmoid", lambda s: torch.sigmoid(s - math.log(9))),
        ("relu", "relu", lambda s: torch.relu(s) / 9),
        ("relu_squared", "relu(power=2)", lambda s: torch.relu(s) ** 2 / 9),
    )
    for name, spec, f in projections + others:
        x = problem(62)
        s = dot(x["q"], x["k"])
        weights = f(s)
        save(name, f"normalise={spec}", x, weights @ x["v"], weights, s)

    # one more logit a row, as in gpt-oss
    x = problem(63, h=4, g=2, normalise__sink__sink=(4,))
    s = dot(x["q"], x["k"])
    sink = x["normalise.sink.sink"][None, :, None, None].expand(1, 4, 7, 1)
    weights = torch.softmax(torch.cat((s, sink), -1), -1)[..., :-1]
    save("sink", "normalise=sink", x, weights @ repeated(x["v"], 4), weights, s)


def rest():
    x = problem(70, h=3, heads__talking__before=(3, 3), heads__talking__after=(3, 3))
    s = torch.einsum("hg,bgnm->bhnm", x["heads.talking.before"], dot(x["q"], x["k"]))
    s = closed(s, distance(7, 9) >= 0)
    weights = torch.einsum("hg,bgnm->bhnm", x["heads.talking.after"], torch.softmax(s, -1))
    save("talking", "where=causal; heads=talking", x, weights @ x["v"], weights, s)

    x = problem(71, b=2, read__gate__g=(2, 2, 7, 6))
    s = dot(x["q"], x["k"])
    weights = torch.softmax(s, -1)
    save("gate", "read=gate", x, torch.sigmoid(x["read.gate.g"]) * (weights @ x["v"]), weights, s)

    x = problem(72)
    s = dot(x["q"], x["k"])
    kept = torch.zeros_like(s, dtype=torch.bool).scatter(-1, s.topk(4, -1).indices, True)
    soft("top_k", "select=top_k(4)", x, closed(s, kept))
    x = problem(73)
    s = dot(x["q"], x["k"])
    p, order = torch.softmax(s, -1).sort(-1, descending=True)
    before = p.cumsum(-1) - p  # a key stays while what stands before it does not reach p
    kept = torch.zeros_like(s, dtype=torch.bool).scatter(-1, order, before < 0.8)
    soft("top_p", "select=top_p(0.8)", x, closed(s, kept))

    # two sequences of different length in one batch, padded at the end
    x = problem(74, b=2, n=6, m=6)
    length = torch.tensor([6, 4], dtype=torch.int32)
    s = closed(dot(x["q"], x["k"]), (distance(6, 6) >= 0) & (torch.arange(6)[None, :] < length[:, None])[:, None, None])
    there = (torch.arange(6)[None, :] < length[:, None])[:, None, :, None]
    weights = torch.softmax(s, -1) * there
    lse = torch.logsumexp(s, -1).masked_fill(~there[..., 0], -INF)
    save("ragged", "where=causal", x, weights @ x["v"], weights, lse=lse, seq=length)


if __name__ == "__main__":
    for make in (plain, where, position, score, normalise, rest):
        make()
    print(sum(f.stat().st_size for f in HERE.glob("*.safetensors")), "bytes")
