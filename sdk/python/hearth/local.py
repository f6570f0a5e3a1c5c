# SPDX-License-Identifier: Apache-2.0
"""Models in this process: libhearth through ctypes, with the methods and results of Client.

    from hearth.local import Model
    with Model("demo") as model:
        print(model.chat("What is 12 plus 30?").text)

Events are read with hearth_next: ctypes releases the interpreter's lock while it waits, and no thread of the library ever calls into
Python. A model may be used by several threads, a stream by one at a time; close() of either may come from any.
"""
from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Deque, Iterator, List, Mapping, NoReturn, Optional, Sequence, Type, Union

from . import _capi as c
from . import options as known
from . import tools as tooling
from ._calls import conversation
from ._collect import Collector
from ._localreq import LocalCompleteOptions, Request, text, tokens_of
from .errors import LocalError
from .types import Answer, Embeddings, Event, Message, Messages, Rank, Ranking, TokenLogprob, ToolCall, ToolRun

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack

    from ._localreq import LocalChatOptions, LocalRunOptions

SLICE_MS = 100  # of waiting, so that signals of the process are seen


@dataclass
class Info:
    """What a model is and can do."""

    path: str
    name: str
    family: str
    format: str
    quantization: str
    parameters: int
    file_bytes: int
    context: int
    trained_context: int
    layers: int
    embedding_size: int
    vocabulary: int
    can_chat: bool
    can_use_tools: bool
    can_think: bool
    can_embed: bool
    can_infill: bool
    can_rerank: bool
    can_generate: bool
    vector_size: int
    can_see: bool
    can_hear: bool


@dataclass
class LocalStats:
    """Totals of a model, and what it does now."""

    requests: int
    tokens_evaluated: int
    tokens_cached: int
    tokens_generated: int
    steps: int
    preparing: int
    waiting: int
    running: int


def _raise(error: c.hearth_error) -> NoReturn:
    raise LocalError(error.code, error.text.decode("utf-8", "replace"))


def _bytes_at(address: Optional[int], n: int) -> bytes:
    return ctypes.string_at(address, n) if address and n else b""


def _logprob(ev: Any, top: List[TokenLogprob]) -> TokenLogprob:
    data = _bytes_at(ev.bytes, ev.n_bytes)
    return TokenLogprob(token=data.decode("utf-8", "replace"), logprob=ev.logprob, bytes=data, top=top)


