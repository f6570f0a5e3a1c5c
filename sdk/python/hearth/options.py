# SPDX-License-Identifier: Apache-2.0
"""The parameters of requests, by the names that the server gives them (docs/openapi.yaml has what they mean).

They are keyword arguments of chat, complete and their streams. A name that is not in these lists is a TypeError and is never
sent; `extra` takes members for a newer server. A test compares the lists with the API description.
"""
from __future__ import annotations

import difflib
from typing import Any, Dict, Iterable, List, Mapping, Sequence, TypedDict, Union


class SamplingOptions(TypedDict, total=False):
    """How an answer is drawn, and what it costs the others."""

    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    repeat_penalty: float
    repeat_last_n: int
    frequency_penalty: float
    presence_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: List[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    seed: int
    logit_bias: Mapping[str, float]
    samplers: List[str]
    lora: List[Dict[str, Any]]
    cache_prompt: bool
    speculative: Dict[str, Any]
    ignore_eos: bool
    priority: int
    min_tokens: int
    max_tokens: int
    n: int
    stop: Union[str, List[str]]
    grammar: str
    regex: str
    json_schema: Union[Dict[str, Any], bool]
    guided_choice: List[str]
    strict_json: bool
    return_progress: bool


class PromptOptions(TypedDict, total=False):
    """What the chat template makes of a conversation, except for the tools."""

    tool_choice: Union[str, Dict[str, Any]]
    parallel_tool_calls: bool
    enable_thinking: bool
    reasoning_effort: str
    chat_template_kwargs: Dict[str, Any]
    continue_final_message: bool
    add_generation_prompt: bool


class TemplateOptions(PromptOptions, total=False):
    """Of render and count."""

    tools: Sequence[Any]  # functions, hearth.Tool, or dicts in OpenAI's form
    extra: Mapping[str, Any]


class RunOptions(SamplingOptions, PromptOptions, total=False):
    """Of run_tools, which has the tools as an argument of their own."""

    response_schema: Any  # a JSON schema, or a type as tools take them (a dataclass, a TypedDict)
    response_format: Dict[str, Any]
    logprobs: bool
    top_logprobs: int
    thinking_budget: int
    prediction: Dict[str, Any]
    extra: Mapping[str, Any]


class ChatOptions(RunOptions, total=False):
    """Of chats."""

    tools: Sequence[Any]


class CompleteOptions(SamplingOptions, total=False):
    """Of completions."""

    suffix: str
    best_of: int
    echo: bool
    logprobs: int
    extra: Mapping[str, Any]


def names_of(*kinds: Any) -> List[str]:
    """The names of these lists of options, those that they inherit included."""
    return [name for kind in kinds for name in kind.__annotations__]


def check(method: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuses a name that the method does not know."""
    names = list(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{method}() has no parameter {name!r}{hint}")
