# SPDX-License-Identifier: Apache-2.0
"""Answers of /v1/chat/completions and /v1/completions as our own dataclasses: whole ones, and the chunks of a stream as events
that add up to the same."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

from ._wire import Head
from .errors import ProtocolError
from .types import Answer, Choice, Event, Timings, TokenLogprob, ToolCall, Usage, build


# What reading JSON of another form than expected raises.
WRONG_FORM = (KeyError, TypeError, IndexError, AttributeError, ValueError)


def usage_of(data: Any) -> Usage:
    if not isinstance(data, dict):
        return Usage()
    prompt, completion = data.get("prompt_tokens_details") or {}, data.get("completion_tokens_details") or {}
    return Usage(prompt_tokens=data.get("prompt_tokens", 0), completion_tokens=data.get("completion_tokens", 0),
                 cached_tokens=prompt.get("cached_tokens", 0), reasoning_tokens=completion.get("reasoning_tokens", 0))


def timings_of(data: Any) -> Timings:
    return build(Timings, data) if isinstance(data, dict) else Timings()


def _chat_logprob(data: Dict[str, Any]) -> TokenLogprob:
    return TokenLogprob(token=data["token"], logprob=data["logprob"], bytes=bytes(list(data["bytes"])),
                        top=[_chat_logprob(t) for t in data.get("top_logprobs", [])])


def logprobs_of(data: Any) -> List[TokenLogprob]:
    """Both forms: chats have a list of tokens, completions have lists side by side."""
    if not isinstance(data, dict):
        return []
    if "content" in data:
        return [_chat_logprob(t) for t in data["content"] or []]
    tops = data.get("top_logprobs") or [None] * len(data["tokens"])
    return [TokenLogprob(token=token, logprob=logprob,
                         top=[TokenLogprob(token=t, logprob=p) for t, p in (top or {}).items()])
            for token, logprob, top in zip(data["tokens"], data["token_logprobs"], tops)]


def call_of(data: Dict[str, Any], complete: bool) -> ToolCall:
    if data.get("type") == "custom":
        return ToolCall(id=data["id"], name=data["custom"]["name"], arguments=data["custom"]["input"], type="custom", complete=complete)
    function = data["function"]
    return ToolCall(id=data["id"], name=function["name"], arguments=function["arguments"], complete=complete)


def _choice_of(data: Dict[str, Any]) -> Choice:
    message = data.get("message") or {"content": data.get("text")}
    finish = data.get("finish_reason")
    return Choice(index=data["index"], text=message.get("content") or "", reasoning=message.get("reasoning_content") or "",
                  tool_calls=[call_of(c, finish == "tool_calls") for c in message.get("tool_calls") or []],
                  finish_reason=finish, logprobs=logprobs_of(data.get("logprobs")))


def answer_of(data: Any, head: Head) -> Answer:
    """A whole answer."""
    try:
        choices = [_choice_of(c) for c in data["choices"]]
        return Answer(id=data["id"], model=data["model"], choices=choices, usage=usage_of(data.get("usage")),
                      timings=timings_of(data.get("timings")), request_id=head.request_id, ignored=head.ignored)
    except WRONG_FORM as why:
        raise ProtocolError(f"the answer has another form than expected ({why!r})") from None


class Collector:
    """Chunks in, events out; `answer` is what came so far."""

    def __init__(self, head: Optional[Head] = None) -> None:
        self.answer = Answer(request_id=head.request_id if head else None, ignored=head.ignored if head else [])

    def choice(self, index: int) -> Choice:
        if not 0 <= index < 4096:
            raise ProtocolError("the number of a choice is out of range")
        while len(self.answer.choices) <= index:
            self.answer.choices.append(Choice(index=len(self.answer.choices)))
        return self.answer.choices[index]

    def add(self, event: Event) -> None:
        """Adds what an event says to the answer."""
        choice = self.choice(event.choice)
        choice.logprobs.extend(event.logprobs)
        if event.kind == "content":
            choice.text += event.text
        elif event.kind == "reasoning":
            choice.reasoning += event.text
        elif event.kind == "tool_begin":
            choice.tool_calls.append(ToolCall(id=event.id, name=event.name, type=event.type))
        elif event.kind == "tool_arguments":
            choice.tool_calls[event.call].arguments += event.text
        elif event.kind == "done":
            choice.finish_reason = event.finish_reason
            if event.finish_reason == "tool_calls":
                for call in choice.tool_calls:
                    call.complete = True

    def read(self, name: str, data: Any) -> List[Event]:
        """One event of a stream, by its name: a chunk of the answer, or the progress of its prompt."""
        try:
            if name == "prefill_progress":
                return [Event("progress", done=data["processed"], total=data["total"], cached=data["cached"])]
            events = self._chunk(data)
            for event in events:
                self.add(event)
            return events
        except WRONG_FORM as why:
            raise ProtocolError(f"a piece of the answer has another form than expected ({why!r})") from None

    def _chunk(self, data: Dict[str, Any]) -> List[Event]:
        events: List[Event] = []
        if not self.answer.id:
            self.answer.id, self.answer.model = data["id"], data["model"]
            events.append(Event("started", id=self.answer.id))
        if data.get("usage"):
            self.answer.usage = usage_of(data["usage"])
        if data.get("timings"):
            self.answer.timings = timings_of(data["timings"])
        for choice in data["choices"]:
            events += self._delta(choice)
        return events

    def _delta(self, data: Dict[str, Any]) -> List[Event]:
        at, events = data["index"], []
        delta = data.get("delta") or {"content": data.get("text")}
        if delta.get("reasoning_content"):
            events.append(Event("reasoning", choice=at, text=delta["reasoning_content"]))
        if delta.get("content"):
            events.append(Event("content", choice=at, text=delta["content"]))
        for call in delta.get("tool_calls") or []:
            said = call.get("function") or call["custom"]
            if "id" in call:
                events.append(Event("tool_begin", choice=at, call=call["index"], id=call["id"], name=said["name"],
                                    type=call.get("type", "function")))
            text = said.get("arguments") or said.get("input")
            if text:
                events.append(Event("tool_arguments", choice=at, call=call["index"], text=text))
        if data.get("finish_reason"):
            events.append(Event("done", choice=at, finish_reason=data["finish_reason"]))
        logprobs = logprobs_of(data.get("logprobs"))
        if logprobs:
            if not events:  # tokens that made no text, such as markers
                events.append(Event("content", choice=at))
            events[0].logprobs = logprobs
        return events
