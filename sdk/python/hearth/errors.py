# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, one class per kind of failure.

    HearthError
      ConnectError          no server answers there; nothing was sent
      TimedOut              no byte came for as long as the client waits
      ConnectionLost        the connection ended in the middle of an answer
      ProtocolError         what came is not an answer of Hearth
      StreamFailed          the server ended a stream with an error
      StatusError           an answer with a status that is not good
        BadRequest 400      AuthenticationError 401   PermissionDenied 403   NotFound 404   TooLarge 413
        RateLimited 429     Cancelled 499             ServerError 5xx        NotOffered 501   Unavailable 503
      LocalError            hearth.local: a hearth_code of libhearth
"""
from __future__ import annotations

from typing import Any, Dict, Optional, Type


class HearthError(Exception):
    """Every error of this package. `request_id` is the server's name for the request, where one was given."""

    request_id: Optional[str] = None


class ConnectError(HearthError):
    """No server answers there."""


class TimedOut(HearthError):
    """No byte came in time."""


class ConnectionLost(HearthError):
    """The connection ended before the answer was complete."""


class ProtocolError(HearthError):
    """What came is not HTTP, or not the JSON that was expected."""


class _Told(HearthError):
    """An error that the server describes."""

    def __init__(self, message: str, *, code: Optional[str] = None, param: Optional[str] = None, type: Optional[str] = None,
                 request_id: Optional[str] = None):
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param
        self.type = type
        self.request_id = request_id


class StreamFailed(_Told):
    """The answer had begun, and the server ended it with an error."""


class StatusError(_Told):
    """An answer with an error status: `status`, `code`, `param`, `message`, `request_id`, `retry_after` in seconds."""

    def __init__(self, status: int, message: str, *, code: Optional[str] = None, param: Optional[str] = None,
                 type: Optional[str] = None, request_id: Optional[str] = None, retry_after: Optional[float] = None):
        super().__init__(message, code=code, param=param, type=type, request_id=request_id)
        self.status = status
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.status}: {self.message}"


class BadRequest(StatusError):
    """400 and other mistakes of the request; `param` is the JSON path of the wrong member, where there is one."""


class AuthenticationError(StatusError):
    """401: the key is missing or unknown."""


class PermissionDenied(StatusError):
    """403"""


class NotFound(StatusError):
    """404: no such model, request or path."""


class TooLarge(StatusError):
    """413: the body is larger than the server accepts."""


class RateLimited(StatusError):
    """429: the key has reached its limit; `retry_after` says for how long."""


class Cancelled(StatusError):
    """499: somebody cancelled the request at the server."""


class ServerError(StatusError):
    """5xx"""


class NotOffered(ServerError):
    """501: this server does not do that."""


class Unavailable(ServerError):
    """503: overloaded, loading or ending."""


class LocalError(HearthError):
    """An error of libhearth; `code` is the hearth_code (negative)."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


_CLASSES: Dict[int, Type[StatusError]] = {
    401: AuthenticationError, 403: PermissionDenied, 404: NotFound, 413: TooLarge, 429: RateLimited,
    499: Cancelled,
    501: NotOffered, 503: Unavailable,
}


def _text(value: Any) -> Optional[str]:
    return value if isinstance(value, str) else None


def told(body: Any) -> Dict[str, Optional[str]]:
    """Message, code, param and type of an error body in OpenAI's form ({"error": {...}}) or Ollama's ({"error": ...})."""
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return {name: _text(error.get(name)) for name in ("message", "code", "param", "type")}
    return {"message": _text(error), "code": None, "param": None, "type": None}


def from_status(status: int, body: Any, request_id: Optional[str], retry_after: Optional[float]) -> StatusError:
    """The error for an answer with this status."""
    kind = _CLASSES.get(status, ServerError if status >= 500 else BadRequest)
    said = told(body)
    return kind(status, said["message"] or "the server gave no reason", code=said["code"], param=said["param"], type=said["type"],
                request_id=request_id, retry_after=retry_after)


def from_stream(body: Any, request_id: Optional[str]) -> StreamFailed:
    """The error for an error object inside a stream."""
    said = told(body)
    return StreamFailed(said["message"] or "the server gave no reason", code=said["code"], param=said["param"], type=said["type"],
                        request_id=request_id)
