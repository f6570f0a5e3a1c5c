#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Families as MLX directories.

  check_mlx.py HEARTH [--all] [NAME ...]

Of a reference model two directories are made: one with weights quantized as MLX does (affine, groups of 32, 4 or 8 bits
in turn, experts stacked as switch_mlp, matrices that do not divide left alone and named in config.json), one with the
same values as plain f32 tensors under the published names. The plain form of every family is compared with transformers
(check.py), so both must give the same logits here, on the reference backend within BOUND standard deviations. What the
fast backend makes of the first differs by the rounding of activations to eight bits, which may also choose another of
two experts that are nearly equal: the root mean square stays below ROUNDED.

Without --all a few families run: each of the ways in which families store matrices once.
"""

import array
import json
import os
import re
import struct
import sys
import tempfile

sys.dont_write_bytecode = True

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import check

BOUND, ROUNDED, GROUP = 2e-5, 0.25, 32
FEW = ("qwen2_moe", "deepseek_v2", "mixtral", "phi3", "gemma2", "qwen3_next")
# Their matrices are stored inputs by outputs, or experts in one tensor: MLX has other names and layouts for them.
OTHER = ("gpt2", "jais", "gpt_bigcode", "dbrx", "llama4_text", "llama4_text_scout", "gpt_oss", "gpt_oss_mxfp4", "phimoe",
         "granitemoe", "granitemoeshared", "granitemoe_swa", "granitemoehybrid", "granitemoehybrid_dense")
PLAIN = re.compile(r"(norm|conv|embed_positions|position_embedding|wpe|A_log|altup|per_layer|sinks|kv_b_proj|relative)")
EXPERT = re.compile(r"(.*)\.experts\.(\d+)\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight$")
SWITCH = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
SQUARED = {"up_proj": "fc1", "down_proj": "fc2"}  # experts without a gate


def floats(t):
    """bf16 or f32 bytes -> array of floats"""
    if t[0] == "F32":
        return array.array("f", t[2])
    return array.array("f", b"".join(b"\0\0" + t[2][i : i + 2] for i in range(0, len(t[2]), 2)))


def bf16(x):
    """The nearest bf16, as its 16 bits and as a float."""
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return bits, struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def quantize(values, bits):
    """-> packed words, scales and biases as bf16 bits, the values they stand for"""
    words, scales, biases, back = array.array("I"), array.array("H"), array.array("H"), array.array("f")
    most, per = (1 << bits) - 1, 32 // bits
    for g in range(0, len(values), GROUP):
        v = values[g : g + GROUP]
        low, high = min(v), max(v)
        s_bits, scale = bf16(max((high - low) / most, 1e-7))
        b_bits, bias = bf16(low)
        q = [min(most, max(0, round((x - bias) / scale))) for x in v]
        scales.append(s_bits)
        biases.append(b_bits)
        for i in range(0, GROUP, per):
            words.append(sum(q[i + j] << (bits * j) for j in range(per)))
        back.extend(scale * x + bias for x in q)
    return words, scales, biases, back


def put(out, plain, name, shape, values, bits, names):
    """A matrix, or a stack of them that `names` lists."""
    layer = name.removesuffix(".weight")
    words, scales, biases, back = quantize(values, bits)
    lead, cols = shape[:-1], shape[-1]
    out[name] = ("U32", lead + [cols * bits // 32], words.tobytes())
    out[layer + ".scales"] = ("BF16", lead + [cols // GROUP], scales.tobytes())
    out[layer + ".biases"] = ("BF16", lead + [cols // GROUP], biases.tobytes())
    n = len(back) // len(names)
    for i, own in enumerate(names):
        plain[own] = ("F32", shape[-2:], back[i * n : (i + 1) * n].tobytes())


def stacks(tensors):
    """Experts by the name of their stack, in order."""
    found = {}
    for name in tensors:
        m = EXPERT.match(name)
        if m:
            own = SQUARED if m[1].endswith("mixer") else SWITCH
            found.setdefault(f"{m[1]}.switch_mlp.{own.get(m[3], m[3])}.weight", []).append((int(m[2]), name))
    return {k: [n for _, n in sorted(v)] for k, v in found.items()}


def save_as_mlx_does(tensors):
    """Qwen3-Next and its kin: kernels of convolutions are turned, and 1 is added to the norms that are used as 1 + w."""
    turned = [n for n in tensors if n.endswith("linear_attn.conv1d.weight")]
    for name in turned:
        kind, (channels, _, taps), data = tensors[name]
        tensors[name] = (kind, [channels, taps, 1], data)
    for name, t in list(tensors.items()) if turned else []:
        if re.search(r"(input_layernorm|post_attention_layernorm|model\.norm|\.[qk]_norm)\.weight$", name):
            tensors[name] = ("F32", t[1], array.array("f", [x + 1 for x in floats(t)]).tobytes())


def make(src, mlx, dense, bits):
    tensors = check.read_tensors(os.path.join(src, "model.safetensors"))
    with open(os.path.join(src, "config.json")) as f:
        config = json.load(f)
    out, plain, quant = {}, {}, {"group_size": GROUP, "bits": bits, "mode": "affine"}
    of_stack = {}
    for name, members in stacks(tensors).items():
        if tensors[members[0]][1][-1] % GROUP == 0:
            of_stack[name] = members
    taken = {m for v in of_stack.values() for m in v}
    for name, members in of_stack.items():
        shape = [len(members)] + tensors[members[0]][1]
        values = array.array("f")
        for m in members:
            values.extend(floats(tensors[m]))
        put(out, plain, name, shape, values, bits, members)
    for name, t in tensors.items():
        if name in taken:
            continue
        if len(t[1]) == 2 and name.endswith(".weight") and t[1][1] % GROUP == 0 and not PLAIN.search(name):
            put(out, plain, name, t[1], floats(t), bits, [name])
            continue
        out[name], plain[name] = t, t
        if len(t[1]) == 2 and name.endswith(".weight"):
            quant[name.removesuffix(".weight")] = False
    save_as_mlx_does(out)
    for path, c, w in ((mlx, {**config, "quantization": quant, "quantization_config": quant}, out), (dense, config, plain)):
        os.makedirs(path)
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(c, f)
        check.write_tensors(os.path.join(path, "model.safetensors"), w)


def differences(a, b, std):
    """The largest one, and the root of their mean square."""
    a, b = array.array("f", a), array.array("f", b)
    if len(a) != len(b):
        raise ValueError(f"{len(a)} logits instead of {len(b)}")
    d = [abs(x - y) / std for x, y in zip(a, b)]
    return max(d), (sum(x * x for x in d) / len(d)) ** 0.5


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    names = args[1:] or FEW
    if "--all" in sys.argv:
        names = [n for n in sorted(os.listdir(os.path.join(HERE, "models"))) if "_mlx" not in n and n not in OTHER]
    bad = 0
    for i, name in enumerate(names):
        src = os.path.join(HERE, "models", name)
        with open(os.path.join(src, "golden.json")) as f:
            golden = json.load(f)
        with tempfile.TemporaryDirectory() as tmp:
            mlx, dense, out = (os.path.join(tmp, n) for n in ("mlx", "dense", "logits.f32"))
            try:
                make(src, mlx, dense, 4 if i % 2 else 8)
                ids = golden["prompt"][:12]
                want, _ = check.run(args[0], dense, ids, out, "--scalar")
                exact, _ = differences(check.run(args[0], mlx, ids, out, "--scalar")[0], want, golden["logit_std"])
                _, fast = differences(check.run(args[0], mlx, ids, out)[0], want, golden["logit_std"])
                if exact > BOUND or fast > ROUNDED:
                    raise ValueError(f"logits differ by {exact:.1e} standard deviations, {fast:.1e} on the fast backend")
                print(f"ok   {name} {exact:.1e} {fast:.1e}", flush=True)
            except Exception as e:
                bad += 1
                print(f"FAIL {name}: {e}", flush=True)
    print(f"{len(names) - bad} of {len(names)} agree")
    return 1 if bad or not names else 0


if __name__ == "__main__":
    sys.exit(main())
