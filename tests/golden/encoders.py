#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny encoders, embedding models and rerankers, with the vectors and scores that sentence-transformers gives.

  encoders.py OUT [NAME ...]

OUT receives encoders.tar.gz (one directory per model) and summary.json. A model's directory is what sentence-transformers
saves (config.json, bf16 weights, tokenizer, modules.json, pooling, dense layers, prompts), and

    golden.json   {"reference", "dim", "prompts": [name or null, ...]} or {"reference", "scores": [...]}
    vectors.f32   little-endian [prompts][texts][dim]

The texts and pairs are those of encoder_texts.json. Models that transformers lacks (jina_bert_v2, gte_new, nomic_moe) and
bidirectional ones that it only runs with code of their authors (llama_bidirec, qwen2_whole) are computed here in plain torch.
One model that fails does not stop the others; summary.json says why.
"""

import os
import sys

for _k, _v in {"CUDA_VISIBLE_DEVICES": "", "USE_HUB_KERNELS": "NO", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
               "TOKENIZERS_PARALLELISM": "false"}.items():
    os.environ[_k] = _v

import json
import math
import re
import shutil
import struct
import tarfile
import tempfile
import traceback
import zlib

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = json.load(open(os.path.join(HERE, "encoder_texts.json"), encoding="utf-8"))
TEXTS, PAIRS = DATA["texts"], DATA["pairs"]
H, HEADS, FF, LAYERS = 32, 4, 64, 2


def noise(family, name, shape):
    g = torch.Generator().manual_seed(zlib.crc32(f"{family}/{name}".encode()))
    return torch.randn(shape, generator=g, dtype=torch.float32)


def value(family, name, shape, default):
    """Every tensor is random: norms around what they start with, matrices so that rows keep their size."""
    if re.search(r"relative_attention_bias", name):
        return noise(family, name, shape)
    if len(shape) <= 1:
        base = 0.0 if default is None else float(default.float().mean().round())
        return base + (0.25 if "orm" in name or "emb_ln" in name else 0.15) * noise(family, name, shape)
    if re.search(r"(embeddings|embed_tokens|shared)(\.weight)?$", name):
        return (0.5 if "position" in name or "token_type" in name else 1.0) * noise(family, name, shape)
    gain = 1.4 if re.search(r"(query|key|q_proj|k_proj|\.q|\.k|q_lin|k_lin|Wqkv)\.weight$", name) else 1.0
    return gain * noise(family, name, shape) / math.sqrt(shape[-1])


def fill(family, model):
    with torch.no_grad():
        for name, t in model.state_dict().items():
            if t.is_floating_point():
                t.copy_(value(family, name, tuple(t.shape), t).to(torch.bfloat16).float())


# --- tokenizers ------------------------------------------------------------------------------------------------------


def corpus():
    return TEXTS + [x for p in PAIRS for x in p]


def template(single, pair, ids):
    from tokenizers.processors import TemplateProcessing
    return TemplateProcessing(single=single, pair=pair, special_tokens=list(ids.items()))


def wordpiece(style="bert"):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    bert = style == "bert"
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] if bert else ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=200, special_tokens=specials, show_progress=False))
    cls, sep = ("[CLS]", "[SEP]") if bert else ("<s>", "</s>")
    ids = {cls: t.token_to_id(cls), sep: t.token_to_id(sep)}
    t.post_processor = (template(f"{cls}:0 $A:0 {sep}:0", f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1", ids) if bert else
                        template(f"{cls} $A {sep}", f"{cls} $A {sep} {sep} $B {sep}", ids))
    pad, mask = ("[PAD]", "[MASK]") if bert else ("<pad>", "<mask>")
    kw = dict(unk_token="[UNK]", cls_token=cls, sep_token=sep, pad_token=pad, mask_token=mask)
    return t, kw, bert


def unigram(style="xlmr"):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" {2,}", " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    special = {"xlmr": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "t5": ["<pad>", "</s>", "<unk>"],
               "gemma": ["<pad>", "<eos>", "<bos>", "<unk>"]}[style]
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=220, special_tokens=special, unk_token="<unk>",
                                                            show_progress=False))
    ids = {s: t.token_to_id(s) for s in special}
    if style == "xlmr":
        t.post_processor = template("<s> $A </s>", "<s> $A </s> </s> $B </s>", {k: ids[k] for k in ("<s>", "</s>")})
        kw = dict(bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", pad_token="<pad>",
                  mask_token="<mask>", unk_token="<unk>")
    elif style == "t5":
        t.post_processor = template("$A </s>", "$A </s> $B </s>", {"</s>": ids["</s>"]})
        kw = dict(eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    else:
        t.post_processor = template("<bos> $A <eos>", "<bos> $A <eos> $B <eos>", {k: ids[k] for k in ("<bos>", "<eos>")})
        kw = dict(bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", unk_token="<unk>")
    return t, kw, False


def bpe(style="modernbert"):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    special = {"modernbert": ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"], "roberta": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
               "qwen": ["<|endoftext|>"], "euro": ["<|begin_of_text|>", "<|end_of_text|>"]}[style]
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    ids = {s: t.token_to_id(s) for s in special}
    if style == "modernbert":
        t.post_processor = template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", {k: ids[k] for k in ("[CLS]", "[SEP]")})
        kw = dict(cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", mask_token="[MASK]", unk_token="[UNK]")
    elif style == "roberta":
        t.post_processor = template("<s> $A </s>", "<s> $A </s> </s> $B </s>", {k: ids[k] for k in ("<s>", "</s>")})
        kw = dict(cls_token="<s>", sep_token="</s>", bos_token="<s>", eos_token="</s>", pad_token="<pad>",
                  mask_token="<mask>", unk_token="<unk>")
    elif style == "qwen":
        t.post_processor = template("$A <|endoftext|>", "$A <|endoftext|> $B <|endoftext|>", ids)
        kw = dict(eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    else:
        t.post_processor = template("<|begin_of_text|> $A <|end_of_text|>",
                                    "<|begin_of_text|> $A <|end_of_text|> $B <|end_of_text|>", ids)
        kw = dict(bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>", pad_token="<|end_of_text|>")
    return t, kw, False


def save_tokenizer(made, out, length, left=False):
    from transformers import PreTrainedTokenizerFast
    t, kw, types = made
    names = ["input_ids", "token_type_ids", "attention_mask"] if types else ["input_ids", "attention_mask"]
    f = PreTrainedTokenizerFast(tokenizer_object=t, model_max_length=length, model_input_names=names,
                                padding_side="left" if left else "right", **kw)
    f.save_pretrained(out)
    return t


# --- sentence-transformers directories -----------------------------------------------------------------------------


def st_write(path, tensors):
    header, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(tensors):
        data = tensors[name].detach().to(torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + b"".join(blobs))


def put(path, obj):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(obj, f, ensure_ascii=False, indent=2)


def modules(out, pooling, dense=(), normalize=True, prompts=None, default=None, include_prompt=True, length=512, family=""):
    rows = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    modes = {k: False for k in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")}
    modes[pooling] = True
    put(f"{out}/1_Pooling/config.json", {"word_embedding_dimension": H, **{f"pooling_mode_{k}": v for k, v in modes.items()},
                                        "include_prompt": include_prompt})
    for n, (wide, narrow, bias, act) in enumerate(dense):
        path = f"{n + 2}_Dense"
        rows.append({"idx": n + 2, "name": str(n + 2), "path": path, "type": "sentence_transformers.models.Dense"})
        put(f"{out}/{path}/config.json", {"in_features": wide, "out_features": narrow, "bias": bias,
                                          "activation_function": f"torch.nn.modules.{act}"})
        w = {"linear.weight": noise(family, f"dense{n}", (narrow, wide)) / math.sqrt(wide)}
        if bias:
            w["linear.bias"] = 0.2 * noise(family, f"dense{n}b", (narrow,))
        st_write(f"{out}/{path}/model.safetensors", w)
    if normalize:
        n = len(rows)
        rows.append({"idx": n, "name": str(n), "path": f"{n}_Normalize", "type": "sentence_transformers.models.Normalize"})
    put(f"{out}/modules.json", rows)
    put(f"{out}/sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    put(f"{out}/config_sentence_transformers.json",
        {"__version__": {"sentence_transformers": "3.0.0", "transformers": "4.41.0", "pytorch": "2.3.0"},
         "prompts": prompts or {}, "default_prompt_name": default, "similarity_fn_name": "cosine"})


def save_model(family, out, model):
    fill(family, model)
    model = model.to(torch.bfloat16)
    model.save_pretrained(out, safe_serialization=True)


def write_vectors(out, all_vectors, names, reference):
    rows = torch.stack([v.float() for v in all_vectors])
    put(f"{out}/golden.json", {"reference": reference, "dim": rows.shape[-1], "prompts": names})
    with open(f"{out}/vectors.f32", "wb") as f:
        f.write(rows.numpy().astype("<f4").tobytes())


def reference_vectors(out, prompts):
    import sentence_transformers
    st = sentence_transformers.SentenceTransformer(out, device="cpu", model_kwargs={"dtype": torch.float32})
    st.eval()
    names, rows = [None] + list(prompts or {}), []
    for n in names:
        kw = {"prompt_name": n} if n else {}
        rows.append(torch.tensor(st.encode(TEXTS, batch_size=4, show_progress_bar=False, **kw)))
    write_vectors(out, rows, names, f"sentence-transformers {sentence_transformers.__version__}")


def reference_scores(out):
    import sentence_transformers
    ce = sentence_transformers.CrossEncoder(out, device="cpu", model_kwargs={"dtype": torch.float32})
    scores = ce.predict([tuple(p) for p in PAIRS], batch_size=4, show_progress_bar=False)
    put(f"{out}/golden.json", {"reference": f"sentence-transformers {sentence_transformers.__version__}",
                               "scores": [float(s) for s in scores]})


def encoder(cls, config, tok, pooling, length=512, left=False, **kw):
    def run(family, out):
        t = save_tokenizer(tok(), out, length, left)
        cfg = config(t)
        save_model(family, out, cls()(cfg))
        modules(out, pooling, length=length, family=family, **kw)
        reference_vectors(out, kw.get("prompts"))
    return run


def reranker(cls, config, tok, extra=None, length=512):
    def run(family, out):
        t = save_tokenizer(tok(), out, length)
        cfg = config(t)
        cfg.num_labels = 1
        save_model(family, out, cls()(cfg))
        if extra:
            c = json.load(open(f"{out}/config.json"))
            c.update(extra)
            put(f"{out}/config.json", c)
        reference_scores(out)
    return run


# --- models that transformers runs ---------------------------------------------------------------------------------

def tf(name):
    def get():
        import transformers
        return getattr(transformers, name)
    return get


def cfg(name, **kw):
    def make(t):
        import transformers
        base = dict(vocab_size=t.get_vocab_size(), hidden_size=H, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                    intermediate_size=FF, max_position_embeddings=300)
        base.update(kw)
        return getattr(transformers, name)(**base)
    return make


ROB = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, max_position_embeddings=302, type_vocab_size=1, layer_norm_eps=1e-5)
QUERY = {"query": "Represent this sentence for searching relevant passages: "}
BOTH = {"query": "task: search result | query: ", "document": "title: none | text: "}


def distil(t):
    import transformers
    return transformers.DistilBertConfig(vocab_size=t.get_vocab_size(), dim=H, n_layers=LAYERS, n_heads=HEADS,
                                         hidden_dim=FF, max_position_embeddings=300, pad_token_id=0)


def t5(gated):
    def make(t):
        import transformers
        return transformers.T5Config(vocab_size=t.get_vocab_size(), d_model=H, d_kv=16, d_ff=FF, num_layers=LAYERS,
                                     num_heads=HEADS, feed_forward_proj="gated-gelu" if gated else "relu",
                                     pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
    return make


MODELS = {
    "bert_mean": encoder(tf("BertModel"), cfg("BertConfig"), wordpiece, "mean_tokens"),
    "bert_cls": encoder(tf("BertModel"), cfg("BertConfig", hidden_act="gelu_new"), wordpiece, "cls_token", prompts=QUERY),
    "bert_max": encoder(tf("BertModel"), cfg("BertConfig"), wordpiece, "max_tokens", normalize=False),
    "bert_prompt": encoder(tf("BertModel"), cfg("BertConfig"), wordpiece, "mean_tokens", prompts=BOTH, default="document",
                           include_prompt=False),
    "bert_sqrt": encoder(tf("BertModel"), cfg("BertConfig"), wordpiece, "mean_sqrt_len_tokens", normalize=False,
                         dense=[(H, 16, True, "activation.Tanh")]),
    "roberta": encoder(tf("RobertaModel"), cfg("RobertaConfig", **ROB), lambda: bpe("roberta"), "mean_tokens", normalize=False,
                       length=300),
    "xlm_roberta": encoder(tf("XLMRobertaModel"), cfg("XLMRobertaConfig", **ROB), unigram, "cls_token", length=300),
    "distilbert": encoder(tf("DistilBertModel"), distil, wordpiece, "mean_tokens"),
    "mpnet": encoder(tf("MPNetModel"), cfg("MPNetConfig", max_position_embeddings=302, layer_norm_eps=1e-5, pad_token_id=1,
                                           bos_token_id=0, eos_token_id=2),
                     lambda: wordpiece("mpnet"), "mean_tokens", length=300),
    "modernbert": encoder(tf("ModernBertModel"),
                          cfg("ModernBertConfig", num_hidden_layers=4, local_attention=8, pad_token_id=3, bos_token_id=1,
                              cls_token_id=1, sep_token_id=2, eos_token_id=2), bpe, "cls_token"),
    "modernbert_silu": encoder(tf("ModernBertModel"),
                               cfg("ModernBertConfig", num_hidden_layers=3, local_attention=16, hidden_activation="silu",
                                   norm_bias=True, attention_bias=True, mlp_bias=True, pad_token_id=3, bos_token_id=1,
                                   cls_token_id=1, sep_token_id=2, eos_token_id=2), bpe, "mean_tokens"),
    "nomic_bert": encoder(tf("NomicBertModel"), cfg("NomicBertConfig", pad_token_id=0), wordpiece, "mean_tokens",
                          prompts={"query": "search_query: ", "document": "search_document: "}),
    "jina_v3": encoder(tf("JinaEmbeddingsV3Model"), cfg("JinaEmbeddingsV3Config", pad_token_id=1), unigram, "mean_tokens",
                       length=300),
    "eurobert": encoder(tf("EuroBertModel"), cfg("EuroBertConfig", num_key_value_heads=2, pad_token_id=1, bos_token_id=0,
                                                 eos_token_id=1, mask_token_id=2), lambda: bpe("euro"), "mean_tokens"),
    "gemma_embedding": encoder(tf("Gemma3TextModel"),
                               cfg("Gemma3TextConfig", num_key_value_heads=1, head_dim=16, sliding_window=8, num_hidden_layers=3,
                                   layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                                   use_bidirectional_attention=True, query_pre_attn_scalar=16, pad_token_id=0, eos_token_id=1,
                                   bos_token_id=2),
                               lambda: unigram("gemma"), "mean_tokens", prompts=BOTH,
                               dense=[(H, 96, False, "linear.Identity"), (96, H, False, "linear.Identity")]),
    "qwen3_embedding": encoder(tf("Qwen3Model"), cfg("Qwen3Config", num_key_value_heads=2, head_dim=16, pad_token_id=0,
                                                     eos_token_id=0, bos_token_id=0),
                               lambda: bpe("qwen"), "lasttoken", left=True,
                               prompts={"query": "Instruct: Given a web search query, retrieve relevant passages\nQuery:"}),
    "t5_encoder": encoder(tf("T5EncoderModel"), t5(False), lambda: unigram("t5"), "mean_tokens", length=256,
                          dense=[(H, H, False, "linear.Identity")]),
    "t5_gated": encoder(tf("T5EncoderModel"), t5(True), lambda: unigram("t5"), "mean_tokens", length=256),
    "bert_rerank": reranker(tf("BertForSequenceClassification"), cfg("BertConfig"), wordpiece),
    "bert_rerank_raw": reranker(tf("BertForSequenceClassification"), cfg("BertConfig"), wordpiece,
                                {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.0.1"}}),
    "roberta_rerank": reranker(tf("RobertaForSequenceClassification"), cfg("RobertaConfig", **ROB), lambda: bpe("roberta"), length=300),
    "xlmr_rerank": reranker(tf("XLMRobertaForSequenceClassification"), cfg("XLMRobertaConfig", **ROB), unigram, length=300),
    "distilbert_rerank": reranker(tf("DistilBertForSequenceClassification"), distil, wordpiece),
    "modernbert_rerank": reranker(tf("ModernBertForSequenceClassification"),
                                  cfg("ModernBertConfig", num_hidden_layers=3, local_attention=8, classifier_pooling="mean",
                                      pad_token_id=3, bos_token_id=1, cls_token_id=1, sep_token_id=2, eos_token_id=2), bpe),
}

# --- models computed here ------------------------------------------------------------------------------------------


def own(config, shapes, tok, forward, length=300):
    """config(t) -> config.json; shapes(config) -> tensors; forward(config, weights, ids) -> rows. Mean and normalised."""
    def run(family, out):
        t = save_tokenizer(tok(), out, length)
        c = config(t)
        put(f"{out}/config.json", c)
        w = {}
        for name, shape in shapes(c).items():
            ones = torch.ones(shape) if re.search(r"(norm|Norm|ln)[^.]*\.weight$", name) else torch.zeros(shape)
            w[name] = value(family, name, shape, ones).to(torch.bfloat16).float()
        st_write(f"{out}/model.safetensors", w)
        modules(out, "mean_tokens", length=length, family=family)
        rows = []
        for text in TEXTS:
            ids = t.encode(text).ids[:length]
            x = forward(c, w, ids).mean(0)
            rows.append(x / x.norm())
        write_vectors(out, [torch.stack(rows)], [None], "tests/golden/encoders.py, float32")
    return run


def lin(w, name, x):
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def ln(w, name, x, eps):
    return F.layer_norm(x, (x.shape[-1],), w[name + ".weight"], w[name + ".bias"], eps)


def rms(w, name, x, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w[name + ".weight"]


def attend(q, k, v, heads, kv, bias=None):
    n, d = q.shape[0], q.shape[1] // heads
    q = q.view(n, heads, d).transpose(0, 1)
    k = k.view(n, kv, d).transpose(0, 1).repeat_interleave(heads // kv, 0)
    v = v.view(n, kv, d).transpose(0, 1).repeat_interleave(heads // kv, 0)
    s = q @ k.transpose(1, 2) / math.sqrt(d)
    if bias is not None:
        s = s + bias
    return (s.softmax(-1) @ v).transpose(0, 1).reshape(n, -1)


def rope(x, heads, freq):
    n, d = x.shape[0], x.shape[1] // heads
    a = torch.outer(torch.arange(n).float(), freq)
    c, s = torch.cat([a, a], 1).cos()[:, None], torch.cat([a, a], 1).sin()[:, None]
    x = x.view(n, heads, d)
    half = torch.cat([-x[..., d // 2:], x[..., : d // 2]], -1)
    return (x * c + half * s).reshape(n, -1)


def slopes(n):
    def power(m):
        return [2.0 ** (-8.0 * (i + 1) / m) for i in range(m)]
    low = 2 ** int(math.floor(math.log2(n)))
    return torch.tensor(power(low) + power(2 * low)[0::2][: n - low])


def pair(name, rows, cols, out):
    out[name + ".weight"] = (rows, cols)
    out[name + ".bias"] = (rows,)


def norm_shapes(name, n, out):
    out[name + ".weight"] = (n,)
    out[name + ".bias"] = (n,)


def jina_shapes(c):
    n, ff, s = c["hidden_size"], c["intermediate_size"], {}
    s["embeddings.word_embeddings.weight"] = (c["vocab_size"], n)
    s["embeddings.token_type_embeddings.weight"] = (2, n)
    norm_shapes("embeddings.LayerNorm", n, s)
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        for x in ("self.query", "self.key", "self.value", "output.dense"):
            pair(p + "attention." + x, n, n, s)
        norm_shapes(p + "attention.output.LayerNorm", n, s)
        s[p + "mlp.gated_layers.weight"] = (2 * ff, n)
        pair(p + "mlp.wo", n, ff, s)
        norm_shapes(p + "mlp.layernorm", n, s)
    return s


def jina_forward(c, w, ids):
    eps, heads = c["layer_norm_eps"], c["num_attention_heads"]
    n = len(ids)
    d = (torch.arange(n)[:, None] - torch.arange(n)[None]).abs().float()
    bias = -slopes(heads)[:, None, None] * d
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
    x = ln(w, "embeddings.LayerNorm", x, eps)
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        a = attend(*(lin(w, p + "attention.self." + y, x) for y in ("query", "key", "value")), heads, heads, bias)
        x = ln(w, p + "attention.output.LayerNorm", lin(w, p + "attention.output.dense", a) + x, eps)
        gate, up = lin(w, p + "mlp.gated_layers", x).chunk(2, -1)
        x = ln(w, p + "mlp.layernorm", lin(w, p + "mlp.wo", F.gelu(gate) * up) + x, eps)
    return x


def jina_config(t):
    return {"architectures": ["JinaBertForMaskedLM"], "model_type": "bert", "vocab_size": t.get_vocab_size(), "hidden_size": 48,
            "num_hidden_layers": LAYERS, "num_attention_heads": 6, "intermediate_size": FF, "hidden_act": "gelu",
            "feed_forward_type": "geglu", "position_embedding_type": "alibi", "max_position_embeddings": 300,
            "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0}


def gte_shapes(c):
    n, ff, s = c["hidden_size"], c["intermediate_size"], {}
    s["embeddings.word_embeddings.weight"] = (c["vocab_size"], n)
    s["embeddings.token_type_embeddings.weight"] = (1, n)
    norm_shapes("embeddings.LayerNorm", n, s)
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        pair(p + "attention.qkv_proj", 3 * n, n, s)
        pair(p + "attention.o_proj", n, n, s)
        s[p + "mlp.up_gate_proj.weight"] = (2 * ff, n)
        pair(p + "mlp.down_proj", n, ff, s)
        norm_shapes(p + "attn_ln", n, s)
        norm_shapes(p + "mlp_ln", n, s)
    return s


def gte_forward(c, w, ids):
    eps, heads, f = c["layer_norm_eps"], c["num_attention_heads"], c["rope_scaling"]["factor"]
    d = c["hidden_size"] // heads
    freq = 1.0 / ((c["rope_theta"] * f) ** (torch.arange(0, d, 2).float() / d)) / f ** (2 / d)
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
    x = ln(w, "embeddings.LayerNorm", x, eps)
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        q, k, v = lin(w, p + "attention.qkv_proj", x).chunk(3, -1)
        a = attend(rope(q, heads, freq), rope(k, heads, freq), v, heads, heads)
        x = ln(w, p + "attn_ln", lin(w, p + "attention.o_proj", a) + x, eps)
        up, gate = lin(w, p + "mlp.up_gate_proj", x).chunk(2, -1)
        x = ln(w, p + "mlp_ln", lin(w, p + "mlp.down_proj", F.gelu(gate) * up) + x, eps)
    return x


def gte_config(t):
    return {"architectures": ["NewModel"], "model_type": "new", "vocab_size": t.get_vocab_size(), "hidden_size": H,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": FF, "hidden_act": "gelu",
            "position_embedding_type": "rope", "rope_theta": 20000, "rope_scaling": {"factor": 8.0, "type": "ntk"},
            "max_position_embeddings": 300, "type_vocab_size": 1, "layer_norm_eps": 1e-12, "layer_norm_type": "layer_norm",
            "pack_qkv": True, "pad_token_id": 1}


def decoder_shapes(c):
    n, ff, heads, kv, s = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"], c["num_key_value_heads"], {}
    d = c.get("head_dim") or n // heads
    s["embed_tokens.weight"] = (c["vocab_size"], n)
    s["norm.weight"] = (n,)
    for i in range(c["num_hidden_layers"]):
        p = f"layers.{i}."
        for x, rows in (("q_proj", heads * d), ("k_proj", kv * d), ("v_proj", kv * d)):
            s[p + f"self_attn.{x}.weight"] = (rows, n)
            if c["model_type"] == "qwen2":
                s[p + f"self_attn.{x}.bias"] = (rows,)
        s[p + "self_attn.o_proj.weight"] = (n, heads * d)
        s[p + "input_layernorm.weight"] = s[p + "post_attention_layernorm.weight"] = (n,)
        for x in ("gate_proj", "up_proj"):
            s[p + f"mlp.{x}.weight"] = (ff, n)
        s[p + "mlp.down_proj.weight"] = (n, ff)
    return s


def decoder_forward(c, w, ids):
    eps, heads, kv = c["rms_norm_eps"], c["num_attention_heads"], c["num_key_value_heads"]
    d = c["hidden_size"] // heads
    freq = 1.0 / (c["rope_theta"] ** (torch.arange(0, d, 2).float() / d))
    x = w["embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"layers.{i}."
        n = rms(w, p + "input_layernorm", x, eps)
        q, k, v = (lin(w, p + f"self_attn.{y}_proj", n) for y in "qkv")
        x = x + lin(w, p + "self_attn.o_proj", attend(rope(q, heads, freq), rope(k, kv, freq), v, heads, kv))
        n = rms(w, p + "post_attention_layernorm", x, eps)
        x = x + lin(w, p + "mlp.down_proj", F.silu(lin(w, p + "mlp.gate_proj", n)) * lin(w, p + "mlp.up_proj", n))
    return rms(w, "norm", x, eps)


def decoder_config(kind, **kw):
    def make(t):
        return {"model_type": kind, "vocab_size": t.get_vocab_size(), "hidden_size": H, "num_hidden_layers": LAYERS,
                "num_attention_heads": HEADS, "num_key_value_heads": 2, "intermediate_size": FF, "rms_norm_eps": 1e-6,
                "rope_theta": 10000.0, "max_position_embeddings": 300, "hidden_act": "silu", "tie_word_embeddings": False, **kw}
    return make


MODELS["jina_bert_v2"] = own(jina_config, jina_shapes, wordpiece, jina_forward)
MODELS["gte_new"] = own(gte_config, gte_shapes, unigram, gte_forward)
MODELS["llama_bidirec"] = own(decoder_config("llama_bidirec"), decoder_shapes, lambda: bpe("euro"), decoder_forward)
MODELS["qwen2_whole"] = own(decoder_config("qwen2", is_causal=False), decoder_shapes, lambda: bpe("qwen"), decoder_forward)


def main():
    out, names = sys.argv[1], sys.argv[2:] or list(MODELS)
    os.makedirs(out, exist_ok=True)
    work, summary = tempfile.mkdtemp(), {}
    for name in names:
        path = os.path.join(work, name)
        os.makedirs(path)
        try:
            MODELS[name](name, path)
            summary[name] = {"ok": True, "bytes": sum(os.path.getsize(os.path.join(r, f)) for r, _, fs in os.walk(path) for f in fs)}
        except Exception as e:  # one model's fault is not the others'
            summary[name] = {"ok": False, "error": f"{type(e).__name__}: {e}", "where": traceback.format_exc()[-1500:]}
        print(name, "ok" if summary[name]["ok"] else summary[name]["error"], flush=True)
    json.dump(summary, open(os.path.join(out, "summary.json"), "w"), indent=1)
    with tarfile.open(os.path.join(out, "encoders.tar.gz"), "w:gz") as tar:
        tar.add(work, arcname="encoders")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
