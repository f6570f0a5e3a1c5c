# SPDX-License-Identifier: Apache-2.0
"""Held-out conversations for `hearth perplexity --documents`: python3 held_out_text.py [BYTES] > held-out.jsonl"""
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from skills import SKILLS, Split, draw  # noqa: E402
from text import render  # noqa: E402

left = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
rng, split = random.Random("held out text"), Split(True)
while left > 0:
    e = draw(rng, split, rng.choice([s for s in SKILLS if s not in ("about", "talk", "needle")]))
    text = "".join(t for t, _ in render(e.messages, e.tools, e.thinking))
    print(json.dumps(text))
    left -= len(text)
