# SPDX-License-Identifier: Apache-2.0
"""AsyncClient: the methods of Client for asyncio. A task that is cancelled takes its request with it."""
from __future__ import annotations

import asyncio
import copy
import inspect
import ssl
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Generic, List, Optional, Sequence, Type, TypeVar, Union

from . import _calls as calls
from ._calls import Call, Texts
from ._collect import WRONG_FORM
from ._streams import AnswerDecoder, PullDecoder, status_error, wait_before
from ._wire import Head, Place, Reader, key_of, parse_json, place_of, request_bytes
from .errors import ConnectError, ConnectionLost, HearthError, ProtocolError, TimedOut
from .tools import Loop
from .types import (Answer, Embeddings, Event, Health, Messages, Model, ModelDetails, Piece, Progress, Ranking, RunningRequest, Stats,
                    ToolCall, ToolRun)

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack

    from .options import ChatOptions, CompleteOptions, RunOptions, TemplateOptions

T = TypeVar("T")
E = TypeVar("E", Event, Progress)
S = TypeVar("S", bound="_BaseStream[Any]")


class _Connection:
    """A connection with one request and its answer; open() it first."""

    def __init__(self, place: Place, timeout: Optional[float]):
        self.place = place
        self.reader = Reader()
        self._timeout = timeout
        self._in: Any = None
        self._out: Any = None

    async def open(self, connect_timeout: Optional[float], tls: Optional[ssl.SSLContext]) -> None:
        opening: Awaitable[Any]
        if self.place.socket:
            opening = asyncio.open_unix_connection(self.place.socket)
        elif self.place.tls:
            opening = asyncio.open_connection(self.place.host, self.place.port, ssl=tls or ssl.create_default_context())
        else:
            opening = asyncio.open_connection(self.place.host, self.place.port)
        try:
            self._in, self._out = await asyncio.wait_for(opening, connect_timeout)
        except (OSError, asyncio.TimeoutError) as why:
            raise ConnectError(f"no server answers at {self.place.shown}: {why or 'it took too long'}") from why

    def close(self) -> None:
        if self._out is not None:
            self._out.transport.abort()
            self._out = None

    async def send(self, data: bytes) -> None:
        try:
            self._out.write(data)
            await asyncio.wait_for(self._out.drain(), self._timeout)
        except asyncio.TimeoutError:
            raise TimedOut(f"{self.place.shown} did not read the request in time") from None
        except OSError:
            pass  # the server may have answered before it closed; the reader finds out

    async def more(self) -> None:
        """Reads once."""
        try:
            data = await asyncio.wait_for(self._in.read(65536), self._timeout)
        except asyncio.TimeoutError:
            raise TimedOut(f"{self.place.shown} did not answer in time") from None
        except OSError as why:
            raise ConnectionLost(f"the connection to {self.place.shown} was lost: {why}") from None
        if data:
            self.reader.feed(data)
        elif not self.reader.eof():
            raise ConnectionLost(f"{self.place.shown} closed the connection in the middle of an answer")

    async def head(self) -> Head:
        while self.reader.head is None:
            await self.more()
        return self.reader.head

    async def body(self) -> bytes:
        parts = [self.reader.take()]
        while not self.reader.over:
            await self.more()
            parts.append(self.reader.take())
        return b"".join(parts)


class _BaseStream(Generic[E]):
    """Iterate over it, inside of `async with`: leaving it closes the connection, and the server ends the work.

    The request is sent when the stream is entered, or awaited, or iterated for the first time.
    """

    def __init__(self, opening: Callable[[], Awaitable[_Connection]], decoder: Callable[[Head], Any]):
        self._opening = opening
        self._make = decoder
        self._connection: Optional[_Connection] = None
        self._decoder: Any = None
        self._ready: List[E] = []
        self._closed = False

    async def _open(self) -> None:
        if self._connection is None and not self._closed:
            self._connection = await self._opening()
            self._decoder = self._make(await self._connection.head())

    @property
    def request_id(self) -> Optional[str]:
        """The server's name for this request, as in requests.list(); None until it was sent."""
        head: Optional[Head] = self._decoder.head if self._decoder else None
        return head.request_id if head else None

    def __aiter__(self: S) -> S:
        return self

    async def __anext__(self) -> E:
        while not self._ready:
            await self._open()
            if self._closed or self._decoder.over:
                self.close()
                raise StopAsyncIteration
            try:
                await self._read()
            except BaseException as why:
                self.close()
                if isinstance(why, HearthError):
                    why.request_id = self.request_id
                raise
        return self._ready.pop(0)

    async def _read(self) -> None:
        assert self._connection is not None
        reader = self._connection.reader
        data = reader.take()
        if not data:
            if reader.over:
                raise ConnectionLost("the stream ended before its last event")
            await self._connection.more()
            data = reader.take()
        self._ready += self._decoder.feed(data)

    def close(self) -> None:
        """Ends the request."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    async def __aenter__(self: S) -> S:
        await self._open()
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                        trace: Optional["TracebackType"]) -> None:
        self.close()


class AsyncStream(_BaseStream[Event]):
    """The events of an answer while it is written."""

    @property
    def so_far(self) -> Answer:
        """What came until now."""
        answer: Answer = self._decoder.answer if self._decoder else Answer()
        return answer

    async def texts(self) -> AsyncIterator[str]:
        """Only the pieces of the first answer's text."""
        async for event in self:
            if event.kind == "content" and event.choice == 0 and event.text:
                yield event.text

    async def answer(self) -> Answer:
        """Reads the rest and gives the whole answer."""
        async for _ in self:
            pass
        return self.so_far


