#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a reference model as the GGUF file that a published converter would have made of it.

  to_gguf.py MODEL_DIR OUT.gguf

Names, keys and changes of the values follow docs/gguf-names.md. It shares no code with the program that reads the
result, so that a wrong idea of the naming shows. Standard library only. Matrices keep bf16; vectors become f32.
"""

import array
import json
import math
import os
import re
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import gguf_moe
import to_gguf_dense

F32, BF16, MXFP4 = 0, 30, 39


class T:
    """A tensor: type, shape (slowest first) and its rows' bytes."""

    def __init__(self, kind, shape, data):
        self.kind, self.shape, self.data = kind, list(shape), bytes(data)

    def rows(self):
        n = len(self.data) // max(1, math.prod(self.shape[:-1]))
        return [self.data[i : i + n] for i in range(0, len(self.data), n)]

    def take(self, order):
        r = self.rows()
        return T(self.kind, [len(order)] + self.shape[-1:], b"".join(r[i] for i in order))

    def part(self, first, n):
        return self.take(range(first, first + n))

    def transposed(self):
        """The last two dimensions swapped; two-byte elements."""
        assert self.kind == BF16
        n, r, c = (self.shape[0] if len(self.shape) > 2 else 1), self.shape[-2], self.shape[-1]
        a = array.array("H", self.data)
        out = array.array("H", bytes(len(self.data)))
        for e in range(n):
            at = e * r * c
            for j in range(c):
                out[at + j * r : at + (j + 1) * r] = a[at + j : at + r * c : c]
        return T(BF16, self.shape[:-2] + [c, r], out.tobytes())

    def columns(self, order):
        """Columns reordered; two-byte elements."""
        out = []
        for row in self.rows():
            a = array.array("H", row)
            out.append(array.array("H", [a[i] for i in order]).tobytes())
        return T(self.kind, self.shape, b"".join(out))

    def floats(self):
        if self.kind == F32:
            return list(array.array("f", self.data))
        return list(array.array("f", b"".join(b"\0\0" + self.data[i : i + 2] for i in range(0, len(self.data), 2))))

    def f32(self, f=lambda x: x):
        return T(F32, self.shape, array.array("f", [f(x) for x in self.floats()]).tobytes())

    def reshape(self, *shape):
        assert math.prod(shape) == math.prod(self.shape)
        return T(self.kind, shape, self.data)


def stack(ts):
    return T(ts[0].kind, [len(ts)] + ts[0].shape, b"".join(t.data for t in ts))


def read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, e in json.loads(data[8 : 8 + n]).items():
        if name != "__metadata__":
            a, b = e["data_offsets"]
            kind = {"BF16": BF16, "F32": F32, "U8": "u8"}[e["dtype"]]
            out[name] = T(kind, e["shape"], data[8 + n + a : 8 + n + b])
    return out


# ---------------------------------------------------------------------------------------------------------------------
# the file


class Gguf:
    def __init__(self, arch):
        self.arch, self.kv, self.tensors = arch, [("general.architecture", 8, arch)], {}

    def key(self, name, value):
        name = f"{self.arch}.{name}"
        kind = {bool: 7, int: 4, float: 6, str: 8}
        if isinstance(value, list):
            self.kv.append((name, (9, kind[type(value[0])]), value))
        elif value is not None:
            self.kv.append((name, kind[type(value)], value))

    def add(self, name, t):
        assert name not in self.tensors, name
        self.tensors[name] = t

    @staticmethod
    def string(s):
        b = s.encode()
        return struct.pack("<Q", len(b)) + b

    def value(self, kind, v):
        if isinstance(kind, tuple):
            return struct.pack("<IQ", kind[1], len(v)) + b"".join(self.value(kind[1], x) for x in v)
        return self.string(v) if kind == 8 else struct.pack({4: "<I", 5: "<i", 6: "<f", 7: "<?"}[kind], v)

    def write(self, path, vocab, tokenizer=None):
        """tokenizer: its keys, instead of tokens that stand for nothing."""
        self.kv += tokenizer or [("general.name", 8, "golden"), ("tokenizer.ggml.model", 8, "gpt2"),
                    ("tokenizer.ggml.pre", 8, "default"),
                    ("tokenizer.ggml.tokens", (9, 8), [f"t{i}" for i in range(vocab)]),
                    ("tokenizer.ggml.token_type", (9, 5), [1] * vocab), ("tokenizer.ggml.merges", (9, 8), []),
                    ("tokenizer.ggml.bos_token_id", 4, 1), ("tokenizer.ggml.eos_token_id", 4, 2)]
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.kv))
        for name, kind, v in self.kv:
            head += self.string(name) + struct.pack("<I", 9 if isinstance(kind, tuple) else kind) + self.value(kind, v)
        body, blobs, at = b"", [], 0
        for name, t in self.tensors.items():
            dims = t.shape[::-1]
            body += self.string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
            body += struct.pack("<IQ", t.kind, at)
            data = t.data + bytes(-len(t.data) % 32)
            blobs.append(data)
            at += len(data)
        head += body
        with open(path, "wb") as f:
            f.write(head + bytes(-len(head) % 32) + b"".join(blobs))


