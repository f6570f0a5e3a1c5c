#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints with four-bit floats and FP8: written here as their formats are described, decoded here, and read by hearth.

  check_packed.py HEARTH [--device=ID]

A golden model is packed as bitsandbytes (NF4, with plain and nested absmax), ModelOpt (NVFP4, FP8) and compressed-tensors
(NVFP4) store one, and as FP8 with scales per row and block. hearth must compute of it what it computes of the numbers that this
script decodes. With --device it computes on that device, and the numbers on the CPU: a GPU multiplies 16-bit numbers, so there the
bound is that of golden/check.py; token by token its logits have the same bits. The same then holds of MLX mxfp8 and affine, Q3_K,
IQ and TQ types, which hearth writes itself, and of experts.
"""
import bisect
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

HEARTH = sys.argv[1]
DEVICE = next((a.split("=", 1)[1] for a in sys.argv[2:] if a.startswith("--device=")), None)
SOFTWARE = os.path.basename(HEARTH).startswith("soft_")  # its GPU is made of software (docs/cuda.md)
GPU_BOUND = 2.5e-2
IDS = (1, 5, 9, 200, 13, 77)
GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden/models/llama")
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E5M2 = [(m / 4 * 2**-14 if e == 0 else (1 + m / 4) * 2.0 ** (e - 15)) for e in range(31) for m in range(4)]
E4M3 = [(m / 8 * 2**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)) for e in range(16) for m in range(8)][:127]


def run(*arguments):
    got = subprocess.run([HEARTH, *arguments], capture_output=True, text=True)
    if got.returncode != 0:
        sys.exit(f"hearth {' '.join(arguments)}: {got.returncode} {got.stderr}")
    return got.stdout


def read(folder):
    data = open(os.path.join(folder, "model.safetensors"), "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            assert t["dtype"] == "BF16"
            raw = data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
            out[name] = (t["shape"], [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)])
    return out


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def single(v):
    return struct.unpack("<f", struct.pack("<f", v))[0]


def write(folder, tensors, quantization):
    os.mkdir(folder)
    config = json.load(open(GOLDEN + "/config.json"))
    if quantization:
        config["quantization_config"] = quantization
    json.dump(config, open(folder + "/config.json", "w"))
    head, data = {}, b""
    for name, (kind, shape, raw) in tensors.items():
        head[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    with open(folder + "/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def nearest(table, x):
    i = bisect.bisect_left(table, x)
    return min((j for j in (i - 1, i) if 0 <= j < len(table)), key=lambda j: abs(table[j] - x))


def nf4(name, shape, values, block, nested):
    """The tensors, and the numbers that they mean."""
    scales = [max(map(abs, values[i:i + block])) or 1.0 for i in range(0, len(values), block)]
    state = {"quant_type": "nf4", "blocksize": block, "dtype": "bfloat16", "shape": shape}
    out = {name + ".quant_map": ("F32", [16], floats(NF4))}
    if nested:
        table = sorted(single(random.uniform(-1, 1)) for _ in range(256))
        offset = single(sum(scales) / len(scales))
        outer = [single(max(abs(s - offset) for s in scales[i:i + 256]) or 1.0) for i in range(0, len(scales), 256)]
        codes = [nearest(table, (s - offset) / outer[j // 256]) for j, s in enumerate(scales)]
        scales = [table[c] * outer[j // 256] + offset for j, c in enumerate(codes)]
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": offset}
        out |= {name + ".absmax": ("U8", [len(codes)], bytes(codes)), name + ".nested_quant_map": ("F32", [256], floats(table)),
                name + ".nested_absmax": ("F32", [len(outer)], floats(outer))}
    else:
        scales = [single(s) for s in scales]
        out[name + ".absmax"] = ("F32", [len(scales)], floats(scales))
    codes = [nearest(NF4, v / (scales[i // block] or 1)) for i, v in enumerate(values)]
    out[name] = ("U8", [len(codes) // 2, 1], bytes(a << 4 | b for a, b in zip(codes[::2], codes[1::2])))
    text = json.dumps(state).encode()
    out[name + ".quant_state.bitsandbytes__nf4"] = ("U8", [len(text)], text)
    return out, [NF4[c] * scales[i // block] for i, c in enumerate(codes)]


def nvfp4(name, shape, values, compressed):
    stem = name.removesuffix(".weight")
    whole = single(max(map(abs, values)) / (6 * 448))
    codes, scales, numbers = [], [], []
    for i in range(0, len(values), 16):
        group = values[i:i + 16]
        s = nearest(E4M3, max(map(abs, group)) / 6 / whole)
        scales.append(s)
        for v in group:
            k = nearest(E2M1, abs(v) / (E4M3[s] * whole or 1))
            codes.append(k | (8 if v < 0 else 0))
            numbers.append((-1 if v < 0 else 1) * E2M1[k] * E4M3[s] * (1 / single(1 / whole) if compressed else whole))
    packed = bytes(a | b << 4 for a, b in zip(codes[::2], codes[1::2]))
    out = {stem + ".weight_scale": ("F8_E4M3", [shape[0], shape[1] // 16], bytes(scales)),
           stem + (".weight_packed" if compressed else ".weight"): ("U8", [shape[0], shape[1] // 2], packed)}
    if compressed:
        out[stem + ".weight_global_scale"] = ("F32", [1], floats([1 / whole]))
        out[stem + ".input_global_scale"] = ("F32", [1], floats([1.0]))
    else:
        out[stem + ".weight_scale_2"] = ("F32", [], floats([whole]))
        out[stem + ".input_scale"] = ("F32", [], floats([1.0]))
    return out, numbers


def fp8(name, shape, values):
    stem = name.removesuffix(".weight")
    whole = single(max(map(abs, values)) / 448)
    codes = [nearest(E4M3, abs(v) / whole) | (128 if v < 0 else 0) for v in values]
    out = {name: ("F8_E4M3", shape, bytes(codes)), stem + ".weight_scale": ("F32", [], floats([whole])),
           stem + ".input_scale": ("F32", [], floats([1.0]))}
    return out, [(-1 if c & 128 else 1) * E4M3[c & 127] * whole for c in codes]


def fp8_blocks(name, shape, values, block, kind="F8_E4M3"):
    """One scale per block of rows and columns; those at the edges are smaller."""
    table, (rows, cols), (r, c) = E4M3 if kind == "F8_E4M3" else E5M2, shape, block
    n = (cols + c - 1) // c
    group = [i // cols // r * n + i % cols // c for i in range(len(values))]
    scales = [0.0] * ((rows + r - 1) // r * n)
    for g, v in zip(group, values):
        scales[g] = max(scales[g], abs(v))
    scales = [single(s / table[-1]) or 1.0 for s in scales]
    codes = [nearest(table, abs(v) / scales[g]) | (128 if v < 0 else 0) for g, v in zip(group, values)]
    out = {name: (kind, shape, bytes(codes)), name + "_scale_inv": ("F32", [len(scales) // n, n], floats(scales))}
    return out, [(-1 if k & 128 else 1) * table[k & 127] * scales[g] for g, k in zip(group, codes)]


def blocks(r, c):
    return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [r, c]}


KINDS = {
    "nf4": (lambda *x: nf4(*x, 64, False), {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    "nf4 nested": (lambda *x: nf4(*x, 64, True), {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    "nf4 across rows": (lambda *x: nf4(*x, 256, False), {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    "modelopt nvfp4": (lambda *x: nvfp4(*x, False), {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
    "compressed nvfp4": (lambda *x: nvfp4(*x, True), {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}),
    "modelopt fp8": (fp8, {"quant_method": "modelopt", "quant_algo": "FP8"}),
    "fp8 of rows": (lambda *x: fp8_blocks(*x, (1, 128)), blocks(1, 128)),
    "fp8 of blocks": (lambda *x: fp8_blocks(*x, (48, 32)), blocks(48, 32)),
    "fp8 of odd blocks": (lambda *x: fp8_blocks(*x, (16, 24)), blocks(16, 24)),
    "e5m2 of blocks": (lambda *x: fp8_blocks(*x, (32, 64), "F8_E5M2"), blocks(32, 64)),
}


def logits(model, folder, *how, ids=IDS):
    path = os.path.join(folder, "logits")
    run("logits", model, "--ids", ",".join(map(str, ids)), *(how or ["--scalar"]), "--out", path)
    data = open(path, "rb").read()
    return struct.unpack(f"<{len(data) // 4}f", data)


def near(model, want, folder, what):
    """On a device."""
    got = logits(model, folder, "--device", DEVICE)
    assert logits(model, folder, "--device", DEVICE, "--chunk", "1") == got, (what, "token by token")
    middle = sum(want) / len(want)
    deviation = (sum((v - middle) ** 2 for v in want) / len(want)) ** 0.5
    worst = max(abs(x - y) for x, y in zip(got, want, strict=True))
    assert worst < GPU_BOUND * deviation, (what, worst, deviation)


def on_device(folder):
    """Models that hearth writes itself."""
    mlx, gguf = os.path.join(folder, "mlx"), os.path.join(folder, "of.gguf")
    for kind in ("mxfp8", "2bit", "3bit"):
        run("convert", GOLDEN, mlx, "--to", "mlx", "--type", kind, "--no-tokenizer")
        near(mlx, logits(mlx, folder), folder, kind)
        shutil.rmtree(mlx)
    for kind in ("Q3_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "TQ1_0"):
        for more in ((), ("--arch", "qwen3moe", "--experts", "8", "--experts-used", "3")):
            run("debug", "random-model", gguf, "--layers", "1", "--dim", "256", "--ff", "512", "--vocab", "320", "--type", kind,
                *more)
            near(gguf, logits(gguf, folder), folder, (kind, *more))
            if SOFTWARE:
                with_less_shared(gguf, folder, (kind, *more))
    if SOFTWARE:
        no_size(gguf)


def with_less_shared(gguf, folder, what):
    """The same bits with the shared memory that a block has on 8.6 and 12.0, a row at a time and up to 16 together."""
    ids = range(16)
    want = logits(gguf, folder, "--device", DEVICE, ids=ids)
    os.environ["HEARTH_GPU_SMEM"] = "99"  # KiB
    for chunk in ("1", "8", "16"):
        assert logits(gguf, folder, "--device", DEVICE, "--chunk", chunk, ids=ids) == want, (what, "99 KiB", chunk)
    del os.environ["HEARTH_GPU_SMEM"]


def no_size(gguf):
    """A size of shared memory that is none is told, and there is no device then."""
    for text in ("0", "x", "99k", "1000"):
        got = subprocess.run([HEARTH, "logits", gguf, "--ids", "1", "--device", DEVICE], capture_output=True, text=True,
                             env=os.environ | {"HEARTH_GPU_SMEM": text})
        assert got.returncode != 0 and f"HEARTH_GPU_SMEM={text} is not" in got.stderr, (text, got)


def small_blocks():
    """GGUF's Q1_0 and Q2_0, from their definition: a half, then 128 signs or 64 codes, low bits first."""
    for kind, bits, n in (("Q1_0", 1, 128), ("Q2_0", 2, 64)):
        data, want = b"", []
        for _ in range(20):
            d, codes = struct.unpack("<e", struct.pack("<e", random.uniform(-2, 2)))[0], random.getrandbits(128)
            data += struct.pack("<e", d) + codes.to_bytes(16, "little")
            values = [codes >> (bits * i) & ((1 << bits) - 1) for i in range(n)]
            want += [d * (2 * v - 1 if bits == 1 else v - 1) for v in values]
        got = subprocess.run([HEARTH, "debug", "dequant", "--type", kind], input=data, capture_output=True, check=True).stdout
        assert list(struct.unpack(f"<{len(want)}f", got)) == want, kind


