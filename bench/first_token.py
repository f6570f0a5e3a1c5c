# SPDX-License-Identifier: Apache-2.0
"""Time to the first token behind a picture, through `hearth serve` and /v1/chat/completions: decoding, scaling, the tower, the prompt. Each
picture is another one, so that none is there already; behind it the same question about the same picture, whose rows are kept.

    python3 bench/first_token.py HEARTH MODEL MMPROJ [DEVICE] [SIDE] [ROUNDS]
"""
import base64
import http.client
import io
import json
import random
import statistics
import struct
import subprocess
import sys
import time
import zlib


def png(side, seed):
    """Soft shades, as a photograph has them, and some noise."""
    noise = random.Random(seed).randbytes(side)
    rows = b"".join(b"\0" + bytes(((x + seed) * 3 + y * 5 + c * 40 + (noise[(x + y) % side] >> 5)) >> 2 & 255 for x in range(side) for c in range(3))
                    for y in range(side))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def jpeg(data):
    """The same as JPEG, where Pillow is there."""
    try:
        from PIL import Image
    except ImportError:
        return None
    out = io.BytesIO()
    Image.open(io.BytesIO(data)).save(out, "JPEG", quality=90)
    return out.getvalue()


def first(port, kind, data):
    """Milliseconds until the first event that has a choice."""
    url = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    body = json.dumps({"model": "m", "max_tokens": 2, "stream": True, "ignore_eos": True, "temperature": 0, "messages": [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is it?"}]}]})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    before = time.monotonic()
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"{answer.status}: {answer.read(2000)}")
    for line in answer:
        if line.startswith(b"data: {") and b'"choices":[{' in line and b'"role"' not in line:
            took = (time.monotonic() - before) * 1e3
            answer.read()
            return took
    raise SystemExit("no token came")


def main():
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    program, model, tower = sys.argv[1:4]
    device, side, rounds = (sys.argv[i] if len(sys.argv) > i else d for i, d in ((4, "auto"), (5, "1024"), (6, "5")))
    server = subprocess.Popen([program, "serve", "--port", "0", "--ready-json", "--no-config", "--no-socket", "--model", f"m={model}", "--mmproj", f"m={tower}",
                               "--device", device, "--log-level", "warn"], stdout=subprocess.PIPE, text=True)
    try:
        port = json.loads(server.stdout.readline())["port"]
        pictures = [("png", png(int(side), i)) for i in range(int(rounds) + 1)]
        pictures += [("jpeg", j) for j in (jpeg(p) for _, p in pictures) if j]
        first(port, *pictures[0])  # the model is loaded
        for kind in ("png", "jpeg"):
            fresh, again = [], []
            for _, data in [p for p in pictures if p[0] == kind][1:]:
                fresh.append(first(port, kind, data))
                again.append(first(port, kind, data))
            if fresh:
                print(f"{side} x {side} {kind} on {device}: first token after {statistics.median(fresh):.1f} ms (least {min(fresh):.1f}), "
                      f"again after {statistics.median(again):.1f} ms", flush=True)
    finally:
        server.terminate()
        server.wait()


main()
