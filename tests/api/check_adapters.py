# SPDX-License-Identifier: Apache-2.0
"""usage: check_adapters.py HEARTH

Adapters of a served model: added, listed, replaced and removed while the server runs; chosen by base+name, by lora and by
a created name. What comes out is what `hearth logits --lora` continues greedily with the same files."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "golden")
sys.path.insert(0, GOLDEN)

import to_gguf
from hearth_server import Server

PROMPT = list(range(40, 64))
N = 10


def adapter(name):
    return os.path.join(GOLDEN, "adapters", name)


def with_merges(g, path, vocab, tokenizer=None):
    """The reference models' tokens stand for nothing; a tokenizer that opens needs a merge."""
    keys = [("general.name", 8, "tiny"), ("tokenizer.ggml.model", 8, "gpt2"), ("tokenizer.ggml.pre", 8, "default"),
            ("tokenizer.ggml.tokens", (9, 8), [f"t{i}" for i in range(vocab)]),
            ("tokenizer.ggml.token_type", (9, 5), [1] * vocab), ("tokenizer.ggml.merges", (9, 8), ["t 1"]),
            ("tokenizer.ggml.bos_token_id", 4, 1), ("tokenizer.ggml.eos_token_id", 4, 2)]
    write(g, path, vocab, keys)


write, to_gguf.Gguf.write = to_gguf.Gguf.write, with_merges


class World:
    def __init__(self, program):
        self.program = program
        self.dir = tempfile.TemporaryDirectory()
        self.model = os.path.join(self.dir.name, "tiny.gguf")
        to_gguf.convert(os.path.join(GOLDEN, "models", "llama"), self.model)
        self.env = dict(os.environ, XDG_DATA_HOME=self.dir.name, HOME=self.dir.name)
        self.run("create", "tiny", self.model)

    def run(self, *args, code=0):
        p = subprocess.run([self.program, *args], capture_output=True, text=True, env=self.env, timeout=120)
        assert p.returncode == code, (args, p.returncode, p.stdout, p.stderr)
        return p.stdout if code == 0 else p.stderr

    def expected(self, *lora):
        """The text that the same files give without a server."""
        options = [x for l in lora for x in ("--lora", l)]
        out = self.run("logits", self.model, "--ids", ",".join(map(str, PROMPT)), "--kv", "f16", "--greedy", str(N), *options)
        return "".join(f"t{i}" for i in json.loads(out))

    def serve(self, *options):
        self.server = Server(self.program, "--no-config", *options, env={"XDG_DATA_HOME": self.dir.name, "HOME": self.dir.name})

    def ask(self, path, body=None, code=200):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.server.port}{path}", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        assert status == code, (path, body, status, text[:400])
        return json.loads(text)

    def memory(self):
        """Bytes that each loaded model counts with."""
        models = self.ask("/v1/stats")["models"]
        return {m["name"].removesuffix(":latest"): m["memory_bytes"] for m in models if m["state"] == "loaded"}

    def text(self, model, code=200, **more):
        body = {"model": model, "prompt": PROMPT, "n_predict": N, "temperature": 0, "ignore_eos": True, **more}
        out = self.ask("/completion", body, code)
        return out["content"] if code == 200 else out["error"]["message"]


