"""Makes golden files of pretrained models: what transformers, in fp32, makes of ten texts.

    pip install torch transformers accelerate gguf safetensors tokenizers
    python make_model_golden.py smollm2.gguf gemma3.gguf minilm/ texts...

Texts are cut into pieces of 20 to 2,000 tokens. A language model's file holds for each piece i the tokens `i.tokens`, and
at some positions `i.positions` the likeliest next tokens `i.ids` [positions, 128], their `i.logprobs`, and the probability
of all others in buckets by id modulo 32, `i.rest` [positions, 32]: enough for a KL divergence, of the distribution with
the others put together, that bounds the true one from below closely. MiniLM's file holds tokens and the normalised mean
of the last hidden states.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).parent / "logits"
LENGTHS = [20, 35, 60, 100, 150, 250, 400, 700, 1200, 2000]
TOP, BUCKETS, POSITIONS = 128, 32, 8


def pieces(tokenizer, texts, start):
    """A piece a length, each from another place of another text; `start` goes before each."""
    for i, length in enumerate(LENGTHS):
        ids = tokenizer(texts[i % len(texts)], add_special_tokens=False)["input_ids"]
        at = (37 * i * i) % max(1, len(ids) - length)
        piece = (start + ids[at:])[:length]
        assert len(piece) == length
        yield piece


def language_model(path, name, texts):
    path = pathlib.Path(path)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    print(model.config)
    start = [tokenizer.bos_token_id] if name == "gemma3" else []
    file = {}
    for i, piece in enumerate(pieces(tokenizer, texts, start)):
        n = len(piece)
        positions = torch.tensor(sorted({n - 1 - (n - 2) * j * j // 49 for j in range(POSITIONS)}))
        with torch.no_grad():
            hidden = model.model(torch.tensor([piece])).last_hidden_state[0, positions]
            logits = model.lm_head(hidden).double()
            if getattr(model.config, "final_logit_softcapping", None):
                raise SystemExit("soft cap of logits is not applied here")
        logprobs = torch.log_softmax(logits, -1)
        top, ids = logprobs.topk(TOP)
        rest = logprobs.exp().scatter(1, ids, 0.0)
        padded = torch.nn.functional.pad(rest, (0, -rest.shape[1] % BUCKETS))
        file[f"{i}.tokens"] = torch.tensor(piece).int()
        file[f"{i}.positions"] = positions.int()
        file[f"{i}.ids"] = ids.int()
        file[f"{i}.logprobs"] = top.float().contiguous()
        file[f"{i}.rest"] = padded.view(len(positions), -1, BUCKETS).sum(1).float().contiguous()
        print(name, n, top[-1, :3], flush=True)
    save_file(file, HERE / f"{name}.logits.safetensors")


def minilm(path, texts):
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModel.from_pretrained(path).eval().float()
    file = {}
    for i, text in enumerate(texts * 4):
        words = text.split()
        sentence = " ".join(words[11 * i : 11 * i + [1, 4, 9, 20, 45, 90, 160, 400][i % 8]])
        batch = tokenizer(sentence, truncation=True, max_length=256, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**batch).last_hidden_state[0]
        mean = hidden.mean(0)
        file[f"{i}.tokens"] = batch["input_ids"][0].int()
        file[f"{i}.embedding"] = (mean / mean.norm()).contiguous()
        file[f"{i}.text"] = torch.tensor(list(sentence.encode()), dtype=torch.uint8)
    save_file(file, HERE / "minilm.embeddings.safetensors")


def main():
    torch.set_num_threads(1)
    smollm2, gemma3, folder, *names = sys.argv[1:]
    texts = [pathlib.Path(name).read_text() for name in names]
    minilm(folder, texts)
    language_model(smollm2, "smollm2", texts)
    language_model(gemma3, "gemma3", texts)


main()
