# SPDX-License-Identifier: Apache-2.0
"""The responses endpoint beyond one answer: what is kept and for how long, going on by id, tools of other kinds."""
import json
import re
import sys
import time

from hearth_server import Checks, Connection, Server

PROGRAM = sys.argv[1]
PATH = "/v1/responses"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
WEATHER = {"type": "function", "name": "get_weather", "description": "Get the weather in a city", "parameters": PARAMETERS}
SPACE = {"type": "namespace", "name": "geo", "description": "Places", "tools": [WEATHER]}


def ask(server, **fields):
    return server.post(PATH, dict({"model": "demo", "input": "What is 12 plus 30?", "temperature": 0}, **fields))


def text_of(response):
    return response["output"][-1]["content"][0]["text"]


def events(server, **fields):
    body = dict({"model": "demo", "input": "What is 12 plus 30?", "temperature": 0, "stream": True}, **fields)
    return [json.loads(e.split("\ndata: ")[1]) for e in server.stream(PATH, body)]


def kept(server):
    status, first = ask(server, metadata={"a": "b"})
    assert status == 200 and first["store"] is True and text_of(first) == "12 plus 30 is 42."
    status, again = server.get(PATH + "/" + first["id"])
    assert status == 200 and again == first
    status, items = server.get(PATH + "/" + first["id"] + "/input_items")
    assert items["object"] == "list" and items["has_more"] is False and items["first_id"] == items["last_id"] == items["data"][0]["id"], items
    assert items["data"][0]["content"] == [{"type": "input_text", "text": "What is 12 plus 30?"}]
    streamed = events(server)[-1]["response"]
    assert server.get(PATH + "/" + streamed["id"])[1] == streamed
    status, _, gone = server.request("DELETE", PATH + "/" + first["id"])
    assert status == 200 and json.loads(gone) == {"id": first["id"], "object": "response", "deleted": True}
    for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/input_items")):
        status, _, why = server.request(method, PATH + "/" + first["id"] + tail)
        error = json.loads(why)["error"]
        assert status == 404 and error["type"] == "invalid_request_error" and first["id"] in error["message"], why
    status, unkept = ask(server, store=False)
    assert status == 200 and unkept["store"] is False and server.get(PATH + "/" + unkept["id"])[0] == 404


def pages_of_items(server):
    talk = [{"role": "user", "content": f"Number {i}"} for i in range(5)]
    first = ask(server, input=talk)[1]["id"]
    path = f"{PATH}/{first}/input_items"
    texts = lambda page: [i["content"][-1] for i in page["data"]]
    newest = server.get(path + "?limit=2")[1]
    assert texts(newest) == ["4", "3"] and newest["has_more"]
    assert texts(server.get(f"{path}?limit=2&after={newest['last_id']}")[1]) == ["2", "1"]
    assert texts(server.get(path + "?order=asc")[1]) == list("01234")


def going_on(server):
    """The conversation before it is part of the prompt, and of the next one's; instructions are not."""
    first = ask(server, instructions="Be brief.")[1]
    second = ask(server, input="What is 1 plus 1?", previous_response_id=first["id"])[1]
    third = ask(server, input="What is 2 plus 2?", previous_response_id=second["id"])[1]
    assert second["previous_response_id"] == first["id"] and text_of(second) == "1 plus 1 is 2.", second
    message = lambda role, text: {"role": role, "content": text}
    whole = [message("user", "What is 12 plus 30?"), message("assistant", text_of(first)), message("user", "What is 1 plus 1?"),
             message("assistant", text_of(second)), message("user", "What is 2 plus 2?")]
    sent = ask(server, input=whole)[1]
    assert sent["usage"]["input_tokens"] == third["usage"]["input_tokens"] and text_of(sent) == text_of(third), (sent, third)
    counted = server.post(PATH + "/input_tokens", {"model": "demo", "input": whole})
    assert counted == (200, {"object": "response.input_tokens", "input_tokens": sent["usage"]["input_tokens"]}), counted
    status, why = ask(server, previous_response_id="resp_1")
    assert status == 400 and why["error"]["param"] == "previous_response_id" and why["error"]["code"] == "previous_response_not_found", why


