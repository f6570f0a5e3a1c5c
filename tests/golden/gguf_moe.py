# SPDX-License-Identifier: Apache-2.0
"""What to_gguf.py has to know about the mixture-of-experts, hybrid and recurrent families: names, keys, values."""

import math

ARCH = {"deepseek_v2": "deepseek2", "axk1": "axk1", "mistral4": "mistral4", "olmoe": "olmoe", "flex_olmo": "flex_olmo",
        "ernie4_5_moe": "ernie4_5-moe", "hunyuan_v1_moe": "hunyuan-moe", "hy_v3": "hy_v3", "granitemoe": "granitemoe",
        "granitemoeshared": "granitemoe", "granitemoehybrid": "granitehybrid", "nemotron_h": "nemotron_h",
        "exaone_moe": "exaone-moe", "afmoe": "afmoe", "laguna": "laguna", "mellum": "mellum",
        "mimo_v2_flash": "mimo2", "dots1": "dots1", "mamba": "mamba", "falcon_mamba": "mamba", "jamba": "jamba",
        "llama4_text": "llama4", "falcon_h1": "falcon-h1", "phimoe": "phimoe", "cohere2_moe": "cohere2moe",
        "solar_open": "glm4moe", "gemma3n_text": "gemma3n", "dbrx": "dbrx",
        "deepseek": "deepseek", "deepseek_v32": "deepseek32", "glm_moe_dsa": "glm-dsa", "bailing_moe": "bailingmoe", "bailing_moe_v2": "bailingmoe2",
        "step3p5": "step35", "minimax_m3_vl_text": "minimax-m3", "nanbeige": "nanbeige",
        "nemotron-nas": "deci"}
# The format has no key for what these differ in.
NOT_GGUF = {"step3p7": "step3p5 has the names and fields that the converter reads",
            "llama4_text_scout": "use_qk_norm, no_rope_layers", "cohere2_moe_sigmoid": "the shared expert's sum",
            "granitemoe_swa": "layer_rope_theta",
            "bamba": "written as a Granite hybrid, its rotation of half a head with permuted rows"}
PERMUTED = {"nanbeige", "deci", "granitemoe", "granitehybrid", "deepseek", "bailingmoe"}
POST_ATTENTION = {"afmoe", "flex_olmo", "gemma3n"}
EXPERTS = [(r"mixer\.experts\.\d+\.up_proj\.weight", "ffn_up_exps"),
           (r"mixer\.experts\.\d+\.down_proj\.weight", "ffn_down_exps")]
