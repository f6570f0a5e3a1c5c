# SPDX-License-Identifier: Apache-2.0
"""Token ids from a tokenizer.json in plain Python: WordPiece and Unigram with the parts that encoders' files have.

Written for generators that run where the tokenizers library is missing. encoders_more.py compares what it makes with the
vectors that sentence-transformers gave for models with the same vocabularies before it uses it. What a file has and this
does not know is an error.
"""

import json
import re
import unicodedata


def is_punctuation(c):
    return c < "\x80" and c.isprintable() and not c.isalnum() and c != " " or unicodedata.category(c).startswith("P")


def is_chinese(c):
    return any(a <= ord(c) <= b for a, b in ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
                                             (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)))


def bert_normalize(o, text):
    assert o["clean_text"] and o["handle_chinese_chars"] and o["strip_accents"] is None, o
    out = []
    for c in text:
        if c in "\t\n\r" or unicodedata.category(c) == "Zs":
            out.append(" ")
        elif c not in "\0\ufffd" and not unicodedata.category(c).startswith("C"):
            out.append(f" {c} " if is_chinese(c) else c)
    text = "".join(out)
    if not o["lowercase"]:
        return text
    return "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn").lower()


def normalize(o, text):
    kind = o["type"] if o else None
    if kind is None:
        return text
    if kind == "Sequence":
        for step in o["normalizers"]:
            text = normalize(step, text)
        return text
    if kind in ("NFC", "NFD", "NFKC", "NFKD"):
        return unicodedata.normalize(kind, text)
    if kind == "StripAccents":
        return "".join(c for c in text if unicodedata.category(c) != "Mn")
    if kind == "Lowercase":
        return text.lower()
    if kind == "Strip":
        text = text.lstrip() if o["strip_left"] else text
        return text.rstrip() if o["strip_right"] else text
    if kind == "Replace":
        if "String" in o["pattern"]:
            return text.replace(o["pattern"]["String"], o["content"])
        return re.sub(o["pattern"]["Regex"], o["content"], text)
    if kind == "BertNormalizer":
        return bert_normalize(o, text)
    raise ValueError(f"the normalizer {kind}")


def bert_words(text):
    out = []
    for word in text.split():
        at = ""
        for c in word:
            if is_punctuation(c):
                out += [at, c]
                at = ""
            else:
                at += c
        out.append(at)
    return [w for w in out if w]


def metaspace_words(o, text):
    assert o["prepend_scheme"] == "always" and o["split"], o
    mark = o["replacement"]
    text = text.replace(" ", mark)
    if text and not text.startswith(mark):
        text = mark + text
    return re.findall(f"{mark}[^{mark}]*|[^{mark}]+", text)


def words(o, text):
    if o["type"] == "BertPreTokenizer":
        return bert_words(text)
    if o["type"] == "Metaspace":
        return metaspace_words(o, text)
    if o["type"] == "Sequence" and len(o["pretokenizers"]) == 1:
        return words(o["pretokenizers"][0], text)
    raise ValueError(f"the pre-tokenizer {o['type']}")


class Tokens:
    def __init__(self, path):
        self.file = json.load(open(path, encoding="utf-8"))
        self.special = {a["content"]: a["id"] for a in self.file["added_tokens"]}
        m = self.file["model"]
        self.kind = m["type"]
        if self.kind == "Unigram":
            self.ids = {piece: i for i, (piece, _) in enumerate(m["vocab"])}
            self.scores = {piece: score for piece, score in m["vocab"]}
            self.unk, self.unk_score = m["unk_id"], min(self.scores.values()) - 10
            assert not m.get("byte_fallback")
        elif self.kind == "WordPiece":
            self.ids, self.unk = m["vocab"], m["vocab"][m["unk_token"]]
        else:
            raise ValueError(f"the model {self.kind}")

    def wordpiece(self, word):
        out, at = [], 0
        while at < len(word):
            end = len(word)
            while end > at and ("##" if at else "") + word[at:end] not in self.ids:
                end -= 1
            if end == at or len(word) > self.file["model"]["max_input_chars_per_word"]:
                return [self.unk]
            out.append(self.ids[("##" if at else "") + word[at:end]])
            at = end
        return out

    def unigram(self, word):
        best = [(0.0, None, None)] + [None] * len(word)  # score, where its last piece begins, the piece's id
        for at in range(len(word)):
            for end in range(at + 1, len(word) + 1):
                piece = word[at:end]
                known = piece in self.ids and self.ids[piece] != self.unk
                if not known and end > at + 1:
                    continue
                score = best[at][0] + (self.scores[piece] if known else self.unk_score)
                if best[end] is None or score > best[end][0]:
                    best[end] = (score, at, self.ids[piece] if known else self.unk)
        out, at = [], len(word)
        while at:
            if best[at][2] != self.unk or not out or out[-1] != self.unk:  # unknown characters side by side are one
                out.append(best[at][2])
            at = best[at][1]
        return out[::-1]

    def plain(self, text):
        assert not any(s in text for s in self.special), text
        split = words(self.file["pre_tokenizer"], normalize(self.file["normalizer"], text))
        return [i for w in split for i in (self.unigram(w) if self.kind == "Unigram" else self.wordpiece(w))]

    def encode(self, text, second=None):
        """ids and the kind of text of each."""
        ids, kinds = [], []
        parts = {"A": self.plain(text), "B": self.plain(second) if second is not None else None}
        for x in self.file["post_processor"]["single" if second is None else "pair"]:
            what = x.get("SpecialToken") or x.get("Sequence")
            more = [self.special[what["id"]]] if "SpecialToken" in x else parts[what["id"]]
            ids += more
            kinds += [what["type_id"]] * len(more)
        return ids, kinds
