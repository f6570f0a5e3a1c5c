#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one adapter costs here and in llama.cpp, with the same files, in turns, on one thread.

  adapters_beside.py HEARTH BENCH_ADAPTERS LLAMA_PERPLEXITY [ROUNDS]

HEARTH writes a random 1.1 B llama in Q4_K, BENCH_ADAPTERS an adapter of rank 16 on all matrices of its layers and its own
figures. llama-perplexity takes the same text token by token and in pieces of 128 tokens, with and without --lora. What
counts is the time of a core that each token takes: of a longer run less that of a shorter one, so that loading is left
out. About three minutes on a quiet machine, 2 GB of disk."""
import os
import random
import statistics
import subprocess
import sys
import tempfile

HEARTH, BENCH, PEER = sys.argv[1:4]
ROUNDS = int(sys.argv[4]) if len(sys.argv) > 4 else 2


def core_seconds(*args):
    env = dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(os.path.abspath(PEER)))
    p = subprocess.Popen([PEER, *args], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(p.pid, 0)
    if status != 0:
        sys.exit(f"{PEER} {' '.join(args)}: status {status}")
    return used.ru_utime + used.ru_stime


def of_chunks(model, text, shape, most, lora):
    """All but the first of so many chunks."""
    common = ["-m", model, "-f", text, "-t", "1", "-nr", *shape, *lora]
    return core_seconds(*common, "--chunks", str(most)) - core_seconds(*common, "--chunks", "1")


def main():
    random.seed(1)
    with tempfile.TemporaryDirectory() as tmp:
        model, text = os.path.join(tmp, "model.gguf"), os.path.join(tmp, "text.txt")
        subprocess.run([HEARTH, "debug", "random-model", "--layers", "16", "--dim", "2048", "--ff", "8192", "--heads", "32",
                        "--kv-heads", "8", "--type", "Q4_K", model], check=True)
        with open(text, "w") as f:
            f.write(" ".join(random.choice("the fire burns in a hearth of stone and wood".split()) for _ in range(4000)))
        ours = [BENCH, model, "--threads", "1", "--keep", tmp, "--only"]
        subprocess.run([*ours, "none"], check=True, stdout=subprocess.DEVNULL)
        lora = ["--lora", os.path.join(tmp, "lora.gguf")]
        shapes = {"token by token": (["-c", "16", "-b", "1", "-ub", "1"], 4), "a prompt of 128": (["-c", "128", "-b", "128", "-ub", "128"], 2)}
        more = {name: [] for name in shapes}
        for _ in range(ROUNDS):
            for name, (shape, most) in shapes.items():
                without, with_one = of_chunks(model, text, shape, most, []), of_chunks(model, text, shape, most, lora)
                more[name].append(with_one / without - 1)
        for name, ratios in more.items():
            said = ", ".join(f"{r:+.1%}" for r in ratios)
            print(f"llama.cpp, {name}: {statistics.median(ratios):+.1%} of a core ({said})", flush=True)
        for name in ("one sequence", "a prompt", "eight adapters"):
            subprocess.run([*ours, name], check=True)


main()
