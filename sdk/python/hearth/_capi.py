# SPDX-License-Identifier: Apache-2.0
"""libhearth's C API for ctypes: the structures of include/hearth.h and its functions, nothing more.

A test compiles a C program that prints every size and offset and compares them with these. Texts with a length are c_void_p,
because c_char_p would end at the first NUL.
"""
from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, Optional

SONAME = "libhearth.so.0"
UNSET = -2147483648

OK, ERR_BUSY, ERR_CANCELLED = 0, -9, -8
TASK_CHAT, TASK_COMPLETE, TASK_INFILL, TASK_EMBED, TASK_RERANK = range(5)
TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED, TOOLS_NAMED = range(4)
THINK_DEFAULT, THINK_ON, THINK_OFF = range(3)
FREE, JSON, SCHEMA, REGEX, GRAMMAR, ONE_OF = range(6)
(STARTED, PROGRESS, TOKEN, CONTENT, REASONING, TOOL_BEGIN, TOOL_ARGUMENTS, TOOL_END, EMBEDDING, DONE, FAILED, SCORE) = range(12)
FINISH = ("stop", "stop", "length", "tool_calls", "cancelled")


class hearth_error(Structure):
    _fields_ = [("code", c_int), ("text", c_char * 504)]


class hearth_model_options(Structure):
    _fields_ = [("size", c_size_t), ("context", c_int), ("threads", c_int), ("max_running", c_int), ("cache_bytes", c_uint64),
                ("cache_type", c_char_p), ("host_cache_bytes", c_uint64), ("disk_cache_dir", c_char_p), ("disk_cache_bytes", c_uint64),
                ("chat_template", c_char_p), ("cache_type_k", c_char_p), ("cache_type_v", c_char_p), ("precise_layers", c_int),
                ("speculate", c_char_p), ("draft", c_char_p), ("mmproj", c_char_p)]


class hearth_model_info(Structure):
    _fields_ = [("path", c_char_p), ("name", c_char_p), ("family", c_char_p), ("format", c_char_p), ("quantization", c_char_p),
                ("parameters", c_uint64), ("file_bytes", c_uint64), ("context", c_int), ("trained_context", c_int), ("layers", c_int),
                ("embedding_size", c_int), ("vocabulary", c_int), ("can_chat", c_int), ("can_use_tools", c_int), ("can_think", c_int),
                ("can_embed", c_int), ("can_infill", c_int), ("can_rerank", c_int), ("can_generate", c_int), ("vector_size", c_int),
                ("can_see", c_int), ("can_hear", c_int)]


class hearth_stats(Structure):
    _fields_ = [("requests", c_uint64), ("tokens_evaluated", c_uint64), ("tokens_cached", c_uint64), ("tokens_generated", c_uint64),
                ("steps", c_uint64), ("preparing", c_int), ("waiting", c_int), ("running", c_int)]


class hearth_adapter(Structure):
    _fields_ = [("path", c_char_p), ("scale", c_double)]


class hearth_picture(Structure):
    _fields_ = [("width", c_int), ("height", c_int), ("rgb", c_char_p)]


class hearth_sound(Structure):
    _fields_ = [("samples", POINTER(c_float)), ("n", c_size_t), ("rate", c_int), ("blob", c_size_t)]


class hearth_request(Structure):
    _fields_ = [("size", c_size_t), ("task", c_int),
                ("messages", c_char_p), ("tools", c_char_p), ("template_vars", c_char_p), ("continue_last", c_int),
                ("tool_choice", c_int), ("tool_name", c_char_p), ("one_tool_call", c_int), ("thinking", c_int),
                ("thinking_budget", c_int), ("effort", c_char_p),
                ("text", c_char_p), ("suffix", c_char_p), ("tokens", POINTER(c_int32)), ("n_tokens", c_size_t), ("pooling", c_int),
                ("dimensions", c_int),
                ("constraint", c_int), ("constraint_text", c_char_p),
                ("temperature", c_float), ("top_p", c_float), ("min_p", c_float), ("typical_p", c_float), ("top_k", c_int),
                ("repeat_penalty", c_float), ("frequency_penalty", c_float), ("presence_penalty", c_float), ("seed", c_int64),
                ("max_tokens", c_int), ("stop", POINTER(c_char_p)), ("n_stop", c_size_t), ("n_answers", c_int), ("priority", c_int),
                ("logprobs", c_int), ("top_logprobs", c_int), ("progress", c_int),
                ("on_event", c_void_p), ("context", c_void_p),
                ("prompt_name", c_char_p), ("prompt_side", c_int),
                ("adapters", POINTER(hearth_adapter)), ("n_adapters", c_size_t),
                ("pictures", POINTER(hearth_picture)), ("n_pictures", c_size_t), ("sounds", POINTER(hearth_sound)),
                ("n_sounds", c_size_t)]


