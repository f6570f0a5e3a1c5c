# SPDX-License-Identifier: Apache-2.0
"""Tools from Python functions: the JSON schema of a signature, and arguments back into the types of the signature.

A parameter's type may be str, int, float, bool, None, Any, Literal, Enum, Optional and Union, list, tuple, set and Sequence, dict
and Mapping with keys of str, a dataclass, a TypedDict, and Annotated[type, "what it is"]. Another type is a TypeError when the tool
is made: a schema that says less than the signature would let the model send what the function cannot take. The docstring is the
tool's description; an "Args:" section (or ":param name:") describes the parameters as well.
"""
from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import json
import re
import types
import typing
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Literal, Mapping, Optional, Sequence, Tuple, Union, cast

from .types import Answer, Message, ToolCall, ToolRun

Schema = Dict[str, Any]
_UNIONS: Tuple[Any, ...] = (Union, getattr(types, "UnionType", Union))  # the second is X | Y of Python 3.10
_PLAIN: Dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", None: "null"}
_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, set, frozenset, collections.abc.Set)
_MAPS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def schema_of(kind: Any) -> Schema:
    """The JSON schema of a type; a dict is taken as a schema already."""
    return dict(kind) if isinstance(kind, Mapping) else _schema(kind, ())


def _is_dataclass(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _schema(kind: Any, above: Tuple[Any, ...]) -> Schema:
    if kind is Any or kind is inspect.Parameter.empty:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if hasattr(kind, "__metadata__"):  # Annotated
        schema = _schema(args[0], above)
        texts = [m for m in kind.__metadata__ if isinstance(m, str)]
        return dict(schema, description=texts[0]) if texts else schema
    if origin is Literal:
        return {"enum": list(args)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        values = [member.value for member in kind]
        if not all(isinstance(v, (str, int, float, bool)) for v in values):
            raise TypeError(f"{kind.__name__}: the values of an Enum must be texts or numbers")
        return {"enum": values}
    if origin in _UNIONS:
        return {"anyOf": [_schema(a, above) for a in args]}
    if origin is tuple or kind is tuple:
        return _tuple_schema(args, above)
    if origin in _LISTS or kind in _LISTS:
        schema = {"type": "array", "items": _schema(args[0], above)} if args else {"type": "array"}
        unique = (origin or kind) in (set, frozenset, collections.abc.Set)
        return dict(schema, uniqueItems=True) if unique else schema
    if origin in _MAPS or kind in _MAPS:
        if args and args[0] not in (str, Any):
            raise TypeError(f"{kind}: the keys of a JSON object are texts")
        return {"type": "object", "additionalProperties": _schema(args[1], above) if args else True}
    if kind in above:
        raise TypeError(f"{kind.__name__} contains itself")
    if _is_dataclass(kind):
        required = [f.name for f in dataclasses.fields(kind) if f.init and f.default is dataclasses.MISSING
                    and f.default_factory is dataclasses.MISSING]
        names = [f.name for f in dataclasses.fields(kind) if f.init]
        return _object(kind, names, required, above + (kind,))
    if hasattr(kind, "__required_keys__"):  # a TypedDict
        return _object(kind, list(kind.__annotations__), sorted(kind.__required_keys__, key=list(kind.__annotations__).index),
                       above + (kind,))
    raise TypeError(f"{kind!r} has no JSON schema")


def _tuple_schema(args: Tuple[Any, ...], above: Tuple[Any, ...]) -> Schema:
    if not args:
        return {"type": "array"}
    if len(args) == 2 and args[1] is Ellipsis:
        return {"type": "array", "items": _schema(args[0], above)}
    return {"type": "array", "prefixItems": [_schema(a, above) for a in args], "items": False, "minItems": len(args), "maxItems": len(args)}


def _object(kind: Any, names: List[str], required: List[str], above: Tuple[Any, ...]) -> Schema:
    hints = _hints(kind)
    schema: Schema = {"type": "object", "properties": {name: _schema(_bare(hints[name]), above) for name in names},
                      "required": required, "additionalProperties": False}
    doc = _doc(kind)
    return dict(schema, description=doc) if doc else schema


def _doc(kind: Any) -> str:
    doc = kind.__doc__ or ""
    return "" if doc.startswith(f"{getattr(kind, '__name__', '')}(") else inspect.cleandoc(doc)  # a dataclass writes its own


def _bare(hint: Any) -> Any:
    """Without Required and NotRequired of a TypedDict."""
    name = getattr(typing.get_origin(hint), "_name", "")
    return typing.get_args(hint)[0] if name in ("Required", "NotRequired") else hint


def _hints(kind: Any) -> Dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception as why:  # a name that is not there, or syntax that this Python does not evaluate
        raise TypeError(f"{getattr(kind, '__name__', kind)}: its annotations cannot be read: {why}") from None


def convert(value: Any, kind: Any) -> Any:
    """A JSON value as the type that the signature asks for; ValueError if it does not fit."""
    if kind is Any or kind is inspect.Parameter.empty:
        return value
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if hasattr(kind, "__metadata__"):
        return convert(value, args[0])
    if kind in _PLAIN:
        return _plain(value, kind)
    if origin is Literal:
        if not any(value == a and isinstance(value, bool) == isinstance(a, bool) for a in args):
            raise ValueError(f"{value!r} is not one of {', '.join(map(repr, args))}")
        return value
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if origin in _UNIONS:
        for a in args:
            try:
                return convert(value, a)
            except (ValueError, TypeError):
                continue
        raise ValueError(f"{value!r} fits none of the allowed types")
    if origin is tuple or kind is tuple or origin in _LISTS or kind in _LISTS:
        return _sequence(value, origin or kind, args)
    if not isinstance(value, dict):
        raise ValueError(f"an object is needed, not {value!r}")
    if origin in _MAPS or kind in _MAPS:
        return {k: convert(v, args[1]) for k, v in value.items()} if args else value
    hints = _hints(kind)
    unknown = [k for k in value if k not in hints]
    if unknown:
        raise ValueError(f"{kind.__name__} has no member {unknown[0]!r}")
    members = {k: convert(v, _bare(hints[k])) for k, v in value.items()}
    try:
        return kind(**members)
    except TypeError as why:
        raise ValueError(str(why)) from None


def _plain(value: Any, kind: Any) -> Any:
    fits = {str: isinstance(value, str), bool: isinstance(value, bool),
            int: isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value),
            float: isinstance(value, (int, float)) and not isinstance(value, bool)}.get(kind, value is None)
    if not fits:
        raise ValueError(f"{_PLAIN[kind]} is needed, not {value!r}")
    return kind(value) if kind in (int, float) else value


def _sequence(value: Any, kind: Any, args: Tuple[Any, ...]) -> Any:
    if not isinstance(value, list):
        raise ValueError(f"a list is needed, not {value!r}")
    if kind is tuple and args and not (len(args) == 2 and args[1] is Ellipsis):
        if len(args) != len(value):
            raise ValueError(f"{len(args)} values are needed, not {len(value)}")
        return tuple(convert(v, a) for v, a in zip(value, args))
    items = [convert(v, args[0]) for v in value] if args else value
    if kind is tuple:
        return tuple(items)
    return kind(items) if kind in (set, frozenset) else set(items) if kind is collections.abc.Set else items


def _described(doc: str) -> Dict[str, str]:
    """Parameters by what the docstring says of them: an "Args:" section or ":param name:"."""
    found = {m[1]: " ".join(m[2].split()) for m in re.finditer(r"^:param (?:[\w\[\], ]+ )?(\w+):((?:.*)(?:\n[ \t]+.+)*)", doc, re.M)}
    section = re.search(r"^(?:Args|Arguments|Parameters):[ \t]*\n((?:(?:[ \t]+.*)?\n?)*)", doc, re.M)
    if section:
        body = inspect.cleandoc("\n" + section[1])
        for m in re.finditer(r"^(\w+)(?: ?\([^)]*\))?:(.*(?:\n[ \t]+.+)*)", body, re.M):
            found.setdefault(m[1], " ".join(m[2].split()))
    return found


@dataclass
class Tool:
    """A function that the model may call: what is told to the model, and what is run."""

    name: str
    description: str
    parameters: Schema
    function: Callable[..., Any]
    hints: Dict[str, Any]

    def as_dict(self) -> Dict[str, Any]:
        return {"type": "function", "function": {"name": self.name, "description": self.description, "parameters": self.parameters}}

    def bind(self, arguments: str) -> Dict[str, Any]:
        """The keyword arguments of a call; ValueError names what does not fit."""
        given = json.loads(arguments or "{}")
        if not isinstance(given, dict):
            raise ValueError("the arguments are not an object")
        bound = {}
        for name, value in given.items():
            if name not in self.hints:
                raise ValueError(f"{self.name} has no parameter {name!r}")
            try:
                bound[name] = convert(value, self.hints[name])
            except ValueError as why:
                raise ValueError(f"{name}: {why}") from None
        missing = [name for name in self.parameters["required"] if name not in bound]
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        return bound


def tool(function: Callable[..., Any], *, name: Optional[str] = None, description: Optional[str] = None) -> Tool:
    """A tool from a function, by its signature and docstring."""
    doc = inspect.getdoc(function) or ""
    called = name or getattr(function, "__name__", "")
    if not called:
        raise TypeError(f"{function!r} has no name; give one")
    hints = _hints(function)
    described = _described(doc)
    properties: Schema = {}
    required: List[str] = []
    kinds: Dict[str, Any] = {}
    for p in inspect.signature(function).parameters.values():
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise TypeError(f"{called}: {p} cannot be a parameter of a tool; each needs a name")
        kinds[p.name] = hints.get(p.name, Any)
        try:
            schema = _schema(kinds[p.name], ())
        except TypeError as why:
            raise TypeError(f"{called}, {p.name}: {why}") from None
        if p.name in described:
            schema.setdefault("description", described[p.name])
        if p.default is p.empty:
            required.append(p.name)
        properties[p.name] = schema
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Tool(called, description if description is not None else doc, parameters, function, kinds)


def as_tool(given: Any) -> Any:
    """A function becomes a Tool; a Tool or a dict stays."""
    if isinstance(given, (Tool, Mapping)):
        return given
    if callable(given):
        return tool(given)
    raise TypeError(f"{given!r} is neither a function, a Tool, nor a dict")


def as_dict(given: Any) -> Dict[str, Any]:
    """A tool in OpenAI's form."""
    made = as_tool(given)
    return made.as_dict() if isinstance(made, Tool) else dict(made)


class Loop:
    """The conversation of run_tools; asking the model and running functions is its owner's.

    A call is run only if its answer ended with `tool_calls`: what was cut off is never run. Whatever goes wrong with a call (an
    unknown name, arguments that do not fit, an exception) becomes the call's result, so that the model can do better.
    """

    def __init__(self, messages: List[Message], tools: Sequence[Any], max_rounds: int):
        if max_rounds < 1:
            raise ValueError("max_rounds is at least 1")
        self.messages = messages
        self.tools = [as_tool(t) for t in tools]
        plain = [t for t in self.tools if not isinstance(t, Tool)]
        if plain:
            raise TypeError("run_tools needs functions: a dict says nothing about what to run")
        self.by_name = {t.name: t for t in self.tools}
        if len(self.by_name) < len(self.tools):
            raise ValueError("two tools have the same name")
        self.max_rounds = max_rounds
        self.rounds = 0

    def calls(self, answer: Answer) -> List[ToolCall]:
        """The calls to run now; none: the loop is over."""
        self.rounds += 1
        self.messages.append(answer.message)
        if answer.finish_reason != "tool_calls" or self.rounds >= self.max_rounds:
            return []
        return [c for c in answer.tool_calls if c.complete]

    def exhausted(self, answer: Answer) -> bool:
        return answer.finish_reason == "tool_calls" and self.rounds >= self.max_rounds

    def find(self, call: ToolCall) -> Tool:
        if call.name not in self.by_name:
            raise ValueError(f"there is no tool {call.name!r}")
        return cast(Tool, self.by_name[call.name])

    def result(self, call: ToolCall, value: Any) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text_of(value)})

    def failure(self, call: ToolCall, why: BaseException) -> None:
        self.result(call, {"error": f"{type(why).__name__}: {why}"})


def run(ask: Callable[[List[Message], List[Any]], Answer], loop: Loop, on_call: Optional[Callable[[ToolCall], None]]) -> ToolRun:
    """The loop for blocking code; `ask` is a chat with these messages and tools."""
    while True:
        answer = ask(loop.messages, loop.tools)
        pending = loop.calls(answer)
        if not pending:
            return ToolRun(answer, loop.messages, loop.rounds, loop.exhausted(answer))
        for call in pending:
            if on_call:
                on_call(call)
            try:
                found = loop.find(call)
                loop.result(call, found.function(**found.bind(call.arguments)))
            except Exception as why:  # told to the model
                loop.failure(call, why)


def _jsonable(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)


def text_of(value: Any) -> str:
    """The result of a tool as the model reads it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_jsonable)
