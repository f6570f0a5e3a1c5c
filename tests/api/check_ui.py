# SPDX-License-Identifier: Apache-2.0
"""The web UI's files and the endpoints that its pages ask: who gets a page, caching, the CSP, events, pulls, settings."""
import gzip
import http.server
import json
import os
import re
import socket
import sys
import tempfile
import threading
import time

from hearth_server import Checks, Connection, Server, eventually

PROGRAM = sys.argv[1]
DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/demo/demo.gguf")
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def page_of(server):
    """Browsers get a page, everybody else Ollama's sentence; caches are told of the difference."""
    for accept in (None, "*/*", "application/json"):
        status, headers, body = server.request("GET", "/", headers={"Accept": accept})
        assert (status, body) == (200, b"Ollama is running") and headers["vary"] == "Accept", (accept, body)
    status, headers, body = server.request("GET", "/", headers=HTML)
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8" and b"Hearth" in body
    policy = headers["content-security-policy"]
    for part in ("default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"):
        assert part in policy, policy
    assert "unsafe" not in policy and "http" not in policy, policy
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    assert b"<script>" not in body and b"onload=" not in body
    return body


def root(server):
    page_of(server)


def assets(server):
    """Names hold digests and are kept for ever; what a browser has is not sent again; compressed unless it cannot be."""
    page = page_of(server).decode()
    names = re.findall(r'(?:src|href)="assets/([^"]+)"', page)
    if not names:
        return "skipped: built without npm"
    kinds = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml", "webmanifest": "application/manifest+json"}
    for name in names:
        status, headers, body = server.request("GET", "/assets/" + name, headers={"Accept-Encoding": "gzip, br"})
        assert status == 200 and headers["content-type"] == kinds[name.split(".")[-1]], (name, headers)
        assert headers["cache-control"] == "public, max-age=31536000, immutable"
        if headers.get("content-encoding") == "gzip":
            assert len(gzip.decompress(body)) > len(body)
            assert server.request("GET", "/assets/" + name)[0] == 406
        again = server.request("GET", "/assets/" + name, headers={"Accept-Encoding": "gzip", "If-None-Match": headers["etag"]})
        assert again[0] == 304 and again[2] == b"" and "content-length" not in again[1], again
    assert server.request("GET", "/assets/nothing.js")[0] == 404
    assert server.request("GET", "/assets/../../etc/passwd")[0] in (400, 404)
    return f"{len(names)} files"


def read_events(connection, n):
    """The next n events of the stream as (name, value)."""
    found, text = [], b""
    for chunk in connection.chunks():
        text += chunk
        while b"\n\n" in text:
            block, text = text.split(b"\n\n", 1)
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if not line.startswith(":"))
            if "data" in fields:
                found.append((fields["event"], json.loads(fields["data"])))
            if len(found) == n:
                return found
    raise AssertionError("the stream ended")


def events(server):
    """The topics that were asked for, at once and then once a second; a log record comes exactly once."""
    with Connection(server) as c:
        c.send(b"GET /v1/events?topics=stats,requests,logs,pulls HTTP/1.1\r\nHost: localhost\r\n\r\n")
        status, headers = c.head()
        assert status == 200 and headers["content-type"] == "text/event-stream"
        begin = time.monotonic()
        first = read_events(c, 3)
        assert time.monotonic() - begin < 2, "the first figures take too long"
        assert {name for name, _ in first} >= {"stats", "requests", "pulls"}
        assert first[0][1]["models"][0]["name"] == "demo"
        server.request("GET", "/no/such/path")
        more = read_events(c, 8)
        records = [r for name, value in first + more if name == "logs" for r in value["data"]]
        numbers = [r["seq"] for r in records]
        assert numbers == sorted(set(numbers)), numbers
        assert any("404" in r["message"] for r in records), records
        listed = server.get("/v1/requests")[1]["data"]
        assert not any(r["path"] == "/v1/events" for r in listed), "a page that looks on is listed"
    status, answer = server.get("/v1/events?topics=stats,nonsense")
    assert status == 400 and answer["error"]["param"] == "topics" and "nonsense" in answer["error"]["message"]
    assert server.request("HEAD", "/v1/events")[0] == 200