def references(server):
    """An item that is only named is the item itself, also for a later response, when the first one is gone."""
    call = ask(server, input="What is the weather in Paris?", tools=[WEATHER])[1]
    question, result = {"role": "user", "content": "What is the weather in Paris?"}, {"type": "function_call_output", "call_id": call["output"][0]["call_id"], "output": "Sunny"}
    whole = ask(server, input=[question, call["output"][0], result], tools=[WEATHER])[1]
    named = ask(server, input=[question, {"type": "item_reference", "id": call["output"][0]["id"]}, result], tools=[WEATHER])[1]
    assert named["usage"]["input_tokens"] == whole["usage"]["input_tokens"] and text_of(named) == text_of(whole), (named, whole)
    server.request("DELETE", PATH + "/" + call["id"])
    later = [ask(server, previous_response_id=r["id"])[1] for r in (whole, named)]
    assert later[0]["usage"]["input_tokens"] == later[1]["usage"]["input_tokens"], later
    for gone in (call["output"][0]["id"], "fc_1", "x", ""):
        status, why = ask(server, input=[question, {"type": "item_reference", "id": gone}])
        assert status == 404 and gone in why["error"]["message"] and why["error"]["param"] == "input", why


def logprobs(server):
    """Of the tokens of the text alone; a stream has them with their pieces."""
    for fields in ({"top_logprobs": 2}, {"top_logprobs": 2, "reasoning": {"effort": "high"}}, {"include": ["message.output_text.logprobs"]}):
        whole = ask(server, **fields)[1]
        part = whole["output"][-1]["content"][0]
        assert b"".join(bytes(t["bytes"]) for t in part["logprobs"]).decode() == part["text"], part
        assert all(t["logprob"] <= 0 and len(t["top_logprobs"]) == fields.get("top_logprobs", 0) for t in part["logprobs"])
        told = events(server, **fields)
        assert [t for e in told if e["type"] == "response.output_text.delta" for t in e["logprobs"]] == part["logprobs"]
        assert [e["logprobs"] for e in told if e["type"] == "response.output_text.done"] == [part["logprobs"]]
        assert told[-1]["response"]["output"][-1]["content"] == whole["output"][-1]["content"]
    assert ask(server)[1]["output"][0]["content"][0]["logprobs"] == []
    for wrong in ({"top_logprobs": 21}, {"include": "x"}, {"include": [1]}, {"truncation": "x"}, {"metadata": "x"}, {"background": True}):
        status, why = ask(server, **wrong)
        assert status == 400 and why["error"]["param"].split("[")[0] == list(wrong)[0], why


def namespaces(server):
    """A function of a namespace is called under its own name, streamed and whole, and its result comes back."""
    question = "What is the weather in Paris?"
    for call in (ask(server, input=question, tools=[SPACE], tool_choice="required")[1]["output"][0],
                 events(server, input=question, tools=[SPACE], tool_choice="required")[-1]["response"]["output"][0]):
        assert call["type"] == "function_call" and call["namespace"] == "geo" and call["name"] == "get_weather", call
        assert set(json.loads(call["arguments"])) == {"city"}
    back = [{"role": "user", "content": question}, call, {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}]
    status, got = ask(server, input=back, tools=[SPACE])
    assert status == 200 and got["tools"] == [SPACE], got
    status, why = ask(server, tools=[{"type": "namespace", "name": "geo", "tools": [{"type": "function", "name": "a b"}]}])
    assert status == 400 and why["error"]["param"] == "tools[0].tools[0].name", why


def custom_tools(server):
    tool = {"type": "custom", "name": "note", "description": "Take a note"}
    said = events(server, input="Take a note.", tools=[tool], tool_choice="required", max_output_tokens=60)
    call = said[-1]["response"]["output"][0]
    assert call["type"] == "custom_tool_call" and call["name"] == "note" and isinstance(call["input"], str), call
    if said[-1]["type"] == "response.completed":
        assert "response.custom_tool_call_input.done" in [e["type"] for e in said]
    back = [{"role": "user", "content": "Take a note."}, dict(call, input="milk"), {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "done"}]
    assert ask(server, input=back, tools=[tool])[0] == 200


