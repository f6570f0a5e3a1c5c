# SPDX-License-Identifier: Apache-2.0
"""usage: check_python_failures.py HEARTH

What Client and AsyncClient do when something goes wrong: keys, limits, full queues, servers that die, hang, or are none."""
import asyncio
import json
import os
import random
import signal
import socket
import ssl
import sys
import threading
import time

from sdk_support import DEMO, RANKER, ROOT, driven, golden_ranks, raises

import hearth
from hearth import AsyncClient, Client
from hearth._collect import answer_of
from hearth._streams import AnswerDecoder
from hearth._wire import Events, Head, Reader, place_of
from hearth_server import Checks, Server, eventually

LONG = dict(prompt="One sunny morning,", max_tokens=3500, ignore_eos=True, temperature=0)
KEYS = {"HEARTH_API_KEYS": "me:secret-key-1, limited:secret-key-2 rpm=2"}


def statuses(make, server):
    c = make(server.ready["url"], api_key="secret-key-1", model="demo")
    why = raises(hearth.AuthenticationError, make(server.ready["url"], model="demo", api_key="wrong").chat, "x")
    assert why.status == 401 and why.code == "invalid_api_key" and why.request_id.startswith("req-") and "key" in why.message, vars(why)
    why = raises(hearth.NotFound, c.chat, "x", model="nobody")
    assert (why.status, why.code, why.param) == (404, "model_not_found", "model"), vars(why)
    why = raises(hearth.BadRequest, c.chat, "x", temperature=9)
    assert (why.status, why.code, why.param) == (400, "invalid_value", "temperature"), vars(why)
    assert raises(hearth.TooLarge, c.chat, "x" * 3_000_000).status == 413
    assert raises(hearth.NotOffered, c.models.copy, "demo", "other").status == 501
    raises(hearth.BadRequest, lambda: c.chat_stream([]).answer())
    for wrong in ("chat", "chat_stream", "complete", "complete_stream"):
        assert "temperature" in str(raises(TypeError, getattr(c, wrong), "x", temperatur=1))
    raises(ValueError, c.chat, "x", temperature=float("nan"))
    assert c.chat("x", max_tokens=1).text


def limits(make, server):
    c = make(server.ready["url"], api_key="secret-key-2", model="demo")
    for _ in range(3):
        try:
            c.chat("x", max_tokens=1)
        except hearth.RateLimited as why:
            assert why.status == 429 and why.retry_after > 0, vars(why)
            return
    raise AssertionError("no limit was reached")


def full(make, server):
    """503 with Retry-After: an error without retries, an answer with them; a request that somebody cancelled is not sent again."""
    url, names = server.ready["url"], dict(api_key="secret-key-1", model="demo")
    c = make(url, retries=0, **names)
    streams = []
    why = None
    for _ in range(14):  # one computes, the others wait
        try:
            stream = c.complete_stream(**LONG)
            stream.__enter__()
            streams.append(stream)
        except hearth.Unavailable as got:
            why = got
            break
    assert why is not None and why.status == 503 and why.retry_after == 1 and why.code == "overloaded", vars(why)
    timer = threading.Timer(0.3, lambda: [server.request("POST", f"/v1/requests/{s.request_id}/cancel", b"", {"Authorization": "Bearer secret-key-1"})
                                          for s in streams])
    timer.start()
    begin = time.monotonic()
    assert make(url, retries=3, **names).chat("x", max_tokens=1).text
    assert time.monotonic() - begin > 0.9
    timer.join()
    for stream in streams:
        stream.close()
    eventually(lambda: not c.requests.list(), 10)

    def cancel():
        eventually(lambda: Client(url, **names).requests.list(), 10)
        for r in Client(url, **names).requests.list():
            Client(url, **names).requests.cancel(r.id)

    thread = threading.Thread(target=cancel)
    thread.start()
    begin = time.monotonic()
    why = raises(hearth.Cancelled, make(url, retries=3, **names).complete, **LONG)
    thread.join()
    assert why.status == 499 and why.code == "cancelled" and time.monotonic() - begin < 5, vars(why)


def ranks(make, server):
    """The golden scores of a reranker."""
    query, documents, scores = golden_ranks()
    c = make(server.ready["url"], api_key="secret-key-1", model="rank")
    got = c.rerank(query, documents)
    assert len(got.results) == len(scores) and all(abs(r.score - scores[r.index]) < 2e-5 for r in got.results), got
    assert got.results == sorted(got.results, key=lambda r: -r.score)
    assert c.rerank(query, documents, top_n=1).results == got.results[:1]
    assert raises(hearth.BadRequest, c.rerank, "a", ["b"], model="demo").code == "unsupported"


