# SPDX-License-Identifier: Apache-2.0
"""Families whose arithmetic is that of another one with a reference, in other names and layouts: their published forms
made of that reference's tensors. Where a family multiplies by a constant, the constant is a power of two and a tensor is
divided by it, so that nothing is rounded.

  FORMS: name -> (reference, function(config, tensors) -> (config, tensors)); tensors: name -> (type, shape, bytes), bf16
"""

import array
import math
import re


def rows(t):
    n = len(t[2]) // t[1][0]
    return [t[2][i * n : (i + 1) * n] for i in range(t[1][0])]


def of_rows(t, r):
    return (t[0], [len(r)] + list(t[1][1:]), b"".join(r))


def join(*ts):
    return of_rows(ts[0], [r for t in ts for r in rows(t)])


def repeat(t, heads, kv):
    """Every key head once for each query head that uses it."""
    r = rows(t)
    dim = len(r) // kv
    return of_rows(t, [x for h in range(heads) for x in r[h * kv // heads * dim :][:dim]])


def times(t, power):
    """bf16 times 2^power: the exponent moves; zero stays."""
    v = array.array("H", t[2])
    return (t[0], t[1], array.array("H", [x + (power << 7) if x & 0x7F80 else x for x in v]).tobytes())


def grouped(q, k, v, heads, kv):
    """For each key head its queries, its key and its value."""
    q, k, v, per = rows(q), rows(k), rows(v), heads // kv
    dim = len(k) // kv
    return [x for g in range(kv) for x in q[g * per * dim : (g + 1) * per * dim] + k[g * dim :][:dim] + v[g * dim :][:dim]]


def layers(w, f):
    """f(prefix, tensors of the layer) -> new tensors, for every layer; returns them with the others under their names."""
    out, parts = {}, {}
    for name, t in w.items():
        m = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name)
        if m:
            parts.setdefault(int(m[1]), {})[m[2]] = t
        else:
            out[name] = t
    for i, p in parts.items():
        out.update(f(i, p))
    return out


def renamed(w, table, fused=None):
    """Names by regular expressions; fused(layer's tensors) -> replacement of q, k and v."""

    def each(i, p):
        if fused:
            p = fused(p)
        return {f"model.layers.{i}.{k}": t for k, t in p.items()}

    out = {}
    for name, t in layers(w, each).items():
        for a, b in table:
            name = re.sub(a, b, name)
        out[name] = t
    return out


def internlm2(c, w):
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]

    def fused(p):
        q, k, v = (p.pop(f"self_attn.{x}_proj.weight") for x in "qkv")
        return {**p, "attention.wqkv.weight": of_rows(q, grouped(q, k, v, heads, kv))}

    table = [(r"self_attn\.o_proj", "attention.wo"), (r"mlp\.gate_proj", "feed_forward.w1"), (r"mlp\.up_proj", "feed_forward.w3"),
             (r"mlp\.down_proj", "feed_forward.w2"), (r"input_layernorm", "attention_norm"), (r"post_attention_layernorm", "ffn_norm"),
             (r"embed_tokens", "tok_embeddings"), (r"^lm_head", "output")]
    return {**c, "model_type": "internlm2", "bias": False}, renamed(w, table, fused)


def exaone(c, w):
    table = [(r"^model\.layers", "transformer.h"), (r"^model\.embed_tokens", "transformer.wte"), (r"^model\.norm", "transformer.ln_f"),
             (r"self_attn\.o_proj", "attn.attention.out_proj"), (r"self_attn", "attn.attention"), (r"input_layernorm", "ln_1"),
             (r"post_attention_layernorm", "ln_2"), (r"mlp\.gate_proj", "mlp.c_fc_0"), (r"mlp\.up_proj", "mlp.c_fc_1"),
             (r"mlp\.down_proj", "mlp.c_proj")]
    c = {**c, "model_type": "exaone", "activation_function": c["hidden_act"], "layer_norm_epsilon": c["rms_norm_eps"],
         "num_layers": c["num_hidden_layers"]}
    for k in ("hidden_act", "rms_norm_eps", "num_hidden_layers"):
        c.pop(k)
    return c, renamed(w, table)


def baichuan(c, w):
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]

    def fused(p):
        q, k, v = (p.pop(f"self_attn.{x}_proj.weight") for x in "qkv")
        return {**p, "self_attn.W_pack.weight": join(q, repeat(k, heads, kv), repeat(v, heads, kv))}

    c = {k: v for k, v in c.items() if k != "num_key_value_heads"}
    return {**c, "model_type": "baichuan"}, renamed(w, [], fused)


