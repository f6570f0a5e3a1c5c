# SPDX-License-Identifier: Apache-2.0
"""Client: a Hearth server from blocking code. Threads may share one; each request has a connection of its own."""
from __future__ import annotations

import copy
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any, Callable, Generic, Iterator, List, Optional, Sequence, Type, TypeVar, Union

from . import _calls as calls
from . import tools as tooling
from ._calls import Call, Texts
from ._collect import WRONG_FORM
from ._streams import AnswerDecoder, PullDecoder, status_error, wait_before
from ._wire import Head, Place, Reader, key_of, parse_json, place_of, request_bytes
from .errors import ConnectError, ConnectionLost, HearthError, ProtocolError, TimedOut
from .types import (Answer, Embeddings, Event, Health, Message, Messages, Model, ModelDetails, Piece, Progress, Ranking, RunningRequest, Stats,
                    ToolCall, ToolRun)

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack

    from .options import ChatOptions, CompleteOptions, RunOptions, TemplateOptions

T = TypeVar("T")
E = TypeVar("E", Event, Progress)
S = TypeVar("S", bound="_BaseStream[Any]")


class _Connection:
    """A socket with one request and its answer. Every failure of the system becomes one of our errors."""

    def __init__(self, place: Place, connect_timeout: Optional[float], timeout: Optional[float], tls: Optional[ssl.SSLContext]):
        self.place = place
        self.reader = Reader()
        raw: Optional[socket.socket] = None
        try:
            if place.socket:
                raw = socket.socket(socket.AF_UNIX)
                raw.settimeout(connect_timeout)
                raw.connect(place.socket)
            else:
                raw = socket.create_connection((place.host, place.port), connect_timeout)
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock = (tls or ssl.create_default_context()).wrap_socket(raw, server_hostname=place.host) if place.tls else raw
            self.sock.settimeout(timeout)
        except BaseException as why:
            if raw is not None:
                raw.close()
            if isinstance(why, OSError):
                raise ConnectError(f"no server answers at {place.shown}: {why}") from why
            raise

    def close(self) -> None:
        try:
            self.sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
        except OSError:
            pass
        self.sock.close()

    def send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except socket.timeout:
            raise TimedOut(f"{self.place.shown} did not read the request in time") from None
        except OSError:
            pass  # the server may have answered before it closed; the reader finds out

    def more(self) -> None:
        """Reads once."""
        try:
            data = self.sock.recv(65536)
        except socket.timeout:
            raise TimedOut(f"{self.place.shown} did not answer in time") from None
        except (OSError, ValueError) as why:
            raise ConnectionLost(f"the connection to {self.place.shown} was lost: {why}") from None
        if data:
            self.reader.feed(data)
        elif not self.reader.eof():
            raise ConnectionLost(f"{self.place.shown} closed the connection in the middle of an answer")

    def head(self) -> Head:
        while self.reader.head is None:
            self.more()
        return self.reader.head

    def body(self) -> bytes:
        parts = [self.reader.take()]
        while not self.reader.over:
            self.more()
            parts.append(self.reader.take())
        return b"".join(parts)


class _BaseStream(Generic[E]):
    """Iterate over it, inside of `with`: leaving it closes the connection, and the server ends the work."""

    def __init__(self, connection: _Connection, decoder: Any):
        self._connection = connection
        self._decoder = decoder
        self._ready: List[E] = []
        self._closed = False

    @property
    def request_id(self) -> Optional[str]:
        """The server's name for this request, as in requests.list()."""
        head: Head = self._decoder.head
        return head.request_id

    def __iter__(self) -> Iterator[E]:
        return self

    def __next__(self) -> E:
        while not self._ready:
            if self._closed or self._decoder.over:
                self.close()
                raise StopIteration
            try:
                self._read()
            except BaseException as why:
                closed = self._closed
                self.close()
                if isinstance(why, HearthError):
                    if closed:  # by another thread
                        raise StopIteration from None
                    why.request_id = self.request_id
                raise
        return self._ready.pop(0)

    def _read(self) -> None:
        reader = self._connection.reader
        data = reader.take()
        if not data:
            if reader.over:
                raise ConnectionLost("the stream ended before its last event")
            self._connection.more()
            data = reader.take()
        self._ready += self._decoder.feed(data)

    def close(self) -> None:
        """Ends the request; also from another thread."""
        if not self._closed:
            self._closed = True
            self._connection.close()

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional["TracebackType"]) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self.close()


