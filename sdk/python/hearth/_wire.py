# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1, server-sent events and lines of JSON without any input or output of their own.

The clients move bytes; what they mean is decided here, once for blocking sockets and for asyncio. A request has a connection of
its own, so that closing it is all that cancelling needs and nothing is ever sent twice.
"""
from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Tuple
from urllib.parse import quote, urlsplit

from ._version import __version__
from .errors import ProtocolError

DEFAULT_PORT = 11434
MAX_HEAD = 64 << 10
MAX_LINE = 64 << 20  # of a stream; an event is far smaller


@dataclass
class Place:
    """Where a server is: a Unix socket, or a host with a port; `base` stands before every path."""

    shown: str
    host: str = ""
    port: int = 0
    tls: bool = False
    socket: Optional[str] = None
    base: str = ""

    @property
    def header(self) -> str:
        if self.socket:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def place_of(url: Optional[str]) -> Place:
    """http://, https:// and unix: addresses, and what HEARTH_HOST may be: "name" or "name:port". The port of http is 11434 unless it
    is said, as for the program's own commands."""
    given = url if url is not None else os.environ.get("HEARTH_HOST") or f"http://127.0.0.1:{DEFAULT_PORT}"
    if given.startswith("unix:"):
        path = given[len("unix:"):]
        path = path[2:] if path.startswith("//") else path
        if not path.startswith("/"):
            raise ValueError(f"{given!r}: the path of a Unix socket begins with /")
        return Place(shown=given, socket=path)
    bare6 = "://" not in given and "[" not in given and given.count(":") > 1  # an IPv6 address without brackets
    try:
        parts = urlsplit(given if "://" in given else f"http://[{given}]" if bare6 else f"http://{given}")
        port = parts.port
    except ValueError:
        raise ValueError(f"{given!r} is not the address of a server") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError(f"{given!r} is not the address of a server")
    tls = parts.scheme == "https"
    return Place(shown=given, host=parts.hostname, port=port or (443 if tls else DEFAULT_PORT), tls=tls, base=parts.path.rstrip("/"))


def key_of(api_key: Optional[str]) -> Optional[str]:
    """The key, or that of HEARTH_API_KEY; one that cannot stand in a header is refused."""
    key = api_key if api_key is not None else os.environ.get("HEARTH_API_KEY") or None
    if key is not None and not all(" " < c <= "~" for c in key):
        raise ValueError("the key contains a character that a header cannot carry")
    return key or None


def part(text: str) -> str:
    """A text as one part of a path."""
    return quote(text, safe="")


def request_bytes(place: Place, method: str, path: str, body: Any, key: Optional[str]) -> bytes:
    """A whole request; the body is JSON, None for none."""
    data = b"" if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8")
    lines = [f"{method} {place.base}{path} HTTP/1.1", f"Host: {place.header}", f"User-Agent: hearth-python/{__version__}",
             "Accept: */*", "Connection: close"]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    if body is not None:
        lines.append("Content-Type: application/json")
    if body is not None or method == "POST":
        lines.append(f"Content-Length: {len(data)}")
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + data


@dataclass
class Head:
    status: int
    headers: Dict[str, str] = field(default_factory=dict)

    @property
    def request_id(self) -> Optional[str]:
        return self.headers.get("x-request-id")

    @property
    def ignored(self) -> List[str]:
        names = self.headers.get("x-hearth-ignored", "")
        return [name.strip() for name in names.split(",") if name.strip()]

    @property
    def retry_after(self) -> Optional[float]:
        try:
            return max(0.0, float(self.headers["retry-after"]))
        except (KeyError, ValueError):
            return None


class Reader:
    """An answer, piece by piece: feed() what came, then look at `head`, take() and `over`."""

    def __init__(self) -> None:
        self.head: Optional[Head] = None
        self.over = False
        self._in = b""
        self._out: List[bytes] = []
        self._left: Optional[int] = None  # bytes until the end of the body or of the chunk; None: until the connection ends
        self._chunked = False
        self._between = False  # behind a chunk, before its line break

    def feed(self, data: bytes) -> None:
        self._in += data
        while self.head is None and self._take_head():
            pass
        if self.head is not None and not self.over:
            self._take_body()

    def eof(self) -> bool:
        """The connection has ended: whether the answer is complete."""
        if self.head is not None and not self._chunked and self._left is None:
            self.over = True
        return self.over

    def take(self) -> bytes:
        """What has come of the body since the last call."""
        data, self._out = b"".join(self._out), []
        return data

    def _take_head(self) -> bool:
        end = self._in.find(b"\r\n\r\n")
        if end < 0:
            if len(self._in) > MAX_HEAD:
                raise ProtocolError("the head of the answer does not end")
            return False
        lines = self._in[:end].decode("latin-1").split("\r\n")
        self._in = self._in[end + 4:]
        first = lines[0].split(" ", 2)
        if len(first) < 2 or not first[0].startswith("HTTP/1.") or not first[1].isdigit():
            raise ProtocolError("the answer is not HTTP")
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise ProtocolError("a header of the answer has no colon")
            headers[name.strip().lower()] = value.strip()
        status = int(first[1])
        if 100 <= status < 200:
            return True  # the real one follows
        self.head = Head(status, headers)
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        if self._chunked:
            self._left = 0
        elif "content-length" in headers:
            if not headers["content-length"].isdigit():
                raise ProtocolError("the length of the answer is not a number")
            self._left = int(headers["content-length"])
            self.over = self._left == 0
        return False

    def _take_body(self) -> None:
        if not self._chunked:
            data = self._in if self._left is None else self._in[:self._left]
            self._in = self._in[len(data):]
            self._out.append(data)
            if self._left is not None:
                self._left -= len(data)
                self.over = self._left == 0
            return
        while self._in and not self.over:
            if self._left:
                data = self._in[:self._left]
                self._in = self._in[len(data):]
                self._out.append(data)
                self._left -= len(data)
                self._between = self._left == 0
            elif not self._take_chunk_line():
                return

    def _take_chunk_line(self) -> bool:
        at = self._in.find(b"\r\n")
        if at < 0:
            if len(self._in) > 256:
                raise ProtocolError("the size of a chunk does not end")
            return False
        line, self._in = self._in[:at], self._in[at + 2:]
        if self._between:
            if line:
                raise ProtocolError("a chunk is longer than it says")
            self._between = False
            return True
        try:
            self._left = int(line.split(b";")[0], 16)
        except ValueError:
            raise ProtocolError("the size of a chunk is not a number") from None
        self.over = self._left == 0
        return True


class Lines:
    """Whole lines out of pieces of bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise ProtocolError("a line of the stream does not end")
        for line in whole:
            yield line.rstrip(b"\r").decode("utf-8", "replace")


class Events:
    """Server-sent events out of pieces of bytes: (name, data)."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._name = ""
        self._data: List[str] = []

    def feed(self, data: bytes) -> Iterator[Tuple[str, str]]:
        for line in self._lines.feed(data):
            if not line:
                if self._data:
                    yield self._name, "\n".join(self._data)
                self._name, self._data = "", []
            elif line.startswith("data:"):
                self._data.append(line[5:][1:] if line[5:].startswith(" ") else line[5:])
            elif line.startswith("event:"):
                self._name = line[6:].strip()


def parse_json(data: Any) -> Any:
    """JSON of the server."""
    try:
        return json.loads(data)
    except ValueError:
        raise ProtocolError("the answer is not JSON") from None