TOP = {"final_layernorm": "output_norm", "word_embeddings": "token_embd"}
LAYER = {**{f"self_attn.index_{n}": f"indexer.{n}" for n in ("q_proj", "k_proj", "q_norm", "k_norm")},
         "moe.gate": "ffn_gate_inp", "self_attn.linear_attn": "attn_output", **{f"moe.{p}_proj": f"ffn_{p}_exps" for p in ("gate", "up", "down")},
         **{f"share_expert.{p}_proj": f"ffn_{p}_shexp" for p in ("gate", "up", "down")},
         "self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm",
         "mlp.gate.wg": "ffn_gate_inp", "mlp.router.gate": "ffn_gate_inp", "pre_mlp_layernorm": "ffn_norm",
         "post_mlp_layernorm": "post_ffw_norm", "self_attn.gate_proj": "attn_gate", "self_attn.g_proj": "attn_gate",
         "feed_forward.router": "ffn_gate_inp", "pre_ff_layernorm": "ffn_norm",
         **{f"feed_forward.{p}_proj": f"ffn_{p}" for p in ("gate", "up", "down")},
         **{f"{m}.{p}_proj": f"ffn_{p}_shexp" for p in ("gate", "up", "down")
            for m in ("mlp.shared_mlp", "feed_forward.shared_expert", "mixer.shared_experts")},
         **{f"mixer.{p}_proj": f"attn_{p}" for p in "qkv"}, "mixer.o_proj": "attn_output",
         "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down", "mixer.gate": "ffn_gate_inp",
         "mixer.fc1_latent_proj": "ffn_latent_down", "mixer.fc2_latent_proj": "ffn_latent_up",
         **{f"{m}.{p}": n for m in ("mixer", "mamba") for p, n in (
             ("in_proj", "ssm_in"), ("out_proj", "ssm_out"), ("x_proj", "ssm_x"), ("dt_proj", "ssm_dt"),
             ("dt_layernorm", "ssm_dt_norm"), ("b_layernorm", "ssm_b_norm"), ("c_layernorm", "ssm_c_norm"))},
         "altup.modality_router": "altup_router", "altup.router_norm": "altup_router_norm",
         "altup.prediction_coefs": "altup_predict_coef", "altup.correction_coefs": "altup_correct_coef",
         "laurel.linear_left": "laurel_l", "laurel.linear_right": "laurel_r",
         "laurel.post_laurel_norm": "laurel_post_norm", "norm_attn_norm.norm_1": "attn_norm",
         "norm_attn_norm.norm_2": "attn_output_norm", "norm_attn_norm.attn.Wqkv": "attn_qkv",
         "norm_attn_norm.attn.out_proj": "attn_output", "ffn.router.layer": "ffn_gate_inp",
         "attention.query_key_value": "attn_qkv", "attention.dense": "attn_output",
         "attention.query_layernorm": "attn_q_norm", "attention.key_layernorm": "attn_k_norm",
         "self_attn.indexer.wq_b": "indexer.attn_q_b", "self_attn.indexer.wk": "indexer.attn_k",
         "self_attn.indexer.k_norm": "indexer.k_norm", "self_attn.indexer.weights_proj": "indexer.proj",
         "block_sparse_moe.router.layer": "ffn_gate_inp", "self_attn.attention_sink_bias": "attn_sinks"}


def arch_of(c):
    """Nemotron-H with experts has a name of its own."""
    if c["model_type"] == "nemotron_h" and "E" in c["hybrid_override_pattern"]:
        return "nemotron_h_moe"
    return None


def usual(c, src):
    """DBRX: its fields and tensors under the usual names. Gemma 3n: its streams' matrices in two stacks."""
    if c["model_type"] == "dbrx":
        for k, v in (("num_hidden_layers", c["n_layers"]), ("hidden_size", c["d_model"]),
                     ("num_attention_heads", c["n_heads"]), ("num_key_value_heads", c["attn_config"]["kv_n_heads"]),
                     ("intermediate_size", c["ffn_config"]["ffn_hidden_size"]), ("layer_norm_eps", 1e-5),
                     ("num_experts", c["ffn_config"]["moe_num_experts"]), ("rope_theta", c["attn_config"]["rope_theta"]),
                     ("num_experts_per_tok", c["ffn_config"]["moe_top_k"])):
            c[k] = v
        for old, new in (("transformer.blocks.", "model.layers."), ("transformer.wte", "model.embed_tokens"),
                         ("transformer.norm_f", "model.norm")):
            for k in [k for k in src if k.startswith(old)]:
                src[new + k[len(old):]] = src.pop(k)


def mla_keys(g, c, r, set_key):
    rank, pe = c["kv_lora_rank"], c["qk_rope_head_dim"]
    for k, v in (("attention.q_lora_rank", c.get("q_lora_rank")), ("attention.kv_lora_rank", rank),
                 ("attention.head_count_kv", 1), ("attention.key_length", rank + pe),
                 ("attention.value_length", rank), ("attention.key_length_mla", c["qk_nope_head_dim"] + pe),
                 ("attention.value_length_mla", c["v_head_dim"]), ("rope.dimension_count", pe)):
        set_key(g, k, v)
    if "mscale_all_dim" in r:
        set_key(g, "rope.scaling.yarn_log_multiplier", 0.1 * r["mscale_all_dim"])
    set_key(g, "attention.temperature_scale", r.get("llama_4_scaling_beta"))


