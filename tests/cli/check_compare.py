#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes the figures of `hearth compare` again, from the logits that `hearth logits` writes; and types that were chosen
with a text (`hearth quantize --target-bpw --text`) do it less harm than those that were guessed.

  check_compare.py HEARTH
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

HEARTH = sys.argv[1]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DRAFT = os.path.join(ROOT, "models/demo/draft.gguf")
TEXTS = ["What is the capital of France? The capital of France is Paris.", "A spider has eight legs and a cat has four."]


def run(*arguments):
    return subprocess.run([HEARTH, *arguments], capture_output=True, text=True, check=True).stdout


def rows(model, ids, path):
    run("logits", model, "--ids", ",".join(map(str, ids)), "--out", path, "--kv", "f16", "--chunk", "128")
    with open(path, "rb") as f:
        data = f.read()
    n = len(data) // 4 // len(ids)
    return [struct.unpack_from(f"<{n}f", data, 4 * n * i) for i in range(len(ids))]


def log_softmax(row):
    most = max(row)
    total = math.log(math.fsum(math.exp(v - most) for v in row)) + most
    return [v - total for v in row]


with tempfile.TemporaryDirectory() as folder:
    small, text, out, picture = (os.path.join(folder, n) for n in ("small.gguf", "text.jsonl", "logits", "plot.svg"))
    run("quantize", DRAFT, small, "Q2_K")
    with open(text, "w") as f:
        f.writelines(json.dumps(t) + "\n" for t in TEXTS)
    got = json.loads(run("compare", DRAFT, small, "--text", text, "--documents", "--json", "--worst", "3", "--svg", picture))
    kl, same, nll_a, nll_b = [], 0, [], []
    for t in TEXTS:
        ids = json.loads(run("tokenize", DRAFT, "--text", t))
        for a, b, following in zip(rows(DRAFT, ids, out), rows(small, ids, out), ids[1:]):
            p, q = log_softmax(a), log_softmax(b)
            kl.append(math.fsum(math.exp(x) * (x - y) for x, y in zip(p, q)))
            same += a.index(max(a)) == b.index(max(b))
            nll_a.append(-p[following])
            nll_b.append(-q[following])
    n = len(kl)
    mean = sum(kl) / n
    want = {
        "tokens": n, "kl_mean": mean, "kl_max": max(kl), "kl_median": sorted(kl, reverse=True)[n // 2],
        "kl_error": math.sqrt(sum((v - mean) ** 2 for v in kl) / n / (n - 1)),
        "same_top": same / n, "perplexity_a": math.exp(sum(nll_a) / n), "perplexity_b": math.exp(sum(nll_b) / n),
        "ratio": math.exp((sum(nll_b) - sum(nll_a)) / n),
    }
    failures = [f"{k}: {got[k]}, not {v}" for k, v in want.items() if not math.isclose(got[k], v, rel_tol=2e-4, abs_tol=1e-7)]
    if [round(w["kl"], 4) for w in got["worst"]] != [round(v, 4) for v in sorted(kl, reverse=True)[:3]]:
        failures.append(f"the worst tokens: {got['worst']}")
    with open(picture) as f:
        if "<svg" not in f.readline():
            failures.append("the picture is none")
    limit = subprocess.run([HEARTH, "compare", DRAFT, small, "--text", text, "--documents", "--max-kl", str(mean / 2)],
                           capture_output=True, text=True)
    if limit.returncode != 1 or "is above" not in limit.stderr:
        failures.append("--max-kl does not fail")
    damage = []
    for measured in ([], ["--text", text, "--documents"]):
        plan = json.loads(run("quantize", DRAFT, small, "--target-bpw", "4.6", "--json", *measured))
        if not 4.4 < plan["bits_per_weight"] <= 4.6:
            failures.append(f"--target-bpw 4.6 gives {plan['bits_per_weight']}")
        damage.append(json.loads(run("compare", DRAFT, small, "--text", text, "--documents", "--json"))["kl_mean"])
    few = os.path.join(folder, "few.txt")
    with open(few, "w") as f:
        f.write("More bits than the largest type has.")
    plan = json.loads(run("quantize", DRAFT, small, "--target-bpw", "12", "--json", "--text", few))
    if plan["bits_per_weight"] > 12:
        failures.append(f"--target-bpw 12 gives {plan['bits_per_weight']}")
    lonely = subprocess.run([HEARTH, "quantize", DRAFT, small, "Q4_K", "--documents"], capture_output=True, text=True)
    if lonely.returncode == 0 or "is for --text" not in lonely.stderr:
        failures.append("--documents without a text is not refused")
    if damage[1] > 1.05 * damage[0]:  # the judge also sees the last prediction, and unlikely tokens as one
        failures.append(f"types chosen with the text: {damage[1]}; guessed: {damage[0]}")

print(*failures, sep="\n")
print(f"{n} tokens, mean divergence {mean:.6f}, of guessed types {damage[0]:.5f}, of chosen ones {damage[1]:.5f}, {len(failures)} failures")
sys.exit(1 if failures else 0)