class hearth_top(Structure):
    _fields_ = [("token", c_int32), ("logprob", c_float), ("bytes", c_void_p), ("n_bytes", c_size_t)]


class hearth_event(Structure):
    _fields_ = [("kind", c_int), ("choice", c_int), ("last", c_int), ("text", c_void_p), ("text_bytes", c_size_t),
                ("call", c_int), ("id", c_char_p), ("name", c_char_p),
                ("prompt_tokens", c_int), ("done", c_int),
                ("token", c_int32), ("logprob", c_float), ("bytes", c_void_p), ("n_bytes", c_size_t), ("top", POINTER(hearth_top)),
                ("n_top", c_int),
                ("vector", POINTER(c_float)), ("n_vector", c_int),
                ("finish", c_int), ("stop_index", c_int), ("cached_tokens", c_int), ("generated_tokens", c_int),
                ("reasoning_tokens", c_int), ("wait_seconds", c_double), ("prompt_seconds", c_double), ("generate_seconds", c_double),
                ("code", c_int), ("score", c_float)]


STRUCTURES = (hearth_error, hearth_model_options, hearth_model_info, hearth_stats, hearth_adapter, hearth_picture, hearth_sound,
              hearth_request, hearth_top, hearth_event)

_ERR = POINTER(hearth_error)
_PROTOTYPES = {
    "hearth_version": (c_char_p, []),
    "hearth_model_options_init": (None, [POINTER(hearth_model_options), c_size_t]),
    "hearth_model_open": (c_void_p, [c_char_p, POINTER(hearth_model_options), _ERR]),
    "hearth_model_free": (None, [c_void_p]),
    "hearth_model_describe": (None, [c_void_p, POINTER(hearth_model_info), c_size_t]),
    "hearth_model_stats": (None, [c_void_p, POINTER(hearth_stats), c_size_t]),
    "hearth_request_init": (None, [POINTER(hearth_request), c_size_t]),
    "hearth_submit": (c_void_p, [c_void_p, POINTER(hearth_request), _ERR]),
    "hearth_next": (POINTER(hearth_event), [c_void_p, c_int]),
    "hearth_answer_over": (c_int, [c_void_p]),
    "hearth_cancel": (None, [c_void_p]),
    "hearth_answer_free": (None, [c_void_p]),
    "hearth_tokenize": (c_int64, [c_void_p, c_char_p, c_size_t, c_int, POINTER(c_int32), c_size_t, _ERR]),
    "hearth_detokenize": (c_void_p, [c_void_p, POINTER(c_int32), c_size_t, c_int, _ERR]),
    "hearth_render": (c_void_p, [c_void_p, POINTER(hearth_request), _ERR]),
    "hearth_count": (c_int64, [c_void_p, POINTER(hearth_request), _ERR]),
    "hearth_text_free": (None, [c_void_p]),
}


def load(path: Optional[str] = None) -> Any:
    """The library: `path`, else HEARTH_LIBRARY, else where the system's linker finds it. OSError if it is not there."""
    name = path or os.environ.get("HEARTH_LIBRARY") or SONAME
    try:
        library = ctypes.CDLL(name)
    except OSError as why:
        raise OSError(f"hearth.local needs {SONAME} (make install), or its path in HEARTH_LIBRARY: {why}") from None
    for function, (result, arguments) in _PROTOTYPES.items():
        found = getattr(library, function)
        found.restype = result
        found.argtypes = arguments
    return library
