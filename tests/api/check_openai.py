# SPDX-License-Identifier: Apache-2.0
"""The OpenAI surface on the wire: exact event sequences and field sets, and every mistake with its status and shape."""
import base64
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

from hearth_server import Checks, Connection, Server, chat_text

PROGRAM = sys.argv[1]
QUICK = os.environ.get("HEARTH_QUICK") == "1"
CHAT = "/v1/chat/completions"
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather in a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
SUM = [{"role": "user", "content": "What is 12 plus 30?"}]
ASK_WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]


def chat(messages, **fields):
    return dict({"model": "demo", "messages": messages, "temperature": 0}, **fields)


def keys(value):
    """The field set of a JSON value: names with types, lists by their first element."""
    if isinstance(value, dict):
        return {k: keys(v) for k, v in value.items()}
    if isinstance(value, list):
        return [keys(value[0])] if value else []
    return type(value).__name__


def data(events):
    return [json.loads(e[6:]) for e in events if e.startswith("data: {")]


CHUNK = {"id": "str", "object": "str", "created": "int", "model": "str", "system_fingerprint": "str"}
USAGE = {"prompt_tokens": "int", "completion_tokens": "int", "total_tokens": "int", "prompt_tokens_details": {"cached_tokens": "int"},
         "completion_tokens_details": {"reasoning_tokens": "int", "accepted_prediction_tokens": "int",
                                       "rejected_prediction_tokens": "int"}}


def chunk_of(delta, finish="NoneType"):
    return dict(CHUNK, choices=[{"index": "int", "delta": delta, "finish_reason": finish}])


def runs(events):
    """The sequence of field sets with repetitions folded."""
    folded = []
    for e in data(events):
        if not folded or folded[-1] != keys(e):
            folded.append(keys(e))
    return folded


def stream_text(server):
    events = list(server.stream(CHAT, chat(SUM, stream=True)))
    assert runs(events) == [chunk_of({"role": "str", "content": "str"}), chunk_of({"content": "str"}), chunk_of({}, "str")], runs(events)
    assert events[-1] == "data: [DONE]"
    assert chat_text(events) == ("12 plus 30 is 42.", "stop", True)
    first = data(events)[0]
    assert first["object"] == "chat.completion.chunk" and first["id"].startswith("chatcmpl-")
    assert len({e["id"] for e in data(events)}) == 1


def stream_usage(server):
    events = list(server.stream(CHAT, chat(SUM, stream=True, stream_options={"include_usage": True})))
    chunks = data(events)
    assert all(c["usage"] is None for c in chunks[:-1])
    assert chunks[-1]["choices"] == [] and keys(chunks[-1]["usage"]) == USAGE
    assert chunks[-1]["usage"]["completion_tokens"] == 12


def stream_tool_call(server):
    events = list(server.stream(CHAT, chat(ASK_WEATHER, stream=True, tools=[WEATHER])))
    begin = chunk_of({"tool_calls": [{"index": "int", "id": "str", "type": "str", "function": {"name": "str", "arguments": "str"}}]})
    piece = chunk_of({"tool_calls": [{"index": "int", "function": {"arguments": "str"}}]})
    assert runs(events) == [chunk_of({"role": "str", "content": "str"}), begin, piece, chunk_of({}, "str")], runs(events)
    calls = [c["choices"][0]["delta"]["tool_calls"][0] for c in data(events)[1:-1]]
    assert calls[0]["function"]["name"] == "get_weather" and calls[0]["type"] == "function"
    assert json.loads("".join(c["function"]["arguments"] for c in calls)) == {"city": "Paris"}
    assert data(events)[-1]["choices"][0]["finish_reason"] == "tool_calls"
    # While they are written: about a piece per token, not the whole when it is there.
    pieces = [c["function"]["arguments"] for c in calls[1:]]
    assert len(pieces) >= 4 and "" not in pieces, pieces


def stream_tool_call_cut_off(server):
    """Wherever the limit falls, both a stream and an answer in one piece have the same part of the call, and both say length."""
    arguments = '{"city": "Paris"}'
    seen = set()
    for limit in (3, 12, 14) if QUICK else range(3, 16):
        events = data(list(server.stream(CHAT, chat(ASK_WEATHER, stream=True, tools=[WEATHER], max_tokens=limit))))
        deltas = [e["choices"][0]["delta"] for e in events]
        content = "".join(d.get("content") or "" for d in deltas)
        got = "".join(d["tool_calls"][0]["function"]["arguments"] for d in deltas if "tool_calls" in d)
        assert events[-1]["choices"][0]["finish_reason"] == "length" and arguments.startswith(got), (limit, deltas)
        assert not content, (limit, deltas)
        whole = server.post(CHAT, chat(ASK_WEATHER, tools=[WEATHER], max_tokens=limit))[1]["choices"][0]
        assert whole["finish_reason"] == "length" and not whole["message"]["content"], whole
        assert "".join(c["function"]["arguments"] for c in whole["message"].get("tool_calls", [])) == got, (whole, got)
        seen.add(len(got))
    assert len(seen) >= 2, seen


def stream_parallel_tool_calls(server):
    body = chat([{"role": "user", "content": "What is the weather in Paris and in Rome?"}], stream=True, tools=[WEATHER])
    events = list(server.stream(CHAT, body))
    seen = {}
    for c in data(events):
        for call in c["choices"][0]["delta"].get("tool_calls", []):
            entry = seen.setdefault(call["index"], {"id": call.get("id"), "name": call["function"].get("name"), "arguments": ""})
            entry["arguments"] += call["function"]["arguments"]
    assert sorted(seen) == [0, 1] and seen[0]["id"] != seen[1]["id"], seen
    assert [json.loads(seen[i]["arguments"])["city"] for i in (0, 1)] == ["Paris", "Rome"]
    status, whole = server.post(CHAT, dict(body, stream=False))
    message = whole["choices"][0]["message"]
    assert message["content"] is None and [c["function"]["name"] for c in message["tool_calls"]] == ["get_weather"] * 2, message


