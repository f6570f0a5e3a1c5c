# SPDX-License-Identifier: Apache-2.0
"""GGUF forms of the dense decoders of specs_dense.py, for to_gguf.py: architecture names, keys and tensor names as the
published converters write them. Families for which no GGUF architecture is published are not here."""

import array
import math
import re

# model_type -> architecture
ARCH = {"olmo": "olmo", "olmo3": "olmo2", "phi": "phi2", "cohere": "command-r", "falcon": "falcon", "stablelm": "stablelm",
        "nemotron": "nemotron", "ernie4_5": "ernie4_5", "hunyuan_v1_dense": "hunyuan-dense", "seed_oss": "seed_oss",
        "apertus": "apertus", "arcee": "arcee", "gpt_neox": "gptneox", "gpt_bigcode": "starcoder", "mpt": "mpt",
        "bloom": "bloom", "bitnet": "bitnet", "jais": "jais", "jais2": "jais2", "glm": "chatglm", "orion": "orion",
        "gpt_refact": "refact", "codeshell": "codeshell", "granite_swa": "granite_swa", "minicpm3": "minicpm3",
        "internlm2": "internlm2", "exaone": "exaone", "xverse": "xverse", "qwen": "qwen", "minicpm": "minicpm",
        "chatglm": "chatglm", "baichuan": "baichuan", "internlm3": "llama",
        "PanguEmbedded": "pangu-embedded", "openelm": "openelm"}
# Known to transformers alone.
NO_PEER = {"gptj", "codegen", "persimmon", "opt", "biogpt", "gpt_neo", "helium", "vaultgemma", "youtu", "cwm", "nanochat",
           "olmo_hybrid", "minimax", "zamba2", "mllama_text_model", "modernbert-decoder", "axk2",
           "hyperclovax", "ministral", "internlm"}
PERMUTED = {"olmo", "arcee", "granite_swa", "internlm2", "xverse", "minicpm", "baichuan", "llama"}
ALIASES = {"num_hidden_layers": ("n_layer", "n_layers", "num_layers"), "hidden_size": ("n_embd", "d_model"),
           "num_attention_heads": ("n_head", "n_heads"), "num_key_value_heads": ("num_kv_heads", "num_query_groups", "multi_query_group_num"),
           "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length", "model_max_length"),
           "intermediate_size": ("n_inner", "ffn_hidden_size")}
TOP = {"embed_tokens": "token_embd", "tok_embeddings": "token_embd", "wte": "token_embd", "word_embeddings": "token_embd",
       "gpt_neox.embed_in": "token_embd", "embedding.word_embeddings": "token_embd", "wpe": "position_embd",
       "norm": "output_norm", "final_layernorm": "output_norm", "ln_f": "output_norm", "norm_f": "output_norm",
       "gpt_neox.final_layer_norm": "output_norm", "encoder.final_layernorm": "output_norm",
       "word_embeddings_layernorm": "token_embd_norm", "lm_head": "output", "embed_out": "output", "output": "output",
       "output_layer": "output", "token_embeddings": "token_embd"}
