# SPDX-License-Identifier: Apache-2.0
"""Is an answer right? Used by every evaluation, whichever engine produced the answer."""
import json
import re


def calls_of(text):
    found = []
    for body in re.findall(r"<tool_call>\s*(.*?)\s*</tool_call>", text, re.S):
        try:
            found.append(json.loads(body))
        except ValueError:
            return None
    return found


def right(example, text):
    """text: what the model said, up to its end token, with or without a thinking block."""
    answer = text.split("</think>")[-1].strip()
    check = example.check
    if "equals" in check:
        return answer == check["equals"].strip()
    if "contains" in check:
        return check["contains"] in answer
    if "calls" in check:
        return calls_of(answer) == check["calls"]
    if "json" in check:
        try:
            return json.loads(answer) == check["json"]
        except ValueError:
            return False
    if "words" in check:  # a story: uses the words, is long enough, ends as a sentence
        return all(w in answer for w in check["words"]) and len(answer) > 120 and answer[-1] in ".!\""
    raise ValueError("no check")