def same(model_type):
    return lambda c, w: ({**c, "model_type": model_type}, w)


def minicpm(c, w):
    def each(i, p):
        for k in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
            p[k] = times(p[k], 1)
        return {f"model.layers.{i}.{k}": t for k, t in p.items()}

    w = layers(w, each)
    w["model.embed_tokens.weight"] = times(w["model.embed_tokens.weight"], -2)
    w["lm_head.weight"] = times(w["lm_head.weight"], 1)
    return {**c, "model_type": "minicpm", "scale_emb": 4, "dim_model_base": c["hidden_size"] // 2,
            "scale_depth": 0.5 * math.sqrt(c["num_hidden_layers"])}, w


def qwen(c, w):
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]

    def fused(p):
        for e in ("weight", "bias"):
            q, k, v = (p.pop(f"self_attn.{x}_proj.{e}") for x in "qkv")
            p[f"attn.c_attn.{e}"] = join(q, repeat(k, heads, kv), repeat(v, heads, kv))
        return p

    table = [(r"^model\.layers", "transformer.h"), (r"^model\.embed_tokens", "transformer.wte"), (r"^model\.norm", "transformer.ln_f"),
             (r"self_attn\.o_proj", "attn.c_proj"), (r"input_layernorm", "ln_1"), (r"post_attention_layernorm", "ln_2"),
             (r"mlp\.gate_proj", "mlp.w2"), (r"mlp\.up_proj", "mlp.w1"), (r"mlp\.down_proj", "mlp.c_proj")]
    new = {k: c[k] for k in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "tie_word_embeddings")}
    return {**new, "model_type": "qwen", "kv_channels": c["hidden_size"] // heads, "intermediate_size": 2 * c["intermediate_size"],
            "layer_norm_epsilon": c["rms_norm_eps"], "rotary_emb_base": c["rope_theta"], "rotary_pct": 1.0, "seq_length": 512,
            "use_dynamic_ntk": True, "use_logn_attn": True, "no_bias": True}, renamed(w, table, fused)


def chatglm(c, w):
    def fused(p):
        for e in ("weight", "bias"):
            p[f"self_attention.query_key_value.{e}"] = join(*(p.pop(f"self_attn.{x}_proj.{e}") for x in "qkv"))
        return p

    table = [(r"^model\.layers", "transformer.encoder.layers"), (r"^model\.embed_tokens", "transformer.embedding.word_embeddings"),
             (r"^model\.norm", "transformer.encoder.final_layernorm"), (r"^lm_head", "transformer.output_layer"),
             (r"self_attn\.o_proj", "self_attention.dense"), (r"mlp\.gate_up_proj", "mlp.dense_h_to_4h"),
             (r"mlp\.down_proj", "mlp.dense_4h_to_h")]
    return {"model_type": "chatglm", "vocab_size": c["vocab_size"], "padded_vocab_size": c["vocab_size"], "hidden_size": c["hidden_size"],
            "num_layers": c["num_hidden_layers"], "num_attention_heads": c["num_attention_heads"],
            "multi_query_attention": True, "multi_query_group_num": c["num_key_value_heads"], "kv_channels": c["head_dim"],
            "ffn_hidden_size": c["intermediate_size"], "layernorm_epsilon": c["rms_norm_eps"], "rmsnorm": True, "post_layer_norm": True,
            "apply_residual_connection_post_layernorm": False, "seq_length": 256, "rope_ratio": 1, "add_qkv_bias": True,
            "tie_word_embeddings": False}, renamed(w, table, fused)


