#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes further tiny encoders, rerankers and classifiers like encoders.py, where sentence-transformers is missing.

  encoders_more.py OUT [NAME ...]

The model is that of transformers; ids come from plain_tokens.py, pooling is written here. Before anything else both are put
to the test: for models of encoders/ they must give the vectors and scores that sentence-transformers gave. The vocabularies are
those of these models, in the frame and with the normalizer that the published files of a family have. Texts longer than the
model are not among them.

    golden.json   as encoders.py, or {"reference", "labels": [...], "probs": [[...] per pair]} (classifiers)
"""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import encoders as base
import torch
from encoders import FF, H, HEADS, LAYERS, PAIRS, TEXTS, put
from plain_tokens import Tokens

REFERENCE = "plain pooling over transformers 5.16"


def tokens_of(out):
    return Tokens(f"{out}/tokenizer.json")


def inputs_of(tokens, text, second=None):
    ids, kinds = tokens.encode(text, second)
    return {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long),
            "token_type_ids": torch.tensor([kinds])}


def run(model, tokens, text, second=None, kinds=True, **kw):
    given = inputs_of(tokens, text, second)
    if not kinds:
        del given["token_type_ids"]
    with torch.no_grad():
        return model(**given, **kw)


def vectors(model, tokens, pooling, kinds):
    rows = []
    for text in TEXTS:
        x = run(model, tokens, text, kinds=kinds).last_hidden_state[0]
        x = x[0] if pooling == "cls_token" else x.mean(0)
        rows.append(x / x.norm())
    return torch.stack(rows)


def verify():
    """What sentence-transformers gave for models whose files are here already."""
    import array
    import transformers as tf
    for name, cls, pooling, kinds in (("bert_mean", tf.BertModel, "mean_tokens", True),
                                      ("xlm_roberta", tf.XLMRobertaModel, "cls_token", False)):
        out = f"{HERE}/encoders/{name}"
        want = array.array("f", open(f"{out}/vectors.f32", "rb").read())
        got = vectors(cls.from_pretrained(out).float().eval(), tokens_of(out), pooling, kinds)
        worst = (got - torch.tensor(want).view(got.shape)).abs().max()
        print(f"{name}: {worst:.2g} from sentence-transformers")
        assert worst < 1e-5, name
    for name, cls, kinds in (("bert_rerank", tf.BertForSequenceClassification, True),
                             ("xlmr_rerank", tf.XLMRobertaForSequenceClassification, False)):
        out = f"{HERE}/encoders/{name}"
        model, tokens = cls.from_pretrained(out).float().eval(), tokens_of(out)
        want = json.load(open(f"{out}/golden.json"))["scores"]
        got = [float(run(model, tokens, *p, kinds=kinds).logits[0, 0].sigmoid()) for p in PAIRS]
        worst = max(abs(a - b) for a, b in zip(got, want))
        print(f"{name}: {worst:.2g} from sentence-transformers")
        assert worst < 1e-5, name


# --- tokenizers ------------------------------------------------------------------------------------------------------


def put_tokenizer(out, file, length, **kw):
    put(f"{out}/tokenizer.json", file)
    put(f"{out}/tokenizer_config.json", {"model_max_length": length, "tokenizer_class": "PreTrainedTokenizerFast", **kw})


def wordpiece(out, length):
    file = json.load(open(f"{HERE}/encoders/bert_mean/tokenizer.json", encoding="utf-8"))
    put_tokenizer(out, file, length, cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", mask_token="[MASK]",
                  unk_token="[UNK]")


def special(kind, token, kind_of):
    return {kind: {"id": token, "type_id": kind_of}}


def unigram(out, length):
    """XLM-RoBERTa's vocabulary and frame."""
    file = json.load(open(f"{HERE}/encoders/xlm_roberta/tokenizer.json", encoding="utf-8"))
    put_tokenizer(out, file, length, bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", pad_token="<pad>",
                  mask_token="<mask>", unk_token="<unk>")


