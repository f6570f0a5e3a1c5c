# SPDX-License-Identifier: Apache-2.0
"""Dense decoders of the second wave, for generate.py: small (hidden size 32, 200 tokens, 2 layers), so that a reference
model stays below 120 KB.

Families that transformers has are made and run by it. Those that only come with code of their own (baichuan, orion,
refact, jais, codeshell) are computed by plain() below, written from their published description; it shares nothing with
the program under test.
"""

import math
import os

import torch
import torch.nn.functional as F

V = 200
BASE = {"vocab_size": V, "hidden_size": 32}
DENSE = {**BASE, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "hidden_act": "silu", "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "tie_word_embeddings": False}
LAYERS = ["sliding_attention", "full_attention"]
LOUD = [(r"(dense_4h_to_h|self_attention\.dense|fc2|out_proj|ffn\.down_proj|c_proj|mlp\.fc_out)\.weight$", "fan", 2.5, 0)]


def small(without=(), **more):
    return {k: v for k, v in {**DENSE, **more}.items() if k not in without}


NO_RMS = ("rms_norm_eps",)
GPT = {**BASE, "hidden_size": "DROP", "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 128, "n_inner": None,
       "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": False}


def add_hf(hf):
    hf("olmo", "OlmoForCausalLM", "olmo", small(NO_RMS, clip_qkv=0.9, attention_bias=False))
    hf("olmo3", "Olmo3ForCausalLM", "olmo3", small(("rope_theta",), sliding_window=16, layer_types=LAYERS, rope_parameters={
        "full_attention": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32.0,
                           "beta_slow": 1.0, "attention_factor": 1.1, "rope_theta": 10000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}))
    hf("phi", "PhiForCausalLM", "phi", small(NO_RMS, layer_norm_eps=1e-5, hidden_act="gelu_new",
                                             partial_rotary_factor=0.5, qk_layernorm=False))
    hf("cohere", "CohereForCausalLM", "cohere", small(NO_RMS, layer_norm_eps=1e-5, logit_scale=0.25, use_qk_norm=False,
                                                      tie_word_embeddings=True))
    hf("cohere_qk", "CohereForCausalLM", "cohere", small(NO_RMS, layer_norm_eps=1e-5, logit_scale=0.8, use_qk_norm=True,
                                                         tie_word_embeddings=True))
    falcon = {**BASE, "num_hidden_layers": 2, "num_attention_heads": 4, "layer_norm_epsilon": 1e-5, "alibi": False,
              "bias": False, "parallel_attn": True, "rope_theta": 10000.0, "max_position_embeddings": 256,
              "hidden_dropout": 0.0, "attention_dropout": 0.0}
    hf("falcon", "FalconForCausalLM", "falcon", {**falcon, "multi_query": True, "new_decoder_architecture": False},
       rules=LOUD)
    hf("falcon_new", "FalconForCausalLM", "falcon", {**falcon, "multi_query": True, "new_decoder_architecture": True,
                                                     "num_kv_heads": 2}, rules=LOUD)
    hf("stablelm", "StableLmForCausalLM", "stablelm", small(NO_RMS, layer_norm_eps=1e-5, partial_rotary_factor=0.5,
                                                            use_qkv_bias=True, use_parallel_residual=False,
                                                            qk_layernorm=False))
    hf("stablelm_parallel", "StableLmForCausalLM", "stablelm", small(
        NO_RMS, layer_norm_eps=1e-5, partial_rotary_factor=0.25, use_qkv_bias=False, use_parallel_residual=True,
        qk_layernorm=True))
    hf("nemotron", "NemotronForCausalLM", "nemotron", small(NO_RMS, norm_eps=1e-5, hidden_act="relu2",
                                                            partial_rotary_factor=0.5))
    hf("ernie4_5", "Ernie4_5ForCausalLM", "ernie4_5", small(use_bias=False, head_dim=8, rope_theta=500000.0))
    hf("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", small(
        head_dim=8, attention_bias=False, use_qk_norm=True,
        rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                      "mscale_all_dim": 0.0}))
    hf("seed_oss", "SeedOssForCausalLM", "seed_oss", small(attention_bias=True, attention_out_bias=False,
                                                           mlp_bias=False, head_dim=16))
    hf("apertus", "ApertusForCausalLM", "apertus", small(
        hidden_act="xielu", attention_bias=False, rope_theta=12000000.0, rope_scaling={
            "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0}),
       rules=[(r"alpha_[pn]$", "n", 0.3, 0.2), (r"act_fn\.beta$", "n", 0.5, 0.0), (r"act_fn\.eps$", "n", -1e-6, 0.0)])
    hf("arcee", "ArceeForCausalLM", "arcee", small(hidden_act="relu2", attention_bias=False, mlp_bias=False))
    neox = small(NO_RMS + ("num_key_value_heads", "rope_theta"), layer_norm_eps=1e-5, hidden_act="gelu", rotary_pct=0.25,
                 rotary_emb_base=10000, attention_bias=True)
    neox = {**neox, "num_attention_heads": 2}
    hf("gpt_neox", "GPTNeoXForCausalLM", "gpt_neox", {**neox, "use_parallel_residual": True})
    hf("gpt_neox_serial", "GPTNeoXForCausalLM", "gpt_neox", {**neox, "use_parallel_residual": False, "rotary_pct": 1.0})
    hf("gptj", "GPTJForCausalLM", "gptj", {**GPT, "rotary_dim": 4})
    hf("codegen", "CodeGenForCausalLM", "codegen", {**GPT, "n_ctx": 128, "rotary_dim": 4})
    hf("gpt_bigcode", "GPTBigCodeForCausalLM", "gpt_bigcode", {
        **GPT, "activation_function": "gelu_pytorch_tanh", "multi_query": True, "tie_word_embeddings": True,
        "scale_attn_weights": True}, rules=LOUD)
    hf("mpt", "MptForCausalLM", "mpt", {
        **BASE, "hidden_size": "DROP", "d_model": 32, "n_heads": 4, "n_layers": 2, "expansion_ratio": 4,
        "max_seq_len": 128, "no_bias": True, "norm_type": "low_precision_layernorm", "layer_norm_epsilon": 1e-5,
        "learned_pos_emb": True, "logit_scale": None,
        "attn_config": {"alibi": True, "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0,
                        "attn_type": "multihead_attention", "attn_uses_sequence_id": False, "clip_qkv": 0.9,
                        "prefix_lm": False, "qk_ln": False, "softmax_scale": None}}, rules=LOUD)
    hf("bloom", "BloomForCausalLM", "bloom", {
        **BASE, "n_layer": 2, "n_head": 4, "layer_norm_epsilon": 1e-5, "hidden_dropout": 0.0, "attention_dropout": 0.0,
        "apply_residual_connection_post_layernorm": False, "tie_word_embeddings": True}, rules=LOUD)
    hf("bitnet", "BitNetForCausalLM", "bitnet", small(hidden_act="relu2", attention_bias=False, rope_theta=500000.0,
                                                      tie_word_embeddings=True))
    hf("helium", "HeliumForCausalLM", "helium", small(head_dim=8, rms_norm_eps=1e-8, rope_theta=100000.0,
                                                      attention_bias=False, mlp_bias=False))
    hf("persimmon", "PersimmonForCausalLM", "persimmon", small(
        NO_RMS + ("num_key_value_heads",), layer_norm_eps=1e-5, hidden_act="relu2", partial_rotary_factor=0.5,
        qk_layernorm=True))
    hf("opt", "OPTForCausalLM", "opt", {
        **BASE, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64, "max_position_embeddings": 128,
        "do_layer_norm_before": True, "word_embed_proj_dim": 32, "activation_function": "relu", "enable_bias": True,
        "layer_norm_elementwise_affine": True, "_remove_final_layer_norm": False}, rules=LOUD)
    hf("opt_350m", "OPTForCausalLM", "opt", {
        **BASE, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64, "max_position_embeddings": 128,
        "do_layer_norm_before": False, "word_embed_proj_dim": 16, "activation_function": "relu", "enable_bias": True,
        "layer_norm_elementwise_affine": True, "_remove_final_layer_norm": False}, rules=LOUD)
    hf("gpt_neo", "GPTNeoForCausalLM", "gpt_neo", {
        **BASE, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 16,
        "max_position_embeddings": 128, "intermediate_size": None, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5, "resid_dropout": 0.0, "embed_dropout": 0.0, "attention_dropout": 0.0},
       rules=LOUD + [(r"[qk]_proj\.weight$", "fan", 0.6, 0)])
    hf("biogpt", "BioGptForCausalLM", "biogpt", {
        **BASE, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "hidden_act": "gelu",
        "max_position_embeddings": 128, "layer_norm_eps": 1e-5, "scale_embedding": True}, rules=LOUD)
    hf("vaultgemma", "VaultGemmaForCausalLM", "vaultgemma", small(
        ("hidden_act",), hidden_activation="gelu_pytorch_tanh", head_dim=8, query_pre_attn_scalar=12, sliding_window=16,
        layer_types=LAYERS, final_logit_softcapping=3.0, attn_logit_softcapping=2.0, tie_word_embeddings=True))
    hf("glm", "GlmForCausalLM", "glm", small(head_dim=16, partial_rotary_factor=0.5, attention_bias=True))
    hf("jais2", "Jais2ForCausalLM", "jais2", small(NO_RMS, layer_norm_eps=1e-5, hidden_act="relu2", attention_bias=True,
                                                   mlp_bias=True, head_dim=8))
    hf("minicpm3", "MiniCPM3ForCausalLM", "minicpm3", small(
        num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
        scale_emb=3, scale_depth=1.4, dim_model_base=16, attention_bias=False, rope_scaling={
            "type": "longrope", "factor": 1.0, "original_max_position_embeddings": 256, "long_factor": [1.0, 1.2, 1.5, 2.0],
            "short_factor": [1.0, 1.1, 1.2, 1.4]}))
    hf("youtu", "YoutuForCausalLM", "youtu", small(
        num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
        rope_interleave=True, attention_bias=False, tie_word_embeddings=True))
    hf("cwm", "CwmForCausalLM", "cwm", small(head_dim=8, sliding_window=16, layer_types=LAYERS, rope_theta=1000000.0,
                                             rope_scaling={"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0,
                                                           "high_freq_factor": 4.0,
                                                           "original_max_position_embeddings": 64}))
    hf("nanochat", "NanoChatForCausalLM", "nanochat", small(hidden_act="relu2", final_logit_softcapping=3.0,
                                                            attention_bias=False))
    hf("hyperclovax", "HyperCLOVAXForCausalLM", "hyperclovax", small(
        embedding_multiplier=3.0, logits_scaling=0.5, residual_multiplier=0.6, attention_multiplier=0.3, head_dim=8,
        attention_bias=False, mlp_bias=False, use_post_norm=True))
    hf("ministral", "MinistralForCausalLM", "ministral", small(head_dim=8, sliding_window=16, layer_types=LAYERS))
    hf("granite_swa", "GraniteSWAForCausalLM", "granite_swa", small(
        embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.6, attention_multiplier=0.3,
        sliding_window=16, layer_types=LAYERS, tie_word_embeddings=True))


# ---------------------------------------------------------------------------------------------------------------------
# families without a class in transformers


def slopes(n):
    low = 2 ** int(math.floor(math.log2(n)))
    first = [2 ** (-8 * (i + 1) / low) for i in range(low)]
    return first + [2 ** (-8 * (2 * i + 1) / (2 * low)) for i in range(n - low)]


def norm(x, w, name, o):
    if o.get("norm") == "layer":
        return F.layer_norm(x, (x.shape[-1],), w[name + ".weight"], w.get(name + ".bias"), o["eps"])
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + o["eps"]) * w[name + ".weight"]


def turn(x, theta):
    """x [n][heads][dim], halves"""
    n, _, d = x.shape
    f = torch.outer(torch.arange(n).float(), theta ** (-torch.arange(0, d, 2).float() / d))
    cos, sin = torch.cat([f.cos()] * 2, -1)[:, None], torch.cat([f.sin()] * 2, -1)[:, None]
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def attend(q, k, v, o):
    """q [n][heads][dim], k and v [n][kv heads][dim]"""
    n, h, d = q.shape
    if "theta" in o:
        q, k = turn(q, o["theta"]), turn(k, o["theta"])
    k, v = (x.repeat_interleave(h // x.shape[1], 1) for x in (k, v))
    s = torch.einsum("qhd,khd->hqk", q, k) * o.get("attn_scale", d**-0.5)
    if "theta" not in o:
        at = torch.arange(n).float()
        s = s + torch.tensor(slopes(h))[:, None, None] * (at[None, :] - at[:, None])
    s = s + torch.full((n, n), float("-inf")).triu(1)
    return torch.einsum("hqk,khd->qhd", s.softmax(-1), v).reshape(n, h * d)


def lin(x, w, name):
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def plain(w, o):
    """A pre-norm decoder over names q, k, v, o, n1, n2, gate, up, down."""

    def run(ids):
        with torch.no_grad():
            x = w["embd.weight"][torch.tensor(ids)] * o.get("embd_scale", 1.0)
            for i in range(o["layers"]):
                p = f"{i}."
                h = norm(x, w, p + "n1", o)
                q, k, v = (lin(h, w, p + c).reshape(len(ids), -1, o["dim"]) for c in "qkv")
                x = x + lin(attend(q, k, v, o), w, p + "o")
                h = norm(x, w, p + "n2", o)
                up = lin(h, w, p + "up")
                up = F.silu(lin(h, w, p + "gate")) * up if p + "gate.weight" in w else F.gelu(up, approximate="tanh")
                x = x + lin(up, w, p + "down")
            return lin(norm(x, w, "norm", o), w, "head") * o.get("logit_scale", 1.0)

    return run


def baichuan(w, c):
    out = {"embd.weight": w["model.embed_tokens.weight"], "norm.weight": w["model.norm.weight"],
           "head.weight": w["lm_head.weight"]}
    for i in range(c["num_hidden_layers"]):
        s, p = f"model.layers.{i}.", f"{i}."
        for name, part in zip("qkv", w[s + "self_attn.W_pack.weight"].chunk(3)):
            out[p + name + ".weight"] = part
        for a, b in (("o", "self_attn.o_proj"), ("n1", "input_layernorm"), ("n2", "post_attention_layernorm"),
                     ("gate", "mlp.gate_proj"), ("up", "mlp.up_proj"), ("down", "mlp.down_proj")):
            out[f"{p}{a}.weight"] = w[f"{s}{b}.weight"]
    return out


def orion(w, c):
    out = {"embd.weight": w["model.embed_tokens.weight"], "head.weight": w["lm_head.weight"]}
    for e in (".weight", ".bias"):
        out["norm" + e] = w["model.norm" + e]
        for i in range(c["num_hidden_layers"]):
            out[f"{i}.n1{e}"] = w[f"model.layers.{i}.input_layernorm{e}"]
            out[f"{i}.n2{e}"] = w[f"model.layers.{i}.post_attention_layernorm{e}"]
    for i in range(c["num_hidden_layers"]):
        s, p = f"model.layers.{i}.", f"{i}."
        for a, b in (("q", "self_attn.q_proj"), ("k", "self_attn.k_proj"), ("v", "self_attn.v_proj"),
                     ("o", "self_attn.o_proj"), ("gate", "mlp.gate_proj"), ("up", "mlp.up_proj"),
                     ("down", "mlp.down_proj")):
            out[f"{p}{a}.weight"] = w[f"{s}{b}.weight"]
    return out


def gpt_like(w, c, parts):
    """transformer.h.N names; parts(out, prefix, layer's source) adds q, k, v and the feed-forward."""
    out = {"embd.weight": w["transformer.wte.weight"], "head.weight": w.get("lm_head.weight", w["transformer.wte.weight"])}
    for e in (".weight", ".bias"):
        for a, b in [("norm", "transformer.ln_f")] + [(f"{i}.n{j}", f"transformer.h.{i}.ln_{j}")
                                                       for i in range(c["n_layer"]) for j in (1, 2)]:
            if b + e in w:
                out[a + e] = w[b + e]
    for i in range(c["n_layer"]):
        parts(out, f"{i}.", {k.removeprefix(f"transformer.h.{i}."): v for k, v in w.items()
                             if k.startswith(f"transformer.h.{i}.")})
    return out


def refact(w, c):
    def parts(out, p, s):
        out[p + "q.weight"], (out[p + "k.weight"], out[p + "v.weight"]) = s["attn.q.weight"], s["attn.kv.weight"].chunk(2)
        out[p + "gate.weight"], out[p + "up.weight"] = s["mlp.gate_up_proj.weight"].chunk(2)
        out[p + "o.weight"], out[p + "down.weight"] = s["attn.c_proj.weight"], s["mlp.c_proj.weight"]

    return gpt_like(w, c, parts)


def jais(w, c):
    def parts(out, p, s):
        for e in ("weight", "bias"):
            for name, part in zip("qkv", s[f"attn.c_attn.{e}"].chunk(3, -1)):
                out[f"{p}{name}.{e}"] = part.T if e == "weight" else part
            for a, b in (("o", "attn.c_proj"), ("up", "mlp.c_fc"), ("gate", "mlp.c_fc2"), ("down", "mlp.c_proj")):
                out[f"{p}{a}.{e}"] = s[f"{b}.{e}"].T if e == "weight" else s[f"{b}.{e}"]

    return gpt_like(w, c, parts)


def codeshell(w, c):
    kv = c["num_query_groups"] * c["n_embd"] // c["n_head"]

    def parts(out, p, s):
        for e in ("weight", "bias"):
            for name, part in zip("qkv", s[f"attn.c_attn.{e}"].split([c["n_embd"], kv, kv])):
                out[f"{p}{name}.{e}"] = part
            for a, b in (("o", "attn.c_proj"), ("up", "mlp.c_fc"), ("down", "mlp.c_proj")):
                out[f"{p}{a}.{e}"] = s[f"{b}.{e}"]

    return gpt_like(w, c, parts)


HEAD = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "torch_dtype": "bfloat16", "vocab_size": V}


def llama_shapes(c, fused, biased):
    h, ff = c["hidden_size"], c["intermediate_size"]
    kv = c.get("num_key_value_heads", c["num_attention_heads"]) * h // c["num_attention_heads"]
    out = {"model.embed_tokens.weight": [V, h], "model.norm.weight": [h], "lm_head.weight": [V, h]}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for n in ("input_layernorm", "post_attention_layernorm"):
            out[f"{p}{n}.weight"] = [h]
            if biased:
                out[f"{p}{n}.bias"] = [h]
        if fused:
            out[p + "self_attn.W_pack.weight"] = [3 * h, h]
        else:
            out.update({p + "self_attn.q_proj.weight": [h, h], p + "self_attn.k_proj.weight": [kv, h],
                        p + "self_attn.v_proj.weight": [kv, h]})
        out.update({p + "self_attn.o_proj.weight": [h, h], p + "mlp.gate_proj.weight": [ff, h],
                    p + "mlp.up_proj.weight": [ff, h], p + "mlp.down_proj.weight": [h, ff]})
    if biased:
        out["model.norm.bias"] = [h]
    return out


def gpt_shapes(c, layer, biased, head):
    h = c["n_embd"]
    out = {"transformer.wte.weight": [V, h], "transformer.ln_f.weight": [h]}
    if head:
        out["lm_head.weight"] = [V, h]
    if biased:
        out["transformer.ln_f.bias"] = [h]
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        for n in ("ln_1", "ln_2"):
            out[f"{p}{n}.weight"] = [h]
            if biased:
                out[f"{p}{n}.bias"] = [h]
        for name, shape in layer.items():
            out[f"{p}{name}.weight"] = shape
            if biased:
                out[f"{p}{name}.bias"] = [max(shape) if name.endswith("c_attn") else shape[-1] if "transposed" in c else shape[0]]
    return out


def own_specs():
    b = {"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", **HEAD, "hidden_size": 32,
         "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_act": "silu",
         "model_max_length": 256, "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
    o = {"architectures": ["OrionForCausalLM"], "model_type": "orion", **HEAD, "hidden_size": 32, "intermediate_size": 64,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "hidden_act": "silu",
         "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
         "attention_bias": False}
    g = {**HEAD, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256, "layer_norm_epsilon": 1e-5}
    r = {"architectures": ["GPTRefactForCausalLM"], "model_type": "gpt_refact", **g, "n_inner": 128, "multi_query": True,
         "attention_bias_in_fp32": True, "activation_function": "silu", "tie_word_embeddings": False}
    j = {"architectures": ["JAISLMHeadModel"], "model_type": "jais", **g, "n_inner": 88, "activation_function": "swiglu",
         "position_embedding_type": "alibi", "mup_embeddings_scale": 3.0, "mup_output_alpha": 2.0, "mup_width_scale": 0.5,
         "mup_scale_qk_dot_by_d": True, "scale_attn_weights": True, "tie_word_embeddings": True, "embeddings_scale": 3.0,
         "width_scale": 1.0}
    for k in ("mup_embeddings_scale", "mup_output_alpha", "mup_width_scale"):
        j.setdefault(k, 1.0)
    j = {k: v for k, v in j.items() if k not in ("embeddings_scale", "width_scale")}
    s = {"architectures": ["CodeShellForCausalLM"], "model_type": "codeshell", **g, "n_inner": 128,
         "num_query_groups": 2, "activation_function": "gelu_pytorch_tanh", "group_query_attention": True,
         "position_embedding_type": "rope", "tie_word_embeddings": False}
    rms, ln = {"eps": 1e-6, "layers": 2, "dim": 8}, {"eps": 1e-5, "layers": 2, "dim": 8, "norm": "layer"}
    return {
        "baichuan_alibi": (b, llama_shapes(b, True, False), baichuan, rms),
        "orion": (o, llama_shapes(o, False, True), orion, {**ln, "theta": 10000.0}),
        "refact": (r, gpt_shapes(r, {"attn.q": [32, 32], "attn.kv": [16, 32], "attn.c_proj": [32, 32],
                                     "mlp.gate_up_proj": [256, 32], "mlp.c_proj": [32, 128]}, False, True), refact,
                   {**rms, "eps": 1e-5}),
        "jais": (j, gpt_shapes({**j, "transposed": 1}, {"attn.c_attn": [32, 96], "attn.c_proj": [32, 32],
                                                        "mlp.c_fc": [32, 88], "mlp.c_fc2": [32, 88],
                                                        "mlp.c_proj": [88, 32]}, True, False), jais,
                 {**ln, "embd_scale": 3.0, "attn_scale": 1 / 8, "logit_scale": 2.0 * 0.5}),
        "codeshell": (s, gpt_shapes(s, {"attn.c_attn": [64, 32], "attn.c_proj": [32, 32], "mlp.c_fc": [128, 32],
                                        "mlp.c_proj": [32, 128]}, True, True), codeshell, {**ln, "theta": 10000.0}),
    }


def make_own(generate):
    def make(family, spec, outdir):
        config, shapes, view, options = spec["own"]
        tied = config["tie_word_embeddings"]
        weights = {}
        for name, shape in shapes.items():
            default = torch.ones(shape) if name.endswith("norm.weight") or ".ln_" in name else torch.zeros(shape)
            if generate.EMBED.search(name):
                v = (0.6 / math.sqrt(32) if tied else 1.0) * generate.noise(family, name, shape)
            else:
                v = generate.randomize(family, name, default, generate.TIED_RULES if tied else [], family == "jais")
            weights[name] = v.to(torch.bfloat16)
        generate.write_config(outdir, config)
        generate.st_write(os.path.join(outdir, "model.safetensors"), weights, {"format": "pt"})
        run = plain(view({k: v.float() for k, v in weights.items()}, config), options)
        return generate.golden(family, run, V, outdir, {"note": "computed by specs_dense.py"})

    return make


def add(generate):
    add_hf(generate.hf)
    for name, own in own_specs().items():
        generate.SPECS[name] = {"make": make_own(generate), "config": own[0], "own": own}