def openelm(c, w):
    n, dim = c["num_hidden_layers"], c["head_dim"]

    def fused(p):
        p["attn.qkv_proj.weight"] = join(*(p.pop(f"self_attn.{x}_proj.weight") for x in "qkv"))
        p["ffn.proj_1.weight"] = join(p.pop("mlp.gate_proj.weight"), p.pop("mlp.up_proj.weight"))
        return p

    table = [(r"^model\.embed_tokens", "transformer.token_embeddings"), (r"^model\.", "transformer."), (r"self_attn\.o_proj", "attn.out_proj"),
             (r"self_attn\.", "attn."), (r"input_layernorm", "attn_norm"), (r"post_attention_layernorm", "ffn_norm"),
             (r"mlp\.down_proj", "ffn.proj_2")]
    return {"model_type": "openelm", "vocab_size": c["vocab_size"], "model_dim": c["hidden_size"], "num_transformer_layers": n,
            "head_dim": dim, "num_query_heads": [c["num_attention_heads"]] * n, "num_kv_heads": [c["num_key_value_heads"]] * n,
            "ffn_multipliers": [c["intermediate_size"] / c["hidden_size"]] * n, "ffn_dim_divisor": 32,
            "max_context_length": 512, "rope_freq_constant": c["rope_theta"], "normalize_qk_projections": True, "ffn_with_glu": True,
            "normalization_layer_name": "rms_norm", "activation_fn_name": "swish", "share_input_output_layers": True,
            "tie_word_embeddings": c["tie_word_embeddings"]}, renamed(w, table, fused)


def bailing(second):
    """Ling: q, k and v in one matrix."""

    def make(c, w):
        def fused(p):
            for end in ("weight", "bias"):
                if f"self_attn.q_proj.{end}" in p:
                    p[f"attention.query_key_value.{end}"] = join(*(p.pop(f"self_attn.{x}_proj.{end}") for x in "qkv"))
            return p

        table = [(r"self_attn\.o_proj", "attention.dense"), (r"self_attn\.q_norm", "attention.query_layernorm"),
                 (r"self_attn\.k_norm", "attention.key_layernorm"), (r"embed_tokens", "word_embeddings"),
                 (r"gate\.e_score_correction_bias", "gate.expert_bias")]
        c = {**c, "model_type": "bailing_moe_v2" if second else "bailing_moe", "num_experts": c["n_routed_experts"],
             "num_shared_experts": c["n_shared_experts"], "score_function": "sigmoid" if second else "softmax",
             "use_qkv_bias": second, "use_bias": False, "norm_head": False, "use_rmsnorm": True, "use_qk_norm": second}
        for k in ("n_routed_experts", "n_shared_experts", "scoring_func", "topk_method", "attention_bias"):
            c.pop(k, None)
        return c, renamed(w, table, fused)

    return make


def vision(model_type):
    """The language model of a multimodal one: in text, all axes of the rotation have the same position."""

    def make(c, w):
        text = {**c, "model_type": model_type + "_text"}
        dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        text["rope_scaling"] = {"type": "mrope", "mrope_section": [dim // 4, dim // 8, dim // 8]}
        return ({"model_type": model_type, "tie_word_embeddings": c["tie_word_embeddings"], "text_config": text},
                {k.replace("model.", "model.language_model.", 1): t for k, t in w.items()})

    return make


def kimi(model_type, text_type):
    """DeepSeek V3 beside a tower."""

    def make(c, w):
        return ({"model_type": model_type, "tie_word_embeddings": False, "text_config": {**c, "model_type": text_type}},
                {"language_model." + k: t for k, t in w.items()})

    return make


FORMS = {"kimi_k25": ("deepseek_v3", kimi("kimi_k25", "kimi_k2")), "kimi_vl": ("deepseek_v3_noq", kimi("kimi_vl", "deepseek_v3")),
         "internlm2": ("llama", internlm2), "internlm3": ("llama", same("internlm3")), "internlm": ("llama", same("internlm")),
         "xverse": ("llama", same("xverse")), "exaone": ("llama", exaone), "baichuan": ("llama", baichuan),
         "minicpm": ("llama", minicpm), "qwen": ("qwen2", qwen), "chatglm": ("glm", chatglm),
         "openelm": ("qwen3", openelm), "PanguEmbedded": ("seed_oss", same("PanguEmbedded")), "qwen2_5_vl": ("qwen2", vision("qwen2_5_vl")),
         "bailing_moe": ("deepseek", bailing(False)), "bailing_moe_v2": ("glm4_moe", bailing(True)),
         "qwen3_vl": ("qwen3", vision("qwen3_vl")), "qwen3_vl_moe": ("qwen3_moe", vision("qwen3_vl_moe"))}
