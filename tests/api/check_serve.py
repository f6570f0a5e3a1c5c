# SPDX-License-Identifier: Apache-2.0
"""`hearth serve` as a program: sockets, TLS, web origins, logs, the token, models that come and go, metrics."""
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import time

from hearth_server import Checks, Connection, Server, chat_text, encode, eventually, in_threads

PROGRAM = sys.argv[1]
FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "demo")
SECRET = "xyzzy-prompt-nobody-may-log"


def run(*options, env=None):
    """Starts the server where it is expected to fail: (exit code, stderr)."""
    done = subprocess.run([PROGRAM, "serve", "--log-level", "warn", *options], capture_output=True, text=True, timeout=60, check=False,
                          env=dict(os.environ, **(env or {})))
    return done.returncode, done.stderr


def unix_socket():
    """Mode 0600; a live one is never taken over, a stale one is; it is removed at the end; a chat works over it."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "hearth.sock")
        with Server(PROGRAM, "--no-tcp", "--socket", path) as server:
            server.socket_path = path
            assert server.ready["port"] == 0 and server.ready["socket"] == path
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            with Connection(server, unix=True) as c:
                events = c.stream("/v1/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": "What is 12 plus 30?"}],
                                                           "temperature": 0, "stream": True})
                assert chat_text(events) == ("12 plus 30 is 42.", "stop", True)
            if shutil.which("curl"):
                out = subprocess.run(["curl", "-s", "--unix-socket", path, "http://hearth/health"], capture_output=True, check=True).stdout
                assert json.loads(out)["status"] == "ok"
            code, text = run("--no-tcp", "--socket", path)
            assert code == 1 and "another server is listening" in text, text
        assert not os.path.exists(path)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)
        with Server(PROGRAM, "--no-tcp", "--socket", path) as server:
            server.socket_path = path
            with Connection(server, unix=True) as c:
                assert c.request("GET", "/health")[0] == 200
        with open(path, "w", encoding="ascii") as f:
            f.write("precious")
        code, text = run("--no-tcp", "--socket", path)
        assert code != 0 and "not a socket" in text and os.path.getsize(path) == 8, text


def tls():
    cert, key = (os.path.join(FIXTURES, "tls", name) for name in ("cert.pem", "key.pem"))
    with Server(PROGRAM, "--tls-cert", cert, "--tls-key", key) as server:
        assert server.ready["url"].startswith("https://")
        trust = ssl.create_default_context(cafile=cert)
        with Connection(server) as c:
            c.sock = trust.wrap_socket(c.sock, server_hostname="localhost")
            body = {"model": "demo", "messages": [{"role": "user", "content": "What is 12 plus 30?"}], "temperature": 0, "stream": True}
            assert chat_text(c.stream("/v1/chat/completions", body)) == ("12 plus 30 is 42.", "stop", True)
            status, _, big = c.request("POST", "/tokenize", json.dumps({"content": "word " * 100000}).encode())
            assert status == 200 and len(json.loads(big)["tokens"]) >= 100000
        with server.connect() as plain:  # no TLS: no answer, no harm
            plain.sendall(encode("GET", "/health"))
            try:
                while plain.recv(4096):
                    pass
            except ConnectionResetError:
                pass
        cut = trust.wrap_socket(server.connect(), server_hostname="localhost")
        cut.sendall(encode("POST", "/v1/chat/completions", json.dumps(dict(body, max_tokens=900, ignore_eos=True)).encode()))
        cut.recv(100)
        cut.close()
        with Connection(server) as c:
            c.sock = trust.wrap_socket(c.sock, server_hostname="localhost")
            eventually(lambda: json.loads(c.request("GET", "/v1/requests")[2])["data"] == [], 10)
    code, text = run("--tls-cert", cert)
    assert code == 2 and "must be given together" in text
    code, text = run("--tls-cert", key, "--tls-key", key, "--no-socket", "--port", "0")
    assert code != 0 and "--tls-cert" in text, text


def refuses(server):
    try:
        server.connect().close()
        return False
    except (ConnectionRefusedError, ConnectionResetError):  # reset: accepted by the system as the listener closed
        return True


def health():
    """Live at once and always; ready when the models of models.preload are up, whatever becomes of them later."""
    with tempfile.TemporaryDirectory() as directory, open(os.path.join(directory, "pipe.gguf"), "wb") as broken:
        broken.write(b"GGUF\3\0\0\0")
        broken.flush()
        with Server(PROGRAM, "--model", "demo=demo", env={"HEARTH_PRELOAD": "demo"}) as server:
            assert server.get("/health/live") == (200, {"status": "ok"})
            eventually(lambda: server.get("/health/ready")[0] == 200, 30)
            state = server.get("/v1/stats")[1]["models"][0]
            assert state["state"] == "loaded", state
            os.kill(state["pid"], 9)  # a request starts it again, and requests come only to those who are ready
            assert server.get("/health/ready") == (200, {"status": "ok"})
            assert server.request("HEAD", "/health/ready")[0] == 200 and server.request("POST", "/health/live", b"")[0] == 405
            with server.connect() as begun:  # one that was on its way when the server was told to end
                begun.sendall(b"GET /health/ready HTTP/1.1\r\n")
                eventually(lambda: server.get("/v1/stats")[1]["connections"] == 2, 10)
                server.process.send_signal(signal.SIGTERM)
                eventually(lambda: refuses(server), 10)
                begun.sendall(b"Host: localhost\r\n\r\n")
                answer = begun.recv(4096)
                assert answer.startswith(b"HTTP/1.1 503") and answer.endswith(b'{"status":"draining"}'), answer
            assert server.process.wait(60) == 0
        with Server(PROGRAM, "--model", "broken=" + broken.name, "--model", "demo=demo", env={"HEARTH_PRELOAD": "demo,broken"}) as server:
            eventually(lambda: server.get("/health/ready") == (503, {"status": "unloaded", "model": "broken"}), 30)
            assert server.get("/health/live")[0] == 200 and server.chat("What is 12 plus 30?")[0] == 200
            assert "cannot load broken" in server.log_text()
        with Server(PROGRAM, "--health-needs-key", env={"HEARTH_API_KEYS": "a:test-key-1"}) as server:
            assert [server.request("GET", path)[0] for path in ("/health/live", "/health/ready")] == [401, 401]
            assert server.request("GET", "/health/live", headers={"x-api-key": "test-key-1"})[0] == 200
        code, text = run("--port", "0", "--no-socket", env={"HEARTH_PRELOAD": "nobody"})
        assert code == 1 and "HEARTH_PRELOAD: models.preload: no model 'nobody' is offered" in text, text


def told_again_and_again():
    """Who asks it to end until it has ended sees it end as it was asked to."""
    with Server(PROGRAM, "--model", "demo=demo", env={"HEARTH_PRELOAD": "demo"}) as server:
        until = time.monotonic() + 60
        while server.process.poll() is None and time.monotonic() < until:
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.0002)
        assert server.process.wait(1) == 0, server.process.returncode


def no_models():
    """The program alone, without the models that ship with it: it serves, and says that it has none."""
    with tempfile.TemporaryDirectory() as directory:
        os.mkdir(os.path.join(directory, "bin"))
        alone = shutil.copy(PROGRAM, os.path.join(directory, "bin", "hearth"))
        with Server(alone, log_level="info") as server:
            assert server.get("/v1/models")[1]["data"] == [] and server.get("/health/ready")[0] == 200
            status, answer = server.chat("Hello")
            assert status == 404 and "demo" in answer["error"]["message"], answer
            status, answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]})
            assert status == 400 and "model" in answer["error"]["message"], answer
            assert "the model demo is not installed" in server.log_text()


def origins():
    with Server(PROGRAM, "--cors-origin", "https://app.example") as server:
        def ask(origin, method="GET", **extra):
            status, headers, _ = server.request(method, "/v1/models", headers=dict({"Origin": origin}, **extra))
            return status, headers.get("access-control-allow-origin"), headers.get("access-control-allow-credentials")
        assert ask("https://app.example") == (200, "https://app.example", "true")
        assert ask("https://evil.example") == (403, None, None)
        assert ask("null") == (403, None, None)
        assert ask("http://localhost:5173") == (200, "http://localhost:5173", None)
        status, headers, _ = server.request("OPTIONS", "/v1/chat/completions", headers={
            "Origin": "https://app.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-custom"})
        assert status == 204 and "POST" in headers["access-control-allow-methods"], headers
        assert headers["access-control-allow-headers"] == "authorization,x-custom"
    with Server(PROGRAM, "--cors-origin", "*") as server:
        status, headers, _ = server.request("GET", "/v1/models", headers={"Origin": "https://evil.example"})
        assert status == 200 and headers["access-control-allow-origin"] == "*" and "access-control-allow-credentials" not in headers


def logs():
    """JSON lines with ids; no text of a prompt or an answer above debug; an unknown field is named once."""
    with Server(PROGRAM, "--log-format", "json", log_level="info") as server:
        for _ in range(2):
            status, headers, _ = server.request("POST", "/v1/chat/completions", json.dumps(
                {"model": "demo", "messages": [{"role": "user", "content": SECRET}], "max_tokens": 3, "not_a_field": 1}).encode(), timeout=60)
            assert status == 200
        server.request("POST", "/v1/chat/completions", ('{"model": "demo", "messages": "' + SECRET + '"}').encode())
        server.request("POST", "/v1/chat/completions", ('{"model": ' + SECRET).encode())
        lines = [json.loads(line) for line in server.log_text().splitlines()]
        assert SECRET not in server.log_text()
        mine = [l for l in lines if l.get("request") == headers["x-request-id"]]
        assert len(mine) == 1 and mine[0]["status"] == 200 and mine[0]["generated_tokens"] == 3 and mine[0]["ms"] > 0, mine
        assert sum("not_a_field" in l["message"] for l in lines) == 1


def token():
    """Beyond loopback a key is needed even if none was given: the token, which only the owner can read."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "deep", "token")
        with Server(PROGRAM, "--host", "0.0.0.0", "--token-file", path) as server:
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            with open(path, encoding="ascii") as f:
                secret = f.read().strip()
            assert server.request("GET", "/v1/models")[0] == 401
            assert server.request("GET", "/v1/models", headers={"Authorization": f"Bearer {secret}"})[0] == 200
            assert server.request("GET", "/v1/models", headers={"Authorization": f"Bearer {secret[:-1]}"})[0] == 401
            with Connection(server, unix=True) as c:
                assert c.request("GET", "/v1/models")[0] == 200
        os.chmod(path, 0o644)
        code, text = run("--host", "0.0.0.0", "--port", "0", "--no-socket", "--token-file", path)
        assert code != 0 and "0600" in text, text