class Stream:
    """The events of an answer. Iterate over it, inside of `with`: leaving it cancels what is not over."""

    def __init__(self, model: "Model", pointer: Any, request: Request):
        self._library = model._library
        self._model = model  # must outlive its answers
        self._using = threading.Lock()  # hearth_next and free: one thread at a time
        self._handle = threading.Lock()  # hearth_cancel and free
        self._all = Collector()
        self._all.answer.model = model.name
        self._tokens: List[TokenLogprob] = []  # that made no text yet
        self._over = False
        self.vector: List[float] = []
        self.score = 0.0
        error = c.hearth_error()
        self._answer = self._library.hearth_submit(pointer, ctypes.byref(request.raw), ctypes.byref(error))
        if not self._answer:
            _raise(error)
        model._remember(self)

    @property
    def so_far(self) -> Answer:
        """What came until now."""
        return self._all.answer

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        while True:
            try:
                with self._using:
                    event = self._next()
            except BaseException:
                self.close()
                raise
            if event is not None:
                return event
            if self._over:
                self.close()
                raise StopIteration

    def _next(self) -> Optional[Event]:
        """One event of the library; None: none that is told, or none in time."""
        if not self._answer or self._over:
            self._over = True
            return None
        ev = self._library.hearth_next(self._answer, SLICE_MS)
        if not ev:
            self._over = bool(self._library.hearth_answer_over(self._answer))
            return None
        self._over = bool(ev.contents.last)
        event = self._translate(ev.contents)
        if event is not None:
            if event.kind != "progress":
                event.logprobs, self._tokens = self._tokens, []
            self._all.add(event)
        return event

    def _translate(self, ev: Any) -> Optional[Event]:
        if ev.kind == c.CONTENT or ev.kind == c.REASONING:
            kind = "content" if ev.kind == c.CONTENT else "reasoning"
            return Event(kind, choice=ev.choice, text=_bytes_at(ev.text, ev.text_bytes).decode("utf-8", "replace"))
        if ev.kind == c.STARTED:
            self.so_far.usage.prompt_tokens = ev.prompt_tokens
            return Event("started")
        if ev.kind == c.PROGRESS:
            return Event("progress", done=ev.done, total=ev.prompt_tokens)
        if ev.kind == c.TOKEN:
            self._tokens.append(_logprob(ev, [_logprob(ev.top[i], []) for i in range(ev.n_top)]))
        elif ev.kind == c.TOOL_BEGIN:
            return Event("tool_begin", choice=ev.choice, call=ev.call, id=ev.id.decode(), name=ev.name.decode())
        elif ev.kind == c.TOOL_ARGUMENTS:
            return Event("tool_arguments", choice=ev.choice, call=ev.call, text=_bytes_at(ev.text, ev.text_bytes).decode("utf-8", "replace"))
        elif ev.kind == c.TOOL_END:
            self._all.choice(ev.choice).tool_calls[ev.call].complete = True
        elif ev.kind == c.EMBEDDING:
            self.vector = ev.vector[:ev.n_vector]
        elif ev.kind == c.SCORE:
            self.score = ev.score
        elif ev.kind == c.FAILED:
            raise LocalError(ev.code, _bytes_at(ev.text, ev.text_bytes).decode("utf-8", "replace"))
        elif ev.kind == c.DONE:
            return self._done(ev)
        return None

    def _done(self, ev: Any) -> Event:
        usage, timings = self.so_far.usage, self.so_far.timings
        usage.completion_tokens += ev.generated_tokens
        usage.reasoning_tokens += ev.reasoning_tokens
        usage.cached_tokens = max(usage.cached_tokens, ev.cached_tokens)
        timings.cache_n = usage.cached_tokens
        timings.prompt_n = usage.prompt_tokens - usage.cached_tokens
        timings.prompt_ms = max(timings.prompt_ms, 1000.0 * ev.prompt_seconds)
        timings.predicted_n = usage.completion_tokens
        timings.predicted_ms = max(timings.predicted_ms, 1000.0 * ev.generate_seconds)
        return Event("done", choice=ev.choice, finish_reason=c.FINISH[ev.finish] if 0 <= ev.finish < len(c.FINISH) else "stop")

    def texts(self) -> Iterator[str]:
        """Only the pieces of the first answer's text."""
        for event in self:
            if event.kind == "content" and event.choice == 0 and event.text:
                yield event.text

    def answer(self) -> Answer:
        """Reads the rest and gives the whole answer."""
        for _ in self:
            pass
        return self.so_far

    def cancel(self) -> None:
        """The answer ends soon, with the finish_reason "cancelled"; from any thread."""
        with self._handle:
            if self._answer:
                self._library.hearth_cancel(self._answer)

    def close(self) -> None:
        """Cancels what is not over and releases it; from any thread."""
        self._release()
        self._model._forget(self)

    def _release(self) -> None:
        self.cancel()
        with self._using, self._handle:
            if self._answer:
                self._library.hearth_answer_free(self._answer)
                self._answer = None

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional["TracebackType"]) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_answer", None):
            self._release()


