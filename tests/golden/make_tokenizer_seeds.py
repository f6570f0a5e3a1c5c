#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers of every kind, as fuzz seeds: make_tokenizer_seeds.py tests/fuzz/corpus"""
import base64
import json
import os
import struct
import sys


def put(root, target, name, data):
    os.makedirs(os.path.join(root, target), exist_ok=True)
    with open(os.path.join(root, target, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode("utf-8"))


def charsmap():
    """A double array with the one rule A -> a."""
    units = [0] * 256
    units[0] = 1 << 10                        # children of the root at 1 ^ byte
    units[1 ^ 0x41] = 0x41 | 1 << 8 | 0x43 << 10
    units[(1 ^ 0x41) ^ 0x43] = 1 << 31        # value: offset 0 of the texts
    return struct.pack("<I", 4 * len(units)) + struct.pack("<256I", *units) + b"a\0"


ADDED = [{"id": 0, "content": "<unk>", "special": True}, {"id": 40, "content": "<|x|>", "special": True, "lstrip": True, "rstrip": True},
         {"id": 41, "content": "solo", "single_word": True, "normalized": True}]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+"


def tokenizer(model, **parts):
    return json.dumps(dict({"version": "1.0", "added_tokens": ADDED, "normalizer": None, "pre_tokenizer": None, "post_processor": None,
                            "decoder": None, "model": model}, **parts))


def bpe(extra=None, **kw):
    tokens = ["<unk>", "a", "b", "c", "Ġ", "é", "ab", "abc", "Ġa", "▁", "▁a", "1", "<0xC3>", "<0xA9>", "\u010a"] + (extra or [])
    return dict({"type": "BPE", "unk_token": "<unk>", "vocab": {t: i for i, t in enumerate(tokens)},
                 "merges": ["a b", ["ab", "c"], "Ġ a", "▁ a"]}, **kw)


def pb(number, value):
    def varint(v):
        out = b""
        while v > 127:
            out += bytes([v & 127 | 128])
            v >>= 7
        return out + bytes([v])
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def sentencepiece(model_type, **kw):
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("▁", -2.0, 1), ("a", -3.0, 1), ("b", -3.5, 1), ("ab", -1.0, 1),
              ("▁a", -1.5, 1), ("▁ab", -1.2, 1), ("solo", 0.0, 4), ("old", -4.0, 5)] + [("<0x%02X>" % i, 0.0, 6) for i in (0xC3, 0xA9, 0x0A)]
    out = b"".join(pb(1, pb(1, p.encode()) + pb(2, s) + pb(3, t)) for p, s, t in pieces)
    out += pb(2, pb(3, model_type) + pb(35, 1) + pb(24, kw.get("suffix", 0)))
    return out + pb(3, pb(2, charsmap()) + pb(3, 1) + pb(4, kw.get("extra", 1)) + pb(5, 1))


def main():
    root = sys.argv[1]
    J = "fuzz_tokenizer_json"
    bl = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    put(root, J, "gpt2", tokenizer(bpe(), pre_tokenizer=bl, decoder={"type": "ByteLevel"}))
    put(root, J, "llama3", tokenizer(bpe(ignore_merges=True), pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}, dict(bl, use_regex=False)]},
        post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "u", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                        "special_tokens": {"u": {"id": "u", "ids": [0], "tokens": ["<unk>"]}}}, decoder={"type": "ByteLevel"}))
    put(root, J, "llama2", tokenizer(bpe(byte_fallback=True, fuse_unk=True), normalizer={"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}, decoder={"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}))
    put(root, J, "clip", tokenizer(bpe(["a</w>", "b</w>"], end_of_word_suffix="</w>"), normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}]},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "MergedWithNext"}]}, decoder={"type": "BPEDecoder", "suffix": "</w>"}))
    put(root, J, "bert", tokenizer({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9,
        "vocab": {"<unk>": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "##b": 5, "ab": 6, "##c": 7}}, normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        pre_tokenizer={"type": "BertPreTokenizer"}, post_processor={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}))
    put(root, J, "unigram", tokenizer({"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": [["<unk>", 0.0], ["▁", -2.0], ["a", -3.0], ["b", -3.5], ["▁ab", -1.0], ["<0xC3>", -9.0]]},
        normalizer={"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap()).decode()}, {"type": "Nmt"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}, decoder={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}))
    put(root, J, "words", tokenizer({"type": "WordLevel", "unk_token": "<unk>", "vocab": {"<unk>": 0, "a": 1, "b": 2}}, pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "CharDelimiterSplit", "delimiter": ","}, {"type": "FixedLength", "length": 2}, {"type": "Split", "pattern": {"String": "a"}, "behavior": "Contiguous", "invert": True}]}))
    S = "fuzz_sentencepiece"
    put(root, S, "unigram", sentencepiece(1))
    put(root, S, "bpe", sentencepiece(2))
    put(root, S, "suffix", sentencepiece(1, suffix=1, extra=0))
    T = "fuzz_tiktoken"
    tokens = [bytes([i]) for i in range(97, 110)] + [b" ", b"ab", b"abc", b" a", b"\xc3", b"\xa9", b"\xc3\xa9"]
    put(root, T, "small", "".join("%s %d\n" % (base64.b64encode(t).decode(), i) for i, t in enumerate(tokens)))
    put(root, T, "bytes", "".join("%s %d\n" % (base64.b64encode(bytes([i])).decode(), i) for i in range(256)))
    K = "fuzz_tekken"
    for name, size, special, version, pattern, words, more in (
            ("small", 9, 3, "v11", TEKKEN, [b"a", b"b", b"ab", b" a", b"\xc3", b"\xc3\xa9"], {"special_tokens": [
                {"rank": 0, "token_str": "<s>", "is_control": True}, {"rank": 2, "token_str": "[INST]", "is_control": False}]}),
            ("old", 24, 22, "v3", ".", [b"a", b"b", b"ab"], {}),
            ("bytes", 261, 2, "v7", TEKKEN, [bytes([i]) for i in range(256)] + [b"He", b"ll", b"Hell"], {})):
        config = {"pattern": pattern, "default_vocab_size": size, "default_num_special_tokens": special, "version": version}
        vocab = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for i, t in enumerate(words)]
        put(root, K, name, json.dumps({"config": config, "vocab": vocab, **more}, separators=(",", ":")))
    E = "fuzz_encode"
    for i, text in enumerate(["Hello, world! It's 12345.\n\n  Tabs\tand  spaces ", "日本語とEnglish混ぜ 한국어 नमस्ते", "a\u0301é ﬁ ½ \U0001f44d\U0001f3fd <|x|> solo ▁ <0x0A>",
                              "    def f(x):\r\n\treturn x**2  # [MASK]\n", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\ufffd\u200b\u00a0\u3000\u2028"]):
        put(root, E, "text%d" % i, text)
    put(root, E, "broken", b"\xff\xfe a\xc3 \xe4\xb8 \xf0\x9f\x91 \xed\xa0\x80 z")


if __name__ == "__main__":
    main()
