# SPDX-License-Identifier: Apache-2.0
"""usage: check_models.py HEARTH

Models that come and go while the server runs: /api/pull, create, copy, delete, blobs and push; other processes that work
on the same registry; against a hub on loopback (tests/registry/server.py)."""
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from hearth_server import Server

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "../../models/demo/demo.gguf")
SUM = [{"role": "user", "content": "What is 12 plus 30?"}]


class Hub:
    """The misbehaving server with one repository and one registry model."""

    def __init__(self):
        self.dir = tempfile.TemporaryDirectory()
        for folder in ("hf/org/tiny", "ollama/library/tiny"):
            os.makedirs(os.path.join(self.dir.name, folder))
        shutil.copy(DEMO, os.path.join(self.dir.name, "hf/org/tiny/tiny-Q8_0.gguf"))
        with open(os.path.join(self.dir.name, "ollama/library/tiny/latest.json"), "w") as f:
            json.dump({"layers": [["model", "hf/org/tiny/tiny-Q8_0.gguf"], ["params", {"temperature": 0}], ["system", "Be brief."]]}, f)
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "../registry/server.py"), self.dir.name],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def control(self, fault=None):
        data = None if fault is None else json.dumps(fault).encode()
        with urllib.request.urlopen(self.url + "/_control", data) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.dir.cleanup()


def names(server):
    """Without the demo that sees, which is there wherever the other one is."""
    return sorted(m["name"] for m in server.get("/api/tags")[1]["models"] if m["name"] != "vision-demo:latest")


def lines(answer):
    return [json.loads(line) for line in answer.decode().splitlines()]


def call(server, method, path, value):
    status, _, answer = server.request(method, path, json.dumps(value).encode())
    return status, lines(answer)


QUICK = bool(os.environ.get("HEARTH_QUICK"))  # under a sanitizer every token counts
TOKENS = 2 if QUICK else 30


def is_42(text):
    return "12 plus 30 is 42.".startswith(text.strip()) and text.strip() if QUICK else text.strip() == "12 plus 30 is 42."


def says_42(server, model):
    options = {"temperature": 0, "num_predict": TOKENS}
    status, got = server.post("/api/chat", {"model": model, "messages": SUM, "stream": False, "options": options})
    assert status == 200 and is_42(got["message"]["content"]), got


def hearth(program, server, *arguments):
    return subprocess.run([program, *arguments], env=dict(os.environ, XDG_DATA_HOME=server.dir.name), check=True,
                          capture_output=True, text=True).stdout


def quantize(server):
    """The first thing that happens in an empty registry."""
    assert call(server, "POST", "/api/create", {"model": "whole", "from": "demo", "parameters": {"num_ctx": 512}})[0] == 200
    status, got = call(server, "POST", "/api/create", {"model": "half", "from": "whole", "quantize": "q4_0", "system": "Short."})
    assert status == 200 and got[0] == {"status": "quantizing to Q4_0"} and got[-1] == {"status": "success"}, got
    shown = server.post("/api/show", {"model": "half"})[1]
    assert shown["details"]["quantization_level"] == "Q4_0" and shown["system"] == "Short." and "num_ctx" in shown["parameters"], shown
    says_42(server, "half")
    # a mix is the file that hearth quantize makes of the same one; one that needs an importance matrix says so
    status, got = call(server, "POST", "/api/create", {"model": "mixed", "from": "whole", "quantize": "q4_K_M"})
    assert status == 200 and got[0] == {"status": "quantizing to Q4_K_M"} and got[-1] == {"status": "success"}, got
    out = os.path.join(server.dir.name, "mixed.gguf")
    want = json.loads(hearth(sys.argv[1], server, "quantize", DEMO, out, "Q4_K_M", "--json"))["sha256"]
    os.unlink(out)
    assert os.path.exists(os.path.join(server.dir.name, "hearth/blobs/sha256-" + want)), want
    shown = server.post("/api/show", {"model": "mixed"})[1]
    assert shown["details"]["quantization_level"] == "Q4_K_M", shown["details"]
    tagged = [m["details"]["quantization_level"] for m in server.get("/api/tags")[1]["models"] if m["name"] == "mixed:latest"]
    assert tagged == ["Q4_K_M"], tagged
    says_42(server, "mixed")
    got = call(server, "POST", "/api/create", {"model": "least", "from": "whole", "quantize": "iq2_xs"})[1]
    assert "importance" in json.dumps(got), got
    assert [n for n in os.listdir(os.path.join(server.dir.name, "hearth/blobs")) if not n.startswith("sha256-")] == []
    for name in ("whole", "half", "mixed"):
        assert call(server, "DELETE", "/api/delete", {"model": name})[0] == 200


