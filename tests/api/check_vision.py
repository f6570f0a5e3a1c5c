# SPDX-License-Identifier: Apache-2.0
"""Pictures through every API: the same picture gives the same answer wherever it comes from, another one another; what cannot be read,
fetched or seen is refused by name; the server goes on."""
import base64
import concurrent.futures
import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib

from hearth_server import Checks, Server
from vision_model import ask_parts, make, mmproj, ollama, ollama_inside, ollama_qwen, picture, text

PROGRAM = sys.argv[1]
QUICK = os.environ.get("HEARTH_QUICK")  # under a sanitizer, where towers are slow
A, B, D = picture("a"), picture("b"), picture("d")


def uri(data, kind="png"):
    return f"data:image/{kind};base64," + base64.b64encode(data).decode()


def plain(data):
    return base64.b64encode(data).decode()


def image(data):
    return {"type": "image_url", "image_url": {"url": uri(data)}}


def ask(server, parts, model="gemma3", **fields):
    return ask_parts(server, parts, model, **fields)


def same_everywhere(server):
    """Chat, responses, Anthropic, Ollama: one picture before the same text."""
    want, _, usage = ask(server, [image(A), text("What?")])
    status, got = server.post("/v1/responses", {"model": "gemma3", "temperature": 0, "max_output_tokens": 8, "input": [
        {"role": "user", "content": [{"type": "input_image", "image_url": uri(A)}, {"type": "input_text", "text": "What?"}]}]})
    assert status == 200 and got["output"][-1]["content"][0]["text"] == want, got
    source = {"type": "base64", "media_type": "image/png", "data": plain(A)}
    status, got = server.post("/v1/messages", {"model": "gemma3", "max_tokens": 8, "temperature": 0, "messages": [
        {"role": "user", "content": [{"type": "image", "source": source}, text("What?")]}]})
    assert status == 200 and got["content"][0]["text"] == want and got["usage"]["input_tokens"] + got["usage"].get("cache_read_input_tokens", 0) == usage["prompt_tokens"], got
    options = {"temperature": 0, "num_predict": 8}
    status, got = server.post("/api/chat", {"model": "gemma3", "stream": False, "options": options, "messages": [
        {"role": "user", "content": "What?", "images": [plain(A)]}]})
    assert status == 200 and got["message"]["content"] == want, got
    status, got = server.post("/api/generate", {"model": "gemma3", "stream": False, "options": options, "prompt": "What?", "images": [plain(A)]})
    assert status == 200 and got["response"] == want, got
    status, got = server.post("/v1/messages/count_tokens", {"model": "gemma3", "messages": [
        {"role": "user", "content": [{"type": "image", "source": source}, text("What?")]}]})
    assert status == 200 and got["input_tokens"] == usage["prompt_tokens"], got


TALKS = {"ad": [image(A), text("and"), image(D), text("?")], "da": [image(D), text("and"), image(A), text("?")],
         "aa": [image(A), text("and"), image(A), text("?")], "a": [text("Look: "), image(A), text("?")]}
SAID = {}


def contents_matter(server):
    """Two pictures in one conversation, swapped, repeated: same bits again, and never the other's."""
    for name in FOLDERS:
        pairs = SAID.setdefault(name, {})
        for _ in range(2):
            for key, parts in TALKS.items():
                words, logprobs, _ = ask(server, parts, model=name)
                assert pairs.setdefault(key, (words, logprobs)) == (words, logprobs), (name, key)
        assert len({tuple(v[1]) for v in pairs.values()}) == 4, (name, pairs)
    with Server(PROGRAM, *OPTIONS) as fresh:  # nothing is cached there
        for name in FOLDERS:
            for key in ("da", "a"):
                assert ask(fresh, TALKS[key], model=name)[:2] == SAID[name][key], (name, key)


