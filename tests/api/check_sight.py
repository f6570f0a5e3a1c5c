# SPDX-License-Identifier: Apache-2.0
"""The demo that sees, asked through the chat API: held-out pictures (tools/demo-model/pictures.py) are answered word for word, pictures of
other sizes too, a conversation goes on about the same picture, and without a picture it says so.

  check_sight.py PROGRAM [N]     N held-out pictures (20); at least 95 of 100 must be right"""
import base64
import collections
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "demo-model"))
import pictures  # noqa: E402

from hearth_server import Checks, Server  # noqa: E402

QUICK = os.environ.get("HEARTH_QUICK")  # under a sanitizer, where towers are slow
PROGRAM, COUNT = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4 if QUICK else 20


def said(server, messages):
    status, got = server.post("/v1/chat/completions", {"model": "vision-demo", "temperature": 0, "max_tokens": 80, "messages": messages})
    assert status == 200, got
    return got["choices"][0]["message"]["content"]


def user(words, png=None):
    shown = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png).decode()}}] if png else []
    return {"role": "user", "content": shown + [{"type": "text", "text": words}]}


def held_out(server):
    right, asked = collections.Counter(), collections.Counter()
    for seed in range(COUNT):
        png, skill, question, answer = pictures.judged_png(seed)
        got = said(server, [user(question, png)])
        asked[skill] += 1
        right[skill] += got == answer
        if got != answer:
            print(f"picture {seed}: {question} expected {answer!r}, got {got!r}")
    print(f"{sum(right.values())} of {COUNT} right: " + ", ".join(f"{k} {right[k]}/{n}" for k, n in sorted(asked.items())))
    assert sum(right.values()) >= 0.95 * COUNT


def twice_as_large(rgb):
    row = 3 * pictures.SIDE
    wide = [b"".join(rgb[i:i + 3] * 2 for i in range(y * row, (y + 1) * row, 3)) for y in range(pictures.SIDE)]
    return pictures.png(b"".join(line * 2 for line in wide), 2 * pictures.SIDE, 2 * pictures.SIDE)


def other_sizes(server):
    """Of 256 x 256, which the server makes smaller."""
    for seed in (2,) if QUICK else (0, 2, 6):
        rng, scene, _, _, _ = pictures.judged(seed)
        assert said(server, [user("What is in the picture?", twice_as_large(pictures.draw(scene, rng)))]) == pictures.describe(scene), seed


def conversation(server):
    rng, scene, _, _, _ = pictures.judged(2)
    first = user("What is in the picture?", pictures.png(pictures.draw(scene, rng)))
    answer = said(server, [first])
    assert answer == pictures.describe(scene), answer
    count = said(server, [first, {"role": "assistant", "content": answer}, user("How many shapes are there?")])
    assert count == str(len(scene.things)), count


def without_picture(server):
    assert said(server, [user("What colour is the star?")]) == "I see no picture."
    assert "Show me a picture" in said(server, [user("Hello")])


def main():
    checks = Checks()
    with Server(PROGRAM) as server:
        for check in (held_out, other_sizes, conversation, without_picture):
            checks.run(check, server)
    checks.exit()


main()