class Stream(_BaseStream[Event]):
    """The events of an answer while it is written."""

    @property
    def so_far(self) -> Answer:
        """What came until now."""
        answer: Answer = self._decoder.answer
        return answer

    def texts(self) -> Iterator[str]:
        """Only the pieces of the first answer's text."""
        for event in self:
            if event.kind == "content" and event.choice == 0 and event.text:
                yield event.text

    def answer(self) -> Answer:
        """Reads the rest and gives the whole answer, as the method without a stream would."""
        for _ in self:
            pass
        return self.so_far


class PullStream(_BaseStream[Progress]):
    """The steps of a pull."""

    def wait(self) -> None:
        """Until the model is here."""
        for _ in self:
            pass


class Models:
    """The models of a server: client.models."""

    def __init__(self, client: "Client"):
        self._client = client

    def list(self) -> List[Model]:
        return self._client._do(calls.models_list())

    def show(self, name: str) -> ModelDetails:
        return self._client._do(calls.models_show(name))

    def load(self, name: str, *, keep_alive: Union[float, str, None] = None) -> None:
        """keep_alive: seconds, or a duration such as "10m"; negative: forever."""
        self._client._do(calls.models_load(name, keep_alive))

    def unload(self, name: str) -> None:
        self._client._do(calls.models_unload(name))

    def pull(self, name: str) -> PullStream:
        """Downloads a model. Iterate for its progress, or call wait(); leaving it stops the download, which a later pull goes on."""
        connection = self._client._open("POST", "/api/pull", {"model": name, "stream": True}, (200,))
        return PullStream(connection, PullDecoder(connection.head()))

    def copy(self, source: str, destination: str) -> None:
        self._client._do(calls.models_copy(source, destination))

    def delete(self, name: str) -> None:
        self._client._do(calls.models_delete(name))


class Requests:
    """What the server is working on: client.requests."""

    def __init__(self, client: "Client"):
        self._client = client

    def list(self) -> List[RunningRequest]:
        return self._client._do(calls.requests_list())

    def cancel(self, request_id: str) -> None:
        self._client._do(calls.requests_cancel(request_id))


