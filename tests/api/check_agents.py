# SPDX-License-Identifier: Apache-2.0
"""The shape of every kind of request that coding agents and frameworks send, with words of our own: fields, roles, kinds of
tools, headers and sizes as make test-clients sees them. Two scripted models (tests/clients/scripted.py) answer: one calls a
tool and then speaks, one speaks at once."""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients"))
import scripted
from hearth_server import Checks, Connection, Server, encode

PROGRAM = sys.argv[1]
CALL = {"name": "save_text", "arguments": {"path": "/tmp/a.txt", "text": "one\ntwo"}}
SPOKEN = "Everything has been saved."
STAINLESS = {"X-Stainless-Lang": "js", "X-Stainless-Retry-Count": "0", "X-Stainless-Runtime": "node", "X-Stainless-OS": "Linux"}


def words(n):
    """n characters that are nobody's text."""
    text = " ".join(f"Rule {i}: keep number {i * 37 % 1009} in mind and go on to the next one." for i in range(n // 60 + 1))
    return text[:n]


def schema(**properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


SAVE = schema(path={"type": "string", "description": "Where"}, text={"type": "string", "description": "What"})
OTHERS = [(f"other_{i}", words(400), {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {
    "mode": {"type": "string", "enum": ["a", "b"]}, "count": {"type": "integer", "minimum": 0, "maximum": 9007199254740991},
    "list": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]}}}, "required": ["mode"]}) for i in range(7)]
TOOLS = [("save_text", "Saves a text", SAVE)] + OTHERS


def stream(server, path, body, headers):
    """(headers, [(event or None, data)])"""
    with Connection(server) as c:
        c.send(encode("POST", path, json.dumps(body).encode(), headers))
        status, got = c.head()
        data = b"".join(c.chunks()) if got.get("transfer-encoding") == "chunked" else c._exactly(int(got["content-length"]))
        assert status == 200, data[:2000]
    events = []
    for block in data.decode().strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if fields.get("data", "[DONE]") != "[DONE]":
            events.append((fields.get("event"), json.loads(fields["data"])))
    return got, events


# --- Anthropic's protocol: Claude Code ---