def mamba2_keys(g, heads, dim, groups, state, taps):
    for k, v in (("ssm.conv_kernel", taps), ("ssm.inner_size", heads * dim), ("ssm.state_size", state),
                 ("ssm.time_step_rank", heads), ("ssm.group_count", groups)):
        g.key(k, v)


def window_keys(g, c, r, set_key):
    n = c["num_hidden_layers"]
    types = c.get("layer_types")
    slides = [t == "sliding_attention" for t in types] if types else \
             [i >= c.get("max_window_layers", n) for i in range(n)]
    g.key("attention.sliding_window", c["sliding_window"])
    g.key("attention.sliding_window_pattern", slides)
    ropes = c.get("rope_parameters") or {}
    if "sliding_attention" in ropes:
        for end, kind in (("", "full_attention"), ("_swa", "sliding_attention")):
            set_key(g, "rope.freq_base" + end, ropes[kind]["rope_theta"])
            set_key(g, "rope.dimension_count" + end, int(c["head_dim"] * ropes[kind].get("partial_rotary_factor", 1)))
    return slides


def routing_keys(g, c, a, set_key):
    """Which function scores, whether weights are normed and scaled."""
    softmax = c["model_type"] in ("deepseek_v2", "mistral4", "mellum", "cohere2_moe")
    sigmoid = c["model_type"] in ("axk1", "hy_v3", "exaone_moe", "afmoe", "laguna", "mimo_v2_flash", "dots1",
                                  "nemotron_h", "bailing_moe_v2", "deepseek_v32", "glm_moe_dsa")
    if softmax or sigmoid:
        set_key(g, "expert_gating_func", 1 if softmax else 2)
    norm = c.get("norm_topk_prob", c.get("route_norm", True if a in ("laguna", "hy_v3") else None))
    set_key(g, "expert_weights_norm", norm)
    for k in ("route_scale", "moe_routed_scaling_factor", "router_scaling_factor"):
        if k in c:
            set_key(g, "expert_weights_scale", c[k])


def hybrid_keys(g, c, a, kv, set_key):
    n = c["num_hidden_layers"]
    if a == "granitehybrid":
        mamba2_keys(g, c["mamba_n_heads"], c["mamba_d_head"], c["mamba_n_groups"], c["mamba_d_state"], c["mamba_d_conv"])
        set_key(g, "attention.head_count_kv", [kv if t == "attention" else 0 for t in c["layer_types"]])
        g.key("rope.scaling.finetuned", c["position_embedding_type"] == "rope")
    if a == "falcon-h1":
        mamba2_keys(g, c["mamba_n_heads"], c["mamba_d_head"], c["mamba_n_groups"], c["mamba_d_state"], c["mamba_d_conv"])
    if a in ("nemotron_h", "nemotron_h_moe"):
        mamba2_keys(g, c["mamba_num_heads"], c["mamba_head_dim"], c["n_groups"], c["ssm_state_size"], c["conv_kernel"])
        kinds, moe = c["hybrid_override_pattern"], c.get("moe_intermediate_size")
        set_key(g, "attention.head_count_kv", [kv if k == "*" else 0 for k in kinds])
        set_key(g, "feed_forward_length", [{"-": c["intermediate_size"], "E": moe}.get(k, 0) for k in kinds])
        set_key(g, "attention.layer_norm_rms_epsilon", c["layer_norm_epsilon"])
        g.key("moe_latent_size", c.get("moe_latent_size"))
        set_key(g, "expert_shared_feed_forward_length", c.get("moe_shared_expert_intermediate_size"))
    if a in ("mamba", "jamba"):
        p = "mamba_" if a == "jamba" else ""
        for k, v in (("ssm.conv_kernel", c.get("mamba_d_conv", c.get("conv_kernel"))),
                     ("ssm.inner_size", c[p + "expand"] * c["hidden_size"]),
                     ("ssm.state_size", c.get("mamba_d_state", c.get("state_size"))),
                     ("ssm.time_step_rank", c.get("mamba_dt_rank", c.get("time_step_rank")))):
            g.key(k, v)
    if a == "mamba":
        set_key(g, "feed_forward_length", 0)
        set_key(g, "attention.head_count", 0)
        set_key(g, "attention.layer_norm_rms_epsilon", c["layer_norm_epsilon"])
        if c["model_type"] == "falcon_mamba":
            g.key("ssm.dt_b_c_rms", True)
    if a == "jamba":
        at = [i % c["attn_layer_period"] == c["attn_layer_offset"] for i in range(n)]
        set_key(g, "attention.head_count_kv", [kv if x else 0 for x in at])


