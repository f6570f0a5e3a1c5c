# SPDX-License-Identifier: Apache-2.0
"""A stream tells what the answer in one piece tells: every protocol, every limit from one token to the whole answer.

Texts, thoughts, calls, ends, log-probabilities and counts are put together from the events and compared. Where the
limit cuts a call off, both have its beginning as soon as its name is known."""
import json
import os
import re
import sys

from hearth_server import Checks, Server

PROGRAM = sys.argv[1]
QUICK = os.environ.get("HEARTH_QUICK") == "1"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PLAN = {"type": "object", "properties": {"days": {"type": "array", "items": {"type": "integer", "minimum": 10, "maximum": 99}, "minItems": 2, "maxItems": 2},
                                         "where": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"]},
                                         "sure": {"type": "boolean"}}, "required": ["days", "where", "sure"], "additionalProperties": False}
TOOLS = {"get_weather": CITY, "plan": PLAN}
ASK = "What is the weather in Paris?"
BOTH = "What is the weather in Paris and in Rome?"
SUM = "What is 12 plus 30?"


def functions(*names):
    return [{"type": "function", "function": {"name": n, "description": "About a city", "parameters": TOOLS[n]}} for n in names]


# name: what is asked, tools, choice, with thoughts
CASES = {
    "text": (SUM, (), None, False),
    "thoughts": (SUM, (), None, True),
    "required": (ASK, ("get_weather",), "required", False),
    "auto": (ASK, ("get_weather",), "auto", False),
    "parallel": (BOTH, ("get_weather",), "auto", False),
    "values": (ASK, ("plan",), "required", False),
    "thoughts and call": (ASK, ("get_weather",), "auto", True),
}


def closed(text):
    """What is complete of the beginning of an object, as the libraries read it in a stream."""
    text = re.sub(r"(?<=[\s\[:,])-?[0-9][0-9.eE+-]*\Z", "", text)  # a number at the very end might go on
    for n in range(len(text), 0, -1):
        stack, quoted, escaped = [], False, False
        for c in text[:n]:
            if quoted:
                quoted, escaped = not (c == '"' and not escaped), c == "\\" and not escaped
            elif c == '"':
                quoted = True
            elif c in "{[":
                stack.append("}" if c == "{" else "]")
            elif c in "}]":
                stack.pop()
        try:
            return json.loads(text[:n] + "".join(reversed(stack)))
        except ValueError:
            pass
    return {}


# --- each protocol: (body of a case, whole answer as facts, stream as facts) ---


def chat_body(case, limit):
    ask, tools, choice, think = case
    body = {"model": "demo", "messages": [{"role": "user", "content": ask}], "temperature": 0, "max_tokens": limit, "logprobs": True,
            "enable_thinking": think}
    return dict(body, tools=functions(*tools), tool_choice=choice) if tools else body


def usage_facts(usage):
    return {k: v for k, v in usage.items() if k != "prompt_tokens_details"}


def chat_whole(server, body):
    status, got = server.post("/v1/chat/completions", body)
    assert status == 200, got
    choice = got["choices"][0]
    message = choice["message"]
    calls = [[c["type"], c[c["type"]]["name"], c[c["type"]].get("arguments", c[c["type"]].get("input"))] for c in message.get("tool_calls", [])]
    return {"content": message["content"] or "", "thoughts": message.get("reasoning_content", ""), "calls": calls, "finish": choice["finish_reason"],
            "logprobs": choice["logprobs"]["content"], "usage": usage_facts(got["usage"])}


def chat_stream(server, body):
    out = {"content": "", "thoughts": "", "calls": [], "finish": None, "logprobs": [], "usage": None}
    for event in server.stream("/v1/chat/completions", dict(body, stream=True, stream_options={"include_usage": True})):
        if event == "data: [DONE]":
            continue
        chunk = json.loads(event[6:])
        if chunk["usage"]:
            out["usage"] = usage_facts(chunk["usage"])
        for choice in chunk["choices"]:
            delta = choice["delta"]
            out["content"] += delta.get("content") or ""
            out["thoughts"] += delta.get("reasoning_content") or ""
            out["logprobs"] += (choice["logprobs"] or {}).get("content") or []
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    assert call["index"] == len(out["calls"])
                    out["calls"].append([call["type"], call[call["type"]]["name"], ""])
                mine = out["calls"][call["index"]]
                mine[2] += call[mine[0]].get("arguments", call[mine[0]].get("input"))
            assert not (out["finish"] and delta), "something behind the end"
            out["finish"] = choice["finish_reason"] or out["finish"]
    return out


def messages_body(case, limit):
    ask, tools, choice, think = case
    body = {"model": "demo", "messages": [{"role": "user", "content": ask}], "temperature": 0, "max_tokens": limit}
    if think:
        body["thinking"] = {"type": "adaptive"}
    if tools:
        body["tools"] = [{"name": n, "description": "About a city", "input_schema": TOOLS[n]} for n in tools]
        body["tool_choice"] = {"type": "any" if choice == "required" else "auto"}
    return body


