#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hearth merge: adapters in a base give PEFT's logits, and mixed models the numbers of their definitions.

  check_merge.py HEARTH

The logits of adapters were computed by PEFT (tests/golden/adapters.py); the methods are written down here once more.
"""
import glob
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

HEARTH = sys.argv[1]
GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden")


def run(*arguments, fails=False):
    got = subprocess.run([HEARTH, *arguments], capture_output=True, text=True)
    if (got.returncode != 0) != fails:
        sys.exit(f"hearth {' '.join(arguments)}: {got.returncode} {got.stderr}")
    return got.stderr if fails else got.stdout


def logits(model, ids, folder, *more):
    path = os.path.join(folder, "logits")
    run("logits", model, "--ids", ids, "--scalar", "--out", path, *more)
    data = open(path, "rb").read()
    return struct.unpack(f"<{len(data) // 4}f", data)


def distance(a, b):
    """Root of the mean squared difference."""
    assert len(a) == len(b)
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / len(a))


# --- adapters


def adapter(name, folder):
    case = json.load(open(f"{GOLDEN}/adapters/{name}/golden.json"))
    want = struct.unpack(f"<{len(case['prompt']) * case['vocab']}f", open(f"{GOLDEN}/adapters/{name}/logits.f32", "rb").read())
    base, ids = f"{GOLDEN}/models/{case['base']}", ",".join(map(str, case["prompt"]))
    loras = [x for who, scale in case["with"] for x in ("--lora", f"{GOLDEN}/adapters/{who}:{scale}")]
    gguf, out, plain = (os.path.join(folder, x) for x in ("base.gguf", "merged.gguf", "merged"))
    run("convert", base, gguf, "--no-tokenizer")
    for source, to in ((base, plain), (gguf, out)):
        result = json.loads(run("merge", source, to, *loras, "--type", "F32", "--json"))
        assert result["changed"] > 0 and result["requantized"] == 0, result
        far = distance(logits(to, ids, folder), want) / case["logit_std"]
        assert far < 2e-3, (name, source, far)
    shutil.rmtree(plain)
    # Quantized: as far from the run-time adapter as the quantization moves the model that has it.
    os.unlink(out)
    small = os.path.join(folder, "small.gguf")
    run("quantize", gguf, small, "Q8_0")
    result = json.loads(run("merge", small, out, *loras, "--json"))
    assert result["requantized"] == result["changed"] > 0, result
    far, without = (distance(logits(*x), want) for x in ((out, ids, folder), (small, ids, folder, *loras)))
    assert far < 2 * without + 0.01 * case["logit_std"], (name, "Q8_0", far, without)
    os.unlink(out)


def refusals(folder):
    base, out = f"{GOLDEN}/models/llama", os.path.join(folder, "no")
    assert "tokens on" in run("merge", base, out, "--lora", f"{GOLDEN}/adapters/llama_alora", fails=True)
    assert "at once" in run("merge", f"{GOLDEN}/models/qwen3", out, "--lora", f"{GOLDEN}/adapters/qwen3_lora", fails=True)
    assert "--with" in run("merge", base, out, fails=True)
    assert "one --with" in run("merge", base, out, "--method", "slerp", "--with", base, "--with", base, fails=True)
    assert "shape" in run("merge", base, out, "--with", f"{GOLDEN}/models/mistral", fails=True)
    assert not glob.glob(out + "*")


# --- models


def read(folder):
    data = open(os.path.join(folder, "model.safetensors"), "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)
    return {k: (t["shape"], numbers(t["dtype"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])) for k, t in head.items()}


def numbers(kind, data):
    if kind == "BF16":
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    return struct.unpack(f"<{len(data) // 4}f", data)


def write(folder, source, tensors):
    os.mkdir(folder)
    shutil.copy(f"{source}/config.json", folder)
    head, data = {}, b""
    for name, (shape, values) in tensors.items():
        piece = struct.pack(f"<{len(values)}f", *values)
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(head).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def linear(x, weights):
    return [sum(w * v for w, v in zip(weights, at)) / sum(weights) for at in zip(*x)]


def slerp(x, t):
    a, b = x
    dot = sum(p * q for p, q in zip(a, b)) / (math.hypot(*a) * math.hypot(*b))
    if abs(dot) > 0.9995:
        return [(1 - t) * p + t * q for p, q in zip(a, b)]
    angle = math.acos(dot)
    return [(math.sin((1 - t) * angle) * p + math.sin(t * angle) * q) / math.sin(angle) for p, q in zip(a, b)]


def single(v):
    return struct.unpack("<f", struct.pack("<f", v))[0]


def task(x, weights, factor):
    return [at[0] + factor * sum(w * single(v - at[0]) for w, v in zip(weights, at[1:])) for at in zip(*x)]


def ties(x, weights, density, factor):
    deltas = []
    for other in x[1:]:
        d = [single(v - b) for v, b in zip(other, x[0])]
        least = sorted(map(abs, d), reverse=True)[max(1, int(density * len(d))) - 1]
        deltas.append([v if abs(v) >= least else 0 for v in d])
    out = []
    for i, b in enumerate(x[0]):
        at = [(w, d[i]) for w, d in zip(weights, deltas)]
        positive = sum(w * v for w, v in at) >= 0
        kept = [(w, v) for w, v in at if v != 0 and (v > 0) == positive]
        total = sum(w for w, _ in kept)
        out.append(b + (factor * sum(w * v for w, v in kept) / total if total else 0))
    return out


def mixtures(folder):
    source = f"{GOLDEN}/models/llama"
    tensors = [read(source)]
    random.seed(7)
    for k in range(2):
        tensors.append({n: (shape, [single(v + random.gauss(0, 0.1)) for v in values]) for n, (shape, values) in tensors[0].items()})
    for k in range(3):
        write(os.path.join(folder, f"m{k}"), source, tensors[k])
    path = [os.path.join(folder, f"m{k}") for k in range(3)]
    two, three = ["--with", path[1] + ":0.7"], ["--with", path[1] + ":0.7", "--with", path[2] + ":0.4"]
    cases = [
        (["--weight", "1.5", *three], lambda x: linear(x, [1.5, 0.7, 0.4])),
        (["--method", "slerp", "--t", "0.3", *two], lambda x: slerp(x[:2], 0.3)),
        (["--method", "task", "--lambda", "0.8", *three], lambda x: task(x, [0.7, 0.4], 0.8)),
        (["--method", "ties", "--density", "0.3", *three], lambda x: ties(x, [0.7, 0.4], 0.3, 1)),
    ]
    for arguments, method in cases:
        sums = set()
        for threads in ("1", "3"):
            out = os.path.join(folder, "out")
            sums.add(json.loads(run("merge", path[0], out, *arguments, "--json", "-t", threads))["sha256"])
            got = read(out)
            shutil.rmtree(out)
        assert len(sums) == 1, arguments
        for name in tensors[0]:
            want = method([t[name][1] for t in tensors])
            worst = max(abs(p - q) for p, q in zip(got[name][1], want))
            assert worst < 2e-6, (arguments, name, worst)


if not os.path.isdir(GOLDEN + "/adapters"):
    print("skipped: no golden adapters")
    sys.exit(0)
CASES = "llama_two_dora llama_ends phi3_lora qwen3_ia3 qwen3_moe_params".split()
with tempfile.TemporaryDirectory() as temporary:
    for case in CASES:
        adapter(case, temporary)
    refusals(temporary)
    mixtures(temporary)
print(f"{len(CASES)} adapters in their bases, four ways to mix models")