def messages_body(messages, **more):
    kept = {"type": "ephemeral"}
    return dict({"model": "caller", "max_tokens": 32000, "stream": True, "metadata": {"user_id": json.dumps({"device_id": "d" * 64, "session_id": "s"})},
                 "system": [{"type": "text", "text": words(80)}, {"type": "text", "text": words(60), "cache_control": kept},
                            {"type": "text", "text": words(4000), "cache_control": dict(kept, ttl="1h")}],
                 "messages": messages, "thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "high"},
                 "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
                 "tools": [{"name": n, "description": d, "input_schema": s} for n, d, s in TOOLS]
                 + [{"name": "later", "description": "", "input_schema": {"type": "object"}, "defer_loading": True},
                    {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]}, **more)


def claude_code(server):
    headers = dict(STAINLESS, **{"anthropic-version": "2023-06-01", "anthropic-beta": "one-2025-02-19,two-2025-05-14", "x-app": "cli",
                                 "anthropic-dangerous-direct-browser-access": "true", "X-Claude-Code-Session-Id": "s", "User-Agent": "claude-cli/2 (external, sdk-cli)"})
    path = "/v1/messages?beta=true"
    ask = [{"role": "user", "content": [{"type": "text", "text": words(300)}, {"type": "text", "text": words(200)}, {"type": "text", "text": "Save it."}]},
           {"role": "system", "content": [{"type": "text", "text": words(1500), "cache_control": {"type": "ephemeral"}}]}]
    got, events = stream(server, path, messages_body(ask), headers)
    assert {"context_management", "metadata", "anthropic-beta", "web_search_20250305"} <= set(got["x-hearth-ignored"].split(", ")), got
    begin = [v["content_block"] for n, v in events if n == "content_block_start"][0]
    text = "".join(v["delta"]["partial_json"] for n, v in events if n == "content_block_delta")
    assert begin["name"] == "save_text" and json.loads(text) == CALL["arguments"], (begin, text)
    start, end = events[0][1]["message"]["usage"], [v for n, v in events if n == "message_delta"][0]
    assert end["delta"]["stop_reason"] == "tool_use" and start["input_tokens"] + start["cache_read_input_tokens"] > 2000
    done = {"type": "tool_use", "id": begin["id"], "name": "save_text", "input": CALL["arguments"]}
    later = ask[:1] + [{"role": "system", "content": words(1500)}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "Well.", "signature": "x"}, done]},
                       {"role": "user", "content": [{"tool_use_id": begin["id"], "type": "tool_result", "content": "saved", "cache_control": {"type": "ephemeral"}},
                                                    {"type": "text", "text": words(100)}]}]
    _, events = stream(server, path, messages_body(later), headers)
    assert "".join(v["delta"].get("text", "") for n, v in events if n == "content_block_delta") == SPOKEN
    usage = events[0][1]["message"]["usage"]
    assert usage["cache_read_input_tokens"] > 1500, usage  # the conversation so far is not computed again
    counted = {k: v for k, v in messages_body(later).items() if k in ("model", "messages", "tools", "system", "thinking")}
    status, n = server.post("/v1/messages/count_tokens?beta=true", counted, headers=headers)
    assert status == 200 and n["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"], (n, usage)
    # A failed tool, a found tool, a title without tools.
    odd = ask + [{"role": "assistant", "content": [done]}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": begin["id"], "is_error": True, "content": [{"type": "text", "text": "no"}, {"type": "tool_reference", "tool_name": "later"}]}]}]
    assert stream(server, path, messages_body(odd), headers)[1]
    title = messages_body([{"role": "user", "content": "Name this."}], tools=[], max_tokens=60, thinking={"type": "disabled"}, temperature=1,
                          output_config={"format": {"type": "json_schema", "schema": schema(title={"type": "string"})}})
    assert stream(server, path, title, headers)[1][-1][0] == "message_stop"
    assert server.request("HEAD", "/")[0] == 200


# --- the responses endpoint: Codex ---

def item(role, *texts):
    return {"type": "message", "id": f"msg_{role}", "role": role, "content": [{"type": "output_text" if role == "assistant" else "input_text", "text": t} for t in texts]}


def responses_body(items, tools, **more):
    return dict({"model": "caller", "stream": True, "input": items, "tools": tools, "tool_choice": "auto", "parallel_tool_calls": True, "reasoning": {"summary": "auto"},
                 "store": False, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "01a1e20a", "client_metadata": {"turn_id": "t"}}, **more)


def codex(server):
    headers = {"originator": "codex_exec", "session-id": "s", "thread-id": "s", "x-codex-beta-features": "a", "x-codex-turn-metadata": "{}", "Accept": "text/event-stream"}
    flat = [{"type": "function", "name": n, "description": d, "strict": False, "parameters": s} for n, d, s in OTHERS]
    hosted = {"type": "web_search", "external_web_access": False}
    ask = [item("developer", words(4000)), item("developer", words(1900), words(340)), item("user", words(400)), item("user", "Save it.")]
    for tools, namespace in ((flat + [{"type": "function", "name": "save_text", "strict": False, "parameters": SAVE}, hosted], None),
                             (flat + [{"type": "namespace", "name": "save", "description": "Saves", "tools": [
                                 {"type": "function", "name": "text", "description": "Saves a text", "strict": False, "parameters": SAVE}]}, hosted], "save")):
        model = {"model": "spacer"} if namespace else {}
        got, events = stream(server, "/v1/responses", responses_body(ask, tools, **model), headers)
        assert {"web_search", "include", "prompt_cache_key", "client_metadata"} == set(got["x-hearth-ignored"].split(", ")), got
        call = [v["item"] for n, v in events if n == "response.output_item.done"][0]
        assert call.get("namespace") == namespace and call["name"] == ("text" if namespace else "save_text") and json.loads(call["arguments"]) == CALL["arguments"], call
        assert events[-1][0] == "response.completed" and events[-1][1]["response"]["usage"]["input_tokens"] > 2000
        later = ask + [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}, call,
                       {"type": "function_call_output", "call_id": call["call_id"], "output": "saved"}]
        _, events = stream(server, "/v1/responses", responses_body(later, tools, **model), headers)
        assert events[-1][1]["response"]["output"][-1]["content"][0]["text"] == SPOKEN
        assert events[-1][1]["response"]["usage"]["input_tokens_details"]["cached_tokens"] > 1500
    assert server.get("/v1/models?client_version=0.166.0")[0] == 200 and server.get("/api/tags")[0] == 200 and server.get("/api/version")[0] == 200
    # Nothing but a pull of what is here comes from `--oss`.
    status, _, text = server.request("POST", "/api/pull", json.dumps({"model": "caller", "stream": True}).encode())
    assert status == 200 and json.loads(text.splitlines()[-1]) == {"status": "success"}


# --- chat completions: opencode, qwen-code, Continue, pi, LangChain, the AI SDK ---

def functions(strict=None):
    extra = {} if strict is None else {"strict": strict}
    return [{"type": "function", "function": dict({"name": n, "description": d, "parameters": s}, **extra)} for n, d, s in TOOLS]