class AsyncPullStream(_BaseStream[Progress]):
    """The steps of a pull."""

    async def wait(self) -> None:
        """Until the model is here."""
        async for _ in self:
            pass


class AsyncModels:
    """The models of a server: client.models."""

    def __init__(self, client: "AsyncClient"):
        self._client = client

    async def list(self) -> List[Model]:
        return await self._client._do(calls.models_list())

    async def show(self, name: str) -> ModelDetails:
        return await self._client._do(calls.models_show(name))

    async def load(self, name: str, *, keep_alive: Union[float, str, None] = None) -> None:
        """keep_alive: seconds, or a duration such as "10m"; negative: forever."""
        await self._client._do(calls.models_load(name, keep_alive))

    async def unload(self, name: str) -> None:
        await self._client._do(calls.models_unload(name))

    def pull(self, name: str) -> AsyncPullStream:
        """Downloads a model. Iterate for its progress, or await wait(); leaving it stops the download, which a later pull goes on."""
        return AsyncPullStream(lambda: self._client._open("POST", "/api/pull", {"model": name, "stream": True}, (200,)), PullDecoder)

    async def copy(self, source: str, destination: str) -> None:
        await self._client._do(calls.models_copy(source, destination))

    async def delete(self, name: str) -> None:
        await self._client._do(calls.models_delete(name))


class AsyncRequests:
    """What the server is working on: client.requests."""

    def __init__(self, client: "AsyncClient"):
        self._client = client

    async def list(self) -> List[RunningRequest]:
        return await self._client._do(calls.requests_list())

    async def cancel(self, request_id: str) -> None:
        await self._client._do(calls.requests_cancel(request_id))


