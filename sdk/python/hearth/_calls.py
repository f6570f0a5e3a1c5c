# SPDX-License-Identifier: Apache-2.0
"""Each method as a request and a reading of its answer, without sending it: shared by Client and AsyncClient.

Which paths, of the several that do the same, and why:

    chat, run_tools         /v1/chat/completions   n, tools, schemas, thoughts, log-probabilities, usage and timings in one answer;
                                                   Ollama's has no n, Anthropic's no log-probabilities and no sampling of our own
    complete                /v1/completions        n, echo, suffix, usage; the native /completion has none of them
    embed                   /v1/embeddings         as base64: the floats that the model computed, bit by bit
    rerank                  /v1/rerank             all of its names are the same
    tokenize, detokenize    /tokenize, /detokenize
    render, count           /apply-template        the only path that takes template variables; its count is that of a chat
    models.list             /v1/models             status and sizes; Ollama's /api/tags knows no status
    models.show             /api/show              template, parameters and capabilities; /v1/models/{id} has none of them
    models.load, unload     /v1/models/load, unload
    models.pull             /api/pull              progress on the same connection, and leaving stops the download
    models.copy, delete     /api/copy, /api/delete
    requests, stats, health /v1/requests, /v1/stats, /health
"""
from __future__ import annotations

import base64
import binascii
import sys
import warnings
from array import array
from dataclasses import dataclass
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from . import options as known
from . import tools as tooling
from ._collect import answer_of
from ._version import __version__
from ._wire import Head, part
from .errors import ProtocolError
from .types import (Answer, Embeddings, Health, Message, Messages, Model, ModelDetails, Piece, Rank, Ranking, RunningRequest, Stats,
                    build)

T = TypeVar("T")
Texts = Union[str, Sequence[str], Sequence[int], Sequence[Sequence[int]]]


@dataclass
class Call(Generic[T]):
    """A request, and how its answer is read. `good`: statuses that are answers; none of them is tried again."""

    method: str
    path: str
    body: Any
    read: Callable[[Any, Head], T]
    good: Tuple[int, ...] = (200,)
    text: bool = False  # the answer is not JSON


def _nothing(body: Any, head: Head) -> None:
    return None


def conversation(messages: Messages) -> List[Message]:
    """A text is a conversation with one message."""
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)


def _body(method: str, model: Optional[str], given: Mapping[str, Any], names: Sequence[str]) -> Dict[str, Any]:
    """The members of a request; None counts as not given, as it does for the server."""
    known.check(method, given, names)
    body: Dict[str, Any] = {} if model is None else {"model": model}
    body.update((name, value) for name, value in given.items() if name != "extra" and value is not None)
    return body


def _chat_members(body: Dict[str, Any]) -> None:
    if "tools" in body:
        body["tools"] = [tooling.as_dict(t) for t in body["tools"]]
    schema = body.pop("response_schema", None)
    if schema is not None:
        if "response_format" in body:
            raise TypeError("response_schema and response_format exclude each other")
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": tooling.schema_of(schema)}}


def chat_body(method: str, messages: Messages, model: Optional[str], given: Mapping[str, Any], stream: bool) -> Dict[str, Any]:
    body = _body(method, model, given, known.names_of(known.ChatOptions))
    body["messages"] = conversation(messages)
    _chat_members(body)
    return _finish(body, given, stream)


def complete_body(method: str, prompt: Texts, model: Optional[str], given: Mapping[str, Any], stream: bool) -> Dict[str, Any]:
    body = _body(method, model, given, known.names_of(known.CompleteOptions))
    body["prompt"] = prompt
    return _finish(body, given, stream)


def _finish(body: Dict[str, Any], given: Mapping[str, Any], stream: bool) -> Dict[str, Any]:
    if stream:
        body.update(stream=True, stream_options={"include_usage": True})
    body.update(given.get("extra") or {})
    return body


def chat(messages: Messages, model: Optional[str], given: Mapping[str, Any]) -> Call[Answer]:
    return Call("POST", "/v1/chat/completions", chat_body("chat", messages, model, given, False), answer_of)


def complete(prompt: Texts, model: Optional[str], given: Mapping[str, Any]) -> Call[Answer]:
    return Call("POST", "/v1/completions", complete_body("complete", prompt, model, given, False), answer_of)


def floats_of(text: Any) -> List[float]:
    """Little-endian 32-bit floats in base64."""
    try:
        values = array("f", base64.b64decode(text, validate=True))
    except (TypeError, ValueError, binascii.Error):
        raise ProtocolError("a vector is not base64") from None
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def _embeddings(body: Any, head: Head) -> Embeddings:
    rows = sorted(body["data"], key=lambda row: int(row["index"]))
    return Embeddings(vectors=[floats_of(row["embedding"]) for row in rows], model=body["model"],
                      prompt_tokens=body["usage"]["prompt_tokens"], request_id=head.request_id)


