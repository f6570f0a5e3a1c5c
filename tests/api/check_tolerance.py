# SPDX-License-Identifier: Apache-2.0
"""What other local servers accept, accepted here: loose addresses, nulls, their paths, their origins; connections stay."""
import email.utils
import gzip
import json
import os
import sys
import time

from hearth_server import Checks, Connection, Server, encode

PROGRAM = sys.argv[1]
DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/demo/demo.gguf")
CHAT = "/v1/chat/completions"
SUM = [{"role": "user", "content": "What is 12 plus 30?"}]
ANSWER = "12 plus 30 is 42."
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather in a city",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


def addresses(server):
    for path in ("/v1/models/", "/v1//models", "//v1/models", "/v1/models//", "/models"):
        status, got = server.get(path)
        assert status == 200 and got["object"] == "list", path
    assert server.request("GET", "/")[2] == b"Ollama is running"
    assert server.post("/v1/chat/completions/", {"model": "demo", "messages": SUM})[0] == 200
    assert server.get("/v1/models/demo/")[1]["id"] == "demo"


def errors_by_path(server):
    """A path that is not there answers as its protocol does; so do compressed bodies, which are refused by name."""
    assert "does not exist" in server.get("/api/nope")[1]["error"]
    assert server.get("/v1/messages/batches")[1]["error"]["type"] == "not_found_error"
    assert server.get("/v1/nope")[1]["error"]["code"] == "not_found"
    body = json.dumps({"model": "demo", "max_tokens": 3, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    packed = gzip.compress(body)
    with Connection(server) as c:
        for path, data, coding in (("/v1/chat/completions", packed, "gzip"), ("/v1/messages", packed, "gzip"), ("/api/chat", body, "deflate"),
                                   ("/v1/chat/completions", body, "gzip, identity")):
            status, headers, answer = c.request("POST", path, data, {"Content-Encoding": coding})
            assert status == 415 and headers["accept-encoding"] == "identity" and coding in str(json.loads(answer)["error"]), answer
        for coding in ("identity", ""):
            assert c.request("POST", "/v1/chat/completions", body, {"Content-Encoding": coding})[0] == 200
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            headers = c.request("POST", path, body)[1]
            assert headers["request-id"] == headers["x-request-id"]


def fields_are_named(server):
    """The field at fault, whoever found the mistake."""
    hello = [{"role": "user", "content": "Hi"}]
    for path, body, param in (("/v1/embeddings", {"input": "hi", "dimensions": 5000}, "dimensions"), ("/v1/completions", {"prompt": [999999]}, "prompt"),
                              ("/v1/completions", {"prompt": "x", "best_of": 2, "stream": True}, "best_of"), ("/detokenize", {"tokens": ["x"]}, "tokens[0]"),
                              ("/v1/chat/completions", {"messages": hello, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "x"}}}},
                               "response_format"),
                              ("/v1/responses", {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "x"}}}}, "text"),
                              ("/v1/chat/completions", {"messages": hello, "tool_choice": "required", "tools": [{"type": "function", "function": {
                                  "name": "f", "parameters": {"type": "x"}}}]}, "tools"),
                              ("/v1/chat/completions", {"messages": hello, "tool_choice": {"type": "function", "function": {"name": "g"}},
                                                        "tools": [{"type": "function", "function": {"name": "f"}}]}, "tool_choice")):
        status, got = server.post(path, dict(body, model="demo"))
        assert status == 400 and got["error"]["param"] == param and got["error"]["code"] == "invalid_value", got


def dates(server):
    _, headers, _ = server.request("GET", "/health")
    assert abs(email.utils.parsedate_to_datetime(headers["date"]).timestamp() - time.time()) < 5, headers["date"]
    assert headers["date"].endswith(" GMT")


