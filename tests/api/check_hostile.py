# SPDX-License-Identifier: Apache-2.0
"""Ten thousand malformed requests: the server answers 4xx or closes, and a good request right after is answered."""
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time

from hearth_server import Checks, Connection, Server, encode, eventually, in_threads

PROGRAM = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 10000
THREADS = 4

GOOD_BODIES = {
    "/v1/chat/completions": {
        "model": "demo", "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                                      {"role": "assistant", "content": None, "tool_calls": [
                                          {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                                      {"role": "tool", "tool_call_id": "1", "content": "1"}],
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
        "tool_choice": "none", "max_tokens": 1, "max_completion_tokens": 1, "temperature": 0.5, "top_p": 0.9, "n": 1, "stop": ["x"],
        "presence_penalty": 0.1, "frequency_penalty": 0.1, "logit_bias": {"5": 1}, "logprobs": True, "top_logprobs": 1, "seed": 1,
        "stream": False, "user": "u", "reasoning_effort": "low", "response_format": {"type": "text"}, "top_k": 5, "min_p": 0.1,
        "typical_p": 1, "repeat_penalty": 1.1, "repeat_last_n": 4, "dry_multiplier": 0.1, "dry_base": 1.5, "dry_allowed_length": 2,
        "dry_sequence_breakers": ["x"], "xtc_probability": 0.1, "xtc_threshold": 0.1, "mirostat": 0, "mirostat_tau": 5,
        "mirostat_eta": 0.1, "cache_prompt": True, "ignore_eos": False, "timings_per_token": False, "return_progress": False,
        "priority": 0, "lora": [], "continue_final_message": False, "parallel_tool_calls": True, "samplers": ["top_k"],
        "chat_template_kwargs": {}, "stream_options": None},
    "/v1/completions": {"model": "demo", "prompt": "a", "max_tokens": 1, "n": 1, "best_of": 1, "echo": False, "logprobs": 1, "stop": "x",
                        "suffix": None, "stream": False, "temperature": 1, "seed": 2, "user": "u"},
    "/v1/embeddings": {"model": "demo", "input": ["a"], "encoding_format": "float", "dimensions": 4, "user": "u"},
    "/tokenize": {"content": "a", "add_special": True, "parse_special": True, "with_pieces": True},
    "/detokenize": {"tokens": [1, 2]},
    "/apply-template": {"messages": [{"role": "user", "content": "x"}]},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "n_predict": 1},
    "/rerank": {"query": "a", "documents": ["b"], "top_n": 1},
    "/classify": {"input": ["a", ["b", "c"]], "truncate": True},
    "/v1/models/load": {"model": "demo", "keep_alive": "5m"},
    "/v1/responses": {"model": "demo", "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                                                 {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                                                 {"type": "function_call_output", "call_id": "1", "output": "1"}],
                      "instructions": "x", "max_output_tokens": 1, "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
                      "tool_choice": "none", "text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"}, "stream": False},
    "/v1/messages": {"model": "demo", "max_tokens": 1, "system": [{"type": "text", "text": "x"}],
                     "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                                  {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
                                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "1"}]}],
                     "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto"},
                     "stop_sequences": ["x"], "temperature": 0.5, "top_k": 5, "top_p": 0.9, "stream": False, "metadata": {"user_id": "u"},
                     "thinking": {"type": "disabled"}},
    "/v1/messages/count_tokens": {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]},
    "/api/chat": {"model": "demo", "stream": False, "messages": [{"role": "user", "content": "Hi"},
                                                                {"role": "assistant", "content": "", "tool_calls": [
                                                                    {"function": {"name": "f", "arguments": {"a": 1}}}]},
                                                                {"role": "tool", "content": "1", "tool_name": "f"}],
                  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}], "format": "json",
                  "options": {"num_predict": 1, "temperature": 0.5, "seed": 1, "top_k": 3, "top_p": 0.5, "stop": ["x"]}, "keep_alive": "5m",
                  "think": False},
    "/api/generate": {"model": "demo", "prompt": "Hi", "system": "x", "stream": False, "raw": False, "options": {"num_predict": 1},
                      "keep_alive": 60, "think": False, "context": [1, 2], "format": "json"},
    "/api/embed": {"model": "demo", "input": ["a"], "truncate": True, "dimensions": 4, "keep_alive": "5m", "options": {}},
    "/api/show": {"model": "demo", "verbose": False},
}
WRONG = [None, True, 0, -1, 1.5, 10 ** 18, 1e300, "", "x", "\u0001", "a\u0000b", "\ud800", [], {}, [[]], [None], {"": {}}, ["x"] * 70, {"type": 7}]
HEADS = [encode("GET", "/health"), encode("POST", "/tokenize", b'{"content":"x"}'),
         encode("POST", "/tokenize", headers={"Transfer-Encoding": "chunked"}) + b"f\r\n{\"content\":\"x\"}\r\n0\r\n\r\n",
         encode("GET", "/v1/models", headers={"Connection": "close", "X-Long": "y" * 300}),
         encode("POST", "/v1/completions", json.dumps(GOOD_BODIES["/v1/completions"]).encode(), {"Expect": "100-continue"})]