def bert_frame(file, names):
    """The tokens that XLM-RoBERTa's vocabulary begins with under other names, in BERT's frame."""
    for i, name in enumerate(names):
        file["added_tokens"][i]["content"] = file["model"]["vocab"][i][0] = name
    file["model"]["unk_id"] = names.index("[UNK]" if "[UNK]" in names else "<unk>")
    cls, end = special("SpecialToken", "[CLS]", 0), special("SpecialToken", "[SEP]", 0)
    a, b, end_b = special("Sequence", "A", 0), special("Sequence", "B", 1), special("SpecialToken", "[SEP]", 1)
    file["post_processor"] = {"type": "TemplateProcessing", "single": [cls, a, end], "pair": [cls, a, end, b, end_b],
                              "special_tokens": {t: {"id": t, "ids": [names.index(t)], "tokens": [t]} for t in ("[CLS]", "[SEP]")}}


def deberta_tokens(out, length):
    file = json.load(open(f"{HERE}/encoders/xlm_roberta/tokenizer.json", encoding="utf-8"))
    bert_frame(file, ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"])
    file["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFKC"},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [file["pre_tokenizer"]]}
    put_tokenizer(out, file, length, bos_token="[CLS]", eos_token="[SEP]", cls_token="[CLS]", sep_token="[SEP]",
                  pad_token="[PAD]", mask_token="[MASK]", unk_token="[UNK]", vocab_type="spm")


