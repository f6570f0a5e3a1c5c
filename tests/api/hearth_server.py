# SPDX-License-Identifier: Apache-2.0
"""What the API tests share: a real `hearth serve` on a free port, raw requests over sockets, checks that count."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

LOOPBACK = "127.0.0.1"


class Server:
    """Starts the program with the demo model, waits for its ready line; stop() drains it and expects exit code 0."""

    def __init__(self, program, *options, env=None, log_level="warn"):
        self.dir = tempfile.TemporaryDirectory()
        self.socket_path = os.path.join(self.dir.name, "s")
        self.log = open(os.path.join(self.dir.name, "log"), "w+")
        environment = dict(os.environ, XDG_STATE_HOME=self.dir.name, XDG_RUNTIME_DIR=self.dir.name, XDG_DATA_HOME=self.dir.name)
        environment.pop("HEARTH_API_KEYS", None)
        environment.update(env or {})
        command = [program, "serve", "--port", "0", "--socket", self.socket_path, "--ready-json", "--log-level", log_level]
        self.process = subprocess.Popen(command + list(options), stdout=subprocess.PIPE, stderr=self.log, env=environment)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise RuntimeError("the server did not start: " + self.log_text())
        self.ready = json.loads(line)
        self.port = self.ready["port"]

    def log_text(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8", errors="replace") as f:
            return f.read()

    def connect(self, timeout=30, receive=None):
        s = socket.socket()
        s.settimeout(timeout)
        if receive:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        s.connect((LOOPBACK, self.port))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def stop(self, limit=60):
        """Returns the seconds that draining took."""
        begin = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server did not stop within {limit} s: " + self.log_text()[-2000:])
        took = time.monotonic() - begin
        if code != 0:
            raise AssertionError(f"exit code {code}: " + self.log_text()[-6000:])
        return took

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                self.stop()
            else:
                print(self.log_text()[-4000:])
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.log.close()
            self.dir.cleanup()

    # --- requests ---

    def request(self, method, path, body=None, headers=None, timeout=60):
        """One request on a connection of its own: (status, headers, body as bytes)."""
        with Connection(self, timeout) as c:
            return c.request(method, path, body, headers)

    def get(self, path, **kw):
        status, _, body = self.request("GET", path, **kw)
        return status, json.loads(body)

    def post(self, path, body, **kw):
        status, _, answer = self.request("POST", path, json.dumps(body).encode(), **kw)
        return status, json.loads(answer)

    def chat(self, text, **fields):
        body = {"model": "demo", "messages": [{"role": "user", "content": text}], "temperature": 0}
        body.update(fields)
        return self.post("/v1/chat/completions", body)

    def stream(self, path, body, headers=None, timeout=120):
        """Yields the payloads of server-sent events (or lines, for NDJSON)."""
        with Connection(self, timeout) as c:
            yield from c.stream(path, body, headers)


def encode(method, path, body=None, headers=None):
    lines = [f"{method} {path} HTTP/1.1"]
    fields = {"Host": "localhost", "Content-Type": "application/json"}
    if body is not None:
        fields["Content-Length"] = str(len(body))
    fields.update(headers or {})
    lines += [f"{k}: {v}" for k, v in fields.items() if v is not None]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


class Connection:
    """One keep-alive connection with its own small reader."""

    def __init__(self, server, timeout=60, unix=False, receive=None):
        if unix:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(timeout)
            self.sock.connect(server.socket_path)
        else:
            self.sock = server.connect(timeout, receive)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def _more(self):
        data = self.sock.recv(65536)
        if not data:
            raise EOFError("the server closed the connection")
        self.buffer += data

    def _line(self):
        while b"\r\n" not in self.buffer:
            self._more()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def _exactly(self, n):
        while len(self.buffer) < n:
            self._more()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def head(self):
        """Status and headers of the next answer, past any 100 Continue."""
        while True:
            first = self._line()
            parts = first.split(b" ", 2)
            assert len(parts) == 3 and parts[0] == b"HTTP/1.1", first
            headers = {}
            while True:
                line = self._line()
                if not line:
                    break
                name, value = line.split(b":", 1)
                headers[name.decode().lower()] = value.strip().decode()
            if parts[1] != b"100":
                return int(parts[1]), headers

    def chunks(self):
        while True:
            size = int(self._line(), 16)
            data = self._exactly(size)
            assert self._exactly(2) == b"\r\n"
            if size == 0:
                return
            yield data

    def answer(self, head_only=False):
        status, headers = self.head()
        if head_only or status in (204, 304):
            return status, headers, b""
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, b"".join(self.chunks())
        return status, headers, self._exactly(int(headers["content-length"]))

    def request(self, method, path, body=None, headers=None):
        self.send(encode(method, path, body, headers))
        return self.answer(head_only=method == "HEAD")

    def stream(self, path, body, headers=None):
        self.send(encode("POST", path, json.dumps(body).encode(), headers))
        status, got = self.head()
        if status != 200:
            raise AssertionError(f"{status} {self._exactly(int(got['content-length']))}")
        text = b""
        separator = b"\n\n" if "event-stream" in got["content-type"] else b"\n"
        for chunk in self.chunks():
            text += chunk
            while separator in text:
                event, text = text.split(separator, 1)
                yield event.decode()
        assert text == b"", text


def chat_text(events):
    """The text of a chat stream, and whether it ended properly."""
    text, finish, done = "", None, False
    for event in events:
        if event == "data: [DONE]":
            done = True
        elif event.startswith("data: "):
            chunk = json.loads(event[6:])
            if "error" in chunk:
                raise AssertionError(event)
            for choice in chunk["choices"]:
                text += choice["delta"].get("content") or ""
                finish = choice["finish_reason"] or finish
    return text, finish, done


class Checks:
    """Runs named checks; prints one line each and remembers failures."""

    def __init__(self):
        self.failed = 0

    def run(self, function, *args):
        name = function.__name__
        begin = time.monotonic()
        try:
            note = function(*args)
        except Exception as why:  # every kind of failure is reported the same way
            import traceback
            traceback.print_exc(file=sys.stdout)
            print(f"check FAILED {name}: {why}", flush=True)
            self.failed += 1
            return
        print(f"check ok {name} ({time.monotonic() - begin:.1f} s{'; ' + note if note else ''})", flush=True)

    def exit(self):
        sys.exit(1 if self.failed else 0)


def percentile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def in_threads(jobs):
    """Runs functions at once; raises the first failure."""
    failures = []

    def guard(job):
        try:
            job()
        except BaseException as why:
            failures.append(why)

    threads = [threading.Thread(target=guard, args=(job,)) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]


def eventually(condition, seconds, step=0.01):
    """Seconds until condition() holds; raises after the limit."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > seconds:
            raise AssertionError(f"did not happen within {seconds} s")
        time.sleep(step)
    return time.monotonic() - begin