class Model:
    """A GGUF file, a model directory, or "demo". The options are those of hearth_model_options in include/hearth.h."""

    def __init__(self, path: Union[str, "os.PathLike[str]"] = "demo", *, context: int = 0, threads: int = 0, max_running: int = 0,
                 cache_bytes: int = 0, cache_type: Optional[str] = None, cache_type_k: Optional[str] = None,
                 cache_type_v: Optional[str] = None, precise_layers: int = 0, host_cache_bytes: int = 0,
                 disk_cache_dir: Optional[str] = None, disk_cache_bytes: int = 0, chat_template: Optional[str] = None,
                 speculate: Optional[str] = None, draft: Optional[str] = None, mmproj: Optional[str] = None,
                 library: Optional[str] = None):
        given = {k: v for k, v in locals().items() if k in {name for name, _ in c.hearth_model_options._fields_}}
        self._pointer: Optional[int] = None
        self._library = c.load(library)
        self._streams: "weakref.WeakSet[Stream]" = weakref.WeakSet()
        self._gate = threading.Condition()
        self._users = 0
        options = c.hearth_model_options()
        self._library.hearth_model_options_init(ctypes.byref(options), ctypes.sizeof(options))
        for name, value in given.items():
            if value is not None:
                setattr(options, name, text(value, name) if isinstance(value, str) else value)
        error = c.hearth_error()
        self._pointer = self._library.hearth_model_open(text(os.fspath(path), "path"), ctypes.byref(options), ctypes.byref(error))
        if not self._pointer:
            _raise(error)
        self.name = self.info().name or os.path.basename(os.fspath(path).rstrip("/"))

    @contextmanager
    def _use(self) -> Iterator[Any]:
        """The model's pointer, which stays valid inside of `with`."""
        with self._gate:
            if not self._pointer:
                raise ValueError("the model is closed")
            pointer = self._pointer
            self._users += 1
        try:
            yield pointer
        finally:
            with self._gate:
                self._users -= 1
                self._gate.notify_all()

    def close(self) -> None:
        """Ends what is under way and releases the model."""
        with self._gate:
            pointer, self._pointer = self._pointer, None
            self._gate.wait_for(lambda: self._users == 0)
            streams = list(self._streams)
        for stream in streams:
            stream.close()
        if pointer:
            self._library.hearth_model_free(pointer)

    def _remember(self, stream: Stream) -> None:
        with self._gate:
            self._streams.add(stream)

    def _forget(self, stream: Stream) -> None:
        with self._gate:
            self._streams.discard(stream)

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional["TracebackType"]) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            self.close()

    # --- answers ---

    def chat(self, messages: Messages, **options: Unpack[LocalChatOptions]) -> Answer:
        """The next message of a conversation; a text is a conversation with one message."""
        with self._chat(messages, options) as stream:
            return stream.answer()

    def chat_stream(self, messages: Messages, **options: Unpack[LocalChatOptions]) -> Stream:
        """The same, while it is written."""
        return self._chat(messages, options)

    def complete(self, prompt: Union[str, Sequence[int]], **options: Unpack[LocalCompleteOptions]) -> Answer:
        """A text goes on, without a chat template; 16 tokens unless max_tokens says otherwise, as on a server. With suffix: what
        stands between the two."""
        with self.complete_stream(prompt, **options) as stream:
            return stream.answer()

    def complete_stream(self, prompt: Union[str, Sequence[int]], **options: Unpack[LocalCompleteOptions]) -> Stream:
        """The same, while it is written."""
        request = Request(self._library, c.TASK_INFILL if options.get("suffix") is not None else c.TASK_COMPLETE)
        request.raw.max_tokens = 16
        request.put_prompt(prompt)
        request.put_options("complete", options, known.names_of(LocalCompleteOptions))
        return self._submit(request)

    def run_tools(self, messages: Messages, tools: Sequence[Any], *, max_rounds: int = 8,
                  on_call: Optional[Callable[[ToolCall], None]] = None, **options: Unpack[LocalRunOptions]) -> ToolRun:
        """Asks, runs the functions that the model calls, tells it their results, and asks again until it calls no more."""
        def ask(talk: List[Message], offered: List[Any]) -> Answer:
            with self._chat(talk, {**options, "tools": offered}) as stream:
                return stream.answer()

        return tooling.run(ask, tooling.Loop(conversation(messages), tools, max_rounds), on_call)

    # --- vectors ---

    def embed(self, texts: Union[str, Sequence[str]], *, dimensions: int = 0, prompt_name: Optional[str] = None,
              input_type: Optional[str] = None) -> Embeddings:
        """Vectors of length 1; the texts are computed together."""
        requests = []
        for one in [texts] if isinstance(texts, str) else texts:
            request = Request(self._library, c.TASK_EMBED)
            request.put_text("text", one)
            request.raw.dimensions = dimensions
            if prompt_name is not None and input_type is not None:
                raise TypeError("prompt_name and input_type exclude each other")
            if prompt_name is not None or input_type is not None:
                request.put_text("prompt_name", prompt_name or input_type or "")
                request.raw.prompt_side = 1 if input_type is not None else 0
            requests.append(request)
        done = self._all(requests)
        return Embeddings([s.vector for s in done], self.name, sum(s.so_far.usage.prompt_tokens for s in done))

    def rerank(self, query: str, documents: Sequence[str], *, top_n: Optional[int] = None) -> Ranking:
        """Documents by how well they answer the query, best first."""
        requests = []
        for document in documents:
            request = Request(self._library, c.TASK_RERANK)
            request.put_text("text", query)
            request.put_text("suffix", document)
            requests.append(request)
        done = self._all(requests)
        ranks = sorted((Rank(i, s.score) for i, s in enumerate(done)), key=lambda r: (-r.score, r.index))
        return Ranking(ranks[:top_n], self.name, sum(s.so_far.usage.prompt_tokens for s in done))

    # --- texts and tokens ---

    def tokenize(self, content: str, *, special: bool = False) -> List[int]:
        """special: with the model's begin and end tokens, and special tokens recognised by their texts."""
        data = content.encode("utf-8")
        error = c.hearth_error()
        room = len(data) + 8
        with self._use() as pointer:
            while True:
                out = (ctypes.c_int32 * room)()
                n = self._library.hearth_tokenize(pointer, data, len(data), int(special), out, room, ctypes.byref(error))
                if n < 0:
                    _raise(error)
                if n <= room:
                    return out[:n]
                room = n

    def detokenize(self, tokens: Sequence[int], *, special: bool = True) -> str:
        error = c.hearth_error()
        with self._use() as pointer:
            out = self._library.hearth_detokenize(pointer, tokens_of(tokens), len(tokens), int(special), ctypes.byref(error))
            return self._take(out, error)

    def render(self, messages: Messages, **options: Unpack[LocalChatOptions]) -> str:
        """The prompt of a chat as the model sees it."""
        request = Request(self._library, c.TASK_CHAT)
        request.put_chat(conversation(messages), options)
        error = c.hearth_error()
        with self._use() as pointer:
            return self._take(self._library.hearth_render(pointer, ctypes.byref(request.raw), ctypes.byref(error)), error)

    def count(self, messages: Messages, **options: Unpack[LocalChatOptions]) -> int:
        """How many tokens that prompt has."""
        request = Request(self._library, c.TASK_CHAT)
        request.put_chat(conversation(messages), options)
        error = c.hearth_error()
        with self._use() as pointer:
            n = self._library.hearth_count(pointer, ctypes.byref(request.raw), ctypes.byref(error))
        if n < 0:
            _raise(error)
        return int(n)

    # --- the model ---

    def info(self) -> Info:
        raw = c.hearth_model_info()
        with self._use() as pointer:
            self._library.hearth_model_describe(pointer, ctypes.byref(raw), ctypes.sizeof(raw))
            values = {name: getattr(raw, name) for name, _ in raw._fields_}
        return Info(**{k: v.decode("utf-8", "replace") if isinstance(v, bytes) else bool(v) if k.startswith("can_") else v
                       for k, v in values.items()})

    def stats(self) -> LocalStats:
        raw = c.hearth_stats()
        with self._use() as pointer:
            self._library.hearth_model_stats(pointer, ctypes.byref(raw), ctypes.sizeof(raw))
        return LocalStats(**{name: getattr(raw, name) for name, _ in raw._fields_})

    # --- inside ---

    def _chat(self, messages: Messages, options: Mapping[str, Any]) -> Stream:
        request = Request(self._library, c.TASK_CHAT)
        request.put_chat(conversation(messages), options)
        return self._submit(request)

    def _submit(self, request: Request) -> Stream:
        with self._use() as pointer:
            return Stream(self, pointer, request)

    def _all(self, requests: List[Request]) -> List[Stream]:
        """Submits all and reads all; when the queue is full, the oldest is read first."""
        waiting: Deque[Stream] = deque()
        done: List[Stream] = []
        try:
            for request in requests:
                while True:
                    try:
                        waiting.append(self._submit(request))
                        break
                    except LocalError as why:
                        if why.code != c.ERR_BUSY or not waiting:
                            raise
                        waiting[0].answer()
                        done.append(waiting.popleft())
            while waiting:
                waiting[0].answer()
                done.append(waiting.popleft())
        finally:
            for stream in waiting:
                stream.close()
        return done

    def _take(self, out: Optional[int], error: c.hearth_error) -> str:
        """A text that the library allocated."""
        if not out:
            _raise(error)
        try:
            return ctypes.string_at(out).decode("utf-8", "replace")
        finally:
            self._library.hearth_text_free(out)
