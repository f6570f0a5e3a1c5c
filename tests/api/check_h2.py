# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 and gRPC by raw frames: what no client library would send. The server answers, resets or closes, keeps its limits, and a good
call right after is answered."""
import os
import random
import re
import struct
import sys
import time

from hearth_server import Checks, Connection, Server, eventually, in_threads

PROGRAM = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 300
DEMO = os.path.join(os.path.dirname(__file__), "../../models/demo/demo.gguf")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
TABLE_SIZE, INITIAL_WINDOW = 1, 4
# "grpc-status" in HPACK's Huffman code; its value is too short to be coded.
STATUS_NAME = bytes([0x80 | 8]) + int("100110101100101011001000101100100001001000110100110110101000" + "1111", 2).to_bytes(8, "big")


def integer(n, bits, first=0):
    limit = (1 << bits) - 1
    if n < limit:
        return bytes([first | n])
    out = bytes([first | limit])
    n -= limit
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def fields(*pairs, index=False):
    """Literal fields that nobody remembers, or with index ones that stay in the table."""
    out = b""
    for name, value in pairs:
        name, value = name.encode(), value.encode() if isinstance(value, str) else value
        out += (b"\x40" if index else b"\x00") + integer(len(name), 7) + name + integer(len(value), 7) + value
    return out


def head(path, method="POST", kind="application/grpc", *more, authority="localhost"):
    pairs = [(":method", method), (":scheme", "http"), (":path", path), (":authority", authority)]
    if kind:
        pairs += [("content-type", kind), ("te", "trailers")]
    return fields(*pairs, *more)


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def framed(message, flag=0):
    return struct.pack(">BI", flag, len(message)) + message


def chat(text="Hello", max_tokens=5, **more):
    message = field(1, b"demo") + field(2, field(1, b"user") + field(2, text.encode())) + field(9, max_tokens)
    message += field(7, b"\x09" + struct.pack("<d", 0))  # temperature 0
    if more.get("top"):
        message += field(13, 1) + field(14, more["top"])
    if more.get("ignore_eos"):
        message += field(21, 1)
    return framed(message)


CHAT, STREAM, CHECK = "/hearth.v1.Inference/Chat", "/hearth.v1.Inference/ChatStream", "/grpc.health.v1.Health/Check"


class Wire:
    """A connection of frames."""

    def __init__(self, server, settings=(), timeout=20, begin=True):
        self.sock = server.connect(timeout)
        self.buffer = b""
        self.spent, self.given, self.initial = {}, {}, 65535  # bytes of bodies
        if begin:
            self.sock.sendall(PREFACE)
            self.send(SETTINGS, 0, 0, b"".join(struct.pack(">HI", k, v) for k, v in ((TABLE_SIZE, 0), *settings)))

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.sock.close()

    @staticmethod
    def frame(kind, flags, stream, payload=b""):
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    def send(self, kind, flags, stream, payload=b""):
        self.sock.sendall(self.frame(kind, flags, stream, payload))

    def call(self, stream, path, body, **more):
        self.send(HEADERS, END_HEADERS, stream, head(path, **more))
        self.send(DATA, END_STREAM, stream, body)

    def next(self):
        """A frame; None: the connection is closed."""
        while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
            try:
                data = self.sock.recv(65536)
            except (ConnectionResetError, BrokenPipeError):
                return None
            if not data:
                return None
            self.buffer += data
        n = int.from_bytes(self.buffer[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
        payload, self.buffer = self.buffer[9:9 + n], self.buffer[9 + n:]
        if kind == WINDOW:
            self.given[stream] = self.given.get(stream, 0) + struct.unpack(">I", payload)[0]
        if kind == SETTINGS and not flags & ACK:
            self.initial = dict(struct.iter_unpack(">HI", payload)).get(INITIAL_WINDOW, self.initial)
            try:
                self.send(SETTINGS, ACK, 0)
            except OSError:
                pass
        return kind, flags, stream, payload

    def room(self, stream):
        return (self.initial if stream else 65535) + self.given.get(stream, 0) - self.spent.get(stream, 0)

    def until(self, wanted):
        """All frames up to one that is wanted, or the end: (frames, it or None)."""
        seen = []
        while True:
            f = self.next()
            if f is None:
                return seen, None
            seen.append(f)
            if wanted(f):
                return seen, f

    def ended(self):
        """The code of GOAWAY, or None where the connection just closed."""
        _, f = self.until(lambda f: f[0] == GOAWAY and struct.unpack(">I", f[3][4:8])[0] != 0)
        return struct.unpack(">I", f[3][4:8])[0] if f else None

    def outcome(self, stream):
        """How a call ended: its grpc-status, or 'reset CODE'."""
        _, f = self.until(lambda f: f[2] == stream and (f[0] == RST or (f[0] in (HEADERS, DATA) and f[1] & END_STREAM)))
        assert f, "the connection was closed"
        if f[0] == RST:
            return f"reset {struct.unpack('>I', f[3])[0]}"
        found = re.search(re.escape(STATUS_NAME) + rb"(?:\x01(\d)|\x02(\d\d))", f[3])
        return int(found[1] or found[2]) if found else None


def alive(server):
    with Wire(server) as w:
        w.call(1, CHAT, chat())
        assert w.outcome(1) == 0
    assert server.get("/v1/models")[0] == 200


def idle(server):
    eventually(lambda: server.get("/v1/requests")[1]["data"] == [], 20)


# --- the checks ---


def prefaces(server):
    with Wire(server, begin=False) as w:  # byte by byte
        for b in PREFACE + w.frame(SETTINGS, 0, 0, struct.pack(">HI", TABLE_SIZE, 0)):
            w.sock.sendall(bytes([b]))
        w.call(1, CHECK, framed(b""))
        assert w.outcome(1) == 0
    with Connection(server) as c:  # not quite: HTTP/1 refuses it as before
        c.send(b"PRI * HTTP/2.0\r\n\r\nXM\r\n\r\n")
        assert c.head()[0] == 505
    with Connection(server) as c:  # a method that begins the same
        c.send(b"P")
        time.sleep(0.05)
        c.send(b"OST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        assert c.head()[0] == 405
    with Wire(server, begin=False) as w:
        w.sock.sendall(PREFACE + b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100)
        assert w.until(lambda f: False)[1] is None
    alive(server)


def cut_at_every_byte(server):
    whole = PREFACE + Wire.frame(SETTINGS, 0, 0) + Wire.frame(HEADERS, END_HEADERS, 1, head(CHAT)) + Wire.frame(DATA, END_STREAM, 1, chat())
    for n in range(len(whole) + 1):
        s = server.connect()
        s.sendall(whole[:n])
        s.close()
    idle(server)
    alive(server)
    return f"{len(whole) + 1} cuts"


def wrong_messages(server):
    cases = [
        (b"", 3), (b"\0\0\0", 3), (framed(b"")[:4], 3), (struct.pack(">BI", 0, 100) + b"short", 3), (struct.pack(">BI", 0, 0xFFFFFFFF), 3),
        (framed(b"") + framed(b""), 3), (framed(b"") + b"\0", 3), (framed(b"\x0a\x05ab"), 3), (framed(b"\xff" * 50), 3),
        (struct.pack(">BI", 1, 3) + b"abc", 12), (struct.pack(">BI", 7, 0), 3), (framed(b"\x0a\x02\xc3("), 3), (framed(field(1, b"nobody")), 5),
    ]
    with Wire(server) as w:
        for i, (body, status) in enumerate(cases):
            w.call(2 * i + 1, CHAT, body)
            got = w.outcome(2 * i + 1)
            assert got == status, (body, got)
        n = 2 * len(cases) + 1
        for path, more, status in [("/hearth.v1.Inference/None", {}, 12), ("/v1/models", {}, 12), ("/", {}, 12), (CHAT, {"method": "GET"}, 12),
                                   (CHAT, {"authority": "attacker.example"}, 7), (CHAT, {"kind": "application/grpc+proto"}, 0)]:
            w.call(n, path, chat(), **more)
            got = w.outcome(n)
            assert got == status, (path, more, got)
            n += 2
        w.call(n, CHAT, chat(), kind="application/json")  # not a call: HTTP says so
        assert w.outcome(n) is None
        w.call(n + 2, CHAT, chat(), kind="application/grpc-web")
        assert w.outcome(n + 2) is None
    page = server.request("GET", "/metrics")[2].decode()
    assert re.search(r'hearth_requests_total\{api="openai",code="415"\} 2\b', page), page
    alive(server)


def wrong_heads(server):
    base = [(":method", "POST"), (":scheme", "http"), (":path", CHAT), (":authority", "localhost"), ("content-type", "application/grpc")]
    broken = [  # a malformed request is a stream error
        base[:2] + base[3:], base + [("Upper", "x")], base + [("connection", "close")], base + [("transfer-encoding", "chunked")],
        base + [(":path", "/")], base + [("x", b"a\r\nb")], base + [("x", b"a\0b")], base + [("content-length", "5")], base[:3] + base[4:],
    ]
    with Wire(server) as w:
        n = 1
        for pairs in broken:
            w.send(HEADERS, END_HEADERS, n, fields(*pairs))
            w.send(DATA, END_STREAM, n, chat())
            got = w.outcome(n)
            assert str(got).startswith("reset"), (pairs, got)
            n += 2
        refused = [
            (base[:2] + [(":path", "/a%zz")] + base[3:], 3), (base + [("host", "other.example")], 3),
            (base + [(f"x-{i}", "y") for i in range(120)], 8), (base + [("x-long", "y" * 33000)], 8),
        ]
        for pairs, status in refused:
            block = fields(*pairs)
            w.send(HEADERS, END_STREAM if len(block) > 16000 else END_HEADERS | END_STREAM, n, block[:16000])
            while len(block) > 16000:
                block = block[16000:]
                w.send(CONTINUATION, END_HEADERS if len(block) <= 16000 else 0, n, block[:16000])
            got = w.outcome(n)
            assert got == status, (pairs[-1][0], got)
            n += 2
    alive(server)


def too_large(server):
    with Wire(server) as w:
        w.send(HEADERS, END_HEADERS, 1, head(CHAT, "POST", "application/grpc", ("content-length", str(1 << 40))))
        assert w.outcome(1) == 8
        w.send(HEADERS, END_HEADERS, 3, head(CHAT))  # without a length it is cut off when it is too much
        sent, got = 0, None
        piece = b"\0" * 16384
        while got is None:
            if min(w.room(3), w.room(0)) >= len(piece):
                w.send(DATA, 0, 3, piece)
                w.spent[3] = w.spent[0] = w.spent.get(0, 0) + len(piece)
                sent += len(piece)
                assert sent < 8 << 20, "the limit does not hold"
                continue
            f = w.next()
            assert f, "closed"
            if f[2] == 3 and f[0] in (HEADERS, RST):
                got = f
        assert got[0] == HEADERS and STATUS_NAME + b"\x018" in got[3]
        w.call(5, CHECK, framed(b""))
        assert w.outcome(5) == 0
    alive(server)
    return f"{sent >> 10} KiB"


def many_streams(server):
    with Wire(server) as w:  # before the settings are known to the client
        for i in range(200):
            w.send(HEADERS, END_HEADERS, 2 * i + 1, head(CHAT))
        refused = 0
        while refused < 72:
            f = w.next()
            assert f, "closed"
            if f[0] == RST:
                assert struct.unpack(">I", f[3])[0] == 7, f  # REFUSED_STREAM
                refused += 1
        w.send(DATA, END_STREAM, 1, chat())
        assert w.outcome(1) == 0
    with Wire(server) as w:  # and by one who knows them
        w.until(lambda f: f[0] == SETTINGS and not f[1])
        for i in range(200):
            w.send(HEADERS, END_HEADERS, 2 * i + 1, head(CHAT))
        assert w.ended() == 1  # PROTOCOL_ERROR
    idle(server)
    alive(server)


def floods(server):
    def rapid_reset(w):
        for i in range(1500):
            w.sock.sendall(w.frame(HEADERS, END_HEADERS | END_STREAM, 2 * i + 1, head(STREAM)) + w.frame(RST, 0, 2 * i + 1, struct.pack(">I", 8)))

    def pings(w):
        for _ in range(5000):
            w.send(PING, 0, 0, b"12345678")

    def settings(w):
        for _ in range(5000):
            w.send(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, 65535))

    def empty_data(w):
        w.send(HEADERS, END_HEADERS, 1, head(CHAT))
        for _ in range(20000):
            w.send(DATA, 0, 1, b"")

    def priorities(w):
        for _ in range(5000):
            w.send(PRIORITY, 0, 1, struct.pack(">IB", 0, 7))

    def continuations(w):
        w.send(HEADERS, 0, 1, head(CHAT))
        for i in range(5000):
            w.send(CONTINUATION, 0, 1, fields((f"x-{i}", "y")))

    def large_frame(w):
        w.send(DATA, 0, 1, b"x" * 20000)

    def window_overflow(w):
        w.send(WINDOW, 0, 0, struct.pack(">I", 0x7FFFFFFF))

    def remembered(w):  # one field of 4000 bytes, thousands of times in a few bytes
        w.send(HEADERS, END_HEADERS | END_STREAM, 1, head(CHAT) + fields(("x", "y" * 3900), index=True) + b"\xbe" * 12000)
        w.send(HEADERS, END_HEADERS | END_STREAM, 1, b"\xff\xff\xff\xff\xff\xff")

    for flood in (rapid_reset, pings, settings, empty_data, priorities, continuations, large_frame, window_overflow, remembered):
        with Wire(server) as w:
            w.sock.settimeout(20)
            try:
                flood(w)
            except OSError:
                pass  # it was closed meanwhile
            code = w.ended()
            assert code is None or code in (1, 2, 3, 5, 6, 9, 11), (flood.__name__, code)
        idle(server)
    alive(server)


def stalled_stream(server):
    """Fifty streams on a connection with no window to begin with: one never gets any, 49 are not harmed."""
    with Wire(server, settings=[(INITIAL_WINDOW, 0)], timeout=60) as w:
        w.send(WINDOW, 0, 0, struct.pack(">I", 1 << 30))
        for i in range(50):
            if i == 0:  # much to say: it is paused long before its end
                w.call(1, STREAM, chat("Tell me a long story.", 400, top=20, ignore_eos=True))
            else:
                w.call(2 * i + 1, STREAM, chat("Hello", 8))
                w.send(WINDOW, 0, 2 * i + 1, struct.pack(">I", 1 << 20))
        over, reset = set(), None
        begin = time.monotonic()
        while len(over) < 49:
            f = w.next()
            assert f, "closed"
            assert not (f[0] == DATA and f[2] == 1 and f[3]), "a stream without a window got data"
            if f[0] == RST and f[2] == 1:
                reset = f
            elif f[0] == HEADERS and f[1] & END_STREAM:
                assert STATUS_NAME + b"\x010" in f[3], f
                over.add(f[2])
        took = time.monotonic() - begin
        assert 1 not in over
        if not reset:
            eventually(lambda: "paused" in [r["state"] for r in server.get("/v1/requests")[1]["data"]], 5)
            _, reset = w.until(lambda f: f[0] == RST and f[2] == 1)
        assert struct.unpack(">I", reset[3])[0] == 8  # CANCEL: nobody read it for stall_seconds
        w.call(101, CHECK, framed(b""))
        w.send(WINDOW, 0, 101, struct.pack(">I", 1000))
        assert w.outcome(101) == 0
    idle(server)
    alive(server)
    return f"49 streams in {took:.1f} s"


def mutations(server):
    """Good conversations with bytes changed, left out, doubled or added anywhere behind the preface."""
    random.seed(1)
    good = [Wire.frame(SETTINGS, 0, 0), Wire.frame(HEADERS, END_HEADERS, 1, head(STREAM)), Wire.frame(DATA, END_STREAM, 1, chat()),
            Wire.frame(WINDOW, 0, 1, struct.pack(">I", 100)), Wire.frame(PING, 0, 0, b"12345678"), Wire.frame(RST, 0, 1, struct.pack(">I", 8)),
            Wire.frame(HEADERS, END_HEADERS, 3, head(CHAT)), Wire.frame(DATA, END_STREAM, 3, chat())]
    for _ in range(ROUNDS):
        frames = [random.choice(good) for _ in range(2)] + good if random.random() < 0.5 else list(good)
        text = bytearray(b"".join(frames))
        for _ in range(random.randrange(1, 6)):
            at, kind = random.randrange(len(text)), random.randrange(4)
            if kind == 0:
                text[at] = random.randrange(256)
            elif kind == 1:
                text[at] ^= 1 << random.randrange(8)
            elif kind == 2:
                del text[at:at + random.randrange(1, 20)]
            else:
                text[at:at] = text[at:at + random.randrange(1, 30)]
        s = server.connect()
        try:
            s.sendall(PREFACE + text)
            s.settimeout(0.01)
            s.recv(65536)
        except OSError:
            pass
        s.close()
    idle(server)
    alive(server)
    return f"{ROUNDS} conversations"


def questions(server):
    """Reflection answers much to little: whoever asks without reading is cut off."""
    path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    ask = framed(field(4, b"hearth.v1.Inference"))
    with Wire(server) as w:
        w.send(HEADERS, END_HEADERS, 1, head(path))
        w.send(DATA, 0, 1, ask[:3])  # in pieces
        w.send(DATA, 0, 1, ask[3:] + ask)
        w.send(DATA, END_STREAM, 1, b"")
        assert w.outcome(1) == 0
        w.send(HEADERS, END_HEADERS, 3, head(path))
        w.send(DATA, 0, 3, ask * 600)
        assert w.outcome(3) == 14
        w.send(HEADERS, END_HEADERS, 5, head(path))
        w.send(DATA, 0, 5, framed(b"\xff\xff"))
        assert w.outcome(5) == 3
        w.call(7, CHECK, framed(b""))
        assert w.outcome(7) == 0
    with Wire(server, settings=[(INITIAL_WINDOW, 0)]) as w:
        w.send(HEADERS, END_HEADERS, 1, head(path))
        for _ in range(20):
            w.send(DATA, 0, 1, ask)
        w.until(lambda f: f[0] == HEADERS and f[2] == 1)
        eventually(lambda: server.get("/v1/models")[0] == 200, 5)
    alive(server)


def slow_window(server):
    """A client that gives a stream a few bytes at a time gets everything, in order."""
    with Wire(server, settings=[(INITIAL_WINDOW, 0)]) as w:
        w.call(1, STREAM, chat("Hello", 6))
        text, seen = b"", b""
        while True:
            w.send(WINDOW, 0, 1, struct.pack(">I", 7))
            f = w.next()
            assert f, "closed"
            if f[0] == DATA and f[2] == 1:
                assert len(f[3]) <= 7 * 50
                seen += f[3]
            if f[0] == HEADERS and f[1] & END_STREAM:
                break
        while seen:
            n = struct.unpack(">I", seen[1:5])[0]
            message, seen = seen[5:5 + n], seen[5 + n:]
            if message[:1] == b"\x2a":  # content
                text += message[2:]
    whole = server.chat("Hello", max_tokens=6)[1]["choices"][0]["message"]["content"]
    assert text.decode() == whole, (text, whole)


def slow_body(server):
    with Wire(server) as w:
        w.send(HEADERS, END_HEADERS, 1, head(CHAT))
        w.send(DATA, 0, 1, b"\0")
        assert w.outcome(1) == 4  # HTTP's 408
        w.call(3, CHECK, framed(b""))
        assert w.outcome(3) == 0


def heartbeats(server):
    """A stream that has nothing to say is kept alive by pings."""
    with Wire(server) as w:
        w.call(1, "/grpc.health.v1.Health/Watch", framed(b""))
        for _ in range(2):
            begin = time.monotonic()
            assert w.until(lambda f: f[0] == PING and not f[1] & ACK)[1]
            w.send(PING, ACK, 0, bytes(8))
        assert 0.5 < time.monotonic() - begin < 5
        w.send(RST, 0, 1, struct.pack(">I", 8))
        w.call(3, CHECK, framed(b""))
        assert w.outcome(3) == 0


def idle_connection(server):
    with Wire(server) as w:
        _, f = w.until(lambda f: f[0] == GOAWAY)
        assert f and struct.unpack(">I", f[3][4:8])[0] == 0
        assert w.until(lambda f: False)[1] is None


def draining(program):
    with Server(program, "--model", f"demo={DEMO}") as server:
        with Wire(server) as quiet, Wire(server) as w:
            quiet.until(lambda f: f[0] == SETTINGS)
            w.call(1, STREAM, chat("Tell me a story.", 20, ignore_eos=True))
            w.until(lambda f: f[0] == DATA)
            server.process.terminate()
            assert quiet.until(lambda f: f[0] == GOAWAY)[1]
            frames, _ = w.until(lambda f: False)
            assert any(f[0] == GOAWAY for f in frames)
            assert any(f[0] == HEADERS and f[1] & END_STREAM and STATUS_NAME + b"\x010" in f[3] for f in frames)
        assert server.stop() < 10


def main():
    checks = Checks()
    with Server(PROGRAM, "--model", f"demo={DEMO}", "--max-body-mb", "1", log_level="error") as server:
        alive(server)
        for check in (prefaces, cut_at_every_byte, wrong_messages, wrong_heads, too_large, many_streams, floods, mutations, questions, slow_window):
            checks.run(check, server)
    with Server(PROGRAM, "--model", f"demo={DEMO}", "--stall-seconds", "3", "--body-seconds", "1", "--idle-seconds", "2", "--heartbeat-seconds", "1", log_level="error") as server:
        # These wait for clocks, each on connections of its own.
        in_threads([lambda check=check: checks.run(check, server) for check in (stalled_stream, slow_body, heartbeats, idle_connection)])
    checks.run(draining, PROGRAM)
    checks.exit()


main()
