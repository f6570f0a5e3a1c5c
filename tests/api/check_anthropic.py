# SPDX-License-Identifier: Apache-2.0
"""The Anthropic surface on the wire: exact event sequences and field sets, and every mistake with its status and shape."""
import json
import sys
import threading

from hearth_server import Checks, Connection, Server

PROGRAM = sys.argv[1]
MESSAGES = "/v1/messages"
TOOL = {"name": "get_weather", "description": "Get the weather in a city",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
SUM = [{"role": "user", "content": "What is 12 plus 30?"}]
STORY = [{"role": "user", "content": "Tell me a story with the words boat and river."}]


# An answer that cannot end before its token limit.
ENDLESS = {"type": "json_schema", "schema": {"type": "object", "properties": {"a": {"type": "string", "minLength": 9000}}, "required": ["a"]}}


def body(messages, **fields):
    return dict({"model": "demo", "max_tokens": 300, "temperature": 0, "messages": messages}, **fields)


def events_of(server, **fields):
    """[(name, data)] of a stream; the name is said twice and must agree."""
    out = []
    for event in server.stream(MESSAGES, body(fields.pop("messages", SUM), stream=True, **fields)):
        name, data = event.split("\n")
        assert name.startswith("event: ") and data.startswith("data: "), event
        value = json.loads(data[6:])
        assert value["type"] == name[7:], event
        out.append((name[7:], value))
    return out


def shape(events):
    """The sequence, with repeated deltas of one kind folded."""
    folded = []
    for name, value in events:
        what = name
        if name == "content_block_start":
            what += " %d %s" % (value["index"], value["content_block"]["type"])
        elif name == "content_block_delta":
            what += " %d %s" % (value["index"], value["delta"]["type"])
        elif name == "content_block_stop":
            what += " %d" % value["index"]
        if not folded or folded[-1] != what:
            folded.append(what)
    return folded


def block(i, kind, *deltas):
    return ["content_block_start %d %s" % (i, kind)] + ["content_block_delta %d %s" % (i, d) for d in deltas] + ["content_block_stop %d" % i]


def framed(*blocks):
    return ["message_start", "ping"] + [e for b in blocks for e in b] + ["message_delta", "message_stop"]


def text(server):
    events = events_of(server)
    assert shape(events) == framed(block(0, "text", "text_delta")), shape(events)
    assert "".join(v["delta"]["text"] for n, v in events if n == "content_block_delta") == "12 plus 30 is 42."
    start = events[0][1]["message"]
    assert set(start) == {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"} and start["content"] == []
    assert start["id"].startswith("msg_") and start["role"] == "assistant" and start["stop_reason"] is None
    delta = events[-2][1]
    assert delta["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert set(delta["usage"]) == {"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"}
    assert events[-1] == ("message_stop", {"type": "message_stop"})
    assert [v for n, v in events if n == "content_block_start"][0]["content_block"] == {"type": "text", "text": ""}


def tool_call(server):
    events = events_of(server, tools=[TOOL], messages=[{"role": "user", "content": "What is the weather in Paris?"}])
    assert shape(events) == framed(block(0, "tool_use", "input_json_delta")), shape(events)
    begin = [v for n, v in events if n == "content_block_start"][0]["content_block"]
    assert set(begin) == {"type", "id", "name", "input"} and begin["name"] == "get_weather" and begin["input"] == {} and begin["id"]
    assert json.loads("".join(v["delta"]["partial_json"] for n, v in events if n == "content_block_delta")) == {"city": "Paris"}
    assert events[-2][1]["delta"]["stop_reason"] == "tool_use"
    assert sum(n == "content_block_delta" for n, _ in events) >= 4  # while it is written
    cut = events_of(server, tools=[TOOL], messages=[{"role": "user", "content": "What is the weather in Paris?"}], max_tokens=15)
    assert shape(cut) == framed(block(0, "tool_use", "input_json_delta")), shape(cut)
    assert cut[-2][1]["delta"]["stop_reason"] == "max_tokens"
    assert '{"city": "Paris"}'.startswith("".join(v["delta"]["partial_json"] for n, v in cut if n == "content_block_delta"))


def parallel_tool_calls(server):
    ask = [{"role": "user", "content": "What is the weather in Paris and in Rome?"}]
    events = events_of(server, tools=[TOOL], messages=ask)
    assert shape(events) == framed(block(0, "tool_use", "input_json_delta"), block(1, "tool_use", "input_json_delta")), shape(events)
    ids = [v["content_block"]["id"] for n, v in events if n == "content_block_start"]
    assert len(set(ids)) == 2
    one = events_of(server, tools=[TOOL], messages=ask, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    assert sum(n == "content_block_start" for n, _ in one) == 1, shape(one)


def reasoning(server):
    events = events_of(server, thinking={"type": "enabled", "budget_tokens": 200})
    assert shape(events) == framed(block(0, "thinking", "thinking_delta", "signature_delta"), block(1, "text", "text_delta")), shape(events)
    status, whole = server.post(MESSAGES, body(SUM, thinking={"type": "enabled", "budget_tokens": 200}))
    assert status == 200 and [set(b) for b in whole["content"]] == [{"type", "thinking", "signature"}, {"type", "text"}]
    # What came back is accepted in the next turn.
    again = SUM + [{"role": "assistant", "content": whole["content"]}, {"role": "user", "content": "What is 1 plus 1?"}]
    assert server.post(MESSAGES, body(again))[1]["content"][0]["text"] == "1 plus 1 is 2."


def ends(server):
    assert events_of(server, max_tokens=3, messages=STORY)[-2][1]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    stopped = events_of(server, stop_sequences=["never", " is"])
    assert stopped[-2][1]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": " is"}
    status, whole = server.post(MESSAGES, body(SUM))
    assert status == 200 and set(whole) == {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
    assert whole["content"] == [{"type": "text", "text": "12 plus 30 is 42."}] and whole["usage"]["output_tokens"] > 0


def prefill(server):
    status, whole = server.post(MESSAGES, body(SUM + [{"role": "assistant", "content": "12 plus 30"}]))
    assert status == 200 and whole["content"][0]["text"] == " is 42.", whole


MISTAKES = [
    ({"messages": SUM, "max_tokens": 5}, 400, "model"), ({"model": "demo", "messages": SUM}, 400, "max_tokens"),
    (body(SUM, max_tokens=0), 400, "max_tokens"), (body(SUM, model="nope"), 404, "nope"), (body([]), 400, "messages"),
    (body([{"role": "king", "content": "x"}]), 400, "messages[0].role"), (body([{"role": "system"}]), 400, "messages[0].content"),
    (body([{"role": "user"}]), 400, "messages[0].content"), (body(SUM, temperature=1.5), 400, "temperature"),
    (body([{"role": "user", "content": [{"type": "image", "source": {}}]}]), 400, "messages[0].content[0].source.type"),
    (body(SUM, tools=[{"name": "bad name", "input_schema": {}}]), 400, "tools[0].name"), (body(SUM, tools=[{"name": "x"}]), 400, "tools[0].input_schema"),
    (body(SUM, tools=[{"type": "web_search_20250305", "name": "web_search"}], tool_choice={"type": "any"}), 400, "tool_choice"),
    (body([{"role": "user", "content": [{"type": "document", "source": {"type": "base64", "data": ""}}]}]), 400, "source.type"),
    (body(SUM, tool_choice={"type": "tool", "name": "other"}, tools=[TOOL]), 400, "tool_choice"),
    (body(SUM, thinking={"type": "enabled"}), 400, "budget_tokens"), (body(SUM, thinking={"type": "enabled", "budget_tokens": 300}), 400, "max_tokens"),
    (body(SUM, mcp_servers=[{}]), 400, "mcp_servers"), (body([{"role": "user", "content": "word " * 5000}]), 400, "4096"),
]


def mistakes(server):
    with Connection(server) as c:
        for stream in (False, True):
            for value, want, names in MISTAKES:
                status, _, answer = c.request("POST", MESSAGES, json.dumps(dict(value, stream=stream)).encode())
                got = json.loads(answer)
                kind = "not_found_error" if want == 404 else "invalid_request_error"
                assert status == want and got["type"] == "error" and got["error"]["type"] == kind, (value, status, got)
                assert names in got["error"]["message"], (value, got)


def error_during_the_stream(server):
    """The model is taken away while it writes: the stream ends with an error event, not with message_stop."""
    begun = threading.Event()

    def take_away():
        begun.wait(30)
        server.post("/v1/models/unload", {"model": "demo"})

    thread = threading.Thread(target=take_away)
    thread.start()
    seen = []
    for event in server.stream(MESSAGES, body(STORY, stream=True, max_tokens=900, output_format=ENDLESS)):
        seen.append(event)
        if "text_delta" in event:
            begun.set()
    thread.join()
    last = seen[-1].split("\n")
    assert last[0] == "event: error" and json.loads(last[1][6:])["type"] == "error", seen[-2:]


def counts(server):
    status, got = server.post(MESSAGES + "/count_tokens", {"model": "demo", "messages": SUM, "tools": [TOOL]})
    assert status == 200 and set(got) == {"input_tokens"} and got["input_tokens"] > 60
    assert server.post(MESSAGES + "/count_tokens", {"model": "demo", "messages": SUM})[1]["input_tokens"] < got["input_tokens"]


def ignored(server):
    """Hints and hosted features are named; the answer is the same."""
    extras = dict(context_management={"edits": []}, metadata={"user_id": "x"}, service_tier="auto", brand_new=1,
                  tools=[{"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"}])
    with Connection(server) as c:
        status, headers, answer = c.request("POST", MESSAGES + "?beta=true", json.dumps(body(SUM, **extras)).encode(), {"anthropic-beta": "a-1,b-2"})
        assert status == 200 and json.loads(answer)["content"] == [{"type": "text", "text": "12 plus 30 is 42."}], answer
        assert set(headers["x-hearth-ignored"].split(", ")) == {"context_management", "metadata", "service_tier", "brand_new", "anthropic-beta",
                                                                 "web_search_20250305", "bash_20250124"}, headers
        status, headers, _ = c.request("POST", MESSAGES, json.dumps(body(SUM)).encode())
        assert status == 200 and "x-hearth-ignored" not in headers
        # What a client says is not taken into a header as it is.
        status, headers, _ = c.request("POST", MESSAGES, json.dumps(body(SUM, **{"a\r\nb, c": 1})).encode())
        assert status == 200 and headers["x-hearth-ignored"] == "a??b??c", headers


def system_anywhere(server):
    """Texts of the role system stand where they are, blocks of documents are text."""
    ask = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi."},
           {"role": "system", "content": [{"type": "text", "text": "Still brief."}]}] + SUM
    status, got = server.post(MESSAGES, body(ask, system="First."))
    assert status == 200 and got["content"][0]["text"] == "12 plus 30 is 42.", got
    source = {"type": "text", "media_type": "text/plain", "data": "What is 12 plus 30?"}
    for s in (source, {"type": "content", "content": [{"type": "text", "text": "What is 12 plus 30?"}]}):
        status, got = server.post(MESSAGES, body([{"role": "user", "content": [{"type": "document", "source": s}]}]))
        assert status == 200 and got["content"][0]["text"] == "12 plus 30 is 42.", got


def same_usage(server):
    """What message_start says of the prompt message_delta says again; a part that was cached is counted once."""
    ask = [{"role": "user", "content": "Tell me a story with the words boat and river." + " please" * 60}]
    total = server.post(MESSAGES + "/count_tokens", {"model": "demo", "messages": ask})[1]["input_tokens"]
    for again in (False, True):
        events = events_of(server, messages=ask, max_tokens=2)
        start, end = events[0][1]["message"]["usage"], events[-2][1]["usage"]
        keys = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        assert [start[k] for k in keys] == [end[k] for k in keys], (start, end)
        assert sum(start[k] for k in keys) == total and start["output_tokens"] == 0, (start, total)
        assert not again or start["cache_read_input_tokens"] > total // 2, start


def models(server):
    said = {"anthropic-version": "2023-06-01"}
    _, got = server.get("/v1/models", headers=said)
    assert set(got) == {"data", "has_more", "first_id", "last_id"} and got["data"][0]["type"] == "model" and got["first_id"] == "demo", got
    _, one = server.get("/v1/models/demo", headers=said)
    assert one["id"] == one["display_name"] == "demo" and one["created_at"].endswith("Z")
    status, got = server.get("/v1/models/nope", headers=said)
    assert status == 404 and got["error"]["type"] == "not_found_error", got
    assert server.get("/v1/models")[1]["object"] == "list"


def keys(program):
    with Server(program, env={"HEARTH_API_KEYS": "one:secret-key"}) as server:
        status, got = server.post(MESSAGES, body(SUM))
        assert status == 401 and got["error"]["type"] == "authentication_error", got
        assert server.post(MESSAGES, body(SUM), headers={"x-api-key": "secret-key"})[0] == 200


def main():
    checks = Checks()
    with Server(PROGRAM) as server:
        for check in (text, tool_call, parallel_tool_calls, reasoning, ends, prefill, mistakes, counts, ignored, system_anywhere, same_usage, models, error_during_the_stream):
            checks.run(check, server)
    checks.run(keys, PROGRAM)
    checks.exit()


main()
