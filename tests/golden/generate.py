#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny reference models and their reference logits.

For every family: a config.json in the style of the published checkpoints, random weights (every norm, bias, gate
and state parameter randomised, fixed seeds), saved as bf16 safetensors under the published tensor names, loaded again
from that directory as float32, and run on the CPU with eager attention. Stored are the f32 logits of a prompt and a
greedy continuation computed without a cache (the whole sequence is fed again for every new token).

  generate.py OUT [FAMILY ...]

OUT receives up to five archives golden-N.tar.gz (one directory per family), summary.json and nothing else.
A family's directory: config.json, model.safetensors, golden.json, logits.f32 (little-endian f32 [tokens][vocab]).

Families that transformers lacks (kimi_linear) are computed here from the published description. Variants *_mlx* hold
MLX affine-quantized weights made by an own implementation of that format, *_mxfp4 the block format of gpt-oss; their
logits are those of the dequantized weights.
"""

import os
import sys

for _k, _v in {"CUDA_VISIBLE_DEVICES": "", "USE_HUB_KERNELS": "NO", "HF_HUB_OFFLINE": "1",
               "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}.items():
    os.environ[_k] = _v
# Accelerated replacements of the plain torch code must not be picked up, wherever they are installed.
for _m in ("fla", "causal_conv1d", "mamba_ssm", "kernels", "flash_attn"):
    sys.modules[_m] = None

import collections
import json
import math
import platform
import random
import re
import shutil
import struct
import tarfile
import tempfile
import time
import traceback
import zlib

import torch
import torch.nn.functional as F

import specs_moe

VOCAB = 320
PROMPT = 48
GREEDY = 16
DISTINCT = 6  # different tokens that a continuation must have
MARGIN = 0.03  # of the logits' standard deviation, between the best and the second token of every greedy step


# ---------------------------------------------------------------------------------------------------------------------
# safetensors, written and read here so that names, types and order are ours

ST_TYPES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.uint8: "U8", torch.int32: "U32"}
ST_BACK = {"BF16": torch.bfloat16, "F32": torch.float32, "U8": torch.uint8, "U32": torch.int32, "F16": torch.float16}


def raw_bytes(t):
    t = t.detach().contiguous()
    if t.dtype == torch.bfloat16:
        t = t.view(torch.int16)
    return t.numpy().tobytes()


def st_write(path, tensors, metadata):
    """int32 tensors are written as U32 (packed words)."""
    header, blobs, at = {"__metadata__": metadata}, [], 0
    for name in sorted(tensors):
        t = tensors[name]
        data = raw_bytes(t)
        header[name] = {"dtype": ST_TYPES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)))
        f.write(head)
        for b in blobs:
            f.write(b)


def st_read(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + n])
    out = {}
    for name, e in header.items():
        if name == "__metadata__":
            continue
        a, b = e["data_offsets"]
        t = torch.frombuffer(bytearray(data[8 + n + a : 8 + n + b]), dtype=ST_BACK[e["dtype"]])
        out[name] = t.reshape(e["shape"])
    return out


# ---------------------------------------------------------------------------------------------------------------------
# random weights


def noise(family, name, shape, kind="n"):
    g = torch.Generator().manual_seed(zlib.crc32(f"{family}/{name}".encode()))
    if kind == "u":
        return torch.rand(shape, generator=g, dtype=torch.float32)
    return torch.randn(shape, generator=g, dtype=torch.float32)


# (pattern, what, a, b): what "n": a + b * normal; "u": uniform in a..b; "fan": normal * a / sqrt(fan-in)
RULES = [
    (r"A_log$", "u", -2.5, 0.3),
    (r"dt_bias$", "u", -1.5, 1.0),
    (r"\.D$", "n", 1.0, 0.3),
    (r"sinks$", "n", 0.5, 1.0),
    (r"(e_score_correction_bias|expert_bias)$", "n", 0.0, 0.15),
    (r"layer_scalar$", "u", 0.7, 1.2),
    (r"per_expert_scale$", "n", 1.0, 0.2),
    (r"(^|\.)(conv|conv1d|[qkv]_conv1d)\.weight$", "n", 0.0, 0.5),
    (r"wpe\.weight$", "n", 0.0, 0.4),
    (r"embed_tokens_per_layer\.weight$", "n", 0.0, 0.2),
    (r"(bias|_bias)$", "n", 0.0, 0.15),
    (r"(q_proj|k_proj|q_b_proj|kv_b_proj)\.weight$", "fan", 1.3, 0),
    (r"(mlp|feed_forward|block_sparse_moe)\.(gate|router)\.weight$", "fan", 1.6, 0),
    (r"router\.proj\.weight$", "fan", 12.0, 0),
    (r"lm_head\.weight$", "fan", 1.6, 0),
]


# Where the embedding is also the head: what a layer adds to the stream is larger.
TIED_RULES = [(r"(o_proj|out_proj|down_proj|c_proj|feed_forward\.w2)(\.weight)?$", "fan", 3.0, 0)]


def randomize(family, name, default, rules, transposed):
    shape = tuple(default.shape)
    for pat, what, a, b in list(rules) + RULES:
        if re.search(pat, name):
            if what == "n":
                return a + b * noise(family, name, shape)
            if what == "u":
                return a + (b - a) * noise(family, name, shape, "u")
            return noise(family, name, shape) * a / math.sqrt(shape[-2] if transposed else shape[-1])
    if len(shape) <= 1:  # norms and the like: around what the library starts them with (ones or zeros)
        base = float(default.float().mean())
        if base not in (0.0, 1.0):
            return default.float().clone()  # what the library computes stays
        return base + 0.25 * noise(family, name, shape)
    return noise(family, name, shape) / math.sqrt(shape[-2] if transposed else shape[-1])


EMBED = re.compile(r"(embed_tokens|wte|embeddings)\.weight$")


def fill(family, model, spec):
    """Gives every parameter and stored buffer a value; returns the names that are kept in f32."""
    tied = bool(getattr(model.config, "tie_word_embeddings", False))
    hidden = model.config.get_text_config().hidden_size
    keep = {}
    seen = set()
    with torch.no_grad():
        for name, t in model.state_dict().items():
            if t.data_ptr() in seen and t.numel() > 1:
                continue
            seen.add(t.data_ptr())
            if any(re.search(p, name) for p in spec.get("computed", [])):
                keep[name] = t.float().clone()  # buffers that follow from the config
                continue
            trans = any(re.search(p, name) for p in spec.get("transposed", []))
            if EMBED.search(name) and not any(re.search(r[0], name) for r in spec.get("rules", [])):
                # Tied: small, so that what the layers add outweighs the token itself; else it would predict itself.
                std = 0.6 / math.sqrt(hidden) if tied else 1.0
                v = std * noise(family, name, tuple(t.shape))
            else:
                v = randomize(family, name, t, spec.get("rules", []) + (TIED_RULES if tied else []), trans)
            t.copy_(v)
            if re.search(r"(e_score_correction_bias|expert_bias)$", name):
                keep[name] = v.clone()
    return keep


# ---------------------------------------------------------------------------------------------------------------------
# golden values


class Choices:
    """How near indexers came to choosing otherwise: they, and nobody else, call Tensor.topk. In parts of the scores'
    deviation; a prompt where two positions score nearly the same proves nothing."""

    NEAR = 1e-4

    def __enter__(self):
        self.topk, self.gap = torch.Tensor.topk, float("inf")

        def topk(scores, k, *args, **more):
            if scores.shape[-1] > k:
                best, open_ = self.topk(scores, k + 1, -1).values, (scores > -1e30) & torch.isfinite(scores)
                size = scores.masked_fill(~open_, 0).std(-1)
                gap = ((best[..., k - 1] - best[..., k]) / size)[best[..., k] > -1e30]
                self.gap = min([self.gap] + gap.flatten().tolist())
            return self.topk(scores, k, *args, **more)

        torch.Tensor.topk = topk
        return self

    def __exit__(self, *what):
        torch.Tensor.topk = self.topk


def golden(family, forward, vocab, outdir, extra=None):
    """forward(list of ids) -> f32 logits [n][vocab]."""
    best = None  # (varied enough, worst margin), ...
    for seed in range(120):
        rng = random.Random(f"{family}/{seed}")
        prompt = [rng.randrange(3, vocab) for _ in range(PROMPT)]
        ids, worst, first = list(prompt), float("inf"), None
        std = None
        for _ in range(GREEDY):
            with Choices() as choices:
                logits = forward(ids)
            if choices.gap < Choices.NEAR:
                break
            if first is None:
                first = logits
                std = float(first.std())
            top = torch.topk(logits[-1], 2)
            worst = min(worst, float(top.values[0] - top.values[1]) / std)
            ids.append(int(top.indices[0]))
            if best is not None and best[0][0] and worst <= best[0][1]:
                break
        rank = (len(set(ids[PROMPT:])) >= DISTINCT, worst)
        if len(ids) == PROMPT + GREEDY and (best is None or rank > best[0]):
            best = (rank, seed, prompt, ids[PROMPT:], first, std)
        if best is not None and best[0] > (True, MARGIN):
            break
    (_, worst), seed, prompt, greedy, logits, std = best
    if not torch.isfinite(logits).all():
        raise ValueError("logits are not finite")
    logits = logits.to(torch.float32).contiguous()
    assert tuple(logits.shape) == (PROMPT, vocab)
    with open(os.path.join(outdir, "logits.f32"), "wb") as f:
        f.write(logits.numpy().astype("<f4").tobytes())
    doc = {"family": family, "vocab": vocab, "prompt": prompt, "greedy": greedy, "logit_std": std,
           "min_margin": worst, "seed": seed, "versions": versions()}
    doc.update(extra or {})
    with open(os.path.join(outdir, "golden.json"), "w") as f:
        json.dump(doc, f)
        f.write("\n")
    return {"std": round(std, 4), "margin": round(worst, 4), "seed": seed, "distinct": len(set(greedy))}


def versions():
    try:
        import transformers

        tv = transformers.__version__
    except Exception:
        tv = None
    return {"torch": torch.__version__, "transformers": tv, "python": platform.python_version()}


# ---------------------------------------------------------------------------------------------------------------------
# families that transformers knows


def causal_class(config):
    """The class that AutoModelForCausalLM would pick, or the named one where that knows none."""
    import transformers

    if type(config) in transformers.AutoModelForCausalLM._model_mapping:
        return transformers.AutoModelForCausalLM
    return getattr(transformers, config.architectures[0])


def load_model(path):
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(path)
    try:
        config._experts_implementation = "eager"
    except Exception as e:
        print("   experts implementation not settable:", e)
    model, info = causal_class(config).from_pretrained(
        path, config=config, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    model.eval()
    missing = [k for k in info.get("missing_keys", []) or []]
    if missing or info.get("unexpected_keys") or info.get("mismatched_keys"):
        raise ValueError(f"loading again: missing {missing}, unexpected {info.get('unexpected_keys')}, "
                         f"mismatched {info.get('mismatched_keys')}")
    assert model.config._attn_implementation == "eager", model.config._attn_implementation
    for n, p in model.named_parameters():
        assert p.dtype == torch.float32, (n, p.dtype)
    return model


def forward_of(model):
    def run(ids):
        with torch.no_grad():
            out = model(input_ids=torch.tensor([ids], dtype=torch.long), use_cache=False)
        return out.logits[0].float()

    return run


def write_config(path, config):
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")


def make_hf(family, spec, outdir):
    from transformers import AutoConfig

    write_config(outdir, spec["config"])
    config = AutoConfig.from_pretrained(outdir)
    torch.manual_seed(1)
    cls = causal_class(config)
    build = cls.from_config if hasattr(cls, "from_config") else cls._from_config
    model = build(config, dtype=torch.float32, attn_implementation="eager")
    keep = fill(family, model, spec)
    model.to(torch.bfloat16)
    for name, buf in list(model.named_buffers()) + list(model.named_parameters()):
        if name in keep:
            buf.data = keep[name].to(torch.float32)
    tmp = tempfile.mkdtemp()
    try:
        model.save_pretrained(tmp, **spec.get("save", {}))
        tensors = st_read(os.path.join(tmp, "model.safetensors"))
    finally:
        shutil.rmtree(tmp)
    if "rename" in spec:
        tensors = {spec["rename"](k): v for k, v in tensors.items()}
    if "published" in spec:
        spec["published"](tensors, spec["config"])
    for k, v in tensors.items():
        if v.dtype not in (torch.bfloat16, torch.float32):
            raise ValueError(f"{k} saved as {v.dtype}")
    st_write(os.path.join(outdir, "model.safetensors"), tensors, {"format": "pt"})
    del model
    if "patch" in spec:
        with spec["patch"]():
            model = load_model(outdir)
            return golden(family, forward_of(model), spec["config"]["vocab_size"], outdir, spec.get("extra"))
    model = load_model(outdir)
    return golden(family, forward_of(model), spec["config"]["vocab_size"], outdir, spec.get("extra"))


class GroupedGateNorm:
    """Mamba 2's gated norm works per group in the authors' code and in published GGUF files; transformers' class
    normalises over all groups. With one group both agree. This puts the grouped form in place."""

    def __init__(self, groups):
        self.groups = groups

    def __enter__(self):
        from transformers.models.mamba2 import modeling_mamba2 as m

        self.cls, self.old, groups = m.MambaRMSNormGated, m.MambaRMSNormGated.forward, self.groups

        def forward(self, hidden_states, gate=None):
            x = hidden_states.float()
            if gate is not None:
                x = x * F.silu(gate.float())
            g = x.reshape(*x.shape[:-1], groups, -1)
            g = g * torch.rsqrt(g.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
            return self.weight * g.reshape(x.shape)

        self.cls.forward = forward

    def __exit__(self, *exc):
        self.cls.forward = self.old


# ---------------------------------------------------------------------------------------------------------------------
# Kimi Linear: KDA (a delta rule with one decay per channel) and MLA without positions, mixed


def rms(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def kda(x, w, p, heads, dim, eps):
    n = x.shape[0]

    def conv(name):
        y = x @ w[p + name + "_proj.weight"].T
        k = w[p + name + "_conv1d.weight"].reshape(heads * dim, -1)
        taps = k.shape[1]
        padded = torch.cat([torch.zeros(taps - 1, heads * dim), y])
        out = sum(padded[i : i + n] * k[:, i] for i in range(taps))
        return F.silu(out).reshape(n, heads, dim)

    q, k, v = conv("q"), conv("k"), conv("v")
    q = q * torch.rsqrt((q * q).sum(-1, keepdim=True) + 1e-6) * dim**-0.5
    k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    f = (x @ w[p + "f_a_proj.weight"].T) @ w[p + "f_b_proj.weight"].T
    decay = F.softplus(f + w[p + "dt_bias"]).reshape(n, heads, dim)
    decay = torch.exp(-torch.exp(w[p + "A_log"]).reshape(1, heads, 1) * decay)
    beta = torch.sigmoid(x @ w[p + "b_proj.weight"].T)
    state = torch.zeros(heads, dim, dim)  # [head][key channel][value channel]
    outs = []
    for t in range(n):
        state = state * decay[t][:, :, None]
        pred = torch.einsum("hkv,hk->hv", state, k[t])
        state = state + torch.einsum("hk,hv->hkv", k[t], beta[t][:, None] * (v[t] - pred))
        outs.append(torch.einsum("hkv,hk->hv", state, q[t]))
    o = torch.stack(outs)
    gate = (x @ w[p + "g_a_proj.weight"].T) @ w[p + "g_b_proj.weight"].T
    o = rms(o, w[p + "o_norm.weight"], eps) * torch.sigmoid(gate.reshape(n, heads, dim))
    return o.reshape(n, heads * dim) @ w[p + "o_proj.weight"].T


def mla_nope(x, w, p, c):
    n, h = x.shape[0], c["num_attention_heads"]
    nope, pe, vd, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
    q = (x @ w[p + "q_proj.weight"].T).reshape(n, h, nope + pe)
    kv = x @ w[p + "kv_a_proj_with_mqa.weight"].T
    latent, k_pe = kv[:, :rank], kv[:, rank:]
    latent = rms(latent, w[p + "kv_a_layernorm.weight"], c["rms_norm_eps"])
    up = (latent @ w[p + "kv_b_proj.weight"].T).reshape(n, h, nope + vd)
    k = torch.cat([up[:, :, :nope], k_pe[:, None, :].expand(n, h, pe)], -1)
    s = torch.einsum("qhd,khd->hqk", q, k) * (nope + pe) ** -0.5
    s = s + torch.full((n, n), float("-inf")).triu(1)
    o = torch.einsum("hqk,khd->qhd", s.softmax(-1), up[:, :, nope:])
    return o.reshape(n, h * vd) @ w[p + "o_proj.weight"].T


def swiglu(x, gate, up, down):
    return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


def kimi_moe(x, w, p, c):
    score = torch.sigmoid(x @ w[p + "gate.weight"].T)
    pick = torch.topk(score + w[p + "gate.e_score_correction_bias"], c["num_experts_per_token"], -1).indices
    weight = score.gather(1, pick)
    weight = weight / (weight.sum(-1, keepdim=True) + 1e-20) * c["routed_scaling_factor"]
    out = torch.zeros_like(x)
    for t in range(x.shape[0]):
        for j in range(pick.shape[1]):
            e = f"{p}experts.{int(pick[t, j])}."
            out[t] += weight[t, j] * swiglu(x[t], w[e + "w1.weight"], w[e + "w3.weight"], w[e + "w2.weight"])
    s = p + "shared_experts."
    return out + swiglu(x, w[s + "gate_proj.weight"], w[s + "up_proj.weight"], w[s + "down_proj.weight"])


def kimi_forward(w, c):
    lin = c["linear_attn_config"]

    def run(ids):
        with torch.no_grad():
            x = w["model.embed_tokens.weight"][torch.tensor(ids)]
            for i in range(c["num_hidden_layers"]):
                p = f"model.layers.{i}."
                h = rms(x, w[p + "input_layernorm.weight"], c["rms_norm_eps"])
                if i + 1 in lin["kda_layers"]:
                    x = x + kda(h, w, p + "self_attn.", lin["num_heads"], lin["head_dim"], c["rms_norm_eps"])
                else:
                    x = x + mla_nope(h, w, p + "self_attn.", c)
                h = rms(x, w[p + "post_attention_layernorm.weight"], c["rms_norm_eps"])
                if i < c["first_k_dense_replace"]:
                    m = p + "mlp."
                    x = x + swiglu(h, w[m + "gate_proj.weight"], w[m + "up_proj.weight"], w[m + "down_proj.weight"])
                else:
                    x = x + kimi_moe(h, w, p + "block_sparse_moe.", c)
            x = rms(x, w["model.norm.weight"], c["rms_norm_eps"])
            return x @ w["lm_head.weight"].T

    return run


def kimi_shapes(c):
    d, lin, shapes = c["hidden_size"], c["linear_attn_config"], {}
    shapes["model.embed_tokens.weight"] = (c["vocab_size"], d)
    shapes["lm_head.weight"] = (c["vocab_size"], d)
    shapes["model.norm.weight"] = (d,)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        a = p + "self_attn."
        shapes[p + "input_layernorm.weight"] = (d,)
        shapes[p + "post_attention_layernorm.weight"] = (d,)
        if i + 1 in lin["kda_layers"]:
            h, hd = lin["num_heads"], lin["head_dim"]
            for n in "qkv":
                shapes[f"{a}{n}_proj.weight"] = (h * hd, d)
                shapes[f"{a}{n}_conv1d.weight"] = (h * hd, 1, lin["short_conv_kernel_size"])
            shapes[a + "A_log"] = (1, 1, h, 1)
            shapes[a + "dt_bias"] = (h * hd,)
            shapes[a + "f_a_proj.weight"] = (hd, d)
            shapes[a + "f_b_proj.weight"] = (h * hd, hd)
            shapes[a + "g_a_proj.weight"] = (hd, d)
            shapes[a + "g_b_proj.weight"] = (h * hd, hd)
            shapes[a + "b_proj.weight"] = (h, d)
            shapes[a + "o_norm.weight"] = (hd,)
            shapes[a + "o_proj.weight"] = (d, h * hd)
        else:
            h, nope, pe, vd, r = (c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"],
                                  c["v_head_dim"], c["kv_lora_rank"])
            shapes[a + "q_proj.weight"] = (h * (nope + pe), d)
            shapes[a + "kv_a_proj_with_mqa.weight"] = (r + pe, d)
            shapes[a + "kv_a_layernorm.weight"] = (r,)
            shapes[a + "kv_b_proj.weight"] = (h * (nope + vd), r)
            shapes[a + "o_proj.weight"] = (d, h * vd)
        if i < c["first_k_dense_replace"]:
            ff = c["intermediate_size"]
            shapes[p + "mlp.gate_proj.weight"] = (ff, d)
            shapes[p + "mlp.up_proj.weight"] = (ff, d)
            shapes[p + "mlp.down_proj.weight"] = (d, ff)
        else:
            ff, m = c["moe_intermediate_size"], p + "block_sparse_moe."
            shapes[m + "gate.weight"] = (c["num_experts"], d)
            shapes[m + "gate.e_score_correction_bias"] = (c["num_experts"],)
            for e in range(c["num_experts"]):
                shapes[f"{m}experts.{e}.w1.weight"] = (ff, d)
                shapes[f"{m}experts.{e}.w3.weight"] = (ff, d)
                shapes[f"{m}experts.{e}.w2.weight"] = (d, ff)
            ff *= c["num_shared_experts"]
            shapes[m + "shared_experts.gate_proj.weight"] = (ff, d)
            shapes[m + "shared_experts.up_proj.weight"] = (ff, d)
            shapes[m + "shared_experts.down_proj.weight"] = (d, ff)
    return shapes


def make_kimi(family, spec, outdir):
    c = spec["config"]
    write_config(outdir, c)
    tensors = {}
    for name, shape in kimi_shapes(c).items():
        default = torch.ones(shape) if len(shape) == 1 else torch.zeros(shape)
        if EMBED.search(name):
            v = noise(family, name, shape)
        else:
            v = randomize(family, name, default, [], False)
        f32 = re.search(r"(A_log|dt_bias|e_score_correction_bias)$", name)
        tensors[name] = v if f32 else v.to(torch.bfloat16)
    st_write(os.path.join(outdir, "model.safetensors"), tensors, {"format": "pt"})
    w = {k: v.float() for k, v in st_read(os.path.join(outdir, "model.safetensors")).items()}
    return golden(family, kimi_forward(w, c), c["vocab_size"], outdir,
                  {"reference": "own float32 implementation in generate.py"})


# ---------------------------------------------------------------------------------------------------------------------
# DeepSeek 1: the Llama decoder with a mixture of experts, as its authors' modeling_deepseek.py states it


class DeepseekMlp(torch.nn.Module):
    def __init__(self, n, ff):
        super().__init__()
        self.gate_proj, self.up_proj = (torch.nn.Linear(n, ff, bias=False) for _ in range(2))
        self.down_proj = torch.nn.Linear(ff, n, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DeepseekMoe(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        n, ff = c["hidden_size"], c["moe_intermediate_size"]
        self.c = c
        self.gate = torch.nn.Linear(n, c["n_routed_experts"], bias=False)
        self.experts = torch.nn.ModuleList(DeepseekMlp(n, ff) for _ in range(c["n_routed_experts"]))
        self.shared_experts = DeepseekMlp(n, ff * c["n_shared_experts"])

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weight, pick = torch.topk(self.gate(flat).softmax(-1), self.c["num_experts_per_tok"], -1)
        if self.c["norm_topk_prob"]:
            weight = weight / weight.sum(-1, keepdim=True)
        out = torch.stack([sum(weight[t, j] * self.experts[int(e)](flat[t]) for j, e in enumerate(pick[t]))
                           for t in range(flat.shape[0])])
        return out.reshape(x.shape) + self.shared_experts(x)


def make_deepseek(family, spec, outdir):
    from transformers import LlamaConfig, LlamaForCausalLM

    c = spec["config"]
    write_config(outdir, c)
    llama = {k: v for k, v in c.items() if k not in ("architectures", "model_type", "torch_dtype")}
    model = LlamaForCausalLM(LlamaConfig(**llama, attn_implementation="eager"))
    for layer in model.model.layers[c["first_k_dense_replace"]:]:
        layer.mlp = DeepseekMoe(c)
    fill(family, model, spec)
    tensors = {k: v.to(torch.bfloat16) for k, v in model.state_dict().items()}
    st_write(os.path.join(outdir, "model.safetensors"), tensors, {"format": "pt"})
    model.load_state_dict({k: v.float() for k, v in tensors.items()})
    model.eval()
    return golden(family, forward_of(model), c["vocab_size"], outdir,
                  {"reference": "Llama of transformers with a mixture of experts from generate.py"})


# ---------------------------------------------------------------------------------------------------------------------
# variants with quantized weights


def base_dir(base, root):
    """The directory of the model a variant starts from; made if this run has not made it."""
    path = os.path.join(root, base)
    if not os.path.exists(os.path.join(path, "golden.json")):
        os.makedirs(path, exist_ok=True)
        SPECS[base]["make"](base, SPECS[base], path)
    return path


def golden_of_weights(family, config, weights, outdir, extra):
    tmp = tempfile.mkdtemp()
    try:
        write_config(tmp, config)
        st_write(os.path.join(tmp, "model.safetensors"), weights, {"format": "pt"})
        model = load_model(tmp)
        return golden(family, forward_of(model), config["vocab_size"], outdir, extra)
    finally:
        shutil.rmtree(tmp)


def mlx_quantize(w, bits, group):
    """w f32 [out][in] -> words int32 [out][in*bits/32], scales, biases bf16 [out][in/group]; w ~ scale * q + bias.
    The end of the range with the larger magnitude is hit exactly, so scales may be negative."""
    out, inp = w.shape
    g = w.reshape(out, inp // group, group)
    lo, hi = g.amin(-1), g.amax(-1)
    top = (1 << bits) - 1
    scale = ((hi - lo) / top).clamp(min=1e-7)
    low_side = lo.abs() > hi.abs()
    edge = torch.where(low_side, lo, hi)
    scale = torch.where(low_side, scale, -scale)
    steps = torch.round(edge / scale)
    scale = torch.where(steps != 0, edge / steps, scale)
    bias = torch.where(steps != 0, edge, torch.zeros_like(edge))
    scale, bias = scale.to(torch.bfloat16), bias.to(torch.bfloat16)
    q = torch.round((g - bias.float()[..., None]) / scale.float()[..., None]).clamp(0, top).to(torch.int64)
    q = q.reshape(out, inp)
    words = torch.zeros(out, inp * bits // 32, dtype=torch.int64)
    per = 32 // bits
    for i in range(per):
        words |= q[:, i::per] << (bits * i)
    words = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
    return words, scale, bias


def mlx_dequantize(words, scale, bias, bits, group):
    out, n = words.shape
    per = 32 // bits
    u = words.to(torch.int64) & 0xFFFFFFFF
    q = torch.stack([(u >> (bits * i)) & ((1 << bits) - 1) for i in range(per)], -1).reshape(out, n * per)
    g = q.reshape(out, -1, group).float()
    return (scale.float()[..., None] * g + bias.float()[..., None]).reshape(out, n * per)


def make_mlx(family, spec, outdir):
    src = base_dir(spec["base"], spec["root"])
    with open(os.path.join(src, "config.json")) as f:
        config = json.load(f)
    plain = dict(config)
    quant = spec["quantization"]
    config["quantization"] = quant
    config["quantization_config"] = quant
    write_config(outdir, config)
    stored, dense = {}, {}
    for name, t in st_read(os.path.join(src, "model.safetensors")).items():
        layer = name.removesuffix(".weight")
        own = quant.get(layer, {})
        if t.ndim != 2 or own is False:
            stored[name], dense[name] = t, t.float()
            continue
        bits, group = own.get("bits", quant["bits"]), own.get("group_size", quant["group_size"])
        words, scale, bias = mlx_quantize(t.float(), bits, group)
        stored[name], stored[layer + ".scales"], stored[layer + ".biases"] = words, scale, bias
        dense[name] = mlx_dequantize(words, scale, bias, bits, group)
        err = float((dense[name] - t.float()).abs().max() / t.float().abs().max())
        assert err < (0.12 if bits == 4 else 0.03), (name, err)
    st_write(os.path.join(outdir, "model.safetensors"), stored, {"format": "mlx"})
    return golden_of_weights(family, plain, dense, outdir, {"base": spec["base"]})


FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


def mxfp4_random(family, name, rows, cols):
    """-> blocks u8 [rows][cols/32][16], scales u8 [rows][cols/32], values f32 [rows][cols]"""
    rng = random.Random(f"{family}/{name}")
    nb = cols // 32
    blocks = torch.tensor([rng.randrange(256) for _ in range(rows * nb * 16)], dtype=torch.uint8)
    blocks = blocks.reshape(rows, nb, 16)
    # fp4 values have a standard deviation near 2.9: exponents 2^-5..2^-3 give about 1/sqrt(64)
    scales = torch.tensor([rng.choice([122, 123, 123, 124]) for _ in range(rows * nb)], dtype=torch.uint8)
    scales = scales.reshape(rows, nb)
    lut = torch.tensor(FP4)
    lo, hi = lut[(blocks & 15).long()], lut[(blocks >> 4).long()]
    v = torch.stack([lo, hi], -1).reshape(rows, nb, 32) * torch.exp2(scales.float() - 127)[..., None]
    return blocks, scales, v.reshape(rows, cols)


def make_mxfp4(family, spec, outdir):
    src = base_dir(spec["base"], spec["root"])
    with open(os.path.join(src, "config.json")) as f:
        config = json.load(f)
    plain = dict(config)
    config["quantization_config"] = {
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                                   "lm_head"],
        "quant_method": "mxfp4"}
    write_config(outdir, config)
    stored, dense = {}, {}
    for name, t in st_read(os.path.join(src, "model.safetensors")).items():
        if not re.search(r"experts\.(gate_up_proj|down_proj)$", name):
            stored[name], dense[name] = t, t
            continue
        experts, inp, out = t.shape
        blocks, scales, v = mxfp4_random(family, name, experts * out, inp)
        stored[name + "_blocks"] = blocks.reshape(experts, out, inp // 32, 16)
        stored[name + "_scales"] = scales.reshape(experts, out, inp // 32)
        v = v.reshape(experts, out, inp).transpose(1, 2).contiguous()
        assert torch.equal(v.to(torch.bfloat16).float(), v)
        dense[name] = v.to(torch.bfloat16)
    st_write(os.path.join(outdir, "model.safetensors"), stored, {"format": "pt"})
    return golden_of_weights(family, plain, dense, outdir, {"base": spec["base"]})


# ---------------------------------------------------------------------------------------------------------------------
# the families

SPECS = collections.OrderedDict()
COMMON = {"vocab_size": VOCAB, "hidden_size": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
          "torch_dtype": "bfloat16", "use_cache": True, "initializer_range": 0.02}
DENSE = {"intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "rope_scaling": None, "attention_dropout": 0.0, "tie_word_embeddings": False}


def hf(name, arch, model_type, config, **more):
    c = {"architectures": [arch], "model_type": model_type}
    c.update(COMMON)
    c.update(config)
    c = {k: v for k, v in c.items() if v != "DROP"}
    SPECS[name] = {"make": make_hf, "config": c, **more}


def dense(name, arch, model_type, more=None, **kw):
    hf(name, arch, model_type, {**DENSE, **(more or {})}, **kw)


def ints(n, f):
    return [f(i) for i in range(n)]


dense("llama", "LlamaForCausalLM", "llama", {
    "attention_bias": False, "mlp_bias": False, "rope_theta": 500000.0, "num_hidden_layers": 3})
dense("llama_rope3", "LlamaForCausalLM", "llama", {
    "attention_bias": False, "mlp_bias": False, "rope_theta": 500000.0, "tie_word_embeddings": True, "head_dim": 32,
    "num_hidden_layers": 2,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 64}})
dense("llama_yarn", "LlamaForCausalLM", "llama", {
    "attention_bias": True, "mlp_bias": True, "head_dim": 32, "num_hidden_layers": 2,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128,
                     "beta_fast": 32.0, "beta_slow": 1.0}})
dense("llama_linear", "LlamaForCausalLM", "llama", {
    "num_hidden_layers": 2, "rope_scaling": {"type": "linear", "factor": 4.0}})
dense("mistral", "MistralForCausalLM", "mistral", {"sliding_window": 16, "head_dim": 32, "rope_theta": 10000.0})
dense("ministral3", "Ministral3ForCausalLM", "ministral3", {
    "rope_theta": "DROP", "rope_scaling": "DROP", "head_dim": 32, "sliding_window": None, "dtype": "bfloat16",
    "torch_dtype": "DROP", "max_position_embeddings": 256, "num_hidden_layers": 2,
    "rope_parameters": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1,
                        "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16,
                        "rope_theta": 1000000.0, "rope_type": "yarn", "type": "yarn"}})
dense("mixtral", "MixtralForCausalLM", "mixtral", {
    "intermediate_size": 64, "num_local_experts": 6, "num_experts_per_tok": 2, "rope_theta": 1000000.0,
    "num_hidden_layers": 2, "sliding_window": None, "output_router_logits": False, "router_aux_loss_coef": 0.02})
dense("phi3", "Phi3ForCausalLM", "phi3", {
    "original_max_position_embeddings": 512, "sliding_window": 24, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    "partial_rotary_factor": 0.5, "num_attention_heads": 2, "num_key_value_heads": 1})
for _name, _orig in (("phi3_longrope", 16), ("phi3_longrope_short", 128)):
    dense(_name, "Phi3ForCausalLM", "phi3", {
        "original_max_position_embeddings": _orig, "max_position_embeddings": 512, "sliding_window": 262144,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "num_hidden_layers": 2,
        "rope_scaling": {"type": "longrope", "short_factor": ints(8, lambda i: 1.0 + 0.05 * i),
                         "long_factor": ints(8, lambda i: 1.0 + 0.75 * i)}})
dense("qwen2", "Qwen2ForCausalLM", "qwen2", {
    "rope_theta": 1000000.0, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": True})
dense("qwen2_moe", "Qwen2MoeForCausalLM", "qwen2_moe", {
    "intermediate_size": 128, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "num_experts": 8,
    "num_experts_per_tok": 3, "num_hidden_layers": 2, "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28, "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-6, "num_key_value_heads": 4, "output_router_logits": False})
dense("qwen3", "Qwen3ForCausalLM", "qwen3", {
    "num_hidden_layers": 3,
    "head_dim": 32, "rope_theta": 1000000.0, "use_sliding_window": False, "sliding_window": None,
    "max_window_layers": 28, "rms_norm_eps": 1e-6, "attention_bias": False, "tie_word_embeddings": True})
dense("qwen3_moe", "Qwen3MoeForCausalLM", "qwen3_moe", {
    "num_hidden_layers": 3,
    "head_dim": 32, "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [1], "use_sliding_window": False, "sliding_window": None,
    "max_window_layers": 28, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "attention_bias": False,
    "output_router_logits": False})
LINEAR = {"linear_conv_kernel_dim": 4, "linear_key_head_dim": 16, "linear_num_key_heads": 2,
          "linear_num_value_heads": 4, "linear_value_head_dim": 16, "full_attention_interval": 4, "head_dim": 32,
          "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 4, "rms_norm_eps": 1e-6,
          "attention_bias": False}
dense("qwen3_next", "Qwen3NextForCausalLM", "qwen3_next", {
    **LINEAR, "partial_rotary_factor": 0.25, "rope_theta": 10000000.0, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "output_router_logits": False})
QWEN35 = {**LINEAR, "rope_theta": "DROP", "rope_scaling": "DROP", "torch_dtype": "DROP", "dtype": "bfloat16",
          "layer_types": ["linear_attention"] * 3 + ["full_attention"], "attn_output_gate": True,
          "mamba_ssm_dtype": "float32", "partial_rotary_factor": 0.25,
          "rope_parameters": {"mrope_interleaved": True, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.25,
                              "rope_theta": 10000000.0, "rope_type": "default"}}
dense("qwen3_5_text", "Qwen3_5ForCausalLM", "qwen3_5_text", {**QWEN35, "tie_word_embeddings": True},
      rename=lambda n: n.replace("model.", "model.language_model.", 1))
dense("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", {
    **QWEN35, "intermediate_size": "DROP", "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    "num_experts": 4, "num_experts_per_tok": 2, "output_router_logits": False},
    save={"save_original_format": False})
GEMMA = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6,
         "tie_word_embeddings": True, "attention_bias": False, "head_dim": 32, "num_key_value_heads": 1,
         "num_attention_heads": 2, "rope_scaling": "DROP"}
dense("gemma", "GemmaForCausalLM", "gemma", GEMMA)
dense("gemma2", "Gemma2ForCausalLM", "gemma2", {
    **GEMMA, "sliding_window": 16, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0, "num_hidden_layers": 4})
dense("gemma3_text", "Gemma3ForCausalLM", "gemma3_text", {
    **GEMMA, "hidden_act": "DROP", "sliding_window": 16, "query_pre_attn_scalar": 24, "num_hidden_layers": 4,
    "sliding_window_pattern": 3, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}})
GEMMA4 = {**GEMMA, "hidden_act": "DROP", "rope_theta": "DROP", "rope_scaling": "DROP", "torch_dtype": "DROP",
          "dtype": "bfloat16", "sliding_window": 16, "head_dim": 16, "global_head_dim": 32, "num_attention_heads": 4,
          "final_logit_softcapping": 4.0, "use_bidirectional_attention": None,
          "rope_parameters": {
              "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
              "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}}
G4RULES = [(r"self_attn\.[qk]_norm\.weight$", "n", 0.5, 0.1)]
dense("gemma4_text", "Gemma4ForCausalLM", "gemma4_text", {
    **GEMMA4, "num_hidden_layers": 4, "intermediate_size": 64, "num_key_value_heads": 2,
    "num_global_key_value_heads": None, "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": VOCAB,
    "attention_k_eq_v": False, "use_double_wide_mlp": True, "enable_moe_block": False, "num_experts": None,
    "top_k_experts": None, "moe_intermediate_size": None}, rules=G4RULES)
dense("gemma4_text_moe", "Gemma4ForCausalLM", "gemma4_text", {
    **GEMMA4, "num_hidden_layers": 3, "intermediate_size": 64, "num_key_value_heads": 2,
    "num_global_key_value_heads": 1,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": VOCAB, "attention_k_eq_v": True,
    "use_double_wide_mlp": False, "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2,
    "moe_intermediate_size": 32}, rules=G4RULES)
dense("glm4", "Glm4ForCausalLM", "glm4", {
    "attention_bias": True, "head_dim": 32, "partial_rotary_factor": 0.5, "rope_scaling": "DROP"})
GLMMOE = {"num_hidden_layers": 3, "moe_intermediate_size": 32, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
          "routed_scaling_factor": 1.8, "norm_topk_prob": True, "first_k_dense_replace": 1,
          "num_nextn_predict_layers": 0, "topk_method": "noaux_tc"}
dense("glm4_moe", "Glm4MoeForCausalLM", "glm4_moe", {
    **GLMMOE, "attention_bias": True, "head_dim": 32, "partial_rotary_factor": 0.5, "use_qk_norm": True,
    "n_group": 1, "topk_group": 1, "num_attention_heads": 3, "num_key_value_heads": 1})
MLA = {"kv_lora_rank": 32, "q_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
       "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "attention_bias": False}
dense("glm4_moe_lite", "Glm4MoeLiteForCausalLM", "glm4_moe_lite", {
    **GLMMOE, **MLA, "n_group": 1, "topk_group": 1, "rope_theta": 1000000.0})
dense("lfm2", "Lfm2ForCausalLM", "lfm2", {
    "intermediate_size": "DROP", "rms_norm_eps": "DROP", "hidden_act": "DROP", "rope_scaling": "DROP",
    "tie_word_embeddings": "DROP", "tie_embedding": True, "norm_eps": 1e-5, "conv_L_cache": 3, "conv_bias": False,
    "block_dim": 64, "block_ff_dim": 192, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0,
    "block_multiple_of": 32, "full_attn_idxs": [2], "num_hidden_layers": 4, "rope_theta": 1000000.0})
dense("lfm2_moe", "Lfm2MoeForCausalLM", "lfm2_moe", {
    "rms_norm_eps": "DROP", "hidden_act": "DROP", "rope_scaling": "DROP", "norm_eps": 1e-5, "conv_L_cache": 3,
    "conv_bias": False, "layer_types": ["conv", "conv", "full_attention", "conv"], "num_hidden_layers": 4,
    "moe_intermediate_size": 32, "num_dense_layers": 1, "num_experts": 6, "num_experts_per_tok": 2,
    "use_expert_bias": True, "routed_scaling_factor": 1.0, "norm_topk_prob": True, "rope_theta": 1000000.0,
    "tie_word_embeddings": True})
DEEPSEEK = {**MLA, "num_hidden_layers": 3, "moe_intermediate_size": 32, "n_routed_experts": 8, "n_shared_experts": 1,
            "num_experts_per_tok": 3, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
            "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_group": 4, "topk_group": 2,
            "topk_method": "noaux_tc", "scoring_func": "sigmoid", "num_nextn_predict_layers": 0}
dense("deepseek_v3", "DeepseekV3ForCausalLM", "deepseek_v3", {
    **DEEPSEEK, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 4.0, "mscale": 1.0,
                                 "mscale_all_dim": 1.0, "original_max_position_embeddings": 128, "type": "yarn"}})
dense("deepseek_v3_noq", "DeepseekV3ForCausalLM", "deepseek_v3", {
    **DEEPSEEK, "q_lora_rank": None, "n_group": 1, "topk_group": 1, "num_hidden_layers": 2,
    "routed_scaling_factor": 2.827, "num_experts_per_tok": 2})
SPECS["kimi_linear"] = {"make": make_kimi, "config": {
    "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0, "dtype": "bfloat16", "first_k_dense_replace": 1, "head_dim": 16, "hidden_act": "silu",
    "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 128, "kv_lora_rank": 32,
    "linear_attn_config": {"full_attn_layers": [3], "head_dim": 32, "kda_layers": [1, 2, 4], "num_heads": 2,
                           "short_conv_kernel_size": 4},
    "mla_use_nope": True, "model_max_length": 512, "moe_intermediate_size": 32, "moe_layer_freq": 1,
    "moe_renormalize": True, "moe_router_activation_func": "sigmoid", "num_attention_heads": 2,
    "num_expert_group": 1, "num_experts": 4, "num_experts_per_token": 2, "num_hidden_layers": 4,
    "num_key_value_heads": 2, "num_nextn_predict_layers": 0, "num_shared_experts": 1, "q_lora_rank": None,
    "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "rms_norm_eps": 1e-5, "rope_scaling": None,
    "rope_theta": 10000.0, "routed_scaling_factor": 2.446, "tie_word_embeddings": False, "topk_group": 1,
    "use_cache": True, "use_grouped_topk": True, "v_head_dim": 32, "vocab_size": VOCAB}}
dense("gpt_oss", "GptOssForCausalLM", "gpt_oss", {
    "attention_bias": True, "head_dim": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 32, "num_local_experts": 6, "num_experts_per_tok": 2, "experts_per_token": 2,
    "sliding_window": 16, "swiglu_limit": 7.0, "rope_theta": 150000.0, "num_hidden_layers": 2,
    "initial_context_length": 64, "layer_types": ["sliding_attention", "full_attention"],
    "output_router_logits": False, "router_aux_loss_coef": 0.9,
    "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0, "original_max_position_embeddings": 64,
                     "rope_type": "yarn", "truncate": False}},
    transposed=[r"experts\.(gate_up_proj|down_proj)$"], rules=[(r"experts\.gate_up_proj$", "fan", 3.0, 0)])
dense("olmo2", "Olmo2ForCausalLM", "olmo2", {"attention_bias": False, "rms_norm_eps": 1e-6, "rope_theta": 500000.0})
dense("granite", "GraniteForCausalLM", "granite", {
    "attention_bias": False, "mlp_bias": False, "embedding_multiplier": 6.0, "attention_multiplier": 0.15,
    "residual_multiplier": 0.6, "logits_scaling": 2.0, "tie_word_embeddings": True})
dense("smollm3", "SmolLM3ForCausalLM", "smollm3", {
    "attention_bias": False, "mlp_bias": False, "no_rope_layers": [1, 1, 1, 0], "no_rope_layer_interval": 4,
    "num_hidden_layers": 4, "layer_types": ["full_attention"] * 4, "use_sliding_window": False,
    "sliding_window": None, "rope_theta": 5000000.0, "tie_word_embeddings": True, "rms_norm_eps": 1e-6})
dense("starcoder2", "Starcoder2ForCausalLM", "starcoder2", {
    "hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "rms_norm_eps": "DROP", "norm_type": "layer_norm",
    "use_bias": True, "sliding_window": 16, "residual_dropout": 0.0, "embedding_dropout": 0.0, "mlp_type": "default",
    "rope_theta": 100000.0, "rope_scaling": "DROP", "tie_word_embeddings": True})
dense("cohere2", "Cohere2ForCausalLM", "cohere2", {
    "layer_norm_eps": 1e-5, "rms_norm_eps": "DROP", "logit_scale": 0.25, "sliding_window": 16,
    "sliding_window_pattern": 4, "num_hidden_layers": 4, "rope_theta": 50000.0, "attention_bias": False,
    "rope_scaling": "DROP", "tie_word_embeddings": True, "use_embedding_sharing": True, "use_gated_activation": True,
    "use_parallel_block": True, "use_parallel_embedding": True, "use_qk_norm": False, "head_dim": 16,
    "order_of_interleaved_layers": "local_attn_first", "position_embedding_type": "rope_gptj", "rotary_pct": 1.0,
    "layer_switch": 4})
dense("exaone4", "Exaone4ForCausalLM", "exaone4", {
    "head_dim": 16, "sliding_window": 16, "sliding_window_pattern": "LLLG", "num_hidden_layers": 4,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "rope_theta": 1000000.0,
    "rope_scaling": {"factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 64, "rope_type": "llama3"}})
dense("minimax_m2", "MiniMaxM2ForCausalLM", "minimax_m2", {
    "intermediate_size": 32, "head_dim": 32, "rotary_dim": 16, "partial_rotary_factor": 0.5, "use_qk_norm": True,
    "qk_norm_type": "per_layer", "scoring_func": "sigmoid", "use_routing_bias": True, "num_local_experts": 8,
    "num_experts_per_tok": 2, "rope_theta": 5000000.0, "rms_norm_eps": 1e-6, "num_hidden_layers": 2,
    "attn_type_list": [1, 1], "num_mtp_modules": 0, "rope_scaling": "DROP", "shared_intermediate_size": 0})
hf("gpt2", "GPT2LMHeadModel", "gpt2", {
    "hidden_size": "DROP", "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 128, "n_ctx": 128,
    "n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0,
    "embd_pdrop": 0.0, "attn_pdrop": 0.0, "torch_dtype": "bfloat16"},
    transposed=[r"(c_attn|c_proj|c_fc)\.weight$"], rename=lambda n: n.removeprefix("transformer."))
MAMBA2 = {"num_heads": 8, "head_dim": 16, "state_size": 16, "expand": 2, "conv_kernel": 4, "n_groups": 1,
          "use_bias": False, "use_conv_bias": True, "hidden_act": "silu", "num_hidden_layers": 3,
          "layer_norm_epsilon": 1e-5, "residual_in_fp32": True, "rescale_prenorm_residual": False,
          "time_step_floor": 0.0001, "time_step_max": 0.1, "time_step_min": 0.001, "time_step_rank": 4,
          "chunk_size": 16, "rms_norm": True, "tie_word_embeddings": False}
hf("mamba2", "Mamba2ForCausalLM", "mamba2", MAMBA2)
hf("mamba2_groups", "Mamba2ForCausalLM", "mamba2", {**MAMBA2, "n_groups": 2, "num_hidden_layers": 2},
   patch=lambda: GroupedGateNorm(2),
   extra={"note": "the gated norm works per group, as in the authors' code"})

for _base, _short in (("llama", "llama"), ("qwen3", "qwen3"), ("gemma3_text", "gemma3")):
    for _bits in (4, 8):
        SPECS[f"{_short}_mlx{_bits}"] = {"make": make_mlx, "base": _base,
                                         "quantization": {"group_size": 64, "bits": _bits, "mode": "affine"}}
SPECS["llama_mlx4_g32"] = {"make": make_mlx, "base": "llama", "quantization": {
    "group_size": 32, "bits": 4, "mode": "affine",
    "model.layers.0.mlp.down_proj": {"group_size": 64, "bits": 8},
    "model.layers.1.self_attn.v_proj": {"group_size": 32, "bits": 8},
    "lm_head": False}}
SPECS["gpt_oss_mxfp4"] = {"make": make_mxfp4, "base": "gpt_oss"}
SPECS.update((n, {"make": make_deepseek if n == "deepseek" else make_hf, **s}) for n, s in specs_moe.SPECS.items())

import specs_dense
import specs_text

specs_dense.add(sys.modules[__name__])
specs_text.add(sys.modules[__name__])


# ---------------------------------------------------------------------------------------------------------------------


def size_of(path):
    return sum(os.path.getsize(os.path.join(path, f)) for f in os.listdir(path))


def pack(root, done, out):
    """Spreads the finished families over archives of about the same size."""
    order, total = list(done), sum(size_of(os.path.join(root, n)) for n in done)
    limit, part, used, tar = total / 4 + 1, 0, None, None
    for name in order:
        if tar is None or used > limit:
            if tar is not None:
                tar.close()
            part, used = part + 1, 0
            tar = tarfile.open(os.path.join(out, f"golden-{part}.tar.gz"), "w:gz")
        tar.add(os.path.join(root, name), arcname=name)
        used += size_of(os.path.join(root, name))
    if tar is not None:
        tar.close()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    out, want = sys.argv[1], sys.argv[2:] or list(SPECS)
    os.makedirs(out, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    print("versions", versions(), flush=True)
    root = tempfile.mkdtemp()
    done, failed, summary = [], [], {}
    start = time.time()
    for name in want:
        t0 = time.time()
        spec = SPECS.get(name)
        if spec is None:
            print("unknown family", name, flush=True)
            failed.append(name)
            continue
        spec["root"] = root
        path = os.path.join(root, name)
        try:
            if not os.path.exists(os.path.join(path, "golden.json")):
                shutil.rmtree(path, ignore_errors=True)
                os.makedirs(path)
                info = spec["make"](name, spec, path)
            else:
                info = {"made": "as a base"}
            info["bytes"] = size_of(path)
            info["seconds"] = round(time.time() - t0, 1)
            summary[name] = info
            done.append(name)
            print("ok  ", name, info, flush=True)
        except Exception:
            print("FAIL", name, flush=True)
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
            failed.append(name)
    pack(root, done, out)
    total = sum(v["bytes"] for v in summary.values())
    with open(os.path.join(out, "summary.json"), "w") as f:
        json.dump({"versions": versions(), "total_bytes": total, "failed": failed, "families": summary}, f, indent=1)
    shutil.rmtree(root)
    print(f"{len(done)} made, {len(failed)} failed {failed}, {total} bytes, {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