def lengths_and_nulls(server):
    status, got = server.post("/v1/completions", {"model": "demo", "prompt": "What is", "max_tokens": -1, "temperature": 0, "stop": "."})
    assert status == 200 and got["choices"][0]["finish_reason"] == "stop", got
    for fields in ({"max_tokens": -1}, {"max_completion_tokens": -1}):
        status, got = server.chat(SUM[0]["content"], **fields)
        assert status == 200 and got["choices"][0]["message"]["content"] == ANSWER, got
    assert server.chat("x", max_tokens=0)[0] == 400 and server.chat("x", max_tokens=-2)[0] == 400
    talk = [{"role": "system", "content": None}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": None}] + SUM
    assert server.post(CHAT, {"model": "demo", "messages": talk})[0] == 200
    assert server.post(CHAT, {"model": "demo", "messages": [{"role": "user"}]})[0] == 400


def hosted(server):
    with Connection(server) as c:
        body = {"model": "demo", "messages": SUM, "temperature": 0, "web_search_options": {}, "store": True, "user": "u", "made_up": 1}
        status, headers, answer = c.request("POST", CHAT, json.dumps(body).encode())
        assert status == 200 and json.loads(answer)["choices"][0]["message"]["content"] == ANSWER
        assert set(headers["x-hearth-ignored"].split(", ")) == {"web_search_options", "store", "user", "made_up"}, headers
        body["stream"] = True
        c.send(encode("POST", CHAT, json.dumps(body).encode()))
        status, headers = c.head()
        assert status == 200 and "store" in headers["x-hearth-ignored"]


def ollama_forms(server):
    ask = {"model": "demo", "stream": False, "messages": [{"role": "user", "content": "What is the weather in Paris?"}], "tools": [WEATHER]}
    status, got = server.post("/api/chat", dict(ask, tool_choice="get_weather"))
    assert status == 200 and got["message"]["tool_calls"][0]["function"]["name"] == "get_weather", got
    assert server.post("/api/chat", dict(ask, tool_choice="other"))[0] == 400
    for nothing in ({"input": ""}, {"input": []}, {}):
        status, got = server.post("/api/embed", dict({"model": "demo"}, **nothing))
        assert status == 200 and got["embeddings"] == [], got
    assert server.post("/api/embeddings", {"model": "demo", "prompt": ""}) == (200, {"embedding": []})
    for wrong in (5, True, {"a": 1}, [None], [{}], [True], ["a", 5]):
        for path, key in (("/api/embed", "input"), ("/v1/embeddings", "input"), ("/embedding", "content"), ("/api/embeddings", "prompt")):
            assert server.post(path, {"model": "demo", key: wrong})[0] == 400, (path, wrong)
    version = server.get("/api/version")[1]["version"].split(".")
    assert [int(n) for n in version] >= [0, 13, 4], version  # below that Codex refuses


def show(server):
    status, plain = server.post("/api/show", {"model": "demo"})
    info = plain["model_info"]
    assert status == 200 and info["llama.context_length"] == 4096 and info["tokenizer.ggml.tokens"] is None, list(info)
    assert plain["capabilities"][0] == "completion" and "embedding" not in plain["capabilities"] and "tools" in plain["capabilities"]
    _, verbose = server.post("/api/show", {"model": "demo", "verbose": True})
    assert len(verbose["model_info"]["tokenizer.ggml.tokens"]) == 8192 and set(verbose["model_info"]) == set(info)


def llama_cpp_paths(server):
    prompt = "<|im_start|>user\nWhat is 12 plus 30?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    for path in ("/completion", "/completions"):
        status, got = server.post(path, {"prompt": prompt, "n_predict": 40, "temperature": 0})
        assert status == 200 and got["content"] == ANSWER and got["stop"] is True and got["tokens_predicted"] > 3, got
    pieces = [json.loads(e[6:]) for e in server.stream("/completion", {"prompt": prompt, "n_predict": 40, "temperature": 0, "stream": True})]
    assert "".join(p["content"] for p in pieces[:-1]) == ANSWER and [p["stop"] for p in pieces] == [False] * (len(pieces) - 1) + [True]
    status, got = server.post("/completion", {"prompt": prompt, "n_predict": 40, "temperature": 0, "n_probs": 3, "return_tokens": True, "stop": [" is"]})
    assert got["stop_type"] == "word" and got["stopping_word"] == " is" and got["truncated"] is False and got["index"] == 0, got
    probs = got["completion_probabilities"]
    assert [p["id"] for p in probs] == got["tokens"] and all(len(p["top_logprobs"]) == 3 and p["top_logprobs"][0]["id"] == p["id"] for p in probs), probs
    assert server.post("/detokenize", {"tokens": got["tokens"]})[1]["content"].startswith(got["content"]), got
    pieces = [json.loads(e[6:]) for e in server.stream("/completion", {"prompt": prompt, "n_predict": 40, "temperature": 0, "n_probs": 1, "return_tokens": True, "stream": True})]
    assert server.post("/detokenize", {"tokens": [t for p in pieces for t in p["tokens"]]})[1]["content"].startswith(ANSWER), pieces
    assert all(len(p["completion_probabilities"]) == len(p["tokens"]) for p in pieces), pieces
    both = server.post("/completion", {"prompt": [prompt, "12"], "n_predict": 8, "temperature": 0})[1]
    assert [b["index"] for b in both] == [0, 1] and both[0]["content"] == ANSWER[:len(both[0]["content"])], both
    status, got = server.post("/completion", {"prompt": prompt, "n_predict": 0})
    assert status == 200 and got["content"] == "" and got["tokens_predicted"] == 0 and got["stop_type"] == "limit", got
    thought = server.post("/v1/chat/completions", {"model": "demo", "messages": SUM, "temperature": 0, "reasoning": {"effort": "high"}})[1]["choices"][0]["message"]
    assert thought["reasoning_content"] and thought["content"] == ANSWER, thought
    assert server.post("/chat/completions", {"model": "demo", "messages": SUM, "temperature": 0})[1]["choices"][0]["message"]["content"] == ANSWER
    for path in ("/embedding", "/embeddings"):
        status, got = server.post(path, {"content": "one"})
        assert status == 200 and got[0]["index"] == 0 and len(got[0]["embedding"][0]) == 512, got
    assert server.get("/v1/health")[1]["status"] == "ok" and server.get("/props")[1]["total_slots"] == 16
    status, got = server.post("/reranking", {"query": "a", "documents": ["b"]})
    assert status in (200, 400) and ("results" in got or "error" in got)  # a model that cannot rank says so


def origins(server):
    for origin in ("app://obsidian.md", "file://", "tauri://localhost", "vscode-webview://abc", "http://0.0.0.0:3000", "http://localhost:5173"):
        status, headers, _ = server.request("GET", "/v1/models", headers={"Origin": origin})
        assert status == 200 and headers["access-control-allow-origin"] == origin, origin
    for origin in ("http://example.com", "https://localhost.example.com", "null", "http://0.0.0.0.example.com"):
        assert server.request("GET", "/v1/models", headers={"Origin": origin})[0] == 403, origin


def connections_stay(server):
    """An ordinary error takes neither the connection nor the requests behind it."""
    with Connection(server) as c:
        c.send(encode("GET", "/nothing") + encode("POST", "/nothing", b"x" * 1000) + encode("DELETE", "/health") + encode("OPTIONS", "/v1/models")
               + encode("POST", CHAT, b"{") + encode("GET", "/v1/models/nope") + encode("GET", "/v1/models"))
        got = [c.answer()[0] for _ in range(7)]
        assert got == [404, 404, 405, 204, 400, 404, 200], got
    with Connection(server) as c:  # a body that nobody will read is not waited for
        c.send(encode("POST", "/nothing", None, {"Content-Length": str(60 << 20)}))
        status, headers, _ = c.answer()
        assert status == 404 and headers["connection"] == "close"


def hosts(server):
    for host in ("localhost:99999", "localhost:80a", "localhost:-1", "[::1", "[::1]x", "localhost:80:80"):
        assert server.request("GET", "/health", headers={"Host": host})[0] == 400, host
    for host in ("localhost", "localhost:", "localhost:11434", "[::1]:1", "127.0.0.1:65535"):
        assert server.request("GET", "/health", headers={"Host": host})[0] == 200, host


def the_only_model(program):
    """Where there is one model, nobody need name it; where there are several, OpenAI's paths want a name."""
    body = {"messages": SUM, "temperature": 0}
    with Server(program, "--model", f"one={DEMO}") as server:
        for path in ("/v1/chat/completions", "/chat/completions"):
            assert server.post(path, body)[1]["choices"][0]["message"]["content"] == ANSWER
        assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200 and server.post("/v1/responses", {"input": "x", "max_output_tokens": 1})[0] == 200
        assert server.post("/v1/embeddings", {"input": "x"})[0] == 200
    with Server(program, "--model", f"one={DEMO}", "--model", f"two={DEMO}") as server:
        status, got = server.post("/v1/chat/completions", body)
        assert status == 400 and got["error"]["param"] == "model", got


def metrics_key(program):
    key = {"Authorization": "Bearer secret-key"}
    with Server(program, env={"HEARTH_API_KEYS": "one:secret-key"}) as server:
        assert server.request("GET", "/metrics")[0] == 401 and server.request("GET", "/metrics", headers=key)[0] == 200
        assert server.request("GET", "/health")[0] == 200
    with Server(program, env={"HEARTH_API_KEYS": "one:secret-key", "HEARTH_METRICS_OPEN": "true"}) as server:
        assert server.request("GET", "/metrics")[0] == 200 and server.request("GET", "/v1/stats")[0] == 401


def main():
    checks = Checks()
    with Server(PROGRAM) as server:
        for check in (addresses, errors_by_path, fields_are_named, dates, lengths_and_nulls, hosted, ollama_forms, show, llama_cpp_paths, origins, connections_stay, hosts):
            checks.run(check, server)
    checks.run(the_only_model, PROGRAM)
    checks.run(metrics_key, PROGRAM)
    checks.exit()


main()
