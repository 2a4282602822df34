"""Golden files of GGUF's block formats: random blocks and the values that the Python package `gguf` reads from them.

    python3 tests/golden/make_blocks.py      (needs numpy, gguf and safetensors)

A file for each format in tests/golden/blocks: `blocks` [rows, bytes] u8 and `values` [rows, values] f32. Scales are random
finite 16-bit floats of ordinary size, all other bits are random. `stored` holds the squared error that the package leaves
when it quantises `floats`, where it can.
"""
import os
import numpy as np
import gguf
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file

SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []}
NAMES = {"Q8_0": "q8", "Q4_0": "q4"}
folder = os.path.join(os.path.dirname(__file__), "blocks")
os.makedirs(folder, exist_ok=True)
random = np.random.default_rng(4)
for name, at in SCALES.items():
    kind = T[name]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    rows = 2048 // values
    blocks = random.integers(0, 256, (rows, size), dtype=np.uint8)
    for offset in at:
        scale = (random.standard_normal(rows) * 10.0 ** random.integers(-5, 2, rows)).astype(np.float16)
        blocks[:, offset:offset + 2] = scale.view(np.uint8).reshape(rows, 2)
    if name == "MXFP4":
        blocks[:, 0] = random.integers(90, 150, rows)
        blocks[:4, 0] = [0, 1, 2, 254]
    out = {"blocks": blocks, "values": gguf.quants.dequantize(blocks, kind).astype(np.float32)}
    floats = random.standard_normal((rows, values)).astype(np.float32)
    try:
        back = gguf.quants.dequantize(gguf.quants.quantize(floats, kind), kind)
        out["floats"] = floats
        out["stored"] = np.array([np.mean((back.astype(np.float64) - floats) ** 2)], dtype=np.float32)
    except NotImplementedError:
        pass
    save_file(out, os.path.join(folder, NAMES.get(name, name.lower()) + ".safetensors"))