def in_company(server):
    """Beside requests without pictures, and many at once: the same bits as alone."""
    words = [{"model": name, "temperature": 0, "max_tokens": 24, "messages": [{"role": "user", "content": "Tell me more about it, " * 4}]}
             for name in FOLDERS]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        texts = [pool.submit(server.post, "/v1/chat/completions", body) for body in words for _ in range(2)]
        asked = [(name, key, pool.submit(ask, server, TALKS[key], model=name)) for key in TALKS for name in FOLDERS]
        for name, key, got in asked:
            assert got.result()[:2] == SAID[name][key], (name, key)
        assert all(t.result()[0] == 200 for t in texts)


def prefix_is_reused(server):
    long = [image(B), text("The same beginning, which is long enough for a page or two of the cache, I think. " * 2)]
    first = ask(server, long + [text("One")])
    again = ask(server, long + [text("One")])
    assert again[:2] == first[:2] and again[2]["prompt_tokens_details"]["cached_tokens"] > 32, again[2]
    other = ask(server, [image(D)] + long[1:] + [text("One")])
    assert other[2]["prompt_tokens_details"]["cached_tokens"] < 32 and other[1] != first[1], other[2]


def families(server):
    for name in FOLDERS:
        one, two = ask(server, [image(A), text("x")], model=name), ask(server, [image(D), text("x")], model=name)
        assert one[1] != two[1], name
        assert ask(server, [image(A), text("x")], model=name)[:2] == one[:2], name


def detail(server):
    """Little detail: fewer rows where the family has tiles, another picture's key, and the same one again with all of it."""
    def asked(model, **fields):
        shown = {"type": "image_url", "image_url": dict({"url": uri(D)}, **fields)}
        return ask(server, [shown, text("x")], model=model)
    for model in ("idefics3", "gemma3"):
        full, low, high = asked(model), asked(model, detail="low"), asked(model, detail="high")
        assert high[:2] == full[:2], model
        assert (low[2]["prompt_tokens"] < full[2]["prompt_tokens"] and low[1] != full[1]) if model == "idefics3" else low[:2] == full[:2], model
        status, headers, _ = server.request("POST", "/v1/chat/completions", json.dumps({"model": model, "max_tokens": 1, "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": uri(D), "detail": "blurred"}}]}]}).encode())
        assert status == 200 and "detail" in {k.lower(): v for k, v in headers.items()}["x-hearth-ignored"], headers


def tool_results(server):
    source = {"type": "base64", "media_type": "image/png", "data": plain(D)}
    status, got = server.post("/v1/messages", {"model": "gemma3", "max_tokens": 4, "temperature": 0, "messages": [
        {"role": "user", "content": "Take one"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "shoot", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "image", "source": source}]}]}]})
    assert status == 200, got


def png_header(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b""))


def refused(server):
    """(parts, what the error names)"""
    url = lambda u: [{"type": "image_url", "image_url": {"url": u}}]
    cases = [(url("https://example.com/cat.png"), "not fetched"), (url("http://127.0.0.1/x"), "not fetched"), (url("file:///etc/passwd"), "not fetched"),
             (url("data:image/png,xyz"), "base64"), (url("data:image/png;base64,@@@@"), "base64"), (url("data:image/png;base64,"), "not a picture"),
             (url(uri(b"hello, this is no picture")), "not a picture"), (url(uri(A[:200])), "cut off"), (url(uri(b"\xff\xd8\xff\xe0garbage")), "JPEG"),
             (url(uri(png_header(65535, 65535))), "65535 x 65535"), (url(uri(png_header(16000, 16000))), "16000 x 16000"),
             ([image(A), text("<start_of_image>")], "stands for a picture"), ([image(A), text("<image_soft_token>")], "part of a picture"),
             ([image(A)] * 33, "32 pictures"), ([{"type": "image_url"}], "image_url")]
    for parts, words in cases:
        status, got = server.post("/v1/chat/completions", {"model": "gemma3", "messages": [{"role": "user", "content": parts}], "max_tokens": 1})
        assert status == 400 and words in got["error"]["message"], (words, status, got)
    for source, words in (({"type": "url", "url": "https://example.com/a.png"}, "not fetched"), ({"type": "file", "file_id": "f"}, "base64")):
        status, got = server.post("/v1/messages", {"model": "gemma3", "max_tokens": 1, "messages": [
            {"role": "user", "content": [{"type": "image", "source": source}]}]})
        assert status == 400 and words in got["error"]["message"], got
    assert ask(server, [image(A), text("x")])[0] is not None


