#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hearth embed: options that have no effect on what is asked are usage errors; what is no number is null."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "encoders")
TEXTS, PAIRS = '"a text"\n"another"\n', '"a text"\n["a text", "another"]\n'


def embed(model, lines, *options):
    p = subprocess.run([PROGRAM, "embed", os.path.join(GOLDEN, model), "--jsonl", *options], input=lines, capture_output=True, text=True, timeout=120)
    return p.returncode, p.stdout, p.stderr


def check_options():
    for options in (["--dimensions", "4"], ["--prompt", "query"], ["--input-type", "query"]):
        code, _, said = embed("bert_topics", TEXTS, "--labels", *options)
        assert code == 2 and f"{options[0]} has no effect with --labels" in said, (options, code, said)
        code, _, said = embed("deberta_rerank", PAIRS.splitlines()[1], *options)
        assert code == 2 and f"{options[0]} has no effect on pairs of texts" in said, (options, code, said)
    for model, options in (("deberta_nli", ["--labels"]), ("deberta_rerank", [])):
        code, _, said = embed(model, PAIRS.splitlines()[1], "--no-truncate", *options)
        assert code == 2 and "--no-truncate has no effect on pairs of texts" in said, (model, code, said)
    assert embed("bert_topics", TEXTS, "--labels", "--no-truncate")[0] == 0
    assert embed("bert_prompt", TEXTS, "--no-truncate", "--dimensions", "4", "--input-type", "query")[0] == 0


def spoil(model, folder, tensor):
    """A copy whose tensor is not a number any more."""
    path = os.path.join(folder, model)
    shutil.copytree(os.path.join(GOLDEN, model), path)
    with open(f"{path}/model.safetensors", "r+b") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        t = json.loads(f.read(size))[tensor]
        begin, end = t["data_offsets"]
        f.seek(8 + size + begin)
        f.write(b"\xff" * (end - begin))
    return path


def check_numbers():
    def refuse(word):
        raise AssertionError(f"{word} in JSON")
    with tempfile.TemporaryDirectory() as folder:
        for model, tensor, lines, options in (("bert_topics", "classifier.bias", TEXTS, ["--labels"]), ("deberta_rerank", "classifier.bias", '["a", "b"]\n', []),
                                              ("bert_mean", "embeddings.LayerNorm.bias", TEXTS, [])):
            code, out, said = embed(spoil(model, folder, tensor), lines, *options)
            assert code == 0, said
            for line in out.splitlines():
                got = json.loads(line, parse_constant=refuse)
                values = list(got["probs"].values()) if "probs" in got else got.get("embedding", [got.get("score")])
                assert values and all(v is None for v in values), got


check_options()
check_numbers()
