#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `hearth logits --lora` with PEFT's logits.

  check_adapters.py HEARTH [--device=ID] [NAME ...]

Every case of adapters/ (made by adapters.py) is run on its base as a Hugging Face directory and as a GGUF file
(to_gguf.py), with the adapter as PEFT saved it, as MLX and as GGUF files hold one; the last two are made here of the
same tensors, without any code of the program. Logits agree within 2e-3 standard deviations, as for the families (of MLX
and GGUF adapters, whose scale was folded into B here: of the distance that the adapter moves them; as f32 within 1e-4); in pieces of 5 tokens and with one thread they are the same bytes. A GPU multiplies
16-bit numbers: there the bound is check.py's for it, of the distance that the adapter moves them. The reference backend agrees with the fast one op by op.
A base with 8-bit weights (MLX) is as far from the plain one with the adapter as without.
"""

import array
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import check
import to_gguf
from to_gguf import F32, T, Gguf

FRONT = "base_model.model."
EXACT = 1e-4
PERMUTED = {"llama"}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
         "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


class M:
    """A matrix of floats by rows."""

    def __init__(self, rows):
        self.rows = rows

    @staticmethod
    def of(t):
        v, n = t.floats(), t.shape[-1]
        return M([v[i : i + n] for i in range(0, len(v), n)])

    def turned(self):
        return M([list(c) for c in zip(*self.rows)])

    def times(self, s):
        return M([[x * s for x in r] for r in self.rows])

    def tensor(self):
        data = array.array("f", [x for r in self.rows for x in r]).tobytes()
        return T(F32, [len(self.rows), len(self.rows[0])], data)


def load(name):
    here = os.path.join(HERE, "adapters", name)
    with open(os.path.join(here, "adapter_config.json")) as f:
        config = json.load(f)
    return config, to_gguf.read_safetensors(os.path.join(here, "adapter_model.safetensors"))


def scale_of(config, module, rank):
    import re

    alpha = config["lora_alpha"]
    for key, value in (config.get("alpha_pattern") or {}).items():
        if re.match(rf"(.*\.)?({key})$", module):
            alpha = value
            break
    return alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank


def pairs(config, tensors):
    """module -> (A [r][in], s B [out][r]); None for what has another form"""
    out = {}
    for name, t in tensors.items():
        module = name[len(FRONT):]
        if name.endswith(".lora_A.weight"):
            module, b = module[: -len(".lora_A.weight")], tensors[name.replace("lora_A", "lora_B")]
            a, b = M.of(t), M.of(b)
            out[module] = (a, b.times(scale_of(config, module, len(a.rows))))
        elif name.endswith(".lora_embedding_A"):
            module = module[: -len(".lora_embedding_A")]
            a, b = M.of(t), M.of(tensors[name.replace("embedding_A", "embedding_B")])
            out[module] = (a, b.times(scale_of(config, module, len(a.rows))))
        elif not name.endswith((".lora_B.weight", ".lora_embedding_B")):
            return None
    return out if not config.get("target_parameters") else None


def write_safetensors(path, tensors):
    check.write_tensors(path, {k: ("F32", t.shape, t.data) for k, t in tensors.items()})


def as_mlx(name, out):
    config, tensors = load(name)
    found = pairs(config, tensors)
    if not found or config.get("alora_invocation_tokens") or "embed_tokens" in "".join(found):
        return None
    os.makedirs(out)
    files = {}
    for module, (a, b) in found.items():
        files[module + ".lora_a"] = a.turned().tensor()
        files[module + ".lora_b"] = b.turned().tensor()
    with open(os.path.join(out, "adapter_config.json"), "w") as f:
        json.dump({"fine_tune_type": "lora", "num_layers": -1, "lora_parameters": {"rank": 4, "scale": 1.0, "dropout": 0}}, f)
    write_safetensors(os.path.join(out, "adapters.safetensors"), files)
    return out


def gguf_name(module):
    if module.endswith("embed_tokens"):
        return "token_embd"
    if module == "lm_head":
        return "output"
    parts = module.split(".")
    at = next(i for i, p in enumerate(parts) if p.isdigit())
    return f"blk.{parts[at]}.{NAMES['.'.join(parts[at + 1:])]}"


def as_gguf(name, base, out):
    config, tensors = load(name)
    found = pairs(config, tensors)
    if not found:
        return None
    with open(os.path.join(HERE, "models", base, "config.json")) as f:
        c = json.load(f)
    arch = to_gguf.ARCH[c["model_type"]]
    g = Gguf(arch)
    g.kv += [("general.type", 8, "adapter"), ("adapter.type", 8, "lora"), ("adapter.lora.alpha", 6, 0.0)]
    if config.get("alora_invocation_tokens"):
        g.kv.append(("adapter.alora.invocation_tokens", (9, 4), config["alora_invocation_tokens"]))
    for module, (a, b) in found.items():
        n = gguf_name(module)
        if n == "token_embd":
            a = a.turned()
        if arch in PERMUTED and n.endswith((".attn_q", ".attn_k")):
            dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
            half, order = dim // 2, []
            for r in range(len(b.rows)):
                h, k = r // dim, r % dim
                order.append(h * dim + k % 2 * half + k // 2)
            b = M([b.rows[i] for i in order])
        g.add(n + ".weight.lora_a", a.tensor())
        g.add(n + ".weight.lora_b", b.tensor())
    g.write(out, 0, tokenizer=[("general.name", 8, "golden")])
    return out


def experts_apart(name, out):
    """target_parameters of stacked experts as one pair per expert and matrix, as files of older libraries have them"""
    config, tensors = load(name)
    files = {}
    for key, t in tensors.items():
        if ".experts." not in key:
            files[key] = t
            continue
        if not key.endswith("lora_A.weight"):
            continue
        b = M.of(tensors[key.replace("lora_A", "lora_B")]).rows
        a, n = M.of(t).rows, 8
        rank, front = len(a) // n, key.split(".experts.")[0] + ".experts."
        for e in range(n):
            mine = M(a[e * rank : (e + 1) * rank])
            cols = [[row[j * n + e] for j in range(rank)] for row in b]
            if len(a[0]) == 32 and len(b) == 64:
                parts = {"down_proj": cols}
            else:
                parts = {"gate_proj": cols[: len(cols) // 2], "up_proj": cols[len(cols) // 2 :]}
            for part, rows in parts.items():
                files[f"{front}{e}.{part}.lora_A.weight"] = mine.tensor()
                files[f"{front}{e}.{part}.lora_B.weight"] = M(rows).tensor()
    os.makedirs(out)
    config["target_parameters"] = None
    with open(os.path.join(out, "adapter_config.json"), "w") as f:
        json.dump(config, f)
    kinds = {F32: "F32", to_gguf.BF16: "BF16"}
    check.write_tensors(os.path.join(out, "adapter_model.safetensors"),
                        {k: (kinds[t.kind], t.shape, t.data) for k, t in files.items()})
    return out


def experts_mlx(name, out):
    """The same as MLX has it: A of all experts one behind the other, B [expert][out][rank]"""
    config, tensors = load(name)
    files = {}
    for key, t in tensors.items():
        if not key.endswith("lora_A.weight"):
            continue
        module, a = key[len(FRONT) : -len(".lora_A.weight")], M.of(t)
        b = M.of(tensors[key.replace("lora_A", "lora_B")])
        if ".experts" not in key:
            files[module + ".lora_a"] = a.turned().tensor()
            files[module + ".lora_b"] = b.times(scale_of(config, module, len(a.rows))).turned().tensor()
            continue
        n, front = 8, module.split(".experts")[0] + ".switch_mlp."
        rank = len(a.rows) // n
        whole = [[[row[j * n + e] for j in range(rank)] for row in b.rows] for e in range(n)]
        if len(a.rows[0]) == 32 and len(b.rows) == 64:
            parts = {"down_proj": whole}
        else:
            half = len(b.rows) // 2
            parts = {"gate_proj": [x[:half] for x in whole], "up_proj": [x[half:] for x in whole]}
        for part, rows in parts.items():
            s = scale_of(config, module, rank)
            flat = M([r for x in rows for r in x]).times(s).tensor()
            files[front + part + ".lora_a"] = a.tensor()
            files[front + part + ".lora_b"] = T(F32, [n, len(rows[0]), rank], flat.data)
    os.makedirs(out)
    with open(os.path.join(out, "adapter_config.json"), "w") as f:
        json.dump({"fine_tune_type": "lora", "lora_parameters": {"rank": 2, "scale": 1.0, "dropout": 0}}, f)
    write_safetensors(os.path.join(out, "adapters.safetensors"), files)
    return out


def forms_of(name, base, tmp):
    """How one adapter may come: what --lora is given."""
    out = {"peft": os.path.join(HERE, "adapters", name)}
    mlx, gguf = as_mlx(name, os.path.join(tmp, name + "-mlx")), as_gguf(name, base, os.path.join(tmp, name + "-lora.gguf"))
    if mlx:
        out["mlx"] = mlx
    if gguf:
        out["gguf"] = gguf
    if name == "qwen3_moe_params":
        out["experts"] = experts_apart(name, os.path.join(tmp, name + "-experts"))
        out["mlx"] = experts_mlx(name, os.path.join(tmp, name + "-mlx"))
    return out


def check_case(hearth, name, tmp):
    here = os.path.join(HERE, "adapters", name)
    with open(os.path.join(here, "golden.json")) as f:
        golden = json.load(f)
    with open(os.path.join(here, "logits.f32"), "rb") as f:
        want = f.read()
    base, out = golden["base"], os.path.join(tmp, "logits.f32")
    bases = [os.path.join(HERE, "models", base), os.path.join(tmp, base + ".gguf")]
    if not os.path.exists(bases[1]):
        to_gguf.convert(bases[0], bases[1])
    forms = [forms_of(n, base, tmp) for n, _ in golden["with"]]
    worst, runs = 0, 0
    for kind in ("peft", "mlx", "gguf", "experts"):
        if not all(kind in f for f in forms):
            continue
        lora = []
        for f, (_, scale) in zip(forms, golden["with"]):
            lora += ["--lora", f"{f[kind]}:{scale}"]
        for model in bases:
            got, _ = check.run(hearth, model, golden["prompt"], out, *lora)
            # A scale that is folded into B leaves numbers that f16 rounds.
            std = golden["logit_std"] * (1 if kind in ("peft", "experts") else max(1, golden["moved"]))
            if check.DEVICE:
                std *= max(1, golden["moved"])
            worst = max(worst, check.compare(got, want, std))
            again, _ = check.run(hearth, model, golden["prompt"], out, *lora, "--chunk", "5", "--threads", "1")
            if again != got:
                raise ValueError("in pieces and with one thread the bits differ")
            runs += 2
        if kind in ("mlx", "gguf") and not check.DEVICE: # nothing is rounded
            got, _ = check.run(hearth, bases[0], golden["prompt"], out, *lora, "--adapter-type", "f32")
            if check.compare(got, want, golden["logit_std"]) > EXACT:
                raise ValueError("kept as f32, the adapter's logits differ")
        check.run(hearth, bases[0], golden["prompt"], out, *lora, "--compare-scalar")
    return worst, runs


def check_mlx_base(hearth, tmp):
    """On 8-bit weights the adapter's logits are about as far from the plain ones as without it."""
    here = os.path.join(HERE, "adapters", "llama_lora")
    with open(os.path.join(here, "golden.json")) as f:
        golden = json.load(f)
    with open(os.path.join(here, "logits.f32"), "rb") as f:
        want = f.read()
    out, far = os.path.join(tmp, "logits.f32"), []
    plain, _ = check.run(hearth, os.path.join(HERE, "models", "llama"), golden["prompt"], out)
    for lora, to in (((), plain), (("--lora", here), want)):
        got, _ = check.run(hearth, os.path.join(HERE, "models", "llama_mlx8"), golden["prompt"], out, *lora, "--scalar")
        a, b = array.array("f", got), array.array("f", to)
        far.append(math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / len(b)) / golden["logit_std"])
    if far[1] > 2 * far[0]:
        raise ValueError(f"an 8-bit base is {far[0]:.2e} away, with the adapter {far[1]:.2e}")
    return far[1]


