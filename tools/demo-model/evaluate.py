# SPDX-License-Identifier: Apache-2.0
"""Scores a served model on the held-out split, greedy; standard library only.

  python3 evaluate.py [--url http://127.0.0.1:11434] [--model demo] [--count 200] [--skills a,b] [--stories] [--beside URL]
                      [--part K/N]

--part takes every N-th example only, from the K-th on, so that N processes can share the work. --beside asks a second
server the same, such as one with other types of cache pages, and counts equal answers: needle.sh.

Everything goes through /v1/chat/completions, so template, tokenizer, weights, sampling and the reading of tool calls are
all part of what is scored. Any server with that interface can be asked.
"""
import argparse
import concurrent.futures
import json
import os
import random
import sys
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from score import right  # noqa: E402
from skills import SKILLS, Split, draw  # noqa: E402
from text import call_text  # noqa: E402


def wire(message):
    """A message of the generator as the protocol writes it."""
    out = {"role": message["role"], "content": message.get("content") or ""}
    if message.get("tool_calls"):
        out["tool_calls"] = [{"id": "call_%d" % i, "type": "function",
                              "function": {"name": c["name"], "arguments": json.dumps(c["arguments"], ensure_ascii=False)}}
                             for i, c in enumerate(message["tool_calls"])]
    if message["role"] == "tool":
        out["tool_call_id"] = "call_0"
    return out


def ask(url, model, example):
    body = {"model": model, "messages": [wire(m) for m in example.messages[:-1]], "temperature": 0, "max_tokens": 200,
            "chat_template_kwargs": {"enable_thinking": bool(example.thinking)}}
    if example.tools:
        body["tools"] = [{"type": "function", "function": t} for t in example.tools]
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            message = json.load(answer)["choices"][0]["message"]
    except urllib.error.HTTPError as e:
        why = json.load(e)["error"]
        if why.get("code") == "context_length_exceeded":  # the generator does not count tokens
            return None
        raise SystemExit("%s: %s" % (e, why["message"]))
    calls = [{"name": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"])} for c in message.get("tool_calls") or []]
    return (message.get("content") or "") + "\n".join(call_text(c) for c in calls)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--url", default="http://127.0.0.1:11434")
    p.add_argument("--model", default="demo")
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--skills", default=",".join(SKILLS))
    p.add_argument("--stories", action="store_true", help="print the first ten stories, whatever they are")
    p.add_argument("--beside", help="a second server, which is asked the same")
    p.add_argument("--part", default="1/1", help="K/N: every N-th example, from the K-th on")
    a = p.parse_args()
    first, step = (int(x) for x in a.part.split("/"))
    for skill in a.skills.split(","):
        rng = random.Random("held out " + skill)
        split = Split(skill not in ("about", "talk"))  # these two are learned by heart
        examples = [draw(rng, split, skill) for _ in range(a.count)][first - 1::step]
        with concurrent.futures.ThreadPoolExecutor(8) as several:
            texts = list(several.map(lambda e: ask(a.url, a.model, e), examples))
            others = list(several.map(lambda e: ask(a.beside, a.model, e), examples)) if a.beside else texts
        examples, texts, others = zip(*[x for x in zip(examples, texts, others) if None not in x])
        ok = [right(e, t) for e, t in zip(examples, texts)]
        print("%-12s %5.1f%% of %d" % (skill, 100 * sum(ok) / len(ok), len(ok)), flush=True)
        if a.beside:
            found = sum(right(e, t) for e, t in zip(examples, others))
            print("%-12s %5.1f%% beside, the same answer in %d; right: %d and %d"
                  % (skill, 100 * found / len(ok), sum(map(str.__eq__, texts, others)), sum(ok), found), flush=True)
        for e, t in [(e, t) for e, t, o in zip(examples, texts, ok) if not o][:3]:
            print("   wrong: %r -> %r, expected %r" % (e.messages[-2].get("content", "")[-120:], t[-200:], e.check))
        if skill == "stories" and a.stories:
            for t in texts[:10]:
                print("   story:", t)


main()
