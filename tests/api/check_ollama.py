# SPDX-License-Identifier: Apache-2.0
"""The Ollama surface on the wire: exact line sequences and field sets, and every mistake with its status and shape."""
import json
import sys
import threading

from hearth_server import Checks, Connection, Server

PROGRAM = sys.argv[1]
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather in a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
SUM = [{"role": "user", "content": "What is 12 plus 30?"}]
STORY = [{"role": "user", "content": "Tell me a story with the words boat and river."}]
ANSWER = "12 plus 30 is 42."
DURATIONS = {"total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"}
LAST = {"model", "created_at", "done", "done_reason"} | DURATIONS


def chat(messages, **fields):
    options = dict({"temperature": 0}, **fields.pop("options", {}))
    return dict({"model": "demo", "messages": messages, "options": options}, **fields)


def lines(server, path, value):
    return [json.loads(line) for line in server.stream(path, value)]


def generate_lines(server):
    got = lines(server, "/api/generate", {"model": "demo", "prompt": SUM[0]["content"], "options": {"temperature": 0}})
    assert all(set(g) == {"model", "created_at", "response", "done"} and g["done"] is False for g in got[:-1])
    assert "".join(g["response"] for g in got) == ANSWER
    assert set(got[-1]) == LAST | {"response", "context"} and got[-1]["done_reason"] == "stop" and got[-1]["eval_count"] > 0
    assert all(isinstance(got[-1][d], int) for d in DURATIONS)
    status, whole = server.post("/api/generate", {"model": "demo", "prompt": SUM[0]["content"], "stream": False, "options": {"temperature": 0}})
    assert status == 200 and set(whole) == LAST | {"response", "context"} and whole["response"] == ANSWER
    assert whole["context"] == got[-1]["context"]


def generate_context(server):
    """A conversation in tokens: what was said is the prompt of the next turn, byte for byte."""
    greedy = {"temperature": 0, "num_predict": 12}
    first = server.post("/api/generate", {"model": "demo", "prompt": "My name is Ann.", "stream": False, "options": greedy})[1]
    assert first["prompt_eval_count"] + first["eval_count"] - len(first["context"]) in (0, 1)  # the end token is not part of it
    text = server.post("/detokenize", {"model": "demo", "tokens": first["context"]})[1]["content"]
    assert "My name is Ann." in text and text.endswith(first["response"]), text
    body = {"model": "demo", "prompt": SUM[0]["content"], "context": first["context"], "stream": False, "options": greedy}
    second = server.post("/api/generate", body)[1]
    alone = server.post("/api/generate", dict(body, context=[]))[1]
    assert second["context"][:len(first["context"])] == first["context"] and second["response"] == ANSWER
    # The second prompt is the first conversation and what the template makes of the question.
    assert second["prompt_eval_count"] == len(first["context"]) + alone["prompt_eval_count"]


def generate_template(server):
    plain = {"model": "demo", "prompt": SUM[0]["content"], "system": "Be brief.", "stream": False, "options": {"temperature": 0, "num_predict": 4}}
    jinja = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    for template, want in ((jinja, "[system] Be brief.\n[user] What is 12 plus 30?\n"),
                           ("{{ if .System }}S: {{ .System }} {{ end }}P: {{ .Prompt }} A:", "S: Be brief. P: What is 12 plus 30? A:")):
        status, got = server.post("/api/generate", dict(plain, template=template))
        assert status == 200, got
        prompt = got["context"][:got["prompt_eval_count"]]
        text = server.post("/detokenize", {"model": "demo", "tokens": prompt})[1]["content"]
        assert text == want, text


def context_limit(server):
    body = {"model": "demo", "prompt": STORY[0]["content"], "stream": False, "options": {"temperature": 0, "num_ctx": 48}}
    got = server.post("/api/generate", body)[1]
    assert got["done_reason"] == "length" and got["prompt_eval_count"] + got["eval_count"] == 48 == len(got["context"])
    body["options"]["num_ctx"] = 1 << 20  # at most the model's own
    assert server.post("/api/generate", dict(body, options=dict(body["options"], num_predict=60)))[1]["eval_count"] == 60
    long_text = "The fox sat by the river. " * 300
    status, cut = server.post("/api/embed", {"model": "demo", "input": long_text})
    assert status == 200 and cut["prompt_eval_count"] == 1024, cut
    tokens = server.post("/tokenize", {"model": "demo", "content": long_text, "add_special": True})[1]["tokens"]
    want = server.post("/v1/embeddings", {"model": "demo", "input": [tokens[:1024]]})[1]["data"][0]["embedding"]
    assert max(abs(a - b) for a, b in zip(cut["embeddings"][0], want)) < 1e-6
    assert server.post("/api/embed", {"model": "demo", "input": long_text, "options": {"num_ctx": 16}})[1]["prompt_eval_count"] == 16


