# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share: its folder, a hub on loopback, and AsyncClient behind blocking calls, so that each check
is written once and runs with both clients."""
import asyncio
import atexit
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGE = os.path.join(ROOT, "sdk", "python")
DEMO = os.path.join(ROOT, "models", "demo", "demo.gguf")
GOLDEN = os.path.join(ROOT, "tests", "golden")
RANKER = os.path.join(GOLDEN, "encoders", "xlmr_rerank")
QUICK = bool(os.environ.get("HEARTH_QUICK"))  # under a sanitizer every token counts

for name in ("HEARTH_HOST", "HEARTH_API_KEY"):  # of whoever runs the tests
    os.environ.pop(name, None)
sys.path.insert(0, PACKAGE)
sys.path.insert(0, os.path.join(ROOT, "tests", "api"))


class Hub:
    """A registry on loopback with one model, the demo (tests/registry/server.py)."""

    def __init__(self):
        self.dir = tempfile.TemporaryDirectory()
        os.makedirs(os.path.join(self.dir.name, "ollama/library/tiny"))
        shutil.copy(DEMO, os.path.join(self.dir.name, "tiny.gguf"))
        with open(os.path.join(self.dir.name, "ollama/library/tiny/latest.json"), "w") as f:
            json.dump({"layers": [["model", "tiny.gguf"]]}, f)
        self.process = subprocess.Popen([sys.executable, os.path.join(ROOT, "tests/registry/server.py"), self.dir.name],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline().split()[1])}"

    def control(self, fault):
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self.url + "/_control", json.dumps(fault).encode()).close()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.dir.cleanup()


class Driven:
    """An object whose coroutines are run to their end, and whose asynchronous streams are iterated, by ordinary calls."""

    def __init__(self, inner, loop):
        self._inner, self._loop = inner, loop

    def _wrap(self, value):
        if inspect.isawaitable(value):
            value = self._loop.run_until_complete(value)
        if hasattr(value, "__aiter__") or type(value).__name__ in ("AsyncClient", "AsyncModels", "AsyncRequests"):
            return Driven(value, self._loop)
        return value

    def __getattr__(self, name):
        value = getattr(self._inner, name)
        if callable(value):
            return lambda *args, **kw: self._wrap(value(*args, **kw))
        return self._wrap(value)

    def __enter__(self):
        self._loop.run_until_complete(self._inner.__aenter__())
        return self

    def __exit__(self, *why):
        self._loop.run_until_complete(self._inner.__aexit__(*why))

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self._loop.run_until_complete(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None


_loop = asyncio.new_event_loop()
atexit.register(_loop.close)


def driven(client):
    return Driven(client, _loop)


def golden_ranks():
    """A query, its documents, and the scores that a reranker of the golden set gives them."""
    with open(os.path.join(GOLDEN, "encoder_texts.json"), encoding="utf-8") as f:
        pairs = json.load(f)["pairs"]
    with open(os.path.join(RANKER, "golden.json")) as f:
        scores = json.load(f)["scores"]
    same = [i for i, p in enumerate(pairs) if p[0] == pairs[0][0]]
    return pairs[0][0], [pairs[i][1] for i in same], [scores[i] for i in same]


def raises(kind, function, *args, **kw):
    """The exception that must come, of exactly this class."""
    try:
        function(*args, **kw)
    except Exception as why:
        assert type(why) is kind, f"{type(why).__name__} instead of {kind.__name__}: {why}"
        return why
    raise AssertionError(f"no {kind.__name__}")


def blocks(path, language):
    """The code blocks of a page in this language, each with the text after "Prints"."""
    with open(path, encoding="utf-8") as f:
        found = re.findall(r"^```(\w+)\n(.*?)\n```(?:\s*\nPrints `([^\n]+?)`[^\n]*)?$", f.read(), re.M | re.S)
    return [(code, prints) for kind, code, prints in found if kind == language]
