# SPDX-License-Identifier: Apache-2.0
"""Bytes of a stream as events, without reading them from anywhere: answers (server-sent events) and pulls (lines of JSON)."""
from __future__ import annotations

from typing import List

from ._collect import Collector
from ._wire import Events, Head, Lines, parse_json
from .errors import ConnectError, StatusError, from_status, from_stream
from .types import Answer, Event, Progress, build


class AnswerDecoder:
    """`over` after [DONE]; `answer` is what came so far."""

    def __init__(self, head: Head):
        self.head = head
        self.over = False
        self._events = Events()
        self._all = Collector(head)

    @property
    def answer(self) -> Answer:
        return self._all.answer

    def feed(self, data: bytes) -> List[Event]:
        found: List[Event] = []
        for name, text in self._events.feed(data):
            if self.over:
                break
            if text == "[DONE]":
                self.over = True
                continue
            body = parse_json(text)
            if isinstance(body, dict) and "error" in body:
                raise from_stream(body, self.head.request_id)
            found += self._all.read(name, body)
        return found


class PullDecoder:
    """`over` after the line that says success."""

    def __init__(self, head: Head):
        self.head = head
        self.over = False
        self._lines = Lines()

    def feed(self, data: bytes) -> List[Progress]:
        found: List[Progress] = []
        for line in self._lines.feed(data):
            if not line:
                continue
            body = parse_json(line)
            if isinstance(body, dict) and "error" in body:
                raise from_stream(body, self.head.request_id)
            found.append(build(Progress, body))
            self.over = found[-1].status == "success"
        return found


def status_error(head: Head, body: bytes) -> StatusError:
    """The error of an answer that is not good, whatever its body is."""
    try:
        said = parse_json(body)
    except Exception:
        said = {"error": body[:200].decode("utf-8", "replace").strip() or None}
    return from_status(head.status, said, head.request_id, head.retry_after)


def wait_before(error: Exception, attempt: int, longest: float) -> float:
    """Seconds until a request that certainly did nothing may be sent again; negative: never.

    The two cases: nobody was reached (ConnectError), and 503 with Retry-After as the whole answer.
    """
    if isinstance(error, ConnectError):
        return min(0.1 * 2.0 ** attempt, longest)
    if not isinstance(error, StatusError) or error.status != 503 or error.retry_after is None:
        return -1.0
    return error.retry_after if error.retry_after <= longest else -1.0
