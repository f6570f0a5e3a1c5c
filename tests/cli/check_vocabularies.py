#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Published vocabularies as GGUF -> directory -> GGUF: the reference's tokens all the way, and the same keys at the end.

  check_vocabularies.py HEARTH

The corpus has vocabularies as GGUF files without weights; a tiny random Llama is put around each. Its texts and the ids of
the reference tokenizers come with them.
"""
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

HEARTH = sys.argv[1]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORPUS = os.path.join(os.environ.get("HEARTH_CORPUS", os.path.join(ROOT, "../shared/corpus")), "vocab")
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
WIDTH, FF = 32, 32


def run(*arguments):
    got = subprocess.run([HEARTH, *arguments], capture_output=True, text=True)
    if got.returncode != 0:
        sys.exit(f"hearth {' '.join(arguments)}: {got.returncode} {got.stderr}")
    return got.stdout


def keys(path):
    """name -> its type and value as bytes, of a GGUF file."""
    data, at, out = open(path, "rb").read(), 24, {}
    (count,) = struct.unpack_from("<Q", data, 16)

    def skip(kind, at):
        if kind == 8:
            return at + 8 + struct.unpack_from("<Q", data, at)[0]
        if kind == 9:
            inner, n = struct.unpack_from("<IQ", data, at)
            at += 12
            if inner != 8:
                return at + n * SIZES[inner]
            for _ in range(n):
                at = skip(8, at)
            return at
        return at + SIZES[kind]

    for _ in range(count):
        (n,) = struct.unpack_from("<Q", data, at)
        name = data[at + 8:at + 8 + n].decode()
        begin = at + 8 + n
        at = skip(struct.unpack_from("<I", data, begin)[0], begin + 4)
        out[name] = data[begin:at]
    return out


def with_weights(vocabulary, path):
    """A file with the tokenizer of this one and a Llama of one layer."""
    mine = {k: v for k, v in keys(vocabulary).items() if k.startswith("tokenizer.")}
    n = struct.unpack_from("<IIQ", mine["tokenizer.ggml.tokens"])[2]
    number = lambda v: struct.pack("<II", 4, v)
    text = lambda v: struct.pack("<IQ", 8, len(v)) + v.encode()
    mine |= {"general.architecture": text("llama"), "general.name": text("x"), "llama.block_count": number(1),
             "llama.context_length": number(64), "llama.embedding_length": number(WIDTH), "llama.feed_forward_length": number(FF),
             "llama.attention.head_count": number(2), "llama.rope.dimension_count": number(16),
             "llama.attention.layer_norm_rms_epsilon": struct.pack("<If", 6, 1e-5)}
    shapes = {"token_embd.weight": [WIDTH, n], "output_norm.weight": [WIDTH], "blk.0.attn_norm.weight": [WIDTH],
              "blk.0.ffn_norm.weight": [WIDTH]}
    shapes |= {f"blk.0.attn_{x}.weight": [WIDTH, WIDTH] for x in ("q", "k", "v", "output")}
    shapes |= {f"blk.0.ffn_{x}.weight": [WIDTH, FF] for x in ("gate", "up", "down")}
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(shapes), len(mine))
    head += b"".join(struct.pack("<Q", len(k)) + k.encode() + v for k, v in mine.items())
    body = b""
    for name, shape in shapes.items():
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, len(shape) > 1, len(body))
        if len(shape) > 1:
            row = random.randbytes(2 * WIDTH)
            row = bytes(b & 0x3F if i % 2 else b for i, b in enumerate(row))  # halves below 2
            body += row * shape[1]
        else:
            body += struct.pack("<f", 1.0) * shape[0]
        body += b"\0" * (-len(body) % 32)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + body)


def check(name, folder):
    first, back, second = (os.path.join(folder, x) for x in ("1.gguf", "hf", "2.gguf"))
    with_weights(os.path.join(CORPUS, name + ".gguf"), first)
    run("convert", first, back, "--to", "hf")
    run("convert", back, second, "--name", "x")
    lines = [json.loads(line) for line in open(os.path.join(CORPUS, name + ".goldens.jsonl"))]
    texts = "".join(json.dumps(x["text"]) + "\n" for x in lines)
    for where in (back, second):
        got = subprocess.run([HEARTH, "tokenize", where, "--no-bos", "--no-special", "--lines"], input=texts, capture_output=True, text=True, check=True)
        for line, answer in zip(lines, got.stdout.splitlines(), strict=True):
            assert json.loads(answer) == line["ids"], (name, where, line["text"], answer, line["ids"])
    a, b = keys(first), keys(second)
    for key in ("tokens", "token_type", "scores", "merges", "bos_token_id", "eos_token_id", "pre"):
        key = "tokenizer.ggml." + key
        assert key not in a or key.endswith("pre") or a[key] == b.get(key), (name, key, len(a[key]), len(b.get(key, b"")))
    shutil.rmtree(back)


if not os.path.isdir(CORPUS):
    print("skipped: no corpus of vocabularies")
    sys.exit(0)
NAMES = ["llama-spm", "starcoder", "deepseek-llm"]
with tempfile.TemporaryDirectory() as temporary:
    for one in NAMES:
        check(one, temporary)
print(f"{len(NAMES)} vocabularies there and back")