LAYER = [
    (r"input_layernorm|attention_layernorm|attention_norm|ln_1|norm_1|ln_mlp", "attn_norm"),
    (r"attn_norm", "attn_norm"), (r"ffn_norm", "ffn_norm"), (r"attn\.qkv_proj", "attn_qkv"), (r"ffn\.proj_2", "ffn_down"),
    (r"attn\.q_norm", "attn_q_norm"), (r"attn\.k_norm", "attn_k_norm"), (r"ln_attn", "attn_norm_2"), (r"post_feedforward_layernorm", "post_ffw_norm"),
    (r"post_attention_layernorm|feedforward_layernorm|ffn_norm|ln_2|norm_2", "ffn_norm"),
    (r"(self_attn|attn|attn\.attention)\.q(_proj)?", "attn_q"), (r"(self_attn|attn|attn\.attention)\.k_proj", "attn_k"),
    (r"(self_attn|attn|attn\.attention)\.v_proj", "attn_v"),
    (r"self_attn\.(o_proj|dense)|attn\.(out_proj|c_proj)|attn\.attention\.out_proj|attention\.(dense|wo)|self_attention\.dense", "attn_output"),
    (r"(attention|self_attention)\.query_key_value|attn\.(c_attn|Wqkv)", "attn_qkv"),
    (r"self_attn\.(q_norm|query_layernorm|q_layernorm)", "attn_q_norm"),
    (r"self_attn\.(k_norm|key_layernorm|k_layernorm)", "attn_k_norm"),
    (r"self_attn\.attn_sub_norm", "attn_sub_norm"), (r"mlp\.ffn_sub_norm", "ffn_sub_norm"), (r"self_attn\.sinks", "attn_sinks"),
    (r"self_attn\.q_a_proj", "attn_q_a"), (r"self_attn\.q_b_proj", "attn_q_b"), (r"self_attn\.q_a_layernorm", "attn_q_a_norm"),
    (r"self_attn\.kv_a_proj_with_mqa", "attn_kv_a_mqa"), (r"self_attn\.kv_a_layernorm", "attn_kv_a_norm"),
    (r"self_attn\.kv_b_proj", "attn_kv_b"),
    (r"mlp\.gate_proj|mlp\.c_fc2|feed_forward\.w1|mlp\.c_fc_0|mlp\.w2", "ffn_gate"),
    (r"mlp\.(up_proj|fc1|c_fc|dense_h_to_4h|gate_up_proj|c_fc_1|w1)|ffn\.up_proj|feed_forward\.w3", "ffn_up"),
    (r"mlp\.(down_proj|fc2|c_proj|dense_4h_to_h)|ffn\.down_proj|feed_forward\.w2", "ffn_down"),
]


def normal(c):
    c = dict(c)
    if c["model_type"] == "openelm":
        c.update(num_hidden_layers=c["num_transformer_layers"], hidden_size=c["model_dim"], rms_norm_eps=1e-6,
                 num_attention_heads=c["num_query_heads"], num_key_value_heads=c["num_kv_heads"],
                 max_position_embeddings=c["max_context_length"], rotary_emb_base=c["rope_freq_constant"],
                 intermediate_size=[int(m * c["model_dim"]) for m in c["ffn_multipliers"]])
    for k, others in ALIASES.items():
        for o in others:
            if c.get(k) is None and c.get(o) is not None:
                c[k] = c[o]
    if c["model_type"] in ("gpt_bigcode", "gpt_refact") or (c["model_type"] == "falcon" and not c["new_decoder_architecture"]):
        c["num_key_value_heads"] = 1
    c.setdefault("num_key_value_heads", c["num_attention_heads"])
    if not c.get("intermediate_size"):
        c["intermediate_size"] = 4 * c["hidden_size"]
    return c


