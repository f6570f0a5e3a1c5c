# SPDX-License-Identifier: Apache-2.0
"""The options of hearth.local as a hearth_request. They have the names of the server's; what libhearth does not have is a TypeError."""
from __future__ import annotations

import ctypes
import json
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from . import _capi as c
from . import options as known
from . import tools as tooling
from .media import Picture, Sound
from .types import Message


class LocalOptions(TypedDict, total=False):
    """Of chats and completions."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repeat_penalty: float
    frequency_penalty: float
    presence_penalty: float
    seed: int
    max_tokens: int
    n: int
    stop: Union[str, List[str]]
    priority: int
    json_schema: Union[Dict[str, Any], bool]
    regex: str
    grammar: str
    guided_choice: List[str]
    logprobs: bool
    top_logprobs: int
    return_progress: bool
    adapters: Sequence[Tuple[str, float]]  # path and scale


class LocalRunOptions(LocalOptions, total=False):
    """Of chats, except for the tools."""

    response_schema: Any
    response_format: Dict[str, Any]
    tool_choice: Union[str, Dict[str, Any]]
    parallel_tool_calls: bool
    thinking_budget: int
    enable_thinking: bool
    reasoning_effort: str
    chat_template_kwargs: Dict[str, Any]
    continue_final_message: bool


class LocalChatOptions(LocalRunOptions, total=False):
    """Of chats only."""

    tools: Sequence[Any]


class LocalCompleteOptions(LocalOptions, total=False):
    """Of completions only."""

    suffix: str


_NUMBERS = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "frequency_penalty", "presence_penalty", "seed",
            "max_tokens", "priority", "top_logprobs", "thinking_budget")
_FLAGS = {"logprobs": "logprobs", "return_progress": "progress", "continue_final_message": "continue_last"}
_INTS = {name for name, kind in c.hearth_request._fields_ if kind in (ctypes.c_int, ctypes.c_int64)}


def text(value: str, what: str) -> bytes:
    """A text for C."""
    if "\0" in value:
        raise ValueError(f"{what}: the text contains a NUL")
    return value.encode("utf-8")


def tokens_of(values: Sequence[int]) -> Any:
    try:
        return (ctypes.c_int32 * len(values))(*values)
    except TypeError:
        raise TypeError("tokens are integers") from None


class Request:
    """A hearth_request, with everything that it points at."""

    def __init__(self, library: Any, task: int):
        self.raw = c.hearth_request()
        self._keep: List[Any] = []
        library.hearth_request_init(ctypes.byref(self.raw), ctypes.sizeof(self.raw))
        self.raw.task = task

    def put_text(self, name: str, value: str) -> None:
        setattr(self.raw, name, text(value, name))  # ctypes keeps the bytes alive

    def put_json(self, name: str, value: Any) -> None:
        self.put_text(name, json.dumps(value, ensure_ascii=False, allow_nan=False))

    def put_tokens(self, values: Sequence[int]) -> None:
        array = tokens_of(values)
        self._keep.append(array)
        self.raw.tokens = ctypes.cast(array, ctypes.POINTER(ctypes.c_int32))
        self.raw.n_tokens = len(values)

    def put_prompt(self, prompt: Union[str, Sequence[int]]) -> None:
        if isinstance(prompt, str):
            self.put_text("text", prompt)
        elif all(isinstance(t, int) for t in prompt):
            self.put_tokens(prompt)
        else:
            raise TypeError("one text, or the tokens of one")

    def put_chat(self, messages: List[Message], given: Mapping[str, Any]) -> None:
        self.put_json("messages", self._take_media(messages))
        self.put_options("chat", given, known.names_of(LocalChatOptions))

    def _take_media(self, messages: List[Message]) -> List[Message]:
        """The messages with numbers in place of their pictures and sounds, which go into the request beside them."""
        pictures: List[c.hearth_picture] = []
        sounds: List[c.hearth_sound] = []

        def numbered(part: Any) -> Any:
            kind = part.get("type") if isinstance(part, dict) else None
            blob = len(pictures) + len(sounds)
            if kind == "image" and "image" in part:
                picture = Picture.of(part["image"])
                pictures.append(c.hearth_picture(picture.width, picture.height, picture.rgb))
            elif kind == "audio" and "audio" in part:
                sound = Sound.of(part["audio"])
                samples = (ctypes.c_float * len(sound.samples)).from_buffer_copy(sound.samples)
                self._keep.append(samples)
                sounds.append(c.hearth_sound(ctypes.cast(samples, ctypes.POINTER(ctypes.c_float)), len(sound.samples), sound.rate, blob))
            else:
                return part
            return {**{k: v for k, v in part.items() if k != kind}, "blob": blob}

        told = [{**m, "content": [numbered(p) for p in m["content"]]} if isinstance(m.get("content"), list) else m for m in messages]
        if pictures:
            self.raw.pictures = (c.hearth_picture * len(pictures))(*pictures)
            self.raw.n_pictures = len(pictures)
        if sounds:
            self.raw.sounds = (c.hearth_sound * len(sounds))(*sounds)
            self.raw.n_sounds = len(sounds)
        self._keep += [pictures, sounds]
        return told

    def put_options(self, method: str, given: Mapping[str, Any], names: List[str]) -> None:
        """Everything that the caller chose; each name has exactly one place here."""
        known.check(method, given, names)
        for name, value in given.items():
            if value is not None:
                self._put(name, value)

    def _put(self, name: str, value: Any) -> None:
        if name in _NUMBERS:
            setattr(self.raw, name, int(value) if name in _INTS else float(value))
        elif name in _FLAGS:
            setattr(self.raw, _FLAGS[name], 1 if value else 0)
        else:
            _PLACES[name](self, value)

    def _n(self, value: int) -> None:
        self.raw.n_answers = value

    def _stop(self, value: Union[str, Sequence[str]]) -> None:
        texts = [text(t, "stop") for t in ([value] if isinstance(value, str) else value)]
        array = (ctypes.c_char_p * len(texts))(*texts)
        self._keep.append(array)
        self.raw.stop = ctypes.cast(array, ctypes.POINTER(ctypes.c_char_p))
        self.raw.n_stop = len(texts)

    def _adapters(self, value: Sequence[Tuple[str, float]]) -> None:
        array = (c.hearth_adapter * len(value))(*[c.hearth_adapter(text(path, "adapters"), scale) for path, scale in value])
        self._keep.append(array)
        self.raw.adapters = ctypes.cast(array, ctypes.POINTER(c.hearth_adapter))
        self.raw.n_adapters = len(value)

    def _tools(self, value: Sequence[Any]) -> None:
        if value:
            self.put_json("tools", [tooling.as_dict(t) for t in value])

    def _tool_choice(self, value: Union[str, Dict[str, Any]]) -> None:
        words = {"auto": c.TOOLS_AUTO, "none": c.TOOLS_NONE, "required": c.TOOLS_REQUIRED, "any": c.TOOLS_REQUIRED}
        if isinstance(value, str):
            if value not in words:
                raise ValueError(f"tool_choice: {value!r} is not auto, none or required")
            self.raw.tool_choice = words[value]
        else:
            self.raw.tool_choice = c.TOOLS_NAMED
            self.put_text("tool_name", value["function"]["name"])

    def _parallel(self, value: bool) -> None:
        self.raw.one_tool_call = 0 if value else 1

    def _thinking(self, value: bool) -> None:
        self.raw.thinking = c.THINK_ON if value else c.THINK_OFF

    def _constraint(self, kind: int, value: Optional[str]) -> None:
        if self.raw.constraint != c.FREE:
            raise TypeError("an answer can have one shape: two of response_schema, response_format, json_schema, regex, grammar and "
                            "guided_choice were given")
        self.raw.constraint = kind
        if value is not None:
            self.put_text("constraint_text", value)

    def _schema(self, value: Any) -> None:
        self._constraint(c.SCHEMA, json.dumps(value if isinstance(value, bool) else tooling.schema_of(value)))

    def _format(self, value: Dict[str, Any]) -> None:
        kind = value.get("type")
        schema = (value.get("json_schema") or {}).get("schema", value.get("schema"))
        if schema is not None and kind in ("json_schema", "json_object"):
            self._schema(schema)
        elif kind == "json_object":
            self._constraint(c.JSON, None)
        elif kind != "text":
            raise ValueError(f"response_format: {value!r} is not text, json_object or json_schema with a schema")


_PLACES: Dict[str, Callable[[Request, Any], None]] = {
    "n": Request._n, "stop": Request._stop, "adapters": Request._adapters, "tools": Request._tools,
    "tool_choice": Request._tool_choice, "parallel_tool_calls": Request._parallel, "enable_thinking": Request._thinking,
    "json_schema": Request._schema, "response_schema": Request._schema, "response_format": Request._format,
    "regex": lambda q, v: q._constraint(c.REGEX, v),
    "grammar": lambda q, v: q._constraint(c.GRAMMAR, v),
    "guided_choice": lambda q, v: q._constraint(c.ONE_OF, json.dumps(list(v), ensure_ascii=False)),
    "reasoning_effort": lambda q, v: q.put_text("effort", v),
    "chat_template_kwargs": lambda q, v: q.put_json("template_vars", v),
    "suffix": lambda q, v: q.put_text("suffix", v),
}
