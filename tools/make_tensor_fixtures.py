#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the fixtures of tests/unit/tensor/test_quant.c, with arithmetic that shares nothing with src/tensor.

usage: make_tensor_fixtures.py DIRECTORY      (tests/fixtures/tensor)

fp8.txt    code e4m3 e5m2 e8m0: all 256 codes with the bits of their float values
mats.json  small matrices of every type with separate scales: packed bytes, scales, biases and the expected floats (hex)
"""
import json
import math
import os
import random
import struct
import sys


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f32_hex(x):
    return struct.pack("<f", x).hex() if x == x else "0000c07f"


def e4m3(b):
    sign, e, m = -1 if b & 128 else 1, b >> 3 & 15, b & 7
    if e == 15 and m == 7:
        return math.nan
    return sign * (m / 8 * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0**(e - 7))


def e5m2(b):
    return struct.unpack("<e", bytes([0, b]))[0]


def e8m0(b):
    return math.nan if b == 255 else 2.0**(b - 127)


E2M1 = [0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6]
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]


def pack_stream(codes, bits):
    """MLX: one number per row, value k in bits [k*bits, (k+1)*bits), written little-endian."""
    n = sum(c << (bits * i) for i, c in enumerate(codes))
    return n.to_bytes(len(codes) * bits // 8, "little")


def scale_bytes(kind, rng):
    """A random scale: its bytes and its value."""
    if kind == "F32":
        raw = struct.pack("<f", rng.uniform(-.1, .1))
        return raw, struct.unpack("<f", raw)[0]
    if kind == "F16":
        raw = struct.pack("<e", rng.uniform(-.1, .1))
        return raw, struct.unpack("<e", raw)[0]
    if kind == "BF16":
        raw = struct.pack("<f", rng.uniform(-.1, .1))[2:]
        return raw, struct.unpack("<f", b"\0\0" + raw)[0]
    if kind == "F8_E4M3":
        b = rng.choice([c for c in range(256) if c & 127 != 127])
        return bytes([b]), e4m3(b)
    b = rng.randrange(0, 250)
    return bytes([b]), e8m0(b)


def clip32(x):
    if x != x:
        return x
    return math.copysign(math.inf, x) if abs(x) >= 3.4028235677973366e38 else f32(x)


def matrix(kind, bits, group, scale, rng, rows=2, cols=128, experts=0, group_rows=1):
    data, scales, biases, want = b"", b"", b"", []
    affine = kind.startswith("MLX_AFF")
    for _ in range(max(experts, 1)):
        grid = []
        for r in range(0, rows, group_rows):
            row = []
            for _ in range(-(-cols // group)):
                raw, value = scale_bytes(scale, rng)
                scales += raw
                bias = 0
                if affine:
                    raw, bias = scale_bytes(scale, rng)
                    biases += raw
                row.append((value, bias))
            grid.append(row)
        for r in range(rows):
            codes = [rng.randrange(1 << bits) for _ in range(cols)]
            if kind == "NF4":
                data += bytes(codes[i] << 4 | codes[i + 1] for i in range(0, cols, 2))
            else:
                data += pack_stream(codes, bits)
            for c, code in enumerate(codes):
                s, b = grid[r // group_rows][c // group]
                if affine:
                    want.append(f32(f32(s * code) + b))
                elif kind == "NF4":
                    want.append(f32(f32(NF4[code]) * s))
                elif kind.endswith("FP4"):
                    want.append(clip32(E2M1[code] * s))
                elif kind == "F8_E5M2":
                    want.append(clip32(e5m2(code) * s))
                else:
                    want.append(clip32(e4m3(code) * s))
    return dict(type=kind, group=group, group_rows=group_rows, scale_type=scale, rows=rows, cols=cols, experts=experts,
                data=data.hex(), scales=scales.hex(), biases=biases.hex(), want="".join(f32_hex(x) for x in want))


def main():
    out = sys.argv[1]
    rng = random.Random(1)
    with open(os.path.join(out, "fp8.txt"), "w") as f:
        for b in range(256):
            bits = [struct.unpack("<I", bytes.fromhex(f32_hex(v(b))))[0] for v in (e4m3, e5m2, e8m0)]
            f.write("%02x %08x %08x %08x\n" % (b, *bits))
    mats = []
    kinds = ["F16", "BF16", "F32"]
    for i, bits in enumerate([2, 3, 4, 5, 6, 8]):
        for j, group in enumerate([32, 64, 128]):
            mats.append(matrix("MLX_AFF%d" % bits, bits, group, kinds[(i + j) % 3], rng, rows=1))
    mats.append(matrix("MLX_AFF4", 4, 64, "BF16", rng, cols=64, experts=3))
    mats.append(matrix("MLX_MXFP4", 4, 32, "F8_E8M0", rng, rows=3))
    mats.append(matrix("MLX_MXFP8", 8, 32, "F8_E8M0", rng, rows=3))
    mats.append(matrix("MLX_NVFP4", 4, 16, "F8_E4M3", rng))
    mats.append(matrix("F8_E4M3", 8, 64, "F32", rng, rows=4, cols=96, group_rows=2))   # blocks, cut off at the edge
    mats.append(matrix("F8_E4M3", 8, 64, "BF16", rng, rows=3, cols=64))                # one scale per row
    mats.append(matrix("F8_E5M2", 8, 32, "F32", rng, rows=3, cols=32, group_rows=3))   # one scale per tensor
    mats.append(matrix("F8_E5M2", 8, 32, "F8_E8M0", rng, rows=2, cols=64))
    mats.append(matrix("NF4", 4, 64, "F32", rng))
    with open(os.path.join(out, "mats.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(m) for m in mats) + "\n]\n")


main()