class AsyncClient:
    """A server, for asyncio; the parameters are those of Client."""

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

    def with_timeout(self, timeout: Optional[float]) -> "AsyncClient":
        """The same client with another timeout."""
        other = copy.copy(self)
        other._timeout = timeout
        return other

    @property
    def models(self) -> AsyncModels:
        return AsyncModels(self)

    @property
    def requests(self) -> AsyncRequests:
        return AsyncRequests(self)

    # --- answers ---

    async def chat(self, messages: Messages, *, model: Optional[str] = None, **options: Unpack[ChatOptions]) -> Answer:
        """The next message of a conversation; a text is a conversation with one message."""
        return await self._do(calls.chat(messages, model or self._model, options))

    def chat_stream(self, messages: Messages, *, model: Optional[str] = None, **options: Unpack[ChatOptions]) -> AsyncStream:
        """The same, while it is written."""
        return self._stream("/v1/chat/completions", calls.chat_body("chat_stream", messages, model or self._model, options, True))

    async def complete(self, prompt: Texts, *, model: Optional[str] = None, **options: Unpack[CompleteOptions]) -> Answer:
        """A text goes on, without a chat template, for 16 tokens unless max_tokens says otherwise. Several texts: choice k of text i has
        the index i * n + k."""
        return await self._do(calls.complete(prompt, model or self._model, options))

    def complete_stream(self, prompt: Texts, *, model: Optional[str] = None, **options: Unpack[CompleteOptions]) -> AsyncStream:
        """The same, while it is written."""
        return self._stream("/v1/completions", calls.complete_body("complete_stream", prompt, model or self._model, options, True))

    async def run_tools(self, messages: Messages, tools: Sequence[Any], *, max_rounds: int = 8, model: Optional[str] = None,
                        on_call: Optional[Callable[[ToolCall], None]] = None, **options: Unpack[RunOptions]) -> ToolRun:
        """Asks, runs the functions that the model calls (coroutines are awaited), tells it their results, and asks again until it
        calls no more."""
        loop = Loop(calls.conversation(messages), tools, max_rounds)
        while True:
            answer = await self._do(calls.chat(loop.messages, model or self._model, {**options, "tools": loop.tools}))
            pending = loop.calls(answer)
            if not pending:
                return ToolRun(answer, loop.messages, loop.rounds, loop.exhausted(answer))
            for call in pending:
                if on_call:
                    on_call(call)
                try:
                    found = loop.find(call)
                    value = found.function(**found.bind(call.arguments))
                    loop.result(call, await value if inspect.isawaitable(value) else value)
                except Exception as why:  # told to the model
                    loop.failure(call, why)

    # --- texts and vectors ---

    async def embed(self, texts: Texts, *, model: Optional[str] = None, dimensions: Optional[int] = None,
                    prompt_name: Optional[str] = None, input_type: Optional[str] = None) -> Embeddings:
        """Vectors of length 1. input_type: "query" or "document", for models that have prompts for the sides of a search."""
        return await self._do(calls.embed(texts, model or self._model, dimensions, prompt_name, input_type))

    async def rerank(self, query: str, documents: Sequence[str], *, model: Optional[str] = None, top_n: Optional[int] = None) -> Ranking:
        """Documents by how well they answer the query."""
        return await self._do(calls.rerank(query, documents, model or self._model, top_n))

    async def tokenize(self, text: str, *, model: Optional[str] = None, add_special: bool = False,
                       parse_special: bool = True) -> List[int]:
        return await self._do(calls.tokenize(text, model or self._model, add_special, parse_special))

    async def pieces(self, text: str, *, model: Optional[str] = None, add_special: bool = False, parse_special: bool = True) -> List[Piece]:
        """As tokenize, with the text of each token."""
        return await self._do(calls.pieces(text, model or self._model, add_special, parse_special))

    async def detokenize(self, tokens: Sequence[int], *, model: Optional[str] = None, keep_special: bool = True) -> str:
        return await self._do(calls.detokenize(tokens, model or self._model, keep_special))

    async def render(self, messages: Messages, *, model: Optional[str] = None, **options: Unpack[TemplateOptions]) -> str:
        """The prompt of a chat as the model sees it; takes tools and the options of the template."""
        return await self._do(calls.render(messages, model or self._model, options))

    async def count(self, messages: Messages, *, model: Optional[str] = None, **options: Unpack[TemplateOptions]) -> int:
        """How many tokens that prompt has, pictures included."""
        return await self._do(calls.count(messages, model or self._model, options))

    # --- the server ---

    async def health(self) -> Health:
        """Also of a server that is not ready; warns if its version is another one."""
        return await self._do(calls.health())

    async def stats(self) -> Stats:
        return await self._do(calls.stats())

    # --- sending ---

    async def _do(self, call: "Call[T]") -> T:
        connection = await self._open(call.method, call.path, call.body, call.good)
        try:
            head = await connection.head()
            body = await connection.body()
        except HearthError as why:
            why.request_id = connection.reader.head.request_id if connection.reader.head else None
            raise
        finally:
            connection.close()
        try:
            return call.read(body if call.text else parse_json(body), head)
        except WRONG_FORM as why:
            raise ProtocolError(f"{call.path}: the answer has another form than expected ({why!r})") from None

    def _stream(self, path: str, body: Any) -> AsyncStream:
        return AsyncStream(lambda: self._open("POST", path, body, (200,)), AnswerDecoder)

    async def _open(self, method: str, path: str, body: Any, good: Sequence[int]) -> _Connection:
        """Sends a request until its head is here and good."""
        data = request_bytes(self._place, method, path, body, self._key)
        attempt = 0
        while True:
            try:
                return await self._try(data, good)
            except HearthError as why:
                wait = wait_before(why, attempt, self._max_wait)
                if wait < 0 or attempt >= self._retries:
                    raise
            await asyncio.sleep(wait)
            attempt += 1

    async def _try(self, data: bytes, good: Sequence[int]) -> _Connection:
        connection = _Connection(self._place, self._timeout)
        try:
            await connection.open(self._connect_timeout, self._tls)
            await connection.send(data)
            head = await connection.head()
            if head.status in good:
                return connection
            raise status_error(head, await connection.body())
        except BaseException:
            connection.close()
            raise