def stream_reasoning(server):
    events = list(server.stream(CHAT, chat(SUM, stream=True, enable_thinking=True)))
    assert runs(events) == [chunk_of({"role": "str", "content": "str"}), chunk_of({"reasoning_content": "str", "reasoning": "str"}),
                            chunk_of({"content": "str"}), chunk_of({}, "str")], runs(events)
    status, whole = server.post(CHAT, chat(SUM, enable_thinking=True))
    message = whole["choices"][0]["message"]
    assert message["reasoning_content"] == message["reasoning"] and message["content"] == "12 plus 30 is 42."
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] > 5
    assert "".join(c["choices"][0]["delta"].get("reasoning", "") for c in data(events)) == message["reasoning"]


def whole_answer_fields(server):
    status, whole = server.post(CHAT, chat(SUM))
    assert status == 200
    assert keys(whole) == {
        "id": "str", "object": "str", "created": "int", "model": "str", "system_fingerprint": "str",
        "choices": [{"index": "int", "message": {"role": "str", "content": "str", "refusal": "NoneType"}, "logprobs": "NoneType",
                     "finish_reason": "str"}],
        "usage": USAGE, "timings": keys(whole["timings"])}, keys(whole)
    assert set(whole["timings"]) == {"cache_n", "prompt_n", "prompt_ms", "prompt_per_second", "predicted_n", "predicted_ms",
                                     "predicted_per_second", "draft_n", "draft_n_accepted"}
    usage = whole["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def ends_are_told(server):
    status, cut = server.post(CHAT, chat(SUM, max_tokens=3))
    assert cut["choices"][0]["finish_reason"] == "length" and cut["usage"]["completion_tokens"] == 3
    status, stopped = server.post(CHAT, chat(SUM, stop=" is"))
    assert stopped["choices"][0]["finish_reason"] == "stop" and stopped["choices"][0]["message"]["content"] == "12 plus 30"
    events = list(server.stream(CHAT, chat(SUM, stream=True, stop=["zzz", " is"])))
    assert chat_text(events) == ("12 plus 30", "stop", True)
    events = list(server.stream(CHAT, chat(SUM, stream=True, max_completion_tokens=3)))
    assert chat_text(events)[1] == "length"


def several_choices(server):
    status, many = server.post(CHAT, chat([{"role": "user", "content": "Tell me a story about a fox."}], n=3, temperature=1, seed=5, max_tokens=12))
    assert [c["index"] for c in many["choices"]] == [0, 1, 2]
    assert len({c["message"]["content"] for c in many["choices"]}) > 1
    assert many["usage"]["completion_tokens"] == 36
    again = server.post(CHAT, chat([{"role": "user", "content": "Tell me a story about a fox."}], n=3, temperature=1, seed=5, max_tokens=12))[1]
    assert [c["message"]["content"] for c in again["choices"]] == [c["message"]["content"] for c in many["choices"]]


def logprobs(server):
    status, whole = server.post(CHAT, chat(SUM, logprobs=True, top_logprobs=3))
    content = whole["choices"][0]["logprobs"]["content"]
    assert keys(content[0]) == {"token": "str", "logprob": "float", "bytes": ["int"],
                                "top_logprobs": [{"token": "str", "logprob": "float", "bytes": ["int"]}]}
    assert b"".join(bytes(t["bytes"]) for t in content).decode().startswith("12 plus 30 is 42.")
    assert all(len(t["top_logprobs"]) == 3 and t["logprob"] <= 0 and t["top_logprobs"][0]["logprob"] >= t["logprob"] - 1e-4 for t in content)
    events = list(server.stream(CHAT, chat(SUM, logprobs=True, stream=True)))
    streamed = [t for c in data(events) for t in (c["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert [t["token"] for t in streamed] == [t["token"] for t in content]


def json_answers(server):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
              "required": ["name", "age"], "additionalProperties": False}
    messages = [{"role": "user", "content": "Anna is 31 years old."}]
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}
    for fields in ({"response_format": form}, {"json_schema": schema}):
        answer = json.loads(server.post(CHAT, chat(messages, **fields))[1]["choices"][0]["message"]["content"])
        assert set(answer) == {"name", "age"} and isinstance(answer["age"], int), answer
    asked = [{"role": "user", "content": "Extract the name and the age as JSON: Anna is 31 years old."}]
    text = server.post(CHAT, chat(asked, response_format={"type": "json_object"}, max_tokens=200))[1]["choices"][0]["message"]["content"]
    assert isinstance(json.loads(text), dict), text
    text = server.post(CHAT, chat(messages, regex="[0-9]{3}-[a-f]{2}"))[1]["choices"][0]["message"]["content"]
    assert len(text) == 6 and text[3] == "-", text
    text = server.post(CHAT, chat(messages, grammar='root ::= "yes" | "no"'))[1]["choices"][0]["message"]["content"]
    assert text in ("yes", "no")


def constraint_forms(server):
    """Every form of every peer is honoured, by every endpoint that generates; none is dropped."""
    messages = [{"role": "user", "content": "Anna is 31 years old."}]
    schema = {"enum": ["red", "blue"]}
    grammar = 'root ::= "\\"red\\"" | "\\"blue\\""'
    lark = 'start: "\\"" COLOUR "\\""\nCOLOUR: "red" | "blue"\n'
    forms = [{"guided_grammar": lark}, {"structured_outputs": {"grammar": lark}}, {"response_format": {"type": "json_object", "schema": schema}}, {"response_format": {"type": "json_schema", "schema": schema}},
             {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}, {"json_schema": schema},
             {"guided_json": schema}, {"guided_json": json.dumps(schema)}, {"guided_choice": ['"red"', '"blue"']},
             {"guided_regex": '"(red|blue)"'}, {"guided_grammar": grammar}, {"grammar": grammar}, {"regex": '"(red|blue)"'},
             {"structured_outputs": {"json": schema}}, {"structured_outputs": {"choice": ['"red"', '"blue"']}},
             {"structured_outputs": {"regex": '"(red|blue)"'}}, {"structured_outputs": {"grammar": grammar}}]
    for form in forms:
        text = server.post(CHAT, chat(messages, **form))[1]["choices"][0]["message"]["content"]
        assert json.loads(text) in ("red", "blue"), (form, text)
        text = server.post("/v1/completions", dict({"model": "demo", "prompt": "x", "temperature": 0}, **form))[1]["choices"][0]["text"]
        assert json.loads(text) in ("red", "blue"), (form, text)
        if "response_format" not in form:
            answer = server.post("/v1/responses", dict({"model": "demo", "input": "x", "temperature": 0}, **form))[1]
            assert json.loads(answer["output"][0]["content"][0]["text"]) in ("red", "blue"), (form, answer)
    for path, body in (("/api/chat", {"messages": messages}), ("/api/generate", {"prompt": "x"})):
        answer = server.post(path, dict({"model": "demo", "stream": False, "format": schema}, **body))[1]
        assert json.loads(answer["response"] if "response" in answer else answer["message"]["content"]) in ("red", "blue"), answer
    for form in (dict(forms[2], guided_regex="x"), {"guided_grammar": 'start: "(" start ")"'}, {"guided_choice": []}, {"guided_choice": [1]}, {"guided_json": 3}, {"structural_tag": {}},
                 {"structured_outputs": {"structural_tag": "x"}}, {"structured_outputs": {"json": schema, "regex": "x"}},
                 {"response_format": {"type": "json_object", "schema": 3}}, {"guided_json": "{"}):
        assert server.post(CHAT, chat(messages, **form))[0] == 400, form


def steering(server):
    """What a schema leaves open is closed unless the request wants the whole language."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wild = {"max_tokens": 60, "temperature": 2, "top_k": 0, "top_p": 1}
    strays = 0
    for strict in (True, False):
        for seed in range(12):
            answer = server.post("/v1/completions", dict(wild, model="demo", prompt="x", seed=seed, json_schema=schema, strict_json=strict))[1]["choices"][0]
            if answer["finish_reason"] == "stop" and strict:
                assert set(json.loads(answer["text"])) == {"n"} and "." not in answer["text"], answer
            strays += not strict and not (set('{} \n\t\r"n:-,0123456789') >= set(answer["text"]))
    assert strays > 0, "nothing shows the whole language"


def tool_choices(server):
    hello = [{"role": "user", "content": "Hello"}]
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        answer = server.post(CHAT, chat(hello, tools=[WEATHER], tool_choice=choice))[1]["choices"][0]
        assert answer["message"]["tool_calls"][0]["function"]["name"] == "get_weather", answer
        assert "city" in json.loads(answer["message"]["tool_calls"][0]["function"]["arguments"])
    answer = server.post(CHAT, chat(ASK_WEATHER, tools=[WEATHER], tool_choice="none", max_tokens=30))[1]["choices"][0]
    assert "tool_calls" not in answer["message"]
    other = {"type": "function", "function": dict(WEATHER["function"], name="other")}
    name = lambda answer: answer["message"]["tool_calls"][0]["function"]["name"]
    for choice in ("any", {"type": "any"}, {"type": "function", "name": "other"}):
        assert server.post(CHAT, chat(hello, tools=[other], tool_choice=choice))[1]["choices"][0]["finish_reason"] == "tool_calls", choice
    allowed = [{"type": "function", "function": {"name": "other"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": allowed}}
    assert name(server.post(CHAT, chat(ASK_WEATHER, tools=[WEATHER, other], tool_choice=choice))[1]["choices"][0]) == "other"
    flat = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "other"}]}
    body = {"model": "demo", "input": "Hello", "tools": [dict(WEATHER["function"], type="function"), dict(other["function"], type="function")], "tool_choice": flat}
    assert [o["name"] for o in server.post("/v1/responses", body)[1]["output"] if o["type"] == "function_call"][:1] == ["other"]
    for choice in ("auto", "none"):
        assert server.post(CHAT, chat(hello, tools=[], tool_choice=choice, max_tokens=4))[0] == 200
    for bad in ({"tools": [], "tool_choice": "required"}, {"tools": [WEATHER], "tool_choice": "never"}, {"tools": [WEATHER], "tool_choice": choice_of("unknown")},
                {"functions": [WEATHER["function"]], "tools": [WEATHER]}, {"function_call": "auto"}):
        assert server.post(CHAT, chat(hello, **bad))[0] == 400, bad


def prompt_scores(server):
    """echo, logprobs and max_tokens 0: the log-probabilities of the prompt's tokens, equal to those of `hearth logits`."""
    words = "The cat sat in the boat. What is 12 plus 30? Wendy loved the river, \u00fcber alles; {} \n tell me a story".split(" ")
    texts = [" ".join(words[i % 7:i % 7 + 3 + i % 19]) + " " * (i % 2) + str(i) for i in range(int(os.environ.get("HEARTH_SCORE_TEXTS", "4")))]
    answers = server.post("/v1/completions", {"model": "demo", "prompt": texts, "echo": True, "logprobs": 3, "max_tokens": 0})[1]
    assert answers["usage"]["completion_tokens"] == 0
    model = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/demo/demo.gguf")
    worst = 0
    for text, choice in zip(texts, answers["choices"]):
        ids = server.post("/tokenize", {"model": "demo", "content": text})[1]["tokens"]
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "logits")
            subprocess.run([PROGRAM, "logits", model, "--kv", "f16", "--ids", ",".join(map(str, ids)), "--out", path], check=True, capture_output=True)
            with open(path, "rb") as f:
                data = f.read()
        width = len(data) // 4 // len(ids)
        scores = choice["logprobs"]
        assert choice["text"] == text and choice["finish_reason"] == "length", choice
        whole = "\ufffd" not in "".join(scores["tokens"])  # no character is divided among tokens
        assert not whole or "".join(scores["tokens"]) == text, choice
        assert len(scores["tokens"]) == len(scores["token_logprobs"]) == len(scores["top_logprobs"]) == len(scores["text_offset"]) == len(ids)
        assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
        assert all(text[o:] == "".join(scores["tokens"][i:]) or not whole for i, o in enumerate(scores["text_offset"]))
        for i in range(1, len(ids)):
            row = struct.unpack_from("<%df" % width, data, 4 * width * (i - 1))
            norm = max(row)
            norm += math.log(sum(math.exp(v - norm) for v in row))
            worst = max(worst, abs(row[ids[i]] - norm - scores["token_logprobs"][i]))
            assert sorted(scores["top_logprobs"][i].values(), reverse=True) == list(scores["top_logprobs"][i].values()) and len(scores["top_logprobs"][i]) == 3
            worst = max(worst, abs(max(row) - norm - max(scores["top_logprobs"][i].values())))
    assert worst < 1e-5, worst
    by_ids = server.post("/v1/completions", {"model": "demo", "prompt": [ids], "echo": True, "logprobs": 1, "max_tokens": 2, "ignore_eos": True, "temperature": 0})[1]["choices"][0]["logprobs"]
    assert len(by_ids["tokens"]) > len(ids) and by_ids["token_logprobs"][:len(ids)] == scores["token_logprobs"]
    for path, body in (("/v1/completions", {"prompt": "x"}), (CHAT, {"messages": SUM})):  # vLLM's form of them is not dropped unseen
        status, why = server.post(path, dict(body, model="demo", max_tokens=1, prompt_logprobs=1))
        assert status == 400 and why["error"]["param"] == "prompt_logprobs", why
    silent = server.post("/v1/completions", {"model": "demo", "prompt": "x", "max_tokens": 0})[1]["choices"][0]
    assert silent["text"] == "" and silent["logprobs"] is None and silent["finish_reason"] == "length"
    return f"{len(texts)} texts, at most {worst:.1e} apart"
    return "%d texts, %.1e" % (len(texts), worst)


def choice_of(name):
    return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": name}}]}}


def old_functions(server):
    """functions and function_call: the same calls in the form before tools."""
    fields = {"functions": [WEATHER["function"]], "function_call": {"name": "get_weather"}}
    choice = server.post(CHAT, chat(ASK_WEATHER, **fields))[1]["choices"][0]
    assert choice["finish_reason"] == "function_call" and choice["message"]["content"] is None and "tool_calls" not in choice["message"], choice
    call = choice["message"]["function_call"]
    assert call["name"] == "get_weather" and "city" in json.loads(call["arguments"])
    deltas = [c["choices"][0] for c in data(server.stream(CHAT, chat(ASK_WEATHER, stream=True, **fields)))]
    assert deltas[-1]["finish_reason"] == "function_call"
    pieces = [d["delta"]["function_call"] for d in deltas if "function_call" in d["delta"]]
    assert pieces[0]["name"] == "get_weather" and json.loads("".join(p["arguments"] for p in pieces)) == json.loads(call["arguments"])
    talk = ASK_WEATHER + [{"role": "assistant", "content": None, "function_call": call}, {"role": "function", "name": "get_weather", "content": '{"weather": "sunny", "degrees": 21}'}]
    answer = server.post(CHAT, chat(talk, functions=[WEATHER["function"]], function_call="auto"))
    assert answer[0] == 200 and answer[1]["choices"][0]["message"]["content"] == "It is sunny in Paris, with 21 degrees.", answer


def custom_tools(server):
    """A tool that takes a text: free, or held by a grammar; whole and streamed; its call and result come back; refusals have a place."""
    digits = {"type": "custom", "custom": {"name": "dial", "description": "Dial a number", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[0-9]{3}-[0-9]{2}"}}}}
    free = {"type": "custom", "custom": {"name": "note", "format": {"type": "text"}}}
    ask = [{"role": "user", "content": "Call me."}]
    named = {"type": "custom", "custom": {"name": "dial"}}
    among = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    for choice in (named, among):
        body = chat(ask, tools=[WEATHER, digits, free], tool_choice=choice, max_tokens=60)
        got = server.post(CHAT, body)[1]["choices"][0]
        call = got["message"]["tool_calls"][0]
        assert got["finish_reason"] == "tool_calls" and keys(call) == {"id": "str", "type": "str", "custom": {"name": "str", "input": "str"}}, got
        assert call["type"] == "custom" and call["custom"]["name"] == "dial" and re.fullmatch("[0-9]{3}-[0-9]{2}", call["custom"]["input"]), call
        deltas = [c["choices"][0]["delta"]["tool_calls"][0] for c in data(server.stream(CHAT, dict(body, stream=True))) if "tool_calls" in c["choices"][0]["delta"]]
        assert deltas[0]["type"] == "custom" and deltas[0]["custom"]["name"] == "dial" and deltas[0]["id"], deltas
        assert "".join(d["custom"]["input"] for d in deltas) == call["custom"]["input"], deltas
    # Functions beside it keep their form, streamed and whole.
    assert server.post(CHAT, chat(ASK_WEATHER, tools=[WEATHER, digits]))[1]["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
    talk = ask + [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": call["id"], "content": "busy"}]
    status, got = server.post(CHAT, chat(talk, tools=[digits, free], max_tokens=8))
    assert status == 200, got
    prompt = server.post("/apply-template", {"model": "demo", "messages": talk, "tools": [digits]})[1]["prompt"]
    assert call["custom"]["input"] in prompt and '"input"' in prompt, prompt
    for format, at in (({"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "(" start ")"'}}, "tools[0].custom.format.grammar.definition"),
                       ({"type": "grammar", "grammar": {"syntax": "bnf", "definition": "a"}}, "tools[0].custom.format.grammar.syntax"), ({"type": "json"}, "tools[0].custom.format.type")):
        status, why = server.post(CHAT, chat(ask, tools=[{"type": "custom", "custom": {"name": "x", "format": format}}]))
        assert status == 400 and why["error"]["param"] == at, why
    for tool in ({"type": "custom"}, {"type": "custom", "custom": {}}, {"type": "custom", "custom": {"name": "a b"}}):
        assert server.post(CHAT, chat(ask, tools=[tool]))[0] == 400, tool


def cut_calls(server):
    """A call that is cut off is never shown as text, whether it must come or the model chose it."""
    for n in range(1, 14):
        for stream, choice in ((False, "required"), (True, "required"), (False, "auto"), (True, "auto")):
            body = chat(ASK_WEATHER, tools=[WEATHER], tool_choice=choice, max_tokens=n, stream=stream)
            if stream:
                content = "".join(c["choices"][0]["delta"].get("content") or "" for c in data(server.stream(CHAT, body)))
            else:
                content = server.post(CHAT, body)[1]["choices"][0]["message"]["content"] or ""
            assert content == "", (n, stream, content)


def completions(server):
    status, whole = server.post("/v1/completions", {"model": "demo", "prompt": ["Hello", [100, 200]], "max_tokens": 4, "n": 2, "temperature": 0})
    assert status == 200 and [c["index"] for c in whole["choices"]] == [0, 1, 2, 3], whole
    assert keys(whole["choices"][0]) == {"index": "int", "text": "str", "logprobs": "NoneType", "finish_reason": "str"}
    status, echoed = server.post("/v1/completions", {"model": "demo", "prompt": "Hello", "max_tokens": 2, "echo": True, "temperature": 0, "logprobs": 2})
    choice = echoed["choices"][0]
    assert choice["text"].startswith("Hello")
    assert set(choice["logprobs"]) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert len({len(v) for v in choice["logprobs"].values()}) == 1
    status, best = server.post("/v1/completions", {"model": "demo", "prompt": "Hello", "max_tokens": 4, "n": 1, "best_of": 4, "temperature": 1.5, "seed": 1})
    assert len(best["choices"]) == 1 and best["usage"]["completion_tokens"] > 4
    events = list(server.stream("/v1/completions", {"model": "demo", "prompt": "Hello", "max_tokens": 4, "stream": True, "temperature": 0}))
    text = "".join(c["choices"][0]["text"] for c in data(events))
    assert events[-1] == "data: [DONE]" and text == server.post(
        "/v1/completions", {"model": "demo", "prompt": "Hello", "max_tokens": 4, "temperature": 0})[1]["choices"][0]["text"]
    assert server.post("/v1/completions", {"model": "demo", "prompt": "Hello"})[1]["usage"]["completion_tokens"] <= 16


def embeddings(server):
    ask = {"model": "demo", "input": ["a fox", "a lamp"]}
    status, floats = server.post("/v1/embeddings", ask)
    status, packed = server.post("/v1/embeddings", dict(ask, encoding_format="base64"))
    assert keys(floats) == {"object": "str", "data": [{"object": "str", "index": "int", "embedding": ["float"]}], "model": "str",
                            "usage": {"prompt_tokens": "int", "total_tokens": "int"}}
    for a, b in zip(floats["data"], packed["data"]):
        raw = base64.b64decode(b["embedding"])
        vector = struct.unpack(f"<{len(raw) // 4}f", raw)
        assert len(vector) == 512 and all(struct.pack("<f", x) == struct.pack("<f", y) for x, y in zip(vector, a["embedding"]))
        assert abs(sum(v * v for v in vector) - 1) < 1e-4
    short = server.post("/v1/embeddings", dict(ask, dimensions=64))[1]["data"][0]["embedding"]
    assert len(short) == 64 and abs(sum(v * v for v in short) - 1) < 1e-4
    many = server.post("/v1/embeddings", {"model": "demo", "input": [f"text {i}" for i in range(40)]})[1]
    assert [d["index"] for d in many["data"]] == list(range(40))
    assert many["data"][7]["embedding"] == server.post("/v1/embeddings", {"model": "demo", "input": "text 7"})[1]["data"][0]["embedding"]


def models(server):
    status, listed = server.get("/v1/models")
    assert listed["object"] == "list" and listed["data"][0]["id"] == "demo" and listed["data"][0]["object"] == "model"
    assert server.get("/v1/models/demo")[1]["id"] == "demo"
    status, missing = server.get("/v1/models/no/such%20model")
    assert status == 404 and missing["error"]["code"] == "model_not_found"


def names(events):
    folded = []
    for e in events:
        name = e.split("\n")[0]
        if not folded or folded[-1] != name:
            folded.append(name)
    return [n.replace("event: response.", "") for n in folded]


def response_events(server, **fields):
    body = dict({"model": "demo", "input": "What is 12 plus 30?", "temperature": 0, "stream": True}, **fields)
    events = list(server.stream("/v1/responses", body))
    parsed = [json.loads(e.split("\ndata: ")[1]) for e in events]
    assert [p["sequence_number"] for p in parsed] == list(range(len(parsed)))
    assert all(e.startswith("event: " + p["type"] + "\n") for e, p in zip(events, parsed))
    return names(events), parsed


def responses(server):
    seen, parsed = response_events(server)
    message = ["output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done"]
    assert seen == ["created", "in_progress"] + message + ["completed"], seen
    last = parsed[-1]["response"]
    assert last["status"] == "completed" and last["output"][0]["content"][0]["text"] == "12 plus 30 is 42."
    assert set(last["usage"]) == {"input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens"}
    status, whole = server.post("/v1/responses", {"model": "demo", "input": "What is 12 plus 30?", "temperature": 0, "instructions": "Be brief."})
    assert status == 200 and whole["object"] == "response" and whole["instructions"] == "Be brief."
    seen, parsed = response_events(server, max_output_tokens=3)
    assert seen[-1] == "incomplete" and parsed[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    tool, call_text = dict(WEATHER["function"], type="function"), '{"city": "Paris"}'
    seen, parsed = response_events(server, input="What is the weather in Paris?", tools=[tool])
    assert seen == ["created", "in_progress", "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
                    "output_item.done", "completed"], seen
    assert sum(p["type"] == "response.function_call_arguments.delta" for p in parsed) >= 4
    _, cut = response_events(server, input="What is the weather in Paris?", tools=[tool], max_output_tokens=16)
    half = cut[-1]["response"]["output"][0]
    assert cut[-1]["type"] == "response.incomplete" and half["status"] == "incomplete" and call_text.startswith(half["arguments"]), half
    call = parsed[-1]["response"]["output"][0]
    assert call["type"] == "function_call" and json.loads(call["arguments"]) == {"city": "Paris"}
    back = [{"role": "user", "content": "What is the weather in Paris?"}, call,
            {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}]
    assert server.post("/v1/responses", {"model": "demo", "input": back, "tools": [tool], "temperature": 0})[0] == 200
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"], "additionalProperties": False}
    form = {"format": {"type": "json_schema", "name": "p", "schema": schema, "strict": True}}
    text = server.post("/v1/responses", {"model": "demo", "input": "Anna is 31.", "temperature": 0, "text": form})[1]["output"][0]["content"][0]["text"]
    assert isinstance(json.loads(text)["age"], int)


LONG = [{"role": "user", "content": "word " * 5000}]
MISTAKES = [
    ({}, 400, "model"), (chat(SUM, model=7), 400, "model"), (chat(SUM, model="nope"), 404, "model"), (chat([]), 400, "messages"),
    ({"model": "demo"}, 400, "messages"), (chat([7]), 400, "messages[0]"), (chat([{"role": "wizard", "content": "x"}]), 400, "messages[0].role"),
    (chat([{"content": "x"}]), 400, "messages[0].role"), (chat([{"role": "user"}]), 400, "messages[0].content"),
    (chat([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]), 400, "messages[0].content[0].image_url.url"),
    (chat([{"role": "user", "content": [{"type": "text"}]}]), 400, "messages[0].content[0].text"),
    (chat([{"role": "tool", "content": "x"}]), 400, "messages[0].tool_call_id"), (chat(SUM, temperature=3), 400, "temperature"),
    (chat(SUM, temperature="warm"), 400, "temperature"), (chat(SUM, top_p=1.1), 400, "top_p"), (chat(SUM, n=0), 400, "n"),
    (chat(SUM, max_tokens=0), 400, "max_tokens"), (chat(SUM, max_tokens=-5), 400, "max_tokens"), (chat(SUM, stop=[7]), 400, "stop[0]"),
    (chat(SUM, presence_penalty=3), 400, "presence_penalty"), (chat(SUM, logit_bias={"x": 1}), 400, "logit_bias.x"),
    (chat(SUM, logit_bias={"1": 101}), 400, "logit_bias.1"), (chat(SUM, top_logprobs=2), 400, "top_logprobs"),
    (chat(SUM, logprobs=True, top_logprobs=21), 400, "top_logprobs"), (chat(SUM, stream_options={}), 400, "stream_options"),
    (chat(SUM, tools=[{}]), 400, "tools[0].type"), (chat(SUM, tools=[{"type": "function"}]), 400, "tools[0].function"),
    (chat(SUM, tools=[{"type": "function", "function": {"name": "a b"}}]), 400, "tools[0].function.name"),
    (chat(SUM, tool_choice="required"), 400, "tool_choice"),
    (chat(SUM, tools=[WEATHER], tool_choice={"type": "function", "function": {"name": "other"}}), 400, "tool_choice"),
    (chat(SUM, response_format={"type": "xml"}), 400, "response_format.type"),
    (chat(SUM, response_format={"type": "json_schema", "json_schema": {"name": "x"}}), 400, "response_format.json_schema.schema"),
    (chat(SUM, functions=[{}]), 400, "functions[0].name"), (chat(SUM, lora=[{"id": 0}]), 404, "lora"), (chat(SUM, lora=[{"id": -1}]), 400, "lora[0].id"), (chat(SUM, audio={}), 400, "audio"),
    (chat(SUM, grammar="root ::= ("), 400, "grammar"), (chat(SUM, regex="(("), 400, "regex"),
    (chat(SUM, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "wrong"}}}), 400, "response_format"),
    (chat(LONG), 400, None),
]


def speculation(server):
    """Drafts never change an answer; a request may switch them off, bound them, or say what it expects."""
    story = [{"role": "user", "content": "Tell me a story with the words fox and bread."}]
    code, plain = server.post(CHAT, chat(story, **{"speculative.enabled": False}))
    assert code == 200 and plain["timings"]["draft_n"] == 0
    text = plain["choices"][0]["message"]["content"]
    for fields in ({"prediction": {"type": "content", "content": text}}, {"prediction": {"type": "content", "content": [{"type": "text", "text": text}]}},
                   {"speculative.n_max": 2}, {"speculative": {"enabled": True, "max": 3}}, {"speculative": {"enabled": False}}):
        code, got = server.post(CHAT, chat(story, **fields))
        assert code == 200 and got["choices"][0]["message"]["content"] == text, (fields, got)
        details = got["usage"]["completion_tokens_details"]
        if "prediction" in fields:
            assert details["accepted_prediction_tokens"] > 0, got["usage"]
        else:
            assert details["accepted_prediction_tokens"] == 0
        assert got["timings"]["draft_n_accepted"] <= got["timings"]["draft_n"]
    for fields, param in (({"prediction": {"type": "audio", "content": "x"}}, "prediction.type"), ({"prediction": {"type": "content"}}, "prediction"),
                          ({"speculative": {"max": 99}}, "speculative.max")):
        code, got = server.post(CHAT, chat(story, **fields))
        assert code == 400 and got["error"]["param"] == param, (fields, got)


def mistakes(server):
    with Connection(server) as c:
        for stream in (False, True):
            for body, want, param in MISTAKES:
                if stream and "stream_options" in body:
                    continue
                status, headers, answer = c.request("POST", CHAT, json.dumps(dict(body, stream=stream) if stream else body).encode())
                error = json.loads(answer)["error"]
                assert status == want and set(error) == {"message", "type", "param", "code"}, (body, status, answer)
                assert error["param"] == param and error["type"] == "invalid_request_error", (str(body)[:200], error)
        status, _, answer = c.request("POST", CHAT, json.dumps(chat(LONG)).encode())
        message = json.loads(answer)["error"]
        assert message["code"] == "context_length_exceeded" and "4096" in message["message"] and "5013" in message["message"], message


def native(server):
    tokens = server.post("/tokenize", {"content": "hello world"})[1]["tokens"]
    assert server.post("/detokenize", {"tokens": tokens})[1]["content"] == "hello world"
    pieces = server.post("/tokenize", {"content": "hello world", "with_pieces": True})[1]["tokens"]
    assert "".join(p["piece"] for p in pieces) == "hello world" and [p["id"] for p in pieces] == tokens
    applied = server.post("/apply-template", {"messages": SUM})[1]
    assert "What is 12 plus 30?" in applied["prompt"]
    assert applied["prompt_tokens"] == server.chat(SUM[0]["content"], max_tokens=1)[1]["usage"]["prompt_tokens"]
    # U+0000 is a character like any other.
    tokens = server.post("/tokenize", {"content": "a\0b"})[1]["tokens"]
    assert server.post("/detokenize", {"tokens": tokens})[1]["content"] == "a\0b"
    assert "x\0y" in server.post("/apply-template", {"messages": [{"role": "user", "content": "x\0y"}]})[1]["prompt"]
    assert server.post(CHAT, chat([{"role": "user", "content": "x\0y"}], max_tokens=2, stop=["\0"]))[0] == 200
    assert server.post("/v1/models/unload", {"model": "demo"})[1]["status"] == "unloaded"
    assert server.get("/v1/models")[1]["data"][0]["status"] == "unloaded"
    assert server.post("/v1/models/load", {"model": "demo", "keep_alive": "10m"})[1]["status"] == "loaded"
    assert server.get("/props")[1]["default_generation_settings"]["n_ctx"] == 4096
    assert server.get("/slots")[1] == []
    status, _, text = server.request("GET", "/metrics")
    lines = text.decode().splitlines()
    for name in ("requests_total", "request_duration_seconds", "time_to_first_token_seconds", "inter_token_seconds", "prompt_tokens_total",
                 "prompt_tokens_cached_total", "tokens_generated_total", "requests_running", "requests_waiting", "batch_tokens",
                 "kv_pages_used", "kv_pages_total", "kv_evictions_total", "prefix_cache_hit_tokens_total",
                 "models_loaded", "memory_bytes", "uptime_seconds"):
        assert f"# TYPE hearth_{name} " in "".join(l + " " for l in lines if l.startswith(f"# TYPE hearth_{name} ")), name
        assert any(l.startswith(f"hearth_{name}") for l in lines), name
    for line in lines:
        assert line.startswith("#") or float(line.rsplit(" ", 1)[1]) >= 0, line
    infinite = [l for l in lines if l.startswith('hearth_request_duration_seconds_bucket{le="+Inf"}')][0]
    total = [l for l in lines if l.startswith("hearth_request_duration_seconds_count")][0]
    assert infinite.split()[-1] == total.split()[-1]


def infill(program):
    """A gap is filled from the tokens that the model was made for, in their order; the rest is the model's."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "fim.gguf")
        marks = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
        subprocess.run([program, "debug", "random-model", "--dim", "64", "--layers", "1", "--vocab", "2000", "--type", "Q8_0", "--control",
                        ",".join(marks), path], check=True)
        with Server(program, "--model", f"fim={path}", "--ctx", "512") as server:
            def ids(text, special=False):
                return server.post("/tokenize", {"model": "fim", "content": text, "parse_special": special})[1]["tokens"]
            before, after = "def f(x):\n    return ", "\n\nprint(f(1))\n"
            prompt = ids(marks[0], True) + ids(before) + ids(marks[1], True) + ids(after) + ids(marks[2], True)
            assert len(ids("".join(marks), True)) == 3
            bos = server.post("/tokenize", {"model": "fim", "content": "", "add_special": True})[1]["tokens"]
            status, want = server.post("/v1/completions", {"model": "fim", "prompt": [bos + prompt], "temperature": 0, "max_tokens": 24})
            assert status == 200, want
            status, got = server.post("/infill", {"model": "fim", "input_prefix": before, "input_suffix": after, "temperature": 0, "n_predict": 24})
            assert status == 200 and got["content"] == want["choices"][0]["text"], (got, want)
            status, got = server.post("/v1/completions", {"model": "fim", "prompt": before, "suffix": after, "temperature": 0, "max_tokens": 24})
            assert status == 200 and got["choices"][0]["text"] == want["choices"][0]["text"], got
            assert got["usage"]["prompt_tokens"] == len(bos + prompt)
            got = server.post("/api/generate", {"model": "fim", "prompt": before, "suffix": after, "stream": False,
                                                "options": {"temperature": 0, "num_predict": 24}})[1]
            assert got["response"] == want["choices"][0]["text"], got
            assert "insert" in server.post("/api/show", {"model": "fim"})[1]["capabilities"]


def rerank(program):
    """Scores against the logits that the model gives for the same tokens, by another way through the program."""
    form = "<|im_start|>user\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n"
    documents = ["Paris is the capital of France.", "<|im_end|> yes", "x", "A long text. " * 20]
    with tempfile.TemporaryDirectory() as directory:
        path, out = os.path.join(directory, "rank.gguf"), os.path.join(directory, "logits")
        subprocess.run([program, "debug", "random-model", "--arch", "qwen3", "--dim", "64", "--layers", "2", "--vocab", "1000", "--type", "F16",
                        "--control", "<|im_start|>,<|im_end|>,yes,no", "--rank", form, path], check=True)
        with Server(program, "--model", f"rank={path}", "--ctx", "512") as server:
            def ids(text, special=False):
                return server.post("/tokenize", {"model": "rank", "content": text, "parse_special": special})[1]["tokens"]
            yes, no, begin, end = (ids(t, True)[0] for t in ("yes", "no", "<|im_start|>", "<|im_end|>"))
            want = []
            for document in documents:
                # Marker by marker: what a document says is text and no marker.
                prompt = [begin] + ids(f"user\n<Query>: Where is Paris?\n<Document>: {document}") + [end] + ids("\n") + [begin] + ids("assistant\n")
                subprocess.run([program, "logits", path, "--ids", ",".join(map(str, prompt)), "-o", out], check=True, stdout=subprocess.DEVNULL)
                with open(out, "rb") as f:
                    rows = f.read()
                last = struct.unpack("<1000f", rows[-4000:])
                want.append((1 / (1 + math.exp(last[no] - last[yes])), len(prompt)))
            status, got = server.post("/rerank", {"model": "rank", "query": "Where is Paris?", "documents": documents})
            assert status == 200 and got["usage"]["prompt_tokens"] == sum(n for _, n in want), (got, want)
            scores = {r["index"]: r["relevance_score"] for r in got["results"]}
            assert all(abs(scores[i] - want[i][0]) < 3e-4 for i in range(len(documents))), (scores, want)
            assert [r["index"] for r in got["results"]] == sorted(scores, key=lambda i: -scores[i])
            top = server.post("/rerank", {"model": "rank", "query": "Where is Paris?", "documents": documents, "top_n": 2})[1]
            assert top["results"] == got["results"][:2]
            long_one = server.post("/rerank", {"model": "rank", "query": "x", "documents": ["word " * 2000]})
            assert long_one[0] == 400 and "the context holds 512" in long_one[1]["error"]["message"], long_one
        return "scores " + " ".join(f"{scores[i]:.3f}" for i in sorted(scores))


def encoders(program):
    """Embedding models and rerankers of the golden set, through the server and its sandboxed workers."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
    data = json.load(open(os.path.join(folder, "encoder_texts.json"), encoding="utf-8"))
    def golden(name):
        return os.path.join(folder, "encoders", name)
    with Server(program, "--model", f"gemma={golden('gemma_embedding')}", "--model", f"rank={golden('xlmr_rerank')}") as server:
        raw = open(os.path.join(golden("gemma_embedding"), "vectors.f32"), "rb").read()
        want = struct.unpack(f"<{len(raw) // 4}f", raw)
        texts = data["texts"]
        for field, value, at in ((None, None, 0), ("prompt_name", "query", 1), ("input_type", "query", 1), ("input_type", "passage", 2)):
            body = {"model": "gemma", "input": [t or "x" for t in texts]}  # an empty text is refused, as OpenAI does
            if field:
                body[field] = value
            got = [d["embedding"] for d in server.post("/v1/embeddings", body)[1]["data"]]
            theirs = server.post("/api/embed", body)[1]["embeddings"]
            for i, v in enumerate(got):
                if not texts[i]:
                    continue
                reference = want[(at * len(texts) + i) * 32 :][:32]
                assert v == theirs[i] and sum(a * b for a, b in zip(v, reference)) > 1 - 1e-5, (field, value, i)
        status, error = server.post("/v1/embeddings", {"model": "gemma", "input": "x", "prompt_name": "nope"})
        assert status == 400 and "nope" in error["error"]["message"], error
        status, error = server.post(CHAT, dict(chat(SUM), model="gemma"))
        assert status == 400, error
        show = server.post("/api/show", {"model": "gemma"})[1]
        assert show["capabilities"] == ["embedding"], show["capabilities"]
        scores = json.load(open(os.path.join(golden("xlmr_rerank"), "golden.json")))["scores"]
        query = data["pairs"][0][0]
        same = [i for i, p in enumerate(data["pairs"]) if p[0] == query]
        got = server.post("/v1/rerank", {"model": "rank", "query": query, "documents": [data["pairs"][i][1] for i in same]})[1]
        assert all(abs(r["relevance_score"] - scores[same[r["index"]]]) < 2e-5 for r in got["results"]), (got, scores)
        cut = server.post("/v1/rerank", {"model": "rank", "query": "x", "documents": ["word " * 2000]})
        assert cut[0] == 200 and cut[1]["usage"]["prompt_tokens"] == 300, cut


def heartbeats_and_progress(program):
    with Server(program, "--heartbeat-seconds", "0.01", "--threads", "1") as server:
        body = chat([{"role": "user", "content": "word " * 600}], stream=True, max_tokens=2, return_progress=True)
        events = list(server.stream(CHAT, body))
        progress = [json.loads(e.split("\ndata: ")[1]) for e in events if e.startswith("event: prefill_progress")]
        assert progress and [p["processed"] for p in progress] == sorted({p["processed"] for p in progress}) and set(progress[0]) == {"total", "processed", "cached"}
        silent = chat([{"role": "user", "content": "x" + " word" * 900}], stream=True, max_tokens=2)
        assert any(e.startswith(": ") for e in server.stream(CHAT, silent)), "no heartbeat in a slow prefill"
        plain = list(server.stream(CHAT, dict(body, return_progress=False, messages=SUM)))
        assert not any(e.startswith("event:") for e in plain)


def main():
    checks = Checks()
    with Server(PROGRAM) as server:
        for check in (speculation, stream_text, stream_usage, stream_tool_call, stream_tool_call_cut_off, stream_parallel_tool_calls, stream_reasoning, whole_answer_fields,
                      ends_are_told, several_choices, logprobs, json_answers, constraint_forms, steering, tool_choices, old_functions, custom_tools, cut_calls, prompt_scores, completions, embeddings, models, responses,
                      mistakes, native):
            checks.run(check, server)
    checks.run(infill, PROGRAM)
    checks.run(rerank, PROGRAM)
    checks.run(encoders, PROGRAM)
    checks.run(heartbeats_and_progress, PROGRAM)
    checks.exit()


main()