def chat_turns(server, body, system, user, content, result):
    """The turn that calls and the one that speaks; content: of the message with the call, result: of the tool's."""
    body = dict({"model": "caller", "stream": True, "stream_options": {"include_usage": True}}, **body)
    start = [{"role": "system", "content": system}, {"role": "user", "content": user}] if system else [{"role": "user", "content": user}]
    _, events = stream(server, "/v1/chat/completions", dict(body, messages=start), STAINLESS)
    deltas = [c["delta"] for _, v in events for c in v["choices"]]
    calls = [d["tool_calls"][0] for d in deltas if d.get("tool_calls")]
    assert calls[0]["function"]["name"] == "save_text" and json.loads("".join(c["function"]["arguments"] for c in calls)) == CALL["arguments"], calls
    assert events[-1][1]["usage"]["prompt_tokens"] > 100 and [c["finish_reason"] for _, v in events for c in v["choices"]][-1] == "tool_calls"
    made = {"id": calls[0]["id"], "type": "function", "function": {"name": "save_text", "arguments": json.dumps(CALL["arguments"])}}
    later = start + [{"role": "assistant", "content": content, "tool_calls": [made]}, {"role": "tool", "tool_call_id": made["id"], "content": result}]
    _, events = stream(server, "/v1/chat/completions", dict(body, messages=later), STAINLESS)
    assert "".join(c["delta"].get("content") or "" for _, v in events for c in v["choices"]) == SPOKEN
    return events[-1][1]["usage"]


def parts(*texts):
    return [{"type": "text", "text": t} for t in texts]


def chat_agents(server):
    chat_turns(server, {"max_tokens": 32000, "tools": functions(), "tool_choice": "auto"}, words(3000), "Save it.", "", "saved")  # opencode
    usage = chat_turns(server, {"max_tokens": 32768, "tools": functions()}, words(5000), parts(*[words(500)] * 5), None, parts("saved"))  # qwen-code
    assert usage["prompt_tokens"] > 4000 and usage["prompt_tokens_details"]["cached_tokens"] > 3500, usage
    chat_turns(server, {"max_completion_tokens": 4096, "store": False, "tools": functions(False)}, words(2300), parts("Save it."), None, "saved")  # pi
    chat_turns(server, {"tools": functions(), "parallel_tool_calls": True, "max_tokens": 4096}, words(2000), "Save it.", "", "saved")  # Continue
    chat_turns(server, {"tools": functions(True), "tool_choice": "auto", "temperature": 0.7, "n": 1, "seed": 1}, None, parts("Save it."), "", "saved")  # frameworks
    # A title, and two user turns behind each other.
    body = {"model": "speaker", "max_tokens": 32000, "stream": False, "messages": [{"role": "system", "content": words(2000)}, {"role": "user", "content": "Name this."},
            {"role": "user", "content": "Save it."}]}
    status, got = server.post("/v1/chat/completions", body)
    assert status == 200 and got["choices"][0]["message"]["content"] == SPOKEN, got


# --- Ollama's protocol: LangChain, LlamaIndex, ollama-ai-provider ---

def ollama_clients(server):
    ask = [{"role": "system", "content": ""}, {"role": "user", "content": "Save it.", "images": []}]
    body = {"model": "caller", "stream": True, "messages": ask, "tools": functions(), "think": None, "format": None, "keep_alive": "5m",
            "options": {"temperature": 0.1, "num_ctx": 32768, "top_p": None, "stop": None, "num_gpu": -1}}
    lines = [json.loads(line) for line in server.stream("/api/chat", body)]
    calls = [c for line in lines for c in line["message"].get("tool_calls", [])]
    assert calls[0]["function"]["name"] == "save_text" and calls[0]["function"]["arguments"] == CALL["arguments"] and lines[-1]["done"]
    made = {"function": {"name": "save_text", "arguments": CALL["arguments"]}}
    later = ask + [{"role": "assistant", "content": "", "tool_calls": [made]}, {"role": "tool", "content": "saved", "tool_name": "save_text"}]
    status, got = server.post("/api/chat", dict(body, stream=False, messages=later))
    assert status == 200 and got["message"]["content"] == SPOKEN, got
    assert server.post("/api/show", {"model": "caller"})[1]["model_info"]["llama.context_length"] > 200000


def long_context(server):
    """Nobody said how long: the model's own length holds; one that is too long names the option."""
    assert server.get("/v1/models/speaker")[1]["meta"]["n_ctx"] == scripted.CONTEXT
    with Server(PROGRAM, "--model", "speaker=" + os.path.join(FOLDER, "speaker.gguf"), "--ctx", "1000") as small:
        status, got = small.post("/v1/chat/completions", {"model": "speaker", "messages": [{"role": "user", "content": words(20000)}]})
        assert status == 400 and "--ctx" in got["error"]["message"] and got["error"]["code"] == "context_length_exceeded", got


def main():
    checks = Checks()
    call = lambda name: "<tool_call>\n" + json.dumps(dict(CALL, name=name)) + "\n</tool_call>"
    options = []
    for name, steps in (("caller", [call("save_text"), SPOKEN]), ("spacer", [call("save__text"), SPOKEN]), ("speaker", [SPOKEN])):
        scripted.write(os.path.join(FOLDER, name + ".gguf"), steps)
        options += ["--model", f"{name}={FOLDER}/{name}.gguf"]
    with Server(PROGRAM, "--threads", "1", *options) as server:  # waits for nobody on a busy machine
        for check in (claude_code, codex, chat_agents, ollama_clients, long_context):
            checks.run(check, server)
    checks.exit()


with tempfile.TemporaryDirectory() as FOLDER:
    main()
