# SPDX-License-Identifier: Apache-2.0
"""A model that says what a script says, so that a coding agent's whole loop can be run without a model that can code.

The weights are a chain: every piece of a script is a token of its own, and a token's embedding points at the next one. A
template counts the results of tools that the conversation has and ends the prompt with the token of that step, from which
the chain begins. Everything else is real: the template renders all messages and tools, the tokenizer is the demo model's,
calls are held to the grammar of the tools that the client sent.

    scripted.write(path, ['<tool_call>...</tool_call>', 'Done.'])    # step 0, step 1 (and all later ones)

A request without tools (a title, a summary) gets the last step.
"""
import random
import struct
from array import array
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "models/demo/demo.gguf"
WIDTH, CONTEXT = 64, 1 << 18
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
TEMPLATE = """{%- if tools %}<|im_start|>system
# Tools

You may call one or more functions. Their signatures:
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools>

For each call return a JSON object within tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}{%- set ns = namespace(step=0) %}{%- for m in messages %}
{%- if m.role == 'tool' %}{% set ns.step = ns.step + 1 %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if not tools or ns.step > LAST %}<|step-LAST|>{% else %}<|step-{{ ns.step }}|>{% endif %}{% endif %}"""


class Reader:
    def __init__(self, path):
        self.data, self.at = Path(path).read_bytes(), 0

    def take(self, form):
        value, = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        n = self.take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, n = self.take("<I"), self.take("<Q")
            return inner, [self.value(inner) for _ in range(n)]
        return self.take(SCALARS[kind])


def metadata(path):
    """{key: (kind, value)} of a GGUF file; an array's value is (kind, list)."""
    r = Reader(path)
    assert r.data[:4] == b"GGUF"
    r.at = 8
    _, n = r.take("<Q"), r.take("<Q")
    out = {}
    for _ in range(n):
        key = r.text()
        kind = r.take("<I")
        out[key] = (kind, r.value(kind))
    return out


def encode(kind, value):
    if kind == 8:
        b = value.encode()
        return struct.pack("<Q", len(b)) + b
    if kind == 9:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(encode(inner, v) for v in items)
    return struct.pack(SCALARS[kind], value)


def byte_names():
    """The printable names that GPT-2's vocabularies have for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, extra = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in names:
            names[b] = chr(256 + extra)
            extra += 1
    return names


def cut(text, taken):
    """Pieces that no vocabulary has and no other script."""
    names, data, at, pieces = byte_names(), text.encode(), 0, []
    while at < len(data):
        n = 9
        while True:
            piece = "".join(names[b] for b in data[at:at + n])
            if piece not in taken or at + n >= len(data):
                break
            n += 1
        if piece in taken:  # the end of the text: with what stood before it
            assert pieces, f"{text!r} is too short or said twice"
            last = pieces.pop()
            taken.discard(last)
            piece = last + piece
        assert piece not in taken, f"{text!r} ends like another script"
        taken.add(piece)
        pieces.append(piece)
        at += n
    return pieces


def write(path, steps):
    meta = metadata(DEMO)
    tokens, types = list(meta["tokenizer.ggml.tokens"][1][1]), list(meta["tokenizer.ggml.token_type"][1][1])
    eos = meta["tokenizer.ggml.eos_token_id"][1]
    taken, follows = set(tokens), {}
    for i, text in enumerate(steps):
        chain = [len(tokens)]
        tokens.append(f"<|step-{i}|>")
        types.append(3)
        for piece in cut(text, taken):
            chain.append(len(tokens))
            tokens.append(piece)
            types.append(1)
        follows.update(zip(chain, chain[1:] + [eos]))
    chosen = random.Random(1)
    embd, head = array("f", bytes(4 * WIDTH * len(tokens))), array("f", bytes(4 * WIDTH * len(tokens)))
    for token in range(len(tokens)):
        row = [chosen.gauss(0, 1) for _ in range(WIDTH)]
        embd[token * WIDTH:(token + 1) * WIDTH] = array("f", row)
        if token in follows:
            norm = sum(v * v for v in row) ** 0.5
            for k, v in enumerate(row):
                head[follows[token] * WIDTH + k] += 20 * v / norm
    one, zero = array("f", [1.0] * WIDTH), array("f", bytes(4 * WIDTH * WIDTH))
    half = array("f", bytes(2 * WIDTH * WIDTH))
    tensors = {"token_embd.weight": ([WIDTH, len(tokens)], embd), "output.weight": ([WIDTH, len(tokens)], head),
               "output_norm.weight": ([WIDTH], one), "blk.0.attn_norm.weight": ([WIDTH], one), "blk.0.ffn_norm.weight": ([WIDTH], one)}
    for name in ("attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        tensors[f"blk.0.{name}.weight"] = ([WIDTH, WIDTH], zero)
    for name in ("attn_k", "attn_v"):
        tensors[f"blk.0.{name}.weight"] = ([WIDTH, WIDTH // 2], half)
    keep = {k: v for k, v in meta.items() if k.startswith("tokenizer.") and k != "tokenizer.ggml.scores"}
    keep["tokenizer.ggml.tokens"] = (9, (8, tokens))
    keep["tokenizer.ggml.token_type"] = (9, (5, types))
    keep["tokenizer.chat_template"] = (8, TEMPLATE.replace("LAST", str(len(steps) - 1)))
    keep.update({"general.architecture": (8, "llama"), "general.name": (8, "script"), "llama.block_count": (4, 1),
                 "llama.context_length": (4, CONTEXT), "llama.embedding_length": (4, WIDTH), "llama.feed_forward_length": (4, WIDTH),
                 "llama.attention.head_count": (4, 2), "llama.attention.head_count_kv": (4, 1),
                 "llama.attention.layer_norm_rms_epsilon": (6, 1e-5), "llama.rope.dimension_count": (4, WIDTH // 2),
                 "llama.vocab_size": (4, len(tokens))})
    top = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keep))
    top += b"".join(encode(8, k) + struct.pack("<I", kind) + encode(kind, v) for k, (kind, v) in keep.items())
    at, blobs = 0, []
    for name, (shape, data) in tensors.items():
        blob = data.tobytes() + bytes(-len(data.tobytes()) % 32)
        top += encode(8, name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", 0, at)
        at += len(blob)
        blobs.append(blob)
    Path(path).write_bytes(top + bytes(-len(top) % 32) + b"".join(blobs))