# ---------------------------------------------------------------------------------------------------------------------
# what most families have in common

ARCH = {"llama": "llama", "mistral": "llama", "mixtral": "llama", "ministral3": "mistral3", "phi3": "phi3",
        "qwen2": "qwen2", "qwen2_moe": "qwen2moe", "qwen3": "qwen3", "qwen3_moe": "qwen3moe",
        "qwen3_next": "qwen3next", "qwen3_5_text": "qwen35", "qwen3_5_moe_text": "qwen35moe", "gemma": "gemma",
        "gemma2": "gemma2", "gemma3_text": "gemma3", "gemma4_text": "gemma4", "glm4": "glm4", "glm4_moe": "glm4moe",
        "glm4_moe_lite": "deepseek2", "lfm2": "lfm2", "lfm2_moe": "lfm2moe", "deepseek_v3": "deepseek2",
        "kimi_linear": "kimi-linear", "gpt_oss": "gpt-oss", "olmo2": "olmo2", "granite": "granite",
        "smollm3": "smollm3", "starcoder2": "starcoder2", "cohere2": "cohere2", "exaone4": "exaone4",
        "minimax_m2": "minimax-m2", "gpt2": "gpt2", "mamba2": "mamba2", "qwen2_5_vl_text": "qwen2vl",
        "qwen3_vl_text": "qwen3vl", "qwen3_vl_moe_text": "qwen3vlmoe", "gemma4_unified_text": "gemma4", "kimi_k2": "deepseek2",
        "muse_glimmer_text": "muse-glimmer"}
PERMUTED = {"llama", "mistral3", "granite", "smollm3", "muse-glimmer"}
PLUS_ONE = {"gemma", "gemma2", "gemma3", "qwen3next", "qwen35", "qwen35moe", "step35", "muse-glimmer",
            "minimax-m3"}
# One matrix per expert becomes one stack; (pattern, name).
EXPERTS = [(r"(?:mlp|block_sparse_moe|feed_forward)\.experts\.\d+\.(?:gate_proj|w1)\.weight", "ffn_gate_exps"),
           (r"(?:mlp|block_sparse_moe|feed_forward)\.experts\.\d+\.(?:up_proj|w3)\.weight", "ffn_up_exps"),
           (r"(?:mlp|block_sparse_moe|feed_forward)\.experts\.\d+\.(?:down_proj|w2)\.weight", "ffn_down_exps")]
TOP = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "embedding_norm": "token_embd_norm",
       "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "embeddings": "token_embd",
       "norm_f": "output_norm", "embed_tokens_per_layer": "per_layer_token_embd",
       "per_layer_model_projection": "per_layer_model_proj", "per_layer_projection_norm": "per_layer_proj_norm"}
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
         "block_sparse_moe.gate": "ffn_gate_inp", "feed_forward.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
         "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
         **{f"{m}.{s}.{p}_proj": f"ffn_{p}_shexp" for m in ("mlp", "block_sparse_moe")
            for s in ("shared_expert", "shared_experts") for p in ("gate", "up", "down")},
         # phi3, glm4
         "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up", "post_self_attn_layernorm": "post_attention_norm",
         "post_mlp_layernorm": "post_ffw_norm",
         # gemma
         "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
         "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "post_feedforward_layernorm_1": "post_ffw_norm_1",
         "post_feedforward_layernorm_2": "post_ffw_norm_2", "per_layer_input_gate": "inp_gate",
         "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm", "router.proj": "ffn_gate_inp",
         # latent attention
         "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
         "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
         # lfm2
         "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.out_proj": "attn_output",
         "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm",
         "conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj", "feed_forward.w1": "ffn_gate",
         "feed_forward.w2": "ffn_down", "feed_forward.w3": "ffn_up",
         # linear attention
         "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
         "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.norm": "ssm_norm",
         "linear_attn.out_proj": "ssm_out",
         # kimi
         "self_attn.f_a_proj": "ssm_f_a", "self_attn.f_b_proj": "ssm_f_b", "self_attn.g_a_proj": "ssm_g_a",
         "self_attn.g_b_proj": "ssm_g_b", "self_attn.b_proj": "ssm_beta", "self_attn.o_norm": "ssm_norm",
         # starcoder2, gpt2, mamba2
         "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down", "ln_1": "attn_norm", "ln_2": "ffn_norm",
         "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "norm": "attn_norm", "mixer.in_proj": "ssm_in",
         "mixer.out_proj": "ssm_out", "mixer.norm": "ssm_norm"}