def messages_whole(server, body):
    status, got = server.post("/v1/messages", body)
    assert status == 200, got
    blocks = [{k: v for k, v in b.items() if k != "id"} for b in got["content"]]
    usage = got["usage"]
    return {"blocks": blocks, "stop": [got["stop_reason"], got["stop_sequence"]],
            "usage": [usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]]}


def messages_stream(server, body):
    blocks, partial, stop, usage = [], {}, None, None
    for event in server.stream("/v1/messages", dict(body, stream=True)):
        value = json.loads(event.split("\ndata: ")[1])
        if value["type"] == "content_block_start":
            block = {k: v for k, v in value["content_block"].items() if k != "id"}
            assert value["index"] == len(blocks)
            blocks.append(block)
        elif value["type"] == "content_block_delta":
            block, delta = blocks[value["index"]], value["delta"]
            if delta["type"] == "input_json_delta":
                partial[value["index"]] = partial.get(value["index"], "") + delta["partial_json"]
            else:
                key = delta["type"][:-6]
                block[key] += delta[key]
        elif value["type"] == "message_delta":
            stop = [value["delta"]["stop_reason"], value["delta"]["stop_sequence"]]
            usage = [value["usage"]["input_tokens"] + value["usage"]["cache_read_input_tokens"], value["usage"]["output_tokens"]]
    for i, text in partial.items():
        blocks[i]["input"] = closed(text)
    return {"blocks": blocks, "stop": stop, "usage": usage}


def responses_body(case, limit):
    ask, tools, choice, think = case
    body = {"model": "demo", "input": ask, "temperature": 0, "max_output_tokens": limit, "store": False,
            "reasoning": {"effort": "high" if think else "none"}}
    if tools:
        body["tools"] = [{"type": "function", "name": n, "description": "About a city", "parameters": TOOLS[n]} for n in tools]
        body["tool_choice"] = choice
    return body


def response_facts(got):
    items = [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in got["output"]]
    usage = {k: v for k, v in got["usage"].items() if k != "input_tokens_details"}
    return {"items": items, "status": got["status"], "why": got["incomplete_details"], "usage": usage}


def responses_whole(server, body):
    status, got = server.post("/v1/responses", body)
    assert status == 200, got
    return response_facts(got)


def responses_stream(server, body):
    deltas, last, kinds = {}, None, {"message": "text", "reasoning": "text", "function_call": "arguments", "custom_tool_call": "input"}
    done = {}
    for event in server.stream("/v1/responses", dict(body, stream=True)):
        last = json.loads(event.split("\ndata: ")[1])
        if last["type"].endswith(".delta"):
            deltas[last["output_index"]] = deltas.get(last["output_index"], "") + last["delta"]
        if last["type"] == "response.output_item.done":
            done[last["output_index"]] = last["item"]
    output = last["response"]["output"]
    assert [done[i] for i in range(len(done))] == output, (done, output)
    for i, item in enumerate(output):
        holder = item["content"][0] if "content" in item else item
        assert deltas.get(i, "") == holder[kinds[item["type"]]], (deltas, item)
    assert last["type"] == "response." + last["response"]["status"]
    return response_facts(last["response"])


def ollama_body(case, limit):
    ask, tools, choice, think = case
    body = {"model": "demo", "messages": [{"role": "user", "content": ask}], "think": think, "logprobs": True,
            "options": {"temperature": 0, "num_predict": limit}}
    return dict(body, tools=functions(*tools), tool_choice=choice) if tools else body


def ollama_facts(lines):
    out = {"content": "", "thoughts": "", "calls": [], "logprobs": []}
    for line in lines:
        message = line["message"]
        out["content"] += message["content"]
        out["thoughts"] += message.get("thinking", "")
        out["calls"] += [c["function"] for c in message.get("tool_calls", [])]
        out["logprobs"] += line.get("logprobs", [])
    last = lines[-1]
    assert last["done"] and not any(line["done"] for line in lines[:-1])
    return dict(out, end=[last["done_reason"], last["prompt_eval_count"], last["eval_count"]])


def ollama_whole(server, body):
    status, got = server.post("/api/chat", dict(body, stream=False))
    assert status == 200, got
    return ollama_facts([got])


def ollama_stream(server, body):
    return ollama_facts([json.loads(line) for line in server.stream("/api/chat", body)])


PROTOCOLS = {"chat": (chat_body, chat_whole, chat_stream), "messages": (messages_body, messages_whole, messages_stream),
             "responses": (responses_body, responses_whole, responses_stream), "ollama": (ollama_body, ollama_whole, ollama_stream)}


def tokens_of(facts):
    usage = facts.get("usage")
    return facts["end"][2] if usage is None else usage[1] if isinstance(usage, list) else usage.get("completion_tokens", usage.get("output_tokens"))


def names_and_arguments(facts):
    """[(name, arguments)] of the calls, whatever the protocol; arguments as an object or as a text."""
    if "blocks" in facts:
        return [(b["name"], b["input"]) for b in facts["blocks"] if b["type"] == "tool_use"]
    if "items" in facts:
        return [(i["name"], i["arguments"]) for i in facts["items"] if i["type"] == "function_call"]
    return [(c["name"], c["arguments"]) if isinstance(c, dict) else (c[1], c[2]) for c in facts["calls"]]