def blobs_and_create(server):
    with open(DEMO, "rb") as f:
        demo = f.read()
    digest = "sha256:" + hashlib.sha256(demo).hexdigest()
    wrong = "sha256:" + "0" * 64
    assert server.request("HEAD", "/api/blobs/" + digest)[0] == 404
    status, _, answer = server.request("POST", "/api/blobs/" + wrong, demo[:100000])
    assert status == 400 and "digest" in json.loads(answer)["error"], answer
    assert server.request("HEAD", "/api/blobs/" + wrong)[0] == 404
    assert server.request("POST", "/api/blobs/nonsense", b"x")[0] == 400
    assert server.request("POST", "/api/blobs/" + digest, demo)[0] == 201
    assert server.request("POST", "/api/blobs/" + digest, demo)[0] == 201  # there already
    assert server.request("HEAD", "/api/blobs/" + digest)[0] == 200
    # an upload may be larger than a body; the server here takes bodies of 1 MB (--max-body-mb 1)
    assert len(demo) > 2 << 20
    assert server.request("POST", "/api/copy", b" " * (2 << 20))[0] == 413
    status, got = call(server, "POST", "/api/create", {
        "model": "mine", "files": {"demo.gguf": digest}, "system": "Be brief.", "license": ["one", "two"],
        "parameters": {"temperature": 0, "stop": ["never", "ever"], "num_ctx": 512}})
    assert status == 200 and [g["status"] for g in got] == ["reading model metadata", "writing manifest", "success"], got
    says_42(server, "mine")
    status, got = call(server, "POST", "/api/create", {"model": "other:small", "from": "mine", "stream": False, "parameters": {"top_k": 3}})
    assert (status, got) == (200, [{"status": "success"}]), got
    shown = server.post("/api/show", {"model": "other:small"})[1]
    assert "top_k" in shown["parameters"] and "temperature" in shown["parameters"], shown["parameters"]
    assert shown["system"] == "Be brief." and shown["license"] == "one\ntwo", shown
    assert 'PARAMETER stop never\n' in shown["modelfile"] and shown["modelfile"].startswith("FROM "), shown["modelfile"]
    assert names(server) == ["demo:latest", "mine:latest", "other:small"]
    assert call(server, "DELETE", "/api/delete", {"model": "mine"})[0] == 200
    assert server.request("HEAD", "/api/blobs/" + digest)[0] == 200  # other:small uses it
    says_42(server, "other:small")
    assert call(server, "DELETE", "/api/delete", {"name": "other:small"})[0] == 200
    assert server.request("HEAD", "/api/blobs/" + digest)[0] == 404
    assert names(server) == ["demo:latest"]


