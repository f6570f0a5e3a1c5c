# SPDX-License-Identifier: Apache-2.0
"""What the methods return: plain dataclasses, the same ones for a server and for hearth.local.

A newer server may say more than these classes know: `raw` of those that mirror one JSON object has all of it.
"""
from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Type, TypeVar, Union, cast

from .errors import ProtocolError

Message = Dict[str, Any]
Messages = Union[str, List[Message]]

T = TypeVar("T")


def build(cls: Type[T], data: Any, **more: Any) -> T:
    """An instance from the members of a JSON object that the class knows; what is absent keeps its default."""
    if not isinstance(data, Mapping):
        raise ProtocolError(f"{cls.__name__}: an object was expected")
    names = {f.name for f in dataclasses.fields(cast(Any, cls))}
    known = {k: v for k, v in data.items() if k in names and k != "raw" and k not in more}
    if "raw" in names:
        known["raw"] = dict(data)
    try:
        return cls(**known, **more)
    except TypeError as why:
        raise ProtocolError(f"{cls.__name__}: {why}") from None


@dataclass
class Usage:
    """Tokens of an answer."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass
class Timings:
    """Where the time went, in milliseconds; `draft_n` tokens were guessed ahead, `draft_n_accepted` of them rightly."""

    cache_n: int = 0
    prompt_n: int = 0
    prompt_ms: float = 0.0
    predicted_n: int = 0
    predicted_ms: float = 0.0
    draft_n: int = 0
    draft_n_accepted: int = 0

    @property
    def predicted_per_second(self) -> float:
        return 1000.0 * self.predicted_n / self.predicted_ms if self.predicted_ms else 0.0


@dataclass
class TokenLogprob:
    """A token of the answer; `bytes` is None where the path does not tell them, `top` has its likeliest rivals."""

    token: str
    logprob: float
    bytes: Optional[bytes] = None
    top: List["TokenLogprob"] = field(default_factory=list)


@dataclass
class ToolCall:
    """A call that the model wrote. `arguments` is JSON text (of a custom tool: its input). Without `complete` the answer was
    cut off, and the call must not be run."""

    id: str
    name: str
    arguments: str = ""
    type: str = "function"
    complete: bool = False

    def parsed(self) -> Any:
        """The arguments as Python values; ValueError if they are not JSON."""
        return json.loads(self.arguments)

    def as_dict(self) -> Dict[str, Any]:
        if self.type == "custom":
            return {"id": self.id, "type": "custom", "custom": {"name": self.name, "input": self.arguments}}
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass
class Choice:
    """One of the answers to a request. `finish_reason`: stop, length, tool_calls; cancelled in hearth.local."""

    index: int = 0
    text: str = ""
    reasoning: str = ""
    tool_calls: List[ToolCall] = field(default_factory=list)
    finish_reason: Optional[str] = None
    logprobs: List[TokenLogprob] = field(default_factory=list)

    @property
    def message(self) -> Message:
        """The answer as a message, to be appended to the conversation; without calls that were cut off, which nobody can answer."""
        said: Message = {"role": "assistant", "content": self.text}
        if self.reasoning:
            said["reasoning_content"] = self.reasoning
        calls = [call.as_dict() for call in self.tool_calls if call.complete]
        if calls:
            said["tool_calls"] = calls
        return said


@dataclass
class Answer:
    """The answer to a chat or a completion. `text`, `reasoning`, `tool_calls`, `finish_reason` and `message` are those of the
    first choice. `ignored` names parameters that had no effect (the server's X-Hearth-Ignored)."""

    id: str = ""
    model: str = ""
    choices: List[Choice] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    timings: Timings = field(default_factory=Timings)
    request_id: Optional[str] = None
    ignored: List[str] = field(default_factory=list)

    @property
    def first(self) -> Choice:
        return self.choices[0] if self.choices else Choice()

    @property
    def text(self) -> str:
        return self.first.text

    @property
    def reasoning(self) -> str:
        return self.first.reasoning

    @property
    def tool_calls(self) -> List[ToolCall]:
        return self.first.tool_calls

    @property
    def finish_reason(self) -> Optional[str]:
        return self.first.finish_reason

    @property
    def message(self) -> Message:
        return self.first.message

    def json(self) -> Any:
        """The text as Python values, for answers that fit a schema; ValueError if it is not JSON (it was cut off)."""
        return json.loads(self.text)


@dataclass
class Event:
    """A piece of a stream. What `kind` fills:

    started           id of the answer
    progress          done of total prompt tokens, cached of which were known
    content           text, logprobs
    reasoning         text, logprobs
    tool_begin        call (which one, from 0), id, name, type
    tool_arguments    call, text
    done              finish_reason: the last event of a choice; logprobs that belong to no text
    """

    kind: str
    choice: int = 0
    text: str = ""
    call: int = 0
    id: str = ""
    name: str = ""
    type: str = "function"
    done: int = 0
    total: int = 0
    cached: int = 0
    finish_reason: Optional[str] = None
    logprobs: List[TokenLogprob] = field(default_factory=list)


@dataclass
class Embeddings:
    """One vector per text, in the order of the texts."""

    vectors: List[List[float]]
    model: str = ""
    prompt_tokens: int = 0
    request_id: Optional[str] = None


@dataclass
class Rank:
    """A document by its place in the list that was sent."""

    index: int
    score: float


@dataclass
class Ranking:
    """The documents, best first."""

    results: List[Rank]
    model: str = ""
    prompt_tokens: int = 0
    request_id: Optional[str] = None


@dataclass
class Piece:
    """A token and its text."""

    id: int
    piece: str


@dataclass
class Model:
    """A model that the server offers. `meta` (family, n_ctx, ...) is known after the model was opened once."""

    id: str
    status: str = ""
    created: int = 0
    parent: Optional[str] = None
    input_modalities: List[str] = field(default_factory=list)
    meta: Dict[str, Any] = field(default_factory=dict)
    raw: Dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class ModelDetails:
    """A model's description: template, settings, and what it can do."""

    capabilities: List[str] = field(default_factory=list)
    details: Dict[str, Any] = field(default_factory=dict)
    model_info: Dict[str, Any] = field(default_factory=dict)
    template: str = ""
    parameters: str = ""
    system: str = ""
    messages: List[Message] = field(default_factory=list)
    license: str = ""
    modelfile: str = ""
    modified_at: str = ""
    raw: Dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Progress:
    """A step of a pull; `completed` of `total` bytes of the file `digest`."""

    status: str = ""
    digest: str = ""
    total: int = 0
    completed: int = 0


@dataclass
class RunningRequest:
    """A request that the server is working on."""

    id: str
    api: str = ""
    path: str = ""
    state: str = ""
    model: Optional[str] = None
    key: Optional[str] = None
    sequences: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    age_seconds: float = 0.0
    raw: Dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Health:
    """`status`: ok, loading or draining."""

    status: str
    version: str = ""
    uptime_seconds: float = 0.0
    models: Dict[str, int] = field(default_factory=dict)
    requests: Dict[str, int] = field(default_factory=dict)
    memory: Dict[str, int] = field(default_factory=dict)
    raw: Dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Stats:
    """Totals since the server started, and what is in memory now; `raw` has everything."""

    uptime_seconds: float = 0.0
    connections: int = 0
    requests: int = 0
    running: int = 0
    waiting: int = 0
    paused: int = 0
    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    tokens_generated: int = 0
    resident_bytes: int = 0
    models: List[Dict[str, Any]] = field(default_factory=list)
    raw: Dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class ToolRun:
    """What run_tools did. `messages` is the whole conversation with the last answer; `exhausted`: max_rounds was reached while
    the model still called tools, and the calls of the last answer were not run."""

    answer: Answer
    messages: List[Message]
    rounds: int
    exhausted: bool = False

    @property
    def text(self) -> str:
        return self.answer.text