def many_pages(server):
    """Sixty-four pages may look on, one more is told so; places come free again."""
    open_ones = []
    for _ in range(64):
        c = Connection(server)
        c.send(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert c.head()[0] == 200
        open_ones.append(c)
    assert server.get("/v1/events")[0] == 503
    for c in open_ones:
        c.sock.close()
    eventually(lambda: server.request("HEAD", "/v1/events")[0] == 200 and server.get("/v1/stats")[1]["connections"] < 8, 10)


def figures(server):
    """Buckets add up, codes are counted, the machine is told."""
    server.get("/v1/nothing")
    stats = server.get("/v1/stats")[1]
    buckets = stats["request_seconds"]["buckets"]
    assert sum(n for _, n in buckets) == stats["request_seconds"]["count"] > 0 and buckets[-1][0] is None
    assert [b for b, _ in buckets[:-1]] == sorted(b for b, _ in buckets[:-1])
    assert stats["responses"]["404"] >= 1 and sum(stats["responses"].values()) == stats["request_seconds"]["count"], stats["responses"]
    assert stats["machine"]["memory_bytes"] >= stats["machine"]["memory_available_bytes"] > 0


def settings(server):
    status, answer = server.get("/v1/config")
    by_key = {s["key"]: s for s in answer["data"]}
    assert status == 200 and by_key["transport.port"]["where"] == "--port" and by_key["transport.host"]["origin"] == "default"
    assert by_key["telemetry.log_level"]["needs_restart"] is False and by_key["transport.port"]["needs_restart"] is True
    status, answer = server.post("/v1/config/check", {"yaml": "transport:\n  prot: 80\nmodels: 3\n"})
    assert status == 200 and not answer["ok"] and answer["problems"] == 2, answer
    assert answer["data"][0]["line"] == 2 and "did you mean port" in answer["data"][0]["message"]
    assert server.post("/v1/config/check", {"yaml": "transport: {port: 80}"})[1] == {"ok": True, "problems": 0, "data": []}
    assert server.post("/v1/config/check", {"yaml": "a: [" * 1000})[0] == 200
    checks = server.get("/v1/doctor")[1]["checks"]
    assert {"cpu", "memory", "registry"} <= {c["check"] for c in checks}


def fit(server):
    """More context needs more; the same figures as for the default where it is named."""
    small, large = (server.get(f"/v1/fit?model=demo&ctx={n}")[1] for n in (256, 1024))
    assert small["context"] == 256 and large["context"] == 1024
    assert small["memory"]["cache"] < large["memory"]["cache"] and small["memory"]["weights"] == large["memory"]["weights"]
    assert large["memory"]["fits"] is True
    packed = server.get("/v1/fit?model=demo&ctx=1024&type=q8_0")[1]["memory"]
    assert 0.5 < packed["cache_per_1k"] / large["memory"]["cache_per_1k"] < 0.6, packed
    for query, param in (("?model=demo&type=q9", "type"), ("", "model"), ("?model=demo&ctx=-1", "ctx"), ("?model=demo&ctx=x", "ctx"), ("?model=%zz", "model")):
        status, answer = server.get("/v1/fit" + query)
        assert status == 400 and answer["error"]["param"] == param, (query, answer)
    assert server.get("/v1/fit?model=nothing")[0] == 404
    known = server.get("/v1/catalogue")[1]
    names = [m["name"] for m in known["data"]]
    assert known["disk_free"] > 0
    assert len(names) > 20 and len(names) == len(set(names))


def pulls(server):
    """A pull that fails is remembered with its reason until it is dismissed; foreign pages may not begin one."""
    status, answer = server.post("/v1/pulls", {"model": "heron:1b"}, headers={"Origin": "http://localhost:9999"})
    assert status == 403, answer
    assert server.post("/v1/pulls", {"model": "./file.gguf"})[0] == 400
    status, answer = server.post("/v1/pulls", {"model": "heron:1b"}, headers={"Origin": "http://localhost"})
    assert status == 202, answer
    eventually(lambda: [p["state"] for p in server.get("/v1/pulls")[1]["data"]] == ["failed"], 20)
    found = server.get("/v1/pulls")[1]["data"][0]
    assert found["error"] and "heron" in found["name"], found
    ended = server.request("DELETE", "/v1/pulls?name=" + found["name"].replace("/", "%2F"))
    assert ended[0] == 200, (found, ended)
    assert server.get("/v1/pulls")[1]["data"] == []
    assert server.request("DELETE", "/v1/pulls?name=heron")[0] == 404


def drain():
    """A page that looks on does not keep the server up."""
    server = Server(PROGRAM)
    c = Connection(server)
    c.send(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert c.head()[0] == 200
    read_events(c, 1)
    took = server.stop()
    assert took < 5, took
    server.dir.cleanup()


def switched_off():
    with Server(PROGRAM, "--no-ui") as server:
        assert server.request("GET", "/", headers=HTML)[2] == b"Ollama is running"
        assert server.request("GET", "/ui")[0] == 404 and server.request("GET", "/assets/x.js")[0] == 404


def hub_search():
    """GET /v1/hub passes words on and tells what came, or why nothing did."""
    seen = []

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            broken = "broken" in self.path
            body = b"no list" if broken else json.dumps([{"id": "a/b", "downloads": 7, "likes": 1, "tags": ["gguf"], "lastModified": "2026-01-31T10:00:00.000Z"}, {"id": "../x"}]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    hub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    with Server(PROGRAM, env={"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}"}) as server:
        status, got = server.get("/v1/hub?q=tiny%20b%2Fc%26&limit=5")
        assert status == 200 and got["data"] == [{"repository": "a/b", "downloads": 7, "likes": 1, "gguf": True, "mlx": False, "safetensors": False, "modified": "2026-01-31"}], got
        assert seen == ["/api/models?search=tiny%20b%2Fc%26&sort=downloads&direction=-1&limit=5"], seen
        for path, param in (("/v1/hub", "q"), ("/v1/hub?q=", "q"), ("/v1/hub?q=x&limit=0", "limit"), ("/v1/hub?q=x&limit=y", "limit")):
            status, got = server.get(path)
            assert status == 400 and got["error"]["param"] == param, (path, got)
        assert server.get("/v1/hub?q=broken")[0] == 502 and len(seen) == 2, seen
    hub.shutdown()
    with Server(PROGRAM, env={"HF_ENDPOINT": "http://127.0.0.1:9"}) as server:
        assert server.get("/v1/hub?q=x")[0] == 502
    with Server(PROGRAM, "--model", f"demo={DEMO}") as server:
        assert server.get("/v1/hub?q=x")[0] == 501


def kept_chats():
    """/v1/chats: per key, by versions, within a limit, over a restart, in a file of the owner's; off unless it is asked for."""
    with Server(PROGRAM) as server:
        status, got = server.get("/v1/chats")
        assert status == 501 and "chats.bytes" in got["error"]["message"], got
    anna, ben = {"Authorization": "Bearer anna-anna-anna"}, {"Authorization": "Bearer ben-ben-ben-ben"}
    with tempfile.TemporaryDirectory() as data:
        env = {"HEARTH_CHATS_BYTES": "64KiB", "HEARTH_API_KEYS": "anna:anna-anna-anna,ben:ben-ben-ben-ben", "XDG_DATA_HOME": data}
        chat = {"title": "H\u00e9ron" + "x" * 400, "updated": 1234567890123, "messages": [{"id": "m1", "content": "a\u0000b"}], "own": [1.5, None]}

        def ask(server, method, path, body=None, **headers):
            status, got, answer = server.request(method, path, None if body is None else json.dumps(body).encode(), headers=headers)
            return status, got.get("etag"), json.loads(answer)

        with Server(PROGRAM, env=env) as server:
            assert ask(server, "GET", "/v1/chats")[0] == 401
            status, first, got = ask(server, "PUT", "/v1/chats/c-1", chat, **anna, **{"If-None-Match": "*"})
            assert status == 200 and got == {"id": "c-1", "etag": first}, got
            assert ask(server, "PUT", "/v1/chats/c-1", chat, **anna, **{"If-None-Match": "*"})[0] == 412
            status, second, _ = ask(server, "PUT", "/v1/chats/c-1", chat, **anna, **{"If-Match": first})
            assert status == 200 and second != first
            for wrong in (first, '"0"', "7", '"x"', "*"):
                assert ask(server, "PUT", "/v1/chats/c-1", {}, **anna, **{"If-Match": wrong})[0] == 412, wrong
            status, tag, got = ask(server, "GET", "/v1/chats/c-1", **anna)
            assert (status, tag, got) == (200, second, chat), got
            assert ask(server, "GET", "/v1/chats/c-1", **ben)[0] == 404 and ask(server, "GET", "/v1/chats", **ben)[2]["data"] == []
            assert ask(server, "PUT", "/v1/chats/c-1", {"title": "mine"}, **ben)[0] == 200
            for path, body in (("/v1/chats/a%2Fb", {}), ("/v1/chats/" + "a" * 65, {}), ("/v1/chats/x", [1]), ("/v1/chats/x", "text")):
                assert ask(server, "PUT", path, body, **anna)[0] == 400, path
            assert ask(server, "PUT", "/v1/chats/x", {}, **anna, Origin="http://localhost:9")[0] == 403
            status, _, got = ask(server, "PUT", "/v1/chats/big", {"text": "x" * 65536}, **anna)
            assert status == 507 and "chats.bytes" in got["error"]["message"], got
        with Server(PROGRAM, env=env) as server:
            data_of = ask(server, "GET", "/v1/chats", **anna)[2]["data"]
            assert [(c["id"], c["updated"], c["etag"]) for c in data_of] == [("c-1", 1234567890123, second)] and data_of[0]["title"].startswith("H\u00e9ronx"), data_of
            assert ask(server, "DELETE", "/v1/chats/c-1", **anna)[2] == {"id": "c-1", "deleted": True}
            assert ask(server, "DELETE", "/v1/chats/c-1", **anna)[0] == 404
            assert ask(server, "PUT", "/v1/chats/c-1", chat, **anna, **{"If-Match": second})[0] == 412
            assert ask(server, "PUT", "/v1/chats/c-1", chat, **anna)[1] != second
            assert ask(server, "GET", "/v1/chats/c-1", **ben)[2] == {"title": "mine"}
        assert os.stat(os.path.join(data, "hearth/chats.db")).st_mode & 0o777 == 0o600


def changed_settings():
    """PUT /v1/config: the file keeps its comments, what can hold holds at once, all or nothing, and who may not ask is told so."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "server.yaml")
        before = "# mine\ntransport:\n  port: 1 # low\n\ntelemetry:\n  log_format: text   # for people\n"
        with open(path, "w") as f:
            f.write(before)
        os.chmod(path, 0o640)
        with Server(PROGRAM, "--config", path, env={"HEARTH_API_KEYS": "pages:heron-heron-heron"}, log_level="info") as server:
            with open(os.path.join(server.dir.name, "hearth/token"), encoding="ascii") as f:
                key = {"Authorization": "Bearer " + f.read().strip()}

            def put(body, **headers):
                status, _, answer = server.request("PUT", "/v1/config", json.dumps(body).encode(), headers={"Content-Type": "application/json", **headers})
                return status, json.loads(answer)

            def setting(name):
                return {s["key"]: s for s in json.loads(server.request("GET", "/v1/config", headers=key)[2])["data"]}[name]

            for other in ({}, {"Authorization": "Bearer heron-heron-heron"}):
                status, answer = put({"settings": {"telemetry.log_format": "json"}}, **other)
                assert status == 401 and ("token" in answer["error"]["message"]) == bool(other), answer
            status, answer = put({"settings": {"telemetry.log_format": "json"}}, Origin="http://localhost:9", **key)
            assert status == 403, answer
            for wrong, words in (({"transport.prot": 1}, "no such setting"), ({"security.sandbox": False}, "changed in server.yaml itself"),
                                 ({"transport.tls_key": "/etc/x"}, "names a file"), ({"transport.port": "many"}, "integer"), ({"transport.port": {}}, "value"),
                                 ({"models.keep_alive": "1h", "transport.port": 99999999}, "65535")):
                status, answer = put({"settings": wrong}, **key)
                assert status == 400 and words in answer["error"]["message"], (wrong, answer)
            assert put({}, **key)[0] == 400 and put({"settings": {}}, **key)[0] == 200
            with open(path) as f:
                assert f.read() == before
            status, answer = put({"settings": {"telemetry.log_format": "json", "transport.port": 80, "models.keep_alive": "1h"}}, **key)
            assert status == 200 and answer["path"] == path, answer
            assert answer["data"] == [{"key": "telemetry.log_format", "needs_restart": False, "overridden_by": None},
                                      {"key": "transport.port", "needs_restart": True, "overridden_by": "--port"},
                                      {"key": "models.keep_alive", "needs_restart": True, "overridden_by": None}], answer
            with open(path) as f:
                assert f.read() == before.replace("port: 1", "port: 80").replace("text", "json") + "models:\n  keep_alive: 1h\n"
            assert os.stat(path).st_mode & 0o777 == 0o640 and os.listdir(folder) == ["server.yaml"]
            eventually(lambda: setting("telemetry.log_format")["value"] == "json", 10)
            assert '{"' in server.log_text().splitlines()[-1], server.log_text()[-300:]
            held = setting("models.keep_alive")
            assert held["value"] != held["after_restart"] and held["can_change"] and not setting("security.sandbox")["can_change"], held
            assert "after_restart" not in setting("transport.port")
            assert put({"settings": {"models.keep_alive": None}}, **key)[0] == 200
            eventually(lambda: "after_restart" not in setting("models.keep_alive"), 10)
    with tempfile.TemporaryDirectory() as folder:  # where nobody needs a key
        path = os.path.join(folder, "hearth/server.yaml")
        with Server(PROGRAM, env={"XDG_CONFIG_HOME": folder}) as server:
            body = b'{"settings": {"models.keep_alive": "1h"}}'
            status, _, answer = server.request("PUT", "/v1/config", body, headers={"Content-Type": "application/json"})
            assert status == 401 and json.loads(answer)["error"]["code"] == "token_needed" and not os.path.exists(path), answer
            own = socket.socket(socket.AF_UNIX)
            own.connect(server.socket_path)
            own.sendall(b"PUT /v1/config HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            assert own.recv(4096).startswith(b"HTTP/1.1 200"), "the owner's socket"
            own.close()
    with Server(PROGRAM, "--no-config") as server:
        assert server.request("PUT", "/v1/config", b'{"settings": {"transport.port": 80}}', headers={"Content-Type": "application/json"})[0] == 501


checks = Checks()
# Nothing answers there: a pull fails at once, and nothing leaves this machine.
with Server(PROGRAM, env={"HEARTH_OLLAMA_REGISTRY": "http://127.0.0.1:9"}, log_level="info") as one:
    for check in (root, assets, events, many_pages, figures, settings, fit, pulls):
        checks.run(check, one)
checks.run(drain)
checks.run(changed_settings)
checks.run(hub_search)
checks.run(kept_chats)
checks.run(switched_off)
checks.exit()