def held_tools(server):
    """A custom tool's grammar holds its text; one that cannot be translated exactly is refused."""
    lark = 'start: "look at " thing (", " thing)~1..2 LF\nthing: ANIMAL\nANIMAL: "heron" | "otter" | /[a-c]{2}/\n%import common.LF\n'
    held = [({"syntax": "regex", "definition": r"^\d{2}-(?:up|down)\.$"}, r"[0-9]{2}-(?:up|down)\."),
            ({"syntax": "lark", "definition": lark}, "look at (?:heron|otter|[a-c]{2})(?:, (?:heron|otter|[a-c]{2})){1,2}\n")]
    for grammar, pattern in held:
        tool = {"type": "custom", "name": "note", "format": dict(grammar, type="grammar")}
        for seed in range(3):
            status, got = ask(server, input="Take a note.", tools=[tool], tool_choice="required", max_output_tokens=80, temperature=1.5, seed=seed)
            call = got["output"][0]
            assert status == 200 and call["type"] == "custom_tool_call" and re.fullmatch(pattern, call["input"]), got
    for syntax, definition, words in (("lark", 'start: "(" start? ")"', "refer to themselves"), ("regex", r"(?i)a", "group"), ("regex", r"a(?=b)", "group"),
                                      ("lark", "", "start"), ("ebnf", "a", "lark")):
        status, why = ask(server, tools=[{"type": "custom", "name": "note", "format": {"type": "grammar", "syntax": syntax, "definition": definition}}])
        assert status == 400 and why["error"]["param"].startswith("tools[0].format") and words in why["error"]["message"], why


def ignored(server):
    extras = {"include": ["reasoning.encrypted_content"], "prompt_cache_key": "x", "client_metadata": {}, "truncation": "auto", "text": {"verbosity": "low"},
              "tools": [WEATHER, {"type": "web_search"}, {"type": "image_generation"}], "reasoning": {"summary": "auto"}}
    with Connection(server) as c:
        body = dict({"model": "demo", "temperature": 0, "instructions": "", "input": [{"role": "user", "content": "What is 12 plus 30?"}, {"type": "web_search_call", "id": "ws_1", "status": "completed"}]}, **extras)
        status, headers, answer = c.request("POST", PATH, json.dumps(body).encode())
        assert status == 200, answer
        assert set(headers["x-hearth-ignored"].split(", ")) == {"include", "prompt_cache_key", "client_metadata", "truncation", "text.verbosity", "web_search",
                                                                 "image_generation", "web_search_call"}, headers
    plain = ask(server)[1]
    assert ask(server, instructions="")[1]["usage"]["input_tokens"] == plain["usage"]["input_tokens"]
    assert server.post("/v1/conversations", {})[0] == 501 and server.get("/v1/conversations/conv_1")[0] == 501
    for refused in ({"conversation": "conv_1"}, {"prompt": {"id": "p"}}, {"background": True}):
        assert ask(server, **refused)[0] == 400, refused


def effort_thinks(server):
    assert ask(server)[1]["output"][0]["type"] == "message"
    assert ask(server, reasoning={"effort": "medium"})[1]["output"][0]["type"] == "reasoning"
    status, chat = server.chat("What is 12 plus 30?", reasoning_effort="low")
    assert status == 200 and chat["choices"][0]["message"]["reasoning_content"]


def limits(program):
    """Bytes and time; and one key does not see another's."""
    with Server(program, env={"HEARTH_RESPONSES_BYTES": "8KiB", "HEARTH_API_KEYS": "a:secret-key-a,b:secret-key-b"}) as server:
        a, b = {"Authorization": "Bearer secret-key-a"}, {"Authorization": "Bearer secret-key-b"}
        ids = []
        for _ in range(8):
            ids.append(server.post(PATH, {"model": "demo", "input": "What is 12 plus 30?", "temperature": 0}, headers=a)[1]["id"])
        found = [server.get(f"{PATH}/{i}", headers=a)[0] for i in ids]
        assert found[0] == 404 and found[-1] == 200 and found == sorted(found, reverse=True), found
        assert server.get(f"{PATH}/{ids[-1]}", headers=b)[0] == 404
    with Server(program, env={"HEARTH_RESPONSES_KEEP": "0.2s"}) as server:
        first = ask(server)[1]["id"]
        assert server.get(PATH + "/" + first)[0] == 200
        time.sleep(0.25)  # what is measured is time itself
        assert server.get(PATH + "/" + first)[0] == 404
    with Server(program, env={"HEARTH_RESPONSES_BYTES": "0"}) as server:
        assert server.get(PATH + "/" + ask(server)[1]["id"])[0] == 404


def main():
    checks = Checks()
    with Server(PROGRAM) as server:
        for check in (kept, pages_of_items, going_on, references, logprobs, namespaces, custom_tools, held_tools, ignored, effort_thinks):
            checks.run(check, server)
    checks.run(limits, PROGRAM)
    checks.exit()


main()
