"""What the package `gguf` reads in the two GGUF files that models/get fetches, as a text a line a key or tensor.

    pip install gguf; python make_gguf.py ~/.cache/heed .

key NAME KIND COUNT CRC32   of the value: texts as bytes, each followed by a zero; whole numbers as int64, floats as float32
tensor NAME TYPE BYTES CRC32 SIZES   outermost first
"""
import sys
import zlib

import numpy as np
from gguf import GGUFReader, GGUFValueType as V

FLOATS = (V.FLOAT32, V.FLOAT64)


def value_of(field):
    kinds = field.types
    kind = kinds[-1]
    array = kinds[0] == V.ARRAY
    if kind == V.STRING:
        texts = [bytes(field.parts[i]) for i in field.data]
        size = len(texts) if array else len(texts[0])
        return "texts" if array else "text", size, b"".join(t + b"\0" for t in texts)
    numbers = [field.parts[i][0] for i in field.data]
    if kind in FLOATS:
        return "floats" if array else "float", len(numbers), np.array(numbers, "<f4").tobytes()
    name = "ints" if array else "bool" if kind == V.BOOL else "int"
    return name, len(numbers), np.array([int(n) for n in numbers], "<i8").tobytes()


for model in ("smollm2", "gemma3"):
    reader = GGUFReader("%s/%s.gguf" % (sys.argv[1], model))
    with open("%s/gguf_%s.txt" % (sys.argv[2], model), "w") as out:
        for name, field in reader.fields.items():
            if not name.startswith("GGUF."):
                kind, count, data = value_of(field)
                print("key", name, kind, count, "%08x" % zlib.crc32(data), file=out)
        for tensor in reader.tensors:
            sizes = " ".join(str(int(n)) for n in reversed(tensor.shape))
            print("tensor", tensor.name, tensor.tensor_type.name, tensor.n_bytes,
                  "%08x" % zlib.crc32(tensor.data.tobytes()), sizes, file=out)
