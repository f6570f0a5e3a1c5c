# SPDX-License-Identifier: Apache-2.0
"""Conversations as the chat template writes them: one place that knows the format, used by generator and evaluation."""
import json

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>",
           "<tool_response>", "</tool_response>"]

# The same rules as a Jinja template, shipped in tokenizer_config.json and in the GGUF. test_template.py compares the two.
CHAT_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- 'You may call these tools:\\n' }}
    {%- for tool in tools %}
        {{- (tool.function if tool.function is defined else tool) | tojson }}
        {{- '\\n' }}
    {%- endfor %}
    {{- 'To call one, answer with <tool_call>{"name": ..., "arguments": {...}}</tool_call>.<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- if not loop.first %}
            {{- '<|im_start|>system\\n' + message.content + '<|im_end|>\\n' }}
        {%- endif %}
    {%- elif message.role == 'user' %}
        {{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}
        {%- if message.content %}
            {%- set content = message.content %}
            {%- if '</think>' in content %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
            {{- content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- set function = call.function if call.function is defined else call %}
            {{- '<tool_call>\\n{"name": "' + function.name + '", "arguments": ' }}
            {{- function.arguments if function.arguments is string else function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
            {%- if not loop.last %}{{- '\\n' }}{%- endif %}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- else %}
        {{- raise_exception('unknown role ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is not defined or not enable_thinking %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""


def call_text(call):
    return '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % (
        call["name"], json.dumps(call["arguments"], ensure_ascii=False))


def render(messages, tools=None, thinking=False):
    """[(text, learn)]: what the model reads and what it must say. The generation prompt before each answer is read."""
    parts = []
    start = 0
    if tools:
        text = "<|im_start|>system\n"
        if messages[0]["role"] == "system":
            text += messages[0]["content"] + "\n\n"
            start = 1
        text += "You may call these tools:\n"
        for tool in tools:
            text += json.dumps(tool, ensure_ascii=False) + "\n"
        text += 'To call one, answer with <tool_call>{"name": ..., "arguments": {...}}</tool_call>.<|im_end|>\n'
        parts.append((text, False))
    last = max((i for i, m in enumerate(messages) if m["role"] == "assistant"), default=-1)
    for i in range(start, len(messages)):
        m = messages[i]
        if m["role"] in ("system", "user"):
            parts.append(("<|im_start|>%s\n%s<|im_end|>\n" % (m["role"], m["content"]), False))
        elif m["role"] == "tool":
            first = i == 0 or messages[i - 1]["role"] != "tool"
            final = i + 1 == len(messages) or messages[i + 1]["role"] != "tool"
            parts.append((("<|im_start|>user" if first else "") + "\n<tool_response>\n" + m["content"]
                          + "\n</tool_response>" + ("<|im_end|>\n" if final else ""), False))
        else:
            answer = m.get("content") or ""
            answer += "\n".join(call_text(c) for c in m.get("tool_calls", []))
            # Earlier answers stand in the history with an empty thinking block, exactly as they were generated when thinking
            # is off: the next turn then begins with the very tokens of this one, and an engine need not read them again.
            if i == last:
                prompt = "<|im_start|>assistant\n" + ("" if thinking else "<think>\n\n</think>\n\n")
                thought = "<think>\n%s\n</think>\n\n" % m["think"] if thinking else ""
                parts.append((prompt, False))
                parts.append((thought + answer + "<|im_end|>\n", True))
            else:
                parts.append(("<|im_start|>assistant\n<think>\n\n</think>\n\n" + answer + "<|im_end|>\n", False))
    return parts