def keys(g, c, r, a, base):
    heads = c["num_attention_heads"]
    dim = c.get("head_dim") or c.get("kv_channels") or c["hidden_size"] // heads
    eps = next((c[k] for k in ("layer_norm_eps", "layer_norm_epsilon", "norm_eps", "rms_norm_eps", "layernorm_epsilon") if c.get(k)), 1e-5)
    rms = a in ("olmo2", "seed_oss", "ernie4_5", "hunyuan-dense", "apertus", "arcee", "bitnet", "chatglm", "refact", "granite_swa",
                "minicpm3", "internlm2", "exaone", "xverse", "qwen", "minicpm", "baichuan", "llama", "pangu-embedded", "openelm")
    part = r.get("partial_rotary_factor", c.get("partial_rotary_factor", c.get("rotary_pct", 0.5 if a == "chatglm" else 1.0)))
    theta = r.get("rope_theta") or c.get("rotary_emb_base") or 10000.0
    full = (c.get("rope_parameters") or {}).get("full_attention")
    if full:  # olmo3
        theta = full["rope_theta"]
        g.key("rope.freq_base_swa", c["rope_parameters"]["sliding_attention"]["rope_theta"])
        r.update(full)
        r["kind"] = full["rope_type"]
    if a == "hunyuan-dense":
        theta, r["kind"] = theta * r["alpha"] ** (dim / (dim - 2)), "default"
    for k, v in (("block_count", c["num_hidden_layers"]), ("context_length", c.get("max_position_embeddings")),
                 ("embedding_length", c["hidden_size"]), ("feed_forward_length", c["intermediate_size"]),
                 ("attention.head_count", heads), ("attention.head_count_kv", c["num_key_value_heads"]),
                 ("attention.layer_norm_rms_epsilon" if rms else "attention.layer_norm_epsilon", eps),
                 ("vocab_size", c["vocab_size"]), ("rope.freq_base", float(theta)), ("rope.dimension_count", int(dim * part))):
        g.key(k, v)
    if c.get("head_dim") or c.get("kv_channels"):
        g.key("attention.key_length", dim)
        g.key("attention.value_length", dim)
    if r["kind"] == "yarn":
        g.key("rope.scaling.type", "yarn")
        g.key("rope.scaling.factor", r["factor"])
        g.key("rope.scaling.original_context_length", r["original_max_position_embeddings"])
        g.key("rope.scaling.yarn_beta_fast", r["beta_fast"])
        g.key("rope.scaling.yarn_beta_slow", r["beta_slow"])
        g.key("rope.scaling.yarn_attn_factor", r["attention_factor"])
    if a in ("olmo2", "granite_swa"):
        g.key("attention.sliding_window", c["sliding_window"])
        g.key("attention.sliding_window_pattern", [t == "sliding_attention" for t in c["layer_types"]])
    if a in ("stablelm", "gptneox"):
        g.key("use_parallel_residual", c["use_parallel_residual"])
    if a == "command-r":
        g.key("logit_scale", c["logit_scale"])
    if a == "olmo":
        g.key("attention.clamp_kqv", c["clip_qkv"])
    if a == "mpt":
        g.key("attention.clamp_kqv", c["attn_config"]["clip_qkv"])
        g.key("attention.max_alibi_bias", float(c["attn_config"]["alibi_bias_max"]))
    if a == "jais":
        g.key("attention.max_alibi_bias", 8.0)
    if a == "granite_swa":
        for k, h in (("attention.scale", "attention_multiplier"), ("embedding_scale", "embedding_multiplier"),
                     ("residual_scale", "residual_multiplier"), ("logit_scale", "logits_scaling")):
            g.key(k, c[h])
    if a == "minicpm":
        g.key("embedding_scale", float(c["scale_emb"]))
        g.key("residual_scale", c["scale_depth"] / c["num_hidden_layers"] ** 0.5)
        g.key("logit_scale", c["hidden_size"] / c["dim_model_base"])
    if a == "minicpm3":
        g.key("attention.q_lora_rank", c["q_lora_rank"])
        g.key("attention.kv_lora_rank", c["kv_lora_rank"])
        base.set_key(g, "attention.key_length", c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
        base.set_key(g, "rope.dimension_count", c["qk_rope_head_dim"])
    return dim


def softplus_params(g, c, src):
    for k in ("alpha_n", "alpha_p", "beta", "eps"):
        g.key(f"xielu.{k}", [src[f"model.layers.{i}.mlp.act_fn.{k}"].floats()[0] for i in range(c["num_hidden_layers"])])


def split_order(heads, kv, dim):
    """Rows of q, k and v where each key head has its queries, its key and its value behind each other."""
    per = heads // kv
    at = lambda g, i: (g * (per + 2) + i) * dim
    return ([at(g, i) + j for g in range(kv) for i in range(per) for j in range(dim)],
            [at(g, per) + j for g in range(kv) for j in range(dim)], [at(g, per + 1) + j for g in range(kv) for j in range(dim)])


def pick(t, order, base):
    if len(t.shape) > 1:
        return t.take(order)
    v = t.floats()
    return base.T(base.F32, [len(order)], array.array("f", [v[i] for i in order]).tobytes())


def layer_tensor(g, c, a, p, rest, t, dim, base):
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    module, end = rest.rsplit(".", 1) if "." in rest else (rest, "weight")
    if rest == "self_attn.sinks":
        module, end = rest, "weight"
    if re.search(r"self_attn\.[qk]_layernorm\.norms\.\d+$", module):
        return  # stacked by stack_norms
    if ".act_fn." in rest:
        return
    if a == "internlm2" and module == "attention.wqkv":
        for name, order in zip("qkv", split_order(heads, kv, dim)):
            x = pick(t, order, base)
            g.add(f"{p}attn_{name}.{end}", x if name == "v" else base.permuted(x, heads if name == "q" else kv))
        return
    if a == "baichuan" and module == "self_attn.W_pack":
        n = t.shape[0] // 3
        for i, name in enumerate("qkv"):
            x = t.part(i * n, n)
            g.add(f"{p}attn_{name}.{end}", x if name == "v" else base.permuted(x, heads))
        return
    if a == "openelm" and module == "ffn.proj_1":
        n = t.shape[0] // 2
        g.add(f"{p}ffn_gate.{end}", t.part(0, n))
        g.add(f"{p}ffn_up.{end}", t.part(n, n))
        return
    if a == "refact" and module in ("attn.kv", "mlp.gate_up_proj"):
        n = t.shape[0] // 2
        for i, name in enumerate(("attn_k", "attn_v") if module == "attn.kv" else ("ffn_gate", "ffn_up")):
            g.add(f"{p}{name}.{end}", t.part(i * n, n))
        return
    new = next(n for pat, n in LAYER if re.fullmatch(pat, module))
    if a == "seed_oss" and new == "ffn_norm":
        new = "post_attention_norm"
    if a == "olmo2" and "layernorm" in module:
        new = "post_attention_norm" if "attention" in module else "post_ffw_norm"
    if a == "jais" and len(t.shape) == 2:
        t = t.transposed()
    if a in ("gptneox", "bloom", "falcon") and new == "attn_qkv":
        q, k, v = split_order(heads, kv, dim)
        t = pick(t, q + k + v, base)
    if a in PERMUTED and new in ("attn_q", "attn_k"):
        t = base.permuted(t, heads if new == "attn_q" else kv)
    if a == "nemotron" and new.endswith("norm") and end == "weight":
        t = t.f32(lambda x: x + 1)
    g.add(f"{p}{new}.{end}", t.f32() if len(t.shape) == 1 or new.endswith("_norm") else t)


def stack_norms(g, c, src, base):
    for i in range(c["num_hidden_layers"]):
        for name, n in (("q", c["num_attention_heads"]), ("k", c["num_key_value_heads"])):
            each = [src.get(f"model.layers.{i}.self_attn.{name}_layernorm.norms.{h}.weight") for h in range(n)]
            if each[0]:
                g.add(f"blk.{i}.attn_{name}_norm.weight", base.stack([t.f32() for t in each]))


def convert(src_config, src, out, base):
    c = normal(src_config)
    a, r = ARCH[c["model_type"]], base.rope_of(src_config)
    g = base.Gguf(a)
    dim = keys(g, c, r, a, base)
    base.extra_tensors(g, c, {**r, "rope_theta": r.get("rope_theta") or 10000.0}, "") if r["kind"] == "llama3" else None
    if a == "apertus":
        softplus_params(g, c, src)
    if a == "stablelm":
        stack_norms(g, c, src, base)
    for full, t in src.items():
        name = full.removeprefix("model.").removeprefix("transformer.")
        m = re.match(r"(?:gpt_neox\.layers|encoder\.layers|layers|h|blocks)\.(\d+)\.(.*)", name)
        if m:
            layer_tensor(g, c, a, f"blk.{m[1]}.", m[2], t, dim, base)
            continue
        module, end = name.rsplit(".", 1)
        new = TOP[module]
        if a == "nemotron" and new == "output_norm" and end == "weight":
            t = t.f32(lambda x: x + 1)
        if a == "jais" and new == "token_embd":
            g.add("output.weight", t.f32(lambda x: x * c["mup_output_alpha"] * c["mup_width_scale"]))
            t = t.f32(lambda x: x * c["mup_embeddings_scale"])
        g.add(f"{new}.{end}", t.f32() if len(t.shape) == 1 else t)
    g.write(out, c["vocab_size"])