ARCH.update(gguf_moe.ARCH)
EXPERTS += gguf_moe.EXPERTS
TOP.update(gguf_moe.TOP)
LAYER.update(gguf_moe.LAYER)
PERMUTED |= gguf_moe.PERMUTED
# post_attention_layernorm is the norm behind attention here
POST_ATTENTION = {"gemma2", "gemma3", "gemma4", "olmo2", "exaone4", "qwen3next", "qwen35", "qwen35moe", "glm4moe", "gpt-oss",
                  "muse-glimmer"} | gguf_moe.POST_ATTENTION


def rope_of(c):
    r = dict(c.get("rope_parameters") or {})
    r.update(c.get("rope_scaling") or {})
    r.setdefault("rope_theta", c.get("rope_theta"))
    r["kind"] = r.get("rope_type", r.get("type", "default"))
    return r


def common_keys(g, c, r):
    heads = c.get("num_attention_heads")
    g.key("block_count", c["num_hidden_layers"])
    g.key("context_length", c.get("max_position_embeddings") or c.get("model_max_length"))
    g.key("embedding_length", c["hidden_size"])
    g.key("feed_forward_length", c.get("intermediate_size"))
    g.key("attention.head_count", heads)
    g.key("vocab_size", c["vocab_size"])
    g.key("attention.layer_norm_rms_epsilon", c.get("rms_norm_eps", c.get("norm_eps")))
    g.key("attention.layer_norm_epsilon", c.get("layer_norm_eps", c.get("norm_epsilon")))
    g.key("rope.freq_base", r["rope_theta"])
    if r["kind"] in ("linear", "yarn"):
        g.key("rope.scaling.type", r["kind"])
        g.key("rope.scaling.factor", r["factor"])
    if r["kind"] == "yarn":
        g.key("rope.scaling.original_context_length", r["original_max_position_embeddings"])
        g.key("rope.scaling.yarn_beta_fast", r.get("beta_fast"))
        g.key("rope.scaling.yarn_beta_slow", r.get("beta_slow"))
    g.key("expert_count", c.get("num_local_experts", c.get("num_experts", c.get("n_routed_experts"))))
    g.key("expert_used_count", c.get("num_experts_per_tok", c.get("num_experts_per_token", c.get("top_k_experts"))))
    g.key("expert_group_count", c.get("n_group"))
    g.key("expert_group_used_count", c.get("topk_group"))
    g.key("expert_feed_forward_length", c.get("moe_intermediate_size"))
    g.key("expert_shared_feed_forward_length", c.get("shared_expert_intermediate_size"))
    g.key("expert_shared_count", c.get("n_shared_experts", c.get("num_shared_experts")))
    g.key("expert_weights_scale", c.get("routed_scaling_factor"))
    g.key("leading_dense_block_count", c.get("first_k_dense_replace", c.get("num_dense_layers")))


def set_key(g, name, value):
    g.kv = [k for k in g.kv if k[0] != f"{g.arch}.{name}"]
    g.key(name, value)