def embed(texts: Texts, model: Optional[str], dimensions: Optional[int], prompt_name: Optional[str],
          input_type: Optional[str]) -> Call[Embeddings]:
    body = _body("embed", model, {"input": texts, "dimensions": dimensions, "prompt_name": prompt_name, "input_type": input_type},
                 ("input", "dimensions", "prompt_name", "input_type"))
    body["encoding_format"] = "base64"
    return Call("POST", "/v1/embeddings", body, _embeddings)


def _ranking(body: Any, head: Head) -> Ranking:
    return Ranking(results=[Rank(r["index"], r["relevance_score"]) for r in body["results"]], model=body["model"],
                   prompt_tokens=body["usage"]["prompt_tokens"], request_id=head.request_id)


def rerank(query: str, documents: Sequence[str], model: Optional[str], top_n: Optional[int]) -> Call[Ranking]:
    body = _body("rerank", model, {"query": query, "documents": list(documents), "top_n": top_n}, ("query", "documents", "top_n"))
    return Call("POST", "/v1/rerank", body, _ranking)


def _tokenize_body(text: str, model: Optional[str], add_special: bool, parse_special: bool) -> Dict[str, Any]:
    given = {"content": text, "add_special": add_special, "parse_special": parse_special}
    return _body("tokenize", model, given, tuple(given))


def tokenize(text: str, model: Optional[str], add_special: bool, parse_special: bool) -> Call[List[int]]:
    return Call("POST", "/tokenize", _tokenize_body(text, model, add_special, parse_special), lambda body, head: list(body["tokens"]))


def pieces(text: str, model: Optional[str], add_special: bool, parse_special: bool) -> Call[List[Piece]]:
    body = dict(_tokenize_body(text, model, add_special, parse_special), with_pieces=True)
    return Call("POST", "/tokenize", body, lambda body, head: [build(Piece, t) for t in body["tokens"]])


def detokenize(tokens: Sequence[int], model: Optional[str], keep_special: bool) -> Call[str]:
    body = _body("detokenize", model, {"tokens": list(tokens), "keep_special": keep_special}, ("tokens", "keep_special"))
    return Call("POST", "/detokenize", body, lambda body, head: str(body["content"]))


def _template(method: str, messages: Messages, model: Optional[str], given: Mapping[str, Any]) -> Dict[str, Any]:
    body = _body(method, model, given, known.names_of(known.TemplateOptions))
    body["messages"] = conversation(messages)
    _chat_members(body)
    return _finish(body, given, False)


def render(messages: Messages, model: Optional[str], given: Mapping[str, Any]) -> Call[str]:
    return Call("POST", "/apply-template", _template("render", messages, model, given), lambda body, head: str(body["prompt"]))


def count(messages: Messages, model: Optional[str], given: Mapping[str, Any]) -> Call[int]:
    return Call("POST", "/apply-template", _template("count", messages, model, given), lambda body, head: int(body["prompt_tokens"]))


def models_list() -> Call[List[Model]]:
    return Call("GET", "/v1/models", None, lambda body, head: [build(Model, m) for m in body["data"]])


def models_show(name: str) -> Call[ModelDetails]:
    return Call("POST", "/api/show", {"model": name}, lambda body, head: build(ModelDetails, body))


def models_load(name: str, keep_alive: Union[float, str, None]) -> Call[None]:
    body: Dict[str, Any] = {"model": name}
    if keep_alive is not None:
        body["keep_alive"] = keep_alive
    return Call("POST", "/v1/models/load", body, _nothing)


def models_unload(name: str) -> Call[None]:
    return Call("POST", "/v1/models/unload", {"model": name}, _nothing)


def models_copy(source: str, destination: str) -> Call[None]:
    return Call("POST", "/api/copy", {"source": source, "destination": destination}, _nothing, text=True)


def models_delete(name: str) -> Call[None]:
    return Call("DELETE", "/api/delete", {"model": name}, _nothing, text=True)


def requests_list() -> Call[List[RunningRequest]]:
    return Call("GET", "/v1/requests", None, lambda body, head: [build(RunningRequest, r) for r in body["data"]])


def requests_cancel(request_id: str) -> Call[None]:
    return Call("POST", f"/v1/requests/{part(request_id)}/cancel", None, _nothing)


def stats() -> Call[Stats]:
    return Call("GET", "/v1/stats", None, lambda body, head: build(Stats, body))


def _health(body: Any, head: Head) -> Health:
    health = build(Health, body)
    if health.version.split(".")[:2] != __version__.split(".")[:2]:
        warnings.warn(f"the server has version {health.version}, this client {__version__}: what is new in one is unknown to the other",
                      stacklevel=4)
    return health


def health() -> Call[Health]:
    return Call("GET", "/health", None, _health, good=(200, 503))