PIECES = [b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: b\r\n",
          b"HTTP/1.1", b"%00", b"\xff\xfe", b"0\r\n\r\n", b"GET /admin HTTP/1.1\r\nHost: x\r\n\r\n", b"A" * 9000, b"-", b"+", b"0x"]


def expect_alive(server):
    status, _, body = server.request("POST", "/tokenize", b'{"content":"hello"}')
    assert status == 200 and json.loads(body)["tokens"], (status, body)
    status, body = server.chat("Hi", max_tokens=1)
    assert status == 200 and body["usage"]["completion_tokens"] == 1, (status, body)


def statuses_of(data):
    """Statuses of the answers in the bytes of a connection, as far as they can be cut."""
    found = []
    while data.startswith(b"HTTP/1.1 "):
        head, _, rest = data.partition(b"\r\n\r\n")
        found.append(int(head[9:12]))
        length = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        data = rest[length[0] if length else 0:]
    return found


def mutate(rng, data):
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0:
            del data[at:at + rng.randint(1, 8)]
        elif kind == 1:
            data[at:at] = rng.choice(PIECES)
        elif kind == 2 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 3:
            data[at:at] = data[rng.randrange(len(data) + 1):][:rng.randint(1, 60)]
        elif kind == 4:
            del data[at:]
        else:
            lines = bytes(data).split(b"\r\n")
            i = rng.randrange(len(lines))
            lines.insert(i, lines[rng.randrange(len(lines))])
            data = bytearray(b"\r\n".join(lines))
        if not data:
            data = bytearray(b"\0")
    return bytes(data)