def killed(make, program):
    server = Server(program)
    try:
        c = make(server.ready["url"], model="demo", retries=0)
        with c.complete_stream(**LONG) as stream:
            next(e for e in stream if e.kind == "content")
            server.process.send_signal(signal.SIGKILL)
            why = raises(hearth.ConnectionLost, stream.answer)
            assert why.request_id == stream.request_id and stream.so_far.text
            assert list(stream) == []
        server.process.wait()
        begin = time.monotonic()
        assert server.ready["url"] in str(raises(hearth.ConnectError, make(server.ready["url"], retries=2).health))
        assert 0.3 <= time.monotonic() - begin < 5  # 0.1 s and 0.2 s between the attempts
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait()
        server.log.close()
        server.process.stdout.close()
        server.dir.cleanup()


class Scripted:
    """Answers each connection with the next of these texts, then closes it; None: never answers."""

    def __init__(self, *answers):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.answers, self.seen, self.open = list(answers), [], []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        for answer in self.answers:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            self.seen.append(connection.recv(1 << 20))
            if answer is None:
                self.open.append(connection)
            else:
                connection.sendall(answer)
                connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.listener.close()
        for connection in self.open:
            connection.close()


def head(status, body=b"", *more):
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *more]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def odd_servers(make):
    good = head(b"200 OK", b'{"object":"list","data":[]}')
    cases = [
        (hearth.ProtocolError, [b"SSH-2.0-OpenSSH_9.2\r\n\r\n"]), (hearth.ProtocolError, [head(b"200 OK", b"<html>")]),
        (hearth.ProtocolError, [head(b"200 OK", b"[]")]), (hearth.ProtocolError, [head(b"200 OK", b"{}")]),
        (hearth.ConnectionLost, [b""]), (hearth.ConnectionLost, [good[:-3]]),
        (hearth.ServerError, [head(b"500 Oh", b"something broke")]), (hearth.Unavailable, [head(b"503 No", b"", b"Retry-After: 3600")]),
        (hearth.Unavailable, [head(b"503 No", b"")]), (hearth.PermissionDenied, [head(b"403 No", b'{"error": {"message": "no"}}')]),
    ]
    for kind, answers in cases:
        with Scripted(*answers) as s:
            raises(kind, make(s.url, retries=2, connect_timeout=2).requests.list)
            assert len(s.seen) == 1, (kind, s.seen)
    with Scripted(head(b"503 No", b"", b"Retry-After: 0"), good) as s:
        assert make(s.url, retries=1).requests.list() == [] and len(s.seen) == 2
    with Scripted(None) as s:
        begin = time.monotonic()
        raises(hearth.TimedOut, make(s.url, timeout=0.2).requests.list)
        assert time.monotonic() - begin < 5
    with Scripted(good) as s:
        make(s.url + "/base/", api_key="k").requests.list()
        assert s.seen[0].startswith(b"GET /base/v1/requests HTTP/1.1\r\n") and b"Authorization: Bearer k\r\n" in s.seen[0]
    raises(hearth.ConnectError, make("unix:/nowhere/at/all", retries=0).health)
    for url in ("ftp://x", "http://", "unix:relative", "http://a:b", "http://u:p@x"):
        raises(ValueError, make, url)
    raises(ValueError, make, None, api_key="a\r\nb")


def addresses():
    """As the program's own commands read them (src/cli/serve/client.c)."""
    for given, want in (("name", "http name 11434"), ("name:80", "http name 80"), ("http://name", "http name 11434"), ("http://name:80/x/", "http name 80 /x"),
                        ("https://name", "https name 443"), ("::1", "http ::1 11434"), ("[::1]:7", "http ::1 7"), ("unix:///a/b", "/a/b"), ("unix:/a", "/a")):
        p = place_of(given)
        got = p.socket or f"{'https' if p.tls else 'http'} {p.host} {p.port} {p.base}".strip()
        assert got == want, (given, got)