class Client:
    """A server.

    url              http://, https:// or unix:/path/of/the/socket; else HEARTH_HOST, else http://127.0.0.1:11434
    api_key          else HEARTH_API_KEY
    model            for calls that name none
    timeout          seconds without a byte from the server until TimedOut; None: as long as it takes
    connect_timeout  seconds to reach it
    retries          how often a request is sent again that certainly did nothing: nobody was reached, or the whole answer was 503
                     with Retry-After (of at most max_wait seconds)
    tls              an ssl.SSLContext, for https with a certificate that the system does not know
    """

    def __init__(self, url: Optional[str] = None, *, api_key: Optional[str] = None, model: Optional[str] = None,
                 timeout: Optional[float] = 600.0, connect_timeout: Optional[float] = 10.0, retries: int = 2, max_wait: float = 10.0,
                 tls: Optional[ssl.SSLContext] = None):
        self._place = place_of(url)
        self._key = key_of(api_key)
        self._model = model
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._retries = retries
        self._max_wait = max_wait
        self._tls = tls

    def with_timeout(self, timeout: Optional[float]) -> "Client":
        """The same client with another timeout."""
        other = copy.copy(self)
        other._timeout = timeout
        return other

    @property
    def models(self) -> Models:
        return Models(self)

    @property
    def requests(self) -> Requests:
        return Requests(self)

    # --- answers ---

    def chat(self, messages: Messages, *, model: Optional[str] = None, **options: Unpack[ChatOptions]) -> Answer:
        """The next message of a conversation; a text is a conversation with one message."""
        return self._do(calls.chat(messages, model or self._model, options))

    def chat_stream(self, messages: Messages, *, model: Optional[str] = None, **options: Unpack[ChatOptions]) -> Stream:
        """The same, while it is written."""
        return self._stream("/v1/chat/completions", calls.chat_body("chat_stream", messages, model or self._model, options, True))

    def complete(self, prompt: Texts, *, model: Optional[str] = None, **options: Unpack[CompleteOptions]) -> Answer:
        """A text goes on, without a chat template, for 16 tokens unless max_tokens says otherwise. Several texts: choice k of text i has
        the index i * n + k."""
        return self._do(calls.complete(prompt, model or self._model, options))

    def complete_stream(self, prompt: Texts, *, model: Optional[str] = None, **options: Unpack[CompleteOptions]) -> Stream:
        """The same, while it is written."""
        return self._stream("/v1/completions", calls.complete_body("complete_stream", prompt, model or self._model, options, True))

    def run_tools(self, messages: Messages, tools: Sequence[Any], *, max_rounds: int = 8, model: Optional[str] = None,
                  on_call: Optional[Callable[[ToolCall], None]] = None, **options: Unpack[RunOptions]) -> ToolRun:
        """Asks, runs the functions that the model calls, tells it their results, and asks again until it calls no more."""
        def ask(conversation: List[Message], offered: List[Any]) -> Answer:
            return self._do(calls.chat(conversation, model or self._model, {**options, "tools": offered}))

        return tooling.run(ask, tooling.Loop(calls.conversation(messages), tools, max_rounds), on_call)

    # --- texts and vectors ---

    def embed(self, texts: Texts, *, model: Optional[str] = None, dimensions: Optional[int] = None, prompt_name: Optional[str] = None,
              input_type: Optional[str] = None) -> Embeddings:
        """Vectors of length 1. input_type: "query" or "document", for models that have prompts for the sides of a search."""
        return self._do(calls.embed(texts, model or self._model, dimensions, prompt_name, input_type))

    def rerank(self, query: str, documents: Sequence[str], *, model: Optional[str] = None, top_n: Optional[int] = None) -> Ranking:
        """Documents by how well they answer the query."""
        return self._do(calls.rerank(query, documents, model or self._model, top_n))

    def tokenize(self, text: str, *, model: Optional[str] = None, add_special: bool = False, parse_special: bool = True) -> List[int]:
        return self._do(calls.tokenize(text, model or self._model, add_special, parse_special))

    def pieces(self, text: str, *, model: Optional[str] = None, add_special: bool = False, parse_special: bool = True) -> List[Piece]:
        """As tokenize, with the text of each token."""
        return self._do(calls.pieces(text, model or self._model, add_special, parse_special))

    def detokenize(self, tokens: Sequence[int], *, model: Optional[str] = None, keep_special: bool = True) -> str:
        return self._do(calls.detokenize(tokens, model or self._model, keep_special))

    def render(self, messages: Messages, *, model: Optional[str] = None, **options: Unpack[TemplateOptions]) -> str:
        """The prompt of a chat as the model sees it; takes tools and the options of the template."""
        return self._do(calls.render(messages, model or self._model, options))

    def count(self, messages: Messages, *, model: Optional[str] = None, **options: Unpack[TemplateOptions]) -> int:
        """How many tokens that prompt has, pictures included."""
        return self._do(calls.count(messages, model or self._model, options))

    # --- the server ---

    def health(self) -> Health:
        """Also of a server that is not ready; warns if its version is another one."""
        return self._do(calls.health())

    def stats(self) -> Stats:
        return self._do(calls.stats())

    # --- sending ---

    def _do(self, call: "Call[T]") -> T:
        connection = self._open(call.method, call.path, call.body, call.good)
        try:
            head = connection.head()
            body = connection.body()
        except HearthError as why:
            why.request_id = connection.reader.head.request_id if connection.reader.head else None
            raise
        finally:
            connection.close()
        try:
            return call.read(body if call.text else parse_json(body), head)
        except WRONG_FORM as why:
            raise ProtocolError(f"{call.path}: the answer has another form than expected ({why!r})") from None

    def _stream(self, path: str, body: Any) -> Stream:
        connection = self._open("POST", path, body, (200,))
        return Stream(connection, AnswerDecoder(connection.head()))

    def _open(self, method: str, path: str, body: Any, good: Sequence[int]) -> _Connection:
        """Sends a request until its head is here and good."""
        data = request_bytes(self._place, method, path, body, self._key)
        attempt = 0
        while True:
            try:
                return self._try(data, good)
            except HearthError as why:
                wait = wait_before(why, attempt, self._max_wait)
                if wait < 0 or attempt >= self._retries:
                    raise
            time.sleep(wait)
            attempt += 1

    def _try(self, data: bytes, good: Sequence[int]) -> _Connection:
        connection = _Connection(self._place, self._connect_timeout, self._timeout, self._tls)
        try:
            connection.send(data)
            head = connection.head()
            if head.status in good:
                return connection
            raise status_error(head, connection.body())
        except BaseException:
            connection.close()
            raise