def family_keys(g, c, r, a):
    """What a family adds to or changes of the common keys."""
    heads, dim = c.get("num_attention_heads", 0), c.get("head_dim") or (c["hidden_size"] // (c.get("num_attention_heads") or 1))
    kv = c.get("num_key_value_heads", heads)
    if a not in ("gpt2", "mamba2", "deepseek2", "kimi-linear", "lfm2", "lfm2moe"):
        g.key("attention.head_count_kv", kv)
        g.key("attention.key_length", dim)
        g.key("attention.value_length", dim)
    part = r.get("partial_rotary_factor", c.get("partial_rotary_factor"))
    if a in ("llama", "mistral3", "granite", "smollm3", "cohere2"):
        g.key("rope.dimension_count", dim)
    elif part and a != "gemma4":
        g.key("rope.dimension_count", int(dim * part))
    types = c.get("layer_types")
    slides = [t == "sliding_attention" for t in types] if types else None
    if a in ("phi3", "gemma2", "gemma3", "gemma4", "cohere2", "exaone4", "gpt-oss"):
        g.key("attention.sliding_window", c.get("sliding_window") or 0)
    if c["model_type"] in ("mistral", "starcoder2"):  # not what the usual converter writes; else the window is lost
        g.key("attention.sliding_window", c["sliding_window"])
    if a in ("exaone4", "gemma4"):
        g.key("attention.sliding_window_pattern", slides)
    if a == "gemma3":  # the reference has every third layer full; published models have every sixth
        n = c["sliding_window_pattern"]
        g.key("attention.sliding_window_pattern", [(i + 1) % n != 0 for i in range(c["num_hidden_layers"])])
        g.key("rope.freq_base_swa", c["rope_local_base_freq"])
    if a in ("gemma2", "gemma3"):  # the reference's query_pre_attn_scalar is not the head size
        g.key("attention.scale", c["query_pre_attn_scalar"] ** -0.5)
    if a == "gemma2":
        g.key("attn_logit_softcapping", c["attn_logit_softcapping"])
    if a == "muse-glimmer":
        g.key("attention.sliding_window", c["sliding_window"])
        g.key("attention.sliding_window_pattern", slides)
        g.key("logit_scale", c["output_multiplier"])
    if a in ("gemma2", "gemma4", "muse-glimmer"):
        g.key("final_logit_softcapping", c["final_logit_softcapping"])
    if a == "granite":
        for k, h in (("attention.scale", "attention_multiplier"), ("embedding_scale", "embedding_multiplier"),
                     ("residual_scale", "residual_multiplier"), ("logit_scale", "logits_scaling")):
            g.key(k, c[h])
    if a == "cohere2":
        g.key("logit_scale", c["logit_scale"])
    if a == "mistral3":
        g.key("rope.scaling.yarn_log_multiplier", r["mscale_all_dim"])
        g.key("attention.temperature_scale", r["llama_4_scaling_beta"])
    if a in ("gpt-oss", "minimax-m2"):
        set_key(g, "expert_feed_forward_length", c["intermediate_size"])
    if a in ("glm4moe", "lfm2moe", "deepseek2", "kimi-linear", "minimax-m2"):
        g.key("expert_gating_func", 2)
    if a in ("glm4moe", "deepseek2") or (a == "qwen2moe" and c["norm_topk_prob"]):  # the usual converter: not Qwen 2's
        g.key("expert_weights_norm", c["norm_topk_prob"])
    if a in ("deepseek2", "kimi-linear"):
        rank, pe = c["kv_lora_rank"], c["qk_rope_head_dim"]
        g.key("attention.q_lora_rank", c.get("q_lora_rank"))
        g.key("attention.kv_lora_rank", rank)
        g.key("attention.key_length", rank + pe)
        g.key("attention.value_length", rank)
        g.key("attention.key_length_mla", c["qk_nope_head_dim"] + pe)
        g.key("attention.value_length_mla", c["v_head_dim"])
        g.key("rope.dimension_count", pe)
        if a == "deepseek2":
            g.key("attention.head_count_kv", 1)
            if "mscale_all_dim" in r:
                g.key("rope.scaling.yarn_log_multiplier", 0.1 * r["mscale_all_dim"])
    if a == "kimi-linear":
        lin = c["linear_attn_config"]
        g.key("attention.head_count_kv", [int(i + 1 in lin["full_attn_layers"]) for i in range(c["num_hidden_layers"])])
        g.key("kda.head_dim", lin["head_dim"])
        g.key("ssm.conv_kernel", lin["short_conv_kernel_size"])
    if a in ("qwen3next", "qwen35", "qwen35moe"):
        g.key("ssm.conv_kernel", c["linear_conv_kernel_dim"])
        g.key("ssm.state_size", c["linear_key_head_dim"])
        g.key("ssm.group_count", c["linear_num_key_heads"])
        g.key("ssm.time_step_rank", c["linear_num_value_heads"])
        g.key("ssm.inner_size", c["linear_num_value_heads"] * c["linear_value_head_dim"])
        g.key("full_attention_interval", c["full_attention_interval"])
        if "mrope_section" in r:
            g.key("rope.dimension_sections", r["mrope_section"] + [0])
    if a in ("lfm2", "lfm2moe"):
        full = [i in c["full_attn_idxs"] for i in range(c["num_hidden_layers"])] if not types else \
               [t == "full_attention" for t in types]
        g.key("attention.head_count_kv", [kv if f else 0 for f in full])
        g.key("shortconv.l_cache", c["conv_L_cache"])
        if a == "lfm2":
            ff = int(c["block_ffn_dim_multiplier"] * int(2 * c["block_ff_dim"] / 3))
            m = c["block_multiple_of"]
            g.key("feed_forward_length", (ff + m - 1) // m * m)
    if a == "gemma4":
        gemma4_keys(g, c, slides)
    if c["model_type"] in gguf_moe.ARCH:
        gguf_moe.keys(g, c, r, a, set_key)


def gemma4_keys(g, c, slides):
    n, shared = c["num_hidden_layers"], c["num_kv_shared_layers"]
    for k in ("key_length", "value_length"):
        set_key(g, f"attention.{k}", c["global_head_dim"])
        g.key(f"attention.{k}_swa", c["head_dim"])
    g.key("rope.dimension_count", c["global_head_dim"])
    g.key("rope.dimension_count_swa", c["head_dim"])
    set_key(g, "rope.freq_base", c["rope_parameters"]["full_attention"]["rope_theta"])
    g.key("rope.freq_base_swa", c["rope_parameters"]["sliding_attention"]["rope_theta"])
    g.key("attention.shared_kv_layers", shared)
    g.key("embedding_length_per_layer_input", c.get("hidden_size_per_layer_input", 0))
    if c["use_double_wide_mlp"]:
        set_key(g, "feed_forward_length", [c["intermediate_size"] * (2 if i >= n - shared else 1) for i in range(n)])
    if c.get("num_global_key_value_heads"):
        set_key(g, "attention.head_count_kv", [c["num_key_value_heads"] if s else c["num_global_key_value_heads"] for s in slides])


def extra_tensors(g, c, r, a):
    dim = c.get("head_dim") or c["hidden_size"] // (c.get("num_attention_heads") or c.get("n_head") or 1)
    if a == "muse-glimmer":  # the scale of its norms without weights
        for i in range(c["num_hidden_layers"]):
            for n, v in (("q", c["qk_scale_factor"]), ("k", 1.0)):
                g.add(f"blk.{i}.attn_{n}_norm.weight", T(F32, [dim], array.array("f", [v] * dim).tobytes()))
    if a == "step35":  # for its full layers, which rotate half; the others' ones follow
        r, half = {**r, "rope_theta": c["rope_theta"][0]}, dim // 2
        dim //= 2
    if r["kind"] == "llama3":
        out = []
        for i in range(0, dim, 2):
            wave = 2 * math.pi * r["rope_theta"] ** (i / dim)
            low, high = (r["original_max_position_embeddings"] / r[k] for k in ("low_freq_factor", "high_freq_factor"))
            if wave < high:
                out.append(1.0)
            elif wave > low:
                out.append(r["factor"])
            else:
                s = (r["original_max_position_embeddings"] / wave - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"])
                out.append(1 / ((1 - s) / r["factor"] + s))
        if a == "step35":
            out += [1.0] * (half - len(out))
        g.add("rope_freqs.weight", T(F32, [len(out)], array.array("f", out).tobytes()))
    if r["kind"] == "longrope":
        orig, most = c["original_max_position_embeddings"], c["max_position_embeddings"]
        g.key("rope.scaling.type", "longrope")
        g.key("rope.scaling.original_context_length", orig)
        g.key("rope.scaling.attn_factor", math.sqrt(1 + math.log(most / orig) / math.log(orig)))
        for k in ("long", "short"):
            f = [float(x) for x in r[f"{k}_factor"]]
            g.add(f"rope_factors_{k}.weight", T(F32, [len(f)], array.array("f", f).tobytes()))
    if a == "gemma4":
        n, share = c["global_head_dim"] // 2, c["rope_parameters"]["full_attention"]["partial_rotary_factor"]
        f = [1.0 if i < int(n * share) else 1e30 for i in range(n)]
        g.add("rope_freqs.weight", T(F32, [n], array.array("f", f).tobytes()))


# ---------------------------------------------------------------------------------------------------------------------
# tensors


def permuted(t, heads):
    dim = t.shape[0] // heads
    order = [h * dim + j * (dim // 2) + i for h in range(heads) for i in range(dim // 2) for j in (0, 1)]
    if len(t.shape) > 1:
        return t.take(order)
    v = t.floats()
    return T(F32, t.shape, array.array("f", [v[i] for i in order]).tobytes())


def tiled(c, per):
    """Value heads from grouped by key head to taking turns; `per` rows each."""
    k, n = c["linear_num_key_heads"], c["linear_num_value_heads"]
    heads = [g * (n // k) + r for r in range(n // k) for g in range(k)]
    return [h * per + i for h in heads for i in range(per)]


def nibbles(block):
    """One MXFP4 block: values 2j and 2j+1 share a byte there, values j and j+16 here."""
    v = [x for b in block for x in (b & 15, b >> 4)]
    return bytes(v[j] | v[j + 16] << 4 for j in range(16))


def mxfp4(blocks, scales, order):
    """Rows of one expert stack: [E][rows][nb][16] and [E][rows][nb]; `order` picks rows."""
    e, rows, nb, _ = blocks.shape
    out = bytearray()
    for x in range(e):
        for r in order:
            at = (x * rows + r) * nb
            for b in range(nb):
                out.append(scales.data[at + b])
                out += nibbles(blocks.data[(at + b) * 16 : (at + b + 1) * 16])
    return T(MXFP4, [e, len(order), nb * 32], out)


def linear_attention(g, c, a, p, rest, t):
    """Tensors of a gated delta net; True when handled."""
    kd, vd = c["linear_key_head_dim"], c["linear_value_head_dim"]
    nk, nv = c["linear_num_key_heads"], c["linear_num_value_heads"]
    keys, own = 2 * nk * kd, nv // nk * vd
    if rest == "linear_attn.in_proj_qkvz.weight":
        part = 2 * kd + 2 * own

        def rows(first, n):
            return [h * part + first + i for h in range(nk) for i in range(n)]

        g.add(p + "attn_qkv.weight", t.take(rows(0, kd) + rows(kd, kd) + rows(2 * kd, own)))
        g.add(p + "attn_gate.weight", t.take(rows(2 * kd + own, own)))
        return True
    reorder = a != "qwen3next"
    values, heads = (tiled(c, vd), tiled(c, 1)) if reorder else (list(range(nv * vd)), list(range(nv)))
    if rest == "linear_attn.conv1d.weight":
        t = t.reshape(t.shape[0], t.shape[2]).f32()
        g.add(p + "ssm_conv1d.weight", t.take(list(range(keys)) + [keys + i for i in values]))
    elif rest in ("linear_attn.A_log", "linear_attn.dt_bias"):
        v = t.floats()
        log = rest.endswith("A_log")
        v = [-math.exp(v[i]) if log else v[i] for i in heads]
        g.add(p + ("ssm_a" if log else "ssm_dt.bias"), T(F32, [nv], array.array("f", v).tobytes()))
    elif reorder and rest == "linear_attn.in_proj_qkv.weight":
        g.add(p + "attn_qkv.weight", t.take(list(range(keys)) + [keys + i for i in values]))
    elif reorder and rest == "linear_attn.in_proj_z.weight":
        g.add(p + "attn_gate.weight", t.take(values))
    elif reorder and rest in ("linear_attn.in_proj_a.weight", "linear_attn.in_proj_b.weight"):
        g.add(p + ("ssm_alpha.weight" if "_a." in rest else "ssm_beta.weight"), t.take(heads))
    elif reorder and rest == "linear_attn.out_proj.weight":
        g.add(p + "ssm_out.weight", t.columns(values))
    else:
        return False
    return True


def special(g, c, a, p, rest, t, all_tensors, full):
    """Tensors that change more than their name; True when handled."""
    if c["model_type"] in gguf_moe.ARCH and gguf_moe.special(g, c, a, p, rest, t):
        return True
    if rest.startswith("linear_attn.") and linear_attention(g, c, a, p, rest, t):
        return True
    if rest.endswith("e_score_correction_bias") or rest == "feed_forward.expert_bias":
        g.add(p + "exp_probs_b.bias", t.f32())
    elif rest == "self_attn.sinks":
        g.add(p + "attn_sinks.weight", t.f32())
    elif rest == "self_attn.kv_b_proj.weight":
        nope, vd, heads = c["qk_nope_head_dim"], c["v_head_dim"], c["num_attention_heads"]
        each = [t.part(h * (nope + vd), nope + vd) for h in range(heads)]
        g.add(p + "attn_k_b.weight", stack([e.part(0, nope).transposed() for e in each]))
        g.add(p + "attn_v_b.weight", stack([e.part(nope, vd) for e in each]))
    elif rest in ("conv.conv.weight",):
        g.add(p + "shortconv.conv.weight", t.reshape(t.shape[0], t.shape[2]).f32())
    elif rest.startswith("mixer.conv1d."):
        t = t.f32()
        g.add(p + "ssm_conv1d." + rest.split(".")[-1], t.reshape(t.shape[0], t.shape[2]) if len(t.shape) > 1 else t)
    elif rest in ("mixer.A_log", "self_attn.A_log"):
        g.add(p + "ssm_a", t.f32(lambda x: -math.exp(x)).reshape(math.prod(t.shape), 1))
    elif rest == "mixer.D":
        g.add(p + "ssm_d", t.f32().reshape(t.shape[0], 1))
    elif rest in ("mixer.dt_bias", "self_attn.dt_bias"):
        g.add(p + "ssm_dt.bias", t.f32())
    elif rest == "mixer.norm.weight":
        g.add(p + "ssm_norm.weight", t.f32().reshape(c["n_groups"], t.shape[0] // c["n_groups"]))
    elif re.fullmatch(r"self_attn\.[qkv]_conv1d\.weight", rest):
        g.add(p + f"ssm_conv1d_{rest[10]}.weight", t.f32().reshape(1, t.shape[0], 1, t.shape[2]))
    elif rest == "layer_scalar":
        g.add(p + "layer_output_scale.weight", t.f32())
    elif rest in ("router.scale", "router.per_expert_scale"):
        g.add(p + ("ffn_gate_inp.scale" if rest == "router.scale" else "ffn_down_exps.scale"), t.f32())
    elif a == "gpt-oss" and rest.startswith("mlp.experts."):
        gpt_oss_experts(g, p, rest[12:], t, all_tensors, full)
    elif rest in ("mlp.experts.gate_up_proj", "experts.gate_up_proj"):
        if a == "gemma4":
            g.add(p + "ffn_gate_up_exps.weight", t)
        else:
            e, ff, d = t.shape[0], t.shape[1] // 2, t.shape[2]
            for k, name in enumerate(("ffn_gate_exps", "ffn_up_exps")):
                g.add(p + name + ".weight", T(t.kind, [e, ff, d], b"".join(
                    b"".join(t.rows()[x * 2 * ff + k * ff : x * 2 * ff + (k + 1) * ff]) for x in range(e))))
    elif rest in ("mlp.experts.down_proj", "experts.down_proj"):
        g.add(p + "ffn_down_exps.weight", t)
    else:
        return False
    return True


def gpt_oss_experts(g, p, rest, t, all_tensors, full):
    names = (p + "ffn_gate_exps", p + "ffn_up_exps")
    if rest.endswith("_bias"):
        t = t.f32()
        if rest.startswith("down"):
            g.add(p + "ffn_down_exps.bias", t)
            return
        for k in (0, 1):
            v = [x for row in t.rows() for x in array.array("f", row)[k::2]]
            g.add(names[k] + ".bias", T(F32, [t.shape[0], t.shape[1] // 2], array.array("f", v).tobytes()))
    elif rest.endswith("_blocks"):
        scales = all_tensors[full.replace("_blocks", "_scales")]
        rows = t.shape[1]
        if rest.startswith("down"):
            g.add(p + "ffn_down_exps.weight", mxfp4(t, scales, range(rows)))
        else:
            for k in (0, 1):
                g.add(names[k] + ".weight", mxfp4(t, scales, range(k, rows, 2)))
    elif not rest.endswith("_scales"):
        t = t.transposed()
        if rest == "down_proj":
            g.add(p + "ffn_down_exps.weight", t)
            return
        r = t.rows()
        for k in (0, 1):
            g.add(names[k] + ".weight", T(t.kind, [t.shape[0], t.shape[1] // 2, t.shape[2]], b"".join(r[k::2])))


def plain(g, c, a, name, rest, t):
    """A tensor that only gets another name, and small changes of its values."""
    if a == "gpt2" and rest.endswith(".weight") and len(t.shape) == 2 and rest.split(".")[-2].startswith("c_"):
        t = t.transposed()
    if a == "falcon-h1":
        t = gguf_moe.falcon_h1(c, rest, t)
        if rest == "pre_ff_layernorm.weight":  # llama.cpp reads this one without its end
            name = name.removesuffix(".weight")
    if a in PERMUTED and re.search(r"self_attn\.[qk]_proj\.", rest):
        t = permuted(t, c["num_attention_heads"] if ".q_proj." in rest else c["num_key_value_heads"])
    if a in PLUS_ONE and rest.endswith("norm.weight") and rest != "linear_attn.norm.weight" and \
            not (a == "muse-glimmer" and rest == "norm.weight"):
        t = t.f32(lambda x: x + 1)
    if len(t.shape) == 1:
        t = t.f32()
    g.add(name, t)


def tensors(g, c, a, src):
    stacks = {}
    for full in sorted(src, key=lambda s: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", s)]):
        t, name = src[full], full.replace("model.language_model.", "model.").removeprefix("language_model.").removeprefix("model.").removeprefix("backbone.")
        m = re.match(r"(?:layers|h)\.(\d+)\.(.*)", name)
        if not m and gguf_moe.top(g, name, t, stacks):
            continue
        if not m:
            base, end = name.rsplit(".", 1)
            plain(g, c, a, f"{TOP[base]}.{end}", name, t)
            continue
        p, rest = f"blk.{m[1]}.", m[2]
        hit = [n for pat, n in EXPERTS if re.fullmatch(pat, rest)]
        if hit:
            stacks.setdefault(p + hit[0] + ".weight", []).append(t)
            continue
        if special(g, c, a, p, rest, t, src, full):
            continue
        base, end = rest.rsplit(".", 1)
        new = LAYER[base]
        if base == "post_attention_layernorm" and a in POST_ATTENTION:
            new = "post_attention_norm"
        plain(g, c, a, f"{p}{new}.{end}", rest, t)
    for name, ts in stacks.items():
        g.add(name, stack(ts))


def convert(src, out):
    with open(os.path.join(src, "config.json")) as f:
        c = json.load(f)
    if "quantization" in c:
        raise SystemExit("MLX models are not converted")
    if c["model_type"] in to_gguf_dense.ARCH:
        to_gguf_dense.convert(c, read_safetensors(os.path.join(src, "model.safetensors")), out, sys.modules[__name__])
        return
    src_tensors = read_safetensors(os.path.join(src, "model.safetensors"))
    gguf_moe.usual(c, src_tensors)
    a, r = gguf_moe.arch_of(c) or ARCH[c["model_type"]], rope_of(c)
    g = Gguf(a)
    if a == "gpt2":
        for k, v in (("block_count", c["n_layer"]), ("context_length", c["n_ctx"]), ("embedding_length", c["n_embd"]),
                     ("feed_forward_length", 4 * c["n_embd"]), ("attention.head_count", c["n_head"]),
                     ("attention.layer_norm_epsilon", c["layer_norm_epsilon"])):
            g.key(k, v)
        c["hidden_size"] = c["n_embd"]
    elif a == "mamba2":
        inner = c["num_heads"] * c["head_dim"]
        for k, v in (("block_count", c["num_hidden_layers"]), ("context_length", 2**20),
                     ("embedding_length", c["hidden_size"]), ("feed_forward_length", 0), ("attention.head_count", 0),
                     ("ssm.conv_kernel", c["conv_kernel"]), ("ssm.inner_size", inner), ("ssm.state_size", c["state_size"]),
                     ("ssm.time_step_rank", c["num_heads"]), ("ssm.group_count", c["n_groups"]),
                     ("attention.layer_norm_rms_epsilon", c["layer_norm_epsilon"])):
            g.key(k, v)
    else:
        common_keys(g, c, r)
        family_keys(g, c, r, a)
    extra_tensors(g, c, r, a)
    gguf_moe.late_keys(g, c, a, set_key)
    tensors(g, c, a, src_tensors)
    g.write(out, c["vocab_size"])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    convert(sys.argv[1], sys.argv[2])