if not os.path.isdir(GOLDEN):
    print("skipped: no golden models")
    sys.exit(0)
random.seed(3)
small_blocks()
source = read(GOLDEN)
with tempfile.TemporaryDirectory() as temporary:
    for kind, (pack, quantization) in KINDS.items():
        packed, plain = {}, {}
        for name, (shape, values) in source.items():
            if "_proj" in name:
                mine, numbers = pack(name, shape, values)
                packed |= mine
                plain[name] = ("F32", shape, floats(numbers))
            else:
                packed[name] = plain[name] = ("F32", shape, floats(values))
        a, b = os.path.join(temporary, "a"), os.path.join(temporary, "b")
        write(a, packed, quantization)
        write(b, plain, None)
        if DEVICE:
            near(a, logits(b, temporary), temporary, kind)
            for path in (a, b):
                shutil.rmtree(path)
            continue
        got, want = logits(a, temporary), logits(b, temporary)
        worst, limit = max(abs(x - y) for x, y in zip(got, want)), 1e-5 * max(map(abs, want))
        # Where only 16-bit numbers hold the values, those are what is compared.
        assert worst < limit * (300 if kind == "nf4 across rows" else 1), (kind, worst, limit)
        run("convert", a, os.path.join(temporary, "c.gguf"), "--no-tokenizer")
        run("convert", a, os.path.join(temporary, "d"), "--to", "hf", "--type", "F32", "--no-tokenizer")
        far = max(abs(x - y) for x, y in zip(logits(os.path.join(temporary, "d"), temporary), want))
        assert far < limit * (300 if kind == "nf4 across rows" else 1), (kind, "as a directory", far)
        for path in "abd":
            shutil.rmtree(os.path.join(temporary, path))
    if DEVICE:
        on_device(temporary)
print(f"{len(KINDS)} kinds of packed checkpoints are the numbers that they mean")
