# SPDX-License-Identifier: Apache-2.0
"""Scores a Hugging Face directory with transformers, greedy, on the held-out split: python3 evaluate_hf.py DIR [N]"""
import os
import random
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from score import right  # noqa: E402
from skills import SKILLS, Split, draw  # noqa: E402
from text import render  # noqa: E402


def main():
    folder, n = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).cuda().eval()
    for skill in SKILLS:
        rng = random.Random("held out " + skill)
        split = Split(skill not in ("about", "talk"))
        examples = [draw(rng, split, skill) for _ in range(n)]
        prompts = ["".join(t for t, _ in render(e.messages, e.tools, e.thinking)[:-1]) for e in examples]
        batch = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to("cuda")
        batch.pop("token_type_ids", None)
        with torch.no_grad():
            out = model.generate(**batch, max_new_tokens=200, do_sample=False)
        texts = [tokenizer.decode(o[batch["input_ids"].shape[1]:]).split("<|im_end|>")[0] for o in out]
        ok = [right(e, t) for e, t in zip(examples, texts)]
        thinking = [o for o, e in zip(ok, examples) if e.thinking]
        plain = [o for o, e in zip(ok, examples) if not e.thinking]
        rate = lambda x: "%5.1f%% of %d" % (100 * sum(x) / len(x), len(x)) if x else "-"
        print("%-12s %s   thinking %s   plain %s" % (skill, rate(ok), rate(thinking), rate(plain)), flush=True)
        shown = 0
        for e, t, o, prompt in zip(examples, texts, ok, prompts):
            if not o and shown < 3:
                shown += 1
                print("   wrong: %r -> %r (%r)" % (prompt[-160:], t[-200:], e.check))
        if skill == "stories":
            for t in texts[:10]:
                print("   story:", t)


main()
