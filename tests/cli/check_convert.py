#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A directory with a tokenizer becomes a GGUF file that tokenizes and predicts the same.

  check_convert.py HEARTH
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

HEARTH = sys.argv[1]
GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden/models")
WORDS = {  # the rules of Llama 3 and Qwen 2: numbers of up to three digits, or single digits
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
MERGES = [("t", "h"), ("th", "e"), ("i", "n"), ("a", "n"), ("3", "3"), ("33", "3"), ("Ġ", "a")]
TEXT = "the 3333 men in a 'den' can't, 33 33\n\n  then"


def run(*arguments, fails=False):
    got = subprocess.run([HEARTH, *arguments], capture_output=True, text=True)
    if (got.returncode != 0) != fails:
        sys.exit(f"hearth {' '.join(arguments)}: {got.returncode} {got.stderr}")
    return got.stderr if fails else got.stdout


def characters():
    """Byte-level vocabularies write every byte as a character that prints."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in plain else next(others)) for b in range(256)]


def write_tokenizer(folder, pattern, n):
    vocab = {c: i for i, c in enumerate(characters())}
    for a, b in MERGES:
        vocab[a + b] = len(vocab)
    while len(vocab) < n - 10:  # the last ids have no token
        vocab[f"w{len(vocab)}"] = len(vocab)
    special = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    tokenizer = {
        "version": "1.0", "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": len(vocab), "content": "<|begin|>", **special}, {"id": len(vocab) + 1, "content": "<|end|>", **special}],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": MERGES},
    }
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump(tokenizer, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"bos_token": "<|begin|>", "eos_token": "<|end|>", "chat_template": "{{ messages[0].content }}"}, f)


def check(name, rule, folder):
    source, out = os.path.join(folder, name), os.path.join(folder, name + ".gguf")
    os.mkdir(source)
    for file in ("config.json", "model.safetensors"):
        shutil.copy(os.path.join(GOLDEN, name, file), source)
    n = json.load(open(os.path.join(source, "config.json")))["vocab_size"]
    assert "tokenizer" in run("convert", source, out, fails=True)
    write_tokenizer(source, WORDS[rule], n)
    first = json.loads(run("convert", source, out, "--json", "-t", "1"))
    second = json.loads(run("convert", source, out, "--json", "-t", "3"))
    assert first["checksum"] == second["checksum"] and first["bytes"] == os.path.getsize(out)
    keys = json.loads(run("show", out, "--json"))
    assert rule in json.dumps(keys), keys
    ids = json.loads(run("tokenize", source, "--text", TEXT))
    assert json.loads(run("tokenize", out, "--text", TEXT)) == ids
    arguments = ("--ids", ",".join(map(str, ids)), "--greedy", "12")
    assert run("logits", source, *arguments) == run("logits", out, *arguments)
    run("convert", source, out, "--type", "Q8_0")
    assert json.loads(run("tokenize", out, "--text", TEXT)) == ids
    assert "already" in run("convert", out, out + "2", fails=True)
    assert sorted(os.listdir(folder)) == sorted({*os.listdir(folder)} - {name + ".gguf.partial", name + ".gguf.journal"})


def bitnet(folder):
    """A file that does not name the activation: SiLU with the base of rotation of the first models, else a squared ReLU.
    What each computes is what a directory that names it computes."""
    def logits(model):
        path = os.path.join(folder, "logits")
        run("logits", model, "--ids", "1,5,9,13,77", "--scalar", "--out", path)
        return open(path, "rb").read()

    seen = set()
    for act, base in (("silu", 10000.0), ("relu2", 500000.0)):
        source, out = os.path.join(folder, "bitnet-" + act), os.path.join(folder, act + ".gguf")
        shutil.copytree(os.path.join(GOLDEN, "bitnet"), source)
        config = json.load(open(os.path.join(source, "config.json")))
        config.pop("rope_parameters", None)
        json.dump({**config, "hidden_act": act, "rope_theta": base}, open(os.path.join(source, "config.json"), "w"))
        run("convert", source, out, "--no-tokenizer")
        data = open(out, "rb").read()
        open(out, "wb").write(data.replace(b"bitnet.hidden_activation", b"bitnet.hidden_actWithout"))
        assert logits(out) == logits(source), act
        seen.add(logits(out))
    assert len(seen) == 2


if not os.path.isdir(GOLDEN):
    print("skipped: no golden models")
    sys.exit(0)
with tempfile.TemporaryDirectory() as temporary:
    check("llama", "llama-bpe", temporary)
    check("qwen3", "qwen2", temporary)
    bitnet(temporary)
print("2 directories became GGUF files that say the same")
