#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A hub and a registry on loopback that misbehave on request.

usage: server.py ROOT

ROOT/hf/OWNER/REPO/FILES...         a repository of a Hugging Face hub; files of 1 KiB and more are large ("lfs")
ROOT/ollama/OWNER/NAME/TAG.json     {"layers": [["model", "file"], ["params", {"temperature": 1}], ...]} of an Ollama
                                    registry; a text or an object instead of a file name is the layer itself

Prints "ready PORT PORT2 TLSPORT" and serves until its standard input ends. The second port stands for another host: the files lie
behind a redirect to it if the fault "redirect" is on. The third speaks TLS with a certificate that no one trusts.

POST /_control with a JSON object sets what goes wrong from now on; {} is all well:
  cut            every answer with a file's bytes ends after so many
  cut_random     as cut, at a random place, with this probability
  no_ranges      200 and the whole file, whatever was asked for
  wrong_range    206 with another Content-Range than was asked for: "start", "total" or "none"
  no_length      no Content-Length
  extra          so many bytes behind the end
  flip           a bit of the byte at this offset is wrong
  status         [code, times, headers]: answers of the file port are this, so many times (-1: always)
  meta_status    the same for listings and manifests
  statuses       [[code, probability], ...] of files
  delay          seconds before every block of 64 KiB
  stall          files end with silence after so many bytes, until the client goes
  redirect       files: "host" (the other port), "loop", "plain" (file://), or a list of codes
  expire         addresses behind redirects work so many times, then they are 403
  garbage        listings are this text
  hostile        a file of this name is in every listing
  huge           a file's size in listings is this
  linked         x-linked-etag of redirects is this instead of the digest
  page           entries per page of a listing
  need_token     listings and files are 401 without this token
  challenge      the registry wants a token that it hands out itself
  etag           ETag of files is this
  gone           404 for files

GET /_control gives what was seen: bytes sent of each file, requests, the tokens seen on each port, the most connections
at one time; it is reset by every POST. It waits for files that are being sent.
"""
import hashlib
import json
import os
import random
import socket
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

ROOT = sys.argv[1]
HERE = os.path.dirname(os.path.abspath(__file__))
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 1024
lock = threading.Lock()
fault = {}
seen = {}
sums = {}
ports = []


def reset(new):
    global fault, seen
    with lock:
        fault = new
        seen = {"bytes": {}, "requests": 0, "tokens": [[], []], "open": 0, "most": 0, "ranges": 0, "resolved": 0, "files": 0}


reset({})


def digest_of(path):
    key = (path, os.stat(path).st_mtime_ns)
    with lock:
        if key in sums:
            return sums[key]
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            h.update(block)
    with lock:
        sums[key] = h.hexdigest()
    return sums[key]


def sha1_of(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def layer_bytes(what):
    if isinstance(what, str) and os.path.exists(os.path.join(ROOT, what)):
        return os.path.join(ROOT, what)
    data = what.encode() if isinstance(what, str) else json.dumps(what).encode()
    path = os.path.join(ROOT, "layer-" + hashlib.sha256(data).hexdigest())
    if not os.path.exists(path):
        with open(path + ".new%d" % threading.get_ident(), "wb") as f:
            f.write(data)
        os.rename(f.name, path)
    return path


def count(key, n=1):
    with lock:
        seen[key] += n


def once(key):
    """[code, times, headers] of a fault that is used up, or None."""
    with lock:
        f = fault.get(key)
        if not f or f[1] == 0:
            return None
        f[1] -= 1
        return f


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 0

    def log_message(self, *args):
        pass

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def other(self):
        return self.server.server_port == ports[1]

    def answer(self, code, body=b"", headers=()):
        self.send_response(code)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        reset(json.loads(body))
        self.answer(200)

    def do_GET(self):
        url = urlsplit(self.path)
        path = unquote(url.path)
        if path == "/_control":
            return self.tell()
        token = self.headers.get("Authorization")
        with lock:
            seen["requests"] += 1
            if token:
                seen["tokens"][1 if self.other() else 0].append(token)
        try:
            if path.startswith("/api/models/"):
                self.listing(path, parse_qs(url.query))
            elif path == "/token":
                self.answer(200, b'{"token":"anyone"}')
            elif path.startswith("/v2/"):
                self.registry(path)
            elif path.startswith("/store/"):
                self.store(path)
            else:
                self.resolve(path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def tell(self):
        """Waits for the answers under way: a client can have its last byte before this server has counted it."""
        until = time.monotonic() + 20
        while True:
            with lock:
                if not seen["open"] or time.monotonic() > until:
                    return self.answer(200, json.dumps(seen).encode())
            time.sleep(0.002)

    def refused(self, need):
        if need and self.headers.get("Authorization") != "Bearer " + need:
            self.answer(401)
            return True
        return False

    # --- hub ---

    def listing(self, path, query):
        if f := once("meta_status"):
            return self.answer(f[0], b"busy", f[2].items())
        if self.refused(fault.get("need_token")):
            return None
        if "garbage" in fault:
            return self.answer(200, fault["garbage"].encode())
        parts = path.split("/")[3:]
        repo, kind = "/".join(parts[:2]), parts[2]
        folder = os.path.join(ROOT, "hf", repo)
        if not os.path.isdir(folder) or parts[3] not in ("main", "v1", COMMIT):
            return self.answer(404)
        if kind == "revision":
            return self.answer(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": []}).encode())
        items = []
        for base, dirs, files in sorted(os.walk(folder)):
            for name in sorted(files):
                full = os.path.join(base, name)
                size = os.path.getsize(full)
                item = {"type": "file", "path": os.path.relpath(full, folder), "size": fault.get("huge", size)}
                if size >= LARGE:
                    item["oid"] = "f" * 40
                    item["lfs"] = {"oid": digest_of(full), "size": item["size"], "pointerSize": 130}
                else:
                    with open(full, "rb") as f:
                        item["oid"] = sha1_of(f.read())
                items.append(item)
            items += [{"type": "directory", "path": os.path.relpath(os.path.join(base, d), folder), "oid": "e" * 40, "size": 0}
                      for d in dirs]
        if "hostile" in fault:
            items.append({"type": "file", "path": fault["hostile"], "size": 3, "oid": sha1_of(b"abc")})
        at, page = int(query.get("cursor", ["0"])[0]), fault.get("page", 1000)
        headers = []
        if at + page < len(items):
            headers = [("Link", '<http://127.0.0.1:%d%s?recursive=true&cursor=%d>; rel="next"' % (ports[0], path, at + page))]
        return self.answer(200, json.dumps(items[at:at + page]).encode(), headers)

    def resolve(self, path):
        parts = path.strip("/").split("/")
        if len(parts) < 5 or parts[2] != "resolve":
            return self.answer(404)
        if self.refused(fault.get("need_token")):
            return None
        count("resolved")
        full = os.path.join(ROOT, "hf", parts[0], parts[1], *parts[4:])
        self.file_or_redirect(full)

    # --- registry ---

    def registry(self, path):
        if fault.get("challenge") and self.headers.get("Authorization") != "Bearer anyone":
            realm = 'Bearer realm="http://127.0.0.1:%d/token",service="registry",scope="repository:x:pull"' % ports[0]
            return self.answer(401, b"", [("WWW-Authenticate", realm)])
        parts = path.split("/")[2:]
        manifest = None
        folder = os.path.join(ROOT, "ollama", parts[0], parts[1])
        if parts[2] == "manifests":
            if f := once("meta_status"):
                return self.answer(f[0], b"busy", f[2].items())
            if "garbage" in fault:
                return self.answer(200, fault["garbage"].encode())
            name = os.path.join(folder, parts[3] + ".json")
            if not os.path.exists(name):
                return self.answer(404)
            with open(name) as f:
                manifest = json.load(f)
            layers = []
            for kind, what in manifest["layers"]:
                full = layer_bytes(what)
                layers.append({"mediaType": "application/vnd.ollama.image." + kind, "digest": "sha256:" + digest_of(full),
                               "size": fault.get("huge", os.path.getsize(full))})
            return self.answer(200, json.dumps({"schemaVersion": 2, "layers": layers, "mediaType":
                               "application/vnd.docker.distribution.manifest.v2+json", "config": {}}).encode())
        for name in os.listdir(folder):
            with open(os.path.join(folder, name)) as f:
                for kind, what in json.load(f)["layers"]:
                    full = layer_bytes(what)
                    if "sha256:" + digest_of(full) == parts[3]:
                        return self.file_or_redirect(full)
        return self.answer(404)

    # --- files ---

    def file_or_redirect(self, full):
        if not os.path.isfile(full) or fault.get("gone"):
            return self.answer(404)
        to = fault.get("redirect")
        if not to:
            return self.bytes_of(full)
        where = {"host": "http://127.0.0.1:%d/store/%s" % (ports[1], os.path.relpath(full, ROOT)), "loop": self.path,
                 "plain": "file:///etc/passwd"}[to]
        headers = [("Location", where), ("X-Repo-Commit", COMMIT)]
        if os.path.getsize(full) >= LARGE:
            headers += [("X-Linked-Etag", '"%s"' % fault.get("linked", digest_of(full))), ("X-Linked-Size", str(os.path.getsize(full)))]
        return self.answer(302, b"moved", headers)

    def store(self, path):
        if "expire" in fault:
            with lock:
                fault["expire"] -= 1
                if fault["expire"] < 0:
                    fault["expire"] = fault.get("expire_again", 3)
                    gone = True
                else:
                    gone = False
            if gone:
                return self.answer(403)
        return self.bytes_of(os.path.join(ROOT, path[len("/store/"):]))

    def bytes_of(self, full):
        with lock:
            mine = seen  # what goes on after a reset belongs to what was before it
            mine["files"] += 1
            mine["open"] += 1
            mine["most"] = max(mine["most"], mine["open"])
        try:
            self.send_file(full, mine)
        finally:
            with lock:
                mine["open"] -= 1

    def send_file(self, full, mine):
        if f := once("status"):
            return self.answer(f[0], b"busy", f[2].items())
        for code, chance in fault.get("statuses", []):
            if random.random() < chance:
                return self.answer(code, b"busy", [("Retry-After", "0")] if code == 429 else [])
        size = os.path.getsize(full)
        first, last, code = 0, size - 1, 200
        asked = self.headers.get("Range")
        if asked and not fault.get("no_ranges"):
            a, b = asked.split("=")[1].split("-")
            first, last, code = int(a), min(int(b or size - 1), size - 1), 206
            count("ranges")
            if first >= size:
                return self.answer(416)
        wrong = fault.get("wrong_range")
        shown = "bytes %d-%d/%d" % (first + (1 if wrong == "start" else 0), last, size + (1 if wrong == "total" else 0))
        n = last - first + 1
        self.send_response(code)
        if code == 206 and wrong != "none":
            self.send_header("Content-Range", shown)
        self.send_header("ETag", '"%s"' % fault.get("etag", "etag-" + os.path.basename(full)))
        if fault.get("no_length"):
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(n + fault.get("extra", 0)))
        self.end_headers()
        stop = n
        if "cut" in fault:
            stop = min(stop, fault["cut"])
        if random.random() < fault.get("cut_random", 0):
            stop = min(stop, random.randrange(n + 1))
        silence = fault.get("stall")
        name = os.path.relpath(full, ROOT)
        with open(full, "rb") as f:
            f.seek(first)
            at, sent = first, 0
            if not fault.get("delay") and silence is None and "flip" not in fault and "cut" not in fault and stop == n:
                sent = self.connection.sendfile(f, first, n) or 0
                with lock:
                    mine["bytes"][name] = mine["bytes"].get(name, 0) + sent
            while sent < stop:
                block = bytearray(f.read(min(65536, stop - sent)))
                if at <= fault.get("flip", -1) < at + len(block):
                    block[fault["flip"] - at] ^= 1
                if silence is not None and sent >= silence:
                    self.connection.recv(1)
                    break
                if fault.get("delay"):
                    time.sleep(fault["delay"])
                self.wfile.write(block)
                sent += len(block)
                at += len(block)
                with lock:
                    mine["bytes"][name] = mine["bytes"].get(name, 0) + len(block)
        if sent < n:
            self.close_connection = True
            try:
                self.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        elif fault.get("extra"):
            self.wfile.write(b"x" * fault["extra"])


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass


def main():
    servers = [Server(("127.0.0.1", 0), Handler) for _ in range(3)]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls = os.path.join(HERE, "..", "fixtures", "tls")
    context.load_cert_chain(os.path.join(tls, "cert.pem"), os.path.join(tls, "key.pem"))
    servers[2].socket = context.wrap_socket(servers[2].socket, server_side=True)
    ports.extend(s.server_port for s in servers)
    for s in servers:
        threading.Thread(target=s.serve_forever, daemon=True).start()
    print("ready %d %d %d" % tuple(ports), flush=True)
    sys.stdin.read()
    os._exit(0)


main()
