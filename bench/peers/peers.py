"""heed and llama.cpp (through llama-cpp-python) in turn on one model file: tokens a second, and the ratio.

Each round runs one after the other in processes of their own, so that both meet the same machine; the best round counts.
llama.cpp runs with flash attention on and an f16 cache, as heed does, in batches of 512.
"""
import argparse
import json
import os
import subprocess
import sys
import time

STEPS = 32


def works(long):
    yield from (("prefill", 512), ("decode", 0), ("prefill", 4096), ("decode", 4096))
    if long:
        yield from (("prefill", 8192), ("decode", 8192))


def run_heed(heed, path, threads, long):
    command = [heed, "bench", "model", "-m", path, "--threads", str(threads), "--rounds", "1", "--json"]
    output = subprocess.run(command + (["--long"] if long else []), check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in output.splitlines()]
    return {(line["work"], line["tokens" if line["work"] == "prefill" else "depth"]): line for line in lines}


def peer(path, threads, long):
    """In a process of its own: prints a line of JSON a work."""
    from llama_cpp import Llama

    most = max(length for _, length in works(long))
    llm = Llama(model_path=path, n_ctx=most + STEPS + 1, n_threads=threads, n_threads_batch=threads, n_batch=512,
                n_ubatch=512, flash_attn=True, verbose=False)
    tokens = [1000 + i * 7 % 4000 for i in range(most + STEPS)]
    for work, length in works(long):
        if work == "prefill":
            llm.reset()
            start = time.perf_counter()
            llm.eval(tokens[:length])
            rate = length / (time.perf_counter() - start)
        else:
            if length == 0:
                llm.reset()
                llm.eval(tokens[:1])
            start = time.perf_counter()
            for step in range(STEPS):
                llm.eval([tokens[length + step]])
            rate = STEPS / (time.perf_counter() - start)
        print(json.dumps({"work": work, "length": length, "rate": rate}), flush=True)


def run_peer(path, threads, long):
    command = [sys.executable, __file__, "--peer", path, str(threads)] + (["--long"] if long else [])
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {(line["work"], line["length"]): line["rate"] for line in lines}


def processor():
    with open("/proc/cpuinfo") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return names[0] if names else "unknown processor"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--heed", default="build/heed")
    parser.add_argument("--store", default="")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--peer", nargs=2, metavar=("PATH", "THREADS"))
    wanted = parser.parse_args()
    if wanted.peer:
        return peer(wanted.peer[0], int(wanted.peer[1]), wanted.long)
    path = wanted.model if os.path.exists(wanted.model) else os.path.join(wanted.store, wanted.model + ".gguf")
    print(f"{processor()}, {os.cpu_count()} cores; {os.path.basename(path)}; best of {wanted.rounds} rounds in turn")
    print(f"{'threads':>7}  {'work':<8} {'length':>6} {'heed':>9} {'llama.cpp':>10}  tokens/s   ratio   heed's share of read bandwidth")
    for threads in map(int, wanted.threads.split(",")):
        ours, theirs, share = {}, {}, {}
        for _ in range(wanted.rounds):
            for key, line in run_heed(wanted.heed, path, threads, wanted.long).items():
                ours[key] = max(ours.get(key, 0.0), line["tokens_per_second"])
                share[key] = max(share.get(key, 0.0), line.get("share_of_bandwidth", 0.0))
            for key, rate in run_peer(path, threads, wanted.long).items():
                theirs[key] = max(theirs.get(key, 0.0), rate)
        for key in works(wanted.long):
            if key in ours and key in theirs:
                of_read = f"{100 * share[key]:6.0f} %" if share[key] else ""
                print(f"{threads:>7}  {key[0]:<8} {key[1]:>6} {ours[key]:>9.1f} {theirs[key]:>10.1f}  {'':8} "
                      f"{ours[key] / theirs[key]:>6.2f}   {of_read}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
