# SPDX-License-Identifier: Apache-2.0
"""Whole models with random weights, beside llama.cpp and beside what reading the weights alone would allow: one sequence, one behind 16,000
positions, many sequences, a prompt. The programs take turns, and the device's reading speed is measured in every round; medians.

    python3 bench/whole_models.py BUILD [--models llama-8b:Q4_K,llama-8b:F16,...] [--device cuda:0] [--rounds 3] [--peer LLAMA_BENCH]
                                  [--folder DIR] [--json FILE]

A model is SHAPE:TYPE; SHAPES below. Files are made once and stay in --folder if one is given. The limit by reading is one sequence's tokens per
second if nothing took time but reading each weight that a token needs once, at the speed that bench_cuda measured beside it.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile

# Options of `hearth debug random-model`, and how many experts of how many a token reads.
SHAPES = {
    "llama-8b": ("--layers 32 --dim 4096 --ff 14336 --heads 32 --kv-heads 8 --vocab 128256 --untied --context 32768", (1, 1)),
    "llama-1b": ("--layers 16 --dim 2048 --ff 8192 --heads 32 --kv-heads 8 --vocab 128256 --context 32768", (1, 1)),
    "qwen3-30b-a3b": ("--arch qwen3moe --layers 48 --dim 2048 --ff 768 --heads 32 --kv-heads 4 --head-dim 128 --vocab 151936 --untied "
                      "--experts 128 --experts-used 8 --context 32768", (8, 128)),
    "tiny": ("--layers 2 --dim 256 --ff 512 --heads 4 --kv-heads 2 --vocab 2000 --context 32768", (1, 1)),
}
USUAL = "llama-8b:Q4_K,llama-8b:F16,llama-8b:Q8_0,llama-8b:MXFP4,llama-1b:Q4_K,qwen3-30b-a3b:Q4_K"
DEPTH = 16000


def run(command):
    got = subprocess.run(command, capture_output=True, text=True, timeout=3600, errors="replace")
    if got.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {got.stdout[-1000:]}{got.stderr[-2000:]}")
    return got.stdout


def read_bytes(a, path, used, of):
    """Bytes of the matrices that one token reads: all of them but the table of embeddings where the head is another one, and of experts as
    many as are used."""
    tensors = json.loads(run([os.path.join(a.build, "hearth"), "show", path, "--tensors", "--json"]))["tensors"]
    headed = any(t["name"] == "output.weight" for t in tensors)
    return sum(t["bytes"] * (used / of if "_exps" in t["name"] else 1) for t in tensors if not headed or t["name"] != "token_embd.weight")


def ours(a, path, more):
    out = json.loads(run([os.path.join(a.build, "hearth"), "bench", path, "--json", "--reps", "1", "--mapped", "--device", a.device, *more]))
    return [out["prompt"]["tokens_per_second"]] + [x for g in out["generation"] for x in (g["tokens_per_second"], 100 * g["between_steps"])]


def theirs(a, path, more):
    rows = json.loads(run([a.peer, "-m", path, "-r", "1", "-o", "json", "-ngl", "99", "-fa", "1", *more]))
    return [row["avg_ts"] for row in rows]


def reading(a):
    """GB/s of a plain read, or None where there is no device with memory of its own."""
    out = run([os.path.join(a.build, "bench", "bench_cuda"), "--part", "few", "--types", "F16", "--rows", "1", "--shapes", "4096x4096"])
    found = re.search(r"read: (\d+) GB/s", out)
    return float(found[1]) if found else None


def measure(a, path):
    """Lists by figure, an element per round."""
    got = {}

    def note(names, values):
        for name, value in zip(names, values):
            got.setdefault(name, []).append(value)

    for _ in range(a.rounds):
        if a.device.startswith("cuda"):
            note(["read"], [reading(a)])
        note(["prompt", "one", "one idle", "many", "many idle"], ours(a, path, ["-p", str(a.prompt), "-n", "64", "--batch", f"1,{a.many}"]))
        note(["", "deep"], ours(a, path, ["-p", "16", "-n", "32", "--depth", str(a.depth)]))
        if a.peer:
            note(["peer prompt", "peer one"], theirs(a, path, ["-p", str(a.prompt), "-n", "64"]))
            note(["peer deep"], theirs(a, path, ["-p", "0", "-n", "32", "-d", str(a.depth)]))
    got.pop("")
    return {name: [x for x in values if x is not None] for name, values in got.items()}


def tell(name, got, weights):
    def middle(what):
        return statistics.median(got[what]) if got.get(what) else None

    def beside(what):
        x, peer = middle(what), middle("peer " + what)
        spread = f" ({min(got[what]):,.0f}-{max(got[what]):,.0f})"
        return f"{x:,.0f}{spread}" + (f", {x / peer:.2f} times {peer:,.0f}" if peer else "")

    read = middle("read")
    limit = read * 1e9 / weights if read else None
    print(f"{name}")
    print(f"  one sequence     {beside('one')}" + (f"; {100 * middle('one') / limit:.0f}% of {limit:,.0f} by reading at {read:,.0f} GB/s" if limit else ""))
    print(f"  behind a context {beside('deep')}; {100 * (1 - middle('deep') / middle('one')):.0f}% slower")
    print(f"  many sequences   {beside('many')}")
    print(f"  prompt           {beside('prompt')}")
    print(f"  nothing to do    {middle('one idle'):.1f}% with one, {middle('many idle'):.1f}% with many", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build")
    p.add_argument("--models", default=USUAL)
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--peer", help="llama-bench")
    p.add_argument("--folder")
    p.add_argument("--many", type=int, default=128)
    p.add_argument("--prompt", type=int, default=2048)
    p.add_argument("--depth", type=int, default=DEPTH)
    p.add_argument("--json", help="all rounds go to this file, too")
    a = p.parse_args()
    wanted = []
    for model in a.models.split(","):
        shape, _, kind = model.partition(":")
        if shape not in SHAPES or not kind:
            raise SystemExit(f"{model}: SHAPE:TYPE, and one of {', '.join(SHAPES)}")
        wanted.append((model, shape, kind))
    kept = {}
    with tempfile.TemporaryDirectory() as own:
        folder = a.folder or own
        for model, shape, kind in wanted:
            path = os.path.join(folder, f"{shape}-{kind}.gguf")
            options, expert = SHAPES[shape]
            if not os.path.exists(path):
                run([os.path.join(a.build, "hearth"), "debug", "random-model", *options.split(), "--type", kind, path])
            kept[model] = measure(a, path)
            tell(model, kept[model], read_bytes(a, path, *expert))
            if not a.folder:
                os.unlink(path)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump(kept, f, indent=1)


if __name__ == "__main__":
    main()
