"""Makes tests/golden/tokenizer: the ids that independent tokenisers give for the texts of tokenizer_texts.py, and small
tokenisers to test with. Needs the packages tokenizers, sentencepiece, gguf and protobuf.

    python make_tokenizers.py [FOLDER with smollm2.gguf, gemma3.gguf and minilm/]

A file of texts holds, for each, its size and its bytes; a file of ids, for each text, their count and the ids; all numbers in
base 128, the lowest seven bits first, the top bit of a byte says that more follow. NAME.ids are the ids with special tokens as
plain text, NAME.special.ids those of special.texts with special tokens parsed.
"""
import json
import os
import re
import sys

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import tokenizer_texts

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer")
PLAIN = tokenizer_texts.plain_texts()
BROKEN = tokenizer_texts.broken_texts()
NAMES = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<unused7>", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "<s>", "</s>", "<unk>",
         "<0x0A>", "<tool>", "[multimodal]", "<div>"]
SPECIAL = tokenizer_texts.special_texts(NAMES)
FEW = PLAIN[:330] + PLAIN[-420:]


def number(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def write_texts(name, texts):
    with open(os.path.join(HERE, name + ".texts"), "wb") as f:
        for t in texts:
            t = t if isinstance(t, bytes) else t.encode()
            f.write(number(len(t)) + t)


def write_ids(name, lists):
    with open(os.path.join(HERE, name + ".ids"), "wb") as f:
        for ids in lists:
            f.write(number(len(ids)) + b"".join(number(i) for i in ids))


def both(name, tokenizer, texts, special=SPECIAL):
    """Ids of a tokenizers.Tokenizer."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    write_ids(name, [tokenizer.encode(t, add_special_tokens=False).ids for t in texts])
    tokenizer.encode_special_tokens = False
    write_ids(name + ".special", [tokenizer.encode(t, add_special_tokens=False).ids for t in special])


def byte_alphabet():
    same = [*range(33, 127), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in same]
    return {**{b: chr(b) for b in same}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def broken_byte_level(tokenizer, data):
    """A broken byte is split as U+FFFD is and stands for itself."""
    pieces, chars = [], []
    while data:
        try:
            text = data.decode()
            chars += [(c, c.encode()) for c in text]
            break
        except UnicodeDecodeError as e:
            chars += [(c, c.encode()) for c in data[: e.start].decode()] + [("\ufffd", data[e.start : e.start + 1])]
            data = data[e.start + 1 :]
    text = "".join(c for c, _ in chars)
    alphabet, ids = byte_alphabet(), []
    for _, (start, end) in tokenizer.pre_tokenizer.pre_tokenize_str(text):
        piece = "".join(alphabet[b] for _, raw in chars[start:end] for b in raw)
        ids += [t.id for t in tokenizer.model.tokenize(piece)]
    return ids


def gguf_fields(path):
    from gguf import GGUFReader

    reader = GGUFReader(path)
    return {k: f.contents() for k, f in reader.fields.items() if k.startswith("tokenizer.")}


def smollm2(path):
    meta = gguf_fields(path)
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s, k in zip(tokens, types) if k == 3])
    both("smollm2", t, PLAIN)
    write_ids("smollm2.broken", [broken_byte_level(t, b) for b in BROKEN])


def sentencepiece_model(tokens, scores, types, **spec):
    proto = pb.ModelProto()
    for text, score, kind in zip(tokens, scores, types):
        proto.pieces.add(piece=text.replace(" ", "\u2581") if kind == 4 else text, score=score, type=kind)
    proto.trainer_spec.model_type = spec.pop("model_type", 2)
    proto.trainer_spec.byte_fallback = True
    for k in ("unk", "bos", "eos", "pad"):
        setattr(proto.trainer_spec, k + "_piece", "<%s>" % k)
    proto.normalizer_spec.name = "identity"
    for k in ("add_dummy_prefix", "remove_extra_whitespaces"):
        setattr(proto.normalizer_spec, k, spec.get(k, False))
    proto.normalizer_spec.escape_whitespaces = True
    return spm.SentencePieceProcessor(model_proto=proto.SerializeToString())


def broken_sentencepiece(processor, data):
    """A broken byte is a character that no piece has, and its own byte token."""
    text = data.decode("utf-8", "surrogateescape")
    text = "".join(chr(0x10FF00 + ord(c) - 0xDC00) if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)
    first, ids, out = processor.piece_to_id("<0x00>"), processor.encode(text), []
    i = 0
    while i < len(ids):
        if ids[i] == first + 0xF4 and ids[i + 1] == first + 0x8F and ids[i + 2] >= first + 0xBC:
            out.append(first + ((ids[i + 2] - first & 3) << 6 | ids[i + 3] - first & 0x3F))
            i += 4
        else:
            out.append(ids[i])
            i += 1
    return out


def with_special(processor, specials, text):
    """SentencePiece does not parse its control tokens: they cut the text here."""
    ids = []
    for i, part in enumerate(re.split("(" + "|".join(re.escape(s) for s in sorted(specials, key=len, reverse=True)) + ")", text)):
        ids += [specials[part]] if i % 2 else processor.encode(part)
    return ids


def gemma3(path):
    meta = gguf_fields(path)
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    kinds = [2 if s == "<unk>" else k for s, k in zip(tokens, types)]
    p = sentencepiece_model(tokens, meta["tokenizer.ggml.scores"], kinds)
    write_ids("gemma3", [p.encode(t) for t in PLAIN])
    specials = {s: i for i, (s, k) in enumerate(zip(tokens, kinds)) if k in (2, 3)}
    write_ids("gemma3.special", [with_special(p, specials, t) for t in SPECIAL])
    write_ids("gemma3.broken", [broken_sentencepiece(p, b) for b in BROKEN])


def minilm(path):
    t = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    both("minilm", t, PLAIN)
    t.encode_special_tokens = True
    write_ids("minilm.broken", [t.encode(b.decode("utf-8", "replace"), add_special_tokens=False).ids for b in BROKEN])


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CORPUS = tokenizer_texts.SENTENCES * 3 + tokenizer_texts.CODE + PLAIN[900:1500]


LATIN = ["".join(c for c in s if ord(c) < 0x250) for s in CORPUS]


def save(name, tokenizer, change=None):
    data = json.loads(tokenizer.to_str())
    if change:
        change(data)
    with open(os.path.join(HERE, name + ".json"), "w") as f:
        json.dump(data, f, ensure_ascii=False, separators=(",", ":"))
    return Tokenizer.from_file(os.path.join(HERE, name + ".json"))


def split_by(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level(name, pre_tokenizer, size, normalizer=None, change=None, added=()):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizer
    t.decoder = decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                                                      special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"]))
    for token in added:
        (t.add_special_tokens if token.special else t.add_tokens)([token])
    both(name, save(name, t, change), FEW)


def synthetic_byte_level():
    flags = [AddedToken("<tool>", special=False, normalized=False), AddedToken("[MASK]", special=True, lstrip=True, normalized=False),
             AddedToken("[SEP]", special=True, rstrip=True, normalized=False), AddedToken("fox", special=False, single_word=True, normalized=True),
             AddedToken("</s>", special=True, lstrip=True, rstrip=True, normalized=True), AddedToken("kiwis", special=False, normalized=True)]
    byte_level("gpt2", pre_tokenizers.ByteLevel(add_prefix_space=True), 600, added=flags)

    def ignore(data):
        data["model"]["ignore_merges"] = True
        data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]

    byte_level("llama3", split_by(LLAMA3), 600, change=ignore)
    byte_level("qwen2", split_by(QWEN2), 600, normalizer=normalizers.NFC())


def synthetic_unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip(), normalizers.NFKC()])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    t.train_from_iterator(LATIN, trainers.UnigramTrainer(vocab_size=500, unk_token="<unk>", special_tokens=["<s>", "</s>", "<unk>"], show_progress=False))

    def bytes_too(data):
        vocab = data["model"]["vocab"]
        latin = [v for v in vocab if all(ord(c) < 0x250 or c == "\u2581" for c in v[0])]
        data["model"]["vocab"] = latin + [["<0x%02X>" % b, -20.0] for b in range(256)]
        data["model"]["unk_id"] = [v[0] for v in latin].index("<unk>")
        data["model"]["byte_fallback"] = True
        for token in data["added_tokens"]:
            token["id"] = [v[0] for v in latin].index(token["content"])

    both("unigram", save("unigram", t, bytes_too), FEW)


def write_gguf(name, model, tokens, scores, types, **more):
    import gguf

    w = gguf.GGUFWriter(os.path.join(HERE, name + ".gguf"), "llama")
    w.add_tokenizer_model(model)
    w.add_token_list(tokens)
    if scores is not None:
        w.add_token_scores(scores)
    w.add_token_types(types)
    for k, v in more.items():
        if isinstance(v, bool):
            w.add_bool("tokenizer.ggml." + k, v)
        elif isinstance(v, int):
            w.add_uint32("tokenizer.ggml." + k, v)
        elif isinstance(v, bytes):
            w.add_array("tokenizer.ggml." + k, v)
        elif isinstance(v, str):
            w.add_string("tokenizer." + k, v)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def trained(name, kind, **more):
    prefix = os.path.join("/tmp", name)
    with open(prefix + ".txt", "w") as f:
        f.write("\n".join(c.replace("\n", " ").replace("\r", " ") for c in LATIN))
    spm.SentencePieceTrainer.train(input=prefix + ".txt", model_prefix=prefix, model_type=kind, byte_fallback=True, character_coverage=0.999, minloglevel=2, **more)
    with open(prefix + ".model", "rb") as f:
        data = f.read()
    proto = pb.ModelProto()
    proto.ParseFromString(data)
    return proto, spm.SentencePieceProcessor(model_proto=data)


def synthetic_sentencepiece():
    """A vocabulary of the kind of Llama 2: as GGUF against SentencePiece, as tokenizer.json against tokenizers."""
    proto, p = trained("llama2", "bpe", vocab_size=700, normalization_rule_name="identity", remove_extra_whitespaces=False, user_defined_symbols=["<tool>"])
    tokens, scores, types = [x.piece for x in proto.pieces], [x.score for x in proto.pieces], [x.type for x in proto.pieces]
    write_gguf("llama2", "llama", tokens, scores, types, bos_token_id=1, eos_token_id=2, unknown_token_id=0)
    texts = [t for t in FEW if "<tool>" not in t]
    assert texts == FEW
    write_ids("llama2", [p.encode(t) for t in FEW])
    write_ids("llama2.broken", [broken_sentencepiece(p, b) for b in BROKEN])

    vocab = {t: i for i, t in enumerate(tokens)}
    merges = [(scores[i], l, t[k:]) for i, t in enumerate(tokens) if types[i] == 1 for k in range(1, len(t)) for l in (t[:k],) if l in vocab and t[k:] in vocab]
    merges.sort(key=lambda m: (-m[0], len(m[1])))
    t = Tokenizer(models.BPE(vocab, [m[1:] for m in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in ("<unk>", "<s>", "</s>")])
    t.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    t = save("llama2", t)
    both("llama2_json", t, FEW)


def synthetic_t5():
    with open("/tmp/t5.tsv", "w") as f:  # a small map: what NFKC makes of some characters, and of letters with loose accents
        import unicodedata

        made = [c for c in map(chr, [9, 10, 13, 0xA0, 0x3000, *range(0xFF01, 0xFF5F), 0xFB01, 0xFB02, 0xBD, 0x2167, *range(0x1D400, 0x1D434)])]
        made += [b + "\u0301" for b in "aeiouAEIOU"] + ["q\u0323\u0307"]
        for c in made:
            to = " " if c in "\t\n\r" else unicodedata.normalize("NFKC", c)
            if to != c:
                f.write(" ".join("%X" % ord(x) for x in c) + "\t" + " ".join("%X" % ord(x) for x in to) + "\n")
        f.write("200B\t\n")
    proto, p = trained("t5", "unigram", vocab_size=560, normalization_rule_tsv="/tmp/t5.tsv")
    tokens, scores, types = [x.piece for x in proto.pieces], [x.score for x in proto.pieces], [x.type for x in proto.pieces]
    write_gguf("t5", "t5", tokens, scores, types, bos_token_id=1, eos_token_id=2, unknown_token_id=0, remove_extra_whitespaces=True, add_space_prefix=True,
               precompiled_charsmap=proto.normalizer_spec.precompiled_charsmap)
    write_ids("t5", [p.encode(t) for t in FEW])


def synthetic_wordpiece():
    """The same vocabulary as vocab.txt, cased, and as GGUF writes it."""
    from tokenizers import BertWordPieceTokenizer

    t = BertWordPieceTokenizer(lowercase=True)
    t.train_from_iterator(CORPUS, vocab_size=700, show_progress=False)
    tokens = [s for s, _ in sorted(t.get_vocab().items(), key=lambda x: x[1])]
    folder = os.path.join(HERE, "wordpiece")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "vocab.txt"), "w") as f:
        f.write("".join(s + "\n" for s in tokens))
    special = [s.startswith("[") and s.endswith("]") and len(s) > 2 for s in tokens]
    written = [s if k else s[2:] if s.startswith("##") else "\u2581" + s for s, k in zip(tokens, special)]
    write_gguf("bert", "bert", written, None, [3 if k else 1 for k in special], bos_token_id=tokens.index("[CLS]"), eos_token_id=tokens.index("[SEP]"),
               unknown_token_id=tokens.index("[UNK]"), seperator_token_id=tokens.index("[SEP]"), padding_token_id=tokens.index("[PAD]"), mask_token_id=tokens.index("[MASK]"))
    t = BertWordPieceTokenizer(os.path.join(folder, "vocab.txt"), lowercase=True)
    write_ids("wordpiece", [t.encode(x, add_special_tokens=False).ids for x in FEW])


def learnt():
    """A vocabulary that the library learns from the book that heed brings along."""
    book = os.path.join(os.path.dirname(HERE), "..", "..", "src", "eval", "texts", "alice.txt")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=700, min_frequency=2, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    with open(book, newline="") as f:
        tokenizer.train_from_iterator([f.read()], trainer)
    with open(os.path.join(HERE, "learnt.txt"), "w") as f:
        for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda x: x[1]):
            f.write(token + "\n")
    write_ids("learnt", [tokenizer.encode(t, add_special_tokens=False).ids for t in FEW])


def main():
    os.makedirs(HERE, exist_ok=True)
    write_texts("plain", PLAIN)
    write_texts("broken", BROKEN)
    write_texts("special", SPECIAL)
    write_texts("few", FEW)
    synthetic_byte_level()
    synthetic_unigram()
    synthetic_sentencepiece()
    synthetic_t5()
    synthetic_wordpiece()
    learnt()
    if len(sys.argv) > 1:
        smollm2(os.path.join(sys.argv[1], "smollm2.gguf"))
        gemma3(os.path.join(sys.argv[1], "gemma3.gguf"))
        minilm(os.path.join(sys.argv[1], "minilm"))


if __name__ == "__main__":
    main()