def chat_lines(server):
    got = lines(server, "/api/chat", chat(SUM))
    assert all(set(g) == {"model", "created_at", "message", "done"} and g["message"]["role"] == "assistant" for g in got[:-1])
    assert "".join(g["message"]["content"] for g in got) == ANSWER
    assert set(got[-1]) == LAST | {"message"} and got[-1]["message"] == {"role": "assistant", "content": ""}


def reasoning(server):
    got = lines(server, "/api/chat", chat(SUM, think=True))
    assert "40 + 2 = 42" in "".join(g["message"].get("thinking", "") for g in got)
    assert "".join(g["message"]["content"] for g in got) == ANSWER
    off = lines(server, "/api/chat", chat(SUM, think=False))
    assert not any("thinking" in g["message"] for g in off)
    one = server.post("/api/generate", {"model": "demo", "prompt": SUM[0]["content"], "think": True, "stream": False, "options": {"temperature": 0}})[1]
    assert one["response"] == ANSWER and one["thinking"]


def tool_calls(server):
    got = lines(server, "/api/chat", chat([{"role": "user", "content": "What is the weather in Paris and in Rome?"}], tools=[TOOL]))
    calls = [c for g in got for c in g["message"].get("tool_calls", [])]
    assert [c["function"]["arguments"]["city"] for c in calls] == ["Paris", "Rome"], got
    assert [c["function"]["index"] for c in calls] == [0, 1] and len({c["id"] for c in calls}) == 2
    assert not any(g["message"]["content"] for g in got)
    one = server.post("/api/chat", chat([{"role": "user", "content": "What is the weather in Paris?"}], tools=[TOOL], stream=False))[1]
    assert one["message"]["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}


def ends(server):
    assert lines(server, "/api/chat", chat(STORY, options={"num_predict": 3}))[-1]["done_reason"] == "length"
    got = lines(server, "/api/chat", chat(SUM, options={"stop": [" is"]}))
    assert "".join(g["message"]["content"] for g in got) == "12 plus 30" and got[-1]["done_reason"] == "stop"


def logprobs(server):
    got = lines(server, "/api/chat", chat(SUM, logprobs=True, top_logprobs=2))
    said = [e for g in got for e in g.get("logprobs", [])]
    assert len(said) >= 11 and set(said[0]) == {"token", "logprob", "bytes", "top_logprobs"} and len(said[0]["top_logprobs"]) == 2


def loading(server):
    assert lines_of_one(server, {"model": "demo", "keep_alive": 0}) == "unload"
    assert server.get("/api/ps")[1] == {"models": []}
    assert lines_of_one(server, {"model": "demo", "keep_alive": "10m"}) == "load"
    ps = server.get("/api/ps")[1]["models"][0]
    assert set(ps) == {"name", "model", "size", "digest", "details", "expires_at", "size_vram", "context_length"}
    tags = server.get("/api/tags")[1]["models"][0]
    assert set(tags) == {"name", "model", "size", "digest", "details", "modified_at"} and len(tags["digest"]) == 64
    assert set(tags["details"]) == {"parent_model", "format", "family", "families", "parameter_size", "quantization_level"}
    shown = server.post("/api/show", {"name": "demo:latest"})[1]
    assert set(shown) == {"license", "modelfile", "parameters", "template", "details", "model_info", "capabilities", "modified_at"}
    assert shown["model_info"]["llama.context_length"] == 4096


def lines_of_one(server, value):
    status, got = server.post("/api/generate", value)
    assert status == 200 and got["done"] is True and got["response"] == "", got
    return got["done_reason"]


def plain(server):
    assert server.request("GET", "/")[2] == b"Ollama is running"
    assert server.request("HEAD", "/")[0] == 200
    assert set(server.get("/api/version")[1]) == {"version"}
    status, _, answer = server.request("POST", "/api/push", b'{"model":"x"}')
    assert status == 501 and set(json.loads(answer)) == {"error"}, (status, answer)


MISTAKES = [
    ("/api/chat", {"messages": SUM}, 400, "model"), ("/api/chat", chat(SUM, model="nope"), 404, "nope"),
    ("/api/chat", chat([{"role": "king", "content": "x"}]), 400, "messages[0].role"), ("/api/chat", chat("x"), 400, "messages"),
    ("/api/chat", chat(SUM, options={"temperature": "hot"}), 400, "options.temperature"), ("/api/chat", chat(SUM, format="xml"), 400, "format"),
    ("/api/chat", chat([{"role": "user", "content": "x", "images": ["aGk="]}]), 400, "images"), ("/api/chat", chat(SUM, think="hard"), 400, "think"),
    ("/api/chat", chat(SUM, keep_alive="soon"), 400, "keep_alive"), ("/api/generate", {"model": "demo", "prompt": 7}, 400, "prompt"),
    ("/api/generate", {"model": "demo", "prompt": "x", "context": [1, "x"]}, 400, "context[1]"),
    ("/api/generate", {"model": "demo", "prompt": "x", "context": [99999]}, 400, "context: token 0 is 99999"),
    ("/api/generate", {"model": "demo", "prompt": "x", "context": [1], "raw": True}, 400, "raw: cannot be used together with template, system or context"),
    ("/api/generate", {"model": "demo", "prompt": "x", "template": "{{ template \"x\" . }}"}, 400, "template: the template is written in Go"),
    ("/api/generate", {"model": "demo", "prompt": "x", "template": "{% for %}"}, 400, "template"),
    ("/api/generate", {"model": "demo", "prompt": "word " * 50, "options": {"num_ctx": 20}}, 400, "the context holds 20"),
    ("/api/generate", {"model": "demo", "prompt": "x", "options": {"vocab_only": True}}, 400, "options.vocab_only"),
    ("/api/generate", {"model": "demo", "prompt": "x", "options": {"num_thread": "x"}}, 400, "options.num_thread"),
    ("/api/generate", {"model": "demo", "prompt": "x", "options": {"cache_type_k": "q8_0"}}, 400, "options.cache_type_k: is not an option of a request"),
    ("/api/chat", chat(SUM, options={"cache_type_v": "tq4"}), 400, "kv_cache.type_v"),
    ("/api/chat", chat(SUM, options={"kv_cache_type": "q8_0"}), 400, "kv_cache.type"),
    ("/api/embed", {"model": "demo", "input": "word " * 2000, "truncate": False}, 400, "tokens, the context holds 1024"),
    ("/api/embed", {"model": "demo", "input": 5}, 400, "input"), ("/api/show", {}, 400, "name"), ("/api/show", {"model": "nope"}, 404, "nope"),
    ("/api/chat", chat([{"role": "user", "content": "word " * 3000}]), 400, "1024"),
]


def mistakes(server):
    with Connection(server) as c:
        for path, value, want, names in MISTAKES:
            status, _, answer = c.request("POST", path, json.dumps(value).encode())
            got = json.loads(answer)
            assert status == want and set(got) == {"error"} and names in got["error"], (path, value, status, got)


def error_during_the_stream(server):
    begun = threading.Event()

    def take_away():
        begun.wait(30)
        server.post("/v1/models/unload", {"model": "demo"})

    thread = threading.Thread(target=take_away)
    thread.start()
    seen = []
    endless = {"type": "object", "properties": {"a": {"type": "string", "minLength": 9000}}, "required": ["a"]}
    for line in server.stream("/api/chat", chat(STORY, format=endless, options={"num_predict": 900})):
        seen.append(json.loads(line))
        begun.set()
    thread.join()
    assert set(seen[-1]) == {"error"}, seen[-1]


def main():
    checks = Checks()
    with Server(PROGRAM, "--ctx", "1024") as server:  # a quarter of what the model was made for
        for check in (generate_lines, generate_context, generate_template, context_limit, chat_lines, reasoning, tool_calls, ends, logprobs, loading, plain, mistakes, error_during_the_stream):
            checks.run(check, server)
    checks.exit()


main()
