#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes one of encoders/* as the GGUF file that a published converter would have made of it, tokenizer included.

  to_gguf_encoders.py MODEL_DIR OUT.gguf

Names and keys follow docs/gguf-names.md. It shares no code with the program that reads the result.
"""

import json
import os
import re
import sys

from to_gguf import BF16, F32, Gguf, T, read_safetensors

NOT = {**{name: "no such architecture" for name in ("deberta_v1", "deberta_v1_nli", "deberta_v2", "deberta_v3", "deberta_rerank", "deberta_nli", "electra",
                                                    "electra_rerank", "ernie", "albert", "albert_moods", "xlm_roberta_xl", "roberta_pre_nli")},
       "bert_topics": "converters leave the pooler out", "qwen3_moods": "converters know no such head",
       "bert_sqrt": "no pooling type for it", "bert_max": "no pooling type for it", "bert_prompt": "no prompts",
       "bert_cls": "the activation has no key", "mpnet": "no such architecture", "gte_new": "no such architecture",
       "bert_rerank": "converters leave the pooler out", "bert_rerank_raw": "converters leave the pooler out",
       "distilbert_rerank": "converters know no such head", "modernbert_rerank": "its pooling has no key",
       "t5_encoder": "dense layers are written for gemma-embedding only"}
ARCH = {"bert": "bert", "roberta": "bert", "xlm-roberta": "bert", "distilbert": "bert", "modernbert": "modern-bert",
        "nomic_bert": "nomic-bert", "jina_embeddings_v3": "jina-bert-v3", "eurobert": "eurobert", "gemma3_text": "gemma-embedding",
        "qwen3": "qwen3", "qwen2": "qwen2", "llama_bidirec": "llama-embed", "t5": "t5encoder"}

NAMES = [
    (r"embeddings\.(word|tok)_embeddings", "token_embd"), (r"embeddings\.position_embeddings", "position_embd"),
    (r"embeddings\.token_type_embeddings", "token_types"), (r"embeddings\.(LayerNorm|norm)|emb_ln", "token_embd_norm"),
    (r"embed_tokens|shared", "token_embd"), (r"(final_)?norm", "output_norm"), (r"encoder\.final_layer_norm", "enc.output_norm"),
    (r"classifier\.dense", "cls"), (r"classifier\.out_proj", "cls.output"), (r"linear2", "dense_2"), (r"linear3", "dense_3"),
]
LAYER = {
    "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
    "attention.q_lin": "attn_q", "attention.k_lin": "attn_k", "attention.v_lin": "attn_v", "attention.out_lin": "attn_output",
    "sa_layer_norm": "attn_output_norm", "ffn.lin1": "ffn_up", "ffn.lin2": "ffn_down", "output_layer_norm": "layer_output_norm",
    "attn.Wqkv": "attn_qkv", "attn.Wo": "attn_output", "mlp.Wi": "ffn_up", "mlp.Wo": "ffn_down", "attn_norm": "attn_norm",
    "mlp_norm": "ffn_norm", "mlp.gated_layers": "ffn_up", "mlp.wo": "ffn_down", "mlp.layernorm": "layer_output_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
    "attn.out_proj": "attn_output", "mixer.Wqkv": "attn_qkv", "mixer.out_proj": "attn_output", "norm1": "attn_output_norm",
    "norm2": "layer_output_norm", "mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate",
    "layer.0.SelfAttention.q": "attn_q", "layer.0.SelfAttention.k": "attn_k", "layer.0.SelfAttention.v": "attn_v",
    "layer.0.SelfAttention.o": "attn_o", "layer.0.SelfAttention.relative_attention_bias": "attn_rel_b",
    "layer.0.layer_norm": "attn_norm", "layer.1.layer_norm": "ffn_norm", "layer.1.DenseReluDense.wi": "ffn_up",
    "layer.1.DenseReluDense.wi_0": "ffn_gate", "layer.1.DenseReluDense.wi_1": "ffn_up", "layer.1.DenseReluDense.wo": "ffn_down",
}
PRE = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}  # decoders
POST = {"post_attention_layernorm": "attn_output_norm", "post_mlp_layernorm": "layer_output_norm"}  # encoders
GEMMA = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
         "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}


def tokenizer_keys(source):
    t = json.load(open(f"{source}/tokenizer.json", encoding="utf-8"))
    m, special = t["model"], {a["id"]: a["content"] for a in t["added_tokens"] if a["special"]}
    kind = m["type"]
    vocab = [v[0] for v in m["vocab"]] if kind == "Unigram" else sorted(m["vocab"], key=m["vocab"].get)
    types = [3 if i in special else 1 for i in range(len(vocab))]
    frame = t["post_processor"]["single"]
    seen = [x["SpecialToken"]["id"] if "SpecialToken" in x else None for x in frame]
    before, after = seen[: seen.index(None)], seen[seen.index(None) + 1 :]
    ids = {c: i for i, c in special.items()}
    kv = [("tokenizer.ggml.add_bos_token", 7, bool(before)), ("tokenizer.ggml.add_eos_token", 7, bool(after))]
    if kind == "WordPiece":
        vocab = [v if i in special else v[2:] if v.startswith("##") else "\u2581" + v for i, v in enumerate(vocab)]
        kv += [("tokenizer.ggml.model", 8, "bert"), ("tokenizer.ggml.pre", 8, "default"),
               ("tokenizer.ggml.cls_token_id", 4, ids[before[0]]), ("tokenizer.ggml.seperator_token_id", 4, ids[after[0]])]
    elif kind == "Unigram":
        kv += [("tokenizer.ggml.model", 8, "t5"), ("tokenizer.ggml.pre", 8, "default"),
               ("tokenizer.ggml.scores", (9, 6), [float(v[1]) for v in m["vocab"]]),
               ("tokenizer.ggml.add_space_prefix", 7, True), ("tokenizer.ggml.remove_extra_whitespaces", 7, False)]
        types[m["unk_id"]] = 2
        kv += [("tokenizer.ggml.unknown_token_id", 4, m["unk_id"])]
    else:
        kv += [("tokenizer.ggml.model", 8, "gpt2"), ("tokenizer.ggml.pre", 8, "gpt-2"),
               ("tokenizer.ggml.merges", (9, 8), [x if isinstance(x, str) else " ".join(x) for x in m["merges"]])]
    if before:
        kv += [("tokenizer.ggml.bos_token_id", 4, ids[before[0]])]
    if after:
        kv += [("tokenizer.ggml.eos_token_id", 4, ids[after[0]])]
    return [("general.name", 8, "golden"), ("tokenizer.ggml.tokens", (9, 8), vocab),
            ("tokenizer.ggml.token_type", (9, 5), types)] + kv


def permute(t, heads):
    n = t.shape[0] // heads
    order = [h * n + (i // 2 if i % 2 == 0 else n // 2 + i // 2) for h in range(heads) for i in range(n)]
    return t.take(order)


def put_keys(g, c, arch, pooling):
    def first(*names):
        return next((c[n] for n in names if c.get(n) is not None), None)
    heads = first("num_attention_heads", "n_heads", "num_heads")
    offset = c["pad_token_id"] + 1 if c["model_type"] in ("roberta", "xlm-roberta") else 0
    g.key("block_count", first("num_hidden_layers", "n_layers", "num_layers"))
    g.key("embedding_length", first("hidden_size", "dim", "d_model"))
    g.key("feed_forward_length", first("intermediate_size", "hidden_dim", "d_ff"))
    g.key("attention.head_count", heads)
    g.key("attention.head_count_kv", first("num_key_value_heads") or heads)
    g.key("context_length", (first("max_position_embeddings") or 512) - offset)
    g.key("attention.causal", arch == "qwen3")
    eps = first("layer_norm_eps", "rms_norm_eps", "norm_eps", "layer_norm_epsilon") or 1e-12
    rms = arch in ("eurobert", "gemma-embedding", "qwen3", "qwen2", "llama-embed", "t5encoder")
    g.key("attention.layer_norm_rms_epsilon" if rms else "attention.layer_norm_epsilon", float(eps))
    if first("head_dim", "d_kv"):
        g.key("attention.key_length", first("head_dim", "d_kv"))
        g.key("attention.value_length", first("head_dim", "d_kv"))
    rope = c.get("rope_parameters") or {}
    full = rope.get("full_attention", rope)
    if full.get("rope_theta") or c.get("rope_theta"):
        g.key("rope.freq_base", float(full.get("rope_theta") or c["rope_theta"]))
    if arch in ("modern-bert", "gemma-embedding"):
        g.key("attention.sliding_window", c.get("local_attention") or c["sliding_window"])
        g.key("rope.freq_base_swa", float(rope["sliding_attention"]["rope_theta"]))
    if arch == "modern-bert":
        g.key("hidden_activation", c["hidden_activation"])
        g.key("attention.sliding_window_pattern", 3)
    if arch == "gemma-embedding":
        g.key("attention.sliding_window_pattern", [x == "sliding_attention" for x in c["layer_types"]])
    if arch == "t5encoder":
        g.key("attention.relative_buckets_count", c["relative_attention_num_buckets"])
    g.key("pooling_type", pooling)
    if pooling == 4 and len(c.get("id2label") or {}) > 1:
        g.key("classifier.output_labels", [c["id2label"][str(i)] for i in range(len(c["id2label"]))])
    return heads, offset


def convert(source, path):
    """Returns why there is no such file, or None."""
    name = os.path.basename(source.rstrip("/"))
    if name in NOT:
        return NOT[name]
    c = json.load(open(f"{source}/config.json"))
    alibi = c.get("position_embedding_type") == "alibi"
    arch = "jina-bert-v2" if alibi else ARCH[c["model_type"]]
    pooling = 4
    if os.path.exists(f"{source}/1_Pooling/config.json"):
        p = json.load(open(f"{source}/1_Pooling/config.json"))
        pooling = 1 if p["pooling_mode_mean_tokens"] else 2 if p["pooling_mode_cls_token"] else 3
    g = Gguf(arch)
    heads, offset = put_keys(g, c, arch, pooling)
    tensors = read_safetensors(f"{source}/model.safetensors")
    for n in (2, 3):
        if os.path.exists(f"{source}/{n}_Dense/model.safetensors"):
            tensors[f"linear{n}.weight"] = read_safetensors(f"{source}/{n}_Dense/model.safetensors")["linear.weight"]
    vocab = 0
    for full, t in sorted(tensors.items()):
        module, ending = full.rsplit(".", 1)
        module = re.sub(r"^(bert|roberta|distilbert|model)\.(?=embeddings|encoder|transformer|layers|pooler|final_norm)", "", module)
        if module.startswith("pooler") or full == "encoder.embed_tokens.weight":
            continue
        layer = re.match(r"(?:encoder\.layer|transformer\.layer|encoder\.block|(?:encoder\.)?layers)\.(\d+)\.(.*)", module)
        if layer:
            own = GEMMA if arch == "gemma-embedding" else POST if arch in ("nomic-bert", "jina-bert-v3") else PRE
            to = {**LAYER, **own}[layer[2]]
            prefix = "enc.blk" if arch == "t5encoder" else "blk"
            to = f"{prefix}.{layer[1]}.{to}"
        else:
            to = next(x for p, x in NAMES if re.fullmatch(p, module))
        if arch == "llama-embed" and re.search(r"attn_[qk]$", to):
            t = permute(t, heads if to.endswith("q") else c["num_key_value_heads"])
        if to == "position_embd" and offset:
            t = t.part(offset, t.shape[0] - offset)
        if to == "token_embd":
            vocab = t.shape[0]
        if len(t.shape) == 1 or "attn_rel_b" in to:
            t = t.f32((lambda x: x + 1) if arch == "gemma-embedding" and "norm" in to else (lambda x: x))
        g.add(f"{to}.{ending}", t)
    g.write(path, vocab, tokenizer_keys(source))
    return None


if __name__ == "__main__":
    why = convert(sys.argv[1], sys.argv[2])
    if why:
        sys.exit(why)