def check(w):
    one, two, dora = adapter("llama_lora"), adapter("llama_rslora"), adapter("llama_dora")
    base, first, second = w.expected(), w.expected(one), w.expected(two)
    both = w.expected(f"{one}:1", f"{two}:0.5")
    assert len({base, first, second, both}) == 4
    w.serve()
    assert w.text("tiny") == base
    alone = w.memory()["tiny"]
    assert "does not exist" in w.text("tiny+one", 404)
    # Added while the model is loaded in its worker.
    said = w.run("adapter", "add", "tiny", one, "--name", "one")
    assert "tiny+one" in said and "rank 4" in said, said
    w.run("adapter", "add", "tiny", two, "--name", "two")
    # The fixture's tokens stand for no text: what `run` says shows how far it came.
    assert "the prompt is empty" in w.run("run", "tiny+two", "x", "--raw", code=2)
    assert "tiny+three" in w.run("run", "tiny+three", "x", "--raw", "--no-pull", code=1)
    assert w.text("tiny+one") == first
    beside = w.memory()["tiny"]
    assert beside > alone  # what is loaded counts
    assert w.text("tiny+two") == second
    assert w.memory()["tiny"] > beside
    assert w.text("tiny") == base
    assert w.text("tiny", lora=[{"name": "one", "scale": 1}, {"name": "two", "scale": 0.5}]) == both
    assert w.text("tiny", lora=[{"id": 0, "scale": 1}, {"id": 1, "scale": 0.5}]) == both
    assert w.text("tiny", lora=[{"id": 1, "scale": 0}]) == base
    assert "no adapter 'three'" in w.text("tiny", 404, lora=[{"name": "three"}])
    assert "no adapter" in w.text("tiny", 404, lora=[{"name": one}])  # a path is only a name that nobody has
    assert "lora" in w.text("tiny", 400, lora=[{"scale": 1}])
    models = {m["id"]: m for m in w.ask("/v1/models")["data"]}
    assert models["tiny+one"]["parent"] == "tiny" and "parent" not in models["tiny"]
    assert w.ask("/v1/models/tiny+one")["parent"] == "tiny"
    w.ask("/v1/models/tiny+three", code=404)
    chat = w.ask("/v1/completions", {"model": "tiny+one", "prompt": PROMPT, "max_tokens": N, "temperature": 0, "ignore_eos": True})
    assert chat["choices"][0]["text"] == first and chat["model"] == "tiny+one"
    # As llama.cpp has it: scales for requests that say nothing.
    assert [(a["id"], a["name"], a["scale"]) for a in w.ask("/lora-adapters?model=tiny")] == [(0, "one", 0), (1, "two", 0)]
    w.ask("/lora-adapters?model=tiny", [{"id": 1, "scale": 1.0}])
    assert w.text("tiny") == second
    assert w.text("tiny", lora=[]) == base
    w.ask("/lora-adapters?model=tiny", [])
    assert w.text("tiny") == base
    w.ask("/lora-adapters?model=tiny", [{"id": 7, "scale": 1}], 400)
    # Many at once are what each is alone.
    wrong = []
    wanted = {"tiny": base, "tiny+one": first, "tiny+two": second}

    def client(i):
        name = list(wanted)[i % 3]
        if w.text(name) != wanted[name]:
            wrong.append(name)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(24)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong, wrong
    # Other content under the same name: nothing of the old stays.
    assert "already" in w.run("adapter", "add", "tiny", dora, "--name", "one", code=1)
    w.run("adapter", "add", "tiny", dora, "--name", "one", "--replace")
    assert w.text("tiny+one") == w.expected(dora)
    assert "dora" in w.run("adapter", "show", "tiny", "one")
    shown = {a["name"]: a for a in json.loads(w.run("adapter", "list", "--json"))}
    assert len(shown) == 2 and shown["one"]["parent"] == "tiny" and len(shown["one"]["sha256"]) == 64
    w.run("adapter", "rm", "tiny", "one")
    assert "does not exist" in w.text("tiny+one", 404)
    assert len(os.listdir(os.path.join(w.dir.name, "hearth", "adapters"))) == 1
    # A created name, with the adapter in its Modelfile.
    modelfile = os.path.join(w.dir.name, "Modelfile")
    with open(modelfile, "w") as f:
        f.write(f"FROM tiny\nADAPTER {one}\n")
    w.run("create", "tuned", "-f", modelfile)
    assert w.text("tuned") == first
    assert w.text("tuned", lora=[]) == base
    check_shared(w, modelfile, base, first, second)
    check_pulled(w, first, second)
    # What does not fit is said when it is added.
    assert "h.0." in w.run("adapter", "add", "tiny", adapter("gpt2_lora"), code=1)
    shutil.copytree(one, os.path.join(w.dir.name, "bad"))
    with open(os.path.join(w.dir.name, "bad", "adapter_model.safetensors"), "r+b") as f:
        f.truncate(2000)
    w.run("adapter", "add", "tiny", os.path.join(w.dir.name, "bad"), code=1)
    w.server.stop()


