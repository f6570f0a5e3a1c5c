# SPDX-License-Identifier: Apache-2.0
"""How long a picture of 4096 patches takes here and in llama.cpp: the same mmproj file (random_tower.py), the same size, one and two threads
(or as many as are said: 8, or 1,4,8), taking turns; medians of the tower's time and of whole commands up to the first token, which also open
the files.

    python3 bench/compare_towers.py BUILD LLAMA_MTMD_CLI [LAYERS] [ROUNDS] [THREADS] [OPTION...]

llama.cpp is asked without flash attention, which is several times as fast on processors as its default; further options are for it
(`-fa auto`: that default).
"""
import os
import re
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))


def png(path, side):
    rows = b"".join(b"\0" + bytes((x * 3 + y * 5 + c * 40) >> 2 & 255 for x in range(side) for c in range(3)) for y in range(side))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def run(command, pattern=None):
    """(seconds that the program names, seconds of the command, seconds of processors)"""
    used, before = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    env = dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(os.path.abspath(command[0])))
    got = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600, errors="replace")
    took, now = time.monotonic() - before, resource.getrusage(resource.RUSAGE_CHILDREN)
    found = re.search(pattern, got.stdout + got.stderr) if pattern else None
    if got.returncode != 0 or (pattern and not found):
        raise SystemExit(f"{' '.join(command)}: {got.stdout[-2000:]}{got.stderr[-2000:]}")
    return float(found[1]) / 1e3 if found else 0.0, took, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def compare(build, peer, folder, kind, side, layers, rounds, threads_list, options):
    subprocess.run([sys.executable, os.path.join(HERE, "random_tower.py"), kind, folder, str(layers)], check=True)
    model, tower, picture = (os.path.join(folder, name) for name in ("model.gguf", "mmproj.gguf", "picture.png"))
    png(picture, side)
    theirs = [peer, "-m", model, "--mmproj", tower, "--image", picture, "-p", "hi", "-n", "1", "--no-warmup", "--no-repack", "--jinja", *(options or ["-fa", "off"])]
    done = r"encoding done in (\d+) ms"
    for threads in threads_list:
        ours = [os.path.join(build, "bench", "bench_vision"), model, "--mmproj", tower, "--size", f"{side}x{side}", "--rounds", "1", "--threads", threads]
        first = [os.path.join(build, "hearth"), "run", model, "--mmproj", tower, "--image", picture, "--threads", threads, "--max-tokens", "1", "hi"]
        a, b, c = [], [], []
        for _ in range(rounds):
            a.append(run(ours, r"rows: ([\d.]+) ms"))
            b.append(run([*theirs, "-t", threads], done))
            c.append(run(first))
        mine, other = (statistics.median(x[0] for x in y) for y in (a, b))
        cpu = statistics.median(x[2] for x in a) / 2 / statistics.median(x[2] for x in b)  # bench_vision encodes twice
        print(f"{kind} {side} x {side}, {layers} layers, {threads} threads: {mine:.2f} s, llama.cpp {other:.2f} s: "
              f"{mine / other:.2f}x, of processor time {cpu:.2f}x; first token {statistics.median(x[1] for x in c):.2f} s, "
              f"llama.cpp {statistics.median(x[1] for x in b):.2f} s", flush=True)


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    layers, rounds = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((3, 1), (4, 3)))
    threads = sys.argv[5] if len(sys.argv) > 5 else "1,2"
    for kind, side in (("gemma3", 896), ("qwen3vl", 1024)):
        with tempfile.TemporaryDirectory() as folder:
            compare(sys.argv[1], sys.argv[2], folder, kind, side, layers, rounds, threads.split(","), sys.argv[6:])


main()
