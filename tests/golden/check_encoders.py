#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `hearth embed` with the vectors and scores that sentence-transformers gave (encoders/*/golden.json).

  check_encoders.py HEARTH [--gguf] [NAME ...]

For every model: all texts together and each by itself give the same bytes (padding and batch make no difference), the vectors
lie within 1e-5 cosine distance of the reference, scores and probabilities within 2e-5. --gguf converts each model first, as published converters
name things (to_gguf_encoders.py); what GGUF has no words for is left out.
"""
import array
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import check as families

DATA = json.load(open(os.path.join(HERE, "encoder_texts.json"), encoding="utf-8"))
COSINE, SCORE = 1e-5, 2e-5


def embed(hearth, model, items, *args):
    text = "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in items)
    p = subprocess.run([hearth, "embed", model, "--jsonl", "--threads", "2", *args], input=text.encode(), capture_output=True)
    if p.returncode:
        raise RuntimeError(p.stderr.decode().strip())
    return [json.loads(x) for x in p.stdout.decode().splitlines()]


def distance(a, b):
    dot, aa, bb = sum(x * y for x, y in zip(a, b)), sum(x * x for x in a), sum(x * x for x in b)
    return 1 - dot / math.sqrt(aa * bb)


def check_labels(hearth, model, golden):
    """Probabilities of pairs and of as many single texts, with their labels in order."""
    items = DATA["pairs"] + DATA["texts"][: len(DATA["pairs"])]
    got, worst = embed(hearth, model, items, "--labels"), 0.0
    if embed(hearth, model, items[2:3], "--labels")[0]["probs"] != got[2]["probs"]:
        raise RuntimeError("a pair by itself has other probabilities")
    for x, want in zip(got, golden["probs"]):
        if list(x["probs"]) != golden["labels"] or x["label"] != golden["labels"][want.index(max(want))]:
            raise RuntimeError(f"labels {list(x['probs'])}, the first {x['label']}")
        worst = max([worst] + [abs(a - b) for a, b in zip(x["probs"].values(), want)])
    return worst


def check(hearth, source, model):
    """Returns the worst difference, with its bound."""
    golden = json.load(open(f"{source}/golden.json"))
    if "scores" in golden:
        got = embed(hearth, model, DATA["pairs"])
        alone = embed(hearth, model, DATA["pairs"][2:3])
        if alone[0]["score"] != got[2]["score"]:
            raise RuntimeError("a pair by itself has another score")
        return max(abs(x["score"] - y) for x, y in zip(got, golden["scores"])), SCORE
    if "labels" in golden:
        return check_labels(hearth, model, golden), SCORE
    want = array.array("f", open(f"{source}/vectors.f32", "rb").read())
    dim, worst = golden["dim"], 0.0
    # GGUF's unigram puts a space before a text that begins with one, too; Metaspace does not.
    unigram = model != source and json.load(open(f"{source}/tokenizer.json"))["model"]["type"] == "Unigram"
    for p, name in enumerate(golden["prompts"]):
        args = ["--prompt", name] if name else []
        if name and model != source:
            continue  # a GGUF has no prompts
        got = embed(hearth, model, DATA["texts"], *args)
        for i, x in enumerate(got):
            if len(x["embedding"]) != dim:
                raise RuntimeError(f"{len(x['embedding'])} values instead of {dim}")
            at = (p * len(DATA["texts"]) + i) * dim
            d = distance(x["embedding"], want[at : at + dim])
            if unigram and DATA["texts"][i].startswith(" "):
                continue
            if not d <= COSINE:
                raise RuntimeError(f"prompt {name}, text {i}: cosine distance {d:.2g}")
            worst = max(worst, d)
        for i in (2, 19):
            alone = embed(hearth, model, DATA["texts"][i : i + 1], *args)
            if alone[0]["embedding"] != got[i]["embedding"]:
                raise RuntimeError(f"text {i} by itself has another vector")
    return worst, COSINE


def field(number, kind, value):
    def varint(n):
        out = b""
        while n >= 128:
            out, n = out + bytes([n % 128 + 128]), n // 128
        return out + bytes([n])
    key = varint(number << 3 | {"int": 0, "bytes": 2, "float": 5}[kind])
    return key + (varint(value) if kind == "int" else struct.pack("<f", value) if kind == "float" else varint(len(value)) + value)


def write_spm(path, file):
    """A Unigram vocabulary as SentencePiece stores it: pieces, then the trainer's and the normalizer's settings."""
    special = {a["content"] for a in file["added_tokens"]}
    out = b""
    for i, (piece, score) in enumerate(file["model"]["vocab"]):
        kind = 2 if i == file["model"]["unk_id"] else 3 if piece in special else 1
        out += field(1, "bytes", field(1, "bytes", piece.encode()) + field(2, "float", score) + field(3, "int", kind))
    ids = {p: i for i, (p, _) in enumerate(file["model"]["vocab"])}
    trainer = [(3, 1), (40, file["model"]["unk_id"]), (41, ids["[CLS]"]), (42, ids["[SEP]"]), (43, ids["[PAD]"])]
    out += field(2, "bytes", b"".join(field(n, "int", v) for n, v in trainer))
    out += field(3, "bytes", b"".join(field(n, "int", 1) for n in (3, 4, 5)))
    with open(path, "wb") as f:
        f.write(out)


def check_spm(hearth, source):
    """A directory with spm.model instead of tokenizer.json gives the same, where no normalisation is needed."""
    import shutil
    import unicodedata
    with tempfile.TemporaryDirectory() as d:
        for name in os.listdir(source):
            (shutil.copytree if os.path.isdir(f"{source}/{name}") else shutil.copy)(f"{source}/{name}", f"{d}/{name}")
        write_spm(f"{d}/spm.model", json.load(open(f"{d}/tokenizer.json", encoding="utf-8")))
        os.remove(f"{d}/tokenizer.json")
        os.remove(f"{d}/tokenizer_config.json")
        def as_it_is(text):
            return text == unicodedata.normalize("NFKC", text) and "\n" not in text
        plain = [t for t in DATA["texts"] if as_it_is(t)]
        pairs = [p for p in DATA["pairs"] if all(map(as_it_is, p))]
        if embed(hearth, d, plain + pairs, "--labels") != embed(hearth, source, plain + pairs, "--labels"):
            raise RuntimeError("spm.model gives something else than tokenizer.json")
    return len(plain) + len(pairs)


def main():
    args = [x for x in sys.argv[1:] if not x.startswith("--")]
    hearth, names = args[0], args[1:]
    folder = os.environ.get("HEARTH_ENCODERS", os.path.join(HERE, "encoders"))
    gguf, failed = "--gguf" in sys.argv, 0
    for name in families.some(names or sorted(os.listdir(folder))):
        source = os.path.join(folder, name)
        try:
            if gguf:
                import to_gguf_encoders
                with tempfile.TemporaryDirectory() as d:
                    path = os.path.join(d, name + ".gguf")
                    why = to_gguf_encoders.convert(source, path)
                    if why:
                        print(f"{name:18} not as GGUF: {why}")
                        continue
                    worst, bound = check(hearth, source, path)
            else:
                worst, bound = check(hearth, source, source)
                if name == "deberta_nli":
                    print(f"{'':18} {check_spm(hearth, source)} of {len(DATA['texts'] + DATA['pairs'])} with spm.model, too")
            ok = worst <= bound
            print(f"{name:18} {'ok' if ok else 'FAILED'} {worst:.2g}")
            failed += not ok
        except Exception as e:  # the others still run
            failed += 1
            print(f"{name:18} FAILED {e}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