def check_shared(w, modelfile, base, first, second):
    """What was made of a base with adapters lives in the base's worker."""

    def of(name):
        return next(m for m in w.ask("/v1/stats")["models"] if m["name"].removesuffix(":latest") == name)

    assert w.text("tiny") == base
    pid, memory = of("tiny")["pid"], w.memory()
    assert of("tuned")["pid"] == pid and set(memory) == {"tiny", "tuned"} and min(memory.values()) == 0, memory
    with open(modelfile, "w") as f:
        f.write(f"FROM tiny\nADAPTER {adapter('llama_rslora')}\nPARAMETER stop {second[:4]}\n")
    w.run("create", "stopped", "-f", modelfile)
    assert second.startswith(second[:4]) and w.text("stopped") == ""
    assert w.text("stopped", stop=["nothing"]) == second
    assert w.text("tuned") == first and w.text("tiny") == base
    pid = of("tiny")["pid"]
    assert of("tuned")["pid"] == of("stopped")["pid"] == pid
    parents = {m["id"].removesuffix(":latest"): m.get("parent", "").removesuffix(":latest") for m in w.ask("/v1/models")["data"]}
    assert parents["tuned"] == parents["stopped"] == "tiny" and parents["tiny"] == "", parents
    w.ask("/api/generate", {"model": "tiny", "keep_alive": 0})  # only its name goes
    assert of("tiny")["state"] == "unloaded" and of("tuned")["pid"] == pid
    w.run("rm", "stopped")
    assert "does not exist" in w.text("stopped", 404)
    assert w.text("tiny") == base and of("tiny")["pid"] == pid


def check_pulled(w, first, second):
    """A repository with an adapter, pulled by the command and by the server."""
    root = os.path.join(w.dir.name, "hub")
    for name, source in (("french", "llama_lora"), ("german", "llama_rslora")):
        to = os.path.join(root, "hf", "acme", name)
        shutil.copytree(adapter(source), to, ignore=shutil.ignore_patterns("golden.json", "logits.f32"))
        with open(os.path.join(to, "adapter_config.json"), "r+") as f:
            config = json.load(f)
            f.seek(0)
            json.dump(dict(config, base_model_name_or_path="tiny"), f)
            f.truncate()
    hub = subprocess.Popen([sys.executable, os.path.join(HERE, "..", "registry", "server.py"), root], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)
    try:
        port = hub.stdout.readline().split()[1]
        w.env["HF_ENDPOINT"] = f"http://127.0.0.1:{port}"
        said = w.run("pull", "acme/french")
        assert "tiny+french" in said, said
        assert w.text("tiny+french") == first
        assert "use the model tiny+german" in w.run("run", "acme/german", "x", code=2)
        assert w.text("tiny+german") == second
    finally:
        hub.stdin.close()
        hub.wait()
        hub.stdout.close()
    shown = {a["name"]: a for a in json.loads(w.run("adapter", "list", "tiny", "--json"))}
    assert shown["french"]["format"] == "PEFT" and shown["german"]["type"] == "rslora", shown
    for name in ("french", "german"):
        w.run("adapter", "rm", "tiny", name)


def check_budget(w):
    """Two models fill the budget; an adapter of one of them has no place beside the other."""
    w.run("create", "other", w.model)
    w.serve()
    w.text("tiny"), w.text("other")
    room = sum(w.memory().values())
    w.server.stop()
    w.serve("--mem-limit", str(room))
    assert w.text("tiny") != w.text("tiny+two")
    w.text("tiny", lora=[])
    w.text("other")  # the adapters of an idle model go with it
    assert list(w.memory()) == ["other"], w.memory()
    w.text("tiny")
    assert set(w.memory()) == {"tiny", "other"}, w.memory()
    w.text("tiny+two")
    until = time.monotonic() + 20
    while list(w.memory()) != ["tiny"]:
        assert time.monotonic() < until, w.memory()
        time.sleep(0.05)
    w.server.stop()


def main():
    w = World(sys.argv[1])
    try:
        check(w)
        check_budget(w)
    finally:
        if hasattr(w, "server") and w.server.process.poll() is None:
            w.server.process.kill()
    print("ok")


main()