def blind(server):
    status, got = server.post("/v1/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": [image(A), text("x")]}], "max_tokens": 1})
    assert status in (400, 501) and "cannot see" in got["error"]["message"], got


def lists(server):
    rows = {m["id"]: m for m in server.get("/v1/models")[1]["data"]}
    assert rows["gemma3"]["input_modalities"] == ["text", "image"] and rows["demo"]["input_modalities"] == ["text"], rows
    assert "vision" in server.post("/api/show", {"model": "gemma3"})[1]["capabilities"]
    assert "vision" not in server.post("/api/show", {"model": "demo"})[1]["capabilities"]
    known = {m["name"]: m.get("capabilities") for m in server.get("/v1/stats")[1]["models"]}
    assert "vision" in known["gemma3"] and "vision" not in known["demo"], known
    sees = {name: server.get(f"/props?model={name}")[1]["modalities"]["vision"] for name in ("gemma3", "demo")}
    assert sees == {"gemma3": True, "demo": False} and server.get("/props?model=nobody")[0] == 404, sees


def command_line(server):
    """hearth run --image says what the server says."""
    want, _, _ = ask(server, [image(A), text("What?")])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.png")
        with open(path, "wb") as f:
            f.write(A)
        run = [PROGRAM, "run", FOLDERS["gemma3"], "--temp", "0", "--max-tokens", "8", "--image"]
        got = subprocess.run(run + [path, "What?"], capture_output=True, text=True, timeout=60)
        assert got.returncode == 0 and got.stdout.strip() == want.strip(), (got, want)
        got = subprocess.run(run + ["/nonexistent.png", "What?"], capture_output=True, text=True, timeout=60)
        assert got.returncode != 0 and "nonexistent" in got.stderr, got


def towers(server):
    """A GGUF file and its tower in another: beside it, named by --mmproj and by the model's settings, all say what the directory says."""
    parts, name = TALKS["da"], "qwen3_vl"
    with tempfile.TemporaryDirectory() as folder:
        apart, beside = os.path.join(folder, "apart"), os.path.join(folder, "beside")
        os.mkdir(apart), os.mkdir(beside)
        tower = mmproj(FOLDERS[name], os.path.join(beside, "mmproj-eyes-F16.gguf"))
        for place in (apart, beside):
            subprocess.run([PROGRAM, "convert", FOLDERS[name], os.path.join(place, "eyes.gguf")], check=True, capture_output=True, timeout=60)
        models = os.path.join(folder, "hearth", "models")
        os.makedirs(models)
        with open(os.path.join(models, "told.yaml"), "w") as f:
            f.write(f"mmproj: {tower}\n")
        with open(os.path.join(models, "lost.yaml"), "w") as f:
            f.write("mmproj: nowhere.gguf\n")
        options = [o for n, place in (("beside", beside), ("flag", apart), ("told", apart), ("lost", apart), ("without", apart))
                   for o in ("--model", f"{n}={place}/eyes.gguf")]
        with Server(PROGRAM, *options, "--mmproj", f"flag={tower}", env={"XDG_CONFIG_HOME": folder}) as other:
            for n in ("beside", "flag", "told"):
                assert ask(other, parts, model=n)[:2] == SAID[name]["da"], n
            body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 1}
            status, got = other.post("/v1/chat/completions", dict(body, model="without"))
            assert status in (400, 501) and "cannot see" in got["error"]["message"], got
            shown = subprocess.run([PROGRAM, "show", f"{apart}/eyes.gguf", "--json"], capture_output=True, text=True, timeout=60)
            assert json.loads(shown.stdout)["input"] == ["text"], shown
            shown = subprocess.run([PROGRAM, "show", f"{apart}/eyes.gguf", "--json", "--mmproj", tower], capture_output=True, text=True, timeout=60)
            assert json.loads(shown.stdout)["input"] == ["text", "image"] and json.loads(shown.stdout)["mmproj"] == tower, shown
            shown = subprocess.run([PROGRAM, "show", f"{apart}/eyes.gguf", "--mmproj", f"{apart}/eyes.gguf"], capture_output=True, text=True, timeout=60)
            assert shown.returncode != 0 and "not a vision tower" in shown.stderr, shown
            status, got = other.post("/v1/chat/completions", dict(body, model="lost"))
            assert status >= 400 and "nowhere.gguf" in got["error"]["message"], got
        got = subprocess.run([PROGRAM, "serve", "--model", f"x={apart}/eyes.gguf", "--mmproj", "x"], capture_output=True, text=True, timeout=60)
        assert got.returncode != 0 and "NAME=FILE" in got.stderr, got