def models_come_and_go():
    """Loaded on first use, least recently used first out, unloaded after the keep-alive; a bad file is an error, not an end."""
    with tempfile.TemporaryDirectory() as directory:
        bad = os.path.join(directory, "bad.gguf")
        with open(bad, "wb") as f:
            f.write(b"GGUF" + b"\xff" * 60)
        demo, draft = (os.path.join(DEMO, name) for name in ("demo.gguf", "draft.gguf"))
        if not os.path.exists(draft):
            draft = demo
        with Server(PROGRAM, "--model", f"a={demo}", "--model", f"b={draft}", "--model", f"bad={bad}", "--max-loaded", "1", "--keep-alive", "60") as server:
            def states():
                return {m["id"]: m["status"] for m in server.get("/v1/models")[1]["data"]}

            def ask(model, text="What is 12 plus 30?"):
                return server.post("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 5})
            assert states() == {"a": "unloaded", "b": "unloaded", "bad": "unloaded"}
            assert ask("a:latest")[0] == 200 and states()["a"] == "loaded"
            assert ask("b")[0] == 200
            assert states() == {"a": "unloaded", "b": "loaded", "bad": "unloaded"}
            status, error = ask("bad")
            assert status == 500 and "bad" in error["error"]["message"] and error["error"]["code"] == "model_not_loaded", error
            # A call is told after one attempt, like a request.
            assert server.log_text().count("cannot load bad") == 1
            assert server.post("/tokenize", {"model": "bad", "content": "x"})[0] == 500
            assert server.log_text().count("cannot load bad") == 2
            assert ask("b")[0] == 200 and ask("nothing")[0] == 404
            # Many at once for two models of which one fits: all are answered.
            in_threads([lambda m=m: None if ask(m)[0] == 200 else 1 / 0 for m in "abababab"])
            assert server.post("/v1/models/load", {"model": "a", "keep_alive": 0.3})[0] == 200
            eventually(lambda: states()["a"] == "unloaded", 10)
    code, text = run("--model", "x=/no/such/file", "--no-socket", "--port", "0")
    assert code != 0 and "no/such/file" in text


def metrics():
    """Reading changes nothing, and what is not there has no series."""
    with Server(PROGRAM) as server:
        reader = http.client.HTTPConnection("127.0.0.1", server.port)

        def read():
            reader.request("GET", "/metrics")
            answer = reader.getresponse()
            assert answer.status == 200
            lines = answer.read().decode().splitlines()
            return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

        def settled(name, value):  # other connections have gone, and what was asked is over and counted
            def holds():
                now = read()
                return now["hearth_connections"] == "1" and now["hearth_requests_running"] == "0" and now.get(name) == value
            eventually(holds, 10)

        def same_twice():
            a, b = read(), read()
            moving = {"hearth_uptime_seconds", 'hearth_memory_bytes{kind="resident"}'}
            assert a.keys() == b.keys() and {k for k in a if a[k] != b[k]} <= moving, [(k, a[k], b[k]) for k in a if a[k] != b.get(k)]
            assert float(b["hearth_uptime_seconds"]) > float(a["hearth_uptime_seconds"])
            return b
        settled("hearth_models_loaded", "0")
        before = same_twice()
        assert before["hearth_models_loaded"] == "0" and before["hearth_steps_total"] == "0"
        assert not [k for k in before if k.startswith(("hearth_kv_pages", "hearth_batch", "hearth_experts"))], before
        assert server.post("/v1/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": "What is 12 plus 30?"}], "max_tokens": 5})[0] == 200
        settled('hearth_requests_total{api="openai",code="200"}', "1")
        after = same_twice()
        assert after["hearth_models_loaded"] == "1" and int(after["hearth_steps_total"]) >= 2 and int(after["hearth_spec_accepted_total"]) <= int(after["hearth_spec_drafted_total"])
        assert 0 < int(after["hearth_kv_pages_used"]) <= int(after["hearth_kv_pages_total"]) and float(after["hearth_batch_tokens"]) > 1
        # A read that is refused is a request like any other.
        assert before.get('hearth_requests_total{api="native",code="405"}') is None
        assert server.request("DELETE", "/metrics")[0] == 405
        eventually(lambda: read().get('hearth_requests_total{api="native",code="405"}') == "1", 10)
        reader.close()