def albert_tokens(out, length):
    """Quotation marks, no accents, no capitals."""
    file = json.load(open(f"{HERE}/encoders/xlm_roberta/tokenizer.json", encoding="utf-8"))
    bert_frame(file, ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"])
    file["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}, {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
        {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    put_tokenizer(out, file, length, bos_token="[CLS]", eos_token="[SEP]", cls_token="[CLS]", sep_token="[SEP]",
                  pad_token="<pad>", mask_token="[MASK]", unk_token="<unk>")


def t5_tokens(out, length):
    """T5's vocabulary and frame, which a pair has in the middle, too."""
    file = json.load(open(f"{HERE}/encoders/t5_encoder/tokenizer.json", encoding="utf-8"))
    put_tokenizer(out, file, length, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


# --- directories -----------------------------------------------------------------------------------------------------


def made(family, out, cls, config, tok, length):
    import transformers
    tok(out, length)
    tokens = tokens_of(out)
    cfg = config(len(tokens.ids))
    cfg.architectures = None
    base.save_model(family, out, getattr(transformers, cls)(cfg))
    return getattr(transformers, cls).from_pretrained(out).float().eval(), tokens


def encoder(cls, config, tok, pooling, kinds=True, length=300):
    def make(family, out):
        model, tokens = made(family, out, cls, config, tok, length)
        base.modules(out, pooling, length=length, family=family)
        base.write_vectors(out, [vectors(model, tokens, pooling, kinds)], [None], REFERENCE)
    return make


def reranker(cls, config, tok, kinds=True, length=300):
    def make(family, out):
        model, tokens = made(family, out, cls, config, tok, length)
        scores = [float(run(model, tokens, *p, kinds=kinds).logits[0, 0].sigmoid()) for p in PAIRS]
        put(f"{out}/golden.json", {"reference": REFERENCE, "scores": scores})
    return make


def classifier(cls, config, tok, kinds=True, length=300):
    """Pairs and, as many, single texts; the activation is the one that problem_type means."""
    def make(family, out):
        model, tokens = made(family, out, cls, config, tok, length)
        many = model.config.problem_type == "multi_label_classification"
        probs = []
        for x in PAIRS + [[t] for t in TEXTS[: len(PAIRS)]]:
            y = run(model, tokens, *x, kinds=kinds).logits[0]
            probs.append([float(p) for p in (y.sigmoid() if many else y.softmax(-1))])
        names = model.config.id2label
        put(f"{out}/golden.json", {"reference": REFERENCE, "labels": [names[i] for i in range(len(names))], "probs": probs})
    return make


def cfg(name, **kw):
    def make(n_vocab):
        import transformers
        fields = dict(vocab_size=n_vocab, hidden_size=H, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                      intermediate_size=FF, max_position_embeddings=300)
        fields.update(kw)
        return getattr(transformers, name)(**fields)
    return make


MOODS = dict(num_labels=2, id2label={0: "NEGATIVE", 1: "POSITIVE"}, label2id={"NEGATIVE": 0, "POSITIVE": 1})
V3 = dict(relative_attention=True, position_buckets=16, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p",
          position_biased_input=False, type_vocab_size=0, max_relative_positions=-1, layer_norm_eps=1e-7, pad_token_id=0)
NARROW = dict(embedding_size=24, pad_token_id=0)
BERT = dict(pad_token_id=0)
NLI = dict(num_labels=3, id2label={0: "contradiction", 1: "entailment", 2: "neutral"},
           label2id={"contradiction": 0, "entailment": 1, "neutral": 2})

MODELS = {
    "deberta_v3": encoder("DebertaV2Model", cfg("DebertaV2Config", **V3), deberta_tokens, "mean_tokens"),
    # Every distance by itself, few of them, matrices of its own, positions and kinds of text, a narrow embedding
    "deberta_v2": encoder("DebertaV2Model",
                          cfg("DebertaV2Config", relative_attention=True, max_relative_positions=12, pos_att_type=["c2p", "p2c"],
                              type_vocab_size=2, layer_norm_eps=1e-7, pad_token_id=0, embedding_size=24, hidden_act="gelu_new"),
                          deberta_tokens, "cls_token"),
    "deberta_v1": encoder("DebertaModel",
                          cfg("DebertaConfig", relative_attention=True, max_relative_positions=20, pos_att_type=["c2p", "p2c"],
                              position_biased_input=False, layer_norm_eps=1e-7, pad_token_id=0), deberta_tokens, "mean_tokens"),
    "deberta_v1_nli": classifier("DebertaForSequenceClassification",
                                 cfg("DebertaConfig", relative_attention=True, pos_att_type="c2p|p2c", position_biased_input=False,
                                     layer_norm_eps=1e-7, pad_token_id=0, **NLI), deberta_tokens),
    "deberta_rerank": reranker("DebertaV2ForSequenceClassification",
                               cfg("DebertaV2Config", num_labels=1, pooler_hidden_act="gelu", **V3), deberta_tokens),
    "electra": encoder("ElectraModel", cfg("ElectraConfig", **NARROW), wordpiece, "mean_tokens"),
    "electra_rerank": reranker("ElectraForSequenceClassification", cfg("ElectraConfig", num_labels=1, **NARROW), wordpiece),
    "ernie": encoder("ErnieModel", cfg("ErnieConfig", use_task_id=True, task_type_vocab_size=3, **BERT), wordpiece, "cls_token"),
    "albert": encoder("AlbertModel", cfg("AlbertConfig", num_hidden_layers=3, **NARROW), albert_tokens, "mean_tokens"),
    "xlm_roberta_xl": encoder("XLMRobertaXLModel", cfg("XLMRobertaXLConfig", **base.ROB), unigram, "mean_tokens", kinds=False),
    "roberta_pre_nli": classifier("RobertaPreLayerNormForSequenceClassification", cfg("RobertaPreLayerNormConfig", **base.ROB, **NLI),
                                  unigram, kinds=False),
    "albert_moods": classifier("AlbertForSequenceClassification", cfg("AlbertConfig", **NARROW, **MOODS), albert_tokens),
    "bert_topics": classifier("BertForSequenceClassification",
                              cfg("BertConfig", problem_type="multi_label_classification", num_labels=4, **BERT), wordpiece),
    "xlmr_nli": classifier("XLMRobertaForSequenceClassification", cfg("XLMRobertaConfig", **base.ROB, **NLI), unigram, kinds=False),
    "qwen3_moods": classifier("Qwen3ForSequenceClassification",
                              cfg("Qwen3Config", num_key_value_heads=2, head_dim=16, pad_token_id=0, eos_token_id=1, **MOODS),
                              t5_tokens, kinds=False),
    "deberta_nli": classifier("DebertaV2ForSequenceClassification",
                              cfg("DebertaV2Config", **{**V3, "max_relative_positions": 40, "position_buckets": 8}, **NLI), deberta_tokens),
}


def main():
    out, names = sys.argv[1], sys.argv[2:] or list(MODELS)
    verify()
    for name in names:
        path = os.path.join(out, name)
        os.makedirs(path)
        MODELS[name](name, path)
        print(name, sum(os.path.getsize(os.path.join(r, f)) for r, _, fs in os.walk(path) for f in fs), "bytes")


if __name__ == "__main__":
    main()