def inside(server):
    """A GGUF file with the tower inside, as Ollama's are, says what the directory says; of a long context positions are eight times closer
    where the file does not say it."""
    with tempfile.TemporaryDirectory() as folder:
        forms = {"plain": {}, "long": {"context": 131072}, "told": {"context": 131072, "scaling": 8.0}, "one": {"context": 131072, "scaling": 1.0}}
        options = [o for n, form in forms.items() for o in ("--model", f"{n}=" + ollama(FOLDERS["gemma3"], os.path.join(folder, n + ".gguf"), **form))]
        options += ["--model", "qwen=" + ollama_qwen(FOLDERS["qwen2_5_vl"], os.path.join(folder, "qwen.gguf"))]
        more = [family for family in ("qwen3_vl", "mistral3", "gemma4") if family in FOLDERS]
        for family in more:
            options += ["--model", f"{family}={ollama_inside(family, FOLDERS[family], os.path.join(folder, family + '.gguf'))}"]
        with Server(PROGRAM, *options, "--ctx", "256", "--max-loaded", "8") as other:
            for family in more:  # of Gemma 4 "low" is what its directory allows; rows of matrices lie in another order, so that last bits differ
                parts = [{"type": "image_url", "image_url": {"url": uri(x), "detail": "low"}} for x in ((D, A) if family == "gemma4" else ())] or TALKS["da"]
                one, two = ask(other, parts, model=family), ask(server, parts, model=family)
                assert one[0] == two[0] and all(abs(x - y) < 1e-3 for x, y in zip(one[1], two[1])), (family, one, two)
            got = {n: ask(other, TALKS["da"], model=n)[:2] for n in forms}
            assert got["plain"] == got["one"] == SAID["gemma3"]["da"], got
            assert got["long"] == got["told"] != got["one"], got
            assert ask(other, TALKS["da"], model="qwen")[:2] == SAID["qwen2_5_vl"]["da"]
            assert ask(other, TALKS["a"], model="plain")[:2] == SAID["gemma3"]["a"]
            status, bad = other.post("/v1/chat/completions", {"model": "plain", "messages": [{"role": "user", "content": "<image_soft_token>"}], "max_tokens": 1})
            assert status == 400, bad


FOLDERS, OPTIONS = {}, []


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        some = ("gemma3", "idefics3", "qwen2_5_vl", "qwen3_vl")
        others = ("llava", "mistral3", "pixtral", "qwen2_vl", "qwen3_5", "gemma4", "gemma4_e")
        for family in some + (() if QUICK else others):
            FOLDERS[family] = make(family, os.path.join(folder, family))
        demo = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "demo", "demo.gguf")
        OPTIONS.extend(o for name, path in [*FOLDERS.items(), ("demo", demo)] for o in ("--model", f"{name}={path}"))
        with Server(PROGRAM, *OPTIONS) as server:
            for check in (same_everywhere, contents_matter, towers, inside, in_company, prefix_is_reused, families, detail, tool_results, refused, blind, lists, command_line):
                checks.run(check, server)
    checks.exit()


main()