def streamed_experts():
    """A mixture whose experts are read from disk by a sandboxed worker answers as the resident one; the budget chooses; refusals."""
    with tempfile.TemporaryDirectory() as directory:
        path, few = os.path.join(directory, "moe.gguf"), {"HEARTH_TOKEN_BUDGET": "64"}
        subprocess.run([PROGRAM, "debug", "random-model", "--arch", "qwen3moe", "--layers", "3", "--dim", "256", "--ff", "256", "--heads", "4",
                        "--vocab", "512", "--experts", "32", "--experts-used", "2", "--set", "expert_feed_forward_length=1024", path],
                       check=True, timeout=120)
        need = json.loads(subprocess.run([PROGRAM, "info", "--no-config", "--ctx", "256", "--json", "--experts", "resident", path],
                                         capture_output=True, check=True, timeout=60, env=dict(os.environ, **few)).stdout)
        assert need["experts"]["count"] == 96 and need["experts"]["memory"] == 0 < need["experts"]["least"], need["experts"]

        def answer(*options):
            with Server(PROGRAM, "--no-config", "--model", f"moe={path}", "--ctx", "256", *options,
                        env=few) as server:
                status, body = server.post("/v1/completions", {"model": "moe", "prompt": "hello there", "max_tokens": 12, "temperature": 0,
                                                               "ignore_eos": True})
                if status != 200:
                    return status, str(body), {}
                stats = server.get("/v1/stats")[1]
                lines = server.request("GET", "/metrics")[2].decode()
                assert ("hearth_expert_slots" in lines) == (stats["expert_slots"] > 0)
                return status, body["choices"][0]["text"], stats
        resident = answer("--experts", "resident")
        assert resident[0] == 200 and resident[2]["expert_slots"] == 0
        streamed = answer("--experts", "8MiB")
        assert streamed[:2] == resident[:2], (resident, streamed)
        stats = streamed[2]
        assert 0 < stats["expert_slots"] < 96 and stats["expert_misses"] > 0 and stats["expert_read_bytes"] > 0, stats
        chosen = answer("--mem-limit", str(need["memory"]["total"] - (4 << 20)))
        assert chosen[:2] == resident[:2] and 0 < chosen[2]["expert_slots"] < 96, chosen
        small = answer("--experts", "64KiB")
        assert small[0] >= 500 and "at least" in small[1], small
        code, text = run("--experts", "some", "--no-socket", "--no-config")
        assert code in (1, 2) and "neither auto nor resident nor a size" in text, (code, text)


def ports():
    with Server(PROGRAM) as server:
        code, text = run("--port", str(server.port), "--no-socket")
        assert code == 1 and "cannot listen" in text, text
    for options in (("--port", "70000"), ("--log-level", "loud"), ("--model", "nonsense"), ("--log-format", "xml")):
        code, text = run(*options, "--no-socket")
        assert code == 2 and "usage:" in text, (options, text)


def main():
    checks = Checks()
    for check in (unix_socket, tls, health, told_again_and_again, no_models, origins, logs, token, models_come_and_go, metrics, streamed_experts, ports):
        checks.run(check)
    checks.exit()


main()
