#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares GGUF files written by `hearth debug gguf` with those of to_gguf.py, which shares no code with it.

  check_writer.py HEARTH [NAME ...]

Every tensor must be there under the same name, with the same dimensions (ones aside) and values. Keys are not compared:
which ones are written is a choice; golden_gguf shows that the published ones are understood.
"""

import os
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import check
import gguf_moe
import to_gguf
import to_gguf_dense

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# The writer refuses these: rows in another order; a block type that GGUF lays out otherwise; what the format has no key
# or no place for (multipliers that it wants in the weights, sparsity per layer, a name that depends on the layers).
REFUSED = {"qwen3_5_text", "qwen3_5_moe_text", "gpt_oss_mxfp4", "apertus", "baichuan_alibi", "jais", "minicpm3", "falcon_h1", "gemma3n_text", "nemotron_h_moe",
           "nemotron_h_latent"} | set(gguf_moe.NOT_GGUF)


def read(path):
    """-> {name: (dims without ones, values as f32)}"""
    with open(path, "rb") as f:
        data = f.read()
    at = 8

    def take(fmt):
        nonlocal at
        v = struct.unpack_from("<" + fmt, data, at)[0]
        at += struct.calcsize("<" + fmt)
        return v

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n : at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            inner, n = take("I"), take("Q")
            return [value(inner) for _ in range(n)]
        return take(SCALARS[kind])

    n_tensors, n_keys = take("Q"), take("Q")
    keys = {}
    for _ in range(n_keys):
        name = text()
        keys[name] = value(take("I"))
    infos = []
    for _ in range(n_tensors):
        name = text()
        dims = [take("Q") for _ in range(take("I"))]
        infos.append((name, dims, take("I"), take("Q")))
    base, out = (at + 31) // 32 * 32, {}
    for name, dims, kind, offset in infos:
        n = 1
        for d in dims:
            n *= d
        size = n * {to_gguf.F32: 4, to_gguf.BF16: 2}[kind]
        t = to_gguf.T(kind, [n], data[base + offset : base + offset + size])
        out[name] = ([d for d in dims if d != 1], t.floats())
    return keys["general.architecture"], out


def compare(ours, theirs):
    if ours[0] != theirs[0]:
        raise ValueError(f"architecture {ours[0]} instead of {theirs[0]}")
    a, b = ours[1], theirs[1]
    if set(a) != set(b):
        raise ValueError(f"only written: {sorted(set(a) - set(b))[:5]}, missing: {sorted(set(b) - set(a))[:5]}")
    for name in b:
        if a[name][0] != b[name][0]:
            raise ValueError(f"{name} has dimensions {a[name][0]} instead of {b[name][0]}")
        if any(abs(x - y) > 1e-5 * abs(y) + 1e-7 for x, y in zip(a[name][1], b[name][1])):
            raise ValueError(f"{name} has other values")


def main():
    names = sys.argv[2:] or sorted(n for n in os.listdir(os.path.join(HERE, "models")) if "_mlx" not in n and n not in REFUSED
                                      and check.model_type(n) not in to_gguf_dense.NO_PEER)
    names = check.some(names)
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        ours, theirs = os.path.join(tmp, "ours.gguf"), os.path.join(tmp, "theirs.gguf")
        for name in names:
            src = os.path.join(HERE, "models", name)
            try:
                to_gguf.convert(src, theirs)
                p = subprocess.run([sys.argv[1], "debug", "gguf", src, ours], capture_output=True, text=True, timeout=120)
                if p.returncode:
                    raise ValueError(p.stderr.strip()[-300:])
                compare(read(ours), read(theirs))
            except Exception as e:
                bad += 1
                print(f"FAIL {name}: {e}", flush=True)
    print(f"{len(names) - bad} of {len(names)} agree")
    return 1 if bad or not names else 0


if __name__ == "__main__":
    sys.exit(main())