def malformed_http(server):
    counts = {}

    def run(thread):
        rng = random.Random(1000 + thread)
        for i in range(ROUNDS // 2 // THREADS):
            with server.connect(10) as s:
                got = b""
                try:
                    s.sendall(mutate(rng, rng.choice(HEADS)))
                    s.shutdown(socket.SHUT_WR)
                    while chunk := s.recv(65536):
                        got += chunk
                except (ConnectionResetError, BrokenPipeError):
                    pass
                for status in statuses_of(got) or [0]:
                    counts[status] = counts.get(status, 0) + 1
                    assert status in (0, 100, 200, 400, 403, 404, 405, 408, 413, 414, 417, 431, 501, 505), got[:300]
            if i % 200 == 0:
                expect_alive(server)

    in_threads([lambda t=t: run(t) for t in range(THREADS)])
    expect_alive(server)
    assert sum(n for status, n in counts.items() if status >= 400) > ROUNDS // 10
    return f"{sum(counts.values())} answers: " + ", ".join(f"{s or 'closed'} {n}" for s, n in sorted(counts.items()))


def spots(value, path=()):
    """The paths of all values inside a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    for key, inner in items:
        yield from spots(inner, path + (key,))


def replaced(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


def wrong_types_at_every_field(server):
    cases = [(path, json.dumps(replaced(body, spot, new)).encode())
             for path, body in GOOD_BODIES.items() for spot in spots(body) for new in WRONG]
    counts = {}

    def run(thread):
        with Connection(server, 60) as c:
            for path, body in cases[thread::THREADS]:
                status, _, answer = c.request("POST", path, body)
                counts[status] = counts.get(status, 0) + 1
                assert status in (200, 400, 404, 413), (path, body[:300], status, answer)
                if status != 200:
                    error = json.loads(answer)["error"]
                    assert error if isinstance(error, str) else error["message"], answer

    in_threads([lambda t=t: run(t) for t in range(THREADS)])
    expect_alive(server)
    return f"{len(cases)} bodies: " + ", ".join(f"{s} {n}" for s, n in sorted(counts.items()))


def malformed_json(server):
    def run(thread):
        rng = random.Random(2000 + thread)
        paths = sorted(GOOD_BODIES)
        with Connection(server, 60) as c:
            for i in range(ROUNDS // 2 // THREADS):
                path = rng.choice(paths)
                body = mutate(rng, json.dumps(GOOD_BODIES[path]).encode())[:20000]
                status, _, answer = c.request("POST", path, body)
                assert status in (200, 400, 404), (path, body[:300], status, answer)

    in_threads([lambda t=t: run(t) for t in range(THREADS)])
    expect_alive(server)
    return f"{ROUNDS // 2 // THREADS * THREADS} bodies"


def oversized(server):
    big = {"deep": b"[" * 200000, "deep objects": b'{"a":' * 100000, "deep and closed": b"[" * 5000 + b"]" * 5000,
           "many values": b'{"content":[' + b"0," * 2000000 + b"0]}", "long number": b'{"content":' + b"9" * 100000 + b"}",
           "long string": b'{"content":"' + b"x" * 3000000 + b'"', "bad utf-8": b'{"content":"\xff\xfe\xc0\x80"}',
           "nul": b'{"content":"\0"}', "nul in a name": b'{"content\\u0000":"x"}', "surrogate": b'{"content":"\\ud800"}',
           "two values": b"{}{}", "empty": b"", "array": b"[]", "nan": b'{"content":NaN}', "bom": b"\xef\xbb\xbf{}"}
    for name, body in big.items():
        status, _, answer = server.request("POST", "/tokenize", body)
        assert status == 400, (name, status, answer[:200])
    for path, headers, want in (("/tokenize", {"Content-Length": str(65 << 20)}, 413), ("/" + "a" * 9000, {}, 414),
                                ("/health", {"X": "y" * 40000}, 431), ("/health", {f"X{i}": "y" for i in range(150)}, 431)):
        status, got, _ = server.request("POST", path, None, headers)
        assert status == want and got["connection"] == "close", (path[:20], status)
    # A client that announces little and sends a flood gets its answer before the connection ends.
    with Connection(server) as c:
        try:
            c.send(encode("POST", "/tokenize", None, {"Transfer-Encoding": "chunked"}))
            for _ in range(80):
                c.send(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
        except OSError:
            pass
        try:
            assert c.head()[0] == 413
        except (ConnectionResetError, EOFError):
            pass
    expect_alive(server)


def aborts_at_every_byte(server):
    body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "stream": True}).encode()
    request = encode("POST", "/v1/chat/completions", body, {"Connection": "close"})
    for n in range(len(request)):
        with server.connect() as s:
            s.sendall(request[:n])
            if n % 2:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset instead of an end
    whole = len(server.request("POST", "/v1/chat/completions", body, {"Connection": "close"})[2])

    def read_some(thread):
        for n in range(thread, whole + 600, THREADS):  # the head and the frames of chunks, too
            with server.connect() as s:
                s.sendall(request)
                left = n
                while left > 0 and (got := s.recv(left)):
                    left -= len(got)

    in_threads([lambda t=t: read_some(t) for t in range(THREADS)])
    expect_alive(server)
    eventually(lambda: server.get("/v1/requests")[1]["data"] == [], 10)
    return f"{len(request)} bytes of a request, {whole + 600} of an answer"


def slow_clients(program):
    """Deadlines hold although bytes keep coming."""
    with Server(program, "--head-seconds", "1", "--body-seconds", "1", "--idle-seconds", "1") as server:
        def trickle(first, byte, limit):
            begin = time.monotonic()
            with server.connect(20) as s:
                s.sendall(first)
                s.settimeout(0.1)
                got = b""
                while True:
                    try:
                        data = s.recv(1000)
                        if not data:
                            break
                        got += data
                        continue
                    except socket.timeout:
                        pass
                    except ConnectionResetError:
                        break
                    try:
                        s.sendall(byte)
                    except OSError:
                        break
                took = time.monotonic() - begin
                assert took < limit, (first[:20], took)
                return got

        assert b" 408 " in trickle(b"GET / HTTP/1.1\r\nX: ", b"y", 8)
        assert b" 408 " in trickle(encode("POST", "/tokenize", None, {"Content-Length": "1000"}), b" ", 8)
        assert trickle(encode("GET", "/health"), b"", 8).startswith(b"HTTP/1.1 200")
        assert trickle(b"", b"", 8) == b""


def smuggling_gets_one_answer(server):
    inner = b"GET /v1/stats HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for head in (b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"Content-Length: 0\r\nContent-Length: 44\r\n",
                 b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding : chunked\r\n", b"Content-Length: +0\r\n",
                 b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", b"X: y\nContent-Length: 44\r\n"):
        with server.connect() as s:
            s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n0\r\n\r\n" + inner)
            got = b""
            try:
                while data := s.recv(65536):
                    got += data
            except ConnectionResetError:
                pass
            found = statuses_of(got)
            assert len(found) == 1 and found[0] in (400, 501), (head, got)


def keys_and_hosts(program):
    with Server(program, env={"HEARTH_API_KEYS": "me:secret-key-1, limited:secret-key-2 rpm=2"}) as server:
        assert server.request("GET", "/v1/models")[0] == 401
        assert server.request("GET", "/v1/models", headers={"Authorization": "Bearer wrong-key"})[0] == 401
        assert server.request("GET", "/v1/models", headers={"Authorization": "Bearer secret-key-1"})[0] == 200
        assert server.request("GET", "/v1/models", headers={"x-api-key": "secret-key-1"})[0] == 200
        assert server.request("GET", "/health")[0] == 200 and server.request("GET", "/metrics")[0] == 401
        with Connection(server, unix=True) as c:
            assert c.request("GET", "/v1/models")[0] == 401
        for want in (200, 200, 429):
            status, headers, body = server.request("GET", "/v1/models", headers={"x-api-key": "secret-key-2"})
            assert status == want, body
        assert 1 <= int(headers["retry-after"]) <= 60 and json.loads(body)["error"]["code"] == "rate_limit_exceeded"
    with Server(program) as server:
        assert server.request("GET", "/v1/models")[0] == 200
        assert server.request("GET", "/v1/models", headers={"Host": "attacker.example"})[0] == 403
        assert server.request("GET", "/v1/models", headers={"Host": "127.0.0.1.attacker.example"})[0] == 403
        assert server.request("GET", "/v1/models", headers={"Host": "127.1.2.3:99"})[0] == 200
        status, headers, _ = server.request("GET", "/v1/models", headers={"Origin": "https://attacker.example"})
        assert status == 403 and "access-control-allow-origin" not in headers
        status, headers, _ = server.request("GET", "/v1/models", headers={"Origin": "http://localhost:3000"})
        assert status == 200 and "access-control-allow-credentials" not in headers
        with Connection(server, unix=True) as c:  # whoever can open it is the owner; any Host will do
            assert c.request("GET", "/v1/models", headers={"Host": "whatever"})[0] == 200


def main():
    checks = Checks()
    # A small model, so that all of it can run under a sanitizer: a wrong limit may mean a long answer.
    with tempfile.TemporaryDirectory() as directory:
        small = os.path.join(directory, "small.gguf")
        subprocess.run([PROGRAM, "debug", "random-model", "--arch", "qwen3", "--dim", "64", "--layers", "1", "--vocab", "2000", "--type",
                        "Q8_0", small], check=True)
        run_all(checks, small)
    checks.run(slow_clients, PROGRAM)
    checks.run(keys_and_hosts, PROGRAM)
    checks.exit()


def run_all(checks, model):
    with Server(PROGRAM, "--ctx", "600", "--model", f"demo={model}", log_level="error") as server:
        expect_alive(server)
        for check in (smuggling_gets_one_answer, oversized, aborts_at_every_byte, wrong_types_at_every_field, malformed_json, malformed_http):
            checks.run(check, server)


main()