def check_coarse_base(hearth, tmp):
    """On a base of 4 bits, what bytes for factors lose is lost in what the base has lost."""
    here = os.path.join(HERE, "adapters", "llama_lora")
    with open(os.path.join(here, "golden.json")) as f:
        golden = json.load(f)
    with open(os.path.join(here, "logits.f32"), "rb") as f:
        want = array.array("f", f.read())
    base, out, far = os.path.join(tmp, "q4.gguf"), os.path.join(tmp, "logits.f32"), {}
    plain = os.path.join(tmp, "plain.gguf")
    to_gguf.convert(os.path.join(HERE, "models", "llama"), plain)
    subprocess.run([hearth, "quantize", plain, base, "q4_0"], check=True, capture_output=True)
    for kind in ("f32", "f16", "q8", "auto"):
        got, _ = check.run(hearth, base, golden["prompt"], out, "--lora", here, "--adapter-type", kind)
        far[kind] = math.sqrt(sum((x - y) ** 2 for x, y in zip(array.array("f", got), want)) / len(want)) / golden["logit_std"]
    if far["q8"] > 1.1 * far["f32"] or far["f16"] > 1.01 * far["f32"] or far["auto"] != far["q8"]:
        raise ValueError(f"distances by the type of factors: {far}")
    return far


def main():
    hearth, names = sys.argv[1], [a for a in sys.argv[2:] if not a.startswith("--")]
    failed = 0
    for name in check.some(names or sorted(os.listdir(os.path.join(HERE, "adapters")))):
        with tempfile.TemporaryDirectory() as tmp:
            try:
                worst, runs = check_case(hearth, name, tmp)
                print(f"ok {name}: {runs} runs, {worst:.2e}")
            except Exception as e:
                failed += 1
                print(f"FAILED {name}: {e}")
    with tempfile.TemporaryDirectory() as tmp:
        if not names:
            try:
                print(f"ok llama_mlx8: {check_mlx_base(hearth, tmp):.2e}")
            except Exception as e:
                failed += 1
                print(f"FAILED llama_mlx8: {e}")
            try:
                print(f"ok llama in q4_0: {check_coarse_base(hearth, tmp)}")
            except Exception as e:
                failed += 1
                print(f"FAILED llama in q4_0: {e}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
