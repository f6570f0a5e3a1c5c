#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `hearth logits` with the reference logits.

  check.py HEARTH [--gguf] [--all] [NAME ...]

Each reference model is run as its Hugging Face directory, or with --gguf as the GGUF file that to_gguf.py makes of it:
all prompt logits within 2e-3 of their standard deviation and the greedy continuation token for token. Models with
quantized weights are compared on the reference backend, because the fast one also quantizes activations; there only
their continuation counts when it agrees within the margin. --all adds runs in chunks of 1, 7 and 32 and with 1 and 2
threads, which must give the same bytes.
"""

import array
import json
import math
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
BOUND = 2e-3


def run(hearth, model, ids, out, *more):
    cmd = [hearth, "logits", model, "--ids", ",".join(map(str, ids)), "--out", out, *more]
    p = subprocess.run(cmd, capture_output=True, text=True, timeout=300)
    if p.returncode:
        raise ValueError((p.stderr or p.stdout).strip()[-300:])
    with open(out, "rb") as f:
        return f.read(), p.stdout


def compare(got, want, std):
    a, b = array.array("f", got), array.array("f", want)
    if len(a) < len(b):
        raise ValueError(f"{len(a)} logits instead of {len(b)}")
    worst = max(abs(x - y) if math.isfinite(x) else math.inf for x, y in zip(a, b)) / std
    if worst > BOUND:
        raise ValueError(f"logits differ by {worst:.2e} standard deviations")
    return worst


def check(hearth, name, gguf, everything, tmp):
    src = os.path.join(HERE, "models", name)
    with open(os.path.join(src, "golden.json")) as f:
        golden = json.load(f)
    with open(os.path.join(src, "logits.f32"), "rb") as f:
        want = f.read()
    if gguf:
        import to_gguf

        model = os.path.join(tmp, name + ".gguf")
        to_gguf.convert(src, model)
    else:
        model = src
    out = os.path.join(tmp, "logits.f32")
    quantized = "_mlx" in name or "mxfp4" in name
    more = ["--scalar"] if quantized else []
    got, text = run(hearth, model, golden["prompt"], out, "--greedy", str(len(golden["greedy"])), *more)
    worst = compare(got, want, golden["logit_std"])
    greedy = json.loads(text.strip().splitlines()[-1])
    if greedy != golden["greedy"]:
        raise ValueError(f"the continuation is {greedy}, not {golden['greedy']}")
    if everything:
        first, _ = run(hearth, model, golden["prompt"], out)
        for extra in (["--chunk", "1"], ["--chunk", "7"], ["--chunk", "32"], ["--threads", "1"], ["--threads", "2"]):
            if run(hearth, model, golden["prompt"], out, *extra)[0] != first:
                raise ValueError(f"other bytes with {' '.join(extra)}")
    return worst


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    gguf, everything = "--gguf" in sys.argv, "--all" in sys.argv
    names = args[1:] or sorted(os.listdir(os.path.join(HERE, "models")))
    if gguf:
        names = [n for n in names if "_mlx" not in n]
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        for name in names:
            try:
                print(f"ok   {name} {check(args[0], name, gguf, everything, tmp):.1e}", flush=True)
            except Exception as e:
                bad += 1
                print(f"FAIL {name}: {e}", flush=True)
    print(f"{len(names) - bad} of {len(names)} agree")
    return 1 if bad or not names else 0


if __name__ == "__main__":
    sys.exit(main())
