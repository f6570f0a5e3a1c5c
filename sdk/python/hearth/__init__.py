# SPDX-License-Identifier: Apache-2.0
"""Hearth from Python: Client and AsyncClient for a server, hearth.local for models in this process. Nothing but the standard library.

    from hearth import Client
    print(Client(model="demo").chat("What is 12 plus 30?").text)
"""
from . import errors, media, types
from ._version import __version__
from .aio import AsyncClient, AsyncPullStream, AsyncStream
from .client import Client, PullStream, Stream
from .errors import (AuthenticationError, BadRequest, Cancelled, ConnectError, ConnectionLost, HearthError, LocalError, NotFound,
                     NotOffered, PermissionDenied, ProtocolError, RateLimited, ServerError, StatusError, StreamFailed, TimedOut,
                     TooLarge, Unavailable)
from .tools import Tool, schema_of, tool
from .types import Answer, Choice, Event, ToolCall, ToolRun

__all__ = [
    "Answer", "AsyncClient", "AsyncPullStream", "AsyncStream", "AuthenticationError", "BadRequest", "Cancelled", "Choice", "Client",
    "ConnectError", "ConnectionLost", "Event", "HearthError", "LocalError", "NotFound", "NotOffered", "PermissionDenied",
    "ProtocolError", "PullStream", "RateLimited", "ServerError", "StatusError", "Stream", "StreamFailed", "TimedOut", "TooLarge",
    "Tool", "ToolCall", "ToolRun", "Unavailable", "__version__", "errors", "media", "schema_of", "tool", "types",
]