def keys(g, c, r, a, set_key):
    kv, types = c.get("num_key_value_heads"), c.get("layer_types")
    if a in ("axk1", "mistral4", "deepseek32", "glm-dsa"):
        mla_keys(g, c, r, set_key)
    if "index_topk" in c:
        for k, v in (("head_count", c["index_n_heads"]), ("key_length", c["index_head_dim"]), ("top_k", c["index_topk"])):
            set_key(g, "attention.indexer." + k, v)
    if "indexer_types" in c:
        set_key(g, "attention.indexer.types", [t == "full" for t in c["indexer_types"]])
    routing_keys(g, c, a, set_key)
    hybrid_keys(g, c, a, kv, set_key)
    if a in ("olmoe", "flex_olmo"):
        g.key("attention.clamp_kqv", c.get("clip_qkv"))
    if a == "ernie4_5-moe":
        for k, h in (("expert_count", "moe_num_experts"), ("expert_used_count", "moe_k"),
                     ("expert_shared_count", "moe_num_shared_experts"),
                     ("leading_dense_block_count", "moe_layer_start_index")):
            set_key(g, k, c[h])
    if a == "hunyuan-moe":
        set_key(g, "expert_used_count", c["moe_topk"])
        set_key(g, "expert_shared_feed_forward_length", c["intermediate_size"])
        dim = c["head_dim"]
        set_key(g, "rope.freq_base", c["rope_theta"] * r["alpha"] ** (dim / (dim - 2)))
    if a == "hy_v3":
        set_key(g, "leading_dense_block_count", 1)
    if a in ("granitemoe", "granitehybrid"):
        for k, h in (("attention.scale", "attention_multiplier"), ("embedding_scale", "embedding_multiplier"),
                     ("residual_scale", "residual_multiplier"), ("logit_scale", "logits_scaling"),
                     ("expert_shared_feed_forward_length", "shared_intermediate_size")):
            set_key(g, k, c.get(h))
        set_key(g, "rope.dimension_count", c["hidden_size"] // c["num_attention_heads"])
    if a in ("exaone-moe", "afmoe", "laguna", "mellum", "mimo2", "dots1"):
        window_keys(g, c, r, set_key)
        if "mlp_layer_types" in c:
            set_key(g, "leading_dense_block_count", c["mlp_layer_types"].count("dense"))
    if a == "laguna":
        set_key(g, "attention.head_count", c["num_attention_heads_per_layer"])
        set_key(g, "router_logit_softcapping", c["moe_router_logit_softcapping"])
    if a == "mimo2":
        set_key(g, "attention.head_count_kv", [kv * (2 if t == "sliding_attention" else 1) for t in types])
        set_key(g, "attention.value_length", c["v_head_dim"])
        set_key(g, "attention.value_scale", c["attention_value_scale"])
    if a == "llama4":
        set_key(g, "expert_feed_forward_length", c["intermediate_size"])
        set_key(g, "feed_forward_length", c["intermediate_size_mlp"])
        for k, h in (("attention.sliding_window", "attention_chunk_size"), ("attention.temperature_length", "floor_scale"),
                     ("attention.temperature_scale", "attn_scale"),
                     ("interleave_moe_layer_step", "interleave_moe_layer_step")):
            g.key(k, c[h])
    if a == "phimoe":
        g.key("attention.sliding_window", c["sliding_window"])
    if a == "minimax-m3":
        s = c["sparse_attention_config"]
        for k, v in (("feed_forward_length", c["dense_intermediate_size"]), ("expert_feed_forward_length", c["intermediate_size"]),
                     ("expert_weights_norm", True), ("expert_gating_func", 2), ("rope.dimension_count", c["rotary_dim"]),
                     ("leading_dense_block_count", c["moe_layer_freq"].count(0)),
                     ("attention.indexer.head_count", s["sparse_num_index_heads"]),
                     ("attention.indexer.key_length", s["sparse_index_dim"]),
                     ("attention.indexer.top_k", s["sparse_topk_blocks"]),
                     ("attention.indexer.block_size", s["sparse_block_size"]),
                     ("attention.indexer.local_blocks", s["sparse_local_block"])):
            set_key(g, k, v)
    if a == "nanbeige":
        g.key("num_loops", c["num_loops"])
        g.key("skip_loop_final_norm", c["skip_loop_final_norm"])
        set_key(g, "rope.dimension_count", c["head_dim"])
    if a == "deci":
        deci_keys(g, c, set_key)
    if a == "step35":
        step_keys(g, c, set_key)
    if c["model_type"] == "solar_open":
        set_key(g, "rope.dimension_count", c["head_dim"])
        set_key(g, "leading_dense_block_count", 0)
    if a == "dbrx":
        g.key("attention.clamp_kqv", c["attn_config"]["clip_qkv"])
    if a == "gemma3n":
        gemma3n_keys(g, c, set_key)
    if a == "cohere2moe":
        lead = c.get("first_k_dense_replace", 0)
        g.key("attention.sliding_window", c["sliding_window"])
        g.key("attention.sliding_window_pattern",
              [(i + 1 - lead) % c["sliding_window_pattern"] != 0 if i >= lead else False
               for i in range(c["num_hidden_layers"])])
        g.key("logit_scale", c["logit_scale"])
        g.key("rope.dimension_count", c["head_dim"])
        set_key(g, "expert_feed_forward_length", c["intermediate_size"])
        set_key(g, "feed_forward_length", c["prefix_dense_intermediate_size"])


def deci_keys(g, c, set_key):
    heads, n = c["num_attention_heads"], c["hidden_size"]
    blocks = [(b["attention"], b["ffn"]) for b in c["block_configs"]]
    set_key(g, "attention.head_count", [0 if a["no_op"] else heads for a, _ in blocks])
    set_key(g, "attention.head_count_kv", [heads // a["n_heads_in_group"] if a["n_heads_in_group"] else 0 for a, _ in blocks])
    set_key(g, "feed_forward_length", [-(-int(2 * (f["ffn_mult"] or 0) * n / 3) // 256) * 256 for _, f in blocks])
    set_key(g, "rope.dimension_count", n // heads)


def step_keys(g, c, set_key):
    """Full layers rotate half of what the file says; the lists end with the model's last layer."""
    n, other = c["num_hidden_layers"], c["attention_other_setting"]
    slides = [t == "sliding_attention" for t in c["layer_types"][:n]]
    for k, v in (("attention.head_count", [other["num_attention_heads"] if s else c["num_attention_heads"] for s in slides]),
                 ("attention.head_count_kv", [other["num_attention_groups"] if s else c["num_attention_groups"] for s in slides]),
                 ("attention.sliding_window", c["sliding_window"]), ("attention.sliding_window_pattern", slides),
                 ("expert_count", c["moe_num_experts"]), ("expert_used_count", c["moe_top_k"]),
                 ("expert_shared_feed_forward_length", c["share_expert_dim"]),
                 ("expert_weights_scale", c["moe_router_scaling_factor"]),
                 ("expert_weights_norm", c["norm_expert_weight"]), ("leading_dense_block_count", 1),
                 ("swiglu_clamp_exp", c["swiglu_limits"][:n]), ("swiglu_clamp_shexp", c["swiglu_limits_shared"][:n]),
                 ("rope.freq_base", c["rope_theta"][0]), ("rope.freq_base_swa", c["rope_theta"][1]),
                 ("rope.dimension_count", c["head_dim"])):
        set_key(g, k, v)


def gemma3n_keys(g, c, set_key):
    from statistics import NormalDist

    cuts = [NormalDist().inv_cdf(s) if s > 0 else -math.inf for s in c["activation_sparsity_pattern"]]
    for k, v in (("altup.active_idx", c["altup_active_idx"]), ("altup.num_inputs", c["altup_num_inputs"]),
                 ("embedding_length_per_layer_input", c["hidden_size_per_layer_input"]),
                 ("attention.shared_kv_layers", c["num_kv_shared_layers"]), ("activation_sparsity_scale", cuts),
                 ("attention.sliding_window", c["sliding_window"]),
                 ("attention.sliding_window_pattern", [t == "sliding_attention" for t in c["layer_types"]]),
                 ("rope.freq_base_swa", c["rope_local_base_freq"]),
                 ("final_logit_softcapping", c["final_logit_softcapping"]),
                 ("laurel_rank", c["laurel_rank"])):  # published files have 64 and do not say so
        set_key(g, k, v)


def top(g, name, t, stacks):
    """Tensors outside the layers that are stacked; True when handled."""
    for old, new in (("altup_projections.", "altup_proj.weight"), ("altup_unembed_projections.", "altup_unembd_proj.weight")):
        if name.startswith(old):
            stacks.setdefault(new, []).append(t)
            return True
    return False


def late_keys(g, c, a, set_key):
    """After the tensors of rotation have written theirs."""
    if a == "phimoe":
        set_key(g, "rope.scaling.attn_factor", c["rope_scaling"]["short_mscale"])


def falcon_h1(c, rest, t):
    """The multipliers go into the weights."""
    inner, bc = c["mamba_d_ssm"], c["mamba_n_groups"] * c["mamba_d_state"]
    m = c.get("ssm_multipliers", [1.0] * 5)
    gate, down = c.get("mlp_multipliers", [1.0, 1.0])
    x = c.get("attention_in_multiplier", 1.0)
    by = {"feed_forward.down_proj": down, "feed_forward.gate_proj": gate, "self_attn.q_proj": x, "self_attn.v_proj": x,
          "self_attn.k_proj": x * c.get("key_multiplier", 1.0), "self_attn.o_proj": c.get("attention_out_multiplier", 1.0),
          "mamba.out_proj": c.get("ssm_out_multiplier", 1.0), "lm_head": c.get("lm_head_multiplier", 1.0),
          "embed_tokens": c.get("embedding_multiplier", 1.0)}.get(rest.removesuffix(".weight"))
    if by is not None:
        return t.f32(lambda v: v * by)
    if rest != "mamba.in_proj.weight":
        return t
    s, cols = c.get("ssm_in_multiplier", 1.0), t.shape[1]
    row_by = [m[0]] * inner + [m[1]] * inner + [m[2]] * bc + [m[3]] * bc + [m[4]] * c["mamba_n_heads"]
    import array

    v = [x * s * row_by[i // cols] for i, x in enumerate(t.floats())]
    return type(t)(0, t.shape, array.array("f", v).tobytes())


def halves(t):
    """The two halves of every matrix's rows."""
    e, rows = (t.shape[0], t.shape[1]) if len(t.shape) > 2 else (1, t.shape[0])
    r, half, out = t.rows(), rows // 2, []
    for k in (0, 1):
        data = b"".join(b"".join(r[x * rows + k * half : x * rows + (k + 1) * half]) for x in range(e))
        out.append(type(t)(t.kind, t.shape[:-2] + [half, t.shape[-1]], data))
    return out


def special(g, c, a, p, rest, t):
    """Tensors that change more than their name; True when handled."""
    groups = c.get("mamba_n_groups", c.get("n_groups", 1))
    if a == "bailingmoe" and rest == "attention.query_key_value.weight":
        r, dim = t.rows(), c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        q, kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
        for n, part in (("q", r[:q]), ("k", r[q : q + kv]), ("v", r[q + kv :])):
            if n != "v":  # pairs of neighbours rotate
                part = [part[h * dim + j // 2 + (j % 2) * (dim // 2)] for h in range(len(part) // dim) for j in range(dim)]
            g.add(p + f"attn_{n}.weight", type(t)(t.kind, [len(part), t.shape[1]], b"".join(part)))
    elif rest in ("mlp.expert_bias", "mlp.gate.expert_bias"):
        g.add(p + ("exp_probs_b" if a == "hy_v3" else "exp_probs_b.bias"), t.f32())  # llama.cpp reads hy_v3's without its end
    elif rest == "moe.router_bias":
        g.add(p + "exp_probs_b.bias", t.f32())
    elif rest.endswith("moe_statics.e_score_correction_bias"):
        g.add(p + "exp_probs_b.bias", t.f32().reshape(t.shape[-1]))
    elif rest.endswith("input_linear.weight"):
        shared = rest.startswith("shared_mlp")
        end = "_exps" if not shared else "_shexp" if c["num_local_experts"] else ""
        for n, h in zip(("ffn_gate", "ffn_up"), halves(t)):
            g.add(p + n + end + ".weight", h)
    elif rest.endswith("output_linear.weight"):
        shared = rest.startswith("shared_mlp")
        g.add(p + "ffn_down" + ("_exps" if not shared else "_shexp" if c["num_local_experts"] else "") + ".weight", t)
    elif rest.startswith("mamba.conv1d."):
        t = t.f32()
        g.add(p + "ssm_conv1d." + rest.split(".")[-1], t.reshape(t.shape[0], t.shape[2]) if len(t.shape) > 1 else t)
    elif rest in ("mamba.A_log", "mixer.A_log") and (len(t.shape) > 1 or a != "mamba2"):
        t = t.f32(lambda x: -math.exp(x))
        g.add(p + "ssm_a", t if len(t.shape) > 1 else t.reshape(t.shape[0], 1))
    elif rest in ("mamba.D", "mixer.D") and a != "mamba2":
        g.add(p + "ssm_d", t.f32() if a in ("mamba", "jamba") else t.f32().reshape(t.shape[0], 1))
    elif rest == "mamba.dt_bias":
        g.add(p + "ssm_dt.bias", t.f32())
    elif rest == "mamba.norm.weight":
        g.add(p + "ssm_norm.weight", t.f32().reshape(groups, t.shape[0] // groups))
    elif a == "llama4" and rest == "feed_forward.experts.gate_up_proj":
        for n, h in zip(("ffn_gate_exps", "ffn_up_exps"), halves(t.transposed())):
            g.add(p + n + ".weight", h)
    elif a == "llama4" and rest == "feed_forward.experts.down_proj":
        g.add(p + "ffn_down_exps.weight", t.transposed())
    elif rest == "altup.correct_output_scale":
        g.add(p + "altup_correct_scale.weight", t.f32())
    elif rest.startswith("ffn.experts.mlp."):
        e = c["ffn_config"]["moe_num_experts"]
        t = t.reshape(e, t.shape[0] // e, t.shape[1])
        name = {"w1": "ffn_gate_exps", "v1": "ffn_up_exps", "w2": "ffn_down_exps"}[rest.split(".")[-1]]
        g.add(p + name + ".weight", t.transposed() if rest.endswith("w2") else t)
    elif rest == "self_attn.attention_sink_bias":
        g.add(p + "attn_sinks.weight", t.f32())
    else:
        return False
    return True