def pieces():
    """An answer and a stream, cut at every byte, mean the same."""
    whole = (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Request-Id: req-1\r\n\r\n"
             b"5\r\nhello\r\n1;x=y\r\n \r\n5\r\nworld\r\n0\r\n\r\n")
    events = "event: a\ndata: {}\n\n: beat\n\ndata: x\ndata: y\r\n\r\ndata:z \u20ac\n\n".encode()
    for cut in range(len(whole)):
        r = Reader()
        body = b""
        for data in (whole[:cut], whole[cut:]):
            r.feed(data)
            body += r.take()
        assert body == b"hello world" and r.over and r.head.request_id == "req-1", cut
        early = Reader()
        early.feed(whole[:cut])
        assert early.eof() == early.over
    for cut in range(len(events)):
        e = Events()
        assert [*e.feed(events[:cut]), *e.feed(events[cut:])] == [("a", "{}"), ("", "x\ny"), ("", "z \u20ac")], cut
    for bad in (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"x" * 70000,
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"):
        raises(hearth.ProtocolError, Reader().feed, bad)


def garbage():
    """Whatever a server sends, the decoders give events or raise one of our errors."""
    chunk = {"id": "chatcmpl-1", "model": "demo", "choices": [{"index": 0, "delta": {"content": "a", "reasoning_content": "b", "tool_calls": [
        {"index": 0, "id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, "finish_reason": None, "logprobs": {"content": [
            {"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": []}]}}], "usage": {"prompt_tokens": 1, "completion_tokens_details": {}}, "timings": {}}
    rng, odd = random.Random(1), [None, True, -1, 10 ** 15, "x", [], {}, [[]], 1.5, [300], "\ud800"]
    raised = 0

    def spoil(value, at):
        """The same value with the member number `at` replaced."""
        if at[0] == 0:
            at[0] -= 1
            return rng.choice(odd)
        at[0] -= 1
        if isinstance(value, dict):
            return {k: spoil(v, at) for k, v in value.items()}
        return [spoil(v, at) for v in value] if isinstance(value, list) else value

    for i in range(3000):
        name = rng.choice(["", "prefill_progress"])
        data = f"event: {name}\ndata: {json.dumps(spoil(chunk, [rng.randrange(40)]))}\n\n".encode()
        if i % 3 == 0:
            data = bytes(b ^ (rng.randrange(256) if rng.random() < 0.02 else 0) for b in data)
        decoder = AnswerDecoder(Head(200))
        try:
            decoder.feed(b'data: {"id": "a", "model": "m", "choices": []}\n\n')
            decoder.feed(data)
        except hearth.HearthError:
            raised += 1
        try:
            answer_of(spoil({**chunk, "choices": [{"index": 0, "message": chunk["choices"][0]["delta"], "finish_reason": "stop"}]}, [rng.randrange(40)]), Head(200))
        except hearth.HearthError:
            raised += 1
    assert 500 < raised < 6000, raised
    return f"{raised} of 6000 refused"


def tls(make, program):
    cert, key = (os.path.join(ROOT, "tests/fixtures/tls", name) for name in ("cert.pem", "key.pem"))
    with Server(program, "--tls-cert", cert, "--tls-key", key) as server:
        url = server.ready["url"]
        assert url.startswith("https://")
        raises(hearth.ConnectError, make(url, retries=0).health)
        assert make(url, tls=ssl.create_default_context(cafile=cert)).health().status == "ok"


def task_cancelled(server):
    """A task that is cancelled takes its request with it, whether it streams or not."""
    async def run():
        c = AsyncClient(server.ready["url"], api_key="secret-key-1", model="demo")
        task = asyncio.ensure_future(c.complete(**LONG))
        while not await c.requests.list():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        for _ in range(1000):
            if not await c.requests.list():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the request still runs")

    asyncio.run(run())


def closed_elsewhere(server):
    """close() from another thread ends a stream that is being read."""
    stream = Client(server.ready["url"], api_key="secret-key-1", model="demo").complete_stream(**LONG)
    next(stream)
    threading.Timer(0.1, stream.close).start()
    assert sum(1 for _ in stream) < 3400


def main():
    checks, program = Checks(), sys.argv[1]
    makers = {"Client": Client, "AsyncClient": lambda *args, **kw: driven(AsyncClient(*args, **kw))}
    checks.run(pieces)
    checks.run(addresses)
    checks.run(garbage)
    for name, make in makers.items():
        print(name)
        env = {**KEYS, "HEARTH_MAX_SEQUENCES": "1", "HEARTH_MAX_QUEUE": "8"}
        with Server(program, "--max-body-mb", "2", "--model", f"demo={DEMO}", "--model", f"rank={RANKER}", env=env) as server:
            for check in (statuses, limits, full, ranks):
                checks.run(check, make, server)
            checks.run(*((task_cancelled, server) if name == "AsyncClient" else (closed_elsewhere, server)))
        checks.run(odd_servers, make)
        checks.run(killed, make, program)
        checks.run(tls, make, program)
    checks.exit()


main()