def equal_at_every_limit(server, protocol, name):
    body_of, whole, stream = PROTOCOLS[protocol]
    complete = whole(server, body_of(CASES[name], 200))
    length, seen = tokens_of(complete), set()
    calls = names_and_arguments(complete)
    assert length < 120 and bool(calls) == bool(CASES[name][1]), complete
    step = 5 if QUICK else 1
    for limit in list(range(1, length, step)) + [length, length + 1]:
        body = body_of(CASES[name], limit)
        one, told = whole(server, body), stream(server, body)
        assert one == told, f"{name}, {limit} tokens:\n{one}\n{told}"
        assert tokens_of(one) == min(limit, length), (limit, one)
        cut = names_and_arguments(one)
        for i, (n, arguments) in enumerate(cut):  # the beginning of what the whole answer has
            want = calls[i][1]
            same = want.startswith(arguments) if isinstance(want, str) else arguments == want or (i == len(cut) - 1 and set(arguments) <= set(want))
            assert n == calls[i][0] and same, (limit, cut, calls)
        seen.add(json.dumps(cut))
    if calls:  # nothing, the name, pieces of the arguments, everything
        assert "[]" in seen and json.dumps(calls) in seen and len(seen) >= (2 if QUICK else 3), seen
    return f"{length} tokens"


def custom_text_is_cut(server):
    """A custom tool's text has its beginning, streamed or not."""
    tool = {"type": "custom", "custom": {"name": "run", "description": "Runs code", "format": {
        "type": "grammar", "grammar": {"syntax": "regex", "definition": "SELECT [a-z]{20,40};"}}}}
    body = {"model": "demo", "messages": [{"role": "user", "content": "Run a query."}], "temperature": 0, "tools": [tool],
            "tool_choice": "required", "logprobs": True}
    whole = chat_whole(server, dict(body, max_tokens=100))["calls"][0][2]
    flat = {"model": "demo", "input": "Run a query.", "temperature": 0, "tools": [dict(tool["custom"], type="custom")], "tool_choice": "required", "store": False}
    flat["tools"][0]["format"] = {"type": "grammar", "syntax": "regex", "definition": "SELECT [a-z]{20,40};"}
    seen = set()
    for limit in range(6, 40, 6 if QUICK else 2):
        one, told = chat_whole(server, dict(body, max_tokens=limit)), chat_stream(server, dict(body, max_tokens=limit))
        assert one == told, (one, told)
        text = one["calls"][0][2] if one["calls"] else ""
        assert whole.startswith(text), (whole, text)
        seen.add(text)
        one, told = responses_whole(server, dict(flat, max_output_tokens=limit)), responses_stream(server, dict(flat, max_output_tokens=limit))
        assert one == told, (one, told)
    assert len(seen) > 3, seen


def a_full_context_cuts(server):
    """As the limit of tokens does; the model's own end and a stop text do not cut calls."""
    body = ollama_body(CASES["required"], -1)
    prompt = ollama_whole(server, body)["end"][1]
    seen = set()
    for more in range(8, 20, 6 if QUICK else 2):
        small = dict(body, options={"temperature": 0, "num_ctx": prompt + more})
        one, told = ollama_whole(server, small), ollama_stream(server, small)
        assert one == told and one["end"][0] == "length" and not one["content"], (one, told)
        seen.update(json.dumps(call["arguments"]) for call in one["calls"])
    assert "{}" in seen, seen
    stopped = dict(chat_body(CASES["required"], 100), stop=["city", "Paris", "tool"])
    one, told = chat_whole(server, stopped), chat_stream(server, stopped)
    assert one == told and one["finish"] == "tool_calls" and json.loads(one["calls"][0][2]) == {"city": "Paris"}, (one, told)


def several_choices_are_cut(server):
    body = {"model": "demo", "messages": [{"role": "user", "content": ASK}], "temperature": 1, "seed": 7, "n": 3, "max_tokens": 14,
            "tools": functions("get_weather"), "tool_choice": "required"}
    whole = [c["message"]["tool_calls"][0]["function"] for c in server.post("/v1/chat/completions", body)[1]["choices"]]
    told = [{"name": "", "arguments": ""} for _ in whole]
    for event in server.stream("/v1/chat/completions", dict(body, stream=True)):
        for choice in json.loads(event[6:])["choices"] if event != "data: [DONE]" else []:
            for call in choice["delta"].get("tool_calls", []):
                for key, text in call["function"].items():
                    told[choice["index"]][key] += text
    assert told == whole, (told, whole)


def main():
    checks = Checks()
    with Server(PROGRAM, "--threads", "2") as server:
        for protocol in PROTOCOLS:
            for name in CASES:
                def check(server, protocol=protocol, name=name):
                    return equal_at_every_limit(server, protocol, name)
                check.__name__ = f"{protocol}: {name}"
                checks.run(check, server)
        for check in (custom_text_is_cut, a_full_context_cuts, several_choices_are_cut):
            checks.run(check, server)
    checks.exit()


main()
