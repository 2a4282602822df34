"""A training step of heed and of PyTorch in turn: tokens a second, processor time, memory, and the ratios.

The decoder of `heed bench train`: 5 layers of width 384, 6 heads, gated SiLU of 1024, RMS norms, rope, a tied embedding of 4096
tokens; 16 sequences of 512 tokens, fp32, AdamW (fused in PyTorch). Each round runs one after the other in processes of their
own, so that both meet the same machine; the best round counts. Processor time is what both need where others share the machine.
"""
import argparse
import json
import resource
import subprocess
import sys
import time

BATCH, CONTEXT, WIDTH, LAYERS, HEADS, VOCABULARY, HIDDEN = 16, 512, 384, 5, 6, 4096, 1024


def build(torch):
    import torch.nn.functional as F
    from torch import nn

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x):
            return F.rms_norm(x, (WIDTH,), self.weight, 1e-5)

    def turn(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Norm(), Norm()
            self.qkv, self.o = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
            self.gate_up, self.down = nn.Linear(WIDTH, 2 * HIDDEN, bias=False), nn.Linear(HIDDEN, WIDTH, bias=False)

        def forward(self, x, cos, sin):
            q, k, v = self.qkv(self.first(x)).view(BATCH, CONTEXT, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(turn(q, cos, sin), turn(k, cos, sin), v, is_causal=True)
            x = x + self.o(y.transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH))
            gate, up = self.gate_up(self.second(x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.last = nn.Embedding(VOCABULARY, WIDTH), Norm()
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
            half = WIDTH // HEADS // 2
            angle = torch.arange(CONTEXT)[:, None] * 10000.0 ** (-torch.arange(half) / half)
            self.register_buffer("cos", angle.cos())
            self.register_buffer("sin", angle.sin())

        def forward(self, tokens, targets):
            x = self.embed(tokens)
            for layer in self.layers:
                x = layer(x, self.cos, self.sin)
            logits = F.linear(self.last(x), self.embed.weight)
            return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))

    return Decoder()


def peer(kind, threads, steps):
    """In a process of its own: prints a line of JSON."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    if kind == "attention":
        shape = (BATCH, HEADS, CONTEXT, WIDTH // HEADS)
        q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))

        def step():
            for x in (q, k, v):
                x.grad = None
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    else:
        model = build(torch)
        run = torch.compile(model) if kind == "compiled" else model
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT))
        targets = torch.roll(tokens, -1, 1)

        def step():
            optimiser.zero_grad(set_to_none=True)
            run(tokens, targets).backward()
            optimiser.step()
    step()
    seconds = processor = float("inf")
    for _ in range(steps):
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        seconds, processor = min(seconds, time.perf_counter() - wall), min(processor, time.process_time() - cpu)
    print(json.dumps({"seconds": seconds, "processor_seconds": processor,
                      "bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}), flush=True)


def run_heed(heed, work, threads, steps):
    command = [heed, "bench", "train", "--threads", str(threads), "--rounds", str(steps), "--only", work, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def run_peer(kind, threads, steps):
    command = [sys.executable, __file__, "--peer", kind, "--threads", str(threads), "--steps", str(steps)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads([line for line in output.splitlines() if line.startswith("{")][-1])


def best(rounds):
    return {key: min(r[key] for r in rounds) for key in ("seconds", "processor_seconds", "bytes")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--heed", default="build/heed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="steps a round and process, behind a first one")
    parser.add_argument("--no-compiled", action="store_true")
    parser.add_argument("--peer")
    a = parser.parse_args()
    if a.peer:
        return peer(a.peer, a.threads, a.steps)
    kinds = {"step": ["eager"] + ([] if a.no_compiled else ["compiled"]), "attention": ["attention"]}
    for work, peers in kinds.items():
        ours, theirs = [], {kind: [] for kind in peers}
        for _ in range(a.rounds):
            ours.append(run_heed(a.heed, work, a.threads, a.steps))
            for kind in peers:
                theirs[kind].append(run_peer(kind, a.threads, a.steps))
        mine, tokens = best(ours), BATCH * CONTEXT
        gflops = max(r["gflops"] for r in ours)
        share = max(r["share_by_processor_time"] for r in ours)
        print(f"{work}: heed {1e3 * mine['seconds']:.0f} ms, {1e3 * mine['processor_seconds']:.0f} ms of processor time, "
              f"{tokens / mine['seconds']:.0f} tokens/s, {gflops:.0f} GFLOP/s, {100 * share:.0f} % of peak by processor time, "
              f"{mine['bytes'] / 1e6:.0f} MB")
        for kind in peers:
            other = best(theirs[kind])
            print(f"{work}: torch {kind} {1e3 * other['seconds']:.0f} ms, {1e3 * other['processor_seconds']:.0f} ms of "
                  f"processor time, {tokens / other['seconds']:.0f} tokens/s, {other['bytes'] / 1e6:.0f} MB; heed is "
                  f"{other['seconds'] / mine['seconds']:.2f} times as fast, "
                  f"{other['processor_seconds'] / mine['processor_seconds']:.2f} by processor time", flush=True)


if __name__ == "__main__":
    main()
