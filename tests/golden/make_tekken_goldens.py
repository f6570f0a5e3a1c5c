#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small tekken.json and the ids that its rules give, for tests/unit/tokenizer/test_tekken.c.

usage: make_tekken_goldens.py TEXTS OUTDIR

TEXTS is tests/fixtures/tokenizer/goldens/texts.json. Needs the Python package `regex` (a developer's machine; the tests do not).
Written are

    tekken.json    256 bytes and 700 words trained on half of the texts, a hundred words too many, 40 special tokens, 22 of them named
    old.json       the same without special_tokens, as files up to version 7 may be
    ids.jsonl      one line per text: {"literal", "special"}; special: texts of special tokens are these, behind <s>

The rules are those of mistral-common and of tiktoken, on which it stands: the pattern cuts words; a word that is a token is that token;
else neighbours whose joined bytes have the lowest rank are joined until there are none; ids are ranks plus the special tokens.
"""

import base64
import collections
import json
import sys

import regex

PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
           r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
NAMED = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]",
         "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"]
AUDIO = [(24, "[AUDIO]"), (25, "[BEGIN_AUDIO]")]
SPECIAL, MERGES, SURPLUS = 40, 700, 100


def pairs_of(word):
    return zip(word, word[1:])


def train(texts):
    """Byte pairs by their number, the first of equals in byte order."""
    counts = collections.Counter(w.encode() for t in texts for w in regex.findall(PATTERN, t))
    words = {w: [bytes([b]) for b in w] for w in counts}
    ranks = [bytes([b]) for b in range(256)]
    for _ in range(MERGES + SURPLUS):
        seen = collections.Counter()
        for w, parts in words.items():
            for p in pairs_of(parts):
                seen[p] += counts[w]
        a, b = min(seen, key=lambda p: (-seen[p], p))
        ranks.append(a + b)
        for w, parts in words.items():
            out = []
            for x in parts:
                if out and out[-1] == a and x == b:
                    out[-1] = a + b
                else:
                    out.append(x)
            words[w] = out
    return ranks


def encode_word(word, ranks):
    if word in ranks:
        return [ranks[word]]
    parts = [bytes([b]) for b in word]
    while True:
        best = min(((ranks.get(a + b, 1 << 30), i) for i, (a, b) in enumerate(pairs_of(parts))), default=(1 << 30, 0))
        if best[0] == 1 << 30:
            return [ranks[p] for p in parts]
        i = best[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def encode(text, ranks):
    return [SPECIAL + r for w in regex.findall(PATTERN, text) for r in encode_word(w.encode(), ranks)]


def encode_special(text, ranks, names):
    cut = regex.compile("(" + "|".join(regex.escape(n) for n in sorted(names, key=len, reverse=True)) + ")")
    out = [names["<s>"]]
    for part in cut.split(text):
        out += [names[part]] if part in names else encode(part, ranks)
    return out


def token_str(b):
    try:
        return b.decode()
    except UnicodeDecodeError:
        return None


def main():
    texts, out = json.load(open(sys.argv[1], encoding="utf-8")), sys.argv[2]
    texts = [t for t in texts if len(t) < 2000]
    texts += ["[INST] Was hörst du?[BEGIN_AUDIO][AUDIO][AUDIO][/INST]", "<s>[INST]<SPECIAL_39><SPECIAL_40></s>", "[BEGIN_AUDIO[AUDIO]]", "a/b//\n/c\r\n\r\n d"]
    words = train(texts[::2])
    ranks = {w: i for i, w in enumerate(words[: 256 + MERGES])}
    assert len(ranks) == 256 + MERGES
    names = {n: i for i, n in enumerate(NAMED)} | {n: i for i, n in AUDIO}
    names |= {f"<SPECIAL_{i}>": i for i in range(SPECIAL) if i not in names.values()}
    config = {"pattern": PATTERN, "num_vocab_tokens": len(words), "default_vocab_size": 256 + MERGES + SPECIAL, "default_num_special_tokens": SPECIAL,
              "version": "v7"}
    vocab = [{"rank": i, "token_bytes": base64.b64encode(w).decode(), "token_str": token_str(w)} for i, w in enumerate(words)]
    special = [{"rank": i, "token_str": n, "is_control": True} for n, i in names.items() if i < len(NAMED) or (i, n) in AUDIO]
    audio = {"sampling_rate": 16000, "frame_rate": 12.5, "audio_encoding_config": {"num_mel_bins": 128, "hop_length": 160, "window_size": 400}}
    for name, what in (("tekken.json", {"config": dict(config, version="v11"), "vocab": vocab, "special_tokens": special, "audio": audio}),
                       ("old.json", {"config": config, "vocab": vocab[:300]})):
        if name == "old.json":
            what["config"] = dict(config, default_vocab_size=256 + SPECIAL)
        with open(f"{out}/{name}", "w", encoding="utf-8") as f:
            json.dump(what, f, separators=(",", ":"))
            f.write("\n")
    with open(f"{out}/ids.jsonl", "w", encoding="utf-8") as f:
        for t in texts:
            line = {"text": t, "literal": encode(t, ranks), "special": encode_special(t, ranks, names)}
            f.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