def broken_uploads(server):
    """A client that leaves in the middle leaves nothing behind; one that sends in chunks and slowly is served."""
    data = bytes(range(256)) * 8192
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    folder = os.path.join(server.dir.name, "hearth/blobs")
    for part in (0, 1, len(data) // 2, len(data) - 1):
        with server.connect() as s:
            s.sendall(f"POST /api/blobs/{digest} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data[:part])
    for _ in range(100):
        left = [n for n in os.listdir(folder) if n.startswith("put-")]
        if not left:
            break
        time.sleep(0.05)
    assert not left, left
    assert server.request("HEAD", "/api/blobs/" + digest)[0] == 404
    with server.connect() as s:
        s.sendall(f"POST /api/blobs/{digest} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for at in range(0, len(data), 500000):
            piece = data[at:at + 500000]
            s.sendall(b"%x\r\n" % len(piece) + piece + b"\r\n")
        s.sendall(b"0\r\n\r\n")
        assert s.recv(4096).startswith(b"HTTP/1.1 201 "), "no blob"
    assert server.request("HEAD", "/api/blobs/" + digest)[0] == 200
    huge = f"POST /api/blobs/{digest} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {1 << 49}\r\n\r\n".encode()
    with server.connect() as s:
        s.sendall(huge)
        assert s.recv(4096).startswith(b"HTTP/1.1 507 "), "the disk is not that large"


def another_process(server, program):
    hearth(program, server, "create", "beside", DEMO)
    assert names(server) == ["beside:latest", "demo:latest"]
    details = [m["details"] for m in server.get("/api/tags")[1]["models"] if m["name"] == "beside:latest"][0]
    assert details["family"] == "llama" and details["parameter_size"] == "19.8M" and details["quantization_level"] == "Q8_0", details
    says_42(server, "beside")
    deadline = time.monotonic() + 10  # the registry learns of the use a moment after the answer
    while not any(m["name"] == "beside" and m["last_used"] for m in json.loads(hearth(program, server, "list", "--json"))):
        assert time.monotonic() < deadline, "a request did not count as use"
        time.sleep(0.02)
    hearth(program, server, "cp", "beside", "twice")
    assert [m["id"] for m in server.get("/v1/models")[1]["data"]] == ["demo", "vision-demo", "beside", "twice"]
    hearth(program, server, "rm", "beside")
    status, got = server.post("/api/chat", {"model": "beside", "messages": SUM})
    assert status == 404, got
    says_42(server, "twice")
    assert call(server, "POST", "/api/copy", {"source": "twice", "destination": "thrice"})[0] == 200
    assert call(server, "POST", "/api/copy", {"source": "demo", "destination": "thrice"})[0] == 200  # takes the name
    assert hearth(program, server, "list").count("\n") == 3
    hearth(program, server, "rm", "twice", "thrice")
    assert names(server) == ["demo:latest"]


MISTAKES = [
    ("POST", "/api/create", {}, 400, "name"), ("POST", "/api/create", {"model": "x"}, 400, "from"),
    ("POST", "/api/create", {"model": "x", "from": "nobody"}, 404, "nobody"), ("POST", "/api/create", {"model": "a b", "from": "demo"}, 400, "a b"),
    ("POST", "/api/create", {"model": "x", "from": "demo", "parameters": {"temprature": 1}}, 400, "temperature"),
    ("POST", "/api/create", {"model": "x", "from": "demo", "parameters": {"top_k": "many"}}, 400, "parameters.top_k"),
    ("POST", "/api/create", {"model": "x", "from": "demo", "template": "{{ template \"x\" . }}"}, 400, "template"),
    ("POST", "/api/create", {"model": "x", "from": "demo", "messages": [{"role": "king", "content": "x"}]}, 400, "messages[0]"),
    ("POST", "/api/create", {"model": "x", "from": "demo", "quantize": "q4_K_XL"}, 400, "quantize"),
    ("POST", "/api/create", {"model": "x", "files": {"../x": "sha256:" + "0" * 64}}, 400, "files"),
    ("POST", "/api/create", {"model": "x", "files": {"x.gguf": "sha256:1"}}, 400, "files.x.gguf"),
    ("POST", "/api/create", {"model": "x", "files": {"x.gguf": "sha256:" + "0" * 64}, "stream": False}, 400, "no blob"),
    ("POST", "/api/copy", {"source": "demo"}, 400, "destination"), ("POST", "/api/copy", {"source": "nobody", "destination": "x"}, 404, "nobody"),
    ("DELETE", "/api/delete", {"model": "nobody"}, 404, "nobody"), ("DELETE", "/api/delete", {"model": "demo"}, 400, "started with"),
    ("DELETE", "/api/delete", {}, 400, "name"), ("POST", "/api/push", {"model": "demo"}, 501, "push"),
    ("POST", "/api/pull", {"model": "a b"}, 400, "a b"), ("POST", "/api/pull", {"model": "./x.gguf"}, 400, "pulled"),
    ("POST", "/api/pull", {"model": "x", "insecure": True}, 400, "insecure"), ("POST", "/api/pull", {"model": "nobody", "stream": False}, 404, "nobody"),
]


def mistakes(server):
    for method, path, value, want, text in MISTAKES:
        status, _, answer = server.request(method, path, json.dumps(value).encode())
        got = json.loads(answer)
        assert status == want and set(got) == {"error"} and text in got["error"], (path, value, status, got)
    assert names(server) == ["demo:latest"]


def pulls(server, hub):
    status, got = call(server, "POST", "/api/pull", {"model": "tiny"})
    assert status == 200 and got[0] == {"status": "pulling manifest"} and got[-1] == {"status": "success"}, got
    layers = [g for g in got if "digest" in g]
    size = os.path.getsize(DEMO)
    assert any(g["total"] == g.get("completed") == size for g in layers), got
    assert all(g["status"].startswith("pulling ") and g.get("completed", 0) <= g["total"] for g in layers), got
    says_42(server, "tiny")
    status, got = call(server, "POST", "/api/pull", {"model": "org/tiny:Q8_0", "stream": False})
    assert (status, got) == (200, [{"status": "success"}]), got
    found = [n for n in names(server) if n.startswith("org/")]
    assert len(found) == 1, found
    says_42(server, found[0])
    for name in ("hf.co/org/tiny:Q8_0", "hf://Org/Tiny", "org/tiny/tiny-Q8_0.gguf"):  # by where it came from
        says_42(server, name)
        assert server.post("/v1/chat/completions", {"model": name, "messages": SUM, "max_tokens": 1})[0] == 200
    status, got = call(server, "POST", "/api/pull", {"model": "nobody"})
    assert status == 200 and set(got[-1]) == {"error"} and "nobody" in got[-1]["error"], got
    for name in ("tiny", found[0]):
        assert call(server, "DELETE", "/api/delete", {"model": name})[0] == 200


def shared_pull(server, hub):
    """Two clients, one download; the one that leaves does not end the other's, the last one that leaves ends it."""
    size = os.path.getsize(DEMO)
    hub.control({"delay": 0.002})
    begun = threading.Event()
    results = {}

    def client(key, leave):
        with server.connect() as s:
            body = b'{"model":"tiny"}'
            s.sendall(b"POST /api/pull HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            text = b""
            while b"success" not in text and (piece := s.recv(65536)):
                text += piece
                if b'"completed"' in text:
                    begun.set()
                    if leave:
                        break
            results[key] = text

    threads = [threading.Thread(target=client, args=(key, key == "leaves")) for key in ("one", "leaves", "two")]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert b"success" in results["one"] and b"success" in results["two"], results["two"][-500:]
    sent = sum(hub.control()["bytes"].values())
    assert sent < 1.5 * size, (sent, size)
    assert call(server, "DELETE", "/api/delete", {"model": "tiny"})[0] == 200
    hub.control({"delay": 0.02})
    begun.clear()
    t = threading.Thread(target=client, args=("gone", True))
    t.start()
    t.join()
    before, now = -1, 0
    for _ in range(40):  # the hub notices a closed connection at its next blocks
        before, now = now, sum(hub.control()["bytes"].values())
        if before == now:
            break
        time.sleep(0.5)
    assert before == now < size, (before, now, size)
    assert "tiny:latest" not in names(server)
    hub.control({})
    assert call(server, "POST", "/api/pull", {"model": "tiny", "stream": False}) == (200, [{"status": "success"}])
    says_42(server, "tiny")


def commands(program, hub):
    """What the command line does with models that are not here yet."""
    with tempfile.TemporaryDirectory() as home:
        env = dict(os.environ, XDG_DATA_HOME=home, HF_ENDPOINT=hub.url, HEARTH_OLLAMA_REGISTRY=hub.url, HF_TOKEN="")

        def run(*arguments, stdin=""):
            done = subprocess.run([program, *arguments], env=env, input=stdin, capture_output=True, text=True)
            return done.returncode, done.stdout, done.stderr

        ask = ("What is 12 plus 30?", "--temp", "0", "-n", str(TOKENS))
        code, _, said = run("run", "org/tiny", *ask, "--no-pull")
        assert code == 1 and "there is no model 'org/tiny'" in said, said
        code, out, said = run("run", "org/tiny", *ask)
        assert code == 0 and is_42(out), (code, out, said)
        code, out, said = run("run", "hf.co/Org/Tiny:q8_0", *ask, "--no-pull")  # here by now, however it is written
        assert code == 0 and is_42(out), (code, out, said)
        code, out, _ = run("show", "org/tiny/tiny-Q8_0.gguf", "--json")
        assert code == 0 and json.loads(out)["registered"]["source"].startswith("hf://org/tiny"), out
        shutil.copy(DEMO, os.path.join(hub.dir.name, "hf/org/tiny/tiny-Q4_K_M.gguf"))
        with open(os.path.join(hub.dir.name, "hf/org/tiny/tiny-Q4_K_M.gguf"), "ab") as f:
            f.write(bytes(32))  # another file
        code, out, said = run("create", "of-another", "--gguf-file", "tiny-Q4_K_M.gguf", "-f", "-")
        assert code == 1 and "FROM" in said, said
        code, out, said = run("create", "calm", "-f", "-", stdin="FROM org/tiny/tiny-Q8_0.gguf\nSYSTEM Be calm.\n")
        assert code == 0 and out.startswith("calm now names /"), (code, out, said)
        code, out, _ = run("show", "calm", "--modelfile")
        assert code == 0 and "SYSTEM Be calm.\n" in out, out
        code, out, said = run("pull", "org/tiny:Q4_K_M", "--json")
        assert code == 0, said
        code, _, said = run("show", "hf://org/tiny")
        assert code == 1 and "MB)" in said and "say which" in said, said
        code, out, _ = run("show", "hf://org/tiny", "--gguf-file", "tiny-Q8_0.gguf", "--modelfile")
        assert code == 0 and out.startswith("FROM /"), out
        code, out, _ = run("rm", "org/tiny:Q4_K_M")
        assert code == 0 and "freed 21.3 MB" in out, out
        os.remove(os.path.join(hub.dir.name, "hf/org/tiny/tiny-Q4_K_M.gguf"))
        code, out, said = run("run", "tiny", *ask)  # of the Ollama registry, with its settings
        assert code == 0 and is_42(out), (code, out, said)
        code, out, _ = run("show", "tiny", "--modelfile")
        assert code == 0 and "SYSTEM Be brief.\n" in out and "PARAMETER temperature 0\n" in out, out


class SearchHandler(http.server.BaseHTTPRequestHandler):
    asked = []

    def do_GET(self):
        self.asked.append(self.path)
        body = json.dumps([
            {"id": "org/tiny-GGUF", "downloads": 12, "likes": 3, "tags": ["gguf", "x"], "lastModified": "2026-01-31T00:00:00.000Z"},
            {"id": "../evil", "downloads": 1}, {"id": "org/tiny", "tags": ["safetensors"]}]).encode()
        self.send_response(500 if "broken" in self.path else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def search(program):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), SearchHandler) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        env = dict(os.environ, HF_ENDPOINT=f"http://127.0.0.1:{hub.server_port}")
        done = subprocess.run([program, "search", "--hub", "tiny", "a&b", "--json"], env=env, capture_output=True, text=True)
        got = json.loads(done.stdout)
        assert [g["repository"] for g in got] == ["org/tiny-GGUF", "org/tiny"] and got[0]["gguf"] and got[0]["downloads"] == 12, got
        assert SearchHandler.asked[0].startswith("/api/models?search=tiny%20a%26b&"), SearchHandler.asked
        done = subprocess.run([program, "search", "--hub", "tiny"], env=env, capture_output=True, text=True)
        assert "org/tiny-GGUF" in done.stdout and "2026-01-31" in done.stdout, done.stdout
        hub.shutdown()


def drains_while_pulling(program, env, hub):
    hub.control({"stall": 1000000})
    with Server(program, "--drain-seconds", "0.3", env=env) as server:
        with server.connect() as s:
            body = b'{"model":"org/tiny"}'
            s.sendall(b"POST /api/pull HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            text = b""
            while b"digest" not in text:
                text += s.recv(65536)
            took = server.stop()
            assert took < 10, took
    hub.control({})


def fixed_models(program):
    """A server that was told what to offer leaves the registry alone."""
    with Server(program, "--model", "only=" + DEMO) as server:
        for method, path in (("POST", "/api/pull"), ("POST", "/api/create"), ("POST", "/api/copy"), ("DELETE", "/api/delete"),
                             ("POST", "/api/push"), ("POST", "/api/blobs/sha256:" + "0" * 64)):
            status, _, answer = server.request(method, path, b'{"model":"x","source":"x","destination":"y"}')
            assert status == 501 and set(json.loads(answer)) == {"error"}, (path, status, answer)
        assert names(server) == ["only:latest"]
        assert not os.path.exists(os.path.join(server.dir.name, "hearth/registry.db"))


def page_types(program):
    """Page types of one model: in its Modelfile, in its own YAML file, in an entry of server.yaml."""
    with tempfile.TemporaryDirectory() as home:
        def write(name, text):
            path = os.path.join(home, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text)
            return path

        env = {"XDG_DATA_HOME": home, "XDG_CONFIG_HOME": os.path.join(home, "config")}
        own = write("Modelfile", f"FROM {DEMO}\nPARAMETER cache_type tq3\nPARAMETER precise_layers 0\n")
        for name, arguments in (("plain", [DEMO]), ("small", ["-f", own]), ("yaml", [DEMO])):
            subprocess.run([program, "create", name, *arguments], check=True, env=dict(os.environ, **env), capture_output=True)
        write("config/hearth/models/yaml.yaml", "kv_cache: {type: q8_0}\n")
        info = {name: json.loads(subprocess.run([program, "info", name, "--json"], check=True, env=dict(os.environ, **env),
                                                capture_output=True).stdout) for name in ("plain", "small", "yaml")}
        server_yaml = write("server.yaml", "kv_cache: {type_k: f16}\nmodels:\n  list:\n"
                            f"  - {{name: plain, path: {DEMO}}}\n  - {{name: small, path: {DEMO}, kv_cache: {{type: tq3, precise_layers: 0}}}}\n")
        sizes = {}
        for arguments in ([], ["--config", server_yaml]):
            with Server(program, *arguments, env=env) as server:
                for name in ("plain", "small"):
                    says_42(server, name)
                sizes = {m["name"].removesuffix(":latest"): m["memory_bytes"] for m in server.get("/v1/stats")[1]["models"]
                         if m["state"] == "loaded"}
            assert sizes["small"] < sizes["plain"] - 10 * 2**20, sizes
        assert [info[name]["cache_type"] for name in ("plain", "small", "yaml")] == ["f16", "tq3", "q8_0"], info


def timed(check, *arguments):
    begin = time.monotonic()
    check(*arguments)
    print(f"{check.__name__}: {time.monotonic() - begin:.1f} s")


def main():
    program = sys.argv[1]
    hub = Hub()
    try:
        env = {"HEARTH_OLLAMA_REGISTRY": hub.url, "HF_ENDPOINT": hub.url}
        with Server(program, "--max-body-mb", "1", env=env) as server:
            assert names(server) == ["demo:latest"]
            if not QUICK:  # the quantizer is slow under a sanitizer, and has tests of its own
                timed(quantize, server)
            timed(blobs_and_create, server)
            timed(broken_uploads, server)
            timed(another_process, server, program)
            timed(mistakes, server)
            timed(pulls, server, hub)
            timed(shared_pull, server, hub)
        timed(drains_while_pulling, program, env, hub)
        timed(commands, program, hub)
        timed(search, program)
        timed(fixed_models, program)
        timed(page_types, program)
    finally:
        hub.close()
    print("models come and go")


main()
